/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/nvidia.c - the group "libraries": this one, and what NVIDIA's own cuFile would do here and
 * why, for those who compare. None of that is needed by this library.
 */
#include <stdio.h>
#include <string.h>

#include "doctor/machine.h"

#define GROUP "libraries"

/* nvidia-fs looks for one hook of the nvme driver by name and falls back in silence without it. */
static void check_hooks(struct hr__report *r, const struct hr__machine *m)
{
	/* Built for a kernel with the block layer's own DMA iterator it looks for the second kind. */
	int want = m->dma_iter == 1 ? 2 : 1, other = 3 - want;

	if (m->nvfs_hooks[1] < 0)
		hr__report_add(
			r, GROUP, "nvidia-fs", HR_CHECK_LIMITED,
			"look for nvme_v1_register_nvfs_dma_ops in /proc/kallsyms as root",
			"loaded; its hook in the nvme driver cannot be seen: /proc/kallsyms is "
			"hidden");
	else if (m->nvfs_hooks[want] == 1)
		hr__report_add(r, GROUP, "nvidia-fs", HR_CHECK_OK, "",
			       "loaded, with its hook in the nvme driver (used by NVIDIA's cuFile, "
			       "not by this library)");
	else if (m->nvfs_hooks[other] == 1)
		hr__report_add(
			r, GROUP, "nvidia-fs", HR_CHECK_LIMITED,
			"for cuFile: nvidia-fs and the nvme driver (MOFED) of one release",
			"loaded, but it looks for nvme_v%d_register_nvfs_dma_ops and the nvme "
			"driver has only v%d: cuFile falls back in silence",
			want, other);
	else
		hr__report_add(r, GROUP, "nvidia-fs", HR_CHECK_LIMITED,
			       "for cuFile: the nvme driver of MOFED/DOCA, or cuFile's P2PDMA mode",
			       "loaded, but this kernel's nvme driver has no hook for it: gdscheck "
			       "says \"NVMe: Unsupported\"");
}

static void check_nvidia_fs(struct hr__report *r, const struct hr__machine *m)
{
	if (hr__report_exists(r, "sys/module/nvidia_fs"))
		check_hooks(r, m);
	else
		hr__report_add(r, GROUP, "nvidia-fs", HR_CHECK_OK, "",
			       "not loaded (this library does not use it)");
}

/* What is missing for cuFile's way without nvidia-fs; "" if nothing. */
static void missing_for_p2pdma(const struct hr__report *r, const struct hr__machine *m, char *out,
			       size_t size)
{
	char version[512], params[4096], multipath[8];
	bool open, static_bar, no_wc, heads;

	hr__report_text(r, version, sizeof(version), "proc/driver/nvidia/version");
	hr__report_text(r, params, sizeof(params), "proc/driver/nvidia/params");
	hr__report_text(r, multipath, sizeof(multipath),
			"sys/module/nvme_core/parameters/multipath");
	open = strstr(version, "Open Kernel Module");
	static_bar = strcasestr(params, "RMForceStaticBar1=1");
	no_wc = strcasestr(params, "RmForceDisableIomapWC=1");
	heads = multipath[0] == 'Y' || multipath[0] == '1';
	const struct {
		bool missing;
		const char *what;
	} wants[] = {
		{m->major < 6 || (m->major == 6 && m->minor < 2), "Linux 6.2"},
		{m->p2pdma == 0, "CONFIG_PCI_P2PDMA"},
		{!open, "the open driver"},
		{!static_bar, "RMForceStaticBar1=1"},
		{!no_wc, "RmForceDisableIomapWC=1"},
		{heads, "nvme_core multipath=N"},
		{!hr__report_exists(r, "run/udev/data"), "/run/udev"},
	};

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
		size_t have = strlen(out);

		if (wants[i].missing)
			snprintf(out + have, size - have, "%s%s", have ? ", " : "", wants[i].what);
	}
}

static void check_cufile(struct hr__report *r, const struct hr__machine *m)
{
	char missing[160];

	if (!hr__report_exists(r, "sys/module/nvidia"))
		return;
	missing_for_p2pdma(r, m, missing, sizeof(missing));
	if (!missing[0])
		hr__report_add(r, GROUP, "cuFile P2PDMA mode", HR_CHECK_OK, "",
			       "NVIDIA's cuFile can go direct without nvidia-fs (not RAID 0, not "
			       "fabrics)");
	else
		hr__report_add(r, GROUP, "cuFile P2PDMA mode", HR_CHECK_OK, "",
			       "not needed here; NVIDIA's cuFile would lack: %s", missing);
}

void hr__check_libraries(struct hr__report *r, const struct hr__machine *m)
{
	bool udev = hr__report_exists(r, "run/udev/data");

	if (hr__report_live(r))
		hr__report_add(r, GROUP, "libheadrace", HR_CHECK_OK, "", "version %s", HR_VERSION);
	check_nvidia_fs(r, m);
	check_cufile(r, m);
	/* cuFile looks drives up in udev's database and gives up without it; this library reads sysfs. */
	if (udev)
		hr__report_add(r, GROUP, "udev", HR_CHECK_OK, "",
			       "there (/run/udev), as NVIDIA's cuFile needs it");
	else if (!hr__report_exists(r, "sys/module/nvidia"))
		hr__report_add(r, GROUP, "udev", HR_CHECK_OK, "",
			       "no /run/udev; this library reads sysfs instead");
	else
		hr__report_add(
			r, GROUP, "udev", HR_CHECK_LIMITED,
			m->container[0]
				? "for cuFile: start the container with -v /run/udev:/run/udev:ro"
				: "for cuFile: run udev; this library does not need it",
			"no /run/udev: NVIDIA's cuFile would go without direct I/O; this "
			"library reads sysfs instead");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/gpu.c - the GPUs that can be opened, what stands between them and drives, and libraries. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>

#include "doctor/report.h"

#define GROUP "gpu"
#define GPUS_MAX 64

static const char *fix_for(int code)
{
	switch (-code) {
	case HR_E_NO_DRIVER:
		return "install the NVIDIA driver, or start the container with its GPUs (--gpus "
		       "all)";
	case HR_E_DRIVER_TOO_OLD:
		return "update the NVIDIA driver";
	case HR_E_NO_DEVICE:
		return "check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPUs";
	default:
		return "use \"host\", \"cuda:N\" or leave --device away";
	}
}

/* Return: false when there is no such device, which ends the walk over all of them. */
static bool check_one(struct hr__report *r, const char *name, bool wanted)
{
	struct hr_device_info info;
	struct hr_device *dev;
	int err = hr_device_open(name, &dev);

	if (err) {
		/* the sentence is "device: cause; remedy", and here each has its own place */
		if (wanted)
			hr__report_add(r, GROUP, name, HR_CHECK_NO, fix_for(err), "%.*s",
				       (int)strcspn(hr_error_detail(), ";"), hr_error_detail());
		return false;
	}
	hr_device_info(dev, &info);
	if (info.kind == HR_DEVICE_HOST || info.kernels)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "", "%.80s, %llu MiB%s%s", info.model,
			       (unsigned long long)(info.memory_bytes >> 20),
			       info.pci[0] ? ", PCI " : "", info.pci);
	else
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED, "update the NVIDIA driver",
			       "%.60s: no gather kernel: %.100s", info.model, info.kernels_reason);
	hr_device_close(dev);
	hr__check_peer(r, &info);
	return true;
}

static uint32_t count_entries(const struct hr__report *r, const char *path)
{
	char full[PATH_MAX];
	struct dirent *entry;
	uint32_t n = 0;
	DIR *dir;

	snprintf(full, sizeof(full), "%s/%s", r->root, path);
	dir = opendir(full);
	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void check_iommu(struct hr__report *r)
{
	uint32_t groups = count_entries(r, "sys/kernel/iommu_groups");

	if (!groups)
		hr__report_add(r, GROUP, "IOMMU", HR_CHECK_OK, "",
			       "off or none: nothing in the way of peer transfers");
	else
		hr__report_add(r, GROUP, "IOMMU", HR_CHECK_LIMITED,
			       "for direct paths through a switch: iommu=pt, ACS off on its ports",
			       "on (%u groups): peer transfers may be sent up to the root", groups);
}

static void check_nvidia_fs(struct hr__report *r)
{
	bool loaded = hr__report_exists(r, "sys/module/nvidia_fs");

	/* Not ours and not needed: shown to those who compare with cuFile. */
	hr__report_add(r, GROUP, "nvidia-fs", HR_CHECK_OK, "", "%s",
		       loaded ? "loaded (used by NVIDIA's cuFile, not by this library)"
			      : "not loaded (this library does not use it)");
}

void hr__check_gpu(struct hr__report *r, const struct hr_check_options *opts)
{
	char name[32];

	if (hr__report_live(r) && opts->device) {
		check_one(r, opts->device, true);
	} else if (hr__report_live(r)) {
		for (uint32_t n = 0; n < GPUS_MAX; n++) {
			snprintf(name, sizeof(name), "cuda:%u", n);
			if (!check_one(r, name, n == 0))
				break;
		}
	}
	if (!hr__report_exists(r, "sys/module/nvidia"))
		hr__report_add(r, GROUP, "NVIDIA kernel module", HR_CHECK_NO,
			       "install and load the NVIDIA driver to use a GPU",
			       "not loaded (no sys/module/nvidia)");
	else
		hr__report_add(r, GROUP, "NVIDIA kernel module", HR_CHECK_OK, "", "loaded");
	check_iommu(r);
	hr__check_peer_module(r);
	check_nvidia_fs(r);
}

void hr__check_libraries(struct hr__report *r)
{
	bool udev = hr__report_exists(r, "run/udev/data");

	if (hr__report_live(r))
		hr__report_add(r, "libraries", "libheadrace", HR_CHECK_OK, "", "version %s",
			       HR_VERSION);
	/* cuFile looks drives up in udev's database and gives up without it; this library reads sysfs. */
	hr__report_add(
		r, "libraries", "udev", HR_CHECK_OK, "", "%s",
		udev ? "there (/run/udev), as NVIDIA's cuFile needs it"
		     : "no /run/udev: NVIDIA's cuFile would go without direct I/O; this library "
		       "does not need it");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/gpu.c - the GPUs: who drives them, how much of their memory a drive sees, how wide their link is. */
#include <stdio.h>
#include <string.h>

#include <headrace/error.h>

#include "doctor/machine.h"

#define GROUP "gpu"
#define BAR_SMALL (1ull << 30)

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

/* A device that was asked for, or the first GPU, says itself why it cannot be used. */
static void check_opens(struct hr__report *r, const char *name)
{
	struct hr_device_info info;
	struct hr_device *dev;
	int err = hr_device_open(name, &dev);

	if (err) {
		/* the sentence is "device: cause; remedy", and here each has its own place */
		hr__report_add(r, GROUP, name, HR_CHECK_NO, fix_for(err), "%.*s",
			       (int)strcspn(hr_error_detail(), ";"), hr_error_detail());
		return;
	}
	hr_device_info(dev, &info);
	hr_device_close(dev);
	if (info.kind == HR_DEVICE_HOST || info.kernels)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "", "%.80s, %llu MiB%s%s", info.model,
			       (unsigned long long)(info.memory_bytes >> 20),
			       info.pci[0] ? ", PCI " : "", info.pci);
	else
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED, "update the NVIDIA driver",
			       "%.60s: no gather kernel: %.100s", info.model, info.kernels_reason);
}

/* Below a root, and for GPUs that no program can open. */
static void check_seen(struct hr__report *r, const struct hr__gpu *g)
{
	const char *fix = "";

	if (!g->driver[0])
		fix = g->amd ? "" : "load NVIDIA's open kernel driver: modprobe nvidia";
	hr__report_add(r, GROUP, g->name, g->driver[0] ? HR_CHECK_OK : HR_CHECK_NO, fix,
		       "%s%s, driver %s", g->amd ? "AMD " : "", g->model[0] ? g->model : "GPU",
		       g->driver[0] ? g->driver : "none");
}

static void check_bar(struct hr__report *r, const struct hr__gpu *g)
{
	char name[64];
	bool whole = g->memory_bytes ? g->bar_bytes >= g->memory_bytes : g->bar_bytes >= BAR_SMALL;

	snprintf(name, sizeof(name), "BAR of %.32s", g->name);
	if (!g->bar_bytes)
		return;
	if (whole)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "", "%llu MiB%s",
			       (unsigned long long)g->bar_bytes >> 20,
			       g->memory_bytes ? ": all of its memory" : "");
	else if (g->memory_bytes)
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED,
			       "switch Resizable BAR on in the firmware's settings",
			       "%llu MiB of %llu MiB: drives reach no more",
			       (unsigned long long)g->bar_bytes >> 20,
			       (unsigned long long)g->memory_bytes >> 20);
	else
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED,
			       "switch Resizable BAR on in the firmware's settings",
			       "%llu MiB: drives reach no more of its memory",
			       (unsigned long long)g->bar_bytes >> 20);
}

/* What the link carries bounds every path; hot data comes near it. */
static void check_link(struct hr__report *r, const struct hr__gpu *g)
{
	char name[64];

	snprintf(name, sizeof(name), "link of %.32s", g->name);
	if (g->pci.link > 0)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "",
			       "%s: hot data up to %.0f to %.0f GB/s", g->pci.link_text,
			       g->pci.link * 0.75 / 1e9, g->pci.link / 1e9);
}

static void check_driver(struct hr__report *r)
{
	char text[512];

	if (!hr__report_exists(r, "sys/module/nvidia")) {
		hr__report_add(r, GROUP, "NVIDIA kernel module", HR_CHECK_NO,
			       "install and load the NVIDIA driver to use a GPU",
			       "not loaded (no sys/module/nvidia)");
		return;
	}
	hr__report_text(r, text, sizeof(text), "proc/driver/nvidia/version");
	if (text[0] && !strstr(text, "Open Kernel Module"))
		hr__report_add(r, GROUP, "NVIDIA kernel module", HR_CHECK_LIMITED,
			       "install the open flavour (nvidia-open, nvidia-driver-NNN-open)",
			       "loaded, the closed flavour: it shares no GPU memory with drives");
	else
		hr__report_add(r, GROUP, "NVIDIA kernel module", HR_CHECK_OK, "", "loaded%s",
			       text[0] ? ", the open flavour" : "");
}

static void check_peer_module(struct hr__report *r, const struct hr__machine *m)
{
	if (!hr__report_exists(r, "sys/module/headrace_peer"))
		hr__report_add(r, GROUP, "headrace_peer", HR_CHECK_LIMITED,
			       "build it from kernel/ (make, or DKMS) and modprobe headrace_peer",
			       "not loaded: bytes go through the staging ring in host memory");
	else if (!hr__report_exists(r, "dev/headrace_peer"))
		hr__report_add(
			r, GROUP, "headrace_peer", HR_CHECK_NO,
			m->container[0]
				? "start the container with --device /dev/headrace_peer"
				: "udevadm trigger, or mknod by /sys/class/misc/headrace_peer/dev",
			"loaded, but /dev/headrace_peer is not here");
	else
		hr__report_add(r, GROUP, "headrace_peer", HR_CHECK_OK, "", "loaded");
}

void hr__check_gpu(struct hr__report *r, const struct hr_check_options *opts,
		   const struct hr__machine *m)
{
	bool opened = false;

	for (uint32_t i = 0; i < m->n_gpus; i++) {
		const struct hr__gpu *g = &m->gpus[i];
		bool opens = hr__report_live(r) && !strchr(g->name, '.');

		if (opens)
			check_opens(r, g->name);
		else
			check_seen(r, g);
		opened |= opens;
		check_bar(r, g);
		check_link(r, g);
	}
	if (hr__report_live(r) && !opened)
		check_opens(r, opts->device ? opts->device : "cuda:0");
	check_driver(r);
	check_peer_module(r, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/kernel.c - what the running kernel offers, and whether this process may use it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>
#include <headrace/io.h>

#include "base/sys.h"
#include "doctor/machine.h"

#define GROUP "kernel"

static void check_version(struct hr__report *r, const struct hr__machine *m)
{
	if (!m->major)
		hr__report_add(r, GROUP, "version", HR_CHECK_LIMITED, "mount /proc",
			       "unknown: proc/sys/kernel/osrelease cannot be read");
	else if (m->major > 6 || (m->major == 6 && m->minor >= 5))
		hr__report_add(r, GROUP, "version", HR_CHECK_OK, "", "Linux %s", m->release);
	else if (m->major == 6 && m->minor >= 2)
		hr__report_add(r, GROUP, "version", HR_CHECK_LIMITED, "use Linux 6.5 or later",
			       "Linux %s works; cachestat came with 6.5, so residency is judged by "
			       "mincore",
			       m->release);
	else if (m->major > 5 || (m->major == 5 && m->minor >= 10))
		hr__report_add(r, GROUP, "version", HR_CHECK_LIMITED,
			       "use Linux 6.2 or later for the direct path, 6.5 for cachestat",
			       "Linux %s works, but its O_DIRECT takes no peer memory", m->release);
	else
		hr__report_add(r, GROUP, "version", HR_CHECK_NO,
			       "use Linux 5.10 or later, 6.2 for the direct path",
			       "Linux %s has no complete io_uring", m->release);
}

static void check_machine(struct hr__report *r, const struct hr__machine *m)
{
	if (m->kind == HR__HOST_WSL)
		hr__report_add(
			r, GROUP, "machine", HR_CHECK_LIMITED,
			"for the direct path run Linux itself; keep data in WSL's own file "
			"system, not below /mnt/c",
			"WSL: Windows holds drives and GPUs, and its Linux sees neither on PCIe");
	else if (m->kind == HR__HOST_VM)
		hr__report_add(
			r, GROUP, "machine", HR_CHECK_OK, "",
			"virtual machine%s%s: drives and GPUs are what its host passes through",
			m->vendor[0] ? " by " : "", m->vendor);
	else
		hr__report_add(r, GROUP, "machine", HR_CHECK_OK, "", "hardware%s%s",
			       m->vendor[0] ? ", " : "", m->vendor);
}

/* The proof: open an engine as any program would. */
static void try_io_uring(struct hr__report *r, const char *sysctl)
{
	struct hr_queue_info queue = {.name = "none"};
	struct hr_engine *engine;
	struct hr_device *dev;
	const char *fix = "";

	if (hr_device_open("host", &dev))
		return;
	if (!hr_engine_open(dev, NULL, &engine)) {
		hr_engine_queue(engine, &queue);
		hr_engine_close(engine);
	}
	hr_device_close(dev);
	if (!strcmp(queue.name, "io_uring fixed")) {
		hr__report_add(r, GROUP, "io_uring", HR_CHECK_OK, "", "works, with fixed buffers");
		return;
	}
	if (!strncmp(queue.name, "io_uring", 8)) {
		hr__report_add(r, GROUP, "io_uring", HR_CHECK_LIMITED,
			       "raise RLIMIT_MEMLOCK (ulimit -l, systemd LimitMEMLOCK=)",
			       "works without fixed buffers: %s", queue.reason);
		return;
	}
	if (strtol(sysctl, NULL, 10) > 0)
		fix = "sysctl kernel.io_uring_disabled=0";
	else
		fix = "allow io_uring_setup in the container's seccomp profile";
	hr__report_add(r, GROUP, "io_uring", HR_CHECK_NO, fix, "%s", queue.reason);
}

static void check_io_uring(struct hr__report *r)
{
	static const char *const meaning[] = {
		"allowed to all (kernel.io_uring_disabled = 0)",
		"denied to processes outside kernel.io_uring_group (kernel.io_uring_disabled = 1)",
		"denied to all (kernel.io_uring_disabled = 2)",
	};
	char text[32];
	long value;

	hr__report_text(r, text, sizeof(text), "proc/sys/kernel/io_uring_disabled");
	if (hr__report_live(r)) {
		try_io_uring(r, text);
		return;
	}
	value = text[0] ? strtol(text, NULL, 10) : 0;
	if (value < 0 || value > 2)
		value = 2;
	hr__report_add(r, GROUP, "io_uring", value ? HR_CHECK_NO : HR_CHECK_OK,
		       value ? "sysctl kernel.io_uring_disabled=0" : "", "%s", meaning[value]);
}

static void check_cachestat(struct hr__report *r)
{
	struct hr__cachestat stat;
	int err;

	if (!hr__report_live(r))
		return;
	/* No descriptor is -1, so EBADF means that the call is there. */
	err = hr__sys->cachestat(-1, 0, 0, &stat);
	if (err == -EBADF)
		hr__report_add(r, GROUP, "cachestat", HR_CHECK_OK, "",
			       "there: residency of files costs one call");
	else
		hr__report_add(r, GROUP, "cachestat", HR_CHECK_LIMITED,
			       err == -ENOSYS
				       ? "use Linux 6.5 or later"
				       : "allow cachestat in the container's seccomp profile",
			       "refused (%s): residency is judged by mincore, where that is honest",
			       hr_error_name(err));
}

static void check_p2pdma(struct hr__report *r, const struct hr__machine *m)
{
	if (m->p2pdma < 0)
		hr__report_add(
			r, GROUP, "PCI_P2PDMA", HR_CHECK_LIMITED,
			"look for CONFIG_PCI_P2PDMA=y in the kernel's configuration",
			"unknown: neither /boot/config-%.100s nor /proc/kallsyms can be read",
			m->release);
	else if (m->p2pdma)
		hr__report_add(r, GROUP, "PCI_P2PDMA", HR_CHECK_OK, "", "built in");
	else
		hr__report_add(r, GROUP, "PCI_P2PDMA", HR_CHECK_NO,
			       "use a kernel with CONFIG_PCI_P2PDMA=y for direct paths to a GPU",
			       "not built in: drives cannot reach device memory directly");
}

static void check_iommu(struct hr__report *r, const struct hr__machine *m)
{
	if (!m->iommu)
		hr__report_add(r, GROUP, "IOMMU", HR_CHECK_OK, "",
			       "off or none: nothing in the way of peer transfers");
	else if (!m->iommu_translates)
		hr__report_add(r, GROUP, "IOMMU", HR_CHECK_OK, "",
			       "on, and passes addresses through (iommu=pt)");
	else
		hr__report_add(
			r, GROUP, "IOMMU", HR_CHECK_LIMITED,
			"for the direct path boot with iommu=pt, ACS off on the ports of switches",
			"on, and translates addresses: peer transfers are sent up to the root");
}

void hr__check_kernel(struct hr__report *r, const struct hr__machine *m)
{
	check_machine(r, m);
	check_version(r, m);
	check_io_uring(r);
	check_cachestat(r);
	check_p2pdma(r, m);
	check_iommu(r, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/kernel.c - what the running kernel offers, and whether this process may use it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headrace/error.h>
#include <headrace/io.h>

#include "base/sys.h"
#include "doctor/report.h"

#define GROUP "kernel"

static void check_version(struct hr__report *r)
{
	char text[128];
	unsigned int major = 0, minor = 0;

	if (hr__report_text(r, text, sizeof(text), "proc/sys/kernel/osrelease") <= 0 ||
	    sscanf(text, "%u.%u", &major, &minor) != 2) {
		hr__report_add(r, GROUP, "version", HR_CHECK_LIMITED, "mount /proc",
			       "unknown: proc/sys/kernel/osrelease cannot be read");
		return;
	}
	if (major > 6 || (major == 6 && minor >= 5))
		hr__report_add(r, GROUP, "version", HR_CHECK_OK, "", "Linux %s", text);
	else if (major > 5 || (major == 5 && minor >= 10))
		hr__report_add(r, GROUP, "version", HR_CHECK_LIMITED, "use Linux 6.5 or later",
			       "Linux %s works; cachestat came with 6.5, so residency is judged by "
			       "mincore",
			       text);
	else
		hr__report_add(r, GROUP, "version", HR_CHECK_NO, "use Linux 5.10 or later",
			       "Linux %s has no complete io_uring", text);
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

/* One line of a kernel configuration: 1 set, 0 not set, -1 no configuration found. */
static int config_has(const struct hr__report *r, const char *release, const char *line)
{
	char path[512], text[256];
	size_t len = strlen(line);
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/boot/config-%.200s", r->root, release);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (!found && fgets(text, sizeof(text), f))
		found = !strncmp(text, line, len);
	fclose(f);
	return found;
}

/* The running kernel's own list of symbols also tells: 1, 0, or -1 where the list is hidden. */
static int symbol_exists(const struct hr__report *r, const char *symbol)
{
	char path[512], text[512], name[160];
	int found = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/kallsyms", r->root);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (found < 1 && fgets(text, sizeof(text), f)) {
		found = 0;
		if (sscanf(text, "%*s %*s %159s", name) == 1 && !strcmp(name, symbol))
			found = 1;
	}
	fclose(f);
	return found;
}

static void check_p2pdma(struct hr__report *r)
{
	char release[128];
	int has;

	hr__report_text(r, release, sizeof(release), "proc/sys/kernel/osrelease");
	has = config_has(r, release, "CONFIG_PCI_P2PDMA=y");
	if (has < 0)
		has = symbol_exists(r, "pci_p2pdma_add_resource");
	if (has < 0)
		hr__report_add(r, GROUP, "PCI_P2PDMA", HR_CHECK_LIMITED,
			       "look for CONFIG_PCI_P2PDMA=y in the kernel's configuration",
			       "unknown: neither /boot/config-%s nor /proc/kallsyms can be read",
			       release);
	else if (has)
		hr__report_add(r, GROUP, "PCI_P2PDMA", HR_CHECK_OK, "", "built in");
	else
		hr__report_add(r, GROUP, "PCI_P2PDMA", HR_CHECK_NO,
			       "use a kernel with CONFIG_PCI_P2PDMA=y for direct paths to a GPU",
			       "not built in: drives cannot reach device memory directly");
}

void hr__check_kernel(struct hr__report *r)
{
	check_version(r);
	check_io_uring(r);
	check_cachestat(r);
	check_p2pdma(r);
}

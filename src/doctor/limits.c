/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/limits.c - what this process is allowed: locked memory, descriptors, cgroup, container. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/memlimit.h"
#include "base/util.h"
#include "doctor/machine.h"

#define GROUP "limits"
#define CAP_IPC_LOCK_BIT 14

/* The soft limit of a line in proc/self/limits. Return: 0, UINT64_MAX for unlimited, or -ENOENT. */
static int soft_limit(const char *limits, const char *name, uint64_t *out)
{
	const char *line = strstr(limits, name);
	char value[32];

	if (!line || sscanf(line + strlen(name), "%31s", value) != 1)
		return -ENOENT;
	*out = strcmp(value, "unlimited") ? strtoull(value, NULL, 10) : UINT64_MAX;
	return 0;
}

static bool has_ipc_lock(const struct hr__report *r)
{
	char status[4096];
	const char *line;

	if (hr__report_text(r, status, sizeof(status), "proc/self/status") <= 0)
		return false;
	line = strstr(status, "CapEff:");
	return line && (strtoull(line + 7, NULL, 16) >> CAP_IPC_LOCK_BIT) & 1;
}

static void check_memlock(struct hr__report *r, const char *limits)
{
	uint64_t bytes, want = hr__staging_bytes(0);

	if (has_ipc_lock(r))
		hr__report_add(r, GROUP, "RLIMIT_MEMLOCK", HR_CHECK_OK, "",
			       "does not bind: this process has CAP_IPC_LOCK");
	else if (soft_limit(limits, "Max locked memory", &bytes))
		hr__report_add(r, GROUP, "RLIMIT_MEMLOCK", HR_CHECK_LIMITED, "mount /proc",
			       "unknown: proc/self/limits cannot be read");
	else if (bytes == UINT64_MAX)
		hr__report_add(r, GROUP, "RLIMIT_MEMLOCK", HR_CHECK_OK, "", "unlimited");
	else if (bytes >= want)
		hr__report_add(r, GROUP, "RLIMIT_MEMLOCK", HR_CHECK_OK, "",
			       "%" PRIu64 " KiB hold a staging ring of %" PRIu64 " KiB",
			       bytes >> 10, want >> 10);
	else
		hr__report_add(r, GROUP, "RLIMIT_MEMLOCK", HR_CHECK_LIMITED,
			       "raise it: ulimit -l, /etc/security/limits.conf, LimitMEMLOCK=",
			       "%" PRIu64 " KiB are less than a staging ring of %" PRIu64
			       " KiB: io_uring works without fixed buffers",
			       bytes >> 10, want >> 10);
}

static void check_nofile(struct hr__report *r, const char *limits)
{
	uint64_t files;

	if (soft_limit(limits, "Max open files", &files))
		return;
	/* two descriptors a file, and a ring a thread */
	hr__report_add(r, GROUP, "RLIMIT_NOFILE", files >= 1024 ? HR_CHECK_OK : HR_CHECK_LIMITED,
		       files >= 1024 ? "" : "raise it: ulimit -n",
		       "%" PRIu64 " descriptors: about %" PRIu64 " data files at once", files,
		       files / 2);
}

static void check_cgroup(struct hr__report *r)
{
	uint64_t bytes = hr__cgroup_limit(r->root);

	if (!hr__report_exists(r, "proc/self/cgroup"))
		return;
	if (bytes >= 1ull << 60)
		hr__report_add(r, GROUP, "cgroup memory", HR_CHECK_OK, "", "no limit");
	else
		hr__report_add(r, GROUP, "cgroup memory",
			       bytes >= 1ull << 30 ? HR_CHECK_OK : HR_CHECK_LIMITED,
			       bytes >= 1ull << 30 ? ""
						   : "raise memory.max of the group or container",
			       "%" PRIu64 " MiB, page cache included", bytes >> 20);
}

static void check_container(struct hr__report *r, const struct hr__machine *m)
{
	char status[4096];
	const char *seccomp;

	if (m->container[0])
		hr__report_add(r, GROUP, "container", HR_CHECK_OK, "",
			       "%s: its seccomp profile and limits apply", m->container);
	if (hr__report_text(r, status, sizeof(status), "proc/self/status") <= 0)
		return;
	seccomp = strstr(status, "Seccomp:");
	if (seccomp && strtol(seccomp + 8, NULL, 10) == 2)
		hr__report_add(r, GROUP, "seccomp", HR_CHECK_LIMITED,
			       "if io_uring is refused, allow it in the profile",
			       "a filter is active: it may deny io_uring or cachestat");
}

void hr__check_limits(struct hr__report *r, const struct hr__machine *m)
{
	char limits[4096];

	hr__report_text(r, limits, sizeof(limits), "proc/self/limits");
	check_memlock(r, limits);
	check_nofile(r, limits);
	check_cgroup(r);
	check_container(r, m);
}

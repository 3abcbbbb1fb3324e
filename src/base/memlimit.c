/* SPDX-License-Identifier: Apache-2.0 */
/* base/memlimit.c - reads the memory limits of cgroup v1 and v2; knows nothing of what they are for. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memlimit.h"
#include "base/util.h"

#define PATH_BYTES 2048

/* The cgroup of this process from "0::/path" (v2) or "N:memory:/path" (v1). */
static bool cgroup_path(const char *text, const char *marker, char *out, size_t size)
{
	const char *at = strstr(text, marker);

	if (!at)
		return false;
	at += strlen(marker);
	snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

static uint64_t least_limit(const char *root, const char *mount, char *path, const char *file)
{
	uint64_t least = UINT64_MAX;
	char name[PATH_BYTES], text[64], *slash;

	for (;;) {
		snprintf(name, sizeof(name), "%s/%s%s/%s", root, mount, path, file);
		if (hr__read_text(name, text, sizeof(text)) > 0 && text[0] >= '0' && text[0] <= '9')
			least = hr__min(least, strtoull(text, NULL, 10));
		slash = strrchr(path, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

uint64_t hr__cgroup_limit(const char *root)
{
	char name[PATH_BYTES], text[4096], path[1024];

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	if (hr__read_text(name, text, sizeof(text)) <= 0)
		return UINT64_MAX;
	if (cgroup_path(text, ":memory:", path, sizeof(path)))
		return least_limit(root, "sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
	if (cgroup_path(text, "0::", path, sizeof(path)))
		return least_limit(root, "sys/fs/cgroup", path, "memory.max");
	return UINT64_MAX;
}

uint64_t hr__memory_allowed(void)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);

	return hr__min(pages * (uint64_t)sysconf(_SC_PAGESIZE), hr__cgroup_limit(""));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* base/memlimit.c - reads the memory limits of cgroup v1 and v2; knows nothing of what they are for. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/memlimit.h"
#include "base/util.h"

#define PATH_BYTES 2048
#define STAT_BYTES 8192

/* How the two versions call the same things. */
struct version {
	const char
		*marker; /* in /proc/self/cgroup, before the path: "N:memory:/path" or "0::/path" */
	const char *mount, *limit, *used, *inactive, *active;
};

static const struct version versions[] = {
	{":memory:", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	 "total_inactive_file ", "total_active_file "},
	{"0::", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
};

static bool cgroup_path(const char *text, const char *marker, char *out, size_t size)
{
	const char *at = strstr(text, marker);

	if (!at)
		return false;
	at += strlen(marker);
	snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

/* The number in a file of one line; UINT64_MAX for "max" or no such file. */
static uint64_t read_number(const char *folder, const char *file)
{
	char name[PATH_BYTES + 64], text[64];

	snprintf(name, sizeof(name), "%s/%s", folder, file);
	if (hr__read_text(name, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	return strtoull(text, NULL, 10);
}

/* The number after @key, which begins a line; @missing if it is not there. */
static uint64_t find_number(const char *text, const char *key, uint64_t missing)
{
	size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len))
			return strtoull(line + len, NULL, 10);
	}
	return missing;
}

static uint64_t limit_of(const char *folder, const struct version *v)
{
	return read_number(folder, v->limit);
}

/* What a group may still take. Its page cache is charged to it, but makes room when asked. */
static uint64_t room_of(const char *folder, const struct version *v)
{
	uint64_t limit = limit_of(folder, v), used = read_number(folder, v->used), cache;
	char name[PATH_BYTES + 64], text[STAT_BYTES];

	if (limit == UINT64_MAX || used == UINT64_MAX)
		return limit;
	snprintf(name, sizeof(name), "%s/memory.stat", folder);
	if (hr__read_text(name, text, sizeof(text)) > 0) {
		cache = find_number(text, v->inactive, 0) + find_number(text, v->active, 0);
		used -= hr__min(used, cache);
	}
	return limit - hr__min(limit, used);
}

/* The least answer from the process's group up to the visible root. */
static uint64_t least(const char *root, uint64_t (*ask)(const char *, const struct version *))
{
	char name[PATH_BYTES], text[4096], path[1024], *slash = path;
	uint64_t found = UINT64_MAX;
	const struct version *v = versions;

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	if (hr__read_text(name, text, sizeof(text)) <= 0)
		return UINT64_MAX;
	while (!cgroup_path(text, v->marker, path, sizeof(path))) {
		if (++v == versions + HR_ARRAY_LEN(versions))
			return UINT64_MAX;
	}
	while (slash) {
		snprintf(name, sizeof(name), "%s/%s%s", root, v->mount, path);
		found = hr__min(found, ask(name, v));
		slash = strrchr(path, '/');
		if (slash)
			*slash = '\0';
	}
	return found;
}

uint64_t hr__cgroup_limit(const char *root)
{
	return least(root, limit_of);
}

uint64_t hr__memory_allowed(void)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);

	return hr__min(pages * (uint64_t)sysconf(_SC_PAGESIZE), hr__cgroup_limit(""));
}

uint64_t hr__memory_available(const char *root)
{
	char name[PATH_BYTES], text[4096];
	uint64_t kib;

	snprintf(name, sizeof(name), "%s/proc/meminfo", root);
	if (hr__read_text(name, text, sizeof(text)) <= 0)
		return 0;
	kib = find_number(text, "MemAvailable:", 0);
	return hr__min(hr__min(kib, UINT64_MAX >> 10) << 10, least(root, room_of));
}

/*
 * Fits into a cache of 32 MiB. Threads that copy side by side need segments to go on with while others
 * are on their way: with 12 of them and twice as much, the H200 machine loads a sixth faster.
 */
uint64_t hr__staging_bytes(uint32_t threads)
{
	uint64_t wish = hr_config_get()->staging_bytes;

	return wish ? wish : hr__max(24ull << 20, hr__min(threads, 16u) * (4ull << 20));
}

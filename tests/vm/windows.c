/* SPDX-License-Identifier: Apache-2.0 */
/* vm/windows.c - see windows.h; plain reads alone, so that it is no part of what is tested. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "windows.h"

static uint64_t next_random(void)
{
	static uint64_t seed = 7;

	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 20;
}

uint64_t windows_offset(const char *how, uint64_t i, uint64_t len, uint64_t size)
{
	uint64_t off;

	if (!strcmp(how, "whole"))
		return i * len;
	off = next_random() % (size - len);
	return strcmp(how, "aligned") ? off | 1 : off & ~4095ull;
}

int windows_print(const char *path, const char *how, uint64_t count, uint64_t len)
{
	static uint8_t guard[WINDOWS_GUARD];
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;
	uint8_t *want = malloc(len);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !want)
		ret = -1;
	memset(guard, WINDOWS_GUARD_BYTE, sizeof(guard));
	fwrite(guard, 1, sizeof(guard), stdout);
	for (uint64_t i = 0; i < count && !ret; i++) {
		uint64_t off = windows_offset(how, i, len, (uint64_t)st.st_size);

		if (pread(fd, want, len, (off_t)off) != (ssize_t)len)
			ret = -1;
		fwrite(want, 1, len, stdout);
	}
	fwrite(guard, 1, sizeof(guard), stdout);
	free(want);
	if (fd >= 0)
		close(fd);
	return ret;
}

/*
 * A device's addresses are reserved without rights: "vgpu:0" reserves the whole BAR (private), the
 * pretended CUDA driver maps the parts that it allocates (shared, at their offset).
 */
uint64_t windows_in_bar(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long long start, end, offset;
	uint64_t found = UINT64_MAX;
	char line[512], kind;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx ---%c %llx", &start, &end, &kind, &offset) == 4 &&
		    (uintptr_t)address >= start && (uintptr_t)address < end)
			found = (uintptr_t)address - start + (kind == 's' ? offset : 0);
	}
	if (maps)
		fclose(maps);
	return found;
}

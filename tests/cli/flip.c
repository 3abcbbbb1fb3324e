/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/cli/flip.c - loaded before libc: plain reads of files named *$FLIP_NAME see the byte at
 * $FLIP_OFFSET inverted. So the two ways of reading that a check compares really differ.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t pread64(int fd, void *buf, size_t len, off64_t offset);

static int is_victim(int fd)
{
	const char *suffix = getenv("FLIP_NAME");
	char link[64], name[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name) - 1);
	if (!suffix || n < (ssize_t)strlen(suffix))
		return 0;
	name[n] = '\0';
	return !strcmp(name + n - strlen(suffix), suffix);
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t offset)
{
	static ssize_t (*real)(int, void *, size_t, off64_t);
	const char *text = getenv("FLIP_OFFSET");
	off64_t at = text ? strtoll(text, NULL, 10) : -1;
	ssize_t n;

	if (!real)
		real = (ssize_t(*)(int, void *, size_t, off64_t))(uintptr_t)dlsym(RTLD_NEXT,
										  "pread64");
	n = real(fd, buf, len, offset);
	if (at >= offset && at < offset + n && is_victim(fd))
		((uint8_t *)buf)[at - offset] ^= 0xff;
	return n;
}

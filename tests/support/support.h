/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/support.h - what tests share: a private folder, files with a known pattern, guarded memory.
 */
#ifndef HR_TESTS_SUPPORT_H
#define HR_TESTS_SUPPORT_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TEST_GUARD 0xa5

/* The byte at @offset of every test file: position-dependent, so that shifted data is seen. */
static inline uint8_t test_pattern(uint64_t offset)
{
	uint64_t x = (offset >> 3) * 0x9e3779b97f4a7c15ull + 0x1234567;

	return (uint8_t)((x ^ (x >> 29)) >> (8 * (offset & 7)));
}

/* A new private folder under $TMPDIR or /tmp. The caller removes it with test_rmdir(). */
static inline char *test_mkdir(void)
{
	const char *tmp = getenv("TMPDIR");
	char *path = malloc(512);

	snprintf(path, 512, "%s/headrace-test-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(path));
	return path;
}

static inline void test_rmdir(char *dir)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
	free(dir);
}

/* Write @len pattern bytes to @dir/@name. Return: the path, to be freed. */
static inline char *test_file(const char *dir, const char *name, uint64_t len)
{
	char *path = malloc(600);
	uint8_t *block = malloc(1 << 20);
	int fd;

	snprintf(path, 600, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (uint64_t at = 0; at < len;) {
		size_t n = len - at < (1 << 20) ? (size_t)(len - at) : (1 << 20);

		for (size_t i = 0; i < n; i++)
			block[i] = test_pattern(at + i);
		assert_int_equal(write(fd, block, n), (ssize_t)n);
		at += n;
	}
	assert_int_equal(fsync(fd), 0);
	close(fd);
	free(block);
	return path;
}

/* A small fast generator: tests print their seed and use nothing else. */
static inline uint64_t test_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Open descriptors. Without /proc, which is not everywhere. */
static inline int test_count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_cache.c - what reads leave in the page cache under each enum hr_cache and each hint
 * of a file: judged by the kernel's own count of resident pages, on a file that is cold or hot before.
 * How much memory there is, is told by files in the place of /proc and the cgroup's.
 */
#include <stdio.h>
#include <sys/stat.h>

#include <headrace/headrace.h>

#include "base/memlimit.h"
#include "base/sys.h"
#include "support/support.h"

#define FILE_LEN (8u << 20)

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *image;
} t;

static const char *device_name = "host";

static enum hr_residency residency(void)
{
	struct hr_residency_info info;

	assert_int_equal(hr_file_residency(t.file, 0, 0, &info), 0);
	return info.state;
}

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	t.image = malloc(FILE_LEN);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static void chill(void)
{
	assert_int_equal(hr_file_drop_cache(t.file), 0);
	if (residency() != HR_RESIDENCY_COLD)
		skip(); /* tmpfs is never cold, overlay and FUSE do not tell */
}

/* Read the whole file with @o and compare it. Return: bytes that came from the page cache. */
static uint64_t read_all(struct hr_engine_options o)
{
	struct hr_stats stats;
	uint8_t *got = t.image;
	struct hr_engine *e;

	memset(got, TEST_GUARD, FILE_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, got, FILE_LEN), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), FILE_LEN);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, got, FILE_LEN), 0);
	for (uint64_t i = 0; i < FILE_LEN; i++) {
		if (got[i] != test_pattern(i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	hr_engine_stats(e, &stats);
	assert_int_equal(hr_engine_close(e), 0);
	return stats.bytes_cached;
}

static bool is_direct(void)
{
	struct hr_file_info info;

	assert_int_equal(hr_file_info(t.file, &info), 0);
	return info.direct;
}

static void test_auto(void **state)
{
	chill();
	read_all((struct hr_engine_options){0});
	if (is_direct())
		assert_int_equal(residency(), HR_RESIDENCY_COLD);
}

static void test_keep(void **state)
{
	chill();
	read_all((struct hr_engine_options){.cache = HR_CACHE_KEEP});
	assert_int_equal(residency(), HR_RESIDENCY_HOT);
}

static void test_drop(void **state)
{
	chill();
	read_all((struct hr_engine_options){.cache = HR_CACHE_DROP, .buffered = true});
	assert_int_not_equal(residency(),
			     HR_RESIDENCY_HOT); /* read-ahead may have left something */
	chill();
	read_all((struct hr_engine_options){.cache = HR_CACHE_KEEP});
	read_all((struct hr_engine_options){.cache = HR_CACHE_DROP});
	assert_int_equal(residency(),
			 HR_RESIDENCY_HOT); /* it was there before, for somebody else */
}

/* Weights: the second start, or another process, finds them in memory. */
static void test_hint_keep(void **state)
{
	chill();
	assert_int_equal(hr_file_hint(t.file, HR_CACHE_KEEP, 2 * FILE_LEN), 0);
	assert_int_equal(read_all((struct hr_engine_options){0}), 0);
	assert_int_equal(residency(), HR_RESIDENCY_HOT);
	assert_int_equal(read_all((struct hr_engine_options){0}), FILE_LEN);
	/* Options of the engine win over the hint. */
	if (is_direct()) {
		chill();
		read_all((struct hr_engine_options){.direct = true});
		assert_int_equal(residency(), HR_RESIDENCY_COLD);
	}
	chill();
	read_all((struct hr_engine_options){.cache = HR_CACHE_DROP});
	assert_int_not_equal(residency(), HR_RESIDENCY_HOT);
}

/* A shard of something larger than memory pushes nobody out. */
static void test_hint_too_large(void **state)
{
	chill();
	assert_int_equal(hr_file_hint(t.file, HR_CACHE_KEEP, 1ull << 60), 0);
	read_all((struct hr_engine_options){0});
	assert_int_not_equal(residency(), HR_RESIDENCY_HOT);
	if (is_direct())
		assert_int_equal(residency(), HR_RESIDENCY_COLD);
}

static int deny_direct(const char *path, int flags, mode_t mode)
{
	return flags & O_DIRECT ? -EINVAL : hr__sys_real.open(path, flags, mode);
}

/* Where direct I/O is impossible the cache is passed: size and hint say what stays. */
static void test_no_direct(void **state)
{
	static const struct {
		enum hr_cache hint;
		uint64_t set_bytes;
		bool stays;
	} cases[] = {
		{HR_CACHE_AUTO, 0, true},         {HR_CACHE_AUTO, 1ull << 60, false},
		{HR_CACHE_KEEP, 0, true},         {HR_CACHE_KEEP, 1ull << 60, false},
		{HR_CACHE_DROP, FILE_LEN, false},
	};
	struct hr_file *other = t.file;
	struct hr__sys sys = hr__sys_real;

	sys.open = deny_direct;
	hr__sys = &sys;
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_false(is_direct());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		chill();
		assert_int_equal(hr_file_hint(t.file, cases[i].hint, cases[i].set_bytes), 0);
		read_all((struct hr_engine_options){0});
		if ((residency() == HR_RESIDENCY_HOT) != cases[i].stays)
			fail_msg("case %zu: the file is %s", i,
				 cases[i].stays ? "gone" : "there still");
	}
	hr_file_close(t.file);
	t.file = other;
	hr__sys = &hr__sys_real;
}

static void put(const char *root, const char *name, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = strchr(path + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

/* What fits is asked of the kernel: the machine's memory or the cgroup's rest, cache not counted. */
static void test_available(void **state)
{
	char *root = test_mkdir();

	assert_int_equal(hr__memory_available(root), 0);
	put(root, "proc/meminfo",
	    "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable:    600 kB\nCached: 1 kB\n");
	assert_int_equal(hr__memory_available(root), 600 << 10);
	put(root, "proc/self/cgroup", "0::/a/b\n");
	assert_int_equal(hr__memory_available(root), 600 << 10);
	put(root, "sys/fs/cgroup/a/memory.max", "500000\n");
	assert_int_equal(hr__memory_available(root), 500000);
	put(root, "sys/fs/cgroup/a/memory.current", "450000\n");
	assert_int_equal(hr__memory_available(root), 50000);
	put(root, "sys/fs/cgroup/a/memory.stat",
	    "anon 1\nfile 999999\ninactive_file 200000\nactive_file 100000\n"
	    "workingset_refault_file 7\n");
	assert_int_equal(hr__memory_available(root), 350000);
	put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
	assert_int_equal(hr__memory_available(root), 350000);
	put(root, "sys/fs/cgroup/a/b/memory.max", "3000\n");
	put(root, "sys/fs/cgroup/a/b/memory.current", "9000\n");
	assert_int_equal(hr__memory_available(root), 0);
	put(root, "proc/self/cgroup", "9:cpu:/\n3:memory:/x\n0::/a/b\n");
	put(root, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4000\n");
	put(root, "sys/fs/cgroup/memory/x/memory.usage_in_bytes", "3500\n");
	put(root, "sys/fs/cgroup/memory/x/memory.stat",
	    "inactive_file 9\ntotal_inactive_file 200\ntotal_active_file 300\n");
	assert_int_equal(hr__memory_available(root), 1000);
	test_rmdir(root);
}

static void test_refusals(void **state)
{
	struct hr_engine_options o = {.cache = (enum hr_cache)3};
	struct hr_engine *e;

	assert_int_equal(hr_engine_open(t.dev, &o, &e), -EINVAL);
	assert_int_equal(hr_file_hint(t.file, (enum hr_cache)3, 0), -EINVAL);
	o = (struct hr_engine_options){.cache = HR_CACHE_KEEP, .direct = true};
	assert_int_equal(hr_engine_open(t.dev, &o, &e), -EINVAL);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto),           cmocka_unit_test(test_keep),
		cmocka_unit_test(test_drop),           cmocka_unit_test(test_hint_keep),
		cmocka_unit_test(test_hint_too_large), cmocka_unit_test(test_no_direct),
		cmocka_unit_test(test_available),      cmocka_unit_test(test_refusals),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_cache.c - what reads leave in the page cache under each enum hr_cache: judged by the
 * kernel's own count of resident pages, on a file that is cold or hot before.
 */
#include <headrace/headrace.h>

#include "support/support.h"

#define FILE_LEN (8u << 20)

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
} t;

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
	assert_int_equal(hr_device_open("host", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
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

/* Read the whole file with @o and compare it. */
static void read_all(struct hr_engine_options o)
{
	const uint8_t *got = hr_buffer_address(t.buf);
	struct hr_engine *e;

	memset(hr_buffer_address(t.buf), TEST_GUARD, FILE_LEN);
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), FILE_LEN);
	for (uint64_t i = 0; i < FILE_LEN; i++) {
		if (got[i] != test_pattern(i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	assert_int_equal(hr_engine_close(e), 0);
}

static void test_auto(void **state)
{
	struct hr_file_info info;

	chill();
	hr_file_info(t.file, &info);
	read_all((struct hr_engine_options){0});
	if (info.direct)
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

static void test_refusals(void **state)
{
	struct hr_engine_options o = {.cache = (enum hr_cache)3};
	struct hr_engine *e;

	assert_int_equal(hr_engine_open(t.dev, &o, &e), -EINVAL);
	o = (struct hr_engine_options){.cache = HR_CACHE_KEEP, .direct = true};
	assert_int_equal(hr_engine_open(t.dev, &o, &e), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_windows.c - what small reads at odd offsets cost: windows of 8 KiB, one by one and as
 * one gather, ask the kernel for hardly more than they are, in one request each and with few copies.
 * Counted in the engine's statistics, on the host and on the GPU of tests/fakecuda.
 */
#include <headrace/headrace.h>

#include "support/support.h"

#define WINDOW 8192u
#define WINDOWS 256u
#define APART (48u << 10) /* too far for merging */
#define FILE_LEN ((uint64_t)WINDOWS * APART + WINDOW)

static const char *device_name = "host";

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_file_info info;
	struct hr_buffer *buf;
	uint8_t *image;
	struct hr_piece pieces[WINDOWS];
} t;

static int set_up(void **state)
{
	uint64_t seed = 3;

	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_file_info(t.file, &t.info), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, WINDOWS * (WINDOW + 1ull), &t.buf), 0);
	t.image = malloc(WINDOWS * (WINDOW + 1ull));
	for (uint32_t i = 0; i < WINDOWS; i++)
		t.pieces[i] = (struct hr_piece){
			.file_offset = (uint64_t)i * APART + (test_random(&seed) % 30000 | 1),
			.len = WINDOW,
			.buffer_offset =
				(uint64_t)(WINDOWS - 1 - i) * (WINDOW + 1), /* a guard each */
		};
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

static struct hr_engine *open_engine(void)
{
	struct hr_engine_options o = {.direct = true};
	struct hr_engine *e;

	memset(t.image, TEST_GUARD, WINDOWS * (WINDOW + 1ull));
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, WINDOWS * (WINDOW + 1ull)), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

/* Right bytes, untouched guards, and what it cost. */
static void check(struct hr_engine *e, uint64_t copies_max)
{
	struct hr_stats stats;
	uint64_t percent = t.info.offset_align == 512 ? 107 : 151;

	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, WINDOWS * (WINDOW + 1ull)), 0);
	for (uint32_t i = 0; i < WINDOWS; i++) {
		const uint8_t *got = t.image + t.pieces[i].buffer_offset;

		for (uint32_t k = 0; k < WINDOW; k++) {
			if (got[k] != test_pattern(t.pieces[i].file_offset + k))
				fail_msg("window %u: byte %u is wrong", i, k);
		}
		assert_int_equal(got[WINDOW], TEST_GUARD);
	}
	hr_engine_stats(e, &stats);
	assert_int_equal(stats.segments, WINDOWS);
	assert_int_equal(stats.bytes_cached, 0);
	if (stats.bytes_read * 100 > percent * WINDOWS * WINDOW)
		fail_msg("%llu bytes read for %u", (unsigned long long)stats.bytes_read,
			 WINDOWS * WINDOW);
	if (stats.copies > copies_max)
		fail_msg("%llu copies", (unsigned long long)stats.copies);
	assert_int_equal(hr_engine_close(e), 0);
}

static bool judgeable(void)
{
	return t.info.direct && t.info.offset_align <= 4096;
}

static void test_gather(void **state)
{
	struct hr_engine *e;

	if (!judgeable())
		skip();
	e = open_engine();
	assert_int_equal(
		hr_gather(e, t.file, t.pieces, WINDOWS, t.buf, HR_DTYPE_BYTES, HR_DTYPE_BYTES),
		WINDOWS * WINDOW);
	/* The host's lane moves each window while it is in the cache. */
	check(e, strcmp(device_name, "host") ? 2 : WINDOWS);
}

static void test_one_by_one(void **state)
{
	static struct hr_io ios[WINDOWS];
	struct hr_io *list[WINDOWS], *done[WINDOWS];
	struct hr_engine *e;
	uint32_t n = 0;

	if (!judgeable())
		skip();
	e = open_engine();
	memset(ios, 0, sizeof(ios));
	for (uint32_t i = 0; i < WINDOWS; i++) {
		list[i] = &ios[i];
		ios[i].file = t.file;
		ios[i].buffer = t.buf;
		ios[i].piece = t.pieces[i];
	}
	assert_int_equal(hr_submit(e, list, WINDOWS), WINDOWS);
	while (n < WINDOWS) {
		int got = hr_reap(e, done + n, WINDOWS - n, 1, 10000000000ull);

		assert_true(got > 0);
		n += (uint32_t)got;
	}
	for (uint32_t i = 0; i < WINDOWS; i++)
		assert_int_equal(ios[i].res, WINDOW);
	check(e, WINDOWS);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gather),
		cmocka_unit_test(test_one_by_one),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

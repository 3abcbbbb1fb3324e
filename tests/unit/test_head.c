/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_head - heads and tables are read alone: a made-up kernel keeps account of what it was asked to bring
 * in before each read, interrupts, cuts short, fails and ends early; every byte and guard is looked at.
 */
#include <headrace/error.h>

#include "base/sys.h"
#include "file/file.h"
#include "support/support.h"

#define TABLE (9u << 20) /* more than is brought in at once */
#define ADVICE_MAX (128u << 10)

static struct {
	uint64_t size;       /* of the file */
	uint64_t begin, end; /* that was advised for: one run */
	uint64_t reads, advices;
	bool refuses, interrupts;
	int fail_with;
} kernel;

static struct hr__sys fake;

static int fake_fadvise(int fd, uint64_t offset, uint64_t len, int advice)
{
	assert_int_equal(advice, POSIX_FADV_WILLNEED);
	assert_in_range(len, 1, ADVICE_MAX);
	if (offset != kernel.end)
		kernel.begin = offset;
	kernel.end = offset + len;
	kernel.advices++;
	return kernel.refuses ? -EINVAL : 0;
}

static ssize_t fake_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	if (kernel.reads++ % 2 == 0 && kernel.interrupts)
		return -EINTR;
	if (kernel.fail_with)
		return kernel.fail_with;
	if (offset >= kernel.size)
		return 0;
	if (kernel.advices)
		assert_true(offset >= kernel.begin && offset + len <= kernel.end);
	if (kernel.interrupts && len > 1)
		len /= 2;
	if (len > kernel.size - offset)
		len = kernel.size - offset;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = test_pattern(offset + i);
	return (ssize_t)len;
}

static int setup(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.size = 2 * TABLE;
	fake = hr__sys_real;
	fake.fadvise = fake_fadvise;
	fake.pread = fake_pread;
	hr__sys = &fake;
	return 0;
}

static int teardown(void **state)
{
	hr__sys = &hr__sys_real;
	return 0;
}

static void expect_bytes(uint64_t offset, size_t len)
{
	static const struct hr_file file = {.fd = -1};
	uint8_t *got = malloc(len + 1);

	got[len] = TEST_GUARD;
	assert_int_equal(hr__file_read_alone(&file, offset, got, len), 0);
	for (size_t i = 0; i < len; i++) {
		if (got[i] != test_pattern(offset + i))
			fail_msg("byte %zu is wrong", i);
	}
	assert_int_equal(got[len], TEST_GUARD);
	free(got);
}

static void whole(void **state)
{
	expect_bytes(0, 0);
	assert_int_equal(kernel.advices, 0);
	expect_bytes(77, 12);
	assert_int_equal(kernel.advices, 1);
	assert_int_equal(kernel.begin, 77);
	assert_int_equal(kernel.end, 77 + 12); /* and no byte more */
	expect_bytes(5, TABLE);
	assert_int_equal(kernel.end, 5 + TABLE);
	assert_int_equal(kernel.advices, 1 + TABLE / ADVICE_MAX);
}

static void in_pieces(void **state)
{
	kernel.interrupts = true;
	expect_bytes(3, 100000);
	kernel.refuses = true; /* the read is made all the same */
	expect_bytes(3, 100000);
}

static void failures(void **state)
{
	static const struct hr_file file = {.fd = -1};
	uint8_t bytes[64];

	assert_int_equal(hr__file_read_alone(&file, kernel.size - 32, bytes, 64),
			 -HR_E_FILE_CHANGED);
	assert_int_equal(hr__file_read_onward(&file, kernel.size, bytes, 1), -HR_E_FILE_CHANGED);
	kernel.fail_with = -ENODATA; /* what a bad sector is called */
	assert_int_equal(hr__file_read_alone(&file, 0, bytes, 64), -ENODATA);
}

static void not_advised(void **state)
{
	static const struct hr_file memory = {.fd = -1, .memory_backed = true};
	static const struct hr_file file = {.fd = -1};
	uint8_t bytes[64];

	assert_int_equal(hr__file_read_alone(&memory, 0, bytes, 64), 0);
	assert_int_equal(hr__file_read_onward(&file, 0, bytes, 64), 0);
	assert_int_equal(kernel.advices, 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {TEST(whole), TEST(in_pieces), TEST(failures),
						  TEST(not_advised)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

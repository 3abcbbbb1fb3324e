/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents against a made-up kernel: FIEMAP is answered from a list, honestly or not. Holes, cuts at
 * the range and at the array, going on after a full answer, and answers that must not be believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/extent.h"

enum lie { HONEST, ZERO_LENGTH, SAME_AGAIN, HUGE_COUNT, REFUSE };

static struct {
	struct fiemap_extent extents[8192];
	uint32_t n, calls;
	uint64_t size;
	bool last_flag;
	enum lie lie;
} kernel;

static int fake_fstat(int fd, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_size = (off_t)kernel.size;
	return 0;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct fiemap *f = arg;
	uint32_t n = 0;

	if (request == BLKGETSIZE64) {
		*(uint64_t *)arg = kernel.size;
		return 0;
	}
	assert_int_equal(request, FS_IOC_FIEMAP);
	assert_true(++kernel.calls < 1000);
	if (kernel.lie == REFUSE)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < kernel.n && n < f->fm_extent_count; i++) {
		const struct fiemap_extent *e = &kernel.extents[i];

		if (kernel.lie == HONEST && (e->fe_logical + e->fe_length <= f->fm_start ||
					     e->fe_logical >= f->fm_start + f->fm_length))
			continue;
		f->fm_extents[n] = *e;
		if (kernel.lie == ZERO_LENGTH)
			f->fm_extents[n].fe_length = 0;
		if (kernel.last_flag && i + 1 == kernel.n)
			f->fm_extents[n].fe_flags |= FIEMAP_EXTENT_LAST;
		n++;
	}
	f->fm_mapped_extents = kernel.lie == HUGE_COUNT ? UINT32_MAX : n;
	return 0;
}

static struct hr__sys fake;

static void add(uint64_t logical, uint64_t len, uint64_t physical, uint32_t flags)
{
	kernel.extents[kernel.n++] = (struct fiemap_extent){.fe_logical = logical,
							    .fe_length = len,
							    .fe_physical = physical,
							    .fe_flags = flags};
}

static int setup(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.last_flag = true;
	fake = hr__sys_real;
	fake.fstat = fake_fstat;
	fake.ioctl = fake_ioctl;
	hr__sys = &fake;
	return 0;
}

static int teardown(void **state)
{
	hr__sys = &hr__sys_real;
	return 0;
}

static void check(const struct hr_extent *e, uint64_t off, uint64_t len, uint64_t dev,
		  uint32_t flags)
{
	assert_int_equal(e->file_offset, off);
	assert_int_equal(e->len, len);
	assert_int_equal(e->device_offset, dev);
	assert_int_equal(e->flags, flags);
}

static void test_holes_and_flags(void **state)
{
	struct hr_file file = {.fd = 3};
	struct hr_extent list[16];
	struct hr__extents out = {.list = list, .cap = 16};

	kernel.size = 100000;
	add(4096, 4096, 1 << 20, 0);
	add(8192, 4096, 2 << 20, FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_SHARED);
	add(20480, 4096, 3 << 20, FIEMAP_EXTENT_ENCODED);
	add(24576, 4096, 0, FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED);
	assert_int_equal(hr__file_extents(&file, 0, 0, &out), 0);
	assert_int_equal(out.n, 7);
	assert_int_equal(out.total, 7);
	assert_false(out.more);
	check(&list[0], 0, 4096, 0, HR_EXTENT_HOLE);
	check(&list[1], 4096, 4096, 1 << 20, 0);
	check(&list[2], 8192, 4096, 2 << 20, HR_EXTENT_UNWRITTEN | HR_EXTENT_SHARED);
	check(&list[3], 12288, 8192, 0, HR_EXTENT_HOLE);
	check(&list[4], 20480, 4096, 0, HR_EXTENT_UNKNOWN);
	check(&list[5], 24576, 4096, 0, HR_EXTENT_INLINE);
	check(&list[6], 28672, 100000 - 28672, 0, HR_EXTENT_HOLE);

	assert_int_equal(hr__file_extents(&file, 5000, 4000, &out), 0);
	assert_int_equal(out.n, 2); /* cut at both ends, the place on the drive with it */
	check(&list[0], 5000, 3192, (1 << 20) + 904, 0);
	check(&list[1], 8192, 808, 2 << 20, HR_EXTENT_UNWRITTEN | HR_EXTENT_SHARED);

	assert_int_equal(hr__file_extents(&file, 200000, 10, &out), 0);
	assert_int_equal(out.total, 0);
	assert_int_equal(hr__file_extents(&file, 10, UINT64_MAX, &out), -EINVAL);
	kernel.n = 0; /* nothing but a hole */
	assert_int_equal(hr__file_extents(&file, 0, 0, &out), 0);
	assert_int_equal(out.n, 1);
	assert_false(out.more);
	check(&list[0], 0, 100000, 0, HR_EXTENT_HOLE);
	kernel.lie = REFUSE;
	assert_int_equal(hr__file_extents(&file, 0, 0, &out), -EOPNOTSUPP);
}

static void test_many_extents(void **state)
{
	struct hr_file file = {.fd = 3};
	struct hr_extent list[3], guard = {1, 2, 3, 4};
	struct hr__extents out = {.list = list, .cap = 2};

	list[2] = guard;
	for (uint64_t i = 0; i < 1000; i++)
		add(i * 4096, 4096, i * 8192, 0);
	kernel.size = 1000 * 4096;
	assert_int_equal(hr__file_extents(&file, 0, 0, &out), 0);
	assert_int_equal(out.total, 1000);
	assert_int_equal(out.n, 2);
	assert_memory_equal(&list[2], &guard, sizeof(guard));
	check(&list[1], 4096, 4096, 8192, 0);
	kernel.last_flag = false; /* not every file system says which is the last */
	assert_int_equal(hr__file_extents(&file, 0, 0, &out), 0);
	assert_int_equal(out.total, 1000);
	assert_false(out.more);
}

static void test_count_is_bounded_and_resumes(void **state)
{
	struct hr_file file = {.fd = 3};
	struct hr__extents out = {0};
	uint64_t total = 0, rounds = 0;

	for (uint64_t i = 0; i < 8192; i++)
		add(i * 4096, 4096, (i + 1) * 8192, 0);
	kernel.size = 8192 * 4096;
	do {
		assert_int_equal(hr__file_extents(&file, out.resume, 0, &out), 0);
		assert_true(out.total <= HR__EXTENTS_MAX);
		total += out.total;
		rounds++;
	} while (out.more);
	assert_int_equal(total, 8192);
	assert_int_equal(rounds, 2);
}

static void test_lies_end(void **state)
{
	struct hr_file file = {.fd = 3};
	struct hr_extent list[8];
	struct hr__extents out = {.list = list, .cap = 8};

	for (uint64_t i = 0; i < 100; i++)
		add(i * 4096, 4096, i * 8192, 0);
	kernel.size = 1ull << 40;
	kernel.last_flag = false;
	for (kernel.lie = ZERO_LENGTH; kernel.lie < REFUSE; kernel.lie++) {
		kernel.calls = 0;
		assert_int_equal(hr__file_extents(&file, 0, 0, &out), 0);
		assert_true(kernel.calls < 100);
		assert_true(out.total <= HR__EXTENTS_MAX);
	}
	kernel.n = 0;
	kernel.lie = HONEST;
	add(8192, UINT64_MAX, UINT64_MAX - 10, 0); /* past every end, and before what was told */
	kernel.extents[0].fe_logical = 4096;
	kernel.lie = SAME_AGAIN;
	add(0, 8192, 77, 0);
	assert_int_equal(hr__file_extents(&file, 8192, 1 << 20, &out), 0);
	assert_int_equal(out.n, 1);
	check(&list[0], 8192, 1 << 20, 0, HR_EXTENT_UNKNOWN);
}

static void test_block_device(void **state)
{
	struct hr_file file = {.fd = 3, .is_block_device = true};
	struct hr_extent list[1];
	struct hr__extents out = {.list = list, .cap = 1};

	kernel.size = 1 << 20;
	assert_int_equal(hr__file_extents(&file, 4096, 0, &out), 0);
	assert_int_equal(out.total, 1);
	check(&list[0], 4096, (1 << 20) - 4096, 4096, 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_holes_and_flags),
		TEST(test_many_extents),
		TEST(test_count_is_bounded_and_resumes),
		TEST(test_lies_end),
		TEST(test_block_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

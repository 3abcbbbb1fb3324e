/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elsewhere reads end silently at 2^31, go round for ever at the end of a file, or fill the rest of the
 * buffer beyond it. Here: every last block, every offset up to 2^63, and one request of over 4 GiB.
 */
#include <sys/mman.h>

#include "regress/fixture.h"

#define CHUNK (64ull << 20)
#define BIG (65 * CHUNK)

static void test_last_block(void **state)
{
	static const uint64_t tails[] = {1, 2, 511, 512, 513, 1024, 4094, 4095};
	struct fixture f;

	fixture_open(&f, 65536, 131072, (struct hr_engine_options){.direct = true});
	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
		uint64_t len = 61440 + tails[i];

		assert_int_equal(truncate(f.path, (off_t)len), 0);
		fixture_poison(&f);
		assert_int_equal(hr_read(f.engine, f.file, 0, len, f.buf, 0), len);
		assert_int_equal(hr_read(f.engine, f.file, len - 1, 1, f.buf, len + 1), 1);
		fixture_fetch(&f);
		fixture_check(&f, 0, 0, len);
		fixture_guard(&f, len, len + 1);
		fixture_check(&f, len + 1, len - 1, 1);
		fixture_guard(&f, len + 2, f.room);
		assert_int_equal(truncate(f.path, 65536), 0); /* zeroes now: write them again */
		free(test_file(f.dir, "data", 65536));
	}
	fixture_close(&f);
}

static void test_offsets(void **state)
{
	static const uint64_t offs[] = {
		4097,       4098,         1ull << 31,       (1ull << 31) - 1,
		1ull << 32, (1ull << 62), INT64_MAX - 4096, INT64_MAX};
	struct fixture f;

	fixture_open(&f, 4097, 8192, (struct hr_engine_options){.timeout_ns = LONG_NS});
	fixture_poison(&f);
	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		int64_t ret = hr_read(f.engine, f.file, offs[i], 4096, f.buf, 0);

		/* nothing there; where offset and length leave the range of files, that may be said */
		assert_true(ret == 0 || (offs[i] > INT64_MAX - 4096 && ret == -HR_E_BAD_RANGE));
	}
	assert_int_equal(hr_read(f.engine, f.file, UINT64_MAX, 1, f.buf, 0), -HR_E_BAD_RANGE);
	assert_int_equal(hr_read(f.engine, f.file, 0, 0, f.buf, 0), 0);
	assert_int_equal(hr_read(f.engine, f.file, 0, 0, f.buf, f.room), 0);
	assert_int_equal(hr_read(f.engine, f.file, 0, UINT64_MAX, f.buf, 0), -HR_E_BAD_RANGE);
	fixture_fetch(&f);
	fixture_guard(&f, 0, f.room);
	fixture_close(&f);
}

/* One request of over 4 GiB whose repetitions all land in the same megabyte. */
static void test_big_count(void **state)
{
	struct fixture f;
	struct hr_io io, *ios = &io, *done;
	uint64_t n = 4099;

	fixture_open(&f, 1 << 20, 2 << 20, (struct hr_engine_options){.timeout_ns = LONG_NS});
	fixture_poison(&f);
	io = (struct hr_io){
		.file = f.file,
		.buffer = f.buf,
		.piece = {0, 1 << 20, 5},
		.count = n,
	};
	assert_int_equal(hr_submit(f.engine, &ios, 1), 1);
	assert_int_equal(hr_reap(f.engine, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(io.res, n << 20);
	fixture_fetch(&f);
	fixture_guard(&f, 0, 5);
	fixture_check(&f, 5, 0, 1 << 20);
	fixture_guard(&f, 5 + (1 << 20), f.room);
	fixture_close(&f);
}

/*
 * 65 chunks of addresses on 4 chunks of memory: the first one and the two around 4 GiB have their own,
 * all others share one.
 */
static uint8_t *map_big(void)
{
	int fd = memfd_create("big", MFD_CLOEXEC);
	uint8_t *base = mmap(NULL, BIG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(fd >= 0 && base != MAP_FAILED);
	assert_int_equal(ftruncate(fd, 4 * CHUNK), 0);
	for (uint64_t i = 0; i < BIG / CHUNK; i++) {
		uint64_t own = i == 0 ? 0 : i == 63 ? 1 : i == 64 ? 2 : 3;

		assert_ptr_equal(mmap(base + i * CHUNK, CHUNK, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, fd, (off_t)(own * CHUNK)),
				 base + i * CHUNK);
	}
	close(fd);
	return base;
}

/* One plain read of over 4 GiB into one buffer, from a file that is mostly holes. */
static void test_big_read(void **state)
{
	uint64_t across = (4ull << 30) - 4096;
	struct hr_buffer *big;
	struct fixture f;
	uint8_t part[8192], *mem;
	int fd;

	if (strcmp(fixture_device, "host") != 0)
		skip(); /* the memory of other devices is not ours to map */
	fixture_open(&f, 4096, 4096, (struct hr_engine_options){.direct = true});
	fd = open(f.path, O_WRONLY | O_CLOEXEC);
	for (uint64_t i = 0; i < sizeof(part); i++)
		part[i] = test_pattern(i);
	assert_int_equal(pwrite(fd, part, sizeof(part), (off_t)across), sizeof(part));
	assert_int_equal(ftruncate(fd, (off_t)BIG + 99), 0);
	close(fd);
	mem = map_big();
	assert_int_equal(hr_buffer_register(f.dev, mem, BIG, &big), 0);
	assert_int_equal(hr_read(f.engine, f.file, 0, BIG, big, 0), BIG);
	assert_memory_equal(mem + across, part, sizeof(part));
	assert_memory_equal(mem, part, 4096);
	for (uint64_t i = 0; i < 4096; i++)
		assert_int_equal(mem[BIG - 1 - i], 0);
	assert_int_equal(hr_buffer_free(big), 0);
	assert_int_equal(munmap(mem, BIG), 0);
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_block),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_big_count),
		cmocka_unit_test(test_big_read),
	};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

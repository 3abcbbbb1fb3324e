/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elsewhere stale registrations write into memory that has a new owner, saves store what the caller
 * wrote later, and one option switches another off in silence. Here: one address with several lives,
 * two devices at once, a source that changes after a write, and every pair of options.
 */
#include <sys/mman.h>

#include "regress/fixture.h"

#define FILE_LEN ((2u << 20) + 5u)
#define MEM_LEN (1u << 20)

static struct fixture f;

static int set_up(void **state)
{
	fixture_open(&f, FILE_LEN, FILE_LEN, (struct hr_engine_options){0});
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	return 0;
}

static void *map_at(void *addr)
{
	void *mem = mmap(addr, MEM_LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(mem, MAP_FAILED);
	return mem;
}

/* Memory is given back and comes again at the same address: what was read before stays out of it. */
static void test_same_address(void **state)
{
	struct hr_device *host;
	struct hr_engine *e;
	uint8_t *mem = map_at(NULL);

	assert_int_equal(hr_device_open("host", &host), 0);
	assert_int_equal(hr_engine_open(host, NULL, &e), 0);
	for (uint64_t life = 0; life < 20; life++) {
		struct hr_buffer *buf;

		assert_int_equal(hr_buffer_register(host, mem, MEM_LEN, &buf), 0);
		assert_int_equal(hr_read(e, f.file, life * 512, MEM_LEN - 8, buf, 0), MEM_LEN - 8);
		for (uint64_t i = 0; i < MEM_LEN - 8; i++)
			assert_int_equal(mem[i], test_pattern(life * 512 + i));
		assert_int_equal(hr_buffer_free(buf), 0);
		assert_int_equal(munmap(mem, MEM_LEN), 0);
		map_at(mem);
		for (uint64_t i = 0; i < MEM_LEN; i += 4096)
			assert_int_equal(mem[i], 0);
	}
	assert_int_equal(munmap(mem, MEM_LEN), 0);
	assert_int_equal(hr_engine_close(e), 0);
	hr_device_close(host);
}

/* Two devices read one file at the same time, each into its own buffer. */
static void test_two_devices(void **state)
{
	struct hr_device *host;
	struct hr_engine *e;
	struct hr_buffer *buf;
	struct hr_io a = {.file = f.file, .buffer = f.buf, .piece = {0, FILE_LEN, 0}};
	struct hr_io b = {.file = f.file, .piece = {1, FILE_LEN - 1, 0}};
	struct hr_io *ia = &a, *ib = &b, *done;

	assert_int_equal(hr_device_open("host", &host), 0);
	assert_int_equal(hr_engine_open(host, NULL, &e), 0);
	assert_int_equal(hr_buffer_alloc(host, FILE_LEN, &buf), 0);
	b.buffer = buf;
	assert_int_equal(hr_submit(f.engine, &ia, 1), 1);
	assert_int_equal(hr_submit(e, &ib, 1), 1);
	assert_int_equal(hr_reap(e, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(hr_reap(f.engine, &done, 1, 1, LONG_NS), 1);
	assert_int_equal(a.res, FILE_LEN);
	assert_int_equal(b.res, FILE_LEN - 1);
	fixture_fetch(&f);
	fixture_check(&f, 0, 0, FILE_LEN);
	assert_int_equal(hr_buffer_copy_out(buf, 0, f.image, FILE_LEN - 1), 0);
	fixture_check(&f, 0, 1, FILE_LEN - 1);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
	hr_device_close(host);
}

/* What is in the file is what the buffer held when hr_write() returned. */
static void test_source_changes(void **state)
{
	char *path = test_file(f.dir, "out", 0);
	struct hr_file *out;
	uint8_t *plain = malloc(FILE_LEN);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(hr_file_open(path, HR_FILE_READ | HR_FILE_WRITE, &out), 0);
	for (int round = 0; round < 5; round++) {
		assert_int_equal(hr_read(f.engine, f.file, 0, FILE_LEN, f.buf, 0), FILE_LEN);
		assert_int_equal(hr_write(f.engine, out, 0, FILE_LEN, f.buf, 0), FILE_LEN);
		fixture_poison(&f);
		assert_int_equal(hr_file_sync(out), 0);
		assert_int_equal(pread(fd, plain, FILE_LEN, 0), FILE_LEN);
		for (uint64_t i = 0; i < FILE_LEN; i++)
			assert_int_equal(plain[i], test_pattern(i));
	}
	hr_file_close(out);
	close(fd);
	free(plain);
	free(path);
}

/* The same gather with every combination of options: the same bytes, all accounted to a path. */
static void test_option_pairs(void **state)
{
	enum { N = 200 };
	static struct hr_piece pieces[N];
	uint64_t seed = 5, total = 0;

	for (uint64_t i = 0; i < N; i++) {
		pieces[i] = (struct hr_piece){test_random(&seed) % (FILE_LEN - 9000),
					      test_random(&seed) % 9000, i * 10000};
		total += pieces[i].len;
	}
	for (unsigned int k = 0; k < 96; k++) {
		struct hr_engine_options o = {
			.depth = k & 1 ? 2 : 0,
			.staging_bytes = k & 2 ? 256 << 10 : 0,
			.request_bytes = k & 4 ? 4096 : 0,
			.threads = k & 8 ? 2 : 0,
			.no_uring = k & 16,
			.direct = k / 32 == 1,
			.buffered = k / 32 == 2,
		};
		struct hr_engine *e;
		struct hr_stats s;
		uint64_t sum = 0;

		assert_int_equal(hr_engine_open(f.dev, &o, &e), 0);
		fixture_poison(&f);
		assert_int_equal(hr_gather(e, f.file, pieces, N, f.buf, 0, 0), total);
		hr_engine_stats(e, &s);
		for (int p = 0; p < HR_PATH_MAX; p++)
			sum += s.bytes_by_path[p];
		assert_int_equal(sum, total);
		assert_int_equal(s.pieces, N);
		if (o.direct)
			assert_int_equal(s.bytes_cached, 0);
		fixture_fetch(&f);
		for (uint64_t i = 0; i < N; i++) {
			uint64_t end = i * 10000 + pieces[i].len;

			fixture_check(&f, i * 10000, pieces[i].file_offset, pieces[i].len);
			fixture_guard(&f, end, i < N - 1 ? (i + 1) * 10000 : f.room);
		}
		assert_int_equal(hr_engine_close(e), 0);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_address),
		cmocka_unit_test(test_two_devices),
		cmocka_unit_test(test_source_changes),
		cmocka_unit_test(test_option_pairs),
	};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

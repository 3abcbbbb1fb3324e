/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault/test_device_faults.c - a device whose copies and kernels fail at the k-th time, or that is lost in
 * the middle of reads, writes and conversions: right bytes or the right error, never a hang, and nothing
 * of the driver's is left over.
 *
 * The device is the GPU of tests/fakecuda. A fault of the driver is found by the next look at the lane, so
 * every request is judged by its own result.
 */
#include <headrace/headrace.h>

#include "support/support.h"
#include "unit/fake_control.h"

#define FILE_LEN (1u << 20)
#define ELEMENTS 20000u
#define INVALID_VALUE 1

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine;
	uint8_t *image;
} t;

static void open_all(void)
{
	struct hr_engine_options o = {
		.staging_bytes = 512 << 10,
		.request_bytes = 64 << 10,
		.timeout_ns = 20000000000ull,
	};

	assert_int_equal(hr_device_open("cuda:0", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN + 4096, &t.buf), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &t.engine), 0);
}

static void close_all(void)
{
	assert_int_equal(hr_in_flight(t.engine), 0);
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file); /* it may have held the device, for a mapping */
	hr_device_close(t.dev);
}

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	t.image = malloc(FILE_LEN + 4096);
	return fake_setup(state);
}

static int tear_down(void **state)
{
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static void poison(void)
{
	memset(t.image, TEST_GUARD, FILE_LEN + 4096);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, FILE_LEN + 4096), 0);
}

/* The request of each kind, its bytes judged where it says that all is well. Return: its result. */
static int64_t do_read(void)
{
	int64_t ret = hr_read(t.engine, t.file, 4097, 500000, t.buf, 3);

	if (ret < 0)
		return ret;
	fake.reset(); /* the fault was for the request */
	assert_int_equal(ret, 500000);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, 500004), 0);
	for (uint64_t i = 0; i < 500000; i++)
		assert_int_equal(t.image[3 + i], test_pattern(4097 + i));
	assert_int_equal(t.image[500003], TEST_GUARD);
	return ret;
}

static int64_t do_cast(void)
{
	struct hr_piece piece = {101, 2 * ELEMENTS, 8};
	int64_t ret = hr_gather(t.engine, t.file, &piece, 1, t.buf, HR_DTYPE_U16, HR_DTYPE_I64);

	if (ret < 0)
		return ret;
	fake.reset(); /* the fault was for the request */
	assert_int_equal(ret, 2 * ELEMENTS);
	assert_int_equal(hr_buffer_copy_out(t.buf, 8, t.image, 8ull * ELEMENTS), 0);
	for (uint64_t i = 0; i < ELEMENTS; i++) {
		int64_t got;

		memcpy(&got, t.image + 8 * i, 8);
		assert_int_equal(got, test_pattern(101 + 2 * i) | test_pattern(102 + 2 * i) << 8);
	}
	return ret;
}

static int64_t do_write(void)
{
	char *path = test_file(t.dir, "out", 0);
	struct hr_file *file;
	int64_t ret;
	int fd;

	for (uint64_t i = 0; i < 300000; i++)
		t.image[i] = test_pattern(7 * i);
	ret = hr_buffer_copy_in(t.buf, 0, t.image, 300000);
	if (ret == 0) {
		assert_int_equal(hr_file_open(path, HR_FILE_WRITE | HR_FILE_READ, &file), 0);
		ret = hr_write(t.engine, file, 0, 300000, t.buf, 0);
		hr_file_close(file);
	}
	if (ret >= 0) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(ret, 300000);
		assert_int_equal(pread(fd, t.image + 300000, 300000, 0), 300000);
		close(fd);
		assert_memory_equal(t.image, t.image + 300000, 300000);
	}
	free(path);
	return ret;
}

static int64_t (*const kinds[])(void) = {do_read, do_cast, do_write};

/* One fault, the device goes on: the request fails or was saved, the next one is right. */
static void test_one_fault(void **state)
{
	static const char *const functions[] = {
		"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",    "cuLaunchKernel",
		"cuEventRecord",        "cuStreamWriteValue32_v2",
	};
	int failed = 0;

	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		open_all();
		for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
			for (long k = 1; k <= 4; k++) {
				int64_t ret;

				poison();
				fake.inject(functions[i], k, INVALID_VALUE);
				ret = kinds[kind]();
				failed += ret < 0;
				fake.reset();
				assert_int_equal(hr_in_flight(t.engine), 0);
				poison();
				assert_true(kinds[kind]() > 0);
			}
		close_all();
		assert_int_equal(fake_clean(state), 0);
	}
	print_message("%d requests failed\n", failed);
	assert_true(failed > 0);
}

/* Nothing moves, neither by kernels nor by copies: the error comes out, and all is well afterwards. */
static void test_all_fail(void **state)
{
	open_all();
	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		for (long k = 1; k <= 8; k++) {
			fake.inject("cuLaunchKernel", k, INVALID_VALUE);
			fake.inject(kinds[kind] == do_write ? "cuMemcpyDtoHAsync_v2"
							    : "cuMemcpyHtoDAsync_v2",
				    k, INVALID_VALUE);
		}
		assert_int_equal(kinds[kind](), -EINVAL);
		assert_non_null(strstr(hr_error_detail(), "cuda:0"));
		fake.reset();
		assert_true(kinds[kind]() > 0);
	}
	close_all();
	assert_int_equal(fake_clean(state), 0);
}

/* Lost for good at the n-th operation, wherever that is: the code, within the bound, to every request. */
static void test_lost(void **state)
{
	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		int64_t ret = 1;
		long n = 1;

		for (; n < 200; n += 1 + n / 8) {
			open_all();
			poison();
			fake.set("lost_after", n);
			ret = kinds[kind]();
			if (ret < 0) {
				assert_int_equal(ret, -HR_E_DEVICE_LOST);
				assert_true(kinds[kind]() < 0);
			}
			/* The real driver would refuse these too; this one is well again to count. */
			fake.reset();
			close_all();
			assert_int_equal(fake_clean(state), 0);
			if (ret >= 0)
				break;
		}
		assert_true(n > 1 && ret >= 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_fault),
		cmocka_unit_test(test_all_fail),
		cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

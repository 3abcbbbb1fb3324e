/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_userfs - files that exist in the program alone: a handle made of read and write functions. How: a
 * file system in an array that can move less than asked, fail, and count its calls.
 */
#include "fixture.h"

#define FILE_LEN (MIB + 300u)
#define ROOM (2u * MIB)

/* One file of the pretended file system; its address is the caller's handle. */
struct own_file {
	uint8_t *bytes;
	size_t len;
	size_t at_most; /* bytes a call; 0: no limit */
	ssize_t error;  /* returned instead, if not 0 */
	atomic_int reads, writes;
};

static struct own_file own;
static char *memory;

static const char *own_type(const void *handle)
{
	return "own";
}

static ssize_t own_read(const void *handle, char *to, size_t len, loff_t off,
			cufileRDMAInfo_t *info)
{
	struct own_file *f = (struct own_file *)(uintptr_t)handle;

	CHECK(f == &own);
	atomic_fetch_add(&f->reads, 1);
	if (f->error)
		return f->error;
	if ((size_t)off >= f->len)
		return 0;
	if (len > f->len - (size_t)off)
		len = f->len - (size_t)off;
	if (f->at_most && len > f->at_most)
		len = f->at_most;
	memcpy(to, f->bytes + off, len);
	return (ssize_t)len;
}

static ssize_t own_write(const void *handle, const char *from, size_t len, loff_t off,
			 cufileRDMAInfo_t *info)
{
	struct own_file *f = (struct own_file *)(uintptr_t)handle;

	CHECK(f == &own);
	atomic_fetch_add(&f->writes, 1);
	if (f->error)
		return f->error;
	if (f->at_most && len > f->at_most)
		len = f->at_most;
	if ((size_t)off + len > f->len)
		return -ENOSPC;
	memcpy(f->bytes + off, from, len);
	return (ssize_t)len;
}

static const CUfileFSOps_t own_ops = {.fs_type = own_type, .read = own_read, .write = own_write};

static CUfileHandle_t own_handle(const CUfileFSOps_t *ops)
{
	CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS, .fs_ops = ops};
	CUfileHandle_t handle = NULL;

	descr.handle.handle = &own;
	assert_ok(cuFileHandleRegister(&handle, &descr));
	assert_non_null(handle);
	return handle;
}

static int setup(void **state)
{
	own.bytes = malloc(FILE_LEN);
	memory = mem_alloc(ROOM);
	return 0;
}

static int teardown(void **state)
{
	free(own.bytes);
	mem_free(memory);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	return 0;
}

static int fresh(void **state)
{
	own.len = FILE_LEN;
	own.at_most = 0;
	own.error = 0;
	own.reads = own.writes = 0;
	for (size_t i = 0; i < FILE_LEN; i++)
		own.bytes[i] = test_pattern(i);
	mem_fill(memory, TEST_GUARD, ROOM);
	return 0;
}

static void reads(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);

	assert_int_equal(cuFileRead(h, memory, 5000, 123, 77), 5000);
	mem_check(memory, ROOM, 77, 5000, 123);
	assert_true(own.reads >= 1);
	mem_fill(memory, TEST_GUARD, ROOM);
	assert_int_equal(cuFileRead(h, memory, MIB, PAGE, PAGE), FILE_LEN - PAGE);
	mem_check(memory, ROOM, PAGE, FILE_LEN - PAGE, PAGE);
	assert_int_equal(cuFileRead(h, memory, MIB, FILE_LEN, 0), 0);
	assert_int_equal(cuFileRead(h, memory, 0, 0, 0), 0);
	cuFileHandleDeregister(h);
	assert_io_error(cuFileRead(h, memory, 10, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
}

static void registered_memory(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);

	assert_ok(cuFileBufRegister(memory, MIB, 0));
	assert_int_equal(cuFileRead(h, memory, PAGE, 1, 1), PAGE);
	mem_check(memory, ROOM, 1, PAGE, 1);
	assert_io_error(cuFileRead(h, memory, MIB, 0, 1), CU_FILE_INVALID_MAPPING_RANGE);
	assert_ok(cuFileBufDeregister(memory));
	cuFileHandleDeregister(h);
}

/* A function may move less than asked: the caller gets all the same, or what came till then. */
static void short_reads(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);
	ssize_t n;

	own.at_most = 3000;
	n = cuFileRead(h, memory, MIB, 10, 0);
	assert_in_range(n, 3000, MIB);
	mem_check(memory, ROOM, 0, (size_t)n, 10);
	cuFileHandleDeregister(h);
}

static void writes(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);

	mem_pattern(memory, 5000, 9000);
	assert_int_equal(cuFileWrite(h, memory, 9000, 1000, 0), 9000);
	for (size_t i = 0; i < FILE_LEN; i++) {
		bool in = i >= 1000 && i < 10000;

		assert_int_equal(own.bytes[i], test_pattern(in ? i + 4000 : i));
	}
	assert_true(own.writes >= 1);
	cuFileHandleDeregister(h);
}

static void errors(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);

	own.error = -EIO;
	assert_io_error(cuFileRead(h, memory, PAGE, 0, 0), EIO);
	assert_io_error(cuFileWrite(h, memory, PAGE, 0, 0), EIO);
	mem_check(memory, ROOM, 0, 0, 0);
	own.error = 0;
	assert_int_equal(cuFileRead(h, memory, PAGE, 0, 0), PAGE);
	cuFileHandleDeregister(h);
}

/* The table may have none of the functions: the handle exists, its I/O does not. */
static void nothing_in_the_table(void **state)
{
	static const CUfileFSOps_t none;
	CUfileHandle_t h = own_handle(&none);
	ssize_t n;

	errno = 0;
	n = cuFileRead(h, memory, PAGE, 0, 0);
	assert_true(n == CU_FILE_DRIVER_CLOSING || n == -CU_FILE_DRIVER_CLOSING ||
		    (n == -1 && errno == CU_FILE_DRIVER_CLOSING));
	errno = 0;
	n = cuFileWrite(h, memory, PAGE, 0, 0);
	assert_true(n < 0 || n == CU_FILE_DRIVER_CLOSING);
	mem_check(memory, ROOM, 0, 0, 0);
	cuFileHandleDeregister(h);
}

static void in_a_batch(void **state)
{
	CUfileHandle_t h = own_handle(&own_ops);
	CUfileIOParams_t io[8];
	CUfileIOEvents_t events[8];
	CUfileBatchHandle_t b = NULL;
	unsigned int got = 8;

	memset(io, 0, sizeof(io));
	for (unsigned int i = 0; i < 8; i++) {
		io[i].mode = CUFILE_BATCH;
		io[i].fh = h;
		io[i].u.batch.devPtr_base = memory + i * 2 * PAGE;
		io[i].u.batch.file_offset = i * 1001;
		io[i].u.batch.size = PAGE + i;
	}
	assert_ok(cuFileBatchIOSetUp(&b, 8));
	assert_ok(cuFileBatchIOSubmit(b, 8, io, 0));
	assert_ok(cuFileBatchIOGetStatus(b, 8, &got, events, NULL));
	assert_int_equal(got, 8);
	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(events[i].status, CUFILE_COMPLETE);
		mem_check(memory + i * 2 * PAGE, 2 * PAGE, 0, PAGE + i, i * 1001);
	}
	cuFileBatchIODestroy(b);
	cuFileHandleDeregister(h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(reads, fresh),
		cmocka_unit_test_setup(registered_memory, fresh),
		cmocka_unit_test_setup(short_reads, fresh),
		cmocka_unit_test_setup(writes, fresh),
		cmocka_unit_test_setup(errors, fresh),
		cmocka_unit_test_setup(nothing_in_the_table, fresh),
		cmocka_unit_test_setup(in_a_batch, fresh),
	};

	if (!fixture_init(argc, argv))
		return 2;
	alarm(300);
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

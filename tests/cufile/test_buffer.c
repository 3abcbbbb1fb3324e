/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_buffer - which memory can be registered, and reads and writes on ranges of it. How: each refusal once,
 * then I/O that ends at, before and behind the end of a registration, beside guard bytes.
 */
#include "fixture.h"

#include <sys/mman.h>

static struct target file;

static int setup(void **state)
{
	target_open(&file, MIB, O_RDWR);
	return 0;
}

static int teardown(void **state)
{
	target_close(&file);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	return 0;
}

static void nothing(void **state)
{
	void *p = mem_alloc(PAGE);

	assert_err(cuFileBufRegister(NULL, PAGE, 0), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBufRegister(p, 0, 0), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBufRegister(NULL, 0, 0), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBufDeregister(NULL), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBufDeregister(p), CU_FILE_MEMORY_NOT_REGISTERED);
	assert_err(cuFileBufDeregister((void *)(uintptr_t)0x1000), CU_FILE_MEMORY_NOT_REGISTERED);
	mem_free(p);
}

static void twice(void **state)
{
	char *p = mem_alloc(4 * PAGE);

	assert_ok(cuFileBufRegister(p, 4 * PAGE, 0));
	assert_err(cuFileBufRegister(p, 4 * PAGE, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	assert_err(cuFileBufRegister(p, PAGE, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	/* Only the same base is the same buffer. */
	assert_ok(cuFileBufRegister(p + PAGE, PAGE, 0));
	assert_ok(cuFileBufRegister(p + 2 * PAGE + 1, PAGE, 0));
	assert_err(cuFileBufDeregister(p + 3 * PAGE), CU_FILE_MEMORY_NOT_REGISTERED);
	assert_ok(cuFileBufDeregister(p));
	assert_err(cuFileBufDeregister(p), CU_FILE_MEMORY_NOT_REGISTERED);
	assert_ok(cuFileBufDeregister(p + PAGE));
	assert_ok(cuFileBufDeregister(p + 2 * PAGE + 1));
	assert_ok(cuFileBufRegister(p, 4 * PAGE, 0));
	assert_ok(cuFileBufDeregister(p));
	mem_free(p);
}

static void flags_are_not_looked_at(void **state)
{
	static const int flags[] = {CU_FILE_RDMA_REGISTER, CU_FILE_RDMA_RELAXED_ORDERING, 3, 0x40};
	void *p = mem_alloc(PAGE);

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		assert_ok(cuFileBufRegister(p, PAGE, flags[i]));
		assert_ok(cuFileBufDeregister(p));
	}
	mem_free(p);
}

/* Of host memory nobody knows where it ends. */
static void beyond_the_allocation(void **state)
{
	char *p;

	if (!on_gpu)
		skip();
	p = mem_alloc(2 * PAGE);
	assert_err(cuFileBufRegister(p, 2 * MIB, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	assert_err(cuFileBufRegister(p + PAGE, 2 * PAGE, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	assert_err(cuFileBufRegister(p, SIZE_MAX, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
	assert_ok(cuFileBufRegister(p + PAGE, PAGE, 0));
	assert_ok(cuFileBufDeregister(p + PAGE));
	mem_free(p);
}

static void round_trip(char *p, bool registered)
{
	uint8_t bytes[2 * PAGE];

	if (registered)
		assert_ok(cuFileBufRegister(p, 4 * PAGE, 0));
	memset(p, TEST_GUARD, 4 * PAGE);
	assert_int_equal(cuFileRead(file.handle, p, 2 * PAGE, PAGE, PAGE), 2 * PAGE);
	for (size_t i = 0; i < 4 * PAGE; i++) {
		bool in = i >= PAGE && i < 3 * PAGE;

		assert_int_equal((uint8_t)p[i], in ? test_pattern(i) : TEST_GUARD);
	}
	/* What was read is written back to the same place. */
	assert_int_equal(cuFileWrite(file.handle, p, 2 * PAGE, PAGE, PAGE), 2 * PAGE);
	target_bytes(&file, bytes, sizeof(bytes), PAGE);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], test_pattern(PAGE + i));
	if (registered)
		assert_ok(cuFileBufDeregister(p));
}

/* Since 1.7: host memory of any origin, also where there is a GPU. */
static void host_memory_of_every_kind(void **state)
{
	static char fixed[4 * PAGE] __attribute__((aligned(PAGE)));
	char local[4 * PAGE];
	void *mapped =
		mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *heap = malloc(4 * PAGE);
	void *pinned = NULL;

	assert_ptr_not_equal(mapped, MAP_FAILED);
	for (int registered = 0; registered < 2; registered++) {
		round_trip(heap, registered);
		round_trip(mapped, registered);
		round_trip(fixed, registered);
		round_trip(local, registered);
	}
	if (on_gpu) {
		assert_int_equal(cuda.alloc_host(&pinned, 4 * PAGE, 0), 0);
		round_trip(pinned, false);
		round_trip(pinned, true);
		assert_int_equal(cuda.free_host(pinned), 0);
	}
	free(heap);
	munmap(mapped, 4 * PAGE);
}

static void device_memory_unregistered(void **state)
{
	char *p = mem_alloc(4 * PAGE);

	mem_fill(p, TEST_GUARD, 4 * PAGE);
	assert_int_equal(cuFileRead(file.handle, p, 2 * PAGE, PAGE, PAGE), 2 * PAGE);
	mem_check(p, 4 * PAGE, PAGE, 2 * PAGE, PAGE);
	/* A pointer into the middle of an allocation, as tensors are. */
	mem_fill(p, TEST_GUARD, 4 * PAGE);
	assert_int_equal(cuFileRead(file.handle, p + 512, 100, 333, 1), 100);
	mem_check(p, 4 * PAGE, 513, 100, 333);
	mem_free(p);
}

static void across_the_end_of_a_registration(void **state)
{
	char *p = mem_alloc(8 * PAGE);

	assert_ok(cuFileBufRegister(p, 4 * PAGE, 0));
	mem_fill(p, TEST_GUARD, 8 * PAGE);
	assert_int_equal(cuFileRead(file.handle, p, PAGE, 0, 3 * PAGE), PAGE);
	mem_check(p, 8 * PAGE, 3 * PAGE, PAGE, 0);
	mem_fill(p, TEST_GUARD, 8 * PAGE);
	assert_io_error(cuFileRead(file.handle, p, 5 * PAGE, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	assert_io_error(cuFileRead(file.handle, p, PAGE, 0, 3 * PAGE + 1),
			CU_FILE_INVALID_MAPPING_RANGE);
	assert_io_error(cuFileWrite(file.handle, p, 5 * PAGE, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	assert_io_error(cuFileRead(file.handle, p, (size_t)INT64_MAX, 0, PAGE),
			CU_FILE_INVALID_MAPPING_RANGE);
	mem_check(p, 8 * PAGE, 0, 0, 0);
	assert_ok(cuFileBufDeregister(p));
	/* The same range without a registration is just memory. */
	assert_int_equal(cuFileRead(file.handle, p, 5 * PAGE, 0, 0), 5 * PAGE);
	mem_check(p, 8 * PAGE, 0, 5 * PAGE, 0);
	mem_free(p);
}

static void beyond_an_unregistered_allocation(void **state)
{
	char *p;

	if (!on_gpu)
		skip();
	p = mem_alloc(2 * PAGE);
	mem_fill(p, TEST_GUARD, 2 * PAGE);
	assert_io_error(cuFileRead(file.handle, p, MIB, 0, 0), EIO);
	assert_io_error(cuFileRead(file.handle, p, PAGE, 0, PAGE + 1), EIO);
	mem_check(p, 2 * PAGE, 0, 0, 0);
	mem_free(p);
}

/* Host memory that is not there costs an error, not the process. */
static void unmapped_memory(void **state)
{
	char *gone =
		mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(gone, 4 * PAGE);
	errno = 0;
	assert_int_equal(cuFileRead(file.handle, gone, PAGE, 0, 0), -1);
	assert_true(errno != 0);
	errno = 0;
	assert_int_equal(cuFileWrite(file.handle, gone, PAGE, 0, 0), -1);
	assert_true(errno != 0);
	/* The error leaves the file alone, and the next call works. */
	round_trip((char[4 *PAGE]){0}, false);
}

static void freed_and_allocated_again(void **state)
{
	for (int i = 0; i < 8; i++) {
		char *p = mem_alloc(2 * MIB);

		mem_fill(p, TEST_GUARD, 2 * MIB);
		assert_ok(cuFileBufRegister(p, 2 * MIB, 0));
		assert_int_equal(cuFileRead(file.handle, p, MIB, 0, PAGE), MIB);
		mem_check(p, 2 * MIB, PAGE, MIB, 0);
		assert_ok(cuFileBufDeregister(p));
		mem_free(p);
	}
}

static void many(void **state)
{
	enum { N = 512 };
	char *p = mem_alloc(N * PAGE);

	for (size_t i = 0; i < N; i++)
		assert_ok(cuFileBufRegister(p + i * PAGE, PAGE, 0));
	mem_fill(p, TEST_GUARD, N * PAGE);
	assert_int_equal(cuFileRead(file.handle, p + 300 * PAGE, PAGE, 5, 0), PAGE);
	mem_check(p, N * PAGE, 300 * PAGE, PAGE, 5);
	for (size_t i = N; i-- > 0;)
		assert_ok(cuFileBufDeregister(p + i * PAGE));
	mem_free(p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing),
		cmocka_unit_test(twice),
		cmocka_unit_test(flags_are_not_looked_at),
		cmocka_unit_test(beyond_the_allocation),
		cmocka_unit_test(host_memory_of_every_kind),
		cmocka_unit_test(device_memory_unregistered),
		cmocka_unit_test(across_the_end_of_a_registration),
		cmocka_unit_test(beyond_an_unregistered_allocation),
		cmocka_unit_test(unmapped_memory),
		cmocka_unit_test(freed_and_allocated_again),
		cmocka_unit_test(many),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

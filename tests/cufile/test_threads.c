/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_threads - everything at the same time: 64 threads on one handle, threads that register and give back
 * beside them, opens and closes from all sides. How: each thread checks its own bytes between guards;
 * the thread sanitizer checks the rest.
 */
#include "batch.h"

#define FILE_LEN (3u * MIB)
#define THREADS 64

static struct target file;
static atomic_bool stop;

static int setup(void **state)
{
	alarm(900);
	target_open(&file, FILE_LEN, O_RDWR | O_DIRECT);
	return 0;
}

static int teardown(void **state)
{
	target_close(&file);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	return 0;
}

static void together(void *(*work)(void *), int threads)
{
	pthread_t ids[THREADS];

	for (int i = 0; i < threads; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i), 0);
	for (int i = 0; i < threads; i++)
		assert_int_equal(pthread_join(ids[i], NULL), 0);
}

/* Cmocka's asserts belong to the main thread: these end the process. */
static void check_read(char *p, size_t room, size_t len, uint64_t off, size_t at)
{
	uint8_t *image = malloc(room);

	mem_fill(p, TEST_GUARD, room);
	CHECK(cuFileRead(file.handle, p, len, (off_t)off, (off_t)at) == (ssize_t)len);
	mem_out(image, p, room);
	for (size_t i = 0; i < room; i++) {
		bool in = i >= at && i - at < len;

		CHECK(image[i] == (in ? test_pattern(off + i - at) : TEST_GUARD));
	}
	free(image);
}

/* Of the driver, copies of the test itself are per thread: a stream for each would be too many. */
static void *read_much(void *arg)
{
	uint64_t x = (uint64_t)(intptr_t)arg * 977 + 1;
	char *p;

	fixture_thread();
	p = mem_alloc(16 * PAGE);
	if ((intptr_t)arg % 2)
		CHECK(cuFileBufRegister(p, 16 * PAGE, 0).err == CU_FILE_SUCCESS);
	for (int i = 0; i < 12; i++) {
		size_t len = 1 + test_random(&x) % (8 * PAGE), at = test_random(&x) % (7 * PAGE);

		check_read(p, 16 * PAGE, len, test_random(&x) % (FILE_LEN - len), at);
	}
	if ((intptr_t)arg % 2)
		CHECK(cuFileBufDeregister(p).err == CU_FILE_SUCCESS);
	mem_free(p);
	fixture_thread_end();
	return NULL;
}

static void one_handle(void **state)
{
	together(read_much, THREADS);
}

/* Each thread has its own region of a second file. */
static void *write_own_region(void *arg)
{
	uint64_t base = (uint64_t)(intptr_t)arg * 5000;
	char *p;

	fixture_thread();
	p = mem_alloc(2 * PAGE);
	for (int i = 0; i < 8; i++) {
		mem_pattern(p, base, 5000);
		CHECK(cuFileWrite(file.handle, p, 5000, (off_t)base, 0) == 5000);
		mem_fill(p, TEST_GUARD, 2 * PAGE);
		CHECK(cuFileRead(file.handle, p, 5000, (off_t)base, 0) == 5000);
	}
	mem_free(p);
	fixture_thread_end();
	return NULL;
}

/* Regions share blocks: a writer that rewrites its neighbour's bytes loses them. */
static void neighbours_write(void **state)
{
	uint8_t *image = malloc(THREADS * 5000);

	together(write_own_region, THREADS);
	target_bytes(&file, image, THREADS * 5000, 0);
	for (size_t i = 0; i < THREADS * 5000; i++) {
		if (image[i] != test_pattern(i))
			fail_msg("byte %zu of the file", i);
	}
	free(image);
}

static void *batches(void *arg)
{
	struct batch *b = calloc(1, sizeof(*b));

	fixture_thread();
	batch_open(b, 32, FILE_LEN);
	for (int round = 0; round < 2; round++) {
		batch_prepare(b, 32, file.handle);
		CHECK(cuFileBatchIOSubmit(b->handle, 32, b->io, 0).err == CU_FILE_SUCCESS);
		batch_collect(b, 32, 1);
		batch_check(b, 32);
	}
	batch_close(b);
	free(b);
	fixture_thread_end();
	return NULL;
}

static void batches_share_a_pool(void **state)
{
	together(batches, 24);
}

/* -- while others come and go -- */
static void *handles_come_and_go(void *arg)
{
	while (!atomic_load(&stop)) {
		int fd = open(file.path, O_RDONLY | O_CLOEXEC);
		CUfileHandle_t h = NULL;
		char byte[64];

		CHECK(fd >= 0 && handle_of(fd, &h).err == CU_FILE_SUCCESS);
		CHECK(cuFileRead(h, byte, 64, 64, 0) == 64);
		CHECK((uint8_t)byte[0] == test_pattern(64));
		cuFileHandleDeregister(h);
		close(fd);
	}
	return NULL;
}

static void *driver_comes_and_goes(void *arg)
{
	CUfileDrvProps_t p;

	while (!atomic_load(&stop)) {
		CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
		CHECK(cuFileDriverGetProperties(&p).err == CU_FILE_SUCCESS);
		CHECK(cuFileUseCount() >= 2);
		CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	}
	return NULL;
}

/* A handle that another thread gives back in the middle: an error or the bytes, nothing else. */
static CUfileHandle_t shared;

static void *reads_the_shared_one(void *arg)
{
	char bytes[512];

	while (!atomic_load(&stop)) {
		CUfileHandle_t h = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
		ssize_t n = cuFileRead(h, bytes, sizeof(bytes), 1000, 0);

		CHECK(n == 512 || n == -1);
		if (n == 512)
			CHECK((uint8_t)bytes[7] == test_pattern(1007));
	}
	return NULL;
}

static void *gives_back_the_shared_one(void *arg)
{
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);

	while (!atomic_load(&stop)) {
		CUfileHandle_t h = NULL;

		CHECK(handle_of(fd, &h).err == CU_FILE_SUCCESS);
		__atomic_store_n(&shared, h, __ATOMIC_RELEASE);
		sched_yield();
		cuFileHandleDeregister(h);
	}
	close(fd);
	return NULL;
}

static void others_come_and_go(void **state)
{
	void *(*const work[])(void *) = {handles_come_and_go,   handles_come_and_go,
					 driver_comes_and_goes, reads_the_shared_one,
					 reads_the_shared_one,  gives_back_the_shared_one};
	const int count = sizeof(work) / sizeof(work[0]);
	pthread_t ids[6];

	atomic_store(&stop, false);
	for (int i = 0; i < count; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, work[i], NULL), 0);
	together(read_much, 16);
	atomic_store(&stop, true);
	for (int i = 0; i < count; i++)
		assert_int_equal(pthread_join(ids[i], NULL), 0);
}

/* The last user closes while others read: they get bytes or an error, and it can be opened again. */
static void *reads_till_closed(void *arg)
{
	char *p;
	ssize_t n;

	fixture_thread();
	p = mem_alloc(MIB);
	do {
		n = cuFileRead(file.handle, p, MIB / 2, 0, 0);
		CHECK(n == MIB / 2 || n == -1);
	} while (n >= 0 && !atomic_load(&stop));
	mem_free(p);
	fixture_thread_end();
	return NULL;
}

static void closed_under_readers(void **state)
{
	pthread_t ids[8];

	atomic_store(&stop, false);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, reads_till_closed, NULL), 0);
	while (cuFileUseCount() > 0)
		cuFileDriverClose_v2();
	atomic_store(&stop, true);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_join(ids[i], NULL), 0);
	while (cuFileUseCount() > 0)
		cuFileDriverClose_v2();
	assert_ok(handle_of(file.fd, &file.handle));
}

/* Threads that end leave nothing behind; new ones start over. */
static void threads_end(void **state)
{
	for (int i = 0; i < 8; i++)
		together(read_much, 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_handle),           cmocka_unit_test(neighbours_write),
		cmocka_unit_test(batches_share_a_pool), cmocka_unit_test(others_come_and_go),
		cmocka_unit_test(closed_under_readers), cmocka_unit_test(threads_end),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roundtrip - what most programs do with cuFile, once, with files under $TMPDIR: every byte written and read
 * back, alone, by many threads and in batches. For the script beside it, which runs it where things
 * are missing or forbidden. Usage: roundtrip DEVICE; it names the file system.
 */
#include "batch.h"

#include <sys/vfs.h>

#define FILE_LEN (3u * MIB)

static struct target file;

static void plain(int flags)
{
	char *p = mem_alloc(2 * MIB);

	target_open(&file, FILE_LEN, flags);
	CHECK(cuFileBufRegister(p, 2 * MIB, 0).err == CU_FILE_SUCCESS);
	for (int i = 0; i < 8; i++) {
		size_t len = i & 1 ? MIB : 4095, at = i & 2 ? PAGE : 7;
		off_t off = i & 4 ? PAGE : 1234;

		mem_fill(p, TEST_GUARD, 2 * MIB);
		CHECK(cuFileRead(file.handle, p, len, off, (off_t)at) == (ssize_t)len);
		mem_check(p, 2 * MIB, at, len, (uint64_t)off);
		CHECK(cuFileWrite(file.handle, p, len, off, (off_t)at) == (ssize_t)len);
	}
	mem_fill(p, TEST_GUARD, 2 * MIB);
	CHECK(cuFileRead(file.handle, p, 2 * MIB, 0, 0) == 2 * MIB);
	mem_check(p, 2 * MIB, 0, 2 * MIB, 0);
	CHECK(cuFileBufDeregister(p).err == CU_FILE_SUCCESS);
	mem_free(p);
}

static void *thread_main(void *arg)
{
	char *p;

	fixture_thread();
	p = mem_alloc(16 * PAGE);
	for (int i = 0; i < 20; i++) {
		off_t off = (intptr_t)arg * 1000 + i * 3001;

		mem_fill(p, TEST_GUARD, 16 * PAGE);
		CHECK(cuFileRead(file.handle, p, 9000, off, i) == 9000);
		mem_check(p, 16 * PAGE, (size_t)i, 9000, (uint64_t)off);
	}
	mem_free(p);
	fixture_thread_end();
	return NULL;
}

static void threads(void)
{
	pthread_t ids[16];

	for (intptr_t i = 0; i < 16; i++)
		CHECK(pthread_create(&ids[i], NULL, thread_main, (void *)i) == 0);
	for (int i = 0; i < 16; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
}

static void batches(void)
{
	static struct batch b;

	batch_open(&b, 128, FILE_LEN);
	for (unsigned int nr = 1; nr <= 128; nr *= 2) {
		batch_prepare(&b, nr, file.handle);
		CHECK(cuFileBatchIOSubmit(b.handle, nr, b.io, 0).err == CU_FILE_SUCCESS);
		batch_collect(&b, nr, nr);
		batch_check(&b, nr);
	}
	batch_close(&b);
}

static void round_trip(void **state)
{
	struct statfs fs;

	plain(O_RDWR);
	target_close(&file);
	plain(O_RDWR | O_DIRECT);
	threads();
	batches();
	assert_int_equal(fstatfs(file.fd, &fs), 0);
	target_close(&file);
	assert_int_equal(cuFileUseCount(), 1);
	assert_ok(cuFileDriverClose_v2());
	fprintf(stderr, "file system 0x%lx\n", (unsigned long)fs.f_type);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip)};

	if (!fixture_init(argc, argv))
		return 2;
	alarm(200);
	return fixture_fini(cmocka_run_group_tests(tests, NULL, NULL));
}

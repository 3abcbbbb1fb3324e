/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_batch_refused - batches that cannot be: wrong numbers, wrong entries, handles that are gone, and
 * cancelling at any time. How: one call a row of the table; memory that must stay as it was; small
 * staging memory in a process of its own.
 */
#include "batch.h"

#define FILE_LEN (3u * MIB)

static struct target file;

static int setup(void **state)
{
	alarm(600);
	assert_ok(cuFileDriverOpen());
	target_open(&file, FILE_LEN, O_RDWR | O_DIRECT);
	return 0;
}

static int teardown(void **state)
{
	target_close(&file);
	assert_ok(cuFileDriverClose_v2());
	return 0;
}

static void capacity(void **state)
{
	CUfileBatchHandle_t h = NULL;

	assert_err(cuFileBatchIOSetUp(&h, 0), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOSetUp(&h, 129), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOSetUp(&h, 257), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOSetUp(&h, UINT32_MAX), CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOSetUp(NULL, 1), CU_FILE_INVALID_VALUE);
	assert_null(h);
	assert_ok(cuFileBatchIOSetUp(&h, 128));
	cuFileBatchIODestroy(h);
	assert_ok(cuFileBatchIOSetUp(&h, 1));
	cuFileBatchIODestroy(h);
}

/* The whole submission is refused, and not one byte moves. */
static void refused(struct batch *b, unsigned int nr)
{
	struct timespec moment = {0, 1000000};
	unsigned int got = 8;

	assert_err(cuFileBatchIOSubmit(b->handle, nr, b->io, 0),
		   CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	assert_ok(cuFileBatchIOGetStatus(b->handle, 0, &got, b->events, &moment));
	assert_int_equal(got, 0);
	mem_check(b->memory, 8 * SLOT, 0, 0, 0);
}

static void wrong_submissions(void **state)
{
	static char nowhere[256];
	struct batch b;

	batch_open(&b, 4, FILE_LEN);
	batch_prepare(&b, 8, file.handle);
	refused(&b, 0);
	refused(&b, 5);
	refused(&b, 8);
	for (int i = 0; i < 5; i++) {
		void *bogus[] = {NULL, nowhere, (void *)5, b.handle, &file};

		batch_prepare(&b, 8, file.handle);
		b.io[2].fh = bogus[i];
		refused(&b, 4);
	}
	for (int mode = 0; mode <= 2; mode += 2) {
		batch_prepare(&b, 8, file.handle);
		memcpy(&b.io[3].mode, &mode, sizeof(mode));
		refused(&b, 4);
	}
	assert_true(cuFileBatchIOSubmit(b.handle, 1, NULL, 0).err != CU_FILE_SUCCESS);
	assert_true(cuFileBatchIOSubmit(NULL, 1, b.io, 0).err != CU_FILE_SUCCESS);
	/* It is as good as new. */
	batch_prepare(&b, 4, file.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 4, b.io, 0));
	batch_collect(&b, 4, 4);
	batch_check(&b, 4);
	batch_close(&b);
}

/* What nobody has taken back yet still has its place. */
static void full(void **state)
{
	CUfileOpError e;
	struct batch b;

	batch_open(&b, 4, FILE_LEN);
	batch_prepare(&b, 8, file.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 4, b.io, 0));
	e = cuFileBatchIOSubmit(b.handle, 1, b.io + 4, 0).err;
	assert_true(e == CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR || e == CU_FILE_BATCH_FULL);
	batch_collect(&b, 4, 4);
	batch_check(&b, 4);
	batch_close(&b);
}

static void wrong_status_calls(void **state)
{
	struct timespec moment = {0, 1000000};
	struct batch b;
	unsigned int got = 4;

	batch_open(&b, 4, FILE_LEN);
	assert_err(cuFileBatchIOGetStatus(b.handle, 5, &got, b.events, &moment),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOGetStatus(b.handle, 0, NULL, b.events, &moment),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileBatchIOGetStatus(b.handle, 1, &got, NULL, &moment), CU_FILE_INVALID_VALUE);
	got = 4;
	assert_true(cuFileBatchIOGetStatus(NULL, 0, &got, b.events, &moment).err !=
		    CU_FILE_SUCCESS);
	batch_close(&b);
}

static void destroyed(void **state)
{
	struct timespec moment = {0, 1000000};
	CUfileBatchHandle_t gone;
	struct batch b;
	unsigned int got = 4;

	batch_open(&b, 4, FILE_LEN);
	batch_prepare(&b, 4, file.handle);
	gone = b.handle;
	cuFileBatchIODestroy(gone);
	assert_err(cuFileBatchIOSubmit(gone, 4, b.io, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	assert_err(cuFileBatchIOGetStatus(gone, 0, &got, b.events, &moment),
		   CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	assert_ok(cuFileBatchIOCancel(gone));
	cuFileBatchIODestroy(gone);
	cuFileBatchIODestroy(NULL);
	cuFileBatchIODestroy(&b);
	cuFileBatchIODestroy((void *)9);
	mem_check(b.memory, 4 * SLOT, 0, 0, 0);
	mem_free(b.memory);
}

/* Entries that cannot work fail alone, with the reason as a negative number. */
static void entries_that_fail(void **state)
{
	CUfileHandle_t read_only = NULL;
	struct batch b;
	int opcode = 7, fd = open(file.path, O_RDONLY | O_CLOEXEC);

	assert_ok(handle_of(fd, &read_only));
	batch_open(&b, 8, FILE_LEN);
	batch_prepare(&b, 8, file.handle);
	memcpy(&b.io[1].opcode, &opcode, sizeof(opcode));
	b.io[3].u.batch.file_offset = FILE_LEN + 5;
	b.io[4].u.batch.file_offset = FILE_LEN - 10;
	b.io[5].fh = read_only;
	b.io[5].opcode = CUFILE_WRITE;
	b.io[6].u.batch.size = 0;
	if (on_gpu)
		b.io[7].u.batch.size = (size_t)BATCH_MAX * SLOT;
	else
		b.io[7].u.batch.devPtr_base = NULL;
	assert_ok(cuFileBatchIOSubmit(b.handle, 8, b.io, 0));
	batch_collect(&b, 8, 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(b.seen[i], 1);
	assert_int_equal(b.status[1], CUFILE_FAILED);
	assert_int_equal(b.ret[1], -EINVAL);
	assert_int_equal(b.status[3], CUFILE_COMPLETE);
	assert_int_equal(b.ret[3], 0);
	assert_int_equal(b.status[4], CUFILE_COMPLETE);
	assert_int_equal(b.ret[4], 10);
	assert_int_equal(b.status[5], CUFILE_FAILED);
	assert_int_equal(b.ret[5], -EIO);
	assert_int_equal(b.ret[6], 0);
	assert_int_equal(b.status[7], CUFILE_FAILED);
	assert_true(b.ret[7] < 0);
	for (int i = 0; i <= 2; i += 2) {
		assert_int_equal(b.status[i], CUFILE_COMPLETE);
		assert_int_equal(b.ret[i], batch_len((unsigned int)i));
		mem_check(b.memory + i * SLOT, SLOT, (size_t)i % 5, batch_len((unsigned int)i),
			  batch_offset((unsigned int)i));
	}
	batch_close(&b);
	cuFileHandleDeregister(read_only);
	close(fd);
}

/* Negative and enormous numbers in an entry cost that entry or the call, never the process. */
static void hostile_entries(void **state)
{
	static const int64_t numbers[] = {-1, INT64_MIN, INT64_MAX, 1ll << 62};
	struct batch b;

	batch_open(&b, 4, FILE_LEN);
	for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
		for (int where = 0; where < 3; where++) {
			batch_prepare(&b, 4, file.handle);
			if (where == 0)
				b.io[1].u.batch.file_offset = numbers[n];
			else if (where == 1)
				b.io[1].u.batch.devPtr_offset = numbers[n];
			else
				b.io[1].u.batch.size = (size_t)numbers[n];
			if (where == 2 && !on_gpu)
				continue; /* of host memory nobody knows where it ends */
			if (cuFileBatchIOSubmit(b.handle, 4, b.io, 0).err != CU_FILE_SUCCESS)
				continue;
			batch_collect(&b, 4, 4);
			assert_int_equal(b.status[0], CUFILE_COMPLETE);
			if (where != 0 || numbers[n] < 0)
				assert_int_equal(b.status[1], CUFILE_FAILED);
			mem_check(b.memory, SLOT, 0, batch_len(0), batch_offset(0));
			mem_check(b.memory + SLOT, SLOT, 0, 0, 0);
		}
	}
	batch_close(&b);
}

static void cancelled_at_any_time(void **state)
{
	struct timespec moment = {0, 1000000};
	struct batch b;

	batch_open(&b, 128, FILE_LEN);
	assert_ok(cuFileBatchIOCancel(b.handle));
	assert_ok(cuFileBatchIOCancel(NULL));
	for (int round = 0; round < 6; round++) {
		unsigned int done = 0;

		batch_prepare(&b, 128, file.handle);
		if (on_gpu && cuda.fake_set)
			cuda.fake_set("delay_us", round & 1 ? 2000 : 0);
		assert_ok(cuFileBatchIOSubmit(b.handle, 128, b.io, 0));
		assert_ok(cuFileBatchIOCancel(b.handle));
		/* Whatever still comes is complete or cancelled, and at most once. */
		for (int tries = 0; tries < 200 && done < 128; tries++) {
			unsigned int got = 128 - done;

			assert_ok(cuFileBatchIOGetStatus(b.handle, 0, &got, b.events, &moment));
			batch_count(&b, got);
			done += got;
			if (!got && tries > 20)
				break;
		}
		for (unsigned int i = 0; i < 128; i++) {
			assert_in_range(b.seen[i], 0, 1);
			if (b.seen[i] && b.status[i] != CUFILE_CANCELED)
				assert_int_equal(b.status[i], CUFILE_COMPLETE);
		}
		assert_ok(cuFileBatchIOCancel(b.handle));
	}
	if (on_gpu && cuda.fake_set)
		cuda.fake_set("delay_us", 0);
	batch_close(&b);
}

/* A cancelled batch that was emptied can be used again. */
static void used_after_cancelling(void **state)
{
	struct batch b;

	batch_open(&b, 16, FILE_LEN);
	for (int round = 0; round < 5; round++) {
		unsigned int got = 16;
		struct timespec second = {1, 0};

		batch_prepare(&b, 16, file.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 16, b.io, 0));
		assert_ok(cuFileBatchIOCancel(b.handle));
		cuFileBatchIOGetStatus(b.handle, 16, &got, b.events, &second);
		batch_prepare(&b, 16, file.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 16, b.io, 0));
		batch_collect(&b, 16, 16);
		batch_check(&b, 16);
	}
	batch_close(&b);
}

/* The driver closes under a batch: its entries come to an end, its handle is gone. */
static void driver_closed(void **state)
{
	struct timespec second = {1, 0};
	unsigned int got = 64;
	struct batch b;

	batch_open(&b, 64, FILE_LEN);
	batch_prepare(&b, 64, file.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	assert_err(cuFileBatchIOGetStatus(b.handle, 0, &got, b.events, &second),
		   CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	cuFileBatchIODestroy(b.handle);
	mem_free(b.memory);
	assert_ok(cuFileDriverOpen());
	file.handle = NULL;
	assert_ok(handle_of(file.fd, &file.handle));
}

/* With less staging memory than one batch asks for, it still goes on. */
static void little_memory(void)
{
	struct batch b;

	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	target_open(&file, FILE_LEN, O_RDWR | O_DIRECT);
	batch_open(&b, 128, FILE_LEN);
	for (int round = 0; round < 3; round++) {
		batch_prepare(&b, 128, file.handle);
		CHECK(cuFileBatchIOSubmit(b.handle, 128, b.io, 0).err == CU_FILE_SUCCESS);
		batch_collect(&b, 128, 128);
		batch_check(&b, 128);
	}
	batch_close(&b);
	target_close(&file);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

static void little_staging_memory(void **state)
{
	char *env[] = {"HEADRACE_STAGING_BYTES=262144", NULL};

	assert_int_equal(run_alone("little-memory", env), 0);
}

static void no_uring(void **state)
{
	char *env[] = {"HEADRACE_NO_URING=1", "HEADRACE_STAGING_BYTES=262144", NULL};

	assert_int_equal(run_alone("little-memory", env), 0);
}

static const struct alone alone[] = {{"little-memory", little_memory}};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capacity),
		cmocka_unit_test(wrong_submissions),
		cmocka_unit_test(full),
		cmocka_unit_test(wrong_status_calls),
		cmocka_unit_test(destroyed),
		cmocka_unit_test(entries_that_fail),
		cmocka_unit_test(hostile_entries),
		cmocka_unit_test(cancelled_at_any_time),
		cmocka_unit_test(used_after_cancelling),
		cmocka_unit_test(driver_closed),
		cmocka_unit_test(little_staging_memory),
		cmocka_unit_test(no_uring),
	};
	int status;

	if (!fixture_init(argc, argv))
		return 2;
	alarm(600);
	status = alone_main(argc, argv, alone, sizeof(alone) / sizeof(alone[0]));
	if (status >= 0)
		return status;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

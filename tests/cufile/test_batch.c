/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_batch - batches that work: every size, kind of descriptor and of memory, reads and writes together,
 * used again, waited for in every way, by other threads, and taken down early. How: each entry has a
 * slot of memory between guard bytes, each cookie has to come back exactly once.
 */
#include "batch.h"

#define FILE_LEN (3u * MIB)

static struct target buffered, direct;

static int setup(void **state)
{
	/* No test here may hang: the process ends instead. */
	alarm(600);
	assert_ok(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 256));
	assert_ok(cuFileDriverOpen());
	target_open(&buffered, FILE_LEN, O_RDWR);
	target_open(&direct, FILE_LEN, O_RDWR | O_DIRECT);
	return 0;
}

static int teardown(void **state)
{
	target_close(&buffered);
	target_close(&direct);
	assert_ok(cuFileDriverClose_v2());
	return 0;
}

static void one_size(unsigned int nr, const struct target *t, bool registered)
{
	struct batch b;

	batch_open(&b, nr, FILE_LEN);
	for (unsigned int i = 0; registered && i < nr; i++)
		assert_ok(cuFileBufRegister(b.memory + (size_t)i * SLOT, SLOT, 0));
	batch_prepare(&b, nr, t->handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, nr, b.io, 0));
	batch_collect(&b, nr, nr);
	batch_check(&b, nr);
	for (unsigned int i = 0; registered && i < nr; i++)
		assert_ok(cuFileBufDeregister(b.memory + (size_t)i * SLOT));
	batch_close(&b);
}

static void every_size(void **state)
{
	static const unsigned int sizes[] = {1, 2, 64, 128, 256};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		one_size(sizes[i], &direct, true);
		one_size(sizes[i], &direct, false);
		one_size(sizes[i], &buffered, true);
		one_size(sizes[i], &buffered, false);
	}
}

/* All entries in one registered buffer, as most programs have it. */
static void one_buffer(void **state)
{
	struct batch b;

	batch_open(&b, 256, FILE_LEN);
	assert_ok(cuFileBufRegister(b.memory, BATCH_MAX * SLOT, 0));
	batch_prepare(&b, 256, direct.handle);
	for (unsigned int i = 0; i < 256; i++) {
		b.io[i].u.batch.devPtr_base = b.memory;
		b.io[i].u.batch.devPtr_offset += (off_t)i * SLOT;
	}
	assert_ok(cuFileBatchIOSubmit(b.handle, 256, b.io, 0));
	batch_collect(&b, 256, 1);
	batch_check(&b, 256);
	assert_ok(cuFileBufDeregister(b.memory));
	batch_close(&b);
}

static void used_again(void **state)
{
	struct batch b;

	batch_open(&b, 32, FILE_LEN);
	for (int round = 0; round < 40; round++) {
		unsigned int nr = 1 + (unsigned int)round * 7 % 32;

		batch_prepare(&b, nr, round & 1 ? direct.handle : buffered.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, nr, b.io, 0));
		batch_collect(&b, nr, round % 3 ? nr : 1);
		batch_check(&b, nr);
	}
	batch_close(&b);
}

/* Submitted in pieces while earlier ones are on their way; what was taken back makes room. */
static void in_pieces(void **state)
{
	struct batch b;

	batch_open(&b, 8, FILE_LEN);
	batch_prepare(&b, 16, direct.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 3, b.io, 0));
	assert_ok(cuFileBatchIOSubmit(b.handle, 5, b.io + 3, 0));
	batch_collect(&b, 8, 8);
	assert_ok(cuFileBatchIOSubmit(b.handle, 8, b.io + 8, 0));
	batch_collect(&b, 8, 1);
	batch_check(&b, 16);
	batch_close(&b);
}

/* The caller's array is free as soon as Submit has returned. */
static void parameters_are_copied(void **state)
{
	struct batch b;

	batch_open(&b, 64, FILE_LEN);
	batch_prepare(&b, 64, direct.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
	memset(b.io, 0xff, sizeof(b.io));
	batch_collect(&b, 64, 64);
	batch_check(&b, 64);
	batch_close(&b);
}

static void reads_and_writes(void **state)
{
	struct target t, u;
	struct batch b;
	uint8_t *image = malloc(SLOT);

	target_open(&t, FILE_LEN, O_RDWR | O_DIRECT);
	target_open(&u, 0, O_RDWR);
	batch_open(&b, 64, FILE_LEN);
	batch_prepare(&b, 64, t.handle);
	for (unsigned int i = 1; i < 64; i += 2) {
		batch_entry(&b, i, u.handle, CUFILE_WRITE);
		b.io[i].u.batch.file_offset = (off_t)i * SLOT;
		mem_pattern(b.memory + (size_t)i * SLOT + i % 5, batch_offset(i), batch_len(i));
	}
	assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
	batch_collect(&b, 64, 64);
	batch_check(&b, 64);
	for (unsigned int i = 1; i < 64; i += 2) {
		target_bytes(&u, image, batch_len(i), (uint64_t)i * SLOT);
		for (size_t k = 0; k < batch_len(i); k++)
			assert_int_equal(image[k], test_pattern(batch_offset(i) + k));
	}
	batch_close(&b);
	target_close(&t);
	target_close(&u);
	free(image);
}

/* Without a minimum GetStatus never waits; with one it returns no less. */
static void waited_for_in_every_way(void **state)
{
	struct timespec none = {0, 0}, hour = {3600, 0};
	struct batch b;

	batch_open(&b, 64, FILE_LEN);
	for (int way = 0; way < 4; way++) {
		unsigned int done = 0;

		batch_prepare(&b, 64, direct.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
		while (done < 64) {
			unsigned int got = 64 - done, least = way == 3 ? got : way == 2 ? 1 : 0;
			struct timespec *timeout = way == 0 ? &none : way == 3 ? NULL : &hour;

			assert_ok(cuFileBatchIOGetStatus(b.handle, least, &got, b.events, timeout));
			assert_in_range(got, least, 64 - done);
			batch_count(&b, got);
			done += got;
		}
		batch_check(&b, 64);
	}
	batch_close(&b);
}

/* One event at a time through an array of one. */
static void short_array(void **state)
{
	struct batch b;

	batch_open(&b, 16, FILE_LEN);
	batch_prepare(&b, 16, buffered.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 16, b.io, 0));
	for (int i = 0; i < 16; i++) {
		unsigned int got = 1;

		b.events[1].cookie = &b;
		assert_ok(cuFileBatchIOGetStatus(b.handle, 1, &got, b.events, NULL));
		assert_int_equal(got, 1);
		assert_ptr_equal(b.events[1].cookie, &b);
		batch_count(&b, 1);
	}
	batch_check(&b, 16);
	batch_close(&b);
}

/* A time-out gives back what there is; the rest comes later. Seen by a GPU that takes its time. */
static void time_runs_out(void **state)
{
	struct timespec moment = {0, 1000000};
	struct batch b;
	unsigned int done = 0;

	batch_open(&b, 64, FILE_LEN);
	batch_prepare(&b, 64, direct.handle);
	if (on_gpu && cuda.fake_set)
		cuda.fake_set("delay_us", 20000);
	assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
	while (done < 64) {
		unsigned int got = 64 - done;

		assert_ok(cuFileBatchIOGetStatus(b.handle, 64 - done, &got, b.events, &moment));
		assert_in_range(got, 0, 64 - done);
		batch_count(&b, got);
		done += got;
	}
	if (on_gpu && cuda.fake_set)
		cuda.fake_set("delay_us", 0);
	batch_check(&b, 64);
	batch_close(&b);
}

/* NVIDIA's own test passes the address of a 4-byte number: what follows it in memory is nonsense. */
static void four_byte_timeout(void **state)
{
	static const uint8_t nonsense[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct batch b;

	batch_open(&b, 32, FILE_LEN);
	for (size_t i = 0; i < sizeof(nonsense); i++) {
		unsigned int done = 0;
		struct timespec timeout;
		int32_t number = 5000;

		memset(&timeout, nonsense[i], sizeof(timeout));
		memcpy(&timeout, &number, sizeof(number));
		batch_prepare(&b, 32, direct.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 32, b.io, 0));
		while (done < 32) {
			unsigned int got = 32 - done;

			assert_ok(cuFileBatchIOGetStatus(b.handle, got, &got, b.events, &timeout));
			batch_count(&b, got);
			done += got;
		}
		batch_check(&b, 32);
	}
	batch_close(&b);
}

/* Asked for more than there is, GetStatus says so or gives what there is; it does not wait for ever. */
static void nothing_to_wait_for(void **state)
{
	struct timespec moment = {0, 1000000};
	struct batch b;
	unsigned int got;

	batch_open(&b, 8, FILE_LEN);
	got = 8;
	assert_ok(cuFileBatchIOGetStatus(b.handle, 0, &got, b.events, &moment));
	assert_int_equal(got, 0);
	got = 8;
	cuFileBatchIOGetStatus(b.handle, 1, &got, b.events, &moment);
	assert_int_equal(got, 0);
	got = 8;
	cuFileBatchIOGetStatus(b.handle, 1, &got, b.events, NULL);
	assert_int_equal(got, 0);
	batch_prepare(&b, 4, direct.handle);
	assert_ok(cuFileBatchIOSubmit(b.handle, 4, b.io, 0));
	got = 8;
	assert_ok(cuFileBatchIOGetStatus(b.handle, 5, &got, b.events, NULL));
	batch_count(&b, got);
	batch_collect(&b, 4 - got, 1);
	batch_check(&b, 4);
	batch_close(&b);
}

static void *waiter(void *arg)
{
	struct batch *b = arg;

	fixture_thread();
	/* Nothing may be on its way for a moment: then it need not wait for more. */
	for (unsigned int done = 0; done < 256;) {
		unsigned int got = 256 - done;
		struct timespec patience = {1, 0};

		CHECK(cuFileBatchIOGetStatus(b->handle, 1, &got, b->events, &patience).err == 0);
		batch_count(b, got);
		done += got;
	}
	fixture_thread_end();
	return NULL;
}

/* One thread waits before there is anything, another one submits. */
static void other_thread_waits(void **state)
{
	struct batch b;

	batch_open(&b, 256, FILE_LEN);
	for (int round = 0; round < 4; round++) {
		pthread_t thread;

		batch_prepare(&b, 256, round & 1 ? direct.handle : buffered.handle);
		for (unsigned int i = 0; i < 64; i += 16)
			assert_ok(cuFileBatchIOSubmit(b.handle, 16, b.io + i, 0));
		assert_int_equal(pthread_create(&thread, NULL, waiter, &b), 0);
		for (unsigned int i = 64; i < 256; i += 64)
			assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io + i, 0));
		assert_int_equal(pthread_join(thread, NULL), 0);
		batch_check(&b, 256);
	}
	batch_close(&b);
}

/* After Destroy nobody writes to the memory any more, whatever was on its way. */
static void destroyed_in_flight(void **state)
{
	for (int round = 0; round < 6; round++) {
		struct batch b;

		batch_open(&b, 128, FILE_LEN);
		batch_prepare(&b, 128, round & 1 ? direct.handle : buffered.handle);
		if (on_gpu && cuda.fake_set)
			cuda.fake_set("delay_us", round < 3 ? 5000 : 0);
		assert_ok(cuFileBatchIOSubmit(b.handle, 128, b.io, 0));
		cuFileBatchIODestroy(b.handle);
		/* The address sanitizer, or the pretended driver, sees who comes late. */
		mem_free(b.memory);
		if (on_gpu && cuda.fake_set)
			cuda.fake_set("delay_us", 0);
	}
}

/* The handle is given back, the descriptor closed, while all is on its way: that still arrives. */
static void handle_given_back_in_flight(void **state)
{
	for (int round = 0; round < 4; round++) {
		struct target t;
		struct batch b;

		target_open(&t, FILE_LEN, round & 1 ? O_RDONLY | O_DIRECT : O_RDONLY);
		batch_open(&b, 64, FILE_LEN);
		batch_prepare(&b, 64, t.handle);
		assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
		target_close(&t);
		batch_collect(&b, 64, 64);
		batch_check(&b, 64);
		batch_close(&b);
	}
}

static void *waits_for_nothing(void *arg)
{
	struct batch *b = arg;
	struct timespec patience = {200, 0};
	unsigned int got = 8;

	fixture_thread();
	/* An answer of any kind, long before the time is over: the alarm of this program is shorter. */
	if (cuFileBatchIOGetStatus(b->handle, 8, &got, b->events, &patience).err == CU_FILE_SUCCESS)
		CHECK(got == 0);
	fixture_thread_end();
	return NULL;
}

/* Whoever waits for a batch that another thread destroys is sent home. */
static void destroyed_under_a_waiter(void **state)
{
	alarm(150);
	for (int round = 0; round < 8; round++) {
		pthread_t thread;
		struct batch b;

		batch_open(&b, 8, FILE_LEN);
		assert_int_equal(pthread_create(&thread, NULL, waits_for_nothing, &b), 0);
		for (int i = 0; i < round * 100; i++)
			sched_yield();
		cuFileBatchIODestroy(b.handle);
		assert_int_equal(pthread_join(thread, NULL), 0);
		mem_free(b.memory);
	}
	alarm(600);
}

/* As one transfer library has it: sixteen batches of 128 at the same time. */
static void many_batches(void **state)
{
	struct batch *all = calloc(16, sizeof(*all));

	for (int i = 0; i < 16; i++) {
		batch_open(&all[i], 128, FILE_LEN);
		batch_prepare(&all[i], 128, direct.handle);
	}
	for (int i = 0; i < 16; i++)
		assert_ok(cuFileBatchIOSubmit(all[i].handle, 128, all[i].io, 0));
	for (int i = 16; i-- > 0;) {
		batch_collect(&all[i], 128, 128);
		batch_check(&all[i], 128);
		batch_close(&all[i]);
	}
	free(all);
}

/* More bytes on their way than any staging memory holds. */
static void large_entries(void **state)
{
	enum { N = 96, LEN = 512 * 1024 + 3 };
	struct batch b;
	char *p = mem_alloc((size_t)N * LEN);

	batch_open(&b, N, FILE_LEN);
	batch_prepare(&b, N, direct.handle);
	mem_fill(p, TEST_GUARD, (size_t)N * LEN);
	for (unsigned int i = 0; i < N; i++) {
		b.io[i].u.batch.devPtr_base = p + (size_t)i * LEN;
		b.io[i].u.batch.devPtr_offset = 0;
		b.io[i].u.batch.file_offset = i * 20011;
		b.io[i].u.batch.size = LEN;
	}
	assert_ok(cuFileBatchIOSubmit(b.handle, N, b.io, 0));
	batch_collect(&b, N, N);
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(b.ret[i], LEN);
		mem_check(p + (size_t)i * LEN, LEN, 0, LEN, i * 20011);
	}
	batch_close(&b);
	mem_free(p);
}

/* All entries name the same bytes of the file, or the same handle twice: each gets its own. */
static void the_same_bytes(void **state)
{
	struct batch b;

	batch_open(&b, 64, FILE_LEN);
	batch_prepare(&b, 64, direct.handle);
	for (unsigned int i = 0; i < 64; i++) {
		b.io[i].u.batch.file_offset = 4321;
		b.io[i].u.batch.size = 5000;
		b.io[i].u.batch.devPtr_offset = 0;
	}
	assert_ok(cuFileBatchIOSubmit(b.handle, 64, b.io, 0));
	batch_collect(&b, 64, 64);
	for (size_t i = 0; i < 64; i++)
		mem_check(b.memory + i * SLOT, SLOT, 0, 5000, 4321);
	batch_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size),
		cmocka_unit_test(one_buffer),
		cmocka_unit_test(used_again),
		cmocka_unit_test(in_pieces),
		cmocka_unit_test(parameters_are_copied),
		cmocka_unit_test(reads_and_writes),
		cmocka_unit_test(waited_for_in_every_way),
		cmocka_unit_test(short_array),
		cmocka_unit_test(time_runs_out),
		cmocka_unit_test(four_byte_timeout),
		cmocka_unit_test(nothing_to_wait_for),
		cmocka_unit_test(other_thread_waits),
		cmocka_unit_test(destroyed_in_flight),
		cmocka_unit_test(handle_given_back_in_flight),
		cmocka_unit_test(destroyed_under_a_waiter),
		cmocka_unit_test(many_batches),
		cmocka_unit_test(large_entries),
		cmocka_unit_test(the_same_bytes),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elsewhere memory grows with every epoch, two loaders on one machine get into each other's way, closing
 * in one thread pulls the driver from under another, and some queue depths hang. Here: epochs that leave
 * memory as it was, two loaders in step, threads that open and close all the time, every depth.
 */
#include <pthread.h>

#include "regress/fixture.h"

#define FILE_LEN (8u << 20)
#define SEQ 1024u
#define BATCH 8u

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static struct fixture f;

static int set_up(void **state)
{
	fixture_open(&f, FILE_LEN, 512 << 10, (struct hr_engine_options){0});
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	return 0;
}

static struct hr_loader *open_loader(uint64_t epochs, uint32_t threads)
{
	struct hr_dataset_options data = {.format = "tokens", .seq_len = SEQ};
	struct hr_loader_options opts = {
		.batch_size = BATCH, .seed = 5, .epochs = epochs, .threads = threads};
	const char *path = f.path;
	struct hr_dataset *ds;
	struct hr_loader *loader;

	assert_int_equal(hr_dataset_open(&path, 1, &data, &ds), 0);
	assert_int_equal(hr_loader_open(ds, f.dev, &opts, &loader), 0);
	hr_dataset_close(ds);
	return loader;
}

static long resident_kib(void)
{
	long pages = 0, all;
	FILE *stat = fopen("/proc/self/statm", "re");

	if (stat && fscanf(stat, "%ld %ld", &all, &pages) != 2)
		pages = 0;
	if (stat)
		fclose(stat);
	return pages * 4;
}

static void test_epochs(void **state)
{
	struct hr_loader *loader = open_loader(4, 0);
	const struct hr_batch *batch;
	long first = 0;
	int ret;

	while ((ret = hr_loader_next(loader, &batch)) == 0) {
		if (!first && batch->epoch == 2)
			first = resident_kib();
		assert_int_equal(hr_loader_release(loader, batch, NULL), 0);
	}
	assert_int_equal(ret, -HR_E_END);
	/* two more epochs of 8 MiB */
	assert_true(SANITIZED || resident_kib() - first < 2048);
	hr_loader_close(loader);
}

/* A row of a batch against the file. */
static void check_row(const struct hr_batch *batch, uint32_t row)
{
	uint64_t len = 2 * (SEQ + 1), off = batch->ids[row] * SEQ * 2;
	uint8_t got[2 * (SEQ + 1)];

	assert_int_equal(
		hr_buffer_copy_out(batch->buffer, batch->buffer_offset + row * len, got, len), 0);
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(got[i], test_pattern(off + i));
}

static void test_two_loaders(void **state)
{
	struct hr_loader *loaders[2] = {open_loader(1, 0), open_loader(1, 2)};
	const struct hr_batch *a, *b;
	int ret;

	while ((ret = hr_loader_next(loaders[0], &a)) == 0) {
		assert_int_equal(hr_loader_next(loaders[1], &b), 0);
		assert_memory_equal(a->ids, b->ids, BATCH * sizeof(*a->ids));
		if (a->step % 16 == 0) {
			check_row(a, (uint32_t)(a->step / 16 % BATCH));
			check_row(b, (uint32_t)(a->step / 16 % BATCH));
		}
		assert_int_equal(hr_loader_release(loaders[0], a, NULL), 0);
		assert_int_equal(hr_loader_release(loaders[1], b, NULL), 0);
	}
	assert_int_equal(ret, -HR_E_END);
	hr_loader_close(loaders[0]);
	hr_loader_close(loaders[1]);
}

#define THREADS 6u
#define ROUNDS 1000u /* in all, on the host */

/* Its own device, engine and buffer each time; the file is everybody's. Return: NULL or what failed. */
static void *come_and_go(void *arg)
{
	uint32_t rounds = *(uint32_t *)arg;

	for (uint32_t i = 0; i < rounds; i++) {
		struct hr_engine_options o = {.staging_bytes = 256 << 10, .depth = 4};
		uint64_t off = (uint64_t)i * 4099;
		uint8_t got[3000];
		struct hr_device *dev;
		struct hr_engine *e;
		struct hr_buffer *buf;

		if (hr_device_open(fixture_device, &dev))
			return "hr_device_open";
		if (hr_engine_open(dev, &o, &e))
			return "hr_engine_open";
		if (hr_buffer_alloc(dev, sizeof(got), &buf))
			return "hr_buffer_alloc";
		hr_device_close(dev);
		if (hr_read(e, f.file, off, sizeof(got), buf, 0) != sizeof(got))
			return "hr_read";
		if (hr_buffer_copy_out(buf, 0, got, sizeof(got)))
			return "hr_buffer_copy_out";
		for (uint64_t k = 0; k < sizeof(got); k++)
			if (got[k] != test_pattern(off + k))
				return "the bytes";
		if (hr_engine_close(e) || hr_buffer_free(buf))
			return "closing";
	}
	return NULL;
}

static void test_open_close(void **state)
{
	uint32_t rounds = ROUNDS / THREADS / (strcmp(fixture_device, "host") ? 10 : 1);
	pthread_t threads[THREADS];

	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &rounds), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		if (failed)
			fail_msg("%s failed beside other threads", (const char *)failed);
	}
}

/* 300 requests through a queue of that depth. */
static void check_depth(uint32_t depth)
{
	enum { N = 300, PART = 1000 };
	static struct hr_io ios[N];
	struct hr_engine_options o = {
		.depth = depth, .staging_bytes = 256 << 10, .direct = depth % 2};
	struct hr_io *list[N];
	struct hr_engine *e;
	int got;

	assert_int_equal(hr_engine_open(f.dev, &o, &e), 0);
	fixture_poison(&f);
	memset(ios, 0, sizeof(ios));
	for (uint64_t i = 0; i < N; i++) {
		ios[i] = (struct hr_io){.file = f.file, .buffer = f.buf};
		ios[i].piece = (struct hr_piece){i * 20481 + depth, PART, i * (PART + 1)};
		list[i] = &ios[i];
	}
	assert_int_equal(hr_submit(e, list, N), N);
	for (int n = 0; n < N; n += got) {
		got = hr_reap(e, list, N, 1, LONG_NS);
		assert_true(got > 0);
	}
	fixture_fetch(&f);
	for (uint64_t i = 0; i < N; i++) {
		assert_int_equal(ios[i].res, PART);
		fixture_check(&f, i * (PART + 1), i * 20481 + depth, PART);
		fixture_guard(&f, i * (PART + 1) + PART, (i + 1) * (PART + 1));
	}
	assert_int_equal(hr_engine_close(e), 0);
}

static void test_depths(void **state)
{
	static const uint32_t depths[] = {1, 2, 3, 4, 7, 8, 16, 31, 64, 100, 128, 255, 256, 4096};

	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++)
		check_depth(depths[i]);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_epochs),
		cmocka_unit_test(test_two_loaders),
		cmocka_unit_test(test_open_close),
		cmocka_unit_test(test_depths),
	};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

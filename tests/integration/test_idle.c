/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_idle.c - a loader that nobody reads from fills its slots and then rests: while it
 * is watched no byte is read, no system call of the queue is made and no processor time is used.
 *
 * Usage: test_idle DEVICE THREADS.
 */
#include <sys/resource.h>
#include <time.h>

#include <headrace/headrace.h>

#include "support/support.h"

#define TOKENS (1u << 20)

static const char *device_name = "host";
static uint32_t threads = 2;

static void nap(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

static uint64_t cpu_us(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* rchar of /proc/self/io, or 0 where there is none */
static uint64_t read_chars(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n = 0;

	if (f && fscanf(f, "rchar: %llu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* Until the ring is full: at most 20 s. */
static void wait_full(struct hr_loader *loader, uint32_t slots)
{
	struct hr_loader_stats s;

	for (int i = 0; i < 2000; i++) {
		assert_int_equal(hr_loader_stats(loader, &s), 0);
		if (s.ready == slots)
			return;
		nap(10);
	}
	fail_msg("the loader does not fill its ring");
}

static void test_rest(void **state)
{
	struct hr_dataset_options dopts = {
		.format = "tokens", .dtype = HR_DTYPE_U16, .seq_len = 512};
	struct hr_loader_options lopts = {.batch_size = 8, .slots = 6, .threads = threads};
	char *dir = test_mkdir(), *path = test_file(dir, "tokens", TOKENS * 2ull);
	const char *paths[] = {path};
	struct hr_loader_stats before, after;
	struct hr_loader *loader;
	struct hr_dataset *ds;
	struct hr_device *dev;
	const struct hr_batch *batch;
	uint64_t cpu, chars, own;

	assert_int_equal(hr_device_open(device_name, &dev), 0);
	assert_int_equal(hr_dataset_open(paths, 1, &dopts, &ds), 0);
	assert_int_equal(hr_loader_open(ds, dev, &lopts, &loader), 0);
	hr_dataset_close(ds); /* the loader has its own reference */
	wait_full(loader, 6);
	nap(20); /* whoever was the last one goes to sleep */
	own = read_chars();
	own = read_chars() - own; /* what asking costs */
	hr_loader_stats(loader, &before);
	chars = read_chars();
	cpu = cpu_us();
	nap(500);
	cpu = cpu_us() - cpu;
	chars = read_chars() - chars;
	hr_loader_stats(loader, &after);
	assert_memory_equal(&before.io, &after.io, sizeof(before.io));
	assert_int_equal(after.ready, 6);
	assert_true(chars <= 2 * own);
	/* 2 % of one processor: a thread that polls without sleeping uses 100 %, one that naps 1 ms 2 % */
	if (cpu > 10000)
		fail_msg("an idle loader used %llu us of 500000", (unsigned long long)cpu);
	/* and it wakes up */
	for (int i = 0; i < 20; i++) {
		assert_int_equal(hr_loader_next(loader, &batch), 0);
		assert_int_equal(hr_loader_release(loader, batch, NULL), 0);
	}
	hr_loader_close(loader);
	hr_device_close(dev);
	free(path);
	test_rmdir(dir);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rest)};

	if (argc > 2) {
		device_name = argv[1];
		threads = (uint32_t)strtoul(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loader_lack - opening with too little: each allocation fails in turn, each thread fails to
 * start in turn, and an engine that cannot be closed keeps the memory that a drive may still write.
 * The linker puts the functions below in the place of the real ones (--wrap).
 */
#include <pthread.h>

#include "base/fail.h"
#include "loader_fixture.h"

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __real_hr_engine_close(struct hr_engine *engine);
int __wrap_hr_engine_close(struct hr_engine *engine);

static atomic_long allocations_left = -1; /* -1: no limit */
static atomic_long threads_left = -1;
static bool engine_stuck;
static struct hr_engine *stuck_engines[2]; /* found by the leak check */
static uint32_t n_stuck;

/* One fails, later ones work: what was built before it must be taken down again. */
static bool runs_out(atomic_long *left)
{
	return atomic_load(left) >= 0 && atomic_fetch_sub(left, 1) == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return runs_out(&allocations_left) ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
	return runs_out(&allocations_left) ? NULL : __real_malloc(size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return runs_out(&threads_left) ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

int __wrap_hr_engine_close(struct hr_engine *engine)
{
	if (!engine_stuck)
		return __real_hr_engine_close(engine);
	stuck_engines[n_stuck++] = engine;
	return -EBUSY;
}

static struct fixture f;

static int set_up(void **state)
{
	f = (struct fixture){
		.n_files = 2, .seq_len = 15, .dtype = HR_DTYPE_U16, .tokens = {400, 300}};
	fixture_open(&f);
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	return 0;
}

static void dataset_without_memory(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 15};
	int failures = 0;
	bool limited = true;

	for (long k = 0; limited; k++) {
		struct hr_dataset *ds = NULL;
		int rc;

		assert_true(k < 1000);
		hr__fail_set(EIO, "");
		atomic_store(&allocations_left, k);
		rc = hr_dataset_open((const char *const *)f.paths, 2, &opts, &ds);
		limited = atomic_exchange(&allocations_left, -1) < 0;
		if (rc == 0) {
			hr_dataset_close(ds);
			continue;
		}
		failures++;
		assert_int_equal(rc, -ENOMEM);
		assert_null(ds);
		assert_true(hr_error_detail()[0] != '\0');
	}
	assert_true(failures >= 5); /* the dataset, two files, two formats */
}

static void loader_without_memory(void **state)
{
	for (uint32_t threads = 0; threads < 2; threads++) {
		struct hr_loader_options o = {
			.batch_size = 4, .threads = threads, .engine = {.staging_bytes = 1 << 20}};
		int failures = 0;
		bool limited = true;

		for (long k = 0; limited; k++) {
			struct hr_loader *loader = NULL;
			int rc;

			assert_true(k < 1000);
			atomic_store(&allocations_left, k);
			rc = hr_loader_open(f.ds, f.dev, &o, &loader);
			limited = atomic_exchange(&allocations_left, -1) < 0;
			if (rc == 0) {
				hr_loader_close(loader);
				continue;
			}
			failures++;
			if (rc != -ENOMEM)
				fail_msg("allocation %ld: %s \"%s\"", k, hr_error_name(rc),
					 hr_error_detail());
			assert_null(loader);
		}
		assert_true(failures > 15);
	}
}

static void loader_without_threads(void **state)
{
	struct hr_loader_options o = {
		.batch_size = 4, .threads = 3, .engine = {.staging_bytes = 1 << 20}};
	struct hr_loader *loader = NULL;

	for (long k = 0; k < 3; k++) {
		atomic_store(&threads_left, k);
		expect_code(hr_loader_open(f.ds, f.dev, &o, &loader), EAGAIN, "fewer threads");
		assert_null(loader);
	}
	atomic_store(&threads_left, -1);
	expect_ok(hr_loader_open(f.ds, f.dev, &o, &loader));
	hr_loader_close(loader);
}

static int complaints;

static void count_line(enum hr_log_level level, const char *line, void *user)
{
	complaints += level == HR_LOG_ERROR && strstr(line, "kept until the process ends");
}

/* The slots stay mapped: a write that comes late must not hit somebody else's memory. */
static void stuck_engine_keeps_its_memory(void **state)
{
	static struct hr_loader *kept[2]; /* found by the leak check */

	hr_log_set(count_line, NULL);
	for (uint32_t threads = 0; threads < 2; threads++) {
		struct hr_loader_options o = {
			.batch_size = 4, .threads = threads, .engine = {.staging_bytes = 1 << 20}};
		const struct hr_batch *batch;

		expect_ok(hr_loader_open(f.ds, f.dev, &o, &kept[threads]));
		batch = next_batch(kept[threads]);
		engine_stuck = true;
		hr_loader_close(kept[threads]);
		engine_stuck = false;
		assert_int_equal(n_stuck, threads + 1);
		assert_non_null(stuck_engines[threads]);
		assert_int_equal(complaints, threads + 1);
		check_batch(&f, kept[threads], batch, false);
	}
	hr_log_set(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dataset_without_memory),
		cmocka_unit_test(loader_without_memory),
		cmocka_unit_test(loader_without_threads),
		cmocka_unit_test(stuck_engine_keeps_its_memory),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

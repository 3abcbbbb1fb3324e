/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_mapping.c - windows of mapped files on the GPU of tests/fakecuda: what is registered,
 * within which limit, what is dropped and what is not, what a device refuses, what is left over.
 *
 * Two windows may be pinned. Files are sparse and long, with the pattern around
 * the borders of windows alone.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "base/util.h"
#include "fake_control.h"
#include "support/support.h"
#include "transport/mapping.h"

#define W HR__MAPPING_WINDOW
#define FILE_LEN (3 * W + 12345)
#define AROUND 65536ull
#define INVALID_VALUE 1

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
} t;

/* Pattern around every border and at both ends. */
static void make_file(const char *path, uint64_t len)
{
	uint8_t *block = malloc(2 * AROUND);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	for (uint64_t border = 0; border < len + W; border += W) {
		uint64_t at = border < AROUND ? 0 : border - AROUND;
		uint64_t n = at < len ? hr__min(2 * AROUND, len - at) : 0;

		for (uint64_t i = 0; i < n; i++)
			block[i] = test_pattern(at + i);
		assert_int_equal(pwrite(fd, block, n, (off_t)at), (ssize_t)n);
	}
	close(fd);
	free(block);
}

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = malloc(600);
	snprintf(t.path, 600, "%s/data", t.dir);
	make_file(t.path, FILE_LEN);
	assert_int_equal(hr_device_open("cuda:0", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	return 0;
}

static int tear_down(void **state)
{
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.path);
	test_rmdir(t.dir);
	assert_int_equal(hr__mapping_pinned(), 0);
	return fake_clean(state);
}

static int64_t mtime_of(struct hr_file *file)
{
	struct hr__file_stamp stamp;

	assert_int_equal(hr__file_stamp(file, &stamp), 0);
	return stamp.mtime_ns;
}

static struct hr__mapping *mapping_of(struct hr_file *file)
{
	struct hr__mapping *m;

	assert_int_equal(hr__mapping_get(file, t.dev, false, &m), 0);
	return m;
}

static int64_t register_window(struct hr_file *file, uint64_t k)
{
	return hr_file_register(file, t.dev, k * W, W, 60000000000ull);
}

/* Two windows fit; the one that was used least recently makes place for a third. */
static void test_least_recently_used(void **state)
{
	struct hr__mapping *m = mapping_of(t.file);
	int64_t mtime = mtime_of(t.file);

	assert_false(hr__mapping_worth(m));
	assert_false(hr__mapping_hold(m, 0, 1, mtime));
	assert_int_equal(register_window(t.file, 0), W);
	assert_int_equal(register_window(t.file, 1), W);
	assert_int_equal(hr__mapping_pinned(), 2 * W);
	assert_int_equal(fake.get("registered"), 2);
	assert_true(hr__mapping_hold(m, W - 5, 10, mtime)); /* across the border */
	hr__mapping_release(m, W - 5, 10);
	hr__mapping_tick();
	assert_true(hr__mapping_hold(m, 7, 10, mtime)); /* window 0 again: 1 is the older one now */
	hr__mapping_release(m, 7, 10);
	assert_int_equal(register_window(t.file, 2), W);
	assert_false(hr__mapping_hold(m, W, 10, mtime));
	assert_true(hr__mapping_hold(m, 0, 10, mtime));
	assert_true(hr__mapping_hold(m, 3 * W - 10, 10, mtime));
	hr__mapping_release(m, 0, 10);
	hr__mapping_release(m, 3 * W - 10, 10);
	assert_int_equal(hr__mapping_pinned(), 2 * W);
	/* a range that ends in a window that is not ready holds nothing of it */
	assert_false(hr__mapping_hold(m, W - 5, 10, mtime));
	assert_int_equal(atomic_load(&m->windows[0].uses), 0);
}

/* What a move may be reading is never dropped. */
static void test_in_use(void **state)
{
	struct hr__mapping *m = mapping_of(t.file);
	int64_t mtime = mtime_of(t.file);

	assert_int_equal(register_window(t.file, 0), W);
	assert_int_equal(register_window(t.file, 1), W);
	assert_true(hr__mapping_hold(m, 0, 2 * W, mtime));
	assert_int_equal(register_window(t.file, 2), 0);
	assert_int_equal(fake.get("registered"), 2);
	assert_true(hr__mapping_hold(m, 0, 2 * W, mtime));
	hr__mapping_release(m, 0, 2 * W);
	hr__mapping_release(m, 0, W);
	assert_int_equal(register_window(t.file, 2), W);
	assert_false(hr__mapping_hold(m, 0, 1, mtime));
	assert_true(hr__mapping_hold(m, 2 * W, 1, mtime));
	hr__mapping_release(m, 2 * W, 1);
	hr__mapping_release(m, W, W);
}

/* A whole file larger than the limit does not chase its own windows. */
static void test_limit(void **state)
{
	assert_int_equal(hr_file_register(t.file, t.dev, 0, 0, 60000000000ull), 2 * W);
	assert_int_equal(fake.get("registered"), 2);
	assert_int_equal(hr_file_register(t.file, t.dev, FILE_LEN - 100, 0, 60000000000ull), 100);
	assert_int_equal(hr_file_register(t.file, t.dev, FILE_LEN, 0, 60000000000ull), 0);
	assert_true(hr__mapping_pinned() <= 2 * W);
}

/* Cold pages are left alone unless somebody asks for them. */
static void test_cold(void **state)
{
	struct hr__mapping *m = mapping_of(t.file);
	struct hr__mapping_work work = {0};

	/* the middle of a window of a sparse file was never read */
	assert_int_equal(hr__mapping_prepare(m, 0, W, false, 0, UINT64_MAX, &work), 0);
	assert_true(work.cold);
	assert_int_equal(work.bytes, 0);
	assert_int_equal(fake.get("registered"), 0);
	assert_int_equal(hr__mapping_prepare(m, 0, W, true, 0, UINT64_MAX, &work), W);
	assert_int_equal(work.bytes, W);
}

/* A file that was changed after registering is not served until it is registered again. */
static void test_changed(void **state)
{
	const struct timespec times[2] = {{1000000000, 0}, {1000000000, 5}};
	struct hr__mapping *m = mapping_of(t.file);
	int64_t mtime = mtime_of(t.file);

	assert_int_equal(register_window(t.file, 0), W);
	assert_int_equal(utimensat(AT_FDCWD, t.path, times, 0), 0);
	assert_true(mtime_of(t.file) != mtime);
	assert_false(hr__mapping_hold(m, 0, 1, mtime_of(t.file)));
	assert_int_equal(register_window(t.file, 0), W);
	assert_int_equal(fake.get("registered"), 1);
	assert_true(hr__mapping_hold(m, 0, 1, mtime_of(t.file)));
	hr__mapping_release(m, 0, 1);
	/* grown within its last window and beyond */
	assert_int_equal(truncate(t.path, 4 * W + 7), 0);
	assert_int_equal(hr_file_register(t.file, t.dev, 4 * W - 1, 8, 60000000000ull), 8);
	assert_int_equal(hr_file_register(t.file, t.dev, 3 * W, W, 60000000000ull), W);
	/* too often: then it is left to the other paths */
	for (int i = 0; i < 64; i++) {
		struct hr__look look = {0};

		assert_false(hr__mapping_doubtful(m, mtime_of(t.file), 4 * W + 7, &look));
		assert_true(hr__mapping_doubtful(m, mtime_of(t.file), 4 * W + 8, &look));
		assert_true(hr__mapping_doubtful(m, mtime, 1, &look)); /* counted already */
	}
	assert_int_equal(register_window(t.file, 0), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "written all the time"));
	assert_false(hr__mapping_hold(m, 3 * W, 1, mtime_of(t.file)));
}

/* Each way in which a device says no has its reason. */
static void test_refused(void **state)
{
	struct hr_device *dev;

	fake.inject("cuMemHostRegister_v2", 2, INVALID_VALUE);
	assert_int_equal(register_window(t.file, 0), W);
	assert_int_equal(register_window(t.file, 1), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "could not be pinned"));
	assert_non_null(strstr(hr_error_detail(), t.path));
	assert_int_equal(register_window(t.file, 1), -HR_E_PATH_REFUSED); /* for good */
	assert_int_equal(hr__mapping_pinned(), W);
	fake.set("no_read_only", 1);
	assert_int_equal(hr_device_open("cuda:1", &dev), 0);
	assert_int_equal(hr_file_register(t.file, dev, 0, 0, 1), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "read-only"));
	hr_device_close(dev);
}

/* What changes without its time being believable is not mapped for a device. */
static void test_unbelievable(void **state)
{
	t.file->is_block_device = true;
	assert_int_equal(register_window(t.file, 0), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "block device"));
	assert_true(hr__mapping_plain_ok(t.file));
	t.file->is_block_device = false;
	strcpy(t.file->fs_name, "nfs");
	assert_int_equal(register_window(t.file, 0), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "server"));
	assert_false(hr__mapping_plain_ok(t.file));
}

/* A write moves an overlay's file to another layer; the mapping stays with the old one. */
static void test_overlay(void **state)
{
	const struct timespec times[2] = {{1000000000, 0}, {1000000000, 5}};

	strcpy(t.file->fs_name, "overlay");
	assert_int_equal(register_window(t.file, 0), W);
	assert_true(hr__mapping_hold(mapping_of(t.file), 0, 1, mtime_of(t.file)));
	hr__mapping_release(mapping_of(t.file), 0, 1);
	assert_int_equal(utimensat(AT_FDCWD, t.path, times, 0), 0);
	hr_file_register(t.file, t.dev, 0, W, 60000000000ull);
	assert_false(hr__mapping_hold(mapping_of(t.file), 0, 1, mtime_of(t.file)));
}

static struct hr_engine *open_engine(enum hr_path path)
{
	struct hr_engine_options o = {.path = path, .staging_bytes = 1 << 20};
	struct hr_engine *e;

	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

static void check_read(struct hr_engine *e, struct hr_file *file, struct hr_buffer *buf,
		       uint64_t off, uint64_t len, uint64_t want)
{
	uint8_t *image = malloc(len);

	memset(image, TEST_GUARD, len);
	assert_int_equal(hr_buffer_copy_in(buf, 0, image, len), 0);
	assert_int_equal(hr_read(e, file, off, len, buf, 0), want);
	assert_int_equal(hr_buffer_copy_out(buf, 0, image, len), 0);
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(image[i], i < want ? test_pattern(off + i) : TEST_GUARD);
	free(image);
}

static uint64_t carried(struct hr_engine *e, enum hr_path path)
{
	struct hr_stats stats;

	hr_engine_stats(e, &stats);
	return stats.bytes_by_path[path];
}

/* Elsewhere registering never comes to an end: here a budget of time does, and reads go on without. */
static void test_budget(void **state)
{
	struct hr_engine *e = open_engine(HR_PATH_AUTO);
	struct hr_buffer *buf;

	assert_in_range(hr_file_register(t.file, t.dev, 0, 0, 1), 0, W);
	assert_true(fake.get("registered") <= 2); /* one window, and the engine's ring */
	assert_int_equal(hr_buffer_alloc(t.dev, 1 << 20, &buf), 0);
	check_read(e, t.file, buf, W - 100, 1000, 1000);
	check_read(e, t.file, buf, FILE_LEN - 1000, 5000, 1000);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
}

/* Engines take registered windows, across their borders as well, and another path for the rest. */
static void test_engine(void **state)
{
	struct hr_engine *e = open_engine(HR_PATH_AUTO);
	struct hr_buffer *buf;
	int64_t elements;
	struct hr_piece piece = {W - 8191, 4096 * 2, 0};

	assert_int_equal(hr_buffer_alloc(t.dev, 1 << 20, &buf), 0);
	check_read(e, t.file, buf, 1, 1000, 1000);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 0);
	assert_int_equal(hr_file_register(t.file, t.dev, 0, 2 * W, 60000000000ull), 2 * W);
	check_read(e, t.file, buf, 1, 1000, 1000);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 1000);
	check_read(e, t.file, buf, W - 30001, 60000, 60000);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 61000);
	/* an element on the border itself */
	elements = hr_gather(e, t.file, &piece, 1, buf, HR_DTYPE_U16, HR_DTYPE_I64);
	assert_int_equal(elements, 8192);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 69192);
	check_read(e, t.file, buf, 2 * W - 10, 100, 100);
	check_read(e, t.file, buf, FILE_LEN - 10, 100, 10);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 69192);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
}

/* A forced path registers what it meets, drops what it used before, and says why when it cannot. */
static void test_forced(void **state)
{
	struct hr_engine *e = open_engine(HR_PATH_PAGECACHE);
	struct hr_buffer *buf;

	assert_int_equal(hr_buffer_alloc(t.dev, 1 << 20, &buf), 0);
	for (int round = 0; round < 3; round++)
		for (uint64_t k = 0; k < 3; k++)
			check_read(e, t.file, buf, k * W + 3, 5000, 5000);
	check_read(e, t.file, buf, FILE_LEN - 10, 100, 10);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 9 * 5000 + 10);
	fake.inject("cuMemHostRegister_v2", 1, INVALID_VALUE);
	assert_int_equal(hr_read(e, t.file, W + 9, 100, buf, 0), -HR_E_PATH_REFUSED);
	assert_int_equal(hr_read(e, t.file, W + 9, 100, buf, 0), -HR_E_PATH_REFUSED);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
}

/* Truncated, grown again and replaced while registered: what read(2) would say, no junk, no crash. */
static void test_file_changes(void **state)
{
	struct hr_engine *e = open_engine(HR_PATH_AUTO);
	char other[620];
	struct hr_buffer *buf;
	struct hr_file *again;

	assert_int_equal(hr_buffer_alloc(t.dev, 1 << 20, &buf), 0);
	assert_int_equal(register_window(t.file, 0), W);
	check_read(e, t.file, buf, 100, 60000, 60000);
	assert_int_equal(truncate(t.path, 30000), 0);
	check_read(e, t.file, buf, 100, 60000, 29900);
	check_read(e, t.file, buf, 40000, 1000, 0);
	make_file(t.path, FILE_LEN); /* emptied and written anew */
	check_read(e, t.file, buf, 100, 60000, 60000);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 60000);
	assert_int_equal(register_window(t.file, 0), W);
	check_read(e, t.file, buf, 100, 60000, 60000);
	assert_int_equal(carried(e, HR_PATH_PAGECACHE), 120000);
	/* replaced by rename: the old file stays as it is for who has it open */
	snprintf(other, sizeof(other), "%s/other", t.dir);
	make_file(other, 5000);
	assert_int_equal(rename(other, t.path), 0);
	check_read(e, t.file, buf, 100, 60000, 60000);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &again), 0);
	check_read(e, again, buf, 100, 60000, 4900);
	hr_file_close(again);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
}

struct reader {
	pthread_t thread;
	int failed;
};

/* Engines of several threads on one file, while windows come and go under them. */
static void *read_around(void *arg)
{
	struct reader *r = arg;
	struct hr_engine *e = open_engine(HR_PATH_AUTO);
	uint64_t seed = (uintptr_t)r;
	uint8_t image[4096];
	struct hr_buffer *buf;

	assert_int_equal(hr_buffer_alloc(t.dev, 4096, &buf), 0);
	for (int i = 0; i < 150; i++) {
		uint64_t off = test_random(&seed) % 3 * W + test_random(&seed) % 60000;

		r->failed += hr_read(e, t.file, off, 4096, buf, 0) != 4096;
		hr_buffer_copy_out(buf, 0, image, 4096);
		for (uint64_t k = 0; k < 4096; k++)
			r->failed += image[k] != test_pattern(off + k);
	}
	r->failed += hr_engine_close(e) != 0;
	hr_buffer_free(buf);
	return NULL;
}

static void test_threads(void **state)
{
	struct reader readers[3] = {{0}};

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&readers[i].thread, NULL, read_around, &readers[i]),
				 0);
	for (uint64_t k = 0; k < 40; k++)
		assert_true(register_window(t.file, k % 3) >= 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_int_equal(readers[i].failed, 0);
	}
}

/* Nothing is left over, however often. */
static void test_rounds(void **state)
{
	for (int i = 0; i < 1000; i++) {
		struct hr_file *file;

		assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &file), 0);
		assert_int_equal(hr_file_register(file, t.dev, FILE_LEN - 10, 10, 60000000000ull),
				 10);
		assert_int_equal(fake.get("registered"), 1);
		hr_file_close(file);
	}
	assert_int_equal(fake.get("registered"), 0);
}

static atomic_bool inside, go_on;

/* The list's lock is held: the other thread forks now, or as soon as it may. */
static void *slow_mmap(size_t len, int prot, int flags, int fd, uint64_t offset)
{
	atomic_store(&inside, true);
	for (uint32_t i = 0; i < 10000 && !atomic_load(&go_on); i++)
		sched_yield();
	return hr__sys_real.mmap(len, prot, flags, fd, offset);
}

static void *map_it(void *arg)
{
	mapping_of(arg);
	while (!atomic_load(&go_on)) /* sanitizers count threads */
		sched_yield();
	return NULL;
}

/* A child has mappings of its own, and no lock that is held by a thread which is not there. */
static void test_forked(void **state)
{
	struct hr__sys sys = hr__sys_real;
	struct hr_file *other;
	struct hr_device *host;
	struct hr__mapping *m;
	pthread_t thread;
	int status;
	pid_t pid;

	assert_int_equal(hr_device_open("host", &host), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &other), 0);
	assert_int_equal(register_window(t.file, 0), W);
	sys.mmap = slow_mmap;
	hr__sys = &sys;
	assert_int_equal(pthread_create(&thread, NULL, map_it, other), 0);
	while (!atomic_load(&inside))
		sched_yield();
	pid = fork();
	if (!pid) {
		bool good;

		alarm(60);
		hr__sys = &hr__sys_real;
		good = hr__mapping_get(t.file, host, false, &m) == 0 && hr__mapping_pinned() == 0;
		hr_file_close(t.file); /* with a mapping of the parent's and one of its own */
		_exit(good && hr__mapping_pinned() == 0 ? 0 : 1);
	}
	atomic_store(&go_on, true);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pthread_join(thread, NULL);
	hr__sys = &hr__sys_real;
	assert_int_equal(hr__mapping_pinned(), W);
	hr_file_close(other);
	hr_device_close(host);
}

int main(void)
{
#define EACH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		EACH(test_least_recently_used),
		EACH(test_in_use),
		EACH(test_limit),
		EACH(test_cold),
		EACH(test_changed),
		EACH(test_unbelievable),
		EACH(test_overlay),
		EACH(test_refused),
		EACH(test_budget),
		EACH(test_engine),
		EACH(test_forced),
		EACH(test_file_changes),
		EACH(test_threads),
		EACH(test_rounds),
		EACH(test_forked),
	};

	setenv("HEADRACE_PIN_BYTES", "128M", 1); /* before the library is used */
	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_crew.c - several threads copy one hot request: that they do so at the same time, that what
 * they miss is read all the same, and what becomes of their work when a file shrinks under them, a
 * copy hangs or no thread can be started.
 *
 * Usage: test_crew DEVICE. Every copy out of the page cache passes a hook, which says what it did. The
 * bytes are compared with the pattern of the file, all others of the buffer with guard bytes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"

#define MIB (1u << 20)
#define FILE_LEN (12 * MIB + 777u)
#define BUFFER_LEN (16u * MIB)
#define PATIENCE_MS 20000

static const char *device_name = "host";
static struct hr__sys sys;

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *image; /* what the buffer holds, copied out */
} t;

enum deed { COPY, MEET, MISS, HALF, SHRINK, HANG };

/* What the hook does and has seen. */
static struct {
	enum deed deed;
	uint32_t every; /* MISS and HALF: one call in so many */
	pthread_t owner;
	atomic_uint calls, by_others, inside, most_inside;
	atomic_bool go;
	uint64_t shrink_to;
} hook;

/* pthread_create() fails once so many have succeeded. */
static atomic_uint threads_left;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	if (!atomic_load(&threads_left))
		return EAGAIN;
	atomic_fetch_sub(&threads_left, 1);
	return __real_pthread_create(thread, attr, fn, arg);
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Stay until @n are inside, or have been: a single thread would be alone for all its patience. */
static void meet(uint32_t n)
{
	for (int i = 0; i < PATIENCE_MS && atomic_load(&hook.most_inside) < n; i++)
		nap();
}

/* Only those count that are not the engine's own thread. */
static bool enter(void)
{
	uint32_t inside, most;

	if (pthread_equal(pthread_self(), hook.owner))
		return false;
	atomic_fetch_add(&hook.by_others, 1);
	inside = atomic_fetch_add(&hook.inside, 1) + 1;
	most = atomic_load(&hook.most_inside);
	while (most < inside && !atomic_compare_exchange_weak(&hook.most_inside, &most, inside))
		;
	return true;
}

static ssize_t hooked_pread(int fd, void *buf, size_t len, uint64_t off, int flags)
{
	uint32_t call = atomic_fetch_add(&hook.calls, 1);
	bool other;
	ssize_t n;

	other = enter();
	if (hook.deed == MEET && other)
		meet(3);
	for (int i = 0; hook.deed == HANG && i < PATIENCE_MS && !atomic_load(&hook.go); i++)
		nap();
	if (hook.deed == SHRINK && call == 4)
		assert_int_equal(truncate(t.path, (off_t)hook.shrink_to), 0);
	if (hook.deed == MISS && call % hook.every == 0)
		n = -EAGAIN;
	else if (hook.deed == HALF && call % hook.every == 0)
		n = hr__sys_real.pread_flags(fd, buf, len / 2 + 1, off, flags);
	else
		n = hr__sys_real.pread_flags(fd, buf, len, off, flags);
	if (other)
		atomic_fetch_sub(&hook.inside, 1);
	return n;
}

static void hook_for(enum deed deed, uint32_t every)
{
	hook.deed = deed;
	hook.every = every;
	hook.owner = pthread_self();
	atomic_store(&hook.calls, 0);
	atomic_store(&hook.by_others, 0);
	atomic_store(&hook.most_inside, 0);
	atomic_store(&hook.go, false);
	atomic_store(&threads_left, 1000);
}

static struct hr_engine *open_engine(struct hr_engine_options o)
{
	struct hr_engine *e = NULL;

	o.staging_bytes = 8 * MIB;
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

static void fill_guard(void)
{
	memset(t.image, TEST_GUARD, BUFFER_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, BUFFER_LEN), 0);
}

/* @len bytes of the file from @off on are at @dst, up to @room nothing is promised, guards elsewhere. */
static void check(uint64_t off, uint64_t len, uint64_t room, uint64_t dst)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, BUFFER_LEN), 0);
	for (uint64_t i = 0; i < len; i++) {
		if (t.image[dst + i] != test_pattern(off + i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	for (uint64_t i = 0; i < BUFFER_LEN; i++) {
		if ((i < dst || i >= dst + room) && t.image[i] != TEST_GUARD)
			fail_msg("guard byte %llu was overwritten", (unsigned long long)i);
	}
}

static void read_and_check(struct hr_engine *e, uint64_t off, uint64_t len, uint64_t dst)
{
	fill_guard();
	assert_int_equal(hr_read(e, t.file, off, len, t.buf, dst), len);
	check(off, len, len, dst);
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	sys.pread_flags = hooked_pread;
	hr__sys = &sys;
	atomic_store(&threads_left, 1000);
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN); /* just written: in the page cache */
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
	t.image = malloc(BUFFER_LEN);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

/* One request, three threads at it at the same time. */
static void test_together(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){.threads = 3});
	struct hr_stats stats;

	hook_for(MEET, 0);
	read_and_check(e, 0, FILE_LEN, 4096);
	assert_int_equal(atomic_load(&hook.most_inside), 3);
	assert_true(atomic_load(&hook.by_others) >= 12);
	hook_for(COPY, 0);
	read_and_check(e, 511, FILE_LEN - 511, 3);
	read_and_check(e, 4097, 3 * MIB + 1, 8191);
	assert_int_equal(hr_engine_stats(e, &stats), 0);
	assert_int_equal(stats.bytes_cached, 2ull * FILE_LEN - 511 + 3 * MIB + 1);
	assert_int_equal(hr_engine_close(e), 0);
}

/* Who asked for no threads gets none; nor does a small read, which one thread copies sooner. */
static void test_alone(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){0});

	hook_for(COPY, 0);
	atomic_store(&threads_left, 0);
	read_and_check(e, 1, FILE_LEN - 1, 5);
	assert_true(atomic_load(&hook.calls) > 0);
	assert_int_equal(atomic_load(&hook.by_others), 0);
	assert_int_equal(hr_engine_close(e), 0);
	e = open_engine((struct hr_engine_options){.threads = 3});
	hook_for(COPY, 0);
	read_and_check(e, 8192, 8192, 5);
	assert_int_equal(atomic_load(&threads_left), 1000);
	assert_int_equal(atomic_load(&hook.by_others), 0);
	assert_int_equal(hr_engine_close(e), 0);
}

/* What a thread does not find in the page cache goes to the drive, in the same request. */
static void test_miss(void **state)
{
	static const struct {
		enum deed deed;
		uint32_t every;
	} cases[] = {{MISS, 1}, {MISS, 2}, {MISS, 5}, {HALF, 1}, {HALF, 3}};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (uint32_t buffered = 0; buffered < 2; buffered++) {
			struct hr_engine *e = open_engine((struct hr_engine_options){
				.threads = 3, .buffered = buffered, .no_uring = i == 2});
			struct hr_stats stats;

			hook_for(cases[i].deed, cases[i].every);
			read_and_check(e, 0, FILE_LEN, 0);
			read_and_check(e, 12345, FILE_LEN - 12345, 77);
			assert_int_equal(hr_engine_stats(e, &stats), 0);
			assert_true(stats.bytes_cached < 2ull * FILE_LEN - 12345);
			if (cases[i].every > 2)
				assert_true(stats.bytes_cached > 0);
			assert_int_equal(hr_engine_close(e), 0);
		}
	}
}

/* Large pieces and small ones, overlapping, with a conversion. */
static void test_gather(void **state)
{
	enum { N = 24 };
	struct hr_piece pieces[N];
	struct hr_engine *e = open_engine((struct hr_engine_options){.threads = 3});
	uint64_t seed = 11, dst = 0;

	hook_for(COPY, 0);
	for (uint32_t i = 0; i < N; i++) {
		uint64_t len = i % 3 ? 100000 + 2 * (test_random(&seed) % 5000) : 1000;
		uint64_t off = test_random(&seed) % (FILE_LEN - len);

		pieces[i] = (struct hr_piece){off, len, dst};
		dst += len * 4 + 64;
	}
	fill_guard();
	assert_true(hr_gather(e, t.file, pieces, N, t.buf, HR_DTYPE_U16, HR_DTYPE_I64) > 0);
	assert_true(atomic_load(&hook.by_others) > 0);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, BUFFER_LEN), 0);
	for (uint32_t i = 0; i < N; i++) {
		const uint8_t *at = t.image + pieces[i].buffer_offset;

		for (uint64_t k = 0; k < pieces[i].len / 2; k++) {
			uint64_t off = pieces[i].file_offset + 2 * k;
			int64_t got, want = test_pattern(off) | test_pattern(off + 1) << 8;

			memcpy(&got, at + 8 * k, 8);
			if (got != want)
				fail_msg("element %llu of piece %u is wrong", (unsigned long long)k,
					 i);
		}
		for (uint64_t k = pieces[i].len * 4; k < pieces[i].len * 4 + 64; k++)
			assert_int_equal(at[k], TEST_GUARD);
	}
	assert_int_equal(hr_engine_close(e), 0);
}

/* Small pieces too far apart to be merged go to the threads in lots, misses among them. */
static void test_small(void **state)
{
	enum { N = 700, LEN = 3001, FILE_STEP = 17000, STEP = 20000 };
	static const struct {
		enum deed deed;
		uint32_t every;
		bool no_uring;
	} cases[] = {{COPY, 0, false}, {MISS, 7, false}, {MISS, 7, true}, {MISS, 1, true}};
	static struct hr_piece pieces[N];

	for (uint32_t i = 0; i < N; i++)
		pieces[i] = (struct hr_piece){(i * 389ull % N) * FILE_STEP + 5, LEN, i * STEP + 9};
	for (uint32_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct hr_engine *e = open_engine(
			(struct hr_engine_options){.threads = 3, .no_uring = cases[c].no_uring});

		hook_for(cases[c].deed, cases[c].every);
		fill_guard();
		assert_int_equal(hr_gather(e, t.file, pieces, N, t.buf, 0, 0), N * LEN);
		assert_true(atomic_load(&hook.by_others) > 0);
		assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, BUFFER_LEN), 0);
		for (uint64_t at = 0; at < BUFFER_LEN; at++) {
			uint64_t i = at / STEP, k = at % STEP;
			bool inside = i < N && k >= 9 && k < 9 + LEN;
			uint8_t want = TEST_GUARD;

			if (inside)
				want = test_pattern(pieces[i].file_offset + k - 9);
			if (t.image[at] != want)
				fail_msg("case %u: byte %llu is wrong", c, (unsigned long long)at);
		}
		assert_int_equal(hr_engine_close(e), 0);
	}
}

/* The file ends earlier while it is being copied: what read(2) still gives, and no more. */
static void test_shrink(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){.threads = 3});
	uint64_t end = 9 * MIB + 100;
	int64_t n;

	hook_for(SHRINK, 0);
	hook.shrink_to = end;
	fill_guard();
	n = hr_read(e, t.file, 0, FILE_LEN, t.buf, 64);
	assert_int_equal(n, end);
	check(0, end, FILE_LEN, 64);
	assert_int_equal(hr_engine_close(e), 0);
	hook_for(COPY, 0);
	free(t.path);
	t.path = test_file(t.dir, "data", FILE_LEN);
}

/* A copy that hangs: the wait ends, the buffer stays busy, the late bytes come in. */
static void test_hang(void **state)
{
	struct hr_engine *e =
		open_engine((struct hr_engine_options){.threads = 3, .timeout_ns = 30000000});

	hook_for(HANG, 0);
	fill_guard();
	assert_int_equal(hr_read(e, t.file, 0, 4 * MIB, t.buf, 64), -ETIMEDOUT);
	assert_int_equal(hr_buffer_free(t.buf), -EBUSY);
	assert_int_equal(hr_read(e, t.file, 0, 4 * MIB, t.buf, 64), -EBUSY);
	assert_int_equal(hr_engine_close(e), -EBUSY);
	atomic_store(&hook.go, true);
	for (int i = 0; i < PATIENCE_MS && hr_in_flight(e); i++) {
		struct hr_io *none;

		assert_true(hr_reap(e, &none, 1, 1, 10000000) >= 0);
	}
	assert_int_equal(hr_in_flight(e), 0);
	check(0, 4 * MIB, 4 * MIB, 64);
	hook_for(COPY, 0);
	assert_int_equal(hr_engine_close(e), 0);
}

/* No thread at all, or one of four: it takes longer and is the same. */
static void test_no_threads(void **state)
{
	for (uint32_t n = 0; n < 3; n++) {
		struct hr_engine *e = open_engine((struct hr_engine_options){.threads = 4});

		hook_for(COPY, 0);
		atomic_store(&threads_left, n);
		read_and_check(e, 0, FILE_LEN, 0);
		read_and_check(e, 511, FILE_LEN - 1024, 1);
		assert_int_equal(atomic_load(&threads_left), 0);
		assert_int_equal(atomic_load(&hook.by_others) > 0, n > 0);
		assert_int_equal(hr_engine_close(e), 0);
	}
}

/* Many requests at once, taken back one by one, some of them cancelled. */
static void test_many(void **state)
{
	enum { N = 32 };
	struct hr_engine *e = open_engine((struct hr_engine_options){.threads = 3, .depth = 4});
	struct hr_io ios[N] = {0}, *list[N], *done;

	hook_for(MISS, 7);
	fill_guard();
	for (uint32_t i = 0; i < N; i++) {
		ios[i].file = t.file;
		ios[i].buffer = t.buf;
		ios[i].piece = (struct hr_piece){i * 300000ull, 200000, i * 400000ull + 7};
		list[i] = &ios[i];
	}
	assert_int_equal(hr_submit(e, list, N), N);
	assert_int_equal(hr_cancel(e, &ios[N - 1]), 0);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(hr_reap(e, &done, 1, 1, PATIENCE_MS * 1000000ull), 1);
		assert_true(done->res == 200000 || (done == list[N - 1] && done->res < 0));
	}
	assert_int_equal(hr_in_flight(e), 0);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, BUFFER_LEN), 0);
	for (uint32_t i = 0; i < N - 1; i++) {
		for (uint64_t k = 0; k < 200000; k++)
			assert_int_equal(t.image[i * 400000ull + 7 + k],
					 test_pattern(i * 300000ull + k));
		assert_int_equal(t.image[i * 400000ull + 6], TEST_GUARD);
		assert_int_equal(t.image[i * 400000ull + 200007], TEST_GUARD);
	}
	assert_int_equal(hr_engine_close(e), 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together), cmocka_unit_test(test_alone),
		cmocka_unit_test(test_miss),     cmocka_unit_test(test_gather),
		cmocka_unit_test(test_small),    cmocka_unit_test(test_shrink),
		cmocka_unit_test(test_hang),     cmocka_unit_test(test_no_threads),
		cmocka_unit_test(test_many),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

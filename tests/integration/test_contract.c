/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_contract.c - what the headers promise at the edges: odd writes beside direct
 * ones, limits at their least, cancels, closes and time limits. The kernel's calls are watched
 * through the table of system calls, so that every outcome is certain and none a matter of time.
 *
 * Usage: test_contract [require], the latter with HEADRACE_REQUIRE=direct in the environment.
 */
#include <liburing.h>
#include <pthread.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "file/file.h"
#include "support/support.h"

#define FILE_LEN (8u << 20)
#define PAGE 4096u

static struct hr__sys sys;
static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
} t;

/* Which pages of the file were written how. */
static uint8_t page_by_cache[FILE_LEN / PAGE], page_past_cache[FILE_LEN / PAGE];

static ssize_t watch_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
	uint8_t *pages = fd == t.file->fd ? page_by_cache : page_past_cache;

	for (uint64_t page = offset / PAGE; page <= (offset + len - 1) / PAGE; page++)
		pages[page] = 1;
	return hr__sys_real.pwrite(fd, buf, len, offset);
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open("host", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ | HR_FILE_WRITE, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static struct hr_engine *open_engine(const struct hr_engine_options *o)
{
	struct hr_engine *e;

	assert_int_equal(hr_engine_open(t.dev, o, &e), 0);
	return e;
}

static struct hr_io whole_file(void)
{
	return (struct hr_io){
		.op = HR_READ,
		.file = t.file,
		.buffer = t.buf,
		.piece = {0, FILE_LEN, 0},
	};
}

static void reap_all(struct hr_engine *e)
{
	struct hr_io *done;

	while (hr_in_flight(e))
		assert_true(hr_reap(e, &done, 1, 1, 1000000000) >= 0);
}

/*
 * Bytes of one page that go by the cache and past it at the same time overwrite each other: the
 * cache reads the whole page, and writes all of it back later.
 */
static void writes_share_no_page(void **state)
{
	static const struct hr_piece odd[] = {
		{1679, 180331, 1679},  {182010, 75739, 182010},   {257749, 66000, 257749},
		{323749, 512, 323749}, {1 << 20, 70000, 1 << 20}, {2097664, 99328, 2097664},
	};
	struct hr_engine *e = open_engine(&(struct hr_engine_options){.no_uring = true});
	struct hr_io ios[6] = {{0}}, *list[6];
	uint32_t both = 0;

	sys.pwrite = watch_pwrite;
	for (uint32_t i = 0; i < 6; i++) {
		list[i] = &ios[i];
		ios[i] = whole_file();
		ios[i].op = HR_WRITE;
		ios[i].piece = odd[i];
	}
	assert_int_equal(hr_submit(e, list, 6), 6);
	reap_all(e);
	for (uint32_t i = 0; i < FILE_LEN / PAGE; i++)
		both += page_by_cache[i] && page_past_cache[i];
	assert_int_equal(both, 0);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(ios[i].res, odd[i].len);
	assert_int_equal(hr_engine_close(e), 0);
}

/* The least request size on a drive of 4096-byte blocks, at every kind of edge. */
static void small_requests_on_large_blocks(void **state)
{
	struct hr_engine *e = open_engine(
		&(struct hr_engine_options){.request_bytes = 4096, .staging_bytes = 256 << 10});
	uint8_t *bytes = hr_buffer_address(t.buf);

	if (t.file->fd_direct >= 0)
		t.file->offset_align = t.file->memory_align = 4096;
	memset(bytes, TEST_GUARD, FILE_LEN);
	assert_int_equal(hr_read(e, t.file, 4095, 20000, t.buf, 7), 20000);
	for (uint32_t i = 0; i < 20000; i++)
		assert_int_equal(bytes[7 + i], test_pattern(4095 + i));
	assert_int_equal(bytes[6], TEST_GUARD);
	assert_int_equal(bytes[20007], TEST_GUARD);
	assert_int_equal(hr_engine_close(e), 0);
}

/* Where blocks are larger than a page, memory needs no more than that: edges are staged. */
static void blocks_larger_than_pages(void **state)
{
	uint8_t *bytes = hr_buffer_address(t.buf);

	for (uint32_t block = 8192; block <= 65536 && t.file->fd_direct >= 0; block *= 2) {
		struct hr_engine *e = open_engine(
			&(struct hr_engine_options){.staging_bytes = 256 << 10, .direct = true});

		t.file->offset_align = block;
		memset(bytes, TEST_GUARD, 600000);
		assert_int_equal(hr_read(e, t.file, 4095, 500001, t.buf, 7), 500001);
		for (uint32_t i = 0; i < 500001; i++)
			assert_int_equal(bytes[7 + i], test_pattern(4095 + i));
		assert_int_equal(bytes[6], TEST_GUARD);
		assert_int_equal(bytes[500008], TEST_GUARD);
		assert_int_equal(hr_engine_close(e), 0);
	}
}

static ssize_t short_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	ssize_t n;

	if (fd == t.file->fd_direct)
		assert_int_equal((uintptr_t)buf % t.file->memory_align, 0);
	n = hr__sys_real.pread(fd, buf, len, offset);
	return n > 5000 ? 5000 : n;
}

/* Where memory must be aligned more than offsets, a short read goes on at an aligned address. */
static void short_reads_stay_aligned(void **state)
{
	struct hr_engine *e =
		open_engine(&(struct hr_engine_options){.no_uring = true, .direct = true});

	if (t.file->fd_direct >= 0)
		t.file->memory_align = PAGE;
	sys.pread = short_pread;
	assert_int_equal(hr_read(e, t.file, 0, 1 << 20, t.buf, 0), 1 << 20);
	for (uint32_t i = 0; i < 1 << 20; i++)
		assert_int_equal(((uint8_t *)hr_buffer_address(t.buf))[i], test_pattern(i));
	assert_int_equal(hr_engine_close(e), 0);
}

/* One long piece: what is not on its way when the cancel comes is not read. */
static void cancel_stops_a_long_read(void **state)
{
	struct hr_engine *e = open_engine(
		&(struct hr_engine_options){.depth = 1, .request_bytes = 64 << 10, .direct = true});
	struct hr_io io = whole_file(), *list = &io;
	struct hr_stats stats;

	assert_int_equal(hr_submit(e, &list, 1), 1);
	assert_int_equal(hr_cancel(e, &io), 0);
	reap_all(e);
	assert_int_equal(io.res, -ECANCELED);
	hr_engine_stats(e, &stats);
	assert_in_range(stats.bytes_read, 0, 128 << 10); /* one on its way, one held */
	assert_int_equal(hr_engine_close(e), 0);
}

/* A read that failed is not read to its end, which costs a dying drive's time-out each time. */
static int fail_result(const struct io_uring_cqe *cqe)
{
	return -EIO;
}

static void failure_stops_a_long_read(void **state)
{
	struct hr_engine *e = open_engine(
		&(struct hr_engine_options){.depth = 1, .request_bytes = 64 << 10, .direct = true});
	struct hr_stats stats;

	sys.ring_result = fail_result;
	assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), -EIO);
	hr_engine_stats(e, &stats);
	assert_in_range(stats.segments, 1, 2);
	assert_int_equal(hr_engine_close(e), 0);
}

static void *close_engine(void *arg)
{
	return (void *)(intptr_t)hr_engine_close(arg);
}

/* Another thread may not close an engine with requests in it: it is told so, and nothing happens. */
static void close_by_another_thread(void **state)
{
	struct hr_engine *e = open_engine(&(struct hr_engine_options){.depth = 1, .direct = true});
	struct hr_io ios[2] = {whole_file(), whole_file()}, *list[] = {&ios[0], &ios[1]};
	struct hr_file *other;
	pthread_t thread;
	void *ret;

	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &other), 0);
	ios[1].file = other; /* of a later window: not planned yet */
	assert_int_equal(hr_submit(e, list, 2), 2);
	assert_int_equal(pthread_create(&thread, NULL, close_engine, e), 0);
	pthread_join(thread, &ret);
	assert_int_equal((intptr_t)ret, -HR_E_WRONG_THREAD);
	reap_all(e);
	assert_int_equal(ios[0].res, FILE_LEN);
	assert_int_equal(ios[1].res, FILE_LEN);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(other);
}

/* Closing reads neither the rest of the window nor what is queued behind it. */
static void close_drops_the_rest(void **state)
{
	struct hr_engine *e = open_engine(&(struct hr_engine_options){
		.depth = 1, .no_uring = true, .request_bytes = 8 << 10, .direct = true});
	struct hr_io ios[8], *list[8];

	for (uint32_t i = 0; i < 8; i++) {
		list[i] = &ios[i];
		ios[i] = whole_file();
	}
	assert_int_equal(hr_submit(e, list, 8), 8);
	assert_int_equal(hr_engine_close(e), 0);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(ios[i].res, -ECANCELED);
}

/* UINT64_MAX is how people write "for ever". */
static void longest_timeouts(void **state)
{
	struct hr_engine *e = open_engine(&(struct hr_engine_options){
		.timeout_ns = UINT64_MAX, .depth = 1, .request_bytes = 64 << 10, .direct = true});
	struct hr_io io = whole_file(), *list = &io, *done;

	assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), FILE_LEN);
	assert_int_equal(hr_submit(e, &list, 1), 1);
	assert_int_equal(hr_reap(e, &done, 1, 1, UINT64_MAX), 1);
	assert_int_equal(hr_engine_close(e), 0);
}

static void endless_repetition_of_nothing(void **state)
{
	struct hr_engine *e = open_engine(NULL);
	struct hr_io io = whole_file(), *list = &io;

	io.piece.len = 0;
	io.count = UINT64_MAX / 2;
	assert_int_equal(hr_submit(e, &list, 1), 1);
	reap_all(e);
	assert_int_equal(io.res, 0);
	assert_int_equal(hr_engine_close(e), 0);
}

static uint32_t broken_at, submits;

static int break_submit(struct io_uring *ring, unsigned int wait, uint64_t timeout_ns)
{
	int ret = hr__sys_real.ring_submit(ring, wait, timeout_ns);

	return ++submits == broken_at ? -ENOMEM : ret;
}

/*
 * The queue fails once at every possible moment. Whatever the call returns, the pieces are the
 * caller's again (and freed here), and no finished read is lost on the way.
 */
static void queue_that_fails_once(void **state)
{
	sys.ring_submit = break_submit;
	for (broken_at = 1; broken_at < 40; broken_at++) {
		struct hr_engine *e = open_engine(&(struct hr_engine_options){
			.depth = 4, .direct = true, .timeout_ns = 5000000000ull});
		struct hr_piece *pieces = malloc(5000 * sizeof(*pieces));
		int64_t ret;

		for (uint32_t i = 0; i < 5000; i++)
			pieces[i] = (struct hr_piece){i * 1600, 100, i * 100};
		submits = 0;
		ret = hr_gather(e, t.file, pieces, 5000, t.buf, HR_DTYPE_BYTES, HR_DTYPE_BYTES);
		memset(pieces, 0xff, 5000 * sizeof(*pieces));
		free(pieces);
		assert_true(ret == 500000 || ret == -ENOMEM);
		assert_int_equal(hr_engine_close(e), 0);
	}
}

/* With HEADRACE_REQUIRE=direct in the environment: nobody gets the page cache in silence. */
static void requirement_forbids_buffers(void **state)
{
	struct hr_engine *e = NULL;

	assert_int_equal(hr_engine_open(t.dev, &(struct hr_engine_options){.buffered = true}, &e),
			 -HR_E_REQUIRE_DIRECT);
	assert_null(e);
	e = open_engine(NULL);
	assert_int_equal(hr_engine_close(e), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest with_requirement[] = {
		cmocka_unit_test_setup_teardown(requirement_forbids_buffers, set_up, tear_down),
	};

	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(writes_share_no_page, set_up, tear_down),
		cmocka_unit_test_setup_teardown(small_requests_on_large_blocks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(blocks_larger_than_pages, set_up, tear_down),
		cmocka_unit_test_setup_teardown(short_reads_stay_aligned, set_up, tear_down),
		cmocka_unit_test_setup_teardown(cancel_stops_a_long_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(failure_stops_a_long_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(close_by_another_thread, set_up, tear_down),
		cmocka_unit_test_setup_teardown(close_drops_the_rest, set_up, tear_down),
		cmocka_unit_test_setup_teardown(longest_timeouts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(endless_repetition_of_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(queue_that_fails_once, set_up, tear_down),
	};

	if (argc > 1 && !strcmp(argv[1], "require"))
		return cmocka_run_group_tests(with_requirement, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_list.c - gathers whose pieces go out of registered windows without a plan, on the GPU of
 * tests/fakecuda: many pieces, at any byte, across borders, beside pieces of windows that are not
 * ready; files of more windows than a list remembers; a file that changes under them.
 *
 * Expected bytes come from pread(2). Files are sparse and long, with data around the borders of
 * windows alone.
 */
#include <sys/stat.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "base/util.h"
#include "fake_control.h"
#include "support/support.h"
#include "transport/list.h"

#define W HR__MAPPING_WINDOW
#define AROUND 300000u
#define GAP 24u /* guard bytes behind every piece */

static struct hr__sys sys;

static struct {
	char *dir, *path;
	int fd;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_engine *engine;
} t;

static void write_around(uint64_t border)
{
	static uint8_t block[2 * AROUND];
	uint64_t at = border < AROUND ? 0 : border - AROUND;

	for (uint64_t i = 0; i < sizeof(block); i++)
		block[i] = test_pattern(at + i);
	assert_int_equal(pwrite(t.fd, block, sizeof(block), (off_t)at), sizeof(block));
}

static void open_all(uint64_t windows, uint64_t first_border)
{
	struct hr_engine_options o = {.staging_bytes = 2 << 20};

	t.fd = open(t.path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(t.fd >= 0);
	assert_int_equal(ftruncate(t.fd, (off_t)(windows * W)), 0);
	for (uint64_t k = first_border; k < windows; k++)
		write_around(k * W);
	assert_int_equal(hr_device_open("cuda:0", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &t.engine), 0);
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = malloc(600);
	snprintf(t.path, 600, "%s/data", t.dir);
	return 0;
}

static int tear_down(void **state)
{
	hr__sys = &hr__sys_real;
	assert_int_equal(hr_engine_close(t.engine), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	close(t.fd);
	free(t.path);
	test_rmdir(t.dir);
	assert_int_equal(hr__mapping_pinned(), 0);
	return fake_clean(state);
}

static void make_ready(uint64_t k)
{
	assert_int_equal(hr_file_register(t.file, t.dev, k * W, W, 60000000000ull), W);
}

static struct hr__mapping *mapping(void)
{
	struct hr__mapping *m;

	assert_int_equal(hr__mapping_get(t.file, t.dev, false, &m), 0);
	return m;
}

/* Nobody holds anything once all is back: one hold too many would keep a window for ever. */
static void check_uses(void)
{
	const struct hr__mapping *m = mapping();

	for (uint32_t k = 0; k < m->n_windows; k++)
		assert_int_equal(atomic_load(&m->windows[k].uses), 0);
}

/* Around borders first_border and later, up to @max bytes, some of them empty. */
static uint64_t make_pieces(struct hr_piece *pieces, uint64_t n, uint64_t first_border,
			    uint64_t borders, uint32_t max, uint64_t *seed)
{
	uint64_t at = GAP;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t border = (first_border + test_random(seed) % borders) * W;
		uint64_t off = border + test_random(seed) % (2 * AROUND - max);

		pieces[i] = (struct hr_piece){off - AROUND, test_random(seed) % max, at};
		if (test_random(seed) % 16 == 0)
			pieces[i].len = 0;
		at += pieces[i].len + GAP;
	}
	return at;
}

/* @size: the file's now. Return: the bytes that all pieces should have got. */
static uint64_t check_bytes(const struct hr_piece *pieces, uint64_t n, const uint8_t *image,
			    uint64_t len, uint64_t size)
{
	static uint8_t want[1 << 20];
	uint64_t sum = 0, at = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct hr_piece *p = &pieces[i];
		uint64_t have = p->file_offset < size ? hr__min(p->len, size - p->file_offset) : 0;

		for (; at < p->buffer_offset; at++)
			assert_int_equal(image[at], TEST_GUARD);
		assert_int_equal(pread(t.fd, want, have, (off_t)p->file_offset), (ssize_t)have);
		assert_memory_equal(image + at, want, have);
		at += p->len; /* behind the end of the file anything may be */
		sum += have;
	}
	for (; at < len; at++)
		assert_int_equal(image[at], TEST_GUARD);
	return sum;
}

/* After the engine has looked at the file for the @when-th time, the file is cut and maybe grown. */
static struct {
	int when;
	uint64_t cut;
	bool regrow;
	bool loose; /* it may happen too late to matter */
} hook;

static uint64_t sum(const struct hr_piece *pieces, uint64_t n)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n; i++)
		bytes += pieces[i].len;
	return bytes;
}

/* Gather and compare. Return: bytes that came by pagecache. */
static uint64_t gather(const struct hr_piece *pieces, uint64_t n, uint64_t len, uint64_t size)
{
	uint8_t *image = malloc(len);
	struct hr_io io = {.file = t.file, .pieces = pieces, .count = n}, *list = &io, *done;
	uint64_t least;

	memset(image, TEST_GUARD, len);
	assert_int_equal(hr_buffer_alloc(t.dev, len, &io.buffer), 0);
	assert_int_equal(hr_buffer_copy_in(io.buffer, 0, image, len), 0);
	assert_int_equal(hr_submit(t.engine, &list, 1), 1);
	assert_int_equal(hr_reap(t.engine, &done, 1, 1, 60000000000ull), 1);
	assert_int_equal(hr_buffer_copy_out(io.buffer, 0, image, len), 0);
	least = check_bytes(pieces, n, image, len, size);
	assert_in_range(io.res, least, hook.loose ? sum(pieces, n) : least);
	assert_int_equal(io.bytes_by_path[HR_PATH_PAGECACHE] + io.bytes_by_path[HR_PATH_BOUNCE],
			 io.res);
	assert_int_equal(hr_buffer_free(io.buffer), 0);
	free(image);
	check_uses();
	return io.bytes_by_path[HR_PATH_PAGECACHE];
}

/* More pieces than one list takes, over all windows of the file and their borders. */
static void test_all_ready(void **state)
{
	const uint64_t n = HR__LIST_PIECES_MAX + 1500;
	struct hr_piece *pieces = calloc(n, sizeof(*pieces));
	struct hr_stats stats;
	uint64_t seed = 3, len;

	open_all(4, 1);
	for (uint64_t k = 0; k < 4; k++)
		make_ready(k);
	len = make_pieces(pieces, n, 1, 3, 3000, &seed);
	assert_int_equal(gather(pieces, n, len, 4 * W), sum(pieces, n));
	assert_int_equal(hr_engine_stats(t.engine, &stats), 0);
	assert_int_equal(stats.segments, 0); /* no read at all */
	free(pieces);
}

static bool in_ready(const struct hr_piece *p)
{
	uint64_t first = p->file_offset / W, last = (p->file_offset + p->len - 1) / W;

	return first != 1 && last != 1;
}

/* Window 1 is not ready: what touches it takes another path, all else the list. */
static void test_partly_ready(void **state)
{
	struct hr_piece pieces[600];
	uint64_t seed = 4, len, want = 0, by_list;

	open_all(4, 1);
	make_ready(0);
	make_ready(2);
	make_ready(3);
	len = make_pieces(pieces, 600, 1, 3, 20000, &seed);
	for (int i = 0; i < 600; i++)
		want += in_ready(&pieces[i]) ? pieces[i].len : 0;
	by_list = gather(pieces, 600, len, 4 * W);
	/* The plan cuts, too: the ready half of a piece on a border may come out of the mapping. */
	assert_in_range(by_list, want, sum(pieces, 600) - 1);
}

/* Pieces across the border of a window whose neighbour is not ready, again and again. */
static void test_half_ready(void **state)
{
	struct hr_piece pieces[64];
	uint64_t at = 0;

	open_all(3, 1);
	make_ready(1);
	for (uint64_t i = 0; i < 64; i++) {
		uint64_t border = (1 + i % 2) * W;

		pieces[i] = (struct hr_piece){border - 700 - i, 1400, at};
		at += 1400 + GAP;
	}
	gather(pieces, 64, at, 3 * W);
	make_ready(0);
	make_ready(2);
	assert_int_equal(gather(pieces, 64, at, 3 * W), 64 * 1400);
}

/* Windows behind those that a list remembers. */
static void test_many_windows(void **state)
{
	const uint64_t windows = 4096 + 6;
	struct hr_piece pieces[500];
	uint64_t seed = 6, len;

	open_all(windows, 4094);
	for (uint64_t k = 4093; k < windows; k++)
		make_ready(k);
	len = make_pieces(pieces, 500, 4094, 8, 9000, &seed);
	assert_int_equal(gather(pieces, 500, len, windows * W), sum(pieces, 500));
}

/* Repetitions with a stride are pieces as well. */
static void test_strided(void **state)
{
	uint8_t image[1000 * 64];
	struct hr_io io = {.piece = {W - 31337, 61, 1},
			   .count = 1000,
			   .file_stride = 67,
			   .buffer_stride = 64},
		     *list = &io, *done;

	open_all(2, 1);
	make_ready(0);
	make_ready(1);
	io.file = t.file;
	memset(image, TEST_GUARD, sizeof(image));
	assert_int_equal(hr_buffer_alloc(t.dev, sizeof(image), &io.buffer), 0);
	assert_int_equal(hr_buffer_copy_in(io.buffer, 0, image, sizeof(image)), 0);
	assert_int_equal(hr_submit(t.engine, &list, 1), 1);
	assert_int_equal(hr_reap(t.engine, &done, 1, 1, 60000000000ull), 1);
	assert_int_equal(io.res, 61000);
	assert_int_equal(io.bytes_by_path[HR_PATH_PAGECACHE], 61000);
	assert_int_equal(hr_buffer_copy_out(io.buffer, 0, image, sizeof(image)), 0);
	for (uint64_t i = 0; i < sizeof(image); i++) {
		uint64_t in = (i % 64) - 1, off = W - 31337 + i / 64 * 67 + in;

		assert_int_equal(image[i], in < 61 ? test_pattern(off) : TEST_GUARD);
	}
	assert_int_equal(hr_buffer_free(io.buffer), 0);
	check_uses();
}

static int changing_fstat(int fd, struct stat *st)
{
	int ret = hr__sys_real.fstat(fd, st);

	if (--hook.when == 0) {
		assert_int_equal(ftruncate(t.fd, (off_t)hook.cut), 0);
		if (hook.regrow)
			write_around(W);
	}
	return ret;
}

/* Between planning and moving, and after: what read(2) gives at one of these moments. */
static void test_changed(void **state)
{
	struct hr_piece pieces[200];
	uint64_t seed = 8, len, reread = 0;
	struct hr_stats stats;

	open_all(2, 1);
	len = make_pieces(pieces, 200, 1, 1, 3000, &seed);
	for (int round = 0; round < 24; round++) {
		hook.when = 0;
		assert_int_equal(ftruncate(t.fd, 2 * W), 0);
		write_around(W);
		hr_file_close(t.file);
		assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
		make_ready(0);
		make_ready(1);
		hook.when = 1 + round % 3;
		hook.cut = W - AROUND / 2 + (uint64_t)round * 9001;
		hook.regrow = round % 2;
		hook.loose = hook.when > 1;
		sys.fstat = changing_fstat;
		/* Cut after the last look, all may have come before. */
		gather(pieces, 200, len, hook.regrow ? W + AROUND : hook.cut);
		sys.fstat = hr__sys_real.fstat;
	}
	hook.loose = false;
	assert_int_equal(hr_engine_stats(t.engine, &stats), 0);
	reread = stats.reread;
	assert_true(reread > 0); /* or nothing of this was tried */
}

/* hr_gather() whose time is up gives the array back while the device still works on it. */
static void test_late(void **state)
{
	struct hr_engine_options o = {.staging_bytes = 2 << 20, .timeout_ns = 20000000};
	struct hr_piece pieces[100];
	struct hr_buffer *buf;
	struct hr_engine *e;
	uint64_t seed = 9, len;

	open_all(3, 1);
	for (uint64_t k = 0; k < 3; k++)
		make_ready(k);
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	len = make_pieces(pieces, 100, 1, 2, 3000, &seed);
	assert_int_equal(hr_buffer_alloc(t.dev, len, &buf), 0);
	fake.set("delay_us", 300000);
	assert_int_equal(hr_gather(e, t.file, pieces, 100, buf, 0, 0), -ETIMEDOUT);
	memset(pieces, 0xff, sizeof(pieces));
	fake.set("delay_us", 0);
	while (hr_engine_close(e) == -EBUSY)
		;
	check_uses();
	assert_int_equal(hr_buffer_free(buf), 0);
}

/* A file that has grown far beyond its mapping: what lies behind is left to the plan. */
static void test_grown(void **state)
{
	struct hr_piece pieces[300];
	uint64_t at = 0;

	open_all(2, 1);
	make_ready(0);
	make_ready(1);
	assert_int_equal(ftruncate(t.fd, (off_t)(400 * W)), 0);
	for (uint64_t k = 90; k < 400; k += 7)
		write_around(k * W);
	make_ready(0); /* for the file as it is now */
	for (uint64_t i = 0; i < 300; i++) {
		pieces[i] = (struct hr_piece){(i % 2 ? 90 + i : 1) * W - 900, 800, at};
		at += 800 + GAP;
	}
	assert_in_range(gather(pieces, 300, at, 400 * W), 150 * 800, 150 * 800);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_all_ready),    EACH(test_partly_ready), EACH(test_half_ready),
		EACH(test_many_windows), EACH(test_strided),      EACH(test_late),
		EACH(test_grown),        EACH(test_changed),
	};

	setenv("HEADRACE_PIN_BYTES", "4G", 1);
	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

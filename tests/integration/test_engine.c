/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_engine.c - whole requests on a real file: every cross of offset, length and
 * destination, gathers, conversions, writes, cancels, on each device and each kind of queue.
 *
 * Usage: test_engine DEVICE QUEUE [PATH], QUEUE one of fixed, plain, crew (fixed, with threads
 * beside it), threads, sync, or any: what this process gets where it runs, shown with its reason; a
 * PATH is forced on all reads. The bytes in the
 * buffer are compared with the pattern of the file, and everything around them with guard bytes.
 */
#include <liburing.h>
#include <pthread.h>
#include <time.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/cast_expected.h"
#include "support/support.h"

#define FILE_LEN ((4u << 20) + 777u)
#define BUFFER_LEN (16u << 20)

static const char *device_name = "host", *queue_name = "fixed";
static enum hr_path forced;
static struct hr__sys sys;

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine, *writer;
	uint8_t *image; /* what the buffer holds, copied out */
} t;

static int refuse_buffers(struct io_uring *ring, const struct iovec *iov, unsigned int n)
{
	return -ENOMEM;
}

static int deny_ring(unsigned int entries, struct io_uring *ring, struct io_uring_params *p)
{
	return -EPERM;
}

static struct hr_engine *open_engine(struct hr_engine_options o)
{
	struct hr_engine *e = NULL;
	struct hr_queue_info q;
	bool crew = !strcmp(queue_name, "crew");

	o.threads = crew || !strcmp(queue_name, "threads") ? 3 : 0;
	o.path = forced;
	o.map = forced == HR_PATH_PAGECACHE;
	o.direct = o.direct && !o.map;
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	hr_engine_queue(e, &q);
	if (!strcmp(queue_name, "any")) {
		assert_int_equal(!strcmp(q.name, "io_uring fixed"), q.reason[0] == '\0');
		return e;
	}
	if (crew || !strcmp(queue_name, "fixed"))
		assert_string_equal(q.name, "io_uring fixed");
	else if (!strcmp(queue_name, "plain"))
		assert_string_equal(q.name, "io_uring");
	else
		assert_string_equal(q.name, queue_name);
	assert_int_equal(crew || !strcmp(queue_name, "fixed"), q.reason[0] == '\0');
	return e;
}

static void print_queue(void)
{
	struct hr_queue_info q;

	hr_engine_queue(t.engine, &q);
	printf("queue: %s%s%s\n", q.name, q.reason[0] ? ", because " : "", q.reason);
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	if (!strcmp(queue_name, "plain"))
		sys.ring_buffers = refuse_buffers;
	else if (!strcmp(queue_name, "threads") || !strcmp(queue_name, "sync"))
		sys.ring_init = deny_ring;
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
	t.image = malloc(BUFFER_LEN);
	t.engine = open_engine((struct hr_engine_options){.staging_bytes = 4 << 20});
	assert_int_equal(hr_engine_open(t.dev, NULL, &t.writer), 0);
	print_queue();
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_engine_close(t.writer), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static void fill_guard(uint64_t len)
{
	memset(t.image, TEST_GUARD, len);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, len), 0);
}

static void fetch(uint64_t len)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, len), 0);
}

static void check_guard(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		if (t.image[i] != TEST_GUARD)
			fail_msg("guard byte %llu was overwritten", (unsigned long long)i);
	}
}

static void check_bytes(uint64_t at, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++) {
		if (t.image[at + i] != test_pattern(off + i))
			fail_msg("byte %llu of the read at %llu is wrong", (unsigned long long)i,
				 (unsigned long long)off);
	}
}

/* One read, checked with guards on both sides. */
static void read_and_check(struct hr_engine *e, uint64_t off, uint64_t len, uint64_t dst)
{
	uint64_t room = dst + len + 8192;
	uint64_t want = off >= FILE_LEN ? 0 : len < FILE_LEN - off ? len : FILE_LEN - off;

	fill_guard(room);
	assert_int_equal(hr_read(e, t.file, off, len, t.buf, dst), want);
	fetch(room);
	check_guard(0, dst);
	check_bytes(dst, off, want);
	check_guard(dst + want, room);
}

/* The cross of offsets, lengths and destinations, cold (direct) and hot. */
static void test_cross(void **state)
{
	static const uint64_t offs[] = {0, 1, 511, 512, 513, 4095, 4096, 4097};
	static const uint64_t lens[] = {0, 1, 511, 512, 4095, 4096, 4097, (1 << 20) + 1};
	static const uint64_t dsts[] = {0, 1, 8, 255, 256, 4096};

	for (int direct = 0; direct < 2; direct++) {
		struct hr_engine *e = open_engine((struct hr_engine_options){
			.staging_bytes = 4 << 20, .direct = direct, .buffered = !direct});

		for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++)
			for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
				for (size_t m = 0; m < sizeof(dsts) / sizeof(dsts[0]); m++)
					read_and_check(e, offs[i], lens[k], dsts[m]);
		assert_int_equal(hr_engine_close(e), 0);
	}
}

/* Around the end of the file: clamped, short, nothing behind it touched. */
static void test_tail(void **state)
{
	static const uint64_t before[] = {0, 1, 9, 777, 778, 4096, 5000, 70000};
	static const uint64_t lens[] = {1, 777, 4096, 8192, 100000};

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
			read_and_check(t.engine, FILE_LEN - before[i], lens[k], 4096);
	read_and_check(t.engine, FILE_LEN + 1000, 100, 5);
}

/* Larger than staging, larger than the request limit, with tiny limits. */
static void test_long(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){
		.staging_bytes = 256 << 10, .request_bytes = 16 << 10, .depth = 3});

	read_and_check(t.engine, 0, FILE_LEN, 0);
	read_and_check(t.engine, 3, FILE_LEN - 3, 1);
	read_and_check(e, 0, FILE_LEN, 4096);
	read_and_check(e, 12345, FILE_LEN, 3);
	assert_int_equal(hr_engine_close(e), 0);
}

/* Many pieces at odd offsets, overlapping and repeated, land in the order of the list. */
static void test_gather(void **state)
{
	enum { N = 1000, LEN = 8194 };
	static struct hr_piece pieces[N];
	uint64_t seed = 42;

	for (int round = 0; round < 4; round++) {
		uint64_t room = N * 8200ull + 4096;

		for (int i = 0; i < N; i++) {
			pieces[i].file_offset = test_random(&seed) % (FILE_LEN - LEN);
			pieces[i].len = LEN;
			pieces[i].buffer_offset = (uint64_t)i * 8200 + 3;
		}
		pieces[7] = (struct hr_piece){pieces[6].file_offset, LEN, pieces[7].buffer_offset};
		fill_guard(room);
		assert_int_equal(hr_gather(t.engine, t.file, pieces, N, t.buf, 0, 0), N * LEN);
		fetch(room);
		check_guard(0, 3);
		for (int i = 0; i < N; i++) {
			uint64_t at = pieces[i].buffer_offset;

			check_bytes(at, pieces[i].file_offset, LEN);
			check_guard(at + LEN, i + 1 < N ? at + 8200 : room);
		}
	}
}

/* Elements @from of the file at @off, as they must lie in the fetched buffer at @at. */
static void check_elements(uint64_t at, uint64_t off, uint64_t count, enum hr_dtype from,
			   enum hr_dtype to)
{
	uint32_t sf = hr_dtype_size(from), so = hr_dtype_size(to);

	for (uint64_t i = 0; i < count; i++) {
		uint8_t in[8], want[8];

		for (uint32_t k = 0; k < sf; k++)
			in[k] = test_pattern(off + i * sf + k);
		cast_expected(want, in, from, to);
		if (memcmp(want, t.image + at + i * so, so) != 0)
			fail_msg("%s->%s: file offset %llu", hr_dtype_name(from), hr_dtype_name(to),
				 (unsigned long long)(off + i * sf));
	}
}

static void check_cast(struct hr_engine *e, enum hr_dtype from, enum hr_dtype to)
{
	uint32_t sf = hr_dtype_size(from), so = hr_dtype_size(to);
	struct hr_piece pieces[3] = {
		{1, 60000u * sf, 8},
		{8191, 4097u * sf, 8 + 60001ull * so},
		{70001, 4096u * sf, 8 + 70001ull * so},
	};
	uint64_t room = 8 + 80000ull * so, end = 0;

	fill_guard(room);
	assert_int_equal(hr_gather(e, t.file, pieces, 3, t.buf, from, to),
			 (60000 + 4097 + 4096) * (int64_t)sf);
	fetch(room);
	for (int p = 0; p < 3; p++) {
		uint64_t count = pieces[p].len / sf;

		check_guard(end, pieces[p].buffer_offset);
		check_elements(pieces[p].buffer_offset, pieces[p].file_offset, count, from, to);
		end = pieces[p].buffer_offset + count * so;
	}
	check_guard(end, room);
}

/* Conversion on the way, also at odd file offsets and across the limits of a segment; elements that
 * grow, that shrink and that stay as long as they were. */
static void test_cast(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){
		.staging_bytes = 256 << 10, .request_bytes = 4096, .direct = true});

	for (int from = 0; from < HR_DTYPE_COUNT_; from++) {
		for (int to = 0; to < HR_DTYPE_COUNT_; to++) {
			if (from != to && hr_cast_ok((enum hr_dtype)from, (enum hr_dtype)to))
				check_cast(e, (enum hr_dtype)from, (enum hr_dtype)to);
		}
	}
	assert_int_equal(hr_engine_close(e), 0);
}

/* A strided request is the same as its list. */
static void test_strided(void **state)
{
	struct hr_io io = {
		.op = HR_READ,
		.file = t.file,
		.buffer = t.buf,
		.piece = {100, 300, 7},
		.count = 5000,
		.file_stride = 700,
		.buffer_stride = 512,
	};
	struct hr_io *ios = &io, *done;
	uint64_t room = 5000 * 512 + 4096;

	fill_guard(room);
	assert_int_equal(hr_submit(t.engine, &ios, 1), 1);
	assert_int_equal(hr_reap(t.engine, &done, 1, 1, 60000000000ull), 1);
	assert_ptr_equal(done, &io);
	assert_int_equal(io.res, 5000 * 300);
	fetch(room);
	for (uint64_t i = 0; i < 5000; i++) {
		check_bytes(7 + i * 512, 100 + i * 700, 300);
		check_guard(7 + i * 512 + 300, i < 4999 ? 7 + (i + 1) * 512 : room);
	}
}

/* Many single requests in flight come back once each, with bytes by path adding up. */
static void test_many(void **state)
{
	enum { N = 500 };
	static struct hr_io ios[N];
	struct hr_io *list[N], *done[N];
	uint64_t seed = 7;
	int reaped = 0;

	memset(ios, 0, sizeof(ios));
	fill_guard(N * 8192);
	for (int i = 0; i < N; i++) {
		ios[i].file = t.file;
		ios[i].buffer = t.buf;
		ios[i].piece =
			(struct hr_piece){test_random(&seed) % 500 * 8192, 8192, i * 8192ull};
		list[i] = &ios[i];
	}
	assert_int_equal(hr_submit(t.engine, list, N), N);
	assert_int_equal(hr_in_flight(t.engine), N);
	while (reaped < N) {
		int n = hr_reap(t.engine, done + reaped, (uint32_t)(N - reaped), 10,
				60000000000ull);

		assert_true(n > 0);
		reaped += n;
	}
	assert_int_equal(hr_in_flight(t.engine), 0);
	fetch(N * 8192);
	for (int i = 0; i < N; i++) {
		uint64_t sum = 0;

		assert_int_equal(ios[i].res, 8192);
		for (int p = 0; p < HR_PATH_MAX; p++)
			sum += ios[i].bytes_by_path[p];
		assert_int_equal(sum, 8192);
		check_bytes(i * 8192ull, ios[i].piece.file_offset, 8192);
	}
}

/* What was written is what a plain read finds, and nothing else changed. */
static void write_and_check(struct hr_file *file, const char *path, uint64_t off, uint64_t len,
			    uint64_t src)
{
	uint64_t room = FILE_LEN + 16384;
	uint8_t *plain = malloc(room);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *before = malloc(room);
	ssize_t size = pread(fd, before, room, 0), after;

	for (uint64_t i = 0; i < len; i++)
		t.image[src + i] = test_pattern(i + off * 3 + 1);
	assert_int_equal(hr_buffer_copy_in(t.buf, src, t.image + src, len), 0);
	assert_int_equal(hr_write(t.writer, file, off, len, t.buf, src), len);
	after = pread(fd, plain, room, 0);
	assert_int_equal(after, (ssize_t)(off + len) > size ? (ssize_t)(off + len) : size);
	for (ssize_t i = 0; i < after; i++) {
		bool inside = (uint64_t)i >= off && (uint64_t)i < off + len;
		uint8_t want = inside     ? test_pattern((uint64_t)i - off + off * 3 + 1)
			       : i < size ? before[i]
					  : 0;

		if (plain[i] != want)
			fail_msg("write %llu+%llu: byte %zd is wrong", (unsigned long long)off,
				 (unsigned long long)len, i);
	}
	close(fd);
	free(plain);
	free(before);
}

static void test_write(void **state)
{
	static const uint64_t offs[] = {0, 1, 511, 4096, 4097, FILE_LEN - 5, FILE_LEN + 100};
	static const uint64_t lens[] = {1, 511, 4096, 8193, (1 << 20) + 1};
	static const uint64_t srcs[] = {0, 3, 4096};
	char *path = test_file(t.dir, "out", FILE_LEN);
	struct hr_file *file;

	assert_int_equal(hr_file_open(path, HR_FILE_READ | HR_FILE_WRITE, &file), 0);
	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++)
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
			for (size_t m = 0; m < sizeof(srcs) / sizeof(srcs[0]); m++) {
				if (offs[i] + lens[k] > FILE_LEN + 16384)
					continue;
				write_and_check(file, path, offs[i], lens[k], srcs[m]);
			}
	hr_file_close(file);
	free(path);
}

/* Requests that cannot be carried out are refused with a code and a sentence, and leave no trace. */
static void test_refusals(void **state)
{
	struct hr_io io, *ios = &io;
	struct hr_device *host;
	struct hr_buffer *other;

#define TRY(code, ...)                                                                             \
	do {                                                                                       \
		io = (struct hr_io){.file = t.file, .buffer = t.buf, __VA_ARGS__};                 \
		assert_int_equal(hr_submit(t.engine, &ios, 1), code);                              \
		assert_true(strlen(hr_error_detail()) > 20);                                       \
		assert_int_equal(hr_in_flight(t.engine), 0);                                       \
	} while (0)
	TRY(-HR_E_BAD_RANGE, .piece = {0, 1, BUFFER_LEN});
	TRY(-HR_E_BAD_RANGE, .piece = {0, BUFFER_LEN + 1ull, 0});
	TRY(-HR_E_BAD_RANGE, .piece = {UINT64_MAX - 3, 10, 0});
	TRY(-HR_E_BAD_RANGE, .piece = {0, 10, UINT64_MAX - 3});
	TRY(-HR_E_BAD_RANGE, .piece = {0, 10, 0}, .count = UINT64_MAX, .file_stride = 5);
	TRY(-HR_E_BAD_RANGE, .piece = {0, BUFFER_LEN / 2, 0}, .from = HR_DTYPE_U16,
	    .to = HR_DTYPE_I64);
	TRY(-EINVAL, .piece = {0, 11, 0}, .from = HR_DTYPE_U16, .to = HR_DTYPE_I64);
	TRY(-EINVAL, .piece = {0, 10, 4}, .from = HR_DTYPE_U16, .to = HR_DTYPE_I64);
	TRY(-HR_E_BAD_CAST, .piece = {0, 8, 0}, .from = HR_DTYPE_I64, .to = HR_DTYPE_U16);
	TRY(-EINVAL, .piece = {0, 8, 0}, .flags = 1);
	if (!forced)
		TRY(-EBADF, .op = HR_WRITE, .piece = {0, 8, 0});
	if (strcmp(device_name, "host") != 0) {
		assert_int_equal(hr_device_open("host", &host), 0);
		assert_int_equal(hr_buffer_alloc(host, 4096, &other), 0);
		io = (struct hr_io){.file = t.file, .buffer = other, .piece = {0, 8, 0}};
		assert_int_equal(hr_submit(t.engine, &ios, 1), -HR_E_WRONG_DEVICE);
		assert_int_equal(hr_buffer_free(other), 0);
		hr_device_close(host);
	}
#undef TRY
}

/* A cancelled request comes back once, and the buffer is free afterwards. */
static void test_cancel(void **state)
{
	enum { N = 64 };
	static struct hr_io ios[N];
	struct hr_io *list[N], *done[N];
	struct hr_engine *other;
	int n, cancelled = 0;

	memset(ios, 0, sizeof(ios));
	for (int i = 0; i < N; i++) {
		ios[i].file = t.file;
		ios[i].buffer = t.buf;
		ios[i].piece = (struct hr_piece){0, 4 << 20, 0};
		list[i] = &ios[i];
	}
	assert_int_equal(hr_submit(t.engine, list, N), N);
	assert_int_equal(hr_buffer_free(t.buf), -EBUSY);
	other = open_engine((struct hr_engine_options){0});
	assert_int_equal(hr_cancel(other, &ios[1]), -ENOENT);
	assert_int_equal(hr_engine_close(other), 0);
	for (int i = 0; i < N; i += 2)
		assert_int_equal(hr_cancel(t.engine, &ios[i]), 0);
	for (int got = 0; got < N; got += n) {
		n = hr_reap(t.engine, done, N, 1, 60000000000ull);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			assert_true(done[i]->res == -ECANCELED || done[i]->res == 4 << 20);
			cancelled += done[i]->res == -ECANCELED;
		}
	}
	assert_true(cancelled > 0);
	assert_int_equal(hr_cancel(t.engine, &ios[0]), -ENOENT);
	assert_int_equal(hr_in_flight(t.engine), 0);
}

/*
 * One gather of 4096 reads costs at most one io_uring_enter per 32 of them, and few copies to a device. How
 * many answers come at once is up to the drive and to who else is at work: of five gathers one must do.
 */
static void test_enters(void **state)
{
	enum { N = 4096 };
	static struct hr_piece pieces[N];
	struct hr_stats before, stats;
	struct hr_engine *e = open_engine((struct hr_engine_options){.direct = true});
	uint64_t big = 64ull << 20;
	char *path = test_file(t.dir, "big", big);
	struct hr_buffer *buf;
	struct hr_file *file;
	uint64_t seed = 3;
	bool few = false;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, N * 8192ull, &buf), 0);
	for (uint64_t i = 0; i < N; i++)
		pieces[i] =
			(struct hr_piece){test_random(&seed) % (big / 8192) * 8192, 8192, i * 8192};
	for (int round = 0; round < 5 && !few; round++) {
		assert_int_equal(hr_engine_stats(e, &before), 0);
		assert_int_equal(hr_gather(e, file, pieces, N, buf, 0, 0), N * 8192);
		assert_int_equal(hr_engine_stats(e, &stats), 0);
		assert_int_equal(stats.pieces - before.pieces, N);
		if (forced == HR_PATH_PAGECACHE)
			assert_int_equal(stats.bytes_by_path[forced] - before.bytes_by_path[forced],
					 N * 8192);
		else
			assert_true(stats.enters + stats.preads > before.enters + before.preads);
		few = stats.enters - before.enters <= N / 32;
		if (strcmp(device_name, "host") != 0) {
			assert_true(stats.copies > before.copies);
			few = few && stats.copies - before.copies <= 40;
		}
	}
	assert_true(few);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
	hr_file_close(file);
	free(path);
}

/* Somebody who only polls gets his data as well. */
static void test_poll(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){.direct = true});
	struct hr_io io = {0}, *list = &io, *done;
	int n = 0;

	fill_guard(3 * 65536);
	io.file = t.file;
	io.buffer = t.buf;
	io.piece = (struct hr_piece){12345, 65536, 65536};
	assert_int_equal(hr_submit(e, &list, 1), 1);
	for (int i = 0; i < 20000 && !n; i++) {
		n = hr_reap(e, &done, 1, 0, 0);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	assert_int_equal(n, 1);
	assert_ptr_equal(done, &io);
	assert_int_equal(io.res, 65536);
	fetch(3 * 65536);
	check_guard(0, 65536);
	check_bytes(65536, 12345, 65536);
	check_guard(2 * 65536, 3 * 65536);
	assert_int_equal(hr_engine_close(e), 0);
}

/* The engine says so when a second thread or a child uses it. */
static void *other_thread(void *arg)
{
	struct hr_io *none;

	return (void *)(intptr_t)hr_reap(arg, &none, 1, 0, 0);
}

static void test_owner(void **state)
{
	pthread_t thread;
	void *ret;

	read_and_check(t.engine, 0, 4096, 0);
	assert_int_equal(pthread_create(&thread, NULL, other_thread, t.engine), 0);
	pthread_join(thread, &ret);
	assert_int_equal((intptr_t)ret, -HR_E_WRONG_THREAD);
	read_and_check(t.engine, 0, 4096, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cross),    cmocka_unit_test(test_tail),
		cmocka_unit_test(test_long),     cmocka_unit_test(test_gather),
		cmocka_unit_test(test_cast),     cmocka_unit_test(test_strided),
		cmocka_unit_test(test_many),     cmocka_unit_test(test_write),
		cmocka_unit_test(test_refusals), cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_poll),     cmocka_unit_test(test_enters),
		cmocka_unit_test(test_owner),
	};

	if (argc > 2) {
		device_name = argv[1];
		queue_name = argv[2];
	}
	if (argc > 3 && hr_path_parse(argv[3], &forced))
		return 2;
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

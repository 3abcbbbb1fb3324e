/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault/test_faults.c - the kernel misbehaves: short counts, interruptions, errors at the k-th
 * result, a file that shrinks or grows, nothing at all for a while. Every round ends with the right
 * bytes or the right error, and leaves no descriptor, no busy buffer and no request behind.
 *
 * Usage: test_faults DEVICE QUEUE as in integration/test_engine.c, "any" included. Faults are put into the table of
 * system calls: into the results of the ring, and into pread and pwrite for the other queues.
 */
#include <liburing.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"

#define FILE_LEN (1u << 20)
#define RANDOM_PART UINT32_MAX /* of fault.keep: a part by seed and k */
#define ALL_BUT_ONE (UINT32_MAX - 1)

static const char *device_name = "host", *queue_name = "plain";
static struct hr__sys sys;

/* What happens to the results of the kernel. k counts them from 1. */
static struct {
	atomic_uint seen;
	uint32_t at, every; /* the k-th, or every k-th; 0 = never */
	int code;           /* this instead of the result... */
	uint32_t keep;      /* ...or at most this many bytes of it (0: all) */
	uint64_t seed;
	const char *path; /* with length: is that long from then on */
	off_t length;
} fault;

/* Which result this is, 0 if it is to be left alone. Threads of the queue call it together. */
static uint32_t hit(void)
{
	uint32_t k = atomic_fetch_add(&fault.seen, 1) + 1;

	return k == fault.at || (fault.every && k % fault.every == 0) ? k : 0;
}

static int64_t bend(int64_t res)
{
	uint32_t k = res > 0 ? hit() : 0;
	uint64_t random = fault.seed + k;

	if (!k)
		return res;
	if (fault.path && truncate(fault.path, fault.length))
		return -EBADMSG;
	if (fault.code)
		return fault.code;
	if (fault.keep == ALL_BUT_ONE)
		return res > 1 ? res - 1 : res;
	if (fault.keep == RANDOM_PART)
		return 1 + (int64_t)(test_random(&random) % (uint64_t)res);
	return fault.keep && res > fault.keep ? (int64_t)fault.keep : res;
}

static int bent_result(const struct io_uring_cqe *cqe)
{
	return (int)bend(cqe->res);
}

static ssize_t bent_pread(int fd, void *buf, size_t len, uint64_t off)
{
	return bend(hr__sys_real.pread(fd, buf, len, off));
}

static ssize_t bent_pread_flags(int fd, void *buf, size_t len, uint64_t off, int flags)
{
	return bend(hr__sys_real.pread_flags(fd, buf, len, off, flags));
}

static ssize_t bent_pwrite(int fd, const void *buf, size_t len, uint64_t off)
{
	return bend(hr__sys_real.pwrite(fd, buf, len, off));
}

static int deny_ring(unsigned int entries, struct io_uring *ring, struct io_uring_params *p)
{
	return -ENOSYS;
}

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *image;
} t;

static struct hr_engine *open_engine(bool direct)
{
	struct hr_engine_options o = {
		.depth = 8,
		.staging_bytes = 512 << 10,
		.request_bytes = 64 << 10,
		.direct = direct,
		.buffered = !direct,
		.timeout_ns = 20000000000ull,
	};
	struct hr_engine *e = NULL;

	if (!strcmp(queue_name, "threads"))
		o.threads = 3;
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	sys.ring_result = bent_result;
	sys.pread_flags = bent_pread_flags; /* what is hot */
	if (strcmp(queue_name, "plain") != 0) {
		if (strcmp(queue_name, "any") != 0)
			sys.ring_init = deny_ring;
		sys.pread = bent_pread;
		sys.pwrite = bent_pwrite;
	}
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN + 777);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, 2 * FILE_LEN, &t.buf), 0);
	t.image = malloc(2 * FILE_LEN);
	return 0;
}

static int tear_down(void **state)
{
	memset(&fault, 0, sizeof(fault));
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static void arm(uint32_t at, uint32_t every, int code, uint32_t keep)
{
	memset(&fault, 0, sizeof(fault));
	fault.at = at;
	fault.every = every;
	fault.code = code;
	fault.keep = keep;
	fault.seed = at * 1000 + every;
}

/* @len bytes arrived of the @asked: behind the request nothing may be touched. */
static void check_part(uint64_t off, uint64_t len, uint64_t asked)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, asked + 1), 0);
	for (uint64_t i = 0; i < len; i++) {
		if (t.image[i] != test_pattern(off + i))
			fail_msg("byte %llu of the read at %llu is wrong", (unsigned long long)i,
				 (unsigned long long)off);
	}
	assert_int_equal(t.image[asked], TEST_GUARD);
}

static void check_read(uint64_t off, uint64_t len)
{
	check_part(off, len, len);
}

static void poison(void)
{
	memset(t.image, TEST_GUARD, 2 * FILE_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, 2 * FILE_LEN), 0);
}

/* Faults that pass: the bytes must be right whatever the kernel did in between. */
static void test_transient(void **state)
{
	static const struct {
		int code;
		uint32_t keep;
	} kinds[] = {{-EINTR, 0}, {-EAGAIN, 0}, {0, 1},           {0, 511},
		     {0, 512},    {0, 4095},    {0, RANDOM_PART}, {0, ALL_BUT_ONE}};
	static const uint64_t offs[] = {0, 1, 4096, 5000};

	for (int direct = 0; direct < 2; direct++) {
		struct hr_engine *e = open_engine(direct);

		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			for (uint32_t at = 1; at <= 8; at++)
				for (size_t o = 0; o < sizeof(offs) / sizeof(offs[0]); o++) {
					poison();
					arm(at, at + 2, kinds[k].code, kinds[k].keep);
					assert_int_equal(
						hr_read(e, t.file, offs[o], 300000, t.buf, 0),
						300000);
					check_read(offs[o], 300000);
				}
		arm(0, 0, 0, 0);
		assert_int_equal(hr_engine_close(e), 0);
	}
}

/* The tail of the file under short reads: never a byte more or less. */
static void test_transient_tail(void **state)
{
	struct hr_engine *e = open_engine(true);

	for (uint32_t every = 1; every <= 3; every++) {
		poison();
		arm(0, every, 0, every == 2 ? ALL_BUT_ONE : RANDOM_PART);
		assert_int_equal(hr_read(e, t.file, FILE_LEN - 9000, 100000, t.buf, 0), 9777);
		check_read(FILE_LEN - 9000, 9777);
	}
	arm(0, 0, 0, 0);
	assert_int_equal(hr_engine_close(e), 0);
}

/* Faults that stay: the code comes out, the engine lives, nothing is left behind. */
static void test_permanent(void **state)
{
	static const int codes[] = {-EIO, -ENOMEM, -ENODEV, -ETIMEDOUT};
	struct hr_engine *e = open_engine(true);
	int fds = test_count_fds();

	/* Choosing the way reads small files of the kernel: that is not what is tested here. */
	arm(0, 0, 0, 0);
	assert_int_equal(hr_read(e, t.file, 0, 512, t.buf, 0), 512);
	for (size_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++)
		for (uint32_t at = 1; at <= 5; at++) {
			arm(at, 0, codes[k], 0);
			assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), codes[k]);
			assert_int_equal(hr_in_flight(e), 0);
			arm(0, 0, 0, 0);
			poison();
			assert_int_equal(hr_read(e, t.file, 7, 100000, t.buf, 0), 100000);
			check_read(7, 100000);
		}
	/* A kernel that says EAGAIN for ever is given up, not waited for. */
	arm(0, 1, -EAGAIN, 0);
	assert_int_equal(hr_read(e, t.file, 0, 4096, t.buf, 0), -EAGAIN);
	arm(0, 0, 0, 0);
	assert_int_equal(hr_engine_close(e), 0);
	assert_true(test_count_fds() <= fds);
}

static void test_write_faults(void **state)
{
	char *path = test_file(t.dir, "out", 0);
	struct hr_engine *e = open_engine(true);
	struct hr_file *file;
	int fd;

	assert_int_equal(hr_file_open(path, HR_FILE_READ | HR_FILE_WRITE, &file), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint32_t every = 2; every <= 5; every++) {
		for (uint64_t i = 0; i < 200000; i++)
			t.image[i] = test_pattern(i * every);
		assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, 200000), 0);
		arm(1, every, every == 2 ? -EINTR : 0, every == 3 ? ALL_BUT_ONE : RANDOM_PART);
		assert_int_equal(hr_write(e, file, 123, 200000, t.buf, 0), 200000);
		arm(0, 0, 0, 0);
		assert_int_equal(pread(fd, t.image + FILE_LEN, 200000, 123), 200000);
		assert_memory_equal(t.image, t.image + FILE_LEN, 200000);
	}
	for (int k = 0; k < 2; k++) {
		arm(2, 0, k ? -ENOSPC : -EDQUOT, 0);
		assert_int_equal(hr_write(e, file, 0, 400000, t.buf, 0), k ? -ENOSPC : -EDQUOT);
	}
	arm(0, 0, 0, 0);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(file);
	close(fd);
	free(path);
}

/* The file loses its end between two reads, then grows again: short, then whole. */
static void test_shrink_and_grow(void **state)
{
	char *path = test_file(t.dir, "moving", 500000);
	struct hr_engine *e = open_engine(true);
	struct hr_file *file;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_read(e, file, 0, 500000, t.buf, 0), 500000);
	assert_int_equal(truncate(path, 123456), 0);
	poison();
	assert_int_equal(hr_read(e, file, 0, 500000, t.buf, 0), 123456);
	check_part(0, 123456, 500000);
	assert_int_equal(hr_read(e, file, 200000, 4096, t.buf, 0), 0);
	free(test_file(t.dir, "moving", 600000));
	poison();
	assert_int_equal(hr_read(e, file, 0, 700000, t.buf, 0), 600000);
	check_read(0, 600000);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(file);
	free(path);
}

/* The k-th answer of the kernel comes when the file has another length already. */
static void test_change_during(void **state)
{
	static const uint32_t lengths[] = {0, 1, 100000, 123456, 131072, 499999, 600000};
	const uint32_t len = 500000;

	for (uint32_t at = 1; at <= 6; at++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			struct hr_engine *e = open_engine(at % 2);
			char *path = test_file(t.dir, "during", len);
			uint32_t sure = lengths[i] < len ? lengths[i] : len;
			struct hr_file *file;
			int64_t got;

			assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
			poison();
			arm(at, 0, 0, 0);
			fault.length = lengths[i];
			fault.path = path;
			got = hr_read(e, file, 0, 700000, t.buf, 0);
			assert_true(atomic_load(&fault.seen) >= at);
			arm(0, 0, 0, 0);
			/* What had arrived before counts; what is there all the time is right. */
			assert_in_range(got, sure, len);
			check_part(0, sure, 700000);
			assert_int_equal(hr_in_flight(e), 0);
			if (lengths[i] < len)
				assert_int_equal(hr_read(e, file, 0, 700000, t.buf, 0), sure);
			hr_file_close(file);
			assert_int_equal(hr_engine_close(e), 0);
			free(path);
		}
}

/* Bytes that the program has allocated. A sanitizer counts itself, and looks for leaks at the end. */
static size_t heap_bytes(void)
{
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	return mallinfo2().uordblks;
#else
	return 0;
#endif
}

/* 10 000 rounds of random faults: what is open, what is busy and what is allocated stays the same. */
static void test_no_leak(void **state)
{
	struct hr_engine *e = open_engine(true);
	uint64_t seed = 99;
	size_t bytes;
	int fds;

	assert_int_equal(hr_read(e, t.file, 0, 4096, t.buf, 0), 4096);
	fds = test_count_fds();
	bytes = heap_bytes();
	for (int round = 0; round < 10000; round++) {
		static const int codes[] = {0, 0, -EINTR, -EAGAIN, -EIO};
		uint64_t off = test_random(&seed) % FILE_LEN, len = 1 + test_random(&seed) % 40000;
		int code = codes[test_random(&seed) % 5];
		int64_t want =
			off + len > FILE_LEN + 777 ? (int64_t)(FILE_LEN + 777 - off) : (int64_t)len;
		int64_t got;

		arm(1 + (uint32_t)(test_random(&seed) % 4), 0, code, RANDOM_PART);
		got = hr_read(e, t.file, off, len, t.buf, 0);
		assert_true(got == want || (code == -EIO && got == -EIO));
		assert_int_equal(hr_in_flight(e), 0);
	}
	arm(0, 0, 0, 0);
	assert_int_equal(test_count_fds(), fds);
	assert_true(heap_bytes() <= bytes + 65536);
	assert_int_equal(hr_engine_close(e), 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transient),       cmocka_unit_test(test_transient_tail),
		cmocka_unit_test(test_permanent),       cmocka_unit_test(test_write_faults),
		cmocka_unit_test(test_shrink_and_grow), cmocka_unit_test(test_change_during),
		cmocka_unit_test(test_no_leak),
	};

	if (argc > 2) {
		device_name = argv[1];
		queue_name = argv[2];
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

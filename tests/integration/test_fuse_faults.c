/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_fuse_faults.c - what a real kernel makes of a file system that misbehaves: short counts
 * of 1, n - 1 and any number, EIO at the k-th read, a file that loses or gains its second half in the
 * middle. 10 000 rounds of all of it leave no descriptor and no byte behind.
 *
 * Usage: test_fuse_faults PATH-OF-slowfs DEVICE QUEUE, QUEUE one of uring, threads. Exit 77: no FUSE.
 */
#include <malloc.h>

#include "integration/slowfs.h"

#define BUFFER_LEN (4u << 20)
#define ROUNDS 10000 /* a tenth of them on a pretended GPU */
#define ROUND_LEN 20000u

static const char *device_name, *queue_name;

static struct {
	char *dir;
	struct hr_device *dev;
	struct hr_buffer *buf;
	struct hr_engine *engine;
	uint8_t *image;
} t;

static int set_up(void **state)
{
	struct hr_engine_options o = {
		.staging_bytes = 1 << 20,
		.request_bytes = 64 << 10,
		.timeout_ns = 60000000000ull,
	};

	if (!strcmp(queue_name, "threads")) {
		o.threads = 2;
		o.no_uring = true;
	}
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &t.engine), 0);
	t.image = malloc(BUFFER_LEN);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_in_flight(t.engine), 0);
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_device_close(t.dev);
	free(t.image);
	return 0;
}

/* Reads @len bytes at @off to @dst, between two guards. Return: what hr_read() says. */
static int64_t read_guarded(struct hr_file *file, uint64_t off, uint64_t len)
{
	memset(t.image, TEST_GUARD, len + 2);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, len + 2), 0);
	return hr_read(t.engine, file, off, len, t.buf, 1);
}

/* The first @right bytes of a read of @len are the file's; nothing beside the read was touched. */
static void check(uint64_t off, uint64_t len, uint64_t right)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, len + 2), 0);
	for (uint64_t i = 0; i < right; i++) {
		if (t.image[1 + i] != test_pattern(off + i))
			fail_msg("byte %llu at %llu is wrong", (unsigned long long)i,
				 (unsigned long long)off);
	}
	assert_int_equal(t.image[0], TEST_GUARD);
	assert_int_equal(t.image[len + 1], TEST_GUARD);
}

static void set_k(unsigned int k)
{
	char name[32];

	snprintf(name, sizeof(name), "k=%u", k);
	slowfs_touch(t.dir, name);
	slowfs_touch(t.dir, "reset");
}

static void test_short(void **state)
{
	static const uint32_t lens[] = {1, 2, 511, 4096, 65536, 65537, 300001};
	struct hr_file *file = slowfs_open(t.dir, "short");
	struct hr_stats before, after;
	uint64_t seed = 7;

	hr_engine_stats(t.engine, &before);
	for (int round = 0; round < 10; round++)
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			uint64_t off = test_random(&seed) % (SLOWFS_LEN - lens[i]);

			assert_int_equal(read_guarded(file, off, lens[i]), lens[i]);
			check(off, lens[i], lens[i]);
		}
	/* the end of the file, which a short count could be taken for */
	assert_int_equal(read_guarded(file, SLOWFS_LEN - 70000, 100000), 70000);
	check(SLOWFS_LEN - 70000, 100000, 70000);
	hr_engine_stats(t.engine, &after);
	if (!strcmp(queue_name, "uring"))
		assert_true(after.retries > before.retries + 50);
	hr_file_close(file);
}

static void test_eio(void **state)
{
	struct hr_file *file = slowfs_open(t.dir, "eio");
	int failed = 0;

	for (unsigned int k = 1; k <= 12; k++) {
		int64_t got;

		set_k(k);
		got = read_guarded(file, 4097, 500000);
		failed += got == -EIO;
		assert_true(got == -EIO || got == 500000);
		check(4097, 500000, got < 0 ? 0 : 500000);
		assert_int_equal(hr_in_flight(t.engine), 0);
		set_k(100000);
		assert_int_equal(read_guarded(file, 4097, 500000), 500000);
		check(4097, 500000, 500000);
	}
	assert_true(failed >= 4); /* 500 000 bytes are four reads at least */
	hr_file_close(file);
}

static void test_shrink(void **state)
{
	struct hr_file *file = slowfs_open(t.dir, "shrink");

	for (unsigned int k = 1; k <= 12; k++) {
		int64_t got;

		set_k(k);
		got = read_guarded(file, 0, SLOWFS_LEN);
		/* what was read before it shrank counts */
		assert_in_range(got, SLOWFS_LEN / 2, SLOWFS_LEN);
		check(0, SLOWFS_LEN, SLOWFS_LEN / 2);
		assert_int_equal(read_guarded(file, 1000, SLOWFS_LEN), SLOWFS_LEN / 2 - 1000);
		check(1000, SLOWFS_LEN, SLOWFS_LEN / 2 - 1000);
	}
	hr_file_close(file);
}

static void test_grow(void **state)
{
	struct hr_file *file = slowfs_open(t.dir, "grow");

	for (unsigned int k = 2; k <= 12; k++) {
		int64_t got;

		set_k(k);
		got = read_guarded(file, 0, SLOWFS_LEN);
		assert_in_range(got, SLOWFS_LEN / 2, SLOWFS_LEN);
		check(0, SLOWFS_LEN, (uint64_t)got);
		assert_int_equal(read_guarded(file, 0, SLOWFS_LEN), SLOWFS_LEN);
		check(0, SLOWFS_LEN, SLOWFS_LEN);
	}
	hr_file_close(file);
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

/* One read of one file. @half: a length that it may have. */
static void one_round(const char *name, struct hr_file *file, uint64_t off, uint64_t len,
		      uint64_t half)
{
	int64_t got = read_guarded(file, off, len);
	uint64_t right = off < half ? (len < half - off ? len : half - off) : 0;

	assert_int_equal(hr_in_flight(t.engine), 0);
	if (!strcmp(name, "eio") && got == -EIO)
		right = 0;
	else
		assert_true(got >= (int64_t)right && got <= (int64_t)len);
	check(off, len, right);
}

static void test_rounds(void **state)
{
	static const char *const names[] = {"short", "eio", "shrink", "grow"};
	struct hr_file *files[4];
	int rounds = strcmp(device_name, "host") ? ROUNDS / 10 : ROUNDS;
	uint64_t seed = 21;
	size_t bytes = 0;
	int fds = 0;

	for (size_t i = 0; i < 4; i++)
		files[i] = slowfs_open(t.dir, names[i]);
	for (int round = 0; round < rounds; round++) {
		uint64_t which = test_random(&seed) % 4, len = 1 + test_random(&seed) % ROUND_LEN;
		uint64_t half = which >= 2 ? SLOWFS_LEN / 2 : SLOWFS_LEN;

		if (round % 50 == 0)
			set_k(1 + (unsigned int)(test_random(&seed) % 20));
		if (round == 500) {
			bytes = heap_bytes();
			fds = test_count_fds();
		}
		one_round(names[which], files[which], test_random(&seed) % (SLOWFS_LEN - len), len,
			  half);
	}
	assert_int_equal(test_count_fds(), fds);
	assert_true(heap_bytes() <= bytes + 65536);
	for (size_t i = 0; i < 4; i++)
		hr_file_close(files[i]);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_short, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_eio, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_shrink, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grow, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rounds, set_up, tear_down),
	};
	int failed;

	if (argc != 4)
		return 2;
	device_name = argv[2];
	queue_name = argv[3];
	t.dir = test_mkdir();
	if (!slowfs_mount(argv[1], t.dir, "0", "100000", "200")) {
		printf("SKIP: FUSE cannot be mounted here\n");
		test_rmdir(t.dir);
		return 77;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	umount2(t.dir, MNT_DETACH);
	test_rmdir(t.dir);
	return failed;
}

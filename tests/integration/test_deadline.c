/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_deadline.c - storage that answers too late, fails or loses its end: slowfs, a FUSE
 * file system of the tests. What a drive may still write to stays quarantined until its late answer.
 *
 * Usage: test_deadline PATH-OF-slowfs DEVICE QUEUE [WAITING], QUEUE one of uring, threads; WAITING is
 * the number of asynchronous reads that FUSE lets wait (200). Exit 77: no FUSE.
 */
#include "integration/slowfs.h"

#define FILE_LEN SLOWFS_LEN
#define BUFFER_LEN (4u << 20)
#define SHORT_NS 50000000ull
#define LONG_NS 60000000000ull

static const char *slowfs, *device_name, *queue_name;
static const char
	*waiting; /* asynchronous reads that FUSE lets wait; one more sleeps in the kernel */

static struct {
	char *dir;
	struct hr_device *dev;
	struct hr_buffer *buf;
	uint8_t *image;
} t;

static struct hr_file *open_file(const char *name)
{
	return slowfs_open(t.dir, name);
}

static void touch(const char *name)
{
	slowfs_touch(t.dir, name);
}

static struct hr_engine *open_engine(uint64_t timeout_ns)
{
	struct hr_engine_options o = {
		.staging_bytes = 1 << 20,
		.request_bytes = 64 << 10,
		.timeout_ns = timeout_ns,
	};
	struct hr_engine *e;

	if (!strcmp(queue_name, "threads")) {
		o.threads = 2;
		o.no_uring = true;
	}
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

static void poison(void)
{
	memset(t.image, TEST_GUARD, BUFFER_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, BUFFER_LEN), 0);
}

static void check(uint64_t off, uint64_t len, uint64_t dst)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, BUFFER_LEN), 0);
	for (uint64_t i = 0; i < len; i++) {
		if (t.image[dst + i] != test_pattern(off + i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	for (uint64_t i = 0; i < BUFFER_LEN; i++) {
		if ((i < dst || i >= dst + len) && t.image[i] != TEST_GUARD)
			fail_msg("guard byte %llu was overwritten", (unsigned long long)i);
	}
}

static int set_up(void **state)
{
	touch("reset");
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
	t.image = malloc(BUFFER_LEN);
	poison();
	return 0;
}

static int tear_down(void **state)
{
	touch("release");
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_device_close(t.dev);
	free(t.image);
	return 0;
}

/* Waits for the late answers. */
static void drain(struct hr_engine *e)
{
	for (int i = 0; i < 1000 && hr_in_flight(e) > 0; i++) {
		struct hr_io *none;

		assert_int_equal(hr_reap(e, &none, 1, 1, SHORT_NS), 0);
	}
	assert_int_equal(hr_in_flight(e), 0);
}

/* The whole life of a request that outlives its deadline. */
static void test_read(void **state)
{
	struct hr_engine *e = open_engine(SHORT_NS);
	struct hr_file *gate = open_file("gate"), *plain = open_file("plain");
	struct hr_buffer *other;

	assert_int_equal(hr_read(e, gate, 3, 300000, t.buf, 7), -ETIMEDOUT);
	assert_non_null(strstr(hr_error_detail(), "gate"));
	assert_int_equal(hr_buffer_free(t.buf), -EBUSY);
	assert_int_equal(hr_in_flight(e), 1);
	/* nothing else is started before the late answer */
	assert_int_equal(hr_buffer_alloc(t.dev, 4096, &other), 0);
	assert_int_equal(hr_read(e, plain, 0, 10, other, 0), -EBUSY);
	assert_int_equal(hr_engine_close(e), -EBUSY);
	assert_true(strlen(hr_error_detail()) > 20);
	assert_int_equal(hr_buffer_free(t.buf), -EBUSY);
	assert_int_equal(hr_buffer_free(other), 0);

	touch("release");
	hr_file_close(gate); /* the engine has its own reference */
	for (int i = 0; hr_engine_close(e) == -EBUSY; i++)
		assert_true(i < 1000);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(plain);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
}

/* Memory of the caller: after free has returned 0, nobody writes to it any more. */
static void test_registered(void **state)
{
	struct hr_engine *e;
	struct hr_file *gate;
	struct hr_buffer *buf;
	uint8_t *mem;

	if (strcmp(device_name, "host") != 0)
		skip();
	mem = malloc(1 << 20);
	e = open_engine(SHORT_NS);
	gate = open_file("gate");
	assert_int_equal(hr_buffer_register(t.dev, mem, 1 << 20, &buf), 0);
	assert_int_equal(hr_read(e, gate, 0, 1 << 20, buf, 0), -ETIMEDOUT);
	assert_int_equal(hr_buffer_free(buf), -EBUSY);
	touch("release");
	for (int i = 0; hr_buffer_free(buf) == -EBUSY; i++) {
		struct hr_io *none;

		assert_true(i < 1000);
		assert_int_equal(hr_reap(e, &none, 1, 1, SHORT_NS), 0);
	}
	memset(mem, TEST_GUARD, 1 << 20);
	assert_int_equal(hr_engine_close(e), 0);
	for (int i = 0; i < 1 << 20; i++)
		assert_int_equal(mem[i], TEST_GUARD);
	free(mem);
	hr_file_close(gate);
}

/* After the late answer the same engine goes on with right bytes. */
static void test_goes_on(void **state)
{
	struct hr_engine *e = open_engine(SHORT_NS);
	struct hr_file *gate = open_file("gate"), *plain = open_file("plain");
	struct hr_piece pieces[32];
	int64_t ret;

	for (uint64_t i = 0; i < 32; i++)
		pieces[i] = (struct hr_piece){i * 8000, 1000, i * 2000};
	assert_int_equal(hr_gather(e, gate, pieces, 32, t.buf, 0, 0), -ETIMEDOUT);
	memset(pieces, 0xff, sizeof(pieces)); /* they are the caller's again */
	touch("release");
	drain(e);
	poison();
	/* a busy machine may need longer than this engine allows: again, until the page cache has it */
	for (int i = 0; (ret = hr_read(e, plain, 100, 5000, t.buf, 9)) == -ETIMEDOUT; i++) {
		assert_true(i < 100);
		drain(e);
	}
	assert_int_equal(ret, 5000);
	check(100, 5000, 9);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(gate);
	hr_file_close(plain);
}

/* The asynchronous calls: reap comes back after its time, cancel waits for the drive. */
static void test_reap(void **state)
{
	struct hr_engine *e = open_engine(LONG_NS);
	struct hr_file *gate = open_file("gate"), *plain = open_file("plain");
	struct hr_io slow = {.file = gate, .buffer = t.buf, .piece = {0, 200000, 0}};
	struct hr_io quick = {.file = plain, .buffer = t.buf, .piece = {0, 1000, 300000}};
	struct hr_io *ios[] = {&slow, &quick}, *done[2];

	if (!strcmp(queue_name, "threads")) /* two threads would both wait at the gate */
		slow.piece.len = 1000;
	assert_int_equal(hr_submit(e, ios, 2), 2);
	assert_int_equal(hr_reap(e, done, 2, 1, LONG_NS), 1);
	assert_ptr_equal(done[0], &quick); /* is not held up by the slow one */
	assert_int_equal(quick.res, 1000);
	assert_int_equal(hr_reap(e, done, 2, 1, SHORT_NS), 0);
	assert_int_equal(hr_cancel(e, &slow), 0);
	assert_int_equal(hr_reap(e, done, 2, 1, SHORT_NS), 0);
	assert_int_equal(hr_buffer_free(t.buf), -EBUSY);
	touch("release");
	assert_int_equal(hr_reap(e, done, 2, 1, LONG_NS), 1);
	assert_ptr_equal(done[0], &slow);
	assert_true(slow.res == -ECANCELED || slow.res == (int64_t)slow.piece.len);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(gate);
	hr_file_close(plain);
}

/* The k-th read fails: the request says so, the next one is right. */
static void test_eio(void **state)
{
	struct hr_engine *e = open_engine(LONG_NS);
	struct hr_file *file = open_file("eio");

	touch("reset"); /* opening may have read */
	assert_int_equal(hr_read(e, file, 0, 1 << 20, t.buf, 0), -EIO);
	assert_int_equal(hr_in_flight(e), 0);
	poison();
	assert_int_equal(hr_read(e, file, 4097, 500000, t.buf, 3), 500000);
	check(4097, 500000, 3);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(file);
}

/* The file loses its second half while it is read: a short count, and its bytes are right. */
static void test_shrink(void **state)
{
	struct hr_engine *e = open_engine(LONG_NS);
	struct hr_file *file = open_file("shrink");
	int64_t got;

	touch("reset");
	got = hr_read(e, file, 0, FILE_LEN, t.buf, 0);
	/* what was read before it shrank counts, and nothing after a gap is taken for data */
	assert_true(got >= 0 && got <= FILE_LEN);
	poison();
	assert_int_equal(hr_read(e, file, 0, FILE_LEN, t.buf, 0), FILE_LEN / 2);
	check(0, FILE_LEN / 2, 0);
	assert_int_equal(hr_read(e, file, FILE_LEN - 100, 100, t.buf, 0), 0);
	assert_int_equal(hr_engine_close(e), 0);
	hr_file_close(file);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_registered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_goes_on, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reap, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_eio, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_shrink, set_up, tear_down),
	};
	int failed;

	if (argc != 4 && argc != 5)
		return 2;
	slowfs = argv[1];
	device_name = argv[2];
	queue_name = argv[3];
	waiting = argc == 5 ? argv[4] : "200";
	t.dir = test_mkdir();
	if (!slowfs_mount(slowfs, t.dir, "5", "4", waiting)) {
		printf("SKIP: FUSE cannot be mounted here\n");
		test_rmdir(t.dir);
		return 77;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	umount2(t.dir, MNT_DETACH);
	test_rmdir(t.dir);
	return failed;
}

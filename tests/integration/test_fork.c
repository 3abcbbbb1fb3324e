/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_fork.c - fork() while reads are in flight: the child is told, may close what it got
 * and open its own; the parent's reads arrive whole.
 *
 * Usage: test_fork DEVICE QUEUE, QUEUE one of uring, crew, sync, threads. On a GPU the child only sees
 * the refusal: a driver does not live on in a forked child.
 */
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "support/fork.h"
#include "support/support.h"

#define FILE_LEN ((8u << 20) + 777u)
#define N_IOS 16

#define LONG_NS 60000000000ull

static const char *device_name = "host", *queue_name = "uring";

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine;
} t;

static struct hr_engine *open_engine(struct hr_device *dev)
{
	bool crew = !strcmp(queue_name, "crew"); /* io_uring, and threads beside it */
	struct hr_engine_options o = {.direct = !crew, .request_bytes = 64 << 10};
	struct hr_engine *e = NULL;

	o.no_uring = !crew && strcmp(queue_name, "uring") != 0;
	o.threads = crew || !strcmp(queue_name, "threads") ? 2 : 0;
	return hr_engine_open(dev, &o, &e) ? NULL : e;
}

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	t.engine = open_engine(t.dev);
	assert_non_null(t.engine);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

/* Does @e, in whatever process, read the right bytes? */
static bool reads_well(struct hr_engine *e, struct hr_buffer *buf)
{
	uint8_t *image = malloc(100000);
	bool good = hr_read(e, t.file, 4097, 100000, buf, 0) == 100000 &&
		    hr_buffer_copy_out(buf, 0, image, 100000) == 0;

	for (uint64_t i = 0; good && i < 100000; i++)
		good = image[i] == test_pattern(4097 + i);
	free(image);
	return good;
}

/* What a child finds. Return: 0, or the number of the step that failed. */
static int child(void)
{
	struct hr_io io = {.file = t.file, .buffer = t.buf, .piece = {0, 4096, 0}}, *ios = &io;
	struct hr_engine *own;
	struct hr_buffer *buf;
	struct hr_device *dev;

	if (hr_submit(t.engine, &ios, 1) != -HR_E_FORKED)
		return 1;
	if (!strstr(hr_error_detail(), "fork"))
		return 2;
	if (hr_reap(t.engine, &ios, 1, 0, 0) != -HR_E_FORKED)
		return 3;
	if (hr_cancel(t.engine, &io) != -HR_E_FORKED)
		return 4;
	if (hr_read(t.engine, t.file, 0, 10, t.buf, 0) != -HR_E_FORKED)
		return 5;
	if (hr_engine_close(t.engine) != 0)
		return 6;
	if (strcmp(device_name, "host") != 0)
		return 0;
	if (hr_device_open("host", &dev) || hr_buffer_alloc(dev, 1 << 20, &buf))
		return 7;
	own = open_engine(dev);
	if (!own || !reads_well(own, buf))
		return 8;
	if (hr_engine_close(own) || hr_buffer_free(buf))
		return 9;
	hr_device_close(dev);
	return 0;
}

static void run_child(void)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		_exit(child());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_in_flight(void **state)
{
	static struct hr_io ios[N_IOS];
	struct hr_io *list[N_IOS], *done[N_IOS];
	uint64_t part = FILE_LEN / N_IOS;
	uint8_t *image = malloc(FILE_LEN);
	int n;

	memset(ios, 0, sizeof(ios));
	for (uint64_t i = 0; i < N_IOS; i++) {
		ios[i].file = t.file;
		ios[i].buffer = t.buf;
		ios[i].piece = (struct hr_piece){i * part, part, i * part};
		list[i] = &ios[i];
	}
	if (strcmp(queue_name, "crew") != 0) /* whose threads shall have something to copy */
		hr_file_drop_cache(t.file);
	assert_int_equal(hr_submit(t.engine, list, N_IOS), N_IOS);
	n = hr_reap(t.engine, done, N_IOS, 0, 0); /* gives them to the kernel */
	assert_true(n >= 0);
	run_child();
	for (int got = n; got < N_IOS; got += n) {
		n = hr_reap(t.engine, done, N_IOS, 1, LONG_NS);
		assert_true(n > 0);
	}
	run_child();
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, image, FILE_LEN), 0);
	for (uint64_t i = 0; i < part * N_IOS; i++) {
		if (image[i] != test_pattern(i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	assert_true(reads_well(t.engine, t.buf));
	free(image);
}

/* A child that never touches the library, and one that ends through exit(). */
static void test_plain_exit(void **state)
{
	int status;

	for (int k = 0; k < 2; k++) {
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0 && k == 0)
			_exit(0);
		if (pid == 0) {
			alarm(60);
			quick_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_true(reads_well(t.engine, t.buf));
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_flight, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_plain_exit, set_up, tear_down),
	};

	if (argc > 2) {
		device_name = argv[1];
		queue_name = argv[2];
	}
	/* Threads of the queue, or of the pretended GPU's streams. */
	if (!TEST_FORK_BESIDE_THREADS &&
	    (!strcmp(queue_name, "threads") || !strcmp(queue_name, "crew") ||
	     strcmp(device_name, "host") != 0)) {
		printf(TEST_FORK_SKIP);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

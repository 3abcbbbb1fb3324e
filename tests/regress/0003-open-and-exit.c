/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elsewhere programs crash when they end with the library open, lose descriptor 0, leak with every
 * open, or fail to say which kind of file they were given. Each of these once, in children where the
 * process itself is what is tested.
 */
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "regress/fixture.h"

#define FILE_LEN ((2u << 20) + 5u)

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static struct fixture f;

static int set_up(void **state)
{
	fixture_open(&f, FILE_LEN, FILE_LEN, (struct hr_engine_options){0});
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	return 0;
}

/* In a child that has nothing of the parent's library in use: exec would be the same. */
static void in_child(int (*run)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(100);
		_exit(run());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static struct {
	struct hr_device *dev;
	struct hr_engine *engine;
	struct hr_buffer *buf;
	struct hr_file *file;
	struct hr_io ios[8];
} left; /* reachable at exit: not a leak */

static int start_reads(uint32_t threads)
{
	struct hr_engine_options o = {.threads = threads, .no_uring = threads, .direct = true};
	struct hr_io *list[8];

	if (hr_device_open("host", &left.dev) || hr_engine_open(left.dev, &o, &left.engine) ||
	    hr_buffer_alloc(left.dev, 8 << 20, &left.buf) ||
	    hr_file_open(f.path, HR_FILE_READ, &left.file))
		return 1;
	for (uint64_t i = 0; i < 8; i++) {
		left.ios[i].file = left.file;
		left.ios[i].buffer = left.buf;
		left.ios[i].piece = (struct hr_piece){0, 1 << 20, i << 20};
		list[i] = &left.ios[i];
	}
	return hr_submit(left.engine, list, 8) != 8 || hr_reap(left.engine, list, 8, 0, 0) < 0;
}

/* _exit() is what a child of a test program may call; threads and ring are alive at that moment. */
static int leave_uring(void)
{
	return start_reads(0);
}

static int leave_threads(void)
{
	return start_reads(3);
}

static void test_exit_in_flight(void **state)
{
	for (int i = 0; i < 10; i++) {
		in_child(leave_uring);
		in_child(leave_threads);
	}
}

/* A program whose three standard descriptors are closed gets 0, 1 and 2 for its files. */
static int without_standard(void)
{
	struct hr_engine_options o = {.direct = true};
	char got[64];

	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (hr_device_open("host", &left.dev) || hr_file_open(f.path, HR_FILE_READ, &left.file) ||
	    hr_engine_open(left.dev, &o, &left.engine) ||
	    hr_buffer_alloc(left.dev, 1 << 20, &left.buf))
		return 1;
	if (fcntl(0, F_GETFD) < 0)
		return 2; /* nothing took 0: this tests nothing */
	if (hr_read(left.engine, left.file, 3, 100000, left.buf, 0) != 100000 ||
	    hr_buffer_copy_out(left.buf, 0, got, sizeof(got)))
		return 3;
	for (uint64_t i = 0; i < sizeof(got); i++)
		if ((uint8_t)got[i] != test_pattern(3 + i))
			return 4;
	if (hr_engine_close(left.engine) || hr_buffer_free(left.buf))
		return 5;
	hr_file_close(left.file);
	hr_device_close(left.dev);
	for (int fd = 0; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0 && fd < 3)
			return 6; /* left open */
	return 0;
}

static void test_descriptor_zero(void **state)
{
	in_child(without_standard);
}

/* At the limit of open files the code says so, and all is well when there is room again. */
static int few_files(void)
{
	struct hr_file *files[64], *one;
	struct rlimit limit = {40, 64};
	int n = 0, ret;

	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 1;
	while ((ret = hr_file_open(f.path, HR_FILE_READ, &one)) == 0 && n < 64)
		files[n++] = one;
	if (ret != -EMFILE || !strstr(hr_error_detail(), f.path))
		return 2;
	if (n < 10)
		return 3;
	while (n)
		hr_file_close(files[--n]);
	ret = hr_file_open(f.path, HR_FILE_READ, &one);
	hr_file_close(ret ? NULL : one);
	return ret ? 4 : 0;
}

static void test_open_files(void **state)
{
	in_child(few_files);
}

static long resident_kib(void)
{
	long pages = 0, all;
	FILE *stat = fopen("/proc/self/statm", "re");

	if (stat && fscanf(stat, "%ld %ld", &all, &pages) != 2)
		pages = 0;
	if (stat)
		fclose(stat);
	return pages * 4;
}

/* 10 000 times open, read, close; and engines and buffers come and go as well. */
static void test_nothing_stays(void **state)
{
	long before = 0;
	int fds = 0;

	for (int i = 0; i < 10000; i++) {
		struct hr_file *file;

		if (i == 1000) {
			before = resident_kib();
			fds = test_count_fds();
		}
		assert_int_equal(hr_file_open(f.path, HR_FILE_READ, &file), 0);
		assert_int_equal(hr_read(f.engine, file, (uint64_t)i, 5000, f.buf, 1), 5000);
		hr_file_close(file);
		if (i % 100 == 0) {
			struct hr_engine *e;
			struct hr_buffer *b;

			assert_int_equal(hr_engine_open(f.dev, NULL, &e), 0);
			assert_int_equal(hr_buffer_alloc(f.dev, 1 << 20, &b), 0);
			assert_int_equal(hr_read(e, f.file, 0, 1 << 20, b, 0), 1 << 20);
			assert_int_equal(hr_engine_close(e), 0);
			assert_int_equal(hr_buffer_free(b), 0);
		}
	}
	/* the engine remembers a number of files, each with two descriptors */
	assert_true(test_count_fds() <= fds + 2);
	assert_true(SANITIZED || resident_kib() - before < 2048);
}

/* What was never opened can be closed: a program's clean-up after a failure needs no questions. */
static void test_close_nothing(void **state)
{
	assert_int_equal(hr_engine_close(NULL), 0);
	assert_int_equal(hr_buffer_free(NULL), 0);
	hr_file_close(NULL);
	hr_device_close(NULL);
	hr_dataset_close(NULL);
	hr_loader_close(NULL);
}

static void refuse(const char *path, int code)
{
	struct hr_file *file = (struct hr_file *)1;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), code);
	assert_ptr_equal(file, (struct hr_file *)1);
	assert_non_null(strstr(hr_error_detail(), path));
}

/* What is no file with a length is refused by name; files of /proc are read like read(2) or refused. */
static void test_special_files(void **state)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char path[700];
	int fd;

	refuse(f.dir, -HR_E_NOT_A_FILE);
	refuse("/dev/null", -HR_E_NOT_A_FILE);
	snprintf(path, sizeof(path), "%s/pipe", f.dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	refuse(path, -HR_E_NOT_A_FILE); /* and does not wait for a writer */
	snprintf(path, sizeof(path), "%s/loop", f.dir);
	assert_int_equal(symlink(path, path), 0);
	refuse(path, -ELOOP);
	snprintf(path, sizeof(path), "%s/none", f.dir);
	refuse(path, -ENOENT);
	snprintf(name.sun_path, sizeof(name.sun_path), "%s/s", f.dir);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_not_equal(hr_file_open(name.sun_path, HR_FILE_READ, &left.file), 0);
	close(fd);
	if (access("/proc/self/stat", R_OK) == 0) {
		assert_int_equal(hr_file_open("/proc/self/stat", HR_FILE_READ, &left.file), 0);
		assert_true(hr_read(f.engine, left.file, 0, 4096, f.buf, 0) >= 0);
		hr_file_close(left.file);
	}
}

/* A file that loses its name is still read; its name is then an error and not an endless retry. */
static void test_unlinked(void **state)
{
	char *path = test_file(f.dir, "gone", 100000);
	struct hr_file *file;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(hr_read(f.engine, file, 0, 100000, f.buf, 0), 100000);
	fixture_fetch(&f);
	fixture_check(&f, 0, 0, 100000);
	hr_file_close(file);
	refuse(path, -ENOENT);
	free(path);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_in_flight), cmocka_unit_test(test_descriptor_zero),
		cmocka_unit_test(test_open_files),     cmocka_unit_test(test_nothing_stays),
		cmocka_unit_test(test_special_files),  cmocka_unit_test(test_unlinked),
		cmocka_unit_test(test_close_nothing),
	};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

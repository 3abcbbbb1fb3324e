/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elsewhere a plugin that is unloaded, a handler of atexit() that still reads, or a fork after unloading
 * end in a crash. This program is not linked to the library: it loads and unloads it.
 *
 * Usage: 0006-load-and-unload PATH-OF-libheadrace
 */
#include <dlfcn.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "support/support.h"

#define FILE_LEN 100000u

static const char *library_path;
static char *dir, *path;

/* The few functions that are needed, by their names. */
#define FUNCTIONS(X)                                                                               \
	X(hr_device_open)                                                                          \
	X(hr_device_close)                                                                         \
	X(hr_file_open)                                                                            \
	X(hr_file_close)                                                                           \
	X(hr_buffer_alloc)                                                                         \
	X(hr_buffer_address)                                                                       \
	X(hr_buffer_free)                                                                          \
	X(hr_engine_open)                                                                          \
	X(hr_engine_close)                                                                         \
	X(hr_stats_publish)                                                                        \
	X(hr_read)

static struct {
	void *library;
#define X(name) __typeof__(&(name)) name;
	FUNCTIONS(X)
#undef X
} lib;

static bool load(void)
{
	bool all = true;

	lib.library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
	if (!lib.library)
		return false;
#define X(name)                                                                                    \
	{                                                                                          \
		void *symbol = dlsym(lib.library, #name);                                          \
                                                                                                   \
		memcpy(&lib.name, &symbol, sizeof(symbol));                                        \
		all &= symbol != NULL;                                                             \
	}
	FUNCTIONS(X)
#undef X
	return all;
}

static struct {
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine;
} o;

static bool open_all(uint32_t threads)
{
	struct hr_engine_options opts = {.threads = threads, .no_uring = threads};

	return !lib.hr_device_open("host", &o.dev) &&
	       !lib.hr_file_open(path, HR_FILE_READ, &o.file) &&
	       !lib.hr_buffer_alloc(o.dev, FILE_LEN, &o.buf) &&
	       !lib.hr_engine_open(o.dev, &opts, &o.engine);
}

static bool read_all(void)
{
	const uint8_t *got = lib.hr_buffer_address(o.buf);
	bool right = lib.hr_read(o.engine, o.file, 0, FILE_LEN, o.buf, 0) == FILE_LEN;

	for (uint64_t i = 0; right && i < FILE_LEN; i++)
		right = got[i] == test_pattern(i);
	return right;
}

static bool close_all(void)
{
	bool closed = !lib.hr_engine_close(o.engine) && !lib.hr_buffer_free(o.buf);

	lib.hr_file_close(o.file);
	lib.hr_device_close(o.dev);
	return closed;
}

/* With and without threads and the page of statistics, and a child after each. */
static void test_unload(void **state)
{
	for (uint32_t i = 0; i < 12; i++) {
		int status;
		pid_t pid;

		assert_true(load());
		if (i % 3 == 0)
			assert_int_equal(lib.hr_stats_publish(true), 0);
		assert_true(open_all(i % 2 ? 2 : 0));
		assert_true(read_all());
		assert_true(close_all());
		assert_int_equal(dlclose(lib.library), 0);
		pid = fork(); /* handlers of what is gone must be gone */
		if (pid == 0)
			_exit(0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

static void late_read(void)
{
	if (!read_all() || !close_all())
		_exit(9);
}

/* Everything is open when exit() is called; the program's own handler still reads, then closes. */
static void test_atexit(void **state)
{
	for (uint32_t threads = 0; threads < 3; threads += 2) {
		int status;
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			alarm(60);
			if (!load() || !open_all(threads) || atexit(late_read))
				_exit(8);
			exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_atexit),
		cmocka_unit_test(test_unload),
	};
	int failed;

	if (argc != 2)
		return 2;
	library_path = argv[1];
	dir = test_mkdir();
	path = test_file(dir, "data", FILE_LEN);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(path);
	test_rmdir(dir);
	return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/fixture.h - answers, files, handles, and programs that run alone, for the tests of
 * libcufile.so.0. It knows the public header, nothing of the library's inside.
 */
#ifndef HR_TESTS_CUFILE_FIXTURE_H
#define HR_TESTS_CUFILE_FIXTURE_H

#include <cufile.h>

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "memory.h"

/* -- answers -- */
#define assert_err(call, code) assert_int_equal((call).err, code)
#define assert_ok(call) assert_err(call, CU_FILE_SUCCESS)
/* Reads and writes fail with -1 and a reason in errno. */
#define assert_io_error(call, code)                                                                \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_int_equal(call, -1);                                                        \
		assert_int_equal(errno, code);                                                     \
	} while (0)
/* In programs that run alone, where cmocka is not at hand. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition,  \
				errno);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* -- files and handles -- */
struct target {
	char *dir, *path;
	int fd;
	CUfileHandle_t handle;
};

static inline CUfileError_t handle_of(int fd, CUfileHandle_t *out)
{
	CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};

	descr.handle.fd = fd;
	return cuFileHandleRegister(out, &descr);
}

/* A file of @len pattern bytes, open with @flags and registered. O_DIRECT where it exists. */
static inline void target_open(struct target *t, uint64_t len, int flags)
{
	t->dir = test_mkdir();
	t->path = test_file(t->dir, "data", len);
	t->fd = open(t->path, flags | O_CLOEXEC);
	if (t->fd < 0 && errno == EINVAL && flags & O_DIRECT)
		t->fd = open(t->path, (flags & ~O_DIRECT) | O_CLOEXEC);
	assert_true(t->fd >= 0);
	t->handle = NULL;
	assert_ok(handle_of(t->fd, &t->handle));
	assert_non_null(t->handle);
}

static inline void target_close(struct target *t)
{
	cuFileHandleDeregister(t->handle);
	close(t->fd);
	free(t->path);
	test_rmdir(t->dir);
}

/* What is in the file now, read past the library. */
static inline void target_bytes(const struct target *t, uint8_t *out, size_t len, uint64_t off)
{
	int fd = open(t->path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, out, len, (off_t)off), (ssize_t)len);
	close(fd);
}

/* -- programs that run alone: a fresh process with an environment of its own -- */
struct alone {
	const char *name;
	void (*run)(void);
};

/*
 * run_alone() - this program again as "PROGRAM DEVICE alone NAME" with @env added (NULL-terminated, may
 * be NULL). Return: its exit status, or 1000 + signal.
 */
static inline int run_alone(const char *name, char *const *env)
{
	char *argv[] = {(char *)(uintptr_t)test_program, on_gpu ? "cuda:0" : "host", "alone",
			(char *)(uintptr_t)name, NULL};
	char *all[512];
	size_t n = 0;
	int status;
	pid_t pid;

	for (; env && *env; env++)
		all[n++] = *env;
	for (char **e = environ; *e && n < 511; e++) {
		if (strncmp(*e, "CUFILE_", 7) != 0)
			all[n++] = *e;
	}
	all[n] = NULL;
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, all), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline void alone_test(void **state)
{
	const struct alone *program = *state;

	program->run();
}

/* In main(): the exit status if this process is such a program, which has run then; else -1. */
static inline int alone_main(int argc, char **argv, const struct alone *table, size_t count)
{
	if (argc != 4 || strcmp(argv[2], "alone") != 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		const struct CMUnitTest test[] = {{.name = table[i].name,
						   .test_func = alone_test,
						   .initial_state = (void *)(uintptr_t)&table[i]}};

		if (!strcmp(table[i].name, argv[3]))
			return fixture_fini(cmocka_run_group_tests(test, NULL, NULL));
	}
	return 2;
}

static inline void alone_run(void **state)
{
	assert_int_equal(run_alone(*state, NULL), 0);
}

/* The whole of main() for a program that has nothing but such cases; fixture_init() comes before it. */
static inline int alone_suite(int argc, char **argv, const struct alone *table, size_t count)
{
	struct CMUnitTest tests[16];
	int status = alone_main(argc, argv, table, count);

	if (status >= 0)
		return status;
	assert_true(count <= sizeof(tests) / sizeof(tests[0]));
	for (size_t i = 0; i < count; i++)
		tests[i] = (struct CMUnitTest){.name = table[i].name,
					       .test_func = alone_run,
					       .initial_state = (void *)(uintptr_t)table[i].name};
	return fixture_fini(_cmocka_run_group_tests("alone", tests, count, NULL, NULL));
}

#endif

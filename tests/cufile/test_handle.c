/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_handle - which descriptors become handles, and what the others are told. How: one registration of
 * every kind of file and of every flag, then handles that are stale, shared, or whose descriptor went.
 */
#include "fixture.h"

#include <sys/socket.h>

static char *dir, *path;

static int setup(void **state)
{
	dir = test_mkdir();
	path = test_file(dir, "data", 3 * PAGE);
	assert_ok(cuFileDriverOpen());
	return 0;
}

static int teardown(void **state)
{
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	free(path);
	test_rmdir(dir);
	return 0;
}

/* The code that registering @fd gives; the handle, if any, is given back. */
static int code_of(int fd)
{
	CUfileHandle_t handle = NULL;
	CUfileError_t e = handle_of(fd, &handle);

	if (e.err == CU_FILE_SUCCESS) {
		assert_non_null(handle);
		cuFileHandleDeregister(handle);
	}
	return e.err;
}

static int code_with(int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600), code;

	if (fd < 0)
		return -errno;
	code = code_of(fd);
	close(fd);
	return code;
}

static void nothing(void **state)
{
	CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	CUfileHandle_t handle = NULL;
	int fd = dup(0);

	close(fd);
	descr.handle.fd = fd;
	assert_err(cuFileHandleRegister(NULL, &descr), CU_FILE_INVALID_VALUE);
	assert_err(cuFileHandleRegister(&handle, NULL), CU_FILE_INVALID_VALUE);
	assert_err(cuFileHandleRegister(NULL, NULL), CU_FILE_INVALID_VALUE);
	assert_int_equal(code_of(-1), CU_FILE_INVALID_VALUE);
	assert_int_equal(code_of(fd), CU_FILE_INVALID_VALUE);
	assert_int_equal(code_of(INT32_MAX), CU_FILE_INVALID_VALUE);
	cuFileHandleDeregister(NULL);
}

static void access_modes(void **state)
{
	assert_int_equal(code_with(O_RDONLY), CU_FILE_SUCCESS);
	assert_int_equal(code_with(O_WRONLY), CU_FILE_SUCCESS);
	assert_int_equal(code_with(O_RDWR), CU_FILE_SUCCESS);
	assert_int_equal(code_with(O_RDWR | O_SYNC), CU_FILE_SUCCESS);
	for (int mode = O_RDONLY; mode <= O_RDWR; mode++) {
		int code = code_with(mode | O_DIRECT);

		/* tmpfs of an old kernel has no O_DIRECT. */
		if (code != -EINVAL)
			assert_int_equal(code, CU_FILE_SUCCESS);
	}
}

static void other_kinds_of_files(void **state)
{
	int pipes[2], fd;

	fd = open(dir, O_RDONLY | O_CLOEXEC);
	assert_int_equal(code_of(fd), CU_FILE_INVALID_FILE_TYPE);
	close(fd);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(code_of(pipes[0]), CU_FILE_INVALID_FILE_TYPE);
	assert_int_equal(code_of(pipes[1]), CU_FILE_INVALID_FILE_TYPE);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipes), 0);
	assert_int_equal(code_of(pipes[0]), CU_FILE_INVALID_FILE_TYPE);
	close(pipes[0]);
	close(pipes[1]);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	assert_int_equal(code_of(fd), CU_FILE_INVALID_FILE_TYPE);
	close(fd);
}

static void other_types_of_handles(void **state)
{
	static const int types[] = {CU_FILE_HANDLE_TYPE_OPAQUE_WIN32,
				    CU_FILE_HANDLE_TYPE_USERSPACE_FS,
				    0,
				    4,
				    -1,
				    INT32_MAX};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		CUfileHandle_t handle = NULL;
		CUfileDescr_t descr;

		memset(&descr, 0, sizeof(descr));
		memcpy(&descr.type, &types[i], sizeof(int));
		descr.handle.fd = fd;
		assert_err(cuFileHandleRegister(&handle, &descr), CU_FILE_IO_NOT_SUPPORTED);
		assert_null(handle);
	}
	close(fd);
}

static void flags_that_are_refused(void **state)
{
	int fd;

	assert_int_equal(code_with(O_RDWR | O_APPEND), CU_FILE_INVALID_FILE_OPEN_FLAG);
	assert_int_equal(code_with(O_WRONLY | O_APPEND), CU_FILE_INVALID_FILE_OPEN_FLAG);
	assert_int_equal(code_with(O_RDONLY | O_NONBLOCK), CU_FILE_INVALID_FILE_OPEN_FLAG);
	assert_int_equal(code_with(O_RDONLY | O_NOFOLLOW), CU_FILE_INVALID_FILE_OPEN_FLAG);
	assert_int_equal(code_with(O_RDONLY | O_NOATIME), CU_FILE_INVALID_FILE_OPEN_FLAG);
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0) {
		assert_int_equal(code_of(fd), CU_FILE_INVALID_FILE_OPEN_FLAG);
		close(fd);
	}
	/* Of no importance once the file is open: the kernel does not even keep them. */
	assert_int_equal(code_with(O_RDWR | O_CREAT | O_NOCTTY), CU_FILE_SUCCESS);
}

static void path_only(void **state)
{
	int code = code_with(O_PATH);

	assert_true(code != CU_FILE_SUCCESS);
}

static void twice(void **state)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), other = dup(fd);
	CUfileHandle_t a = NULL, b = NULL;

	assert_ok(handle_of(fd, &a));
	assert_err(handle_of(fd, &b), CU_FILE_HANDLE_ALREADY_REGISTERED);
	assert_null(b);
	/* The descriptor counts, not the file. */
	assert_ok(handle_of(other, &b));
	assert_ptr_not_equal(a, b);
	cuFileHandleDeregister(a);
	assert_ok(handle_of(fd, &a));
	cuFileHandleDeregister(a);
	cuFileHandleDeregister(b);
	close(fd);
	close(other);
}

/* Twice, never given, of an earlier open, and any number: nothing happens to the process. */
static void stale_handles(void **state)
{
	static char nowhere[64];
	uint8_t byte[16] = {0};
	CUfileHandle_t handle = NULL, other = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_ok(handle_of(fd, &handle));
	cuFileHandleDeregister(handle);
	cuFileHandleDeregister(handle);
	assert_io_error(cuFileRead(handle, byte, sizeof(byte), 0, 0),
			CU_FILE_HANDLE_NOT_REGISTERED);
	/* The next one must not be taken for the last one. */
	assert_ok(handle_of(fd, &other));
	if (other != handle) {
		cuFileHandleDeregister(handle);
		assert_io_error(cuFileRead(handle, byte, sizeof(byte), 0, 0),
				CU_FILE_HANDLE_NOT_REGISTERED);
	}
	cuFileHandleDeregister(other);
	cuFileHandleDeregister(nowhere);
	cuFileHandleDeregister((void *)1);
	cuFileHandleDeregister((void *)(uintptr_t)0xdeadbeefdeadull);
	close(fd);
}

/* A program may close its descriptor first, and the number may come back as another file. */
static void descriptor_closed_first(void **state)
{
	char *second = test_file(dir, "second", PAGE);
	CUfileHandle_t old = NULL, new = NULL;
	void *p = mem_alloc(2 * PAGE);
	int fd = open(path, O_RDONLY | O_CLOEXEC), other = open(second, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_ok(handle_of(fd, &old));
	assert_int_equal(dup3(other, fd, O_CLOEXEC), fd);
	close(other);
	mem_fill(p, TEST_GUARD, 2 * PAGE);
	n = cuFileRead(old, p, PAGE, PAGE, 0);
	if (n == PAGE)
		mem_check(p, 2 * PAGE, 0, PAGE, PAGE);
	else
		assert_int_equal(n, -1);
	if (handle_of(fd, &new).err == CU_FILE_SUCCESS) {
		mem_fill(p, TEST_GUARD, 2 * PAGE);
		/* The second file ends after a page: none of the first one may appear. */
		assert_int_equal(cuFileRead(new, p, 2 * PAGE, 0, 0), PAGE);
		mem_check(p, PAGE, 0, PAGE, 0);
		cuFileHandleDeregister(new);
	}
	cuFileHandleDeregister(old);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	/* And one that is closed for good. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_ok(handle_of(fd, &old));
	close(fd);
	mem_fill(p, TEST_GUARD, 2 * PAGE);
	n = cuFileRead(old, p, PAGE, PAGE, 0);
	if (n == PAGE)
		mem_check(p, 2 * PAGE, 0, PAGE, PAGE);
	cuFileHandleDeregister(old);
	mem_free(p);
	free(second);
}

/* The caller's descriptor stays what it was: same flags, same place in the file, still open. */
static void descriptor_untouched(void **state)
{
	CUfileHandle_t handle = NULL;
	void *p = mem_alloc(3 * PAGE);
	int fd = open(path, O_RDWR | O_CLOEXEC), flags;

	assert_int_equal(lseek(fd, 77, SEEK_SET), 77);
	flags = fcntl(fd, F_GETFL);
	assert_ok(handle_of(fd, &handle));
	assert_int_equal(cuFileRead(handle, p, 2 * PAGE, PAGE, 0), 2 * PAGE);
	assert_int_equal(cuFileWrite(handle, p, PAGE, PAGE, 0), PAGE);
	cuFileHandleDeregister(handle);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 77);
	assert_int_equal(fcntl(fd, F_GETFL), flags);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	mem_free(p);
}

/* Registering costs descriptors; giving back returns them all. */
static void no_descriptor_leaks(void **state)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), before, after;
	CUfileHandle_t handle = NULL;

	assert_ok(handle_of(fd, &handle));
	cuFileHandleDeregister(handle);
	before = dup(0);
	close(before);
	for (int i = 0; i < 50; i++) {
		assert_ok(handle_of(fd, &handle));
		cuFileHandleDeregister(handle);
	}
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
	close(fd);
}

/* A file that has no name any more, or that others may not open by its name. */
static void unlinked_file(void **state)
{
	char *gone = test_file(dir, "gone", 2 * PAGE);
	CUfileHandle_t handle = NULL;
	void *p = mem_alloc(2 * PAGE);
	int fd = open(gone, O_RDWR | O_CLOEXEC);

	assert_int_equal(unlink(gone), 0);
	assert_ok(handle_of(fd, &handle));
	mem_fill(p, TEST_GUARD, 2 * PAGE);
	assert_int_equal(cuFileRead(handle, p, PAGE, PAGE, 0), PAGE);
	mem_check(p, 2 * PAGE, 0, PAGE, PAGE);
	cuFileHandleDeregister(handle);
	close(fd);
	mem_free(p);
	free(gone);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing),
		cmocka_unit_test(access_modes),
		cmocka_unit_test(other_kinds_of_files),
		cmocka_unit_test(other_types_of_handles),
		cmocka_unit_test(flags_that_are_refused),
		cmocka_unit_test(path_only),
		cmocka_unit_test(twice),
		cmocka_unit_test(stale_handles),
		cmocka_unit_test(descriptor_closed_first),
		cmocka_unit_test(descriptor_untouched),
		cmocka_unit_test(no_descriptor_leaks),
		cmocka_unit_test(unlinked_file),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

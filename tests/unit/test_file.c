/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, importing, and what can be asked of an open file, on real files in a fresh directory:
 * refusals with their sentences, private descriptors, reference counts, bytes on disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <headrace/error.h>
#include <headrace/file.h>

#include "base/util.h"
#include "file/file.h"

static char dir[256];

static const char *path_of(const char *name)
{
	static char path[4][320];
	static unsigned int turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static const char *make_file(const char *name, size_t len)
{
	const char *path = path_of(name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < len; i++)
		fputc((int)(i % 251), f);
	assert_int_equal(fclose(f), 0);
	return path;
}

/* Opening @path fails with @code and a sentence that names it, says a cause and a remedy. */
static void check_refused(const char *path, uint32_t flags, int code)
{
	struct hr_file *file = (struct hr_file *)&dir;
	int err = hr_file_open(path, flags, &file);

	assert_int_equal(err, -code);
	assert_ptr_equal(file, &dir);
	assert_non_null(strstr(hr_error_detail(), path));
	assert_non_null(strchr(hr_error_detail(), ';'));
}

static void test_open_and_info(void **state)
{
	const char *path = make_file("plain", 5000);
	struct hr_file_info info;
	struct hr_file *file, *other;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_string_equal(hr_file_path(file), path);
	assert_int_equal(hr_file_info(file, &info), 0);
	assert_int_equal(info.size_bytes, 5000);
	assert_true(info.readable && !info.writable && !info.is_block_device);
	assert_true(strlen(info.fs_name) > 0);
	assert_int_equal(info.direct, file->fd_direct >= 0);
	if (info.direct) {
		assert_true(hr__is_pow2(info.offset_align) && hr__is_pow2(info.memory_align));
		assert_string_equal(info.direct_reason, "");
	} else {
		assert_int_equal(info.offset_align, 0);
		assert_int_equal(info.memory_align, 0);
		assert_string_not_equal(info.direct_reason, "");
	}
	assert_int_equal(truncate(path, 77), 0); /* the size is the one of now */
	assert_int_equal(hr_file_info(file, &info), 0);
	assert_int_equal(info.size_bytes, 77);
	assert_int_equal(fcntl(file->fd, F_GETFL) & O_NONBLOCK, 0);
	assert_true(fcntl(file->fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &other), 0);
	assert_int_not_equal(file->id, other->id);
	hr_file_close(file);
	hr_file_close(other);
	hr_file_close(NULL);
}

static void test_what_is_no_file(void **state)
{
	const char *fifo = path_of("fifo"), *sock = path_of("socket");
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	check_refused(dir, HR_FILE_READ, HR_E_NOT_A_FILE);
	check_refused(dir, HR_FILE_WRITE, HR_E_NOT_A_FILE);
	assert_non_null(strstr(hr_error_detail(), "directory"));
	assert_int_equal(mkfifo(fifo, 0600), 0);
	check_refused(fifo, HR_FILE_READ, HR_E_NOT_A_FILE); /* and does not wait for a writer */
	check_refused(fifo, HR_FILE_WRITE, HR_E_NOT_A_FILE);
	check_refused(fifo, HR_FILE_READ | HR_FILE_WRITE, HR_E_NOT_A_FILE);
	assert_non_null(strstr(hr_error_detail(), "pipe"));
	check_refused("/dev/null", HR_FILE_READ, HR_E_NOT_A_FILE);
	assert_non_null(strstr(hr_error_detail(), "character device"));
	assert_true(fd >= 0);
	if ((size_t)snprintf(name.sun_path, sizeof(name.sun_path), "%s", sock) <
	    sizeof(name.sun_path)) {
		assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
		check_refused(sock, HR_FILE_READ, HR_E_NOT_A_FILE);
		assert_non_null(strstr(hr_error_detail(), "socket"));
	}
	close(fd);
}

static void test_refusals(void **state)
{
	const char *path = make_file("there", 10), *loop = path_of("loop");
	struct hr_file *file;

	check_refused(path_of("missing"), HR_FILE_READ, ENOENT);
	check_refused(path_of("there/below"), HR_FILE_READ, ENOTDIR);
	assert_int_equal(symlink(loop, loop), 0);
	check_refused(loop, HR_FILE_READ, ELOOP);
	check_refused(path, HR_FILE_WRITE | HR_FILE_CREATE | HR_FILE_EXCLUSIVE, EEXIST);
	check_refused(path, 0, EINVAL);
	check_refused(path, HR_FILE_READ | 1u << 30, EINVAL);
	check_refused(path, HR_FILE_READ | HR_FILE_CREATE, EINVAL);
	check_refused(path, HR_FILE_READ | HR_FILE_TRUNCATE, EINVAL);
	check_refused(path, HR_FILE_WRITE | HR_FILE_EXCLUSIVE, EINVAL);
	assert_int_equal(hr_file_open(NULL, HR_FILE_READ, &file), -EINVAL);
	if (geteuid() != 0) {
		assert_int_equal(chmod(path, 0), 0);
		check_refused(path, HR_FILE_READ, EACCES);
	}
}

static void test_create_and_write(void **state)
{
	const char *path = path_of("new");
	const uint32_t flags = HR_FILE_WRITE | HR_FILE_CREATE;
	struct hr_file *file;
	struct stat st;

	assert_int_equal(hr_file_open(path, flags | HR_FILE_EXCLUSIVE, &file), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0177, 0);
	assert_int_equal(hr_file_preallocate(file, 0), 0);
	assert_int_equal(hr_file_truncate(file, 12345), 0);
	assert_int_equal(hr_file_sync(file), 0);
	assert_int_equal(hr_file_drop_cache(file), 0);
	assert_int_equal(hr_file_truncate(file, UINT64_MAX), -EFBIG);
	assert_int_equal(hr_file_preallocate(file, UINT64_MAX), -EFBIG);
	hr_file_close(file);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 12345);
	assert_int_equal(hr_file_open(path, flags | HR_FILE_TRUNCATE, &file), 0);
	hr_file_close(file);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_file_truncate(file, 1), -EBADF);
	assert_int_equal(hr_file_preallocate(file, 1), -EBADF);
	assert_non_null(strstr(hr_error_detail(), path));
	hr_file_close(file);
}

static void check_import(const char *path, int open_mode, uint32_t flags)
{
	unsigned char byte = 0;
	struct hr_file *file;
	int fd = open(path, open_mode);

	if (fd < 0 && (open_mode & O_DIRECT))
		return; /* a file system without it */
	assert_true(fd >= 0);
	assert_int_equal(hr_file_import(fd, NULL, &file), 0);
	assert_int_equal(file->flags, flags);
	assert_string_equal(hr_file_path(file), "");
	/* The caller's descriptor stays his, and his modes are not ours. */
	assert_int_equal(fcntl(file->fd, F_GETFL) & (O_DIRECT | O_APPEND | O_NONBLOCK), 0);
	if (flags & HR_FILE_READ) {
		assert_int_equal(pread(file->fd, &byte, 1, 3), 1);
		assert_int_equal(byte, 3);
	}
	hr_file_close(file);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, open_mode & O_ACCMODE);
	close(fd);
}

static void test_import(void **state)
{
	const char *path = make_file("import", 9000);
	struct hr_file *file;
	int fd, ends[2];

	check_import(path, O_RDONLY, HR_FILE_READ);
	check_import(path, O_WRONLY, HR_FILE_WRITE);
	check_import(path, O_RDWR, HR_FILE_READ | HR_FILE_WRITE);
	check_import(path, O_RDONLY | O_DIRECT, HR_FILE_READ);
	check_import(path, O_RDWR | O_APPEND | O_NONBLOCK, HR_FILE_READ | HR_FILE_WRITE);

	assert_int_equal(hr_file_import(-1, "nothing", &file), -EBADF);
	assert_non_null(strstr(hr_error_detail(), "nothing"));
	fd = open(path, O_PATH);
	assert_int_equal(hr_file_import(fd, path, &file), -EBADF);
	close(fd);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(hr_file_import(ends[0], NULL, &file), -HR_E_NOT_A_FILE);
	close(ends[0]);
	close(ends[1]);
	fd = open(path, O_RDONLY);
	assert_int_equal(unlink(path), 0); /* a file without a name can be opened again, too */
	assert_int_equal(hr_file_import(fd, path, &file), 0);
	assert_string_equal(hr_file_path(file), path);
	hr_file_close(file);
	close(fd);
}

static void test_references(void **state)
{
	struct hr_file *file;
	int fd;

	assert_int_equal(hr_file_open(make_file("refs", 1), HR_FILE_READ, &file), 0);
	fd = file->fd;
	hr__file_get(file);
	hr_file_close(file);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	hr__file_put(file);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/headrace-file.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	static const char *const names[] = {"plain", "fifo", "socket", "there",
					    "loop",  "new",  "refs"};

	for (size_t i = 0; i < HR_ARRAY_LEN(names); i++)
		unlink(path_of(names[i]));
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_and_info), cmocka_unit_test(test_what_is_no_file),
		cmocka_unit_test(test_refusals),      cmocka_unit_test(test_create_and_write),
		cmocka_unit_test(test_import),        cmocka_unit_test(test_references),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/slowfs_fixture.h - a mounted slowfs, a device, a buffer and engines for tests of what a
 * slow file system does to deadlines.
 */
#ifndef HR_TESTS_SLOWFS_FIXTURE_H
#define HR_TESTS_SLOWFS_FIXTURE_H

#include <sys/statfs.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "support/support.h"

#define FUSE_MAGIC 0x65735546
#define BUFFER_LEN (4u << 20)

static const char *slowfs, *device_name, *queue_name;

static struct {
	char *dir;
	struct hr_device *dev;
	struct hr_buffer *buf;
	uint8_t *image;
} t;

/* Mounts slowfs with its delay, its k, and how many asynchronous reads may wait in the kernel. */
static inline bool mount_slow(const char *delay_ms, const char *k, const char *waiting)
{
	struct statfs st;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execl(slowfs, slowfs, t.dir, delay_ms, k, waiting, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 &&
	       statfs(t.dir, &st) == 0 && st.f_type == FUSE_MAGIC;
}

static inline struct hr_file *open_file(const char *name)
{
	struct hr_file *file;
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	return file;
}

/* "reset" or "release": opening does it. */
static inline void touch(const char *name)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
}

static inline struct hr_engine *open_engine(uint64_t timeout_ns)
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

static inline void poison(void)
{
	memset(t.image, TEST_GUARD, BUFFER_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, BUFFER_LEN), 0);
}

#endif

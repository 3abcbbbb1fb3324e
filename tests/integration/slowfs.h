/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/slowfs.h - how a test mounts slowfs, opens its files and makes it do something; slowfs.c
 * says which files there are.
 */
#ifndef HR_TESTS_SLOWFS_H
#define HR_TESTS_SLOWFS_H

#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "support/support.h"

#define FUSE_MAGIC 0x65735546
#define SLOWFS_LEN ((3u << 20) + 777u)

/* Mounts it at @dir. @waiting: asynchronous reads that FUSE lets wait. Return: is it there? */
static inline bool slowfs_mount(const char *slowfs, const char *dir, const char *delay_ms,
				const char *k, const char *waiting)
{
	struct statfs st;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execl(slowfs, slowfs, dir, delay_ms, k, waiting, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && statfs(dir, &st) == 0 &&
	       st.f_type == FUSE_MAGIC;
}

static inline struct hr_file *slowfs_open(const char *dir, const char *name)
{
	struct hr_file *file;
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	return file;
}

/* A marker, such as "reset": opening does it. */
static inline void slowfs_touch(const char *dir, const char *name)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
}

#endif

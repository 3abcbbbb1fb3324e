/* SPDX-License-Identifier: Apache-2.0 */
/* loader/spool.c - one unlinked file for many, see spool.h; its space comes back with the last one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/sys.h"
#include "base/util.h"
#include "loader/indexer.h"
#include "loader/spool.h"

#define NAMES_MAX 1000u /* of temporary files, left behind by processes that were killed */
#define COPY_BYTES (256u << 10)

static struct {
	pthread_mutex_t lock;
	int fd;       /* as long as there are users */
	uint64_t end; /* of what was taken */
	uint64_t users;
} spool = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

int hr__spool_temp(void)
{
	const char *folder = hr_config_get()->temp_dir;
	char name[200];
	int fd = hr__sys->open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	/* Some file systems have no such files. */
	for (uint32_t i = 0; i < NAMES_MAX && (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EEXIST);
	     i++) {
		snprintf(name, sizeof(name), "%s/headrace-%ld-%" PRIu32 HR__INDEX_SUFFIX, folder,
			 (long)getpid(), i);
		fd = hr__sys->open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd >= 0)
			hr__sys->unlink(name);
	}
	return fd;
}

/* A place for @len bytes. Return: 0 or -errno. */
static int enter(uint64_t len, int *fd, uint64_t *place)
{
	int err = 0;

	pthread_mutex_lock(&spool.lock);
	if (spool.fd < 0) {
		spool.fd = hr__spool_temp();
		spool.end = 0;
		err = spool.fd < 0 ? spool.fd : 0;
	}
	if (!err) {
		*fd = spool.fd;
		*place = spool.end;
		spool.end += hr__align_up(len, 4096);
		spool.users++;
	}
	pthread_mutex_unlock(&spool.lock);
	return err;
}

/* All of it or an error. */
static int copy_part(int from, uint64_t offset, int to, uint64_t place, char *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = hr__sys->pread(from, buf + at, len - at, offset + at);

		if (n == 0 || (n < 0 && n != -EINTR))
			return n ? (int)n : -EIO;
		at += n > 0 ? (size_t)n : 0;
	}
	for (size_t at = 0; at < len;) {
		ssize_t n = hr__sys->pwrite(to, buf + at, len - at, place + at);

		if (n == 0 || (n < 0 && n != -EINTR))
			return n ? (int)n : -EIO;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int hr__spool_take(int fd, uint64_t len, int *spool_fd, uint64_t *place)
{
	char *buf = malloc(COPY_BYTES);
	int err = buf ? enter(len, spool_fd, place) : -ENOMEM;

	if (err) {
		free(buf);
		return err;
	}
	for (uint64_t at = 0; at < len && !err; at += COPY_BYTES)
		err = copy_part(fd, at, *spool_fd, *place + at, buf,
				(size_t)hr__min(len - at, COPY_BYTES));
	free(buf);
	if (err)
		hr__spool_drop();
	return err;
}

void hr__spool_drop(void)
{
	int fd = -1;

	pthread_mutex_lock(&spool.lock);
	if (!--spool.users) {
		fd = spool.fd;
		spool.fd = -1;
	}
	pthread_mutex_unlock(&spool.lock);
	if (fd >= 0)
		hr__sys->close(fd);
}

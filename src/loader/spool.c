/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/spool.c - one unlinked file for many, see spool.h; space comes back with each of them.
 *
 * After a fork() both processes have the file, and each goes on with a new one: they would give out the same
 * places. What is in the old one stays there, also when one of the two needs it no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/rest.h"
#include "loader/indexer.h"
#include "loader/spool.h"

#define NAMES_MAX 1000u /* of temporary files, left behind by processes that were killed */
#define COPY_BYTES (256u << 10)
#define PLACE_ALIGN 4096u /* whole blocks, so that they can be given back */

struct hr__spool {
	int fd;
	uint64_t end; /* of what was taken */
	uint64_t users;
	bool shared; /* with another process */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hr__spool *current; /* as long as it has users */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void leave_spool(void)
{
	if (current)
		current->shared = true;
	current = NULL;
}

static void in_parent(void)
{
	leave_spool();
	pthread_mutex_unlock(&lock);
}

HR__FORK_HOOK(.lock = &lock, .before = before_fork, .parent = in_parent, .child = leave_spool);

int hr__spool_temp(void)
{
	const char *folder = hr_config_get()->temp_dir;
	char name[200];
	int fd = hr__rest_open_fd(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	/* Some file systems have no such files. */
	for (uint32_t i = 0; i < NAMES_MAX && (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EEXIST);
	     i++) {
		snprintf(name, sizeof(name), "%s/headrace-%ld-%" PRIu32 HR__INDEX_SUFFIX, folder,
			 (long)getpid(), i);
		fd = hr__rest_open_fd(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
				      0600);
		if (fd >= 0)
			hr__sys->unlink(name);
	}
	return fd;
}

static int spool_open(struct hr__spool **out)
{
	struct hr__spool *s = calloc(1, sizeof(*s));
	int fd = s ? hr__spool_temp() : -ENOMEM;

	if (fd < 0) {
		free(s);
		return fd;
	}
	s->fd = fd;
	*out = s;
	return 0;
}

static void spool_close(struct hr__spool *s)
{
	if (!s)
		return;
	hr__sys->close(s->fd);
	free(s);
}

/* A place for @len bytes. Return: 0 or -errno. */
static int enter(uint64_t len, struct hr__spooled *out)
{
	struct hr__spool *fresh = NULL;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!current) {
		pthread_mutex_unlock(&lock);
		err = spool_open(&fresh);
		pthread_mutex_lock(&lock);
	}
	if (!current) {
		current = fresh;
		fresh = NULL;
	}
	if (current) { /* ours, or that of a thread that was faster */
		err = 0;
		*out = (struct hr__spooled){current, current->fd, current->end, len};
		current->end += hr__align_up(len, PLACE_ALIGN);
		current->users++;
	}
	pthread_mutex_unlock(&lock);
	spool_close(fresh);
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

int hr__spool_take(int fd, uint64_t len, struct hr__spooled *out)
{
	char *buf = malloc(COPY_BYTES);
	int err = buf ? enter(len, out) : -ENOMEM;

	if (err) {
		free(buf);
		return err;
	}
	for (uint64_t at = 0; at < len && !err; at += COPY_BYTES)
		err = copy_part(fd, at, out->fd, out->place + at, buf,
				(size_t)hr__min(len - at, COPY_BYTES));
	free(buf);
	if (err)
		hr__spool_drop(out);
	return err;
}

void hr__spool_drop(struct hr__spooled *what)
{
	struct hr__spool *s = what->spool;
	bool last;

	pthread_mutex_lock(&lock);
	last = !--s->users;
	if (last && s == current)
		current = NULL;
	/* Under the lock: a child that is made meanwhile may need the bytes. */
	if (!last && !s->shared && what->len)
		hr__sys->fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, what->place,
				   hr__align_up(what->len, PLACE_ALIGN));
	pthread_mutex_unlock(&lock);
	if (last)
		spool_close(s);
}

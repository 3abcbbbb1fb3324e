/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE file system that misbehaves on request, for the tests of slow and failing storage.
 *
 * Usage: slowfs MOUNTPOINT DELAY_MS K BACKGROUND. It returns when the mount is there and goes on in the
 * background. Its files are SLOWFS_LEN bytes of the tests' pattern; a marker file does something
 * when it is opened. BACKGROUND is how many asynchronous reads the kernel lets wait for us (its own
 * default is 12); who sends one more sleeps in the kernel.
 *   plain    every read takes DELAY_MS
 *   eio      the K-th read since "reset" fails with EIO, the others are right
 *   shrink   from the K-th read since "reset" the file is only half as long
 *   grow     up to the K-th read since "reset" the file is only half as long
 *   short    reads return 1 byte, all but one, or a part, in turn; every fourth one all
 *   k=N      makes K another number
 *   gate     reads wait for "release" (at most 60 s)
 *   reset    counts from 0 again and shuts the gate
 *   release  lets all reads of gate pass until "reset"
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOWFS_LEN ((3ll << 20) + 777)
#define GATE_LIMIT_S 60

static const char *const names[] = {"plain", "eio",  "shrink", "grow",
				    "short", "gate", "reset",  "release"};
enum { PLAIN, EIO_AT, SHRINK, GROW, SHORT, GATE, RESET, RELEASE, N_FILES, SET_K = N_FILES };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool open;
	unsigned int background;
	long delay_ms, k, reads[N_FILES]; /* since "reset" */
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static uint8_t pattern(uint64_t offset)
{
	uint64_t x = (offset >> 3) * 0x9e3779b97f4a7c15ull + 0x1234567;

	return (uint8_t)((x ^ (x >> 29)) >> (8 * (offset & 7)));
}

static int lookup(const char *path)
{
	for (int i = 0; i < N_FILES; i++)
		if (!strcmp(path + 1, names[i]))
			return i;
	return strncmp(path, "/k=", 3) ? -1 : SET_K;
}

static off_t length(int file)
{
	off_t len = file >= RESET ? 0 : SLOWFS_LEN;

	pthread_mutex_lock(&s.lock);
	if ((file == SHRINK && s.reads[SHRINK] >= s.k) || (file == GROW && s.reads[GROW] < s.k))
		len /= 2;
	pthread_mutex_unlock(&s.lock);
	return len;
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	int file = lookup(path);

	memset(st, 0, sizeof(*st));
	if (!strcmp(path, "/")) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
		return 0;
	}
	if (file < 0)
		return -ENOENT;
	st->st_mode = S_IFREG | 0444;
	st->st_nlink = 1;
	st->st_size = length(file);
	return 0;
}

static int slow_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
			struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	for (int i = 0; i < N_FILES; i++)
		fill(buf, names[i], NULL, 0, 0);
	return 0;
}

static int slow_open(const char *path, struct fuse_file_info *fi)
{
	int file = lookup(path);

	if (file < 0)
		return -ENOENT;
	/* What counts its reads must see each of them: no page cache. */
	fi->direct_io = file != PLAIN;
	fi->fh = (uint64_t)file;
	pthread_mutex_lock(&s.lock);
	if (file == RESET) {
		s.open = false;
		memset(s.reads, 0, sizeof(s.reads));
	} else if (file == SET_K) {
		s.k = strtol(path + 3, NULL, 10);
	} else if (file == RELEASE) {
		s.open = true;
		pthread_cond_broadcast(&s.opened);
	}
	pthread_mutex_unlock(&s.lock);
	return 0;
}

static void wait_gate(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += GATE_LIMIT_S;
	pthread_mutex_lock(&s.lock);
	while (!s.open && pthread_cond_timedwait(&s.opened, &s.lock, &end) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&s.lock);
}

static size_t shortened(size_t len, long count)
{
	switch (count % 4) {
	case 0:
		return len;
	case 1:
		return 1;
	case 2:
		return len > 1 ? len - 1 : len;
	default:
		return 1 + (size_t)count * 0x9e3779b9u % len;
	}
}

static int slow_read(const char *path, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct timespec nap = {s.delay_ms / 1000, s.delay_ms % 1000 * 1000000};
	int file = (int)fi->fh;
	off_t size;
	long count, k;

	if (s.delay_ms)
		nanosleep(&nap, NULL);
	if (file == GATE)
		wait_gate();
	if (file >= RESET)
		return 0;
	pthread_mutex_lock(&s.lock);
	count = ++s.reads[file];
	k = s.k;
	pthread_mutex_unlock(&s.lock);
	if (file == EIO_AT && count == k)
		return -EIO;
	size = length(file);
	if (off >= size)
		return 0;
	if ((off_t)len > size - off)
		len = (size_t)(size - off);
	if (file == SHORT)
		len = shortened(len, count);
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)pattern((uint64_t)off + i);
	return (int)len;
}

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	conn->max_background = s.background;
	config->attr_timeout = 0; /* the length changes by itself */
	config->entry_timeout = 0;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = slow_init,
	.getattr = slow_getattr,
	.readdir = slow_readdir,
	.open = slow_open,
	.read = slow_read,
};

int main(int argc, char **argv)
{
	char program[] = "slowfs", option[] = "-o", options[] = "ro,max_threads=64";
	char *args[] = {program, argc > 4 ? argv[1] : NULL, option, options, NULL};

	if (argc != 5)
		return 2;
	s.delay_ms = strtol(argv[2], NULL, 10);
	s.k = strtol(argv[3], NULL, 10);
	s.background = (unsigned int)strtoul(argv[4], NULL, 10);
	return fuse_main(4, args, &operations, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/rest.c - which resting files are open, see rest.h; knows nothing of datasets and engines.
 *
 * Who needs descriptors counts itself in hr_file.holds first and then looks at the mark HR__RESTING; who
 * closes them sets the mark only where the count is 0, by one compare and exchange. So a hold on an open file
 * is one atomic addition, and the lock is for opening and closing alone. It is never held across a system
 * call: descriptors are counted before they are opened and until they are closed, so their number is never
 * above the limit, but for those who hold nothing yet and must go on (one file a thread).
 *
 * The open files are a ring with a hand ("second chance"), new ones come last: one that was used again since the
 * hand last came by is passed over once. That is nearly the order of last use, without a write per use, and
 * files that are read once do not push out those that are read all the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/fsinfo.h"
#include "file/geometry.h"
#include "file/rest.h"

#define SHARE 4u      /* this part of RLIMIT_NOFILE; the rest is the program's */
#define LIMIT_MIN 16u /* descriptors: an engine needs one file at a time, its depth likes more */
#define FDS_MAX 2u    /* of a file */
#define MEMO_NS 100000000u /* for which a mount is taken to be as it was */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* somebody has opened a file, or failed to */
	struct hr_file *hand;   /* ring of open files, or NULL */
	struct hr__rest_counts counts;
	uint64_t files; /* in the ring */
} rest = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* -- fork ------------------------------------------------------------------------------------- */

static void before_fork(void)
{
	pthread_mutex_lock(&rest.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&rest.lock);
}

/* Who waits in the parent is not there. */
static void in_child(void)
{
	pthread_cond_init(&rest.changed, NULL);
}

/* A ring that was left half linked could not be put in order. */
HR__FORK_HOOK(.lock = &rest.lock, .before = before_fork, .parent = in_parent, .child = in_child);

/* Threads of a parent are not there: a file that one of them was opening is nobody's. */
static uint32_t opener_mark(void)
{
	return (hr__fork_generation() & 0x7fffffff) + 1;
}

/* -- the ring --------------------------------------------------------------------------------- */

/* The lock is held for all of these. */

static void join_ring(struct hr_file *file)
{
	struct hr_file *hand = rest.hand;

	rest.files++;
	if (!hand) {
		file->rest->next = file->rest->prev = rest.hand = file;
		return;
	}
	/* Behind the hand: it comes last. */
	file->rest->next = hand;
	file->rest->prev = hand->rest->prev;
	hand->rest->prev->rest->next = file;
	hand->rest->prev = file;
}

static void leave_ring(struct hr_file *file)
{
	struct hr_file *next = file->rest->next;

	rest.files--;
	if (rest.hand == file)
		rest.hand = next == file ? NULL : next;
	file->rest->prev->rest->next = next;
	next->rest->prev = file->rest->prev;
}

/* What closing a file leaves to be undone without the lock. */
struct remains {
	int fd, fd_direct;
	void *map;
	uint64_t map_len;
	uint32_t n_fds;
};

static void take_remains(struct hr_file *file, struct remains *out)
{
	*out = (struct remains){file->fd, file->fd_direct, file->map, file->map_len,
				file->rest->n_fds};
	file->fd = file->fd_direct = -1;
	file->map = NULL;
	file->map_len = 0;
}

/* Put the least recently used file without a hold to rest. Return: false when all are held. */
static bool put_to_rest(struct remains *out)
{
	for (uint64_t i = 0; rest.hand && i < 2 * rest.files; i++) {
		struct hr_file *file = rest.hand;
		unsigned int none = 0;

		rest.hand = file->rest->next;
		if (atomic_exchange_explicit(&file->rest->used, false, memory_order_relaxed))
			continue;
		/* Acquire: the last holder has done with the descriptors. */
		if (!atomic_compare_exchange_strong_explicit(&file->holds, &none, HR__RESTING,
							     memory_order_acquire,
							     memory_order_relaxed))
			continue;
		leave_ring(file);
		take_remains(file, out);
		return true;
	}
	return false;
}

/* Without the lock. */
static void close_remains(const struct remains *r)
{
	if (r->map)
		hr__sys->munmap(r->map, r->map_len);
	if (r->fd_direct >= 0)
		hr__sys->close(r->fd_direct);
	if (r->fd >= 0)
		hr__sys->close(r->fd);
}

/* Let go of the lock for a moment and close one file. Return: false when all are held. */
static bool close_one(void)
{
	struct remains remains;

	if (!put_to_rest(&remains))
		return false;
	pthread_mutex_unlock(&rest.lock);
	close_remains(&remains);
	pthread_mutex_lock(&rest.lock);
	rest.counts.open -= remains.n_fds;
	return true;
}

/* Asked with every new file: a program may change it. */
static uint64_t limit_now(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return hr__max(files.rlim_cur / SHARE, LIMIT_MIN);
}

/* Count @n descriptors that are about to be opened. Return: 0, or -EAGAIN. */
static int reserve(uint32_t n, bool must)
{
	struct hr__rest_counts *c = &rest.counts;

	while (c->open + n > c->limit) {
		if (close_one())
			continue;
		if (!must)
			return -EAGAIN;
		break;
	}
	c->open += n;
	c->most = hr__max(c->most, c->open);
	return 0;
}

static bool is_crowded(int err)
{
	return err == -EMFILE || err == -ENFILE;
}

bool hr__rest_make_way(int err)
{
	bool again;

	if (!is_crowded(err))
		return false;
	pthread_mutex_lock(&rest.lock);
	again = close_one();
	pthread_mutex_unlock(&rest.lock);
	return again;
}

int hr__rest_open_fd(const char *path, int flags, mode_t mode)
{
	int fd;

	do {
		fd = hr__file_open_fd(path, flags, mode);
	} while (hr__rest_make_way(fd));
	return fd;
}

static void give_back(uint32_t n)
{
	pthread_mutex_lock(&rest.lock);
	rest.counts.open -= n;
	pthread_mutex_unlock(&rest.lock);
}

/* -- is it the same? -------------------------------------------------------------------------- */

static int64_t nanoseconds(const struct statx_timestamp *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static uint64_t device_of(const struct statx *stx)
{
	return makedev(stx->stx_dev_major, stx->stx_dev_minor);
}

/*
 * Is it the inode of that time? That of the last change of the inode is not looked at: it moves when a file
 * gets another name, owner or mode. That of its birth tells a new file that got the old one's number. The
 * number of a device that is none, as of network file systems, is another one when it is mounted again.
 */
static bool same_inode(const struct hr_file *file, const struct statx *stx)
{
	const struct hr__rest *r = file->rest;
	bool born = r->birth_ns && (stx->stx_mask & STATX_BTIME);

	if ((major(file->dev) || stx->stx_dev_major) && device_of(stx) != file->dev)
		return false;
	return !r->inode_lasts || (stx->stx_ino == file->ino &&
				   (!born || nanoseconds(&stx->stx_btime) == r->birth_ns));
}

static const char *difference(const struct hr_file *file, const struct statx *stx)
{
	const struct hr__rest *r = file->rest;

	if (!S_ISREG(stx->stx_mode) || (!r->checked && !same_inode(file, stx)))
		return "another file has its name";
	if (stx->stx_size != r->size)
		return "its size is another";
	if (!r->checked && nanoseconds(&stx->stx_mtime) != r->mtime_ns)
		return "it was written to";
	return NULL;
}

static int changed(const struct hr_file *file, const char *why)
{
	return hr__fail(
		HR_E_FILE_CHANGED,
		"%s: was changed since the dataset was opened: %s; leave files of a dataset "
		"alone while it is read, or open it again",
		file->path, why);
}

/* One descriptor of the file as it was. Return: it, or -code with a sentence. */
static int open_same(const struct hr_file *file, int extra)
{
	int fd = hr__file_open_fd(file->rest->path,
				  O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | extra, 0);
	const char *why;
	struct statx stx;
	int err;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return changed(file, "it is not there any more");
	if (fd < 0)
		return hr__file_fail_open(fd, file->path);
	memset(&stx, 0, sizeof(stx));
	err = hr__sys->statx_fd(fd, STATX_BASIC_STATS | STATX_BTIME, &stx);
	if (err < 0) {
		hr__sys->close(fd);
		return hr__file_fail_open(err, file->path);
	}
	why = difference(file, &stx);
	if (why) {
		hr__sys->close(fd);
		return changed(file, why);
	}
	/* Left set, O_NONBLOCK would make io_uring give up where it should wait. */
	fcntl(fd, F_SETFL, extra);
	return fd;
}

/*
 * Open the file again, with the descriptors that it had. Both by its name: by way of /proc/self/fd the second
 * one would take as long as all the rest. Return: 0, or -code with a sentence.
 */
static int reopen(struct hr_file *file)
{
	int fd = open_same(file, 0), direct = -1;

	if (fd < 0)
		return fd;
	if (hr__file_has_direct(file)) {
		direct = open_same(file, O_DIRECT);
		if (direct < 0) {
			hr__sys->close(fd);
			return direct;
		}
	}
	file->fd = fd;
	file->fd_direct = direct;
	return 0;
}

/* -- holds ------------------------------------------------------------------------------------ */

/* The lock is held, and let go of meanwhile. Return: 0 with descriptors, or -code. */
static int open_again(struct hr_file *file, bool must)
{
	uint32_t n = file->rest->n_fds;
	int err = reserve(n, must);

	if (err < 0)
		return err;
	pthread_mutex_unlock(&rest.lock);
	do {
		err = reopen(file);
	} while (err < 0 && hr__rest_make_way(err));
	pthread_mutex_lock(&rest.lock);
	if (err < 0)
		rest.counts.open -= n;
	if (is_crowded(err) && !must)
		return -EAGAIN;
	/* That means to wait for other files, which does not help here. */
	return err == -EAGAIN ? -EIO : err;
}

int hr__file_wake(struct hr_file *file, bool must)
{
	int err = 0;

	atomic_fetch_sub_explicit(&file->holds, 1, memory_order_relaxed); /* it was in vain */
	pthread_mutex_lock(&rest.lock);
	/* No longer than the other thread's open(2). */
	while (file->rest->opener == opener_mark())
		pthread_cond_wait(&rest.changed, &rest.lock);
	if (atomic_load_explicit(&file->holds, memory_order_relaxed) & HR__RESTING) {
		file->rest->opener = opener_mark();
		err = open_again(file, must);
		file->rest->opener = 0;
		if (err == 0) {
			join_ring(file);
			rest.counts.reopened++;
			/* Release: whoever does not see the mark sees the descriptors. */
			atomic_fetch_sub_explicit(&file->holds, HR__RESTING, memory_order_release);
			err = 1;
		}
		pthread_cond_broadcast(&rest.changed);
	}
	/* Under the lock nobody puts it to rest. */
	if (err >= 0)
		atomic_fetch_add_explicit(&file->holds, 1, memory_order_relaxed);
	pthread_mutex_unlock(&rest.lock);
	return err;
}

void hr__rest_leave(struct hr_file *file)
{
	struct remains remains = {.fd = -1, .fd_direct = -1};

	/* Nobody has the file any more; another thread may be putting it to rest all the same. */
	pthread_mutex_lock(&rest.lock);
	if (!(atomic_load_explicit(&file->holds, memory_order_acquire) & HR__RESTING)) {
		leave_ring(file);
		take_remains(file, &remains);
	}
	pthread_mutex_unlock(&rest.lock);
	close_remains(&remains);
	give_back(remains.n_fds);
	if (file->rest->path != file->path)
		free(file->rest->path);
	free(file->rest);
}

/* -- how files come to rest ------------------------------------------------------------------- */

/* A path that leads to the same place from everywhere: @path, or one to be freed, or NULL. */
static char *absolute(char *path)
{
	char *folder, *out;
	size_t room;

	if (*path == '/')
		return path;
	folder = getcwd(NULL, 0);
	if (!folder) /* it was removed: where the path leads then is looked at when it is used */
		return path;
	room = strlen(folder) + strlen(path) + 2;
	out = malloc(room);
	if (out)
		snprintf(out, room, "%s/%s", folder, path);
	free(folder);
	return out;
}

static int note_identity(struct hr_file *file, struct hr__rest *r)
{
	struct statfs fs;
	struct statx stx;
	int err;

	memset(&stx, 0, sizeof(stx));
	err = hr__sys->statx_fd(file->fd, STATX_BASIC_STATS | STATX_BTIME, &stx);
	if (err < 0)
		return err;
	err = hr__sys->fstatfs(file->fd, &fs);
	if (err < 0)
		return err;
	file->dev = device_of(&stx);
	file->ino = stx.stx_ino;
	r->size = stx.stx_size;
	r->mtime_ns = nanoseconds(&stx.stx_mtime);
	r->birth_ns = stx.stx_mask & STATX_BTIME ? nanoseconds(&stx.stx_btime) : 0;
	r->inode_lasts = hr__fs_numbers_last((uint32_t)fs.f_type);
	return 0;
}

/* @n descriptors were reserved for @file, which is open. Return: 0 or -code with a sentence. */
static int begin_rest(struct hr_file *file, uint32_t n, bool checked)
{
	struct hr__rest *r = calloc(1, sizeof(*r));
	int err = r ? note_identity(file, r) : -ENOMEM;

	if (err == 0) {
		r->path = absolute(file->path);
		if (!r->path)
			err = -ENOMEM;
	}
	if (err < 0) {
		free(r);
		return hr__file_fail_open(err, file->path);
	}
	r->n_fds = file->fd_direct >= 0 ? 2 : 1;
	r->checked = checked;
	atomic_init(&r->used, false);
	pthread_mutex_lock(&rest.lock);
	file->rest = r;
	rest.counts.open -= n - r->n_fds;
	join_ring(file);
	pthread_mutex_unlock(&rest.lock);
	return 0;
}

static void reserve_first(uint32_t n)
{
	pthread_mutex_lock(&rest.lock);
	rest.counts.limit = limit_now();
	reserve(n, true);
	pthread_mutex_unlock(&rest.lock);
}

/* The file system of the last files of this thread. */
static struct hr__fs_memo *memo_now(void)
{
	static _Thread_local struct hr__fs_memo memo;
	static _Thread_local uint64_t until_ns;
	uint64_t now = hr__now_ns();

	if (now >= until_ns) {
		memo.mount_id = 0;
		until_ns = now + MEMO_NS;
	}
	return &memo;
}

int hr__rest_open(const char *path, struct hr_file **out)
{
	struct hr_file *file;
	int err;

	reserve_first(FDS_MAX);
	do {
		err = hr__file_open(path, HR_FILE_READ, memo_now(), &file);
	} while (err < 0 && hr__rest_make_way(err));
	if (err == 0 && !file->is_block_device) {
		err = begin_rest(file, FDS_MAX, false);
		if (err == 0) {
			*out = file;
			return 0;
		}
		hr_file_close(file);
	}
	give_back(FDS_MAX);
	if (err == 0)
		*out = file;
	return err;
}

int hr__rest_adopt(int fd, const char *path, struct hr_file **out)
{
	struct hr_file *file = hr__file_new(path, HR_FILE_READ);
	int err;

	if (!file) {
		hr__sys->close(fd);
		return hr__fail(ENOMEM, "%s: no memory for an open file; free some", path);
	}
	reserve_first(1);
	file->fd = fd;
	err = begin_rest(file, 1, true);
	if (err < 0) {
		give_back(1);
		hr_file_close(file);
		return err;
	}
	*out = file;
	return 0;
}

void hr__rest_counts(struct hr__rest_counts *out)
{
	pthread_mutex_lock(&rest.lock);
	rest.counts.limit = limit_now();
	*out = rest.counts;
	pthread_mutex_unlock(&rest.lock);
}

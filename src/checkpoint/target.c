/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/target.c - writes beside the file and renames at the end. The temporary file has one name
 * per target: what a crash leaves is used again instead of piling up, and a lock keeps two saves of
 * one file apart. Knows nothing of what is written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "checkpoint/target.h"

#define SUFFIX ".tmp"
#define TRIES 16 /* the other save may have finished in between */

static int fail_on(const char *path, int ret, const char *what, const char *remedy)
{
	return hr__fail(-ret, "%s: %s: %s; %s", path, what, hr_strerror(ret), remedy);
}

/* fstat() of whatever has this name now. Return: 0 or -errno. */
static int look_at(const char *path, int flags, struct stat *st)
{
	int ret, fd = hr__sys->open(path, O_PATH | O_CLOEXEC | flags, 0);

	if (fd < 0)
		return fd;
	ret = hr__sys->fstat(fd, st);
	hr__sys->close(fd);
	return ret;
}

/* What is there already? */
static int look_at_old(struct hr__target *t)
{
	struct stat st;
	int ret = look_at(t->path, 0, &st);

	if (ret == -ENOENT)
		return 0;
	if (ret)
		return fail_on(t->path, ret, "cannot be looked at", "check the folders above it");
	if (S_ISDIR(st.st_mode))
		return hr__fail(EISDIR, "%s: is a folder; name the file to write in it", t->path);
	if (!S_ISREG(st.st_mode))
		return hr__fail(HR_E_NOT_A_FILE, "%s: is not a regular file; choose another name",
				t->path);
	t->mode = st.st_mode & 0777;
	return 0;
}

/* Open and lock it once. Return: 0 with t->fd, -EAGAIN when it was renamed meanwhile, -code. */
static int try_temp(struct hr__target *t)
{
	struct stat mine, named;
	int ret, fd = hr__sys->open(t->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
				    0666);

	if (fd < 0)
		return fail_on(t->temp, fd, "cannot be created",
			       "check the folder and the room in it");
	ret = hr__sys->fstat(fd, &mine);
	if (!ret && !S_ISREG(mine.st_mode)) {
		hr__sys->close(fd);
		return hr__fail(HR_E_NOT_A_FILE, "%s: is in the way; remove it", t->temp);
	}
	/* Some file systems lock nothing: then two saves at once are the caller's business. */
	if (!ret && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		hr__sys->close(fd);
		return hr__fail(EBUSY, "%s: another save is writing this file; wait for it",
				t->path);
	}
	if (!ret)
		ret = look_at(t->temp, O_NOFOLLOW, &named);
	if (!ret && (named.st_ino != mine.st_ino || named.st_dev != mine.st_dev))
		ret = -EAGAIN;
	if (ret == -ENOENT)
		ret = -EAGAIN;
	if (ret) {
		hr__sys->close(fd);
		return ret;
	}
	t->fd = fd;
	t->exists = true;
	return 0;
}

static int open_temp(struct hr__target *t)
{
	int ret = -EAGAIN;

	for (int i = 0; i < TRIES && ret == -EAGAIN; i++)
		ret = try_temp(t);
	if (ret == -EAGAIN)
		return hr__fail(EBUSY, "%s: other saves come and go; save one at a time", t->path);
	return ret;
}

/* Empty, and with room for everything. */
static int prepare(struct hr__target *t, uint64_t len)
{
	int ret = hr__sys->ftruncate(t->fd, 0);

	if (ret)
		return fail_on(t->temp, ret, "cannot be emptied", "remove it");
	ret = hr_file_import(t->fd, t->temp, &t->file);
	if (ret)
		return ret;
	ret = hr_file_preallocate(t->file, len);
	return ret == -EOPNOTSUPP ? 0 : ret;
}

int hr__target_open(struct hr__target *t, const char *path, uint64_t len)
{
	size_t path_len = strlen(path);
	int ret;

	*t = (struct hr__target){.fd = -1, .fork_generation = hr__fork_generation()};
	t->path = strdup(path);
	t->temp = malloc(path_len + sizeof(SUFFIX));
	if (!t->path || !t->temp) {
		hr__target_close(t);
		return hr__fail(ENOMEM, "%s: no memory for its name; free some", path);
	}
	memcpy(t->temp, path, path_len);
	memcpy(t->temp + path_len, SUFFIX, sizeof(SUFFIX));
	ret = look_at_old(t);
	if (!ret)
		ret = open_temp(t);
	if (!ret)
		ret = prepare(t, len);
	if (ret)
		hr__target_close(t);
	return ret;
}

/* A rename is on the drive when its folder is. */
static int sync_folder(const struct hr__target *t)
{
	const char *slash = strrchr(t->path, '/');
	size_t len = slash ? (size_t)(slash - t->path) : 0;
	char *folder = strdup(slash ? (len ? t->path : "/") : ".");
	int fd, ret;

	if (!folder)
		return -ENOMEM;
	if (len)
		folder[len] = '\0';
	fd = hr__sys->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	free(folder);
	if (fd < 0)
		return fd;
	ret = hr__sys->fsync(fd);
	hr__sys->close(fd);
	/* Some file systems know no such thing. */
	return ret == -EINVAL ? 0 : ret;
}

int hr__target_commit(struct hr__target *t)
{
	int ret = 0;

	if (t->mode && fchmod(t->fd, t->mode))
		ret = -errno;
	if (ret)
		return fail_on(t->temp, ret, "cannot be given the mode of the old file",
			       "remove the old file first");
	ret = hr_file_sync(t->file);
	if (ret)
		return ret;
	ret = hr__sys->rename(t->temp, t->path);
	if (ret)
		return fail_on(t->path, ret, "the new file cannot take this name",
			       "check the folder");
	t->exists = false;
	ret = sync_folder(t);
	if (ret)
		return fail_on(t->path, ret, "is whole, but its folder could not be synced",
			       "run sync");
	return 0;
}

void hr__target_close(struct hr__target *t)
{
	/* The name first: behind the lock somebody may wait for it. */
	if (t->exists && t->fork_generation == hr__fork_generation())
		hr__sys->unlink(t->temp);
	hr_file_close(t->file);
	if (t->fd >= 0 && t->temp)
		hr__sys->close(t->fd);
	free(t->path);
	free(t->temp);
	*t = (struct hr__target){.fd = -1};
}

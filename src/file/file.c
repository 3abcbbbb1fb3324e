/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/file.c - opens files, counts references, passes plain requests on; what direct I/O needs is
 * geometry.c's business.
 *
 * No access pattern is advised at open: small scattered reads take the direct descriptor or hit the
 * page cache, and POSIX_FADV_RANDOM would cost sequential buffered reads their readahead.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"
#include "file/fsinfo.h"
#include "file/geometry.h"
#include "file/rest.h"

#define ALL_FLAGS                                                                                  \
	(HR_FILE_READ | HR_FILE_WRITE | HR_FILE_CREATE | HR_FILE_TRUNCATE | HR_FILE_EXCLUSIVE)
#define INTERRUPTS_MAX 100

static atomic_uint_fast64_t last_id;

/* -- sentences -------------------------------------------------------------------------------- */

static const struct {
	int code;
	const char *text; /* cause; remedy */
} open_failures[] = {
	{ENOENT, "no such file; check the path"},
	{EACCES, "permission denied; check the modes of the file and of the directories above it"},
	{EPERM,
	 "the operation is not permitted; look for an immutable or append-only flag (lsattr)"},
	{ENOTDIR, "a part of the path is not a directory; check the path"},
	{ELOOP, "too many symbolic links; look for a link that leads back to itself"},
	{ENAMETOOLONG, "the path is too long; use a shorter one"},
	{EMFILE, "this process has too many open files; close some or raise ulimit -n"},
	{ENFILE, "the system has too many open files; raise fs.file-max"},
	{ENOMEM, "the kernel is out of memory; free some"},
	{EEXIST, "the file exists already; remove it or open it without HR_FILE_EXCLUSIVE"},
	{EROFS, "the file system is read-only; remount it or write elsewhere"},
	{ENOSPC, "no space for a new file; free some (df, df -i)"},
	{EDQUOT, "the disk quota is used up; free some space"},
	{ETXTBSY, "the file is a running program; stop it or write to a copy"},
	{EBUSY, "the device is in use exclusively; unmount it or stop its user"},
	{EOVERFLOW, "the file is too large for this system; split it"},
	{ESTALE, "the file was replaced on the server; open it again"},
	{EIO, "the drive failed to answer; look at the kernel's log (dmesg)"},
};

int hr__file_fail_open(int err, const char *path)
{
	for (size_t i = 0; i < HR_ARRAY_LEN(open_failures); i++) {
		if (open_failures[i].code == -err)
			return hr__fail(-err, "%s: %s", path, open_failures[i].text);
	}
	return hr__fail(-err, "%s: cannot be opened (%s); try the same with dd to see more", path,
			hr_strerror(err));
}

int hr__file_open_fd(const char *path, int flags, mode_t mode)
{
	int fd = -EINTR;

	for (int i = 0; fd == -EINTR && i < INTERRUPTS_MAX; i++)
		fd = hr__sys->open(path, flags, mode);
	/* Only a lease makes open(2) of a file say so, and then it may be waited for: it is taken back. */
	if (fd == -EAGAIN && flags & O_NONBLOCK)
		fd = hr__sys->open(path, flags & ~O_NONBLOCK, mode);
	return fd;
}

static const char *kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a pipe";
	if (S_ISSOCK(mode))
		return "a socket";
	return S_ISCHR(mode) ? "a character device" : "something else";
}

static int fail_kind(const char *path, const char *kind)
{
	return hr__fail(HR_E_NOT_A_FILE,
			"%s: is %s, not a regular file or block device; name a file in it or copy "
			"the data to one",
			path, kind);
}

static int fail_on(const struct hr_file *file, int err, const char *what, const char *remedy)
{
	return hr__fail(-err, "%s: %s (%s); %s", *file->path ? file->path : "imported file", what,
			hr_strerror(err), remedy);
}

/* -- life ------------------------------------------------------------------------------------- */

struct hr_file *hr__file_new(const char *path, uint32_t flags)
{
	struct hr_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return NULL;
	}
	atomic_init(&file->refs, 1);
	atomic_init(&file->holds, 0);
	atomic_init(&file->attached, NULL);
	atomic_init(&file->residency, HR__RESIDENCY_NONE);
	atomic_init(&file->direct_denied, 0);
	atomic_init(&file->hint, HR_CACHE_AUTO);
	atomic_init(&file->set_bytes, 0);
	atomic_init(&file->map_owner, 0);
	file->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
	file->flags = flags;
	file->fd = -1;
	file->fd_direct = -1;
	return file;
}

static void destroy(struct hr_file *file)
{
	struct hr__attachment *what = atomic_load_explicit(&file->attached, memory_order_acquire);

	while (what) {
		struct hr__attachment *next = what->next;

		what->drop(what);
		what = next;
	}
	if (file->rest)
		hr__rest_leave(file);
	if (file->map)
		hr__sys->munmap(file->map, file->map_len);
	if (file->fd_direct >= 0)
		hr__sys->close(file->fd_direct);
	if (file->fd >= 0)
		hr__sys->close(file->fd);
	free(file->path);
	free(file);
}

void hr__file_attach(struct hr_file *file, struct hr__attachment *what)
{
	what->next = atomic_load_explicit(&file->attached, memory_order_relaxed);
	atomic_store_explicit(&file->attached, what, memory_order_release);
}

void hr__file_get(struct hr_file *file)
{
	atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
}

void hr__file_put(struct hr_file *file)
{
	/* What other holders did to the file comes before the last one's destroy(). */
	if (atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1)
		destroy(file);
}

void hr_file_close(struct hr_file *file)
{
	if (file)
		hr__file_put(file);
}

/* file->fd is open: refuse what is no file, note who it is. Return: 0 or -code, sentence set. */
static int identify(struct hr_file *file, const char *name)
{
	struct stat st;
	int err = hr__sys->fstat(file->fd, &st);

	if (err < 0)
		return hr__file_fail_open(err, name);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return fail_kind(name, kind_of(st.st_mode));
	file->is_block_device = S_ISBLK(st.st_mode);
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	return 0;
}

/* Open flags for HR_FILE_*. Return: flags, or -EINVAL with a sentence. */
static int open_flags(const char *path, uint32_t flags)
{
	int o = O_CLOEXEC | O_NOCTTY | O_NONBLOCK; /* a pipe must not make open() wait */

	if (flags & ~(uint32_t)ALL_FLAGS || !(flags & (HR_FILE_READ | HR_FILE_WRITE)))
		return hr__fail(EINVAL,
				"%s: flags 0x%x are not understood; use HR_FILE_READ, "
				"HR_FILE_WRITE or both",
				path, flags);
	if ((flags & (HR_FILE_CREATE | HR_FILE_TRUNCATE) && !(flags & HR_FILE_WRITE)) ||
	    (flags & HR_FILE_EXCLUSIVE && !(flags & HR_FILE_CREATE)))
		return hr__fail(EINVAL,
				"%s: HR_FILE_CREATE and HR_FILE_TRUNCATE need HR_FILE_WRITE, "
				"HR_FILE_EXCLUSIVE needs HR_FILE_CREATE; add it",
				path);
	if (flags & HR_FILE_WRITE)
		o |= flags & HR_FILE_READ ? O_RDWR : O_WRONLY;
	o |= flags & HR_FILE_CREATE ? O_CREAT : 0;
	o |= flags & HR_FILE_TRUNCATE ? O_TRUNC : 0;
	o |= flags & HR_FILE_EXCLUSIVE ? O_EXCL : 0;
	return o;
}

/* open() refused; some of its codes mean "this is no file". Return: -code, with sentence. */
static int explain_refusal(const char *path, int err)
{
	struct stat st;
	int fd;

	if (err == -EISDIR)
		return fail_kind(path, "a directory");
	if (err != -ENXIO) /* sockets, and pipes that nobody reads */
		return hr__file_fail_open(err, path);
	fd = hr__sys->open(path, O_PATH | O_CLOEXEC, 0);
	if (fd < 0)
		return hr__file_fail_open(err, path);
	if (hr__sys->fstat(fd, &st) < 0 || S_ISBLK(st.st_mode) || S_ISREG(st.st_mode))
		st.st_mode = 0;
	hr__sys->close(fd);
	return st.st_mode ? fail_kind(path, kind_of(st.st_mode)) : hr__file_fail_open(err, path);
}

/* The last step of open and import: file->fd is open and identified. */
static int finish(struct hr_file *file, const char *name, struct hr__fs_memo *memo,
		  struct hr_file **out)
{
	int err = hr__geometry_find(file, memo);

	if (err < 0)
		return hr__file_fail_open(err, name);
	*out = file;
	return 0;
}

int hr__file_open(const char *path, uint32_t flags, struct hr__fs_memo *memo, struct hr_file **out)
{
	struct hr_file *file;
	int o, err;

	if (!path || !out)
		return hr__fail(EINVAL, "hr_file_open: path or out is NULL; pass both");
	o = open_flags(path, flags);
	if (o < 0)
		return o;
	/* Before the file is touched: a failure leaves no new file behind. */
	file = hr__file_new(path, flags);
	if (!file)
		return hr__fail(ENOMEM, "%s: no memory for an open file; free some", path);
	file->fd = hr__file_open_fd(path, o, 0600);
	if (file->fd < 0) {
		err = explain_refusal(path, file->fd);
		goto err_put;
	}
	err = identify(file, path);
	if (err < 0)
		goto err_put;
	/* Left set, it would make io_uring give up where it should wait. */
	fcntl(file->fd, F_SETFL, 0);
	err = finish(file, path, memo, out);
	if (err < 0)
		goto err_put;
	return 0;

err_put:
	hr__file_put(file);
	return err;
}

int hr_file_open(const char *path, uint32_t flags, struct hr_file **out)
{
	return hr__file_open(path, flags, NULL, out);
}

/* What the caller's descriptor may do. Return: HR_FILE_* or 0 for neither reading nor writing. */
static uint32_t import_flags(int status)
{
	if (status & O_PATH)
		return 0;
	switch (status & O_ACCMODE) {
	case O_RDONLY:
		return HR_FILE_READ;
	case O_WRONLY:
		return HR_FILE_WRITE;
	default:
		return HR_FILE_READ | HR_FILE_WRITE;
	}
}

/*
 * A duplicate shares the caller's O_DIRECT, O_APPEND and O_NONBLOCK; a second open does not. So the
 * duplicate is only kept where the file cannot be opened again and it does no harm.
 */
static int make_private(struct hr_file *file, int status, const char *name)
{
	int fd = hr__file_reopen(file, file->fd, 0);

	if (fd < 0) {
		if (!(status & (O_DIRECT | O_APPEND)))
			return 0;
		return hr__fail(-fd,
				"%s: the descriptor has O_DIRECT or O_APPEND and the file cannot "
				"be opened again without (%s); import one opened without them",
				name, hr_strerror(fd));
	}
	hr__sys->close(file->fd);
	file->fd = fd;
	return 0;
}

int hr_file_import(int fd, const char *path, struct hr_file **out)
{
	const char *name = path && *path ? path : "imported file";
	int status = fcntl(fd, F_GETFL), err;
	struct hr_file *file;

	if (status < 0 || !import_flags(status))
		return hr__fail(EBADF,
				"%s: descriptor %d is not open for reading or writing; pass one "
				"from open(2)",
				name, fd);
	if (!out)
		return hr__fail(EINVAL, "hr_file_import: out is NULL; pass a place for the file");
	file = hr__file_new(path ? path : "", import_flags(status));
	if (!file)
		return hr__fail(ENOMEM, "%s: no memory for an open file; free some", name);
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0) {
		err = hr__file_fail_open(-errno, name);
		goto err_put;
	}
	err = identify(file, name);
	if (err < 0)
		goto err_put;
	err = make_private(file, status, name);
	if (err < 0)
		goto err_put;
	err = finish(file, name, NULL, out);
	if (err < 0)
		goto err_put;
	return 0;

err_put:
	hr__file_put(file);
	return err;
}

/* -- facts ------------------------------------------------------------------------------------ */

int hr__file_stamp(struct hr_file *file, struct hr__file_stamp *out)
{
	struct stat st;
	int err;

	if (file->is_block_device) {
		out->mtime_ns = 0;
		return hr__sys->ioctl(file->fd, BLKGETSIZE64, &out->size);
	}
	err = hr__sys->fstat(file->fd, &st);
	if (err < 0)
		return err;
	if (st.st_size < 0)
		return -EOVERFLOW;
	out->size = (uint64_t)st.st_size;
	out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return 0;
}

int hr__file_size(struct hr_file *file, uint64_t *out)
{
	struct hr__file_stamp stamp;
	int err = hr__file_stamp(file, &stamp);

	if (err < 0)
		return err;
	*out = stamp.size;
	return 0;
}

const char *hr_file_path(const struct hr_file *file)
{
	return file->path;
}

int hr_file_info(struct hr_file *file, struct hr_file_info *info)
{
	struct hr__block_info block;
	int err;

	memset(info, 0, sizeof(*info));
	err = hr__file_hold(file, true);
	if (err < 0)
		return err;
	err = hr__file_size(file, &info->size_bytes);
	if (err == 0)
		hr__block_find(file, &block);
	hr__file_release(file);
	if (err < 0)
		return fail_on(file, err, "its size cannot be found",
			       "look at the kernel's log (dmesg)");
	info->offset_align = file->offset_align;
	info->memory_align = file->memory_align;
	info->is_block_device = file->is_block_device;
	info->readable = file->flags & HR_FILE_READ;
	info->writable = file->flags & HR_FILE_WRITE;
	info->direct = hr__file_has_direct(file);
	memcpy(info->direct_reason, file->direct_reason, sizeof(info->direct_reason));
	memcpy(info->fs_name, file->fs_name, sizeof(info->fs_name));
	memcpy(info->block_device, block.name, sizeof(info->block_device));
	memcpy(info->block_pci, block.pci, sizeof(info->block_pci));
	info->logical_block_bytes = block.logical_block_bytes;
	return 0;
}

/* -- plain requests --------------------------------------------------------------------------- */

static int refuse_read_only(const struct hr_file *file)
{
	if (file->flags & HR_FILE_WRITE)
		return 0;
	return hr__fail(EBADF, "%s: is open for reading only; open it with HR_FILE_WRITE",
			*file->path ? file->path : "imported file");
}

int hr_file_preallocate(struct hr_file *file, uint64_t len_bytes)
{
	int err = refuse_read_only(file);

	if (err < 0 || !len_bytes)
		return err;
	err = len_bytes > INT64_MAX ? -EFBIG : -EINTR;
	for (int i = 0; err == -EINTR && i < INTERRUPTS_MAX; i++)
		err = hr__sys->fallocate(file->fd, 0, 0, len_bytes);
	if (err < 0)
		return fail_on(file, err, "blocks cannot be reserved",
			       err == -ENOSPC ? "free some space" : "write without preallocation");
	return 0;
}

int hr_file_truncate(struct hr_file *file, uint64_t len_bytes)
{
	int err = refuse_read_only(file);

	if (err < 0)
		return err;
	err = len_bytes > INT64_MAX ? -EFBIG : -EINTR;
	for (int i = 0; err == -EINTR && i < INTERRUPTS_MAX; i++)
		err = hr__sys->ftruncate(file->fd, len_bytes);
	if (err < 0)
		return fail_on(file, err, "its length cannot be set",
			       "check limits and file system");
	return 0;
}

int hr_file_sync(struct hr_file *file)
{
	int err = hr__file_hold(file, true);

	if (err < 0)
		return err;
	err = -EINTR;
	for (int i = 0; err == -EINTR && i < INTERRUPTS_MAX; i++)
		err = hr__sys->fdatasync(file->fd);
	hr__file_release(file);
	if (err < 0)
		return fail_on(file, err, "data may not have reached the drive",
			       "write it again elsewhere and look at the kernel's log (dmesg)");
	return 0;
}

int hr_file_hint(struct hr_file *file, enum hr_cache cache, uint64_t set_bytes)
{
	if ((uint32_t)cache > HR_CACHE_DROP)
		return hr__fail(EINVAL, "%s: hint %u is unknown; use auto, keep or drop",
				file->path, cache);
	atomic_store_explicit(&file->set_bytes, set_bytes, memory_order_relaxed);
	atomic_store_explicit(&file->hint, cache, memory_order_relaxed);
	return 0;
}

int hr_file_drop_cache(struct hr_file *file)
{
	int err = hr__file_hold(file, true);

	if (err < 0)
		return err;
	err = hr__sys->fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	hr__file_release(file);
	if (err < 0)
		return fail_on(file, err, "its pages cannot be dropped from the page cache",
			       "go on without; nothing is lost but cold measurements");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/geometry.c - decides whether a file can be read past the page cache and with which
 * alignment; knows nothing of devices or buffers.
 *
 *   file system (fsinfo.c) says it never works ............... no
 *   open(O_DIRECT) is refused ................................ no
 *   statx STATX_DIOALIGN 0/0 (journalled, inline, encrypted) . no
 *   ... otherwise its numbers are the alignment
 *   kernel without STATX_DIOALIGN for this file .............. a small read: 512, else 4096 bytes
 *   file systems that may buffer in silence .................. read a cold block and look whether
 *                                                              it became resident
 *   ... and nothing cold was there to look at ................ what the table in fsinfo.c believes
 *   btrfs, with nothing cold or open for writing ............. files without checksums; to read,
 *                                                              also files of plain extents alone
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/extent.h"
#include "file/fsinfo.h"
#include "file/geometry.h"

#define ALIGN_MAX (1u << 16) /* larger answers are not believed */
#define PROBE_BYTES 4096u
#define SAFE_ALIGN 4096u /* where nothing can be asked: no common drive needs more */
#define PROBE_PLACES 3
#define PLAIN_EXTENTS_MAX 256

enum proof { PROOF_NONE, PROOF_DIRECT, PROOF_BUFFERED };

static void __attribute__((format(printf, 2, 3)))
no_direct(struct hr_file *file, const char *format, ...)
{
	va_list args;

	if (file->fd_direct >= 0)
		hr__sys->close(file->fd_direct);
	file->fd_direct = -1;
	file->offset_align = 0;
	file->memory_align = 0;
	va_start(args, format);
	vsnprintf(file->direct_reason, sizeof(file->direct_reason), format, args);
	va_end(args);
}

int hr__file_reopen(const struct hr_file *file, int fd, int extra)
{
	struct stat st;
	char link[40];
	int access_mode, again, err;

	if (file->flags & HR_FILE_WRITE)
		access_mode = file->flags & HR_FILE_READ ? O_RDWR : O_WRONLY;
	else
		access_mode = O_RDONLY;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	again = hr__file_open_fd(link, access_mode | O_CLOEXEC | extra, 0);
	if (again != -ENOENT || !*file->path)
		return again;
	again = hr__file_open_fd(file->path,
				 access_mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | extra, 0);
	if (again < 0)
		return again;
	err = hr__sys->fstat(again, &st);
	if (err < 0 || st.st_dev != file->dev || st.st_ino != file->ino) {
		hr__sys->close(again);
		return err < 0 ? err : -ESTALE;
	}
	/* Left set, it would make io_uring give up where it should wait. */
	fcntl(again, F_SETFL, fcntl(again, F_GETFL) & ~O_NONBLOCK);
	return again;
}

/* -- alignment -------------------------------------------------------------------------------- */

static bool sane_align(uint32_t align)
{
	return hr__is_pow2(align) && align <= ALIGN_MAX;
}

/* Edges are staged in memory that has a page's alignment and no more. */
static void check_memory(struct hr_file *file)
{
	if (file->memory_align > HR__MEMORY_ALIGN_MAX)
		no_direct(file,
			  "%s wants memory aligned to %u bytes for direct I/O, %u is the most",
			  file->fs_name, file->memory_align, HR__MEMORY_ALIGN_MAX);
}

/* Ask a file system that has no STATX_DIOALIGN by reading. Return: alignment, 0 if it refuses. */
static uint32_t try_alignments(struct hr_file *file, void *buf)
{
	static const uint32_t sizes[] = {512, 4096};
	uint64_t size;

	if (hr__file_size(file, &size) < 0 || size < PROBE_BYTES || !(file->flags & HR_FILE_READ))
		return SAFE_ALIGN;
	for (size_t i = 0; i < HR_ARRAY_LEN(sizes); i++) {
		/* An address that is a multiple of this and no more: it is judged, too. */
		char *addr = (char *)buf + sizes[i];

		if (hr__sys->pread(file->fd_direct, addr, sizes[i], 0) >= 0)
			return sizes[i];
	}
	return 0;
}

/* What the file system says of it. Return: false when it says nothing. */
static bool ask_alignment(struct hr_file *file)
{
	struct statx stx;

	memset(&stx, 0, sizeof(stx));
	if (hr__sys->statx_fd(file->fd_direct, STATX_DIOALIGN, &stx) < 0 ||
	    !(stx.stx_mask & STATX_DIOALIGN))
		return false;
	file->offset_align = stx.stx_dio_offset_align;
	file->memory_align = stx.stx_dio_mem_align;
	if (!file->offset_align || !file->memory_align)
		no_direct(file,
			  "%s cannot read this file directly: it is journalled, inline, "
			  "compressed or encrypted",
			  file->fs_name);
	else if (!sane_align(file->offset_align) || !sane_align(file->memory_align))
		no_direct(file, "%s reports an impossible alignment (%u, %u)", file->fs_name,
			  file->offset_align, file->memory_align);
	else
		check_memory(file);
	return true;
}

static void guess_alignment(struct hr_file *file, const struct hr__fsinfo *fs, void *buf)
{
	int logical = 0;

	if (file->is_block_device && hr__sys->ioctl(file->fd, BLKSSZGET, &logical) == 0 &&
	    logical > 0 && sane_align((uint32_t)logical))
		file->offset_align = (uint32_t)logical;
	else if (fs->direct == HR__DIRECT_DOUBTFUL) /* takes any offset, and then buffers */
		file->offset_align = sane_align(fs->block_bytes) ? fs->block_bytes : SAFE_ALIGN;
	else
		file->offset_align = try_alignments(file, buf);
	file->memory_align = file->offset_align;
	if (!file->offset_align)
		no_direct(file, "%s accepts O_DIRECT but refuses aligned reads", file->fs_name);
	else
		check_memory(file);
}

/* -- is it honest? ---------------------------------------------------------------------------- */

/* Read a block that is not in the page cache past the cache, and see whether it is there now. */
static enum proof prove_at(struct hr_file *file, void *buf, uint64_t offset, uint32_t len)
{
	struct hr_residency_info before, after;

	if (hr_file_residency(file, offset, len, &before) < 0 || before.state != HR_RESIDENCY_COLD)
		return PROOF_NONE;
	if (hr__sys->pread(file->fd_direct, buf, len, offset) <= 0)
		return PROOF_NONE;
	if (hr_file_residency(file, offset, len, &after) < 0)
		return PROOF_NONE;
	if (after.state == HR_RESIDENCY_COLD)
		return PROOF_DIRECT;
	/* Leave the cache as it was. */
	hr__sys->fadvise(file->fd, offset, len, POSIX_FADV_DONTNEED);
	return after.state == HR_RESIDENCY_UNKNOWN ? PROOF_NONE : PROOF_BUFFERED;
}

static enum proof prove(struct hr_file *file, void *buf)
{
	uint32_t len = (uint32_t)hr__max(PROBE_BYTES, file->offset_align);
	enum proof proof = PROOF_NONE;
	uint64_t size;

	if (!(file->flags & HR_FILE_READ) || hr__file_size(file, &size) < 0 || !size)
		return PROOF_NONE;
	for (uint64_t i = 0; i < PROBE_PLACES && proof == PROOF_NONE; i++)
		proof = prove_at(file, buf, hr__align_down((size - 1) / PROBE_PLACES * i, len),
				 len);
	return proof;
}

/* btrfs writes checksummed files through the page cache; these have no checksums. */
static bool is_unchecked(const struct hr_file *file, const struct hr__fsinfo *fs)
{
	unsigned int flags = 0;

	if (hr__fsinfo_option(fs, "nodatasum") || hr__fsinfo_option(fs, "nodatacow"))
		return true;
	return hr__sys->ioctl(file->fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_NOCOW_FL);
}

/* No part of the file is compressed, inline or without a place on the drive. */
static bool is_plain(struct hr_file *file)
{
	struct hr_extent list[PLAIN_EXTENTS_MAX] = {{0}};
	struct hr__extents extents = {.list = list, .cap = PLAIN_EXTENTS_MAX};

	if (hr__file_extents(file, 0, 0, &extents) < 0 || extents.total != extents.n || !extents.n)
		return false;
	for (uint32_t i = 0; i < extents.n; i++) {
		if (list[i].flags & (HR_EXTENT_INLINE | HR_EXTENT_UNKNOWN))
			return false;
	}
	return true;
}

static bool is_believed(struct hr_file *file, const struct hr__fsinfo *fs, enum proof proof)
{
	if (fs->direct != HR__DIRECT_DOUBTFUL || is_unchecked(file, fs))
		return true;
	if (file->flags & HR_FILE_WRITE)
		return false;
	return proof == PROOF_DIRECT || is_plain(file);
}

static void check_honesty(struct hr_file *file, const struct hr__fsinfo *fs, void *buf)
{
	enum proof proof = prove(file, buf);

	if (proof == PROOF_BUFFERED)
		no_direct(file, "%s accepts O_DIRECT but reads this file through the page cache",
			  file->fs_name);
	else if (!is_believed(file, fs, proof))
		no_direct(file, "%s", fs->why);
}

/* Kernels before STATX_DIOALIGN: ext4 that journals data buffers in silence. */
static bool journals_data(const struct hr_file *file, const struct hr__fsinfo *fs)
{
	unsigned int flags = 0;

	if (strncmp(fs->name, "ext", 3) != 0)
		return false;
	if (hr__fsinfo_option(fs, "data=journal"))
		return true;
	return hr__sys->ioctl(file->fd, FS_IOC_GETFLAGS, &flags) == 0 &&
	       (flags & (FS_JOURNAL_DATA_FL | FS_INLINE_DATA_FL));
}

/* What has to be found by reading. @asked: the alignment is known. */
static int try_direct(struct hr_file *file, const struct hr__fsinfo *fs, bool asked)
{
	void *buf = aligned_alloc(ALIGN_MAX, ALIGN_MAX);

	if (!buf)
		return -ENOMEM;
	/* btrfs falls back to the page cache when the memory is not faulted in. */
	memset(buf, 0, ALIGN_MAX);
	if (!asked)
		guess_alignment(file, fs, buf);
	if (file->fd_direct >= 0 && fs->direct != HR__DIRECT_YES)
		check_honesty(file, fs, buf);
	free(buf);
	return 0;
}

/* Return: 0, or -errno where only memory or the number of open files stands in the way. */
static int find_direct(struct hr_file *file, const struct hr__fsinfo *fs)
{
	bool asked;

	if (fs->direct == HR__DIRECT_NO) {
		no_direct(file, "%s", fs->why);
		return 0;
	}
	if (journals_data(file, fs)) {
		no_direct(file,
			  "%s journals the data of this file or keeps it in the inode; mount "
			  "with data=ordered or copy the file",
			  file->fs_name);
		return 0;
	}
	file->fd_direct = hr__file_reopen(file, file->fd, O_DIRECT);
	if (file->fd_direct == -EINVAL) {
		no_direct(file, "%s does not support O_DIRECT", file->fs_name);
		return 0;
	}
	if (file->fd_direct == -EMFILE || file->fd_direct == -ENFILE)
		return file->fd_direct;
	if (file->fd_direct < 0) {
		no_direct(file, "opening the file again with O_DIRECT failed: %s",
			  hr_strerror(file->fd_direct));
		return 0;
	}
	asked = ask_alignment(file);
	if (file->fd_direct < 0 || (asked && fs->direct == HR__DIRECT_YES))
		return 0;
	return try_direct(file, fs, asked);
}

/* A read of nothing: at the end of the file, so that no page is brought in by asking. */
static bool find_nowait(struct hr_file *file)
{
	uint64_t size;
	char byte;
	ssize_t n;

	if (!(file->flags & HR_FILE_READ) || hr__file_size(file, &size) < 0)
		return false;
	n = hr__sys->pread_flags(file->fd, &byte, 1, size, RWF_NOWAIT);
	return n >= 0 || n == -EAGAIN;
}

int hr__geometry_find(struct hr_file *file, struct hr__fs_memo *memo)
{
	struct hr__fsinfo fs;
	int err;

	file->fd_direct = -1;
	if (file->is_block_device) {
		memset(&fs, 0, sizeof(fs));
		snprintf(fs.name, sizeof(fs.name), "block");
		fs.direct = HR__DIRECT_YES;
		fs.residency = HR__RESIDENCY_CACHESTAT;
		fs.why = "";
	} else {
		err = hr__fsinfo_find(file->fd, memo, &fs);
		if (err < 0)
			return err;
	}
	memcpy(file->fs_name, fs.name, sizeof(file->fs_name));
	file->memory_backed = fs.residency == HR__RESIDENCY_HOT;
	atomic_store_explicit(&file->residency, fs.residency, memory_order_relaxed);
	err = find_direct(file, &fs);
	if (err < 0)
		return err;
	file->nowait = find_nowait(file);
	return 0;
}

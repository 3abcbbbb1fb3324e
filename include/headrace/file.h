/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/file.h - a file, what it stands on, and what it can do.
 *
 * A file is opened twice inside: once for direct I/O (O_DIRECT) where that exists and once buffered.
 * Each request takes the one that suits it. Files are reference counted; any thread may call.
 */
#ifndef HEADRACE_FILE_H
#define HEADRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_device;
struct hr_file;

enum {
	HR_FILE_READ = 1u << 0,
	HR_FILE_WRITE = 1u << 1,
	HR_FILE_CREATE = 1u << 2,    /* with WRITE: create, mode 0600 less umask if new */
	HR_FILE_TRUNCATE = 1u << 3,  /* with WRITE: to length 0 */
	HR_FILE_EXCLUSIVE = 1u << 4, /* with CREATE: fail if it exists */
};

/* Whether pages are in the page cache. Unknown is a real answer: see docs/ARCHITECTURE.md. */
enum hr_residency {
	HR_RESIDENCY_UNKNOWN = 0,
	HR_RESIDENCY_HOT = 1,  /* every page asked about is resident */
	HR_RESIDENCY_COLD = 2, /* none is */
	HR_RESIDENCY_MIXED = 3,
};

/*
 * What reads leave behind in the page cache. An engine that is told KEEP or DROP does that for every
 * file; with AUTO, and without HEADRACE_CACHE, it goes by the hint of each file.
 */
enum hr_cache {
	HR_CACHE_AUTO = 0, /* cold data goes past it where direct I/O works; hot data stays */
	HR_CACHE_KEEP = 1, /* cold data goes through it, for the next reader */
	HR_CACHE_DROP = 2, /* where it has to go through, it is dropped again; hot data stays hot */
};

struct hr_file_info {
	uint64_t size_bytes;
	uint32_t offset_align; /* direct I/O: file offset and length, bytes; 0 = no direct I/O */
	uint32_t memory_align; /* direct I/O: memory address, bytes; 0 = no direct I/O */
	bool is_block_device;
	bool readable, writable;
	bool direct;                  /* direct I/O works and really bypasses the page cache */
	char direct_reason[160];      /* why not, "" if direct */
	char fs_name[24];             /* "ext4", "xfs", "tmpfs", "overlay", "fuse", ...; "block" */
	char block_device[64];        /* "vda1"; "" if unknown or none */
	char block_pci[16];           /* PCI address of its controller; "" if none */
	uint32_t logical_block_bytes; /* of the block device; 0 unknown */
};

struct hr_residency_info {
	enum hr_residency state;
	uint64_t pages, pages_resident; /* in the range asked about */
	const char *method;             /* "cachestat", "mincore", "none"; static */
	const char *reason;             /* why unknown; static, "" otherwise */
};

/*
 * hr_file_open() - open a file or block device by path.
 * @flags: HR_FILE_*; READ or WRITE or both are required.
 * @out: receives the file; unchanged on failure.
 *
 * Return: 0, -errno of open(2), -HR_E_NOT_A_FILE (directory, pipe, socket, character device),
 * -ENOMEM. hr_error_detail() has the sentence.
 */
int hr_file_open(const char *path, uint32_t flags, struct hr_file **out);

/*
 * hr_file_import() - use a descriptor that the caller has open.
 * @fd: kept by the caller; duplicated inside. @path: for messages only, may be NULL.
 *
 * Return: as hr_file_open(), -EBADF.
 */
int hr_file_import(int fd, const char *path, struct hr_file **out);

/* hr_file_close() - drop the caller's reference. @file: may be NULL. */
void hr_file_close(struct hr_file *file);

/* hr_file_info() - geometry as found at open; size as of now. Return: 0 or -errno. */
int hr_file_info(struct hr_file *file, struct hr_file_info *info);

/* hr_file_path() - the path it was opened by, "" for an import without one. */
const char *hr_file_path(const struct hr_file *file);

/*
 * hr_file_residency() - is this range in the page cache?
 * @len_bytes: 0 means to the end of the file. Costs one system call and about 10 ns a resident page.
 *
 * Return: 0 (also for "unknown"), -EINVAL, -errno.
 */
int hr_file_residency(struct hr_file *file, uint64_t offset, uint64_t len_bytes,
		      struct hr_residency_info *out);

/* hr_file_preallocate() - reserve blocks for [0, len). Return: 0, -ENOSPC, -EOPNOTSUPP, -errno. */
int hr_file_preallocate(struct hr_file *file, uint64_t len_bytes);

/* hr_file_truncate() - set the length. Return: 0 or -errno. */
int hr_file_truncate(struct hr_file *file, uint64_t len_bytes);

/* hr_file_sync() - fdatasync(2) on the file. Return: 0 or -errno. */
int hr_file_sync(struct hr_file *file);

/*
 * hr_file_hint() - tell what is known of the file's readers; before an engine first reads it.
 * @cache: KEEP: it will be read again, as weights are by the next start and by other processes. An
 *         engine then reads it through the page cache if all of the set fits into half of the memory
 *         that is available (the cgroup's limit counts), and as without a hint otherwise.
 *         DROP: it is read once. AUTO: takes a hint back.
 * @set_bytes: size of all files that are read together, this one included; 0: it is alone.
 *
 * Without a hint, a set that does not fit and cannot be read directly is dropped behind the reader.
 * Any thread may call. Return: 0, -EINVAL.
 */
int hr_file_hint(struct hr_file *file, enum hr_cache cache, uint64_t set_bytes);

/* hr_file_drop_cache() - ask the kernel to forget clean pages of the file. Return: 0 or -errno. */
int hr_file_drop_cache(struct hr_file *file);

/*
 * hr_file_register() - make a range of a file ready for the path pagecache to @dev, ahead of need.
 * @len: 0 means to the end of the file. @timeout_ns: stop after this time.
 *
 * For a GPU the pages are mapped, read in where they are not resident, and registered read-only, in
 * windows of 64 MiB. They cannot be reclaimed until the file is closed, or until other windows need
 * the place: all together stay within HEADRACE_PIN_BYTES, and the least recently used ones go first.
 * For "host" the page tables are filled. Registering costs about 70 us a MiB on a GPU, so it pays
 * for data that is read several times. A loader with threads does it by itself. Any thread may call.
 *
 * Return: bytes of the range that are ready now, less than @len after the time-out or at the limit;
 * -HR_E_PATH_REFUSED with the reason, -EINVAL, -errno.
 */
int64_t hr_file_register(struct hr_file *file, struct hr_device *dev, uint64_t offset, uint64_t len,
			 uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/file.h - the inside of an open file: descriptors and geometry, fixed at open.
 */
#ifndef HR_FILE_FILE_H
#define HR_FILE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/file.h>

/* Who can be asked whether pages are in the page cache: see residency.c. */
enum hr__residency_rule {
	HR__RESIDENCY_CACHESTAT,
	HR__RESIDENCY_MINCORE,
	HR__RESIDENCY_HOT,  /* the file is memory */
	HR__RESIDENCY_NONE, /* no honest answer exists */
};

/* Something that a higher layer keeps with a file, for as long as the file lives. */
struct hr__attachment {
	struct hr__attachment *next;
	void (*drop)(struct hr__attachment *); /* also tells the kinds apart */
};

struct hr_file {
	atomic_uint refs;
	struct hr__attachment *_Atomic attached; /* grows only; who adds has a lock of its own */
	uint64_t id;                             /* never reused */
	char *path;                              /* "" if unknown */
	uint32_t flags;                          /* HR_FILE_* */
	int fd;                                  /* buffered */
	int fd_direct;                           /* O_DIRECT, or -1 */
	uint32_t offset_align;                   /* direct: power of two; 0 without direct I/O */
	uint32_t memory_align;                   /* direct: power of two; 0 without direct I/O */
	atomic_uint direct_denied; /* HR_FILE_READ, HR_FILE_WRITE: refused later, see ioq.c */
	bool is_block_device;
	bool nowait;        /* RWF_NOWAIT reads work: a buffered read can say "not in the cache" */
	bool memory_backed; /* tmpfs, ramfs: always hot */
	char direct_reason[160];
	char fs_name[24];
	uint64_t dev, ino; /* identity, for caches */
	/* what hr_file_hint() was told */
	_Atomic enum hr_cache hint;
	_Atomic uint64_t set_bytes;
	/* mincore needs a mapping of the file: made on first use, replaced when the file grows */
	void *map;
	uint64_t map_len;
	atomic_flag map_lock;
	bool map_honest;       /* mincore tells this process the truth about the mapping */
	atomic_uint residency; /* enum hr__residency_rule; CACHESTAT becomes MINCORE if refused */
};

void hr__file_get(struct hr_file *file);
void hr__file_put(struct hr_file *file);

/* Size as of now: st_size, or the length of a block device. Return: 0 or -errno. */
int hr__file_size(struct hr_file *file, uint64_t *out);

/* May a request go past the page cache? @right: HR_FILE_READ or HR_FILE_WRITE. */
static inline bool hr__file_direct(const struct hr_file *file, uint32_t right)
{
	return file->fd_direct >= 0 &&
	       !(atomic_load_explicit(&file->direct_denied, memory_order_relaxed) & right);
}

/* What a file was like when it was looked at; a difference means that it may have been changed. */
struct hr__file_stamp {
	uint64_t size;
	int64_t mtime_ns; /* 0 for block devices */
};

/* One system call. Return: 0 or -errno. */
int hr__file_stamp(struct hr_file *file, struct hr__file_stamp *out);

/* hr__file_bring_in() - let the kernel begin to read these bytes, and no others, into the page cache. */
void hr__file_bring_in(const struct hr_file *file, uint64_t offset, size_t len);

/*
 * hr__file_read_alone() - all of @len bytes through the page cache, of which no others are brought in: for
 * heads and tables, see head.c. hr__file_read_onward() - for who reads the file from front to back, and
 * wants the kernel to be ahead.
 * Return: 0, -HR_E_FILE_CHANGED where the file ends before, or -errno.
 */
int hr__file_read_alone(const struct hr_file *file, uint64_t offset, void *buf, size_t len);
int hr__file_read_onward(const struct hr_file *file, uint64_t offset, void *buf, size_t len);

/* hr__file_attach() - hand @what over to the file; its drop() is called when the file goes. */
void hr__file_attach(struct hr_file *file, struct hr__attachment *what);

/*
 * One question about a short range on the data path: no allocation, one system call at most.
 * Return: HR_RESIDENCY_*; UNKNOWN where no honest answer exists (decision table in residency.c).
 */
enum hr_residency hr__file_residency_quick(struct hr_file *file, uint64_t offset, uint64_t len);

#endif

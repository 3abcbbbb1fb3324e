/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/file.h - the inside of an open file: descriptors and geometry, found at open. Descriptors may come and
 * go (rest.h); what was found stays.
 */
#ifndef HR_FILE_FILE_H
#define HR_FILE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* What rest.c keeps of a file whose descriptors may be closed; all but @used is under its lock. */
struct hr__rest {
	struct hr_file *next, *prev; /* of those that are open */
	char *path;                  /* absolute: a program may change its folder */
	uint32_t n_fds;              /* that it has when it is open */
	uint32_t opener;  /* generation of fork() whose thread is opening it, plus one; or 0 */
	atomic_bool used; /* since the file was last looked at */
	bool inode_lasts; /* some files get other numbers later */
	bool checked;     /* who reads it checks the bytes: another file like it does as well */
	uint64_t size;
	int64_t mtime_ns, birth_ns; /* birth: 0 where it is not known */
};

#define HR__MEMORY_ALIGN_MAX 4096u /* of direct I/O: offsets may have to be aligned to more */
#define HR__RESTING (1u << 31)     /* in hr_file.holds: there are no descriptors */

struct hr_file {
	atomic_uint refs;
	atomic_uint holds;     /* of resting files: who needs the descriptors; HR__RESTING */
	struct hr__rest *rest; /* NULL: always open */
	struct hr__attachment *_Atomic attached; /* grows only; who adds has a lock of its own */
	uint64_t id;                             /* never reused */
	char *path;                              /* "" if unknown */
	uint32_t flags;                          /* HR_FILE_* */
	int fd;                                  /* buffered; only under a hold: see rest.h */
	int fd_direct;                           /* O_DIRECT, or -1; likewise */
	uint32_t offset_align;                   /* direct: power of two; 0 without direct I/O */
	uint32_t memory_align;     /* direct: power of two, HR__MEMORY_ALIGN_MAX at most; or 0 */
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
	atomic_uint map_owner; /* generation of fork() whose thread has it, plus one; or 0 */
	bool map_honest;       /* mincore tells this process the truth about the mapping */
	atomic_uint residency; /* enum hr__residency_rule; CACHESTAT becomes MINCORE if refused */
};

void hr__file_get(struct hr_file *file);
void hr__file_put(struct hr_file *file);

/*
 * hr__file_hold() - have the descriptors open until hr__file_release(). @must: false: not if that takes more
 * descriptors than resting files may have; whoever holds another file can wait for those to be fewer.
 * Return: 0; 1: the file was opened again for it; -EAGAIN: none may be opened now; -HR_E_FILE_CHANGED,
 * -code, with a sentence.
 */
int hr__file_wake(struct hr_file *file, bool must);
static inline int hr__file_hold(struct hr_file *file, bool must)
{
	if (!file->rest)
		return 0;
	/* Acquire: the descriptors were written before the mark went. */
	if (atomic_fetch_add_explicit(&file->holds, 1, memory_order_acquire) & HR__RESTING)
		return hr__file_wake(file, must);
	if (!atomic_load_explicit(&file->rest->used, memory_order_relaxed))
		atomic_store_explicit(&file->rest->used, true, memory_order_relaxed);
	return 0;
}

static inline void hr__file_release(struct hr_file *file)
{
	/* Release: what was done with the descriptors comes before their end. */
	if (file->rest)
		atomic_fetch_sub_explicit(&file->holds, 1, memory_order_release);
}

/* Would a hold be had without a system call? */
static inline bool hr__file_is_open(const struct hr_file *file)
{
	return !file->rest ||
	       !(atomic_load_explicit(&file->holds, memory_order_relaxed) & HR__RESTING);
}

/*
 * hr__file_open_fd() - open(2), once more when something came between: a signal, or a lease of somebody
 * else's, which is taken back then. Return: a descriptor or -errno.
 */
int hr__file_open_fd(const char *path, int flags, mode_t mode);

/* open(2) of @path failed with @err: the sentence. Return: @err. */
int hr__file_fail_open(int err, const char *path);

/* hr__file_open() - as hr_file_open(). @memo: as of hr__fsinfo_find(). */
struct hr__fs_memo;
int hr__file_open(const char *path, uint32_t flags, struct hr__fs_memo *memo, struct hr_file **out);

/* hr__file_new() - a file without descriptors, one reference, or NULL. */
struct hr_file *hr__file_new(const char *path, uint32_t flags);

/* Size as of now: st_size, or the length of a block device. Under a hold. Return: 0 or -errno. */
int hr__file_size(struct hr_file *file, uint64_t *out);

/* Is there direct I/O, whether the descriptor for it is open or not? */
static inline bool hr__file_has_direct(const struct hr_file *file)
{
	return file->offset_align != 0;
}

/* May a request go past the page cache? @right: HR_FILE_READ or HR_FILE_WRITE. */
static inline bool hr__file_direct(const struct hr_file *file, uint32_t right)
{
	return hr__file_has_direct(file) &&
	       !(atomic_load_explicit(&file->direct_denied, memory_order_relaxed) & right);
}

/* What a file was like when it was looked at; a difference means that it may have been changed. */
struct hr__file_stamp {
	uint64_t size;
	int64_t mtime_ns; /* 0 for block devices */
};

/* One system call, under a hold. Return: 0 or -errno. */
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
 * One question about a short range on the data path: no allocation, under a hold. One system call; where it
 * is not cachestat that is asked, a few more for the first question about a file, or when it has grown.
 * Return: HR_RESIDENCY_*; UNKNOWN where no honest answer exists (decision table in residency.c).
 */
enum hr_residency hr__file_residency_quick(struct hr_file *file, uint64_t offset, uint64_t len);

#endif

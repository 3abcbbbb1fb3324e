/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/residency.c - is a range in the page cache? Hot, cold, mixed, or honestly unknown; changes
 * nothing in the cache and knows nothing of what the answer is used for.
 *
 * Whom to ask, by file system (the rule is in fsinfo.c's table, found at open):
 *
 *   file system            cachestat(2), Linux 6.5       mincore(2) on a mapping     rule
 *   ext4 xfs btrfs f2fs    right                         right                       cachestat
 *   vfat squashfs block
 *   overlay                0: asks its own empty inode   right: maps the file below  mincore
 *   FUSE, 9p               0 or a part: a server has     the same                    unknown
 *                          the rest
 *   tmpfs ramfs hugetlbfs  the file is memory            the file is memory          hot
 *
 *   kernel before 6.5      ENOSYS                        as above                    mincore
 *   a foreign file that    EPERM                         claims that everything is   unknown
 *   one may not write                                    resident
 *
 * The last line is why the mapping is one page longer than the file: no page can be resident there,
 * so a process that mincore tells "resident" is being lied to. The mapping is never touched, so a
 * file that shrinks does no harm.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"

#define LOCK_TRIES 1024 /* some 20 us among many threads; a wrong guess costs a read of the drive */
#define VEC_PAGES 4096u /* pages asked for at once */
#define QUICK_PAGES 1024u

struct count {
	uint64_t pages, resident;
};

static uint64_t page_bytes(void)
{
	static atomic_uint_fast64_t known;
	uint64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);

	if (!bytes) {
		bytes = (uint64_t)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&known, bytes, memory_order_relaxed);
	}
	return bytes;
}

static uint64_t pages_of(uint64_t offset, uint64_t len)
{
	uint64_t page = page_bytes();

	return len ? (offset + len - 1) / page - offset / page + 1 : 0;
}

static enum hr_residency state_of(struct count c)
{
	if (!c.pages)
		return HR_RESIDENCY_UNKNOWN;
	if (!c.resident)
		return HR_RESIDENCY_COLD;
	return c.resident >= c.pages ? HR_RESIDENCY_HOT : HR_RESIDENCY_MIXED;
}

static unsigned int rule_of(struct hr_file *file)
{
	return atomic_load_explicit(&file->residency, memory_order_relaxed);
}

/* Return: true and *resident; false when cachestat is not to be asked (any more). */
static bool ask_cachestat(struct hr_file *file, uint64_t offset, uint64_t len, uint64_t *resident)
{
	struct hr__cachestat cs;

	if (hr__sys->cachestat(file->fd, offset, len, &cs) < 0) {
		/* ENOSYS, EPERM, EOPNOTSUPP (huge pages): none of them goes away. */
		atomic_store_explicit(&file->residency, HR__RESIDENCY_MINCORE,
				      memory_order_relaxed);
		return false;
	}
	*resident = cs.cached;
	return true;
}

/* -- mincore ---------------------------------------------------------------------------------- */

static bool lock_map(struct hr_file *file)
{
	unsigned int mine = hr__fork_generation() + 1, owner = 0;

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (atomic_compare_exchange_strong_explicit(&file->map_owner, &owner, mine,
							    memory_order_acquire,
							    memory_order_relaxed)) {
			if (owner)
				file->map = NULL; /* of a thread of the parent: in what state? */
			return true;
		}
		owner = owner == mine ? 0 : owner;
	}
	return false;
}

static void unlock_map(struct hr_file *file)
{
	atomic_store_explicit(&file->map_owner, 0, memory_order_release);
}

/* Map the file as it is now. Return: NULL or why it cannot be asked. */
static const char *make_map(struct hr_file *file)
{
	uint64_t size, page = page_bytes();
	unsigned char beyond = 1;
	void *map;

	if (hr__file_size(file, &size) < 0)
		return "the size of the file cannot be found";
	if (size > INT64_MAX - 2 * page)
		return "the file is too large to map";
	size = hr__align_up(size, page) + page;
	map = hr__sys->mmap(size, PROT_READ, MAP_SHARED, file->fd, 0);
	if (!map)
		return "the file cannot be mapped to ask mincore";
	if (file->map)
		hr__sys->munmap(file->map, file->map_len);
	file->map = map;
	file->map_len = size;
	file->map_honest =
		hr__sys->mincore((char *)map + size - page, page, &beyond) == 0 && !(beyond & 1);
	return NULL;
}

/* Have a mapping that covers bytes up to @end and tells the truth. The lock is held. */
static const char *need_map(struct hr_file *file, uint64_t end)
{
	const char *why = NULL;

	if (!file->map || file->map_len - page_bytes() < end)
		why = make_map(file);
	if (why)
		return why;
	if (!file->map_honest)
		return "the kernel tells only the file's owner or writers";
	return NULL;
}

/* Count over whole pages of the mapping in steps of @vec's length. The lock is held. */
static const char *count_pages(struct hr_file *file, uint64_t offset, uint64_t len,
			       unsigned char *vec, uint64_t vec_pages, uint64_t *resident)
{
	uint64_t page = page_bytes(), at = hr__align_down(offset, page);
	uint64_t end = hr__min(hr__align_up(offset + len, page), file->map_len - page);

	*resident = 0;
	while (at < end) {
		uint64_t step = hr__min(end - at, vec_pages * page);

		if (hr__sys->mincore((char *)file->map + at, step, vec) < 0)
			return "mincore failed";
		for (uint64_t i = 0; i < step / page; i++)
			*resident += vec[i] & 1;
		at += step;
	}
	return NULL;
}

static const char *ask_mincore(struct hr_file *file, uint64_t offset, uint64_t len,
			       unsigned char *vec, uint64_t vec_pages, uint64_t *resident)
{
	const char *why;

	if (!(file->flags & HR_FILE_READ))
		return "the file is not open for reading";
	if (!lock_map(file))
		return "another thread is asking";
	why = need_map(file, offset + len);
	if (!why)
		why = count_pages(file, offset, len, vec, vec_pages, resident);
	unlock_map(file);
	return why;
}

/* -- the two questions ------------------------------------------------------------------------ */

enum hr_residency hr__file_residency_quick(struct hr_file *file, uint64_t offset, uint64_t len)
{
	struct count c = {.pages = pages_of(offset, len)};
	unsigned char vec[QUICK_PAGES];

	if (!len || len > INT64_MAX || offset > INT64_MAX - len)
		return HR_RESIDENCY_UNKNOWN;
	switch (rule_of(file)) {
	case HR__RESIDENCY_HOT:
		return HR_RESIDENCY_HOT;
	case HR__RESIDENCY_CACHESTAT:
		if (ask_cachestat(file, offset, len, &c.resident))
			return state_of(c);
		__attribute__((fallthrough)); /* refused, for this file for ever */
	case HR__RESIDENCY_MINCORE:
		if (c.pages > QUICK_PAGES ||
		    ask_mincore(file, offset, len, vec, QUICK_PAGES, &c.resident))
			return HR_RESIDENCY_UNKNOWN;
		return state_of(c);
	default:
		return HR_RESIDENCY_UNKNOWN;
	}
}

/* The range as it is asked about: cut at the end of the file. Return: 0 or -code. */
static int clamp_range(struct hr_file *file, uint64_t offset, uint64_t *len)
{
	uint64_t size, end;
	int err = hr__file_size(file, &size);

	if (err < 0)
		return hr__fail(-err, "%s: its size cannot be found; open it again", file->path);
	if (!*len)
		end = size;
	else if (hr__add_overflows(offset, *len, &end))
		return hr__fail(EINVAL,
				"%s: offset and length overflow; ask about a range inside the "
				"file",
				file->path);
	end = hr__min(end, size);
	*len = end > offset ? end - offset : 0;
	return 0;
}

static int ask(struct hr_file *file, uint64_t offset, uint64_t len_bytes,
	       struct hr_residency_info *out)
{
	unsigned char vec[VEC_PAGES];
	struct count c = {0};
	int err = clamp_range(file, offset, &len_bytes);

	if (err < 0)
		return err;
	*out = (struct hr_residency_info){.method = "none", .reason = ""};
	c.pages = pages_of(offset, len_bytes);
	out->pages = c.pages;
	if (!c.pages) {
		out->reason = "the range is empty or past the end of the file";
		return 0;
	}
	if (rule_of(file) == HR__RESIDENCY_HOT) {
		c.resident = c.pages;
	} else if (rule_of(file) == HR__RESIDENCY_NONE) {
		out->reason =
			"a server below this file system keeps pages that the kernel cannot see";
		return 0;
	} else if (rule_of(file) == HR__RESIDENCY_CACHESTAT &&
		   ask_cachestat(file, offset, len_bytes, &c.resident)) {
		out->method = "cachestat";
	} else {
		const char *why = ask_mincore(file, offset, len_bytes, vec, VEC_PAGES, &c.resident);

		if (why) {
			out->reason = why;
			return 0;
		}
		out->method = "mincore";
	}
	out->pages_resident = hr__min(c.resident, c.pages);
	out->state = state_of(c);
	return 0;
}

int hr_file_residency(struct hr_file *file, uint64_t offset, uint64_t len_bytes,
		      struct hr_residency_info *out)
{
	int err = hr__file_hold(file, true);

	if (err < 0)
		return err;
	err = ask(file, offset, len_bytes, out);
	hr__file_release(file);
	return err;
}

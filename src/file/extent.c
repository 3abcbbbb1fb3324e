/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/extent.c - turns FIEMAP answers into extents and holes; trusts no number in them.
 *
 * The kernel's answer may come from a file system in user space. Whatever it says, each round moves
 * forward or is the last one, and at most HR__EXTENTS_MAX extents are counted.
 */
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/extent.h"

#define BATCH 64u /* extents a call */

/* The question, with room for the answer behind it. */
union batch {
	struct fiemap head;
	unsigned char room[sizeof(struct fiemap) + BATCH * sizeof(struct fiemap_extent)];
};

static uint32_t map_flags(uint32_t fe)
{
	uint32_t flags = 0;

	/* Encoded: the bytes on the drive are not those of the file, so their place is no help. */
	if (fe & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |
		  FIEMAP_EXTENT_DATA_ENCRYPTED))
		flags |= HR_EXTENT_UNKNOWN;
	if (fe & (FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL))
		flags |= HR_EXTENT_INLINE;
	if (fe & FIEMAP_EXTENT_UNWRITTEN)
		flags |= HR_EXTENT_UNWRITTEN;
	if (fe & FIEMAP_EXTENT_SHARED)
		flags |= HR_EXTENT_SHARED;
	return flags;
}

/* Return: false when no more are counted. */
static bool put(struct hr__extents *out, uint64_t from, uint64_t to, uint64_t device,
		uint32_t flags)
{
	if (out->total == HR__EXTENTS_MAX) {
		out->more = true;
		return false;
	}
	if (out->n < out->cap) {
		struct hr_extent *e = &out->list[out->n++];

		e->file_offset = from;
		e->len = to - from;
		e->device_offset = device;
		e->flags = flags;
	}
	out->total++;
	out->resume = to;
	return true;
}

/*
 * One extent of the kernel, with the hole before it, cut to [out->resume, end).
 * Return: false when no more are counted.
 */
static bool take_extent(struct hr__extents *out, const struct fiemap_extent *fe, uint64_t end)
{
	uint64_t from = hr__max(fe->fe_logical, out->resume), to, device;
	uint32_t flags = map_flags(fe->fe_flags);

	if (hr__add_overflows(fe->fe_logical, fe->fe_length, &to))
		to = UINT64_MAX;
	to = hr__min(to, end);
	if (to <= from)
		return true; /* empty, or told before */
	if (from > out->resume && !put(out, out->resume, from, 0, HR_EXTENT_HOLE))
		return false;
	if (hr__add_overflows(fe->fe_physical, from - fe->fe_logical, &device))
		flags |= HR_EXTENT_UNKNOWN;
	if (flags & (HR_EXTENT_UNKNOWN | HR_EXTENT_INLINE))
		device = 0;
	return put(out, from, to, device, flags);
}

/* Ask once from out->resume on. Return: 1 to go on, 0 at the end, or -errno. */
static int ask(struct hr_file *file, struct hr__extents *out, uint64_t end)
{
	union batch b;
	uint64_t before = out->resume;
	uint32_t n;
	int err;

	memset(&b, 0, sizeof(b));
	b.head.fm_start = before;
	b.head.fm_length = end - before;
	b.head.fm_extent_count = BATCH;
	err = hr__sys->ioctl(file->fd, FS_IOC_FIEMAP, &b.head);
	if (err < 0)
		return err;
	n = (uint32_t)hr__min(b.head.fm_mapped_extents, BATCH);
	for (uint32_t i = 0; i < n; i++) {
		if (!take_extent(out, &b.head.fm_extents[i], end))
			return 0;
	}
	if (n < BATCH || (b.head.fm_extents[n - 1].fe_flags & FIEMAP_EXTENT_LAST))
		return 0;
	if (out->resume == before)
		out->more = true; /* a full answer about nothing: asking again would not end */
	return out->resume > before && out->resume < end;
}

int hr__file_extents(struct hr_file *file, uint64_t offset, uint64_t len, struct hr__extents *out)
{
	uint64_t size, end;
	int ret = hr__file_size(file, &size);

	if (ret < 0)
		return ret;
	if (!len)
		end = size;
	else if (hr__add_overflows(offset, len, &end))
		return -EINVAL;
	end = hr__min(end, size);
	out->n = 0;
	out->total = 0;
	out->more = false;
	out->resume = offset;
	if (file->is_block_device) {
		if (offset < end)
			put(out, offset, end, offset, 0);
		return 0;
	}
	while (offset < end) {
		ret = ask(file, out, end);
		if (ret < 0)
			return ret;
		if (!ret)
			break;
	}
	if (!out->more && out->resume < end)
		put(out, out->resume, end, 0, HR_EXTENT_HOLE);
	return 0;
}

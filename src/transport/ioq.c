/* SPDX-License-Identifier: Apache-2.0 */
/* transport/ioq.c - chooses the queue to the kernel and digests its results; knows no device. */
#include <errno.h>
#include <stdio.h>

#include <headrace/config.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/ioq.h"
#include "transport/seg.h"

/* Results without progress that a segment survives. EAGAIN can come in bursts, EOF is asked once. */
#define TRIES_MAX 1000u

int hr__ioq_open(const struct hr__ioq_options *opts, struct hr__ioq **out)
{
	char reason[sizeof((*out)->reason)];
	struct hr__ioq *ring;
	int ret = hr__uring_open(opts, &ring, reason, sizeof(reason));

	if (ret == 0 && opts->threads) {
		ret = hr__crew_open(opts, ring, out);
		if (ret)
			ring->ops->close(ring);
		return ret;
	}
	if (ret == 0) {
		*out = ring;
		return 0;
	}
	ret = hr__pool_open(opts, false, out);
	if (ret)
		return ret;
	snprintf((*out)->reason, sizeof((*out)->reason), "%s", reason);
	return 0;
}

static bool seg_fail(struct hr__seg *seg, int64_t code)
{
	seg->error = (int32_t)code;
	return true;
}

/* Something that should not last did happen again. */
static bool seg_retry(struct hr__seg *seg, int64_t code, struct hr_stats *stats)
{
	if (++seg->tries > TRIES_MAX)
		return seg_fail(seg, code);
	if (stats)
		stats->retries++;
	return false;
}

/* Where to go on after a short result: offset and address of what is left stay aligned. */
static uint32_t resume_at(const struct hr__seg *seg, uint32_t end)
{
	const struct hr_file *file = seg->file;

	if (!seg->direct)
		return end;
	return (uint32_t)hr__align_down(end, hr__max(file->offset_align, file->memory_align));
}

/* A read came back short at @end: is that the end of the file, or just a short read? */
static bool seg_short_read(struct hr__seg *seg, uint32_t end, bool stuck, struct hr_stats *stats)
{
	uint64_t size = 0;
	int ret;

	if (!stuck) {
		seg->stuck_at = end;
		seg->done = resume_at(seg, end);
		return seg_retry(seg, -EIO, stats);
	}
	ret = hr__file_size(seg->file, &size);
	if (ret)
		return seg_fail(seg, ret);
	if (size > seg->plan.off + end)
		return seg_retry(seg, -EIO, stats);
	seg->done = end;
	return true;
}

/*
 * Some file systems let O_DIRECT be set, even read with it, and refuse a request later: overlayfs on
 * squashfs, sshfs for writes. The rest of the segment, and of the file, takes the page cache.
 */
static bool seg_go_buffered(struct hr__seg *seg, struct hr_stats *stats)
{
	uint32_t right = hr__seg_right(seg);

	if (!seg->direct || hr_config_get()->require_direct)
		return false;
	if (!(atomic_fetch_or_explicit(&seg->file->direct_denied, right, memory_order_relaxed) &
	      right))
		hr__log(HR_LOG_WARN, "%s: direct %s are refused: they go through the page cache",
			seg->file->path, seg->op == HR_READ ? "reads" : "writes");
	seg->direct = false;
	seg->fd = seg->file->fd;
	return !seg_retry(seg, -EINVAL, stats);
}

bool hr__seg_step(struct hr__seg *seg, int64_t res, struct hr_stats *stats)
{
	uint32_t want = seg->op == HR_READ ? seg->plan.need : seg->plan.len;
	uint32_t end;

	/* ECANCELED: a thread that sent it has ended, and a queue that migrates goes on elsewhere. */
	if (res == -EINTR || res == -EAGAIN || res == -ECANCELED)
		return seg_retry(seg, res, stats);
	if (res == -EINVAL && seg_go_buffered(seg, stats))
		return false;
	if (res < 0)
		return seg_fail(seg, res);
	if (res > seg->plan.len - seg->done)
		return seg_fail(seg, -EIO);
	end = seg->done + (uint32_t)res;
	if (end >= want) {
		seg->done = end;
		return true;
	}
	if (seg->op == HR_READ)
		return seg_short_read(seg, end, res == 0 || end == seg->stuck_at, stats);
	/* A short write goes on from the last whole block; writing a block twice is harmless. */
	if (res > 0)
		seg->done = resume_at(seg, end);
	return seg_retry(seg, -EIO, stats);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/cached.c - hot or cold is measured: reads that the page cache can serve are copied at
 * once, without a trip through the queue; the rest goes to the drive.
 *
 * A wrong guess costs little but is not free: RWF_NOWAIT on a cold range starts read-ahead, which
 * would read the range twice. So a file that looks cold is asked about first (one cheap system
 * call), and only now and then.
 */
#include <errno.h>
#include <sys/uio.h>

#include "base/sys.h"
#include "transport/seg.h"

#define HOT_RUN_SURE 32u  /* hits in a row after which nobody asks any more */
#define COLD_RUN_SURE 32u /* misses in a row after which only one in COLD_SKIP is asked about */
#define COLD_SKIP 16u
#define HOT_ASK                                                                                    \
	256u /* hits of a mapped file, which cannot say no, after which one is asked about */

void hr__seg_aim(struct hr__seg *seg, const struct hr_engine_options *opts)
{
	bool wants_cache = seg->op == HR_READ && (opts->buffered || seg->cache == HR_CACHE_KEEP);

	seg->direct = !seg->plan.unaligned && !wants_cache && !seg->again &&
		      hr__file_direct(seg->file, hr__seg_right(seg));
	seg->fd = seg->direct ? seg->file->fd_direct : seg->file->fd;
	seg->fixed = -1;
}

static void went_cold(struct hr__heat *heat)
{
	heat->hot_run = 0;
	if (++heat->cold_run >= COLD_RUN_SURE)
		heat->skip = COLD_SKIP - 1;
}

bool hr__ask_hot(struct hr__seg *seg, struct hr_stats *stats, bool mapped)
{
	struct hr__heat *heat = seg->heat;

	if (seg->file->memory_backed)
		return true;
	if (mapped && heat->hot_run >= HOT_RUN_SURE + HOT_ASK)
		heat->hot_run = HOT_RUN_SURE - 1;
	if (heat->hot_run >= HOT_RUN_SURE) {
		heat->hot_run += mapped;
		return true;
	}
	seg->cold = true;
	stats->probes++;
	switch (hr__file_residency_quick(seg->file, seg->plan.off, seg->plan.need)) {
	case HR_RESIDENCY_HOT:
		heat->cold_run = 0;
		heat->hot_run += mapped;
		seg->cold = false;
		return true;
	case HR_RESIDENCY_COLD:
	case HR_RESIDENCY_UNKNOWN:
		went_cold(heat);
		return false;
	default:
		heat->hot_run = 0;
		return false;
	}
}

bool hr__cached_read(struct hr__seg *seg, const struct hr_engine_options *opts,
		     struct hr_stats *stats)
{
	uint32_t skip = seg->plan.first.seg_off; /* nobody wants what lies before it */
	int flags = seg->file->memory_backed ? 0 : RWF_NOWAIT;
	ssize_t n;

	if (opts->direct || !(seg->file->nowait || seg->file->memory_backed) ||
	    !hr__looks_hot(seg, stats, false))
		return false;
	stats->preads++;
	n = hr__sys->pread_flags(seg->file->fd, (uint8_t *)seg->addr + skip, seg->plan.need - skip,
				 seg->plan.off + skip, flags);
	if (n != (ssize_t)(seg->plan.need - skip)) {
		went_cold(seg->heat);
		return false;
	}
	seg->heat->hot_run++;
	seg->heat->cold_run = 0;
	seg->done = seg->plan.need;
	seg->cached = true;
	return true;
}

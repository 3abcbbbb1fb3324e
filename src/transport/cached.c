/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/cached.c - hot or cold is measured: reads that the page cache can serve are copied at
 * once, without a trip through the queue, or by the queue's threads where there are some and it is
 * worth waking one; the rest goes to the drive.
 *
 * A wrong guess costs little but is not free: RWF_NOWAIT on a cold range starts read-ahead, which
 * would read the range twice. So a file that looks cold is asked about first (one cheap system
 * call), and only now and then.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/sys.h"
#include "transport/ioq.h"
#include "transport/mapping.h"
#include "transport/seg.h"
#include "transport/sigbus.h"

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

static uint32_t wanted(const struct hr__seg *seg)
{
	return seg->plan.need - seg->plan.first.seg_off;
}

static bool can_say_no(const struct hr_file *file)
{
	return file->nowait || file->memory_backed;
}

bool hr__cached_copy(struct hr__seg *seg)
{
	uint32_t skip = seg->plan.first.seg_off; /* nobody wants what lies before it */
	int flags = seg->file->memory_backed ? 0 : RWF_NOWAIT;
	ssize_t n = hr__sys->pread_flags(seg->file->fd, (uint8_t *)seg->addr + skip, wanted(seg),
					 seg->plan.off + skip, flags);

	seg->cached = n == (ssize_t)wanted(seg);
	if (seg->cached)
		seg->done = seg->plan.need;
	return seg->cached;
}

void hr__cached_settle(struct hr__seg *seg)
{
	if (!seg->cached) {
		went_cold(seg->heat);
		return;
	}
	seg->heat->hot_run++;
	seg->heat->cold_run = 0;
}

bool hr__crew_suits(const struct hr__seg *seg, const struct hr__ioq *ioq)
{
	return ioq->crew && wanted(seg) >= HR__CREW_MIN && can_say_no(seg->file);
}

/*
 * A system call a sample costs as much as half of the copy. Whoever takes the segment in must look at the
 * file again before it counts: see hr__mapping_doubtful().
 */
static void copy_mapped(struct hr__seg *seg)
{
	struct hr__mapping *m = seg->plain;
	uint32_t skip = seg->plan.first.seg_off;

	if (!hr__mapping_hold(m, seg->plan.off + skip, wanted(seg), seg->mtime_ns))
		return;
	hr__sigbus_enter(m->base, m->len, &m->broken);
	memcpy((uint8_t *)seg->addr + skip, m->base + seg->plan.off + skip, wanted(seg));
	hr__sigbus_leave();
	seg->cached = seg->copied = !atomic_load(&m->broken);
	if (seg->cached)
		seg->done = seg->plan.need;
}

bool hr__seg_read(struct hr__seg *seg, const struct hr__transport_env *env)
{
	bool plain = seg->plain && !seg->again && !env->ioq->crew;
	bool hot = !env->opts->direct && (plain || can_say_no(seg->file)) &&
		   hr__looks_hot(seg, env->stats, plain);

	if (hot && plain)
		copy_mapped(seg);
	if (seg->copied)
		return true;
	if (hot && !env->ioq->crew && can_say_no(seg->file)) {
		hr__cached_copy(seg);
		hr__cached_settle(seg);
		env->stats->preads++;
		if (seg->cached)
			return true;
		hot = false;
	}
	seg->hot = hot;
	env->ioq->ops->push(env->ioq, seg);
	return false;
}

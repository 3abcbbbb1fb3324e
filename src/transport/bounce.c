/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/bounce.c - the path "bounce": drive to staging ring to device memory, all three moving at
 * once. A read lands in the ring and goes on by the mover; a write takes the same way backwards.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "transport/ioq.h"
#include "transport/mapping.h"
#include "transport/mover.h"
#include "transport/staging.h"

#define GAP 4096u /* reading this much too much is cheaper than one more request */

struct bounce {
	struct hr__transport t;
	struct hr__transport_env env;
	struct hr__seg_list sending; /* writes whose bytes are in the ring, not queued yet */
	struct hr__seg_list done;
	struct hr__mover mover;
};

static int bounce_score(const struct hr_file *file, const struct hr_device *dev,
			const struct hr__shape *shape, struct hr__limits *limits, char *reason,
			size_t reason_size)
{
	if (shape->cast && !(dev->caps & HR__MEM_CAP_CAST)) {
		snprintf(reason, reason_size, "%s cannot convert elements: %s", dev->info.name,
			 dev->info.kernels_reason);
		return -HR_E_NO_PATH;
	}
	*limits = (struct hr__limits){
		.offset_align = file->offset_align ? file->offset_align : 1,
		.memory_align = 1,
		.unit = 1,
		.gap = GAP,
		.staged = true,
		.write = shape->op == HR_WRITE,
	};
	return 10;
}

static int bounce_open(const struct hr__transport_env *env, struct hr__transport **out)
{
	struct bounce *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return hr__fail(ENOMEM, "%s: no memory for the path bounce; free some",
				env->dev->info.name);
	b->t.ops = &hr__transport_bounce;
	b->env = *env;
	ret = hr__mover_open(&b->mover, env, env->staging->len / 2);
	if (ret) {
		free(b);
		return ret;
	}
	*out = &b->t;
	return 0;
}

static bool bounce_room(struct hr__transport *t, uint32_t len)
{
	struct bounce *b = (struct bounce *)t;

	return hr__ioq_room(b->env.ioq) && hr__staging_room(b->env.staging, len);
}

static void bounce_arrived(struct hr__transport *t, struct hr__seg *seg)
{
	struct bounce *b = (struct bounce *)t;

	if (seg->op == HR_READ) {
		hr__mover_in(&b->mover, seg);
	} else {
		hr__staging_give(b->env.staging, seg->ring_slot);
		hr__seg_list_add(&b->done, seg);
	}
}

/* Blocks may be larger than a page; where their bytes go in memory need not be aligned to more than one. */
static uint32_t ring_align(const struct hr__seg *seg)
{
	_Static_assert(HR__MEMORY_ALIGN_MAX <= HR__STAGING_ALIGN, "what drives may ask for");
	return (uint32_t)hr__min(hr__seg_align(seg), HR__STAGING_ALIGN);
}

static void bounce_submit(struct hr__transport *t, struct hr__seg *seg)
{
	struct bounce *b = (struct bounce *)t;

	seg->owner = t;
	seg->addr =
		hr__staging_take(b->env.staging, seg->plan.len, ring_align(seg), &seg->ring_slot);
	hr__seg_aim(seg, b->env.opts);
	if (b->env.ioq->fixed)
		seg->fixed = 0;
	if (seg->op == HR_WRITE)
		hr__mover_out(&b->mover, seg);
	else if (hr__seg_read(seg, &b->env))
		hr__mover_in(&b->mover, seg);
}

/* What the mover has finished: reads are done, writes go on to the drive. */
static void take_moved(struct bounce *b)
{
	struct hr__look look = {0};
	struct hr__seg *seg;

	while ((seg = hr__seg_list_take(&b->mover.moved))) {
		if (seg->op == HR_WRITE && !seg->error) {
			hr__seg_list_add(&b->sending, seg);
			continue;
		}
		if (seg->copied && !seg->error) {
			seg->doubt = hr__mapping_doubtful(seg->plain, seg->mtime_ns,
							  seg->plan.off + seg->plan.need, &look);
			b->env.stats->reread += seg->doubt;
		}
		hr__staging_give(b->env.staging, seg->ring_slot);
		hr__seg_list_add(&b->done, seg);
	}
	while (b->sending.head && hr__ioq_room(b->env.ioq))
		b->env.ioq->ops->push(b->env.ioq, hr__seg_list_take(&b->sending));
}

static uint32_t bounce_reap(struct hr__transport *t, struct hr__seg **out, uint32_t max, bool idle)
{
	struct bounce *b = (struct bounce *)t;

	hr__mover_turn(&b->mover, idle);
	take_moved(b);
	return hr__seg_list_drain(&b->done, out, max);
}

static int bounce_wait(struct hr__transport *t, uint64_t timeout_ns)
{
	return hr__mover_wait(&((struct bounce *)t)->mover, timeout_ns);
}

static void bounce_close(struct hr__transport *t)
{
	struct bounce *b = (struct bounce *)t;

	hr__mover_close(&b->mover);
	free(b);
}

const struct hr__transport_ops hr__transport_bounce = {
	.name = "bounce",
	.path = HR_PATH_BOUNCE,
	.score = bounce_score,
	.open = bounce_open,
	.room = bounce_room,
	.submit = bounce_submit,
	.arrived = bounce_arrived,
	.reap = bounce_reap,
	.wait = bounce_wait,
	.close = bounce_close,
};

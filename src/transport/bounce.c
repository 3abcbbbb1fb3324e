/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/bounce.c - the path "bounce": drive to staging ring to device memory, all three moving at
 * once.
 *
 * A read lands in the ring and waits in `arrived` until moving it pays: when some request is whole
 * in host memory, when a large segment came, when half of the ring is waiting, or when nothing
 * else can happen. Then everything that waits goes to the device in one list, so that a batch of
 * small samples costs one launch. A lane that copies on the CPU moves each segment at once, while it
 * is in the cache. A write takes the same way backwards.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <headrace/error.h>

#include "transport/ioq.h"
#include "transport/seg.h"
#include "transport/staging.h"

#define LARGE_SEGMENT (128u << 10) /* worth a copy of its own */
#define GAP 4096u                  /* reading this much too much is cheaper than one more request */

struct bounce {
	struct hr__transport t;
	struct hr__transport_env env;
	struct hr_lane *lane;
	bool at_once; /* the lane works on the CPU */
	bool flush;   /* something in `arrived` should not wait longer */
	uint64_t arrived_bytes;
	struct hr__seg_list arrived; /* read, not moved yet */
	struct hr__seg_list leaving; /* to be written, not moved out yet */
	struct hr__seg_list moving;  /* on the lane, in the order of their tickets */
	struct hr__seg_list done;
	uint32_t n_moves;
	struct hr__move moves[HR__LANE_MOVES_MAX];
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
		return -ENOMEM;
	b->t.ops = &hr__transport_bounce;
	b->env = *env;
	b->at_once = env->dev->caps & HR__MEM_CAP_HOST_VISIBLE;
	ret = env->dev->ops->lane_open(env->dev, NULL, &b->lane);
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

	return hr__staging_room(b->env.staging, len);
}

/* The segment has left the ring; the engine gets it. */
static void finish(struct bounce *b, struct hr__seg *seg)
{
	hr__staging_give(b->env.staging, seg->ring_slot);
	hr__seg_list_add(&b->done, seg);
}

static void fail_list(struct bounce *b, struct hr__seg_list *list, int code)
{
	struct hr__seg *seg;

	while ((seg = hr__seg_list_take(list))) {
		seg->error = code;
		finish(b, seg);
	}
}

/* The pieces of one segment, appended to the list for the lane. */
static void add_moves(struct bounce *b, struct hr__seg *seg)
{
	for (struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		uint8_t *ring = (uint8_t *)seg->addr + d->seg_off;
		void *device = hr__dest_address(seg, d);
		uint32_t len = seg->op == HR_READ ? hr__dest_valid(seg, d) : d->len;

		if (!len)
			continue;
		b->moves[b->n_moves++] = seg->op == HR_READ ? (struct hr__move){ring, device, len}
							    : (struct hr__move){device, ring, len};
	}
}

/* Hand the collected pieces to the lane, all of one kind. Return: 0 or -code. */
static int issue(struct bounce *b, const struct hr__seg *kind, uint64_t *ticket)
{
	enum hr__where where = kind->op == HR_READ ? HR__HOST_TO_DEVICE : HR__DEVICE_TO_HOST;
	uint64_t bytes = 0;
	int ret;

	if (!b->n_moves)
		return 0;
	for (uint32_t i = 0; i < b->n_moves; i++)
		bytes += b->moves[i].len;
	ret = b->lane->ops->move(b->lane, where, b->moves, b->n_moves, kind->from, kind->to,
				 ticket);
	b->n_moves = 0;
	if (ret < 0)
		return ret;
	b->env.stats->copies += (uint32_t)ret;
	b->env.stats->bytes_moved += bytes;
	return 0;
}

static bool same_kind(const struct hr__seg *a, const struct hr__seg *b)
{
	return a->op == b->op && a->from == b->from && a->to == b->to;
}

/*
 * Move a list of segments: the longest runs of one kind that fit one call. A segment's own pieces
 * always fit: a plan gives a segment at most HR__LANE_MOVES_MAX of them (the pool's size).
 */
static void move_list(struct bounce *b, struct hr__seg_list *list)
{
	while (list->head) {
		struct hr__seg_list run = {0};
		struct hr__seg *kind = list->head, *seg;
		uint64_t ticket = 0;
		int ret;

		while (list->head && same_kind(list->head, kind) &&
		       b->n_moves + list->head->plan.n_dests <= HR__LANE_MOVES_MAX) {
			seg = hr__seg_list_take(list);
			add_moves(b, seg);
			hr__seg_list_add(&run, seg);
		}
		ret = issue(b, kind, &ticket);
		if (ret < 0) {
			fail_list(b, &run, ret);
			continue;
		}
		while ((seg = hr__seg_list_take(&run))) {
			seg->ticket = ticket;
			hr__seg_list_add(&b->moving, seg);
		}
	}
}

/* One request less to wait for in host memory; the last one of a request ends the collecting. */
static void count_arrival(struct bounce *b, struct hr__seg *seg)
{
	for (struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		struct hr_io *io = d->owner;

		io->arriving_ -= d->len;
		if (io->arriving_ == 0)
			b->flush = true;
	}
}

/* A lane on the CPU: move now, while the bytes are in its cache. */
static void move_at_once(struct bounce *b, struct hr__seg *seg)
{
	uint64_t ticket;
	int ret;

	add_moves(b, seg);
	ret = issue(b, seg, &ticket);
	if (ret < 0)
		seg->error = ret;
}

static void read_arrived(struct bounce *b, struct hr__seg *seg)
{
	count_arrival(b, seg);
	if (seg->error || b->at_once) {
		if (!seg->error)
			move_at_once(b, seg);
		finish(b, seg);
		return;
	}
	hr__seg_list_add(&b->arrived, seg);
	b->arrived_bytes += seg->plan.len;
	if (seg->plan.len >= LARGE_SEGMENT || b->arrived_bytes >= b->env.staging->len / 2)
		b->flush = true;
}

static void bounce_arrived(struct hr__transport *t, struct hr__seg *seg)
{
	struct bounce *b = (struct bounce *)t;

	if (seg->op == HR_READ)
		read_arrived(b, seg);
	else
		finish(b, seg);
}

static void bounce_submit(struct hr__transport *t, struct hr__seg *seg)
{
	struct bounce *b = (struct bounce *)t;

	seg->owner = t;
	seg->addr = hr__staging_take(b->env.staging, seg->plan.len, &seg->ring_slot);
	hr__seg_aim(seg, b->env.opts);
	if (b->env.ioq->fixed)
		seg->fixed = 0;
	if (seg->op == HR_WRITE && b->at_once) {
		move_at_once(b, seg);
		if (seg->error)
			finish(b, seg);
		else
			b->env.ioq->ops->push(b->env.ioq, seg);
	} else if (seg->op == HR_WRITE) {
		hr__seg_list_add(&b->leaving, seg);
	} else if (hr__cached_read(seg, b->env.opts, b->env.stats)) {
		read_arrived(b, seg);
	} else {
		b->env.ioq->ops->push(b->env.ioq, seg);
	}
}

/* What the lane has finished: reads are done, writes go on to the drive. */
static void harvest(struct bounce *b)
{
	uint64_t passed = 0;
	int ret;

	if (!b->moving.head)
		return;
	ret = b->lane->ops->poll(b->lane, &passed);
	if (ret < 0) {
		fail_list(b, &b->moving, ret);
		return;
	}
	while (b->moving.head && b->moving.head->ticket <= passed) {
		struct hr__seg *seg = b->moving.head;

		if (seg->op == HR_WRITE && !hr__ioq_room(b->env.ioq))
			return;
		hr__seg_list_take(&b->moving);
		if (seg->op == HR_WRITE)
			b->env.ioq->ops->push(b->env.ioq, seg);
		else
			finish(b, seg);
	}
}

static uint32_t bounce_reap(struct hr__transport *t, struct hr__seg **out, uint32_t max, bool idle)
{
	struct bounce *b = (struct bounce *)t;

	if (b->leaving.head)
		move_list(b, &b->leaving);
	if (b->arrived.head && (b->flush || idle)) {
		move_list(b, &b->arrived);
		b->arrived_bytes = 0;
	}
	b->flush = false;
	harvest(b);
	return hr__seg_list_drain(&b->done, out, max);
}

static int bounce_wait(struct hr__transport *t, uint64_t timeout_ns)
{
	struct bounce *b = (struct bounce *)t;

	if (!b->moving.head)
		return 0;
	/* A failed lane is found by the next poll(), which fails the segments with its code. */
	b->lane->ops->wait(b->lane, b->moving.head->ticket, timeout_ns);
	return 1;
}

static void bounce_close(struct hr__transport *t)
{
	struct bounce *b = (struct bounce *)t;

	b->lane->ops->close(b->lane);
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

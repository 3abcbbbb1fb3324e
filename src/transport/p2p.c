/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/p2p.c - the path "p2p": the drive writes into device memory itself. Bodies go straight to
 * their place; edges, tails and windows at odd offsets are read as whole blocks into a staging ring
 * that is device memory too, and moved on the device. No byte of a file stops in host memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "transport/ioq.h"
#include "transport/p2p.h"
#include "transport/seg.h"
#include "transport/staging.h"

#define GAP 4096u
/* A body shorter than this is not worth two more requests for its edges. */
#define IN_PLACE_MIN (64u << 10)
#define SLOTS_MAX 4096u
#define STAGING_MAX (32ull << 20)

struct p2p {
	struct hr__transport t;
	struct hr__transport_env env;
	struct hr_lane *lane;
	/* The ring's arithmetic over device memory: base is where the drive finds it. */
	struct hr__staging ring;
	struct hr__p2p_window *window; /* onto the ring; NULL until the first buffer */
	void *memory;                  /* the ring's device address */
	struct hr__seg_list landed;    /* reads; the device may not see their bytes yet */
	struct hr__seg_list
		waiting; /* staged, not moved yet: reads out of the ring, writes into it */
	struct hr__seg_list moving;  /* on the lane, in the order of their tickets */
	struct hr__seg_list sending; /* writes that are in the ring, for the drive */
	struct hr__seg_list done;
	uint32_t n_moves;
	struct hr__move moves[HR__LANE_MOVES_MAX];
};

static int p2p_score(const struct hr_file *file, const struct hr_device *dev,
		     const struct hr__shape *shape, struct hr__limits *limits, char *reason,
		     size_t reason_size)
{
	struct hr__p2p_drives drives;
	const char *why = NULL;

	if (dev->caps & HR__MEM_CAP_HOST_VISIBLE)
		why = "host memory needs no peer DMA: the path host is direct";
	else if (!(dev->caps & HR__MEM_CAP_EXPORT))
		why = "the device exports no memory for peer DMA; update its driver";
	else if (shape->buffered)
		why = "reads through the page cache were asked for";
	if (why) {
		snprintf(reason, reason_size, "%s", why);
		return -HR_E_NO_PATH;
	}
	if (!hr__file_has_direct(file)) {
		snprintf(reason, reason_size, "direct I/O is impossible here: %.150s",
			 file->direct_reason);
		return -HR_E_NO_PATH;
	}
	if (hr__p2p_drives_find(file, &drives, reason, reason_size) ||
	    hr__p2p_proven(file, (struct hr_device *)dev, shape->op, &drives, reason, reason_size))
		return -HR_E_NO_PATH;
	*limits = (struct hr__limits){
		.offset_align = file->offset_align,
		.memory_align = file->memory_align,
		.unit = 1,
		.gap = GAP,
		.in_place_min = IN_PLACE_MIN,
		.in_place = !shape->cast,
		.staged = true,
		.write = shape->op == HR_WRITE,
	};
	return 30;
}

static int p2p_open(const struct hr__transport_env *env, struct hr__transport **out)
{
	struct p2p *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return hr__fail(ENOMEM, "%s: no memory for the path p2p; free some",
				env->dev->info.name);
	p->t.ops = &hr__transport_p2p;
	p->env = *env;
	ret = env->dev->ops->lane_open(env->dev, NULL, &p->lane);
	if (ret) {
		free(p);
		return ret;
	}
	*out = &p->t;
	return 0;
}

/* -- buffers ---------------------------------------------------------------------------------- */

static int open_ring(struct p2p *p, uint32_t pci)
{
	struct hr_device *dev = p->env.dev;
	uint64_t len = hr__min(p->env.opts->staging_bytes, STAGING_MAX);
	int ret = dev->ops->alloc(dev, len, &p->memory);

	if (ret)
		return ret;
	ret = hr__p2p_window_get(dev, p->memory, len, pci, &p->window);
	if (ret)
		goto err_free;
	p->ring = (struct hr__staging){.dev = dev, .len = len, .slots_max = SLOTS_MAX};
	p->ring.base = hr__p2p_window_at(p->window, p->memory);
	p->ring.slots = calloc(SLOTS_MAX, sizeof(*p->ring.slots));
	if (p->ring.slots)
		return 0;
	ret = hr__fail(ENOMEM, "%s: no memory for a staging ring", dev->info.name);
	hr__p2p_window_put(p->window);
	p->window = NULL;
err_free:
	dev->ops->free(dev, p->memory, len);
	p->memory = NULL;
	return ret;
}

bool hr__p2p_ready(const struct hr__transport *t, const struct hr_buffer *buf)
{
	return t && ((const struct p2p *)t)->window && hr__buffer_peer(buf);
}

int hr__p2p_attach(struct hr__transport *t, struct hr_buffer *buf, const struct hr_file *file)
{
	struct p2p *p = (struct p2p *)t;
	struct hr__p2p_drives drives;
	struct hr__p2p_window *window;
	char reason[192];
	struct hr__peer *none = NULL;
	int ret = 0;

	if (hr__p2p_ready(t, buf))
		return 0;
	if (hr__p2p_drives_find(file, &drives, reason, sizeof(reason)))
		return hr__fail(HR_E_NO_PATH, "%s: %s", file->path, reason);
	if (!p->window)
		ret = open_ring(p, drives.pci[0]);
	if (ret || hr__buffer_peer(buf))
		return ret;
	ret = hr__p2p_window_get(buf->dev, buf->ptr, buf->len, drives.pci[0], &window);
	if (ret)
		return ret;
	/* Engines of two threads may meet here: the window is the same, one use of it is enough. */
	if (!atomic_compare_exchange_strong(&buf->peer, &none, &window->peer))
		hr__p2p_window_put(window);
	return 0;
}

/* -- segments --------------------------------------------------------------------------------- */

static bool p2p_room(struct hr__transport *t, uint32_t len)
{
	struct p2p *p = (struct p2p *)t;

	return hr__ioq_room(p->env.ioq) && hr__staging_room(&p->ring, len);
}

static void p2p_submit(struct hr__transport *t, struct hr__seg *seg)
{
	struct p2p *p = (struct p2p *)t;
	const struct hr_io *io = seg->plan.first.owner;

	seg->owner = t;
	hr__seg_aim(seg, p->env.opts);
	if (seg->plan.in_place)
		seg->addr = hr__p2p_window_at((struct hr__p2p_window *)hr__buffer_peer(io->buffer),
					      (void *)(uintptr_t)seg->plan.first.dst);
	else
		seg->addr = hr__staging_take(&p->ring, seg->plan.len, HR__STAGING_ALIGN,
					     &seg->ring_slot);
	if (seg->op == HR_WRITE && !seg->plan.in_place)
		hr__seg_list_add(&p->waiting, seg);
	else
		p->env.ioq->ops->push(p->env.ioq, seg);
}

static void finish(struct p2p *p, struct hr__seg *seg)
{
	if (!seg->plan.in_place)
		hr__staging_give(&p->ring, seg->ring_slot);
	hr__seg_list_add(&p->done, seg);
}

static void p2p_arrived(struct hr__transport *t, struct hr__seg *seg)
{
	struct p2p *p = (struct p2p *)t;

	hr__seg_arrive(seg, p->env.gathered);
	if (seg->op == HR_WRITE || seg->error)
		finish(p, seg);
	else
		hr__seg_list_add(&p->landed, seg);
}

/*
 * The drive's completions went to host memory, its data to the device: nothing but the device's own
 * promise, or a flush, puts the two in order. One for all that came meanwhile.
 */
static void flush_landed(struct p2p *p)
{
	struct hr__seg *seg;
	int ret = p->landed.head ? p->lane->ops->flush(p->lane) : 0;

	while ((seg = hr__seg_list_take(&p->landed))) {
		seg->error = ret < 0 ? ret : 0;
		if (seg->plan.in_place || seg->error)
			finish(p, seg);
		else
			hr__seg_list_add(&p->waiting, seg);
	}
}

static void add_moves(struct p2p *p, const struct hr__seg *seg)
{
	uint8_t *ring = (uint8_t *)p->memory + ((uint8_t *)seg->addr - p->ring.base);

	for (const struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		uint32_t len = seg->op == HR_READ ? hr__dest_valid(seg, d) : d->len;
		uint8_t *staged = ring + d->seg_off;
		void *place = hr__dest_address(seg, d);

		if (len)
			p->moves[p->n_moves++] = seg->op == HR_READ
							 ? (struct hr__move){staged, place, len}
							 : (struct hr__move){place, staged, len};
	}
}

/* The longest run of one conversion that fits one call; a segment's own pieces always do. */
static void take_run(struct p2p *p, enum hr_dtype from, enum hr_dtype to, struct hr__seg_list *run)
{
	while (p->waiting.head && p->waiting.head->from == from && p->waiting.head->to == to &&
	       p->n_moves + p->waiting.head->plan.n_dests <= HR__LANE_MOVES_MAX) {
		struct hr__seg *seg = hr__seg_list_take(&p->waiting);

		add_moves(p, seg);
		hr__seg_list_add(run, seg);
	}
}

static void issue_run(struct p2p *p)
{
	struct hr__seg_list run = {0};
	struct hr__seg *seg = p->waiting.head;
	enum hr_dtype from = seg->from, to = seg->to;
	uint64_t ticket = 0;
	int ret = 0;

	take_run(p, from, to, &run);
	if (p->n_moves)
		ret = p->lane->ops->move(p->lane, HR__DEVICE_TO_DEVICE, p->moves, p->n_moves, from,
					 to, &ticket);
	for (uint32_t i = 0; i < p->n_moves; i++)
		p->env.stats->bytes_moved += p->moves[i].len;
	p->n_moves = 0;
	p->env.stats->copies += ret > 0 ? (uint32_t)ret : 0;
	while ((seg = hr__seg_list_take(&run))) {
		seg->ticket = ticket;
		seg->error = ret < 0 ? ret : 0;
		if (ret < 0)
			finish(p, seg);
		else
			hr__seg_list_add(&p->moving, seg);
	}
}

static void harvest(struct p2p *p)
{
	uint64_t passed = 0;
	int ret;

	if (!p->moving.head)
		return;
	ret = p->lane->ops->poll(p->lane, &passed);
	while (p->moving.head && (ret < 0 || p->moving.head->ticket <= passed)) {
		struct hr__seg *seg = hr__seg_list_take(&p->moving);

		seg->error = ret < 0 ? ret : 0;
		if (seg->op == HR_WRITE && !seg->error)
			hr__seg_list_add(&p->sending, seg);
		else
			finish(p, seg);
	}
}

static uint32_t p2p_reap(struct hr__transport *t, struct hr__seg **out, uint32_t max, bool idle)
{
	struct p2p *p = (struct p2p *)t;

	flush_landed(p);
	while (p->waiting.head)
		issue_run(p);
	harvest(p);
	while (p->sending.head && hr__ioq_room(p->env.ioq))
		p->env.ioq->ops->push(p->env.ioq, hr__seg_list_take(&p->sending));
	return hr__seg_list_drain(&p->done, out, max);
}

static int p2p_wait(struct hr__transport *t, uint64_t timeout_ns)
{
	struct p2p *p = (struct p2p *)t;

	if (!p->moving.head)
		return 0;
	/* A failed lane is found by the next poll(). */
	p->lane->ops->wait(p->lane, p->moving.head->ticket, timeout_ns);
	return 1;
}

static void p2p_close(struct hr__transport *t)
{
	struct p2p *p = (struct p2p *)t;

	p->lane->ops->close(p->lane);
	if (p->window) {
		hr__p2p_window_put(p->window);
		p->env.dev->ops->free(p->env.dev, p->memory, p->ring.len);
		free(p->ring.slots);
	}
	free(p);
}

const struct hr__transport_ops hr__transport_p2p = {
	.name = "p2p",
	.path = HR_PATH_P2P,
	.score = p2p_score,
	.open = p2p_open,
	.room = p2p_room,
	.submit = p2p_submit,
	.arrived = p2p_arrived,
	.reap = p2p_reap,
	.wait = p2p_wait,
	.close = p2p_close,
};

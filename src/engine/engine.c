/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/engine.c - submit, reap and cancel: turns the wheel of feed, queue, transports and credit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "engine/engine.h"
#include "transport/bring.h"

#define ENOUGH_IN_FLIGHT 96u /* requests */
#define SEG_BATCH 256u       /* segments taken from the queue or a transport at once */
#define LANE_NAP_NS                                                                                \
	(200u * 1000u) /* how long the drive is waited for while the device moves something */
#define LANE_NAP_MAX_NS (6400u * 1000u) /* and when that has brought nothing several times */

/* Rings and threads belong to the process and thread that used the engine first. */
int hr__engine_check_owner(struct hr_engine *e)
{
	if (e->fork_generation != hr__fork_generation())
		return hr__fail(HR_E_FORKED,
				"the engine was opened before fork(); open a new one in the "
				"child");
	if (e->opts.migrates)
		return 0;
	if (!e->owned) {
		e->owner = pthread_self();
		e->owned = true;
	}
	if (!pthread_equal(e->owner, pthread_self()))
		return hr__fail(HR_E_WRONG_THREAD,
				"the engine belongs to the thread that used it first; "
				"open one engine per thread");
	return 0;
}

static void list_open(struct hr_engine *e, struct hr_io *io)
{
	e->n_open++;
	io->place_ = e->n_listed;
	if (e->n_listed < HR__OPEN_MAX)
		e->listed[e->n_listed++] = io;
	else
		io->place_ = UINT32_MAX;
}

static void unlist_open(struct hr_engine *e, struct hr_io *io)
{
	e->n_open--;
	if (io->place_ == UINT32_MAX)
		return;
	e->listed[io->place_] = e->listed[--e->n_listed];
	e->listed[io->place_]->place_ = io->place_;
}

void hr__io_finish(struct hr_engine *e, struct hr_io *io)
{
	unlist_open(e, io);
	e->stats.ios++;
	if (io->error_)
		io->res = io->error_;
	else if (io->state_ & HR__IO_CANCELLED)
		io->res = -ECANCELED;
	e->stats.ios_failed += io->res < 0;
	hr__buffer_idle(io->buffer);
	hr__file_put(io->file);
	io->next_ = NULL;
	if (io->state_ & HR__IO_INTERNAL) {
		io->state_ = HR__IO_IDLE;
		return;
	}
	io->state_ = HR__IO_DONE;
	*e->done_end = io;
	e->done_end = &io->next_;
	e->n_done++;
}

static void enqueue(struct hr_engine *e, struct hr_io *io, uint64_t now)
{
	io->engine_ = e;
	io->res = 0;
	memset(io->bytes_by_path, 0, sizeof(io->bytes_by_path));
	io->bytes_cached = 0;
	io->next_ = NULL;
	io->cursor_ = 0;
	io->pending_ = io->arriving_ = 1;
	io->segments_ = 0;
	io->error_ = 0;
	io->start_ns_ = now;
	io->state_ = HR__IO_QUEUED | (io == &e->simple ? HR__IO_INTERNAL : 0);
	hr__buffer_busy(io->buffer);
	hr__file_get(io->file);
	list_open(e, io);
	*e->queued_end = io;
	e->queued_end = &io->next_;
}

/* Where no way exists, say so now and not later. */
static int check_way(struct hr_engine *e, const struct hr_io *io)
{
	struct hr__route *route = hr__route_get(e, io->file);
	struct hr__way *way;
	int ret;

	/* All are in use, or the file is closed: asked again when the window opens. */
	if (!route || !hr__file_is_open(io->file))
		return 0;
	way = &route->ways[io->op][io->from != io->to];
	if (way->known && way->path != HR_PATH_P2P)
		return 0;
	ret = hr__route_use(e, route);
	if (ret)
		return ret == -EAGAIN ? 0 : ret;
	ret = hr__route_way(e, route, io->op, io->from != io->to, &way);
	if (!ret)
		ret = hr__route_attach(e, way, io->buffer, io->file);
	hr__route_done(e, route);
	return ret;
}

static bool same_way(const struct hr_io *a, const struct hr_io *b)
{
	return a->file == b->file && a->op == b->op && a->buffer == b->buffer &&
	       (a->from != a->to) == (b->from != b->to);
}

int hr_submit(struct hr_engine *e, struct hr_io *const *ios, uint32_t n)
{
	int ret = hr__engine_check_owner(e);
	uint64_t now = hr__live_now(&e->live);
	uint32_t taken = 0;

	for (; !ret && taken < n; taken++) {
		ret = hr__io_check(e, ios[taken]);
		if (!ret && (!taken || !same_way(ios[taken - 1], ios[taken])))
			ret = check_way(e, ios[taken]);
		if (ret)
			break;
		enqueue(e, ios[taken], now);
	}
	if (!taken)
		return ret;
	hr__feed(e);
	return (int)taken;
}

/* What this read brought into the page cache; what was there before stays. */
static void drop_cache(const struct hr__seg *seg)
{
	if (seg->op == HR_READ && !seg->direct && !seg->cached && !seg->file->memory_backed)
		hr__sys->fadvise(seg->file->fd, seg->plan.off, seg->plan.len, POSIX_FADV_DONTNEED);
}

/* @len bytes of a request are settled, @bytes of them have arrived. */
static void credit_io(struct hr_engine *e, const struct hr__seg *seg, struct hr_io *io,
		      uint64_t len, uint64_t bytes)
{
	enum hr_path path = seg->owner->ops->path;

	io->res += (int64_t)bytes;
	io->bytes_by_path[path] += bytes;
	e->stats.bytes_by_path[path] += bytes;
	if (seg->cached) {
		io->bytes_cached += bytes;
		e->stats.bytes_cached += bytes;
	}
	if (seg->error && !io->error_)
		io->error_ = seg->error;
	io->pending_ -= len;
	if (!io->pending_)
		hr__io_finish(e, io);
}

/* Account a finished segment to its requests and recycle it. */
static void credit(struct hr_engine *e, struct hr__seg *seg)
{
	struct hr_io *first = seg->plan.first.owner;

	first->segments_--;
	if (seg->op == HR_READ)
		e->stats.bytes_read += seg->direct && !seg->cached ? seg->plan.len : seg->done;
	else
		e->stats.bytes_written += seg->done;
	if (seg->cache == HR_CACHE_DROP)
		drop_cache(seg);
	hr__bring_done(seg);
	e->stats.direct_refused +=
		!seg->direct && !seg->cached && !hr__file_direct(seg->file, hr__seg_right(seg));
	if (seg->list_io) {
		credit_io(e, seg, first, seg->plan.len, seg->error ? 0 : seg->plan.len);
	} else {
		for (struct hr__dest *d = &seg->plan.first; d; d = d->next)
			credit_io(e, seg, d->owner, d->len,
				  seg->error ? 0 : hr__dest_valid(seg, d));
		hr__dests_free(&e->dests, &seg->plan);
	}
	hr__route_done(e, seg->route);
	seg->next = e->free_segs;
	e->free_segs = seg;
}

/* What came out of a mapping is in doubt: it is read buffered, as if it had not been there yet. */
static void read_again(struct hr_engine *e, struct hr__seg *seg)
{
	seg->doubt = seg->copied = false;
	seg->again = true;
	if (seg->list_io) {
		seg->list_io->arriving_ += seg->plan.len;
		hr__seg_list_add(&e->replan, seg);
		return;
	}
	for (struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		struct hr_io *io = d->owner;

		io->arriving_ += d->len;
	}
	seg->done = 0;
	seg->cached = false;
	hr__seg_list_add(&e->again, seg);
}

/* Collect what the transports have finished. Return: segments that went on. */
static uint32_t harvest(struct hr_engine *e, bool idle)
{
	struct hr__transport *ts[] = {e->host, e->bounce, e->pagecache, e->p2p};
	struct hr__seg *segs[SEG_BATCH];
	uint32_t sum = 0;

	for (uint32_t i = 0; i < HR_ARRAY_LEN(ts); i++) {
		uint32_t n;

		if (!ts[i] || !ts[i]->in_hand)
			continue;
		do {
			n = ts[i]->ops->reap(ts[i], segs, SEG_BATCH, idle);
			ts[i]->in_hand -= n;
			for (uint32_t k = 0; k < n; k++) {
				if (segs[k]->doubt)
					read_again(e, segs[k]);
				else
					credit(e, segs[k]);
			}
			sum += n;
		} while (n == SEG_BATCH);
	}
	return sum;
}

/*
 * How much of the depth may run out before the drive gets more: all but ENOUGH, which keep any drive
 * busy that a virtual machine or a single NVMe offers, an eighth at least and a quarter at most.
 */
static uint32_t spare_depth(uint32_t depth)
{
	uint32_t over = depth > ENOUGH_IN_FLIGHT ? depth - ENOUGH_IN_FLIGHT : 0;

	return (uint32_t)hr__max(hr__min(hr__max(over, depth / 8), depth / 4), 1);
}

/*
 * How many segments must finish before @ios requests can be done: waiting for that many at once
 * saves system calls and costs no time. Never so many that the drive's queue runs dry while there
 * is more to send.
 */
static uint32_t worth_waiting(const struct hr_engine *e, uint32_t ios)
{
	uint32_t in_flight = e->ioq->in_flight;
	bool more =
		e->held || e->again.head || e->replan.head || e->queued || !hr__plan_done(&e->plan);
	uint32_t least = UINT32_MAX;

	if (e->n_open > e->n_listed)
		least = ios;
	for (uint32_t i = 0; i < e->n_listed && least > ios; i++) {
		const struct hr_io *io = e->listed[i];
		bool unplanned = HR__IO_STATE(io) == HR__IO_QUEUED || (more && io->segments_ == 0);

		if (!unplanned && io->segments_ < least)
			least = (uint32_t)hr__max(io->segments_, ios);
	}
	/* What is held has found no room: where staging is short, no more than this gets in flight. */
	if (more)
		least = (uint32_t)hr__min(least, spare_depth(e->held ? in_flight : e->ioq->depth));
	return (uint32_t)hr__max(hr__min(least, in_flight), 1);
}

/*
 * How many answers to take at once. Somebody who waits for single requests sends the next ones when
 * these are back: few at a time, so that the drive is never short of work. On a drive that answers
 * in bursts, taking a quarter of the depth at once costs a tenth of the rate.
 */
static uint32_t round_max(const struct hr_engine *e, uint32_t want)
{
	uint32_t few = (uint32_t)hr__max(e->ioq->depth / 16, 1);

	if (want && want <= few)
		return few;
	return e->ioq->depth > ENOUGH_IN_FLIGHT
		       ? SEG_BATCH
		       : (uint32_t)hr__max(want, spare_depth(e->ioq->depth));
}

/* As wait() of a transport, for whichever has something on its lane. */
static int wait_lanes(struct hr_engine *e, uint64_t timeout_ns)
{
	if (e->pagecache && e->pagecache->in_hand &&
	    e->pagecache->ops->wait(e->pagecache, timeout_ns))
		return 1;
	if (e->p2p && e->p2p->in_hand && e->p2p->ops->wait(e->p2p, timeout_ns))
		return 1;
	return e->bounce->in_hand ? e->bounce->ops->wait(e->bounce, timeout_ns) : 0;
}

/* One turn: send, wait for the drive or the device, move on what came. Return: 0 or -code. */
static int turn(struct hr_engine *e, uint32_t ios, uint64_t timeout_ns)
{
	struct hr__seg *segs[SEG_BATCH];
	uint32_t sent, want = 0;
	int busy = 0, n;
	bool moved;

	/* In batches, so that hot reads come back soon: whoever waits has enough after the first. */
	do {
		sent = hr__feed(e);
		harvest(e, false);
	} while (sent == HR__FEED_BATCH && e->n_done < hr__max(ios, 1));
	/* Nothing on its way and nothing to send: what was held back for company moves now. */
	if (e->ioq->in_flight == 0 && harvest(e, true))
		return 0;
	if (ios && e->n_done >= ios)
		ios = 0;
	if (ios)
		busy = wait_lanes(e, 0);
	/*
	 * While the device moves something, the drive is looked at for a short time only: its next
	 * answer, soon as a rule, is the moment to look at the device again without sleeping on it.
	 */
	if (ios && e->ioq->in_flight)
		want = worth_waiting(e, ios);
	n = e->ioq->ops->pump(e->ioq, segs, round_max(e, want), want,
			      busy ? hr__min(timeout_ns, hr__max(e->nap_ns, LANE_NAP_NS))
				   : timeout_ns);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		segs[i]->owner->ops->arrived(segs[i]->owner, segs[i]);
	moved = harvest(e, false) > 0;
	if (!moved && !want && busy) {
		wait_lanes(e, hr__min(timeout_ns, LANE_NAP_NS));
		moved = harvest(e, false) > 0;
	}
	/* A device that is late is not looked at by one system call after the other. */
	if (n || moved || !busy)
		e->nap_ns = LANE_NAP_NS;
	else
		e->nap_ns = (uint32_t)hr__min(2 * hr__max(e->nap_ns, LANE_NAP_NS), LANE_NAP_MAX_NS);
	return 0;
}

static uint32_t take_done(struct hr_engine *e, struct hr_io **done, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && e->done) {
		struct hr_io *io = e->done;

		e->done = io->next_;
		io->state_ = HR__IO_IDLE;
		done[n++] = io;
	}
	if (!e->done)
		e->done_end = &e->done;
	e->n_done -= n;
	return n;
}

int hr_reap(struct hr_engine *e, struct hr_io **done, uint32_t max, uint32_t min,
	    uint64_t timeout_ns)
{
	int ret = hr__engine_check_owner(e);
	uint64_t end = 0, left;

	if (ret)
		return ret;
	timeout_ns = hr__min(timeout_ns, HR__TIMEOUT_MAX_NS);
	left = timeout_ns;
	min = (uint32_t)hr__min(min, max);
	for (;;) {
		ret = turn(e, e->n_done >= min ? 0 : min, left);
		if (ret)
			return ret;
		if (e->n_done >= min || e->n_open == 0)
			break;
		if (!end)
			end = hr__now_ns() +
			      timeout_ns; /* not for the many calls that need one turn */
		left = hr__now_ns();
		if (left >= end)
			break;
		left = end - left;
	}
	max = take_done(e, done, max);
	if (e->live.place && max)
		hr__live_round(e, done, max);
	return (int)max;
}

static int unqueue(struct hr_engine *e, struct hr_io *io)
{
	struct hr_io **at = &e->queued;

	while (*at && *at != io)
		at = &(*at)->next_;
	if (!*at)
		return -ENOENT;
	*at = io->next_;
	if (!*at)
		e->queued_end = at;
	io->state_ |= HR__IO_CANCELLED;
	io->pending_ = 0;
	hr__io_finish(e, io);
	return 0;
}

int hr_cancel(struct hr_engine *e, struct hr_io *io)
{
	int ret = hr__engine_check_owner(e);

	if (ret)
		return ret;
	if (io->engine_ != e)
		return -ENOENT;
	switch (HR__IO_STATE(io)) {
	case HR__IO_QUEUED:
		return unqueue(e, io);
	case HR__IO_ACTIVE:
		io->state_ |= HR__IO_CANCELLED;
		return 0;
	case HR__IO_DONE:
		return 0;
	default:
		return -ENOENT;
	}
}

uint32_t hr_in_flight(const struct hr_engine *engine)
{
	return engine->n_open + engine->n_done;
}

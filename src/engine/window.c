/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/window.c - from queued requests to segments on their way: opens a window over the pieces of
 * consecutive requests of one kind, lets plan.c cut it, and sends what there is room for.
 */
#include <errno.h>

#include <headrace/error.h>

#include "base/log.h"
#include "base/util.h"
#include "engine/engine.h"
#include "transport/bring.h"
#include "transport/list.h"
#include "transport/p2p.h"
#include "transport/pagecache.h"

_Static_assert(HR__LIST_PIECES_MAX <= HR__WINDOW_MAX, "what comes back as a list fits a window");

static bool fits_window(const struct hr_engine *e, const struct hr_io *io)
{
	return io->file == e->window_route->file && io->op == e->window_op &&
	       io->from == e->window_from && io->to == e->window_to;
}

/*
 * Where a piece goes, as a number that grows by one with each byte of the file. For plain bytes that
 * is the address itself; with a conversion it counts source bytes from the start of the buffer.
 */
static uint64_t linear_dst(const struct hr_io *io, const struct hr_piece *p)
{
	if (io->from == io->to)
		return (uint64_t)(uintptr_t)io->buffer->ptr + p->buffer_offset;
	return p->buffer_offset / hr_dtype_size(io->to) * hr_dtype_size(io->from);
}

static void take_stamp(struct hr_engine *e)
{
	struct hr__file_stamp stamp;

	if (hr__file_stamp(e->window_route->file, &stamp))
		return;
	e->window_route->size = stamp.size;
	e->window_mtime_ns = stamp.mtime_ns;
}

/* The file may have grown since it was last looked at. */
static void see_size(struct hr_engine *e, uint64_t end)
{
	if (end <= e->window_route->size || e->window_op == HR_WRITE)
		return;
	take_stamp(e);
	e->plan.limits.file_size = e->window_route->size;
}

/*
 * What is mapped may be there no more: a shrunk file must be noticed before anything is planned. A
 * path that was asked for makes its windows ready when it meets them.
 */
static void see_mapping(struct hr_engine *e, struct hr__way *way)
{
	bool forced = e->opts.path == HR_PATH_PAGECACHE;

	if (way->plain)
		take_stamp(e);
	if (!way->mapping || (!forced && !hr__mapping_worth(way->mapping)))
		return;
	if (hr__open_pagecache(e)) {
		hr__log(HR_LOG_WARN, "%s", hr_error_detail());
		way->mapping = NULL;
		return;
	}
	e->window_mapping = way->mapping;
	take_stamp(e);
}

/* Cancelled or failed: what is not on its way yet need not go. */
static bool is_over(const struct hr_io *io)
{
	return io->error_ || (io->state_ & HR__IO_CANCELLED);
}

/* One piece into the plan. Return: false when the window is full. */
static bool add_piece(struct hr_engine *e, struct hr_io *io)
{
	struct hr_piece p = hr__io_piece(io, io->cursor_);
	int64_t bytes = 0;

	if (p.len) {
		see_size(e, p.file_offset + p.len);
		bytes = hr__plan_add(&e->plan, p.file_offset, p.len, linear_dst(io, &p), io);
		if (bytes < 0)
			return false;
		io->pending_ += (uint64_t)bytes;
		io->arriving_ += (uint64_t)bytes;
		e->stats.pieces++;
	}
	io->cursor_++;
	return true;
}

static struct hr__seg *seg_get(struct hr_engine *e)
{
	struct hr__seg *seg = e->free_segs;

	if (!seg)
		return NULL;
	e->free_segs = seg->next;
	seg->list_io = NULL;
	return seg;
}

static void seg_put(struct hr_engine *e, struct hr__seg *seg)
{
	seg->next = e->free_segs;
	e->free_segs = seg;
}

/* What all segments of the window have in common. @seg->plan is set. */
static void seg_begin(struct hr_engine *e, struct hr__seg *seg)
{
	struct hr_io *io = seg->plan.first.owner;

	io->segments_++;
	seg->file = e->window_route->file;
	seg->op = e->window_op;
	seg->cache = e->window_way->cache;
	seg->from = e->window_from;
	seg->to = e->window_to;
	seg->heat = &e->window_route->heat;
	seg->route = e->window_route;
	seg->done = seg->stuck_at = seg->tries = seg->calls = 0;
	seg->error = 0;
	seg->cached = seg->hot = seg->mapped = seg->cold = false;
	seg->again = e->window_again;
	seg->copied = seg->doubt = seg->bringing = seg->brought = false;
	seg->bring_len = 0;
	seg->mapping = e->window_mapping;
	seg->plain = e->window_way->plain;
	seg->mtime_ns = e->window_mtime_ns;
	e->window_route->uses++;
}

/*
 * Pieces from the cursor on that a device finds in registered pages go as they are, without a plan.
 * Return: how many.
 */
static uint32_t add_list(struct hr_engine *e, struct hr_io *io)
{
	struct hr__seg *seg;
	uint32_t n;

	/* A list looks at its pieces until it is back; those of hr_gather() may be the caller's before. */
	if (!e->window_mapping || !e->window_mapping->pinned ||
	    (io->pieces && (io->state_ & HR__IO_INTERNAL)))
		return 0;
	seg = seg_get(e);
	if (!seg)
		return 0;
	n = hr__list_hold(e->window_mapping, seg, io, io->cursor_, e->window_route->size,
			  e->window_mtime_ns);
	if (!n) {
		seg_put(e, seg);
		return 0;
	}
	seg_begin(e, seg);
	hr__seg_list_add(&e->lists, seg);
	io->pending_ += seg->plan.len;
	io->arriving_ += seg->plan.len;
	e->stats.pieces += n;
	return n;
}

/* Add pieces of one request. Return: true when all of them are in the window now. */
static bool add_pieces(struct hr_engine *e, struct hr_io *io)
{
	uint64_t n = hr__io_pieces(io);

	while (io->cursor_ < n && !is_over(io)) {
		uint32_t listed = add_list(e, io);

		if (listed)
			io->cursor_ += listed;
		else if (!add_piece(e, io))
			return false; /* full; overflows were refused at submit */
	}
	return true;
}
static void pop_queued(struct hr_engine *e)
{
	struct hr_io *io = e->queued;

	e->queued = io->next_;
	if (!e->queued)
		e->queued_end = &e->queued;
	io->arriving_--;
	e->gathered += !io->arriving_;
	if (--io->pending_ == 0)
		hr__io_finish(e, io);
}

/* A window of requests like @io with @route, which is in use and kept so until the next one. */
static void begin_window(struct hr_engine *e, const struct hr_io *io, struct hr__route *route,
			 struct hr__way *way)
{
	e->window_route = route;
	e->window_way = way;
	e->window_op = io->op;
	e->window_from = io->from;
	e->window_to = io->to;
	e->window_mapping = NULL;
	e->window_again = false;
}

static void begin_plan(struct hr_engine *e)
{
	struct hr__way *way = e->window_way;

	way->limits.unit = e->window_from == e->window_to ? 1 : hr_dtype_size(e->window_from);
	way->limits.file_size = e->window_route->size;
	hr__plan_begin(&e->plan, &way->limits);
}

/*
 * A list came back because the file was being changed: its pieces are read by another path, buffered,
 * as the file is now. They are counted already, and pieces may have become shorter.
 */
static void plan_again(struct hr_engine *e, struct hr__seg *list)
{
	struct hr_io *io = list->list_io;
	struct hr__route *route = list->route;
	struct hr__way *way;

	/* Known since the list was made. The list's use of the route becomes the window's. */
	hr__route_way(e, route, io->op, io->from != io->to, &way);
	begin_window(e, io, route, way);
	e->window_again = true;
	take_stamp(e);
	begin_plan(e);
	for (uint32_t i = 0; i < list->list_n; i++) {
		struct hr_piece p = hr__io_piece(io, list->list_first + i);
		int64_t bytes = 0;

		/* A list is no longer than a window, so there is room for all of it. */
		if (p.len)
			bytes = hr__plan_add(&e->plan, p.file_offset, p.len, linear_dst(io, &p),
					     io);
		io->pending_ -= p.len - (uint64_t)bytes;
		io->arriving_ -= p.len - (uint64_t)bytes;
	}
	io->segments_--;
	seg_put(e, list);
	if (!io->pending_)
		hr__io_finish(e, io);
}

static void fail_queued(struct hr_engine *e, int code)
{
	e->queued->error_ = code;
	e->queued->state_ |= HR__IO_CANCELLED;
	pop_queued(e);
}

/* Fill a new window from the queue. Return: false when there is nothing to plan. */
static bool open_window(struct hr_engine *e)
{
	struct hr__seg *list = hr__seg_list_take(&e->replan);
	struct hr_io *io = e->queued;
	struct hr__route *route;
	struct hr__way *way;
	int ret;

	if (e->window_route) {
		hr__route_done(e, e->window_route);
		e->window_route = NULL;
	}
	if (list) {
		plan_again(e, list);
		return true;
	}
	if (!io)
		return false;
	route = hr__route_get(e, io->file);
	if (!route)
		return false; /* all routes are busy: the next call finds one */
	ret = hr__route_use(e, route);
	if (ret == -EAGAIN)
		return false; /* likewise, when a file may be closed */
	if (!ret) {
		ret = hr__route_way(e, route, io->op, io->from != io->to, &way);
		if (ret)
			hr__route_done(e, route);
	}
	if (ret) {
		fail_queued(e, ret);
		return true;
	}
	begin_window(e, io, route, way);
	see_mapping(e, way);
	begin_plan(e);
	while (e->queued && fits_window(e, e->queued)) {
		/* As a rule this was done at submit; not so when all routes were in use then. */
		ret = hr__route_attach(e, way, e->queued->buffer, e->queued->file);
		if (ret) {
			fail_queued(e, ret);
			continue;
		}
		e->queued->state_ = (e->queued->state_ & ~0xffu) | HR__IO_ACTIVE;
		if (!add_pieces(e, e->queued))
			break;
		pop_queued(e);
	}
	return true;
}

static bool is_wanted(const struct hr__plan_segment *plan)
{
	for (const struct hr__dest *d = &plan->first; d; d = d->next) {
		if (!is_over(d->owner))
			return true;
	}
	return false;
}

/* Account a planned segment to its requests without sending it. */
static void skip(struct hr_engine *e, struct hr__plan_segment *plan)
{
	for (const struct hr__dest *d = &plan->first; d; d = d->next) {
		struct hr_io *io = d->owner;

		io->arriving_ -= d->len;
		e->gathered += !io->arriving_;
		io->pending_ -= d->len;
		if (!io->pending_)
			hr__io_finish(e, io);
	}
	hr__dests_free(&e->dests, plan);
}

/* The next planned segment of this window that somebody still wants. Return: false: no more. */
static bool plan_wanted(struct hr_engine *e, struct hr__plan_segment *plan)
{
	while (!hr__plan_done(&e->plan) && hr__plan_next(&e->plan, &e->dests, plan)) {
		if (is_wanted(plan))
			return true;
		skip(e, plan);
	}
	return false;
}

/* The rest of its way may be through the page cache, and others may want to find it there. */
static void aim_to_keep(struct hr_engine *e, struct hr__seg *seg)
{
	uint64_t off, end;

	if (!e->window_way->keeper || seg->again)
		return;
	hr__plan_run(&e->plan, &seg->plan, &off, &end);
	hr__bring_aim(seg, e->window_way->keeper, off, end);
}

/* The next segment into e->held. Return: false when there is none or no memory for one. */
static bool hold_next(struct hr_engine *e)
{
	struct hr__seg *seg;

	/* With few destinations left a read would be cut short: better wait for those on their way. */
	if (e->dests.n_free < HR__DESTS_MAX / 4)
		return false;
	for (;;) {
		e->held = hr__seg_list_take(&e->lists);
		if (e->held)
			return true;
		seg = seg_get(e);
		if (!seg)
			return false;
		if (plan_wanted(e, &seg->plan))
			break;
		seg_put(e, seg);
		if (!open_window(e))
			return false;
	}
	seg_begin(e, seg);
	aim_to_keep(e, seg);
	e->held = seg;
	return true;
}

/*
 * Several threads copy a large piece by read(2) sooner than this one copies it out of the mapping, where
 * that is what the lane does.
 */
static bool crew_first(const struct hr_engine *e, const struct hr__seg *seg)
{
	return !seg->mapping->pinned && seg->plan.in_place && hr__crew_suits(seg, e->ioq);
}

/* What no other path takes: as the way says, if all of it is ready for that. */
static struct hr__transport *by_way(const struct hr_engine *e, const struct hr__seg *seg)
{
	const struct hr__route *route = seg->route;
	const struct hr_io *io = seg->plan.first.owner;

	/* Edges of a write and what is read again go through the page cache: that is host memory. */
	if (route->ways[seg->op][seg->from != seg->to].path == HR_PATH_P2P &&
	    !seg->plan.unaligned && !seg->again)
		return hr__p2p_ready(e->p2p, io->buffer) ? e->p2p : e->bounce;
	return seg->plan.in_place && e->host ? e->host : e->bounce;
}

/* By which transport? NULL: the segment has found its way, by failing. */
static struct hr__transport *choose(struct hr_engine *e, struct hr__seg *seg)
{
	int ret = 0;

	if (seg->list_io)
		return e->pagecache; /* has its windows already */
	if (seg->mapping && !seg->again && e->opts.path == HR_PATH_PAGECACHE)
		ret = hr__pagecache_force(e->pagecache, seg);
	else if (seg->mapping && !seg->again && !crew_first(e, seg))
		ret = hr__pagecache_take(e->pagecache, seg);
	if (ret < 0) {
		e->pagecache->in_hand++;
		hr__pagecache_fail(e->pagecache, seg, ret);
		return NULL;
	}
	if (ret)
		return e->pagecache;
	if (seg->mapping && e->opts.path == HR_PATH_PAGECACHE)
		seg->again = true; /* it was planned without regard for direct I/O */
	return by_way(e, seg);
}

uint32_t hr__feed(struct hr_engine *e)
{
	uint32_t sent = 0;

	while (sent < HR__FEED_BATCH) {
		struct hr__transport *t;

		if (!e->held)
			e->held = hr__seg_list_take(&e->again);
		if (!e->held && !hold_next(e))
			break;
		t = choose(e, e->held);
		if (t && !t->ops->room(t, e->held->plan.len))
			break;
		if (t) {
			t->in_hand++;
			t->ops->submit(t, e->held);
		}
		e->stats.segments += t && t != e->pagecache;
		e->held = NULL;
		sent++;
	}
	return sent;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/window.c - from queued requests to segments on their way: opens a window over the pieces of
 * consecutive requests of one kind, lets plan.c cut it, and sends what there is room for.
 */
#include <headrace/error.h>

#include "base/log.h"
#include "base/util.h"
#include "engine/engine.h"
#include "transport/p2p.h"
#include "transport/pagecache.h"

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

	e->window_mapping = NULL;
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

/* Add pieces of one request. Return: true when all of them are in the window now. */
static bool add_pieces(struct hr_engine *e, struct hr_io *io)
{
	uint64_t n = hr__io_pieces(io);

	for (; io->cursor_ < n && !is_over(io); io->cursor_++) {
		struct hr_piece p = hr__io_piece(io, io->cursor_);
		int64_t bytes;

		if (!p.len)
			continue;
		see_size(e, p.file_offset + p.len);
		bytes = hr__plan_add(&e->plan, p.file_offset, p.len, linear_dst(io, &p), io);
		if (bytes < 0)
			return false; /* full; overflows were refused at submit */
		io->pending_ += (uint64_t)bytes;
		io->arriving_ += (uint64_t)bytes;
		e->stats.pieces++;
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
	if (--io->pending_ == 0)
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
	struct hr_io *io = e->queued;
	struct hr__way *way;
	int ret;

	if (e->window_route) {
		e->window_route->uses--;
		e->window_route = NULL;
	}
	if (!io)
		return false;
	e->window_route = hr__route_get(e, io->file);
	if (!e->window_route)
		return false; /* all routes are busy: the next call finds one */
	e->window_route->uses++;
	ret = hr__route_way(e, e->window_route, io->op, io->from != io->to, &way);
	if (ret) {
		fail_queued(e, ret);
		return true;
	}
	e->window_way = way;
	e->window_op = io->op;
	e->window_from = io->from;
	e->window_to = io->to;
	see_mapping(e, way);
	way->limits.unit = io->from == io->to ? 1 : hr_dtype_size(io->from);
	way->limits.file_size = e->window_route->size;
	hr__plan_begin(&e->plan, &way->limits);
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

static struct hr__seg *seg_get(struct hr_engine *e)
{
	struct hr__seg *seg = e->free_segs;

	if (seg)
		e->free_segs = seg->next;
	return seg;
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
		io->pending_ -= d->len;
		if (!io->pending_)
			hr__io_finish(e, io);
	}
	hr__dests_free(&e->dests, plan);
}

/* The next planned segment that somebody still wants. Return: false when nothing is left to plan. */
static bool plan_wanted(struct hr_engine *e, struct hr__plan_segment *plan)
{
	for (;;) {
		if (hr__plan_done(&e->plan) || !hr__plan_next(&e->plan, &e->dests, plan)) {
			if (!open_window(e))
				return false;
		} else if (is_wanted(plan)) {
			return true;
		} else {
			skip(e, plan);
		}
	}
}

/* Plan one segment into e->held. Return: false when there is none or no memory for one. */
static bool hold_next(struct hr_engine *e)
{
	struct hr__seg *seg;
	struct hr_io *io;

	/* With few destinations left a read would be cut short: better wait for those on their way. */
	if (e->dests.n_free < HR__DESTS_MAX / 4)
		return false;
	seg = seg_get(e);
	if (!seg)
		return false;
	if (!plan_wanted(e, &seg->plan)) {
		seg->next = e->free_segs;
		e->free_segs = seg;
		return false;
	}
	io = seg->plan.first.owner;
	io->segments_++;
	seg->file = e->window_route->file;
	seg->op = e->window_op;
	seg->from = e->window_from;
	seg->to = e->window_to;
	seg->heat = &e->window_route->heat;
	seg->route = e->window_route;
	seg->done = seg->stuck_at = seg->tries = seg->calls = 0;
	seg->error = 0;
	seg->cached = seg->mapped = seg->cold = seg->again = false;
	seg->mapping = e->window_mapping;
	seg->mtime_ns = e->window_mtime_ns;
	e->window_route->uses++;
	e->held = seg;
	return true;
}

/* What no other path takes: as the way says, if all of it is ready for that. */
static struct hr__transport *by_way(const struct hr_engine *e, const struct hr__seg *seg)
{
	const struct hr__route *route = seg->route;
	const struct hr_io *io = seg->plan.first.owner;

	/* The edges of a write go through the page cache, which is host memory. */
	if (route->ways[seg->op][seg->from != seg->to].path == HR_PATH_P2P && !seg->plan.unaligned)
		return hr__p2p_ready(e->p2p, io->buffer) ? e->p2p : e->bounce;
	return seg->plan.in_place && e->host ? e->host : e->bounce;
}

/* By which transport? NULL: the segment has found its way, by failing. */
static struct hr__transport *choose(struct hr_engine *e, struct hr__seg *seg)
{
	int ret = 0;

	if (seg->mapping && !seg->again && e->opts.path == HR_PATH_PAGECACHE)
		ret = hr__pagecache_force(e->pagecache, seg);
	else if (seg->mapping && !seg->again)
		ret = hr__pagecache_take(e->pagecache, seg);
	if (ret < 0) {
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
		if (t)
			t->ops->submit(t, e->held);
		e->stats.segments += t && t != e->pagecache;
		e->held = NULL;
		sent++;
	}
	return sent;
}

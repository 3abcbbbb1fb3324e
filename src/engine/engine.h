/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/engine.h - the inside of an engine: open requests, the plan's window, segments in flight.
 */
#ifndef HR_ENGINE_ENGINE_H
#define HR_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <headrace/io.h>
#include <headrace/stats.h>

#include "engine/live.h"
#include "file/plan.h"
#include "transport/ioq.h"
#include "transport/mapping.h"
#include "transport/seg.h"
#include "transport/staging.h"

#define HR__WINDOW_MAX 4096u                   /* pieces that are sorted and merged together */
#define HR__DESTS_MAX (HR__LANE_MOVES_MAX - 1) /* chained ones: a segment's list fits one move() */
#define HR__SEGMENTS_MAX 4096u                 /* power of two */
#define HR__ROUTES_MAX 64u                     /* files that an engine remembers */
#define HR__FEED_BATCH 64u
#define HR__TIMEOUT_MAX_NS (1ull << 62) /* longer ones, such as UINT64_MAX, mean this */
#define HR__OPEN_MAX 64u                /* open requests that are looked at one by one */

/* hr_io.state_ */
enum {
	HR__IO_IDLE = 0, /* the caller's */
	HR__IO_QUEUED = 1,
	HR__IO_ACTIVE = 2,          /* partly or wholly planned */
	HR__IO_DONE = 3,            /* waits to be reaped */
	HR__IO_CANCELLED = 1u << 8, /* flag: plan no more of it */
	HR__IO_INTERNAL = 1u << 9,  /* flag: never handed to the caller */
};
#define HR__IO_STATE(io) ((io)->state_ & 0xffu)

/* The way of one kind of request to one file: chosen once, see transport/select.c. */
struct hr__way {
	bool known;
	enum hr_cache cache; /* what its reads leave in the page cache; never KEEP of writes */
	enum hr_path path;   /* host, p2p: bodies in place, edges staged; bounce: all staged */
	struct hr__mapping *mapping; /* what is ready of it goes by pagecache; NULL: nothing does */
	struct hr__mapping *plain;   /* bounce copies hot bytes out of it; NULL: by read(2) */
	struct hr__mapping *keeper;  /* what is kept comes in through it; NULL: by read(2) */
	struct hr__limits limits;
};

/* What an engine remembers of a file. It keeps a reference until the entry is needed otherwise. */
struct hr__route {
	struct hr_file *file;
	uint64_t size; /* as last seen; asked again when somebody wants more */
	uint32_t uses; /* segments in flight, the open window: the file is kept open for them */
	struct hr__heat heat;
	struct hr__way ways[2][2]; /* [op][conversion] */
};

struct hr_engine {
	struct hr_device *dev;
	struct hr_engine_options opts; /* complete */
	struct hr_stats stats;
	struct hr__live live;
	struct hr__ioq *ioq;
	struct hr__staging staging;
	struct hr__transport *host, *bounce; /* host: NULL where the CPU cannot reach the device */
	struct hr__transport *pagecache;     /* opened when a way first has use for it */
	struct hr__transport *p2p;           /* likewise */
	uint32_t nap_ns;                     /* of the next wait beside a busy device */
	uint64_t gathered;                   /* see struct hr__transport_env */
	pthread_t owner;
	bool owned;
	uint32_t fork_generation;

	/* requests */
	struct hr_io *queued, **queued_end; /* in the order of submission */
	struct hr_io *done, **done_end;
	uint32_t n_open, n_done; /* submitted and unfinished; finished and not reaped */
	uint32_t n_held;         /* files that are kept open */
	uint32_t n_listed;
	struct hr_io *listed[HR__OPEN_MAX]; /* the open ones, unless they are too many */
	struct hr_io simple;                /* of hr_read() and its kin */

	/* the window that is being planned */
	struct hr__plan plan;
	struct hr__route *window_route;
	struct hr__way *window_way;
	enum hr_op window_op;
	enum hr_dtype window_from, window_to;
	struct hr__mapping *window_mapping; /* NULL: none, or nothing of it was ready */
	bool window_again;                  /* of pieces that pagecache could not settle */
	int64_t window_mtime_ns;            /* with a mapping: of the file, before it was planned */
	struct hr__seg *held;               /* planned, waits for room */
	struct hr__seg_list lists;          /* pieces that need no plan, to be sent first */
	struct hr__seg_list again;          /* to be read by another path than pagecache */
	struct hr__seg_list replan;         /* the same for lists: their pieces get a window */

	struct hr__seg *free_segs;
	struct hr__dest_pool dests;
	struct hr__route routes[HR__ROUTES_MAX];

	/* memory of the above, in one block */
	struct hr__seg segs[HR__SEGMENTS_MAX];
	struct hr__dest dest_store[HR__DESTS_MAX];
	struct hr__want wants[HR__WINDOW_MAX];
};

/* engine.c: may this thread use the engine? Return: 0 or -code with a sentence. */
int hr__engine_check_owner(struct hr_engine *e);

/* route.c: hr__route_get() - the entry for @file; NULL if all are in use. */
struct hr__route *hr__route_get(struct hr_engine *e, struct hr_file *file);
/*
 * hr__route_use() - keep the entry, and its file open, until hr__route_done(). An engine that uses no file
 * gets one in any case; else it may have to wait until it uses fewer.
 * Return: 0, -EAGAIN: not now; -code with a sentence.
 */
int hr__route_use(struct hr_engine *e, struct hr__route *route);
void hr__route_done(struct hr_engine *e, struct hr__route *route);
/*
 * hr__route_way() - the way for this kind of request, while the entry is in use.
 * Return: 0 or -code with a sentence.
 */
int hr__route_choose(struct hr_engine *e, struct hr__route *route, enum hr_op op, bool cast);
static inline int hr__route_way(struct hr_engine *e, struct hr__route *route, enum hr_op op,
				bool cast, struct hr__way **out)
{
	*out = &route->ways[op][cast];
	return (*out)->known ? 0 : hr__route_choose(e, route, op, cast);
}
/*
 * hr__route_attach() - get the buffer ready for that way. What cannot be made ready for p2p goes by
 * bounce, unless p2p was asked for. Return: 0 or -code with a sentence.
 */
int hr__route_attach(struct hr_engine *e, const struct hr__way *way, struct hr_buffer *buf,
		     struct hr_file *file);
/* hr__route_forget() - let go of a file now, if nothing of it is in flight: it may be deleted. */
void hr__route_forget(struct hr_engine *e, const struct hr_file *file);
void hr__routes_drop(struct hr_engine *e);

/* cache.c: what reads of @file leave in the page cache. Reads small files: once for each way. */
enum hr_cache hr__cache_choose(const struct hr_engine *e, struct hr_file *file);

/* open.c: have e->pagecache, e->p2p. Return: 0 or -code with a sentence. */
int hr__open_pagecache(struct hr_engine *e);
int hr__open_p2p(struct hr_engine *e);

/* check.c: is this request one that can be carried out? Return: 0 or -code with a sentence. */
int hr__io_check(struct hr_engine *e, const struct hr_io *io);

/*
 * window.c: hr__feed() - plan and send what there is room for, at most HR__FEED_BATCH segments: then
 * the engine looks at what has finished, so that their memory stays in the cache.
 * Return: segments sent.
 */
uint32_t hr__feed(struct hr_engine *e);
/* Called when the last byte of a request is accounted for. */
void hr__io_finish(struct hr_engine *e, struct hr_io *io);

#endif

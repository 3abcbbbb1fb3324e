/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/transport.h - the plug point "how bytes move": one const table per path.
 *
 * Control flow of one segment (engine.c drives, see docs/ARCHITECTURE.md):
 *   score() at first use of (file, device) -> limits or the reason why not
 *   submit() prepares a segment and gives it to the shared queue (ioq.h)
 *   the kernel finishes it -> arrived() -> the transport moves the bytes to their places
 *   reap() hands finished segments back to the engine, which credits them to their requests
 */
#ifndef HR_TRANSPORT_TRANSPORT_H
#define HR_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/io.h>
#include <headrace/stats.h>

#include "file/file.h"
#include "file/plan.h"
#include "mem/mem.h"

struct hr__heat;
struct hr__mapping;
struct hr__ioq;
struct hr__staging;
struct hr__transport;

/* Number of pieces of a request, and the k-th of them. */
static inline uint64_t hr__io_pieces(const struct hr_io *io)
{
	if (io->pieces)
		return io->count;
	/* Repetitions of nothing are nothing, however many. */
	return io->count && io->piece.len ? io->count : 1;
}

static inline struct hr_piece hr__io_piece(const struct hr_io *io, uint64_t k)
{
	if (io->pieces)
		return io->pieces[k];
	return (struct hr_piece){
		.file_offset = io->piece.file_offset + k * io->file_stride,
		.len = io->piece.len,
		.buffer_offset = io->piece.buffer_offset + k * io->buffer_stride,
	};
}

/* One read or write of the kernel, from plan to completion. */
struct hr__seg {
	struct hr__plan_segment plan;
	struct hr__seg *next; /* in whichever list holds it */
	struct hr__transport *owner;
	struct hr_file *file;
	enum hr_op op;
	enum hr_cache cache; /* what a read leaves in the page cache, chosen by the engine */
	enum hr_dtype from, to;
	/* what the queue does: set by the transport */
	int fd;
	void *addr;
	int32_t fixed;         /* index of the registered buffer, -1 = none */
	bool direct;           /* fd bypasses the page cache: offsets must stay aligned */
	bool cached;           /* came from the page cache */
	bool hot;              /* a thread of the queue shall look there first */
	uint32_t done;         /* bytes that have arrived or been written so far */
	uint32_t stuck_at;     /* where the last short result ended, see hr__seg_step() */
	uint32_t tries;        /* results that brought nothing forward */
	uint32_t calls;        /* pread and pwrite calls made for it by a thread pool */
	int32_t error;         /* 0 or -code */
	struct hr__heat *heat; /* the engine's guess of the file's residency */
	void *route;           /* the engine's: by which way it went */
	/* bounce: its place in the ring and the ticket of its move */
	uint32_t ring_slot;
	uint64_t ticket;
	/* pagecache */
	struct hr__mapping *mapping; /* NULL: not to be thought of */
	int64_t mtime_ns;            /* of the file before the segment was planned */
	bool mapped;                 /* holds its windows of the mapping */
	bool cold;                   /* was asked about and is not in the page cache */
	struct hr__mapping
		*plain; /* bounce: hot bytes are copied out of it by this thread; or NULL */
	bool copied;    /* they were */
	bool doubt; /* what came out of a mapping may be wrong: the file was changed meanwhile */
	bool again; /* the file is being changed: another path must read it, buffered */
	/* cold and to be kept: pages to be brought in first, see bring.h */
	struct hr__mapping *keeper;
	void *bring;        /* where they are mapped in it */
	uint32_t bring_len; /* 0: none */
	bool bringing;      /* that comes next */
	bool brought;       /* they are there; a thread of the queue shall copy them */
	/*
	 * Or no extent at all: pieces [list_first, list_first + list_n) of this request, each in ready
	 * windows, that no plan has seen; list.h makes it. NULL: an extent.
	 */
	struct hr_io *list_io;
	uint64_t list_first;
	uint64_t list_end; /* of the last byte, in the file */
	uint32_t list_n;
};

/* What every transport of one engine shares. */
struct hr__transport_env {
	struct hr_device *dev;
	const struct hr_engine_options *opts; /* complete, no zero defaults left */
	struct hr__ioq *ioq;
	struct hr__staging *staging;
	struct hr_stats *stats;
	uint64_t *gathered; /* counts requests that are whole in host memory, by any path */
};

/* The question to score(). */
struct hr__shape {
	enum hr_op op;
	bool cast;
	bool map;      /* hr_engine_options.map */
	bool buffered; /* hr_engine_options.buffered */
};

struct hr__transport_ops {
	const char *name;
	enum hr_path path;
	/*
	 * Can this path serve @file on @dev? Return: > 0 the higher the better, with @limits filled;
	 * or -code with the reason written to @reason.
	 */
	int (*score)(const struct hr_file *file, const struct hr_device *dev,
		     const struct hr__shape *shape, struct hr__limits *limits, char *reason,
		     size_t reason_size);
	int (*open)(const struct hr__transport_env *env, struct hr__transport **out);
	/* Is there room for a segment of @len bytes now, in the queue as well? */
	bool (*room)(struct hr__transport *t, uint32_t len);
	/* Prepare and queue; room() said yes. A failure comes back as seg->error from reap(). */
	void (*submit)(struct hr__transport *t, struct hr__seg *seg);
	/* The queue has finished @seg (seg->done, seg->error). It comes back from reap(). */
	void (*arrived)(struct hr__transport *t, struct hr__seg *seg);
	/*
	 * Finished segments, up to @max. @idle: nothing more will arrive before the caller acts, so
	 * held-back moves must be started. Return: count.
	 */
	uint32_t (*reap)(struct hr__transport *t, struct hr__seg **out, uint32_t max, bool idle);
	/*
	 * Wait until the device has finished one more move, or @timeout_ns.
	 * Return: 1 moves are under way still or one has finished, 0 none was under way.
	 */
	int (*wait)(struct hr__transport *t, uint64_t timeout_ns);
	void (*close)(struct hr__transport *t);
};

/* First member of every transport's state. */
struct hr__transport {
	const struct hr__transport_ops *ops;
	uint32_t in_hand; /* the engine's: segments submitted and not reaped; 0: nothing to ask */
};

extern const struct hr__transport_ops hr__transport_host, hr__transport_bounce,
	hr__transport_pagecache, hr__transport_p2p;

/* How many there are; hr__select() weighs them all. */
extern const uint32_t hr__transports_count;

struct hr__verdict {
	const struct hr__transport_ops *ops;
	int score; /* > 0 usable */
	struct hr__limits limits;
	char reason[192]; /* why not; "" if usable */
};

/*
 * hr__select() - weigh all paths. @out: hr__transports_count verdicts, in that order.
 * @wish: HR_PATH_AUTO or one path. Return: index of the best one, or -HR_E_NO_PATH /
 * -HR_E_PATH_REFUSED with a sentence.
 */
int hr__select(const struct hr_file *file, const struct hr_device *dev,
	       const struct hr__shape *shape, enum hr_path wish, struct hr__verdict *out);

#endif

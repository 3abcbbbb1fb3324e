/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/plan.h - from pieces that somebody wants to the reads and writes that a path can do.
 *
 * Pure arithmetic: no I/O, no allocation, no clock. A plan is a window over up to @cap pieces of ONE
 * file and ONE direction. It sorts them by file offset, merges what overlaps or lies closer than
 * @gap, reads no block twice, cuts at the limits of the path, separates what may go straight to its
 * destination from what needs staging, and clamps to the end of the file. hr__plan_next() then
 * yields one segment at a time, so a piece of any size costs no memory.
 */
#ifndef HR_FILE_PLAN_H
#define HR_FILE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece as the planner sees it. */
struct hr__want {
	uint64_t file_off;
	uint64_t len; /* file bytes; > 0 */
	uint64_t dst; /* where it goes: only passed through, and looked at modulo memory_align */
	void *owner;  /* passed through */
	uint64_t body_end; /* the planner's: the part that goes in place ends here; at or before
			      file_off when there is none (any more) */
};

/* Limits of the path, in bytes; powers of two where said. */
struct hr__limits {
	uint32_t
		offset_align; /* of file offset and length of a request; power of two, 1 = any byte */
	uint32_t memory_align; /* of the address of an in-place request; power of two, 1 = any */
	uint32_t segment_max; /* longest request; a multiple of offset_align, >= 2 * offset_align */
	uint32_t unit;        /* pieces are cut only at multiples of this from their start (elements
				   of a conversion); power of two <= 8, 0 or 1 = anywhere */
	uint32_t gap;         /* merge pieces whose distance is at most this */
	uint32_t in_place_min; /* an in-place body shorter than this is staged whole instead, unless
				   the piece needs no staged edge at all and has no neighbour as
				   short as it is */
	bool in_place;         /* a request may target the destination itself */
	bool staged;           /* a request may target staging memory */
	bool write;            /* no merging, nothing beyond the piece may be touched: see below */
	uint64_t file_size;    /* reads end here */
};

/* One destination of a segment. */
struct hr__dest {
	struct hr__dest *next; /* of the same segment, ascending seg_off */
	void *owner;
	uint64_t dst;
	uint32_t seg_off; /* from the first byte of the segment */
	uint32_t len;
};

struct hr__plan_segment {
	uint64_t off;   /* file offset, aligned to offset_align (or not, see .unaligned) */
	uint32_t len;   /* to ask for: aligned; may reach past the end of the file */
	uint32_t need;  /* up to the last byte that somebody wants: the least that must arrive */
	bool in_place;  /* straight to the only destination, dests->dst */
	bool unaligned; /* writes only: an edge that must take the buffered descriptor */
	uint32_t n_dests;
	struct hr__dest first; /* the first destination is stored here... */
	struct hr__dest *last; /* ...the others are chained from a pool */
};

/* Destinations beyond the first of a segment come from a pool that the caller owns. */
struct hr__dest_pool {
	struct hr__dest *free;
	uint32_t n_free; /* for the owner to look at */
};

struct hr__plan {
	struct hr__limits limits;
	/* What makes a piece one request by itself: see is_whole() in plan.c. */
	uint64_t whole_min, whole_max, block_mask, address_mask;
	struct hr__want *wants; /* the caller's array of cap entries */
	uint32_t cap, n;
	uint32_t first; /* wants before it are finished */
	bool sorted;
	bool whole; /* every piece is a request by itself: they stay in the order they came */
	bool ready; /* sorted, and short neighbours found */
	uint64_t run_off, run_end; /* see hr__plan_run() */
};

/* hr__plan_init() - an empty plan over the caller's array; no other memory is needed. */
void hr__plan_init(struct hr__plan *plan, struct hr__want *wants, uint32_t cap);

/* hr__plan_begin() - start a window: forget all pieces, set the limits. Asserts sane limits. */
void hr__plan_begin(struct hr__plan *plan, const struct hr__limits *limits);

/*
 * hr__plan_add() - one more piece; before the first hr__plan_next() of the window only.
 * The part beyond limits.file_size is cut off for reads.
 * Return: bytes that will be planned (0 .. len), or -ENOSPC when the window is full,
 * -EOVERFLOW when file_off + len or dst + len overflows.
 */
int64_t hr__plan_add(struct hr__plan *plan, uint64_t file_off, uint64_t len, uint64_t dst,
		     void *owner);

/*
 * hr__plan_next() - the next segment, in ascending file offset; where every piece of the window is
 * one in-place request by itself, so that nothing could be merged, in the order they were added.
 * Every wanted byte appears in exactly one destination of exactly one segment.
 * Stops adding destinations when @pool is empty (the segment is cut short, never dropped).
 * Return: 1 and *seg, 0 when the window is finished.
 *
 * Writes: segments carry exactly one destination each; an aligned body is in_place or staged,
 * edges come as separate segments with .unaligned set, so that nothing outside the piece is
 * written.
 */
int hr__plan_next(struct hr__plan *plan, struct hr__dest_pool *pool, struct hr__plan_segment *seg);

/*
 * hr__plan_run() - the bytes around @seg, which hr__plan_next() has just given, that the window wants
 * without a gap worth a request. *end: UINT64_MAX where they reach the end of the file.
 */
void hr__plan_run(struct hr__plan *plan, const struct hr__plan_segment *seg, uint64_t *off,
		  uint64_t *end);

/* hr__plan_done() - nothing left in this window. */
static inline bool hr__plan_done(const struct hr__plan *plan)
{
	return plan->first == plan->n;
}

/* hr__dests_free() - give a segment's chained destinations back to the pool. */
void hr__dests_free_chain(struct hr__dest_pool *pool, struct hr__plan_segment *seg);
static inline void hr__dests_free(struct hr__dest_pool *pool, struct hr__plan_segment *seg)
{
	if (seg->n_dests > 1)
		hr__dests_free_chain(pool, seg);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/mover.h - from host memory to device memory and back, for the paths that stop in host
 * memory: they differ only in who fills the host pages.
 *
 * A read that is in host memory waits until moving it pays: when some request of the engine is whole
 * in host memory, when a large segment came, when much is waiting, or when nothing else can happen.
 * Then everything that waits goes to the device in one list, so that a batch of small samples costs
 * one launch. While the lane has two lists, one more would only come with calls and gaps of its own;
 * of small ones one is enough, if more are on their way. Large segments wait in the order of their
 * addresses, whatever order they came in: those that lie side by side become one copy, and fewer
 * copies leave fewer gaps on the bus.
 * A lane that copies on the CPU moves each segment at once, while it is in the cache.
 */
#ifndef HR_TRANSPORT_MOVER_H
#define HR_TRANSPORT_MOVER_H

#include "transport/seg.h"

struct hr__mover {
	struct hr_lane *lane;
	struct hr_stats *stats;
	const struct hr__ioq *ioq; /* for how much is on its way */
	uint64_t *gathered;        /* of the engine: requests that became whole in host memory */
	uint64_t gathered_seen;    /* at the last list */
	bool at_once;              /* the lane works on the CPU */
	bool flush;                /* something in `waiting` should not wait longer */
	uint32_t n_lists;          /* on the lane */
	uint64_t waiting_bytes, waiting_max;
	struct hr__seg_list waiting; /* in host memory, not moved yet */
	struct hr__seg_list leaving; /* to be written, not moved out yet */
	struct hr__seg_list moving;  /* on the lane, in the order of their tickets */
	struct hr__seg_list moved;   /* the transport's to take: moved, or failed with seg->error */
	uint32_t n_moves;
	struct hr__move moves[HR__LANE_MOVES_MAX];
};

/* @waiting_max: bytes that may wait. Return: 0 or -code; close only after success. */
int hr__mover_open(struct hr__mover *m, const struct hr__transport_env *env, uint64_t waiting_max);
void hr__mover_close(struct hr__mover *m);

/* hr__mover_in() - a read is in host memory at seg->addr, or has failed: it comes back in `moved`. */
void hr__mover_in(struct hr__mover *m, struct hr__seg *seg);

/* hr__mover_out() - fetch what a write will send, to seg->addr: it comes back in `moved`. */
void hr__mover_out(struct hr__mover *m, struct hr__seg *seg);

/* hr__mover_start() - move what is waiting now, without looking at what is finished. */
void hr__mover_start(struct hr__mover *m);

/* hr__mover_turn() - start what is due, collect what is finished. @idle: as in reap(). */
void hr__mover_turn(struct hr__mover *m, bool idle);

/* hr__mover_wait() - as wait() of a transport. */
int hr__mover_wait(struct hr__mover *m, uint64_t timeout_ns);

#endif

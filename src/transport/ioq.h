/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/ioq.h - the shared queue to the kernel: io_uring where it is allowed, a thread pool or
 * plain calls where it is not, with one contract.
 *
 * A queue belongs to one thread. It owns retries: short reads are continued, EINTR and EAGAIN sent
 * again, the end of the file recognised. A segment comes back once, with seg->done and seg->error.
 */
#ifndef HR_TRANSPORT_IOQ_H
#define HR_TRANSPORT_IOQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/stats.h>

struct hr__seg;
struct hr__ioq;

struct hr__ioq_options {
	uint32_t depth;   /* segments in flight */
	uint32_t threads; /* for a pool or a crew; 0: plain calls on the caller's thread */
	int node;         /* where they run, beside the device; below 0: anywhere */
	bool no_uring;
	bool migrates;    /* not always the same thread sends */
	void *fixed_addr; /* staging ring to register, or NULL */
	size_t fixed_len;
	struct hr_stats *stats;
};

struct hr__ioq_ops {
	const char *name;
	/* Take one segment; the queue is not full (see hr__ioq_room()). */
	void (*push)(struct hr__ioq *q, struct hr__seg *seg);
	/* Send what was pushed and collect what is finished: at least @min unless @timeout_ns passes.
	 * Return: count stored in @out, or -code when the queue itself is broken. */
	int (*pump)(struct hr__ioq *q, struct hr__seg **out, uint32_t max, uint32_t min,
		    uint64_t timeout_ns);
	void (*close)(struct hr__ioq *q);
};

struct hr__ioq {
	const struct hr__ioq_ops *ops;
	const char *name; /* "io_uring fixed", "io_uring", "threads", "sync" */
	char reason[192]; /* why not the better ones */
	uint32_t depth;
	uint32_t in_flight; /* pushed and not handed back */
	bool fixed;         /* the staging ring is registered as buffer 0 */
	bool hands_over;    /* what was brought into the page cache comes back to be copied */
	bool crew;          /* threads serve segments that are marked as hot */
	struct hr_stats *stats;
};

/* hr__ioq_open() - the best queue that works here. Return: 0 or -code. */
int hr__ioq_open(const struct hr__ioq_options *opts, struct hr__ioq **out);

/* Backends, tried in this order by hr__ioq_open(). @crew: see hr__crew_open(). */
int hr__uring_open(const struct hr__ioq_options *opts, struct hr__ioq **out, char *reason,
		   size_t reason_size);
int hr__pool_open(const struct hr__ioq_options *opts, bool crew, struct hr__ioq **out);

/*
 * hr__crew_open() - one queue out of two: @kernel, which becomes its own, and a crew of threads for the
 * segments that are marked as hot. A thread is started when there is more to copy than the others have
 * hands for; before that there is none. Return: 0 or -code; @kernel remains the caller's then.
 */
int hr__crew_open(const struct hr__ioq_options *opts, struct hr__ioq *kernel, struct hr__ioq **out);

static inline bool hr__ioq_room(const struct hr__ioq *q)
{
	return q->in_flight < q->depth;
}

/*
 * hr__seg_step() - digest one result of the kernel (bytes or -errno) for a segment.
 * Return: true when the segment is finished, false when the rest must be sent again.
 */
bool hr__seg_step(struct hr__seg *seg, int64_t res, struct hr_stats *stats);

#endif

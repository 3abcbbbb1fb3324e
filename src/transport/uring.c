/* SPDX-License-Identifier: Apache-2.0 */
/* transport/uring.c - the queue on io_uring: alone owns submit and reap of the ring. */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>

#include "base/sys.h"
#include "base/util.h"
#include "transport/bring.h"
#include "transport/ioq.h"
#include "transport/transport.h"

#define ROUNDS_MAX 64u

struct uring {
	struct hr__ioq q;
	struct io_uring ring;
	bool enabled; /* the ring belongs to the thread that used it first */
};

static void uring_prep(struct uring *u, struct hr__seg *seg)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	uint8_t *addr = (uint8_t *)seg->addr + seg->done;
	uint32_t len = seg->plan.len - seg->done;
	uint64_t off = seg->plan.off + seg->done;
	uint8_t opcode;

	/* Never NULL: the ring has at least depth entries, and depth bounds what is in flight. */
	if (seg->bringing) {
		io_uring_prep_madvise(sqe, seg->bring, seg->bring_len, MADV_POPULATE_READ);
		io_uring_sqe_set_data(sqe, seg);
		return;
	}
	if (u->q.fixed && seg->fixed >= 0)
		opcode = seg->op == HR_READ ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
	else
		opcode = seg->op == HR_READ ? IORING_OP_READ : IORING_OP_WRITE;
	io_uring_prep_rw(opcode, sqe, seg->fd, addr, len, off);
	if (u->q.fixed && seg->fixed >= 0)
		sqe->buf_index = (uint16_t)seg->fixed;
	io_uring_sqe_set_data(sqe, seg);
	/* A file system that cannot say "would block" may sleep in the submission: let a worker. */
	if (!seg->file->nowait && !seg->file->memory_backed)
		io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
}

static void uring_push(struct hr__ioq *q, struct hr__seg *seg)
{
	struct uring *u = (struct uring *)q;

	uring_prep(u, seg);
	q->in_flight++;
}

/* The pages are there, or the read will say why not. Return: true for a segment that others copy. */
static bool uring_brought(struct uring *u, struct hr__seg *seg, int64_t res)
{
	seg->bringing = false;
	u->q.stats->brought += res == 0;
	seg->brought = res == 0 && u->q.hands_over;
	return seg->brought;
}

/* As hr__seg_step(), which is asked about everything but the usual answer: all of it. */
static bool uring_step(struct uring *u, struct hr__seg *seg, int64_t res)
{
	if (seg->bringing)
		return uring_brought(u, seg, res);
	if (res != seg->plan.len - seg->done)
		return hr__seg_step(seg, res, u->q.stats);
	seg->done = seg->plan.len;
	return true;
}

/* Take finished segments off the ring; unfinished ones are queued again at once. */
static uint32_t uring_drain(struct uring *u, struct hr__seg **out, uint32_t max)
{
	struct io_uring_cqe *cqe;
	unsigned int head, seen = 0;
	uint32_t n = 0;

	io_uring_for_each_cqe(&u->ring, head, cqe)
	{
		struct hr__seg *seg = io_uring_cqe_get_data(cqe);

		if (n == max)
			break;
		seen++;
		if (uring_step(u, seg, hr__sys->ring_result(cqe)))
			out[n++] = seg;
		else
			uring_prep(u, seg);
	}
	io_uring_cq_advance(&u->ring, seen);
	u->q.in_flight -= n;
	return n;
}

/* One system call: submit, and wait for @wait results. Return: 0 or -code when the ring is broken. */
static int uring_enter(struct uring *u, uint32_t wait, uint64_t timeout_ns)
{
	int ret;

	if (!u->enabled) {
		ret = hr__sys->ring_enable(&u->ring);
		if (ret < 0 && ret != -EBADFD)
			return ret;
		u->enabled = true;
	}
	u->q.stats->enters++;
	ret = hr__sys->ring_submit(&u->ring, wait, timeout_ns);
	if (ret >= 0 || ret == -ETIME || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY)
		return 0;
	return ret == -EEXIST ? -HR_E_WRONG_THREAD : ret;
}

/*
 * Results that the kernel puts on the ring only when it is entered: somebody who polls would never see
 * them. It says so in memory, so that a poll for nothing costs no system call.
 */
static bool uring_holds_back(const struct uring *u)
{
	return __atomic_load_n(u->ring.sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_TASKRUN;
}

static int uring_pump(struct hr__ioq *q, struct hr__seg **out, uint32_t max, uint32_t min,
		      uint64_t timeout_ns)
{
	struct uring *u = (struct uring *)q;
	uint64_t end = min ? hr__now_ns() + timeout_ns : 0;
	uint32_t n = uring_drain(u, out, max);

	min = (uint32_t)hr__min(min, max);
	/* Bounded: a kernel that takes nothing (EAGAIN, EBUSY) gets its rest at the next call. */
	for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
		uint32_t left = q->in_flight;
		uint32_t wait = n < min ? (uint32_t)hr__min(min - n, left) : 0;
		int ret;

		if (!wait && !io_uring_sq_ready(&u->ring) && (n || !uring_holds_back(u)))
			return (int)n;
		ret = uring_enter(u, wait, timeout_ns);
		if (ret) /* what is off the ring already must not be lost */
			return n ? (int)n : ret;
		n += uring_drain(u, out + n, max - n);
		if (n >= min || q->in_flight == 0)
			continue; /* what was queued again still has to be submitted */
		timeout_ns = hr__now_ns();
		if (timeout_ns >= end)
			return (int)n;
		timeout_ns = end - timeout_ns;
	}
	return (int)n;
}

static void uring_close(struct hr__ioq *q)
{
	struct uring *u = (struct uring *)q;

	hr__sys->ring_exit(&u->ring);
	free(u);
}

static const struct hr__ioq_ops uring_ops = {
	.name = "io_uring",
	.push = uring_push,
	.pump = uring_pump,
	.close = uring_close,
};

/* The best set-up flags first; older kernels refuse the newer ones with EINVAL. */
static int uring_init(struct io_uring *ring, uint32_t depth, bool migrates)
{
	static const unsigned int flags[] = {
		IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED |
			IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG, /* 6.1 */
		IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,            /* 5.19 */
		IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED, /* 5.10 */
	};
	int ret = -EINVAL;

	/* The first of them ties the ring to one thread. */
	for (uint32_t i = migrates; i < HR_ARRAY_LEN(flags) && ret == -EINVAL; i++) {
		struct io_uring_params p;

		memset(&p, 0, sizeof(p));
		p.flags = flags[i];
		ret = hr__sys->ring_init(depth, ring, &p);
		/* Without it a wait with a time limit would take entries of the ring itself. */
		if (ret == 0 && !(p.features & IORING_FEAT_EXT_ARG)) {
			hr__sys->ring_exit(ring);
			ret = -ENOSYS;
		}
	}
	return ret;
}

static void uring_why_not(int ret, char *reason, size_t size)
{
	switch (ret) {
	case -EPERM:
		snprintf(reason, size,
			 "io_uring is denied (EPERM): by kernel.io_uring_disabled or a container's "
			 "seccomp profile; allow io_uring_setup, io_uring_enter and "
			 "io_uring_register");
		break;
	case -ENOSYS:
		snprintf(reason, size,
			 "io_uring is missing or blocked (ENOSYS): needs Linux 5.11 and "
			 "a seccomp profile that allows it");
		break;
	case -ENOMEM:
		snprintf(reason, size, "io_uring found no memory (ENOMEM): raise RLIMIT_MEMLOCK");
		break;
	default:
		snprintf(reason, size, "io_uring_setup failed: %s", hr_strerror(ret));
	}
}

/* Fixed buffers save pinning the pages at every request; an ordinary user's limit refuses them. */
static void uring_fix(struct uring *u, const struct hr__ioq_options *opts)
{
	struct iovec iov = {opts->fixed_addr, opts->fixed_len};
	int ret;

	if (!opts->fixed_addr)
		return;
	ret = hr__sys->ring_buffers(&u->ring, &iov, 1);
	if (ret == 0) {
		u->q.fixed = true;
		u->q.name = "io_uring fixed";
		return;
	}
	snprintf(u->q.reason, sizeof(u->q.reason),
		 "fixed buffers refused for %zu KiB of staging: %s%s", opts->fixed_len >> 10,
		 hr_strerror(ret),
		 ret == -ENOMEM
			 ? "; raise RLIMIT_MEMLOCK (ulimit -l) or lower HEADRACE_STAGING_BYTES"
			 : "");
}

int hr__uring_open(const struct hr__ioq_options *opts, struct hr__ioq **out, char *reason,
		   size_t reason_size)
{
	struct uring *u;
	int ret;

	if (opts->no_uring) {
		snprintf(reason, reason_size,
			 "io_uring is switched off by HEADRACE_NO_URING or an option");
		return -EPERM;
	}
	u = calloc(1, sizeof(*u));
	if (!u) {
		snprintf(reason, reason_size, "no memory for the ring");
		return -ENOMEM;
	}
	ret = uring_init(&u->ring, opts->depth, opts->migrates);
	if (ret) {
		uring_why_not(ret, reason, reason_size);
		free(u);
		return ret;
	}
	io_uring_ring_dontfork(&u->ring);
	u->q.ops = &uring_ops;
	u->q.name = "io_uring";
	u->q.depth = opts->depth;
	u->q.stats = opts->stats;
	uring_fix(u, opts);
	*out = &u->q;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_lane.c - a lane on a CUDA stream, ours or the caller's: copies by the copy engine for
 * few large pieces, one kernel launch for many small ones, tickets by a ring of events.
 *
 * A lane belongs to one thread at a time and takes no lock. After each move the stream itself writes
 * the ticket's number into host memory, where a load finds it: asking the driver would take its locks,
 * which all threads share. A driver that cannot do that gives each ticket an event instead: ticket t
 * has the one of slot t % TICKETS. Either is queued last, so that it stands for all before it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/util.h"
#include "mem/cuda.h"

#define TICKETS 64u

/* From this mean length of a piece on, a copy engine needs no help from a kernel. */
#define COPY_MIN_BYTES (256u << 10)

/* Room for the lists of a few full batches or of many small ones. */
#define LIST_RING_BYTES (512u << 10)
_Static_assert(HR__CUDA_LIST_MAX <= LIST_RING_BYTES, "the list of any launch fits");

/* Kernels load 8 bytes at a time from a list; lines of 128 keep two lists apart. */
#define LIST_ALIGN 128u

#define SPIN_NS 50000ull /* a nap of any length costs about as much */
#define NAP_MIN_NS 20000l
#define NAP_MAX_NS 200000l

/* A device that does not finish what is queued in this time is taken for dead. */
#define STALL_NS 60000000000ull

/* A stream that failed writes no ticket: so the driver is asked after all, once in so many looks. */
#define LOOKS_MAX 1024u

struct cuda_ticket {
	struct hr__cu_event *event; /* without a mailbox */
	uint64_t list_end; /* lists up to here may be overwritten once the ticket has passed */
};

struct cuda_lane {
	struct hr_lane lane;
	struct hr__cu_stream *stream;
	bool owns_stream;
	uint64_t issued, passed; /* tickets */
	uint64_t *mailbox;       /* pinned; the last ticket that has passed. NULL: events */
	uint64_t mailbox_device;
	uint32_t looks;
	int failed; /* -code of a stream that will never come back */
	struct cuda_ticket tickets[TICKETS];
	/* Lists that kernels read: a ring of pinned memory, made by the first launch, because most
	 * lanes never launch. Positions only grow. */
	char *lists;
	uint64_t lists_device;
	uint64_t list_head, list_tail;
};

static struct cuda_lane *to_lane(struct hr_lane *lane)
{
	return (struct cuda_lane *)lane;
}

static struct hr__cuda_device *device_of(const struct cuda_lane *cl)
{
	return (struct hr__cuda_device *)cl->lane.dev;
}

static void see_passed(struct cuda_lane *cl)
{
	uint64_t passed = __atomic_load_n(cl->mailbox, __ATOMIC_ACQUIRE);

	if (passed == cl->passed)
		return;
	cl->passed = passed;
	cl->list_tail = cl->tickets[passed % TICKETS].list_end;
	cl->looks = 0;
}

/* A stream of the caller may be captured into a graph; nothing may be asked or queued then. */
static bool capturing(const struct cuda_lane *cl)
{
	return !cl->owns_stream && hr__cuda_capturing(device_of(cl), cl->stream);
}

static int refuse_capture(const struct cuda_lane *cl)
{
	return cl->owns_stream ? 0 : hr__cuda_refuse_capture(device_of(cl), cl->stream);
}

/* With the context entered, as all helpers below. */
static int ask_stream(struct cuda_lane *cl)
{
	const struct hr__cuda_device *cd = device_of(cl);
	int result;

	cl->looks = 0;
	if (capturing(cl))
		return 0;
	result = cd->cu->stream_query(cl->stream);
	if (result && result != HR__CU_NOT_READY)
		return cl->failed = hr__cuda_fail(cd, result, "work on a stream failed");
	see_passed(cl);
	return 0;
}

static int poll_entered(struct cuda_lane *cl)
{
	const struct hr__cuda_device *cd = device_of(cl);

	if (cl->failed)
		return cl->failed;
	if (cl->mailbox) {
		see_passed(cl);
		return cl->passed < cl->issued && ++cl->looks >= LOOKS_MAX ? ask_stream(cl) : 0;
	}
	while (cl->passed < cl->issued) {
		struct cuda_ticket *t = &cl->tickets[(cl->passed + 1) % TICKETS];
		int result = cd->cu->event_query(t->event);

		if (result == HR__CU_NOT_READY)
			return 0;
		if (result)
			return hr__cuda_fail(cd, result, "work on a stream failed");
		cl->list_tail = t->list_end;
		cl->passed++;
	}
	return 0;
}

/* Spin a little, since most waits are short, then nap: a driver's own wait has no bound. */
static int wait_entered(struct cuda_lane *cl, uint64_t ticket, uint64_t timeout_ns)
{
	uint64_t start = hr__now_ns();
	struct timespec nap = {.tv_nsec = NAP_MIN_NS};

	for (;;) {
		uint64_t spent;
		int ret = poll_entered(cl);

		if (ret || cl->passed >= ticket)
			return ret;
		spent = hr__now_ns() - start;
		if (spent >= timeout_ns)
			return -ETIMEDOUT;
		if (spent < SPIN_NS)
			continue;
		nanosleep(&nap, NULL);
		cl->looks = LOOKS_MAX; /* a nap costs more than a question */
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec += nap.tv_nsec / 2;
	}
}

/* As wait_entered(), where the lane itself cannot go on without. */
static int wait_or_lost(struct cuda_lane *cl, uint64_t ticket)
{
	int ret = wait_entered(cl, ticket, STALL_NS);

	if (ret == -ETIMEDOUT)
		ret = hr__fail(HR_E_DEVICE_LOST,
			       "%s: a stream made no progress for 60 s; reset the device",
			       cl->lane.dev->info.name);
	return ret;
}

/* A ticket's slot with its event, free to be recorded. */
static int ticket_prepare(struct cuda_lane *cl)
{
	const struct hr__cuda_device *cd = device_of(cl);
	struct cuda_ticket *t = &cl->tickets[(cl->issued + 1) % TICKETS];
	int ret = 0, result;

	if (cl->issued - cl->passed == TICKETS)
		ret = wait_or_lost(cl, cl->issued - TICKETS + 1);
	if (ret || t->event || cl->mailbox)
		return ret;
	result = cd->cu->event_create(&t->event, HR__CU_EVENT_DISABLE_TIMING);
	if (!result)
		return 0;
	t->event = NULL;
	return hr__cuda_fail(cd, result, "no event for a stream");
}

static int ticket_record(struct cuda_lane *cl, uint64_t *ticket)
{
	const struct hr__cuda_device *cd = device_of(cl);
	struct cuda_ticket *t = &cl->tickets[(cl->issued + 1) % TICKETS];
	int result = cl->mailbox ? cd->cu->stream_write64(cl->stream, cl->mailbox_device,
							  cl->issued + 1, 0)
				 : cd->cu->event_record(t->event, cl->stream);

	if (result)
		return hr__cuda_fail(cd, result, "the end of a move could not be queued");
	t->list_end = cl->list_head;
	*ticket = ++cl->issued;
	return 0;
}

/*
 * Something was queued and then the driver refused more: the caller will take the memory back, so
 * what is on its way must end first. A context that is gone runs nothing any more and says so.
 * Return: 0, or -ETIMEDOUT when the stream stalls.
 */
static int quiesce(struct cuda_lane *cl)
{
	const struct hr__cuda_device *cd = device_of(cl);
	uint64_t end = hr__now_ns() + STALL_NS;
	struct timespec nap = {.tv_nsec = NAP_MIN_NS};

	if (capturing(cl))
		return -ETIMEDOUT;
	while (cd->cu->stream_query(cl->stream) == HR__CU_NOT_READY) {
		if (hr__now_ns() >= end)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return 0;
}

static int copy_one(struct cuda_lane *cl, enum hr__where where, const struct hr__move *m)
{
	const struct hr__cuda_device *cd = device_of(cl);
	int result;

	switch (where) {
	case HR__HOST_TO_DEVICE:
	case HR__PLAIN_TO_DEVICE:
		result = cd->cu->copy_to_device((uintptr_t)m->dst, m->src, m->len, cl->stream);
		break;
	case HR__DEVICE_TO_HOST:
	case HR__DEVICE_TO_PLAIN:
		result = cd->cu->copy_to_host(m->dst, (uintptr_t)m->src, m->len, cl->stream);
		break;
	default:
		result = cd->cu->copy_on_device((uintptr_t)m->dst, (uintptr_t)m->src, m->len,
						cl->stream);
	}
	return result ? hr__cuda_fail(cd, result, "a copy could not be queued") : 0;
}

/* The next copy of a list, made of all pieces that continue each other at both ends. */
static uint32_t merge_next(const struct hr__move *moves, uint32_t n, uint32_t i,
			   struct hr__move *out)
{
	*out = moves[i++];
	for (; i < n; i++) {
		if ((const char *)out->src + out->len != moves[i].src ||
		    (char *)out->dst + out->len != moves[i].dst)
			break;
		out->len += moves[i].len;
	}
	return i;
}

/* Bytes from the host end of a copy to the border of its pin: no copy may cross one. */
static uint64_t pin_left(struct cuda_lane *cl, enum hr__where where, const struct hr__move *m)
{
	struct hr__cuda_device *cd = device_of(cl);
	uint64_t at = (uintptr_t)(where == HR__HOST_TO_DEVICE ? m->src : m->dst), left = m->len;
	uint32_t k;

	if (where != HR__HOST_TO_DEVICE && where != HR__DEVICE_TO_HOST)
		return left;
	pthread_rwlock_rdlock(&cd->pins_lock);
	k = hr__cuda_pin_at(cd, at);
	if (k < cd->pins_count)
		left = hr__min(left, cd->pins[k].host + cd->pins[k].len - at);
	pthread_rwlock_unlock(&cd->pins_lock);
	return left;
}

/* *queued counts the copies, also those before a failure. Return: 0 or -code. */
static int copy_split(struct cuda_lane *cl, enum hr__where where, struct hr__move rest, int *queued)
{
	while (rest.len) {
		struct hr__move m = rest;
		int ret;

		m.len = pin_left(cl, where, &rest);
		ret = copy_one(cl, where, &m);
		if (ret)
			return ret;
		++*queued;
		rest.src = (const char *)rest.src + m.len;
		rest.dst = (char *)rest.dst + m.len;
		rest.len -= m.len;
	}
	return 0;
}

/* Each piece by itself. *copies: how many were queued, added up, also on failure. */
static int copy_singly(struct cuda_lane *cl, enum hr__where where, const struct hr__move *moves,
		       uint32_t n, int *copies)
{
	int ret = 0;

	for (uint32_t i = 0; i < n && !ret; i++)
		ret = copy_split(cl, where, moves[i], copies);
	return ret;
}

static int copy_all(struct cuda_lane *cl, enum hr__where where, const struct hr__move *moves,
		    uint32_t n)
{
	int copies = 0, ret = 0;

	for (uint32_t i = 0, next; i < n && !ret; i = next) {
		struct hr__move m;

		next = merge_next(moves, n, i, &m);
		ret = copy_split(cl, where, m, &copies);
		/* Allocations often lie side by side, and no copy may reach from one into the next. */
		if (ret == -EINVAL && next - i > 1)
			ret = copy_singly(cl, where, moves + i, next - i, &copies);
	}
	return ret ? ret : copies;
}

static bool copies_suit(const struct hr__move *moves, uint32_t n)
{
	uint64_t total = 0;
	uint32_t copies = 0;

	for (uint32_t i = 0; i < n; copies++) {
		struct hr__move m;

		i = merge_next(moves, n, i, &m);
		total += m.len;
	}
	return copies <= 1 || total / copies >= COPY_MIN_BYTES;
}

static int lists_open(struct cuda_lane *cl)
{
	const struct hr__cuda_device *cd = device_of(cl);
	void *ptr;
	int result = cd->cu->host_alloc(&ptr, LIST_RING_BYTES,
					HR__CU_ALLOC_PORTABLE | HR__CU_ALLOC_DEVICEMAP);

	if (result)
		return hr__cuda_fail(cd, result, "no pinned memory for lists of pieces");
	result = cd->cu->host_device_pointer(&cl->lists_device, ptr, 0);
	if (result) {
		cd->cu->host_free(ptr);
		return hr__cuda_fail(cd, result, "pinned host memory has no device address");
	}
	cl->lists = ptr;
	return 0;
}

/* Room for @len bytes in one stretch; waits for older launches if it must. *pos: where in the
 * ring. */
static int list_reserve(struct cuda_lane *cl, uint64_t len, uint64_t *pos)
{
	uint64_t need = hr__align_up(len, LIST_ALIGN), at, start;
	int ret = cl->lists ? 0 : lists_open(cl);

	if (ret)
		return ret;
	at = cl->list_head % LIST_RING_BYTES;
	start = at + need <= LIST_RING_BYTES ? cl->list_head : cl->list_head + LIST_RING_BYTES - at;
	while (start + need - cl->list_tail > LIST_RING_BYTES) {
		if (cl->passed == cl->issued) { /* nothing in flight reads any list */
			cl->list_tail = start;
			break;
		}
		ret = wait_or_lost(cl, cl->passed + 1);
		if (ret)
			return ret;
	}
	cl->list_head = start + need;
	*pos = start % LIST_RING_BYTES;
	return 0;
}

static int gather(struct cuda_lane *cl, enum hr__where where, const struct hr__move *moves,
		  uint32_t n, enum hr_dtype from, enum hr_dtype to)
{
	struct hr__cuda_device *cd = device_of(cl);
	int kernel = hr__cuda_kernel(from, to), result, ret;
	struct hr__cu_function *function;
	struct hr__cuda_gather g;
	void *params[] = {&g.args};
	uint64_t pos;

	ret = hr__cuda_function(cd, kernel, &function);
	if (!ret)
		ret = hr__cuda_gather_plan(cd, moves, n, kernel != HR__KERNEL_hr_gather_bytes, &g);
	if (!ret)
		ret = list_reserve(cl, g.list_bytes, &pos);
	if (!ret)
		ret = hr__cuda_gather_fill(cd, where, moves, n, from, to, cl->lists + pos,
					   cl->lists_device + pos, &g);
	if (ret)
		return ret;
	result = cd->cu->launch_kernel(function, g.blocks, 1, 1, HR__GATHER_THREADS, 1, 1, 0,
				       cl->stream, params, NULL);
	return result ? hr__cuda_fail(cd, result, "a gather kernel could not be launched") : 1;
}

static int move_entered(struct cuda_lane *cl, enum hr__where where, const struct hr__move *moves,
			uint32_t n, enum hr_dtype from, enum hr_dtype to, uint64_t *ticket)
{
	bool plain = where == HR__PLAIN_TO_DEVICE || where == HR__DEVICE_TO_PLAIN;
	bool bytes = hr__cuda_kernel(from, to) == HR__KERNEL_hr_gather_bytes;
	int count, ret;

	ret = ticket_prepare(cl);
	if (ret)
		return ret;
	if (bytes && (plain || !cl->lane.dev->info.kernels || copies_suit(moves, n)))
		count = copy_all(cl, where, moves, n);
	else
		count = gather(cl, where, moves, n, from, to);
	if (count < 0)
		return count;
	ret = ticket_record(cl, ticket);
	if (!ret && plain)
		ret = wait_or_lost(cl, *ticket);
	return ret ? ret : count;
}

static int lane_move(struct hr_lane *lane, enum hr__where where, const struct hr__move *moves,
		     uint32_t n, enum hr_dtype from, enum hr_dtype to, uint64_t *ticket)
{
	struct cuda_lane *cl = to_lane(lane);
	const struct hr__cuda_device *cd = device_of(cl);
	int ret;

	if (!n || n > HR__LANE_MOVES_MAX)
		return -EINVAL;
	if (!hr_cast_ok(from, to))
		return -HR_E_BAD_CAST;
	if (hr__cuda_kernel(from, to) != HR__KERNEL_hr_gather_bytes &&
	    (!cd->dev.info.kernels || where == HR__PLAIN_TO_DEVICE || where == HR__DEVICE_TO_PLAIN))
		return -ENOTSUP;
	ret = hr__cuda_enter(cd);
	if (ret)
		return ret;
	ret = refuse_capture(cl);
	if (!ret) {
		ret = move_entered(cl, where, moves, n, from, to, ticket);
		if (ret < 0)
			quiesce(cl);
	}
	hr__cuda_leave(cd);
	if (ret == -HR_E_DEVICE_LOST)
		cl->failed = ret;
	return ret;
}

static int lane_poll(struct hr_lane *lane, uint64_t *passed)
{
	struct cuda_lane *cl = to_lane(lane);
	int ret = 0;

	if (cl->mailbox && !cl->failed &&
	    cl->looks + 1 < LOOKS_MAX) { /* no context is needed for that */
		cl->looks++;
		see_passed(cl);
		*passed = cl->passed;
		return 0;
	}
	if (cl->passed < cl->issued || cl->failed) {
		ret = hr__cuda_enter(device_of(cl));
		if (ret)
			return ret;
		ret = poll_entered(cl);
		hr__cuda_leave(device_of(cl));
	}
	*passed = cl->passed;
	return ret;
}

static int lane_wait(struct hr_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	struct cuda_lane *cl = to_lane(lane);
	int ret;

	if (ticket > cl->issued)
		return -EINVAL;
	if (cl->mailbox)
		see_passed(cl);
	if (ticket <= cl->passed)
		return 0;
	if (!timeout_ns && cl->mailbox)
		return -ETIMEDOUT;
	ret = hr__cuda_enter(device_of(cl));
	if (ret)
		return ret;
	ret = wait_entered(cl, ticket, timeout_ns);
	hr__cuda_leave(device_of(cl));
	return ret;
}

static int lane_mark(struct hr_lane *lane, uint64_t *ticket)
{
	struct cuda_lane *cl = to_lane(lane);
	int ret = hr__cuda_enter(device_of(cl));

	if (ret)
		return ret;
	ret = refuse_capture(cl);
	if (!ret)
		ret = ticket_prepare(cl);
	if (!ret)
		ret = ticket_record(cl, ticket);
	hr__cuda_leave(device_of(cl));
	return ret;
}

static int lane_call(struct hr_lane *lane, void (*fn)(void *arg), void *arg)
{
	struct cuda_lane *cl = to_lane(lane);
	const struct hr__cuda_device *cd = device_of(cl);
	int result, ret = hr__cuda_enter(cd);

	if (ret)
		return ret;
	ret = refuse_capture(cl);
	result = ret ? 0 : cd->cu->launch_host_fn(cl->stream, fn, arg);
	hr__cuda_leave(cd);
	return result ? hr__cuda_fail(cd, result, "a host call could not be queued") : ret;
}

/* With the context entered and nothing in flight. */
static void lane_fini(struct cuda_lane *cl)
{
	const struct hr__cuda_api *cu = device_of(cl)->cu;

	/* First: a stream whose device was lost may not have let go of its lists yet. */
	if (cl->owns_stream)
		cu->stream_destroy(cl->stream);
	for (uint32_t i = 0; i < TICKETS; i++) {
		if (cl->tickets[i].event)
			cu->event_destroy(cl->tickets[i].event);
	}
	if (cl->mailbox)
		cu->host_free(cl->mailbox);
	if (cl->lists)
		cu->host_free(cl->lists);
}

static void lane_close(struct hr_lane *lane)
{
	struct cuda_lane *cl = to_lane(lane);
	const struct hr__cuda_device *cd = device_of(cl);
	int ret = hr__cuda_enter(cd);

	if (!ret) {
		ret = wait_entered(cl, cl->issued, STALL_NS);
		if (cl->failed)
			ret = quiesce(cl) ? -ETIMEDOUT : cl->failed;
		/* A stalled stream may still read its lists: they are left to it. */
		if (ret != -ETIMEDOUT)
			lane_fini(cl);
		hr__cuda_leave(cd);
	}
	if (ret)
		hr__log(HR_LOG_WARN, "%s: a lane did not close cleanly: %s", cd->dev.info.name,
			hr_strerror(ret));
	free(cl);
}

static const struct hr__lane_ops lane_ops = {
	.name = "cuda",
	.move = lane_move,
	.poll = lane_poll,
	.wait = lane_wait,
	.mark = lane_mark,
	.call = lane_call,
	.flush = hr__cuda_flush,
	.close = lane_close,
};

/*
 * A mailbox, if the driver and the device know how to write into one: the first ticket tries it. No
 * failure: without it there are events.
 */
static void mailbox_open(struct cuda_lane *cl)
{
	const struct hr__cuda_api *cu = device_of(cl)->cu;
	void *ptr;

	if (!cu->stream_write64 || cu->host_alloc(&ptr, sizeof(*cl->mailbox),
						  HR__CU_ALLOC_PORTABLE | HR__CU_ALLOC_DEVICEMAP))
		return;
	cl->mailbox = ptr;
	*cl->mailbox = 0;
	if (cu->host_device_pointer(&cl->mailbox_device, ptr, 0) == 0 &&
	    cu->stream_write64(cl->stream, cl->mailbox_device, 1, 0) == 0) {
		cl->issued = 1;
		return;
	}
	cl->mailbox = NULL;
	cu->host_free(ptr);
}

/* The first ticket on a stream of the caller tells whether it belongs to this context. */
static int stream_check(struct cuda_lane *cl)
{
	uint64_t ticket;
	int ret = ticket_prepare(cl);

	if (!ret)
		ret = ticket_record(cl, &ticket);
	if (ret && cl->tickets[1].event)
		device_of(cl)->cu->event_destroy(cl->tickets[1].event);
	if (ret && cl->mailbox)
		device_of(cl)->cu->host_free(cl->mailbox);
	return ret;
}

int hr__cuda_lane_open(struct hr_device *dev, void *native, struct hr_lane **out)
{
	struct hr__cuda_device *cd = (struct hr__cuda_device *)dev;
	struct cuda_lane *cl;
	int result, ret;

	_Static_assert(TICKETS >= 2, "a slot is recorded while another is waited for");
	cl = calloc(1, sizeof(*cl));
	if (!cl)
		return hr__fail(ENOMEM, "%s: no host memory for a lane", dev->info.name);
	cl->lane.ops = &lane_ops;
	cl->lane.dev = dev;
	ret = hr__cuda_enter(cd);
	if (ret)
		goto err_free;
	if (native) {
		cl->stream = native;
		ret = hr__cuda_refuse_capture(cd, cl->stream);
		if (!ret) {
			mailbox_open(cl);
			ret = stream_check(cl);
		}
	} else {
		result = cd->cu->stream_create(&cl->stream, HR__CU_STREAM_NON_BLOCKING,
					       cd->priority_least);
		cl->owns_stream = true;
		ret = result ? hr__cuda_fail(cd, result, "no stream for a lane") : 0;
		if (!ret)
			mailbox_open(cl);
	}
	hr__cuda_leave(cd);
	if (ret)
		goto err_free;
	*out = &cl->lane;
	return 0;

err_free:
	free(cl);
	return ret;
}

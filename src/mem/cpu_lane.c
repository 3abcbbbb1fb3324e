/* SPDX-License-Identifier: Apache-2.0 */
/* mem/cpu_lane.c - tickets of a lane without a queue; knows no device. */
#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "mem/cpu_lane.h"
#include "mem/mem.h"

static int lane_mark(struct hr_lane *lane, uint64_t *ticket)
{
	struct hr__cpu_lane *cl = (struct hr__cpu_lane *)lane;

	*ticket = atomic_fetch_add_explicit(&cl->last, 1, memory_order_acq_rel) + 1;
	return 0;
}

static int lane_move(struct hr_lane *lane, enum hr__where where, const struct hr__move *moves,
		     uint32_t n, enum hr_dtype from, enum hr_dtype to, uint64_t *ticket)
{
	struct hr__cpu_lane *cl = (struct hr__cpu_lane *)lane;

	if (!n || n > HR__LANE_MOVES_MAX)
		return -EINVAL;
	if (!hr_cast_ok(from, to))
		return -HR_E_BAD_CAST;
	for (uint32_t i = 0; i < n; i++) {
		int ret = cl->move(cl, where, &moves[i], from, to);

		if (ret)
			return ret;
	}
	lane_mark(lane, ticket);
	return (int)n;
}

static int lane_poll(struct hr_lane *lane, uint64_t *passed)
{
	struct hr__cpu_lane *cl = (struct hr__cpu_lane *)lane;

	*passed = atomic_load_explicit(&cl->last, memory_order_acquire);
	return 0;
}

static int lane_wait(struct hr_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	return 0;
}

static int lane_call(struct hr_lane *lane, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

/* The CPU sees what a drive has written as soon as it sees the completion. */
static int lane_flush(struct hr_lane *lane)
{
	return 0;
}

static void lane_close(struct hr_lane *lane)
{
	free(lane);
}

static const struct hr__lane_ops lane_ops = {
	.name = "cpu",
	.move = lane_move,
	.poll = lane_poll,
	.wait = lane_wait,
	.mark = lane_mark,
	.call = lane_call,
	.flush = lane_flush,
	.close = lane_close,
};

int hr__cpu_lane_open(struct hr_device *dev, size_t size, hr__cpu_move *move, struct hr_lane **out)
{
	struct hr__cpu_lane *cl = calloc(1, size);

	if (!cl)
		return hr__fail(ENOMEM, "%s: no memory for a lane", dev->info.name);
	cl->lane.ops = &lane_ops;
	cl->lane.dev = dev; /* some callers come straight here */
	cl->move = move;
	*out = &cl->lane;
	return 0;
}

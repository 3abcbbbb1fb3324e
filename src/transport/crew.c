/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/crew.c - io_uring for what the drive has, threads for what the page cache has, as one
 * queue: copying out of the page cache takes a processor's time, of which one thread has not enough
 * for a GPU's link. Knows neither devices nor staging.
 *
 * A segment that its thread did not find in the page cache goes to the kernel's queue after all.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "transport/ioq.h"
#include "transport/transport.h"

#define NAP_NS (100u * 1000u) /* longest look at the drive while threads are copying */

struct crew {
	struct hr__ioq q;
	struct hr__ioq *kernel, *hands;
};

static void count_in_flight(struct crew *c)
{
	c->q.in_flight = c->kernel->in_flight + c->hands->in_flight;
}

static void crew_push(struct hr__ioq *q, struct hr__seg *seg)
{
	struct crew *c = (struct crew *)q;
	struct hr__ioq *part = seg->hot ? c->hands : c->kernel;

	part->ops->push(part, seg);
	count_in_flight(c);
}

/* Both parts are as deep as the whole, so there is always room for what was not in the cache. */
static int take_copied(struct crew *c, struct hr__seg **out, uint32_t max, uint32_t min,
		       uint64_t timeout_ns)
{
	int n = 0, got = c->hands->ops->pump(c->hands, out, max, min, timeout_ns);

	for (int i = 0; i < got; i++) {
		bool came_now = out[i]->brought;

		out[i]->brought = false;
		if (out[i]->cached) {
			out[i]->cached = !came_now; /* no, from the drive */
			out[n++] = out[i];
		} else {
			c->kernel->ops->push(c->kernel, out[i]);
		}
	}
	return n;
}

static int take_read(struct crew *c, struct hr__seg **out, uint32_t max, uint32_t min,
		     uint64_t timeout_ns)
{
	int n = 0, got = max ? c->kernel->ops->pump(c->kernel, out, max, min, timeout_ns) : 0;

	for (int i = 0; i < got; i++) {
		out[i]->hot = out[i]->brought;
		if (out[i]->hot)
			c->hands->ops->push(c->hands, out[i]);
		else
			out[n++] = out[i];
	}
	return got < 0 ? got : n;
}

/*
 * Sleep where the next answer will come from; a look at the other side in between. One answer is
 * enough: a thread that waits for its next segment costs more than a turn of the engine.
 */
static int wait_for_one(struct crew *c, struct hr__seg **out, uint32_t max, uint64_t timeout_ns)
{
	uint64_t end = hr__now_ns() + timeout_ns, now;
	int n = 0;

	while (n == 0 && c->q.in_flight && (now = hr__now_ns()) < end) {
		if (!c->kernel->in_flight) {
			n = take_copied(c, out, max, 1, end - now);
		} else {
			n = take_read(c, out, max, 1,
				      c->hands->in_flight ? hr__min(end - now, NAP_NS) : end - now);
			if (n >= 0)
				n += take_copied(c, out + n, max - (uint32_t)n, 0, 0);
		}
	}
	return n;
}

static int crew_pump(struct hr__ioq *q, struct hr__seg **out, uint32_t max, uint32_t min,
		     uint64_t timeout_ns)
{
	struct crew *c = (struct crew *)q;
	int n, ret;

	if (!c->hands->in_flight) {
		ret = take_read(c, out, max, min, timeout_ns);
		count_in_flight(c);
		if (ret || !c->hands->in_flight)
			return ret;
	}
	n = take_copied(c, out, max, 0, 0);
	ret = take_read(c, out + n, max - (uint32_t)n, 0, 0);
	if (ret > 0)
		n += ret;
	else if (ret == 0 && n == 0 && min && max)
		ret = n = wait_for_one(c, out, max, timeout_ns);
	count_in_flight(c);
	/* What is off a queue must not be lost: a broken one says so again at the next call. */
	return n ? n : ret;
}

static void crew_close(struct hr__ioq *q)
{
	struct crew *c = (struct crew *)q;

	c->hands->ops->close(c->hands);
	c->kernel->ops->close(c->kernel);
	free(c);
}

static const struct hr__ioq_ops crew_ops = {
	.name = "crew",
	.push = crew_push,
	.pump = crew_pump,
	.close = crew_close,
};

int hr__crew_open(const struct hr__ioq_options *opts, struct hr__ioq *kernel, struct hr__ioq **out)
{
	struct crew *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return -ENOMEM;
	ret = hr__pool_open(opts, true, &c->hands);
	if (ret) {
		free(c);
		return ret;
	}
	c->kernel = kernel;
	c->kernel->hands_over = true;
	c->q = *kernel; /* its name, its reason and its buffers */
	c->q.ops = &crew_ops;
	c->q.crew = true;
	*out = &c->q;
	return 0;
}

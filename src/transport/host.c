/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/host.c - the path "host": the drive, or the page cache, straight into the destination.
 * Works where device memory is host memory; needs no staging and no device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "transport/ioq.h"
#include "transport/seg.h"

/* A body shorter than this is not worth two more requests for its edges. */
#define IN_PLACE_MIN (64u << 10)
#define GAP                                                                                        \
	4096u /* for what is staged: reading this much too much is cheaper than one more request */

struct host {
	struct hr__transport t;
	struct hr__transport_env env;
	struct hr__seg_list done;
};

static int host_score(const struct hr_file *file, const struct hr_device *dev,
		      const struct hr__shape *shape, struct hr__limits *limits, char *reason,
		      size_t reason_size)
{
	if (!(dev->caps & HR__MEM_CAP_HOST_VISIBLE)) {
		snprintf(reason, reason_size,
			 "the CPU and the drive cannot address the memory of %s", dev->info.name);
		return -HR_E_NO_PATH;
	}
	if (shape->cast) {
		snprintf(reason, reason_size,
			 "a conversion of elements needs a stop in staging memory");
		return -HR_E_NO_PATH;
	}
	*limits = (struct hr__limits){
		.offset_align = file->offset_align ? file->offset_align : 1,
		.memory_align = file->memory_align ? file->memory_align : 1,
		.unit = 1,
		.gap = GAP,
		.in_place_min = IN_PLACE_MIN,
		.in_place = true,
		.staged = true,
		.write = shape->op == HR_WRITE,
	};
	return 20;
}

static int host_open(const struct hr__transport_env *env, struct hr__transport **out)
{
	struct host *h = calloc(1, sizeof(*h));

	if (!h)
		return hr__fail(ENOMEM, "%s: no memory for the path host; free some",
				env->dev->info.name);
	h->t.ops = &hr__transport_host;
	h->env = *env;
	*out = &h->t;
	return 0;
}

static bool host_room(struct hr__transport *t, uint32_t len)
{
	return hr__ioq_room(((struct host *)t)->env.ioq);
}

static void host_submit(struct hr__transport *t, struct hr__seg *seg)
{
	struct host *h = (struct host *)t;

	seg->owner = t;
	seg->addr = (void *)(uintptr_t)seg->plan.first.dst;
	hr__seg_aim(seg, h->env.opts);
	if (seg->op == HR_WRITE)
		h->env.ioq->ops->push(h->env.ioq, seg);
	else if (hr__seg_read(seg, &h->env))
		hr__seg_list_add(&h->done, seg);
}

static void host_arrived(struct hr__transport *t, struct hr__seg *seg)
{
	hr__seg_list_add(&((struct host *)t)->done, seg);
}

static uint32_t host_reap(struct hr__transport *t, struct hr__seg **out, uint32_t max, bool idle)
{
	return hr__seg_list_drain(&((struct host *)t)->done, out, max);
}

static int host_wait(struct hr__transport *t, uint64_t timeout_ns)
{
	return 0;
}

static void host_close(struct hr__transport *t)
{
	free(t);
}

const struct hr__transport_ops hr__transport_host = {
	.name = "host",
	.path = HR_PATH_HOST,
	.score = host_score,
	.open = host_open,
	.room = host_room,
	.submit = host_submit,
	.arrived = host_arrived,
	.reap = host_reap,
	.wait = host_wait,
	.close = host_close,
};

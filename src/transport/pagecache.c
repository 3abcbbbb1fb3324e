/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/pagecache.c - the path "pagecache": the device's own lane reads the mapped file, with no
 * read(2) and no staging copy. A GPU pulls registered pages over its bus, one launch a batch; the
 * host lane copies and converts in one pass.
 *
 * Nothing stops others from changing the file meanwhile. So size and time of the last change are
 * compared before planning and after moving: whatever is in doubt is read again by another path,
 * which sees the file as read(2) does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/util.h"
#include "transport/list.h"
#include "transport/mover.h"
#include "transport/pagecache.h"
#include "transport/sigbus.h"

#define WAITING_MAX (32ull << 20)
#define LAUNCH_BYTES (1ull << 20) /* keep a bus busy for longer than a launch takes */

struct pagecache {
	struct hr__transport t;
	struct hr__transport_env env;
	struct hr__seg_list done;
	struct hr__mover mover;
};

static int pagecache_score(const struct hr_file *file, const struct hr_device *dev,
			   const struct hr__shape *shape, struct hr__limits *limits, char *reason,
			   size_t reason_size)
{
	if (shape->op != HR_READ) {
		snprintf(reason, reason_size, "only reads come out of the page cache");
		return -HR_E_NO_PATH;
	}
	if (shape->cast && !(dev->caps & HR__MEM_CAP_CAST)) {
		snprintf(reason, reason_size, "%s cannot convert elements: %s", dev->info.name,
			 dev->info.kernels_reason);
		return -HR_E_NO_PATH;
	}
	if (hr__mapping_check(file, dev, shape->map, reason, reason_size))
		return -HR_E_NO_PATH;
	*limits = (struct hr__limits){
		.offset_align = 1,
		.memory_align = 1,
		.unit = 1,
		.staged = true,
	};
	return 5; /* never alone: it takes what is ready, another path the rest */
}

static int pagecache_open(const struct hr__transport_env *env, struct hr__transport **out)
{
	struct pagecache *p;
	int ret = 0;

	if (env->dev->caps & HR__MEM_CAP_HOST_VISIBLE)
		ret = hr__sigbus_install(); /* on the thread that will copy: see there */
	if (ret)
		return hr__fail(-ret, "the handler of SIGBUS could not be installed: %s",
				hr_strerror(ret));
	p = calloc(1, sizeof(*p));
	if (!p)
		return hr__fail(ENOMEM, "%s: no memory for the path pagecache; free some",
				env->dev->info.name);
	p->t.ops = &hr__transport_pagecache;
	p->env = *env;
	ret = hr__mover_open(&p->mover, env, WAITING_MAX);
	if (ret) {
		free(p);
		return ret;
	}
	*out = &p->t;
	return 0;
}

static bool pagecache_room(struct hr__transport *t, uint32_t len)
{
	return true;
}

/* The bytes of a segment that somebody wants. */
static uint64_t wanted(const struct hr__seg *seg, uint64_t *off)
{
	uint32_t skip = seg->plan.first.seg_off;

	*off = seg->plan.off + skip;
	return seg->plan.need - skip;
}

static bool hold(struct hr__seg *seg)
{
	uint64_t off, len = wanted(seg, &off);

	return hr__mapping_hold(seg->mapping, off, len, seg->mtime_ns);
}

bool hr__pagecache_take(struct hr__transport *t, struct hr__seg *seg)
{
	struct pagecache *p = (struct pagecache *)t;

	/* Registered pages are resident; others would make this thread wait for the drive. */
	if (!seg->mapping->pinned && !hr__looks_hot(seg, p->env.stats, true))
		return false;
	seg->mapped = hold(seg);
	return seg->mapped;
}

int hr__pagecache_force(struct hr__transport *t, struct hr__seg *seg)
{
	struct pagecache *p = (struct pagecache *)t;
	struct hr__mapping_work work = {0};
	struct hr__file_stamp stamp;
	uint64_t off, len = wanted(seg, &off);
	int64_t ready;

	seg->mapped = hold(seg);
	if (seg->mapped)
		return 1;
	if (hr__file_stamp(seg->file, &stamp) || atomic_load(&seg->mapping->broken))
		return 0;
	seg->mtime_ns = stamp.mtime_ns;
	ready = hr__mapping_prepare(seg->mapping, off, len, true, hr__mapping_tick(), UINT64_MAX,
				    &work);
	p->env.stats->registered_bytes += work.bytes;
	p->env.stats->register_ns += work.ns;
	if (ready < 0)
		return (int)ready;
	if (work.full)
		return hr__fail(HR_E_PATH_REFUSED,
				"%s: the path pagecache is refused: HEADRACE_PIN_BYTES is used up "
				"by windows in use; raise it, or let another path serve the rest",
				hr_file_path(seg->file));
	seg->mapped = hold(seg);
	return seg->mapped;
}

void hr__pagecache_fail(struct hr__transport *t, struct hr__seg *seg, int code)
{
	seg->owner = t;
	seg->error = code;
	hr__mover_in(&((struct pagecache *)t)->mover, seg);
}

static void pagecache_submit(struct hr__transport *t, struct hr__seg *seg)
{
	struct pagecache *p = (struct pagecache *)t;
	struct hr__mapping *m = seg->mapping;

	seg->owner = t;
	seg->addr = m->base + seg->plan.off; /* a list has offset 0 */
	seg->direct = false;
	seg->cached = true;
	seg->done = seg->plan.need;
	if (!m->pinned)
		hr__sigbus_enter(m->base, m->len, &m->broken);
	hr__mover_in(&p->mover, seg);
	if (!m->pinned)
		hr__sigbus_leave();
	/* One launch after the other, so that the device has work while the next list is made. */
	else if (p->mover.waiting_bytes >= LAUNCH_BYTES)
		hr__mover_start(&p->mover);
}

static void pagecache_arrived(struct hr__transport *t, struct hr__seg *seg)
{
	hr__mover_in(&((struct pagecache *)t)->mover, seg); /* nothing is ever queued for it */
}

static void let_go(struct hr__seg *seg)
{
	uint64_t off, len = wanted(seg, &off);

	if (seg->list_io)
		hr__list_release(seg);
	else if (seg->mapped)
		hr__mapping_release(seg->mapping, off, len);
}

static void settle(struct pagecache *p, struct hr__seg *seg, struct hr__look *look)
{
	uint64_t end = seg->list_io ? seg->list_end : seg->plan.off + seg->plan.need;

	let_go(seg);
	seg->doubt = !seg->error && hr__mapping_doubtful(seg->mapping, seg->mtime_ns, end, look);
	p->env.stats->reread += seg->doubt;
}

static uint32_t pagecache_reap(struct hr__transport *t, struct hr__seg **out, uint32_t max,
			       bool idle)
{
	struct pagecache *p = (struct pagecache *)t;
	struct hr__look look = {0};
	struct hr__seg *seg;

	hr__mover_turn(&p->mover, idle);
	while ((seg = hr__seg_list_take(&p->mover.moved))) {
		settle(p, seg, &look);
		hr__seg_list_add(&p->done, seg);
	}
	return hr__seg_list_drain(&p->done, out, max);
}

static int pagecache_wait(struct hr__transport *t, uint64_t timeout_ns)
{
	return hr__mover_wait(&((struct pagecache *)t)->mover, timeout_ns);
}

static void pagecache_close(struct hr__transport *t)
{
	struct pagecache *p = (struct pagecache *)t;

	hr__mover_close(&p->mover);
	free(p);
}

const struct hr__transport_ops hr__transport_pagecache = {
	.name = "pagecache",
	.path = HR_PATH_PAGECACHE,
	.score = pagecache_score,
	.open = pagecache_open,
	.room = pagecache_room,
	.submit = pagecache_submit,
	.arrived = pagecache_arrived,
	.reap = pagecache_reap,
	.wait = pagecache_wait,
	.close = pagecache_close,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* engine/open.c - builds an engine from its parts and takes it down again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/memlimit.h"
#include "base/util.h"
#include "engine/engine.h"

#define DEPTH_DEFAULT 128u
#define DEPTH_MAX 4096u
#define THREADS_MAX 256u
#define REQUEST_MIN (4u << 10)
#define REQUEST_DEFAULT (1u << 20)
#define REQUEST_MAX (16u << 20)
#define STAGING_MIN (256ull << 10)
#define STAGING_MAX (16ull << 30)
#define TIMEOUT_DEFAULT_NS 60000000000ull

static int refuse_option(const char *name, uint64_t value, const char *range)
{
	return hr__fail(EINVAL,
			"engine option %s = %llu is out of range; use %s, or 0 for the default",
			name, (unsigned long long)value, range);
}

/* Zero means default; anything else must be in range: it is refused, not bent. */
static int complete_options(const struct hr_engine_options *in, struct hr_engine_options *o)
{
	const struct hr_config *config = hr_config_get();

	*o = in ? *in : (struct hr_engine_options){0};
	if (!o->depth)
		o->depth = DEPTH_DEFAULT;
	if (o->depth > DEPTH_MAX)
		return refuse_option("depth", o->depth, "1 to 4096");
	if (o->threads > THREADS_MAX)
		return refuse_option("threads", o->threads, "1 to 256");
	if (!o->staging_bytes)
		o->staging_bytes = hr__staging_bytes(o->threads);
	if (o->staging_bytes < STAGING_MIN || o->staging_bytes > STAGING_MAX)
		return refuse_option("staging_bytes", o->staging_bytes, "256 KiB to 16 GiB");
	o->staging_bytes = hr__align_up(o->staging_bytes, HR__STAGING_ALIGN);
	if (!o->request_bytes)
		o->request_bytes = REQUEST_DEFAULT;
	if (o->request_bytes < REQUEST_MIN || o->request_bytes > REQUEST_MAX)
		return refuse_option("request_bytes", o->request_bytes, "4 KiB to 16 MiB");
	o->request_bytes = (uint32_t)hr__align_down(o->request_bytes, HR__STAGING_ALIGN);
	if ((uint32_t)o->path >= HR_PATH_COUNT_)
		return refuse_option("path", o->path, "a path of this build");
	if (o->path == HR_PATH_AUTO)
		o->path = config->path;
	if (!o->timeout_ns)
		o->timeout_ns = TIMEOUT_DEFAULT_NS;
	o->timeout_ns = hr__min(o->timeout_ns, HR__TIMEOUT_MAX_NS);
	if ((uint32_t)o->cache > HR_CACHE_DROP)
		return refuse_option("cache", o->cache, "auto, keep or drop");
	/* The wish of the environment yields to options that say otherwise. */
	if (o->cache == HR_CACHE_AUTO && !(config->cache == HR_CACHE_KEEP && o->direct))
		o->cache = config->cache;
	o->buffered |= o->cache == HR_CACHE_KEEP && !config->require_direct;
	if (o->map && o->migrates)
		return hr__fail(EINVAL,
				"engine options map and migrates exclude each other: SIGBUS is "
				"unblocked for one thread only");
	if (o->buffered && o->direct)
		return hr__fail(EINVAL, "engine options buffered and direct exclude each other");
	if (o->direct && o->path == HR_PATH_PAGECACHE)
		return hr__fail(EINVAL, "engine option direct and path pagecache exclude each "
					"other");
	if (o->buffered && config->require_direct)
		return hr__fail(HR_E_REQUIRE_DIRECT,
				"engine option buffered: HEADRACE_REQUIRE=direct forbids reads "
				"through the page cache; unset one of them");
	o->no_uring |= config->no_uring;
	o->direct |= config->require_direct;
	return 0;
}

static void link_pools(struct hr_engine *e)
{
	for (uint32_t i = 0; i < HR__SEGMENTS_MAX; i++) {
		e->segs[i].next = e->free_segs;
		e->free_segs = &e->segs[i];
	}
	for (uint32_t i = 0; i < HR__DESTS_MAX; i++) {
		e->dest_store[i].next = e->dests.free;
		e->dests.free = &e->dest_store[i];
		e->dests.n_free++;
	}
	e->queued_end = &e->queued;
	e->done_end = &e->done;
	hr__plan_init(&e->plan, e->wants, HR__WINDOW_MAX);
}

static struct hr__transport_env transport_env(struct hr_engine *e)
{
	return (struct hr__transport_env){
		.dev = e->dev,
		.opts = &e->opts,
		.ioq = e->ioq,
		.staging = &e->staging,
		.stats = &e->stats,
		.gathered = &e->gathered,
	};
}

/* Not at open: it has a lane of its own, which many engines never need. */
int hr__open_pagecache(struct hr_engine *e)
{
	struct hr__transport_env env = transport_env(e);

	return e->pagecache ? 0 : hr__transport_pagecache.open(&env, &e->pagecache);
}

int hr__open_p2p(struct hr_engine *e)
{
	struct hr__transport_env env = transport_env(e);

	return e->p2p ? 0 : hr__transport_p2p.open(&env, &e->p2p);
}

static int open_transports(struct hr_engine *e)
{
	struct hr__transport_env env = transport_env(e);
	int ret = hr__transport_bounce.open(&env, &e->bounce);

	if (!ret && (e->dev->caps & HR__MEM_CAP_HOST_VISIBLE))
		ret = hr__transport_host.open(&env, &e->host);
	return ret;
}

static void dismantle(struct hr_engine *e)
{
	hr__live_close(e);
	if (e->p2p)
		e->p2p->ops->close(e->p2p);
	if (e->pagecache)
		e->pagecache->ops->close(e->pagecache);
	if (e->host)
		e->host->ops->close(e->host);
	if (e->bounce)
		e->bounce->ops->close(e->bounce);
	if (e->ioq)
		e->ioq->ops->close(e->ioq);
	hr__staging_close(&e->staging);
	hr__routes_drop(e);
	hr__device_put(e->dev);
	free(e);
}

int hr_engine_open(struct hr_device *dev, const struct hr_engine_options *opts,
		   struct hr_engine **out)
{
	struct hr_engine *e;
	struct hr__ioq_options queue;
	int ret;

	e = calloc(1, sizeof(*e));
	if (!e)
		return hr__fail(ENOMEM, "no memory for an engine");
	hr__device_get(dev);
	e->dev = dev;
	e->fork_generation = hr__fork_generation();
	ret = complete_options(opts, &e->opts);
	if (ret)
		goto err;
	link_pools(e);
	ret = hr__staging_open(dev, e->opts.staging_bytes, HR__SEGMENTS_MAX, e->opts.threads,
			       &e->staging);
	if (ret == -HR_E_FORKED) /* which has its sentence */
		goto err;
	if (ret) {
		hr__fail(-ret, "%s: no staging ring of %llu KiB: %s; lower HEADRACE_STAGING_BYTES",
			 dev->info.name, (unsigned long long)(e->opts.staging_bytes >> 10),
			 hr_strerror(ret));
		goto err;
	}
	queue = (struct hr__ioq_options){
		.depth = e->opts.depth,
		.threads = e->opts.threads,
		.node = dev->info.numa_node,
		.no_uring = e->opts.no_uring,
		.migrates = e->opts.migrates,
		.fixed_addr = e->staging.base,
		.fixed_len = e->staging.len,
		.stats = &e->stats,
	};
	ret = hr__ioq_open(&queue, &e->ioq);
	if (ret) {
		hr__fail(-ret, "no queue to the kernel: %s", hr_strerror(ret));
		goto err;
	}
	ret = open_transports(e);
	if (ret)
		goto err;
	hr__live_open(e);
	*out = e;
	return 0;

err:
	dismantle(e);
	return ret;
}

/* Everything that is not on its way yet is dropped: the next turn lets it go. */
static void cancel_all(struct hr_engine *e)
{
	for (struct hr_io *io = e->queued; io; io = io->next_)
		io->state_ |= HR__IO_CANCELLED;
	for (uint32_t i = e->plan.first; i < e->plan.n; i++)
		((struct hr_io *)e->plan.wants[i].owner)->state_ |= HR__IO_CANCELLED;
}

int hr_engine_close(struct hr_engine *e)
{
	uint64_t end, now;
	struct hr_io *none[16];

	if (!e)
		return 0;
	if (e->fork_generation != hr__fork_generation()) {
		/* The ring and the threads are the parent's; only plain memory is ours to free. */
		free(e);
		return 0;
	}
	if (e->n_open || e->n_done) {
		int ret = hr__engine_check_owner(e);

		if (ret)
			return ret;
	}
	end = hr__now_ns() + e->opts.timeout_ns;
	cancel_all(e);
	while (e->n_open || e->n_done) {
		int ret = hr_reap(e, none, HR_ARRAY_LEN(none), 1, 100000000);

		if (ret < 0)
			return ret;
		now = hr__now_ns();
		if (now >= end)
			return hr__fail(EBUSY,
					"requests are in flight after %llu ms; the engine and its "
					"buffers stay until they come back",
					(unsigned long long)(e->opts.timeout_ns / 1000000));
	}
	dismantle(e);
	return 0;
}

int hr_engine_queue(const struct hr_engine *engine, struct hr_queue_info *out)
{
	memset(out, 0, sizeof(*out));
	out->name = engine->ioq->name;
	snprintf(out->reason, sizeof(out->reason), "%s", engine->ioq->reason);
	out->depth = engine->ioq->depth;
	out->staging_bytes = engine->staging.len;
	return 0;
}

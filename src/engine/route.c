/* SPDX-License-Identifier: Apache-2.0 */
/* engine/route.c - remembers, per file, the way its bytes take; asks select once per kind of request. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <headrace/config.h>
#include <headrace/error.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/page.h"
#include "base/util.h"
#include "engine/engine.h"
#include "transport/bring.h"
#include "transport/p2p.h"
#include "transport/sigbus.h"

static void route_clear(struct hr__route *route)
{
	if (route->uses) /* the engine is being closed */
		hr__file_release(route->file);
	if (route->file)
		hr__file_put(route->file);
	memset(route, 0, sizeof(*route));
}

int hr__route_use(struct hr_engine *e, struct hr__route *route)
{
	int ret;

	if (!route->uses) {
		ret = hr__file_hold(route->file, !e->n_held);
		if (ret < 0)
			return ret;
		e->stats.reopened += (uint32_t)ret;
		e->n_held++;
	}
	route->uses++;
	return 0;
}

void hr__route_done(struct hr_engine *e, struct hr__route *route)
{
	if (--route->uses)
		return;
	hr__file_release(route->file);
	e->n_held--;
}

struct hr__route *hr__route_get(struct hr_engine *e, struct hr_file *file)
{
	struct hr__route *free_route = NULL;

	for (uint32_t i = 0; i < HR__ROUTES_MAX; i++) {
		if (e->routes[i].file == file)
			return &e->routes[i];
	}
	/* A new file: forget those that only this engine still knows, then take any idle entry. */
	for (uint32_t i = 0; i < HR__ROUTES_MAX; i++) {
		struct hr__route *route = &e->routes[i];

		if (!route->uses && route->file && atomic_load(&route->file->refs) == 1)
			route_clear(route);
		if (!route->uses && (!free_route || (free_route->file && !route->file)))
			free_route = route;
	}
	if (!free_route)
		return NULL;
	route_clear(free_route);
	hr__file_get(file);
	free_route->file = file;
	return free_route;
}

/*
 * Hot parts go by pagecache, whichever path is the best for the rest. Return: 0, also where that is
 * impossible and was not asked for, or -code with a sentence.
 */
static int add_mapping(struct hr_engine *e, struct hr_file *file,
		       const struct hr__verdict *verdicts, struct hr__way *way)
{
	bool forced = e->opts.path == HR_PATH_PAGECACHE;
	uint32_t i = 0;
	int ret;

	if (e->opts.direct || (!forced && e->opts.path != HR_PATH_AUTO))
		return 0;
	while (verdicts[i].ops->path != HR_PATH_PAGECACHE)
		i++;
	if (verdicts[i].score <= 0)
		return 0;
	ret = hr__mapping_get(file, e->dev, false, &way->mapping);
	if (!ret && forced)
		ret = hr__open_pagecache(e);
	if (!ret)
		return 0;
	way->mapping = NULL;
	hr__log(HR_LOG_INFO, "%s", hr_error_detail());
	return forced ? ret : 0;
}

/* On the thread that will copy. No failure: read(2) does as well, only slower. */
static void add_plain(struct hr_engine *e, struct hr_file *file, struct hr__way *way)
{
	if (!e->opts.map || e->opts.direct || e->ioq->crew ||
	    (e->dev->caps & HR__MEM_CAP_HOST_VISIBLE) || !hr__mapping_plain_ok(file) ||
	    hr__sigbus_install())
		return;
	if (hr__mapping_get(file, e->dev, true, &way->plain)) {
		way->plain = NULL;
		hr__log(HR_LOG_INFO, "%s", hr_error_detail());
	}
}

/* Likewise no failure: it is the next reader who is slower then. */
static void add_keeper(struct hr_engine *e, struct hr_file *file, struct hr__way *way)
{
	if (way->cache != HR_CACHE_KEEP || e->opts.direct || file->memory_backed ||
	    !hr__mapping_plain_ok(file))
		return;
	if (!hr__mapping_get(file, e->dev, true, &way->keeper) && hr__bring_open(way->keeper))
		return;
	way->keeper = NULL;
	hr__log(HR_LOG_INFO, "%s: is kept in the page cache by small pages: %s", file->path,
		hr_error_detail());
}

/* Once for each way that is chosen, so that statistics can say why bytes go as they do. */
static void count_refusals(const struct hr_file *file, const struct hr__verdict *verdicts)
{
	for (uint32_t i = 0; i < hr__transports_count; i++) {
		if (verdicts[i].score <= 0)
			hr__page_refuse(verdicts[i].ops->name, verdicts[i].reason);
	}
	if (!hr__file_has_direct(file))
		hr__page_refuse("direct I/O", file->direct_reason);
}

int hr__route_choose(struct hr_engine *e, struct hr__route *route, enum hr_op op, bool cast)
{
	struct hr__way *way = &route->ways[op][cast];
	struct hr__verdict verdicts[HR_PATH_MAX];
	enum hr_cache cache = op == HR_READ ? hr__cache_choose(e, route->file) : HR_CACHE_AUTO;
	struct hr__shape shape = {.op = op,
				  .cast = cast,
				  .map = e->opts.map,
				  .buffered = e->opts.buffered || cache == HR_CACHE_KEEP};
	struct hr__limits *limits = &way->limits;
	int best, ret;

	best = hr__select(route->file, e->dev, &shape, e->opts.path, verdicts);
	count_refusals(route->file, verdicts);
	if (best < 0)
		return best;
	*limits = verdicts[best].limits;
	way->cache = cache;
	if (op == HR_READ && (e->opts.buffered || way->cache == HR_CACHE_KEEP))
		limits->offset_align = limits->memory_align = 1;
	/*
	 * The edges of a write take the page cache while its body goes past it. If both met in one
	 * page, the edge's page would bring in old bytes of the body and write them back later.
	 */
	if (op == HR_WRITE && limits->offset_align > 1)
		limits->offset_align =
			(uint32_t)hr__max(limits->offset_align, (uint64_t)sysconf(_SC_PAGESIZE));
	/* Two blocks at least: the plan must be able to take an element that lies across. */
	limits->segment_max =
		(uint32_t)hr__max(hr__align_down(hr__min(e->opts.request_bytes, e->staging.len / 4),
						 limits->offset_align),
				  2ull * limits->offset_align);
	ret = add_mapping(e, route->file, verdicts, way);
	if (!ret && verdicts[best].ops->path == HR_PATH_P2P)
		ret = hr__open_p2p(e);
	if (ret)
		return ret;
	if (op == HR_READ) {
		add_plain(e, route->file, way);
		add_keeper(e, route->file, way);
	}
	way->path = verdicts[best].ops->path;
	way->known = true;
	return 0;
}

void hr__route_forget(struct hr_engine *e, const struct hr_file *file)
{
	for (uint32_t i = 0; i < HR__ROUTES_MAX; i++) {
		if (e->routes[i].file == file && !e->routes[i].uses)
			route_clear(&e->routes[i]);
	}
}

int hr__route_attach(struct hr_engine *e, const struct hr__way *way, struct hr_buffer *buf,
		     struct hr_file *file)
{
	char why[256];
	int ret;

	if (way->path != HR_PATH_P2P || buf->no_peer)
		return 0;
	ret = hr__p2p_attach(e->p2p, buf, file);
	if (!ret)
		return 0;
	if (e->opts.path == HR_PATH_P2P || hr_config_get()->require_direct) {
		snprintf(why, sizeof(why), "%s", hr_error_detail());
		return hr__fail(hr_config_get()->require_direct ? HR_E_REQUIRE_DIRECT
								: HR_E_PATH_REFUSED,
				"%s: the path p2p to %s is refused: %s", file->path,
				e->dev->info.name, why);
	}
	/* Asked once for each buffer; statistics and the log have the reason. */
	buf->no_peer = true;
	hr__page_refuse("p2p", hr_error_detail());
	hr__log(HR_LOG_WARN, "%s", hr_error_detail());
	return 0;
}

void hr__routes_drop(struct hr_engine *e)
{
	for (uint32_t i = 0; i < HR__ROUTES_MAX; i++)
		route_clear(&e->routes[i]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* engine/route.c - remembers, per file, the way its bytes take; asks select once per kind of request. */
#include <string.h>

#include "base/page.h"
#include "base/util.h"
#include "engine/engine.h"

static void route_clear(struct hr__route *route)
{
	if (route->file)
		hr__file_put(route->file);
	memset(route, 0, sizeof(*route));
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

/* Once for each way that is chosen, so that statistics can say why bytes go as they do. */
static void count_refusals(const struct hr_file *file, const struct hr__verdict *verdicts)
{
	for (uint32_t i = 0; i < hr__transports_count; i++) {
		if (verdicts[i].score <= 0)
			hr__page_refuse(verdicts[i].ops->name, verdicts[i].reason);
	}
	if (file->fd_direct < 0)
		hr__page_refuse("direct I/O", file->direct_reason);
}

int hr__route_way(struct hr_engine *e, struct hr__route *route, enum hr_op op, bool cast,
		  struct hr__way **out)
{
	struct hr__way *way = &route->ways[op][cast];
	struct hr__verdict verdicts[HR_PATH_MAX];
	struct hr__shape shape = {.op = op, .cast = cast};
	struct hr__limits *limits = &way->limits;
	int best;

	*out = way;
	if (way->known)
		return 0;
	best = hr__select(route->file, e->dev, &shape, e->opts.path, verdicts);
	count_refusals(route->file, verdicts);
	if (best < 0)
		return best;
	*limits = verdicts[best].limits;
	if (op == HR_READ && e->opts.buffered)
		limits->offset_align = limits->memory_align = 1;
	limits->segment_max = (uint32_t)hr__align_down(
		hr__min(e->opts.request_bytes, e->staging.len / 4), limits->offset_align);
	way->path = verdicts[best].ops->path;
	way->known = true;
	return 0;
}

void hr__routes_drop(struct hr_engine *e)
{
	for (uint32_t i = 0; i < HR__ROUTES_MAX; i++)
		route_clear(&e->routes[i]);
}

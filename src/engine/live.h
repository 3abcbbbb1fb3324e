/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/live.h - how an engine shows its counters to other processes while it runs.
 */
#ifndef HR_ENGINE_LIVE_H
#define HR_ENGINE_LIVE_H

#include <stdint.h>

#include "base/util.h"

struct hr_engine;
struct hr_io;
struct hr__page_engine;

/* Part of an engine. Without a place everything here costs one comparison a call. */
struct hr__live {
	struct hr__page_engine *place; /* NULL: the process does not publish */
	uint64_t shown_ns;             /* when the counters were stored */
	uint32_t unshown;              /* requests finished since */
};

/* Claim a place when the engine is complete; count why its queue is not the best. */
void hr__live_open(struct hr_engine *e);
void hr__live_close(struct hr_engine *e);

/*
 * hr__live_round() - of an engine that has a place: @n > 0 requests are about to be handed back. One
 * clock read for all of them.
 */
void hr__live_round(struct hr_engine *e, struct hr_io *const *done, uint32_t n);

/* The clock for a call of hr_submit(), or 0 when nobody looks. */
static inline uint64_t hr__live_now(const struct hr__live *live)
{
	return live->place ? hr__now_ns() : 0;
}

#endif

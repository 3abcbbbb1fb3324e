/* SPDX-License-Identifier: Apache-2.0 */
/* engine/live.c - stores an engine's counters and latencies where other processes can read them. */
#include "base/page.h"
#include "engine/engine.h"

#define SHOW_REQUESTS 128u  /* storing all counters costs as much as a tenth of a request */
#define SHOW_NS 10000000ull /* but a slow engine is not shown later than this */

static void show(struct hr_engine *e, uint64_t now)
{
	struct hr__page_engine *place = e->live.place;

	hr__page_store(place, &e->stats);
	__atomic_store_n(&place->in_flight, e->n_open, __ATOMIC_RELAXED);
	__atomic_store_n(&place->queue_depth, e->ioq->in_flight, __ATOMIC_RELAXED);
	e->live.shown_ns = now;
	e->live.unshown = 0;
}

void hr__live_round(struct hr_engine *e, struct hr_io *const *done, uint32_t n)
{
	struct hr__page_engine *place = e->live.place;
	uint64_t now, sum = 0;

	now = hr__now_ns() + 1; /* no time is 0: the buckets begin at 1 ns */
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ns = now - done[i]->start_ns_;

		sum += ns;
		hr__page_latency(place, ns);
	}
	hr__page_add(&place->latency_ns, sum);
	e->live.unshown += n;
	/* An engine that runs dry may rest for long: nothing is held back then. */
	if (e->live.unshown >= SHOW_REQUESTS || !e->n_open || now - e->live.shown_ns >= SHOW_NS)
		show(e, now);
}

void hr__live_open(struct hr_engine *e)
{
	e->live.place =
		hr__page_engine_claim(e->dev->info.name, e->ioq->name, (uint32_t)e->ioq->depth);
	if (e->ioq->reason[0])
		hr__page_refuse("queue", e->ioq->reason);
}

void hr__live_close(struct hr_engine *e)
{
	if (e->live.place)
		show(e, 0);
	hr__page_engine_release(e->live.place);
	e->live.place = NULL;
}

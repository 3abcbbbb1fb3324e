/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/foresee.c - what a read will do, before it is done: the planner's own answer to one piece whose
 * destination is a fresh buffer. Reads nothing. With what is hot fewer reads are made, never more.
 */
#include <string.h>

#include "base/util.h"
#include "doctor/explain.h"
#include "transport/transport.h"

#define REQUEST_BYTES (1u << 20) /* the longest single read that engines make unasked */

/* The limits of the path as an engine with default options completes them. */
static struct hr__limits complete(const struct hr__limits *of_path, const struct hr_explanation *e)
{
	struct hr__limits limits = *of_path;
	uint64_t most = hr__min(REQUEST_BYTES, e->queue.staging_bytes / 4);

	most = hr__align_down(most, limits.offset_align);
	limits.segment_max = (uint32_t)hr__max(most, 2ull * limits.offset_align);
	limits.unit = 1;
	limits.file_size = e->file.size_bytes;
	return limits;
}

void hr__foresee(const struct hr__limits *of_path, uint64_t offset, uint64_t len,
		 struct hr_explanation *out)
{
	const struct hr__limits limits = complete(of_path, out);
	struct hr_foresight *f = &out->foresight;
	struct hr__dest dests[64];
	struct hr__dest_pool pool = {0};
	struct hr__plan_segment seg;
	struct hr__want want;
	struct hr__plan plan;
	uint64_t depth = out->queue.depth ? out->queue.depth : 1;

	for (size_t i = 0; i < HR_ARRAY_LEN(dests); i++) {
		dests[i].next = pool.free;
		pool.free = &dests[i];
		pool.n_free++;
	}
	len = len ? len : out->file.size_bytes - offset;
	hr__plan_init(&plan, &want, 1);
	hr__plan_begin(&plan, &limits);
	if (!len || hr__plan_add(&plan, offset, len, 0, NULL) <= 0)
		return;
	while (hr__plan_next(&plan, &pool, &seg)) {
		f->reads++;
		f->read_bytes += seg.len;
		f->in_place += seg.in_place;
		f->staged += !seg.in_place;
		f->moves += seg.in_place ? 0 : seg.n_dests;
		hr__dests_free(&pool, &seg);
	}
	/* Plain calls read one at a time; a ring is entered once for all that fit into it. */
	f->calls_min =
		strncmp(out->queue.name, "io_uring", 8) ? f->reads : (f->reads + depth - 1) / depth;
}

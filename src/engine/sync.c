/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sync.c - the simple calls: one request, then wait for it. */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "engine/engine.h"

/* Wait for the engine's own request. It never appears in the list of finished ones. */
static int64_t wait_simple(struct hr_engine *e)
{
	uint64_t end = hr__now_ns() + e->opts.timeout_ns, now;
	struct hr_io *none;
	int ret;

	while (HR__IO_STATE(&e->simple) != HR__IO_IDLE) {
		now = hr__now_ns();
		if (now >= end) {
			/* The pieces are the caller's again: plan no more of them. */
			hr_cancel(e, &e->simple);
			return hr__fail(
				ETIMEDOUT,
				"%s: no answer within %llu ms; the buffer stays busy until the "
				"late answer has been reaped",
				hr_file_path(e->simple.file),
				(unsigned long long)(e->opts.timeout_ns / 1000000));
		}
		ret = hr_reap(e, &none, 1, 1, end - now);
		if (ret < 0) {
			hr_cancel(e, &e->simple); /* for the same reason */
			return ret;
		}
	}
	none = &e->simple; /* it is in no round of reaping */
	if (e->live.place)
		hr__live_round(e, &none, 1);
	return e->simple.res;
}

static int64_t run_simple(struct hr_engine *e, const struct hr_io *request)
{
	struct hr_io *io = &e->simple, *none;
	int ret;

	if (hr_in_flight(e)) { /* a late answer may have come by now */
		ret = hr_reap(e, &none, 0, 0, 0);
		if (ret < 0)
			return ret;
	}
	if (hr_in_flight(e))
		return hr__fail(EBUSY, "%s: the simple calls need an engine with nothing in flight",
				hr_file_path(request->file));
	*io = *request;
	ret = hr_submit(e, &io, 1);
	return ret < 0 ? ret : wait_simple(e);
}

/* One piece in either direction. */
static int64_t run_piece(struct hr_engine *e, enum hr_op op, struct hr_file *file,
			 struct hr_buffer *buffer, struct hr_piece piece)
{
	struct hr_io io = {.op = op, .file = file, .buffer = buffer, .piece = piece};

	return run_simple(e, &io);
}

int64_t hr_read(struct hr_engine *engine, struct hr_file *file, uint64_t file_offset, uint64_t len,
		struct hr_buffer *buffer, uint64_t buffer_offset)
{
	struct hr_piece piece = {file_offset, len, buffer_offset};

	return run_piece(engine, HR_READ, file, buffer, piece);
}

int64_t hr_write(struct hr_engine *engine, struct hr_file *file, uint64_t file_offset, uint64_t len,
		 struct hr_buffer *buffer, uint64_t buffer_offset)
{
	struct hr_piece piece = {file_offset, len, buffer_offset};

	return run_piece(engine, HR_WRITE, file, buffer, piece);
}

int64_t hr_gather(struct hr_engine *engine, struct hr_file *file, const struct hr_piece *pieces,
		  uint64_t count, struct hr_buffer *buffer, enum hr_dtype from, enum hr_dtype to)
{
	struct hr_io io = {
		.op = HR_READ,
		.file = file,
		.buffer = buffer,
		.pieces = pieces,
		.count = count,
		.from = from,
		.to = to,
	};

	if (!pieces)
		return count ? -EINVAL : 0;
	return run_simple(engine, &io);
}

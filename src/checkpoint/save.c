/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/save.c - tensors of a device into a file. The file is written as one row of long aligned
 * blocks: the device packs header and tensors into them, so that nothing depends on where a tensor
 * begins, and every byte goes past the page cache where that is possible.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/stream.h>

#include "base/fail.h"
#include "base/util.h"
#include "checkpoint/target.h"
#include "engine/engine.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "mem/mem.h"

#define SLABS 4u
#define SLAB_BYTES (8u << 20) /* of the file: a multiple of every block size */
#define MOVES 1024u

/* A run of the file that lies in one place of the device. */
struct source {
	uint64_t begin, len; /* in the file */
	struct hr_buffer *buffer;
	uint64_t buffer_offset;
};

struct slab {
	struct hr_io io;
	uint64_t want;
	bool busy;
};

struct hr_save {
	struct hr_engine *engine;
	struct hr_save_options opts;
	struct hr_save_info info;
	struct hr__target target;
	struct hr_lane *lane;
	struct hr_buffer *memory;   /* of the slabs */
	struct hr_buffer *snapshot; /* NULL: tensors are read where they are */
	char *header;
	uint64_t header_len;
	struct source *sources; /* in the order of the file */
	uint32_t n_sources;
	/* what comes next */
	uint64_t at;     /* byte of the file */
	uint32_t source; /* the one that holds it, or the first behind it */
	uint32_t in_flight;
	int error;     /* final */
	bool finished; /* the file has its name */
	struct slab slabs[SLABS];
	struct hr__move moves[MOVES];
};

static int wait_lane(struct hr_save *save, uint64_t ticket)
{
	return save->lane->ops->wait(save->lane, ticket, save->engine->opts.timeout_ns);
}

/* Copy what save->moves names, and wait for it. */
static int move_and_wait(struct hr_save *save, enum hr__where where, uint32_t n)
{
	uint64_t ticket;
	int ret;

	if (!n)
		return 0;
	ret = save->lane->ops->move(save->lane, where, save->moves, n, HR_DTYPE_BYTES,
				    HR_DTYPE_BYTES, &ticket);
	return ret < 0 ? ret : wait_lane(save, ticket);
}

static uint8_t *address(const struct hr_buffer *buffer, uint64_t offset)
{
	return (uint8_t *)buffer->ptr + offset;
}

/* -- packing ----------------------------------------------------------------------------------- */

/* The part of the header that lies in the slab for file bytes [start, start + len). */
static int pack_header(struct hr_save *save, uint8_t *slab, uint64_t start, uint64_t len)
{
	if (start >= save->header_len)
		return 0;
	save->moves[0] = (struct hr__move){
		.src = save->header + start,
		.dst = slab,
		.len = hr__min(len, save->header_len - start),
	};
	return move_and_wait(save, HR__PLAIN_TO_DEVICE, 1);
}

/* The parts of tensors; they are met in the order of the file. */
static int pack_tensors(struct hr_save *save, uint8_t *slab, uint64_t start, uint64_t len)
{
	uint64_t end = start + len;
	uint32_t n = 0;

	while (save->source < save->n_sources) {
		const struct source *s = &save->sources[save->source];
		uint64_t from = hr__max(s->begin, start), to = hr__min(s->begin + s->len, end);

		if (s->begin >= end)
			break;
		save->moves[n++] = (struct hr__move){
			.src = address(s->buffer, s->buffer_offset + (from - s->begin)),
			.dst = slab + (from - start),
			.len = to - from,
		};
		if (n == MOVES) {
			int ret = move_and_wait(save, HR__DEVICE_TO_DEVICE, n);

			if (ret)
				return ret;
			n = 0;
		}
		if (s->begin + s->len > end)
			break; /* the rest of it comes with the next slab */
		save->source++;
	}
	return move_and_wait(save, HR__DEVICE_TO_DEVICE, n);
}

/* Fill one slab with what comes next and send it off. */
static int send_slab(struct hr_save *save, struct slab *slab)
{
	uint64_t offset = (uint64_t)(slab - save->slabs) * SLAB_BYTES;
	uint64_t len = hr__min(SLAB_BYTES, save->info.file_bytes - save->at);
	struct hr_io *io = &slab->io;
	int ret = pack_header(save, address(save->memory, offset), save->at, len);

	if (!ret)
		ret = pack_tensors(save, address(save->memory, offset), save->at, len);
	if (ret)
		return ret;
	slab->io = (struct hr_io){
		.op = HR_WRITE,
		.file = save->target.file,
		.buffer = save->memory,
		.piece = {save->at, len, offset},
		.user = slab,
	};
	ret = hr_submit(save->engine, &io, 1);
	if (ret < 0)
		return ret;
	slab->want = len;
	slab->busy = true;
	save->in_flight++;
	save->at += len;
	return 0;
}

/* -- stepping ---------------------------------------------------------------------------------- */

static void take_result(struct hr_save *save, struct slab *slab)
{
	const struct hr_io *io = &slab->io;

	slab->busy = false;
	save->in_flight--;
	if (save->error)
		return;
	if (io->res < 0) {
		save->error = hr__fail(
			(int)-io->res, "%s: writing failed at byte %" PRIu64 ": %s; %s",
			save->target.path, io->piece.file_offset, hr_strerror((int)io->res),
			io->res == -ENOSPC ? "free some space, the old file is whole"
					   : "check the drive, the old file is whole");
		return;
	}
	if ((uint64_t)io->res != slab->want) {
		save->error = hr__fail(EIO,
				       "%s: only %" PRIu64 " of %" PRIu64
				       " bytes were written at byte %" PRIu64 "; check the drive",
				       save->target.path, (uint64_t)io->res, slab->want,
				       io->piece.file_offset);
		return;
	}
	save->info.written += slab->want;
	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		save->info.bytes_by_path[i] += io->bytes_by_path[i];
}

static void tell_progress(struct hr_save *save)
{
	struct hr_progress progress = {
		.bytes = save->info.written,
		.total = save->info.file_bytes,
		.parts = save->n_sources,
	};

	if (!save->error && save->opts.progress && save->opts.progress(&progress, save->opts.user))
		save->error = hr__fail(ECANCELED, "%s: saving was stopped by its caller",
				       save->target.path);
}

/* Give every free slab something to do. */
static int send_slabs(struct hr_save *save)
{
	for (uint32_t i = 0; i < SLABS && !save->error; i++) {
		if (save->at == save->info.file_bytes)
			break;
		if (!save->slabs[i].busy)
			save->error = send_slab(save, &save->slabs[i]);
	}
	return save->error;
}

int hr_save_step(struct hr_save *save, uint64_t timeout_ns)
{
	struct hr_io *done[SLABS];
	int n = hr__engine_check_owner(save->engine);

	if (n) /* a child of fork() would give the parent's file its name */
		return n;
	if (save->error)
		return save->error;
	if (save->finished)
		return 1;
	if (send_slabs(save))
		return save->error;
	if (save->in_flight) {
		n = hr_reap(save->engine, done, SLABS, 1, timeout_ns);
		if (n < 0)
			save->error = n;
		for (int i = 0; i < n; i++)
			take_result(save, done[i]->user);
		if (!n)
			return hr__fail(
				ETIMEDOUT,
				"%s: no answer from the drive in this time; go on waiting or "
				"give up",
				save->target.path);
		if (n > 0)
			tell_progress(save);
	}
	if (save->error || save->info.written < save->info.file_bytes)
		return save->error;
	save->error = hr__target_commit(&save->target);
	save->finished = !save->error;
	return save->error ? save->error : 1;
}

int hr_save_info(const struct hr_save *save, struct hr_save_info *out)
{
	*out = save->info;
	return 0;
}

/* -- opening ----------------------------------------------------------------------------------- */

static int check_weight(const struct hr_save *save, const struct hr_save_weight *w, uint64_t len)
{
	char shown[HR__JSON_SHOWN];
	uint64_t end;

	hr__json_show(shown, w->name);
	if (!len)
		return 0;
	if (!w->buffer)
		return hr__fail(EINVAL, "tensor %s: has no buffer; set one", shown);
	if (w->buffer->dev != save->engine->dev)
		return hr__fail(HR_E_WRONG_DEVICE,
				"tensor %s: its buffer is memory of %s, the engine serves %s",
				shown, w->buffer->dev->info.name, save->engine->dev->info.name);
	if (hr__add_overflows(w->buffer_offset, len, &end) || end > w->buffer->len)
		return hr__fail(HR_E_BAD_RANGE,
				"tensor %s: %" PRIu64 " bytes from %" PRIu64
				" on are more than its buffer of %" PRIu64 " has",
				shown, len, w->buffer_offset, w->buffer->len);
	return 0;
}

/* The sources out of sorted @tensors. */
static int add_sources(struct hr_save *save, const struct hr_save_weight *weights,
		       const struct hr__st_tensor *tensors, uint32_t n)
{
	save->sources = calloc(n + 1ull, sizeof(*save->sources));
	if (!save->sources)
		return hr__fail(ENOMEM, "no memory for %" PRIu32 " tensors; save fewer", n);
	save->info.file_bytes = save->header_len;
	for (uint32_t i = 0; i < n; i++) {
		const struct hr_save_weight *w = &weights[tensors[i].number];
		uint64_t len = tensors[i].end - tensors[i].begin;
		int ret = check_weight(save, w, len);

		if (ret)
			return ret;
		if (!len)
			continue;
		save->sources[save->n_sources++] = (struct source){
			.begin = save->header_len + tensors[i].begin,
			.len = len,
			.buffer = w->buffer,
			.buffer_offset = w->buffer_offset,
		};
		save->info.file_bytes += len;
	}
	return 0;
}

/* Header and layout. */
static int lay_out(struct hr_save *save, const char *path, const struct hr_save_weight *weights,
		   uint32_t n)
{
	struct hr__st_tensor *tensors = calloc(n + 1ull, sizeof(*tensors));
	size_t len = 0;
	int ret = 0;

	if (!tensors)
		return hr__fail(ENOMEM, "%s: no memory for %" PRIu32 " tensors; save fewer", path,
				n);
	for (uint32_t i = 0; i < n && !ret; i++) {
		if (!weights[i].name || (weights[i].ndim && !weights[i].shape))
			ret = hr__fail(EINVAL, "%s: tensor %" PRIu32 " has no name or no shape",
				       path, i);
		tensors[i].name = weights[i].name;
		tensors[i].shape = weights[i].shape;
		tensors[i].ndim = weights[i].ndim;
		tensors[i].type = weights[i].type;
		tensors[i].number = i;
	}
	if (!ret)
		ret = hr__st_build(path, tensors, n, save->opts.metadata, save->opts.n_metadata,
				   &save->header, &len);
	save->header_len = len;
	if (!ret)
		ret = add_sources(save, weights, tensors, n);
	free(tensors);
	return ret;
}

/* Everything into memory that nobody else writes to. */
static int take_snapshot(struct hr_save *save)
{
	uint64_t len = save->info.file_bytes - save->header_len, at = 0;
	uint32_t n = 0;
	int ret;

	if (!len)
		return 0;
	ret = hr_buffer_alloc(save->engine->dev, len, &save->snapshot);
	if (ret)
		return ret;
	save->info.device_bytes += len;
	for (uint32_t i = 0; i < save->n_sources && !ret; i++) {
		struct source *s = &save->sources[i];

		save->moves[n++] = (struct hr__move){
			.src = address(s->buffer, s->buffer_offset),
			.dst = address(save->snapshot, at),
			.len = s->len,
		};
		s->buffer = save->snapshot;
		s->buffer_offset = at;
		at += s->len;
		if (n == MOVES) {
			ret = move_and_wait(save, HR__DEVICE_TO_DEVICE, n);
			n = 0;
		}
	}
	return ret ? ret : move_and_wait(save, HR__DEVICE_TO_DEVICE, n);
}

static int open_memory(struct hr_save *save)
{
	struct hr_device *dev = save->engine->dev;
	int ret = hr_lane_open(dev, NULL, &save->lane);

	if (!ret)
		ret = hr_buffer_alloc(dev, SLABS * (uint64_t)SLAB_BYTES, &save->memory);
	if (ret)
		return ret;
	save->info.device_bytes = SLABS * (uint64_t)SLAB_BYTES;
	return save->opts.snapshot ? take_snapshot(save) : 0;
}

int hr_save_open(struct hr_engine *engine, const char *path, const struct hr_save_weight *weights,
		 uint64_t n, const struct hr_save_options *opts, struct hr_save **out)
{
	struct hr_save *save;
	int ret;

	if (!engine || !path || !*path || (n && !weights) || !out || n > UINT32_MAX)
		return hr__fail(EINVAL, "hr_save_open: engine, path, tensors and a place for the "
					"save are needed; pass all");
	if (opts && opts->n_metadata && !opts->metadata)
		return hr__fail(EINVAL, "%s: n_metadata without metadata; pass both", path);
	if (hr_in_flight(engine))
		return hr__fail(EBUSY,
				"%s: a save needs an engine with nothing in flight; reap "
				"first",
				path);
	save = calloc(1, sizeof(*save));
	if (!save)
		return hr__fail(ENOMEM, "%s: no memory for a save; free some", path);
	save->engine = engine;
	save->target.fd = -1;
	if (opts)
		save->opts = *opts;
	ret = lay_out(save, path, weights, (uint32_t)n);
	if (!ret)
		ret = open_memory(save);
	/* Last: a failure before it touches no file. */
	if (!ret)
		ret = hr__target_open(&save->target, path, save->info.file_bytes);
	save->opts.metadata = NULL; /* the caller's again */
	if (ret) {
		hr_save_close(save);
		return ret;
	}
	*out = save;
	return 0;
}

/* Wait for writes that were begun: until then neither memory nor file may go. */
static int drain(struct hr_save *save)
{
	uint64_t end = hr__now_ns() + save->engine->opts.timeout_ns;
	struct hr_io *done[SLABS];

	for (uint32_t i = 0; i < SLABS; i++) {
		if (save->slabs[i].busy)
			hr_cancel(save->engine, &save->slabs[i].io);
	}
	while (save->in_flight) {
		uint64_t now = hr__now_ns();
		int n = now < end ? hr_reap(save->engine, done, SLABS, 1, end - now) : 0;

		if (n < 0)
			return n;
		if (!n)
			return hr__fail(EBUSY,
					"%s: %" PRIu32 " writes have not come back; close the save "
					"later",
					save->target.path, save->in_flight);
		for (int i = 0; i < n; i++)
			take_result(save, done[i]->user);
	}
	return 0;
}

int hr_save_close(struct hr_save *save)
{
	int ret;

	if (!save)
		return 0;
	if (save->in_flight) {
		ret = drain(save);
		if (ret)
			return ret;
	}
	/* The engine must not keep a file alive whose space somebody needs. */
	if (save->target.file)
		hr__route_forget(save->engine, save->target.file);
	hr__target_close(&save->target);
	hr_buffer_free(save->memory);
	hr_buffer_free(save->snapshot);
	hr_lane_close(save->lane);
	free(save->sources);
	free(save->header);
	free(save);
	return 0;
}

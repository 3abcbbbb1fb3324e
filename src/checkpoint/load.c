/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/load.c - from parts to requests: sorts them into the order of the files and keeps the
 * engine supplied, a bounded number at a time. What a file is made of is known to others.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "checkpoint/part.h"
#include "engine/engine.h"
#include "format/json.h"
#include "mem/mem.h"

/*
 * What the engine sees at once decides how well it can merge. Requests are for tensors with buffers of
 * their own; parts that share a buffer go together in a request with a block of pieces.
 */
#define REQUESTS 1024u
#define BLOCKS 8u
#define BLOCK_PIECES 4096u
#define REQUEST_BYTES (64ull << 20) /* then the progress moves on */

/* A part, ready to be read. */
struct item {
	struct hr__cut cut;
	struct hr_buffer *buffer;
	uint64_t buffer_offset;
};

struct request {
	struct hr_io io;
	struct request *next; /* while it is free */
	uint64_t want;        /* bytes of the file */
	uint32_t file;
	int32_t block; /* of pieces, -1: none */
};

struct hr_load {
	struct hr_checkpoint *ck;
	struct hr_engine *engine;
	struct hr_load_options opts;
	struct hr_load_info info;
	struct item *items;
	uint64_t n_items;
	/* what comes next: byte @at of piece @piece of item @next */
	uint64_t next, piece, at;
	int64_t file;  /* open for the items at hand, -1: none */
	int error;     /* final */
	bool finished; /* and checked */
	uint32_t in_flight;
	struct request *free;
	uint32_t free_blocks; /* bit b: block b is free */
	struct request requests[REQUESTS];
	struct hr_piece pieces[BLOCKS][BLOCK_PIECES];
};

static uint64_t file_bytes(const struct item *item)
{
	return item->cut.len * item->cut.count;
}

/* -- filling requests -------------------------------------------------------------------------- */

/* Can both be in one request? */
static bool same_kind(const struct item *a, const struct item *b)
{
	return a->cut.file == b->cut.file && a->buffer == b->buffer && a->cut.from == b->cut.from &&
	       a->cut.to == b->cut.to;
}

/* The next piece, at most @max bytes; whole elements, since @max is a multiple of all sizes. */
static struct hr_piece take_piece(struct hr_load *load, uint64_t max)
{
	const struct item *item = &load->items[load->next];
	const struct hr__cut *cut = &item->cut;
	uint64_t done = load->piece * cut->len + load->at;
	struct hr_piece piece = {
		.file_offset = cut->offset + load->piece * cut->stride + load->at,
		.len = hr__min(cut->len - load->at, max),
		.buffer_offset = item->buffer_offset +
				 done / hr_dtype_size(cut->from) * hr_dtype_size(cut->to),
	};

	load->at += piece.len;
	if (load->at < cut->len)
		return piece;
	load->at = 0;
	if (++load->piece < cut->count)
		return piece;
	load->piece = 0;
	load->next++;
	return piece;
}

/* Have the file of the next item open. */
static int turn_to_file(struct hr_load *load)
{
	uint32_t file = load->items[load->next].cut.file;
	int ret;

	if (load->file == (int64_t)file)
		return 0;
	if (load->file >= 0) {
		/* Requests hold it open as long as they need it. */
		ret = hr__ck_use(load->ck, (uint32_t)load->file);
		if (ret)
			return ret;
		hr__ck_release(load->ck, (uint32_t)load->file);
		load->file = -1;
	}
	ret = hr__ck_use(load->ck, file);
	if (!ret)
		load->file = file;
	return ret;
}

/* Does the request go on after its first piece? */
static bool goes_on(const struct hr_load *load, const struct item *first, uint64_t want)
{
	return load->next < load->n_items && want < REQUEST_BYTES &&
	       same_kind(first, &load->items[load->next]);
}

/* Fill @r from what comes next. Return: false when it has to wait for a block. */
static bool fill(struct hr_load *load, struct request *r)
{
	const struct item *first = &load->items[load->next];
	struct hr_piece piece;

	if (!load->free_blocks && (first->cut.count > 1 ||
				   (load->next + 1 < load->n_items && same_kind(first, first + 1))))
		return false;
	piece = take_piece(load, REQUEST_BYTES);
	r->io = (struct hr_io){
		.file = load->ck->files[first->cut.file].file,
		.buffer = first->buffer,
		.piece = piece,
		.from = first->cut.from,
		.to = first->cut.to,
		.user = r,
	};
	r->want = piece.len;
	r->file = first->cut.file;
	r->block = -1;
	if (!load->free_blocks || !goes_on(load, first, r->want))
		return true;
	r->block = __builtin_ctz(load->free_blocks);
	load->free_blocks &= load->free_blocks - 1;
	r->io.pieces = load->pieces[r->block];
	load->pieces[r->block][r->io.count++] = piece;
	while (r->io.count < BLOCK_PIECES && goes_on(load, first, r->want)) {
		piece = take_piece(load, REQUEST_BYTES);
		load->pieces[r->block][r->io.count++] = piece;
		r->want += piece.len;
	}
	return true;
}

static void give_back(struct hr_load *load, struct request *r)
{
	if (r->block >= 0)
		load->free_blocks |= 1u << r->block;
	r->next = load->free;
	load->free = r;
}

/* Fill what there is room for, of one file. Return: how many, or -code. */
static int64_t fill_some(struct hr_load *load, struct hr_io **ios)
{
	int64_t n = 0;

	while (load->free && load->next < load->n_items) {
		struct request *r = load->free;

		/* The engine must hold the old file before it is closed for the next one. */
		if (n && load->file != (int64_t)load->items[load->next].cut.file)
			break;
		if (!n) {
			int ret = turn_to_file(load);

			if (ret)
				return ret;
		}
		if (!fill(load, r))
			break;
		load->free = r->next;
		ios[n++] = &r->io;
	}
	return n;
}

/* As much as there is room for goes to the engine in one call: it merges what it sees together. */
static int submit_all(struct hr_load *load)
{
	struct hr_io *ios[REQUESTS];
	int64_t n;

	while ((n = fill_some(load, ios)) > 0) {
		int taken = hr_submit(load->engine, ios, (uint32_t)n), ret = taken;

		/* Ask again about the first that was refused, to learn why. */
		if (taken > 0 && taken < n)
			ret = hr_submit(load->engine, ios + taken, 1);
		if (taken > 0 && taken < n && ret > 0)
			taken++;
		load->in_flight += taken > 0 ? (uint32_t)taken : 0;
		if (taken == n)
			continue;
		for (int64_t i = taken > 0 ? taken : 0; i < n; i++)
			give_back(load, ios[i]->user);
		n = ret < 0 ? ret : -EIO;
		break;
	}
	if (n < 0)
		load->error = (int)n;
	return load->error;
}

/* -- results ----------------------------------------------------------------------------------- */

static void take_result(struct hr_load *load, struct request *r)
{
	const struct hr_io *io = &r->io;
	const char *path = load->ck->files[r->file].path;

	load->in_flight--;
	give_back(load, r);
	if (load->error)
		return;
	if (io->res < 0) {
		load->error = hr__fail((int)-io->res, "%s: reading failed: %s; check the drive",
				       path, hr_strerror((int)io->res));
		return;
	}
	if ((uint64_t)io->res != r->want) {
		load->error = hr__fail(HR_E_FILE_CHANGED,
				       "%s: ended while its tensors were read; load it when nobody "
				       "changes it",
				       path);
		return;
	}
	load->info.delivered += r->want;
	load->info.bytes_cached += io->bytes_cached;
	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		load->info.bytes_by_path[i] += io->bytes_by_path[i];
}

static void tell_progress(struct hr_load *load)
{
	struct hr_progress progress = {
		.bytes = load->info.delivered,
		.total = load->info.bytes,
		.parts = load->info.parts,
	};

	if (!load->error && load->opts.progress && load->opts.progress(&progress, load->opts.user))
		load->error = hr__fail(ECANCELED, "loading was stopped by its caller");
}

/* Nothing more of it is wanted; what is under way comes back all the same. */
static void cancel_all(struct hr_load *load)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (HR__IO_STATE(&load->requests[i].io) != HR__IO_IDLE)
			hr_cancel(load->engine, &load->requests[i].io);
	}
}

/* Everything has arrived: was it all of one version of the files? */
static int finish(struct hr_load *load)
{
	for (uint32_t i = 0; i < load->ck->n_files && !load->error; i++) {
		if (load->ck->files[i].file)
			load->error = hr__ck_use(load->ck, i);
	}
	if (load->file >= 0)
		hr__ck_release(load->ck, (uint32_t)load->file);
	load->file = -1;
	load->finished = true;
	return load->error ? load->error : 1;
}

int hr_load_step(struct hr_load *load, uint64_t timeout_ns)
{
	struct hr_io *done[64];
	int n;

	if (load->error)
		return load->error;
	if (load->finished)
		return 1;
	if (!submit_all(load)) {
		if (!load->in_flight)
			return finish(load);
		n = hr_reap(load->engine, done, HR_ARRAY_LEN(done), 1, timeout_ns);
		if (n < 0)
			load->error = n;
		for (int i = 0; i < n; i++)
			take_result(load, done[i]->user);
		if (!n)
			return hr__fail(
				ETIMEDOUT,
				"%s: no answer from the drive in this time; go on waiting or "
				"give up",
				load->ck->files[load->requests[0].file].path);
		if (n > 0)
			tell_progress(load);
	}
	if (load->error) {
		cancel_all(load);
		return load->error;
	}
	return load->next == load->n_items && !load->in_flight ? finish(load) : 0;
}

int hr_load_info(const struct hr_load *load, struct hr_load_info *out)
{
	*out = load->info;
	return 0;
}

/* -- life -------------------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->cut.file != y->cut.file)
		return x->cut.file < y->cut.file ? -1 : 1;
	/* The engine merges requests of one kind only: better two passes than torn ones. */
	if (x->cut.from != y->cut.from)
		return x->cut.from < y->cut.from ? -1 : 1;
	if (x->cut.to != y->cut.to)
		return x->cut.to < y->cut.to ? -1 : 1;
	if (x->cut.offset != y->cut.offset)
		return x->cut.offset < y->cut.offset ? -1 : 1;
	return 0;
}

static int check_buffer(const struct hr_load *load, const struct hr_part *part,
			const struct hr__cut *cut)
{
	const struct hr__st_tensor *t = load->ck->weights[part->weight].tensor;
	char shown[HR__JSON_SHOWN];
	uint64_t end;

	hr__json_show(shown, t->name);
	if (!part->buffer)
		return hr__fail(EINVAL, "tensor %s: its part has no buffer; set one", shown);
	if (part->buffer->dev != load->engine->dev)
		return hr__fail(HR_E_WRONG_DEVICE,
				"tensor %s: its buffer is memory of %s, the engine serves %s",
				shown, part->buffer->dev->info.name, load->engine->dev->info.name);
	if (hr__add_overflows(part->buffer_offset, cut->memory_len, &end) ||
	    end > part->buffer->len)
		return hr__fail(HR_E_BAD_RANGE,
				"tensor %s: %" PRIu64 " bytes from %" PRIu64
				" on do not fit its buffer of %" PRIu64,
				shown, cut->memory_len, part->buffer_offset, part->buffer->len);
	if (part->buffer_offset % hr_dtype_size(cut->to))
		return hr__fail(EINVAL,
				"tensor %s: it is converted, so its place in the buffer must be a "
				"multiple of its element; %" PRIu64 " is not",
				shown, part->buffer_offset);
	return 0;
}

static int add_items(struct hr_load *load, const struct hr_part *parts, uint64_t n)
{
	load->items = calloc(n + 1, sizeof(*load->items));
	if (!load->items)
		return hr__fail(ENOMEM, "no memory for %" PRIu64 " parts; load fewer", n);
	for (uint64_t i = 0; i < n; i++) {
		struct item *item = &load->items[load->n_items];
		int ret = hr__part_cut(load->ck, &parts[i], &item->cut);

		if (ret)
			return ret;
		if (!item->cut.count)
			continue; /* empty: no buffer is needed */
		ret = check_buffer(load, &parts[i], &item->cut);
		if (ret)
			return ret;
		item->buffer = parts[i].buffer;
		item->buffer_offset = parts[i].buffer_offset;
		load->n_items++;
		load->info.bytes += file_bytes(item);
	}
	load->info.parts = n;
	qsort(load->items, load->n_items, sizeof(*load->items), compare_items);
	return 0;
}

int hr_load_open(struct hr_checkpoint *ck, struct hr_engine *engine, const struct hr_part *parts,
		 uint64_t n, const struct hr_load_options *opts, struct hr_load **out)
{
	struct hr_load *load;
	int ret;

	if (!ck || !engine || (n && !parts) || !out)
		return hr__fail(EINVAL, "hr_load_open: checkpoint, engine, parts and a place for "
					"the load are needed; pass all");
	if (hr_in_flight(engine))
		return hr__fail(EBUSY, "a load needs an engine with nothing in flight; reap first");
	load = calloc(1, sizeof(*load));
	if (!load)
		return hr__fail(ENOMEM, "no memory for a load; free some");
	load->ck = ck;
	load->engine = engine;
	load->file = -1;
	load->free_blocks = (1u << BLOCKS) - 1;
	if (opts)
		load->opts = *opts;
	for (uint32_t i = 0; i < REQUESTS; i++) {
		load->requests[i].block = -1;
		give_back(load, &load->requests[i]);
	}
	ret = add_items(load, parts, n);
	if (ret) {
		hr_load_close(load);
		return ret;
	}
	*out = load;
	return 0;
}

int hr_load_close(struct hr_load *load)
{
	struct hr_io *done[64];
	uint64_t end;

	if (!load)
		return 0;
	if (load->in_flight)
		cancel_all(load);
	end = hr__now_ns() + load->engine->opts.timeout_ns;
	while (load->in_flight) {
		uint64_t now = hr__now_ns();
		int n = 0;

		if (now < end)
			n = hr_reap(load->engine, done, HR_ARRAY_LEN(done), 1, end - now);
		if (n < 0)
			return n;
		if (!n)
			return hr__fail(EBUSY,
					"%" PRIu32 " reads have not come back; the buffers stay in "
					"use, close the load later",
					load->in_flight);
		for (int i = 0; i < n; i++)
			take_result(load, done[i]->user);
	}
	free(load->items);
	free(load);
	return 0;
}

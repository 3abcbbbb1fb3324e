/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/bench_engine.c - a worker with an engine of its own that keeps --depth requests in flight.
 *
 * The loop is what is measured, so it does nothing else: one clock read for each round of reaping,
 * which ends the latencies of the round and begins those of the requests that follow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

#define REAP_NS 1000000000ull
#define STUCK_ROUNDS 60
#define POOL_THREADS 16
#define PART_BYTES (1u << 20) /* an engine cuts longer requests into such parts */

struct request {
	struct hr_io io;
	uint64_t start_ns;
	uint64_t at;             /* in the buffer */
	struct hr_piece *pieces; /* with --batch */
};

struct load {
	struct bench_worker *w;
	struct hr_engine *engine;
	struct hr_buffer *buffer;
	struct request *requests;
	struct hr_piece *pieces;
	struct hr_io **ready;  /* the round's requests, in and out */
	uint8_t *block;        /* --verify of writes: the pattern of one block */
	uint32_t depth, batch; /* requests on the way; pieces of each */
	uint64_t bs, left;     /* blocks that may still be started */
};

/* Without io_uring the depth needs threads: as many as make sense, unless the user said how many. */
static int open_again(const struct bench *b, struct hr_engine_options *opts, struct hr_engine **out)
{
	int err = hr_engine_close(*out);

	*out = NULL;
	opts->threads = (uint32_t)cli_min(opts->depth, POOL_THREADS);
	return err ? err : hr_engine_open(b->device.dev, opts, out);
}

int bench_open_engine(const struct bench *b, struct hr_engine **out)
{
	const struct bench_settings *set = b->set;
	uint64_t parts = (set->bs + PART_BYTES - 1) / PART_BYTES;
	struct hr_engine_options opts = {
		.depth = (uint32_t)cli_min(set->depth * set->batch * parts, 4096),
		.threads = (uint32_t)set->helpers,
		.staging_bytes = set->staging,
		.buffered = set->buffered,
		.direct = set->direct,
		.cache = cli_cache(set->cache),
		.map = true,
	};
	struct hr_queue_info queue;
	int err;

	hr_path_parse(set->path, &opts.path);
	err = hr_engine_open(b->device.dev, &opts, out);
	if (err)
		return err;
	hr_engine_queue(*out, &queue);
	return strcmp(queue.name, "sync") ? 0 : open_again(b, &opts, out);
}

static int open_load(struct load *l, struct bench_worker *w)
{
	const struct bench *b = w->bench;
	struct hr_device_info info;
	uint64_t pieces;
	int err;

	l->w = w;
	l->batch = (uint32_t)b->set->batch;
	l->depth = (uint32_t)b->set->depth;
	/* What waits for the device would be missing at the drive: keep as much again on the way. */
	hr_device_info(b->device.dev, &info);
	if (info.kind != HR_DEVICE_HOST)
		l->depth *= 2;
	l->bs = b->set->bs;
	l->left = bench_blocks_limit(w);
	pieces = (uint64_t)l->depth * l->batch;
	err = bench_open_engine(b, &l->engine);
	if (!err)
		err = hr_buffer_alloc(b->device.dev, pieces * b->out_bytes, &l->buffer);
	if (err)
		return err;
	l->requests = calloc(l->depth, sizeof(*l->requests));
	l->ready = calloc(l->depth, sizeof(struct hr_io *));
	l->pieces = l->batch > 1 ? calloc(pieces, sizeof(*l->pieces)) : NULL;
	l->block = b->write ? malloc(l->bs) : NULL;
	if (!l->requests || !l->ready || (l->batch > 1 && !l->pieces) || (b->write && !l->block))
		return -ENOMEM;
	for (uint32_t i = 0; i < l->depth; i++) {
		struct request *r = &l->requests[i];

		r->at = (uint64_t)i * l->batch * b->out_bytes;
		r->pieces = l->pieces ? l->pieces + (uint64_t)i * l->batch : NULL;
		r->io.op = b->write ? HR_WRITE : HR_READ;
		r->io.file = b->file;
		r->io.buffer = l->buffer;
		r->io.from = b->from;
		r->io.to = b->to;
		r->io.user = r;
		r->io.pieces = r->pieces;
		r->io.count = l->batch;
	}
	hr_engine_queue(l->engine, &w->queue);
	return 0;
}

/* Writes need something to write; without --verify the same all the time. */
static int fill_buffer(struct load *l)
{
	uint64_t seed = l->w->bench->set->seed;
	int err = 0;

	for (uint64_t at = 0; l->block && at < hr_buffer_len(l->buffer) && !err; at += l->bs) {
		bench_fill(l->block, l->bs, at, seed);
		err = hr_buffer_copy_in(l->buffer, at, l->block, l->bs);
	}
	return err;
}

/* Data that says where it belongs: its own copy to the device for each block, so not for speed. */
static int fill_block(struct load *l, uint64_t block, uint64_t at)
{
	struct bench *b = l->w->bench;

	bench_fill(l->block, l->bs, block * l->bs, b->set->seed);
	atomic_fetch_or_explicit(&b->written[block / 8], (unsigned char)(1u << (block % 8)),
				 memory_order_relaxed);
	return hr_buffer_copy_in(l->buffer, at, l->block, l->bs);
}

static inline int aim(struct load *l, struct request *r)
{
	struct hr_piece *pieces = r->pieces ? r->pieces : &r->io.piece;
	uint32_t n = (uint32_t)cli_min(l->batch, l->left);
	int err = 0;

	r->io.count = r->pieces ? n : 0;
	for (uint32_t i = 0; i < n && !err; i++) {
		uint64_t block = bench_next_block(l->w);

		pieces[i].file_offset = block * l->bs;
		pieces[i].len = l->bs;
		pieces[i].buffer_offset = r->at + i * l->w->bench->out_bytes;
		if (l->w->bench->written)
			err = fill_block(l, block, pieces[i].buffer_offset);
	}
	l->left -= n;
	return err;
}

/* Judge what came back, aim the requests anew. Return: how many are to be sent again, or -code. */
static int turn(struct load *l, int n, uint64_t now, bool more)
{
	int again = 0;

	for (int i = 0; i < n; i++) {
		struct request *r = l->ready[i]->user;
		uint64_t blocks = r->pieces ? r->io.count : 1;

		if (r->io.res != (int64_t)(blocks * l->bs))
			return r->io.res < 0 ? (int)r->io.res : -HR_E_FILE_CHANGED;
		cli_histogram_add(&l->w->latency, now - r->start_ns);
		l->w->blocks += blocks;
		if (!more || !l->left)
			continue;
		if (aim(l, r))
			return -EIO;
		r->start_ns = now;
		l->ready[again++] = &r->io;
	}
	atomic_store_explicit(&l->w->live_blocks, l->w->blocks, memory_order_relaxed);
	return again;
}

static int run_load(struct load *l)
{
	const struct bench *b = l->w->bench;
	uint64_t now = cli_now_ns();
	uint32_t quiet = 0;
	int n = 0;

	for (uint32_t i = 0; i < l->depth && l->left; i++) {
		int err = aim(l, &l->requests[i]);

		if (err)
			return err;
		l->requests[i].start_ns = now;
		l->ready[n++] = &l->requests[i].io;
	}
	while (n > 0 || hr_in_flight(l->engine)) {
		int sent = n > 0 ? hr_submit(l->engine, l->ready, (uint32_t)n) : 0;

		if (sent < n) /* asked again, the one that was refused says why */
			return sent < 0 ? sent : hr_submit(l->engine, l->ready + sent, 1);
		n = hr_reap(l->engine, l->ready, l->depth, 1, REAP_NS);
		now = cli_now_ns();
		quiet = n ? 0 : quiet + 1;
		if (quiet > STUCK_ROUNDS)
			return -ETIMEDOUT;
		if (n > 0)
			n = turn(l, n, now,
				 now < b->deadline_ns &&
					 !atomic_load_explicit(&b->stop, memory_order_relaxed));
		if (n < 0)
			return n;
	}
	return 0;
}

static void close_load(struct load *l)
{
	int err = hr_engine_close(l->engine);

	/* After -EBUSY a drive may still write to the buffer: leave all to the end of the process. */
	if (!err) {
		hr_buffer_free(l->buffer);
		free(l->requests);
		free(l->pieces);
	}
	free(l->ready);
	free(l->block);
}

void *bench_engine_worker(void *worker)
{
	struct bench_worker *w = worker;
	struct load load = {0};
	int err = open_load(&load, w);

	if (!err)
		err = fill_buffer(&load);
	if (err)
		bench_worker_fail(w, err, w->bench->device.info.name);
	if (bench_let_go(w)) {
		w->start_ns = cli_now_ns();
		w->cpu_ns = bench_cpu_ns();
		err = run_load(&load);
		w->cpu_ns = bench_cpu_ns() - w->cpu_ns;
		w->end_ns = cli_now_ns();
		if (err)
			bench_worker_fail(w, err, w->bench->file_path);
		hr_engine_stats(load.engine, &w->stats);
	}
	atomic_fetch_sub(&w->bench->running, 1);
	close_load(&load);
	return NULL;
}

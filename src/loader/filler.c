/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/filler.c - fills batch slots from files: builds requests, keeps enough of them in flight,
 * and judges what comes back. Knows nothing of the consumer but the ring.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/memlimit.h"
#include "base/numa.h"
#include "base/util.h"
#include "file/file.h"
#include "loader/loader.h"
#include "mem/mem.h"

#define ENGINE_DEPTH_DEFAULT 128u
#define REQUEST_DEFAULT (1ull << 20)
#define STAGING_BLOCK 4096u /* what a sample's edges cost in the ring at most */
#define STAGING_MIN (1ull << 20)
/*
 * A larger batch moves in parts: of twice a second-level cache, which hot samples are copied into at a
 * third of what memory costs, and still as long as many launches.
 */
#define STAGING_MAX (6ull << 20)
#define REAP_SLICE_NS 100000000ull /* how long a stop may go unnoticed while a drive is silent */
#define IDLE_SLICE_NS 3600000000000ull /* an idle thread is woken by its event, not by this */

/*
 * Enough batches that the drive's queue stays full while one of them completes: twice the engine's
 * depth in requests, but not more than this filler's share of the slots. More would share the drive
 * with the batch that is wanted first.
 */
static uint32_t batches_in_flight(const struct hr_loader *loader)
{
	const struct hr_loader_options *opts = &loader->opts;
	uint64_t depth = opts->engine.depth ? opts->engine.depth : ENGINE_DEPTH_DEFAULT;
	uint64_t request =
		opts->engine.request_bytes ? opts->engine.request_bytes : REQUEST_DEFAULT;
	uint64_t each = 1 + loader->ds->info.sample_bytes / request; /* requests of a sample */
	uint64_t batch = opts->batch_size * hr__min(each, depth);
	uint64_t enough = (2 * depth + batch - 1) / batch;

	if (!(loader->dev->caps & HR__MEM_CAP_HOST_VISIBLE))
		enough = hr__max(enough, 2); /* the device moves one while the next is built */
	if (opts->threads == 0)
		return opts->slots;
	return (uint32_t)hr__max(1, hr__min(enough, opts->slots / loader->n_fillers));
}

int hr__filler_init(struct hr__filler *filler, struct hr_loader *loader, uint32_t index)
{
	int rc = hr__assembler_init(&filler->assembler, &loader->layout, loader->ds,
				    loader->opts.pad_value);

	filler->loader = loader;
	filler->index = index;
	filler->flying_max = batches_in_flight(loader);
	filler->order = hr__order_new(loader->plan);
	filler->flying = calloc(filler->flying_max, sizeof(*filler->flying));
	if (hr__side_needed(&loader->side)) {
		filler->moves = calloc(HR__LANE_MOVES_MAX, sizeof(*filler->moves));
		if (!filler->moves)
			rc = -ENOMEM;
	}
	return filler->flying && filler->order ? rc : -ENOMEM;
}

void hr__filler_fini(struct hr__filler *filler)
{
	hr__assembler_fini(&filler->assembler);
	hr__order_free(filler->order);
	free(filler->flying);
	free(filler->moves);
}

/*
 * The engines of a loader share one budget of staging memory, but a batch of usual size must fit into
 * its ring, or it would take more than two trips to the device.
 */
static uint64_t staging_share(const struct hr_loader *loader)
{
	uint64_t block = STAGING_BLOCK;
	uint64_t sample = hr__align_up(loader->ds->info.sample_bytes + block, block);
	uint64_t batch = loader->opts.batch_size * sample;
	uint64_t share = hr__staging_bytes(0) / loader->n_fillers;

	return hr__max(STAGING_MIN, hr__max(share, hr__min(batch, STAGING_MAX)));
}

/* Does it read(2) on the thread that waits for it, one after the other? */
static bool is_alone(const struct hr_engine *engine)
{
	struct hr_queue_info queue;

	hr_engine_queue(engine, &queue);
	return strcmp(queue.name, "sync") == 0;
}

/*
 * Fillers copy side by side already: threads of the engines' own would only take turns with them. They
 * are for reading where there is no io_uring, and for all that the threads would do where one fills.
 */
int hr__filler_open(struct hr__filler *filler)
{
	struct hr_loader *loader = filler->loader;
	struct hr_engine_options opts = loader->opts.engine;
	int rc;

	if (!opts.staging_bytes)
		opts.staging_bytes = hr__align_up(staging_share(loader), STAGING_BLOCK);
	if (loader->n_fillers > 1)
		opts.threads = 0;
	else if (loader->opts.threads > 1)
		opts.threads = (uint32_t)hr__max(opts.threads, loader->opts.threads);
	if (hr__side_needed(&loader->side)) {
		rc = hr_lane_open(loader->dev, NULL, &filler->lane);
		if (rc < 0)
			return rc;
	}
	rc = hr_engine_open(loader->dev, &opts, &filler->engine);
	if (rc < 0 || opts.threads == loader->opts.engine.threads || !is_alone(filler->engine))
		return rc;
	hr_engine_close(filler->engine); /* nothing is in flight */
	filler->engine = NULL;
	opts.threads = loader->opts.engine.threads;
	return hr_engine_open(loader->dev, &opts, &filler->engine);
}

void hr__filler_close(struct hr__filler *filler)
{
	hr_lane_close(filler->lane); /* waits for what is on it */
	filler->lane = NULL;
	if (!filler->engine)
		return;
	for (uint32_t i = 0; i < filler->n_flying; i++) {
		struct hr__slot *slot = filler->flying[i];

		for (uint32_t k = 0; k < slot->n_ios; k++)
			hr_cancel(filler->engine,
				  slot->io_list[k]); /* -ENOENT: it is back already */
	}
	if (hr_engine_close(filler->engine) < 0)
		filler->stuck = true;
	filler->engine = NULL;
}

/* The samples of the batch with the slot's number. */
static void draw_samples(struct hr__filler *filler, struct hr__slot *slot)
{
	struct hr_loader *loader = filler->loader;
	const struct hr__schedule *schedule = &loader->schedule;
	struct hr__turn turn, next;
	uint64_t position;

	hr__schedule_at(schedule, slot->seq, &turn);
	hr__schedule_at(schedule, slot->seq + 1, &next);
	hr__order_begin(filler->order, turn.epoch);
	position = turn.first % schedule->samples;
	for (uint32_t row = 0, n; row < loader->layout.batch_size; row += n, position = 0) {
		/* Positions behind the end are padding: the epoch's order from its start again. */
		n = (uint32_t)hr__min(loader->layout.batch_size - row,
				      schedule->samples - position);
		hr__order_run(filler->order, position, n, slot->ids + row);
	}
	slot->batch.epoch = turn.epoch;
	slot->batch.step = turn.step;
	slot->batch.valid = turn.valid;
	slot->batch.last = next.epoch != turn.epoch;
}

static int send_side(struct hr__filler *filler, struct hr__slot *slot, const char *side,
		     char *memory)
{
	struct hr_loader *loader = filler->loader;

	return hr__side_send(&loader->side, &loader->layout, filler->lane, side, memory,
			     filler->moves, &slot->side_ticket);
}

static int build_batch(struct hr__filler *filler, struct hr__slot *slot)
{
	struct hr_loader *loader = filler->loader;
	char *memory = (char *)hr_buffer_address(loader->buffer) + slot->batch.buffer_offset;
	char *side = hr__side_of(&loader->side, (uint32_t)(slot - loader->ring.slots));
	struct hr__target target = {
		.buffer = loader->buffer,
		.base = slot->batch.buffer_offset,
		.host = side ? NULL : memory,
		.side = side ? side : memory + loader->layout.side_offset,
		.tensors = slot->tensors,
	};
	int rc;

	slot->side_ticket = 0;
	draw_samples(filler, slot);
	rc = hr__assemble(&filler->assembler, slot->ids, &target, &slot->requests);
	if (rc == 0 && side)
		rc = send_side(filler, slot, side, memory);
	slot->batch.max_seqlen = target.max_seqlen;
	for (uint32_t i = 0; i < slot->requests.n_ios; i++)
		slot->requests.ios[i].user = slot;
	return rc;
}

/* The first failure of a batch is the one that is told. */
static void fail_slot(struct hr__slot *slot, int code, const char *sentence)
{
	if (slot->error)
		return;
	slot->error = code;
	snprintf(slot->sentence, sizeof(slot->sentence), "%s", sentence);
}

static void publish_slot(struct hr__filler *filler, struct hr__slot *slot)
{
	struct hr__ring *ring = &filler->loader->ring;
	struct hr_stats stats;

	if (hr_engine_stats(filler->engine, &stats) == 0) {
		const struct hr__assembler *a = &filler->assembler;

		pthread_mutex_lock(&ring->lock);
		filler->stats = stats;
		if (a->substituted != filler->substituted)
			memcpy(filler->reason, a->reason, sizeof(filler->reason));
		filler->substituted = a->substituted;
		pthread_mutex_unlock(&ring->lock);
	}
	hr__ring_publish(ring, slot);
}

/* All that was read is there; the side mostly is, having had as long. */
static void finish_slot(struct hr__filler *filler, struct hr__slot *slot)
{
	struct hr_lane *lane = filler->lane;
	int rc = 0;

	if (slot->side_ticket)
		rc = lane->ops->wait(lane, slot->side_ticket, hr__loader_patience(filler->loader));
	if (rc < 0)
		fail_slot(slot, rc, hr_error_detail());
	publish_slot(filler, slot);
}

static void submit_batch(struct hr__filler *filler, struct hr__slot *slot)
{
	uint32_t taken = 0;

	while (taken < slot->requests.n_ios && !slot->error) {
		int rc = hr_submit(filler->engine, slot->io_list + taken,
				   slot->requests.n_ios - taken);

		if (rc <= 0) {
			fail_slot(slot, rc < 0 ? rc : -EIO, hr_error_detail());
			break;
		}
		taken += (uint32_t)rc;
	}
	slot->left = taken;
	slot->n_ios = taken;
	if (taken)
		filler->flying[filler->n_flying++] = slot;
	else
		finish_slot(filler, slot);
}

static bool fill_one(struct hr__filler *filler, struct hr__waiter *waiter)
{
	struct hr__slot *slot = hr__ring_claim(&filler->loader->ring, waiter);
	int rc;

	if (!slot)
		return false;
	rc = build_batch(filler, slot);
	if (rc < 0)
		fail_slot(slot, rc, hr_error_detail());
	submit_batch(filler, slot);
	return true;
}

void hr__filler_fill(struct hr__filler *filler)
{
	/* With requests in flight it sleeps on them and looks again after; else on its event. */
	while (filler->n_flying < filler->flying_max &&
	       fill_one(filler, filler->n_flying ? NULL : &filler->waiter))
		;
}

static const struct hr__part *part_of(const struct hr_loader *loader, const struct hr_file *file)
{
	for (uint32_t i = 0; i < loader->ds->n_parts; i++) {
		if (loader->ds->parts[i]->file == file)
			return loader->ds->parts[i];
	}
	return NULL;
}

/* Not the data path any more. */
static void fail_short(const struct hr_loader *loader, struct hr__slot *slot,
		       const struct hr_io *io)
{
	const struct hr__part *part = part_of(loader, io->file);
	char text[HR__SENTENCE_BYTES];
	uint64_t now = 0;

	if (hr__file_hold(io->file, true) >= 0) {
		hr__file_size(io->file, &now);
		hr__file_release(io->file);
	}
	snprintf(text, sizeof(text),
		 "%s: had %" PRIu64 " bytes when it was opened, has %" PRIu64
		 " now: it was truncated while being read; restore it and start again",
		 hr_file_path(io->file), part ? part->size : 0, now);
	fail_slot(slot, -HR_E_FILE_CHANGED, text);
}

static void fail_read(struct hr__slot *slot, const struct hr_io *io)
{
	char text[HR__SENTENCE_BYTES];
	int rc = hr__file_hold(io->file, true);

	/* Where it could not be opened again, the sentence of that says more. */
	if (rc < 0) {
		fail_slot(slot, rc, hr_error_detail());
		return;
	}
	hr__file_release(io->file);
	snprintf(text, sizeof(text),
		 "%s: reading the batch of epoch %" PRIu64 ", step %" PRIu64
		 " failed: %s; look for the drive's or device's messages in the kernel log",
		 hr_file_path(io->file), slot->batch.epoch, slot->batch.step,
		 hr_strerror((int)io->res));
	fail_slot(slot, (int)io->res, text);
}

static void judge(const struct hr_loader *loader, struct hr__slot *slot, const struct hr_io *io)
{
	uint64_t asked = 0;

	if (io->res < 0) {
		fail_read(slot, io);
		return;
	}
	for (uint64_t i = 0; i < io->count; i++)
		asked += io->pieces[i].len;
	if ((uint64_t)io->res != asked)
		fail_short(loader, slot, io);
}

static void land(struct hr__filler *filler, struct hr__slot *slot)
{
	uint32_t i = 0;

	while (filler->flying[i] != slot)
		i++;
	filler->flying[i] = filler->flying[--filler->n_flying];
	finish_slot(filler, slot);
}

/* The engine itself is broken: nothing in flight will come back through it. */
static void fail_all(struct hr__filler *filler, int code)
{
	/*
	 * The slots stay on the flying list: their memory is the engine's until it is closed, and a
	 * FAILED slot is never handed out again.
	 */
	if (filler->broken)
		return;
	filler->broken = true;
	for (uint32_t i = 0; i < filler->n_flying; i++) {
		/* One of its requests may have failed before: then that failure is told. */
		fail_slot(filler->flying[i], code, hr_error_detail());
		hr__ring_publish(&filler->loader->ring, filler->flying[i]);
	}
}

void hr__filler_reap(struct hr__filler *filler, uint32_t min, uint64_t timeout_ns)
{
	struct hr_io *done[HR__REAP_MAX];
	int n = hr_reap(filler->engine, done, HR__REAP_MAX, min, timeout_ns);

	if (n < 0)
		fail_all(filler, n);
	for (int i = 0; i < n; i++) {
		struct hr__slot *slot = done[i]->user;

		judge(filler->loader, slot, done[i]);
		if (--slot->left == 0)
			land(filler, slot);
	}
}

/* -- a filler as a thread ------------------------------------------------------------------- */

static void tell_opened(struct hr__filler *filler, int rc)
{
	struct hr_loader *loader = filler->loader;

	filler->open_error = rc;
	if (rc < 0)
		snprintf(filler->open_sentence, sizeof(filler->open_sentence), "%s",
			 hr_error_detail());
	else if (filler->index == 0)
		hr_engine_queue(filler->engine, &loader->queue);
	atomic_fetch_add(&loader->opened, 1);
	hr__event_signal(&loader->control);
}

/* Answer a pause once nothing is in flight. Return: true while there is one. */
static bool rest(struct hr__filler *filler)
{
	struct hr_loader *loader = filler->loader;
	uint32_t pause = atomic_load(&loader->pause);

	if (pause % 2 == 0)
		return false;
	if (filler->n_flying == 0 && filler->parked_for != pause) {
		filler->parked_for = pause;
		atomic_fetch_add(&loader->parked, 1);
		hr__event_signal(&loader->control);
	}
	return true;
}

static void *run_filler(void *arg)
{
	struct hr__filler *filler = arg;
	struct hr_loader *loader = filler->loader;
	int rc;

	hr__numa_run_on(loader->dev->info.numa_node); /* before its ring is touched */
	rc = hr__filler_open(filler);
	tell_opened(filler, rc);
	if (rc < 0) {
		hr__filler_close(filler); /* it may have a lane already */
		return NULL;
	}
	while (!atomic_load(&loader->stopping)) {
		/* Noted before looking for work: what comes up meanwhile ends the sleep. */
		uint32_t seen = hr__event_now(&filler->waiter.event);

		if (!rest(filler))
			hr__filler_fill(filler);
		if (filler->n_flying && !filler->broken)
			hr__filler_reap(filler, 1, REAP_SLICE_NS);
		else if (!atomic_load(&loader->stopping)) /* again: it may be older than "seen" */
			hr__event_wait(&filler->waiter.event, seen, IDLE_SLICE_NS);
	}
	hr__filler_close(filler);
	return NULL;
}

int hr__filler_start(struct hr__filler *filler)
{
	sigset_t all, kept;
	char name[16];
	int rc;

	/* Signals are the program's affair: its own threads get them. Faults belong to who faults. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &kept);
	rc = pthread_create(&filler->thread, NULL, run_filler, filler);
	pthread_sigmask(SIG_SETMASK, &kept, NULL);
	if (rc)
		return hr__fail(rc,
				"loader: thread %" PRIu32 " could not be started: %s; ask for "
				"fewer threads",
				filler->index, hr_strerror(rc));
	filler->started = true;
	snprintf(name, sizeof(name), "hr-fill-%" PRIu32, filler->index);
	pthread_setname_np(filler->thread, name);
	return 0;
}

void hr__filler_join(struct hr__filler *filler)
{
	if (!filler->started)
		return;
	hr__event_signal(&filler->waiter.event);
	pthread_join(filler->thread, NULL);
	filler->started = false;
}

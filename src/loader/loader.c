/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/loader.c - the consumer's side: open, next, release, state; moves no bytes itself.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/util.h"
#include "file/rest.h"
#include "loader/loader.h"
#include "loader/state.h"
#include "mem/mem.h"

#define BATCH_MAX (1u << 20)
#define SLOTS_MAX 1024u
#define SLOTS_ALONE 4u
#define SAMPLE_LARGE (1ull << 20)
#define BATCH_LARGE (32ull << 20) /* in requests of a MiB enough for any drive */
#define SLOTS_EACH_MAX 8u         /* of a thread, by default */
#define SLOTS_EACH_BYTES (16ull << 20)
#define THREADS_MAX 256u
/* Registering a file takes as long as reading it three times; later epochs save a third at most. */
#define EPOCHS_THAT_PAY 8u
#define TIMEOUT_DEFAULT_NS 60000000000ull
#define TIMEOUT_MAX_NS (1ull << 62) /* longer ones, such as UINT64_MAX, mean this */
/* How long hr_loader_stop() may go unnoticed while the caller's thread waits for a device. */
#define WAIT_SLICE_NS 20000000ull

/* -- open ------------------------------------------------------------------------------------ */

static int complete_options(struct hr_loader_options *o)
{
	if (o->batch_size < 1 || o->batch_size > BATCH_MAX)
		return hr__fail(EINVAL, "batch_size %" PRIu32 ": must be 1 to %u", o->batch_size,
				BATCH_MAX);
	if (o->dp_world_size == 0)
		o->dp_world_size = 1;
	if (o->dp_rank >= o->dp_world_size)
		return hr__fail(EINVAL, "dp_rank %" PRIu32 ": must be below dp_world_size %" PRIu32,
				o->dp_rank, o->dp_world_size);
	if ((unsigned int)o->shuffle > HR_SHUFFLE_WINDOW || (unsigned int)o->last > HR_LAST_PAD)
		return hr__fail(EINVAL, "shuffle %d, last %d: not a known choice", (int)o->shuffle,
				(int)o->last);
	if ((unsigned int)o->ragged > HR_RAGGED_PAD || (o->n_casts && !o->casts))
		return hr__fail(EINVAL, "ragged %d, %" PRIu32 " conversions: not a known choice",
				(int)o->ragged, o->n_casts);
	if (o->threads > THREADS_MAX)
		return hr__fail(EINVAL, "threads %" PRIu32 ": must be 0 to %u", o->threads,
				THREADS_MAX);
	if (o->slots == 1 || o->slots > SLOTS_MAX)
		return hr__fail(EINVAL, "slots %" PRIu32 ": must be 2 to %u", o->slots, SLOTS_MAX);
	if (o->timeout_ns == 0)
		o->timeout_ns = TIMEOUT_DEFAULT_NS;
	o->timeout_ns = hr__min(o->timeout_ns, TIMEOUT_MAX_NS);
	return 0;
}

/*
 * A thread needs a batch to fill while another is on its way. A device takes small ones several at a
 * time: in one launch, and many launches side by side keep its bus busy.
 */
static uint32_t default_slots(const struct hr_loader *loader)
{
	bool device = !(loader->dev->caps & HR__MEM_CAP_HOST_VISIBLE);
	uint64_t each = 2;

	if (loader->opts.threads == 0)
		return SLOTS_ALONE;
	if (device)
		each = hr__max(each,
			       hr__min(SLOTS_EACH_MAX,
				       SLOTS_EACH_BYTES / hr__max(loader->layout.batch_bytes, 1)));
	return (uint32_t)hr__min(SLOTS_MAX, 2 + each * loader->n_fillers);
}

/*
 * How many threads fill batches, each its own. Where one batch of large samples keeps the drive busy,
 * several would only be read side by side, and all be late: the first, which somebody waits for, by as
 * many times as there are threads. They copy for one engine then. Conversions on the CPU are the
 * exception: they want a thread each. For a GPU every engine has its own share of the bus.
 */
static uint32_t count_fillers(const struct hr_loader *loader)
{
	const struct hr__layout *layout = &loader->layout;
	bool one = loader->ds->info.sample_bytes >= SAMPLE_LARGE &&
		   layout->batch_bytes >= BATCH_LARGE &&
		   loader->dev->caps & HR__MEM_CAP_HOST_VISIBLE;

	for (uint32_t i = 0; i < layout->n_casts && one; i++)
		one = layout->casts[i].from == layout->casts[i].to;
	return one ? 1 : (uint32_t)hr__max(loader->opts.threads, 1);
}

static int check_length(const struct hr__schedule *schedule, const struct hr_loader_options *o)
{
	if (schedule->steps_per_epoch > 0)
		return 0;
	return hr__fail(HR_E_TOO_SHORT,
			"dataset: %" PRIu64 " samples, one step of %" PRIu32
			" ranks with batches of "
			"%" PRIu32 " needs %" PRIu64 "; use a smaller batch, or pad the last step",
			schedule->samples, o->dp_world_size, o->batch_size, schedule->step_samples);
}

static int allocate_ring(struct hr_loader *loader)
{
	uint64_t bytes = hr__max(loader->layout.slot_bytes, 1) * loader->opts.slots;
	int rc = hr_buffer_alloc(loader->dev, bytes, &loader->buffer);

	if (rc < 0)
		return rc;
	rc = hr__side_open(&loader->side, loader->dev, &loader->layout, loader->opts.slots,
			   loader->opts.pad_value);
	if (rc < 0)
		return rc;
	rc = hr__ring_init(&loader->ring, loader->opts.slots, &loader->layout, loader->buffer,
			   &loader->side);
	if (rc == 0) {
		loader->fillers = calloc(loader->n_fillers, sizeof(*loader->fillers));
		if (!loader->fillers)
			rc = -ENOMEM;
	}
	for (uint32_t i = 0; i < loader->n_fillers && rc == 0; i++)
		rc = hr__filler_init(&loader->fillers[i], loader, i);
	if (rc < 0)
		return hr__fail(rc,
				"loader: no memory for %" PRIu32 " slots of %" PRIu32
				" samples; use fewer slots or smaller batches",
				loader->opts.slots, loader->opts.batch_size);
	return 0;
}

/* All threads tell whether their engines are open. */
static int wait_opened(struct hr_loader *loader)
{
	uint64_t deadline = hr__now_ns() + TIMEOUT_DEFAULT_NS;

	for (;;) {
		uint32_t seen = hr__event_now(&loader->control);
		uint64_t now = hr__now_ns();

		if (atomic_load(&loader->opened) == loader->n_fillers)
			break;
		if (now >= deadline)
			return hr__fail(ETIMEDOUT, "loader: its threads did not come up in 60 s");
		hr__event_wait(&loader->control, seen, deadline - now);
	}
	for (uint32_t i = 0; i < loader->n_fillers; i++) {
		const struct hr__filler *filler = &loader->fillers[i];

		if (filler->open_error)
			return hr__fail_set(filler->open_error, filler->open_sentence);
	}
	return 0;
}

static void wake_fillers(struct hr_loader *loader)
{
	for (uint32_t i = 0; i < loader->n_fillers; i++)
		hr__event_signal(&loader->fillers[i].waiter.event);
}

/* Begin to claim and fill, from the schedule's start. */
static void run_ring(struct hr_loader *loader)
{
	hr__ring_restart(&loader->ring, loader->schedule.total);
	hr__ring_set_closed(&loader->ring, false);
	if (loader->opts.threads)
		wake_fillers(loader);
	else
		hr__filler_fill(&loader->fillers[0]);
}

static int open_fillers(struct hr_loader *loader)
{
	int rc = 0;

	if (loader->opts.threads == 0) {
		rc = hr__filler_open(&loader->fillers[0]);
		if (rc == 0)
			hr_engine_queue(loader->fillers[0].engine, &loader->queue);
		return rc;
	}
	for (uint32_t i = 0; i < loader->n_fillers && rc == 0; i++)
		rc = hr__filler_start(&loader->fillers[i]);
	return rc < 0 ? rc : wait_opened(loader);
}

/* Ahead of the fillers: what is ready when they get there needs no reading. */
static void start_registrar(struct hr_loader *loader)
{
	const struct hr_engine_options *engine = &loader->opts.engine;
	enum hr_path path = engine->path ? engine->path : hr_config_get()->path;
	bool pin;

	if (!loader->opts.threads || engine->direct || hr_config_get()->require_direct ||
	    (path != HR_PATH_AUTO && path != HR_PATH_PAGECACHE))
		return;
	pin = path == HR_PATH_PAGECACHE || !loader->opts.epochs ||
	      loader->opts.epochs >= EPOCHS_THAT_PAY;
	hr__registrar_start(&loader->registrar, loader->ds, loader->dev, engine->map, pin);
}

/*
 * Will files have to be closed and opened again for reads that jump between them? Those in the order
 * of the files open each one once.
 */
static void foresee_files(struct hr_loader *loader)
{
	const struct hr_dataset *ds = loader->ds;
	const struct hr__rest *rest = ds->parts[0]->file->rest;
	uint64_t files = ds->n_parts, fds = rest ? rest->n_fds : 1;
	struct hr__rest_counts counts;

	if (loader->opts.shuffle == HR_SHUFFLE_NONE)
		return;
	if (loader->opts.shuffle == HR_SHUFFLE_WINDOW)
		files = hr__min(files, (uint64_t)hr__order_plan_window(loader->plan) *
					       (ds->weights ? ds->n_kids : 1));
	hr__rest_counts(&counts);
	if (files * fds <= counts.limit)
		return;
	snprintf(loader->reopen_reason, sizeof(loader->reopen_reason),
		 "%" PRIu64 " files are read in turn, %" PRIu64
		 " of them may be open: %s, or raise ulimit -n",
		 files, counts.limit / fds,
		 loader->opts.shuffle == HR_SHUFFLE_FULL ? "shuffle within windows of files"
							 : "use smaller windows");
	hr__log(HR_LOG_INFO, "loader: %s", loader->reopen_reason);
}

static int open_loader(struct hr_loader *loader, const struct hr_loader_options *opts)
{
	int rc;

	loader->opts = *opts;
	rc = complete_options(&loader->opts);
	if (rc < 0)
		return rc;
	rc = hr__layout_init(&loader->layout, loader->ds, &loader->opts);
	if (rc < 0)
		return rc;
	loader->n_fillers = count_fillers(loader);
	if (loader->opts.slots == 0)
		loader->opts.slots = default_slots(loader);
	rc = hr__order_plan_new(loader->ds, &loader->opts, &loader->plan);
	if (rc < 0)
		return rc;
	hr__schedule_init(&loader->schedule, hr__order_plan_samples(loader->plan), &loader->opts);
	rc = check_length(&loader->schedule, &loader->opts);
	if (rc < 0)
		return rc;
	rc = allocate_ring(loader);
	if (rc < 0)
		return rc;
	rc = open_fillers(loader);
	if (rc < 0)
		return rc;
	start_registrar(loader);
	foresee_files(loader);
	loader->live = hr__page_loader_claim();
	run_ring(loader);
	return rc;
}

int hr_loader_open(struct hr_dataset *ds, struct hr_device *dev,
		   const struct hr_loader_options *opts, struct hr_loader **out)
{
	struct hr_loader *loader;
	int rc;

	if (!ds || !dev || !opts)
		return hr__fail(EINVAL, "loader: needs a dataset, a device and options");
	loader = calloc(1, sizeof(*loader));
	if (!loader)
		return hr__fail(ENOMEM, "loader: no memory");
	hr__dataset_get(ds);
	hr__device_get(dev);
	loader->ds = ds;
	loader->dev = dev;
	loader->fork_generation = hr__fork_generation();
	rc = open_loader(loader, opts);
	if (rc < 0) {
		char sentence[HR__SENTENCE_BYTES];

		snprintf(sentence, sizeof(sentence), "%s", hr_error_detail());
		hr_loader_close(loader);
		return hr__fail_set(rc, sentence);
	}
	*out = loader;
	return 0;
}

/* -- close ----------------------------------------------------------------------------------- */

void hr_loader_stop(struct hr_loader *loader)
{
	atomic_store(&loader->stopping, true);
	hr__event_signal(&loader->ring.arrived);
}

/* Return: false when a drive may still write to the slots: then nothing of them may be freed. */
static bool stop_fillers(struct hr_loader *loader)
{
	bool quiet = true;

	if (!loader->fillers)
		return true;
	for (uint32_t i = 0; i < loader->n_fillers && loader->opts.threads; i++)
		hr__event_signal(&loader->fillers[i].waiter.event);
	for (uint32_t i = 0; i < loader->n_fillers; i++) {
		struct hr__filler *filler = &loader->fillers[i];

		if (loader->opts.threads)
			hr__filler_join(filler);
		else
			hr__filler_close(filler);
		quiet = quiet && !filler->stuck;
	}
	return quiet;
}

/* Work that the caller has queued may still read slots: memory must outlive it. */
static bool wait_lanes(struct hr_loader *loader)
{
	struct hr__ring *ring = &loader->ring;
	bool quiet = true;

	for (uint32_t i = 0; i < ring->n_passing; i++) {
		struct hr__slot *slot = ring->passing[i];
		struct hr_lane *lane = slot->lane;

		if (lane->ops->wait(lane, slot->ticket, hr__loader_patience(loader)) < 0)
			quiet = false;
	}
	return quiet;
}

void hr_loader_close(struct hr_loader *loader)
{
	bool quiet;

	if (!loader)
		return;
	if (loader->fork_generation != hr__fork_generation()) {
		/* After fork(): threads, rings and requests are the parent's. */
		hr__log(HR_LOG_WARN, "loader: closed in a child process, which does not own it");
		return;
	}
	hr_loader_stop(loader);
	hr__registrar_join(&loader->registrar);
	hr__page_loader_release(loader->live);
	loader->live = NULL;
	quiet = stop_fillers(loader);
	quiet = wait_lanes(loader) && quiet;
	if (!quiet || hr_buffer_free(loader->buffer) < 0) {
		hr__log(HR_LOG_ERROR, "loader: a drive or device has not finished with its slots; "
				      "their memory is "
				      "kept until the process ends");
		return;
	}
	for (uint32_t i = 0; loader->fillers && i < loader->n_fillers; i++)
		hr__filler_fini(&loader->fillers[i]);
	free(loader->fillers);
	hr__order_plan_free(loader->plan);
	hr__ring_fini(&loader->ring);
	hr__side_close(&loader->side);
	hr__layout_fini(&loader->layout);
	hr__dataset_put(loader->ds);
	hr__device_put(loader->dev);
	free(loader);
}

/* -- next and release ------------------------------------------------------------------------ */

static int fail_finally(struct hr_loader *loader, int code, const char *sentence)
{
	loader->final = code;
	snprintf(loader->final_sentence, sizeof(loader->final_sentence), "%s", sentence);
	return hr__fail_set(code, loader->final_sentence);
}

/* Locks of the ring too: a thread of the parent may have held one at that moment. */
static int check_process(const struct hr_loader *loader)
{
	if (loader->fork_generation != hr__fork_generation())
		return hr__fail(HR_E_FORKED, "loader: it belongs to the parent process; open one "
					     "after fork()");
	return 0;
}

/* Why no batch can be had at all, or 0. */
static int check_usable(const struct hr_loader *loader)
{
	if (atomic_load(&loader->stopping))
		return hr__fail(HR_E_CLOSED, "loader: it was stopped; open another one to go on");
	if (loader->final)
		return hr__fail_set(loader->final, loader->final_sentence);
	return check_process(loader);
}

/* Let a bounded time pass in the way that can bring the next batch. */
static int wait_once(struct hr_loader *loader, enum hr__take take, uint32_t seen, uint64_t left_ns)
{
	struct hr__ring *ring = &loader->ring;
	uint64_t slice = hr__min(left_ns, WAIT_SLICE_NS);

	if (take == HR__TAKE_PASSING) {
		struct hr__slot *slot = ring->passing[0];
		int rc = slot->lane->ops->wait(slot->lane, slot->ticket, slice);

		return rc == -ETIMEDOUT ? 0 : rc;
	}
	if (loader->opts.threads) {
		hr__event_wait(&ring->arrived, seen, left_ns); /* a stop signals it too */
		return 0;
	}
	assert(loader->fillers[0].n_flying > 0); /* or this would spin */
	hr__filler_reap(&loader->fillers[0], 1, slice);
	return 0;
}

/* One look at the ring; free slots are put to work first. */
static int look(struct hr_loader *loader, struct hr__slot **slot, enum hr__take *take)
{
	int rc = hr__ring_harvest(&loader->ring);

	if (rc < 0)
		return fail_finally(loader, rc, hr_error_detail());
	if (loader->opts.threads == 0) {
		struct hr__filler *filler = &loader->fillers[0];

		if (filler->n_flying && !filler->broken)
			hr__filler_reap(filler, 0, 0);
		hr__filler_fill(filler);
	}
	*take = hr__ring_take(&loader->ring, slot);
	return 0;
}

static int refuse_no_slot(const struct hr_loader *loader)
{
	return hr__fail(HR_E_NO_SLOT,
			"loader: all %" PRIu32 " batches are held; release one, or open the loader "
			"with more slots",
			loader->opts.slots);
}

/* Who asks again and again, with a short timeout each, is told how long the batch has been missing. */
static int refuse_late(struct hr_loader *loader, uint64_t waited_ns)
{
	uint64_t missed = atomic_fetch_add(&loader->missed_ns, waited_ns) + waited_ns;

	return hr__fail(ETIMEDOUT,
			"loader: no batch within %.3f s; the drive or the device does not answer",
			(double)missed / 1e9);
}

static int wait_batch(struct hr_loader *loader, struct hr__slot **slot)
{
	uint64_t start = hr__now_ns(), now = start;
	enum hr__take take = HR__TAKE_WAIT;
	int rc;

	for (;;) {
		uint32_t seen = hr__event_now(&loader->ring.arrived);

		rc = check_usable(loader);
		if (rc == 0)
			rc = look(loader, slot, &take);
		if (rc < 0)
			return rc;
		switch (take) {
		case HR__TAKE_OK:
			atomic_fetch_add(&loader->wait_ns, hr__now_ns() - start);
			atomic_store(&loader->missed_ns, 0);
			return 0;
		case HR__TAKE_FAILED:
			return fail_finally(loader, (*slot)->error, (*slot)->sentence);
		case HR__TAKE_END:
			return hr__fail(HR_E_END,
					"loader: the last of %" PRIu64 " epochs has ended",
					loader->opts.epochs);
		case HR__TAKE_NO_SLOT:
			return refuse_no_slot(loader);
		case HR__TAKE_WAIT:
		case HR__TAKE_PASSING:
			break;
		}
		now = hr__now_ns();
		if (now - start >= loader->opts.timeout_ns) {
			atomic_fetch_add(&loader->wait_ns, now - start);
			return refuse_late(loader, now - start);
		}
		rc = wait_once(loader, take, seen, loader->opts.timeout_ns - (now - start));
		if (rc < 0)
			return fail_finally(loader, rc, hr_error_detail());
	}
}

static void show_live(const struct hr_loader *loader)
{
	if (!loader->live)
		return;
	__atomic_store_n(&loader->live->batches, atomic_load(&loader->batches), __ATOMIC_RELAXED);
	__atomic_store_n(&loader->live->wait_ns, atomic_load(&loader->wait_ns), __ATOMIC_RELAXED);
}

int hr_loader_next(struct hr_loader *loader, const struct hr_batch **out)
{
	struct hr__slot *slot = NULL;
	int rc = wait_batch(loader, &slot);

	if (rc < 0)
		return rc;
	atomic_fetch_add(&loader->batches, 1);
	show_live(loader);
	*out = &slot->batch;
	return 0;
}

int hr_loader_release(struct hr_loader *loader, const struct hr_batch *batch, struct hr_lane *lane)
{
	uint64_t ticket = 0;
	struct hr__slot *slot;
	int rc = check_process(loader);

	if (rc < 0)
		return rc;
	slot = hr__ring_held(&loader->ring, batch);
	if (!slot)
		return hr__fail(EINVAL, "loader: the batch is not held; was it released before?");
	if (lane && lane->dev != loader->dev)
		return hr__fail(HR_E_WRONG_DEVICE, "loader: the lane belongs to another device");
	if (lane) {
		rc = lane->ops->mark(lane, &ticket);
		if (rc < 0)
			return rc;
	}
	hr__ring_release(&loader->ring, slot, lane, ticket);
	/*
	 * Often the lane is there already. A lane that fails is told by hr_loader_next(); without
	 * threads a free slot is put to work there, too.
	 */
	if (lane)
		hr__ring_harvest(&loader->ring);
	return 0;
}

/* -- where it stands ------------------------------------------------------------------------- */

int hr_loader_info(const struct hr_loader *loader, struct hr_loader_info *out)
{
	*out = (struct hr_loader_info){
		.steps_per_epoch = loader->schedule.steps_per_epoch,
		.batch_bytes = loader->layout.batch_bytes,
		.ring_bytes = loader->layout.slot_bytes * loader->opts.slots,
		.slots = loader->opts.slots,
		.threads = loader->opts.threads,
		.queue = loader->queue,
	};
	snprintf(out->register_reason, sizeof(out->register_reason), "%s",
		 hr__registrar_reason(&loader->registrar));
	memcpy(out->reopen_reason, loader->reopen_reason, sizeof(out->reopen_reason));
	return 0;
}

static void own_state(const struct hr_loader *loader, struct hr__state *state)
{
	state->fingerprint = loader->ds->info.fingerprint;
	state->samples = loader->schedule.samples;
	state->seed = loader->opts.seed;
	state->shuffle = loader->opts.shuffle;
	state->window = hr__order_plan_window(loader->plan);
	hr__schedule_where(&loader->schedule, loader->ring.next_out, &state->epoch,
			   &state->position);
}

int hr_loader_state(const struct hr_loader *loader, void *buf, size_t size)
{
	struct hr__state state;

	if (size < HR_LOADER_STATE_BYTES)
		return hr__fail(ENOSPC, "loader state: needs %d bytes, the buffer has %zu",
				HR_LOADER_STATE_BYTES, size);
	own_state(loader, &state);
	hr__state_encode(&state, buf);
	return HR_LOADER_STATE_BYTES;
}

/* One whose engine gave up never rests: what it has in flight does not come back. */
static bool is_any_broken(const struct hr_loader *loader)
{
	bool broken = false;

	for (uint32_t i = 0; i < loader->n_fillers; i++)
		broken = broken || atomic_load(&loader->fillers[i].broken);
	return broken;
}

/* Let all fillers finish what is in flight and rest. */
static int quiesce(struct hr_loader *loader)
{
	uint64_t deadline = hr__now_ns() + hr__loader_patience(loader);

	hr__ring_set_closed(&loader->ring, true);
	if (loader->opts.threads) {
		atomic_store(&loader->parked, 0);
		atomic_fetch_add(&loader->pause, 1);
		wake_fillers(loader);
	}
	for (;;) {
		uint32_t seen = hr__event_now(&loader->control);
		struct hr__filler *filler = &loader->fillers[0];
		uint64_t now = hr__now_ns();

		if (loader->opts.threads ? atomic_load(&loader->parked) == loader->n_fillers
					 : filler->n_flying == 0)
			return 0;
		if (atomic_load(&loader->stopping)) /* threads that stop do not answer any more */
			return -HR_E_CLOSED;
		if (now >= deadline || is_any_broken(loader))
			return -ETIMEDOUT;
		if (loader->opts.threads)
			hr__event_wait(&loader->control, seen,
				       hr__min(deadline - now, WAIT_SLICE_NS));
		else
			hr__filler_reap(filler, 1, hr__min(deadline - now, WAIT_SLICE_NS));
	}
}

int hr_loader_restore(struct hr_loader *loader, const void *buf, size_t size)
{
	struct hr__state saved, own;
	int rc = hr__state_decode(buf, size, &saved);

	if (rc < 0)
		return rc;
	own_state(loader, &own);
	rc = hr__state_match(&saved, &own);
	if (rc < 0)
		return rc;
	if (atomic_load(&loader->batches) > 0)
		return hr__fail(EBUSY,
				"loader: batches were taken already; restore right after open");
	rc = check_usable(loader);
	if (rc < 0)
		return rc;
	rc = quiesce(loader);
	if (rc == -HR_E_CLOSED)
		return check_usable(loader);
	if (rc < 0)
		return fail_finally(loader, rc,
				    "loader: reads begun before the restore do not end; "
				    "the drive does not answer");
	hr__schedule_start(&loader->schedule, saved.epoch, saved.position);
	/* Fillers look at the pause before they claim, so the ring may be open before they go on. */
	if (loader->opts.threads)
		atomic_fetch_add(&loader->pause, 1);
	run_ring(loader);
	return 0;
}

int hr_loader_stats(const struct hr_loader *loader, struct hr_loader_stats *out)
{
	/* Only the lock of the ring is written to, which is no part of what const promises. */
	struct hr__ring *ring = (struct hr__ring *)&loader->ring;

	*out = (struct hr_loader_stats){
		.batches = atomic_load(&loader->batches),
		.wait_ns = atomic_load(&loader->wait_ns),
	};
	if (check_process(loader))
		return -HR_E_FORKED;
	pthread_mutex_lock(&ring->lock);
	out->ready = ring->ready;
	for (uint32_t i = 0; i < loader->n_fillers; i++) {
		const struct hr__filler *filler = &loader->fillers[i];

		hr_stats_add(&out->io, &filler->stats);
		if (filler->substituted && !out->substituted)
			snprintf(out->substituted_reason, sizeof(out->substituted_reason), "%s",
				 filler->reason);
		out->substituted += filler->substituted;
	}
	pthread_mutex_unlock(&ring->lock);
	out->io.registered_bytes += atomic_load(&loader->registrar.bytes);
	out->io.register_ns += atomic_load(&loader->registrar.ns);
	return 0;
}

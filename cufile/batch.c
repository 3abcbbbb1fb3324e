/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/batch.c - batches: the entries of one submit are one gather for each device they touch, with
 * an engine that stays with the batch while something is in flight. The drive goes on between calls;
 * whoever asks for the state also does what is left to do, so no thread is needed.
 *
 * Threads take turns in the order in which they came, so that one that waits for entries, in short
 * steps, does not keep out one that brings more.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cufile/inside.h"

#define REAP_MAX 64u
#define STEP_NS 200000u            /* longest wait with the turn in hand */
#define NAP_NS 20000000u           /* of one that waits for a submit */
#define CANCEL_NS 2000000000ull    /* longest wait for what was cancelled */
#define PATIENCE_NS 60000000000ull /* without a single completion */
#define DEVICES_MAX 8u             /* of one batch at a time */

_Static_assert(sizeof(CUfileIOParams_t) == 64 && sizeof(CUfileIOEvents_t) == 24,
	       "as callers have them");

struct entry {
	struct hr_io io; /* first: the engine hands it back */
	struct entry *next;
	struct cf_handle *handle;
	struct cf_target target;
	void *cookie;
	CUfileStatus_t status;
	ssize_t ret;
	uint64_t start_ns;
};

struct lane {
	struct cf_engine *engine;
	unsigned int in_flight;
	struct hr_io **ios; /* of the submit that is being made */
	unsigned int n;
};

struct batch {
	struct cf_object object;
	unsigned int capacity, forks;
	atomic_bool gone; /* destroyed: whoever waits should stop */

	pthread_mutex_t lock;
	pthread_cond_t turned;
	uint64_t next_turn, turn, submits;

	/* by whoever has the turn */
	struct lane lanes[DEVICES_MAX];
	unsigned int in_flight;
	struct entry *free, *done, **done_end;
	unsigned int n_free, n_done;
	struct hr_io **ios; /* room for DEVICES_MAX lists of all entries */
	struct entry entries[];
};

/* -- turns -------------------------------------------------------------------------------------- */

static void turn_take(struct batch *b)
{
	uint64_t mine;

	pthread_mutex_lock(&b->lock);
	mine = b->next_turn++;
	while (b->turn != mine)
		pthread_cond_wait(&b->turned, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

static void turn_give(struct batch *b, bool submitted)
{
	pthread_mutex_lock(&b->lock);
	b->turn++;
	b->submits += submitted;
	if (b->next_turn != b->turn || submitted)
		pthread_cond_broadcast(&b->turned);
	pthread_mutex_unlock(&b->lock);
}

/* Nothing is in flight: wait a while for another thread to bring something. */
static void wait_for_submit(struct batch *b, uint64_t seen, uint64_t longest_ns)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += (long)(longest_ns < NAP_NS ? longest_ns : NAP_NS);
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&b->lock);
	while (b->submits == seen && !pthread_cond_timedwait(&b->turned, &b->lock, &end))
		;
	pthread_mutex_unlock(&b->lock);
}

/* -- entries ------------------------------------------------------------------------------------ */

static struct entry *entry_new(struct batch *b, const CUfileIOParams_t *p)
{
	struct entry *e = b->free;

	b->free = e->next;
	b->n_free--;
	memset(e, 0, sizeof(*e));
	e->cookie = p->cookie;
	return e;
}

/* @res: bytes, or -errno. */
static void entry_done(struct batch *b, struct entry *e, int64_t res)
{
	const struct cf_outcome outcome = {
		.result = res,
		.direct = res > 0 && e->io.bytes_by_path[HR_PATH_P2P] == (uint64_t)res,
	};

	if (e->start_ns)
		cf_stats_batch_entry(e->io.op, &outcome, cf_now_ns() - e->start_ns);
	e->status = res >= 0            ? CUFILE_COMPLETE
		    : res == -ECANCELED ? CUFILE_CANCELED
					: CUFILE_FAILED;
	e->ret = res;
	if (e->target.buffer)
		cf_target_put(&e->target);
	if (e->handle)
		cf_object_put(&e->handle->object);
	e->next = NULL;
	*b->done_end = e;
	b->done_end = &e->next;
	b->n_done++;
}

/* What any failure but a cancel and a bad opcode is called. */
static int64_t entry_result(int64_t res)
{
	return res >= 0 || res == -ECANCELED ? res : -EIO;
}

static unsigned int take_events(struct batch *b, CUfileIOEvents_t *events, unsigned int max)
{
	unsigned int n = 0;

	for (; n < max && b->done; n++) {
		struct entry *e = b->done;

		b->done = e->next;
		events[n] = (CUfileIOEvents_t){e->cookie, e->status, (size_t)e->ret};
		e->next = b->free;
		b->free = e;
		b->n_free++;
	}
	if (!b->done)
		b->done_end = &b->done;
	b->n_done -= n;
	return n;
}

/* -- engines ------------------------------------------------------------------------------------ */

static struct lane *lane_for(struct batch *b, struct cf_device *device)
{
	struct lane *lane = NULL;

	for (unsigned int i = 0; i < DEVICES_MAX; i++) {
		if (b->lanes[i].engine && b->lanes[i].engine->device == device)
			return &b->lanes[i];
		if (!b->lanes[i].engine && !lane)
			lane = &b->lanes[i];
	}
	if (lane && cf_engine_get_batch(device, &lane->engine))
		return NULL;
	return lane;
}

/* Collect what is finished, waiting at most @timeout_ns for @min. Return: how many, or -code. */
static int lane_reap(struct batch *b, struct lane *lane, unsigned int min, uint64_t timeout_ns)
{
	struct hr_io *done[REAP_MAX];
	int n = hr_reap(lane->engine->engine, done, REAP_MAX, min < REAP_MAX ? min : REAP_MAX,
			timeout_ns);

	for (int i = 0; i < n; i++) {
		lane->in_flight--;
		b->in_flight--;
		entry_done(b, (struct entry *)done[i], entry_result(done[i]->res));
	}
	if (n < 0)
		cf_log(CF_ERROR, "cufio", "batch: %s", hr_error_detail());
	return n;
}

/* One round over all devices. Return: how many entries ended, or -code. */
static int pump(struct batch *b, unsigned int min, uint64_t timeout_ns)
{
	unsigned int busy = 0;
	int sum = 0;

	for (unsigned int i = 0; i < DEVICES_MAX; i++)
		busy += b->lanes[i].in_flight > 0;
	for (unsigned int i = 0; i < DEVICES_MAX; i++) {
		struct lane *lane = &b->lanes[i];
		int n;

		if (!lane->in_flight)
			continue;
		n = lane_reap(b, lane, busy > 1 ? 1 : min, timeout_ns / busy);
		if (n < 0)
			return n;
		sum += n;
	}
	return sum;
}

/* Engines with nothing to do serve other batches. */
static void release_idle(struct batch *b)
{
	for (unsigned int i = 0; i < DEVICES_MAX; i++) {
		struct lane *lane = &b->lanes[i];

		if (!lane->engine || lane->in_flight)
			continue;
		cf_engine_put_batch(lane->engine);
		lane->engine = NULL;
	}
}

/* -- submit ------------------------------------------------------------------------------------- */

/* Return: 0 to let the engine do it, 1 when it needs none (*res is the result), -errno. */
static int prepare(struct batch *b, struct entry *e, const CUfileIOParams_t *p, int64_t *res)
{
	enum hr_op op = p->opcode == CUFILE_READ ? HR_READ : HR_WRITE;
	const struct cf_request r = {op, p->u.batch.devPtr_base, p->u.batch.size,
				     p->u.batch.file_offset, p->u.batch.devPtr_offset};
	struct lane *lane;

	e->io.op = op;
	if ((unsigned int)p->opcode > CUFILE_WRITE)
		return -EINVAL;
	if (!e->handle->file || !r.size) { /* callbacks know nothing of batches: done here */
		*res = cf_transfer(e->handle, &r);
		return 1;
	}
	if (!r.base || r.file_offset < 0 || r.buffer_offset < 0 || r.size > SSIZE_MAX ||
	    cf_handle_allows(e->handle, op) ||
	    cf_target_get(op, r.base, (uint64_t)r.buffer_offset, r.size, &e->target))
		return -EIO;
	lane = lane_for(b, e->target.device);
	if (!lane)
		return -EIO;
	e->io.file = e->handle->file;
	e->io.buffer = e->target.buffer;
	e->io.piece.file_offset = (uint64_t)r.file_offset;
	e->io.piece.len = r.size;
	e->io.piece.buffer_offset = e->target.offset;
	lane->ios[lane->n++] = &e->io;
	return 0;
}

/* Everything of one device in one list; what the engine refuses has failed, the rest goes on. */
static void lane_submit(struct batch *b, struct lane *lane)
{
	unsigned int at = 0;

	while (at < lane->n) {
		int n = hr_submit(lane->engine->engine, lane->ios + at, lane->n - at);

		if (n > 0) {
			lane->in_flight += (unsigned int)n;
			b->in_flight += (unsigned int)n;
			at += (unsigned int)n;
			continue;
		}
		cf_log(CF_ERROR, "cufio", "batch: %s", hr_error_detail());
		entry_done(b, (struct entry *)lane->ios[at++], -EIO);
	}
	lane->n = 0;
	/* The kernel gets them now. */
	if (lane->in_flight)
		lane_reap(b, lane, 0, 0);
}

static void submit(struct batch *b, struct cf_handle **handles, unsigned int nr,
		   const CUfileIOParams_t *p)
{
	uint64_t start = cf_stats_on() ? cf_now_ns() : 0;

	for (unsigned int i = 0; i < DEVICES_MAX; i++)
		b->lanes[i].n = 0;
	for (unsigned int i = 0; i < nr; i++) {
		struct entry *e = entry_new(b, &p[i]);
		int64_t res = 0;
		int ret;

		e->handle = handles[i];
		e->start_ns = start;
		ret = prepare(b, e, &p[i], &res);
		if (ret)
			entry_done(b, e, ret < 0 ? ret : entry_result(res));
	}
	for (unsigned int i = 0; i < DEVICES_MAX; i++) {
		if (b->lanes[i].engine)
			lane_submit(b, &b->lanes[i]);
	}
	release_idle(b);
	if (start)
		cf_stats_batch_submit(nr, cf_now_ns() - start);
}

static void drop(struct cf_handle **handles, unsigned int n)
{
	while (n > 0)
		cf_object_put(&handles[--n]->object);
}

/* All handles or none. Return: 0 or -code. */
static int resolve(const CUfileIOParams_t *p, unsigned int nr, struct cf_handle **handles)
{
	for (unsigned int i = 0; i < nr; i++) {
		handles[i] = p[i].mode == CUFILE_BATCH ? cf_handle_get(p[i].fh) : NULL;
		if (!handles[i]) {
			drop(handles, i);
			return -CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
		}
	}
	return 0;
}

static int submit_entered(struct batch *b, unsigned int nr, const CUfileIOParams_t *p)
{
	struct cf_handle *handles[256];
	int ret;

	if (!nr || nr > b->capacity || nr > CF_ARRAY_LEN(handles))
		return -CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	ret = resolve(p, nr, handles);
	if (ret)
		return ret;
	turn_take(b);
	if (nr > b->n_free)
		ret = -CU_FILE_BATCH_FULL;
	else
		submit(b, handles, nr, p);
	turn_give(b, !ret);
	if (ret)
		drop(handles, nr);
	return ret;
}

/* -- life --------------------------------------------------------------------------------------- */

static void cancel_all(struct batch *b)
{
	for (unsigned int i = 0; i < b->capacity; i++) {
		struct hr_io *io = &b->entries[i].io;

		for (unsigned int k = 0; k < DEVICES_MAX && b->in_flight; k++) {
			if (b->lanes[k].in_flight && io->engine_ == b->lanes[k].engine->engine)
				hr_cancel(b->lanes[k].engine->engine, io);
		}
	}
}

/* What was cancelled comes back soon, but not at once: a drive cannot be stopped. */
static void drain(struct batch *b, uint64_t patience_ns)
{
	uint64_t last = cf_now_ns();

	while (b->in_flight && cf_now_ns() - last < patience_ns) {
		int n = pump(b, 1, STEP_NS);

		if (n < 0)
			break;
		if (n)
			last = cf_now_ns();
	}
}

/* Nobody else has it any more. What a drive still writes to is left to it. */
static void destroy(struct cf_object *object)
{
	struct batch *b = (struct batch *)object;

	if (b->forks != cf_forks())
		return; /* the parent's: the engines know, and memory may be in any state */
	cancel_all(b);
	drain(b, PATIENCE_NS);
	if (b->in_flight) {
		cf_log(CF_ERROR, "cufio", "a batch was given up with %u requests in flight",
		       b->in_flight);
		return;
	}
	release_idle(b);
	pthread_cond_destroy(&b->turned);
	pthread_mutex_destroy(&b->lock);
	free(b->ios);
	free(b);
}

static struct batch *batch_new(unsigned int nr)
{
	struct batch *b = calloc(1, sizeof(*b) + nr * sizeof(b->entries[0]));
	struct hr_io **ios = calloc((size_t)nr * DEVICES_MAX, sizeof(*ios));

	if (!b || !ios) {
		free(b);
		free(ios);
		return NULL;
	}
	cf_object_init(&b->object, destroy);
	b->capacity = b->n_free = nr;
	b->forks = cf_forks();
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->turned, NULL);
	b->done_end = &b->done;
	b->ios = ios;
	for (unsigned int i = 0; i < DEVICES_MAX; i++)
		b->lanes[i].ios = ios + (size_t)i * nr;
	for (unsigned int i = nr; i-- > 0;) {
		b->entries[i].next = b->free;
		b->free = &b->entries[i];
	}
	return b;
}

static struct batch *batch_get(CUfileBatchHandle_t id)
{
	struct batch *b = (struct batch *)cf_table_get(CF_BATCH, id);

	if (b && b->forks == cf_forks())
		return b;
	if (b)
		cf_object_put(&b->object);
	return NULL;
}

static int setup_entered(CUfileBatchHandle_t *batch_idp, unsigned int nr)
{
	struct batch *b;
	int ret;

	if (nr > cf_settings()->num[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE])
		return -CU_FILE_INVALID_VALUE;
	b = batch_new(nr);
	if (!b)
		return -ENOMEM;
	ret = cf_table_add(CF_BATCH, &b->object, batch_idp);
	if (ret)
		cf_object_put(&b->object);
	return ret;
}

CF_EXPORT CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch_idp, unsigned int nr)
{
	int ret;

	if (!batch_idp || !nr)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open_enter();
	if (ret)
		return cf_error(ret);
	ret = setup_entered(batch_idp, nr);
	cf_leave();
	cf_count(CF_COUNT_BATCH_SETUP, !ret);
	return cf_error(ret);
}

CF_EXPORT CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch_idp, unsigned int nr,
					    CUfileIOParams_t *iocbp, unsigned int flags)
{
	struct batch *b;
	int ret = cf_enter();

	if (ret)
		return cf_error(ret);
	b = batch_get(batch_idp);
	if (!b)
		ret = -CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	else
		ret = iocbp ? submit_entered(b, nr, iocbp) : -CU_FILE_INVALID_VALUE;
	if (b)
		cf_object_put(&b->object);
	cf_leave();
	cf_count(CF_COUNT_BATCH_SUBMIT, !ret);
	return cf_error(ret);
}

/* -- status ------------------------------------------------------------------------------------- */

struct status {
	CUfileIOEvents_t *events;
	unsigned int min, max, got;
	bool idle; /* nothing left in the batch */
	uint64_t submits;
};

/*
 * Callers are known to pass less than a timespec, so what makes no sense is not refused: nanoseconds out
 * of range count for nothing, and no time is longer than our patience.
 */
static uint64_t timeout_of(const struct timespec *t)
{
	uint64_t ns;

	if (!t || t->tv_sec < 0 || t->tv_sec >= 3600)
		return 3600000000000ull;
	ns = (uint64_t)t->tv_sec * 1000000000u;
	return t->tv_nsec >= 0 && t->tv_nsec < 1000000000 ? ns + (uint64_t)t->tv_nsec : ns;
}

/* One look with the turn in hand. Return: entries that ended, or -code. */
static int look(struct batch *b, struct status *st, uint64_t step_ns)
{
	unsigned int have;
	int n = 0;

	turn_take(b);
	have = st->got + b->n_done;
	if (b->in_flight)
		n = pump(b, have < st->min ? st->min - have : 0, step_ns);
	st->got += take_events(b, st->events + st->got, st->max - st->got);
	st->idle = !b->in_flight && !b->n_done;
	st->submits = b->submits;
	if (st->idle)
		release_idle(b);
	turn_give(b, false);
	return n;
}

static int status_entered(struct batch *b, struct status *st, const struct timespec *timeout)
{
	uint64_t limit = timeout_of(timeout), start = cf_now_ns(), last = start, now = start;
	int n;

	for (;;) {
		uint64_t left = limit - (now - start);

		n = look(b, st, left < STEP_NS ? left : STEP_NS);
		now = cf_now_ns();
		last = n > 0 ? now : last;
		if (n < 0 || st->got >= st->min || now - start >= limit || cf_closing() ||
		    atomic_load(&b->gone))
			break;
		/* Who gave a time may wait for another thread's submit, who gave none must not. */
		if (st->idle && (st->got || !timeout))
			break;
		if (st->idle)
			wait_for_submit(b, st->submits, limit - (now - start));
		else if (now - last >= PATIENCE_NS)
			break;
		now = cf_now_ns();
		if (now - start >= limit)
			now = start + limit; /* one more look, which does not wait */
	}
	for (unsigned int i = 0; i < st->got; i++)
		cf_count(CF_COUNT_BATCH_COMPLETE, st->events[i].status == CUFILE_COMPLETE);
	return n < 0 && !st->got ? -CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR : 0;
}

CF_EXPORT CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch_idp, unsigned int min_nr,
					       unsigned int *nr, CUfileIOEvents_t *iocbp,
					       struct timespec *timeout)
{
	struct batch *b;
	int ret;

	if (!nr || !iocbp || min_nr > *nr)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_enter();
	if (ret)
		return cf_error(ret);
	b = batch_get(batch_idp);
	if (b) {
		struct status st = {.events = iocbp, .min = min_nr, .max = *nr};

		ret = status_entered(b, &st, timeout);
		*nr = st.got;
		cf_object_put(&b->object);
	} else {
		ret = -CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR;
	}
	cf_leave();
	return cf_error(ret);
}

CF_EXPORT CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch_idp)
{
	struct batch *b = NULL;

	if (cf_enter() == 0) {
		b = batch_get(batch_idp);
		if (b) {
			turn_take(b);
			cancel_all(b);
			drain(b, CANCEL_NS);
			turn_give(b, false);
			cf_object_put(&b->object);
		}
		cf_leave();
	}
	cf_count(CF_COUNT_BATCH_CANCEL, b != NULL);
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT void cuFileBatchIODestroy(CUfileBatchHandle_t batch_idp)
{
	struct batch *b;

	if (cf_enter()) /* who closes takes it along */
		return;
	b = (struct batch *)cf_table_take(CF_BATCH, batch_idp);
	if (b) {
		atomic_store(&b->gone, true);
		cf_object_put(&b->object);
	}
	cf_leave();
	cf_count(CF_COUNT_BATCH_DESTROY, b != NULL);
}

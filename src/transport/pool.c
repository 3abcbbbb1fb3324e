/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/pool.c - segments run by threads that the caller asked for, or on the caller's own thread
 * when it asked for none: the queue without io_uring, by pread and pwrite, and the crew beside
 * io_uring, which only copies what is in the page cache and hands back what is not.
 *
 * Small hot segments are handed over in lots, because waking a thread costs as much as copying one of
 * them; what does not make a lot is copied by the caller's thread when it waits.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/numa.h"
#include "base/sys.h"
#include "base/util.h"
#include "transport/bring.h"
#include "transport/ioq.h"
#include "transport/seg.h"

#define LOT_BYTES HR__CREW_MIN
#define SPIN_NS (50u * 1000u)

struct pool {
	struct hr__ioq q;
	bool crew;
	/* the owner's */
	uint32_t n_threads, threads_max;
	int node;                /* of the threads */
	struct hr__seg_list lot; /* hot segments, until they are enough for one thread */
	uint64_t lot_bytes;
	/* with threads: under the lock */
	struct hr__seg_list todo, done;
	atomic_uint n_lots, n_done; /* n_lots: shares of one thread each in todo */
	uint32_t n_idle, n_looking; /* threads that sleep; that will look into todo soon */
	bool stop;
	pthread_mutex_t lock;
	pthread_cond_t work, finished;
	pthread_t threads[];
};

/*
 * Run one segment to its end, a crew's to the first disappointment. Retries are counted when it is
 * handed back.
 */
static void run_segment(const struct pool *p, struct hr__seg *seg)
{
	ssize_t res;

	if (seg->hot) {
		seg->calls++;
		if (hr__cached_copy(seg) || p->crew)
			return;
	}
	hr__bring(seg);
	do {
		uint8_t *addr = (uint8_t *)seg->addr + seg->done;
		size_t len = seg->plan.len - seg->done;
		uint64_t off = seg->plan.off + seg->done;

		seg->calls++;
		res = seg->op == HR_READ ? hr__sys->pread(seg->fd, addr, len, off)
					 : hr__sys->pwrite(seg->fd, addr, len, off);
	} while (!hr__seg_step(seg, res, NULL));
}

/* What one thread takes at once: a lot, as publish() was given it, or one that is not hot. */
static struct hr__seg_list take_lot(struct pool *p, uint32_t *n)
{
	struct hr__seg_list lot = {0};
	uint64_t bytes = 0;

	*n = 0;
	while (p->todo.head && (!lot.head || (bytes < LOT_BYTES && lot.head->hot))) {
		bytes += p->todo.head->plan.need;
		hr__seg_list_add(&lot, hr__seg_list_take(&p->todo));
		++*n;
	}
	p->n_lots -= *n > 0;
	return lot;
}

/*
 * Copies of a MiB end every few microseconds, and waking up takes as long as a part of one: a sleep for
 * each halved the rate of eight threads. Gives way to others where processors are few.
 */
static void look_out(const atomic_uint *count, uint64_t timeout_ns)
{
	uint64_t end = hr__now_ns() + hr__min(timeout_ns, SPIN_NS);

	while (!atomic_load(count) && hr__now_ns() < end)
		sched_yield();
}

/* Wait for the next lot, awake at first. The lock is held, but not meanwhile. */
static void await_lot(struct pool *p)
{
	if (p->crew) {
		p->n_looking++;
		pthread_mutex_unlock(&p->lock);
		look_out(&p->n_lots, SPIN_NS);
		pthread_mutex_lock(&p->lock);
		p->n_looking--;
	}
	if (!p->todo.head && !p->stop) {
		p->n_idle++;
		pthread_cond_wait(&p->work, &p->lock);
		p->n_idle--;
	}
}

static void *pool_thread(void *arg)
{
	struct pool *p = arg;

	hr__numa_run_on(p->node);
	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		uint32_t n;
		struct hr__seg_list lot = take_lot(p, &n);

		if (!n) {
			await_lot(p);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		for (struct hr__seg *seg = lot.head; seg; seg = seg->next)
			run_segment(p, seg);
		pthread_mutex_lock(&p->lock);
		hr__seg_list_join(&p->done, &lot);
		p->n_done += n;
		pthread_cond_signal(&p->finished);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Signals are the program's business: the pool's threads take none. Return: 0 or -errno. */
static int start_threads(struct pool *p, uint32_t n)
{
	sigset_t all, old;
	int ret = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (p->n_threads < n && ret == 0) {
		ret = pthread_create(&p->threads[p->n_threads], NULL, pool_thread, p);
		if (ret == 0)
			p->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

/* Where no more threads can be had, those that are there must do: none is the caller's own. */
static void publish(struct pool *p, struct hr__seg_list *lot)
{
	bool short_of_hands;

	pthread_mutex_lock(&p->lock);
	hr__seg_list_join(&p->todo, lot);
	p->n_lots++;
	short_of_hands = p->n_lots > p->n_idle + p->n_looking;
	if (p->n_idle && p->n_lots > p->n_looking)
		pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	if (short_of_hands && p->n_threads < p->threads_max && start_threads(p, p->n_threads + 1))
		p->threads_max = p->n_threads;
}

static void publish_one(struct pool *p, struct hr__seg *seg)
{
	struct hr__seg_list lot = {0};

	hr__seg_list_add(&lot, seg);
	publish(p, &lot);
}

static void pool_push(struct hr__ioq *q, struct hr__seg *seg)
{
	struct pool *p = (struct pool *)q;

	q->in_flight++;
	if (!seg->hot) {
		publish_one(p, seg);
		return;
	}
	hr__seg_list_add(&p->lot, seg);
	p->lot_bytes += seg->plan.need;
	if (p->lot_bytes < LOT_BYTES)
		return;
	publish(p, &p->lot);
	p->lot_bytes = 0;
}

static uint32_t hand_back(struct pool *p, struct hr__seg *seg, struct hr__seg **out, uint32_t n)
{
	/* What has just been brought there says nothing of the rest of the file. */
	if (seg->hot && !(seg->brought && seg->cached))
		hr__cached_settle(seg);
	if (!p->crew)
		p->q.stats->brought += seg->brought;
	seg->hot = false;
	p->q.stats->preads += seg->calls;
	p->q.stats->retries += seg->tries;
	p->q.in_flight--;
	out[n] = seg;
	return n + 1;
}

/* What did not make a lot. This thread does not wait for a drive: what is missing is for the others. */
static uint32_t run_lot(struct pool *p, struct hr__seg **out, uint32_t max)
{
	struct hr__seg *seg;
	uint32_t n = 0;

	while (n < max && (seg = hr__seg_list_take(&p->lot))) {
		p->lot_bytes -= seg->plan.need;
		seg->calls++;
		if (hr__cached_copy(seg) || p->crew) {
			n = hand_back(p, seg, out, n);
			continue;
		}
		hr__cached_settle(seg);
		seg->hot = false;
		publish_one(p, seg);
	}
	return n;
}

/* No threads: the caller's own time is used, one segment after the other. */
static uint32_t pump_inline(struct pool *p, struct hr__seg **out, uint32_t max, uint64_t timeout_ns)
{
	uint64_t end = hr__now_ns() + timeout_ns;
	uint32_t n = 0;

	while (n < max && p->todo.head) {
		struct hr__seg *seg = hr__seg_list_take(&p->todo);

		run_segment(p, seg);
		n = hand_back(p, seg, out, n);
		if (hr__now_ns() >= end)
			break;
	}
	return n;
}

static int pool_pump(struct hr__ioq *q, struct hr__seg **out, uint32_t max, uint32_t min,
		     uint64_t timeout_ns)
{
	struct pool *p = (struct pool *)q;
	struct timespec end;
	uint32_t n = run_lot(p, out, max);

	if (n)
		min = 0;
	if (!p->n_threads)
		return n ? (int)n : (int)pump_inline(p, out, max, timeout_ns);
	clock_gettime(CLOCK_MONOTONIC, &end);
	timeout_ns = hr__min(timeout_ns, UINT64_C(1) << 62);
	end.tv_sec += (time_t)(timeout_ns / 1000000000u);
	end.tv_nsec += (long)(timeout_ns % 1000000000u);
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	min = (uint32_t)hr__min(hr__min(min, max), q->in_flight);
	if (p->crew && min)
		look_out(&p->n_done, timeout_ns);
	pthread_mutex_lock(&p->lock);
	while (p->n_done < min) {
		if (pthread_cond_timedwait(&p->finished, &p->lock, &end) == ETIMEDOUT)
			break;
	}
	while (n < max && p->done.head) {
		n = hand_back(p, hr__seg_list_take(&p->done), out, n);
		p->n_done--;
	}
	pthread_mutex_unlock(&p->lock);
	return (int)n;
}

static void pool_close(struct hr__ioq *q)
{
	struct pool *p = (struct pool *)q;

	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->finished);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static const struct hr__ioq_ops pool_ops = {
	.name = "pool",
	.push = pool_push,
	.pump = pool_pump,
	.close = pool_close,
};

int hr__pool_open(const struct hr__ioq_options *opts, bool crew, struct hr__ioq **out)
{
	struct pool *p = calloc(1, sizeof(*p) + opts->threads * sizeof(p->threads[0]));
	pthread_condattr_t attr;
	int ret;

	if (!p)
		return -ENOMEM;
	p->q.ops = &pool_ops;
	p->q.name = opts->threads ? "threads" : "sync";
	p->q.depth = opts->depth;
	p->q.stats = opts->stats;
	p->q.crew = opts->threads > 0;
	p->threads_max = opts->threads;
	p->node = opts->node;
	p->crew = crew;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->finished, &attr);
	pthread_condattr_destroy(&attr);
	ret = crew ? 0 : start_threads(p, opts->threads);
	if (ret) {
		pool_close(&p->q);
		return ret;
	}
	*out = &p->q;
	return 0;
}

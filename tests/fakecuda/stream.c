/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/stream.c - streams as threads with a queue: copies, kernels, events and host calls
 * really run later and beside the caller.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"
#include "mem/cuda_api.h"
#include "mem/gather.h"

#define CAPTURED_EVENT 907

enum op_kind { OP_COPY, OP_KERNEL, OP_EVENT, OP_WRITE, OP_CALL, OP_STOP };

#define NAP_US 5000

struct op {
	struct op *next;
	enum op_kind kind;
	/* copies: addresses as the device sees them, or plain host pointers */
	uint64_t dst, src, len;
	bool dst_host, src_host;
	int kernel;
	struct hr__gather_args args;
	unsigned int blocks, threads;
	struct fake_event *event;
	uint64_t turn;
	hr__cuda_host_fn fn;
	void *arg;
	bool *finished; /* a caller that waits */
};

struct fake_stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, less;
	struct op *head, **tail;
};

struct fake_event {
	pthread_mutex_t lock;
	uint64_t recorded, done;
	bool captured;     /* recorded last in a capture: it never comes */
	unsigned int refs; /* the program's handle, and operations in queues */
};

int cuStreamCreateWithPriority(struct fake_stream **out, unsigned int flags, int priority);
int cuStreamDestroy_v2(struct fake_stream *s);
int cuEventCreate(struct fake_event **out, unsigned int flags);
int cuEventDestroy_v2(struct fake_event *event);
int cuEventRecord(struct fake_event *event, struct fake_stream *s);
int cuEventQuery(struct fake_event *event);
int cuStreamQuery(struct fake_stream *s);
int cuStreamWriteValue64_v2(struct fake_stream *s, uint64_t address, uint64_t value,
			    unsigned int flags);
int cuLaunchHostFunc(struct fake_stream *s, hr__cuda_host_fn fn, void *arg);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t len, struct fake_stream *s);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t len, struct fake_stream *s);
int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t len, struct fake_stream *s);
int cuLaunchKernel(int *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z,
		   unsigned int shared, struct fake_stream *s, void **params, void **extra);

/* Operations that are queued or run, of all streams. */
static pthread_mutex_t pending_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t none_pending = PTHREAD_COND_INITIALIZER;
static unsigned long pending;

void fake_stream_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	static const pthread_cond_t fresh_cond = PTHREAD_COND_INITIALIZER;

	pending_lock = fresh;
	none_pending = fresh_cond;
	pending = 0;
}

static void count_pending(int by)
{
	pthread_mutex_lock(&pending_lock);
	pending += (unsigned long)by;
	if (!pending)
		pthread_cond_broadcast(&none_pending);
	pthread_mutex_unlock(&pending_lock);
}

void fake_streams_idle(void)
{
	pthread_mutex_lock(&pending_lock);
	while (pending)
		pthread_cond_wait(&none_pending, &pending_lock);
	pthread_mutex_unlock(&pending_lock);
}

static void event_put(struct fake_event *event)
{
	unsigned int left;

	pthread_mutex_lock(&event->lock);
	left = --event->refs;
	pthread_mutex_unlock(&event->lock);
	if (left)
		return;
	pthread_mutex_destroy(&event->lock);
	free(event);
}

static void event_done(struct fake_event *event, uint64_t turn)
{
	pthread_mutex_lock(&event->lock);
	event->done = turn;
	pthread_mutex_unlock(&event->lock);
}

static void run_copy(const struct op *op)
{
	void *dst = op->dst_host ? (void *)(uintptr_t)op->dst
				 : fake_translate(op->dst, op->len, "destination of a copy");
	void *src = op->src_host ? fake_host_source(op->src, op->len)
				 : fake_translate(op->src, op->len, "source of a copy");

	if (dst && src)
		memcpy(dst, src, op->len);
	else
		fake_lose();
}

static void run_write(const struct op *op)
{
	uint64_t *p = fake_translate(op->dst, sizeof(*p), "destination of a written value");

	if (p)
		__atomic_store_n(p, op->src, __ATOMIC_RELEASE);
	else
		fake_lose();
}

/* In short naps: a test may end a long delay by another setting. */
static void dawdle(void)
{
	for (long slept = 0; slept < fake_setting(FAKE_DELAY_US); slept += NAP_US) {
		long left = fake_setting(FAKE_DELAY_US) - slept;
		struct timespec ts = {0, (left < NAP_US ? left : NAP_US) * 1000};

		if (left > 0)
			nanosleep(&ts, NULL);
	}
}

static void run(struct op *op)
{
	if (op->kind == OP_STOP)
		return;
	dawdle();
	if (!fake_step())
		return; /* a lost device does nothing, and its events never come */
	fake_mapped_forget();
	switch (op->kind) {
	case OP_COPY:
		run_copy(op);
		break;
	case OP_KERNEL:
		if (!fake_kernel_run(op->kernel, &op->args, op->blocks, op->threads))
			fake_lose();
		break;
	case OP_EVENT:
		event_done(op->event, op->turn);
		break;
	case OP_WRITE:
		run_write(op);
		break;
	case OP_CALL:
		op->fn(op->arg);
		break;
	case OP_STOP:
		break;
	}
}

static void *stream_main(void *arg)
{
	struct fake_stream *s = arg;
	bool stop = false;

	while (!stop) {
		struct op *op;

		pthread_mutex_lock(&s->lock);
		while (!s->head)
			pthread_cond_wait(&s->more, &s->lock);
		op = s->head;
		pthread_mutex_unlock(&s->lock);
		stop = op->kind == OP_STOP;
		run(op);
		if (op->kind == OP_EVENT)
			event_put(op->event);
		pthread_mutex_lock(&s->lock);
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
		if (op->finished)
			*op->finished = true;
		pthread_cond_broadcast(&s->less);
		pthread_mutex_unlock(&s->lock);
		count_pending(-1);
		free(op);
	}
	fake_mapped_free();
	return NULL;
}

static void stream_start(struct fake_stream *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
	pthread_cond_init(&s->less, NULL);
	s->tail = &s->head;
	if (pthread_create(&s->thread, NULL, stream_main, s))
		abort();
}

/* The stream NULL, or by its handle 1: one for all devices, which nobody destroys. */
static struct fake_stream the_default;
#define BY_HANDLE ((struct fake_stream *)1)

static void default_start(void)
{
	stream_start(&the_default);
	pthread_detach(the_default.thread);
}

static struct fake_stream *find_stream(struct fake_stream *s)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (s && s != BY_HANDLE)
		return s;
	pthread_once(&once, default_start);
	return &the_default;
}

/* @wait: return only when the operation is over, as the driver does for memory that is not
 * pinned. */
static void push(struct fake_stream *s, const struct op *what, bool wait)
{
	struct op *op = malloc(sizeof(*op));
	bool finished = false;

	if (!op)
		abort();
	s = find_stream(s);
	*op = *what;
	op->next = NULL;
	op->finished = wait ? &finished : NULL;
	count_pending(1);
	pthread_mutex_lock(&s->lock);
	*s->tail = op;
	s->tail = &op->next;
	pthread_cond_signal(&s->more);
	while (wait && !finished)
		pthread_cond_wait(&s->less, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* What the program queues: runs, or becomes a node of a graph. */
static void queue(struct fake_stream *s, const struct op *what, bool wait)
{
	if (!fake_capture_take(s))
		push(s, what, wait);
}

int cuStreamCreateWithPriority(struct fake_stream **out, unsigned int flags, int priority)
{
	int result = fake_enter_context(__func__);
	struct fake_stream *s;

	if (result)
		return result;
	if (flags & ~HR__CU_STREAM_NON_BLOCKING || priority > 0)
		return HR__CU_INVALID_VALUE;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	stream_start(s);
	fake_count(FAKE_STREAMS, 1);
	*out = s;
	return 0;
}

int cuStreamDestroy_v2(struct fake_stream *s)
{
	struct op stop = {.kind = OP_STOP};
	int result = fake_enter(__func__);

	if (result)
		return result;
	push(s, &stop, false);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->more);
	pthread_cond_destroy(&s->less);
	pthread_mutex_destroy(&s->lock);
	free(s);
	fake_count(FAKE_STREAMS, -1);
	return 0;
}

int cuEventCreate(struct fake_event **out, unsigned int flags)
{
	int result = fake_enter_context(__func__);
	struct fake_event *event;

	if (result)
		return result;
	if (!(flags & HR__CU_EVENT_DISABLE_TIMING))
		fake_misuse("an event with timing slows streams down");
	event = calloc(1, sizeof(*event));
	if (!event)
		abort();
	event->refs = 1;
	pthread_mutex_init(&event->lock, NULL);
	fake_count(FAKE_EVENTS, 1);
	*out = event;
	return 0;
}

int cuEventDestroy_v2(struct fake_event *event)
{
	int result = fake_enter(__func__);
	bool early;

	if (result)
		return result;
	pthread_mutex_lock(&event->lock);
	early = event->recorded != event->done;
	pthread_mutex_unlock(&event->lock);
	if (early && !fake_lost())
		fake_misuse("an event was destroyed before it came");
	event_put(event);
	fake_count(FAKE_EVENTS, -1);
	return 0;
}

int cuEventRecord(struct fake_event *event, struct fake_stream *s)
{
	struct op op = {.kind = OP_EVENT, .event = event};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	if (fake_capture_take(s)) {
		event->captured = true;
		return 0;
	}
	pthread_mutex_lock(&event->lock);
	event->captured = false;
	op.turn = ++event->recorded;
	event->refs++;
	pthread_mutex_unlock(&event->lock);
	queue(s, &op, false);
	return 0;
}

int cuEventQuery(struct fake_event *event)
{
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	pthread_mutex_lock(&event->lock);
	result = event->captured                  ? CAPTURED_EVENT
		 : event->done == event->recorded ? 0
						  : HR__CU_NOT_READY;
	pthread_mutex_unlock(&event->lock);
	return result;
}

int cuStreamQuery(struct fake_stream *s)
{
	int result = fake_enter_context(__func__);

	if (!result)
		result = fake_capture_spoil(s);
	if (result)
		return result;
	s = find_stream(s);
	pthread_mutex_lock(&s->lock);
	result = s->head ? HR__CU_NOT_READY : 0;
	pthread_mutex_unlock(&s->lock);
	return result;
}

int cuStreamWriteValue64_v2(struct fake_stream *s, uint64_t address, uint64_t value,
			    unsigned int flags)
{
	struct op op = {.kind = OP_WRITE, .dst = address, .src = value};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	if (flags)
		return HR__CU_INVALID_VALUE;
	if (fake_setting(FAKE_NO_MEMOPS))
		return HR__CU_NOT_SUPPORTED;
	queue(s, &op, false);
	return 0;
}

int cuLaunchHostFunc(struct fake_stream *s, hr__cuda_host_fn fn, void *arg)
{
	struct op op = {.kind = OP_CALL, .fn = fn, .arg = arg};
	int result = fake_enter_context(__func__);

	if (!result)
		queue(s, &op, false);
	return result;
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t len, struct fake_stream *s)
{
	struct op op = {.kind = OP_COPY, .dst = dst, .src = (uintptr_t)src, .len = len};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	op.src_host = true;
	fake_count(FAKE_COPIES, 1);
	queue(s, &op, !fake_is_pinned(src, len));
	return 0;
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t len, struct fake_stream *s)
{
	struct op op = {.kind = OP_COPY, .dst = (uintptr_t)dst, .src = src, .len = len};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	op.dst_host = true;
	fake_reads_device("a copy to the host");
	fake_count(FAKE_COPIES, 1);
	queue(s, &op, !fake_is_pinned(dst, len));
	return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t len, struct fake_stream *s)
{
	struct op op = {.kind = OP_COPY, .dst = dst, .src = src, .len = len};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	fake_reads_device("a copy on the device");
	fake_count(FAKE_COPIES, 1);
	queue(s, &op, false);
	return 0;
}

int cuLaunchKernel(int *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z,
		   unsigned int shared, struct fake_stream *s, void **params, void **extra)
{
	struct op op = {.kind = OP_KERNEL, .blocks = grid_x, .threads = block_x};
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	if (!grid_x || grid_y != 1 || grid_z != 1 || block_x != HR__GATHER_THREADS ||
	    block_y != 1 || block_z != 1 || shared || extra) {
		fake_misuse("cuLaunchKernel with a strange grid");
		return HR__CU_INVALID_VALUE;
	}
	fake_reads_device("a kernel");
	op.kernel = *function;
	memcpy(&op.args, params[0], sizeof(op.args));
	fake_count(FAKE_LAUNCHES, 1);
	queue(s, &op, false);
	return 0;
}

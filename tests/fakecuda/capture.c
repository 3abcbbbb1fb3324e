/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/capture.c - capturing streams into graphs, as strict as the driver: what is queued on a
 * captured stream becomes a node and never runs, what the mode of a thread forbids fails and spoils
 * the capture. A graph is the number of its nodes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "mem/cuda_api.h"

#define CAPTURES_MAX 8

enum { MODE_GLOBAL, MODE_THREAD, MODE_RELAXED };
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_SPOILED };

#define CAPTURE_SPOILED 901
#define CAPTURE_UNMATCHED 903

struct fake_stream;

struct fake_graph {
	size_t nodes;
};

static struct capture {
	const struct fake_stream *stream; /* NULL: a free place */
	pthread_t owner;
	int mode, status;
	size_t nodes;
} captures[CAPTURES_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int thread_mode = MODE_GLOBAL;

/* What the driver calls potentially unsafe, of what is here. */
static const char *const unsafe[] = {
	"cuMemAlloc_v2",        "cuMemFree_v2",        "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemHostRegister_v2", "cuMemHostUnregister", "cuEventQuery",   "cuStreamQuery",
	"cuModuleLoadData",     "cuModuleUnload",
};

int cuStreamBeginCapture_v2(struct fake_stream *s, int mode);
int cuStreamEndCapture(struct fake_stream *s, struct fake_graph **out);
int cuStreamIsCapturing(struct fake_stream *s, int *status);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuGraphGetNodes(struct fake_graph *graph, void **nodes, size_t *count);
int cuGraphDestroy(struct fake_graph *graph);

void fake_capture_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}

static struct capture *find(const struct fake_stream *s)
{
	for (int i = 0; i < CAPTURES_MAX; i++) {
		if (captures[i].stream == s)
			return &captures[i];
	}
	return NULL;
}

/* Does @c forbid this thread what is unsafe? */
static bool forbids(const struct capture *c)
{
	bool mine = pthread_equal(c->owner, pthread_self());

	if (!c->stream || thread_mode == MODE_RELAXED)
		return false;
	if (mine)
		return c->mode != MODE_RELAXED;
	return thread_mode == MODE_GLOBAL && c->mode == MODE_GLOBAL;
}

int fake_capture_check(const char *function)
{
	int result = 0;

	for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++) {
		if (strcmp(unsafe[i], function) != 0)
			continue;
		pthread_mutex_lock(&lock);
		for (int k = 0; k < CAPTURES_MAX; k++) {
			if (forbids(&captures[k])) {
				captures[k].status = STATUS_SPOILED;
				result = HR__CU_CAPTURE_UNSUPPORTED;
			}
		}
		pthread_mutex_unlock(&lock);
	}
	return result;
}

bool fake_capture_take(const struct fake_stream *s)
{
	struct capture *c;

	pthread_mutex_lock(&lock);
	c = s ? find(s) : NULL;
	if (c)
		c->nodes++;
	pthread_mutex_unlock(&lock);
	return c;
}

int fake_capture_spoil(const struct fake_stream *s)
{
	struct capture *c;

	pthread_mutex_lock(&lock);
	c = s ? find(s) : NULL;
	if (c)
		c->status = STATUS_SPOILED;
	pthread_mutex_unlock(&lock);
	return c ? HR__CU_CAPTURE_UNSUPPORTED : 0;
}

int cuStreamBeginCapture_v2(struct fake_stream *s, int mode)
{
	int result = fake_enter_context(__func__);
	struct capture *c;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	c = !s || find(s) || mode < MODE_GLOBAL || mode > MODE_RELAXED ? NULL : find(NULL);
	if (c)
		*c = (struct capture){s, pthread_self(), mode, STATUS_ACTIVE, 0};
	pthread_mutex_unlock(&lock);
	return c ? 0 : HR__CU_INVALID_VALUE;
}

int cuStreamEndCapture(struct fake_stream *s, struct fake_graph **out)
{
	int result = fake_enter_context(__func__);
	struct capture ended = {0}, *c;

	if (result)
		return result;
	*out = NULL;
	pthread_mutex_lock(&lock);
	c = s ? find(s) : NULL;
	if (c)
		ended = *c;
	if (c)
		*c = (struct capture){0};
	pthread_mutex_unlock(&lock);
	if (!c)
		return CAPTURE_UNMATCHED;
	if (ended.status == STATUS_SPOILED)
		return CAPTURE_SPOILED;
	*out = malloc(sizeof(**out));
	if (!*out)
		abort();
	(*out)->nodes = ended.nodes;
	return 0;
}

int cuStreamIsCapturing(struct fake_stream *s, int *status)
{
	int result = fake_enter_context(__func__);
	struct capture *c;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	c = s ? find(s) : NULL;
	*status = c ? c->status : STATUS_NONE;
	pthread_mutex_unlock(&lock);
	return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int result = fake_enter(__func__), old = thread_mode;

	if (result)
		return result;
	if (*mode < MODE_GLOBAL || *mode > MODE_RELAXED) {
		fake_misuse("%d is no mode of capture", *mode);
		return HR__CU_INVALID_VALUE;
	}
	thread_mode = *mode;
	*mode = old;
	return 0;
}

int cuGraphGetNodes(struct fake_graph *graph, void **nodes, size_t *count)
{
	int result = fake_enter(__func__);

	if (result)
		return result;
	if (nodes)
		return HR__CU_NOT_SUPPORTED;
	*count = graph->nodes;
	return 0;
}

int cuGraphDestroy(struct fake_graph *graph)
{
	int result = fake_enter(__func__);

	if (!result)
		free(graph);
	return result;
}

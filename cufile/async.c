/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/async.c - reads and writes in the order of a CUDA stream. The stream calls when it gets there;
 * workers, started by the first request, read the arguments that were left open, do the transfer (a
 * call from a stream may not use the driver), and let the stream go on.
 */
#include <errno.h>
#include <stdlib.h>

#include "cufile/inside.h"

#define WORKERS_MAX 32u
#define FLAGS_ALL 15u

struct job {
	struct job *next;
	struct cf_handle *handle;
	struct cf_request request; /* what is known; the rest is behind the pointers */
	const size_t *size;
	const off_t *file_offset, *buffer_offset;
	ssize_t *bytes;
	unsigned int epoch;
	bool done;
};

struct stream {
	struct stream *next;
	CUstream stream;
	unsigned int flags;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static struct job *queue, **queue_end = &queue;
static struct stream *streams;
static pthread_t workers[WORKERS_MAX];
static _Thread_local struct job *sending; /* by this thread, at this moment */
static unsigned int n_workers;
static bool stop;

/* -- jobs --------------------------------------------------------------------------------------- */

static ssize_t run_entered(struct job *job)
{
	struct cf_request r = job->request;

	if (job->epoch != cf_epoch())
		return -CU_FILE_DRIVER_CLOSING;
	r.size = job->size ? *job->size : r.size;
	r.file_offset = job->file_offset ? *job->file_offset : r.file_offset;
	r.buffer_offset = job->buffer_offset ? *job->buffer_offset : r.buffer_offset;
	return cf_transfer(job->handle, &r);
}

static void run(struct job *job)
{
	ssize_t res = cf_enter();

	if (!res) {
		res = run_entered(job);
		cf_object_put(&job->handle->object);
		cf_leave();
	} else {
		cf_object_put(&job->handle->object);
	}
	/* Codes of cuFile as they are; what errno would say has no place here. */
	*job->bytes = res < 0 && res > -CUFILEOP_BASE_ERR ? -1 : res;
}

static void *worker(void *arg)
{
	cf_engines_made_only();
	pthread_mutex_lock(&lock);
	for (;;) {
		struct job *job = queue;

		if (!job) {
			if (stop)
				break;
			pthread_cond_wait(&more, &lock);
			continue;
		}
		queue = job->next;
		if (!queue)
			queue_end = &queue;
		pthread_mutex_unlock(&lock);
		run(job);
		pthread_mutex_lock(&lock);
		job->done = true;
		pthread_cond_broadcast(&finished);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With the lock. Return: is there anybody to do it? */
static bool start_workers(void)
{
	size_t want = cf_settings()->num[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS];

	while (n_workers < want && n_workers < WORKERS_MAX) {
		if (pthread_create(&workers[n_workers], NULL, worker, NULL))
			break;
		n_workers++;
	}
	return n_workers > 0;
}

/* The stream is here: on a thread of the driver, or, where there is no driver, on the caller's own. */
static void stream_arrived(void *arg)
{
	struct job *job = arg;
	bool alone = sending == job;

	pthread_mutex_lock(&lock);
	if (!alone && n_workers && !stop) {
		*queue_end = job;
		queue_end = &job->next;
		pthread_cond_signal(&more);
		while (!job->done)
			pthread_cond_wait(&finished, &lock);
	}
	pthread_mutex_unlock(&lock);
	if (!job->done && !alone) { /* closed meanwhile */
		cf_object_put(&job->handle->object);
		*job->bytes = -CU_FILE_DRIVER_CLOSING;
	} else if (!job->done) {
		run(job);
	}
	free(job);
}

void cf_async_close(void)
{
	struct stream *s;

	pthread_mutex_lock(&lock);
	stop = true;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	for (unsigned int i = 0; i < n_workers; i++)
		pthread_join(workers[i], NULL);
	pthread_mutex_lock(&lock);
	n_workers = 0;
	stop = false;
	while ((s = streams)) {
		streams = s->next;
		free(s);
	}
	pthread_mutex_unlock(&lock);
}

/* In a child: no workers, and nothing that they had begun. */
void cf_async_forked(void)
{
	static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
	static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;

	lock = fresh_lock;
	more = finished = fresh;
	queue = NULL;
	queue_end = &queue;
	n_workers = 0;
	stop = false;
}

/* -- requests ----------------------------------------------------------------------------------- */

static unsigned int flags_of(CUstream stream)
{
	unsigned int flags = 0;

	pthread_mutex_lock(&lock);
	for (struct stream *s = streams; s; s = s->next)
		flags |= s->stream == stream ? s->flags : 0;
	pthread_mutex_unlock(&lock);
	return flags;
}

static bool streams_supported(void)
{
	const struct cf_settings *s = cf_settings();

	return s->flag[CUFILE_PARAM_EXECUTION_PARALLEL_IO] &&
	       s->num[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS];
}

/* Arguments that are fixed are read now, the others when the stream gets there. */
static void bind_arguments(struct job *job, unsigned int flags, const size_t *size,
			   const off_t *file_offset, const off_t *buffer_offset)
{
	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE)
		job->request.size = *size;
	else
		job->size = size;
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET)
		job->request.file_offset = *file_offset;
	else
		job->file_offset = file_offset;
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET)
		job->request.buffer_offset = *buffer_offset;
	else
		job->buffer_offset = buffer_offset;
}

static int send_job(struct job *job, CUstream stream)
{
	bool ready;
	int ret;

	pthread_mutex_lock(&lock);
	ready = start_workers();
	pthread_mutex_unlock(&lock);
	if (!ready)
		return -CU_FILE_ASYNC_NOT_SUPPORTED;
	sending = job;
	ret = hr_stream_call(stream, stream_arrived, job);
	sending = NULL;
	if (ret)
		cf_log(CF_ERROR, "cufio", "%s", hr_error_detail());
	if (ret == -ENOTSUP) /* captured into a graph */
		return -CU_FILE_ASYNC_NOT_SUPPORTED;
	return ret ? cf_code(ret) : 0;
}

static int request(CUfileHandle_t fh, struct job *job, CUstream stream)
{
	int ret;

	job->handle = cf_handle_get(fh);
	if (!job->handle)
		return -CU_FILE_HANDLE_NOT_REGISTERED;
	job->epoch = cf_epoch();
	ret = job->handle->file ? cf_device_warm(job->request.base, job->handle, job->request.op)
				: 0;
	if (!ret)
		ret = send_job(job, stream);
	if (ret)
		cf_object_put(&job->handle->object);
	return ret;
}

static CUfileError_t async(enum hr_op op, CUfileHandle_t fh, void *base, const size_t *size,
			   const off_t *file_offset, const off_t *buffer_offset, ssize_t *bytes,
			   CUstream stream)
{
	struct job *job;
	int ret;

	if (!base || !size || !file_offset || !buffer_offset || !bytes)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (!cf_is_open())
		return cf_result(CU_FILE_HANDLE_NOT_REGISTERED);
	if (!streams_supported())
		return cf_result(CU_FILE_ASYNC_NOT_SUPPORTED);
	ret = cf_enter();
	if (ret)
		return cf_error(ret);
	job = calloc(1, sizeof(*job));
	if (job) {
		job->request.op = op;
		job->request.base = base;
		job->bytes = bytes;
		bind_arguments(job, flags_of(stream), size, file_offset, buffer_offset);
		ret = request(fh, job, stream);
		if (ret)
			free(job);
	} else {
		ret = -ENOMEM;
	}
	cf_leave();
	return cf_error(ret);
}

CF_EXPORT CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p,
					off_t *file_offset_p, off_t *bufPtr_offset_p,
					ssize_t *bytes_read_p, CUstream stream)
{
	return async(HR_READ, fh, bufPtr_base, size_p, file_offset_p, bufPtr_offset_p, bytes_read_p,
		     stream);
}

CF_EXPORT CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p,
					 off_t *file_offset_p, off_t *bufPtr_offset_p,
					 ssize_t *bytes_written_p, CUstream stream)
{
	return async(HR_WRITE, fh, bufPtr_base, size_p, file_offset_p, bufPtr_offset_p,
		     bytes_written_p, stream);
}

/* -- streams ------------------------------------------------------------------------------------ */

static struct stream **place_of(CUstream stream)
{
	struct stream **at = &streams;

	while (*at && (*at)->stream != stream)
		at = &(*at)->next;
	return at;
}

CF_EXPORT CUfileError_t cuFileStreamRegister(CUstream stream, unsigned int flags)
{
	struct stream *s, **at;
	int ret;

	if (flags > FLAGS_ALL)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open();
	if (ret)
		return cf_error(ret);
	if (!streams_supported())
		return cf_result(CU_FILE_ASYNC_NOT_SUPPORTED);
	s = calloc(1, sizeof(*s));
	if (!s)
		return cf_result(CU_FILE_NOMEM_ERROR);
	s->stream = stream;
	s->flags = flags;
	pthread_mutex_lock(&lock);
	at = place_of(stream);
	if (!*at) {
		*at = s;
		s = NULL;
	}
	pthread_mutex_unlock(&lock);
	ret = s ? CU_FILE_INVALID_VALUE : CU_FILE_SUCCESS;
	free(s);
	return cf_result(ret);
}

CF_EXPORT CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	struct stream *s, **at;

	pthread_mutex_lock(&lock);
	at = place_of(stream);
	s = *at;
	if (s)
		*at = s->next;
	pthread_mutex_unlock(&lock);
	if (!s)
		return cf_result(CU_FILE_INVALID_VALUE);
	free(s);
	return cf_result(CU_FILE_SUCCESS);
}

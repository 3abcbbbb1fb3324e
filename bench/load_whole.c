/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/load_whole.c - a whole file into device memory of its size, by several threads that take
 * chunks from one counter; then its bytes are compared. Uses the public interface alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <headrace/headrace.h>

#define IN_FLIGHT 4
#define THREADS_MAX 256
#define COMPARE_BYTES (8u << 20)
#define REAP_NS 1000000000ull

struct job {
	const char *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buffer;
	uint64_t size, chunk, share; /* one of @share blocks is compared */
	uint32_t threads;
	pthread_barrier_t gate; /* all engines are open */
	double ready;           /* when that was; set by one thread */
	atomic_ullong next;
	atomic_int error;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int fail(const char *what, int code)
{
	const char *detail = hr_error_detail();

	fprintf(stderr, "load_whole: %s: %s\n", what, detail[0] ? detail : hr_strerror(code));
	return 1;
}

/* The next chunk into @io. Return: false when there is none. */
static bool aim(struct job *job, struct hr_io *io)
{
	uint64_t at = atomic_fetch_add(&job->next, job->chunk);

	if (at >= job->size)
		return false;
	io->op = HR_READ;
	io->file = job->file;
	io->buffer = job->buffer;
	io->piece.file_offset = io->piece.buffer_offset = at;
	io->piece.len = job->size - at < job->chunk ? job->size - at : job->chunk;
	return true;
}

static int read_chunks(struct job *job, struct hr_engine *engine)
{
	struct hr_io ios[IN_FLIGHT] = {{0}}, *ready[IN_FLIGHT];
	int n = 0, ret = 0;

	while (n < IN_FLIGHT && aim(job, &ios[n])) {
		ready[n] = &ios[n];
		n++;
	}
	while (ret >= 0 && (n > 0 || hr_in_flight(engine))) {
		int again = 0;

		ret = n > 0 ? hr_submit(engine, ready, (uint32_t)n) : 0;
		if (ret >= 0)
			ret = n = hr_reap(engine, ready, IN_FLIGHT, 1, REAP_NS);
		for (int i = 0; i < n && ret >= 0; i++) {
			if (ready[i]->res != (int64_t)ready[i]->piece.len)
				ret = ready[i]->res < 0 ? (int)ready[i]->res : -HR_E_FILE_CHANGED;
			else if (aim(job, ready[i]))
				ready[again++] = ready[i];
		}
		n = again;
	}
	return ret < 0 ? ret : 0;
}

static void *work(void *arg)
{
	struct job *job = arg;
	struct hr_engine_options opts = {.threads = 1};
	struct hr_engine *engine = NULL;
	int ret = hr_engine_open(job->dev, &opts, &engine);

	if (pthread_barrier_wait(&job->gate) != 0) /* one thread gets another answer than 0 */
		job->ready = now();
	pthread_barrier_wait(&job->gate); /* nobody is ahead of the clock */
	if (ret == 0)
		ret = read_chunks(job, engine);
	if (ret) {
		fail(job->path, ret);
		atomic_store(&job->error, ret);
	}
	hr_engine_close(engine);
	return NULL;
}

static int load(struct job *job)
{
	pthread_t threads[THREADS_MAX];

	pthread_barrier_init(&job->gate, NULL, job->threads);
	for (uint32_t i = 0; i < job->threads; i++) {
		if (pthread_create(&threads[i], NULL, work, job))
			exit(fail("a thread could not be started", -EAGAIN));
	}
	for (uint32_t i = 0; i < job->threads; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&job->gate);
	return atomic_load(&job->error);
}

/* Blocks and the end against plain reads. Return: true if all are as they should be. */
static bool same(struct job *job)
{
	char *got = malloc(2 * (size_t)COMPARE_BYTES), *want = got + COMPARE_BYTES;
	int fd = open(job->path, O_RDONLY | O_CLOEXEC);
	bool ok = got && fd >= 0;

	for (uint64_t at = 0; ok && at < job->size;) {
		uint64_t left = job->size - at;
		ssize_t n = pread(fd, want, left < COMPARE_BYTES ? left : COMPARE_BYTES, (off_t)at);

		ok = n > 0 && hr_buffer_copy_out(job->buffer, at, got, (uint64_t)n) == 0 &&
		     memcmp(got, want, (size_t)n) == 0;
		at += ok ? (uint64_t)n * (left > job->share * COMPARE_BYTES ? job->share : 1) : 0;
	}
	if (fd >= 0)
		close(fd);
	free(got);
	return ok;
}

static int run(struct job *job, const char *device)
{
	struct hr_file_info info;
	double begun, loaded;
	int ret = hr_device_open(device, &job->dev);
	bool ok;

	begun = now();
	if (ret == 0)
		ret = hr_file_open(job->path, HR_FILE_READ, &job->file);
	if (ret == 0)
		ret = hr_file_info(job->file, &info);
	if (ret)
		return fail(job->path, ret);
	job->size = info.size_bytes;
	ret = hr_buffer_alloc(job->dev, job->size, &job->buffer);
	if (ret)
		return fail(device, ret);
	ret = load(job);
	loaded = now();
	if (ret)
		return fail(job->path, ret);
	ok = same(job);
	printf("{\"bytes\": %llu, \"threads\": %u, \"seconds\": %f, \"open_seconds\": %f, "
	       "\"bytes_per_second\": %f, \"bytes_per_second_opened\": %f, \"verified\": %s}\n",
	       (unsigned long long)job->size, job->threads, loaded - begun, job->ready - begun,
	       (double)job->size / (loaded - begun), (double)job->size / (loaded - job->ready),
	       ok ? "true" : "false");
	return ok ? 0 : fail("wrong bytes", 0);
}

int main(int argc, char **argv)
{
	struct job job = {.threads = 1, .chunk = 1 << 20, .share = 1};
	int status;

	if (argc < 3) {
		fprintf(stderr, "usage: load_whole FILE DEVICE [THREADS [CHUNK [SHARE]]]\n");
		return 2;
	}
	job.path = argv[1];
	if (argc > 3)
		job.threads = (uint32_t)strtoul(argv[3], NULL, 10);
	if (argc > 4)
		job.chunk = strtoull(argv[4], NULL, 10);
	if (argc > 5)
		job.share = strtoull(argv[5], NULL, 10);
	if (job.threads == 0 || job.threads > THREADS_MAX || job.chunk < 4096 || job.share == 0 ||
	    job.share > 1024) {
		fprintf(stderr, "load_whole: THREADS 1..%d, CHUNK at least 4096, SHARE 1..1024\n",
			THREADS_MAX);
		return 2;
	}
	status = run(&job, argv[2]);
	hr_buffer_free(job.buffer);
	hr_file_close(job.file);
	hr_device_close(job.dev);
	return status;
}

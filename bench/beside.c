/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/beside.c - transfers that run beside somebody's computation in the same process: a library for
 * matmul_beside.py, so that Python needs to know no structure of ours.
 *
 * Two kinds: loaders, as a training loop has them, and threads that gather from a registered file as
 * fast as the bus allows, which is more than a loop in need of batches ever asks for.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headrace/headrace.h>

#define EXPORT __attribute__((visibility("default")))
#define PIECE_BYTES 8192u
#define IN_FLIGHT 2
#define WORKERS_MAX 64
#define REAP_NS 1000000000ull
#define CHECKED 16 /* samples of a batch that are compared */

struct beside;

/* One thread with either a loader or an engine of its own. */
struct worker {
	struct beside *beside;
	pthread_t thread;
	struct hr_loader *loader;
	struct hr_engine *engine;
	struct hr_buffer *buffer;
	struct hr_piece *pieces;
	struct hr_io ios[IN_FLIGHT];
	uint64_t random_state;
	bool runs;
	int ret;
};

struct beside {
	struct hr_device *dev;
	struct hr_dataset *ds;
	struct hr_file *file;
	struct worker workers[WORKERS_MAX];
	int fd; /* for plain reads to compare with */
	unsigned int count, batch;
	uint64_t size, sample_bytes;
	atomic_bool stop;
	atomic_ullong bytes;
};

EXPORT struct beside *beside_loaders(const char *device, const char *path, unsigned int count,
				     unsigned int batch, unsigned int threads);
EXPORT struct beside *beside_gathers(const char *device, const char *path, unsigned int count,
				     unsigned int batch);
EXPORT unsigned long long beside_bytes(struct beside *b);
EXPORT int beside_stop(struct beside *b);

/* One sample in the device's memory against a plain read. Return: 0, -EBADMSG or -code. */
static int check(struct beside *b, struct hr_buffer *buffer, uint64_t at, uint64_t file_offset)
{
	uint16_t want[PIECE_BYTES / 2];
	int64_t got[PIECE_BYTES / 2];
	int ret = hr_buffer_copy_out(buffer, at, got, sizeof(got));

	if (ret)
		return ret;
	if (pread(b->fd, want, sizeof(want), (off_t)file_offset) != (ssize_t)sizeof(want))
		return -EIO;
	for (unsigned int i = 0; i < PIECE_BYTES / 2; i++) {
		if (got[i] != want[i])
			return -EBADMSG;
	}
	return 0;
}

static int check_batch(struct beside *b, const struct hr_batch *batch)
{
	uint64_t step = b->sample_bytes - 2; /* the last token of a window begins the next one */
	int ret = 0;

	for (unsigned int i = 0; i < CHECKED && i < batch->samples && ret == 0; i++)
		ret = check(b, batch->buffer, batch->buffer_offset + i * b->sample_bytes * 4,
			    batch->ids[i] * step);
	return ret;
}

static void *load(void *arg)
{
	struct worker *w = arg;
	struct beside *b = w->beside;
	uint64_t batches = 0;

	while (!atomic_load(&b->stop) && w->ret == 0) {
		const struct hr_batch *batch;

		w->ret = hr_loader_next(w->loader, &batch);
		if (w->ret)
			break;
		if (batches++ == 0)
			w->ret = check_batch(b, batch);
		if (w->ret == 0)
			w->ret = hr_loader_release(w->loader, batch, NULL);
		atomic_fetch_add(&b->bytes, b->sample_bytes * b->batch);
	}
	return NULL;
}

/* Pieces of two-byte elements at places of every alignment that such elements can have. */
static void aim(struct worker *w, struct hr_io *io)
{
	struct beside *b = w->beside;

	for (unsigned int i = 0; i < b->batch; i++) {
		uint64_t z = (w->random_state += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z ^= z >> 29;
		((struct hr_piece *)io->pieces)[i].file_offset =
			z % ((b->size - PIECE_BYTES) / 2) * 2;
	}
}

static int check_pieces(struct beside *b, const struct hr_io *io)
{
	int ret = 0;

	for (unsigned int i = 0; i < CHECKED && i < b->batch && ret == 0; i++)
		ret = check(b, io->buffer, io->pieces[i].buffer_offset, io->pieces[i].file_offset);
	return ret;
}

/* Send finished requests again, or let them rest once it is over. Return: how many, or -code. */
static int turn(struct worker *w, struct hr_io **done, int n)
{
	struct beside *b = w->beside;
	bool over = atomic_load(&b->stop);
	int ret = 0;

	for (int i = 0; i < n && ret == 0; i++) {
		if (done[i]->res < 0)
			return (int)done[i]->res;
		atomic_fetch_add(&b->bytes, (unsigned long long)done[i]->res);
		if (over)
			ret = check_pieces(b, done[i]);
		else
			aim(w, done[i]);
	}
	return ret || over || n <= 0 ? ret : hr_submit(w->engine, done, (uint32_t)n);
}

static void *gather(void *arg)
{
	struct worker *w = arg;
	struct hr_io *done[IN_FLIGHT];

	for (unsigned int i = 0; i < IN_FLIGHT && w->ret >= 0; i++) {
		done[0] = &w->ios[i];
		aim(w, done[0]);
		w->ret = hr_submit(w->engine, done, 1);
	}
	while (w->ret >= 0 && hr_in_flight(w->engine)) {
		int n = hr_reap(w->engine, done, IN_FLIGHT, 1, REAP_NS);

		w->ret = n < 0 ? n : turn(w, done, n);
	}
	return NULL;
}

static int open_gather(struct worker *w)
{
	struct beside *b = w->beside;
	struct hr_engine_options opts = {.staging_bytes = 4 << 20};
	uint64_t out_bytes = PIECE_BYTES / 2 * 8;
	int ret = hr_engine_open(b->dev, &opts, &w->engine);

	if (ret == 0)
		ret = hr_buffer_alloc(b->dev, IN_FLIGHT * b->batch * out_bytes, &w->buffer);
	w->pieces = calloc((size_t)IN_FLIGHT * b->batch, sizeof(*w->pieces));
	if (ret || !w->pieces)
		return ret ? ret : -1;
	for (uint64_t i = 0; i < (uint64_t)IN_FLIGHT * b->batch; i++)
		w->pieces[i] = (struct hr_piece){0, PIECE_BYTES, i * out_bytes};
	for (unsigned int i = 0; i < IN_FLIGHT; i++)
		w->ios[i] = (struct hr_io){.op = HR_READ,
					   .file = b->file,
					   .buffer = w->buffer,
					   .pieces = w->pieces + (size_t)i * b->batch,
					   .count = b->batch,
					   .from = HR_DTYPE_U16,
					   .to = HR_DTYPE_I64};
	return 0;
}

static struct beside *new_beside(const char *device, const char *path, unsigned int count,
				 unsigned int batch)
{
	struct beside *b = calloc(1, sizeof(*b));
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (!b || fd < 0 || count > WORKERS_MAX || hr_device_open(device, &b->dev)) {
		fprintf(stderr, "beside: %s: cannot be used with %s: %s\n", path, device,
			hr_error_detail());
		if (fd >= 0)
			close(fd);
		free(b);
		return NULL;
	}
	b->fd = fd;
	b->count = count;
	b->batch = batch;
	for (unsigned int i = 0; i < count; i++) {
		b->workers[i].beside = b;
		b->workers[i].random_state = i + 1;
	}
	return b;
}

static struct beside *start(struct beside *b, int ret, void *(*work)(void *))
{
	for (unsigned int i = 0; i < b->count && ret == 0; i++) {
		ret = pthread_create(&b->workers[i].thread, NULL, work, &b->workers[i]);
		b->workers[i].runs = ret == 0;
	}
	if (ret == 0)
		return b;
	fprintf(stderr, "beside: %s\n", hr_error_detail());
	beside_stop(b);
	return NULL;
}

/*
 * beside_loaders() - @count loaders of @threads threads each, endless shuffled batches of 4096 uint16
 * tokens as int64. Return: NULL with a line on stderr.
 */
struct beside *beside_loaders(const char *device, const char *path, unsigned int count,
			      unsigned int batch, unsigned int threads)
{
	struct hr_dataset_options data = {.format = "tokens", .seq_len = 4095};
	struct beside *b = new_beside(device, path, count, batch);
	struct hr_dataset_info info;
	int ret;

	if (!b)
		return NULL;
	ret = hr_dataset_open(&path, 1, &data, &b->ds);
	for (unsigned int i = 0; i < count && ret == 0; i++) {
		struct hr_loader_options opts = {.batch_size = batch,
						 .threads = threads,
						 .out_dtype = HR_DTYPE_I64,
						 .seed = i};

		ret = hr_loader_open(b->ds, b->dev, &opts, &b->workers[i].loader);
	}
	if (ret == 0)
		ret = hr_dataset_info(b->ds, &info);
	if (ret == 0)
		b->sample_bytes = info.sample_bytes;
	return start(b, ret, load);
}

/*
 * beside_gathers() - the whole file registered, then @count threads that gather @batch random pieces
 * of 8 KiB at a time, uint16 as int64. Return: NULL with a line on stderr.
 */
struct beside *beside_gathers(const char *device, const char *path, unsigned int count,
			      unsigned int batch)
{
	struct beside *b = new_beside(device, path, count, batch);
	struct hr_file_info info;
	int64_t ready = 0;
	int ret;

	if (!b)
		return NULL;
	ret = hr_file_open(path, HR_FILE_READ, &b->file);
	if (ret == 0)
		ret = hr_file_info(b->file, &info);
	if (ret == 0) {
		b->size = info.size_bytes;
		ready = hr_file_register(b->file, b->dev, 0, 0, 30000000000ull);
		ret = ready < 0 ? (int)ready : 0;
	}
	if (ret == 0 && (uint64_t)ready < b->size)
		fprintf(stderr, "beside: only %lld of %llu bytes are registered\n",
			(long long)ready, (unsigned long long)b->size);
	for (unsigned int i = 0; i < count && ret == 0; i++)
		ret = open_gather(&b->workers[i]);
	return start(b, ret, gather);
}

/* Bytes of the file delivered so far. */
unsigned long long beside_bytes(struct beside *b)
{
	return atomic_load(&b->bytes);
}

int beside_stop(struct beside *b)
{
	int ret = 0;

	atomic_store(&b->stop, true);
	for (unsigned int i = 0; i < b->count; i++) {
		struct worker *w = &b->workers[i];

		if (w->loader)
			hr_loader_stop(w->loader);
		if (w->runs)
			pthread_join(w->thread, NULL);
		if (w->ret < 0 && w->ret != -HR_E_CLOSED)
			ret = w->ret;
		hr_loader_close(w->loader);
		if (hr_engine_close(w->engine) == 0) {
			hr_buffer_free(w->buffer);
			free(w->pieces);
		}
	}
	if (ret)
		fprintf(stderr, "beside: %s (%s)\n", hr_strerror(ret), hr_error_name(ret));
	hr_dataset_close(b->ds);
	hr_file_close(b->file);
	hr_device_close(b->dev);
	close(b->fd);
	free(b);
	return ret;
}

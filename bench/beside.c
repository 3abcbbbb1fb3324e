/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/beside.c - a loader that runs beside somebody's computation in the same process: a library for
 * matmul_beside.py, so that Python needs to know no structure of ours.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/headrace.h>

#define EXPORT __attribute__((visibility("default")))

struct beside {
	struct hr_device *dev;
	struct hr_dataset *ds;
	struct hr_loader *loader;
	pthread_t thread;
	atomic_bool stop;
	atomic_ullong batches;
	uint64_t batch_input_bytes;
	int ret;
};

EXPORT struct beside *beside_start(const char *device, const char *path, unsigned int batch,
				   unsigned int threads);
EXPORT unsigned long long beside_bytes(struct beside *b);
EXPORT int beside_stop(struct beside *b);

static void *run(void *arg)
{
	struct beside *b = arg;

	while (!atomic_load(&b->stop) && b->ret == 0) {
		const struct hr_batch *batch;

		b->ret = hr_loader_next(b->loader, &batch);
		if (b->ret == 0)
			b->ret = hr_loader_release(b->loader, batch, NULL);
		atomic_fetch_add(&b->batches, 1);
	}
	return NULL;
}

/* Endless shuffled batches of 4097 uint16 tokens as int64. Return: NULL with a line on stderr. */
struct beside *beside_start(const char *device, const char *path, unsigned int batch,
			    unsigned int threads)
{
	struct hr_dataset_options data = {.format = "tokens", .seq_len = 4096};
	struct hr_loader_options opts = {
		.batch_size = batch, .threads = threads, .out_dtype = HR_DTYPE_I64};
	struct beside *b = calloc(1, sizeof(*b));
	struct hr_dataset_info info;

	if (!b || hr_device_open(device, &b->dev) || hr_dataset_open(&path, 1, &data, &b->ds) ||
	    hr_loader_open(b->ds, b->dev, &opts, &b->loader) ||
	    pthread_create(&b->thread, NULL, run, b)) {
		fprintf(stderr, "beside: %s\n", hr_error_detail());
		return NULL;
	}
	hr_dataset_info(b->ds, &info);
	b->batch_input_bytes = info.sample_bytes * batch;
	return b;
}

/* Bytes of samples delivered so far. */
unsigned long long beside_bytes(struct beside *b)
{
	return atomic_load(&b->batches) * b->batch_input_bytes;
}

int beside_stop(struct beside *b)
{
	int ret;

	atomic_store(&b->stop, true);
	hr_loader_stop(b->loader);
	pthread_join(b->thread, NULL);
	ret = b->ret == -HR_E_CLOSED ? 0 : b->ret;
	hr_loader_close(b->loader);
	hr_dataset_close(b->ds);
	hr_device_close(b->dev);
	free(b);
	return ret;
}

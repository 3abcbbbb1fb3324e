/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/pool.c - devices and engines. An engine serves one thread at a time and takes no lock; here
 * is the lock by which threads take turns, and it is never held across a system call of a transfer.
 * A thread gets the engine it had last time, if it can.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cufile/inside.h"

#define DEVICES_MAX 65
#define ENGINES_MAX 32u  /* for calls that wait, of a device */
#define LARGE_ENGINES 4u /* of them, with room for a reader that runs ahead */
#define BATCHES_LARGE 8u /* engines of batches, likewise */
#define BATCHES_KEPT 8u  /* idle ones */
#define STAGING_LARGE (8ull << 20)
#define STAGING_SMALL (2ull << 20)
#define WAIT_SECONDS 60
#define WARM_BYTES 65536u
#define WARM_PIECES 48u

struct pool {
	struct cf_device device;
	struct cf_engine *engines[ENGINES_MAX]; /* made so far */
	bool taken[ENGINES_MAX];
	struct cf_engine *idle_batch;
	uint32_t n_idle_batch, n_batch;
	atomic_bool
		warm; /* there is an engine for each worker, and each has done everything once */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came_back = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* devices open one by one */
static pthread_mutex_t warm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[DEVICES_MAX];
static uint32_t n_pools;
static uint32_t waiting;
static _Thread_local uint32_t last_slot;
static _Thread_local bool made_only;

static struct pool *pool_of(struct cf_device *device)
{
	return (struct pool *)device; /* its first member */
}

static struct pool *pool_find(const char *name)
{
	struct pool *pool = NULL;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < n_pools && !pool; i++) {
		if (!strcmp(pools[i].device.name, name))
			pool = &pools[i];
	}
	if (!pool && n_pools < DEVICES_MAX) {
		pool = &pools[n_pools++];
		snprintf(pool->device.name, sizeof(pool->device.name), "%s", name);
		pool->device.gpu = strncmp(name, "cuda:", 5) ? -1 : (int)strtol(name + 5, NULL, 10);
	}
	pthread_mutex_unlock(&lock);
	return pool;
}

int cf_device_find(const char *name, struct cf_device **out)
{
	struct pool *pool = pool_find(name);
	struct hr_device *dev;
	int ret = 0;

	if (!pool)
		return -CU_FILE_DEVICE_NOT_FOUND;
	*out = &pool->device;
	if (atomic_load_explicit(&pool->device.dev, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&open_lock);
	if (!atomic_load_explicit(&pool->device.dev, memory_order_acquire)) {
		ret = hr_device_open(name, &dev);
		if (!ret)
			atomic_store_explicit(&pool->device.dev, dev, memory_order_release);
	}
	pthread_mutex_unlock(&open_lock);
	if (ret)
		cf_log(CF_ERROR, "cufio-cuda", "%s", hr_error_detail());
	return ret ? cf_code(ret) : 0;
}

void cf_devices_close(void)
{
	pthread_mutex_lock(&open_lock);
	for (uint32_t i = 0; i < DEVICES_MAX; i++)
		hr_device_close(atomic_exchange(&pools[i].device.dev, NULL));
	pthread_mutex_unlock(&open_lock);
}

static int engine_new(struct cf_device *device, uint64_t staging, uint32_t depth,
		      struct cf_engine **out)
{
	const struct cf_settings *s = cf_settings();
	struct hr_engine_options opts = {
		.depth = depth,
		.staging_bytes = staging,
		.path = cf_direct_wish(device),
		.migrates = true,
		.direct = s->flag[CUFILE_PARAM_FORCE_ODIRECT_MODE],
		/* Only used where io_uring is denied; a call that waits does it itself. */
		.threads = depth > 64 ? 4 : 0,
	};
	struct cf_engine *engine = calloc(1, sizeof(*engine));
	int ret;

	if (!engine)
		return -ENOMEM;
	engine->device = device;
	ret = hr_engine_open(atomic_load(&device->dev), &opts, &engine->engine);
	if (ret) {
		cf_log(CF_ERROR, "cufio_core", "%s", hr_error_detail());
		free(engine);
		ret = cf_code(ret);
		return ret ? ret : -CU_FILE_INTERNAL_ERROR;
	}
	*out = engine;
	return 0;
}

static bool usable(struct cf_engine *engine)
{
	struct hr_io *none[1];

	if (hr_in_flight(engine->engine))
		hr_reap(engine->engine, none, 0, 0, 0);
	return !hr_in_flight(engine->engine);
}

/* With the lock. Return: an engine, NULL with *slot < ENGINES_MAX to make one there, or NULL. */
static struct cf_engine *take(struct pool *pool, uint32_t *slot)
{
	bool may_make = !made_only || !atomic_load(&pool->warm);
	uint32_t fresh = ENGINES_MAX;

	for (uint32_t k = 0; k < ENGINES_MAX; k++) {
		uint32_t i = (last_slot + k) % ENGINES_MAX;

		if (pool->taken[i])
			continue;
		if (pool->engines[i] && usable(pool->engines[i])) {
			pool->taken[i] = true;
			return pool->engines[i];
		}
		if (!pool->engines[i] && i < fresh && may_make)
			fresh = i;
	}
	*slot = fresh;
	if (fresh < ENGINES_MAX)
		pool->taken[fresh] = true;
	return NULL;
}

static struct cf_engine *wait_for_one(struct pool *pool, uint32_t *slot)
{
	struct cf_engine *engine;
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_SECONDS;
	pthread_mutex_lock(&lock);
	for (;;) {
		engine = take(pool, slot);
		if (engine || *slot < ENGINES_MAX)
			break;
		waiting++;
		if (pthread_cond_timedwait(&came_back, &lock, &end)) {
			waiting--;
			break;
		}
		waiting--;
	}
	pthread_mutex_unlock(&lock);
	return engine;
}

int cf_engine_get(struct cf_device *device, struct cf_engine **out)
{
	struct pool *pool = pool_of(device);
	uint32_t slot = ENGINES_MAX;
	struct cf_engine *engine = wait_for_one(pool, &slot);
	int ret = 0;

	if (!engine && slot == ENGINES_MAX)
		return -ETIMEDOUT;
	if (!engine) {
		ret = engine_new(device, slot < LARGE_ENGINES ? STAGING_LARGE : STAGING_SMALL, 64,
				 &engine);
		pthread_mutex_lock(&lock);
		if (!ret)
			pool->engines[slot] = engine;
		else
			pool->taken[slot] = false;
		if (ret && waiting)
			pthread_cond_broadcast(&came_back);
		pthread_mutex_unlock(&lock);
		if (ret)
			return ret;
		engine->slot = slot;
	}
	last_slot = engine->slot;
	*out = engine;
	return 0;
}

void cf_engine_put(struct cf_engine *engine)
{
	struct pool *pool = pool_of(engine->device);

	pthread_mutex_lock(&lock);
	pool->taken[engine->slot] = false;
	if (waiting)
		pthread_cond_broadcast(&came_back);
	pthread_mutex_unlock(&lock);
}

/* -- for streams -------------------------------------------------------------------------------- */

void cf_engines_made_only(void)
{
	made_only = true;
}

/* A file that lies nowhere, to be read once. NULL where the system has no such files. */
static struct hr_file *warm_file(void)
{
	struct hr_file *file = NULL;
	int fd = memfd_create("headrace", MFD_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (ftruncate(fd, WARM_BYTES) == 0)
		hr_file_import(fd, "memory", &file);
	close(fd);
	return file;
}

struct warm {
	struct hr_file *file;
	struct hr_buffer *scratch;
	bool way; /* only find out how it goes, for this: */
	enum hr_op op;
};

/*
 * Pieces so small and so far apart that the device gathers them with a kernel; or nothing at all, which
 * makes the engine choose the way of the file, try it and get ready for it.
 */
static int warm_engine(struct cf_engine *engine, const struct warm *w)
{
	struct hr_piece pieces[WARM_PIECES];

	if (w->way)
		return (int)(w->op == HR_READ ? hr_read : hr_write)(engine->engine, w->file, 0, 0,
								    w->scratch, 0);
	for (uint64_t i = 0; i < WARM_PIECES; i++)
		pieces[i] = (struct hr_piece){i * 1000 + 1, 300, i * 1100 + 3};
	return (int)hr_gather(engine->engine, w->file, pieces, WARM_PIECES, w->scratch,
			      HR_DTYPE_BYTES, HR_DTYPE_BYTES);
}

/* As many as there are workers, all at the same time so that they are different ones. */
static int warm_all(struct cf_device *device, const struct warm *w)
{
	size_t want = cf_settings()->num[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS], n = 0;
	struct cf_engine *engines[ENGINES_MAX];
	int ret = 0;

	for (; !ret && n < want && n < ENGINES_MAX; n++) {
		ret = cf_engine_get(device, &engines[n]);
		if (ret)
			break;
		ret = warm_engine(engines[n], w);
		ret = ret < 0 ? ret : 0;
	}
	while (n > 0)
		cf_engine_put(engines[--n]);
	return ret;
}

static int warm_device(struct cf_device *device)
{
	struct warm w = {.file = warm_file()};
	int ret = w.file ? hr_buffer_alloc(atomic_load(&device->dev), WARM_BYTES, &w.scratch)
			 : -ENOSYS;

	if (!ret)
		ret = warm_all(device, &w);
	if (ret == -HR_E_PATH_REFUSED) /* nothing but the direct path: it copies nothing */
		ret = 0;
	if (ret)
		cf_log(CF_WARN, "cufio", "%s: not all is ready for streams: %s", device->name,
		       hr_strerror(ret));
	hr_buffer_free(w.scratch);
	hr_file_close(w.file);
	return ret == -ENOSYS ? 0 : ret;
}

static unsigned int bit_of(const struct cf_device *device)
{
	return 1u << device->gpu % 32;
}

static bool is_warm(struct cf_device *device, struct cf_handle *handle, enum hr_op op)
{
	return atomic_load(&pool_of(device)->warm) &&
	       atomic_load(&handle->warm[op]) & bit_of(device);
}

/* The trial of the direct path frees device memory. No failure: the transfer itself will say it. */
static void warm_way(struct cf_device *device, struct cf_handle *handle, enum hr_op op)
{
	struct warm w = {.file = handle->file, .way = true, .op = op};

	if (cf_direct_possible() &&
	    hr_buffer_alloc(atomic_load(&device->dev), WARM_BYTES, &w.scratch) == 0) {
		warm_all(device, &w);
		hr_buffer_free(w.scratch);
	}
	atomic_fetch_or(&handle->warm[op], bit_of(device));
}

int cf_device_warm(const void *base, struct cf_handle *handle, enum hr_op op)
{
	struct cf_device *device;
	char name[32];
	int ret = hr_device_of_pointer(base, name, sizeof(name));

	if (ret)
		return cf_code(ret);
	ret = cf_device_find(name, &device);
	if (ret || device->gpu < 0 || is_warm(device, handle, op))
		return ret;
	pthread_mutex_lock(&warm_lock);
	if (!atomic_load(&pool_of(device)->warm)) {
		ret = warm_device(device);
		if (!ret)
			atomic_store(&pool_of(device)->warm, true);
	}
	if (!ret && !is_warm(device, handle, op))
		warm_way(device, handle, op);
	pthread_mutex_unlock(&warm_lock);
	return ret ? cf_code(ret) : 0;
}

/* -- for batches -------------------------------------------------------------------------------- */

int cf_engine_get_batch(struct cf_device *device, struct cf_engine **out)
{
	struct pool *pool = pool_of(device);
	struct cf_engine *engine;
	uint32_t n;
	int ret;

	pthread_mutex_lock(&lock);
	engine = pool->idle_batch;
	if (engine) {
		pool->idle_batch = engine->next;
		pool->n_idle_batch--;
	}
	n = engine ? pool->n_batch : ++pool->n_batch;
	pthread_mutex_unlock(&lock);
	*out = engine;
	if (engine)
		return 0;
	ret = engine_new(device, n <= BATCHES_LARGE ? STAGING_LARGE : STAGING_SMALL, 128, out);
	if (ret) {
		pthread_mutex_lock(&lock);
		pool->n_batch--;
		pthread_mutex_unlock(&lock);
	}
	return ret;
}

/* An engine that will not close has requests that outlived all patience: it is left to them. */
static void engine_free(struct cf_engine *engine)
{
	if (hr_engine_close(engine->engine) == 0)
		free(engine);
	else
		cf_log(CF_ERROR, "cufio_core", "%s", hr_error_detail());
}

void cf_engine_put_batch(struct cf_engine *engine)
{
	struct pool *pool = pool_of(engine->device);
	bool keep;

	pthread_mutex_lock(&lock);
	keep = pool->n_idle_batch < BATCHES_KEPT && !hr_in_flight(engine->engine);
	if (keep) {
		engine->next = pool->idle_batch;
		pool->idle_batch = engine;
		pool->n_idle_batch++;
	} else {
		pool->n_batch--;
	}
	pthread_mutex_unlock(&lock);
	if (!keep)
		engine_free(engine);
}

void cf_engines_close(void)
{
	for (uint32_t i = 0; i < DEVICES_MAX; i++) {
		struct pool *pool = &pools[i];

		for (uint32_t k = 0; k < ENGINES_MAX; k++) {
			if (pool->engines[k])
				engine_free(pool->engines[k]);
			pool->engines[k] = NULL;
			pool->taken[k] = false;
		}
		while (pool->idle_batch) {
			struct cf_engine *engine = pool->idle_batch;

			pool->idle_batch = engine->next;
			engine_free(engine);
		}
		pool->n_idle_batch = pool->n_batch = 0;
		atomic_store(&pool->warm, false);
	}
}

/* In a child: rings and threads are the parent's. What was in use at that moment is not touched. */
void cf_pool_forked(void)
{
	static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
	static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;

	for (uint32_t i = 0; i < DEVICES_MAX; i++) {
		memset(pools[i].engines, 0, sizeof(pools[i].engines));
		memset(pools[i].taken, 0, sizeof(pools[i].taken));
		pools[i].idle_batch = NULL;
		pools[i].n_idle_batch = pools[i].n_batch = 0;
		atomic_store(&pools[i].warm, false);
	}
	waiting = 0;
	came_back = fresh;
	lock = open_lock = warm_lock = fresh_lock;
}

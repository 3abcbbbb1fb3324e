/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/stats.c - counters in the three levels of detail that callers may ask for. Nothing is counted
 * before cuFileStatsStart(); all of it is under one lock, which is taken only while counting is on.
 */
#include <string.h>

#include "cufile/inside.h"

#define GPUS 16
#define BINS 32

_Static_assert(sizeof(CUfileStatsLevel1_t) == 512 && sizeof(CUfileStatsLevel2_t) == 1024 &&
		       sizeof(CUfileStatsLevel3_t) == 5000,
	       "what callers of 1.15 to 1.18 have room for");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool on;
static atomic_int level;
static CUfileStatsLevel3_t all; /* averages and rates are filled in when somebody asks */
static uint64_t began_ns, counted_ns;

bool cf_stats_on(void)
{
	return atomic_load_explicit(&on, memory_order_relaxed);
}

void cf_stats_level_from(const struct cf_settings *s)
{
	if (s->num[CUFILE_PARAM_PROFILE_STATS])
		atomic_store(&level, (int)s->num[CUFILE_PARAM_PROFILE_STATS]);
}

static CUfileStatsLevel1_t *basic(void)
{
	return &all.detailed.basic;
}

static void count(CUfileOpCounter_t *counter, uint64_t n, bool ok)
{
	if (ok)
		counter->ok += n;
	else
		counter->err += n;
}

void cf_count(enum cf_count what, bool ok)
{
	CUfileOpCounter_t *const counters[CF_COUNTS] = {
		[CF_COUNT_HANDLE_REGISTER] = &basic()->hdl_register_ops,
		[CF_COUNT_HANDLE_DEREGISTER] = &basic()->hdl_deregister_ops,
		[CF_COUNT_BUFFER_REGISTER] = &basic()->buf_register_ops,
		[CF_COUNT_BUFFER_DEREGISTER] = &basic()->buf_deregister_ops,
		[CF_COUNT_BATCH_SETUP] = &basic()->batch_setup_ops,
		[CF_COUNT_BATCH_SUBMIT] = &basic()->batch_submit_ops,
		[CF_COUNT_BATCH_COMPLETE] = &basic()->batch_complete_ops,
		[CF_COUNT_BATCH_CANCEL] = &basic()->batch_cancel_ops,
		[CF_COUNT_BATCH_DESTROY] = &basic()->batch_destroy_ops,
	};

	if (!cf_stats_on())
		return;
	pthread_mutex_lock(&lock);
	count(counters[what], 1, ok);
	pthread_mutex_unlock(&lock);
}

/* Bins of KiB: 0-4, 4-8, 8-16 and so on. */
static unsigned int bin_of(uint64_t bytes)
{
	unsigned int bin = 0;

	while (bin < BINS - 1 && bytes > 4096ull << bin)
		bin++;
	return bin;
}

static void count_gpu(enum hr_op op, CUfilePerGpuStats_t *g, const struct cf_outcome *outcome,
		      uint64_t us)
{
	uint64_t bytes = outcome->result > 0 ? (uint64_t)outcome->result : 0;
	bool failed = outcome->result < 0;

	if (op == HR_READ) {
		g->read_bytes += bytes;
		g->read_duration_us += us;
		g->n_total_reads++;
		g->n_p2p_reads += outcome->direct;
		g->n_posix_reads += !failed && !outcome->direct;
		g->n_reads_err += failed;
	} else {
		g->writes_bytes += bytes;
		g->write_duration_us += us;
		g->n_total_writes++;
		g->n_p2p_writes += outcome->direct;
		g->n_posix_writes += !failed && !outcome->direct;
		g->n_writes_err += failed;
	}
}

/* With the lock. */
static void count_move(enum hr_op op, int64_t result, uint64_t us)
{
	uint64_t bytes = result > 0 ? (uint64_t)result : 0;

	if (op == HR_READ) {
		count(&basic()->read_ops, 1, result >= 0);
		basic()->read_bytes += bytes;
		basic()->read_lat_sum_us += us;
		all.detailed.read_size_kb_hist[bin_of(bytes)] += result >= 0;
	} else {
		count(&basic()->write_ops, 1, result >= 0);
		basic()->write_bytes += bytes;
		basic()->write_lat_sum_us += us;
		all.detailed.write_size_kb_hist[bin_of(bytes)] += result >= 0;
	}
}

void cf_stats_move(enum hr_op op, const struct cf_outcome *outcome, uint64_t ns)
{
	int gpu = outcome->gpu;

	if (!cf_stats_on())
		return;
	pthread_mutex_lock(&lock);
	count_move(op, outcome->result, ns / 1000);
	if (gpu >= 0 && gpu < GPUS)
		count_gpu(op, &all.per_gpu_stats[gpu], outcome, ns / 1000);
	pthread_mutex_unlock(&lock);
}

void cf_stats_batch_submit(uint32_t n, uint64_t ns)
{
	if (!cf_stats_on())
		return;
	pthread_mutex_lock(&lock);
	count(&basic()->batch_enqueued_ops, n, true);
	count(&basic()->batch_total_submit_ops, n, true);
	basic()->batch_submit_lat_sum_us += ns / 1000;
	basic()->last_batch_read_bytes = basic()->last_batch_write_bytes = 0;
	pthread_mutex_unlock(&lock);
}

/* Which way an entry goes is known at its end, so what tells ways apart is counted here. */
void cf_stats_batch_entry(enum hr_op op, const struct cf_outcome *outcome, uint64_t ns)
{
	uint64_t bytes = outcome->result > 0 ? (uint64_t)outcome->result : 0;
	bool ok = outcome->result >= 0;

	if (!cf_stats_on())
		return;
	pthread_mutex_lock(&lock);
	count(&basic()->batch_processed_ops, 1, ok);
	if (outcome->direct) {
		count(&basic()->batch_p2p_submit_ops, 1, true);
	} else {
		count(&basic()->batch_posix_enqueued_ops, 1, true);
		count(&basic()->batch_posix_processed_ops, 1, ok);
	}
	basic()->batch_completion_lat_sum_us += ns / 1000;
	if (op == HR_READ) {
		basic()->batch_read_bytes += bytes;
		basic()->last_batch_read_bytes += bytes;
	} else {
		basic()->batch_write_bytes += bytes;
		basic()->last_batch_write_bytes += bytes;
	}
	pthread_mutex_unlock(&lock);
}

void cf_stats_registered(int gpu, int64_t bytes)
{
	if (!cf_stats_on() || gpu < 0 || gpu >= GPUS)
		return;
	pthread_mutex_lock(&lock);
	if (bytes > 0 || all.per_gpu_stats[gpu].reg_bytes >= (uint64_t)-bytes)
		all.per_gpu_stats[gpu].reg_bytes += (uint64_t)bytes;
	pthread_mutex_unlock(&lock);
}

/* -- the calls ---------------------------------------------------------------------------------- */

CF_EXPORT CUfileError_t cuFileSetStatsLevel(int new_level)
{
	if (new_level < 0 || new_level > 3)
		return cf_result(CU_FILE_INVALID_VALUE);
	atomic_store(&level, new_level);
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT CUfileError_t cuFileGetStatsLevel(int *out)
{
	if (!out)
		return cf_result(CU_FILE_INVALID_VALUE);
	*out = atomic_load(&level);
	return cf_result(CU_FILE_SUCCESS);
}

static CUfileError_t change(void (*fn)(uint64_t now))
{
	if (!cf_is_open())
		return cf_result(CU_FILE_DRIVER_NOT_INITIALIZED);
	pthread_mutex_lock(&lock);
	fn(cf_now_ns());
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

static void start(uint64_t now)
{
	if (!atomic_load(&level) || atomic_load(&on))
		return;
	began_ns = now;
	atomic_store(&on, true);
}

static void stop(uint64_t now)
{
	if (atomic_exchange(&on, false))
		counted_ns += now - began_ns;
}

static void reset(uint64_t now)
{
	memset(&all, 0, sizeof(all));
	counted_ns = 0;
	began_ns = now;
}

CF_EXPORT CUfileError_t cuFileStatsStart(void)
{
	return change(start);
}

CF_EXPORT CUfileError_t cuFileStatsStop(void)
{
	return change(stop);
}

CF_EXPORT CUfileError_t cuFileStatsReset(void)
{
	return change(reset);
}

static uint64_t per(uint64_t amount, uint64_t n)
{
	return n ? amount / n : 0;
}

/* @amount in the time that was counted, by the second. */
static uint64_t per_second(uint64_t amount, uint64_t ns)
{
	return ns ? (uint64_t)((double)amount * 1e9 / (double)ns) : 0;
}

/* Averages and rates. With the lock. */
static void complete(uint64_t ns)
{
	CUfileStatsLevel1_t *b = basic();

	b->read_bw_bytes_per_sec = per_second(b->read_bytes, ns);
	b->write_bw_bytes_per_sec = per_second(b->write_bytes, ns);
	b->read_lat_avg_us = per(b->read_lat_sum_us, b->read_ops.ok + b->read_ops.err);
	b->write_lat_avg_us = per(b->write_lat_sum_us, b->write_ops.ok + b->write_ops.err);
	b->read_ops_per_sec = per_second(b->read_ops.ok, ns);
	b->write_ops_per_sec = per_second(b->write_ops.ok, ns);
	b->batch_read_bw_bytes = per_second(b->batch_read_bytes, ns);
	b->batch_write_bw_bytes = per_second(b->batch_write_bytes, ns);
	b->batch_submit_lat_avg_us = per(b->batch_submit_lat_sum_us, b->batch_submit_ops.ok);
	b->batch_completion_lat_avg_us =
		per(b->batch_completion_lat_sum_us, b->batch_processed_ops.ok);
	b->batch_submit_ops_per_sec = per_second(b->batch_submit_ops.ok, ns);
	b->batch_complete_ops_per_sec = per_second(b->batch_complete_ops.ok, ns);
	for (unsigned int i = 0; i < GPUS; i++) {
		CUfilePerGpuStats_t *g = &all.per_gpu_stats[i];

		g->read_bw_bytes_per_sec = per_second(g->read_bytes, ns);
		g->write_bw_bytes_per_sec = per_second(g->writes_bytes, ns);
		g->read_utilization = per(100 * g->read_duration_us, ns / 1000);
		g->write_utilization = per(100 * g->write_duration_us, ns / 1000);
	}
}

static CUfileError_t get(int needed, void *out, size_t size)
{
	uint32_t gpus;

	if (!out)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (!cf_is_open())
		return cf_result(CU_FILE_DRIVER_NOT_INITIALIZED);
	if (atomic_load(&level) < needed)
		return cf_result(CU_FILE_INVALID_VALUE);
	gpus = needed == 3 ? hr_device_count(HR_DEVICE_CUDA) : 0;
	pthread_mutex_lock(&lock);
	complete(counted_ns + (atomic_load(&on) ? cf_now_ns() - began_ns : 0));
	all.num_gpus = gpus < GPUS ? gpus : GPUS;
	memcpy(out, &all, size); /* each level begins with the one below */
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats)
{
	return get(1, stats, sizeof(*stats));
}

CF_EXPORT CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats)
{
	return get(2, stats, sizeof(*stats));
}

CF_EXPORT CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)
{
	return get(3, stats, sizeof(*stats));
}

/* In a child: whoever had the lock is not here. */
void cf_stats_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}

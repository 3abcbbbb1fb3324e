/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/bench.h - the load generator's parts: settings and range (bench.c), the two kinds of workers
 * (bench_engine.c, bench_classic.c), the pattern and its check (bench_verify.c).
 */
#ifndef HR_CLI_BENCH_H
#define HR_CLI_BENCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/cli.h"
#include "cli/histogram.h"

struct bench_settings {
	struct cli_common common;
	const char *rw, *path, *from, *to, *cache;
	uint64_t bs, depth, threads, helpers, size, seed, batch, requests, staging;
	double seconds;
	bool verify, buffered, direct, overwrite, sweep;
};

/* What all workers share; constant while they run but for the atomics. */
struct bench {
	const struct bench_settings *set;
	const char *file_path;
	struct cli_device device;
	struct hr_file *file;
	struct hr_file_info info;
	bool write, random, classic;
	enum hr_dtype from, to; /* alike: bytes, nothing is converted */
	uint64_t out_bytes;     /* of a block in device memory */
	uint64_t blocks;        /* in the range */
	uint64_t deadline_ns;   /* set before the workers are let go */
	atomic_uchar *written;  /* one bit a block, for the check of writes; NULL without it */
	pthread_barrier_t gate; /* all workers and the main thread */
	atomic_bool stop;       /* a worker failed, or the user wants to end */
	atomic_uint running;
};

struct bench_worker {
	struct bench *bench;
	pthread_t thread;
	uint32_t index;
	/* results, read by the main thread: live ones relaxed, the rest after the join */
	_Atomic uint64_t live_blocks;
	uint64_t blocks; /* of --bs bytes, moved */
	uint64_t cpu_ns, start_ns, end_ns;
	struct hr_stats stats;
	struct hr_queue_info queue;
	struct cli_histogram latency; /* ns of a request */
	int error;                    /* 0 or -code */
	char sentence[640];
	/* where the next request goes */
	uint64_t position, random_state;
};

/* What the workers come to. */
struct bench_totals {
	uint64_t blocks, start_ns, end_ns, cpu_ns, process_ns;
	struct hr_stats stats;
	struct cli_histogram latency;
	struct hr_residency_info before, after;
	double sync_seconds;
	uint64_t checked;
	bool verified, pattern;
};

/* bench_next_block() - index of the next block of a worker. */
static inline uint64_t bench_next_block(struct bench_worker *w)
{
	const struct bench *b = w->bench;
	uint64_t z;

	if (!b->random) {
		z = w->position++;
		if (w->position == b->blocks)
			w->position = 0;
		return z;
	}
	/* splitmix64, scaled to the range by a multiplication */
	z = (w->random_state += 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return (uint64_t)(((unsigned __int128)z * b->blocks) >> 64);
}

/* bench_cpu_ns() - processor time of the calling thread. */
uint64_t bench_cpu_ns(void);

/* bench_worker_fail() - keep code and sentence for the main thread and stop the others. */
void bench_worker_fail(struct bench_worker *w, int code, const char *object);

/* bench_let_go() - wait until all workers are ready. Return: false if the run is off. */
bool bench_let_go(struct bench_worker *w);

/* bench_blocks_limit() - blocks that this worker may move, from --requests. */
uint64_t bench_blocks_limit(const struct bench_worker *w);

void *bench_engine_worker(void *worker);
void *bench_classic_worker(void *worker);

/* bench_open_engine() - an engine as the settings ask. Return: 0 or -code. */
int bench_open_engine(const struct bench *b, struct hr_engine **out);

/* bench_fill() - the pattern of [offset, + len), multiples of 8: word = hash(offset / 8, seed). */
void bench_fill(void *buf, uint64_t len, uint64_t offset, uint64_t seed);

/* bench_verify_reads() - untimed: random blocks through the engine against plain reads.
 * @pattern: receives whether all of them carry the pattern of --seed. */
int bench_verify_reads(struct bench *b, uint64_t *checked, bool *pattern);

/* bench_verify_writes() - untimed: plain reads of written blocks against the pattern. */
int bench_verify_writes(struct bench *b, uint64_t *checked);

/* bench_timed() - let @workers, zeroed, run once. Return: CLI_OK or CLI_FAILED. */
int bench_timed(struct bench *b, struct bench_worker *workers, struct bench_totals *t);

/* bench_sweep() - one run for each block size and depth, and a table of them. Return: the exit code. */
int bench_sweep(struct bench *b, struct bench_worker *workers, struct bench_totals *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/stats.h - what an engine has done, in numbers; and the same of other processes.
 *
 * A process that publishes keeps one page of counters in shared memory: a file of its own user, mode
 * 0600, in $XDG_RUNTIME_DIR, /dev/shm or /tmp. Nothing is created unless hr_stats_publish() or
 * HEADRACE_STATS=1 asks for it. Counters are stored after rounds of hr_reap() without locks or
 * system calls, so what a reader sees may trail by 10 ms of work or 128 requests. All functions but
 * hr_engine_stats() may be called from any thread.
 */
#ifndef HEADRACE_STATS_H
#define HEADRACE_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counters since the engine was opened; they only grow. Bytes unless the name says otherwise. */
struct hr_stats {
	uint64_t ios; /* requests finished */
	uint64_t ios_failed;
	uint64_t pieces;                     /* pieces planned */
	uint64_t segments;                   /* reads and writes asked of the kernel */
	uint64_t bytes_by_path[HR_PATH_MAX]; /* delivered to the caller */
	uint64_t bytes_cached;               /* of these, from the page cache */
	uint64_t bytes_read; /* asked of the kernel: more than delivered where blocks are cut */
	uint64_t bytes_written;
	uint64_t enters;         /* io_uring_enter calls */
	uint64_t preads;         /* pread and pwrite calls */
	uint64_t probes;         /* residency questions */
	uint64_t retries;        /* short, interrupted or refused requests sent again */
	uint64_t copies;         /* copies or kernel launches given to the device */
	uint64_t bytes_moved;    /* by them, counted at the source */
	uint64_t direct_refused; /* segments that went buffered because direct I/O was impossible */
	uint64_t registered_bytes; /* of mapped files, made ready for the path pagecache */
	uint64_t register_ns;      /* time that this took, off the data path */
	uint64_t reread;   /* segments that pagecache gave up because the file was changed */
	uint64_t brought;  /* reads whose pages came in by large pages first, to be kept */
	uint64_t reopened; /* files of datasets that had been closed: see hr_dataset_open() */
};

/* hr_engine_stats() - snapshot. Call it on the engine's thread. Return: 0. */
int hr_engine_stats(const struct hr_engine *engine, struct hr_stats *out);

/* hr_stats_add() - @into += @more, field by field. */
void hr_stats_add(struct hr_stats *into, const struct hr_stats *more);

/*
 * hr_stats_publish() - let other processes of this user see the statistics, or no longer.
 * @on: true makes the page now; engines and loaders opened from now on appear in it. false takes
 *      that back: the page goes when the last of them is closed.
 *
 * A child of fork() does not share the page: it makes its own with its first engine.
 * Return: 0, -errno of the best place when none will do, with a sentence.
 */
int hr_stats_publish(bool on);

#define HR_STATS_ENGINES_MAX 64  /* engines that are shown one by one */
#define HR_STATS_REFUSALS_MAX 16 /* reasons that are told apart */
#define HR_STATS_BUCKETS 1024    /* of latency */

struct hr_engine_live {
	uint64_t id; /* within the process, never reused */
	char device[32];
	char queue[32];       /* hr_queue_info.name */
	uint32_t depth;       /* segments that the queue takes */
	uint32_t in_flight;   /* requests */
	uint32_t queue_depth; /* segments with the kernel */
	struct hr_stats io;
};

struct hr_refusal {
	char reason[128]; /* printable ASCII */
	uint64_t count;   /* how often something better was refused for it */
};

/* What a process publishes. Sums include what was closed meanwhile, so they only grow. */
struct hr_process_stats {
	uint32_t pid;
	char name[16];   /* of the program, printable ASCII */
	uint64_t age_ns; /* of the page */
	uint64_t engines_opened;
	uint64_t engines_hidden; /* opened when all places were taken: in none of these figures */
	struct hr_stats io;
	uint64_t latency[HR_STATS_BUCKETS]; /* requests, by time from submit to reap */
	uint64_t latency_ns;                /* the sum of these times */
	uint32_t in_flight, queue_depth;
	uint32_t n_engines, n_loaders, n_refusals;
	uint64_t batches, wait_ns; /* of all loaders: handed out; time that callers waited */
	struct hr_refusal refusals[HR_STATS_REFUSALS_MAX];
	struct hr_engine_live engines[HR_STATS_ENGINES_MAX];
};

/*
 * hr_stats_read() - what the process @pid publishes at this moment. The page is somebody else's file
 * and is trusted in nothing: only a regular file of the same user, of the right size and version,
 * of a process that still runs, is taken.
 *
 * Return: 0, -ENOENT (it publishes nothing), -ESRCH (it is gone), -EPERM (another user's), -ELOOP
 * (a symbolic link), -HR_E_BAD_FORMAT (not such a page, or of another version), -errno.
 */
int hr_stats_read(uint32_t pid, struct hr_process_stats *out);

/*
 * hr_stats_list() - processes of this user that publish, in rising order; removes the pages that
 * crashed ones have left.
 * @pids: receives at most @max. Return: how many there are, perhaps more than @max; -errno.
 */
int hr_stats_list(uint32_t *pids, uint32_t max);

/*
 * hr_stats_bucket_ns() - where latency bucket @i ends, exclusive: buckets are log-linear, 16 for each
 * power of two, so that a figure is within 3 %. The last one has no end. Return: ns.
 */
uint64_t hr_stats_bucket_ns(uint32_t i);

#ifdef __cplusplus
}
#endif
#endif

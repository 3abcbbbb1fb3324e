/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/stats.h - what an engine has done, in numbers.
 */
#ifndef HEADRACE_STATS_H
#define HEADRACE_STATS_H

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
	uint64_t reread; /* segments that pagecache gave up because the file was changed */
};

/* hr_engine_stats() - snapshot. Call it on the engine's thread. Return: 0. */
int hr_engine_stats(const struct hr_engine *engine, struct hr_stats *out);

/* hr_stats_add() - @into += @more, field by field. */
void hr_stats_add(struct hr_stats *into, const struct hr_stats *more);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/page.h - the page of statistics that a process shares: its layout, its one writer, its readers.
 *
 * Everything is a little-endian number or text at a fixed place; a change of the layout is a new
 * HR__PAGE_VERSION. Places (engines, loaders, reasons) are claimed and given back under a lock; the
 * counters of a claimed place have one writer, which uses relaxed stores, and any number of readers
 * in other processes. Those read the file, they do not map it: a page cut short is no signal then.
 */
#ifndef HR_BASE_PAGE_H
#define HR_BASE_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <headrace/stats.h>

#define HR__PAGE_MAGIC 0x0a53544154535248ull /* "HRSTATS\n" */
#define HR__PAGE_VERSION 1u
#define HR__PAGE_LOADERS 16u
#define HR__PAGE_SUB 4u /* log2 of the latency buckets in a power of two */

/* struct hr_stats as words, with room for later ones. */
#define HR__PAGE_WORDS (sizeof(struct hr_stats) / sizeof(uint64_t))
#define HR__PAGE_WORDS_MAX 40u

struct hr__page_engine {
	uint64_t id; /* 0: free */
	char device[32];
	char queue[32];
	uint32_t depth, in_flight, queue_depth, reserved;
	uint64_t latency_ns;
	uint64_t words[HR__PAGE_WORDS_MAX];
	uint64_t latency[HR_STATS_BUCKETS];
};

struct hr__page_loader {
	uint64_t used;
	uint64_t batches, wait_ns;
	uint64_t reserved;
};

struct hr__page_refusal {
	uint64_t count; /* 0: free */
	char reason[128];
};

struct hr__page_head {
	uint64_t magic; /* stored last */
	uint32_t version, page_bytes;
	uint32_t words,
		buckets; /* what the writer counts: another build may count something else */
	uint32_t pid, uid;
	uint64_t start_ticks; /* of the process, as in /proc/PID/stat: tells a reused pid */
	uint64_t created_ns;  /* CLOCK_MONOTONIC */
	uint64_t turn;        /* odd while places change hands */
	uint64_t engines_opened, engines_hidden;
	char name[16];
	uint64_t reserved[5];
};

struct hr__page {
	struct hr__page_head head;
	struct hr__page_refusal refusals[HR_STATS_REFUSALS_MAX];
	struct hr__page_loader loaders[HR__PAGE_LOADERS + 1]; /* the last one: what was closed */
	struct hr__page_engine engines[HR_STATS_ENGINES_MAX + 1];
};

_Static_assert(sizeof(struct hr_stats) % sizeof(uint64_t) == 0 &&
		       HR__PAGE_WORDS <= HR__PAGE_WORDS_MAX,
	       "the counters are words and fit the page");
_Static_assert(sizeof(struct hr__page_head) == 128, "layout of version 1");
_Static_assert(sizeof(struct hr__page_refusal) == 136, "layout of version 1");
_Static_assert(sizeof(struct hr__page_loader) == 32, "layout of version 1");
_Static_assert(sizeof(struct hr__page_engine) == 96 + 8 * (HR__PAGE_WORDS_MAX + HR_STATS_BUCKETS),
	       "layout of version 1");
_Static_assert(offsetof(struct hr__page, refusals) == 128 &&
		       offsetof(struct hr__page, loaders) == 128 + 16 * 136 &&
		       offsetof(struct hr__page, engines) == 128 + 16 * 136 + 17 * 32,
	       "layout of version 1");

/* One writer: a plain addition that a reader never sees half done. */
static inline void hr__page_add(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + more,
			 __ATOMIC_RELAXED);
}

/*
 * The latency bucket of a time, 1 to 2^63 ns: exponent and first bits of the mantissa of a double are
 * the logarithmic scale that is wanted, for a few instructions. Times below 16 ns leave some unused.
 */
static inline uint64_t hr__page_bucket(uint64_t ns)
{
	double value = (double)(int64_t)ns;
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits >> (52 - HR__PAGE_SUB)) - (1023u << HR__PAGE_SUB);
}

/* hr__page_latency() - count a request. One instruction stores the sum, so it is never seen half done. */
static inline void hr__page_latency(struct hr__page_engine *to, uint64_t ns)
{
	to->latency[hr__page_bucket(ns)]++;
}

/* The counters of an engine, all of them. */
static inline void hr__page_store(struct hr__page_engine *to, const struct hr_stats *stats)
{
	const uint64_t *words = (const uint64_t *)stats;

	for (uint32_t i = 0; i < HR__PAGE_WORDS; i++)
		__atomic_store_n(&to->words[i], words[i], __ATOMIC_RELAXED);
}

/*
 * hr__page_engine_claim() - a place for an engine, if this process publishes; makes the page when
 * HEADRACE_STATS=1 asks for it and there is none. Return: the place, or NULL. Not for the data path.
 */
struct hr__page_engine *hr__page_engine_claim(const char *device, const char *queue,
					      uint32_t depth);
/* Its counters stay in the sums. @place: may be NULL. */
void hr__page_engine_release(struct hr__page_engine *place);

struct hr__page_loader *hr__page_loader_claim(void);
void hr__page_loader_release(struct hr__page_loader *place);

/* hr__page_refuse() - something better was refused: count it by "@what: @reason". */
void hr__page_refuse(const char *what, const char *reason);

/* Folders where pages may lie, best first; those that do not exist are among them. */
#define HR__PAGE_FOLDERS 4u
uint32_t hr__page_folders(char folders[HR__PAGE_FOLDERS][128]);

/* The path of the page of @pid in @folder. */
void hr__page_path(char *path, size_t size, const char *folder, uint32_t pid);

/* hr__page_start_ticks() - when the process @pid started. Return: 0, -ESRCH or another -errno. */
int hr__page_start_ticks(uint32_t pid, uint64_t *out);

/*
 * hr__page_parse() - hostile bytes to figures. @bytes: aligned to 8. @pid: whose page it must be.
 * Ages are counted to @now_ns. Return: 0 or -HR_E_BAD_FORMAT with a sentence that names @name.
 */
int hr__page_parse(const char *name, const void *bytes, size_t len, uint32_t pid, uint64_t now_ns,
		   struct hr_process_stats *out);

#endif

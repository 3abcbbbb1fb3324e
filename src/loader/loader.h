/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/loader.h - the inside of a loader: what its consumer and its fillers share.
 */
#ifndef HR_LOADER_LOADER_H
#define HR_LOADER_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <headrace/loader.h>

#include "base/page.h"
#include "loader/batch.h"
#include "loader/dataset.h"
#include "loader/layout.h"
#include "loader/order.h"
#include "loader/registrar.h"
#include "loader/schedule.h"
#include "loader/side.h"

#define HR__REAP_MAX 64u
/*
 * How long what must happen is waited for at least: hr_loader_options.timeout_ns is how often the caller
 * wants to look around, and may be a blink.
 */
#define HR__PATIENCE_NS 60000000000ull

/* One engine and what it is busy with. Runs on its own thread, or inside hr_loader_next(). */
struct hr__filler {
	struct hr_loader *loader;
	struct hr_engine *engine;
	struct hr__waiter waiter;
	struct hr__slot **flying; /* claimed, not yet published */
	uint32_t n_flying;
	uint32_t flying_max;
	struct hr__assembler assembler;
	struct hr_lane *lane; /* for sides, or NULL */
	struct hr__move *moves;
	struct hr__order *order;
	struct hr_stats stats; /* under the ring's lock, as are */
	uint64_t substituted;  /* the assembler's as of the last batch, and */
	char reason[HR__REASON_BYTES];
	/* threads only */
	pthread_t thread;
	bool started;
	bool stuck;          /* requests outlived the engine: their memory cannot be freed */
	atomic_bool broken;  /* the engine gave up: what is in flight will not come back */
	uint32_t parked_for; /* the pause that this thread has answered */
	uint32_t index;
	int open_error; /* 0 or -code; valid once loader->opened counts this one */
	char open_sentence[HR__SENTENCE_BYTES];
};

struct hr_loader {
	struct hr_dataset *ds;
	struct hr_device *dev;
	struct hr_buffer *buffer;
	char reopen_reason[192];       /* "": all files may stay open */
	struct hr_loader_options opts; /* complete: no zero defaults left but engine's */
	struct hr__layout layout;
	struct hr__side side;
	struct hr__order_plan *plan;
	struct hr__schedule schedule; /* changes only while all fillers rest */
	struct hr__ring ring;
	struct hr__filler *fillers;
	uint32_t n_fillers;             /* max(threads, 1), or 1 for large batches */
	struct hr__registrar registrar; /* with threads, unless a path was chosen that has no use */
	struct hr_queue_info queue;
	uint32_t fork_generation;
	/* set from any thread or signal handler */
	atomic_bool stopping;
	/* how the consumer talks to filler threads: odd = they shall rest, even = they shall run */
	atomic_uint pause;
	atomic_uint parked; /* threads that rest */
	atomic_uint opened; /* threads whose engine is open or has failed to */
	struct hr__event control;
	/* the consumer's */
	int final; /* the error that ended it, or 0 */
	char final_sentence[HR__SENTENCE_BYTES];
	atomic_uint_fast64_t missed_ns; /* waited in vain for the batch that is next */
	atomic_uint_fast64_t batches, wait_ns;
	struct hr__page_loader *live; /* where other processes see these two, or NULL */
};

static inline uint64_t hr__loader_patience(const struct hr_loader *loader)
{
	uint64_t wish = loader->opts.timeout_ns;

	return wish < HR__PATIENCE_NS ? HR__PATIENCE_NS : wish;
}

/* hr__filler_init() - memory only. Return: 0 or -ENOMEM; fini in both cases. */
int hr__filler_init(struct hr__filler *filler, struct hr_loader *loader, uint32_t index);
void hr__filler_fini(struct hr__filler *filler);

/* Open and close the engine, on the thread that uses it. close() sets filler->stuck. */
int hr__filler_open(struct hr__filler *filler);
void hr__filler_close(struct hr__filler *filler);

/* Claim and submit as many batches as may be in flight. */
void hr__filler_fill(struct hr__filler *filler);

/* Wait for @min finished requests or @timeout_ns, and publish the batches that they complete. */
void hr__filler_reap(struct hr__filler *filler, uint32_t min, uint64_t timeout_ns);

/* Start a thread that opens the engine and fills until the loader stops. Return: 0 or -code. */
int hr__filler_start(struct hr__filler *filler);

/* Join it. */
void hr__filler_join(struct hr__filler *filler);

#endif

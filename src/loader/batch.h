/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/batch.h - the ring of batch slots between those who fill them and the one who uses them.
 *
 * A slot goes FREE -> FILLING (a filler claimed it together with the next sequence number) -> READY
 * or FAILED -> HELD (the consumer took it, in order of the numbers) -> FREE, or PASSING until work
 * that the consumer queued on a lane has finished. Any free slot serves any number, so a batch that
 * is held for long does not stop the others.
 *
 * Threads: hr__ring_claim() and hr__ring_publish() by any filler; all others by the consumer alone.
 * The lock is held for a few instructions, never across a system call.
 *
 * Fillers without a slot sleep. Not each one that is freed wakes them, but only those that are worth it:
 * when few batches are ready, or several slots are free. See waiter_of_use().
 */
#ifndef HR_LOADER_BATCH_H
#define HR_LOADER_BATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <headrace/loader.h>

#include "loader/assemble.h"
#include "loader/event.h"
#include "loader/layout.h"
#include "loader/side.h"

#define HR__SENTENCE_BYTES 512

enum hr__slot_state {
	HR__SLOT_FREE = 0,
	HR__SLOT_FILLING,
	HR__SLOT_READY,
	HR__SLOT_FAILED,
	HR__SLOT_HELD,
	HR__SLOT_PASSING,
};

struct hr__slot {
	struct hr_batch batch; /* what the caller sees */
	struct hr_tensor *tensors;
	enum hr__slot_state state; /* under the ring's lock */
	uint64_t seq;
	/* owned by the filler while FILLING; ids by the consumer while HELD */
	uint64_t *ids;
	struct hr__requests requests;
	struct hr_io **io_list;
	uint32_t n_ios;       /* that were submitted */
	uint64_t side_ticket; /* 0: its side is there */
	uint32_t left;        /* requests that have not come back */
	int error;            /* the first -code, or 0 */
	char sentence[HR__SENTENCE_BYTES];
	/* while PASSING */
	struct hr_lane *lane;
	uint64_t ticket;
};

/* A filler that has nothing to do. */
struct hr__waiter {
	struct hr__event event;
	struct hr__waiter *next; /* under the ring's lock, as are */
	bool queued, woken;      /* told of a slot, and has not asked for it yet */
};

struct hr__ring {
	pthread_mutex_t lock;
	struct hr__slot *slots;
	uint32_t n;
	uint32_t *free; /* stack of slot indices */
	uint32_t n_free;
	struct hr__slot **by_seq; /* slots with numbers next_out .. next_in - 1, at seq % n */
	uint64_t next_in;         /* number of the next claim */
	uint64_t next_out;        /* number that the consumer gets next; written by it alone */
	uint64_t total;           /* batches in all */
	uint32_t ready;
	bool closed; /* nothing more is claimed: a batch failed, or the loader rests */
	struct hr__waiter *waiters;
	uint32_t n_woken;          /* who are on their way to claim a slot each */
	struct hr__slot **passing; /* the consumer's, in order of release */
	uint32_t n_passing;
	struct hr__event arrived; /* the consumer sleeps on it */
};

/*
 * @n slots in @buffer, with sides in @side. Return: 0 or -ENOMEM; hr__ring_fini() cleans up in both cases.
 */
int hr__ring_init(struct hr__ring *ring, uint32_t n, const struct hr__layout *layout,
		  struct hr_buffer *buffer, const struct hr__side *side);
void hr__ring_fini(struct hr__ring *ring);

/* Start over with number 0; nobody may be filling. Batches that the caller holds stay held. */
void hr__ring_restart(struct hr__ring *ring, uint64_t total);

/*
 * A free slot with the next number, FILLING. @waiter: signalled once one should be filled, when now there
 * is none; NULL: do not wait. Wakes the next filler if there are more. Return: the slot, or NULL.
 */
struct hr__slot *hr__ring_claim(struct hr__ring *ring, struct hr__waiter *waiter);

/* A slot is done: READY, or FAILED when slot->error says so. */
void hr__ring_publish(struct hr__ring *ring, struct hr__slot *slot);

/* Allow claims or not. */
void hr__ring_set_closed(struct hr__ring *ring, bool closed);

enum hr__take {
	HR__TAKE_OK,      /* *out is HELD now */
	HR__TAKE_FAILED,  /* *out has the error */
	HR__TAKE_WAIT,    /* being filled, or about to be */
	HR__TAKE_PASSING, /* the caller's own work on a lane keeps every slot */
	HR__TAKE_NO_SLOT, /* the caller keeps every slot */
	HR__TAKE_END,     /* that was all */
};

/* The next batch. To ask in vain wakes who can bring it, so the consumer may sleep after that. */
enum hr__take hr__ring_take(struct hr__ring *ring, struct hr__slot **out);

/* The slot of a held batch, or NULL when @batch is none. */
struct hr__slot *hr__ring_held(struct hr__ring *ring, const struct hr_batch *batch);

/* A HELD slot goes back: at once, or (@lane) when the lane has passed @ticket. */
void hr__ring_release(struct hr__ring *ring, struct hr__slot *slot, struct hr_lane *lane,
		      uint64_t ticket);

/* Free those PASSING slots whose lanes have got there. Return: 0 or the lane's -code. */
int hr__ring_harvest(struct hr__ring *ring);

#endif

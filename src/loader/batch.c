/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/batch.c - the ring of batch slots: who owns which, and who waits; does no I/O itself.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "loader/batch.h"
#include "mem/mem.h"

/*
 * So many ready batches are enough to let a filler sleep on. A wake-up costs who does it a system call,
 * 10 to 20 us in a virtual machine, and would cost the consumer that at every step; rings too small to
 * have as many ready pay it, since their batches are large or were meant to be few.
 */
#define READY_ENOUGH 4u
/*
 * Then so many free slots are worth one. Not a share of the ring: who is woken on a busy machine gets a
 * processor when there is one, and long bursts of several fillers take the consumer's.
 */
#define FREE_ENOUGH 3u

_Static_assert(offsetof(struct hr__slot, batch) == 0, "a batch is found by its address");

static int init_slot(struct hr__slot *slot, const struct hr__layout *layout,
		     struct hr_buffer *buffer, uint64_t offset, const char *side)
{
	uint32_t rows = layout->batch_size;

	slot->ids = calloc(rows, sizeof(*slot->ids));
	slot->tensors = calloc(layout->n_tensors, sizeof(*slot->tensors));
	slot->io_list = calloc(layout->ios_max, sizeof(*slot->io_list));
	if (!slot->ids || !slot->tensors || !slot->io_list ||
	    hr__requests_init(&slot->requests, layout) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < layout->ios_max; i++)
		slot->io_list[i] = &slot->requests.ios[i];
	if (!side && !(buffer->dev->caps & HR__MEM_CAP_HOST_VISIBLE))
		side = ""; /* it has none */
	hr__layout_tensors(layout, (char *)hr_buffer_address(buffer) + offset, side, slot->tensors);
	slot->batch = (struct hr_batch){
		.tensors = slot->tensors,
		.n_tensors = layout->n_tensors,
		.samples = rows,
		.ids = slot->ids,
		.buffer = buffer,
		.buffer_offset = offset,
	};
	return 0;
}

int hr__ring_init(struct hr__ring *ring, uint32_t n, const struct hr__layout *layout,
		  struct hr_buffer *buffer, const struct hr__side *side)
{
	int rc = 0;

	pthread_mutex_init(&ring->lock, NULL);
	ring->closed = true;
	ring->slots = calloc(n, sizeof(*ring->slots));
	ring->free = calloc(n, sizeof(*ring->free));
	ring->by_seq = calloc(n, sizeof(*ring->by_seq));
	ring->passing = calloc(n, sizeof(*ring->passing));
	if (!ring->slots || !ring->free || !ring->by_seq || !ring->passing)
		return -ENOMEM;
	ring->n = n;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = init_slot(&ring->slots[i], layout, buffer, i * layout->slot_bytes,
			       hr__side_of(side, i));
	return rc;
}

void hr__ring_fini(struct hr__ring *ring)
{
	for (uint32_t i = 0; i < ring->n; i++) {
		free(ring->slots[i].ids);
		free(ring->slots[i].tensors);
		hr__requests_fini(&ring->slots[i].requests);
		free(ring->slots[i].io_list);
	}
	free(ring->slots);
	free(ring->free);
	free(ring->by_seq);
	free(ring->passing);
	pthread_mutex_destroy(&ring->lock);
}

/* Lock held. */
static void push_free(struct hr__ring *ring, struct hr__slot *slot)
{
	slot->state = HR__SLOT_FREE;
	ring->free[ring->n_free++] = (uint32_t)(slot - ring->slots);
}

/* Lock held. */
static struct hr__waiter *pop_waiter(struct hr__ring *ring)
{
	struct hr__waiter *waiter = ring->waiters;

	if (waiter) {
		ring->waiters = waiter->next;
		waiter->queued = false;
		waiter->woken = true;
		ring->n_woken++;
	}
	return waiter;
}

/* Lock held. A waiter has come; it may have done so by itself and then must not stay on the list. */
static void drop_waiter(struct hr__ring *ring, struct hr__waiter *waiter)
{
	struct hr__waiter **link = &ring->waiters;

	if (waiter && waiter->woken) {
		waiter->woken = false;
		ring->n_woken--;
	}
	if (!waiter || !waiter->queued)
		return;
	while (*link != waiter)
		link = &(*link)->next;
	*link = waiter->next;
	waiter->queued = false;
}

/*
 * Lock held. The sleeping filler that should be woken now, if any. A slot that is freed while plenty are
 * ready wakes nobody, so whatever makes the answer change has to ask: freeing a slot, taking a batch (also
 * in vain, before the consumer sleeps), and claiming one slot of several. Opening the ring wakes all.
 */
static struct hr__waiter *waiter_of_use(struct hr__ring *ring)
{
	if (ring->closed || ring->n_free <= ring->n_woken || ring->next_in >= ring->total)
		return NULL; /* it would find nothing to claim */
	if (ring->ready >= READY_ENOUGH && ring->n_free - ring->n_woken < FREE_ENOUGH)
		return NULL;
	return pop_waiter(ring);
}

static void wake(struct hr__waiter *waiter)
{
	if (waiter)
		hr__event_signal(&waiter->event);
}

void hr__ring_restart(struct hr__ring *ring, uint64_t total)
{
	pthread_mutex_lock(&ring->lock);
	ring->n_free = 0;
	for (uint32_t i = ring->n; i-- > 0;) {
		struct hr__slot *slot = &ring->slots[i];

		assert(slot->state != HR__SLOT_FILLING);
		if (slot->state != HR__SLOT_HELD && slot->state != HR__SLOT_PASSING)
			push_free(ring, slot);
	}
	ring->next_in = 0;
	ring->next_out = 0;
	ring->total = total;
	ring->ready = 0;
	pthread_mutex_unlock(&ring->lock);
}

void hr__ring_set_closed(struct hr__ring *ring, bool closed)
{
	pthread_mutex_lock(&ring->lock);
	ring->closed = closed;
	pthread_mutex_unlock(&ring->lock);
}

struct hr__slot *hr__ring_claim(struct hr__ring *ring, struct hr__waiter *waiter)
{
	struct hr__waiter *other = NULL;
	struct hr__slot *slot = NULL;

	pthread_mutex_lock(&ring->lock);
	drop_waiter(ring, waiter);
	if (!ring->closed && ring->n_free > 0 && ring->next_in < ring->total) {
		slot = &ring->slots[ring->free[--ring->n_free]];
		slot->state = HR__SLOT_FILLING;
		slot->seq = ring->next_in++;
		slot->error = 0;
		ring->by_seq[slot->seq % ring->n] = slot;
		other = waiter_of_use(ring); /* one was woken for all that are free */
	} else if (waiter) {
		waiter->next = ring->waiters;
		waiter->queued = true;
		ring->waiters = waiter;
	}
	pthread_mutex_unlock(&ring->lock);
	wake(other);
	return slot;
}

void hr__ring_publish(struct hr__ring *ring, struct hr__slot *slot)
{
	bool awaited;

	pthread_mutex_lock(&ring->lock);
	if (slot->error) {
		slot->state = HR__SLOT_FAILED;
		ring->closed = true; /* an error is final: what comes after it is of no use */
	} else {
		slot->state = HR__SLOT_READY;
		ring->ready++;
	}
	awaited = slot->seq == ring->next_out;
	pthread_mutex_unlock(&ring->lock);
	if (awaited)
		hr__event_signal(&ring->arrived);
}

/* Lock held. Nothing is being filled: who keeps the slots? */
static enum hr__take explain_nothing(const struct hr__ring *ring)
{
	if (ring->n_free > 0)
		return HR__TAKE_WAIT;
	return ring->n_passing > 0 ? HR__TAKE_PASSING : HR__TAKE_NO_SLOT;
}

enum hr__take hr__ring_take(struct hr__ring *ring, struct hr__slot **out)
{
	enum hr__take take = HR__TAKE_WAIT;
	struct hr__waiter *waiter;
	struct hr__slot *slot;

	pthread_mutex_lock(&ring->lock);
	if (ring->next_out >= ring->total) {
		take = HR__TAKE_END;
	} else if (ring->next_out == ring->next_in) {
		take = explain_nothing(ring);
	} else {
		slot = ring->by_seq[ring->next_out % ring->n];
		*out = slot;
		if (slot->state == HR__SLOT_READY) {
			slot->state = HR__SLOT_HELD;
			ring->ready--;
			ring->next_out++;
			take = HR__TAKE_OK;
		} else if (slot->state == HR__SLOT_FAILED) {
			take = HR__TAKE_FAILED;
		}
	}
	waiter = waiter_of_use(ring);
	pthread_mutex_unlock(&ring->lock);
	wake(waiter);
	return take;
}

struct hr__slot *hr__ring_held(struct hr__ring *ring, const struct hr_batch *batch)
{
	/* By its address: looking at every slot would be a cache miss each. */
	uint64_t offset = (uintptr_t)batch - (uintptr_t)ring->slots;
	struct hr__slot *slot;
	bool held;

	if (offset % sizeof(*slot) || offset / sizeof(*slot) >= ring->n)
		return NULL;
	slot = &ring->slots[offset / sizeof(*slot)];
	pthread_mutex_lock(&ring->lock);
	held = slot->state == HR__SLOT_HELD;
	pthread_mutex_unlock(&ring->lock);
	return held ? slot : NULL;
}

/* One slot more is free: one filler is woken, not all, and not while plenty of batches are ready. */
static void free_slot(struct hr__ring *ring, struct hr__slot *slot)
{
	struct hr__waiter *waiter;

	pthread_mutex_lock(&ring->lock);
	push_free(ring, slot);
	waiter = waiter_of_use(ring);
	pthread_mutex_unlock(&ring->lock);
	wake(waiter);
}

void hr__ring_release(struct hr__ring *ring, struct hr__slot *slot, struct hr_lane *lane,
		      uint64_t ticket)
{
	if (!lane) {
		free_slot(ring, slot);
		return;
	}
	slot->lane = lane;
	slot->ticket = ticket;
	pthread_mutex_lock(&ring->lock);
	slot->state = HR__SLOT_PASSING;
	pthread_mutex_unlock(&ring->lock);
	ring->passing[ring->n_passing++] = slot;
}

int hr__ring_harvest(struct hr__ring *ring)
{
	uint32_t kept = 0;
	int rc = 0;

	for (uint32_t i = 0; i < ring->n_passing; i++) {
		struct hr__slot *slot = ring->passing[i];
		uint64_t passed = 0;

		if (rc == 0)
			rc = slot->lane->ops->poll(slot->lane, &passed);
		if (rc == 0 && passed >= slot->ticket)
			free_slot(ring, slot);
		else
			ring->passing[kept++] = slot;
	}
	ring->n_passing = kept;
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ring - who is woken and when, without threads: a filler sleeps when its event has not moved since
 * it found no slot. Each way to need one again by itself, then fillers and a consumer that take turns at
 * random: nobody may wait for a batch while all who could fill it sleep.
 */
#include "loader/batch.h"
#include "support/support.h"

#define SLOTS_MAX 40u
#define FILLERS_MAX 5u

struct filler {
	struct hr__waiter waiter;
	uint32_t seen;
	bool idle; /* found no slot; asleep until the event moves */
	struct hr__slot *flying[SLOTS_MAX];
	uint32_t n_flying, flying_max;
};

static struct hr__ring ring;
static struct filler fillers[FILLERS_MAX];
static struct hr__slot *held[SLOTS_MAX];
static uint32_t n_held;

static void ring_open(uint32_t slots, uint64_t total)
{
	ring = (struct hr__ring){.n = slots};
	pthread_mutex_init(&ring.lock, NULL);
	ring.slots = calloc(slots, sizeof(*ring.slots));
	ring.free = calloc(slots, sizeof(*ring.free));
	ring.by_seq = calloc(slots, sizeof(struct hr__slot *));
	ring.passing = calloc(slots, sizeof(struct hr__slot *));
	hr__ring_restart(&ring, total);
	memset(fillers, 0, sizeof(fillers));
	for (uint32_t i = 0; i < FILLERS_MAX; i++)
		fillers[i].flying_max = 1;
	n_held = 0;
}

static void ring_close(void)
{
	hr__ring_fini(&ring); /* slots own nothing here */
}

static bool asleep(struct filler *f)
{
	return f->idle && hr__event_now(&f->waiter.event) == f->seen;
}

/* As hr__filler_fill(): false when there was nothing to claim. */
static bool claim(struct filler *f)
{
	uint32_t seen = hr__event_now(&f->waiter.event);
	struct hr__slot *slot = hr__ring_claim(&ring, f->n_flying ? NULL : &f->waiter);

	f->idle = !slot && !f->n_flying;
	f->seen = seen;
	if (slot)
		f->flying[f->n_flying++] = slot;
	return slot != NULL;
}

static void publish(struct filler *f, uint32_t which)
{
	struct hr__slot *slot = f->flying[which];

	f->flying[which] = f->flying[--f->n_flying];
	hr__ring_publish(&ring, slot);
}

static void fill_all(struct filler *f)
{
	while (claim(f))
		publish(f, 0);
}

static enum hr__take take(void)
{
	enum hr__take rc = hr__ring_take(&ring, &held[n_held]);

	n_held += rc == HR__TAKE_OK;
	return rc;
}

static void release(uint32_t which)
{
	struct hr__slot *slot = held[which];

	held[which] = held[--n_held];
	assert_ptr_equal(hr__ring_held(&ring, &slot->batch), slot);
	hr__ring_release(&ring, slot, NULL, 0);
}

static void ring_full(uint32_t slots, uint32_t n_fillers)
{
	ring_open(slots, UINT64_MAX);
	for (uint32_t i = 0; i < n_fillers; i++)
		fill_all(&fillers[i]);
}

/* A wake-up for several batches, not one each; and before they run short. */
static void plenty_is_ready(void **state)
{
	ring_full(20, 1);
	assert_int_equal(take(), HR__TAKE_OK);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t woken = 0;

		for (uint32_t k = 0; k < 20; k++) {
			release(0);
			assert_int_equal(take(), HR__TAKE_OK);
			assert_true(ring.ready >= 16);
			if (asleep(&fillers[0]))
				continue;
			fill_all(&fillers[0]);
			woken++;
		}
		assert_true(woken >= 1 && woken <= 7);
	}
	ring_close();
}

static void small_rings(void **state)
{
	for (uint32_t slots = 2; slots <= 4; slots++) {
		ring_full(slots, 1);
		assert_int_equal(take(), HR__TAKE_OK);
		for (uint32_t i = 0; i < 10; i++) {
			release(0);
			assert_false(asleep(&fillers[0]));
			fill_all(&fillers[0]);
			assert_int_equal(take(), HR__TAKE_OK);
		}
		ring_close();
	}
}

static void all_but_one_are_held(void **state)
{
	ring_full(20, 1);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(take(), HR__TAKE_OK);
	assert_int_equal(take(), HR__TAKE_NO_SLOT);
	for (uint32_t i = 0; i < 10; i++) {
		release(7);
		assert_false(asleep(&fillers[0]));
		fill_all(&fillers[0]);
		assert_int_equal(take(), HR__TAKE_OK);
	}
	ring_close();
}

/* One goes back while plenty are ready; then they are taken, and none goes back any more. */
static void taken_and_kept(void **state)
{
	ring_full(20, 1);
	assert_int_equal(take(), HR__TAKE_OK);
	release(0);
	assert_true(asleep(&fillers[0]));
	for (uint32_t i = 0; i < 17; i++)
		assert_int_equal(take(), HR__TAKE_OK);
	assert_true(ring.ready > 0);
	assert_false(asleep(&fillers[0]));
	ring_close();
}

/* One signal for many slots: who was woken wakes the next. */
static void several_fillers(void **state)
{
	ring_full(20, 3);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(take(), HR__TAKE_OK);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(asleep(&fillers[i]));
	ring.closed = true; /* as if all came back at the same time */
	for (uint32_t i = 0; i < 5; i++)
		release(0);
	ring.closed = false;
	assert_int_equal(take(), HR__TAKE_WAIT);
	for (uint32_t ran = 0; ran < 3; ran++) {
		uint32_t i = 0, awake = 0;

		for (uint32_t k = 0; k < 3; k++) {
			bool may_run = !asleep(&fillers[k]) && !fillers[k].n_flying;

			awake += may_run;
			i = may_run ? k : i;
		}
		assert_int_equal(awake, 1);
		assert_true(claim(&fillers[i]));
	}
	ring_close();
}

/* One filler is on its way to the slot: another is not woken for it, however often somebody asks. */
static void one_signal_a_slot(void **state)
{
	uint32_t awake = 0;

	ring_full(20, 3);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(take(), HR__TAKE_OK);
	release(0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(take(), HR__TAKE_WAIT);
	for (uint32_t i = 0; i < 3; i++)
		awake += !asleep(&fillers[i]);
	assert_int_equal(awake, 1);
	ring_close();
}

/* What cannot be claimed wakes nobody: behind the last batch, and in a closed ring. */
static void nothing_to_claim(void **state)
{
	ring_open(4, 4);
	fill_all(&fillers[0]);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(take(), HR__TAKE_OK);
		release(0);
	}
	assert_int_equal(take(), HR__TAKE_END);
	assert_true(asleep(&fillers[0]));
	ring_close();
	ring_full(4, 1);
	hr__ring_set_closed(&ring, true);
	assert_int_equal(take(), HR__TAKE_OK);
	release(0);
	assert_true(asleep(&fillers[0]));
	hr__ring_set_closed(&ring, false);
	assert_int_equal(take(), HR__TAKE_OK); /* also without a wake-up of those who opened it */
	assert_false(asleep(&fillers[0]));
	ring_close();
}

static void strangers(void **state)
{
	struct hr_batch other = {0};

	ring_full(4, 1);
	assert_int_equal(take(), HR__TAKE_OK);
	assert_null(hr__ring_held(&ring, &other));
	assert_null(hr__ring_held(&ring, NULL));
	assert_null(hr__ring_held(&ring, (struct hr_batch *)((char *)&ring.slots[0].batch + 8)));
	assert_null(hr__ring_held(&ring, &ring.slots[4].batch));
	for (uint32_t i = 0; i < 4; i++) {
		if (&ring.slots[i] != held[0])
			assert_null(hr__ring_held(&ring, &ring.slots[i].batch));
	}
	ring_close();
}

static void one_turn(uint32_t n_fillers, uint64_t *random)
{
	struct filler *f = &fillers[test_random(random) % n_fillers];
	uint32_t awake = 0;

	switch (test_random(random) % 5) {
	case 0:
		if (f->n_flying)
			publish(f, (uint32_t)(test_random(random) % f->n_flying));
		break;
	case 1:
	case 2:
		if (!asleep(f) && f->n_flying < f->flying_max)
			claim(f);
		break;
	case 3:
		if (n_held)
			release((uint32_t)(test_random(random) % n_held));
		break;
	default:
		if (take() != HR__TAKE_WAIT)
			break;
		/* Only they go on until the consumer is woken. */
		for (uint32_t i = 0; i < n_fillers; i++)
			awake += !asleep(&fillers[i]);
		assert_true(awake > 0);
		for (int turns = 0; take() == HR__TAKE_WAIT; turns++) {
			assert_true(turns < 1000);
			f = &fillers[test_random(random) % n_fillers];
			if (f->n_flying == f->flying_max || (f->n_flying && turns % 2))
				publish(f, 0);
			else if (!asleep(f))
				claim(f);
		}
	}
}

static void at_random(void **state)
{
	for (uint64_t seed = 0; seed < 400; seed++) {
		uint64_t random = seed;
		uint32_t slots = 2 + (uint32_t)(test_random(&random) % (SLOTS_MAX - 2));
		uint32_t n_fillers = 1 + (uint32_t)(test_random(&random) % FILLERS_MAX);

		ring_open(slots, seed % 3 ? UINT64_MAX : 500);
		for (uint32_t i = 0; i < n_fillers; i++)
			fillers[i].flying_max = 1 + (uint32_t)(test_random(&random) % (slots / 2));
		for (uint32_t turn = 0; turn < 3000; turn++)
			one_turn(n_fillers, &random);
		ring_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plenty_is_ready),
		cmocka_unit_test(small_rings),
		cmocka_unit_test(all_but_one_are_held),
		cmocka_unit_test(taken_and_kept),
		cmocka_unit_test(several_fillers),
		cmocka_unit_test(one_signal_a_slot),
		cmocka_unit_test(nothing_to_claim),
		cmocka_unit_test(strangers),
		cmocka_unit_test(at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_staging.c - the staging ring against a model: no two pieces in use overlap, all lie in
 * the ring, room() tells the truth, an empty ring starts again at its beginning.
 */
#include "base/util.h"
#include "support/support.h"
#include "transport/staging.h"

#define RING (256u << 10)
#define SLOTS 64u

struct piece {
	uint8_t *at;
	uint32_t len, align, slot;
};

static struct hr_device *dev;

static int set_up(void **state)
{
	return hr_device_open("host", &dev);
}

static int tear_down(void **state)
{
	hr_device_close(dev);
	return 0;
}

static void check_piece(const struct hr__staging *s, const struct piece *live, uint32_t n,
			const struct piece *p)
{
	assert_true(p->at >= s->base && p->at + p->len <= s->base + s->len);
	assert_int_equal((uintptr_t)p->at % p->align, 0);
	for (uint32_t i = 0; i < n; i++)
		assert_true(p->at + p->len <= live[i].at || live[i].at + live[i].len <= p->at);
}

static void test_model(void **state)
{
	struct piece live[SLOTS];
	struct hr__staging s;
	uint64_t seed = 5;
	uint32_t n = 0, refused = 0;

	assert_int_equal(hr__staging_open(dev, RING, SLOTS, 0, &s), 0);
	for (int round = 0; round < 200000; round++) {
		uint32_t len = 1 + (uint32_t)(test_random(&seed) % (RING / 3));

		if (test_random(&seed) % 2 && n) {
			uint32_t i = (uint32_t)(test_random(&seed) % n);

			hr__staging_give(&s, live[i].slot);
			live[i] = live[--n];
		} else if (hr__staging_room(&s, len)) {
			struct piece p = {.len = len, .align = 1u << test_random(&seed) % 13};

			p.at = hr__staging_take(&s, len, p.align, &p.slot);
			check_piece(&s, live, n, &p);
			live[n++] = p;
		} else {
			assert_true(n > 0); /* an empty ring never refuses what fits into it */
			refused++;
		}
	}
	assert_true(refused > 0);
	while (n)
		hr__staging_give(&s, live[--n].slot);
	assert_int_equal(s.first, s.next);
	hr__staging_close(&s);
	hr__staging_close(&s);
}

static void test_restart(void **state)
{
	struct hr__staging s;
	uint32_t slot, other;

	assert_int_equal(hr__staging_open(dev, RING, SLOTS, 0, &s), 0);
	for (int i = 0; i < 100; i++) {
		assert_ptr_equal(hr__staging_take(&s, 8192, 4096, &slot), s.base);
		hr__staging_give(&s, slot);
	}
	assert_true(hr__staging_room(&s, RING));
	assert_false(hr__staging_room(&s, RING + 1));
	hr__staging_take(&s, RING, 512, &slot);
	assert_false(hr__staging_room(&s, 1));
	hr__staging_give(&s, slot);
	/* Given back out of order: free only when the older one is. */
	hr__staging_take(&s, RING / 2, 4096, &slot);
	hr__staging_take(&s, RING / 2, 512, &other);
	hr__staging_give(&s, other);
	assert_false(hr__staging_room(&s, 1));
	hr__staging_give(&s, slot);
	assert_true(hr__staging_room(&s, RING));
	hr__staging_close(&s);
}

/* A few pieces at a time go round in little memory; more of them get all of it. */
static void test_footprint(void **state)
{
	enum { FLYING = 3, LEN = 4096 };
	struct hr__staging s;
	uint32_t slots[SLOTS], n = 0, reach = 0;

	assert_int_equal(hr__staging_open(dev, 64 * LEN, SLOTS, 0, &s), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		uint8_t *at;

		assert_true(hr__staging_room(&s, LEN));
		at = hr__staging_take(&s, LEN, 4096, &slots[i % FLYING]);
		reach = (uint32_t)hr__max(reach, (uint64_t)(at - s.base) + LEN);
		if (i >= FLYING - 1)
			hr__staging_give(&s, slots[(i + 1) % FLYING]);
	}
	assert_in_range(reach, FLYING * LEN, (2 * FLYING + 2) * LEN);
	/* What is left in use may keep a part from being used until it is given back, once. */
	hr__staging_give(&s, slots[999 % FLYING]);
	hr__staging_give(&s, slots[998 % FLYING]);
	while (n < SLOTS && hr__staging_room(&s, LEN))
		hr__staging_take(&s, LEN, 4096, &slots[n++]);
	assert_int_equal(n, hr__min(SLOTS, 64));
	while (n)
		hr__staging_give(&s, slots[--n]);
	hr__staging_close(&s);
}

static void test_slots(void **state)
{
	struct hr__staging s;
	uint32_t slots[SLOTS];

	assert_int_equal(hr__staging_open(dev, RING * 2, SLOTS, 0, &s), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		hr__staging_take(&s, 1, 4096, &slots[i]);
	assert_false(hr__staging_room(&s, 1));
	for (uint32_t i = 0; i < SLOTS; i++)
		hr__staging_give(&s, slots[i]);
	hr__staging_close(&s);
}

/* Windows of 8 KiB at odd offsets are reads of 8.5 KiB: nothing is lost between them. */
static void test_close_together(void **state)
{
	const uint32_t len = 8192 + 512, fit = RING / (8192 + 512);
	struct hr__staging s;
	uint32_t slots[RING / (8192 + 512)];

	assert_int_equal(hr__staging_open(dev, RING, SLOTS, 0, &s), 0);
	for (uint32_t i = 0; i < fit; i++)
		assert_ptr_equal(hr__staging_take(&s, len, 512, &slots[i]), s.base + i * len);
	assert_false(hr__staging_room(&s, len));
	hr__staging_give(&s, slots[0]);
	assert_true(hr__staging_room(&s, len));
	/* A stricter neighbour costs what lies before its boundary, once. */
	hr__staging_take(&s, len, 4096, &slots[0]);
	assert_false(hr__staging_room(&s, 1));
	for (uint32_t i = 1; i < fit; i++)
		hr__staging_give(&s, slots[i]);
	hr__staging_give(&s, slots[0]);
	hr__staging_take(&s, 512, 512, &slots[0]);
	assert_ptr_equal(hr__staging_take(&s, 4096, 4096, &slots[1]), s.base + 4096);
	hr__staging_give(&s, slots[0]);
	hr__staging_give(&s, slots[1]);
	hr__staging_close(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),          cmocka_unit_test(test_restart),
		cmocka_unit_test(test_footprint),      cmocka_unit_test(test_slots),
		cmocka_unit_test(test_close_together),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

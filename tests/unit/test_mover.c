/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_mover.c - what the mover hands to a lane, and when: large segments in the order of their
 * addresses whatever order they came in, small lists one at a time, large ones two. The lane is one that
 * writes down what it is given and finishes when it is told to.
 */
#include <string.h>

#include "support/support.h"
#include "transport/ioq.h"
#include "transport/mover.h"

#define MIB (1u << 20)
#define SEGMENTS 6u
#define MOVES_MAX 64u

static struct {
	struct hr_lane lane;
	uint64_t issued, passed;
	uint32_t n_calls, n_moves;       /* of all calls, of the last one */
	struct hr__move last[MOVES_MAX]; /* moves of the last call */
} book;

static int book_move(struct hr_lane *lane, enum hr__where where, const struct hr__move *moves,
		     uint32_t n, enum hr_dtype from, enum hr_dtype to, uint64_t *ticket)
{
	(void)lane;
	(void)from;
	(void)to;
	assert_int_equal(where, HR__HOST_TO_DEVICE);
	assert_in_range(n, 1, MOVES_MAX);
	memcpy(book.last, moves, n * sizeof(*moves));
	book.n_moves = n;
	book.n_calls++;
	*ticket = ++book.issued;
	return (int)n;
}

static int book_poll(struct hr_lane *lane, uint64_t *passed)
{
	(void)lane;
	*passed = book.passed;
	return 0;
}

static void book_close(struct hr_lane *lane)
{
	(void)lane;
}

static const struct hr__lane_ops book_ops = {
	.name = "book", .move = book_move, .poll = book_poll, .close = book_close};

static int book_open(struct hr_device *dev, void *native, struct hr_lane **out)
{
	assert_null(native);
	book.lane.ops = &book_ops;
	book.lane.dev = dev;
	*out = &book.lane;
	return 0;
}

static struct {
	struct hr__mover mover;
	struct hr_device dev;
	struct hr_stats stats;
	uint64_t gathered;
	struct hr__ioq ioq;
	struct hr_io io;
	struct hr__seg segs[SEGMENTS];
} t;

static int setup(void **state)
{
	static const struct hr__mem_ops ops = {.lane_open = book_open};
	struct hr__transport_env env = {
		.dev = &t.dev, .stats = &t.stats, .gathered = &t.gathered, .ioq = &t.ioq};

	(void)state;
	memset(&t, 0, sizeof(t));
	memset(&book, 0, sizeof(book));
	t.dev.ops = &ops;
	return hr__mover_open(&t.mover, &env, 64ull * MIB);
}

static int teardown(void **state)
{
	(void)state;
	hr__mover_close(&t.mover);
	return 0;
}

/* The k-th of neighbours of @len bytes, in the ring as on the device. */
static struct hr__seg *segment(uint32_t k, uint32_t len)
{
	struct hr__seg *seg = &t.segs[k];

	*seg = (struct hr__seg){
		.op = HR_READ,
		.addr = (void *)(uintptr_t)(0x10000000u + (uint64_t)k * len),
		.done = len,
		.plan = {.len = len,
			 .need = len,
			 .n_dests = 1,
			 .first = {.owner = &t.io,
				   .dst = 0x70000000u + (uint64_t)k * len,
				   .len = len}},
	};
	t.io.arriving_ += len;
	return seg;
}

/* More is to come of the request, so that its end plays no part. */
static void arrive(uint32_t k, uint32_t len)
{
	t.io.arriving_ += 1;
	hr__mover_in(&t.mover, segment(k, len));
}

static void test_order(void **state)
{
	static const uint32_t came[SEGMENTS] = {3, 0, 5, 1, 4, 2};

	(void)state;
	for (uint32_t i = 0; i < SEGMENTS; i++)
		arrive(came[i], MIB);
	hr__mover_turn(&t.mover, false);
	assert_int_equal(book.n_calls, 1);
	assert_int_equal(book.n_moves, SEGMENTS);
	for (uint32_t k = 0; k < SEGMENTS; k++) {
		assert_int_equal((uintptr_t)book.last[k].src, 0x10000000u + k * (uintptr_t)MIB);
		assert_int_equal((uintptr_t)book.last[k].dst, 0x70000000u + k * (uintptr_t)MIB);
		assert_int_equal(book.last[k].len, MIB);
	}
	assert_int_equal(t.stats.bytes_moved, (uint64_t)SEGMENTS * MIB);
	assert_null(t.mover.moved.head);
	book.passed = 1;
	hr__mover_turn(&t.mover, false);
	for (uint32_t k = 0; k < SEGMENTS; k++)
		assert_ptr_equal(hr__seg_list_take(&t.mover.moved), &t.segs[k]);
}

/* Turns that are not idle, after something that wants to be moved on has come. */
static void come_and_turn(uint32_t k, uint32_t len)
{
	arrive(k, len);
	t.gathered++;
	hr__mover_turn(&t.mover, false);
}

static void test_small_lists(void **state)
{
	(void)state;
	t.ioq.in_flight = 64;
	come_and_turn(0, 4096);
	assert_int_equal(book.n_calls, 1);
	come_and_turn(1, 4096);
	come_and_turn(2, 4096);
	assert_int_equal(book.n_calls, 1);
	book.passed = 1;
	hr__mover_turn(&t.mover, false);
	assert_int_equal(book.n_calls, 2);
	assert_int_equal(book.n_moves, 2);
	/* With nothing else to come it waits for nobody. */
	come_and_turn(3, 4096);
	assert_int_equal(book.n_calls, 2);
	hr__mover_turn(&t.mover, true);
	assert_int_equal(book.n_calls, 3);
}

/* Company that is not on its way is not waited for. */
static void test_few_in_flight(void **state)
{
	(void)state;
	t.ioq.in_flight = 3;
	come_and_turn(0, 4096);
	come_and_turn(1, 4096);
	assert_int_equal(book.n_calls, 2);
}

static void test_large_lists(void **state)
{
	(void)state;
	t.ioq.in_flight = 64;
	come_and_turn(0, MIB);
	come_and_turn(1, MIB);
	assert_int_equal(book.n_calls, 2);
	come_and_turn(2, MIB);
	assert_int_equal(book.n_calls, 2);
	book.passed = 1;
	hr__mover_turn(&t.mover, false);
	assert_int_equal(book.n_calls, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_small_lists, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few_in_flight, setup, teardown),
		cmocka_unit_test_setup_teardown(test_large_lists, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

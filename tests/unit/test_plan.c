/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner against examples worked out by hand: what merges, what is cut where, what goes in
 * place, what a write may touch, and which numbers are refused. test_plan_random.c has the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "file/plan.h"

#define K 1024ull
#define N_WANTS 64
#define N_DESTS 64

struct fixture {
	struct hr__plan plan;
	struct hr__want wants[N_WANTS];
	struct hr__dest dests[N_DESTS];
	struct hr__dest_pool pool;
	struct hr__plan_segment seg;
};

/* What a segment should be; dests are checked apart. */
struct expect {
	uint64_t off;
	uint32_t len, need, n_dests;
	bool in_place, unaligned;
};

static const struct hr__limits direct = {
	.offset_align = 4096,
	.memory_align = 512,
	.segment_max = 64 * K,
	.in_place_min = 8 * K,
	.in_place = true,
	.staged = true,
	.file_size = 1ull << 40,
};

static void fill_pool(struct fixture *f, uint32_t n)
{
	f->pool.free = NULL;
	for (uint32_t i = 0; i < n; i++) {
		f->dests[i].next = f->pool.free;
		f->pool.free = &f->dests[i];
	}
}

static void begin(struct fixture *f, const struct hr__limits *limits)
{
	hr__plan_init(&f->plan, f->wants, N_WANTS);
	hr__plan_begin(&f->plan, limits);
	fill_pool(f, N_DESTS);
}

static void add(struct fixture *f, uint64_t off, uint64_t len, uint64_t dst)
{
	assert_int_equal(hr__plan_add(&f->plan, off, len, dst, NULL), len);
}

static void check_segments(struct fixture *f, const struct expect *e, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(hr__plan_next(&f->plan, &f->pool, &f->seg), 1);
		assert_int_equal(f->seg.off, e[i].off);
		assert_int_equal(f->seg.len, e[i].len);
		assert_int_equal(f->seg.need, e[i].need);
		assert_int_equal(f->seg.n_dests, e[i].n_dests);
		assert_int_equal(f->seg.in_place, e[i].in_place);
		assert_int_equal(f->seg.unaligned, e[i].unaligned);
		hr__dests_free(&f->pool, &f->seg);
	}
	assert_int_equal(hr__plan_next(&f->plan, &f->pool, &f->seg), 0);
	assert_true(hr__plan_done(&f->plan));
}

#define CHECK(f, ...)                                                                              \
	do {                                                                                       \
		const struct expect expected[] = {__VA_ARGS__};                                    \
		check_segments(f, expected, HR_ARRAY_LEN(expected));                               \
	} while (0)

static void test_empty_window(void **state)
{
	struct fixture *f = *state;

	begin(f, &direct);
	assert_true(hr__plan_done(&f->plan));
	assert_int_equal(hr__plan_next(&f->plan, &f->pool, &f->seg), 0);
	assert_int_equal(hr__plan_add(&f->plan, 5, 0, 0, NULL), 0);
	assert_true(hr__plan_done(&f->plan));
}

static void test_one_piece_with_edges(void **state)
{
	struct fixture *f = *state;

	begin(f, &direct);
	/* The body starts 96 bytes in, where the destination is a multiple of 512. */
	add(f, 4096 - 96, 96 + 16 * K + 5, 1024 - 96);
	CHECK(f, {0, 4096, 4096, 1, false, false}, {4096, 16 * K, 16 * K, 1, true, false},
	      {20 * K, 4096, 5, 1, false, false});

	begin(f, &direct); /* the same with a destination that does not fit */
	add(f, 4096 - 96, 96 + 16 * K + 5, 1024);
	CHECK(f, {0, 24 * K, 20 * K + 5, 1, false, false});

	begin(f, &direct); /* a body below in_place_min is not worth three requests */
	add(f, 4096 - 96, 96 + 4 * K + 5, 1024 - 96);
	CHECK(f, {0, 12 * K, 8 * K + 5, 1, false, false});

	begin(f, &direct); /* but without edges any length goes in place */
	add(f, 4096, 4096, 512);
	CHECK(f, {4096, 4096, 4096, 1, true, false});
}

static void test_dest_fields(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;
	struct hr__dest *d;
	int a, b;

	l.in_place = false;
	begin(f, &l);
	assert_int_equal(hr__plan_add(&f->plan, 5000, 100, 70000, &b), 100);
	assert_int_equal(hr__plan_add(&f->plan, 4100, 10, 9, &a), 10);
	assert_int_equal(hr__plan_next(&f->plan, &f->pool, &f->seg), 1);
	assert_int_equal(f->seg.n_dests, 2);
	d = &f->seg.first;
	assert_ptr_equal(d->owner, &a);
	assert_int_equal(d->seg_off, 4);
	assert_int_equal(d->len, 10);
	assert_int_equal(d->dst, 9);
	assert_ptr_equal(d->next, f->seg.last);
	d = d->next;
	assert_ptr_equal(d->owner, &b);
	assert_int_equal(d->seg_off, 904);
	assert_int_equal(d->len, 100);
	assert_int_equal(d->dst, 70000);
	assert_null(d->next);
	hr__dests_free(&f->pool, &f->seg);
	hr__dests_free(&f->pool, &f->seg); /* harmless twice */
	assert_int_equal(f->seg.n_dests, 1);
}

static void test_merging(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.in_place = false;
	begin(f, &l); /* adjacent, duplicate, in the same block, in the next block: one read */
	add(f, 8192, 100, 0);
	add(f, 0, 100, 0);
	add(f, 100, 50, 0);
	add(f, 0, 100, 0);
	add(f, 4000, 200, 0);
	CHECK(f, {0, 12 * K, 8192 + 100, 5, false, false});

	begin(f, &l); /* one block between them: two reads, or one if the gap allows */
	add(f, 0, 4096, 0);
	add(f, 8192, 4096, 0);
	CHECK(f, {0, 4096, 4096, 1, false, false}, {8192, 4096, 4096, 1, false, false});
	l.gap = 4096;
	begin(f, &l);
	add(f, 0, 4096, 0);
	add(f, 8192, 4096, 0);
	CHECK(f, {0, 12 * K, 12 * K, 2, false, false});

	begin(f, &l); /* across a gap only what fits */
	add(f, 0, 56 * K, 0);
	add(f, 60 * K, 8 * K, 0);
	CHECK(f, {0, 56 * K, 56 * K, 1, false, false}, {60 * K, 8 * K, 8 * K, 1, false, false});
}

static void test_long_overlapping_pieces(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.in_place = false;
	begin(f, &l);
	add(f, 100, 150 * K, 0);
	add(f, 0, 100 * K, 0);
	add(f, 50, 10, 0);
	CHECK(f, {0, 64 * K, 64 * K, 3, false, false}, {64 * K, 64 * K, 64 * K, 2, false, false},
	      {128 * K, 24 * K, 22 * K + 100, 1, false, false});
}

static void test_in_place_neighbours_share_edges(void **state)
{
	struct fixture *f = *state;

	begin(f, &direct);
	/* Tail of one and head of the next in one block: read once, between the bodies. */
	add(f, 0, 10000, 512);
	add(f, 10000, 20000, 512 * 10 - 2288);
	CHECK(f, {0, 8192, 8192, 1, true, false}, {8192, 4096, 4096, 2, false, false},
	      {12288, 16384, 16384, 1, true, false}, {28672, 4096, 30000 - 28672, 1, false, false});

	begin(f, &direct);
	/* A staged piece crosses the tail of one in place: it is cut there and shares the block. */
	add(f, 4096, 8192 + 100, 512);
	add(f, 3000, 15000, 1);
	CHECK(f, {0, 12288, 12288, 1, false, false}, {4096, 8192, 8192, 1, true, false},
	      {12288, 8192, 18000 - 12288, 2, false, false});
}

static void test_in_place_cut_keeps_the_address_aligned(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.offset_align = 512;
	l.memory_align = 4096;
	l.segment_max = 8192 + 512;
	begin(f, &l);
	add(f, 512, 16384, 4096);
	CHECK(f, {512, 8192, 8192, 1, true, false}, {8704, 8192, 8192, 1, true, false});

	l.segment_max = 2048; /* cannot be kept: staged as a whole */
	begin(f, &l);
	add(f, 512, 4096, 4096);
	CHECK(f, {512, 2048, 2048, 1, false, false}, {2560, 2048, 2048, 1, false, false});
}

static void test_end_of_file(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.file_size = 10000;
	begin(f, &l);
	assert_int_equal(hr__plan_add(&f->plan, 10000, 5, 0, NULL), 0);
	assert_int_equal(hr__plan_add(&f->plan, 1ull << 63, 5, 0, NULL), 0);
	assert_int_equal(hr__plan_add(&f->plan, 0, 1 << 20, 0, NULL), 10000);
	/* The last block would be written past the piece: it is an edge. */
	CHECK(f, {0, 8192, 8192, 1, true, false}, {8192, 4096, 10000 - 8192, 1, false, false});
}

static void test_buffered_files_take_any_byte(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = {
		.offset_align = 1,
		.memory_align = 1,
		.segment_max = 1000,
		.in_place = true,
		.file_size = 1 << 20,
	};

	begin(f, &l);
	add(f, 3, 1500, 7);
	add(f, 1, 1, 0);
	CHECK(f, {1, 1, 1, 1, true, false}, {3, 1000, 1000, 1, true, false},
	      {1003, 500, 500, 1, true, false});
	l.in_place = false;
	l.staged = true;
	begin(f, &l);
	add(f, 3, 10, 0);
	add(f, 13, 10, 0);
	add(f, 24, 10, 0);
	CHECK(f, {3, 20, 20, 2, false, false}, {24, 10, 10, 1, false, false});
}

static void test_empty_pool(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.in_place = false;
	begin(f, &l);
	fill_pool(f, 0);
	add(f, 0, 20000, 0);
	add(f, 5000, 100, 0);
	add(f, 0, 200, 0);
	CHECK(f, {0, 20480, 20000, 1, false, false}, {0, 4096, 200, 1, false, false},
	      {4096, 4096, 5100 - 4096, 1, false, false});
}

static void test_empty_pool_cuts_at_the_next_piece(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.in_place = false;
	begin(f, &l);
	fill_pool(f, 0);
	add(f, 0, 20000, 0);
	add(f, 5000, 100, 0);
	assert_int_equal(hr__plan_next(&f->plan, &f->pool, &f->seg), 1);
	assert_int_equal(f->seg.need, 5000);
	assert_int_equal(f->seg.len, 8192);
	fill_pool(f, 1); /* now there is one: the rest of the first and the second share a read */
	CHECK(f, {4096, 16384, 20000 - 4096, 2, false, false});
}

static void test_writes(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.write = true;
	l.file_size = 0; /* writes may go past the end */
	begin(f, &l);
	add(f, 4000, 96 + 70 * K, 512 - 96 + 512);
	add(f, 200, 8, 0);
	CHECK(f, {200, 8, 8, 1, false, true}, {4000, 96, 96, 1, false, true},
	      {4096, 64 * K, 64 * K, 1, true, false}, {68 * K, 4096, 4096, 1, true, false},
	      {72 * K, 2048, 2048, 1, false, true});
	begin(f, &l); /* a destination that does not fit: the body is staged */
	add(f, 4096, 8192 + 3, 1);
	CHECK(f, {4096, 8192, 8192, 1, false, false}, {12288, 3, 3, 1, false, true});
	l.offset_align = 1;
	l.segment_max = 5000;
	begin(f, &l);
	add(f, 3, 6000, 1);
	CHECK(f, {3, 5000, 5000, 1, true, false}, {5003, 1000, 1000, 1, true, false});
	l.in_place = false;
	begin(f, &l); /* neighbours are not merged */
	add(f, 3, 100, 1);
	add(f, 103, 100, 1);
	CHECK(f, {3, 100, 100, 1, false, false}, {103, 100, 100, 1, false, false});
}

static void test_refusals(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	begin(f, &l);
	assert_int_equal(hr__plan_add(&f->plan, UINT64_MAX, 1, 0, NULL), -EOVERFLOW);
	assert_int_equal(hr__plan_add(&f->plan, 1, UINT64_MAX, 0, NULL), -EOVERFLOW);
	assert_int_equal(hr__plan_add(&f->plan, 0, 2, UINT64_MAX, NULL), -EOVERFLOW);
	assert_int_equal(hr__plan_add(&f->plan, 0, 1, UINT64_MAX - 1, NULL), 1);
	for (uint32_t i = 1; i < N_WANTS; i++)
		add(f, i, 1, 0);
	assert_int_equal(hr__plan_add(&f->plan, 0, 1, 0, NULL), -ENOSPC);
	assert_int_equal(hr__plan_add(&f->plan, 0, 0, 0, NULL), 0);
	l.write = true;
	begin(f, &l);
	assert_int_equal(hr__plan_add(&f->plan, INT64_MAX, 1, 0, NULL), -EOVERFLOW);
	assert_int_equal(hr__plan_add(&f->plan, INT64_MAX - 1, 1, 0, NULL), 1);
	CHECK(f, {INT64_MAX - 1, 1, 1, 1, false, true});
	l.write = false; /* a file of every possible byte: rounding up must not wrap */
	l.file_size = UINT64_MAX;
	begin(f, &l);
	assert_int_equal(hr__plan_add(&f->plan, INT64_MAX - 10, 1000, 1, NULL), 10);
	CHECK(f, {INT64_MAX - 4095, 4096, 4095, 1, false, false});
}

/* Any byte may go in place, but many short reads cost more than one and copies. */
static void test_short_neighbours_are_staged(void **state)
{
	struct fixture *f = *state;
	struct hr__limits l = direct;

	l.offset_align = l.memory_align = 1;
	l.gap = 100;
	begin(f, &l);
	add(f, 10, 1000, 0);
	add(f, 1110, 1000, 5000); /* a gap's length away */
	add(f, 2211, 1000, 9000); /* one byte more */
	add(f, 40000, 8 * K, 20000);
	add(f, 40000 + 8 * K, 8 * K, 60000); /* not short */
	CHECK(f, {10, 2100, 2100, 2, false, false}, {2211, 1000, 1000, 1, true, false},
	      {40000, 8 * K, 8 * K, 1, true, false}, {40000 + 8 * K, 8 * K, 8 * K, 1, true, false});
	l.write = true; /* a write is never merged */
	begin(f, &l);
	add(f, 0, 100, 0);
	add(f, 100, 100, 500);
	CHECK(f, {0, 100, 100, 1, true, false}, {100, 100, 100, 1, true, false});
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct fixture));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_empty_window),
		TEST(test_one_piece_with_edges),
		TEST(test_dest_fields),
		TEST(test_merging),
		TEST(test_long_overlapping_pieces),
		TEST(test_in_place_neighbours_share_edges),
		TEST(test_in_place_cut_keeps_the_address_aligned),
		TEST(test_end_of_file),
		TEST(test_buffered_files_take_any_byte),
		TEST(test_empty_pool),
		TEST(test_empty_pool_cuts_at_the_next_piece),
		TEST(test_writes),
		TEST(test_refusals),
		TEST(test_short_neighbours_are_staged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

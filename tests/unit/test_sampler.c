/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sampler - the permutation: bijection for every kind of n, fixed vectors (old states must keep
 * their meaning), even use of all permutations, positions and distances by chi-square. The schedule:
 * against a loop that walks the epochs one step at a time.
 *
 * The statistics are of fixed seeds, so they pass always or never. Bounds are the mean plus six
 * standard deviations of the chi-square distribution.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "loader/sampler.h"

static uint64_t order_at(const struct hr__order *order, uint64_t position)
{
	uint64_t id;

	hr__order_run(order, position, 1, &id);
	return id;
}

static void expect_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
	unsigned char *seen = calloc(n, 1);
	struct hr__order order;

	assert_non_null(seen);
	hr__order_init(&order, n, HR_SHUFFLE_FULL, seed, epoch);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t id = order_at(&order, i);

		assert_true(id < n);
		assert_int_equal(seen[id], 0);
		seen[id] = 1;
	}
	free(seen);
}

static void every_n_is_a_bijection(void **state)
{
	static const uint64_t big[] = {4093,  8191,  8192,   8193,   65521,  65535,
				       65536, 65537, 131071, 131072, 131073, 99991};

	for (uint64_t n = 1; n <= 1100; n++)
		expect_bijection(n, n * 31, n % 5);
	for (size_t i = 0; i < HR_ARRAY_LEN(big); i++) {
		expect_bijection(big[i], 0, 0);
		expect_bijection(big[i], UINT64_MAX, UINT64_MAX);
	}
}

/* Many at once are what they are one by one, at any start and for any count. */
static void runs_are_positions(void **state)
{
	static const uint64_t sizes[] = {1,   7,    8,    255,        256,
					 257, 1000, 4097, 1ull << 40, (1ull << 40) + 1};
	uint64_t out[101];

	for (size_t i = 0; i < HR_ARRAY_LEN(sizes); i++) {
		uint64_t n = sizes[i];

		for (int shuffle = HR_SHUFFLE_FULL; shuffle <= HR_SHUFFLE_NONE; shuffle++) {
			struct hr__order order;

			hr__order_init(&order, n, (enum hr_shuffle)shuffle, 7, 9);
			for (uint32_t count = 0; count <= hr__min(n, 100); count++) {
				uint64_t first = count % 2 ? n - count : (n - count) / 3;

				out[count] = 12345;
				hr__order_run(&order, first, count, out);
				for (uint32_t k = 0; k < count; k++)
					assert_int_equal(out[k], order_at(&order, first + k));
				assert_int_equal(out[count], 12345);
			}
		}
	}
}

/* Written down once; a change here breaks every saved state in the world. */
static void vectors_never_change(void **state)
{
	static const struct {
		uint64_t n, seed, epoch, position, id;
	} vectors[] = {
		{1u, 0u, 0u, 0u, 0u},
		{2u, 1u, 0u, 0u, 1u},
		{5u, 42u, 3u, 4u, 3u},
		{256u, 7u, 0u, 255u, 34u},
		{257u, 7u, 0u, 256u, 101u},
		{1000u, 0u, 0u, 0u, 588u},
		{1000u, 0u, 1u, 999u, 451u},
		{65536u, 123u, 4u, 40000u, 57450u},
		{1099511627776u, 42u, 0u, 1u, 512874918643u},
		{1099511627777u, 42u, 9u, 1099511627776u, 725058024048u},
		{9223372036854775808u, 18446744073709551615u, 18446744073709551615u,
		 9223372036854775807u, 8534225280678416446u},
	};
	struct hr__order order;

	for (size_t i = 0; i < HR_ARRAY_LEN(vectors); i++) {
		hr__order_init(&order, vectors[i].n, HR_SHUFFLE_FULL, vectors[i].seed,
			       vectors[i].epoch);
		assert_int_equal(order_at(&order, vectors[i].position), vectors[i].id);
	}
}

static void no_shuffle_is_file_order(void **state)
{
	struct hr__order order;

	hr__order_init(&order, 1ull << 40, HR_SHUFFLE_NONE, 1, 2);
	assert_int_equal(order_at(&order, 0), 0);
	assert_int_equal(order_at(&order, 12345678901), 12345678901);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Positions spread over all of [0, n): in range, and no two samples alike. */
static void huge_n_random_access(void **state)
{
	static const uint64_t sizes[] = {1ull << 40, (1ull << 40) + 1, (1ull << 63) - 25,
					 1ull << 63, (1ull << 33) - 1};
	enum { COUNT = 100000 };
	uint64_t *ids = malloc(COUNT * sizeof(*ids));
	struct hr__order order;

	assert_non_null(ids);
	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		uint64_t step = sizes[s] / COUNT;

		hr__order_init(&order, sizes[s], HR_SHUFFLE_FULL, 7, s);
		for (uint64_t i = 0; i < COUNT; i++) {
			ids[i] = order_at(&order, i * step);
			assert_true(ids[i] < sizes[s]);
		}
		qsort(ids, COUNT, sizeof(*ids), compare_u64);
		for (uint64_t i = 1; i < COUNT; i++)
			assert_true(ids[i - 1] < ids[i]);
	}
	free(ids);
}

static void epochs_and_seeds_differ(void **state)
{
	static const uint64_t keys[][2] = {{0, 0},          {0, 1},          {1, 0},
					   {1, 1},          {2, 0},          {0, 2},
					   {UINT64_MAX, 0}, {1ull << 32, 0}, {0, 1ull << 32}};
	enum { N = 10007 };
	struct hr__order a, b;

	for (size_t i = 0; i < HR_ARRAY_LEN(keys); i++) {
		for (size_t j = i + 1; j < HR_ARRAY_LEN(keys); j++) {
			int same = 0;

			hr__order_init(&a, N, HR_SHUFFLE_FULL, keys[i][0], keys[i][1]);
			hr__order_init(&b, N, HR_SHUFFLE_FULL, keys[j][0], keys[j][1]);
			for (uint64_t p = 0; p < N; p++)
				same += order_at(&a, p) == order_at(&b, p);
			/* by chance one on average; ten happens once in 10^7 */
			assert_true(same < 10);
		}
	}
}

static void expect_even(const uint32_t *counts, uint64_t cells, uint64_t draws, const char *what)
{
	double want = (double)draws / (double)cells, sum = 0;
	double freedom = (double)(cells - 1), bound = freedom + 6 * sqrt(2 * freedom);

	for (uint64_t i = 0; i < cells; i++)
		sum += (counts[i] - want) * (counts[i] - want) / want;
	if (sum > bound || sum < freedom - 6 * sqrt(2 * freedom))
		fail_msg("%s: chi-square %.1f for %.0f degrees, bound %.1f", what, sum, freedom,
			 bound);
}

/* Tiny n: every one of the n! permutations, equally often over seeds and over epochs. */
static void all_permutations_are_reached(void **state)
{
	static const uint32_t factorial[] = {1, 1, 2, 6, 24, 120};
	struct hr__order order;

	for (uint64_t n = 2; n <= 5; n++) {
		for (int by_epoch = 0; by_epoch < 2; by_epoch++) {
			uint32_t counts[120] = {0};
			uint32_t draws = 200 * factorial[n];

			for (uint32_t k = 0; k < draws; k++) {
				uint32_t rank = 0;

				hr__order_init(&order, n, HR_SHUFFLE_FULL, by_epoch ? 42 : k,
					       by_epoch ? k : 0);
				for (uint64_t i = 0; i < n; i++) {
					uint32_t smaller = 0;

					for (uint64_t j = i + 1; j < n; j++)
						smaller +=
							order_at(&order, j) < order_at(&order, i);
					rank = rank * (uint32_t)(n - i) + smaller;
				}
				counts[rank]++;
			}
			expect_even(counts, factorial[n], draws, "permutations");
		}
	}
}

/* Where position p goes over many epochs, for sizes on both sides of the table's limit. */
static void positions_are_even(void **state)
{
	static const uint64_t sizes[] = {7, 256, 257, 300, 511, 513, 1000};
	struct hr__order order;

	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		uint64_t n = sizes[s], draws = n * 40;
		static uint32_t first[1000], last[1000], pair[1000];

		memset(first, 0, sizeof(first));
		memset(last, 0, sizeof(last));
		memset(pair, 0, sizeof(pair));
		for (uint64_t e = 0; e < draws; e++) {
			uint64_t a, b;

			hr__order_init(&order, n, HR_SHUFFLE_FULL, 3, e);
			a = order_at(&order, 0);
			b = order_at(&order, n - 1);
			first[a]++;
			last[b]++;
			/* n - 1 distances can occur between two different samples */
			pair[(a + n - b) % n - 1]++;
		}
		expect_even(first, n, draws, "first position");
		expect_even(last, n, draws, "last position");
		expect_even(pair, n - 1, draws, "distance of first and last");
	}
}

/* Distances of neighbours within one epoch: a loader must not read runs of the file. */
static void neighbours_are_unrelated(void **state)
{
	static const uint64_t sizes[] = {65536, 65537, 100003, 131071};
	enum { CELLS = 256 };
	struct hr__order order;

	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		for (uint64_t lag = 1; lag <= 4; lag++) {
			uint64_t n = sizes[s];
			uint32_t counts[CELLS] = {0};

			hr__order_init(&order, n, HR_SHUFFLE_FULL, 11, lag);
			for (uint64_t i = 0; i + lag < n; i++) {
				uint64_t d = order_at(&order, i + lag) + n - order_at(&order, i);

				counts[d % n * CELLS / n]++;
			}
			expect_even(counts, CELLS, n - lag, "distance of neighbours");
		}
	}
}

/* The schedule as one would write it without thinking of random access. */
struct walk {
	uint64_t epoch, position;
};

static bool walk_next(struct walk *w, const struct hr_loader_options *o, uint64_t samples,
		      struct walk *at)
{
	uint64_t step = (uint64_t)o->batch_size * o->dp_world_size;
	bool over = o->last == HR_LAST_PAD ? w->position >= samples : w->position + step > samples;

	if (over) {
		w->epoch++;
		w->position = 0;
	}
	if (o->epochs && w->epoch >= o->epochs)
		return false;
	*at = *w;
	w->position += step;
	return true;
}

static void expect_walk(const struct hr_loader_options *o, uint64_t samples, uint64_t epoch,
			uint64_t position)
{
	struct walk w = {epoch, position}, at;
	struct hr__schedule s;
	uint64_t seq = 0;

	hr__schedule_init(&s, samples, o);
	hr__schedule_start(&s, epoch, position);
	while (walk_next(&w, o, samples, &at)) {
		struct hr__turn turn;
		uint32_t valid = 0;

		assert_true(seq < s.total);
		hr__schedule_at(&s, seq++, &turn);
		assert_int_equal(turn.epoch, at.epoch);
		assert_int_equal(turn.position, at.position);
		assert_int_equal(turn.first, at.position + (uint64_t)o->dp_rank * o->batch_size);
		for (uint32_t i = 0; i < o->batch_size; i++)
			valid += turn.first + i < samples;
		assert_int_equal(turn.valid, valid);
	}
	assert_int_equal(seq, s.total);
}

static void schedule_equals_a_walk(void **state)
{
	for (uint32_t world = 1; world <= 3; world++) {
		for (uint32_t batch = 1; batch <= 4; batch++) {
			for (uint64_t samples = world * batch; samples < 40; samples++) {
				struct hr_loader_options o = {.batch_size = batch,
							      .dp_world_size = world,
							      .dp_rank = world - 1,
							      .last = samples % 2,
							      .epochs = 3};

				for (uint64_t p = 0; p <= samples; p++)
					expect_walk(&o, samples, p % 4, p);
			}
		}
	}
}

/* PAD may be asked for fewer samples than a step: the last ranks get padding only. */
static void padding_of_a_tiny_epoch(void **state)
{
	struct hr_loader_options o = {.batch_size = 4,
				      .dp_world_size = 3,
				      .dp_rank = 2,
				      .last = HR_LAST_PAD,
				      .epochs = 2};
	struct hr__schedule s;
	struct hr__turn turn;

	hr__schedule_init(&s, 3, &o);
	assert_int_equal(s.steps_per_epoch, 1);
	assert_int_equal(s.total, 2);
	hr__schedule_at(&s, 1, &turn);
	assert_int_equal(turn.epoch, 1);
	assert_int_equal(turn.valid, 0);
}

static void endless_and_enormous(void **state)
{
	struct hr_loader_options o = {.batch_size = 1, .dp_world_size = 1};
	struct hr__schedule s;
	struct hr__turn turn;

	hr__schedule_init(&s, 1ull << 62, &o);
	assert_true(s.total == UINT64_MAX);
	hr__schedule_at(&s, (1ull << 63) + 5, &turn);
	assert_int_equal(turn.epoch, 2);
	assert_int_equal(turn.step, 5);
	o.epochs = UINT64_MAX;
	hr__schedule_init(&s, 1ull << 62, &o);
	assert_true(s.total == UINT64_MAX);
}

/*
 * Stop after any number of batches, go on with other ranks and batch sizes: the epoch's positions
 * follow one another without gap or overlap.
 */
static void resume_with_other_ranks(void **state)
{
	static const struct {
		uint32_t batch, world;
	} shapes[] = {{1, 1}, {3, 1}, {2, 2}, {1, 3}, {1, 8}, {5, 2}};
	enum { SAMPLES = 61 };

	for (size_t a = 0; a < HR_ARRAY_LEN(shapes); a++) {
		struct hr_loader_options from = {.batch_size = shapes[a].batch,
						 .dp_world_size = shapes[a].world};
		struct hr__schedule s;

		hr__schedule_init(&s, SAMPLES, &from);
		for (uint64_t k = 0; k <= s.steps_per_epoch; k++) {
			uint64_t epoch, position;

			hr__schedule_where(&s, k, &epoch, &position);
			assert_int_equal(epoch, k == s.steps_per_epoch);
			assert_int_equal(position, epoch ? 0 : k * s.step_samples);
			for (size_t b = 0; b < HR_ARRAY_LEN(shapes); b++) {
				struct hr_loader_options to = {.batch_size = shapes[b].batch,
							       .dp_world_size = shapes[b].world};
				struct hr__schedule t;
				struct hr__turn turn;

				hr__schedule_init(&t, SAMPLES, &to);
				hr__schedule_start(&t, epoch, position);
				hr__schedule_at(&t, 0, &turn);
				if (position + t.step_samples > SAMPLES) {
					assert_int_equal(turn.epoch, epoch + 1);
					assert_int_equal(turn.position, 0);
				} else {
					assert_int_equal(turn.epoch, epoch);
					assert_int_equal(turn.position, position);
				}
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_are_positions),
		cmocka_unit_test(every_n_is_a_bijection),
		cmocka_unit_test(vectors_never_change),
		cmocka_unit_test(no_shuffle_is_file_order),
		cmocka_unit_test(huge_n_random_access),
		cmocka_unit_test(epochs_and_seeds_differ),
		cmocka_unit_test(all_permutations_are_reached),
		cmocka_unit_test(positions_are_even),
		cmocka_unit_test(neighbours_are_unrelated),
		cmocka_unit_test(schedule_equals_a_walk),
		cmocka_unit_test(padding_of_a_tiny_epoch),
		cmocka_unit_test(endless_and_enormous),
		cmocka_unit_test(resume_with_other_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

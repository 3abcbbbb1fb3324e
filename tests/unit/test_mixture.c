/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mixture - which dataset comes when: shares by weight, exact in every block of 65536 and nearly so in
 * every stripe of 256; the order of a mixture against a plain walk that counts on for each kid; fixed
 * vectors; chi-square of who comes where.
 */
#include "loader/mixture.h"
#include "loader/perm.h"
#include "order_fixture.h"

static struct hr__mixture mix;

static void expect_shares(const double *weights, uint32_t n, const uint32_t *shares)
{
	hr__mixture_init(&mix, weights, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(mix.shares[i], shares[i]);
}

static void shares_by_weight(void **state)
{
	static const double one[] = {0.001}, thirds[] = {5, 5, 5}, tiny[] = {1, 1e-9, 1e-300};
	static const double huge[] = {1e308, 1e308, 1.5e308}, mostly[] = {7, 2, 1};
	static const uint32_t one_s[] = {65536}, thirds_s[] = {21846, 21845, 21845};
	static const uint32_t tiny_s[] = {65534, 1, 1}, huge_s[] = {18725, 18724, 28087};
	static const uint32_t mostly_s[] = {45875, 13107, 6554};

	expect_shares(one, 1, one_s);
	expect_shares(thirds, 3, thirds_s);
	expect_shares(tiny, 3, tiny_s);
	expect_shares(huge, 3, huge_s);
	expect_shares(mostly, 3, mostly_s);
}

/* Each kid's places are an even rake: at no point of the block is it more than one ahead or behind. */
static void check_pattern(const double *weights, uint32_t n)
{
	uint32_t so_far[HR__MIX_KIDS] = {0};
	uint32_t sum = 0;

	hr__mixture_init(&mix, weights, n);
	for (uint32_t i = 0; i < n; i++)
		sum += mix.shares[i];
	assert_int_equal(sum, HR__MIX_BLOCK);
	for (uint32_t i = 0; i < HR__MIX_BLOCK; i++) {
		assert_true(mix.kid[i] < n);
		assert_int_equal(mix.rank[i], so_far[mix.kid[i]]++);
	}
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(so_far[i], mix.shares[i]);
}

/* The shares by the rule itself: within one of exact, unless a tiny one had to be made 1. */
static void check_rounding(const double *weights, uint32_t n)
{
	double sum = 0;
	bool raised = false;

	for (uint32_t i = 0; i < n; i++)
		sum += weights[i];
	for (uint32_t i = 0; i < n; i++)
		raised = raised || weights[i] / sum * HR__MIX_BLOCK < 1;
	for (uint32_t i = 0; i < n; i++) {
		double exact = weights[i] / sum * HR__MIX_BLOCK;

		assert_true(mix.shares[i] >= 1);
		if (!raised)
			assert_true(fabs(mix.shares[i] - exact) < 1 + 1e-6);
		for (uint32_t j = 0; j < i && !raised; j++) /* more weight, never less of it */
			assert_true(weights[i] < weights[j] || mix.shares[i] + 1 >= mix.shares[j]);
	}
}

static void patterns(void **state)
{
	static double weights[HR__MIX_KIDS];
	uint64_t x = 3;

	for (uint32_t n = 1; n <= HR__MIX_KIDS; n += 1 + n / 2) {
		for (uint32_t i = 0; i < n; i++)
			weights[i] = 1 + (double)(test_random(&x) % 1000);
		check_pattern(weights, n);
		check_rounding(weights, n);
		for (uint32_t i = 0; i < n; i++)
			weights[i] = exp((double)(test_random(&x) % 100) - 50);
		check_pattern(weights, n);
		check_rounding(weights, n);
	}
	for (uint32_t i = 0; i < HR__MIX_KIDS; i++)
		weights[i] = i ? 1e-300 : 1;
	check_pattern(weights, HR__MIX_KIDS);
	assert_int_equal(mix.shares[0], HR__MIX_BLOCK - (HR__MIX_KIDS - 1));
}

/* A stripe's kids are those of the pattern, and ranks grow from stripe to stripe as positions do. */
static void stripes(void **state)
{
	static const double weights[] = {7, 2, 1, 0.0001};
	uint32_t next[4] = {0};
	struct hr__stripe stripe;

	hr__mixture_init(&mix, weights, 4);
	for (uint32_t s = 0; s < HR__MIX_BLOCK / HR__MIX_STRIPE; s++) {
		uint32_t before[4];

		memcpy(before, next, sizeof(before));
		hr__mixture_stripe(&mix, s, s % 16 == 0, s * 77, &stripe);
		for (uint32_t i = 0; i < HR__MIX_STRIPE; i++)
			assert_int_equal(stripe.rank[i], next[stripe.kid[i]]++);
		for (uint32_t k = 0; k < 4; k++) {
			double share = mix.shares[k] / 256.0;

			assert_true(fabs(next[k] - before[k] - share) <= 2);
		}
		if (s % 16 == 0)
			assert_memory_equal(stripe.kid, mix.kid + s * HR__MIX_STRIPE,
					    sizeof(stripe.kid));
	}
}

/* Each place of a stripe is a kid's as often as its share says, for keys that follow one another. */
static void places_are_even(void **state)
{
	enum { KEYS = 20000 };
	static const double weights[] = {3, 1};
	static uint32_t counts[HR__MIX_STRIPE], pairs[HR__MIX_STRIPE];
	struct hr__stripe stripe;
	uint32_t draws = 0, paired = 0;

	memset(counts, 0, sizeof(counts));
	hr__mixture_init(&mix, weights, 2);
	for (uint64_t key = 0; key < KEYS; key++) {
		uint32_t last = HR__MIX_STRIPE;

		hr__mixture_stripe(&mix, 5, false, hr__perm_key(3, key), &stripe);
		for (uint32_t i = 0; i < HR__MIX_STRIPE; i++) {
			if (stripe.kid[i] == 0)
				continue;
			counts[i]++;
			draws++;
			if (last < i && i - last < 8) {
				pairs[i - last]++;
				paired++;
			}
			last = i;
		}
	}
	/* A quarter of the places without putting back: three quarters of the usual variance. */
	for (uint32_t i = 0; i < HR__MIX_STRIPE; i++)
		assert_true(fabs(counts[i] - KEYS / 4.0) < 6 * sqrt(KEYS * 3 / 16.0));
	assert_int_equal(draws, KEYS * 64);
	/* Gaps fall off by three quarters each: a rake would have gaps of four only. */
	for (uint32_t gap = 1; gap < 7; gap++)
		assert_true(fabs((double)pairs[gap + 1] / pairs[gap] - 0.75) < 0.02);
	assert_true(paired > 0);
}

/* -- the order of a mixture ------------------------------------------------------------------- */

static struct hr_dataset *three_kids(const double *weights, uint64_t epoch)
{
	static const uint64_t a[] = {30, 40}, b[] = {1000}, c[] = {3, 3, 3, 3};
	static const uint64_t chosen[] = {0, 1, 2, 11};
	struct hr_dataset *kids[] = {fake_files(a, 2), fake_files(b, 1),
				     fake_selection(fake_files(c, 4), chosen, 4)};

	return fake_mixture(kids, weights, 3, epoch);
}

/*
 * Walk over epochs one position after the other. Of each kid, every n samples are all of its samples;
 * every aligned block has its share; and files are read in order where nothing is shuffled.
 */
static void expect_walk(struct hr_loader_options opts, uint64_t epoch_len, uint64_t positions)
{
	static const double weights[] = {5, 4, 1};
	struct hr_dataset *ds = three_kids(weights, epoch_len);
	struct orderly o = orderly_open(ds, opts);
	uint64_t taken[3] = {0}, in_block[3] = {0};
	uint8_t *seen = calloc(1, ds->info.samples);
	uint64_t n = epoch_len ? epoch_len : ds->info.samples, repeats = 0;

	hr__mixture_init(&mix, weights, 3);
	assert_int_equal(hr__order_plan_samples(o.plan), n);
	for (uint64_t g = 0; g < positions; g++) {
		uint64_t id = orderly_at(o, g / n, g % n);
		uint32_t kid = hr__last_from(ds->kid_first, 3, id);
		uint64_t size = ds->kids[kid]->info.samples, nth = taken[kid]++;

		assert_true(id < ds->info.samples);
		if (nth % size == 0) { /* used up: begins again */
			memset(seen + ds->kid_first[kid], 0, size);
			repeats++;
		}
		assert_int_equal(seen[id], 0);
		seen[id] = 1;
		if (opts.shuffle == HR_SHUFFLE_NONE)
			assert_int_equal(id - ds->kid_first[kid], nth % size);
		in_block[kid]++;
		if (g % HR__MIX_BLOCK == HR__MIX_BLOCK - 1) {
			for (uint32_t k = 0; k < 3; k++)
				assert_int_equal(in_block[k], mix.shares[k]);
			memset(in_block, 0, sizeof(in_block));
		}
	}
	assert_true(repeats > 3);
	free(seen);
	orderly_close(o);
	fake_free(ds);
}

static void walks(void **state)
{
	for (int shuffle = HR_SHUFFLE_FULL; shuffle <= HR_SHUFFLE_WINDOW; shuffle++) {
		struct hr_loader_options opts = {.shuffle = (enum hr_shuffle)shuffle, .seed = 11};

		expect_walk(opts, 0, 70000);
		expect_walk(opts, 1, 3000);
		expect_walk(opts, 65536, 140000);
		expect_walk(opts, 100001, 200002);
	}
}

/* Runs of any length from anywhere are what they are one by one, in and across stripes. */
static void runs_are_positions(void **state)
{
	static const double weights[] = {5, 4, 1};
	struct hr_dataset *ds = three_kids(weights, 1000);
	struct hr_loader_options opts = {.shuffle = HR_SHUFFLE_WINDOW, .window = 1, .seed = 3};
	struct orderly a = orderly_open(ds, opts), b = orderly_open(ds, opts);
	uint64_t x = 9, out[301];

	for (int k = 0; k < 300; k++) {
		uint64_t epoch = test_random(&x) % 1000, first = test_random(&x) % 1000;
		uint32_t n = (uint32_t)(test_random(&x) % hr__min(301, 1001 - first));

		out[n] = 12345;
		hr__order_begin(a.order, epoch);
		hr__order_run(a.order, first, n, out);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(out[i], orderly_at(b, epoch, first + i));
		assert_int_equal(out[n], 12345);
	}
	orderly_close(a);
	orderly_close(b);
	fake_free(ds);
}

/* Passes through a kid differ, and so do two kids that are the same files. */
static void passes_differ(void **state)
{
	static const double weights[] = {1, 1};
	struct hr_dataset *kids[] = {fake_file(5000), fake_file(5000)};
	struct hr_dataset *ds = fake_mixture(kids, weights, 2, 0);
	struct hr_loader_options opts = {.seed = 4};
	struct orderly o = orderly_open(ds, opts);
	static uint64_t order[4][5000];
	uint64_t taken[2] = {0};

	for (uint64_t g = 0; g < 20000; g++) {
		uint64_t id = orderly_at(o, g / 10000, g % 10000), kid = id / 5000;

		if (taken[kid] < 10000)
			order[2 * kid + taken[kid] / 5000][taken[kid] % 5000] = id % 5000;
		taken[kid]++;
	}
	for (int a = 0; a < 4; a++) {
		for (int b = a + 1; b < 4; b++) {
			int same = 0;

			for (int i = 0; i < 5000; i++)
				same += order[a][i] == order[b][i];
			assert_true(same < 10);
		}
	}
	orderly_close(o);
	fake_free(ds);
}

/* The largest numbers there are: no overflow, all in range, and the shares still right. */
static void enormous(void **state)
{
	static const double weights[] = {3, 1};
	struct hr_dataset *kids[] = {fake_file(1ull << 53), fake_file(7)};
	struct hr_dataset *ds = fake_mixture(kids, weights, 2, 1ull << 62);
	struct hr_loader_options opts = {.seed = 4};
	struct orderly o = orderly_open(ds, opts);
	static uint64_t ids[HR__MIX_BLOCK];
	uint64_t small = 0;

	hr__order_begin(o.order, 1ull << 62);
	hr__order_run(o.order, (1ull << 62) - HR__MIX_BLOCK, HR__MIX_BLOCK, ids);
	for (uint32_t i = 0; i < HR__MIX_BLOCK; i++) {
		assert_true(ids[i] < (1ull << 53) + 7);
		small += ids[i] >= 1ull << 53;
	}
	assert_int_equal(small, HR__MIX_BLOCK / 4);
	orderly_close(o);
	fake_free(ds);
}

/* Written down once; a change here breaks every saved state in the world. */
static void vectors_never_change(void **state)
{
	static const double weights[] = {5, 4, 1};
	static const struct {
		uint64_t epoch, position, ids[3]; /* full, none, window 1 */
	} vectors[] = {
		{0u, 0u, {14, 0, 0}},
		{0u, 1u, {36, 70, 7}},
		{0u, 500u, {894, 40, 915}},
		{1u, 1073u, {24, 23, 35}},
		{60u, 900u, {812, 50, 398}},
		{1099511627776u, 3u, {11, 647, 2}},
		{18446744073709551615u, 1000u, {6, 456, 56}},
	};
	struct hr_dataset *ds = three_kids(weights, 0);

	for (int shuffle = HR_SHUFFLE_FULL; shuffle <= HR_SHUFFLE_WINDOW; shuffle++) {
		struct hr_loader_options opts = {.shuffle = (enum hr_shuffle)shuffle,
						 .seed = 42,
						 .window = shuffle == HR_SHUFFLE_WINDOW};
		struct orderly o = orderly_open(ds, opts);

		for (size_t i = 0; i < HR_ARRAY_LEN(vectors); i++)
			assert_int_equal(orderly_at(o, vectors[i].epoch, vectors[i].position),
					 vectors[i].ids[shuffle]);
		orderly_close(o);
	}
	fake_free(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_by_weight),
		cmocka_unit_test(patterns),
		cmocka_unit_test(stripes),
		cmocka_unit_test(places_are_even),
		cmocka_unit_test(walks),
		cmocka_unit_test(runs_are_positions),
		cmocka_unit_test(passes_differ),
		cmocka_unit_test(enormous),
		cmocka_unit_test(vectors_never_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

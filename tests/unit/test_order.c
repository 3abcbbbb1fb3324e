/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order - the order of samples: every epoch of every shuffle is a permutation; windows keep to their
 * shards, of files, large files, selections; fixed vectors; chi-square of windows and of 2^40 samples
 * that exist nowhere. Mixtures are in test_mixture.c, runs that stop and go on in test_resume.c.
 *
 * The statistics are of fixed seeds, so they pass always or never.
 */
#include "loader/shards.h"
#include "order_fixture.h"

static const struct hr_loader_options full = {.seed = 5, .shuffle = HR_SHUFFLE_FULL};
static const struct hr_loader_options none = {.seed = 5, .shuffle = HR_SHUFFLE_NONE};

static struct hr_loader_options windows(uint32_t window)
{
	return (struct hr_loader_options){
		.seed = 5, .shuffle = HR_SHUFFLE_WINDOW, .window = window};
}

/* All of an epoch, each sample once; in runs of any length, forwards and back, and by another scratch. */
static void expect_permutation(const struct hr_dataset *ds, struct hr_loader_options opts,
			       uint64_t epoch)
{
	uint64_t n = ds->info.samples, *ids = malloc(n * sizeof(*ids)), x = n;
	struct orderly o = orderly_open(ds, opts);
	struct hr__order *other = hr__order_new(o.plan);
	unsigned char *seen = calloc(n, 1);

	assert_int_equal(hr__order_plan_samples(o.plan), n);
	hr__order_begin(o.order, epoch);
	hr__order_run(o.order, 0, (uint32_t)n, ids);
	for (uint64_t i = 0; i < n; i++) {
		assert_true(ids[i] < n);
		assert_int_equal(seen[ids[i]]++, 0);
	}
	hr__order_begin(other, epoch + 1);
	for (int k = 0; k < 50; k++) {
		uint64_t first = test_random(&x) % n, out[40];
		uint32_t count = (uint32_t)(test_random(&x) % hr__min(40, n - first + 1));

		hr__order_begin(other, epoch);
		out[count ? count - 1 : 0] = 12345;
		hr__order_run(other, first, count, out);
		assert_memory_equal(out, ids + first, count * sizeof(*out));
	}
	free(ids);
	free(seen);
	hr__order_free(other);
	orderly_close(o);
}

/* How many shards are begun and not used up, at the most. */
static uint32_t most_open(const struct hr_dataset *ds, const struct hr__shards *shards,
			  struct hr_loader_options opts, uint64_t epoch)
{
	struct orderly o = orderly_open(ds, opts);
	uint64_t *left = calloc(shards->n, sizeof(*left));
	uint32_t open = 0, most = 0;

	for (uint64_t i = 0; i < ds->info.samples; i++) {
		uint32_t k = hr__last_from(shards->first, shards->n, orderly_at(o, epoch, i));

		if (!left[k]) {
			left[k] = shards->first[k + 1] - shards->first[k];
			open++;
		}
		most = open > most ? open : most;
		open -= --left[k] == 0;
	}
	assert_int_equal(open, 0);
	free(left);
	orderly_close(o);
	return most;
}

static void check_dataset(const struct hr_dataset *ds)
{
	struct hr__shards shards;

	expect_permutation(ds, full, 0);
	expect_permutation(ds, none, 3);
	assert_int_equal(hr__shards_find(ds, &shards), 0);
	assert_int_equal(shards.first[0], 0);
	assert_int_equal(shards.first[shards.n], ds->info.samples);
	for (uint32_t i = 0; i < shards.n; i++)
		assert_true(shards.first[i] < shards.first[i + 1]);
	for (uint32_t window = 1; window <= shards.n + 1; window += 1 + window / 3) {
		for (uint64_t epoch = 0; epoch < 3; epoch++)
			expect_permutation(ds, windows(window), epoch);
		assert_true(most_open(ds, &shards, windows(window), 1) <= window);
	}
	free(shards.first);
}

static void files_of_all_sizes(void **state)
{
	uint64_t x = 1, counts[40];

	for (uint32_t n = 1; n <= 40; n += 1 + n / 4) {
		struct hr_dataset *ds;

		for (uint32_t i = 0; i < n; i++)
			counts[i] = 1 + test_random(&x) % (i % 3 ? 30 : 900);
		ds = fake_files(counts, n);
		check_dataset(ds);
		fake_free(ds);
	}
}

static void expect_shards(const struct hr_dataset *ds, const uint64_t *first, uint32_t n)
{
	struct hr__shards shards;

	assert_int_equal(hr__shards_find(ds, &shards), 0);
	assert_int_equal(shards.n, n);
	assert_memory_equal(shards.first, first, n * sizeof(*first));
	assert_int_equal(shards.first[n], ds->info.samples);
	free(shards.first);
}

static void large_files_are_several(void **state)
{
	static const uint64_t counts[] = {10, 65536, 65537, 200001, 1};
	static const uint64_t first[] = {0,      10,     65546,  98315, 131083,
					 181084, 231084, 281084, 331084};
	struct hr_dataset *ds = fake_files(counts, 5);
	struct hr__shards shards;

	expect_shards(ds, first, 9);
	assert_int_equal(hr__shards_find(ds, &shards), 0);
	expect_permutation(ds, windows(2), 0);
	assert_true(most_open(ds, &shards, windows(2), 0) <= 2);
	free(shards.first);
	fake_free(ds);
	/* bounded, also of what is enormous */
	ds = fake_file(1ull << 62);
	assert_int_equal(hr__shards_find(ds, &shards), 0);
	assert_int_equal(shards.n, 1 << 18);
	free(shards.first);
	fake_free(ds);
}

static void selections(void **state)
{
	static const uint64_t counts[] = {10, 1, 100, 5};
	static const uint64_t in_order[] = {3, 1, 9, 10, 10, 100, 12, 112, 115};
	static const uint64_t first[] = {0, 3, 5, 7};
	static const uint64_t back[] = {3, 11, 9, 115}, whole[] = {0};
	static const uint64_t inner[] = {2, 2, 3, 4, 8, 7, 8}, inner_first[] = {0, 2, 4};
	struct hr_dataset *ds = fake_selection(fake_files(counts, 4), in_order, 9);

	expect_shards(ds, first, 4);
	check_dataset(ds);
	ds = fake_selection(ds, inner, 7);
	expect_shards(ds, inner_first, 3);
	check_dataset(ds);
	fake_free(ds);
	ds = fake_selection(fake_files(counts, 4), back, 4);
	expect_shards(ds, whole, 1);
	check_dataset(ds);
	fake_free(ds);
}

/* Not in order and large: cut evenly. */
static void a_large_selection(void **state)
{
	enum { N = 150000 };
	static const uint64_t counts[] = {100, 100}, first[] = {0, 50000, 100000};
	uint64_t *ids = malloc(N * sizeof(*ids));
	struct hr_dataset *ds;

	for (uint64_t i = 0; i < N; i++)
		ids[i] = i * 7 % 200;
	ds = fake_selection(fake_files(counts, 2), ids, N);
	expect_shards(ds, first, 3);
	expect_permutation(ds, windows(1), 0);
	fake_free(ds);
	free(ids);
}

/* A selection of a mixture is no mixture: its numbers go through the files of all. */
static void selection_of_a_mixture(void **state)
{
	static const uint64_t counts[] = {3, 4}, ids[] = {0, 2, 3, 6, 7, 9, 10, 13};
	static const uint64_t first[] = {0, 2, 4, 6};
	static const double weights[] = {1, 2};
	struct hr_dataset *kids[] = {fake_files(counts, 2), fake_files(counts, 2)};
	struct hr_dataset *ds = fake_selection(fake_mixture(kids, weights, 2, 0), ids, 8);

	expect_shards(ds, first, 4);
	check_dataset(ds);
	fake_free(ds);
}

static void options(void **state)
{
	struct hr_loader_options opts = {.window = 3};
	struct hr_dataset *ds = fake_file(10);
	struct hr__order_plan *plan = (void *)0x1;
	struct orderly o;

	assert_int_equal(hr__order_plan_new(ds, &opts, &plan), -EINVAL);
	assert_non_null(strstr(hr_error_detail(), "window 3"));
	opts = (struct hr_loader_options){.shuffle = 3};
	assert_int_equal(hr__order_plan_new(ds, &opts, &plan), -EINVAL);
	assert_ptr_equal(plan, (void *)0x1);
	o = orderly_open(ds, windows(0));
	assert_int_equal(hr__order_plan_window(o.plan), 16);
	orderly_close(o);
	o = orderly_open(ds, windows(UINT32_MAX));
	assert_int_equal(hr__order_plan_window(o.plan), UINT32_MAX);
	orderly_at(o, 0, 9);
	orderly_close(o);
	o = orderly_open(ds, full);
	assert_int_equal(hr__order_plan_window(o.plan), 0);
	orderly_close(o);
	hr__order_free(NULL);
	hr__order_plan_free(NULL);
	fake_free(ds);
}

/* Files of one size: each sample is as likely as any other at each place, and beside any other. */
static void windows_are_even(void **state)
{
	enum { FILES = 20, EACH = 15, N = FILES * EACH, DRAWS = N * 40 };
	static const uint32_t sizes[] = {1, 3, 16, 20};
	uint64_t counts[FILES];
	struct hr_dataset *ds;

	for (int i = 0; i < FILES; i++)
		counts[i] = EACH;
	ds = fake_files(counts, FILES);
	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		struct orderly o = orderly_open(ds, windows(sizes[s]));
		uint32_t first[N] = {0}, middle[N] = {0}, last[N] = {0}, files[FILES] = {0};

		for (uint64_t e = 0; e < DRAWS; e++) {
			uint64_t a = orderly_at(o, e, 0), b = orderly_at(o, e, N - 1);

			first[a]++;
			middle[orderly_at(o, e, N / 2)]++;
			last[b]++;
			files[(a / EACH + FILES - b / EACH) % FILES]++;
		}
		expect_even(first, N, DRAWS, "first");
		expect_even(middle, N, DRAWS, "middle");
		expect_even(last, N, DRAWS, "last");
		if (sizes[s] < FILES && FILES % sizes[s] == 0) /* never of one window: never 0 */
			expect_even(files + 1, FILES - 1, DRAWS, "files of first and last");
		orderly_close(o);
	}
	fake_free(ds);
}

/* Within a window of many samples, neighbours have nothing to do with each other. */
static void neighbours_in_a_window(void **state)
{
	enum { FILES = 30, EACH = 5000, N = FILES * EACH, CELLS = 100 };
	uint64_t counts[FILES];
	struct hr_dataset *ds;
	struct orderly o;

	for (int i = 0; i < FILES; i++)
		counts[i] = EACH;
	ds = fake_files(counts, FILES);
	o = orderly_open(ds, windows(10));
	for (uint64_t lag = 1; lag <= 4; lag++) {
		uint32_t distances[CELLS] = {0};
		uint64_t draws = 0;

		for (uint64_t i = 0; i + lag < 10 * EACH; i++, draws++) {
			uint64_t d = orderly_at(o, lag, i) % EACH + EACH -
				     orderly_at(o, lag, i + lag) % EACH;

			distances[d % EACH * CELLS / EACH]++;
		}
		expect_even(distances, CELLS, draws, "distances");
	}
	orderly_close(o);
	fake_free(ds);
}

/* Positions all over 2^40 samples, of which there is nothing in memory but the shards' numbers. */
static void two_to_the_fortieth(void **state)
{
	enum { DRAWS = 100000, CELLS = 256 };
	static const uint64_t n = 1ull << 40;
	struct hr_loader_options all[] = {full, windows(64), none};
	struct hr_dataset *ds = fake_file(n);

	for (int k = 0; k < 3; k++) {
		struct orderly o = orderly_open(ds, all[k]);
		uint32_t counts[CELLS] = {0}, low[CELLS] = {0};

		for (uint64_t i = 0; i < DRAWS; i++) {
			uint64_t id = orderly_at(o, 7, i * (n / DRAWS));

			assert_true(id < n);
			counts[id / (n / CELLS)]++;
			low[id % CELLS]++;
		}
		if (k == 0)
			expect_even(counts, CELLS, DRAWS, "2^40, high bits");
		if (k < 2)
			expect_even(low, CELLS, DRAWS, "2^40, low bits");
		if (k == 2)
			assert_int_equal(orderly_at(o, 1, 12345678901), 12345678901);
		orderly_close(o);
	}
	fake_free(ds);
}

/* Written down once; a change here breaks every saved state in the world. */
static void vectors_never_change(void **state)
{
	static const uint64_t counts[] = {7, 100, 31, 500, 2};
	static const struct {
		uint64_t seed, epoch, position, id;
		uint32_t window;
	} vectors[] = {
		{0u, 0u, 0u, 133u, 1u},
		{42u, 3u, 100u, 201u, 1u},
		{7u, 1u, 639u, 189u, 2u},
		{7u, 2u, 320u, 345u, 2u},
		{18446744073709551615u, 18446744073709551615u, 17u, 28u, 4u},
		{1u, 0u, 500u, 628u, 5u},
	};
	struct hr_dataset *ds = fake_files(counts, 5);

	for (size_t i = 0; i < HR_ARRAY_LEN(vectors); i++) {
		struct hr_loader_options opts = windows(vectors[i].window);
		struct orderly o;

		opts.seed = vectors[i].seed;
		o = orderly_open(ds, opts);
		assert_int_equal(orderly_at(o, vectors[i].epoch, vectors[i].position),
				 vectors[i].id);
		orderly_close(o);
	}
	fake_free(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_all_sizes),
		cmocka_unit_test(large_files_are_several),
		cmocka_unit_test(selections),
		cmocka_unit_test(a_large_selection),
		cmocka_unit_test(selection_of_a_mixture),
		cmocka_unit_test(options),
		cmocka_unit_test(windows_are_even),
		cmocka_unit_test(neighbours_in_a_window),
		cmocka_unit_test(two_to_the_fortieth),
		cmocka_unit_test(vectors_never_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

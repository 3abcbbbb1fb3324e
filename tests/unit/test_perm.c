/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_perm - the keyed permutation: bijection for every kind of n, fixed vectors (old states must keep
 * their meaning), even use of all permutations, positions and distances by chi-square.
 *
 * The statistics are of fixed seeds, so they pass always or never.
 */
#include "loader/perm.h"
#include "order_fixture.h"

static uint64_t perm_at(const struct hr__perm *perm, uint64_t position)
{
	uint64_t out;

	hr__perm_run(perm, position, 1, &out);
	return out;
}

static void expect_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
	unsigned char *seen = calloc(n, 1);
	struct hr__perm perm;

	assert_non_null(seen);
	hr__perm_init(&perm, n, hr__perm_key(seed, epoch));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t id = perm_at(&perm, i);

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
		struct hr__perm perm;

		hr__perm_init(&perm, n, hr__perm_key(7, 9));
		for (uint32_t count = 0; count <= hr__min(n, 100); count++) {
			uint64_t first = count % 2 ? n - count : (n - count) / 3;

			out[count] = 12345;
			hr__perm_run(&perm, first, count, out);
			for (uint32_t k = 0; k < count; k++)
				assert_int_equal(out[k], perm_at(&perm, first + k));
			assert_int_equal(out[count], 12345);
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
	struct hr__perm perm;

	for (size_t i = 0; i < HR_ARRAY_LEN(vectors); i++) {
		hr__perm_init(&perm, vectors[i].n, hr__perm_key(vectors[i].seed, vectors[i].epoch));
		assert_int_equal(perm_at(&perm, vectors[i].position), vectors[i].id);
	}
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
	struct hr__perm perm;

	assert_non_null(ids);
	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		uint64_t step = sizes[s] / COUNT;

		hr__perm_init(&perm, sizes[s], hr__perm_key(7, s));
		for (uint64_t i = 0; i < COUNT; i++) {
			ids[i] = perm_at(&perm, i * step);
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
	struct hr__perm a, b;

	for (size_t i = 0; i < HR_ARRAY_LEN(keys); i++) {
		for (size_t j = i + 1; j < HR_ARRAY_LEN(keys); j++) {
			int same = 0;

			hr__perm_init(&a, N, hr__perm_key(keys[i][0], keys[i][1]));
			hr__perm_init(&b, N, hr__perm_key(keys[j][0], keys[j][1]));
			for (uint64_t p = 0; p < N; p++)
				same += perm_at(&a, p) == perm_at(&b, p);
			/* by chance one on average; ten happens once in 10^7 */
			assert_true(same < 10);
		}
	}
}

/* Tiny n: every one of the n! permutations, equally often over seeds and over epochs. */
static void all_permutations_are_reached(void **state)
{
	static const uint32_t factorial[] = {1, 1, 2, 6, 24, 120};
	struct hr__perm perm;

	for (uint64_t n = 2; n <= 5; n++) {
		for (int by_epoch = 0; by_epoch < 2; by_epoch++) {
			uint32_t counts[120] = {0};
			uint32_t draws = 200 * factorial[n];

			for (uint32_t k = 0; k < draws; k++) {
				uint32_t rank = 0;

				hr__perm_init(&perm, n,
					      hr__perm_key(by_epoch ? 42 : k, by_epoch ? k : 0));
				for (uint64_t i = 0; i < n; i++) {
					uint32_t smaller = 0;

					for (uint64_t j = i + 1; j < n; j++)
						smaller += perm_at(&perm, j) < perm_at(&perm, i);
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
	struct hr__perm perm;

	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		uint64_t n = sizes[s], draws = n * 40;
		static uint32_t first[1000], last[1000], pair[1000];

		memset(first, 0, sizeof(first));
		memset(last, 0, sizeof(last));
		memset(pair, 0, sizeof(pair));
		for (uint64_t e = 0; e < draws; e++) {
			uint64_t a, b;

			hr__perm_init(&perm, n, hr__perm_key(3, e));
			a = perm_at(&perm, 0);
			b = perm_at(&perm, n - 1);
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
	struct hr__perm perm;

	for (size_t s = 0; s < HR_ARRAY_LEN(sizes); s++) {
		for (uint64_t lag = 1; lag <= 4; lag++) {
			uint64_t n = sizes[s];
			uint32_t counts[CELLS] = {0};

			hr__perm_init(&perm, n, hr__perm_key(11, lag));
			for (uint64_t i = 0; i + lag < n; i++) {
				uint64_t d = perm_at(&perm, i + lag) + n - perm_at(&perm, i);

				counts[d % n * CELLS / n]++;
			}
			expect_even(counts, CELLS, n - lag, "distance of neighbours");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_are_positions),
		cmocka_unit_test(every_n_is_a_bijection),
		cmocka_unit_test(vectors_never_change),
		cmocka_unit_test(huge_n_random_access),
		cmocka_unit_test(epochs_and_seeds_differ),
		cmocka_unit_test(all_permutations_are_reached),
		cmocka_unit_test(positions_are_even),
		cmocka_unit_test(neighbours_are_unrelated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

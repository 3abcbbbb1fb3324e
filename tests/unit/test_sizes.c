/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sizes - what the largest values of a field have together, told from counts per class, against a
 * plain sum over all of them: never too small, at most an eighth too large, growing with each argument.
 */
#include "base/sizes.h"
#include "base/util.h"
#include "support/support.h"

#define VALUES 60u

/* What the class of @len is taken for: beside one longer value, which is taken as it is. */
static uint64_t taken_for(uint64_t len)
{
	struct hr__sizes sizes = {.values = 0};

	hr__sizes_add(&sizes, len);
	hr__sizes_add(&sizes, UINT64_MAX / 2);
	return hr__sizes_largest(&sizes, 2, 1, 1) - UINT64_MAX / 2;
}

static void classes(void **state)
{
	uint64_t x = 1, before = 0;

	for (uint64_t len = 0; len < 5000; len++) {
		uint64_t got = taken_for(len);

		assert_true(got >= len && got <= len + len / 8);
		assert_true(got >= before);
		before = got;
	}
	for (int i = 0; i < 100000; i++) {
		uint64_t len = test_random(&x) >> (2 + test_random(&x) % 60), got = taken_for(len);

		assert_true(got >= len && got <= len + len / 8);
	}
	for (int bit = 0; bit < 62; bit++) {
		for (uint64_t len = (1ull << bit) - 1; len <= (1ull << bit) + 1; len++)
			assert_true(taken_for(len) >= len && taken_for(len) <= len + len / 8);
	}
}

/* The largest of all, each up to @repeats times, each rounded up. @lens: descending. */
static uint64_t plain_sum(const uint64_t *lens, uint32_t count, uint64_t n, uint64_t repeats,
			  uint64_t align, uint64_t eighths)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < count && n > 0; i++) {
		uint64_t take = hr__min(n, repeats);

		sum += take * hr__align_up(lens[i] + lens[i] * eighths / 8, align);
		n -= take;
	}
	return sum;
}

static int descending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y) - (x > y);
}

static void against_a_plain_sum(void **state)
{
	uint64_t x = 7, lens[VALUES];

	for (int round = 0; round < 3000; round++) {
		struct hr__sizes sizes = {.values = 0};
		uint32_t count = 1 + (uint32_t)(test_random(&x) % VALUES), low = round % 40;
		uint64_t n = test_random(&x) % 100, repeats = 1 + test_random(&x) % 5;
		uint64_t align = 1ull << test_random(&x) % 13, bytes = 0, got, want;

		for (uint32_t i = 0; i < count; i++) {
			lens[i] = test_random(&x) >> (16 + low);
			bytes += lens[i];
			hr__sizes_add(&sizes, lens[i]);
		}
		qsort(lens, count, sizeof(lens[0]), descending);
		assert_int_equal(sizes.values, count);
		assert_int_equal(sizes.bytes, bytes);
		assert_int_equal(sizes.max, lens[0]);
		got = hr__sizes_largest(&sizes, n, repeats, align);
		want = plain_sum(lens, count, n, repeats, align, 0);
		assert_true(got >= want);
		assert_true(got <= plain_sum(lens, count, n, repeats, align, 1));
		if (align == 1)
			assert_true(got <= want + want / 8);
		assert_true(hr__sizes_largest(&sizes, n + 1, repeats, align) >= got);
		assert_true(hr__sizes_largest(&sizes, n, repeats + 1, align) >= got);
		assert_true(hr__sizes_largest(&sizes, n, repeats, 2 * align) >= got);
		hr__sizes_add(&sizes, 100);
		assert_true(hr__sizes_largest(&sizes, n, repeats, align) >= got);
	}
}

static void joined_and_many(void **state)
{
	struct hr__sizes a = {.values = 0}, b = {.values = 0}, both = {.values = 0};
	uint64_t x = 5;

	for (int i = 0; i < 100; i++) {
		uint64_t len = test_random(&x) % 100000, n = test_random(&x) % 4;

		hr__sizes_add_many(i % 2 ? &a : &b, len, n);
		while (n-- > 0)
			hr__sizes_add(&both, len);
	}
	hr__sizes_join(&a, &b);
	assert_memory_equal(&a, &both, sizeof(a));
}

/* Sums that do not fit are said to be so, never wrapped. */
static void beyond_64_bits(void **state)
{
	struct hr__sizes sizes = {.values = 0};

	assert_int_equal(hr__sizes_largest(&sizes, UINT64_MAX, UINT64_MAX, 4096), 0);
	hr__sizes_add(&sizes, UINT64_MAX);
	assert_true(hr__sizes_largest(&sizes, 1, 1, 1) == UINT64_MAX);
	assert_true(hr__sizes_largest(&sizes, 2, 2, 1) == UINT64_MAX);
	assert_true(hr__sizes_largest(&sizes, 1, 1, 4096) == UINT64_MAX);
	sizes = (struct hr__sizes){.values = 0};
	hr__sizes_add(&sizes, 1ull << 62);
	hr__sizes_add(&sizes, 1ull << 62);
	assert_true(hr__sizes_largest(&sizes, 3, 2, 1) == 3ull << 62);
	assert_true(hr__sizes_largest(&sizes, 4, 2, 1) == UINT64_MAX);
	assert_true(hr__sizes_largest(&sizes, UINT64_MAX, UINT64_MAX, 1) == UINT64_MAX);
	/* more turns than there are values: all of them, each as often as it may be */
	sizes = (struct hr__sizes){.values = 0};
	hr__sizes_add_many(&sizes, 10, 3);
	assert_int_equal(hr__sizes_largest(&sizes, 1000, 2, 1), 60);
	assert_int_equal(hr__sizes_largest(&sizes, 1000, UINT64_MAX, 16), 16000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(classes),
		cmocka_unit_test(against_a_plain_sum),
		cmocka_unit_test(joined_and_many),
		cmocka_unit_test(beyond_64_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

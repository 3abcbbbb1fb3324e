/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast - hr__cast() against a loop over bytes: all pairs of types, all alignments 0..15 of
 * both ends, lengths around the vectors' widths, guard bytes on both sides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mem/mem.h"

#define GUARD 32
#define ELEMENTS_MAX 70

/* The value of an element by its bytes alone, little end first. */
static void cast_by_bytes(uint8_t *dst, const uint8_t *src, uint64_t count, uint32_t from,
			  uint32_t to)
{
	for (uint64_t i = 0; i < count; i++) {
		for (uint32_t b = 0; b < to; b++)
			dst[i * to + b] = b < from ? src[i * from + b] : 0;
	}
}

static void check(enum hr_dtype from, enum hr_dtype to, uint32_t src_off, uint32_t dst_off,
		  uint32_t count)
{
	uint8_t src[ELEMENTS_MAX * 8 + 16], want[ELEMENTS_MAX * 8 + 16 + 2 * GUARD],
		got[sizeof(want)];
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);

	for (uint32_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 37 + 129);
	memset(want, 0xee, sizeof(want));
	memset(got, 0xee, sizeof(got));
	cast_by_bytes(want + GUARD + dst_off, src + src_off, count, from_size, to_size);
	hr__cast(got + GUARD + dst_off, src + src_off, (uint64_t)count * from_size, from, to);
	assert_memory_equal(got, want, sizeof(want));
}

static void test_all_pairs(void **state)
{
	static const uint32_t counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70};

	for (uint32_t from = 0; from < HR_DTYPE_COUNT_; from++) {
		for (uint32_t to = 0; to < HR_DTYPE_COUNT_; to++) {
			if (!hr_cast_ok((enum hr_dtype)from, (enum hr_dtype)to))
				continue;
			for (uint32_t at = 0; at < 256 * sizeof(counts) / sizeof(counts[0]); at++)
				check((enum hr_dtype)from, (enum hr_dtype)to, at % 16, at / 16 % 16,
				      counts[at / 256]);
		}
	}
}

/* The hot shape of a loader, one window of tokens, with every value of u16 somewhere. */
static void test_long(void **state)
{
	static uint16_t src[65536 + 1];
	static int64_t dst[65536 + 2];

	for (uint32_t i = 0; i < 65536; i++)
		src[i] = (uint16_t)i;
	dst[65536] = -7;
	hr__cast(dst, src, 65536 * sizeof(*src), HR_DTYPE_U16, HR_DTYPE_I64);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(dst[i], i);
	assert_int_equal(dst[65536], -7);
}

static void test_same_type_overlaps(void **state)
{
	char text[] = "abcdefgh";

	hr__cast(text + 2, text, 5, HR_DTYPE_BYTES, HR_DTYPE_BYTES);
	assert_string_equal(text, "ababcdeh");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_pairs),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_same_type_overlaps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast_x86 - hr__cast_wide() with each set of vectors that this processor has against the loop
 * over single elements of hr__cast(): all pairs, all values of 16 bits, 2^24 of 32 bits, also while
 * the program flushes subnormal numbers and rounds its own way.
 */
#include <immintrin.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mem/cast.h"
#include "mem/mem.h"
#include "support/cast_expected.h"

#define BLOCK 4096u

static void check_levels(const void *in, enum hr_dtype from, enum hr_dtype to)
{
	static uint8_t want[BLOCK * 8], got[BLOCK * 8 + 3];
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);

	for (uint32_t i = 0; i < BLOCK; i++)
		hr__cast(want + (size_t)i * to_size, (const uint8_t *)in + (size_t)i * from_size,
			 from_size, from, to);
	for (uint32_t level = 1; level <= hr__cast_level(); level++) {
		memset(got, 0, sizeof(got));
		assert_int_equal(hr__cast_wide(got + 3, in, BLOCK, from, to, level), BLOCK);
		assert_memory_equal(got + 3, want, (size_t)BLOCK * to_size);
	}
	assert_int_equal(hr__cast_wide(got, in, BLOCK, from, to, 0), 0);
}

/* Block @k of the inputs of a type of @size bytes. Numbers of 8 bytes: mostly such as f32 has. */
static void fill(uint8_t *in, uint32_t size, uint32_t k)
{
	static uint64_t x = 88172645463325252ull;

	for (uint32_t i = 0; i < BLOCK; i++) {
		uint64_t bits = k * BLOCK + i;

		if (size == 4)
			bits = cast_sample((uint32_t)bits);
		if (size == 8) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			bits = i % 8 ? (1023 - 160 + x % 300) << 52 | (x & 0x800fffffffffffff) : x;
		}
		memcpy(in + (size_t)i * size, &bits, size);
	}
}

static void check_inputs(void)
{
	static uint8_t in[BLOCK * 8];

	for (uint32_t from = 0; from < HR_DTYPE_COUNT_; from++) {
		uint32_t size = hr_dtype_size((enum hr_dtype)from);

		if (!*hr_cast_names((enum hr_dtype)from))
			continue;
		for (uint32_t k = 0; k < (size == 4 ? CAST_SAMPLES : 65536) / BLOCK; k++) {
			fill(in, size, k);
			for (uint32_t to = 0; to < HR_DTYPE_COUNT_; to++) {
				if (from != to &&
				    hr_cast_ok((enum hr_dtype)from, (enum hr_dtype)to))
					check_levels(in, (enum hr_dtype)from, (enum hr_dtype)to);
			}
		}
	}
}

static void test_levels(void **state)
{
	check_inputs();
}

/* Subnormal inputs taken for zero, subnormal results flushed, all rounded down. */
#define ODD_MXCSR (0x1f80u | 0x8000 | 0x40 | 0x2000)

static void test_flushing_program(void **state)
{
	unsigned int usual = _mm_getcsr();

	_mm_setcsr(ODD_MXCSR);
	check_inputs();
	assert_int_equal(_mm_getcsr(), ODD_MXCSR);
	_mm_setcsr(usual);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_flushing_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast - hr__cast() against cast_expected.h: all pairs of types, all alignments 0..15 of both
 * ends, lengths around the vectors' widths, guard bytes on both sides; of floating-point types all
 * values of 16 bits, 2^24 of 32 bits and what lies around each point of rounding.
 */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mem/mem.h"
#include "support/cast_expected.h"

#define GUARD 32
#define ELEMENTS_MAX 70

static void check(enum hr_dtype from, enum hr_dtype to, uint32_t src_off, uint32_t dst_off,
		  uint32_t count)
{
	uint8_t src[ELEMENTS_MAX * 8 + 16], want[ELEMENTS_MAX * 8 + 16 + 2 * GUARD],
		got[sizeof(want)];
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);

	for (uint32_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * i * 37 + i + 129);
	memset(want, 0xee, sizeof(want));
	memset(got, 0xee, sizeof(got));
	for (uint32_t i = 0; i < count; i++)
		cast_expected(want + GUARD + dst_off + (size_t)i * to_size,
			      src + src_off + (size_t)i * from_size, from, to);
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

#define BLOCK 4096u

/* Elements of @in at once, as vectors do it, and one by one, as they are told to. */
static void check_block(const void *in, uint32_t count, enum hr_dtype from, enum hr_dtype to)
{
	static uint8_t want[BLOCK * 8], got[BLOCK * 8], singly[BLOCK * 8];
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);

	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *src = (const uint8_t *)in + (size_t)i * from_size;

		cast_expected(want + (size_t)i * to_size, src, from, to);
		hr__cast(singly + (size_t)i * to_size, src, from_size, from, to);
	}
	hr__cast(got, in, (uint64_t)count * from_size, from, to);
	assert_memory_equal(singly, want, (size_t)count * to_size);
	assert_memory_equal(got, want, (size_t)count * to_size);
}

static void test_all_16_bits(void **state)
{
	static const enum hr_dtype pairs[][2] = {{HR_DTYPE_F16, HR_DTYPE_BF16},
						 {HR_DTYPE_F16, HR_DTYPE_F32},
						 {HR_DTYPE_BF16, HR_DTYPE_F16},
						 {HR_DTYPE_BF16, HR_DTYPE_F32}};
	uint16_t in[BLOCK];

	for (uint32_t p = 0; p < 4; p++) {
		for (uint32_t first = 0; first < 65536; first += BLOCK) {
			for (uint32_t i = 0; i < BLOCK; i++)
				in[i] = (uint16_t)(first + i);
			check_block(in, BLOCK, pairs[p][0], pairs[p][1]);
		}
	}
}

static const enum hr_dtype from_f32[] = {HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_F64};

static void test_dense_32_bits(void **state)
{
	uint32_t in[BLOCK];

	for (uint32_t first = 0; first < CAST_SAMPLES; first += BLOCK) {
		for (uint32_t i = 0; i < BLOCK; i++)
			in[i] = cast_sample(first + i);
		for (uint32_t t = 0; t < 3; t++)
			check_block(in, BLOCK, HR_DTYPE_F32, from_f32[t]);
	}
}

/* Each value of a type, the points half way to its neighbours, and one step beside all of them. */
static void check_around(enum hr_dtype to, uint32_t half)
{
	uint32_t in[BLOCK], n = 0;

	for (uint32_t h = 0; h < 65536; h++) {
		uint16_t value = (uint16_t)h;
		uint32_t wide;

		hr__cast(&wide, &value, sizeof(value), to, HR_DTYPE_F32);
		for (uint32_t k = 0; k < 8; k++) {
			static const int steps[] = {-1, 0, 1, -1, 0, 1, -2, 2};

			in[n++] = wide + (k < 3 || k == 6 ? 0 : half) + (uint32_t)steps[k];
		}
		if (n == BLOCK) {
			check_block(in, n, HR_DTYPE_F32, to);
			n = 0;
		}
	}
	assert_int_equal(n, 0);
}

static void test_points_of_rounding(void **state)
{
	/* Subnormals of f16 are further apart: their halves lie among the dense samples. */
	check_around(HR_DTYPE_F16, 1u << 12);
	check_around(HR_DTYPE_BF16, 1u << 15);
}

/* f64: all exponents, and around each point of rounding of some f32. */
static void test_64_bits(void **state)
{
	uint64_t in[BLOCK], x = 88172645463325252ull;

	for (uint32_t round = 0; round < 256; round++) {
		for (uint32_t i = 0; i < BLOCK; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			in[i] = x;
			if (round % 2) { /* an exponent that f32 has, subnormals included */
				uint64_t exponent = 1023 - 160 + (x >> 40) % 300;

				in[i] = exponent << 52 | (x & 0x800fffffe0000000);
				in[i] += (uint64_t)(x % 2) << 28;
				in[i] += (uint64_t)(x / 2 % 3) - 1;
			}
			if (round == 0)
				in[i] = (uint64_t)i << 52 | (x & 0xfffffffffffff);
		}
		check_block(in, BLOCK, HR_DTYPE_F64, HR_DTYPE_F32);
	}
}

static uint16_t half_of(uint32_t f)
{
	uint16_t h;

	hr__cast(&h, &f, sizeof(f), HR_DTYPE_F32, HR_DTYPE_F16);
	return h;
}

/* Known values, so that test and code cannot be wrong in the same way. */
static void test_known(void **state)
{
	assert_int_equal(half_of(0x3f800000), 0x3c00); /* 1 */
	assert_int_equal(half_of(0x80000000), 0x8000); /* -0 */
	assert_int_equal(half_of(0x477fe000), 0x7bff); /* 65504, the largest */
	assert_int_equal(half_of(0x477fefff), 0x7bff); /* just below 65520 */
	assert_int_equal(half_of(0x477ff000), 0x7c00); /* 65520: Inf */
	assert_int_equal(half_of(0xff800000), 0xfc00); /* -Inf */
	assert_int_equal(half_of(0x33800000), 0x0001); /* 2^-24, the least */
	assert_int_equal(half_of(0x33000000), 0x0000); /* half of it: the even one */
	assert_int_equal(half_of(0x33000001), 0x0001);
	assert_int_equal(half_of(0x33c00000), 0x0002); /* 1.5 of it: the even one */
	assert_int_equal(half_of(0x387fe000), 0x0400); /* carries into the normal numbers */
	assert_int_equal(half_of(0x7f800001), 0x7e00); /* a signalling NaN of least payload */
	assert_int_equal(half_of(0xffc02000), 0xfe01);
}

static void test_signs(void **state)
{
	static const int8_t small[] = {-128, -1, 0, 127};
	static const int16_t middle[] = {-32768, -1, 0, 32767};
	static const int32_t large[] = {INT32_MIN, -1, 0, INT32_MAX};
	int32_t narrow[4];
	int64_t wide[4];

	hr__cast(narrow, small, sizeof(small), HR_DTYPE_I8, HR_DTYPE_I32);
	hr__cast(wide, small, sizeof(small), HR_DTYPE_I8, HR_DTYPE_I64);
	for (int i = 0; i < 4; i++)
		assert_true(narrow[i] == small[i] && wide[i] == small[i]);
	hr__cast(narrow, middle, sizeof(middle), HR_DTYPE_I16, HR_DTYPE_I32);
	hr__cast(wide, middle, sizeof(middle), HR_DTYPE_I16, HR_DTYPE_I64);
	for (int i = 0; i < 4; i++)
		assert_true(narrow[i] == middle[i] && wide[i] == middle[i]);
	hr__cast(wide, large, sizeof(large), HR_DTYPE_I32, HR_DTYPE_I64);
	for (int i = 0; i < 4; i++)
		assert_true(wide[i] == large[i]);
	assert_false(hr_cast_ok(HR_DTYPE_I32, HR_DTYPE_U32));
	assert_false(hr_cast_ok(HR_DTYPE_I64, HR_DTYPE_I32));
	assert_string_equal(hr_cast_names(HR_DTYPE_I32), "i64");
}

/* A program's own rounding and traps change nothing, and it finds no flag that is not its own. */
static void test_program_modes(void **state)
{
	static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
	static const uint32_t in[16] = {0x3f801000, 0xbf801000, 0x33000001, 0x7f800001,
					0x00000001, 0x80000001, 0x477ff000, 0x7f7fffff};
	uint8_t want[3][128], got[3][128];

	for (uint32_t t = 0; t < 3; t++)
		hr__cast(want[t], in, sizeof(in), HR_DTYPE_F32, from_f32[t]);
	for (uint32_t m = 0; m < 3; m++) {
		memset(got, 0, sizeof(got));
		feclearexcept(FE_ALL_EXCEPT);
		feenableexcept(FE_ALL_EXCEPT);
		fesetround(modes[m]);
		for (uint32_t t = 0; t < 3; t++)
			hr__cast(got[t], in, sizeof(in), HR_DTYPE_F32, from_f32[t]);
		fedisableexcept(FE_ALL_EXCEPT);
		assert_int_equal(fegetround(), modes[m]);
		fesetround(FE_TONEAREST);
		assert_int_equal(fetestexcept(FE_ALL_EXCEPT), 0);
		for (uint32_t t = 0; t < 3; t++)
			assert_memory_equal(got[t], want[t], 16 * hr_dtype_size(from_f32[t]));
	}
}

static void test_names(void **state)
{
	for (uint32_t from = 0; from < HR_DTYPE_COUNT_ + 2; from++) {
		for (uint32_t to = 0; to < HR_DTYPE_COUNT_; to++) {
			char text[64], name[16];

			if (from == to)
				continue;
			snprintf(text, sizeof(text), " %s,", hr_cast_names((enum hr_dtype)from));
			snprintf(name, sizeof(name), " %s,", hr_dtype_name((enum hr_dtype)to));
			assert_int_equal(strstr(text, name) != NULL,
					 hr_cast_ok((enum hr_dtype)from, (enum hr_dtype)to));
		}
	}
	assert_false(hr_cast_ok(HR_DTYPE_COUNT_, HR_DTYPE_COUNT_));
	assert_false(hr_cast_ok(HR_DTYPE_F8_E4M3, HR_DTYPE_F16));
	assert_true(hr_cast_ok(HR_DTYPE_F8_E4M3, HR_DTYPE_F8_E4M3));
	assert_string_equal(hr_cast_names(HR_DTYPE_F32), "f16, bf16, f64");
	assert_string_equal(hr_cast_names(HR_DTYPE_F4X2), "");
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
		cmocka_unit_test(test_all_16_bits),
		cmocka_unit_test(test_dense_32_bits),
		cmocka_unit_test(test_points_of_rounding),
		cmocka_unit_test(test_64_bits),
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_signs),
		cmocka_unit_test(test_program_modes),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_same_type_overlaps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

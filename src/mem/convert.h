/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/convert.h - one floating-point number to another format, bits in, bits out: C, C++ and the
 * GPU, no other header of ours. What the rules in headrace/dtype.h mean, said once.
 *
 * Integer arithmetic, so that neither the rounding mode nor flushing of subnormals, which a program
 * may have set for its own sums, plays a part. (The two products below are exact in any mode.)
 */
#ifndef HR_MEM_CONVERT_H
#define HR_MEM_CONVERT_H

#include <stdint.h>

#define HR__F64_EXPONENT(e) ((uint64_t)(e) << 52)

/* The rounded quotient of @v by 2^@shift, 1 <= shift < 64; the even one of two that lie as near. */
static inline uint64_t hr__shift_to_even(uint64_t v, uint32_t shift)
{
	return (v + (((uint64_t)1 << (shift - 1)) - 1) + (v >> shift & 1)) >> shift;
}

static inline uint32_t hr__f16_to_f32(uint32_t h)
{
	uint32_t sign = (h & 0x8000) << 16, exponent = h & 0x7c00, fraction = h & 0x3ff, out;

	if (exponent == 0x7c00)
		return sign | 0x7f800000 | (fraction ? 0x400000 | fraction << 13 : 0);
	if (!exponent) { /* a multiple of 2^-24 */
		float v = (float)(int32_t)fraction * (1.0f / 16777216.0f);

		__builtin_memcpy(&out, &v, sizeof(out));
		return sign | out;
	}
	return sign | (((exponent | fraction) << 13) + ((127 - 15) << 23));
}

static inline uint32_t hr__bf16_to_f32(uint32_t h)
{
	return h << 16 | ((h & 0x7fff) > 0x7f80 ? 0x400000 : 0);
}

static inline uint32_t hr__f32_to_f16(uint32_t f)
{
	uint32_t sign = f >> 16 & 0x8000, a = f & 0x7fffffff, shift;

	if (a > 0x7f800000)
		return sign | 0x7e00 | (a >> 13 & 0x1ff);
	if (a >= (127 + 16) << 23)
		return sign | 0x7c00;
	if (a >= (127 - 14) << 23) /* rounding may carry into the exponent, up to Inf */
		return sign | (uint32_t)hr__shift_to_even(a - ((127 - 15) << 23), 13);
	/* Subnormal: counted in units of 2^-24. From a shift of 25 on, nothing but 0 is left. */
	shift = 126 - (a >> 23);
	if (shift > 25)
		shift = 25;
	return sign | (uint32_t)hr__shift_to_even(0x800000 | (a & 0x7fffff), shift);
}

static inline uint32_t hr__f32_to_bf16(uint32_t f)
{
	if ((f & 0x7fffffff) > 0x7f800000)
		return f >> 16 | 0x40;
	return (f + 0x7fff + (f >> 16 & 1)) >> 16;
}

/* By way of f32, which holds every number of both: only the second step rounds. */
static inline uint32_t hr__f16_to_bf16(uint32_t h)
{
	return hr__f32_to_bf16(hr__f16_to_f32(h));
}

static inline uint32_t hr__bf16_to_f16(uint32_t h)
{
	return hr__f32_to_f16(hr__bf16_to_f32(h));
}

static inline uint64_t hr__f32_to_f64(uint32_t f)
{
	uint64_t sign = (uint64_t)(f & 0x80000000) << 32, out;
	uint32_t a = f & 0x7fffffff;

	if (a > 0x7f800000)
		return sign | HR__F64_EXPONENT(2047) | (uint64_t)(a & 0x7fffff) << 29 |
		       (uint64_t)1 << 51;
	if (a == 0x7f800000)
		return sign | HR__F64_EXPONENT(2047);
	if (a < 0x800000) { /* a multiple of 2^-149 */
		uint64_t unit_bits = HR__F64_EXPONENT(1023 - 149);
		double v;

		__builtin_memcpy(&v, &unit_bits, sizeof(v));
		v *= (double)(int32_t)a;
		__builtin_memcpy(&out, &v, sizeof(out));
		return sign | out;
	}
	return sign | (((uint64_t)a << 29) + HR__F64_EXPONENT(1023 - 127));
}

static inline uint32_t hr__f64_to_f32(uint64_t d)
{
	uint32_t sign = (uint32_t)(d >> 32) & 0x80000000;
	uint64_t a = d & ~((uint64_t)1 << 63), shift;

	if (a > HR__F64_EXPONENT(2047))
		return sign | 0x7fc00000 | (uint32_t)(a >> 29 & 0x3fffff);
	if (a >= HR__F64_EXPONENT(1023 + 128))
		return sign | 0x7f800000;
	if (a >= HR__F64_EXPONENT(1023 - 126))
		return sign | (uint32_t)hr__shift_to_even(a - HR__F64_EXPONENT(1023 - 127), 29);
	/* As above: units of 2^-149, nothing left from a shift of 54 on. */
	shift = 926 - (a >> 52);
	if (shift > 54)
		shift = 54;
	return sign |
	       (uint32_t)hr__shift_to_even(HR__F64_EXPONENT(1) | (a & (HR__F64_EXPONENT(1) - 1)),
					   (uint32_t)shift);
}

#endif

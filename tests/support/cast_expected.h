/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/cast_expected.h - what an element becomes, worked out from what the formats mean: values by
 * ldexp() and frexp(), rounding by rint(). Knows nothing of how the library does it.
 */
#ifndef CAST_EXPECTED_H
#define CAST_EXPECTED_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <headrace/dtype.h>

struct number_format {
	uint32_t exponent, fraction; /* bits */
};

/* All zero for what is no floating-point type. */
static inline struct number_format number_format(enum hr_dtype type)
{
	switch ((int)type) {
	case HR_DTYPE_F16:
		return (struct number_format){5, 10};
	case HR_DTYPE_BF16:
		return (struct number_format){8, 7};
	case HR_DTYPE_F32:
		return (struct number_format){8, 23};
	case HR_DTYPE_F64:
		return (struct number_format){11, 52};
	default:
		return (struct number_format){0, 0};
	}
}

static inline int number_least_exponent(struct number_format f)
{
	return 2 - (1 << (f.exponent - 1));
}

/* The number without its sign, finite. */
static inline double number_value(uint64_t bits, struct number_format f)
{
	uint64_t exponent = bits >> f.fraction, fraction = bits & ((1ull << f.fraction) - 1);
	int unit = number_least_exponent(f) - (int)f.fraction;

	if (!exponent)
		return ldexp((double)fraction, unit);
	return ldexp((double)(fraction | 1ull << f.fraction), unit + (int)exponent - 1);
}

/* Bits of a positive number. Counted in units of the last place, a carry ends up where it belongs. */
static inline uint64_t number_bits(double value, struct number_format f)
{
	uint64_t inf = ((1ull << f.exponent) - 1) << f.fraction, bits;
	int least = number_least_exponent(f), exponent;

	if (value == 0)
		return 0;
	frexp(value, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	if (exponent > 1 - least)
		return inf;
	bits = (uint64_t)rint(ldexp(value, (int)f.fraction - exponent)) +
	       ((uint64_t)(exponent - least) << f.fraction);
	return bits < inf ? bits : inf;
}

static inline uint64_t number_expected(uint64_t bits, struct number_format from,
				       struct number_format to)
{
	uint64_t sign_bit = 1ull << (from.exponent + from.fraction);
	uint64_t magnitude = bits & (sign_bit - 1);
	uint64_t inf = ((1ull << from.exponent) - 1) << from.fraction;
	uint64_t out = ((1ull << to.exponent) - 1) << to.fraction;

	if (magnitude > inf) { /* the payload, counted from its top, and the bit of quiet ones */
		uint64_t payload = (magnitude - inf) << (64 - from.fraction);

		out |= payload >> (64 - to.fraction) | 1ull << (to.fraction - 1);
	} else if (magnitude < inf) {
		out = number_bits(number_value(magnitude, from), to);
	}
	return out | (bits & sign_bit ? 1ull << (to.exponent + to.fraction) : 0);
}

/* One element at any address to any address; the machine stores the little end first. */
static inline void cast_expected(uint8_t *dst, const uint8_t *src, enum hr_dtype from,
				 enum hr_dtype to)
{
	uint64_t bits = 0;

	memcpy(&bits, src, hr_dtype_size(from));
	if (from != to && number_format(from).exponent)
		bits = number_expected(bits, number_format(from), number_format(to));
	if (from == HR_DTYPE_I8 || from == HR_DTYPE_I16 || from == HR_DTYPE_I32) {
		uint64_t sign = 1ull << (8 * hr_dtype_size(from) - 1);

		bits = bits & sign ? bits - 2 * sign : bits;
	}
	memcpy(dst, &bits, hr_dtype_size(to));
}

/* Sample @i of 2^24 of 32-bit inputs: all signs and exponents, all 15 leading bits of fractions. */
static inline uint32_t cast_sample(uint32_t i)
{
	return i << 8 | (i * 2654435761u) >> 24;
}

#define CAST_SAMPLES (1u << 24)

#endif

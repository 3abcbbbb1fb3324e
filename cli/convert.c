/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/convert.c - element types by way of int64_t and double, one element after the other. Shares nothing
 * with the library's conversions but the rules in headrace/dtype.h.
 */
#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/convert.h"

/* A floating-point format: bits of exponent and fraction. */
struct shape {
	int exponent, fraction;
};

static bool float_shape(enum hr_dtype type, struct shape *out)
{
	switch ((int)type) {
	case HR_DTYPE_F16:
		*out = (struct shape){5, 10};
		return true;
	case HR_DTYPE_BF16:
		*out = (struct shape){8, 7};
		return true;
	case HR_DTYPE_F32:
		*out = (struct shape){8, 23};
		return true;
	case HR_DTYPE_F64:
		*out = (struct shape){11, 52};
		return true;
	default:
		return false;
	}
}

static bool is_signed(enum hr_dtype type)
{
	return type == HR_DTYPE_I8 || type == HR_DTYPE_I16 || type == HR_DTYPE_I32 ||
	       type == HR_DTYPE_I64;
}

static inline uint64_t load(const uint8_t *p, uint32_t size)
{
	uint64_t value = 0;

	memcpy(&value, p, size);
	return le64toh(value);
}

static inline void store(uint8_t *p, uint64_t value, uint32_t size)
{
	value = htole64(value);
	memcpy(p, &value, size);
}

static double decode(uint64_t bits, struct shape s)
{
	uint64_t fraction = bits & ((1ull << s.fraction) - 1);
	int all = (1 << s.exponent) - 1, exponent = (int)(bits >> s.fraction) & all;
	int bias = all / 2;
	double v;

	if (exponent == all)
		v = fraction ? (double)NAN : (double)INFINITY;
	else if (exponent)
		v = ldexp((double)(fraction | 1ull << s.fraction), exponent - bias - s.fraction);
	else
		v = ldexp((double)fraction, 1 - bias - s.fraction);
	return bits >> (s.exponent + s.fraction) & 1 ? -v : v;
}

/* The nearest number, of two the even one: what nearbyint() does unless somebody changed the mode. */
static uint64_t encode(double v, struct shape s)
{
	int all = (1 << s.exponent) - 1, bias = all / 2, exponent;
	uint64_t sign = (uint64_t)(signbit(v) != 0) << (s.exponent + s.fraction), m;

	v = fabs(v);
	if (isnan(v))
		return sign | (uint64_t)all << s.fraction | 1ull << (s.fraction - 1);
	if (isinf(v))
		return sign | (uint64_t)all << s.fraction;
	frexp(v, &exponent);
	exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
	m = (uint64_t)nearbyint(ldexp(v, s.fraction - exponent));
	/* A carry out of the fraction moves the exponent by itself; a subnormal number has exponent 0. */
	m += (uint64_t)(exponent + bias - 1) << s.fraction;
	if (m >= (uint64_t)all << s.fraction)
		m = (uint64_t)all << s.fraction;
	return sign | m;
}

/* Sizes that the compiler knows make the same loop several times faster. */
static inline void widen(uint8_t *to, uint32_t to_size, const uint8_t *from, uint32_t from_size,
			 bool sign, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = load(from + i * from_size, from_size);

		if (sign)
			v = (uint64_t)((int64_t)(v << (64 - 8 * from_size)) >>
				       (64 - 8 * from_size));
		store(to + i * to_size, v, to_size);
	}
}

void cli_convert(void *dst, enum hr_dtype to, const void *src, enum hr_dtype from, uint64_t n)
{
	uint32_t a = hr_dtype_size(from), b = hr_dtype_size(to);
	struct shape in, out;

	if (from == to) {
		memcpy(dst, src, n * a);
	} else if (float_shape(from, &in) && float_shape(to, &out)) {
		for (uint64_t i = 0; i < n; i++) {
			double v = decode(load((const uint8_t *)src + i * a, a), in);

			store((uint8_t *)dst + i * b, encode(v, out), b);
		}
	} else if (a == 2 && b == 8 && !is_signed(from)) {
		widen(dst, 8, src, 2, false, n);
	} else if (a == 2 && b == 4 && !is_signed(from)) {
		widen(dst, 4, src, 2, false, n);
	} else {
		widen(dst, b, src, a, is_signed(from), n);
	}
}

bool cli_same(const void *a, const void *b, enum hr_dtype type)
{
	uint32_t size = hr_dtype_size(type);
	struct shape s;

	if (memcmp(a, b, size) == 0)
		return true;
	return float_shape(type, &s) && isnan(decode(load(a, size), s)) &&
	       isnan(decode(load(b, size), s));
}

const char *cli_show(char *text, const void *p, enum hr_dtype type)
{
	uint32_t size = hr_dtype_size(type);
	uint64_t bits = load(p, size);
	struct shape s;

	if (float_shape(type, &s))
		snprintf(text, CLI_TEXT_BYTES, "%.9g", decode(bits, s));
	else if (is_signed(type))
		snprintf(text, CLI_TEXT_BYTES, "%" PRId64,
			 (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
	else
		snprintf(text, CLI_TEXT_BYTES, "%" PRIu64, bits);
	return text;
}

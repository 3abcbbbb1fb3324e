/* SPDX-License-Identifier: Apache-2.0 */
/* base/sizes.c - size classes of values, see sizes.h. */
#include "base/sizes.h"
#include "base/util.h"

#define FINE_BITS 3u
#define FINE                                                                                       \
	(1u << FINE_BITS) /* classes per power of two; below FINE every length is its own class */

static uint32_t class_of(uint64_t len)
{
	uint32_t log;

	if (len < FINE)
		return (uint32_t)len;
	log = 63u - (uint32_t)__builtin_clzll(len);
	return (log - FINE_BITS + 1) * FINE + (uint32_t)(len >> (log - FINE_BITS) & (FINE - 1));
}

/* The longest length of a class. */
static uint64_t class_end(uint32_t class)
{
	uint32_t shift;

	if (class < FINE)
		return class;
	shift = class / FINE - 1;
	/* The last class ends at 2^64 - 1: the sum wraps to 0, and the difference to that. */
	return ((uint64_t)(FINE + class % FINE + 1) << shift) - 1;
}

void hr__sizes_add_many(struct hr__sizes *sizes, uint64_t len, uint64_t n)
{
	sizes->count[class_of(len)] += n;
	sizes->values += n;
	sizes->bytes += len * n;
	if (n)
		sizes->max = hr__max(sizes->max, len);
}

void hr__sizes_add(struct hr__sizes *sizes, uint64_t len)
{
	hr__sizes_add_many(sizes, len, 1);
}

void hr__sizes_join(struct hr__sizes *sizes, const struct hr__sizes *more)
{
	for (uint32_t i = 0; i < HR__SIZE_CLASSES; i++)
		sizes->count[i] += more->count[i];
	sizes->values += more->values;
	sizes->bytes += more->bytes;
	sizes->max = hr__max(sizes->max, more->max);
}

uint64_t hr__sizes_largest(const struct hr__sizes *sizes, uint64_t n, uint64_t repeats,
			   uint64_t align)
{
	uint64_t sum = 0;

	for (uint32_t i = HR__SIZE_CLASSES; i-- > 0 && n > 0;) {
		uint64_t each = hr__min(class_end(i), sizes->max), take, part;

		if (hr__mul_overflows(sizes->count[i], repeats, &take) || take > n)
			take = n;
		if (!take)
			continue;
		if (hr__add_overflows(each, align - 1, &each))
			return UINT64_MAX;
		each = hr__align_down(each, align);
		if (hr__mul_overflows(each, take, &part) || hr__add_overflows(sum, part, &sum))
			return UINT64_MAX;
		n -= take;
	}
	return sum;
}

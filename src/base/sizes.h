/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/sizes.h - how long the values of a ragged field are, in little memory: counts per size class.
 *
 * Classes are an eighth of a power of two wide, so that what largest() says is never too small and at
 * most an eighth too large.
 */
#ifndef HR_BASE_SIZES_H
#define HR_BASE_SIZES_H

#include <stdint.h>

#define HR__SIZE_CLASSES 512u

struct hr__sizes {
	uint64_t count[HR__SIZE_CLASSES];
	uint64_t values, bytes, max; /* of all that were added */
};

/* Note one value of @len bytes. */
void hr__sizes_add(struct hr__sizes *sizes, uint64_t len);

/* Note @n of them. */
void hr__sizes_add_many(struct hr__sizes *sizes, uint64_t len, uint64_t n);

/* Note all that @more has. */
void hr__sizes_join(struct hr__sizes *sizes, const struct hr__sizes *more);

/*
 * hr__sizes_largest() - how many bytes any @n values have together at the most, when each may be taken up
 * to @repeats times and is rounded up to a multiple of @align (a power of two) before they are summed.
 * Return: bytes; UINT64_MAX when beyond 2^64.
 */
uint64_t hr__sizes_largest(const struct hr__sizes *sizes, uint64_t n, uint64_t repeats,
			   uint64_t align);

#endif

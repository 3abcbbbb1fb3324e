/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/util.h - arithmetic that every layer needs; knows nothing of the project.
 */
#ifndef HR_BASE_UTIL_H
#define HR_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t hr__min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t hr__max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* @align: a power of two. */
static inline uint64_t hr__align_down(uint64_t x, uint64_t align)
{
	return x & ~(align - 1);
}

/* @align: a power of two; @x must not lie within align of UINT64_MAX. */
static inline uint64_t hr__align_up(uint64_t x, uint64_t align)
{
	return (x + align - 1) & ~(align - 1);
}

static inline bool hr__is_pow2(uint64_t x)
{
	return x != 0 && (x & (x - 1)) == 0;
}

/* True when a + b or a * b does not fit; *out is the wrapped result then. */
static inline bool hr__add_overflows(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_add_overflow(a, b, out);
}

static inline bool hr__mul_overflows(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_mul_overflow(a, b, out);
}

/* The last k < @n with first[k] <= @x. @first: ascending, its first one not above @x. */
static inline uint32_t hr__last_from(const uint64_t *first, uint32_t n, uint64_t x)
{
	uint32_t low = 0, high = n;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (first[middle] <= x)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Monotonic time in nanoseconds. */
uint64_t hr__now_ns(void);

/* Parse "4K", "1M", "2G", "123": bytes, powers of 1024. Return: 0 or -EINVAL. */
int hr__parse_size(const char *text, uint64_t *out);

/* Read a small text file (sysfs, procfs) into @buf, without the last newline. Return: length or -errno. */
int hr__read_text(const char *path, char *buf, size_t size);

#endif

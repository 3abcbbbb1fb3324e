/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/histogram.h - latencies in log-linear buckets: 64 a power of two, so a figure is within 1.6 %.
 * One writer; adding costs a few instructions and no memory.
 */
#ifndef HR_CLI_HISTOGRAM_H
#define HR_CLI_HISTOGRAM_H

#include <stdint.h>

#define CLI_HISTOGRAM_SUB 6 /* log2 of the buckets in a power of two */
#define CLI_HISTOGRAM_BUCKETS ((64 - CLI_HISTOGRAM_SUB + 1) << CLI_HISTOGRAM_SUB)

struct cli_histogram {
	uint64_t count[CLI_HISTOGRAM_BUCKETS];
	uint64_t total;
};

static inline uint32_t cli_histogram_bucket(uint64_t value)
{
	uint32_t shift;

	if (value < (1u << CLI_HISTOGRAM_SUB))
		return (uint32_t)value;
	shift = 63 - CLI_HISTOGRAM_SUB - (uint32_t)__builtin_clzll(value);
	return (shift << CLI_HISTOGRAM_SUB) + (uint32_t)(value >> shift);
}

static inline void cli_histogram_add(struct cli_histogram *h, uint64_t value)
{
	h->count[cli_histogram_bucket(value)]++;
	h->total++;
}

/* cli_histogram_merge() - @into += @more. */
void cli_histogram_merge(struct cli_histogram *into, const struct cli_histogram *more);

/* cli_histogram_at() - the value below which @share (0..1) of the values lie; 0 when empty. */
double cli_histogram_at(const struct cli_histogram *h, double share);

#endif

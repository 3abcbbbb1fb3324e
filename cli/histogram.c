/* SPDX-License-Identifier: Apache-2.0 */
/* cli/histogram.c - reading a latency histogram; filling it is inline in histogram.h. */
#include "cli/histogram.h"

void cli_histogram_merge(struct cli_histogram *into, const struct cli_histogram *more)
{
	for (uint32_t i = 0; i < CLI_HISTOGRAM_BUCKETS; i++)
		into->count[i] += more->count[i];
	into->total += more->total;
}

/* The middle of what falls into bucket @i. */
static double bucket_value(uint32_t i)
{
	uint32_t shift, rest;

	if (i < (2u << CLI_HISTOGRAM_SUB))
		return i;
	shift = (i >> CLI_HISTOGRAM_SUB) - 1;
	rest = i - (shift << CLI_HISTOGRAM_SUB);
	return ((double)rest + 0.5) * (double)(1ull << shift);
}

double cli_histogram_at(const struct cli_histogram *h, double share)
{
	uint64_t seen = 0;

	for (uint32_t i = 0; i < CLI_HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (seen && (double)seen >= share * (double)h->total)
			return bucket_value(i);
	}
	return 0;
}

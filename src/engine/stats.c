/* SPDX-License-Identifier: Apache-2.0 */
/* engine/stats.c - sums of counters. */
#include <string.h>

#include "engine/engine.h"

int hr_engine_stats(const struct hr_engine *engine, struct hr_stats *out)
{
	*out = engine->stats;
	return 0;
}

_Static_assert(sizeof(struct hr_stats) % sizeof(uint64_t) == 0, "all fields are uint64_t");

void hr_stats_add(struct hr_stats *into, const struct hr_stats *more)
{
	uint64_t sum[sizeof(*into) / sizeof(uint64_t)], add[sizeof(*into) / sizeof(uint64_t)];

	memcpy(sum, into, sizeof(sum));
	memcpy(add, more, sizeof(add));
	for (uint32_t i = 0; i < sizeof(sum) / sizeof(sum[0]); i++)
		sum[i] += add[i];
	memcpy(into, sum, sizeof(sum));
}

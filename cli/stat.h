/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/stat.h - the verb stat in parts: two looks at a process (stat.c), and how they are shown
 * (stat_show.c, stat_prometheus.c).
 */
#ifndef HR_CLI_STAT_H
#define HR_CLI_STAT_H

#include "cli/cli.h"

/* What happened to one process between two looks. Rates are by the time between them. */
struct stat_pair {
	struct hr_process_stats before, now;
	double seconds;
};

/* stat_show_table() - lines for a terminal; from the second time on over those before. */
void stat_show_table(const struct stat_pair *pair, bool again);

/* stat_show_line() - one line for a log; with a heading where @again is false. */
void stat_show_line(const struct stat_pair *pair, bool again);

/* stat_json() - sums, and the rates between the two looks unless .seconds is 0. */
json_t *stat_json(const struct stat_pair *pair);

/* stat_prometheus() - the exposition text of @n processes. */
void stat_prometheus(const struct hr_process_stats *all, uint32_t n);

#endif

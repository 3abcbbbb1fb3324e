/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/order.h - which sample stands at which position of which epoch: a pure function of the dataset,
 * the options shuffle, window and seed, the epoch and the position. Opens no files, knows no clock.
 *
 * Full: a keyed permutation of all samples. Window: the shards of the dataset (see shards.h) in an order
 * of their own; each run of `window` shards in that order is a window, whose samples are permuted; so
 * reading keeps within the files of one window until it is used up.
 *
 * A mixture takes its kids in turn as mixture.h says. Its positions are counted on from epoch to epoch:
 * position p of epoch e is number e * samples + p, and the kid that it falls to gives the sample of its
 * rank r among that kid's positions: position r % n of the kid's own epoch r / n, n being its samples. So
 * no sample of a kid comes again before all others of that kid have come.
 *
 * Results are promises: a saved state of one version must mean the same samples in the next.
 */
#ifndef HR_LOADER_ORDER_H
#define HR_LOADER_ORDER_H

#include <stdint.h>

#include <headrace/loader.h>

#include "loader/dataset.h"

#define HR__WINDOW_DEFAULT 16u /* shards */

struct hr__order_plan; /* what is the same in all epochs: made once, shared by all threads */
struct hr__order;      /* the scratch of one thread */

/*
 * hr__order_plan_new() - @opts: shuffle, window and seed are looked at. Reads all numbers of a selection
 * when there are windows. Nothing of @ds is needed afterwards.
 * Return: 0, -EINVAL, -ENOMEM; hr_error_detail() has the sentence.
 */
int hr__order_plan_new(const struct hr_dataset *ds, const struct hr_loader_options *opts,
		       struct hr__order_plan **out);
void hr__order_plan_free(struct hr__order_plan *plan);

/* Positions of an epoch, 1 .. 2^63. */
uint64_t hr__order_plan_samples(const struct hr__order_plan *plan);

/* Shards of a window, the default filled in; 0 when there are none. */
uint32_t hr__order_plan_window(const struct hr__order_plan *plan);

/* Return: NULL when there is no memory. The plan must outlive it. */
struct hr__order *hr__order_new(const struct hr__order_plan *plan);
void hr__order_free(struct hr__order *order);

/*
 * hr__order_begin() - go to @epoch; nothing to do if it is there. Costs a microsecond, with windows time
 * in proportion to the shards.
 */
void hr__order_begin(struct hr__order *order, uint64_t epoch);

/* The samples at @first .. @first + @n - 1 < samples, into @out. */
void hr__order_run(struct hr__order *order, uint64_t first, uint32_t n, uint64_t *out);

#endif

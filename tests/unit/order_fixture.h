/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_fixture.h - datasets without files, made by hand for what looks only at numbers of samples; and
 * statistics.
 */
#ifndef ORDER_FIXTURE_H
#define ORDER_FIXTURE_H

#include <math.h>

#include <headrace/headrace.h>

#include "base/util.h"
#include "loader/order.h"
#include "support/support.h"

/* Files of @counts samples. */
static inline struct hr_dataset *fake_files(const uint64_t *counts, uint32_t n)
{
	struct hr_dataset *ds = calloc(1, sizeof(*ds));

	ds->n_parts = n;
	ds->parts = calloc(n, sizeof(struct hr__part *));
	for (uint32_t i = 0; i < n; i++) {
		ds->parts[i] = calloc(1, sizeof(*ds->parts[i]));
		ds->parts[i]->first = ds->info.samples;
		ds->parts[i]->count = counts[i];
		ds->info.samples += counts[i];
	}
	return ds;
}

static inline struct hr_dataset *fake_file(uint64_t samples)
{
	return fake_files(&samples, 1);
}

/* @kids belong to the result. */
static inline struct hr_dataset *fake_view(struct hr_dataset *const *kids, uint32_t n)
{
	struct hr_dataset *ds = calloc(1, sizeof(*ds));

	ds->n_kids = n;
	ds->kids = calloc(n, sizeof(struct hr_dataset *));
	ds->kid_first = calloc(n, sizeof(*ds->kid_first));
	for (uint32_t i = 0; i < n; i++) {
		ds->kids[i] = kids[i];
		ds->kid_first[i] = ds->info.samples;
		ds->info.samples += kids[i]->info.samples;
	}
	return ds;
}

static inline struct hr_dataset *fake_selection(struct hr_dataset *kid, const uint64_t *ids,
						uint64_t n)
{
	struct hr_dataset *ds = fake_view(&kid, 1);

	ds->ids = malloc(n * sizeof(*ids));
	memcpy(ds->ids, ids, n * sizeof(*ids));
	ds->info.samples = n;
	return ds;
}

static inline struct hr_dataset *fake_mixture(struct hr_dataset *const *kids, const double *weights,
					      uint32_t n, uint64_t epoch)
{
	struct hr_dataset *ds = fake_view(kids, n);

	ds->weights = malloc(n * sizeof(*weights));
	memcpy(ds->weights, weights, n * sizeof(*weights));
	ds->epoch = epoch ? epoch : ds->info.samples;
	return ds;
}

static inline void fake_free(struct hr_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_parts; i++)
		free(ds->parts[i]);
	for (uint32_t i = 0; i < ds->n_kids; i++)
		fake_free(ds->kids[i]);
	free(ds->parts);
	free(ds->kids);
	free(ds->kid_first);
	free(ds->weights);
	free(ds->ids);
	free(ds);
}

/* A plan and one scratch for it. */
struct orderly {
	struct hr__order_plan *plan;
	struct hr__order *order;
};

static inline struct orderly orderly_open(const struct hr_dataset *ds,
					  struct hr_loader_options opts)
{
	struct orderly o = {NULL, NULL};
	int rc = hr__order_plan_new(ds, &opts, &o.plan);

	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	o.order = hr__order_new(o.plan);
	assert_non_null(o.order);
	return o;
}

static inline void orderly_close(struct orderly o)
{
	hr__order_free(o.order);
	hr__order_plan_free(o.plan);
}

static inline uint64_t orderly_at(struct orderly o, uint64_t epoch, uint64_t position)
{
	uint64_t id;

	hr__order_begin(o.order, epoch);
	hr__order_run(o.order, position, 1, &id);
	return id;
}

/* The bounds are the mean plus and minus six standard deviations of the chi-square distribution. */
static inline void expect_even(const uint32_t *counts, uint64_t cells, uint64_t draws,
			       const char *what)
{
	double want = (double)draws / (double)cells, sum = 0;
	double freedom = (double)(cells - 1), bound = freedom + 6 * sqrt(2 * freedom);

	for (uint64_t i = 0; i < cells; i++)
		sum += (counts[i] - want) * (counts[i] - want) / want;
	if (sum > bound || sum < freedom - 6 * sqrt(2 * freedom))
		fail_msg("%s: chi-square %.1f for %.0f degrees, bound %.1f", what, sum, freedom,
			 bound);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset_view.c - datasets made of datasets: some samples of one, or several by weight; and where a
 * sample of any of them is. Opens nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/dataset.h"

#define KIDS_MAX 1024u
#define IDS_MAX (1ull << 40)
#define SAMPLES_MAX (1ull << 62) /* positions that a schedule can count */

static uint32_t part_of(const struct hr_dataset *ds, uint64_t id)
{
	uint32_t low = 0, high = ds->n_parts; /* parts[low]->first <= id < parts[high]->first */

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (ds->parts[middle]->first <= id)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void hr__dataset_find(const struct hr_dataset *ds, uint64_t id, struct hr__place *out)
{
	uint32_t part = 0;

	while (ds->kids) {
		uint32_t kid = 0;

		if (ds->ids) {
			id = ds->ids[id];
		} else {
			kid = hr__last_from(ds->kid_first, ds->n_kids, id);
			id -= ds->kid_first[kid];
			part += ds->kid_part[kid];
		}
		ds = ds->kids[kid];
	}
	out->part = part_of(ds, id);
	out->index = hr__part_index(ds->parts[out->part], id - ds->parts[out->part]->first);
	out->part += part;
}

/* How many numbers may mean one sample of the files; UINT64_MAX: any number. */
static uint64_t copies_of(const struct hr_dataset *ds)
{
	uint64_t most = ds->ids_repeat ? UINT64_MAX : 1;

	for (uint32_t i = 0; i < ds->n_kids; i++)
		most = hr__max(most, copies_of(ds->kids[i]));
	for (uint32_t i = 0; !ds->kids && i < ds->n_parts; i++) {
		const struct hr__part *part = ds->parts[i];

		/* One more where damage that shows late gives its row to a neighbour. */
		if (part->corrupt == HR_CORRUPT_SUBSTITUTE)
			most = hr__max(most, 2 + part->ff->schema.n_bad);
		else if (part->corrupt == HR_CORRUPT_SKIP)
			most = hr__max(most, 2);
	}
	return most;
}

/* How many orders of a kid @n positions reach into, of which some may be padding. */
static uint64_t passes_of(const struct hr_dataset *ds, uint64_t n)
{
	uint64_t least = UINT64_MAX, runs;

	if (!ds->weights)
		return (n - 1) / ds->info.samples + 1;
	for (uint32_t i = 0; i < ds->n_kids; i++)
		least = hr__min(least, ds->kids[i]->info.samples);
	/* A run of m ranks reaches into m / samples orders, and into one more at each end. */
	runs = n > 1 ? (n - 2) / ds->epoch + 2 : 1;
	return n / least + 2 * runs;
}

uint64_t hr__dataset_repeats(const struct hr_dataset *ds, uint64_t n)
{
	uint64_t all;

	n = hr__max(n, 1);
	if (hr__mul_overflows(copies_of(ds), passes_of(ds, n), &all))
		return n;
	return hr__min(all, n);
}

static int adopt_kid(struct hr_dataset *ds, struct hr_dataset *kid)
{
	uint32_t map[HR__FIELDS_MAX], k = ds->n_kids;
	struct hr__part **parts;
	int rc = hr__dataset_join(ds, kid->fields, (const struct hr__sizes *const *)kid->sizes,
				  kid->info.n_fields, kid->info.samples,
				  hr_file_path(kid->parts[0]->file), map);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < ds->info.n_fields; i++) {
		if (map[i] != i)
			return hr__fail(
				HR_E_BAD_FORMAT,
				"mixture: its datasets have field %s at different places; name "
				"the fields, in one order",
				ds->fields[i].name);
	}
	parts = realloc(ds->parts, (ds->n_parts + kid->n_parts) * sizeof(*parts));
	if (!parts)
		return hr__fail(ENOMEM, "dataset: no memory for %" PRIu32 " files", kid->n_parts);
	ds->parts = parts;
	memcpy(parts + ds->n_parts, kid->parts, kid->n_parts * sizeof(*parts));
	ds->kid_part[k] = ds->n_parts;
	ds->kid_first[k] = ds->info.samples;
	ds->n_parts += kid->n_parts;
	ds->info.samples += kid->info.samples; /* each has 2^53 at the most, and there are few */
	ds->info.bytes += kid->info.bytes;
	if (!ds->info.corrupt)
		memcpy(ds->info.corrupt_reason, kid->info.corrupt_reason,
		       sizeof(ds->info.corrupt_reason));
	ds->info.corrupt += kid->info.corrupt;
	hr__dataset_get(kid);
	ds->kids[ds->n_kids++] = kid;
	return 0;
}

/* A dataset that holds @n others. Return: 0 or -code with a sentence. */
static int new_view(struct hr_dataset *const *kids, uint32_t n, const char *what,
		    struct hr_dataset **out)
{
	struct hr_dataset *ds = hr__dataset_new();
	int rc = 0;

	if (ds) {
		ds->kids = calloc(n, sizeof(struct hr_dataset *));
		ds->kid_first = calloc(n, sizeof(*ds->kid_first));
		ds->kid_part = calloc(n, sizeof(*ds->kid_part));
	}
	if (!ds || !ds->kids || !ds->kid_first || !ds->kid_part)
		rc = hr__fail(ENOMEM, "%s: no memory", what);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = adopt_kid(ds, kids[i]);
	if (rc == 0) {
		ds->info.format = kids[0]->info.format;
		ds->info.windows = kids[0]->info.windows;
		hr__dataset_finish(ds);
		*out = ds;
	} else if (ds) {
		hr__dataset_put(ds);
	}
	return rc;
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The same for a few of very many samples, of which a bit for each would be too much. */
static int few_ids_repeat(const uint64_t *ids, uint64_t n)
{
	uint64_t *sorted = malloc(n * sizeof(*sorted));
	int repeats = 0;

	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, ids, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_ids);
	for (uint64_t i = 1; i < n && !repeats; i++)
		repeats = sorted[i] == sorted[i - 1];
	free(sorted);
	return repeats;
}

/* Does a number appear twice? Return: 0, 1, -ENOMEM. */
static int ids_repeat(const uint64_t *ids, uint64_t n, uint64_t samples)
{
	uint64_t *seen;
	int repeats = 0;

	if (n > samples)
		return 1;
	if (n < samples / 64)
		return few_ids_repeat(ids, n);
	seen = calloc(samples / 64 + 1, sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	for (uint64_t i = 0; i < n && !repeats; i++) {
		uint64_t bit = 1ull << ids[i] % 64;

		repeats = (seen[ids[i] / 64] & bit) != 0;
		seen[ids[i] / 64] |= bit;
	}
	free(seen);
	return repeats;
}

int hr_dataset_select(struct hr_dataset *ds, const uint64_t *ids, uint64_t n,
		      struct hr_dataset **out)
{
	struct hr_dataset *view;
	uint64_t *copy;
	int repeat, rc;

	if (!ds || !ids || n == 0 || n > IDS_MAX)
		return hr__fail(EINVAL, "selection: of 1 to 2^40 samples of a dataset");
	for (uint64_t i = 0; i < n; i++) {
		if (ids[i] >= ds->info.samples)
			return hr__fail(EINVAL,
					"selection: number %" PRIu64 " of it is sample %" PRIu64
					", the dataset has %" PRIu64,
					i, ids[i], ds->info.samples);
	}
	rc = new_view(&ds, 1, "selection", &view);
	if (rc < 0)
		return rc;
	copy = malloc(n * sizeof(*copy));
	repeat = ids_repeat(ids, n, ds->info.samples);
	if (!copy || repeat < 0) {
		free(copy);
		hr__dataset_put(view);
		return hr__fail(ENOMEM, "selection: no memory for %" PRIu64 " numbers", n);
	}
	memcpy(copy, ids, n * sizeof(*copy));
	view->ids = copy;
	view->ids_repeat = repeat;
	view->info.samples = n;
	view->info.fingerprint =
		XXH3_64bits_withSeed(copy, n * sizeof(*copy), ds->info.fingerprint);
	*out = view;
	return 0;
}

static int check_mixture(struct hr_dataset *const *kids, const double *weights, uint32_t n)
{
	if (!kids || !weights || n == 0 || n > KIDS_MAX)
		return hr__fail(EINVAL, "mixture: of 1 to %u datasets, each with a weight",
				KIDS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		if (!kids[i] || !isfinite(weights[i]) || weights[i] <= 0)
			return hr__fail(EINVAL,
					"mixture: weight %g of dataset %" PRIu32
					": must be positive and finite",
					weights[i], i);
		if (kids[i]->weights)
			return hr__fail(EINVAL,
					"mixture: dataset %" PRIu32
					" is a mixture itself; name its datasets",
					i);
		if (kids[i]->info.samples > 1ull << 53)
			return hr__fail(EINVAL,
					"mixture: dataset %" PRIu32 " has more than 2^53 samples",
					i);
		if (kids[i]->info.windows != kids[0]->info.windows)
			return hr__fail(HR_E_BAD_FORMAT,
					"mixture: dataset %" PRIu32
					" has windows of tokens and others "
					"have none, or the other way round",
					i);
		if (kids[i]->info.windows && kids[i]->info.elements != kids[0]->info.elements)
			return hr__fail(HR_E_BAD_FORMAT,
					"mixture: dataset %" PRIu32 " has windows of %" PRIu32
					" tokens and the first %" PRIu32
					"; open all with one seq_len",
					i, kids[i]->info.elements, kids[0]->info.elements);
	}
	return 0;
}

int hr_dataset_mix(struct hr_dataset *const *kids, const double *weights, uint32_t n,
		   uint64_t samples, struct hr_dataset **out)
{
	struct hr_dataset *ds;
	int rc = check_mixture(kids, weights, n);

	if (rc < 0)
		return rc;
	if (samples > SAMPLES_MAX)
		return hr__fail(EINVAL, "mixture: an epoch of more than 2^62 samples");
	rc = new_view(kids, n, "mixture", &ds);
	if (rc)
		return rc;
	ds->weights = malloc(n * sizeof(*ds->weights));
	if (!ds->weights) {
		hr__dataset_put(ds);
		return hr__fail(ENOMEM, "mixture: no memory for %" PRIu32 " weights", n);
	}
	memcpy(ds->weights, weights, n * sizeof(*weights));
	ds->epoch = samples ? samples : ds->info.samples;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t print = kids[i]->info.fingerprint;

		print = XXH3_64bits_withSeed(&weights[i], sizeof(weights[i]), print);
		ds->info.fingerprint =
			XXH3_64bits_withSeed(&print, sizeof(print), ds->info.fingerprint);
	}
	ds->info.fingerprint =
		XXH3_64bits_withSeed(&ds->epoch, sizeof(ds->epoch), ds->info.fingerprint);
	*out = ds;
	return 0;
}

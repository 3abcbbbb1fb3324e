/* SPDX-License-Identifier: Apache-2.0 */
/* loader/shards.c - the shards of files, selections and mixtures; pure, see shards.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "loader/shards.h"

#define CUT_MAX (1u << 18) /* more shards than there are files */

struct cuts {
	uint64_t *at; /* ascending; the first is 0 */
	uint32_t n, room;
};

static int cut_at(struct cuts *cuts, uint64_t at)
{
	if (cuts->n == cuts->room) {
		uint32_t room = cuts->room ? 2 * cuts->room : 64;
		uint64_t *more = realloc(cuts->at, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		cuts->at = more;
		cuts->room = room;
	}
	cuts->at[cuts->n++] = at;
	return 0;
}

static int find_cuts(const struct hr_dataset *ds, uint64_t base, struct cuts *cuts);

/* @kid: the cuts of what the selection was taken from. */
static int cut_selection(const struct hr_dataset *ds, const struct cuts *kid, uint64_t base,
			 struct cuts *cuts)
{
	uint64_t first = 0, end = 0; /* of the shard that it is in */
	uint32_t before = cuts->n;
	int rc = 0;

	assert(kid->at && kid->n > 0); /* nothing is without samples */
	for (uint64_t i = 0; i < ds->info.samples && rc == 0; i++) {
		uint64_t id = ds->ids[i];
		uint32_t shard;

		if (id < first) { /* back again: not in order */
			cuts->n = before;
			return cut_at(cuts, base);
		}
		if (id < end)
			continue;
		shard = hr__last_from(kid->at, kid->n, id);
		first = kid->at[shard];
		end = shard + 1 < kid->n ? kid->at[shard + 1] : UINT64_MAX;
		rc = cut_at(cuts, base + i);
	}
	return rc;
}

/* Where something begins that lies apart from what is before it; numbers are told from @base on. */
static int find_cuts(const struct hr_dataset *ds, uint64_t base, struct cuts *cuts)
{
	int rc = 0;

	if (ds->ids) {
		struct cuts kid = {NULL, 0, 0};

		rc = find_cuts(ds->kids[0], 0, &kid);
		if (rc == 0)
			rc = cut_selection(ds, &kid, base, cuts);
		free(kid.at);
		return rc;
	}
	for (uint32_t i = 0; i < ds->n_kids && rc == 0; i++)
		rc = find_cuts(ds->kids[i], base + ds->kid_first[i], cuts);
	for (uint32_t i = 0; !ds->kids && i < ds->n_parts && rc == 0; i++)
		rc = cut_at(cuts, base + ds->parts[i]->first);
	return rc;
}

/* Shards of about one size each, none longer than @most. */
static uint64_t pieces_of(uint64_t samples, uint64_t most)
{
	return (samples - 1) / most + 1;
}

static int split_long(const struct cuts *cuts, uint64_t samples, struct hr__shards *out)
{
	uint64_t most = hr__max(HR__SHARD_SAMPLES, pieces_of(samples, CUT_MAX)), n = 0;
	uint32_t k = 0;

	for (uint32_t i = 0; i < cuts->n; i++) {
		uint64_t end = i + 1 < cuts->n ? cuts->at[i + 1] : samples;

		n += pieces_of(end - cuts->at[i], most);
	}
	if (n >= UINT32_MAX)
		return -ENOMEM;
	out->first = malloc((n + 1) * sizeof(*out->first));
	if (!out->first)
		return -ENOMEM;
	out->n = (uint32_t)n;
	for (uint32_t i = 0; i < cuts->n; i++) {
		uint64_t first = cuts->at[i];
		uint64_t count = (i + 1 < cuts->n ? cuts->at[i + 1] : samples) - first;
		uint64_t pieces = pieces_of(count, most);

		for (uint64_t p = 0; p < pieces; p++)
			out->first[k++] = first + count / pieces * p + hr__min(p, count % pieces);
	}
	out->first[k] = samples;
	return 0;
}

int hr__shards_find(const struct hr_dataset *ds, struct hr__shards *out)
{
	struct cuts cuts = {NULL, 0, 0};
	int rc = find_cuts(ds, 0, &cuts);

	if (rc == 0)
		rc = split_long(&cuts, ds->info.samples, out);
	free(cuts.at);
	return rc;
}

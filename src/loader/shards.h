/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/shards.h - where a dataset may be cut so that what is read together lies together: its files,
 * large ones in pieces. Knows numbers of samples, no bytes.
 */
#ifndef HR_LOADER_SHARDS_H
#define HR_LOADER_SHARDS_H

#include <stdint.h>

#include "loader/dataset.h"

/* A file of more samples is cut evenly; in datasets of more than 2^34 samples, of more than 2^-18 of all. */
#define HR__SHARD_SAMPLES 65536u

/* Shard k is the samples [first[k], first[k + 1]), never empty. */
struct hr__shards {
	uint64_t *first; /* n + 1 of them */
	uint32_t n;
};

/*
 * hr__shards_find() - the shards of a dataset. Of a selection: its runs within the shards of what it was
 * taken from, if it goes through them in order; else it is cut evenly.
 * Return: 0 or -ENOMEM; free @out->first.
 */
int hr__shards_find(const struct hr_dataset *ds, struct hr__shards *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset.h - the inside of a dataset: files with the numbers of their first samples.
 */
#ifndef HR_LOADER_DATASET_H
#define HR_LOADER_DATASET_H

#include <stdatomic.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "format/format.h"

/* One file. */
struct hr__part {
	struct hr_file *file;
	struct hr__format_file *ff;
	uint64_t first; /* number of its first sample */
	uint64_t size;  /* bytes at open: what a truncated file is measured against */
};

/* Immutable after open but for the count. */
struct hr_dataset {
	atomic_uint refs;
	struct hr_dataset_info info;
	uint32_t n_parts;
	struct hr__part parts[];
};

void hr__dataset_get(struct hr_dataset *ds);
void hr__dataset_put(struct hr_dataset *ds);

/* Which file sample @index < info.samples lies in: an index into parts. */
uint32_t hr__dataset_part(const struct hr_dataset *ds, uint64_t index);

#endif

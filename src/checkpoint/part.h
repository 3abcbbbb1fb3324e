/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/part.h - a part in bytes: where its pieces lie in the file, how long they are in memory.
 */
#ifndef HR_CHECKPOINT_PART_H
#define HR_CHECKPOINT_PART_H

#include <stdint.h>

#include "checkpoint/manifest.h"

/* @count pieces of @len bytes, @stride apart in the file, dense in memory. */
struct hr__cut {
	uint32_t file;
	enum hr_dtype from, to; /* as for struct hr_io */
	uint64_t offset, len, stride, count;
	uint64_t memory_len; /* bytes of all of it, converted */
};

/* hr__part_cut() - check a part. Return: 0, or -code with a sentence that names the tensor. */
int hr__part_cut(const struct hr_checkpoint *ck, const struct hr_part *part, struct hr__cut *out);

#endif

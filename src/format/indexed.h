/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/indexed.h - files whose samples stand in a side index: the half of a format that is the same for
 * all of them. Knows columns, and nothing of what is in the file.
 *
 * Each column that every whole sample has becomes a field: fixed where all its ranges are equally long,
 * else ragged, or a scalar. A field that the caller names may be missing in some samples: these are
 * damaged for him. A column that only some have and nobody names is left out; the log (info) says so.
 */
#ifndef HR_FORMAT_INDEXED_H
#define HR_FORMAT_INDEXED_H

#include "format/format.h"
#include "format/index.h"

/* As in struct hr__format_ops; @args->index: -HR_E_NO_INDEX when it is NULL. */
int hr__indexed_open(const struct hr__format_args *args, const struct hr__format_ops *ops,
		     struct hr__format_file **out);
int hr__indexed_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		       struct hr_range *out);
int hr__indexed_value(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      uint64_t *out);
void hr__indexed_close(struct hr__format_file *ff);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/mds.h - the columns of an MDS shard, as the JSON text in it tells. Bytes in, numbers out.
 *
 * A sample is a u32 size for each variable column, then the bytes of all columns, in order.
 */
#ifndef HR_FORMAT_MDS_H
#define HR_FORMAT_MDS_H

#include <stdint.h>

#include <headrace/dataset.h>

#include "format/format.h"

#define HR__MDS_SIZE_BYTES 4u /* of a variable column's size in the head of a sample */

struct hr__mds_column {
	struct hr_field face;
	const char *encoding;  /* as the file names it */
	const char *reason;    /* why it cannot be read, static; NULL if it can */
	uint32_t size;         /* bytes; 0: variable */
	uint32_t fixed_before; /* bytes of the fixed columns before it */
	uint32_t var_before;   /* variable columns before it */
};

struct hr__mds_layout {
	struct hr__mds_column *columns;
	uint32_t n_columns, n_var;
	uint32_t fixed_bytes; /* of all fixed columns */
	char *text;           /* names and encodings */
};

/*
 * hr__mds_layout_parse() - read a shard's JSON text.
 * @src: for sentences; @base: where @json lies in it.
 * Return: 0, -HR_E_BAD_FORMAT, -ENOMEM; *out is zeroed on failure.
 */
int hr__mds_layout_parse(const struct hr_source *src, uint64_t base, const void *json, size_t len,
			 struct hr__mds_layout *out);

/* hr__mds_layout_free() - accepts a zeroed layout. */
void hr__mds_layout_free(struct hr__mds_layout *layout);

/* hr__mds_expand() - the shards that an index.json names; as hr__format_ops.expand. */
int hr__mds_expand(const struct hr_source *src, const struct hr_dataset_options *opts,
		   int (*add)(void *ctx, const struct hr__shard *shard), void *ctx);

#endif

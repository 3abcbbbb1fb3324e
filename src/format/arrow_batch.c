/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/arrow_batch.c - where the values of columns are in one record batch; reads no body.
 */
#include <inttypes.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/arrow.h"
#include "format/json.h"
#include "format/le.h"

#define PAIR_BYTES 16u /* structs FieldNode and Buffer: two 64-bit numbers each */

enum { BATCH_LENGTH, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_VARIADIC };

struct batch {
	struct hr__flat *flat;
	const struct hr_source *src;
	const struct hr_range *body;
	struct hr__flat_vector nodes, buffers, variadic;
	uint64_t rows;
};

struct pair {
	uint64_t first, second;
};

static struct pair pair_at(const struct batch *b, const struct hr__flat_vector *vector, uint64_t k)
{
	const uint8_t *p = b->flat->bytes + vector->at + k * PAIR_BYTES;

	return (struct pair){hr__le64(p), hr__le64(p + 8)};
}

static int fail(const struct batch *b, const struct hr__arrow_column *column, const char *what)
{
	char shown[HR__JSON_SHOWN];

	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte %" PRIu64 ": column %s of a record batch of %" PRIu64
			" rows: %s; the file is damaged, get it again",
			b->src->name, b->flat->base, hr__json_show(shown, column->face.name),
			b->rows, what);
}

/* Buffer @k, which must have @need bytes or more. @out: bytes of the file. */
static int find_buffer(const struct batch *b, const struct hr__arrow_column *column, uint64_t k,
		       uint64_t need, struct hr_range *out)
{
	struct pair place = pair_at(b, &b->buffers, k);

	if (place.first > b->body->len || place.second > b->body->len - place.first)
		return fail(b, column, "a buffer lies outside of its body");
	if (place.second < need)
		return fail(b, column, "a buffer is too short for its rows");
	*out = (struct hr_range){b->body->offset + place.first, place.second};
	return 0;
}

/* One node: @want elements without nulls. @want: UINT64_MAX for any number. */
static int check_node(const struct batch *b, struct hr__arrow_column *column, uint64_t k,
		      uint64_t want, uint64_t *length)
{
	struct pair node = pair_at(b, &b->nodes, k);

	if (node.first > INT64_MAX || (want != UINT64_MAX && node.first != want))
		return fail(b, column, "its number of elements is not that of the rows");
	if (node.second != 0)
		column->reason = "has nulls";
	*length = node.first;
	return 0;
}

static int fixed_place(const struct batch *b, struct hr__arrow_column *column, uint64_t extra,
		       struct hr__arrow_place *place)
{
	uint64_t elements = b->rows, length, need;
	struct hr_range data = {0, 0};
	int rc = 0;

	for (uint32_t k = 0; k <= column->levels && rc == 0; k++) {
		rc = check_node(b, column, column->node + k, elements, &length);
		if (k < column->levels &&
		    hr__mul_overflows(elements, column->face.shape[k], &elements))
			return fail(b, column, "more elements than can be");
	}
	if (rc < 0 || column->reason)
		return rc;
	if (hr__mul_overflows(b->rows, column->face.bytes, &need))
		return fail(b, column, "more bytes than can be");
	rc = find_buffer(b, column, column->buffer + extra + column->levels + 1, need, &data);
	place->data = data.offset;
	return rc;
}

static int ragged_place(const struct batch *b, struct hr__arrow_column *column, uint64_t extra,
			struct hr__arrow_place *place)
{
	uint64_t first = column->buffer + extra, length, need = 0, entries;
	struct hr_range offsets = {0, 0}, data = {0, 0};
	int rc = check_node(b, column, column->node, b->rows, &length);

	if (rc == 0 && column->list) {
		rc = check_node(b, column, column->node + 1, UINT64_MAX, &length);
		if (rc == 0 && hr__mul_overflows(length, column->width, &need))
			return fail(b, column, "more bytes than can be");
	}
	if (rc < 0 || column->reason)
		return rc;
	/* One entry more than rows; INT64_MAX rows were refused where the body is too short for them. */
	if (hr__mul_overflows(b->rows + 1, column->offset_bytes, &entries))
		return fail(b, column, "more rows than can be");
	rc = find_buffer(b, column, first + 1, entries, &offsets);
	if (rc == 0)
		rc = find_buffer(b, column, first + 2 + column->list, need, &data);
	if (rc < 0)
		return rc;
	place->offsets = offsets.offset;
	place->data = data.offset;
	place->limit = column->list ? length : data.len;
	return 0;
}

static int read_head(struct batch *b, const struct hr__flat_table *table,
		     const struct hr__arrow_schema *schema)
{
	struct hr__flat *flat = b->flat;
	uint64_t buffers = schema->n_buffers;

	b->rows = hr__flat_number(flat, table, BATCH_LENGTH, 8, 0);
	b->nodes = hr__flat_vector(flat, table, BATCH_NODES, PAIR_BYTES);
	b->buffers = hr__flat_vector(flat, table, BATCH_BUFFERS, PAIR_BYTES);
	b->variadic = hr__flat_vector(flat, table, BATCH_VARIADIC, 8);
	if (hr__flat_table(flat, table, BATCH_COMPRESSION).at && !flat->rc)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte %" PRIu64
				": its record batches are compressed; write it again without (in "
				"pyarrow compression=None, for Feather \"uncompressed\")",
				b->src->name, flat->base);
	for (uint32_t i = 0; i < b->variadic.n; i++)
		/* Each is a buffer that the list must have: no sum of those wraps. */
		buffers += hr__min(hr__le64(flat->bytes + b->variadic.at + 8ull * i), UINT32_MAX);
	if (b->rows > INT64_MAX)
		return hr__flat_fail(flat, table->at, "a record batch of less than no rows");
	if (b->nodes.n != schema->n_nodes || b->buffers.n != buffers ||
	    b->variadic.n != schema->n_views)
		return hr__flat_fail(flat, table->at,
				     "a record batch without what its schema tells of");
	return flat->rc;
}

int hr__arrow_batch_parse(struct hr__flat *flat, const struct hr__flat_table *table,
			  const struct hr_source *src, const struct hr_range *body,
			  struct hr__arrow_schema *schema, struct hr__arrow_place *places,
			  uint64_t *rows)
{
	struct batch b = {.flat = flat, .src = src, .body = body};
	uint64_t extra = 0;
	uint32_t views = 0;
	int rc = read_head(&b, table, schema);

	*rows = b.rows;
	for (uint32_t i = 0; i < schema->n_columns && b.rows && rc == 0; i++) {
		struct hr__arrow_column *column = &schema->columns[i];

		for (; views < column->views; views++)
			extra += hr__le64(flat->bytes + b.variadic.at + 8ull * views);
		places[i] = (struct hr__arrow_place){.data = 0};
		if (column->reason)
			continue;
		rc = column->offset_bytes ? ragged_place(&b, column, extra, &places[i])
					  : fixed_place(&b, column, extra, &places[i]);
	}
	return rc;
}

int hr__arrow_row(const struct hr_source *src, const struct hr__arrow_column *column,
		  const struct hr__arrow_place *place, const uint8_t *entries, uint64_t row,
		  uint64_t *begin, uint64_t *end)
{
	char shown[HR__JSON_SHOWN];

	if (column->offset_bytes == 4) {
		*begin = hr__le32(entries);
		*end = hr__le32(entries + 4);
	} else {
		*begin = hr__le64(entries);
		*end = hr__le64(entries + 8);
	}
	if (*begin <= *end && *end <= place->limit)
		return 0;
	return hr__fail(HR_E_BAD_SAMPLE,
			"%s: byte %" PRIu64 ": column %s: a row begins at element %" PRIu64
			" and ends at %" PRIu64 " of %" PRIu64
			"; the file is damaged, get it again",
			src->name, place->offsets + row * column->offset_bytes,
			hr__json_show(shown, column->face.name), *begin, *end, place->limit);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/arrow.c - Arrow IPC files and streams as rows; sees bytes only through a source.
 *
 * A stream is a row of messages: a schema, then record batches and dictionaries. A file is a stream
 * between two magic words with a footer that says where its record batches are. Values stay where they
 * are: a row of a fixed column is computed, one of a ragged column is two entries of its offsets, which
 * are read once at open, for the lengths, and again when the row is asked for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/arrow.h"
#include "format/le.h"

#define MAGIC "ARROW1"
#define MAGIC_BYTES 6u
#define FILE_HEAD_BYTES 8u
#define FILE_TAIL_BYTES 10u    /* length of the footer, magic */
#define BLOCK_BYTES 24u        /* struct Block of File.fbs */
#define SCAN_BYTES (64u << 10) /* of offsets, in one read */

enum { FOOTER_VERSION, FOOTER_SCHEMA, FOOTER_DICTIONARIES, FOOTER_BATCHES };

/* What is known of the lengths of a ragged column while its record batches are met. */
struct evenness {
	bool seen, uneven;
	uint64_t length; /* in elements */
};

struct arrow {
	struct hr__format_file ff;
	const struct hr_source *src;
	struct hr__arrow_schema schema;
	uint32_t *column_of;            /* of each field */
	uint64_t *first;                /* row that a record batch begins with; one more: of all */
	struct hr__arrow_place *places; /* of n_columns in each record batch */
	uint64_t n_batches, room;
};

struct opening {
	struct arrow *arrow;
	const struct hr_source *src;
	const struct hr_dataset_options *opts;
	struct hr__arrow_reader reader;
	uint8_t *scan; /* of offsets */
	struct evenness *even;
};

/* -- record batches --------------------------------------------------------------------------- */

/* Hold the offsets of a ragged column to the rules, and note its lengths. */
static int scan_offsets(struct opening *o, struct hr__arrow_column *column, struct evenness *even,
			struct hr__arrow_place *place, uint64_t rows)
{
	const uint32_t entry = column->offset_bytes;
	const uint64_t most = SCAN_BYTES / entry - 1;

	for (uint64_t row = 0; row < rows;) {
		uint64_t n = hr__min(most, rows - row), begin = 0, end = 0;
		int rc = o->src->read(o->src, place->offsets + row * entry, o->scan,
				      (size_t)((n + 1) * entry));

		for (uint64_t k = 0; k < n && rc == 0; k++) {
			rc = hr__arrow_row(o->src, column, place, o->scan + k * entry, row + k,
					   &begin, &end);
			if (rc < 0)
				break;
			if (row + k == 0)
				place->start = begin;
			hr__sizes_add(column->sizes, (end - begin) * column->width);
			even->uneven = even->uneven || (even->seen && end - begin != even->length);
			even->length = end - begin;
			even->seen = true;
		}
		if (rc < 0)
			return rc;
		row += n;
	}
	return 0;
}

static int grow_batches(struct arrow *a)
{
	uint64_t room = a->room ? 2 * a->room : 16;
	uint64_t *first;
	struct hr__arrow_place *places;

	if (a->n_batches < a->room)
		return 0;
	first = reallocarray(a->first, room + 1, sizeof(*first));
	if (first)
		a->first = first;
	places = reallocarray(a->places, room * (a->schema.n_columns + 1ull), sizeof(*places));
	if (places)
		a->places = places;
	if (!first || !places)
		return hr__fail(ENOMEM, "%s: no memory for %" PRIu64 " record batches",
				a->src->name, room);
	a->room = room;
	if (a->n_batches == 0)
		first[0] = 0;
	return 0;
}

static int add_batch(struct opening *o, struct hr__arrow_message *m)
{
	struct arrow *a = o->arrow;
	struct hr__arrow_place *places;
	uint64_t rows;
	int rc = grow_batches(a);

	if (rc < 0)
		return rc;
	places = a->places + a->n_batches * a->schema.n_columns;
	rc = hr__arrow_batch_parse(&m->flat, &m->header, o->src, &m->body, &a->schema, places,
				   &rows);
	for (uint32_t i = 0; i < a->schema.n_columns && rc == 0 && rows; i++) {
		struct hr__arrow_column *column = &a->schema.columns[i];

		if (column->reason && o->opts->fields)
			rc = hr__arrow_refuse(o->src, column->face.name, column->reason);
		else if (!column->reason && column->offset_bytes)
			rc = scan_offsets(o, column, &o->even[i], &places[i], rows);
	}
	if (rc < 0 || !rows)
		return rc;
	if (hr__add_overflows(a->first[a->n_batches], rows, &a->first[a->n_batches + 1]))
		return hr__arrow_refuse_at(o->src, m->flat.base, "more than 2^64 rows in all");
	a->n_batches++;
	return 0;
}

static int set_schema(struct opening *o, struct hr__flat *flat, const struct hr__flat_table *table,
		      uint32_t version)
{
	struct arrow *a = o->arrow;
	int rc = hr__arrow_schema_parse(flat, table, version, o->src, o->opts, &a->schema);

	if (rc < 0)
		return rc;
	o->even = calloc(a->schema.n_columns + 1, sizeof(*o->even));
	o->scan = malloc(SCAN_BYTES);
	if (!o->even || !o->scan)
		return hr__fail(ENOMEM, "%s: no memory for its columns", o->src->name);
	return 0;
}

/* -- the two framings ------------------------------------------------------------------------- */

static int open_stream(struct opening *o)
{
	uint64_t at = 0, size = o->src->size;
	struct hr__arrow_message m;
	int rc = hr__arrow_read(&o->reader, 0, size, &m, &at);

	if (rc < 0)
		return rc;
	if (rc == 1 || m.type != HR__ARROW_SCHEMA)
		return hr__arrow_refuse_at(
			o->src, 0,
			"does not begin with a schema; it is no Arrow stream or damaged");
	rc = set_schema(o, &m.flat, &m.header, m.version);
	while (rc == 0 && at < size) {
		rc = hr__arrow_read(&o->reader, at, size, &m, &at);
		if (rc == 0 && m.type == HR__ARROW_BATCH)
			rc = add_batch(o, &m);
		else if (rc == 0 && m.type != HR__ARROW_DICTIONARY)
			return hr__arrow_refuse_at(o->src, m.flat.base,
						   "a message that is neither a record batch nor a "
						   "dictionary; write the rows alone");
	}
	if (rc == 1 && at < size)
		return hr__arrow_refuse_at(
			o->src, at,
			"something follows behind the end of the stream; if these are "
			"several streams, write each into a file of its own");
	return rc < 0 ? rc : 0;
}

/* Block @p of the footer. */
static int add_block(struct opening *o, const uint8_t *p, uint64_t end, uint64_t *done)
{
	uint64_t at = hr__le64(p), metadata = hr__le32(p + 8), body = hr__le64(p + 16), next;
	struct hr__arrow_message m;
	int rc;

	/* In order, as every writer has them: else few bytes of a footer are endless work. */
	if (at < *done || at > end || metadata > end - at || body > end - at - metadata)
		return hr__arrow_refuse_at(
			o->src, at,
			"a record batch lies outside of the file or in another one; the "
			"footer is damaged, get the file again");
	rc = hr__arrow_read(&o->reader, at, end, &m, &next);
	if (rc < 0)
		return rc;
	if (rc == 1 || m.type != HR__ARROW_BATCH || m.body.offset > at + metadata ||
	    m.body.len != body)
		return hr__arrow_refuse_at(
			o->src, at,
			"is not the record batch that the footer promises; the file is "
			"damaged, get it again");
	m.body.offset = at + metadata;
	*done = at + metadata + body;
	return add_batch(o, &m);
}

static int walk_footer(struct opening *o, struct hr__flat *flat)
{
	struct hr__flat_table root = hr__flat_root(flat);
	struct hr__flat_table schema = hr__flat_table(flat, &root, FOOTER_SCHEMA);
	struct hr__flat_vector blocks = hr__flat_vector(flat, &root, FOOTER_BATCHES, BLOCK_BYTES);
	uint64_t version = hr__flat_number(flat, &root, FOOTER_VERSION, 2, 0);
	uint64_t done = FILE_HEAD_BYTES;
	int rc = flat->rc;

	if (rc == 0 && !schema.at)
		rc = hr__flat_fail(flat, 0, "a footer without a schema");
	if (rc == 0)
		rc = set_schema(o, flat, &schema, (uint32_t)version);
	for (uint32_t i = 0; i < blocks.n && rc == 0; i++)
		rc = add_block(o, flat->bytes + blocks.at + i * BLOCK_BYTES, flat->base, &done);
	return rc;
}

static int open_file(struct opening *o)
{
	const struct hr_source *src = o->src;
	uint64_t size = src->size, len;
	uint8_t tail[FILE_TAIL_BYTES];
	struct hr__flat flat = {.name = src->name};
	uint8_t *footer;
	int rc;

	if (size < FILE_HEAD_BYTES + FILE_TAIL_BYTES)
		return hr__arrow_refuse_at(
			src, size, "ends before its footer; it was truncated, get it again");
	rc = src->read(src, size - FILE_TAIL_BYTES, tail, FILE_TAIL_BYTES);
	if (rc < 0)
		return rc;
	len = hr__le32(tail);
	if (memcmp(tail + 4, MAGIC, MAGIC_BYTES) != 0)
		return hr__arrow_refuse_at(
			src, size - MAGIC_BYTES,
			"does not end with " MAGIC
			"; it was truncated or is still being written, get it again");
	if (len > size - FILE_HEAD_BYTES - FILE_TAIL_BYTES || len > HR__ARROW_METADATA_MAX)
		return hr__arrow_refuse_at(
			src, size - FILE_TAIL_BYTES,
			"its footer does not fit the file; it is damaged, get it again");
	footer = malloc((size_t)len + 1);
	if (!footer)
		return hr__fail(ENOMEM, "%s: no memory for its footer of %" PRIu64 " bytes",
				src->name, len);
	flat.base = size - FILE_TAIL_BYTES - len;
	flat.bytes = footer;
	flat.len = (uint32_t)len;
	rc = src->read(src, flat.base, footer, (size_t)len);
	if (rc == 0)
		rc = walk_footer(o, &flat);
	free(footer);
	return rc;
}

/* -- fields ----------------------------------------------------------------------------------- */

static int set_fields(struct opening *o)
{
	struct arrow *a = o->arrow;
	struct hr__schema *schema = &a->ff.schema;

	schema->fields = calloc(a->schema.n_columns + 1, sizeof(*schema->fields));
	a->column_of = calloc(a->schema.n_columns + 1, sizeof(*a->column_of));
	if (!schema->fields || !a->column_of)
		return hr__fail(ENOMEM, "%s: no memory for its fields", o->src->name);
	for (uint32_t i = 0; i < a->schema.n_columns; i++) {
		struct hr__arrow_column *column = &a->schema.columns[i];
		struct hr__field *field = &schema->fields[schema->n_fields];

		if (column->reason) {
			hr__arrow_leave_out(&a->schema, column->face.name, column->reason);
			continue;
		}
		if (column->list && o->even[i].length && !o->even[i].uneven) {
			/* All rows are equally long: their places are computed as well. */
			column->face.kind = HR_FIELD_FIXED;
			column->face.shape[0] = o->even[i].length;
			column->face.bytes = column->sizes->max;
			free(column->sizes);
			column->sizes = NULL;
		} else if (column->offset_bytes) {
			column->face.bytes = column->sizes->max;
		}
		field->face = column->face;
		field->sizes = column->sizes;
		a->column_of[schema->n_fields++] = i;
	}
	schema->count = a->n_batches ? a->first[a->n_batches] : 0;
	if (schema->n_fields == 0 && !o->opts->fields)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has no column that can be read where it lies: %s; write it "
				"again with columns of numbers, bytes or lists of numbers",
				o->src->name,
				a->schema.left_out[0] ? a->schema.left_out : "it has none at all");
	return hr__format_check_wanted(o->src, o->opts, schema);
}

static void arrow_close(struct hr__format_file *ff)
{
	struct arrow *a = (struct arrow *)ff;

	hr__arrow_schema_free(&a->schema);
	free(a->ff.schema.fields);
	free(a->column_of);
	free(a->first);
	free(a->places);
	free(a);
}

static int open_any(struct opening *o)
{
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t len;
	const char *foreign;
	int rc;

	rc = hr__format_head(o->src, head, &len);
	if (rc < 0)
		return rc;
	foreign = hr__format_foreign(head, len);
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: is no Arrow data; %s", o->src->name, foreign);
	rc = len >= MAGIC_BYTES && memcmp(head, MAGIC, MAGIC_BYTES) == 0 ? open_file(o)
									 : open_stream(o);
	return rc < 0 ? rc : set_fields(o);
}

static int arrow_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	struct opening o = {.src = args->src, .opts = args->opts, .reader = {.src = args->src}};
	int rc;

	o.arrow = calloc(1, sizeof(*o.arrow));
	if (o.arrow) {
		o.arrow->ff.ops = &hr__format_arrow;
		o.arrow->src = args->src;
		rc = open_any(&o);
	} else {
		rc = hr__fail(ENOMEM, "%s: no memory to open it", args->src->name);
	}
	free(o.reader.bytes);
	free(o.scan);
	free(o.even);
	if (rc == 0)
		*out = &o.arrow->ff;
	else if (o.arrow)
		arrow_close(&o.arrow->ff);
	return rc;
}

/* -- samples ---------------------------------------------------------------------------------- */

/* The record batch that row @index is in. */
static uint64_t batch_of(const struct arrow *a, uint64_t index)
{
	uint64_t low = 0, high = a->n_batches;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (a->first[middle] <= index)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static int arrow_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
			struct hr_range *out)
{
	const struct arrow *a = (const struct arrow *)ff;
	const struct hr__arrow_column *column;
	const struct hr__arrow_place *place;
	uint64_t batch, row, begin = 0, end = 0;
	uint8_t entries[16];
	int rc;

	if (index >= ff->schema.count || field >= ff->schema.n_fields)
		return -EINVAL;
	batch = batch_of(a, index);
	row = index - a->first[batch];
	column = &a->schema.columns[a->column_of[field]];
	place = &a->places[batch * a->schema.n_columns + a->column_of[field]];
	if (column->face.kind == HR_FIELD_FIXED) {
		out->offset = place->data + place->start * column->width + row * column->face.bytes;
		out->len = column->face.bytes;
		return 1;
	}
	rc = a->src->read(a->src, place->offsets + row * column->offset_bytes, entries,
			  2 * column->offset_bytes);
	if (rc == 0)
		rc = hr__arrow_row(a->src, column, place, entries, row, &begin, &end);
	if (rc < 0)
		return rc;
	out->offset = place->data + begin * column->width;
	out->len = (end - begin) * column->width;
	if (out->len > column->face.bytes)
		return hr__fail(HR_E_FILE_CHANGED,
				"%s: row %" PRIu64 " is longer than any was when the file was "
				"opened; is it being written?",
				a->src->name, index);
	return out->len > 0;
}

static int arrow_probe(const void *head, size_t len, uint64_t file_size)
{
	if (len >= MAGIC_BYTES && memcmp(head, MAGIC, MAGIC_BYTES) == 0)
		return 100;
	return hr__arrow_probe_stream(head, len, file_size);
}

const struct hr__format_ops hr__format_arrow = {
	.name = "arrow",
	.suffixes = ".arrow .feather .arrows .ipc",
	.probe = arrow_probe,
	.open = arrow_open,
	.locate = arrow_locate,
	.close = arrow_close,
};

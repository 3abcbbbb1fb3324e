/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/arrow.h - the inside of the Arrow IPC format: columns out of a schema, places of buffers out of
 * record batches. Metadata in, numbers out.
 *
 * The tables are those of Schema.fbs, Message.fbs and File.fbs in the format folder of apache/arrow.
 */
#ifndef HR_FORMAT_ARROW_H
#define HR_FORMAT_ARROW_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "format/flat.h"
#include "format/format.h"

#define HR__ARROW_METADATA_MAX (256u << 20)
#define HR__ARROW_V4 3u /* metadata of 0.8 to 0.17 */
#define HR__ARROW_V5 4u /* since 1.0 */

enum hr__arrow_header {
	HR__ARROW_SCHEMA = 1,
	HR__ARROW_DICTIONARY = 2,
	HR__ARROW_BATCH = 3,
};

struct hr__arrow_message {
	struct hr__flat flat; /* its metadata: valid until the next one is read */
	struct hr__flat_table header;
	uint32_t type, version;
	struct hr_range body;
};

/* Reads messages. Begin with @src alone; free() @bytes at the end. */
struct hr__arrow_reader {
	const struct hr_source *src;
	uint8_t *bytes;
	size_t room;
};

/*
 * hr__arrow_read() - the message at @at, in a file whose messages end at @end. @next: receives where the
 * one behind it is. Return: 0; 1 at the mark of the end, @next behind it; -code with a sentence.
 */
int hr__arrow_read(struct hr__arrow_reader *reader, uint64_t at, uint64_t end,
		   struct hr__arrow_message *m, uint64_t *next);

/* hr__arrow_refuse_at() - @what is wrong at byte @at. Return: -HR_E_BAD_FORMAT. */
int hr__arrow_refuse_at(const struct hr_source *src, uint64_t at, const char *what);

/* A stream has no magic number: its first message must be a schema. Return: as probe(). */
int hr__arrow_probe_stream(const void *head, size_t len, uint64_t file_size);

/* A column that can be read and is wanted. */
struct hr__arrow_column {
	struct hr_field face; /* its name belongs to the column */
	const char *reason;   /* why it cannot be read after all (nulls), static; NULL */
	struct hr__sizes *sizes;
	uint32_t node, buffer; /* numbers of its first in a record batch */
	uint32_t views;        /* columns before it whose number of buffers varies */
	uint32_t levels;       /* fixed-size lists around its elements */
	uint32_t width;        /* ragged: bytes of an element */
	uint32_t offset_bytes; /* ragged: 4 or 8, of an entry of its offsets; fixed: 0 */
	bool list;             /* ragged: elements are a column of their own */
};

struct hr__arrow_schema {
	struct hr__arrow_column *columns;
	uint32_t n_columns;
	uint32_t n_nodes, n_buffers, n_views; /* of all columns of the file */
	char left_out[200];                   /* "x: bits; y: a union", for sentences */
};

/*
 * hr__arrow_schema_parse() - @table: a Schema; @version: of the metadata, as HR__ARROW_V5. Keeps what is
 * wanted and can be read.
 * Return: 0; -EINVAL when a column was named that cannot be read; -HR_E_BAD_FORMAT, -ENOMEM; *out is
 * zeroed on failure.
 */
int hr__arrow_schema_parse(struct hr__flat *flat, const struct hr__flat_table *table,
			   uint32_t version, const struct hr_source *src,
			   const struct hr_dataset_options *opts, struct hr__arrow_schema *out);

/* hr__arrow_schema_free() - accepts a zeroed schema. */
void hr__arrow_schema_free(struct hr__arrow_schema *schema);

/* hr__arrow_refuse() - a column that was named cannot be read. Return: -EINVAL. */
int hr__arrow_refuse(const struct hr_source *src, const char *column, const char *reason);

/* hr__arrow_leave_out() - note a column and why, for the sentence about those that cannot be read. */
void hr__arrow_leave_out(struct hr__arrow_schema *schema, const char *column, const char *reason);

/* Where a column's values are in one record batch: bytes of the file. */
struct hr__arrow_place {
	uint64_t data;    /* of element 0 */
	uint64_t offsets; /* ragged: of the entry for row 0 */
	uint64_t limit;   /* ragged: elements that there are */
	uint64_t start;   /* ragged: the element that row 0 begins with */
};

/*
 * hr__arrow_batch_parse() - @table: a RecordBatch; @body: the bytes behind the metadata. @places: receives
 * one for each column of @schema. A column with nulls gets its reason. @rows: receives how many there are.
 * Return: 0, -HR_E_BAD_FORMAT with a sentence.
 */
int hr__arrow_batch_parse(struct hr__flat *flat, const struct hr__flat_table *table,
			  const struct hr_source *src, const struct hr_range *body,
			  struct hr__arrow_schema *schema, struct hr__arrow_place *places,
			  uint64_t *rows);

/*
 * hr__arrow_row() - where ragged values begin and end, out of the entries @entries of row @row; holds
 * them to the rules. Return: 0, -HR_E_BAD_SAMPLE.
 */
int hr__arrow_row(const struct hr_source *src, const struct hr__arrow_column *column,
		  const struct hr__arrow_place *place, const uint8_t *entries, uint64_t row,
		  uint64_t *begin, uint64_t *end);

#endif

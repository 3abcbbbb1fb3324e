/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/index_write.c - writes a side index while a file is scanned, in memory of one block of rows and
 * the lists of its tail. Knows no format and does no I/O of its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/index.h"
#include "format/index_file.h"

#define CELLS_MAX 2048u /* kept before they become a block: less than two blocks as a rule */
#define NOTES_MAX 1024u
#define REASON_MAX 256u

/* Bytes that grow. */
struct bytes {
	uint8_t *at;
	size_t len, room;
};

struct hr__index_writer {
	struct hr__index_sink sink; /* must be first */
	struct hr__index_out *out;
	struct hr__index_data data;
	char format[HR__INDEX_FORMAT_BYTES];
	struct hr__index_column *columns;
	char **notes; /* of columns, or NULL */
	uint32_t n_columns, columns_room, last_column;
	struct hr__cell *cells; /* CELLS_MAX, of rows with @stride cells each */
	uint32_t stride, n_rows, rows_max;
	uint64_t rows; /* in blocks */
	uint64_t at;   /* in the index */
	uint8_t *block;
	struct bytes bad, blocks;
	uint64_t n_bad, n_blocks;
	char bad_reason[REASON_MAX], file_notes[NOTES_MAX];
};

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static int append(struct bytes *b, const void *what, size_t len)
{
	if (b->room - b->len < len) {
		size_t room = (size_t)hr__max(2 * b->room, b->len + len + 4096);
		uint8_t *at = realloc(b->at, room);

		if (!at)
			return hr__fail(ENOMEM, "no memory for a side index of %zu bytes", room);
		b->at = at;
		b->room = room;
	}
	if (len)
		memcpy(b->at + b->len, what, len);
	b->len += len;
	return 0;
}

static int append64(struct bytes *b, uint64_t v)
{
	uint8_t raw[8];

	put64(raw, v);
	return append(b, raw, sizeof(raw));
}

static int append16(struct bytes *b, uint16_t v)
{
	uint8_t raw[2];

	put16(raw, v);
	return append(b, raw, sizeof(raw));
}

static int append_text(struct bytes *b, const char *text)
{
	size_t len = strlen(text) + 1;
	int rc = append16(b, (uint16_t)len);

	return rc < 0 ? rc : append(b, text, len);
}

/* -- a block --------------------------------------------------------------------------------- */

/* One column of some rows, as it will be stored. */
struct packing {
	const struct hr__cell *cells; /* the first; the next is @step further */
	uint32_t step, n;
	uint8_t mode, offset_width, len_width;
	uint64_t base, stride, len_base;
};

static const struct hr__cell *cell_at(const struct packing *p, uint32_t i)
{
	return &p->cells[(size_t)i * p->step];
}

static uint8_t width_of(uint64_t v)
{
	unsigned int bits = v ? 64u - (unsigned int)__builtin_clzll(v) : 0;

	return (uint8_t)((bits + 7) / 8);
}

static uint8_t mode_of(const struct packing *p)
{
	uint8_t mode = (uint8_t)p->cells[0].kind;

	for (uint32_t i = 1; i < p->n; i++) {
		if (cell_at(p, i)->kind != mode)
			return HR__INDEX_MODE_MIXED;
	}
	return mode;
}

/* A straight line through the offsets: what is left of them is small where samples are alike. */
static void fit_offsets(struct packing *p)
{
	uint32_t first = 0, last = p->n - 1;
	int64_t least = 0;
	uint64_t most = 0;

	while (first < last && !cell_at(p, first)->kind)
		first++;
	while (last > first && !cell_at(p, last)->kind)
		last--;
	if (last > first && cell_at(p, last)->offset >= cell_at(p, first)->offset)
		p->stride = (cell_at(p, last)->offset - cell_at(p, first)->offset) / (last - first);
	p->base = cell_at(p, first)->offset - first * p->stride;
	/* Modulo 2^64: whatever the values are, adding up again gives them back. */
	for (uint32_t i = first; i <= last; i++) {
		int64_t rest = (int64_t)(cell_at(p, i)->offset - p->base - i * p->stride);

		if (cell_at(p, i)->kind && rest < least)
			least = rest;
	}
	p->base += (uint64_t)least;
	for (uint32_t i = first; i <= last; i++) {
		if (cell_at(p, i)->kind)
			most = hr__max(most, cell_at(p, i)->offset - p->base - i * p->stride);
	}
	p->offset_width = width_of(most);
}

static void fit_lengths(struct packing *p)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (uint32_t i = 0; i < p->n; i++) {
		if (cell_at(p, i)->kind != HR__CELL_RANGE)
			continue;
		least = hr__min(least, cell_at(p, i)->len);
		most = hr__max(most, cell_at(p, i)->len);
	}
	if (least <= most) {
		p->len_base = least;
		p->len_width = width_of(most - least);
	}
}

static uint8_t *put_width(uint8_t *at, uint64_t v, uint8_t width)
{
	for (uint8_t i = 0; i < width; i++)
		*at++ = (uint8_t)(v >> (8 * i));
	return at;
}

static uint8_t *put_arrays(const struct packing *p, uint8_t *at)
{
	if (p->mode == HR__INDEX_MODE_MIXED) {
		memset(at, 0, (p->n + 3) / 4);
		for (uint32_t i = 0; i < p->n; i++)
			at[i / 4] |= (uint8_t)(cell_at(p, i)->kind << (i % 4 * 2));
		at += (p->n + 3) / 4;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		const struct hr__cell *c = cell_at(p, i);

		at = put_width(at, c->kind ? c->offset - p->base - i * p->stride : 0,
			       p->offset_width);
	}
	for (uint32_t i = 0; i < p->n; i++) {
		const struct hr__cell *c = cell_at(p, i);

		at = put_width(at, c->kind == HR__CELL_RANGE ? c->len - p->len_base : 0,
			       p->len_width);
	}
	return at;
}

/* Rows @from.. + @n as a block. Return: its bytes, 0 when it would be too large. */
static uint32_t pack_block(struct hr__index_writer *w, uint32_t from, uint32_t n)
{
	size_t at = HR__INDEX_BLOCK_HEAD + (size_t)w->stride * HR__INDEX_DESCRIPTOR_BYTES;

	put32(w->block, n);
	put32(w->block + 4, w->stride);
	for (uint32_t k = 0; k < w->stride; k++) {
		struct packing p = {.cells = &w->cells[(size_t)from * w->stride + k],
				    .step = w->stride,
				    .n = n};
		uint8_t *d = w->block + HR__INDEX_BLOCK_HEAD + k * HR__INDEX_DESCRIPTOR_BYTES;
		size_t len;

		p.mode = mode_of(&p);
		if (p.mode != HR__CELL_ABSENT) {
			fit_offsets(&p);
			fit_lengths(&p);
		}
		len = (size_t)n * (p.offset_width + p.len_width) +
		      (p.mode == HR__INDEX_MODE_MIXED ? (n + 3) / 4 : 0);
		if (len > HR__INDEX_BLOCK_BYTES - at)
			return 0;
		d[0] = p.mode;
		d[1] = p.offset_width;
		d[2] = p.len_width;
		d[3] = 0;
		put32(d + 4, (uint32_t)at);
		put64(d + 8, p.base);
		put64(d + 16, p.stride);
		put64(d + 24, p.len_base);
		put_arrays(&p, w->block + at);
		at += len;
	}
	return (uint32_t)at;
}

static int write_block(struct hr__index_writer *w, uint32_t len, uint32_t rows)
{
	uint8_t entry[HR__INDEX_ENTRY_BYTES] = {0};
	int rc = w->out->write(w->out, w->at, w->block, len);

	if (rc < 0)
		return rc;
	if (w->n_blocks == UINT32_MAX)
		return hr__fail(EOVERFLOW, "%s: more samples than a side index can have",
				w->data.name);
	put64(entry, w->rows);
	put64(entry + 8, w->at);
	put64(entry + 16, XXH3_64bits(w->block, len));
	put32(entry + 24, len);
	w->rows += rows;
	w->at += len;
	w->n_blocks++;
	return append(&w->blocks, entry, sizeof(entry));
}

/* All rows that are kept, as one block or several. */
static int flush_rows(struct hr__index_writer *w)
{
	uint32_t done = 0, take = w->n_rows;

	while (done < w->n_rows) {
		uint32_t n = (uint32_t)hr__min(take, w->n_rows - done),
			 len = pack_block(w, done, n);
		int rc;

		if (!len) { /* one row of all columns always fits */
			take = (n + 1) / 2;
			continue;
		}
		rc = write_block(w, len, n);
		if (rc < 0)
			return rc;
		done += n;
	}
	w->n_rows = 0;
	return 0;
}

/* -- what a scan tells ------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at @s, 0 if it is none or is a control character. */
static size_t text_char(const unsigned char *s)
{
	size_t n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : (*s & 0xf0) == 0xe0 ? 3 : 4;

	if (*s < 0x20 || *s == 0x7f || (n == 4 && (*s < 0xf0 || *s > 0xf4)))
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

bool hr__index_good_name(const char *name)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t n;

	if (!*name || strlen(name) > HR__INDEX_NAME_MAX)
		return false;
	for (; *s; s += n) {
		n = text_char(s);
		if (!n)
			return false;
	}
	return true;
}

static bool same_face(const struct hr__index_face *a, const struct hr__index_face *b)
{
	return a->dtype == b->dtype && a->ndim == b->ndim && a->flags == b->flags &&
	       memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

static int grow_columns(struct hr__index_writer *w)
{
	uint32_t room = w->columns_room ? 2 * w->columns_room : 8;
	struct hr__index_column *columns = realloc(w->columns, room * sizeof(*columns));

	if (!columns)
		return -ENOMEM;
	w->columns = columns;
	w->columns_room = room;
	return 0;
}

static int add_column(struct hr__index_writer *w, const struct hr__index_face *face)
{
	struct hr__index_column *c;

	if (w->n_columns == HR__INDEX_COLUMNS_MAX)
		return -E2BIG;
	if (!hr__index_good_name(face->name))
		return -EILSEQ;
	if (w->n_columns == w->columns_room && grow_columns(w) < 0)
		return hr__fail(ENOMEM, "%s: no memory for a column", w->data.name);
	c = &w->columns[w->n_columns];
	memset(c, 0, sizeof(*c));
	c->face = *face;
	c->face.name = strdup(face->name);
	if (!c->face.name)
		return hr__fail(ENOMEM, "%s: no memory for a column", w->data.name);
	c->absent = w->rows + w->n_rows - w->n_bad;
	c->len_min = UINT64_MAX;
	w->last_column = w->n_columns;
	return (int)w->n_columns++;
}

static int sink_column(struct hr__index_sink *sink, const struct hr__index_face *face)
{
	struct hr__index_writer *w = (struct hr__index_writer *)sink;

	/* Samples have their columns in the same order: mostly it is the next one. */
	for (uint32_t i = 0; i < w->n_columns; i++) {
		uint32_t k = (w->last_column + 1 + i) % w->n_columns;

		if (strcmp(w->columns[k].face.name, face->name) != 0)
			continue;
		w->last_column = k;
		return same_face(&w->columns[k].face, face) ? (int)k : -EEXIST;
	}
	return add_column(w, face);
}

static int check_range(const struct hr__index_writer *w, const struct hr__index_column *c,
		       const struct hr__cell *cell)
{
	uint64_t bytes = hr_dtype_size(c->face.dtype);

	if (cell->offset > w->data.size || cell->len > w->data.size - cell->offset)
		return hr__fail(HR_E_BAD_FORMAT, "%s: a sample ends behind the file", w->data.name);
	if (cell->len % bytes)
		return hr__fail(HR_E_BAD_FORMAT, "%s: a value of %s has a part of an element",
				w->data.name, c->face.name);
	for (uint32_t d = 0; d < c->face.ndim; d++) {
		if (hr__mul_overflows(bytes, c->face.shape[d], &bytes))
			bytes = UINT64_MAX;
	}
	if (c->face.ndim && cell->len != bytes)
		return hr__fail(HR_E_BAD_FORMAT, "%s: a value of %s has another shape",
				w->data.name, c->face.name);
	return 0;
}

static int count_cell(struct hr__index_writer *w, struct hr__index_column *c,
		      const struct hr__cell *cell)
{
	int rc = 0;

	switch (cell->kind) {
	case HR__CELL_ABSENT:
		c->absent++;
		break;
	case HR__CELL_RANGE:
		rc = check_range(w, c, cell);
		c->ranges++;
		c->len_min = hr__min(c->len_min, cell->len);
		hr__sizes_add(&c->sizes, cell->len);
		break;
	case HR__CELL_I64:
		c->scalars++;
		break;
	case HR__CELL_F64:
		c->floats++;
		break;
	}
	return rc;
}

static int note_bad(struct hr__index_writer *w, const char *bad)
{
	if (w->n_bad == HR__INDEX_BAD_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: more than %u damaged samples, the first: %s; copy the file "
				"again",
				w->data.name, HR__INDEX_BAD_MAX, w->bad_reason);
	if (!w->n_bad)
		snprintf(w->bad_reason, sizeof(w->bad_reason), "%s", bad);
	w->n_bad++;
	return append64(&w->bad, w->rows + w->n_rows);
}

static int sink_sample(struct hr__index_sink *sink, const struct hr__cell *cells, uint32_t n,
		       const char *bad)
{
	static const struct hr__cell none;
	struct hr__index_writer *w = (struct hr__index_writer *)sink;
	int rc = 0;

	if (w->stride != w->n_columns || w->n_rows == w->rows_max) {
		rc = flush_rows(w);
		w->stride = w->n_columns;
		w->rows_max = CELLS_MAX / (w->stride ? w->stride : 1);
	}
	for (uint32_t k = 0; k < w->n_columns && rc == 0; k++) {
		const struct hr__cell *cell = k < n && !bad ? &cells[k] : &none;

		if (!bad)
			rc = count_cell(w, &w->columns[k], cell);
		w->cells[(size_t)w->n_rows * w->stride + k] = *cell;
	}
	if (rc == 0 && bad)
		rc = note_bad(w, bad);
	w->n_rows++;
	return rc;
}

static void sink_note(struct hr__index_sink *sink, uint32_t column, const char *text)
{
	struct hr__index_writer *w = (struct hr__index_writer *)sink;
	size_t len = strlen(w->file_notes);

	if (column < w->n_columns) {
		if (!w->notes[column])
			w->notes[column] = strndup(text, NOTES_MAX);
	} else if (len + strlen(text) + 3 <= sizeof(w->file_notes)) {
		snprintf(w->file_notes + len, sizeof(w->file_notes) - len, "%s%s", len ? "; " : "",
			 text);
	}
}

static int sink_progress(struct hr__index_sink *sink, uint64_t bytes)
{
	struct hr__index_writer *w = (struct hr__index_writer *)sink;

	return w->out->progress ? w->out->progress(w->out, bytes, w->rows + w->n_rows) : 0;
}

/* -- open, finish, close ---------------------------------------------------------------------- */

int hr__index_writer_open(struct hr__index_out *out, const struct hr__index_data *data,
			  struct hr__index_writer **writer)
{
	struct hr__index_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return hr__fail(ENOMEM, "%s: no memory for its side index", data->name);
	w->notes = calloc(HR__INDEX_COLUMNS_MAX, sizeof(*w->notes));
	w->cells = calloc(CELLS_MAX, sizeof(*w->cells));
	w->block = malloc(HR__INDEX_BLOCK_BYTES);
	if (!w->notes || !w->cells || !w->block) {
		hr__index_writer_close(w);
		return hr__fail(ENOMEM, "%s: no memory for its side index", data->name);
	}
	w->sink = (struct hr__index_sink){sink_column, sink_sample, sink_note, sink_progress};
	w->out = out;
	w->data = *data;
	snprintf(w->format, sizeof(w->format), "%s", data->format);
	w->at = HR__INDEX_HEADER_BYTES;
	w->rows_max = CELLS_MAX;
	*writer = w;
	return 0;
}

struct hr__index_sink *hr__index_writer_sink(struct hr__index_writer *writer)
{
	return &writer->sink;
}

static int append_sizes(struct bytes *b, const struct hr__sizes *sizes)
{
	uint16_t classes = 0;
	int rc = append64(b, sizes->values);

	for (uint32_t i = 0; i < HR__SIZE_CLASSES; i++)
		classes = (uint16_t)(classes + (sizes->count[i] != 0));
	if (rc == 0)
		rc = append64(b, sizes->bytes);
	if (rc == 0)
		rc = append64(b, sizes->max);
	if (rc == 0)
		rc = append16(b, classes);
	for (uint32_t i = 0; i < HR__SIZE_CLASSES && rc == 0; i++) {
		if (!sizes->count[i])
			continue;
		rc = append16(b, (uint16_t)i);
		if (rc == 0)
			rc = append64(b, sizes->count[i]);
	}
	return rc;
}

static int append_column(struct bytes *b, const struct hr__index_column *c, const char *note)
{
	uint8_t kinds[4] = {(uint8_t)c->face.dtype, (uint8_t)c->face.ndim, (uint8_t)c->face.flags};
	const uint64_t counts[] = {c->absent, c->ranges, c->scalars, c->floats,
				   c->ranges ? c->len_min : 0};
	int rc = append_text(b, c->face.name);

	if (rc == 0)
		rc = append_text(b, note ? note : "");
	if (rc == 0)
		rc = append(b, kinds, sizeof(kinds));
	for (uint32_t d = 0; d < c->face.ndim && rc == 0; d++)
		rc = append64(b, c->face.shape[d]);
	for (size_t i = 0; i < HR_ARRAY_LEN(counts) && rc == 0; i++)
		rc = append64(b, counts[i]);
	return rc < 0 ? rc : append_sizes(b, &c->sizes);
}

static int make_tail(const struct hr__index_writer *w, struct bytes *tail)
{
	int rc = append_text(tail, w->bad_reason);

	if (rc == 0)
		rc = append_text(tail, w->file_notes);
	for (uint32_t k = 0; k < w->n_columns && rc == 0; k++)
		rc = append_column(tail, &w->columns[k], w->notes[k]);
	if (rc == 0)
		rc = append(tail, w->bad.at, w->bad.len);
	return rc < 0 ? rc : append(tail, w->blocks.at, w->blocks.len);
}

static int write_header(struct hr__index_writer *w, const struct bytes *tail)
{
	uint8_t h[HR__INDEX_HEADER_BYTES] = {0};

	for (uint32_t i = 0; i < 8; i++)
		h[i] = (uint8_t)HR__INDEX_MAGIC[i];
	put32(h + HR__INDEX_AT_VERSION, HR__INDEX_VERSION);
	put32(h + HR__INDEX_AT_RULES, w->data.rules);
	put64(h + HR__INDEX_AT_DATA_SIZE, w->data.size);
	put64(h + HR__INDEX_AT_DATA_MTIME, w->data.mtime_ns);
	put64(h + HR__INDEX_AT_DATA_HEAD, w->data.head);
	memcpy(h + HR__INDEX_AT_FORMAT, w->format, sizeof(w->format));
	put64(h + HR__INDEX_AT_ROWS, w->rows);
	put64(h + HR__INDEX_AT_N_BAD, w->n_bad);
	put32(h + HR__INDEX_AT_N_COLUMNS, w->n_columns);
	put32(h + HR__INDEX_AT_N_BLOCKS, (uint32_t)w->n_blocks);
	put64(h + HR__INDEX_AT_TAIL, w->at);
	put64(h + HR__INDEX_AT_TAIL + 8, tail->len);
	put64(h + HR__INDEX_AT_TAIL + 16, XXH3_64bits(tail->at, tail->len));
	put64(h + HR__INDEX_AT_HASH, XXH3_64bits(h, HR__INDEX_AT_HASH));
	return w->out->write(w->out, 0, h, sizeof(h));
}

int hr__index_writer_finish(struct hr__index_writer *w)
{
	struct bytes tail = {0};
	int rc = flush_rows(w);

	if (rc == 0)
		rc = make_tail(w, &tail);
	if (rc == 0)
		rc = w->out->write(w->out, w->at, tail.at, tail.len);
	if (rc == 0)
		rc = write_header(w, &tail);
	free(tail.at);
	return rc;
}

void hr__index_writer_close(struct hr__index_writer *w)
{
	if (!w)
		return;
	for (uint32_t k = 0; k < w->n_columns; k++) {
		free((char *)w->columns[k].face.name);
		free(w->notes[k]);
	}
	free(w->columns);
	free(w->notes);
	free(w->cells);
	free(w->block);
	free(w->bad.at);
	free(w->blocks.at);
	free(w);
}

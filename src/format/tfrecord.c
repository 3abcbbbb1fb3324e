/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/tfrecord.c - TFRecord: records with a length and two checksums, mostly with a tf.train.Example in
 * each. Sees bytes only through a source. One pass checks every byte and tells a side index what lies
 * where; everything else is format/indexed.c.
 *
 * The framing is that of tensorflow/core/lib/io/record_writer.h: u64 length, u32 masked CRC-32C of
 * these 8 bytes, the data, u32 masked CRC-32C of the data; all little-endian.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/util.h"
#include "format/example.h"
#include "format/format.h"
#include "format/indexed.h"
#include "format/le.h"

#define SCAN_RULES 1u
#define ROOM (1u << 20)
#define HEAD_BYTES 12u
#define FOOT_BYTES 4u
#define TEXT_MAX 256u
#define RECORD "record"

struct scan {
	const struct hr_source *src;
	struct hr__index_sink *sink;
	struct hr__peek peek;
	uint64_t at;     /* of the next record */
	uint64_t told;   /* of progress */
	uint32_t record; /* number of that column */
	uint32_t n_cells;
	uint64_t records, examples, skipped_names;
	struct hr__cell cells[HR__INDEX_COLUMNS_MAX];
	char bad[TEXT_MAX];
};

/* As TensorFlow hides checksums that are stored beside what they are of. */
static uint32_t mask(uint32_t crc)
{
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static bool good_head(const uint8_t *head)
{
	return mask(hr__crc32c(0, head, 8)) == hr__le32(head + 8);
}

/* -- one record ------------------------------------------------------------------------------- */

static int set_cell(struct scan *s, int column, const struct hr__cell *cell)
{
	s->cells[column] = *cell;
	s->n_cells = (uint32_t)hr__max(s->n_cells, (uint32_t)column + 1);
	return 0;
}

/* One name, other kinds of values: what does not fit is left out. */
static int feature_column(struct scan *s, const struct hr__feature *f, bool floats)
{
	struct hr__index_face face = {.name = f->name,
				      .dtype = floats ? HR_DTYPE_F32 : HR_DTYPE_U8};

	return s->sink->column(s->sink, &face);
}

static int add_feature(void *ctx, const struct hr__feature *f)
{
	static const struct hr__cell none;
	struct scan *s = ctx;
	const char *why = f->why;
	int column;

	if (f->cell.kind == HR__CELL_ABSENT && !why)
		return 0; /* without values, and without a type */
	column = feature_column(s, f, f->floats);
	if (column == -EEXIST) {
		column = feature_column(s, f, !f->floats);
		if (column >= 0 && f->cell.kind == HR__CELL_RANGE)
			why = "floats in some records and bytes in others";
	}
	if (column == -E2BIG || column == -EILSEQ || column == -EEXIST) {
		s->skipped_names++;
		return 0;
	}
	if (column < 0)
		return column;
	if (why)
		s->sink->note(s->sink, (uint32_t)column, why);
	return set_cell(s, column, why ? &none : &f->cell);
}

static int ignore_feature(void *ctx, const struct hr__feature *f)
{
	(void)ctx;
	(void)f;
	return 0;
}

static int take_payload(struct scan *s, uint64_t offset, uint64_t len)
{
	struct hr__cell whole = {HR__CELL_RANGE, offset, len};
	/* First only whether it is an Example: what is half one must leave no columns behind. */
	int rc = hr__example_walk(&s->peek, offset, len, ignore_feature, s);

	if (rc > 0) {
		s->examples++;
		rc = hr__example_walk(&s->peek, offset, len, add_feature, s);
	}
	return rc < 0 ? rc : set_cell(s, (int)s->record, &whole);
}

/* Return: 1 if the data has its checksum, 0 if not, -code. */
static int check_data(struct scan *s, uint64_t offset, uint64_t len)
{
	const uint8_t *bytes;
	uint32_t crc = 0;
	int rc;

	/* What fits into the window is seen whole, and still there when it is walked. */
	if (len <= ROOM - FOOT_BYTES) {
		rc = hr__peek(&s->peek, offset, (size_t)len + FOOT_BYTES, ROOM, &bytes);
		if (rc < 0)
			return rc;
		return mask(hr__crc32c(0, bytes, (size_t)len)) == hr__le32(bytes + len);
	}
	for (uint64_t done = 0; done < len;) {
		size_t n = (size_t)hr__min(len - done, ROOM);

		rc = hr__peek(&s->peek, offset + done, n, ROOM, &bytes);
		if (rc < 0)
			return rc;
		crc = hr__crc32c(crc, bytes, n);
		done += n;
		s->told = offset + done;
		rc = s->sink->progress(s->sink, s->told);
		if (rc < 0)
			return rc;
	}
	rc = hr__peek(&s->peek, offset + len, FOOT_BYTES, ROOM, &bytes);
	return rc < 0 ? rc : mask(crc) == hr__le32(bytes);
}

static int tell_sample(struct scan *s)
{
	int rc = s->sink->sample(s->sink, s->cells, s->n_cells, s->bad[0] ? s->bad : NULL);

	memset(s->cells, 0, s->n_cells * sizeof(s->cells[0]));
	s->n_cells = 0;
	s->bad[0] = '\0';
	s->records++;
	return rc;
}

/* What follows cannot be found: one damaged sample stands for it. */
static int give_up(struct scan *s, const char *why)
{
	snprintf(s->bad, sizeof(s->bad),
		 "byte %" PRIu64 ": %s; nothing behind it can be found, %" PRIu64 " bytes in all",
		 s->at, why, s->src->size - s->at);
	s->at = s->src->size;
	return tell_sample(s);
}

static int scan_record(struct scan *s)
{
	uint64_t left = s->src->size - s->at, len;
	const uint8_t *head;
	int rc;

	if (left < HEAD_BYTES)
		return give_up(s, "the file ends inside the head of a record: it was cut short");
	rc = hr__peek(&s->peek, s->at, HEAD_BYTES, ROOM, &head);
	if (rc < 0)
		return rc;
	if (!good_head(head))
		return give_up(s, "the length of a record does not have its checksum");
	len = hr__le64(head);
	if (left - HEAD_BYTES < FOOT_BYTES || len > left - HEAD_BYTES - FOOT_BYTES)
		return give_up(s, "the file ends inside a record: it was cut short");
	rc = check_data(s, s->at + HEAD_BYTES, len);
	if (rc < 0)
		return rc;
	if (rc)
		rc = take_payload(s, s->at + HEAD_BYTES, len);
	else
		snprintf(s->bad, sizeof(s->bad),
			 "byte %" PRIu64 ": the %" PRIu64 " bytes of record %" PRIu64
			 " do not have their checksum",
			 s->at + HEAD_BYTES, len, s->records);
	if (rc < 0)
		return rc;
	s->at += HEAD_BYTES + len + FOOT_BYTES;
	return tell_sample(s);
}

/* -- a file ----------------------------------------------------------------------------------- */

/* RFC 1950: compressed by deflate, with a checksum of two bytes. */
static bool is_zlib(const uint8_t *head, size_t len)
{
	return len >= 2 && (head[0] & 0x0f) == 8 && (head[0] >> 4) <= 7 &&
	       (head[0] << 8 | head[1]) % 31 == 0;
}

static int check_first(struct scan *s)
{
	size_t len = (size_t)hr__min(s->src->size, HR__FORMAT_HEAD_BYTES);
	const char *foreign;
	const uint8_t *head;
	int rc;

	rc = hr__format_some(s->src);
	if (rc < 0)
		return rc;
	rc = hr__peek(&s->peek, 0, len, ROOM, &head);
	if (rc < 0)
		return rc;
	if (len >= HEAD_BYTES && good_head(head))
		return 0;
	foreign = hr__format_foreign(head, len);
	if (!foreign && is_zlib(head, len))
		foreign = "this is zlib-compressed; write it again with compression_type=\"\"";
	if (!foreign && hr__format_zeros(head, len))
		foreign = "this begins with zeros; the copy went wrong, copy it again";
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", s->src->name, foreign);
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte 0: no TFRecord (the length of the first record does not have its "
			"checksum); the file is damaged or something else, copy it again",
			s->src->name);
}

static int add_record_column(struct scan *s)
{
	struct hr__index_face face = {
		.name = RECORD, .dtype = HR_DTYPE_U8, .flags = HR__INDEX_FALLBACK};
	int column = s->sink->column(s->sink, &face);

	if (column < 0)
		return column;
	s->record = (uint32_t)column;
	return 0;
}

static void tell_notes(struct scan *s)
{
	char text[TEXT_MAX];

	if (s->skipped_names) {
		snprintf(
			text, sizeof(text),
			"%" PRIu64
			" features were skipped: names that no field can have, or too many of them",
			s->skipped_names);
		s->sink->note(s->sink, UINT32_MAX, text);
	}
	if (s->examples && s->examples < s->records) {
		snprintf(text, sizeof(text),
			 "%" PRIu64 " of %" PRIu64 " records are no whole tf.train.Example",
			 s->records - s->examples, s->records);
		s->sink->note(s->sink, UINT32_MAX, text);
	}
}

static int scan_all(struct scan *s)
{
	int rc = check_first(s);

	if (rc == 0)
		rc = add_record_column(s);
	while (rc == 0 && s->at < s->src->size) {
		rc = scan_record(s);
		if (rc == 0 && s->at - s->told >= ROOM) {
			s->told = s->at;
			rc = s->sink->progress(s->sink, s->at);
		}
	}
	if (rc < 0)
		return rc;
	tell_notes(s);
	return s->sink->progress(s->sink, s->src->size);
}

static int tfrecord_scan(const struct hr_source *src, struct hr__index_sink *sink)
{
	struct scan *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return hr__fail(ENOMEM, "%s: no memory to read it", src->name);
	s->src = src;
	s->sink = sink;
	rc = hr__peek_open(&s->peek, src, ROOM);
	if (rc == 0)
		rc = scan_all(s);
	hr__peek_close(&s->peek);
	free(s);
	return rc;
}

static int tfrecord_probe(const void *head, size_t len, uint64_t file_size)
{
	return len >= HEAD_BYTES && good_head(head) ? 100 : 0;
}

static int tfrecord_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	return hr__indexed_open(args, &hr__format_tfrecord, out);
}

const struct hr__format_ops hr__format_tfrecord = {
	.name = "tfrecord",
	.suffixes = ".tfrecord .tfrecords",
	.probe = tfrecord_probe,
	.scan = tfrecord_scan,
	.scan_rules = SCAN_RULES,
	.open = tfrecord_open,
	.locate = hr__indexed_locate,
	.value = hr__indexed_value,
	.close = hr__indexed_close,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_arrow - Arrow IPC over bytes made by hand: where each value lies in a file and in a stream,
 * record batches and schemas with one number spoiled, every prefix and every changed byte.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headrace/error.h>

#include "support/arrow_build.h"
#include "support/format_bytes.h"

enum {
	INT = 2,
	FLOAT = 3,
	BINARY = 4,
	BOOL = 6,
	LIST = 12,
	STRUCT = 13,
	UNION = 14,
	FIXED_LIST = 16,
	LARGE_LIST = 21,
	UTF8_VIEW = 24
};

#define INTEGER(bits)                                                                              \
	{                                                                                          \
		{4, bits},                                                                         \
		{                                                                                  \
			1, 1                                                                       \
		}                                                                                  \
	}

static const struct arrow_column_spec i16_item = {"item", INT, INTEGER(16)};
static const struct arrow_column_spec f32_item = {"item", FLOAT, {{2, 1}}};
static const struct arrow_column_spec view_item = {"v", UTF8_VIEW};

/* A row: i32, 3 x f32, what is not read, i16 of any number, bytes. */
static const struct arrow_column_spec specs[] = {
	{"a", INT, INTEGER(32)},
	{"v", FIXED_LIST, {{4, 3}}, &f32_item, 1},
	{"odd", STRUCT, {{0}}, &view_item, 1},
	{"l", LIST, {{0}}, &i16_item, 1},
	{"b", BINARY},
};
#define N_SPECS 5u

/*
 * Its record batch of 3 rows. The body: a at 0 (12 bytes), v at 16 (36), offsets of l at 56 (16), l at 72
 * (10 elements), offsets of b at 96 (16), b at 112 (9 bytes); 128 in all. Offsets begin where they like.
 */
static const struct arrow_pair nodes[] = {{3, 0}, {3, 0}, {9, 0},  {3, 1},
					  {3, 2}, {3, 0}, {10, 0}, {3, 0}};
static const struct arrow_pair buffers[] = {
	{0, 0},  {0, 12},                    /* a: valid, data */
	{16, 0}, {16, 0},  {16, 36},         /* v: valid, the items', data */
	{0, 0},  {0, 1},   {0, 48},  {0, 5}, /* odd: valid, of its views: valid, views, one more */
	{56, 0}, {56, 16}, {72, 0},  {72, 20}, /* l: valid, offsets, the items': valid, data */
	{96, 0}, {96, 16}, {112, 9},           /* b: valid, offsets, data */
};
static const uint64_t variadic[] = {1};
static const struct arrow_batch_spec whole = {3, nodes, buffers, 8, 16, 0, variadic, 1};
static const uint32_t l_offsets[] = {2, 5, 5, 10}, b_offsets[] = {0, 4, 9, 9};
#define BODY_BYTES 128u

struct made {
	struct arrow_out out;
	uint32_t schema, batch[2], body[2], batch_end[2];
};

static void put_batch(struct made *m, uint32_t k, const struct arrow_batch_spec *spec)
{
	uint32_t link = arrow_message(&m->out, 3, BODY_BYTES, &m->batch[k]);

	arrow_batch(&m->out, link, spec);
	arrow_message_end(&m->out, m->batch[k]);
	m->body[k] = m->out.len;
	for (uint32_t i = 0; i < BODY_BYTES; i++)
		arrow_put(&m->out, i, 1);
	for (uint32_t i = 0; i < 4; i++) {
		arrow_set(&m->out, m->body[k] + 56 + 4 * i, l_offsets[i], 4);
		arrow_set(&m->out, m->body[k] + 96 + 4 * i, b_offsets[i], 4);
	}
	m->batch_end[k] = m->out.len;
}

static void put_schema(struct made *m, const struct arrow_column_spec *columns, uint32_t n,
		       int big_endian)
{
	uint32_t link = arrow_message(&m->out, 1, 0, &m->schema);

	arrow_schema(&m->out, link, columns, n, big_endian);
	arrow_message_end(&m->out, m->schema);
}

/* Two record batches. */
static void make_stream(struct made *m, const struct arrow_batch_spec *second)
{
	memset(m, 0, sizeof(*m));
	put_schema(m, specs, N_SPECS, 0);
	put_batch(m, 0, &whole);
	put_batch(m, 1, second);
	arrow_put(&m->out, 0xffffffff, 8);
}

static void put_block(struct made *m, uint32_t k)
{
	arrow_put(&m->out, m->batch[k], 8);
	arrow_put(&m->out, m->body[k] - m->batch[k], 4);
	arrow_put(&m->out, 0, 4);
	arrow_put(&m->out, BODY_BYTES, 8);
}

/* The same as a file. Returns where its first block is. */
static uint32_t make_file(struct made *m)
{
	static const uint8_t sizes[] = {2, 4, 0, 4};
	uint32_t at[4], root, block;

	memset(m, 0, sizeof(*m));
	memcpy(m->out.bytes, "ARROW1\0\0", 8);
	m->out.len = 8;
	put_schema(m, specs, N_SPECS, 0);
	put_batch(m, 0, &whole);
	put_batch(m, 1, &whole);
	root = m->out.len;
	arrow_put(&m->out, 0, 4);
	arrow_table(&m->out, root, sizes, 4, at);
	arrow_set(&m->out, at[0], 4, 2);
	arrow_schema(&m->out, at[1], specs, N_SPECS, 0);
	arrow_link(&m->out, at[3]);
	arrow_put(&m->out, 2, 4);
	block = m->out.len;
	put_block(m, 0);
	put_block(m, 1);
	arrow_put(&m->out, m->out.len - root, 4);
	memcpy(m->out.bytes + m->out.len, "ARROW1", 6);
	m->out.len += 6;
	return block;
}

static const struct hr_dataset_options any;

static struct hr__format_file *expect_open(struct format_bytes *all, const struct made *m)
{
	struct hr__format_file *ff = NULL;

	format_bytes_add(all, "x.arrow", m->out.bytes, m->out.len, 0);
	if (format_bytes_open(all, &hr__format_arrow, &any, &ff) != 0)
		fail_msg("%s", hr_error_detail());
	format_check_accepted(ff, m->out.len);
	return ff;
}

static void expect_refusal(const struct made *m, int code, const char *word)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = (void *)0x1;

	hr__fail_set(EIO, "");
	format_bytes_add(&all, "x.arrow", m->out.bytes, m->out.len, 0);
	if (format_bytes_open(&all, &hr__format_arrow, &any, &ff) != -code)
		fail_msg("%s, expected %s", hr_error_detail(), word);
	assert_ptr_equal(ff, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	assert_non_null(strstr(hr_error_detail(), "x.arrow"));
}

static void expect_range(const struct hr__format_file *ff, uint64_t i, uint32_t field,
			 uint64_t offset, uint64_t len)
{
	struct hr_range range = {UINT64_MAX, UINT64_MAX};
	int n = ff->ops->locate(ff, i, field, &range);

	assert_int_equal(n, len > 0);
	if (n) {
		assert_int_equal(range.offset, offset);
		assert_int_equal(range.len, len);
	}
}

static void check_rows(const struct made *m, const struct hr__format_file *ff)
{
	const struct hr__field *fields = ff->schema.fields;

	assert_int_equal(ff->schema.count, 6);
	assert_int_equal(ff->schema.n_fields, 4);
	assert_int_equal(fields[0].face.dtype, HR_DTYPE_I32);
	assert_int_equal(fields[0].face.ndim, 0);
	assert_int_equal(fields[1].face.dtype, HR_DTYPE_F32);
	assert_int_equal(fields[1].face.shape[0], 3);
	assert_int_equal(fields[2].face.kind, HR_FIELD_RAGGED);
	assert_int_equal(fields[2].face.dtype, HR_DTYPE_I16);
	assert_int_equal(fields[2].face.bytes, 10);
	assert_int_equal(fields[2].sizes->bytes, 2 * 16);
	assert_int_equal(fields[3].face.dtype, HR_DTYPE_U8);
	assert_int_equal(fields[3].face.bytes, 5);
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t body = m->body[i / 3], r = i % 3;

		expect_range(ff, i, 0, body + 4 * r, 4);
		expect_range(ff, i, 1, body + 16 + 12 * r, 12);
		expect_range(ff, i, 2, body + 72 + 2 * l_offsets[r],
			     2 * (l_offsets[r + 1] - l_offsets[r]));
		expect_range(ff, i, 3, body + 112 + b_offsets[r], b_offsets[r + 1] - b_offsets[r]);
	}
	assert_int_equal(ff->ops->locate(ff, 6, 0, NULL), -EINVAL);
	assert_int_equal(ff->ops->locate(ff, 0, 4, NULL), -EINVAL);
}

static void rows_of_streams_and_files(void **state)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff;
	struct hr_range range;
	struct made m;

	make_stream(&m, &whole);
	ff = expect_open(&all, &m);
	check_rows(&m, ff);
	/* what is read at every row is held to the rules again: the file may have changed */
	arrow_set(&m.out, m.body[0] + 60, 11, 4);
	assert_int_equal(ff->ops->locate(ff, 0, 2, &range), -HR_E_BAD_SAMPLE);
	assert_non_null(strstr(hr_error_detail(), "ends at 11 of 10"));
	arrow_set(&m.out, m.body[0] + 60, 10, 4);
	assert_int_equal(ff->ops->locate(ff, 0, 2, &range), -HR_E_FILE_CHANGED);
	assert_int_equal(ff->ops->locate(ff, 1, 2, &range), -HR_E_BAD_SAMPLE);
	all.files[0].fail_with = EIO;
	assert_int_equal(ff->ops->locate(ff, 0, 2, &range), -EIO);
	assert_int_equal(ff->ops->locate(ff, 0, 1, &range), 1);
	ff->ops->close(ff);

	all.n_files = 0;
	make_file(&m);
	ff = expect_open(&all, &m);
	check_rows(&m, ff);
	ff->ops->close(ff);
}

/* Lists of one length are a dimension, also where the first element is not the first of the buffer. */
static void even_lists(void **state)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff;
	struct made m;

	make_stream(&m, &whole);
	for (uint32_t k = 0; k < 2; k++) {
		for (uint32_t i = 0; i < 4; i++)
			arrow_set(&m.out, m.body[k] + 56 + 4 * i, k + 3 * i, 4);
	}
	ff = expect_open(&all, &m);
	assert_int_equal(ff->schema.fields[2].face.kind, HR_FIELD_FIXED);
	assert_int_equal(ff->schema.fields[2].face.shape[0], 3);
	all.files[0].fail_with = EIO; /* nothing is read any more */
	expect_range(ff, 0, 2, m.body[0] + 72, 6);
	expect_range(ff, 5, 2, m.body[1] + 72 + 2 * (1 + 6), 6);
	ff->ops->close(ff);
}

static void offsets_refused(void **state)
{
	struct made m;

	make_stream(&m, &whole);
	arrow_set(&m.out, m.body[1] + 60, 1, 4);
	expect_refusal(&m, HR_E_BAD_SAMPLE, "column l: a row begins at element 2 and ends at 1");
	make_stream(&m, &whole);
	arrow_set(&m.out, m.body[1] + 68, 11, 4);
	expect_refusal(&m, HR_E_BAD_SAMPLE, "ends at 11 of 10");
	make_stream(&m, &whole);
	arrow_set(&m.out, m.body[1] + 108, 0xffffffff, 4);
	expect_refusal(&m, HR_E_BAD_SAMPLE, "column b");
}

/* A record batch like the whole one but for one pair. */
static void expect_batch_refused(uint32_t node, struct arrow_pair n, uint32_t buffer,
				 struct arrow_pair b, const char *word)
{
	struct arrow_pair ns[8], bs[16];
	struct arrow_batch_spec spec = whole;
	struct made m;

	memcpy(ns, nodes, sizeof(ns));
	memcpy(bs, buffers, sizeof(bs));
	if (node < 8)
		ns[node] = n;
	if (buffer < 16)
		bs[buffer] = b;
	spec.nodes = ns;
	spec.buffers = bs;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, word);
}

static void batches_refused(void **state)
{
	static const struct arrow_pair none;
	struct arrow_batch_spec spec = whole;
	struct made m;

	expect_batch_refused(0, (struct arrow_pair){2, 0}, 99, none, "number of elements");
	expect_batch_refused(2, (struct arrow_pair){8, 0}, 99, none, "number of elements");
	expect_batch_refused(6, (struct arrow_pair){UINT64_MAX, 0}, 99, none, "number of elements");
	expect_batch_refused(6, (struct arrow_pair){1ull << 62, 0}, 99, none, "too short");
	expect_batch_refused(6, (struct arrow_pair){11, 0}, 99, none, "too short");
	expect_batch_refused(99, none, 1, (struct arrow_pair){0, 11}, "too short");
	expect_batch_refused(99, none, 1, (struct arrow_pair){117, 12}, "outside of its body");
	expect_batch_refused(99, none, 1, (struct arrow_pair){UINT64_MAX, 12}, "outside");
	expect_batch_refused(99, none, 1, (struct arrow_pair){0, UINT64_MAX}, "outside");
	expect_batch_refused(99, none, 4, (struct arrow_pair){16, 35}, "too short");
	expect_batch_refused(99, none, 10, (struct arrow_pair){56, 15}, "too short");
	expect_batch_refused(99, none, 12, (struct arrow_pair){72, 19}, "too short");
	spec.n_nodes = 7;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "without what its schema tells of");
	spec = whole;
	spec.n_variadic = 0;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "without what its schema tells of");
	spec = whole;
	spec.variadic = (const uint64_t[]){UINT64_MAX};
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "without what its schema tells of");
	spec = whole;
	spec.compressed = 1;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "compressed");
	spec = whole;
	spec.rows = UINT64_MAX;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "less than no rows");
	spec.rows = INT64_MAX;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "number of elements");
}

static void nulls_leave_columns_out(void **state)
{
	static const char *const named[] = {"v"};
	struct hr_dataset_options opts = {.fields = named, .n_fields = 1};
	struct arrow_pair ns[8];
	struct arrow_batch_spec spec = whole;
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;
	struct made m;

	memcpy(ns, nodes, sizeof(ns));
	ns[0].second = ns[2].second = ns[5].second = ns[7].second = 1;
	spec.nodes = ns;
	make_stream(&m, &spec);
	expect_refusal(&m, HR_E_BAD_FORMAT, "a has nulls");
	ns[7].second = 0;
	make_stream(&m, &spec);
	ff = expect_open(&all, &m);
	assert_int_equal(ff->schema.n_fields, 1);
	assert_string_equal(ff->schema.fields[0].face.name, "b");
	expect_range(ff, 3, 0, m.body[1] + 112, 4);
	ff->ops->close(ff);
	assert_int_equal(format_bytes_open(&all, &hr__format_arrow, &opts, &ff), -EINVAL);
	assert_non_null(strstr(hr_error_detail(), "column v has nulls"));
}

static void expect_schema_refused(const struct arrow_column_spec *columns, uint32_t n, int code,
				  const char *word)
{
	struct made m = {.schema = 0};

	put_schema(&m, columns, n, 0);
	expect_refusal(&m, code, word);
}

static void schemas_refused(void **state)
{
	static const struct arrow_column_spec two_kids[] = {{"x", INT, INTEGER(8)},
							    {"y", INT, INTEGER(8)}};
	const struct arrow_column_spec cases[] = {
		{"x", INT, INTEGER(24)},
		{"x", FLOAT, {{2, 3}}},
		{"x", FIXED_LIST, {{4, 0}}, &f32_item, 1},
		{"x", FIXED_LIST, {{4, 0x80000000}}, &f32_item, 1},
		{"x", BOOL},
		{"x", INT, INTEGER(8), NULL, 0, 1},
		{"x", LIST, {{0}}, &view_item, 1},
	};
	static const char *const words[] = {"unknown size",   "unknown size", "without a byte",
					    "without a byte", "bits",         "dictionary",
					    "views"};
	struct arrow_column_spec deep[40];
	struct made m = {.schema = 0};

	for (uint32_t i = 0; i < 7; i++)
		expect_schema_refused(&cases[i], 1, HR_E_BAD_FORMAT, words[i]);
	expect_schema_refused(&(struct arrow_column_spec){"x", 99}, 1, HR_E_BAD_FORMAT,
			      "does not know");
	expect_schema_refused(&(struct arrow_column_spec){"x", LIST, {{0}}, two_kids, 2}, 1,
			      HR_E_BAD_FORMAT, "another number of children");
	expect_schema_refused(&(struct arrow_column_spec){"x", LIST}, 1, HR_E_BAD_FORMAT,
			      "another number of children");
	expect_schema_refused(&(struct arrow_column_spec){NULL, INT, INTEGER(8)}, 1,
			      HR_E_BAD_FORMAT, "without a name");
	expect_schema_refused(NULL, 0, HR_E_BAD_FORMAT, "none at all");
	for (uint32_t i = 0; i < 40; i++)
		deep[i] = (struct arrow_column_spec){"d", FIXED_LIST, {{4, 1}}, &deep[i + 1], 1};
	deep[39] = f32_item;
	expect_schema_refused(deep, 1, HR_E_BAD_FORMAT, "without end");
	deep[8] = f32_item;
	expect_schema_refused(deep, 1, HR_E_BAD_FORMAT, "7 dimensions");
	put_schema(&m, specs, N_SPECS, 1);
	expect_refusal(&m, HR_E_BAD_FORMAT, "big-endian");
}

/* One column of lists of 2^31 - 1 in lists: more bytes than 64 bits tell. */
static void huge_rows(void **state)
{
	struct arrow_column_spec spec[4];

	for (uint32_t i = 0; i < 3; i++)
		spec[i] = (struct arrow_column_spec){
			"d", FIXED_LIST, {{4, INT32_MAX}}, &spec[i + 1], 1};
	spec[3] = f32_item;
	expect_schema_refused(spec, 1, HR_E_BAD_FORMAT, "larger than any file");
}

/* Tables may be shared: 25 levels of structs with the same two children are 2^25 columns in few bytes. */
static void shared_tables(void **state)
{
	static const uint8_t sizes[] = {4, 0, 1, 4, 0, 4}, schema_sizes[] = {2, 4};
	struct made m = {.schema = 0};
	uint32_t at[6], link = arrow_message(&m.out, 1, 0, &m.schema), kids;

	arrow_table(&m.out, link, schema_sizes, 2, at);
	kids = arrow_offsets(&m.out, at[1], 1);
	for (uint32_t depth = 0; depth < 25; depth++) {
		uint32_t both = kids;

		arrow_table(&m.out, both, sizes, 6, at);
		if (depth)
			arrow_set(&m.out, both + 4, at[2] - 8 - (both + 4), 4);
		arrow_set(&m.out, at[2], STRUCT, 1);
		arrow_text(&m.out, at[0], "s");
		arrow_table(&m.out, at[3], sizes, 0, &link);
		kids = arrow_offsets(&m.out, at[5], depth < 24 ? 2 : 0);
	}
	arrow_message_end(&m.out, m.schema);
	expect_refusal(&m, HR_E_BAD_FORMAT, "without end");
}

static void framing_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *word;
	} foreign[] = {
		{"version https://git-lfs.github.com/spec/v1", 42, "git lfs pull"},
		{"PAR1\0\0\0\0", 8, "Parquet"},
		{"<!DOCTYPE html>", 15, "web page"},
		{"ARROW1", 6, "ends before its footer"},
		{"\0\0\0\0\0\0\0\0", 8, "does not begin with a schema"},
		{"\xff\xff\xff\xff\0\0\0\0", 8, "does not begin with a schema"},
		{"\xff\xff\xff\xff", 4, "cut off"},
		{"\xff\xff\xff\x7f\0\0\0\0", 8, "does not fit the file"},
		{"\4\0\0\0\0\0\0\0", 8, "too short for a table"},
		{"\x10\0\0\0\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, "outside"},
	};
	struct made m = {.schema = 0};
	uint32_t block;

	expect_refusal(&m, HR_E_EMPTY_FILE, "empty");
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		memcpy(m.out.bytes, foreign[i].bytes, foreign[i].len);
		m.out.len = (uint32_t)foreign[i].len;
		expect_refusal(&m, HR_E_BAD_FORMAT, foreign[i].word);
	}
	make_stream(&m, &whole);
	arrow_put(&m.out, 0, 1);
	expect_refusal(&m, HR_E_BAD_FORMAT, "behind the end of the stream");
	make_stream(&m, &whole);
	m.out.len -= 8;
	arrow_put(&m.out, 8, 2);
	expect_refusal(&m, HR_E_BAD_FORMAT, "cut off");
	block = make_file(&m);
	arrow_set(&m.out, block + 24, m.batch[0], 8); /* the second block is the first */
	expect_refusal(&m, HR_E_BAD_FORMAT, "in another one");
	make_file(&m);
	arrow_set(&m.out, block + 8, m.body[0] - m.batch[0] - 8, 4);
	expect_refusal(&m, HR_E_BAD_FORMAT, "not the record batch that the footer promises");
	make_file(&m);
	arrow_set(&m.out, block + 16, BODY_BYTES - 1, 8);
	expect_refusal(&m, HR_E_BAD_FORMAT, "not the record batch that the footer promises");
	make_file(&m);
	arrow_set(&m.out, block, m.schema, 8);
	expect_refusal(&m, HR_E_BAD_FORMAT, "not the record batch that the footer promises");
	make_file(&m);
	arrow_set(&m.out, m.out.len - 10, m.out.len, 4);
	expect_refusal(&m, HR_E_BAD_FORMAT, "its footer does not fit");
	m.out.len -= 1;
	expect_refusal(&m, HR_E_BAD_FORMAT, "does not end with ARROW1");
}

static int try_bytes(const uint8_t *bytes, size_t len)
{
	struct format_bytes all = {.n_files = 0};

	format_bytes_add(&all, "x.arrow", bytes, len, 0);
	return format_bytes_try(&all, &hr__format_arrow, &any);
}

static void try_all(struct made *m)
{
	uint32_t accepted = 0;

	for (uint32_t len = 0; len < m->out.len; len++) {
		uint8_t *exact = malloc(len ? len : 1);
		int rc;

		assert_non_null(exact);
		memcpy(exact, m->out.bytes, len);
		rc = try_bytes(exact, len);
		/* A stream may end between two messages. */
		assert_true(rc < 0 || len == m->batch[0] || len == m->batch[1] ||
			    len == m->batch_end[1]);
		free(exact);
	}
	for (uint32_t at = 0; at < m->out.len; at++) {
		for (uint32_t change = 1; change < 256; change += 1 + (change > 8) * 7) {
			m->out.bytes[at] ^= (uint8_t)change;
			accepted += try_bytes(m->out.bytes, m->out.len) == 0;
			m->out.bytes[at] ^= (uint8_t)change;
		}
	}
	assert_true(accepted > 0);
}

static void prefixes_and_changes(void **state)
{
	struct made m;

	make_stream(&m, &whole);
	assert_int_equal(try_bytes(m.out.bytes, m.out.len), 0);
	try_all(&m);
	make_file(&m);
	assert_int_equal(try_bytes(m.out.bytes, m.out.len), 0);
	try_all(&m);
}

static void probing(void **state)
{
	struct made m;

	make_file(&m);
	assert_ptr_equal(hr__format_find("auto", m.out.bytes, 1024, m.out.len), &hr__format_arrow);
	make_stream(&m, &whole);
	assert_ptr_equal(hr__format_find(NULL, m.out.bytes, 1024, m.out.len), &hr__format_arrow);
	/* without the mark before the length, as before 0.15 */
	assert_int_equal(hr__format_arrow.probe(m.out.bytes + 4, 1024, m.out.len - 4), 60);
	assert_int_equal(hr__format_arrow.probe(m.out.bytes + m.batch[0], 500, 2000), 0);
	for (size_t len = 0; len < 40; len++)
		hr__format_arrow.probe(m.out.bytes, len, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_streams_and_files),
		cmocka_unit_test(even_lists),
		cmocka_unit_test(offsets_refused),
		cmocka_unit_test(batches_refused),
		cmocka_unit_test(nulls_leave_columns_out),
		cmocka_unit_test(schemas_refused),
		cmocka_unit_test(huge_rows),
		cmocka_unit_test(shared_tables),
		cmocka_unit_test(framing_refused),
		cmocka_unit_test(prefixes_and_changes),
		cmocka_unit_test(probing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

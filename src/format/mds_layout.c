/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/mds_layout.c - from the JSON text of an MDS shard to columns with sizes and places; knows no
 * offsets of samples.
 *
 * The encodings are those of streaming/base/format/mds/encodings.py (MosaicML streaming, version 2 of
 * the format).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/json.h"
#include "format/mds.h"

#define COLUMNS_MAX HR__FIELDS_MAX

/* The three lists of the text, as they stand there. */
struct lists {
	const char *names[COLUMNS_MAX], *encodings[COLUMNS_MAX];
	uint32_t sizes[COLUMNS_MAX]; /* 0: null, the size varies */
	uint32_t n_names, n_encodings, n_sizes;
	bool has_names, has_encodings, has_sizes, has_version, has_format;
};

static const struct {
	const char *name;
	enum hr_dtype dtype;
} numbers[] = {
	{"int", HR_DTYPE_I64},     {"uint8", HR_DTYPE_U8},    {"uint16", HR_DTYPE_U16},
	{"uint32", HR_DTYPE_U32},  {"uint64", HR_DTYPE_U64},  {"int8", HR_DTYPE_I8},
	{"int16", HR_DTYPE_I16},   {"int32", HR_DTYPE_I32},   {"int64", HR_DTYPE_I64},
	{"float16", HR_DTYPE_F16}, {"float32", HR_DTYPE_F32}, {"float64", HR_DTYPE_F64},
};

/* Bytes of any length. */
static const char *const blobs[] = {
	"bytes",      "str",       "json",      "jpeg",       "png",
	"pil",        "ndarray",   "str_int",   "str_float",  "str_decimal",
	"jpeg_array", "jpegarray", "list[pil]", "list[jpeg]", "list[png]",
};

/* The type called by the first @len bytes of @name, HR_DTYPE_BYTES if there is none. */
static enum hr_dtype number_type(const char *name, size_t len)
{
	for (size_t i = 0; i < HR_ARRAY_LEN(numbers); i++) {
		if (strlen(numbers[i].name) == len && memcmp(numbers[i].name, name, len) == 0)
			return numbers[i].dtype;
	}
	return HR_DTYPE_BYTES;
}

static bool is_blob(const char *encoding)
{
	for (size_t i = 0; i < HR_ARRAY_LEN(blobs); i++) {
		if (strcmp(blobs[i], encoding) == 0)
			return true;
	}
	return false;
}

/* -- encodings ------------------------------------------------------------------------------- */

/* "3,224,224". Return: NULL, or why the column cannot be read. */
static const char *parse_shape(struct hr_field *face, const char *text)
{
	face->ndim = 0;
	for (;;) {
		uint64_t dim = 0;

		for (; *text >= '0' && *text <= '9'; text++) {
			if (dim > UINT32_MAX)
				return "its shape is larger than a shard can be";
			dim = dim * 10 + (uint64_t)(*text - '0');
		}
		if (dim == 0)
			return "its shape is not known";
		if (face->ndim == HR_DIMS_MAX - 1)
			return "its shape has more than 7 dimensions";
		face->shape[face->ndim++] = dim;
		if (hr__mul_overflows(face->bytes, dim, &face->bytes))
			return "its shape is larger than a shard can be";
		if (!*text)
			return NULL;
		if (*text++ != ',')
			return "its shape is not known";
	}
}

static void set_blob(struct hr__mds_column *column)
{
	column->face.kind = HR_FIELD_RAGGED;
	column->face.dtype = HR_DTYPE_U8;
	column->face.ndim = 1;
	column->face.bytes = 0;
}

/* Fills the column's face; bytes stay 0 for a variable one. */
static void parse_encoding(struct hr__mds_column *column)
{
	static const char array[] = "ndarray:";
	const char *text = column->encoding, *colon;
	struct hr_field *face = &column->face;

	face->dtype = number_type(text, strlen(text));
	face->bytes = hr_dtype_size(face->dtype);
	if (face->dtype != HR_DTYPE_BYTES)
		return;
	set_blob(column);
	if (is_blob(text))
		return;
	if (strcmp(text, "pkl") == 0) {
		column->reason = "pickle runs code of the file's author when it is decoded";
		return;
	}
	column->reason = "its encoding is not known";
	if (strncmp(text, array, sizeof(array) - 1) != 0)
		return;
	text += sizeof(array) - 1;
	colon = strchr(text, ':');
	face->dtype = number_type(text, colon ? (size_t)(colon - text) : strlen(text));
	if (face->dtype == HR_DTYPE_BYTES || strncmp(text, "int:", 4) == 0 ||
	    strcmp(text, "int") == 0)
		return;
	column->reason = NULL;
	if (!colon) { /* the shape stands before each value: a blob */
		set_blob(column);
		return;
	}
	face->kind = HR_FIELD_FIXED;
	face->bytes = hr_dtype_size(face->dtype);
	column->reason = parse_shape(face, colon + 1);
}

/* The size in the text and the encoding must say the same. */
static int check_size(const struct hr_source *src, const struct hr__mds_column *column)
{
	uint64_t want = column->face.kind == HR_FIELD_FIXED ? column->face.bytes : 0;
	char name[HR__JSON_SHOWN], encoding[HR__JSON_SHOWN];

	if (column->reason || column->size == want)
		return 0;
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: column %s is encoded as %s, which takes %" PRIu64
			" bytes, but its column_sizes says %" PRIu32
			" (0: they vary); the shard is damaged, get it again",
			src->name, hr__json_show(name, column->face.name),
			hr__json_show(encoding, column->encoding), want, column->size);
}

/* -- the text -------------------------------------------------------------------------------- */

static int read_texts(struct hr__json *j, const char *what, const char **out, uint32_t *n,
		      bool *seen)
{
	bool first = true;
	int rc;

	if (*seen)
		return hr__json_fail(j, "%s appears twice", what);
	*seen = true;
	rc = hr__json_open(j, '[', what);
	while (rc == 0 && (rc = hr__json_more(j, ']', &first)) > 0) {
		if (*n == COLUMNS_MAX)
			return hr__json_fail(j, "more than %u columns", COLUMNS_MAX);
		rc = hr__json_string(j, what, &out[*n]);
		(*n)++;
	}
	return rc;
}

static int read_sizes(struct hr__json *j, struct lists *lists)
{
	bool first = true;
	int rc;

	if (lists->has_sizes)
		return hr__json_fail(j, "column_sizes appears twice");
	lists->has_sizes = true;
	rc = hr__json_open(j, '[', "column_sizes");
	while (rc == 0 && (rc = hr__json_more(j, ']', &first)) > 0) {
		uint64_t size = 0;

		if (lists->n_sizes == COLUMNS_MAX)
			return hr__json_fail(j, "more than %u columns", COLUMNS_MAX);
		if (!hr__json_null(j)) {
			rc = hr__json_u64(j, "a column's size", &size);
			if (rc == 0 && (size == 0 || size > UINT32_MAX))
				return hr__json_fail(j, "a column of %" PRIu64 " bytes", size);
		} else {
			rc = 0;
		}
		lists->sizes[lists->n_sizes++] = (uint32_t)size;
	}
	return rc;
}

static int read_version(struct hr__json *j)
{
	uint64_t version;
	int rc = hr__json_u64(j, "version", &version);

	if (rc == 0 && version != 2)
		return hr__json_fail(j, "version %" PRIu64 " of MDS is not known, 2 is", version);
	return rc;
}

static int read_format(struct hr__json *j)
{
	size_t used = j->used;
	const char *format;
	char shown[HR__JSON_SHOWN];
	int rc = hr__json_string(j, "format", &format);

	if (rc == 0 && strcmp(format, "mds") != 0)
		return hr__json_fail(j, "a shard of the format \"%s\", not mds",
				     hr__json_show(shown, format));
	hr__json_forget(j, used);
	return rc;
}

static int read_member(struct hr__json *j, struct lists *lists)
{
	size_t used = j->used;
	const char *key;
	int rc = hr__json_key(j, "a key", &key);

	if (rc < 0)
		return rc;
	hr__json_forget(j, used); /* overwritten only by what is decoded next */
	if (strcmp(key, "column_names") == 0)
		return read_texts(j, "column_names", lists->names, &lists->n_names,
				  &lists->has_names);
	if (strcmp(key, "column_encodings") == 0)
		return read_texts(j, "column_encodings", lists->encodings, &lists->n_encodings,
				  &lists->has_encodings);
	if (strcmp(key, "column_sizes") == 0)
		return read_sizes(j, lists);
	if (strcmp(key, "version") == 0) {
		lists->has_version = true;
		return read_version(j);
	}
	if (strcmp(key, "format") == 0) {
		lists->has_format = true;
		return read_format(j);
	}
	return hr__json_skip(j);
}

static int read_lists(struct hr__json *j, struct lists *lists)
{
	bool first = true;
	int rc = hr__json_open(j, '{', "the text of a shard");

	while (rc == 0 && (rc = hr__json_more(j, '}', &first)) > 0)
		rc = read_member(j, lists);
	if (rc == 0)
		rc = hr__json_finish(j);
	if (rc < 0)
		return rc;
	if (!lists->has_version || !lists->has_format)
		return hr__json_fail(j, "no %s", lists->has_version ? "format" : "version");
	if (lists->n_names == 0 || lists->n_names != lists->n_encodings ||
	    lists->n_names != lists->n_sizes)
		return hr__json_fail(
			j,
			"%" PRIu32 " column_names, %" PRIu32 " column_encodings and %" PRIu32
			" column_sizes; there must be as many of each, and at least one",
			lists->n_names, lists->n_encodings, lists->n_sizes);
	return 0;
}

/* -- columns --------------------------------------------------------------------------------- */

static int check_name(const struct hr_source *src, const struct lists *lists, uint32_t k)
{
	char shown[HR__JSON_SHOWN];

	if (!*lists->names[k])
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: column %" PRIu32 " has an empty name; write the shard again",
				src->name, k);
	for (uint32_t i = 0; i < k; i++) {
		if (strcmp(lists->names[i], lists->names[k]) == 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: has the column %s twice; write the shard again",
					src->name, hr__json_show(shown, lists->names[k]));
	}
	return 0;
}

static int add_column(const struct hr_source *src, const struct lists *lists, uint32_t k,
		      struct hr__mds_layout *out)
{
	struct hr__mds_column *column = &out->columns[k];
	uint64_t fixed = out->fixed_bytes;
	int rc = check_name(src, lists, k);

	if (rc < 0)
		return rc;
	column->face.name = lists->names[k];
	column->encoding = lists->encodings[k];
	column->size = lists->sizes[k];
	parse_encoding(column);
	rc = check_size(src, column);
	if (rc < 0)
		return rc;
	column->fixed_before = out->fixed_bytes;
	column->var_before = out->n_var;
	fixed += column->size;
	out->n_var += column->size == 0;
	if (fixed > UINT32_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: the columns of a sample have more than 4 GiB together, which "
				"no shard can; get it again",
				src->name);
	out->fixed_bytes = (uint32_t)fixed;
	out->n_columns++;
	return 0;
}

int hr__mds_layout_parse(const struct hr_source *src, uint64_t base, const void *json, size_t len,
			 struct hr__mds_layout *out)
{
	struct lists lists = {.n_names = 0};
	struct hr__json j;
	int rc;

	*out = (struct hr__mds_layout){.text = malloc(len + 1)};
	if (!out->text)
		return hr__fail(ENOMEM, "%s: no memory for its text of %zu bytes", src->name, len);
	hr__json_begin(&j, src->name, json, len, out->text);
	j.base = base;
	rc = read_lists(&j, &lists);
	if (rc == 0) {
		out->columns = calloc(lists.n_names, sizeof(*out->columns));
		if (!out->columns)
			rc = hr__fail(ENOMEM, "%s: no memory for its columns", src->name);
	}
	for (uint32_t k = 0; k < lists.n_names && rc == 0; k++)
		rc = add_column(src, &lists, k, out);
	if (rc < 0)
		hr__mds_layout_free(out);
	return rc;
}

void hr__mds_layout_free(struct hr__mds_layout *layout)
{
	free(layout->columns);
	free(layout->text);
	*layout = (struct hr__mds_layout){.columns = NULL};
}

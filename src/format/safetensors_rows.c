/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/safetensors_rows.c - a safetensors file as a dataset: sample i is row i of each tensor; sees bytes
 * only through a source, and leaves the header to safetensors.c.
 *
 * A file of weights looks the same, so being recognised is not enough: the format must be named.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"
#include "format/json.h"
#include "format/le.h"
#include "format/safetensors.h"

/* Types that a device knows by the same name. */
static const enum hr_dtype dtypes[HR_WEIGHT_TYPE_COUNT_] = {
	[HR_WEIGHT_BOOL] = HR_DTYPE_BOOL,       [HR_WEIGHT_U8] = HR_DTYPE_U8,
	[HR_WEIGHT_I8] = HR_DTYPE_I8,           [HR_WEIGHT_F8_E5M2] = HR_DTYPE_F8_E5M2,
	[HR_WEIGHT_F8_E4M3] = HR_DTYPE_F8_E4M3, [HR_WEIGHT_F8_E8M0] = HR_DTYPE_F8_E8M0,
	[HR_WEIGHT_I16] = HR_DTYPE_I16,         [HR_WEIGHT_U16] = HR_DTYPE_U16,
	[HR_WEIGHT_F16] = HR_DTYPE_F16,         [HR_WEIGHT_BF16] = HR_DTYPE_BF16,
	[HR_WEIGHT_I32] = HR_DTYPE_I32,         [HR_WEIGHT_U32] = HR_DTYPE_U32,
	[HR_WEIGHT_F32] = HR_DTYPE_F32,         [HR_WEIGHT_F64] = HR_DTYPE_F64,
	[HR_WEIGHT_I64] = HR_DTYPE_I64,         [HR_WEIGHT_U64] = HR_DTYPE_U64,
};

struct rows {
	struct hr__format_file ff;
	uint64_t *offsets; /* of row 0 of each field, in the file */
};

static int rows_probe(const void *head, size_t len, uint64_t file_size)
{
	const uint8_t *p = head;
	uint64_t n;

	if (len < 10)
		return 0;
	n = hr__le64(p);
	if (n < 2 || n > HR__ST_HEADER_MAX || n > file_size - HR__ST_LENGTH_BYTES || p[8] != '{')
		return 0;
	return p[9] == '"' || p[9] == '}' ? 95 : 0;
}

/* -- the header ------------------------------------------------------------------------------- */

static int read_header(const struct hr_source *src, struct hr__st *st)
{
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t have;
	uint64_t len = 0;
	char *json;
	int rc;

	rc = hr__format_head(src, head, &have);
	if (rc == 0)
		rc = hr__st_length(src->name, head, have, src->size, &len);
	if (rc < 0)
		return rc;
	json = malloc((size_t)len);
	if (!json)
		return hr__fail(ENOMEM, "%s: no memory for its header of %" PRIu64 " bytes",
				src->name, len);
	rc = src->read(src, HR__ST_LENGTH_BYTES, json, (size_t)len);
	if (rc == 0)
		rc = hr__st_parse(src->name, json, (size_t)len, src->size, false, st);
	free(json);
	return rc;
}

/* -- tensors as fields ------------------------------------------------------------------------ */

/* Return: NULL, or why the rows of a tensor cannot be read. */
static const char *describe(const struct hr__st_tensor *t, struct hr_field *face)
{
	uint64_t elements = 1;

	if (t->ndim == 0)
		return "is one number and has no rows";
	if (t->ndim > HR_DIMS_MAX)
		return "has rows of more than 7 dimensions";
	if (dtypes[t->type] == HR_DTYPE_BYTES)
		return "is of a type that no device knows";
	face->kind = HR_FIELD_FIXED;
	face->dtype = dtypes[t->type];
	face->ndim = t->ndim - 1;
	for (uint32_t d = 0; d < face->ndim; d++) {
		face->shape[d] = t->shape[d + 1];
		/* Of a tensor without rows nothing else has been checked. */
		if (hr__mul_overflows(elements, face->shape[d], &elements))
			return "has rows larger than any file";
	}
	if (elements == 0)
		return "has rows without a byte";
	if (hr__mul_overflows(elements, hr_dtype_size(face->dtype), &face->bytes))
		return "has rows larger than any file";
	return NULL;
}

static int refuse_tensor(const struct hr_source *src, const char *name, const char *reason)
{
	char shown[HR__JSON_SHOWN];

	return hr__fail(EINVAL, "%s: tensor %s %s; leave it out", src->name,
			hr__json_show(shown, name), reason);
}

static int add_field(const struct hr_source *src, struct rows *r, const struct hr__st *st,
		     const struct hr__st_tensor *t, const struct hr_field *face)
{
	struct hr__schema *schema = &r->ff.schema;
	struct hr__field *field = &schema->fields[schema->n_fields];
	char one[HR__JSON_SHOWN], other[HR__JSON_SHOWN];

	if (schema->n_fields == HR__FIELDS_MAX)
		return hr__fail(EINVAL,
				"%s: has more than %u tensors; name the fields that are wanted",
				src->name, HR__FIELDS_MAX);
	if (schema->n_fields && t->shape[0] != schema->count)
		return hr__fail(EINVAL,
				"%s: tensor %s has %" PRIu64 " rows, %s has %" PRIu64
				"; samples are rows of all, so name fields that have as many",
				src->name, hr__json_show(one, schema->fields[0].face.name),
				schema->count, hr__json_show(other, t->name), t->shape[0]);
	field->face = *face;
	field->face.name = strdup(t->name);
	if (!field->face.name)
		return hr__fail(ENOMEM, "%s: no memory for its fields", src->name);
	r->offsets[schema->n_fields++] = st->data_off + t->begin;
	schema->count = t->shape[0];
	return 0;
}

static int add_fields(const struct hr_source *src, const struct hr_dataset_options *opts,
		      struct rows *r, const struct hr__st *st)
{
	struct hr__schema *schema = &r->ff.schema;
	uint64_t room = hr__min(st->n_tensors, HR__FIELDS_MAX);
	int rc = 0;

	schema->fields = calloc(room + 1, sizeof(*schema->fields));
	r->offsets = calloc(room + 1, sizeof(*r->offsets));
	if (!schema->fields || !r->offsets)
		return hr__fail(ENOMEM, "%s: no memory for its fields", src->name);
	for (uint32_t i = 0; i < st->n_tensors && rc == 0; i++) {
		const struct hr__st_tensor *t = &st->tensors[st->by_name[i]];
		struct hr_field face = {.name = t->name};
		const char *reason;

		if (!*t->name || !hr__format_wanted(opts, t->name))
			continue;
		reason = describe(t, &face);
		if (reason && opts->fields)
			rc = refuse_tensor(src, t->name, reason);
		else if (!reason)
			rc = add_field(src, r, st, t, &face);
	}
	if (rc == 0 && schema->n_fields == 0 && !opts->fields)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has no tensor with rows that can be read; look at it with "
				"'headrace load'",
				src->name);
	return rc < 0 ? rc : hr__format_check_wanted(src, opts, schema);
}

static void rows_close(struct hr__format_file *ff)
{
	struct rows *r = (struct rows *)ff;

	for (uint32_t i = 0; i < ff->schema.n_fields; i++)
		free((char *)ff->schema.fields[i].face.name);
	free(ff->schema.fields);
	free(r->offsets);
	free(r);
}

static int rows_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	const struct hr_source *src = args->src;
	const char *named = args->opts->format;
	struct hr__st st = {.n_tensors = 0};
	struct rows *r;
	int rc;

	if (!named || strcmp(named, "auto") == 0)
		return hr__fail(HR_E_UNKNOWN_FORMAT,
				"%s: a safetensors file, mostly weights of a model; to take rows "
				"of its tensors as samples, say format safetensors",
				src->name);
	rc = read_header(src, &st);
	if (rc < 0)
		return rc;
	r = calloc(1, sizeof(*r));
	if (r) {
		r->ff.ops = &hr__format_safetensors;
		rc = add_fields(src, args->opts, r, &st);
	} else {
		rc = hr__fail(ENOMEM, "%s: no memory to open it", src->name);
	}
	hr__st_free(&st);
	if (rc == 0)
		*out = &r->ff;
	else if (r)
		rows_close(&r->ff);
	return rc;
}

static int rows_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		       struct hr_range *out)
{
	const struct rows *r = (const struct rows *)ff;

	if (index >= ff->schema.count || field >= ff->schema.n_fields)
		return -EINVAL;
	/* No overflow: the tensor lies inside the file. */
	out->len = ff->schema.fields[field].face.bytes;
	out->offset = r->offsets[field] + index * out->len;
	return 1;
}

const struct hr__format_ops hr__format_safetensors = {
	.name = "safetensors",
	.suffixes = ".safetensors",
	.probe = rows_probe,
	.open = rows_open,
	.locate = rows_locate,
	.close = rows_close,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/arrow_schema.c - which columns of an Arrow schema can be read, as what, and where a record batch
 * has their buffers; knows no record batch.
 *
 * A record batch lists nodes and buffers of all columns in one row, so those that are left out must be
 * counted too, with all that they contain.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/arrow.h"
#include "format/json.h"

#define DEPTH_MAX 32u
#define VISITS_MAX 100000u /* tables may be shared: without it, few bytes are endless work */

/* The union Type of Schema.fbs. */
enum type {
	TYPE_NULL = 1,
	TYPE_INT,
	TYPE_FLOAT,
	TYPE_BINARY,
	TYPE_UTF8,
	TYPE_BOOL,
	TYPE_DECIMAL,
	TYPE_DATE,
	TYPE_TIME,
	TYPE_TIMESTAMP,
	TYPE_INTERVAL,
	TYPE_LIST,
	TYPE_STRUCT,
	TYPE_UNION,
	TYPE_FIXED_BINARY,
	TYPE_FIXED_LIST,
	TYPE_MAP,
	TYPE_DURATION,
	TYPE_LARGE_BINARY,
	TYPE_LARGE_UTF8,
	TYPE_LARGE_LIST,
	TYPE_RUN_END,
	TYPE_BINARY_VIEW,
	TYPE_UTF8_VIEW,
	TYPE_LIST_VIEW,
	TYPE_LARGE_LIST_VIEW,
	TYPE_END
};

enum { FIELD_NAME = 0, FIELD_TYPE = 2, FIELD_TYPE_TABLE, FIELD_DICTIONARY, FIELD_CHILDREN };

/* What a column of each type has in a record batch, beside its children's, and why it cannot be read. */
static const struct {
	uint8_t buffers, children; /* ANY of them */
	bool view;                 /* and a number that each record batch says */
	const char *reason;
} types[TYPE_END] = {
#define ANY 255u
	[TYPE_NULL] = {0, 0, false, "has no values"},
	[TYPE_INT] = {2, 0, false, NULL},
	[TYPE_FLOAT] = {2, 0, false, NULL},
	[TYPE_BINARY] = {3, 0, false, NULL},
	[TYPE_UTF8] = {3, 0, false, NULL},
	[TYPE_BOOL] = {2, 0, false, "is of bits"},
	[TYPE_DECIMAL] = {2, 0, false, "is of decimal numbers"},
	[TYPE_DATE] = {2, 0, false, "is of dates"},
	[TYPE_TIME] = {2, 0, false, "is of times"},
	[TYPE_TIMESTAMP] = {2, 0, false, "is of times"},
	[TYPE_INTERVAL] = {2, 0, false, "is of times"},
	[TYPE_LIST] = {2, 1, false, NULL},
	[TYPE_STRUCT] = {1, ANY, false, "is a struct"},
	[TYPE_UNION] = {1, ANY, false, "is a union"},
	[TYPE_FIXED_BINARY] = {2, 0, false, NULL},
	[TYPE_FIXED_LIST] = {1, 1, false, NULL},
	[TYPE_MAP] = {2, 1, false, "is a map"},
	[TYPE_DURATION] = {2, 0, false, "is of times"},
	[TYPE_LARGE_BINARY] = {3, 0, false, NULL},
	[TYPE_LARGE_UTF8] = {3, 0, false, NULL},
	[TYPE_LARGE_LIST] = {2, 1, false, NULL},
	[TYPE_RUN_END] = {0, 2, false, "is run-end encoded"},
	[TYPE_BINARY_VIEW] = {2, 0, true, "is of views"},
	[TYPE_UTF8_VIEW] = {2, 0, true, "is of views"},
	[TYPE_LIST_VIEW] = {3, 1, false, "is of views"},
	[TYPE_LARGE_LIST_VIEW] = {3, 1, false, "is of views"},
};

struct walk {
	struct hr__flat *flat;
	struct hr__arrow_schema *schema;
	uint32_t version, visits;
};

static uint32_t type_of(struct walk *w, const struct hr__flat_table *field)
{
	uint64_t type = hr__flat_number(w->flat, field, FIELD_TYPE, 1, 0);

	if (type > 0 && type < TYPE_END)
		return (uint32_t)type;
	hr__flat_fail(w->flat, field->at, "a column of a type that this version does not know");
	return TYPE_NULL;
}

static bool has_dictionary(struct walk *w, const struct hr__flat_table *field)
{
	return hr__flat_table(w->flat, field, FIELD_DICTIONARY).at != 0;
}

/* The only child of a list; nothing where count_field() refuses. */
static struct hr__flat_table child_of(struct walk *w, const struct hr__flat_table *field)
{
	struct hr__flat_vector kids = hr__flat_vector(w->flat, field, FIELD_CHILDREN, 4);

	if (kids.n != 1)
		return (struct hr__flat_table){.at = 0};
	return hr__flat_item(w->flat, &kids, 0);
}

/* -- counting --------------------------------------------------------------------------------- */

static uint32_t union_buffers(struct walk *w, const struct hr__flat_table *field)
{
	struct hr__flat_table type = hr__flat_table(w->flat, field, FIELD_TYPE_TABLE);
	uint32_t dense = hr__flat_number(w->flat, &type, 0, 2, 0) == 1;

	/* Types, offsets of a dense one, and before version 5 also which are valid. */
	return 1 + dense + (w->version < HR__ARROW_V5);
}

static void count_field(struct walk *w, const struct hr__flat_table *field, uint32_t depth)
{
	uint32_t type = type_of(w, field);
	struct hr__flat_vector kids;

	if (w->flat->rc)
		return;
	if (depth == DEPTH_MAX || w->visits++ == VISITS_MAX) {
		hr__flat_fail(w->flat, field->at, "columns inside each other without end");
		return;
	}
	w->schema->n_nodes++;
	if (has_dictionary(w, field)) { /* its numbers; the values lie elsewhere */
		w->schema->n_buffers += 2;
		return;
	}
	w->schema->n_buffers += type == TYPE_UNION ? union_buffers(w, field) : types[type].buffers;
	w->schema->n_views += types[type].view;
	if (!types[type].children)
		return;
	kids = hr__flat_vector(w->flat, field, FIELD_CHILDREN, 4);
	if (types[type].children != ANY && kids.n != types[type].children)
		hr__flat_fail(w->flat, field->at, "a column with another number of children");
	for (uint32_t i = 0; i < kids.n && !w->flat->rc; i++) {
		struct hr__flat_table kid = hr__flat_item(w->flat, &kids, i);

		/* Not without bound: depth is counted. */
		count_field(w, &kid, depth + 1);
	}
}

/* -- what a column is ------------------------------------------------------------------------- */

static const char *number_type(struct walk *w, const struct hr__flat_table *field, uint32_t type,
			       enum hr_dtype *out)
{
	static const enum hr_dtype ints[2][4] = {
		{HR_DTYPE_U8, HR_DTYPE_U16, HR_DTYPE_U32, HR_DTYPE_U64},
		{HR_DTYPE_I8, HR_DTYPE_I16, HR_DTYPE_I32, HR_DTYPE_I64}};
	static const enum hr_dtype floats[] = {HR_DTYPE_F16, HR_DTYPE_F32, HR_DTYPE_F64};
	struct hr__flat_table t = hr__flat_table(w->flat, field, FIELD_TYPE_TABLE);
	uint64_t bits, is_signed, precision;

	if (type == TYPE_FLOAT) {
		precision = hr__flat_number(w->flat, &t, 0, 2, 0);
		if (precision >= HR_ARRAY_LEN(floats))
			return "is of numbers of an unknown size";
		*out = floats[precision];
		return NULL;
	}
	bits = hr__flat_number(w->flat, &t, 0, 4, 0);
	is_signed = hr__flat_number(w->flat, &t, 1, 1, 0);
	for (uint32_t i = 0; i < 4; i++) {
		if (bits == 8u << i) {
			*out = ints[is_signed != 0][i];
			return NULL;
		}
	}
	return "is of numbers of an unknown size";
}

static const char *add_dim(struct hr_field *face, uint64_t dim)
{
	if (dim == 0 || dim > INT32_MAX)
		return "has rows without a byte";
	if (face->ndim == HR_DIMS_MAX - 1)
		return "has more than 7 dimensions";
	face->shape[face->ndim++] = dim;
	return NULL;
}

/* Numbers, bytes of a fixed number, and lists of them, of fixed lengths. */
static const char *fixed_column(struct walk *w, struct hr__flat_table field,
				struct hr__arrow_column *column)
{
	struct hr_field *face = &column->face;
	const char *reason = NULL;
	uint32_t type;

	face->kind = HR_FIELD_FIXED;
	while ((type = type_of(w, &field)) == TYPE_FIXED_LIST && !reason) {
		struct hr__flat_table t = hr__flat_table(w->flat, &field, FIELD_TYPE_TABLE);

		if (has_dictionary(w, &field) || w->flat->rc)
			return "has a dictionary";
		reason = add_dim(face, hr__flat_number(w->flat, &t, 0, 4, 0));
		field = child_of(w, &field);
		column->levels++;
	}
	if (reason)
		return reason;
	if (has_dictionary(w, &field))
		return "has a dictionary";
	if (type == TYPE_FIXED_BINARY) {
		struct hr__flat_table t = hr__flat_table(w->flat, &field, FIELD_TYPE_TABLE);

		face->dtype = HR_DTYPE_U8;
		reason = add_dim(face, hr__flat_number(w->flat, &t, 0, 4, 0));
	} else if (type == TYPE_INT || type == TYPE_FLOAT) {
		reason = number_type(w, &field, type, &face->dtype);
	} else {
		reason = types[type].reason ? types[type].reason : "is of lists in lists";
	}
	face->bytes = hr_dtype_size(face->dtype);
	for (uint32_t d = 0; d < face->ndim && !reason; d++) {
		if (hr__mul_overflows(face->bytes, face->shape[d], &face->bytes))
			reason = "has rows larger than any file";
	}
	return reason;
}

static const char *list_column(struct walk *w, const struct hr__flat_table *field,
			       struct hr__arrow_column *column)
{
	struct hr__flat_table kid = child_of(w, field);
	uint32_t type = type_of(w, &kid);

	column->list = true;
	if (has_dictionary(w, &kid))
		return "is of lists of a dictionary";
	if (type != TYPE_INT && type != TYPE_FLOAT)
		return types[type].reason ? types[type].reason : "is of lists in lists";
	return number_type(w, &kid, type, &column->face.dtype);
}

/* Return: NULL, or why the column cannot be read. */
static const char *describe(struct walk *w, const struct hr__flat_table *field,
			    struct hr__arrow_column *column)
{
	uint32_t type = type_of(w, field);
	const char *reason = types[type].reason;

	if (has_dictionary(w, field))
		return "has a dictionary";
	if (reason)
		return reason;
	switch (type) {
	case TYPE_BINARY:
	case TYPE_UTF8:
	case TYPE_LIST:
		column->offset_bytes = 4;
		break;
	case TYPE_LARGE_BINARY:
	case TYPE_LARGE_UTF8:
	case TYPE_LARGE_LIST:
		column->offset_bytes = 8;
		break;
	default:
		return fixed_column(w, *field, column);
	}
	column->face.kind = HR_FIELD_RAGGED;
	column->face.dtype = HR_DTYPE_U8;
	column->face.ndim = 1;
	if (type == TYPE_LIST || type == TYPE_LARGE_LIST)
		reason = list_column(w, field, column);
	column->width = hr_dtype_size(column->face.dtype);
	return reason;
}

/* -- columns ---------------------------------------------------------------------------------- */

int hr__arrow_refuse(const struct hr_source *src, const char *column, const char *reason)
{
	char shown[HR__JSON_SHOWN];

	return hr__fail(EINVAL,
			"%s: column %s %s, which cannot be read where it lies; leave it out, or "
			"write the file again with another type",
			src->name, hr__json_show(shown, column), reason);
}

void hr__arrow_leave_out(struct hr__arrow_schema *schema, const char *column, const char *reason)
{
	size_t used = strlen(schema->left_out);
	char shown[HR__JSON_SHOWN];

	snprintf(schema->left_out + used, sizeof(schema->left_out) - used, "%s%s %s",
		 used ? ", " : "", hr__json_show(shown, column), reason);
}

static int keep_column(struct walk *w, const struct hr_source *src, const char *name,
		       struct hr__arrow_column *column)
{
	struct hr__arrow_schema *schema = w->schema;
	char shown[HR__JSON_SHOWN];

	for (uint32_t i = 0; i < schema->n_columns; i++) {
		if (strcmp(schema->columns[i].face.name, name) == 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: has two columns %s; name the fields that are wanted, "
					"or write the file again with other names",
					src->name, hr__json_show(shown, name));
	}
	if (schema->n_columns == HR__FIELDS_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has more than %u columns; name the fields that are wanted",
				src->name, HR__FIELDS_MAX);
	if (column->face.kind == HR_FIELD_RAGGED) {
		column->sizes = calloc(1, sizeof(*column->sizes));
		if (!column->sizes)
			return -ENOMEM;
	}
	column->face.name = strdup(name);
	schema->columns[schema->n_columns++] = *column;
	return column->face.name ? 0 : -ENOMEM;
}

static int add_field(struct walk *w, const struct hr__flat_table *field,
		     const struct hr_source *src, const struct hr_dataset_options *opts)
{
	struct hr__arrow_schema *schema = w->schema;
	struct hr__arrow_column column = {
		.node = schema->n_nodes, .buffer = schema->n_buffers, .views = schema->n_views};
	const char *name = hr__flat_text(w->flat, field, FIELD_NAME), *reason;

	count_field(w, field, 0);
	if (w->flat->rc)
		return w->flat->rc;
	if (!name || !*name) {
		hr__arrow_leave_out(schema, "(one without a name)", "cannot be asked for");
		return 0;
	}
	if (!hr__format_wanted(opts, name))
		return 0;
	reason = describe(w, field, &column);
	if (w->flat->rc)
		return w->flat->rc;
	if (reason && opts->fields)
		return hr__arrow_refuse(src, name, reason);
	if (reason) {
		hr__arrow_leave_out(schema, name, reason);
		return 0;
	}
	return keep_column(w, src, name, &column);
}

int hr__arrow_schema_parse(struct hr__flat *flat, const struct hr__flat_table *table,
			   uint32_t version, const struct hr_source *src,
			   const struct hr_dataset_options *opts, struct hr__arrow_schema *out)
{
	struct walk w = {.flat = flat, .schema = out, .version = version};
	struct hr__flat_vector fields = hr__flat_vector(flat, table, 1, 4);
	int rc = 0;

	*out = (struct hr__arrow_schema){.n_columns = 0};
	if (hr__flat_number(flat, table, 0, 2, 0) != 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its numbers are big-endian; write it again on a little-endian "
				"machine",
				src->name);
	if (flat->rc)
		return flat->rc;
	out->columns = calloc(hr__min(fields.n, HR__FIELDS_MAX) + 1, sizeof(*out->columns));
	if (!out->columns)
		return hr__fail(ENOMEM, "%s: no memory for its columns", src->name);
	for (uint32_t i = 0; i < fields.n && rc == 0; i++) {
		struct hr__flat_table field = hr__flat_item(flat, &fields, i);

		rc = flat->rc ? flat->rc : add_field(&w, &field, src, opts);
	}
	if (rc == -ENOMEM)
		rc = hr__fail(ENOMEM, "%s: no memory for its columns", src->name);
	if (rc < 0)
		hr__arrow_schema_free(out);
	return rc;
}

void hr__arrow_schema_free(struct hr__arrow_schema *schema)
{
	for (uint32_t i = 0; i < schema->n_columns; i++) {
		free((char *)schema->columns[i].face.name);
		free(schema->columns[i].sizes);
	}
	free(schema->columns);
	*schema = (struct hr__arrow_schema){.n_columns = 0};
}

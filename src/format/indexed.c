/* SPDX-License-Identifier: Apache-2.0 */
/* format/indexed.c - from the columns of a side index to the fields of a part, see indexed.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/util.h"
#include "format/indexed.h"

#define LACKING_MAX (1ull << 24) /* samples without a field that was named */
#define REASON_MAX 256

struct indexed {
	struct hr__format_file ff; /* must be first */
	const struct hr__index *index;
	struct hr__field *fields;
	uint32_t *columns; /* of the fields */
	uint64_t *bad;     /* those of the index and those that lack a field */
	uint64_t n_bad, bad_room;
	char reason[REASON_MAX];
};

/* -- which columns ---------------------------------------------------------------------------- */

static const struct hr__index_column *column_at(const struct indexed *x, uint32_t k)
{
	return &hr__index_info(x->index)->columns[k];
}

/* Are the values that there are of one kind? */
static bool is_uniform(const struct hr__index_column *c)
{
	return (c->ranges > 0) + (c->scalars > 0) + (c->floats > 0) == 1;
}

static bool is_complete(const struct hr__index_column *c)
{
	return is_uniform(c) && c->absent == 0;
}

static void describe(const struct hr__index_column *c, struct hr__field *field)
{
	struct hr_field *face = &field->face;

	*face = (struct hr_field){.name = c->face.name, .dtype = c->face.dtype};
	if (!c->ranges) {
		face->kind = HR_FIELD_SCALAR;
		face->dtype = c->scalars ? HR_DTYPE_I64 : HR_DTYPE_F64;
		face->bytes = 8;
		return;
	}
	face->bytes = c->sizes.max;
	if (c->face.ndim) {
		face->kind = HR_FIELD_FIXED;
		face->ndim = c->face.ndim;
		memcpy(face->shape, c->face.shape, sizeof(face->shape));
		return;
	}
	face->ndim = 1;
	if (c->len_min == c->sizes.max && c->len_min) {
		face->kind = HR_FIELD_FIXED;
		face->shape[0] = c->len_min / hr_dtype_size(c->face.dtype);
	} else {
		face->kind = HR_FIELD_RAGGED;
		field->sizes = &c->sizes;
	}
}

static void add_field(struct indexed *x, uint32_t column)
{
	uint32_t n = x->ff.schema.n_fields;

	for (uint32_t i = 0; i < n; i++) {
		if (x->columns[i] == column)
			return; /* named twice */
	}
	describe(column_at(x, column), &x->fields[n]);
	x->columns[n] = column;
	x->ff.schema.n_fields++;
}

/* Which columns are not given, and why. Who asks for one of them by name is told in any case. */
static void tell_left_out(const struct hr_source *src, const struct hr__index_column *c,
			  uint64_t whole)
{
	bool none = c->absent == whole;

	if (c->face.flags)
		return;
	if (none)
		hr__log(HR_LOG_INFO, "%s: field %s is left out: %s", src->name, c->face.name,
			*c->note ? c->note : "no whole sample has it");
	else if (c->absent)
		hr__log(HR_LOG_INFO,
			"%s: field %s is left out: %" PRIu64 " of %" PRIu64
			" samples have none that can be read%s%s; name the fields that are wanted",
			src->name, c->face.name, c->absent, whole, *c->note ? ": " : "", c->note);
	else
		hr__log(HR_LOG_INFO,
			"%s: field %s is left out: it is a number in some samples and bytes in "
			"others",
			src->name, c->face.name);
}

static void take_all(struct indexed *x, const struct hr_source *src)
{
	const struct hr__index_info *info = hr__index_info(x->index);

	for (uint32_t k = 0; k < info->n_columns; k++) {
		const struct hr__index_column *c = column_at(x, k);

		if (!is_complete(c))
			tell_left_out(src, c, info->rows - info->n_bad);
		else if (!(c->face.flags & HR__INDEX_FALLBACK))
			add_field(x, k);
	}
	for (uint32_t k = 0; k < info->n_columns && !x->ff.schema.n_fields; k++) {
		if (is_complete(column_at(x, k)))
			add_field(x, k);
	}
}

/* What there is, for a sentence. */
static void list_columns(const struct indexed *x, char *text, size_t size)
{
	const struct hr__index_info *info = hr__index_info(x->index);
	size_t used = 0;

	snprintf(text, size, "none");
	for (uint32_t k = 0; k < info->n_columns && used < size; k++) {
		const struct hr__index_column *c = column_at(x, k);

		if (is_uniform(c))
			used += (size_t)snprintf(text + used, size - used, "%s%s%s",
						 used ? ", " : "", c->face.name,
						 c->absent ? " (some)" : "");
	}
}

static int refuse_name(const struct indexed *x, const struct hr_source *src, const char *name,
		       const char *why)
{
	char known[256];

	list_columns(x, known, sizeof(known));
	return hr__fail(EINVAL, "%s: has no field \"%s\" that can be read%s%s; there are: %s",
			src->name, name, *why ? ": " : "", why, known);
}

static int take_named(struct indexed *x, const struct hr_source *src, const char *name)
{
	const struct hr__index_info *info = hr__index_info(x->index);

	for (uint32_t k = 0; k < info->n_columns; k++) {
		const struct hr__index_column *c = column_at(x, k);

		if (strcmp(c->face.name, name) != 0)
			continue;
		if (!is_uniform(c))
			return refuse_name(x, src, name,
					   c->ranges
						   ? "it is a number in some samples and bytes in "
						     "others"
						   : c->note);
		if (c->absent > LACKING_MAX)
			return hr__fail(EINVAL,
					"%s: %" PRIu64
					" samples have no field \"%s\"; leave it out or split the "
					"dataset",
					src->name, c->absent, name);
		add_field(x, k);
		return 0;
	}
	return refuse_name(x, src, name, "");
}

/* -- which samples ---------------------------------------------------------------------------- */

static int add_bad(void *ctx, uint64_t row)
{
	struct indexed *x = ctx;

	if (x->n_bad == x->bad_room) {
		uint64_t room = 2 * x->bad_room + 64;
		uint64_t *bad;

		/* No honest index: take_named() looks at its sums. */
		if (x->n_bad > 2 * LACKING_MAX)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: more rows lack a field than it says of itself; remove "
					"it, and it is made again",
					hr__index_source(x->index)->name);
		bad = realloc(x->bad, room * sizeof(*bad));
		if (!bad)
			return -ENOMEM;
		x->bad = bad;
		x->bad_room = room;
	}
	x->bad[x->n_bad++] = row;
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sort_bad(struct indexed *x)
{
	uint64_t kept = 0;

	if (x->n_bad)
		qsort(x->bad, x->n_bad, sizeof(*x->bad), compare_rows);
	for (uint64_t i = 0; i < x->n_bad; i++) {
		if (!kept || x->bad[i] != x->bad[kept - 1])
			x->bad[kept++] = x->bad[i];
	}
	x->n_bad = kept;
}

/* Why the first damaged sample is one. */
static void give_reason(struct indexed *x)
{
	const struct hr__index_info *info = hr__index_info(x->index);

	if (info->n_bad && x->bad[0] == info->bad[0]) {
		snprintf(x->reason, sizeof(x->reason), "%s", info->bad_reason);
		return;
	}
	for (uint32_t i = 0; i < x->ff.schema.n_fields; i++) {
		const struct hr__index_column *c = column_at(x, x->columns[i]);
		struct hr__cell cell;

		if (!c->absent || hr__index_cell(x->index, x->bad[0], x->columns[i], &cell) < 0 ||
		    cell.kind != HR__CELL_ABSENT)
			continue;
		snprintf(x->reason, sizeof(x->reason),
			 "sample %" PRIu64 " has no field \"%.60s\"%s%.100s", x->bad[0],
			 c->face.name, *c->note ? ": " : "", c->note);
		return;
	}
}

static int find_bad(struct indexed *x)
{
	const struct hr__index_info *info = hr__index_info(x->index);
	int rc = 0;

	for (uint64_t i = 0; i < info->n_bad && rc == 0; i++)
		rc = add_bad(x, info->bad[i]);
	for (uint32_t i = 0; i < x->ff.schema.n_fields && rc == 0; i++) {
		if (column_at(x, x->columns[i])->absent)
			rc = hr__index_absent(x->index, x->columns[i], add_bad, x);
	}
	if (rc < 0)
		return rc;
	sort_bad(x);
	if (x->n_bad)
		give_reason(x);
	x->ff.schema.n_bad = x->n_bad;
	x->ff.schema.bad = x->bad;
	x->ff.schema.bad_reason = x->reason;
	return 0;
}

/* -- the format's functions ------------------------------------------------------------------- */

static int choose_fields(struct indexed *x, const struct hr_source *src,
			 const struct hr_dataset_options *opts)
{
	const struct hr__index_info *info = hr__index_info(x->index);
	char known[256];
	int rc = 0;

	for (uint32_t i = 0; opts->fields && i < opts->n_fields && rc == 0; i++)
		rc = take_named(x, src, opts->fields[i]);
	if (!opts->fields)
		take_all(x, src);
	if (rc < 0 || x->ff.schema.n_fields)
		return rc;
	if (info->rows == info->n_bad && info->rows)
		return hr__fail(HR_E_BAD_SAMPLE, "%s: every sample is damaged; the first: %s",
				src->name, info->bad_reason);
	if (!info->rows)
		return hr__fail(HR_E_TOO_SHORT, "%s: holds no sample%s%s; leave the file out",
				src->name, *info->notes ? ": " : "", info->notes);
	list_columns(x, known, sizeof(known));
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: no field is in all of its %" PRIu64
			" samples; name those that are wanted and skip samples without them: %s",
			src->name, info->rows, known);
}

static int fill(struct indexed *x, const struct hr__format_args *args)
{
	size_t n = hr__index_info(args->index)->n_columns + 1;
	int rc;

	x->fields = calloc(n, sizeof(*x->fields));
	x->columns = calloc(n, sizeof(*x->columns));
	if (!x->fields || !x->columns)
		return -ENOMEM;
	x->index = args->index;
	x->ff.schema.fields = x->fields;
	x->ff.schema.count = hr__index_info(args->index)->rows;
	rc = choose_fields(x, args->src, args->opts);
	return rc < 0 ? rc : find_bad(x);
}

int hr__indexed_open(const struct hr__format_args *args, const struct hr__format_ops *ops,
		     struct hr__format_file **out)
{
	struct indexed *x;
	int rc;

	if (!args->index)
		return hr__fail(HR_E_NO_INDEX,
				"%s: a %s file is read by a side index; make one with 'headrace "
				"index'",
				args->src->name, ops->name);
	x = calloc(1, sizeof(*x));
	rc = x ? fill(x, args) : -ENOMEM;
	if (rc < 0) {
		if (x)
			hr__indexed_close(&x->ff);
		if (rc == -ENOMEM)
			hr__fail(ENOMEM, "%s: no memory to open it", args->src->name);
		return rc;
	}
	x->ff.ops = ops;
	*out = &x->ff;
	return 0;
}

static int get_cell(const struct indexed *x, uint64_t index, uint32_t field, struct hr__cell *cell)
{
	int rc;

	if (index >= x->ff.schema.count || field >= x->ff.schema.n_fields)
		return -EINVAL;
	rc = hr__index_cell(x->index, index, x->columns[field], cell);
	/* The index is damaged, not the sample: whoever passes over samples must not pass over this. */
	if (rc == -HR_E_BAD_FORMAT)
		rc = hr__fail_set(HR_E_NO_INDEX, hr_error_detail());
	if (rc == 0 && cell->kind == HR__CELL_ABSENT)
		rc = hr__fail(HR_E_BAD_SAMPLE, "sample %" PRIu64 ": is damaged or has no field %s",
			      index, x->fields[field].face.name);
	return rc;
}

int hr__indexed_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		       struct hr_range *out)
{
	struct hr__cell cell;
	int rc = get_cell((const struct indexed *)ff, index, field, &cell);

	if (rc < 0)
		return rc;
	if (cell.kind != HR__CELL_RANGE)
		return -EINVAL;
	*out = (struct hr_range){cell.offset, cell.len};
	return cell.len > 0;
}

int hr__indexed_value(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      uint64_t *out)
{
	struct hr__cell cell;
	int rc = get_cell((const struct indexed *)ff, index, field, &cell);

	if (rc < 0)
		return rc;
	if (cell.kind != HR__CELL_I64 && cell.kind != HR__CELL_F64)
		return -EINVAL;
	*out = cell.offset;
	return 0;
}

void hr__indexed_close(struct hr__format_file *ff)
{
	struct indexed *x = (struct indexed *)ff;

	free(x->fields);
	free(x->columns);
	free(x->bad);
	free(x);
}

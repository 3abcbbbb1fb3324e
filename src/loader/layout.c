/* SPDX-License-Identifier: Apache-2.0 */
/* loader/layout.c - shapes and places of batches; arithmetic only, see layout.h. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/layout.h"
#include "mem/mem.h"

#define COLUMN_ALIGN 256u /* of tensors: what frameworks' allocators give */
#define NAME_BYTES 16u    /* room for the longest suffix */
#define SLOT_BYTES_MAX (1ull << 44)
#define TENSORS_EACH 2u /* of a column */
#define TENSORS_MORE 4u /* of windows */

/* -- conversions ----------------------------------------------------------------------------- */

static uint32_t cast_number(struct hr__layout *layout, enum hr_dtype in, enum hr_dtype out)
{
	struct hr__cast_pair pair = {in, out};
	uint32_t i;

	if (in == out)
		pair = (struct hr__cast_pair){HR_DTYPE_BYTES, HR_DTYPE_BYTES};
	for (i = 0; i < layout->n_casts; i++) {
		if (layout->casts[i].from == pair.from && layout->casts[i].to == pair.to)
			return i;
	}
	layout->casts[layout->n_casts++] = pair;
	return i;
}

static int find_field(const struct hr_dataset *ds, const char *name)
{
	for (uint32_t k = 0; k < ds->info.n_fields; k++) {
		if (strcmp(ds->fields[k].name, name) == 0)
			return (int)k;
	}
	return -1;
}

/* What each field becomes. */
static int choose_types(struct hr__layout *layout, const struct hr_dataset *ds,
			const struct hr_loader_options *opts)
{
	for (uint32_t k = 0; k < layout->n_columns; k++) {
		layout->columns[k].in = ds->fields[k].dtype;
		layout->columns[k].out = ds->fields[k].dtype;
	}
	if (opts->out_dtype && ds->info.n_fields > 1)
		return hr__fail(EINVAL,
				"out dtype %s: the dataset has %" PRIu32
				" fields; say it for each field that is to be converted",
				hr_dtype_name(opts->out_dtype), ds->info.n_fields);
	if (opts->out_dtype)
		layout->columns[0].out = opts->out_dtype;
	for (uint32_t i = 0; i < opts->n_casts; i++) {
		int k = opts->casts[i].name ? find_field(ds, opts->casts[i].name) : -1;

		if (k < 0)
			return hr__fail(EINVAL,
					"conversion of \"%s\": the dataset has no such field",
					opts->casts[i].name ? opts->casts[i].name : "");
		layout->columns[k].out = opts->casts[i].to;
	}
	for (uint32_t k = 0; k < layout->n_columns; k++) {
		struct hr__column *column = &layout->columns[k];

		if (hr_cast_ok(column->in, column->out) &&
		    (ds->fields[k].kind != HR_FIELD_SCALAR || column->in == column->out)) {
			column->cast = cast_number(layout, column->in, column->out);
			continue;
		}
		return hr__fail(HR_E_BAD_CAST,
				"out dtype %s: the files hold %s%s%s, which can stay as it is%s%s",
				hr_dtype_name(column->out), hr_dtype_name(column->in),
				ds->info.n_fields > 1 ? " in field " : "",
				ds->info.n_fields > 1 ? ds->fields[k].name : "",
				hr_cast_names(column->in)[0] ? " or become " : "",
				hr_cast_names(column->in));
	}
	return 0;
}

/* -- regions --------------------------------------------------------------------------------- */

/* Bytes in memory of @bytes in the file. */
static uint64_t in_memory(const struct hr__column *column, uint64_t bytes)
{
	uint64_t out;

	/* A saturated sum stays one. */
	if (hr__mul_overflows(bytes / hr_dtype_size(column->in), hr_dtype_size(column->out), &out))
		return UINT64_MAX;
	return out;
}

/*
 * A number of that type: with or without a sign, since -100 is a usual mark in tokens of any type, and as
 * bits where the type is known by its size alone.
 */
static bool pad_fits(enum hr_dtype type, int64_t value)
{
	uint32_t bits = 8 * hr_dtype_size(type);

	switch ((int)type) {
	case HR_DTYPE_F16:
		return value > -65520 && value < 65520; /* what is beyond rounds to infinity */
	case HR_DTYPE_BF16:
	case HR_DTYPE_F32:
	case HR_DTYPE_F64:
		return true;
	case HR_DTYPE_BOOL:
		return value == 0 || value == 1;
	default:
		return bits == 64 ||
		       (value >= -(INT64_C(1) << (bits - 1)) && value < INT64_C(1) << bits);
	}
}

static int plan_ragged(struct hr__column *column, const struct hr_dataset *ds, uint32_t k,
		       const struct hr_loader_options *opts)
{
	uint64_t element = hr_dtype_size(column->in), most;

	if (opts->ragged == HR_RAGGED_PAD) {
		uint64_t elements = opts->pad_to ? opts->pad_to : ds->fields[k].bytes / element;

		if (hr__mul_overflows(elements, element, &column->file_bytes) ||
		    column->file_bytes > SLOT_BYTES_MAX)
			return hr__fail(EINVAL, "pad_to %" PRIu64 ": more than any sample has",
					opts->pad_to);
		if (!pad_fits(column->out, opts->pad_value))
			return hr__fail(EINVAL,
					"pad_value %" PRId64 ": field %s has elements of type %s, "
					"which cannot be that; pad with another value, or convert "
					"the field to a wider type",
					opts->pad_value, ds->fields[k].name,
					hr_dtype_name(column->out));
		column->kind = HR__COLUMN_PADDED;
		column->row_bytes = in_memory(column, column->file_bytes);
		if (hr__mul_overflows(column->row_bytes, opts->batch_size, &column->room))
			column->room = UINT64_MAX;
		return 0;
	}
	column->kind = HR__COLUMN_RAGGED;
	most = hr__sizes_largest(ds->sizes[k], opts->batch_size,
				 hr__dataset_repeats(ds, opts->batch_size), element);
	column->room = in_memory(column, most);
	if (opts->batch_bytes_max)
		column->room = hr__min(
			column->room,
			hr__align_up(hr__min(opts->batch_bytes_max, 2 * SLOT_BYTES_MAX), 8));
	return 0;
}

static int plan_column(struct hr__layout *layout, const struct hr_dataset *ds, uint32_t k,
		       const struct hr_loader_options *opts)
{
	struct hr__column *column = &layout->columns[k];
	int rc = 0;

	if (ds->fields[k].kind == HR_FIELD_SCALAR) {
		column->kind = HR__COLUMN_SCALAR;
	} else if (ds->fields[k].kind == HR_FIELD_RAGGED) {
		rc = plan_ragged(column, ds, k, opts);
	} else {
		column->file_bytes = ds->fields[k].bytes;
		column->row_bytes = in_memory(column, column->file_bytes);
		if (hr__mul_overflows(column->row_bytes, opts->batch_size, &column->room))
			column->room = UINT64_MAX;
	}
	if (rc < 0)
		return rc;
	column->offset = hr__align_up(layout->batch_bytes, COLUMN_ALIGN);
	if (column->room > SLOT_BYTES_MAX || layout->batch_bytes > SLOT_BYTES_MAX)
		return hr__fail(HR_E_BATCH_FULL,
				"field %s: batches of %" PRIu32
				" samples may take more than 16 TiB; set a limit of bytes for "
				"ragged batches, or use smaller ones",
				ds->fields[k].name, opts->batch_size);
	layout->batch_bytes = column->offset + column->room;
	return 0;
}

/* -- tensors --------------------------------------------------------------------------------- */

/* Places are kept as addresses of a slot at 0. */
static void shift_tensor(struct hr_tensor *tensor, uint64_t by)
{
	tensor->data = (void *)((uintptr_t)tensor->data + by);
}

static void add_tensor(struct hr__layout *layout, struct hr_tensor tensor)
{
	uint64_t stride = 1;

	for (uint32_t d = tensor.ndim; d-- > 0;) {
		if (!tensor.stride[d])
			tensor.stride[d] = stride;
		stride = tensor.stride[d] * tensor.shape[d];
	}
	layout->tensors[layout->n_tensors++] = tensor;
}

/* Room in the side for @bytes. Return: where. */
static uint64_t take_side(struct hr__layout *layout, uint64_t bytes)
{
	uint64_t at = layout->side_bytes;

	layout->side_bytes = hr__align_up(at + bytes, 64);
	return at;
}

static const char *make_name(struct hr__layout *layout, size_t *used, const char *field,
			     const char *suffix)
{
	char *name = layout->names + *used;
	size_t len = strlen(field) + strlen(suffix) + 1;

	snprintf(name, len, "%s%s", field, suffix);
	*used += len;
	return name;
}

static void describe_column(struct hr__layout *layout, const struct hr_field *field,
			    struct hr__column *column, size_t *used)
{
	uint32_t size = hr_dtype_size(column->out);
	struct hr_tensor tensor = {
		.name = field->name,
		.dtype = column->out,
		.ndim = field->ndim + 1,
		.shape = {layout->batch_size},
		.data = (void *)(uintptr_t)column->offset,
	};

	column->tensor = layout->n_tensors;
	if (column->kind == HR__COLUMN_RAGGED) {
		tensor.ndim = 1;
		tensor.shape[0] = 0; /* told with each batch */
	} else if (column->kind == HR__COLUMN_PADDED) {
		tensor.shape[1] = column->row_bytes / size;
	} else if (column->kind == HR__COLUMN_SCALAR) {
		column->side = take_side(layout, 8ull * layout->batch_size);
		tensor.data = (void *)(uintptr_t)column->side; /* the side's place is known later */
	} else {
		memcpy(tensor.shape + 1, field->shape, field->ndim * sizeof(field->shape[0]));
	}
	add_tensor(layout, tensor);
	if (column->kind != HR__COLUMN_RAGGED && column->kind != HR__COLUMN_PADDED)
		return;
	column->side = take_side(layout, 8ull * (layout->batch_size + 1ull));
	add_tensor(layout,
		   (struct hr_tensor){
			   .name = make_name(layout, used, field->name,
					     column->kind == HR__COLUMN_RAGGED ? ".offsets"
									       : ".lengths"),
			   .dtype = HR_DTYPE_I64,
			   .ndim = 1,
			   .shape = {layout->batch_size +
				     (column->kind == HR__COLUMN_RAGGED ? 1ull : 0ull)},
			   .data = (void *)(uintptr_t)column->side,
		   });
}

/* What a model sees of windows of T + 1 tokens: two views of one memory. */
static void describe_windows(struct hr__layout *layout)
{
	const struct hr__column *column = &layout->columns[0];
	uint64_t elements = column->row_bytes / hr_dtype_size(column->out);
	struct hr_tensor view = {
		.name = "input_ids",
		.dtype = column->out,
		.ndim = 2,
		.shape = {layout->batch_size, elements - 1},
		.stride = {elements, 1},
		.data = (void *)(uintptr_t)column->offset,
	};

	add_tensor(layout, view);
	view.name = "labels";
	shift_tensor(&view, hr_dtype_size(column->out));
	add_tensor(layout, view);
	layout->seq_len = (uint32_t)(elements - 1);
}

/* Positions within documents, and where they begin in the flattened batch: what packed attention asks. */
static void describe_packed(struct hr__layout *layout)
{
	uint64_t tokens = (uint64_t)layout->batch_size * layout->seq_len;

	layout->packed = true;
	layout->side_positions = take_side(layout, tokens * 8);
	layout->tensor_positions = layout->n_tensors;
	add_tensor(layout, (struct hr_tensor){
				   .name = "position_ids",
				   .dtype = HR_DTYPE_I64,
				   .ndim = 2,
				   .shape = {layout->batch_size, layout->seq_len},
				   .data = (void *)(uintptr_t)layout->side_positions,
			   });
	layout->side_bounds = take_side(layout, (tokens + 1) * 4);
	layout->tensor_bounds = layout->n_tensors;
	add_tensor(layout, (struct hr_tensor){
				   .name = "cu_seqlens",
				   .dtype = HR_DTYPE_I32,
				   .ndim = 1,
				   .shape = {0}, /* told with each batch */
				   .data = (void *)(uintptr_t)layout->side_bounds,
			   });
}

/* Tensors of the side were described by their places in it. */
static void place_side(struct hr__layout *layout)
{
	layout->side_offset = hr__align_up(layout->batch_bytes, COLUMN_ALIGN);
	for (uint32_t k = 0; k < layout->n_columns; k++) {
		const struct hr__column *column = &layout->columns[k];
		uint32_t t = column->tensor;

		if (column->kind == HR__COLUMN_DENSE)
			continue;
		if (column->kind != HR__COLUMN_SCALAR)
			t++;
		shift_tensor(&layout->tensors[t], layout->side_offset);
	}
	if (layout->packed) {
		shift_tensor(&layout->tensors[layout->tensor_positions], layout->side_offset);
		shift_tensor(&layout->tensors[layout->tensor_bounds], layout->side_offset);
	}
	if (layout->side_bytes)
		layout->batch_bytes = layout->side_offset + layout->side_bytes;
	layout->slot_bytes = hr__align_up(layout->batch_bytes, HR__LAYOUT_ALIGN);
}

static int check_packed(const struct hr_dataset *ds, const struct hr_loader_options *opts)
{
	uint64_t tokens = (uint64_t)opts->batch_size * ds->info.elements;

	if (!ds->info.windows)
		return hr__fail(EINVAL, "packed: the samples are no windows of tokens");
	for (uint32_t i = 0; i < ds->n_parts; i++) {
		if (!ds->parts[i]->ff->ops->starts)
			return hr__fail(
				EINVAL,
				"packed: %s does not say where documents begin; use a format "
				"with documents, such as Megatron's",
				hr_file_path(ds->parts[i]->file));
	}
	if (tokens > INT32_MAX)
		return hr__fail(EINVAL,
				"packed: a batch of %" PRIu64
				" tokens; places in it are 32-bit numbers, use a smaller batch",
				tokens);
	return 0;
}

/* -- all of it ------------------------------------------------------------------------------- */

static int allocate(struct hr__layout *layout, const struct hr_dataset *ds)
{
	uint32_t n = ds->info.n_fields;
	size_t names = 1;

	for (uint32_t k = 0; k < n; k++)
		names += strlen(ds->fields[k].name) + NAME_BYTES;
	layout->columns = calloc(n, sizeof(*layout->columns));
	layout->casts = calloc(n, sizeof(*layout->casts));
	layout->tensors = calloc(n * TENSORS_EACH + TENSORS_MORE, sizeof(*layout->tensors));
	layout->names = malloc(names);
	if (!layout->columns || !layout->casts || !layout->tensors || !layout->names)
		return hr__fail(ENOMEM, "loader: no memory for %" PRIu32 " fields", n);
	layout->n_columns = n;
	return 0;
}

static int plan_columns(struct hr__layout *layout, const struct hr_dataset *ds,
			const struct hr_loader_options *opts)
{
	int rc = choose_types(layout, ds, opts);

	for (uint32_t k = 0; k < layout->n_columns && rc == 0; k++)
		rc = plan_column(layout, ds, k, opts);
	return rc;
}

/* Who looks a tensor up by its name must find the one that is meant. */
static int check_names(const struct hr__layout *layout)
{
	for (uint32_t i = 0; i < layout->n_tensors; i++) {
		assert(layout->tensors[i].name);
		for (uint32_t k = 0; k < i; k++) {
			if (strcmp(layout->tensors[i].name, layout->tensors[k].name) == 0)
				return hr__fail(
					EINVAL,
					"a batch would have two tensors \"%.200s\"; name the "
					"fields that are wanted, without one of them",
					layout->tensors[i].name);
		}
	}
	return 0;
}

int hr__layout_init(struct hr__layout *layout, const struct hr_dataset *ds,
		    const struct hr_loader_options *opts)
{
	uint64_t files = hr__min(opts->batch_size, ds->info.files);
	size_t used = 0;
	int rc;

	*layout = (struct hr__layout){.batch_size = opts->batch_size};
	rc = allocate(layout, ds);
	if (rc == 0)
		rc = plan_columns(layout, ds, opts);
	if (rc == 0 && opts->packed)
		rc = check_packed(ds, opts);
	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < layout->n_columns; k++)
		describe_column(layout, &ds->fields[k], &layout->columns[k], &used);
	if (ds->info.windows)
		describe_windows(layout);
	if (opts->packed)
		describe_packed(layout);
	rc = check_names(layout);
	if (rc < 0)
		return rc;
	place_side(layout);
	layout->ios_max = (uint32_t)(files * layout->n_casts);
	layout->pieces = (uint64_t)opts->batch_size * layout->n_columns *
			 hr__min(2, hr__dataset_ranges_max(ds));
	return 0;
}

void hr__layout_fini(struct hr__layout *layout)
{
	free(layout->columns);
	free(layout->casts);
	free(layout->tensors);
	free(layout->names);
	*layout = (struct hr__layout){.batch_size = 0};
}

void hr__layout_tensors(const struct hr__layout *layout, char *base, const char *side,
			struct hr_tensor *tensors)
{
	for (uint32_t i = 0; i < layout->n_tensors; i++) {
		uint64_t place = (uintptr_t)layout->tensors[i].data;

		tensors[i] = layout->tensors[i];
		tensors[i].data = base + place;
		if (!side)
			tensors[i].host = tensors[i].data;
		else if (place >= layout->side_offset)
			tensors[i].host = side + (place - layout->side_offset);
	}
}

/* One element of padding, into @out[8]. Return: its bytes. */
static uint32_t padding(const struct hr__column *column, int64_t value, void *out)
{
	double wide = (double)value;
	uint32_t size = hr_dtype_size(column->out);

	switch ((int)column->out) {
	case HR_DTYPE_F16:
	case HR_DTYPE_BF16:
	case HR_DTYPE_F32: {
		float narrow = (float)wide;

		hr__cast(out, &narrow, sizeof(narrow), HR_DTYPE_F32, column->out);
		break;
	}
	case HR_DTYPE_F64:
		memcpy(out, &wide, sizeof(wide));
		break;
	default:
		memcpy(out, &value, size); /* little-endian: the low bytes */
	}
	return size;
}

void hr__layout_pad(const struct hr__column *column, int64_t value, void *dst, uint64_t len)
{
	unsigned char element[8];
	uint32_t size = padding(column, value, element);

	for (uint64_t at = 0; at < len; at += size)
		memcpy((char *)dst + at, element, size);
}

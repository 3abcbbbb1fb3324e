/* SPDX-License-Identifier: Apache-2.0 */
/* loader/assemble.c - rows, columns and ranges become requests, see assemble.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/assemble.h"

#define NO_GROUP UINT32_MAX
#define NO_CUT UINT64_MAX
#define SUBSTITUTES_MAX 4096u /* of one batch */

/* A piece, before it is known which request it goes with. */
struct cut {
	struct hr_piece piece;
	uint64_t next;
};

struct group {
	uint32_t key; /* in group_of */
	uint64_t first, last, count;
};

int hr__requests_init(struct hr__requests *requests, const struct hr__layout *layout)
{
	requests->room = layout->pieces;
	requests->pieces = calloc(layout->pieces, sizeof(*requests->pieces));
	requests->ios = calloc(layout->ios_max, sizeof(*requests->ios));
	return requests->pieces && requests->ios ? 0 : -ENOMEM;
}

void hr__requests_fini(struct hr__requests *requests)
{
	free(requests->pieces);
	free(requests->ios);
}

int hr__assembler_init(struct hr__assembler *a, const struct hr__layout *layout,
		       const struct hr_dataset *ds, int64_t padding)
{
	uint32_t n_keys = ds->n_parts * layout->n_casts;

	*a = (struct hr__assembler){.layout = layout, .ds = ds, .padding = padding};
	a->ranges = calloc(hr__dataset_ranges_max(ds), sizeof(*a->ranges));
	a->group_of = malloc(n_keys * sizeof(*a->group_of));
	a->groups = calloc(layout->ios_max, sizeof(*a->groups));
	a->cuts_room = layout->pieces;
	a->cuts = calloc(a->cuts_room, sizeof(*a->cuts));
	if (!a->ranges || !a->group_of || !a->groups || !a->cuts)
		return -ENOMEM;
	for (uint32_t i = 0; i < ds->n_parts; i++)
		a->ahead = a->ahead || ds->parts[i]->ff->schema.ahead;
	for (uint32_t i = 0; i < n_keys; i++)
		a->group_of[i] = NO_GROUP;
	return 0;
}

void hr__assembler_fini(struct hr__assembler *a)
{
	free(a->ranges);
	free(a->group_of);
	free(a->groups);
	free(a->cuts);
}

/* -- pieces ---------------------------------------------------------------------------------- */

/* Samples of usual batches fit; those of many pieces make the room once. */
static int grow_cuts(struct hr__assembler *a)
{
	uint64_t room = 2 * a->cuts_room;
	struct cut *cuts = realloc(a->cuts, room * sizeof(*cuts));

	if (!cuts)
		return hr__fail(ENOMEM, "loader: no memory for %" PRIu64 " pieces of a batch",
				room);
	a->cuts = cuts;
	a->cuts_room = room;
	return 0;
}

static struct group *group_at(struct hr__assembler *a, uint32_t part, uint32_t cast)
{
	uint32_t key = part * a->layout->n_casts + cast, n = a->group_of[key];

	if (n == NO_GROUP) {
		n = a->n_groups++;
		a->group_of[key] = n;
		a->groups[n] = (struct group){.key = key, .first = NO_CUT, .last = NO_CUT};
	}
	return &a->groups[n];
}

static int add_piece(struct hr__assembler *a, struct group *group, struct hr_piece piece)
{
	uint64_t at = a->n_cuts;
	int rc;

	if (at == a->cuts_room) {
		rc = grow_cuts(a);
		if (rc < 0)
			return rc;
	}
	a->n_cuts++;
	a->cuts[at] = (struct cut){piece, NO_CUT};
	if (group->last == NO_CUT)
		group->first = at;
	else
		a->cuts[group->last].next = at;
	group->last = at;
	group->count++;
	return 0;
}

/* -- values ---------------------------------------------------------------------------------- */

struct row {
	uint32_t number;
	uint64_t id;
	struct hr__place place;
	const struct hr__part *part;
};

static uint64_t memory_bytes(const struct hr__column *column, uint64_t bytes)
{
	return bytes / hr_dtype_size(column->in) * hr_dtype_size(column->out);
}

/*
 * The ranges of one value as pieces, from @dst of the slot's buffer on. @limit: bytes of the file that are
 * wanted. Return: 0 or -code.
 */
static int place_value(struct hr__assembler *a, const struct row *row,
		       const struct hr__column *column, int n, uint64_t dst, uint64_t limit)
{
	struct group *group = group_at(a, row->place.part, column->cast);
	int rc = 0;

	for (int i = 0; i < n && limit > 0 && rc == 0; i++) {
		uint64_t len = hr__min(a->ranges[i].len, limit);

		rc = add_piece(a, group, (struct hr_piece){a->ranges[i].offset, len, dst});
		dst += memory_bytes(column, len);
		limit -= len;
	}
	return rc;
}

static uint64_t sum_ranges(const struct hr_range *ranges, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += ranges[i].len;
	return sum;
}

static int64_t *side_numbers(const struct hr__column *column, char *side)
{
	return (int64_t *)(void *)(side + column->side);
}

static int full(const struct hr__assembler *a, uint32_t k, const struct row *row)
{
	return hr__fail(HR_E_BATCH_FULL,
			"field %s: row %" PRIu32 " (sample %" PRIu64
			") does not fit into the %" PRIu64
			" bytes that a batch has for it; raise the limit, or use smaller batches",
			a->ds->fields[k].name, row->number, row->id, a->layout->columns[k].room);
}

static int wrong_length(const struct hr__assembler *a, uint32_t k, const struct row *row,
			uint64_t bytes)
{
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: field %s of sample %" PRIu64 " has %" PRIu64 " bytes where %" PRIu64
			" were announced; copy the file again",
			hr_file_path(row->part->file), a->ds->fields[k].name, row->id, bytes,
			a->layout->columns[k].file_bytes);
}

/* What is behind the value of a padded row, where the CPU may write it. */
static void fill_pad(const struct hr__assembler *a, uint32_t k, const struct row *row,
		     const struct hr__target *target)
{
	struct hr__pad pad;

	if (target->host && hr__assemble_pad(a->layout, target->side, k, row->number, &pad))
		hr__layout_pad(&a->layout->columns[k], a->padding, target->host + pad.offset,
			       pad.len);
}

/* A value that is read. */
static int take_value(struct hr__assembler *a, uint32_t k, const struct row *row,
		      struct hr__target *target)
{
	const struct hr__column *column = &a->layout->columns[k];
	uint64_t dst = target->base + column->offset, bytes, start;
	int n = hr__part_locate(row->part, row->place.index, k, a->ranges);
	int64_t *side;

	if (n < 0)
		return n;
	if (column->kind == HR__COLUMN_DENSE) {
		bytes = n == 1 ? a->ranges[0].len : sum_ranges(a->ranges, n);
		if (bytes != column->file_bytes)
			return wrong_length(a, k, row, bytes);
		return place_value(a, row, column, n, dst + row->number * column->row_bytes, bytes);
	}
	bytes = sum_ranges(a->ranges, n);
	side = side_numbers(column, target->side);
	if (column->kind == HR__COLUMN_PADDED) {
		bytes = hr__min(bytes, column->file_bytes);
		side[row->number] = (int64_t)(bytes / hr_dtype_size(column->in));
		fill_pad(a, k, row, target);
		return place_value(a, row, column, n, dst + row->number * column->row_bytes, bytes);
	}
	start = (uint64_t)side[row->number] * hr_dtype_size(column->out);
	if (memory_bytes(column, bytes) > column->room - start)
		return full(a, k, row);
	side[row->number + 1] = side[row->number] + (int64_t)(bytes / hr_dtype_size(column->in));
	return place_value(a, row, column, n, dst + start, bytes);
}

static int take_scalar(const struct hr__assembler *a, uint32_t k, const struct row *row,
		       const struct hr__target *target)
{
	const struct hr__column *column = &a->layout->columns[k];
	uint64_t value;
	int rc = row->part->ff->ops->value(row->part->ff, row->place.index, row->part->fields[k],
					   &value);

	if (rc == 0)
		side_numbers(column, target->side)[row->number] = (int64_t)value;
	return rc;
}

static int take_row(struct hr__assembler *a, const struct row *row, struct hr__target *target)
{
	const struct hr__layout *layout = a->layout;
	int rc = 0;

	for (uint32_t k = 0; k < layout->n_columns && rc == 0; k++) {
		if (layout->columns[k].kind == HR__COLUMN_SCALAR)
			rc = take_scalar(a, k, row, target);
		else
			rc = take_value(a, k, row, target);
	}
	return rc;
}

/* -- packed windows -------------------------------------------------------------------------- */

/* Tokens of one row from @start to @end are one document, or a part of it. */
static void pack_document(const struct hr__assembler *a, const struct row *row,
			  struct hr__target *target, uint64_t start, uint64_t end)
{
	uint64_t first = (uint64_t)row->number * a->layout->seq_len;
	int64_t *positions = (int64_t *)(void *)(target->side + a->layout->side_positions) + first;

	target->max_seqlen = (uint32_t)hr__max(target->max_seqlen, end - start);
	for (uint64_t i = start; i < end; i++)
		positions[i] = (int64_t)(i - start);
}

/* Where row @row's documents begin: fills its positions and adds their places to the bounds. */
static int pack_row(const struct hr__assembler *a, const struct row *row, struct hr__target *target,
		    uint32_t *n_bounds)
{
	const struct hr__layout *layout = a->layout;
	int32_t *bounds = (int32_t *)(void *)(target->side + layout->side_bounds) + *n_bounds;
	/* Behind the window's own beginning: a bound is written only where one was taken before. */
	uint32_t *starts = (uint32_t *)bounds + 1, room = (uint32_t)layout->seq_len;
	const struct hr__format_file *ff = row->part->ff;
	int64_t first = (int64_t)row->number * (int64_t)layout->seq_len;
	int n = ff->ops->starts(ff, row->place.index, starts, room);
	uint64_t start = 0;

	for (int i = 0; i <= n; i++) {
		uint64_t next = i < n ? hr__min(starts[i], layout->seq_len) : layout->seq_len;

		if (next <= start)
			continue; /* the window's own beginning, or that of the token behind it */
		*bounds++ = (int32_t)(first + (int64_t)start);
		++*n_bounds;
		pack_document(a, row, target, start, next);
		start = next;
	}
	return n < 0 ? n : 0;
}

/* -- requests -------------------------------------------------------------------------------- */

static int grow_requests(struct hr__requests *out, uint64_t n)
{
	struct hr_piece *pieces;

	if (n <= out->room)
		return 0;
	pieces = realloc(out->pieces, n * sizeof(*pieces));
	if (!pieces)
		return hr__fail(ENOMEM, "loader: no memory for %" PRIu64 " pieces of a batch", n);
	out->pieces = pieces;
	out->room = n;
	return 0;
}

/* Each group becomes a request. */
static int make_requests(struct hr__assembler *a, const struct hr__target *target,
			 struct hr__requests *out)
{
	int rc = grow_requests(out, a->n_cuts);

	if (rc < 0)
		return rc;
	for (uint32_t g = 0; g < a->n_groups; g++) {
		const struct group *group = &a->groups[g];
		const struct hr__cast_pair *cast =
			&a->layout->casts[group->key % a->layout->n_casts];
		struct hr_piece *pieces = out->pieces + out->n_pieces;
		uint64_t n = 0;

		if (!group->count)
			continue;
		for (uint64_t at = group->first; at != NO_CUT; at = a->cuts[at].next)
			pieces[n++] = a->cuts[at].piece;
		out->n_pieces += n;
		out->ios[out->n_ios++] = (struct hr_io){
			.op = HR_READ,
			.file = a->ds->parts[group->key / a->layout->n_casts]->file,
			.buffer = target->buffer,
			.pieces = pieces,
			.count = n,
			.from = cast->from,
			.to = cast->to,
		};
	}
	return 0;
}

/* What each batch has its own size of. */
static void tell_shapes(const struct hr__assembler *a, struct hr__target *target, uint32_t n_bounds)
{
	const struct hr__layout *layout = a->layout;

	for (uint32_t k = 0; k < layout->n_columns; k++) {
		const struct hr__column *column = &layout->columns[k];

		if (column->kind == HR__COLUMN_RAGGED)
			target->tensors[column->tensor].shape[0] =
				(uint64_t)side_numbers(column, target->side)[layout->batch_size];
	}
	if (layout->packed) {
		int32_t *bounds = (int32_t *)(void *)(target->side + layout->side_bounds);

		bounds[n_bounds] = (int32_t)(layout->batch_size * layout->seq_len);
		target->tensors[layout->tensor_bounds].shape[0] = n_bounds + 1ull;
	}
}

static void start_batch(struct hr__assembler *a, struct hr__target *target,
			struct hr__requests *out)
{
	for (uint32_t g = 0; g < a->n_groups; g++)
		a->group_of[a->groups[g].key] = NO_GROUP;
	a->n_groups = 0;
	a->n_cuts = 0;
	out->n_pieces = 0;
	out->n_ios = 0;
	target->max_seqlen = 0;
	for (uint32_t k = 0; k < a->layout->n_columns; k++) {
		if (a->layout->columns[k].kind == HR__COLUMN_RAGGED)
			side_numbers(&a->layout->columns[k], target->side)[0] = 0;
	}
}

/* What tells where the samples lie is brought in for all of them at once. */
static void look_ahead(const struct hr__assembler *a, const uint64_t *ids)
{
	for (uint32_t i = 0; i < a->layout->batch_size; i++) {
		struct hr__place place;

		hr__dataset_find(a->ds, ids[i], &place);
		hr__part_ahead(a->ds->parts[place.part], place.index);
	}
}

/* One try. *@row: where it ended. */
static int assemble(struct hr__assembler *a, const uint64_t *ids, struct hr__target *target,
		    struct hr__requests *out, struct row *row)
{
	uint32_t n_bounds = 0;
	int rc = 0;

	start_batch(a, target, out);
	for (uint32_t i = 0; i < a->layout->batch_size && rc == 0; i++) {
		*row = (struct row){.number = i, .id = ids[i]};
		hr__dataset_find(a->ds, ids[i], &row->place);
		row->part = a->ds->parts[row->place.part];
		rc = take_row(a, row, target);
		if (rc == 0 && a->layout->packed)
			rc = pack_row(a, row, target, &n_bounds);
	}
	if (rc == 0)
		rc = make_requests(a, target, out);
	if (rc == 0)
		tell_shapes(a, target, n_bounds);
	return rc;
}

int hr__assemble(struct hr__assembler *a, uint64_t *ids, struct hr__target *target,
		 struct hr__requests *out)
{
	uint64_t samples = a->ds->info.samples;
	struct row row = {.part = a->ds->parts[0]}; /* a batch has a row at least */
	int rc;

	if (a->ahead)
		look_ahead(a, ids);
	rc = assemble(a, ids, target, out, &row);
	/* Rare, so the batch is simply begun again. Only damage is passed over, nothing else that fails. */
	for (uint32_t i = 0; i < SUBSTITUTES_MAX; i++) {
		if ((rc != -HR_E_BAD_SAMPLE && rc != -HR_E_BAD_FORMAT) ||
		    row.part->corrupt == HR_CORRUPT_ERROR)
			return rc;
		if (!a->substituted)
			snprintf(a->reason, sizeof(a->reason), "%s", hr_error_detail());
		a->substituted++;
		ids[row.number] = (row.id + 1) % samples;
		rc = assemble(a, ids, target, out, &row);
	}
	return rc;
}

uint64_t hr__assemble_pad(const struct hr__layout *layout, const char *side, uint32_t k,
			  uint32_t row, struct hr__pad *out)
{
	const struct hr__column *column = &layout->columns[k];
	uint64_t used;

	if (column->kind != HR__COLUMN_PADDED)
		return 0;
	used = (uint64_t)((const int64_t *)(const void *)(side + column->side))[row] *
	       hr_dtype_size(column->out);
	out->offset = column->offset + row * column->row_bytes + used;
	out->len = column->row_bytes - used;
	return out->len;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* loader/layout.c - shapes and byte ranges of batches; arithmetic only, see layout.h. */
#include <assert.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/layout.h"

int hr__layout_init(struct hr__layout *layout, const struct hr_dataset_info *info,
		    uint32_t batch_size, enum hr_dtype out)
{
	if (out == HR_DTYPE_BYTES)
		out = info->dtype;
	if (!hr_cast_ok(info->dtype, out))
		return hr__fail(
			HR_E_BAD_CAST,
			"out dtype %s: the files hold %s, which can stay as it is or become "
			"i32 or i64",
			hr_dtype_name(out), hr_dtype_name(info->dtype));
	*layout = (struct hr__layout){
		.batch_size = batch_size,
		.elements = info->elements,
		.in = info->dtype,
		.out = out,
		/* 2^20 rows of 2^24 + 1 elements of 8 bytes and 1024 slots: no overflow */
		.row_bytes = (uint64_t)info->elements * hr_dtype_size(out),
		.ios_max = (uint32_t)hr__min(batch_size, info->files),
	};
	layout->batch_bytes = layout->row_bytes * batch_size;
	layout->slot_bytes = hr__align_up(layout->batch_bytes, HR__LAYOUT_ALIGN);
	return 0;
}

void hr__layout_tensors(const struct hr__layout *layout, char *base, struct hr_tensor *tensors)
{
	static const char *const names[HR__LAYOUT_TENSORS] = {"tokens", "input_ids", "labels"};

	for (uint32_t i = 0; i < HR__LAYOUT_TENSORS; i++) {
		tensors[i] = (struct hr_tensor){
			.name = names[i],
			.dtype = layout->out,
			.ndim = 2,
			.shape = {layout->batch_size, layout->elements - (i ? 1u : 0u)},
			.stride = {layout->elements, 1},
			.data = base + (i == 2 ? hr_dtype_size(layout->out) : 0),
		};
	}
}

/* Rows of one file, chained in ascending order. Return: files met. */
static uint32_t group_rows(const struct hr__layout *layout, const struct hr_dataset *ds,
			   const uint64_t *ids, struct hr__groups *groups)
{
	uint32_t n_files = 0;

	for (uint32_t row = layout->batch_size; row-- > 0;) {
		struct hr__place place;
		uint32_t file;

		hr__dataset_find(ds, ids[row], &place);
		file = place.part;
		groups->index[row] = place.index;
		if (groups->first[file] == HR__NO_ROW)
			groups->files[n_files++] = file;
		groups->next[row] = groups->first[file];
		groups->first[file] = row;
	}
	return n_files;
}

uint32_t hr__layout_requests(const struct hr__layout *layout, const struct hr_dataset *ds,
			     const uint64_t *ids, struct hr__groups *groups,
			     struct hr_buffer *buffer, uint64_t base, struct hr_piece *pieces,
			     struct hr_io *ios)
{
	uint32_t n_files = group_rows(layout, ds, ids, groups);
	bool cast = layout->in != layout->out;

	for (uint32_t k = 0; k < n_files; k++) {
		uint32_t file = groups->files[k], row = groups->first[file];
		const struct hr__part *part = ds->parts[file];
		uint64_t count = 0;

		groups->first[file] = HR__NO_ROW;
		for (; row != HR__NO_ROW; row = groups->next[row]) {
			struct hr_piece *piece = &pieces[count++];
			struct hr__range range;
			int rc = hr__part_locate(part, groups->index[row], 0, &range);

			assert(rc == 1); /* the id is inside the dataset, so the file has it */
			(void)rc;
			piece->file_offset = range.offset;
			piece->len = range.len;
			piece->buffer_offset = base + row * layout->row_bytes;
		}
		ios[k] = (struct hr_io){
			.op = HR_READ,
			.file = part->file,
			.buffer = buffer,
			.pieces = pieces,
			.count = count,
			.from = cast ? layout->in : HR_DTYPE_BYTES,
			.to = cast ? layout->out : HR_DTYPE_BYTES,
		};
		pieces += count;
	}
	return n_files;
}

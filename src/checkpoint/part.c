/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/part.c - arithmetic of parts: slices, conversions, places in memory. Moves nothing.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/fail.h"
#include "base/util.h"
#include "checkpoint/part.h"
#include "format/json.h"

static const struct hr__ck_weight *find_weight(const struct hr_checkpoint *ck, uint64_t index)
{
	return index < ck->info.weights ? &ck->weights[index] : NULL;
}

static int no_weight(const struct hr_checkpoint *ck, uint64_t index)
{
	return hr__fail(EINVAL, "tensor %" PRIu64 " of %" PRIu64 "; count from 0 and stay below",
			index, ck->info.weights);
}

static int no_dim(const struct hr__st_tensor *t, uint32_t dim)
{
	char shown[HR__JSON_SHOWN];

	return hr__fail(EINVAL,
			"tensor %s has %" PRIu32 " dimensions, a slice of dimension %" PRIu32
			" was asked for; load it whole",
			hr__json_show(shown, t->name), t->ndim, dim);
}

/* Elements of dimensions [from, to). The tensor is not empty, so that no product overflows. */
static uint64_t elements(const struct hr__st_tensor *t, uint32_t from, uint32_t to)
{
	uint64_t n = 1;

	for (uint32_t i = from; i < to; i++)
		n *= t->shape[i];
	return n;
}

/* A slice of a tensor that is not empty, in bits of the file. */
static int cut_slice(const struct hr__st_tensor *t, const struct hr_part *part, struct hr__cut *cut)
{
	uint64_t bits = hr_weight_type_bits(t->type);
	uint64_t row = elements(t, part->dim + 1, t->ndim) * bits;
	uint64_t outer = elements(t, 0, part->dim);
	uint64_t skip = part->start * row, len = part->count * row;
	uint64_t stride = t->shape[part->dim] * row;
	char shown[HR__JSON_SHOWN];

	if (skip % 8 || len % 8 || (outer > 1 && stride % 8))
		return hr__fail(HR_E_BAD_RANGE,
				"tensor %s: a slice [%" PRIu64 ", %" PRIu64
				") of dimension %" PRIu32
				" begins or ends inside of a byte; slice its %s elements otherwise",
				hr__json_show(shown, t->name), part->start,
				part->start + part->count, part->dim, hr_weight_type_name(t->type));
	cut->offset += skip / 8;
	cut->len = len / 8;
	cut->stride = stride / 8;
	cut->count = len ? outer : 0;
	if (cut->len == cut->stride) { /* all of that dimension: one run */
		cut->len *= cut->count;
		cut->count = 1;
	}
	return 0;
}

static int check_slice(const struct hr__st_tensor *t, const struct hr_part *part)
{
	char shown[HR__JSON_SHOWN];
	uint64_t end;

	if (part->dim >= t->ndim)
		return no_dim(t, part->dim);
	if (hr__add_overflows(part->start, part->count, &end) || end > t->shape[part->dim])
		return hr__fail(HR_E_BAD_RANGE,
				"tensor %s: elements %" PRIu64 " + %" PRIu64
				" of dimension %" PRIu32 " were asked for, it has %" PRIu64
				"; ask for less",
				hr__json_show(shown, t->name), part->start, part->count, part->dim,
				t->shape[part->dim]);
	return 0;
}

/* How long it is in memory. */
static int measure(const struct hr__st_tensor *t, enum hr_weight_type to, struct hr__cut *cut)
{
	uint64_t bytes = cut->len * cut->count;
	char shown[HR__JSON_SHOWN];

	cut->memory_len = bytes;
	if (to == HR_WEIGHT_SAME || to == t->type)
		return 0;
	if (!hr_weight_cast(t->type, to, &cut->from, &cut->to))
		return hr__fail(HR_E_BAD_CAST,
				"tensor %s: no conversion from %s to %s; load it as %s",
				hr__json_show(shown, t->name), hr_weight_type_name(t->type),
				hr_weight_type_name(to), hr_weight_type_name(t->type));
	if (hr__mul_overflows(bytes / hr_dtype_size(cut->from), hr_dtype_size(cut->to),
			      &cut->memory_len))
		return hr__fail(EOVERFLOW, "tensor %s: more than 2^64 bytes in memory; load less",
				hr__json_show(shown, t->name));
	return 0;
}

int hr__part_cut(const struct hr_checkpoint *ck, const struct hr_part *part, struct hr__cut *out)
{
	const struct hr__ck_weight *w = find_weight(ck, part->weight);
	const struct hr__st_tensor *t;
	int ret = 0;

	if (!w)
		return no_weight(ck, part->weight);
	t = w->tensor;
	*out = (struct hr__cut){
		.file = w->file,
		.offset = hr__ck_offset(ck, w),
		.len = t->end - t->begin,
		.stride = t->end - t->begin,
		.count = t->end > t->begin ? 1 : 0,
	};
	if (part->sliced)
		ret = check_slice(t, part);
	if (!ret && part->sliced && out->count)
		ret = cut_slice(t, part, out);
	return ret ? ret : measure(t, part->to, out);
}

int hr_part_slice(const struct hr_checkpoint *ck, struct hr_part *part, uint32_t dim,
		  uint64_t index, uint64_t count)
{
	const struct hr__ck_weight *w = find_weight(ck, part->weight);
	uint64_t size, each;

	if (!w)
		return no_weight(ck, part->weight);
	if (dim >= w->tensor->ndim)
		return no_dim(w->tensor, dim);
	if (index >= count)
		return hr__fail(EINVAL,
				"slice %" PRIu64 " of %" PRIu64 "; count from 0 and stay below",
				index, count);
	size = w->tensor->shape[dim];
	each = size / count + (size % count != 0);
	part->sliced = true;
	part->dim = dim;
	part->start = each && index > size / each ? size : hr__min(index * each, size);
	part->count = hr__min(each, size - part->start);
	return 0;
}

int hr_checkpoint_place(const struct hr_checkpoint *ck, struct hr_part *parts, uint64_t n,
			uint64_t align, uint64_t *bytes)
{
	uint64_t at = 0;

	if (!align)
		align = HR_PART_ALIGN;
	if (!hr__is_pow2(align))
		return hr__fail(EINVAL, "an alignment of %" PRIu64 " bytes; take a power of two",
				align);
	for (uint64_t i = 0; i < n; i++) {
		struct hr__cut cut;
		int ret = hr__part_cut(ck, &parts[i], &cut);

		if (ret)
			return ret;
		parts[i].len = cut.memory_len;
		if (at > UINT64_MAX - (align - 1))
			goto overflow;
		parts[i].buffer_offset = hr__align_up(at, align);
		if (hr__add_overflows(parts[i].buffer_offset, cut.memory_len, &at))
			goto overflow;
	}
	*bytes = at;
	return 0;

overflow:
	return hr__fail(EOVERFLOW, "%" PRIu64 " parts take more than 2^64 bytes; load fewer", n);
}

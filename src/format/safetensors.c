/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/safetensors.c - reads the header of a safetensors file and holds it to the rules of the
 * format; sees bytes alone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"
#include "format/json.h"
#include "format/safetensors.h"

/* While arrays grow, shapes are numbers of their first dimension; see place_shapes(). */
struct parser {
	struct hr__json json;
	struct hr__st *st;
	uint64_t tensors_room, dims_room, metadata_room;
	uint64_t n_dims;
	bool has_metadata;
};

/* Fields of an entry that were seen. */
enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELDS_ALL = 7 };

int hr__st_grow(const char *name, void **array, uint64_t *room, uint64_t need, size_t size)
{
	uint64_t more = hr__max(need, *room + *room / 2 + 16);
	void *bigger;

	if (need <= *room)
		return 0;
	bigger = reallocarray(*array, more, size);
	if (!bigger)
		return hr__fail(ENOMEM, "%s: no memory for its header; free some", name);
	*array = bigger;
	*room = more;
	return 0;
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int hr__st_twice(const char *name, const void *array, uint64_t n, size_t size, const char **twice)
{
	const char **texts = calloc(n + 1, sizeof(*texts));

	*twice = NULL;
	if (!texts)
		return hr__fail(ENOMEM, "%s: no memory for its header; free some", name);
	for (uint64_t i = 0; i < n; i++)
		memcpy(&texts[i], (const char *)array + i * size, sizeof(*texts));
	qsort(texts, n, sizeof(*texts), compare_texts);
	for (uint64_t i = 1; i < n && !*twice; i++) {
		if (strcmp(texts[i - 1], texts[i]) == 0)
			*twice = texts[i];
	}
	free(texts);
	return 0;
}

static uint64_t load_le64(const uint8_t *p)
{
	uint64_t value = 0;

	for (int i = 7; i >= 0; i--)
		value = value << 8 | p[i];
	return value;
}

int hr__st_length(const char *name, const void *head, size_t len, uint64_t file_size, uint64_t *out)
{
	const char *foreign = hr__format_foreign(head, len);
	uint64_t n;

	if (file_size < HR__ST_LENGTH_BYTES || len < HR__ST_LENGTH_BYTES)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu64
				" bytes, a safetensors file has at least 8 for the length of its "
				"header; it was truncated, get it again",
				name, file_size);
	n = load_le64(head);
	if (n > HR__ST_HEADER_MAX && foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: is no safetensors file; %s", name, foreign);
	if (n > HR__ST_HEADER_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: says that its header has %" PRIu64
				" bytes, the format allows %u; it is no safetensors file or is "
				"damaged",
				name, n, HR__ST_HEADER_MAX);
	if (n > file_size - HR__ST_LENGTH_BYTES)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its header of %" PRIu64 " bytes does not fit the %" PRIu64
				" bytes of the file; it was truncated, get it again",
				name, n, file_size);
	if (n < 2)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its header has %" PRIu64
				" bytes, the shortest is {}; it is damaged, get it again",
				name, n);
	*out = n;
	return 0;
}

const char *hr__st_bytes(enum hr_weight_type type, const uint64_t *shape, uint32_t ndim,
			 uint64_t *out)
{
	uint64_t bits = 1;

	for (uint32_t i = 0; i < ndim; i++) {
		if (hr__mul_overflows(bits, shape[i], &bits))
			return "its shape has more than 2^64 elements";
	}
	if (hr__mul_overflows(bits, hr_weight_type_bits(type), &bits))
		return "its elements take more than 2^64 bits";
	if (bits % 8)
		return "its elements do not fill whole bytes";
	*out = bits / 8;
	return NULL;
}

/* -- reading ---------------------------------------------------------------------------------- */

static int read_dtype(struct parser *p, struct hr__st_tensor *t)
{
	struct hr__json *j = &p->json;
	char shown[HR__JSON_SHOWN], owner[HR__JSON_SHOWN];
	size_t used = j->used;
	const char *text;
	int ret = hr__json_string(j, "dtype", &text);

	if (ret)
		return ret;
	ret = hr_weight_type_parse(text, &t->type);
	if (ret)
		ret = hr__fail(HR_E_BAD_DTYPE,
			       "%s: tensor %s has the dtype %s, which this version does not know; "
			       "use a newer one",
			       j->name, hr__json_show(owner, t->name), hr__json_show(shown, text));
	hr__json_forget(j, used);
	return ret;
}

static int read_shape(struct parser *p, struct hr__st_tensor *t)
{
	struct hr__json *j = &p->json;
	int ret = hr__json_open(j, '[', "a shape");
	bool first = true;

	t->begin = p->n_dims; /* until place_shapes(): the offsets lie elsewhere */
	while (!ret && (ret = hr__json_more(j, ']', &first)) > 0) {
		ret = hr__st_grow(j->name, (void **)&p->st->dims, &p->dims_room, p->n_dims + 1,
				  sizeof(uint64_t));
		if (!ret)
			ret = hr__json_u64(j, "a dimension", &p->st->dims[p->n_dims]);
		p->n_dims++;
		t->ndim++;
	}
	return ret;
}

static int read_offsets(struct parser *p, uint64_t offsets[2])
{
	struct hr__json *j = &p->json;
	int ret = hr__json_open(j, '[', "data_offsets");
	uint32_t n = 0;
	bool first = true;

	while (!ret && (ret = hr__json_more(j, ']', &first)) > 0) {
		if (n == 2)
			return hr__json_fail(j, "data_offsets has more than two numbers");
		ret = hr__json_u64(j, "an offset", &offsets[n++]);
	}
	if (!ret && n < 2)
		return hr__json_fail(j, "data_offsets has %" PRIu32 " numbers, two are needed", n);
	if (!ret && offsets[0] > offsets[1])
		return hr__json_fail(
			j, "data_offsets [%" PRIu64 ", %" PRIu64 "] end before they begin",
			offsets[0], offsets[1]);
	return ret;
}

static int read_field(struct parser *p, struct hr__st_tensor *t, uint64_t offsets[2],
		      uint32_t *seen)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} fields[] = {
		{"dtype", FIELD_DTYPE}, {"shape", FIELD_SHAPE}, {"data_offsets", FIELD_OFFSETS}};
	struct hr__json *j = &p->json;
	size_t used = j->used;
	const char *key;
	uint32_t field = 0;
	int ret = hr__json_key(j, "a field of a tensor", &key);

	if (ret)
		return ret;
	for (size_t i = 0; i < HR_ARRAY_LEN(fields); i++) {
		if (strcmp(fields[i].name, key) == 0)
			field = fields[i].bit;
	}
	hr__json_forget(j, used);
	if (*seen & field)
		return hr__json_fail(j, "a tensor has a field twice");
	*seen |= field;
	switch (field) {
	case FIELD_DTYPE:
		return read_dtype(p, t);
	case FIELD_SHAPE:
		return read_shape(p, t);
	case FIELD_OFFSETS:
		return read_offsets(p, offsets);
	default:
		return hr__json_skip(j); /* of a later version */
	}
}

static int read_tensor(struct parser *p, const char *name)
{
	struct hr__st_tensor t = {.name = name};
	char shown[HR__JSON_SHOWN];
	uint64_t offsets[2] = {0, 0};
	uint32_t seen = 0;
	bool first = true;
	int ret = hr__st_grow(p->json.name, (void **)&p->st->tensors, &p->tensors_room,
			      p->st->n_tensors + 1ull, sizeof(t));

	if (!ret)
		ret = hr__json_open(&p->json, '{', "a tensor");
	while (!ret && (ret = hr__json_more(&p->json, '}', &first)) > 0)
		ret = read_field(p, &t, offsets, &seen);
	if (ret)
		return ret;
	if (seen != FIELDS_ALL)
		return hr__json_fail(&p->json, "tensor %s has no %s", hr__json_show(shown, name),
				     !(seen & FIELD_DTYPE)   ? "dtype"
				     : !(seen & FIELD_SHAPE) ? "shape"
							     : "data_offsets");
	/* The place of the shape is kept in the pointer: the array may still move. */
	t.shape = (const uint64_t *)(uintptr_t)t.begin;
	t.begin = offsets[0];
	t.end = offsets[1];
	p->st->tensors[p->st->n_tensors++] = t;
	return 0;
}

static int read_metadata(struct parser *p)
{
	struct hr__st *st = p->st;
	struct hr__json *j = &p->json;
	char shown[HR__JSON_SHOWN];
	const char *twice = NULL;
	bool first = true;
	int ret;

	if (p->has_metadata)
		return hr__json_fail(j, "__metadata__ appears twice");
	p->has_metadata = true;
	if (hr__json_null(j))
		return 0;
	ret = hr__json_open(j, '{', "__metadata__");
	while (!ret && (ret = hr__json_more(j, '}', &first)) > 0) {
		struct hr_save_pair pair;

		ret = hr__st_grow(j->name, (void **)&st->metadata, &p->metadata_room,
				  st->n_metadata + 1ull, sizeof(pair));
		if (!ret)
			ret = hr__json_key(j, "a key of __metadata__", &pair.key);
		if (!ret)
			ret = hr__json_string(j, "a value of __metadata__", &pair.value);
		if (!ret)
			st->metadata[st->n_metadata++] = pair;
	}
	if (!ret)
		ret = hr__st_twice(j->name, st->metadata, st->n_metadata, sizeof(*st->metadata),
				   &twice);
	if (!ret && twice)
		return hr__json_fail(j, "__metadata__ has the key %s twice",
				     hr__json_show(shown, twice));
	return ret;
}

static int read_header(struct parser *p)
{
	struct hr__json *j = &p->json;
	bool first = true;
	int ret = 0;

	if (*j->at != '{')
		return hr__json_fail(j, "the header must begin with '{'");
	ret = hr__json_open(j, '{', "the header");
	while (!ret && (ret = hr__json_more(j, '}', &first)) > 0) {
		size_t used = j->used;
		const char *name;

		ret = hr__json_key(j, "the name of a tensor", &name);
		if (!ret && strcmp(name, "__metadata__") == 0) {
			hr__json_forget(j, used);
			ret = read_metadata(p);
		} else if (!ret) {
			ret = read_tensor(p, name);
		}
	}
	return ret ? ret : hr__json_finish(j);
}

/* -- the rules -------------------------------------------------------------------------------- */

/* The array of dimensions has stopped moving. */
static void place_shapes(struct hr__st *st)
{
	if (!st->dims)
		return; /* all are single numbers: their shapes are empty */
	for (uint32_t i = 0; i < st->n_tensors; i++)
		st->tensors[i].shape = st->dims + (uintptr_t)st->tensors[i].shape;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct hr__st_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	/* Empty ones in one place: as in the header, where names were decoded in turn. */
	return x->name < y->name ? -1 : x->name > y->name;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
	const struct hr__st_tensor *t = tensors;

	return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static int check_names(const char *name, struct hr__st *st)
{
	char shown[HR__JSON_SHOWN];

	st->by_name = malloc((st->n_tensors + 1ull) * sizeof(*st->by_name));
	if (!st->by_name)
		return hr__fail(ENOMEM, "%s: no memory for its header; free some", name);
	for (uint32_t i = 0; i < st->n_tensors; i++)
		st->by_name[i] = i;
	qsort_r(st->by_name, st->n_tensors, sizeof(*st->by_name), compare_names, st->tensors);
	for (uint32_t i = 1; i < st->n_tensors; i++) {
		const char *a = st->tensors[st->by_name[i - 1]].name;

		if (strcmp(a, st->tensors[st->by_name[i]].name) == 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: its header has the tensor %s twice; a reader could "
					"take either, get the file from somebody else",
					name, hr__json_show(shown, a));
	}
	return 0;
}

static int check_tensor(const char *name, const struct hr__st_tensor *t)
{
	const char *wrong;
	char shown[HR__JSON_SHOWN];
	uint64_t bytes = 0;

	wrong = hr__st_bytes(t->type, t->shape, t->ndim, &bytes);
	if (wrong)
		return hr__fail(HR_E_BAD_FORMAT, "%s: tensor %s: %s; the file is damaged", name,
				hr__json_show(shown, t->name), wrong);
	if (bytes != t->end - t->begin)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: tensor %s: its shape and dtype %s make %" PRIu64
				" bytes, its data_offsets %" PRIu64 "; the file is damaged",
				name, hr__json_show(shown, t->name), hr_weight_type_name(t->type),
				bytes, t->end - t->begin);
	return 0;
}

/* One after the other, from the first byte to the last. */
static int check_cover(const char *name, const struct hr__st *st, uint64_t *end)
{
	char shown[HR__JSON_SHOWN], other[HR__JSON_SHOWN];

	*end = 0;
	for (uint32_t i = 0; i < st->n_tensors; i++) {
		const struct hr__st_tensor *t = &st->tensors[i];

		if (t->begin > *end)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: bytes %" PRIu64 " to %" PRIu64
					" before tensor %s belong to no tensor; the format allows "
					"no holes",
					name, *end, t->begin, hr__json_show(shown, t->name));
		if (t->begin < *end)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: tensors %s and %s overlap at byte %" PRIu64
					"; the file is damaged or was made to deceive",
					name, hr__json_show(other, st->tensors[i - 1].name),
					hr__json_show(shown, t->name), t->begin);
		*end = t->end;
	}
	return 0;
}

static int check_length(const char *name, const struct hr__st *st, uint64_t end, bool lenient)
{
	if (end > st->data_len)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its tensors end at byte %" PRIu64 ", the file %" PRIu64
				" bytes before; it was truncated, get it again",
				name, end, end - st->data_len);
	if (end < st->data_len && !lenient)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: %" PRIu64
				" bytes follow behind the last tensor; be lenient to load it all "
				"the same",
				name, st->data_len - end);
	return 0;
}

static int check(const char *name, struct hr__st *st, bool lenient)
{
	uint64_t end;
	int ret;

	for (uint32_t i = 1; i < st->n_tensors; i++) {
		if (compare_offsets(&st->tensors[i - 1], &st->tensors[i]) > 0) {
			qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), compare_offsets);
			break;
		}
	}
	ret = check_names(name, st);
	for (uint32_t i = 0; i < st->n_tensors && !ret; i++)
		ret = check_tensor(name, &st->tensors[i]);
	if (!ret)
		ret = check_cover(name, st, &end);
	return ret ? ret : check_length(name, st, end, lenient);
}

int hr__st_parse(const char *name, const void *json, size_t len, uint64_t file_size, bool lenient,
		 struct hr__st *out)
{
	struct parser p = {.st = out};
	int ret;

	memset(out, 0, sizeof(*out));
	out->text = malloc(len + 1);
	if (!out->text)
		return hr__fail(ENOMEM, "%s: no memory for its header of %zu bytes; free some",
				name, len);
	out->data_off = HR__ST_LENGTH_BYTES + len;
	out->data_len = file_size - out->data_off;
	hr__json_begin(&p.json, name, json, len, out->text);
	p.json.base = HR__ST_LENGTH_BYTES;
	ret = read_header(&p);
	place_shapes(out);
	if (!ret)
		ret = check(name, out, lenient);
	if (ret)
		hr__st_free(out);
	return ret;
}

void hr__st_free(struct hr__st *st)
{
	free(st->tensors);
	free(st->by_name);
	free(st->metadata);
	free(st->dims);
	free(st->text);
	memset(st, 0, sizeof(*st));
}

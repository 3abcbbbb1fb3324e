/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/safetensors_write.c - writes the header of a safetensors file, byte for byte as the reference
 * implementation does: order of tensors, spacing, escapes, padding.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/json.h"
#include "format/safetensors.h"

struct text {
	const char *name; /* of the file, for sentences */
	char *bytes;
	uint64_t len, room;
	int error; /* the first one; what follows does nothing */
};

static void put(struct text *t, const char *bytes, size_t len)
{
	if (!t->error)
		t->error = hr__st_grow(t->name, (void **)&t->bytes, &t->room, t->len + len, 1);
	if (t->error)
		return;
	memcpy(t->bytes + t->len, bytes, len);
	t->len += len;
}

static void put_text(struct text *t, const char *text)
{
	put(t, text, strlen(text));
}

static void put_u64(struct text *t, uint64_t value)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, value);

	put(t, digits, (size_t)len);
}

static void put_string(struct text *t, const char *string)
{
	static const char from[] = "\"\\\b\f\n\r\t", into[] = "\"\\bfnrt";
	char code[8];

	put(t, "\"", 1);
	for (const char *s = string; *s; s++) {
		const char *at = strchr(from, *s);

		if (at) {
			put(t, "\\", 1);
			put(t, &into[at - from], 1);
		} else if ((uint8_t)*s < 0x20) {
			snprintf(code, sizeof(code), "\\u%04x", (uint8_t)*s);
			put(t, code, 6);
		} else {
			put(t, s, 1);
		}
	}
	put(t, "\"", 1);
}

/* Higher types first, so that data stays aligned; then by name. */
static int compare(const void *a, const void *b)
{
	const struct hr__st_tensor *x = a, *y = b;

	if (x->type != y->type)
		return x->type > y->type ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* What a parser would refuse must not be written. */
static int check_text(const char *name, const char *what, const char *text)
{
	struct hr__json j;
	char shown[HR__JSON_SHOWN];
	size_t len = strlen(text);
	char *quoted = malloc(2 * len + 8), *decoded = malloc(2 * len + 8);
	struct text t = {.name = name, .bytes = quoted, .room = 2 * len + 8};
	const char *out;
	int ret = -ENOMEM;

	if (quoted && decoded) {
		put_string(&t, text);
		hr__json_begin(&j, name, t.bytes, t.len, decoded);
		ret = t.error ? t.error : hr__json_string(&j, what, &out);
	}
	free(quoted ? t.bytes : NULL);
	free(decoded);
	if (ret == -ENOMEM)
		return hr__fail(ENOMEM, "%s: no memory for a header; free some", name);
	if (ret)
		return hr__fail(EINVAL, "%s: %s '%s' is not valid UTF-8; encode it so", name, what,
				hr__json_show(shown, text));
	return 0;
}

/* Check and lay out. */
static int lay_out(const char *name, struct hr__st_tensor *tensors, uint32_t n)
{
	char shown[HR__JSON_SHOWN];
	uint64_t at = 0;

	if (n)
		qsort(tensors, n, sizeof(*tensors), compare);
	for (uint32_t i = 0; i < n; i++) {
		struct hr__st_tensor *t = &tensors[i];
		const char *wrong;
		uint64_t bytes;
		int ret = check_text(name, "the name of a tensor", t->name);

		if (ret)
			return ret;
		hr__json_show(shown, t->name);
		if (!hr_weight_type_bits(t->type))
			return hr__fail(EINVAL, "%s: tensor %s: unknown type %d", name, shown,
					t->type);
		if (strcmp(t->name, "__metadata__") == 0)
			return hr__fail(EINVAL,
					"%s: the name __metadata__ is taken by the format; call "
					"the tensor otherwise",
					name);
		wrong = hr__st_bytes(t->type, t->shape, t->ndim, &bytes);
		if (wrong)
			return hr__fail(EINVAL, "%s: tensor %s: %s; correct its shape", name, shown,
					wrong);
		t->begin = at;
		if (hr__add_overflows(at, bytes, &at) || at > INT64_MAX / 2)
			return hr__fail(EOVERFLOW, "%s: more than 2^62 bytes in all; save less",
					name);
		t->end = at;
	}
	return 0;
}

/* The same name with two types: far apart in the order of the file. */
static int check_unique(const char *name, const struct hr__st_tensor *tensors, uint32_t n,
			const struct hr_save_pair *metadata, uint64_t n_metadata)
{
	char shown[HR__JSON_SHOWN];
	const char *twice;
	int ret = hr__st_twice(name, tensors, n, sizeof(*tensors), &twice);

	if (!ret && !twice)
		ret = hr__st_twice(name, metadata, n_metadata, sizeof(*metadata), &twice);
	if (!ret && twice)
		ret = hr__fail(EINVAL, "%s: the name %s is given twice; rename one", name,
			       hr__json_show(shown, twice));
	return ret;
}

static void put_metadata(struct text *t, const struct hr_save_pair *pairs, uint64_t n)
{
	put_text(t, "\"__metadata__\":{");
	for (uint64_t i = 0; i < n; i++) {
		if (i)
			put_text(t, ",");
		put_string(t, pairs[i].key);
		put_text(t, ":");
		put_string(t, pairs[i].value);
	}
	put_text(t, "}");
}

static void put_tensor(struct text *t, const struct hr__st_tensor *tensor)
{
	put_string(t, tensor->name);
	put_text(t, ":{\"dtype\":\"");
	put_text(t, hr_weight_type_name(tensor->type));
	put_text(t, "\",\"shape\":[");
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		if (i)
			put_text(t, ",");
		put_u64(t, tensor->shape[i]);
	}
	put_text(t, "],\"data_offsets\":[");
	put_u64(t, tensor->begin);
	put_text(t, ",");
	put_u64(t, tensor->end);
	put_text(t, "]}");
}

int hr__st_build(const char *name, struct hr__st_tensor *tensors, uint32_t n,
		 const struct hr_save_pair *metadata, uint64_t n_metadata, char **out, size_t *len)
{
	struct text t = {.name = name};
	uint64_t json;
	int ret = lay_out(name, tensors, n);

	if (!ret)
		ret = check_unique(name, tensors, n, metadata, n_metadata);
	for (uint64_t i = 0; i < n_metadata && !ret; i++) {
		ret = check_text(name, "a key of the metadata", metadata[i].key);
		if (!ret)
			ret = check_text(name, "a value of the metadata", metadata[i].value);
	}
	if (ret)
		return ret;
	put(&t, "\0\0\0\0\0\0\0\0{", HR__ST_LENGTH_BYTES + 1);
	if (metadata)
		put_metadata(&t, metadata, n_metadata);
	for (uint32_t i = 0; i < n; i++) {
		if (i || metadata)
			put_text(&t, ",");
		put_tensor(&t, &tensors[i]);
	}
	put_text(&t, "}");
	while (!t.error && t.len % 8)
		put(&t, " ", 1);
	json = t.len - HR__ST_LENGTH_BYTES;
	if (!t.error && json > HR__ST_HEADER_MAX)
		t.error = hr__fail(EINVAL,
				   "%s: a header of %" PRIu64
				   " bytes, the format allows %u; save fewer tensors in a file",
				   name, json, HR__ST_HEADER_MAX);
	if (t.error) {
		free(t.bytes);
		return t.error;
	}
	for (int i = 0; i < 8; i++)
		t.bytes[i] = (char)(json >> (8 * i));
	*out = t.bytes;
	*len = t.len;
	return 0;
}

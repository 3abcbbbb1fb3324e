/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/format.c - the list of formats, and the files that people pass by mistake; opens nothing.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"

static const struct hr__format_ops *const formats[] = {
	&hr__format_tokens, &hr__format_mds, &hr__format_arrow,    &hr__format_megatron,
	&hr__format_npy,    &hr__format_tar, &hr__format_tfrecord, &hr__format_safetensors,
};

const struct hr__format_ops *hr__format_find(const char *name, const void *head, size_t len,
					     uint64_t file_size)
{
	const struct hr__format_ops *best = NULL;
	int best_score = 0;

	if (name && strcmp(name, "auto") != 0) {
		for (size_t i = 0; i < HR_ARRAY_LEN(formats); i++) {
			if (strcmp(formats[i]->name, name) == 0)
				return formats[i];
		}
		return NULL;
	}
	for (size_t i = 0; i < HR_ARRAY_LEN(formats); i++) {
		int score = formats[i]->probe(head, len, file_size);

		if (score > best_score) {
			best_score = score;
			best = formats[i];
		}
	}
	return best;
}

const struct hr__format_ops *hr__format_at(size_t k)
{
	return k < HR_ARRAY_LEN(formats) ? formats[k] : NULL;
}

bool hr__format_wanted(const struct hr_dataset_options *opts, const char *name)
{
	for (uint32_t i = 0; i < opts->n_fields; i++) {
		if (strcmp(opts->fields[i], name) == 0)
			return true;
	}
	return !opts->fields;
}

static bool has_field(const struct hr__schema *schema, const char *name)
{
	for (uint32_t i = 0; i < schema->n_fields; i++) {
		if (strcmp(schema->fields[i].face.name, name) == 0)
			return true;
	}
	return false;
}

int hr__format_check_wanted(const struct hr_source *src, const struct hr_dataset_options *opts,
			    const struct hr__schema *schema)
{
	for (uint32_t i = 0; opts->fields && i < opts->n_fields; i++) {
		if (!has_field(schema, opts->fields[i]))
			return hr__fail(
				EINVAL,
				"%s: has no field \"%s\" that can be read; leave the fields "
				"out to get all that can",
				src->name, opts->fields[i]);
	}
	return 0;
}

void hr__format_windows(struct hr__schema *schema, struct hr__field *field, enum hr_dtype dtype,
			uint32_t seq_len)
{
	field->face = (struct hr_field){
		.name = "tokens",
		.dtype = dtype,
		.ndim = 1,
		.shape = {(uint64_t)seq_len + 1},
		.bytes = ((uint64_t)seq_len + 1) * hr_dtype_size(dtype),
	};
	schema->fields = field;
	schema->n_fields = 1;
	schema->windows = true;
}

int hr__format_some(const struct hr_source *src)
{
	if (src->size > 0)
		return 0;
	return hr__fail(HR_E_EMPTY_FILE,
			"%s: the file is empty; was it ever written, or is the disk full?",
			src->name);
}

int hr__format_head(const struct hr_source *src, void *head, size_t *len)
{
	int rc = hr__format_some(src);

	*len = (size_t)hr__min(src->size, HR__FORMAT_HEAD_BYTES);
	return rc < 0 ? rc : src->read(src, 0, head, *len);
}

bool hr__format_zeros(const void *head, size_t len)
{
	const unsigned char *p = head;

	return len > 0 && !p[0] && memcmp(p, p + 1, len - 1) == 0;
}

static bool starts_with(const unsigned char *head, size_t len, const char *magic, size_t magic_len)
{
	return len >= magic_len && memcmp(head, magic, magic_len) == 0;
}

static bool is_html(const unsigned char *head, size_t len)
{
	static const char *const openings[] = {"<!doctype html", "<html", "<?xml"};

	if (starts_with(head, len, "\xef\xbb\xbf", 3)) {
		head += 3;
		len -= 3;
	}
	while (len > 0 && isspace(*head)) {
		head++;
		len--;
	}
	for (size_t i = 0; i < HR_ARRAY_LEN(openings); i++) {
		size_t n = strlen(openings[i]);

		if (len >= n && strncasecmp((const char *)head, openings[i], n) == 0)
			return true;
	}
	return false;
}

/*
 * RFC 1952. The magic alone is two bytes, which token files can begin with by chance; the method,
 * the reserved flag bits, the level and the system make that 2^-40.
 */
static bool is_gzip(const unsigned char *head, size_t len)
{
	return len >= 10 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 &&
	       (head[3] & 0xe0) == 0 && (head[8] == 0 || head[8] == 2 || head[8] == 4) &&
	       (head[9] <= 13 || head[9] == 255);
}

const char *hr__format_foreign(const void *head, size_t len)
{
	static const struct {
		const char *magic;
		size_t len;
		const char *what;
	} known[] = {
		{"version https://git-lfs", 23,
		 "this is a git-lfs pointer, not the data; run 'git lfs pull'"},
		{"\x93NUMPY", 6,
		 "this is a .npy file, whose header would be read as tokens; save the raw array "
		 "with numpy's tofile(), or read rows with the format npy"},
		{"PK\x03\x04", 4,
		 "this is a zip archive (.npz and .pt are zip too); unpack it first"},
		{"\x28\xb5\x2f\xfd", 4, "this is zstd-compressed; decompress it first"},
		{"PAR1", 4,
		 "this is a Parquet file, whose values are encoded; convert it to Arrow IPC once"},
		{"FEA1", 4,
		 "this is a Feather file of version 1; write it again as version 2, uncompressed"},
		{"MMIDIDX\0\0", 9,
		 "this is the index of a Megatron dataset, not its tokens; read it with the format "
		 "megatron, or pass the .bin beside it"},
		{"\x8a\xd8\x34\x01", 4,
		 "this is an llm.c evaluation set (magic 20240522), not a stream of tokens; pass "
		 "the "
		 "training or validation .bin"},
	};

	for (size_t i = 0; i < HR_ARRAY_LEN(known); i++) {
		if (starts_with(head, len, known[i].magic, known[i].len))
			return known[i].what;
	}
	if (is_html(head, len))
		return "this is a web page, not the data; the download went wrong, fetch it again";
	if (is_gzip(head, len))
		return "this is gzip-compressed; decompress it first";
	return NULL;
}

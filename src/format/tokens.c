/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/tokens.c - files that are one long row of token numbers; sees bytes only through a source.
 *
 * Two forms, both little-endian. Headerless uint16 or uint32, as nanoGPT's data/<name>/prepare.py
 * writes them: nothing in the file says which, so the options do. With the header of llm.c
 * (dev/data/data_common.py): 256 int32 of which the first three are magic, version and the number of
 * tokens, and the magic tells the element type.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"

#define HEADER_BYTES 1024u /* 256 int32 */
#define SEQ_LEN_MAX (1u << 24)

struct header_kind {
	uint32_t magic;
	uint32_t version;
	enum hr_dtype dtype;
};

static const struct header_kind header_kinds[] = {
	{20240520, 1, HR_DTYPE_U16}, /* GPT-2 */
	{20240801, 7, HR_DTYPE_U32}, /* Llama 3 */
};

/* Where the tokens of a file are. */
struct token_range {
	enum hr_dtype dtype;
	uint64_t data_off;
	uint64_t count;
};

static uint32_t load_le32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const struct header_kind *find_header(const unsigned char *head, size_t len)
{
	if (len < 4)
		return NULL;
	for (size_t i = 0; i < HR_ARRAY_LEN(header_kinds); i++) {
		if (load_le32(head) == header_kinds[i].magic)
			return &header_kinds[i];
	}
	return NULL;
}

/* A headerless file has no mark of its own: it is the guess when nothing else claims the file. */
static int tokens_probe(const void *head, size_t len, uint64_t file_size)
{
	if (find_header(head, len))
		return 100;
	/* Nothing but zeros is an empty archive, a hole, a copy that failed: who means it says so. */
	if (hr__format_foreign(head, len) || hr__format_zeros(head, len))
		return 0;
	return 1;
}

static int check_options(const struct hr_dataset_options *opts)
{
	if (opts->seq_len < 1 || opts->seq_len > SEQ_LEN_MAX)
		return hr__fail(EINVAL, "seq_len %" PRIu32 ": must be 1 to %u tokens",
				opts->seq_len, SEQ_LEN_MAX);
	switch ((int)opts->dtype) {
	case 0:
	case HR_DTYPE_U16:
	case HR_DTYPE_U32:
		return 0;
	default:
		return hr__fail(HR_E_BAD_DTYPE, "dtype %s: token files hold u16 or u32",
				hr_dtype_name(opts->dtype));
	}
}

static int parse_header(const struct hr_source *src, const struct header_kind *kind,
			const unsigned char *head, enum hr_dtype wish, struct token_range *out)
{
	uint32_t element = hr_dtype_size(kind->dtype);
	uint32_t version, count;
	uint64_t data_bytes, want_bytes;

	if (src->size < HEADER_BYTES)
		return hr__fail(
			HR_E_BAD_FORMAT,
			"%s: has the llm.c magic %" PRIu32 " but only %" PRIu64
			" bytes, less than its header of %u; it was truncated, copy it again",
			src->name, kind->magic, src->size, HEADER_BYTES);
	version = load_le32(head + 4);
	count = load_le32(head + 8);
	if (version != kind->version)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: llm.c header with magic %" PRIu32 " has version %" PRIu32
				", known is %" PRIu32 "; write the file again with a current "
				"data_common.py",
				src->name, kind->magic, version, kind->version);
	if (wish != HR_DTYPE_BYTES && wish != kind->dtype)
		return hr__fail(
			HR_E_BAD_DTYPE,
			"%s: its header says %s but dtype %s was asked for; leave dtype out or "
			"say %s",
			src->name, hr_dtype_name(kind->dtype), hr_dtype_name(wish),
			hr_dtype_name(kind->dtype));
	data_bytes = src->size - HEADER_BYTES;
	want_bytes = (uint64_t)count * element;
	if (count > INT32_MAX || data_bytes != want_bytes)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its header promises %" PRIu32 " tokens, %" PRIu64
				" bytes, but %" PRIu64
				" bytes follow; it was truncated or appended "
				"to, copy it again",
				src->name, count, want_bytes, data_bytes);
	*out = (struct token_range){kind->dtype, HEADER_BYTES, count};
	return 0;
}

static int parse_plain(const struct hr_source *src, enum hr_dtype wish, struct token_range *out)
{
	enum hr_dtype dtype = wish == HR_DTYPE_BYTES ? HR_DTYPE_U16 : wish;
	uint32_t element = hr_dtype_size(dtype);
	uint64_t rest = src->size % element;

	if (rest)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: %" PRIu64 " bytes are no whole number of %s tokens, %" PRIu64
				" left over; the file was truncated (copy it again)%s",
				src->name, src->size, hr_dtype_name(dtype), rest,
				dtype == HR_DTYPE_U32 && rest == 2 ? " or its dtype is u16"
								   : " or holds something else");
	*out = (struct token_range){dtype, 0, src->size / element};
	return 0;
}

static int parse_tokens(const struct hr_source *src, const struct hr_dataset_options *opts,
			struct token_range *out)
{
	unsigned char head[HR__FORMAT_HEAD_BYTES];
	size_t len;
	const struct header_kind *kind;
	const char *foreign;
	int rc;

	rc = hr__format_head(src, head, &len);
	if (rc < 0)
		return rc;
	kind = find_header(head, len);
	if (kind)
		return parse_header(src, kind, head, opts->dtype, out);
	foreign = hr__format_foreign(head, len);
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", src->name, foreign);
	return parse_plain(src, opts->dtype, out);
}

/* Samples are evenly spaced: sample i = [data_off + i * stride_bytes, + sample_bytes). */
struct tokens {
	struct hr__format_file ff;
	struct hr__field field;
	uint64_t data_off, stride_bytes;
};

static int tokens_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	const struct hr_dataset_options *opts = args->opts;
	const char *name = args->src->name;
	struct tokens *t;
	struct token_range range;
	uint64_t stride, stride_bytes, window = (uint64_t)opts->seq_len + 1;
	int rc = check_options(opts);

	if (rc < 0)
		return rc;
	rc = parse_tokens(args->src, opts, &range);
	if (rc < 0)
		return rc;
	stride = opts->stride ? opts->stride : opts->seq_len;
	if (hr__mul_overflows(stride, hr_dtype_size(range.dtype), &stride_bytes))
		return hr__fail(EINVAL, "stride %" PRIu64 ": more tokens than any file has",
				stride);
	if (range.count < window)
		return hr__fail(HR_E_TOO_SHORT,
				"%s: holds %" PRIu64 " tokens, a sample of seq_len %" PRIu32
				" needs %" PRIu64 "; choose a shorter seq_len or a longer file",
				name, range.count, opts->seq_len, window);
	t = calloc(1, sizeof(*t));
	if (!t)
		return hr__fail(ENOMEM, "%s: no memory to open it", name);
	hr__format_windows(&t->ff.schema, &t->field, range.dtype, opts->seq_len);
	t->ff.ops = &hr__format_tokens;
	t->ff.schema.count = (range.count - window) / stride + 1;
	t->data_off = range.data_off;
	t->stride_bytes = stride_bytes;
	*out = &t->ff;
	return 0;
}

static int tokens_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
			 struct hr_range *out)
{
	const struct tokens *t = (const struct tokens *)ff;

	if (index >= ff->schema.count || field > 0)
		return -EINVAL;
	/* No overflow: the last sample lies inside the file. */
	out->offset = t->data_off + index * t->stride_bytes;
	out->len = t->field.face.bytes;
	return 1;
}

static void tokens_close(struct hr__format_file *ff)
{
	free(ff);
}

const struct hr__format_ops hr__format_tokens = {
	.name = "tokens",
	.suffixes = ".bin",
	.probe = tokens_probe,
	.open = tokens_open,
	.locate = tokens_locate,
	.close = tokens_close,
};

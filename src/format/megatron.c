/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/megatron.c - datasets of Megatron-Core, PREFIX.idx and PREFIX.bin, as samples: windows of tokens
 * across documents, whole documents, or the samples of Megatron's own order. The tables are
 * megatron_index.c's, that order is megatron_order.c's.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"
#include "format/megatron.h"

#define SEQ_LEN_MAX (1u << 24)
#define NAME_BYTES 256u
#define SUFFIX_BYTES 4u

struct megatron {
	struct hr__format_file ff;
	struct hr__field field;
	struct hr__megatron_index index;
	uint64_t stride; /* tokens */
	bool ordered;    /* by Megatron's own numbers: */
	struct hr__megatron_order order;
	char reason[160];
};

static int megatron_probe(const void *head, size_t len, uint64_t file_size)
{
	if (len >= HR__MEGATRON_MAGIC_BYTES &&
	    memcmp(head, HR__MEGATRON_MAGIC, HR__MEGATRON_MAGIC_BYTES) == 0)
		return 100;
	/* To be refused with the right words. */
	return len >= HR__MEGATRON_OLD_MAGIC_BYTES && memcmp(head, HR__MEGATRON_OLD_MAGIC,
							     HR__MEGATRON_OLD_MAGIC_BYTES) == 0
		       ? 100
		       : 0;
}

/* -- two files of one name ------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *suffix)
{
	size_t len = strlen(name);

	return len > SUFFIX_BYTES && strcmp(name + len - SUFFIX_BYTES, suffix) == 0;
}

/* The other one of the pair. */
static int open_other(const struct hr__format_args *args, const char *suffix,
		      const struct hr_source **out)
{
	const char *path = args->src->name, *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	size_t len = strlen(base);
	char name[NAME_BYTES];
	int rc;

	if (len >= sizeof(name))
		return hr__fail(ENAMETOOLONG, "%s: a name of more than %u bytes", path, NAME_BYTES);
	memcpy(name, base, len - SUFFIX_BYTES);
	memcpy(name + len - SUFFIX_BYTES, suffix, SUFFIX_BYTES + 1);
	rc = args->siblings->open(args->siblings, name, out);
	if (rc == -ENOENT)
		return hr__fail(
			ENOENT,
			"%s: a Megatron dataset is two files, and %s is not beside it; copy "
			"that too",
			path, name);
	return rc;
}

/* Return: the number of the data among the files opened, or -code. */
static int open_pair(const struct hr__format_args *args, const struct hr_source **idx,
		     const struct hr_source **bin)
{
	const struct hr_source *src = args->src;
	int rc;

	*idx = *bin = src;
	if (ends_with(src->name, ".bin"))
		return open_other(args, ".idx", idx);
	if (!ends_with(src->name, ".idx"))
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: a Megatron dataset is PREFIX.bin and PREFIX.idx; name one of "
				"the two",
				src->name);
	rc = open_other(args, ".bin", bin);
	return rc < 0 ? rc : 1;
}

/* -- what a sample is ------------------------------------------------------------------------ */

static int check_options(const struct hr_dataset_options *opts)
{
	if (opts->seq_len > SEQ_LEN_MAX)
		return hr__fail(EINVAL,
				"seq_len %" PRIu32 ": must be 1 to %u tokens, or 0 for whole "
				"documents",
				opts->seq_len, SEQ_LEN_MAX);
	if (opts->order && opts->seq_len == 0)
		return hr__fail(EINVAL,
				"order: needs the seq_len that Megatron's indices were made "
				"for");
	if (opts->stride && (opts->order || opts->seq_len == 0))
		return hr__fail(EINVAL,
				"stride: is the distance of windows; documents, and samples "
				"in Megatron's order, have none: leave it out");
	return 0;
}

static void set_documents(struct megatron *m)
{
	m->field.face = (struct hr_field){
		.name = "tokens",
		.kind = HR_FIELD_RAGGED,
		.dtype = m->index.dtype,
		.ndim = 1,
		.bytes = m->index.sizes.max,
	};
	m->field.sizes = &m->index.sizes;
	m->ff.schema.fields = &m->field;
	m->ff.schema.n_fields = 1;
	m->ff.schema.count = m->index.documents;
	m->ff.schema.ranges_max = (uint32_t)hr__max(m->index.runs_max, 1);
}

static int set_windows(struct megatron *m, const struct hr__format_args *args)
{
	const struct hr_dataset_options *opts = args->opts;
	uint64_t window = (uint64_t)opts->seq_len + 1;

	if (m->index.tokens < window)
		return hr__fail(HR_E_TOO_SHORT,
				"%s: holds %" PRIu64 " tokens, a sample of seq_len %" PRIu32
				" needs %" PRIu64 "; choose a shorter seq_len or a longer file",
				args->src->name, m->index.tokens, opts->seq_len, window);
	m->stride = opts->stride ? opts->stride : opts->seq_len;
	hr__format_windows(&m->ff.schema, &m->field, m->index.dtype, opts->seq_len);
	m->ff.schema.count = (m->index.tokens - window) / m->stride + 1;
	if (m->index.contiguous)
		return 0;
	return hr__megatron_runs(&m->index, window, &m->ff.schema.ranges_max);
}

static int set_order(struct megatron *m, const struct hr__format_args *args)
{
	struct hr__schema *schema = &m->ff.schema;
	int rc;

	m->ordered = true;
	rc = hr__megatron_order_open(&m->order, args, &m->index);
	if (rc < 0)
		return rc;
	hr__format_windows(schema, &m->field, m->index.dtype, args->opts->seq_len);
	schema->count = m->order.count;
	schema->ranges_max = m->order.ranges_max;
	if (m->order.last_tokens == m->order.window || m->order.last == UINT64_MAX)
		return 0;
	schema->n_bad = 1;
	schema->bad = &m->order.last;
	schema->bad_reason = m->reason;
	snprintf(m->reason, sizeof(m->reason),
		 "sample %" PRIu64 ", the last before shuffling, has %" PRIu64
		 " tokens and not %" PRIu32 " (Megatron fills it up)",
		 m->order.last, m->order.last_tokens, m->order.window);
	return 0;
}

static int set_samples(struct megatron *m, const struct hr__format_args *args)
{
	const struct hr_dataset_options *opts = args->opts;
	const char *name = args->src->name;

	if (opts->dtype != HR_DTYPE_BYTES && opts->dtype != m->index.dtype)
		return hr__fail(
			HR_E_BAD_DTYPE,
			"%s: its index says %s but dtype %s was asked for; leave dtype out or "
			"say %s",
			name, hr_dtype_name(m->index.dtype), hr_dtype_name(opts->dtype),
			hr_dtype_name(m->index.dtype));
	if (m->index.tokens == 0)
		return hr__fail(HR_E_TOO_SHORT, "%s: a dataset without tokens; leave it out", name);
	if (opts->order)
		return set_order(m, args);
	if (opts->seq_len)
		return set_windows(m, args);
	set_documents(m);
	return 0;
}

static void megatron_close(struct hr__format_file *ff)
{
	struct megatron *m = (struct megatron *)ff;

	hr__megatron_index_close(&m->index);
	free(m);
}

static int megatron_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	const struct hr_source *idx, *bin;
	struct megatron *m;
	int rc = check_options(args->opts), data_file = 0;

	if (rc == 0)
		rc = data_file = open_pair(args, &idx, &bin);
	if (rc < 0)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return hr__fail(ENOMEM, "%s: no memory to open it", args->src->name);
	m->ff.ops = &hr__format_megatron;
	m->ff.schema.data_file = (uint32_t)data_file;
	rc = hr__megatron_index_open(&m->index, idx, bin);
	if (rc == 0)
		rc = set_samples(m, args);
	if (rc == 0)
		rc = hr__format_check_wanted(args->src, args->opts, &m->ff.schema);
	if (rc < 0) {
		megatron_close(&m->ff);
		return rc;
	}
	*out = &m->ff;
	return 0;
}

/* -- where a sample is ----------------------------------------------------------------------- */

/* From its first sequence to its last. */
static int locate_span(const struct megatron *m, uint64_t first, uint64_t last,
		       struct hr_range *out)
{
	struct hr_range end = {0, 0};
	int rc = hr__megatron_sequence(&m->index, first, out);

	if (rc == 0)
		rc = hr__megatron_sequence(&m->index, last, &end);
	if (rc < 0)
		return rc;
	end.offset += end.len;
	out->len = hr__max(end.offset, out->offset) - out->offset;
	return out->len > 0;
}

static int locate_sequences(const struct megatron *m, uint64_t s, uint64_t end,
			    struct hr_range *out)
{
	struct hr__megatron_ranges ranges = {.out = out, .max = m->ff.schema.ranges_max};
	int rc = 0;

	for (; rc == 0 && s < end; s++) {
		struct hr_range sequence;

		rc = hr__megatron_sequence(&m->index, s, &sequence);
		if (rc == 0)
			rc = hr__megatron_add(&ranges, sequence.offset, sequence.len);
	}
	return rc < 0 ? rc : (int)ranges.n;
}

static int locate_document(const struct megatron *m, uint64_t d, struct hr_range *out)
{
	uint64_t s, end, bytes = 0;
	int n = hr__megatron_document(&m->index, d, &s, &end);

	if (n < 0)
		return n;
	if (m->index.contiguous && end > s)
		n = locate_span(m, s, end - 1, out);
	else
		n = locate_sequences(m, s, end, out);
	for (int i = 0; i < n; i++)
		bytes += out[i].len;
	/* The batch has room for the longest one that there was. */
	if (n > 0 && bytes > m->field.face.bytes)
		return hr__fail(HR_E_FILE_CHANGED,
				"%s: document %" PRIu64
				" is longer than when the index was opened; "
				"is it being written again?",
				m->index.src->name, d);
	return n;
}

/* A window of a file with gaps: sequence after sequence, from the one that it begins in. */
static int locate_runs(const struct megatron *m, uint64_t position, struct hr_range *out)
{
	const struct hr__megatron_index *x = &m->index;
	struct hr__megatron_ranges ranges = {.out = out, .max = m->ff.schema.ranges_max};
	uint64_t s = 1, end = 0, tail, left = m->field.face.bytes;
	int rc = hr__megatron_find(x, position + 1, &s, &end);

	s--; /* the last one with no more than @position tokens before it; the others are whole */
	for (tail = (end - position) * x->element; rc == 0 && left > 0; s++, tail = UINT64_MAX) {
		struct hr_range sequence;

		rc = hr__megatron_sequence(x, s, &sequence);
		if (rc < 0)
			break;
		tail = hr__min(tail, sequence.len);
		sequence.offset += sequence.len - tail;
		sequence.len = hr__min(tail, left);
		left -= sequence.len;
		rc = hr__megatron_add(&ranges, sequence.offset, sequence.len);
	}
	return rc < 0 ? rc : (int)ranges.n;
}

static int megatron_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
			   struct hr_range *out)
{
	const struct megatron *m = (const struct megatron *)ff;

	if (index >= ff->schema.count || field > 0)
		return -EINVAL;
	if (m->ordered)
		return hr__megatron_order_locate(&m->order, index, out);
	if (!ff->schema.windows)
		return locate_document(m, index, out);
	if (!m->index.contiguous)
		return locate_runs(m, index * m->stride, out);
	/* No overflow: the last window lies inside the file. */
	out->offset = index * m->stride * m->index.element;
	out->len = m->field.face.bytes;
	return 1;
}

static int megatron_starts(const struct hr__format_file *ff, uint64_t index, uint32_t *out,
			   uint32_t room)
{
	const struct megatron *m = (const struct megatron *)ff;

	if (index >= ff->schema.count || !ff->schema.windows)
		return -EINVAL;
	if (m->ordered)
		return hr__megatron_order_starts(&m->order, index, out, room);
	return hr__megatron_starts(&m->index, index * m->stride, m->field.face.shape[0], out, room);
}

const struct hr__format_ops hr__format_megatron = {
	.name = "megatron",
	.suffixes = ".idx",
	.pair = ".bin .idx",
	.probe = megatron_probe,
	.open = megatron_open,
	.locate = megatron_locate,
	.starts = megatron_starts,
	.close = megatron_close,
};

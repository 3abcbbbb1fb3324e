/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/megatron_order.c - the order in which Megatron-Core's GPTDataset reads: three arrays that it keeps
 * in its cache folder. Knows nothing of how they were made.
 *
 * As megatron/core/datasets/gpt_dataset.py reads them: sample k is number j = shuffle[k]. It begins in the
 * sequence documents[b], o tokens from its start, where (b, o) is row j of the sample index, and ends in
 * that of row j + 1, whose o + 1 first tokens still belong to it: the last token of a sample is the first
 * of the next. What GPTDataset calls a document is a sequence of the index.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/le.h"
#include "format/megatron.h"

#define PATH_BYTES 4096u
#define BLOCK_BYTES 65536u
#define BLOCK_NUMBERS 256u
#define LOOK_AT 64u
/* Sequences without tokens may lie in a sample, but not without bound. */
#define EMPTY_MAX (1u << 20)
#define REMEDY "name the files that Megatron wrote for this dataset and this seq_len"

/* Where a sample begins: in which entry of the document index, at which token of that sequence. */
struct mark {
	int64_t document, offset;
};

/* What a walk along the sequences of a sample has found. */
struct walk {
	struct hr__megatron_ranges ranges; /* where out is not NULL */
	uint64_t tokens;
	uint32_t *starts; /* where sequences with tokens begin; NULL: not asked */
	uint32_t n_starts, room;
};

static int refuse(const struct hr__megatron_array *a, uint64_t at, const char *rule)
{
	return hr__fail(HR_E_BAD_FORMAT, "%s: entry %" PRIu64 ": %s; %s", a->src->name, at, rule,
			REMEDY);
}

/* Numbers [at, at + n) of an array, whatever its rows. @n: up to BLOCK_NUMBERS. */
static int read_numbers(const struct hr__megatron_array *a, uint64_t at, uint32_t n, int64_t *out)
{
	uint32_t width = hr_dtype_size(a->npy.dtype);
	uint8_t bytes[8 * BLOCK_NUMBERS];
	int rc = a->src->read(a->src, a->npy.data + at * width, bytes, (size_t)n * width);

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const uint8_t *p = bytes + (size_t)i * width;

		if (width == 8)
			out[i] = (int64_t)hr__le64(p);
		else if (a->npy.dtype == HR_DTYPE_U32)
			out[i] = (int64_t)hr__le32(p);
		else
			out[i] = (int32_t)hr__le32(p);
	}
	return rc;
}

/* -- one sample ------------------------------------------------------------------------------ */

/* @from: the first token of sequence @s that is wanted; @count: how many, or -1: all that follow. */
static int walk_sequence(const struct hr__megatron_order *o, uint64_t s, int64_t from,
			 int64_t count, struct walk *w)
{
	struct hr_range sequence;
	int64_t length;
	int rc = hr__megatron_sequence(o->index, s, &sequence);

	if (rc < 0)
		return rc;
	length = (int64_t)(sequence.len / o->index->element);
	if (count < 0)
		count = length - from;
	if (from > length || count < 0 || count > length - from)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: a sample needs tokens %" PRId64 " to %" PRId64
				" of sequence %" PRIu64 ", which has %" PRId64
				"; were the indices made for other data, or with "
				"add_extra_token_to_sequence off? %s",
				o->samples.src->name, from, from + count, s, length, REMEDY);
	if (count && from == 0 && w->n_starts < w->room)
		w->starts[w->n_starts++] = (uint32_t)w->tokens;
	w->tokens += (uint64_t)count;
	if (!w->ranges.out)
		return 0;
	return hr__megatron_add(&w->ranges, sequence.offset + (uint64_t)from * o->index->element,
				(uint64_t)count * o->index->element);
}

/* Rows @j and @j + 1 of the sample index. */
static int read_marks(const struct hr__megatron_order *o, uint64_t j, struct mark *begin,
		      struct mark *end)
{
	int64_t numbers[4] = {0};
	int rc = read_numbers(&o->samples, 2 * j, 4, numbers);

	if (rc < 0)
		return rc;
	*begin = (struct mark){numbers[0], numbers[1]};
	*end = (struct mark){numbers[2], numbers[3]};
	/* All rows were looked at; this is for a file that has changed since. */
	if (begin->document < 0 || begin->offset < 0 || end->document < begin->document ||
	    end->offset < -1 || (uint64_t)end->document >= o->documents.npy.elements)
		return refuse(&o->samples, j, "does not begin in a sequence before its end");
	return 0;
}

/* The sample in row @j of the sample index. */
static int walk_sample(const struct hr__megatron_order *o, uint64_t j, struct walk *w)
{
	struct mark begin = {0, 0}, end = {0, 0};
	int rc = read_marks(o, j, &begin, &end);

	for (int64_t at = begin.document; rc == 0 && at <= end.document;) {
		int64_t numbers[BLOCK_NUMBERS] = {0};
		uint32_t n = (uint32_t)hr__min(BLOCK_NUMBERS, (uint64_t)(end.document - at) + 1);

		rc = read_numbers(&o->documents, (uint64_t)at, n, numbers);
		for (uint32_t i = 0; i < n && rc == 0; i++, at++) {
			int64_t from = at == begin.document ? begin.offset : 0;
			int64_t count = at == end.document ? end.offset + 1 - from : -1;

			if (count < -1 || (count == -1 && at == end.document))
				return refuse(&o->samples, j + 1, "ends before it begins");
			rc = walk_sequence(o, (uint64_t)numbers[i], from, count, w);
		}
	}
	return rc;
}

static int sample_of(const struct hr__megatron_order *o, uint64_t number, uint64_t *j)
{
	int64_t value = 0;
	int rc = read_numbers(&o->shuffle, number, 1, &value);

	*j = (uint64_t)value;
	if (rc == 0 && *j >= o->count)
		return refuse(&o->shuffle, number, "is the number of no sample");
	return rc;
}

/* Sample @number, which must have as many tokens as all have. */
static int walk_number(const struct hr__megatron_order *o, uint64_t number, struct walk *w)
{
	uint64_t j;
	int rc = sample_of(o, number, &j);

	if (rc == 0)
		rc = walk_sample(o, j, w);
	if (rc == 0 && w->tokens != o->window)
		return hr__fail(HR_E_BAD_SAMPLE,
				"%s: sample %" PRIu64 " has %" PRIu64 " tokens, not %" PRIu32
				"; %s",
				o->samples.src->name, j, w->tokens, o->window, REMEDY);
	return rc;
}

int hr__megatron_order_locate(const struct hr__megatron_order *o, uint64_t number,
			      struct hr_range *out)
{
	struct walk w = {.ranges = {.out = out, .max = o->ranges_max}};
	int rc = walk_number(o, number, &w);

	return rc < 0 ? rc : (int)w.ranges.n;
}

int hr__megatron_order_starts(const struct hr__megatron_order *o, uint64_t number, uint32_t *out,
			      uint32_t room)
{
	struct walk w = {.starts = out, .room = room};
	int rc = walk_number(o, number, &w);

	return rc < 0 ? rc : (int)w.n_starts;
}

/* -- opening: every number of the three arrays is looked at once ------------------------------- */

static int open_array(struct hr__megatron_array *a, const struct hr__format_args *args,
		      const char *name, enum hr_dtype type, enum hr_dtype other)
{
	char path[PATH_BYTES];
	int rc = snprintf(path, sizeof(path), "%s%s", args->opts->order, name);

	if (rc < 0 || (size_t)rc >= sizeof(path))
		return hr__fail(EINVAL, "order: a path of more than %u bytes", PATH_BYTES);
	rc = args->siblings->open_path(args->siblings, path, &a->src);
	if (rc == -ENOENT)
		return hr__fail(ENOENT,
				"%s: there is no such file; order is what the names of Megatron's "
				"document_index.npy, sample_index.npy and shuffle_index.npy begin "
				"with, up to these words",
				path);
	if (rc == 0)
		rc = hr__npy_parse(a->src, 0, a->src->size, NULL, &a->npy);
	if (rc < 0)
		return rc;
	if (a->npy.dtype != type && a->npy.dtype != other)
		return hr__fail(HR_E_BAD_DTYPE, "%s: holds %s where Megatron writes %s%s%s; %s",
				a->src->name, hr_dtype_name(a->npy.dtype), hr_dtype_name(type),
				type == other ? "" : " or ",
				type == other ? "" : hr_dtype_name(other), REMEDY);
	return 0;
}

static int check_shapes(struct hr__megatron_order *o)
{
	const struct hr__npy *documents = &o->documents.npy, *samples = &o->samples.npy;
	const struct hr__npy *shuffle = &o->shuffle.npy;

	if (documents->ndim != 1 || documents->elements == 0 || samples->ndim != 2 ||
	    samples->shape[1] != 2 || samples->shape[0] < 2 || shuffle->ndim != 1)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: it and its two neighbours have not the shapes (documents,), "
				"(samples + 1, 2), (samples,); %s",
				o->samples.src->name, REMEDY);
	o->count = samples->shape[0] - 1;
	if (shuffle->shape[0] != o->count)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu64 " numbers, the sample index %" PRIu64
				" samples; are they of two runs? %s",
				o->shuffle.src->name, shuffle->shape[0], o->count, REMEDY);
	return 0;
}

/*
 * Call @check for all numbers of an array, in order. @numbers_each: that it gets at a time.
 */
static int
check_array(struct hr__megatron_order *o, const struct hr__megatron_array *a, uint32_t numbers_each,
	    int (*check)(struct hr__megatron_order *o, uint64_t at, const int64_t *numbers))
{
	int64_t numbers[BLOCK_NUMBERS] = {0};
	int rc = 0;

	for (uint64_t at = 0; at < a->npy.elements && rc == 0;) {
		uint32_t n = (uint32_t)hr__min(BLOCK_NUMBERS, a->npy.elements - at);

		rc = read_numbers(a, at, n, numbers);
		for (uint32_t i = 0; i < n && rc == 0; i += numbers_each)
			rc = check(o, (at + i) / numbers_each, numbers + i);
		at += n;
	}
	return rc;
}

static int check_document(struct hr__megatron_order *o, uint64_t at, const int64_t *number)
{
	if (*number < 0 || (uint64_t)*number >= o->index->sequences)
		return refuse(&o->documents, at, "is the number of no sequence of the index");
	return 0;
}

static int check_shuffle(struct hr__megatron_order *o, uint64_t at, const int64_t *number)
{
	if (*number < 0 || (uint64_t)*number >= o->count)
		return refuse(&o->shuffle, at, "is the number of no sample");
	if ((uint64_t)*number == o->count - 1)
		o->last = at;
	return 0;
}

/* Rows go forward; the most sequences between two of them bound the ranges of a sample. */
struct rows {
	struct hr__megatron_order order; /* must be first */
	struct mark before;
	uint64_t span;
};

static int check_row(struct hr__megatron_order *o, uint64_t at, const int64_t *row)
{
	struct rows *rows = (struct rows *)o;
	bool last = at == o->count;

	/* -1: behind a last sequence without tokens. */
	if (row[0] < 0 || (uint64_t)row[0] >= o->documents.npy.elements || row[1] < -(int)last)
		return refuse(&o->samples, at, "does not begin in a document of the index");
	if (at > 0) {
		uint64_t span = (uint64_t)(row[0] - rows->before.document);

		if (row[0] < rows->before.document ||
		    (span == 0 && row[1] <= rows->before.offset && !last))
			return refuse(&o->samples, at, "does not go forward");
		rows->span = hr__max(rows->span, span + 1);
	}
	rows->before = (struct mark){row[0], row[1]};
	return 0;
}

static int check_numbers(struct hr__megatron_order *o)
{
	struct rows rows = {.order = *o, .span = 1};
	int rc = check_array(o, &o->documents, 1, check_document);

	if (rc == 0)
		rc = check_array(&rows.order, &o->samples, 2, check_row);
	if (rc == 0)
		rc = check_array(o, &o->shuffle, 1, check_shuffle);
	if (rc < 0)
		return rc;
	if (rows.span > (uint64_t)o->window + EMPTY_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: a sample of %" PRIu64
				" sequences, of which each has a token at "
				"least, or most are empty; %s",
				o->samples.src->name, rows.span, REMEDY);
	/* Each range has a token at least. */
	o->ranges_max = (uint32_t)hr__min(rows.span, o->window);
	return 0;
}

/*
 * The first samples and the last one are measured against the data: an order of other data, or of another
 * length, is found now. The last may be short, where Megatron fills it up.
 */
static int check_samples(struct hr__megatron_order *o)
{
	for (uint64_t j = 0; j < o->count; j = j + 1 < LOOK_AT ? j + 1 : o->count - 1) {
		struct walk w = {.tokens = 0};
		int rc = walk_sample(o, j, &w);

		if (rc < 0)
			return rc;
		if (j == o->count - 1) {
			o->last_tokens = w.tokens;
			if (w.tokens <= o->window)
				break;
		}
		if (w.tokens != o->window)
			return hr__fail(
				HR_E_BAD_FORMAT,
				"%s: sample %" PRIu64 " has %" PRIu64
				" tokens, seq_len + 1 is %" PRIu32
				"; were the indices made for another seq_len or other data? %s",
				o->samples.src->name, j, w.tokens, o->window, REMEDY);
	}
	return 0;
}

int hr__megatron_order_open(struct hr__megatron_order *o, const struct hr__format_args *args,
			    const struct hr__megatron_index *index)
{
	int rc;

	o->index = index;
	o->window = args->opts->seq_len + 1;
	o->last = UINT64_MAX;
	rc = open_array(&o->documents, args, "document_index.npy", HR_DTYPE_I32, HR_DTYPE_I32);
	if (rc == 0)
		rc = open_array(&o->samples, args, "sample_index.npy", HR_DTYPE_I32, HR_DTYPE_I64);
	if (rc == 0)
		rc = open_array(&o->shuffle, args, "shuffle_index.npy", HR_DTYPE_U32, HR_DTYPE_I64);
	if (rc == 0)
		rc = check_shapes(o);
	if (rc == 0)
		rc = check_numbers(o);
	return rc < 0 ? rc : check_samples(o);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/megatron_index.c - the .idx of a Megatron-Core dataset: 34 bytes of head, then the tables of
 * lengths (i32), pointers (i64, bytes), documents (i64, first sequences) and perhaps modes (i8), at odd
 * addresses. Knows nothing of samples.
 *
 * Megatron's reader (megatron/core/datasets/indexed_dataset.py) checks magic and version alone. Here each
 * entry is looked at once, so that an index of other data is found at open and not in the middle of a
 * training.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/le.h"
#include "format/megatron.h"

#define HEAD_BYTES 34u
#define MARK_EVERY 512u
#define BLOCK_BYTES 65536u
#define PEEK_ENTRIES 128u
#define REMEDY "copy the .idx and the .bin again, together"

/* A table that is read from its beginning to its end. */
struct table {
	const struct hr_source *src;
	uint64_t at, left; /* what is not in the block yet: offset, entries */
	uint32_t width;    /* bytes of an entry */
	uint32_t next, filled;
	uint8_t block[BLOCK_BYTES];
};

/* All three, side by side. */
struct scan {
	struct table lengths, pointers, documents;
	uint64_t sequence; /* the next one */
	uint64_t end;      /* of the one before, in the data: bytes */
	uint64_t end_of_run;
	uint64_t bytes; /* of all before */
};

static void table_begin(struct table *t, const struct hr_source *src, uint64_t at, uint32_t width,
			uint64_t entries)
{
	t->src = src;
	t->at = at;
	t->left = entries;
	t->width = width;
	t->next = t->filled = 0;
}

/* The next entry, as the signed number that it is. The caller counts them. */
static int table_next(struct table *t, int64_t *out)
{
	const uint8_t *p;

	if (t->next == t->filled) {
		uint64_t n = hr__min(t->left, BLOCK_BYTES / t->width);
		int rc = t->src->read(t->src, t->at, t->block, n * t->width);

		if (rc < 0)
			return rc;
		t->at += n * t->width;
		t->left -= n;
		t->filled = (uint32_t)n;
		t->next = 0;
	}
	p = t->block + t->next++ * t->width;
	*out = t->width == 4 ? (int32_t)hr__le32(p) : (int64_t)hr__le64(p);
	return 0;
}

/* -- head ------------------------------------------------------------------------------------ */

static enum hr_dtype dtype_of_code(uint8_t code)
{
	static const enum hr_dtype codes[] = {
		HR_DTYPE_BYTES, HR_DTYPE_U8,  HR_DTYPE_I8,  HR_DTYPE_I16, HR_DTYPE_I32,
		HR_DTYPE_I64,   HR_DTYPE_F64, HR_DTYPE_F32, HR_DTYPE_U16,
	};

	return code < HR_ARRAY_LEN(codes) ? codes[code] : HR_DTYPE_BYTES;
}

static int refuse_magic(const struct hr_source *src, const uint8_t *head, size_t len)
{
	const char *foreign = hr__format_foreign(head, len);

	if (len >= HR__MEGATRON_OLD_MAGIC_BYTES &&
	    memcmp(head, HR__MEGATRON_OLD_MAGIC, HR__MEGATRON_OLD_MAGIC_BYTES) == 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: the index of an old dataset of fairseq (TNTIDX), which "
				"Megatron-Core does not read either; make it again with Megatron's "
				"tools/preprocess_data.py",
				src->name);
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", src->name, foreign);
	return hr__fail(
		HR_E_BAD_FORMAT,
		"%s: byte 0: no index of a Megatron dataset, it does not begin with MMIDIDX; "
		"%s",
		src->name, REMEDY);
}

/* The tables end where the file ends; the last one, of modes, may be absent. */
static int place_tables(struct hr__megatron_index *x, uint64_t marks)
{
	const struct hr_source *src = x->src;
	uint64_t lengths, pointers, documents, need;

	if (hr__mul_overflows(x->sequences, 4, &lengths) ||
	    hr__mul_overflows(x->sequences, 8, &pointers) ||
	    hr__mul_overflows(marks, 8, &documents) ||
	    hr__add_overflows(lengths, pointers, &need) ||
	    hr__add_overflows(need, documents, &need) || need > src->size - HEAD_BYTES ||
	    (src->size - HEAD_BYTES != need && src->size - HEAD_BYTES != need + x->sequences))
		return hr__fail(
			HR_E_BAD_FORMAT,
			"%s: byte 18: %" PRIu64 " sequences and %" PRIu64
			" marks of documents do not make %" PRIu64
			" bytes, nor with a byte more each for their modes; it was cut off, %s",
			src->name, x->sequences, marks, src->size, REMEDY);
	x->lengths_at = HEAD_BYTES;
	x->pointers_at = x->lengths_at + lengths;
	x->documents_at = x->pointers_at + pointers;
	if (x->sequences == 0)
		return hr__fail(HR_E_TOO_SHORT, "%s: an index of no sequences; leave it out",
				src->name);
	if (marks == 0)
		return hr__fail(
			HR_E_BAD_FORMAT,
			"%s: byte 26: no marks of documents, there is one more than documents; "
			"%s",
			src->name, REMEDY);
	x->documents = marks - 1;
	return 0;
}

static int parse_head(struct hr__megatron_index *x)
{
	const struct hr_source *src = x->src;
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t len = (size_t)hr__min(src->size, sizeof(head));
	int rc = src->read(src, 0, head, len);

	if (rc < 0)
		return rc;
	if (len == 0)
		return hr__fail(HR_E_EMPTY_FILE, "%s: the index is empty; %s", src->name, REMEDY);
	if (len < HR__MEGATRON_MAGIC_BYTES ||
	    memcmp(head, HR__MEGATRON_MAGIC, HR__MEGATRON_MAGIC_BYTES) != 0)
		return refuse_magic(src, head, len);
	if (len < HEAD_BYTES)
		return hr__fail(HR_E_BAD_FORMAT, "%s: has %zu bytes, its head alone has %u; %s",
				src->name, len, HEAD_BYTES, REMEDY);
	if (hr__le64(head + 9) != 1)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte 9: version %" PRIu64 " of the index, known is 1; make it "
				"again with Megatron-Core's IndexedDatasetBuilder",
				src->name, hr__le64(head + 9));
	x->dtype = dtype_of_code(head[17]);
	if (x->dtype == HR_DTYPE_BYTES)
		return hr__fail(HR_E_BAD_DTYPE,
				"%s: byte 17: element type %u, known are 1 to 8; %s", src->name,
				head[17], REMEDY);
	x->element = hr_dtype_size(x->dtype);
	x->sequences = hr__le64(head + 18);
	return place_tables(x, hr__le64(head + 26));
}

/* -- every entry once ------------------------------------------------------------------------ */

static struct scan *scan_begin(const struct hr__megatron_index *x)
{
	struct scan *scan = malloc(sizeof(*scan));

	if (!scan)
		return NULL;
	table_begin(&scan->lengths, x->src, x->lengths_at, 4, x->sequences);
	table_begin(&scan->pointers, x->src, x->pointers_at, 8, x->sequences);
	table_begin(&scan->documents, x->src, x->documents_at, 8, x->documents + 1);
	scan->sequence = scan->end = scan->end_of_run = scan->bytes = 0;
	return scan;
}

/* The next sequence. @out: its bytes. Return: 0, or -code with a sentence. */
static int scan_sequence(const struct hr__megatron_index *x, struct scan *scan,
			 struct hr_range *out)
{
	uint64_t s = scan->sequence;
	int64_t length = 0, pointer = 0;
	int rc = table_next(&scan->lengths, &length);

	if (rc == 0)
		rc = table_next(&scan->pointers, &pointer);
	if (rc < 0)
		return rc;
	if (length < 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte %" PRIu64 ": sequence %" PRIu64 " has %" PRId64
				" tokens; %s",
				x->src->name, x->lengths_at + 4 * s, s, length, REMEDY);
	out->len = (uint64_t)length * x->element;
	out->offset = (uint64_t)pointer;
	if (pointer < 0 || out->offset < scan->end)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte %" PRIu64 ": sequence %" PRIu64 " begins at byte %" PRId64
				" of the .bin, before the one before it ends, at %" PRIu64 "; %s",
				x->src->name, x->pointers_at + 8 * s, s, pointer, scan->end,
				REMEDY);
	if (out->offset > x->bin_bytes || out->len > x->bin_bytes - out->offset)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte %" PRIu64 ": sequence %" PRIu64 ", %" PRIu64
				" bytes from %" PRIu64 ", ends behind the .bin of %" PRIu64
				"; is it of another .bin, or was that cut off? %s",
				x->src->name, x->pointers_at + 8 * s, s, out->len, out->offset,
				x->bin_bytes, REMEDY);
	scan->sequence++;
	scan->end = out->offset + out->len;
	scan->bytes += out->len;
	return 0;
}

/* Does this sequence begin another run of bytes? Empty ones lie nowhere. */
static bool begins_run(struct scan *scan, const struct hr_range *sequence)
{
	bool begins = sequence->len && sequence->offset != scan->end_of_run;

	if (sequence->len)
		scan->end_of_run = sequence->offset + sequence->len;
	return begins;
}

static int scan_document(struct hr__megatron_index *x, struct scan *scan, uint64_t d, uint64_t end)
{
	uint64_t before = scan->bytes;
	uint32_t runs = 0;

	if (x->document_marks && d % MARK_EVERY == 0)
		x->document_marks[d / MARK_EVERY] = scan->sequence;
	if (scan->sequence != d || end != d + 1)
		x->one_each = false;
	while (scan->sequence < end) {
		uint64_t end_before = scan->end;
		struct hr_range sequence = {0, 0};
		bool begins;
		int rc;

		if (scan->sequence % MARK_EVERY == 0)
			x->token_marks[scan->sequence / MARK_EVERY] = scan->bytes / x->element;
		rc = scan_sequence(x, scan, &sequence);
		if (rc < 0)
			return rc;
		x->contiguous &= sequence.offset == end_before;
		begins = begins_run(scan, &sequence);
		runs += sequence.len && (begins || !runs) && runs < UINT32_MAX;
	}
	x->runs_max = (uint32_t)hr__max(x->runs_max, runs);
	hr__sizes_add(&x->sizes, scan->bytes - before);
	return 0;
}

static int check_mark(const struct hr__megatron_index *x, uint64_t d, int64_t mark, int64_t before)
{
	bool first = d == 0, last = d == x->documents;

	if (mark >= before && (!first || mark == 0) && (uint64_t)mark <= x->sequences &&
	    (!last || (uint64_t)mark == x->sequences))
		return 0;
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte %" PRIu64 ": document mark %" PRIu64 " is sequence %" PRId64
			"; marks go up from 0 to the %" PRIu64 " sequences; %s",
			x->src->name, x->documents_at + 8 * d, d, mark, x->sequences, REMEDY);
}

static int scan_documents(struct hr__megatron_index *x, struct scan *scan)
{
	int64_t mark = 0, before = 0;
	int rc = table_next(&scan->documents, &mark);

	if (rc == 0)
		rc = check_mark(x, 0, mark, before);
	for (uint64_t d = 0; d < x->documents && rc == 0; d++) {
		before = mark;
		rc = table_next(&scan->documents, &mark);
		if (rc == 0)
			rc = check_mark(x, d + 1, mark, before);
		if (rc == 0)
			rc = scan_document(x, scan, d, (uint64_t)mark);
	}
	return rc;
}

static int check_end(const struct hr__megatron_index *x, const struct scan *scan,
		     const struct hr_source *bin)
{
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t len = (size_t)hr__min(bin->size, sizeof(head));
	const char *foreign = NULL;

	if (scan->end == bin->size)
		return 0;
	if (bin->read(bin, 0, head, len) == 0)
		foreign = hr__format_foreign(head, len);
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", bin->name, foreign);
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: has %" PRIu64 " bytes, its index %s speaks of %" PRIu64
			"; are they of two datasets, or is it still being written? %s",
			bin->name, bin->size, x->src->name, scan->end, REMEDY);
}

static int scan_tables(struct hr__megatron_index *x, const struct hr_source *bin)
{
	struct scan *scan = scan_begin(x);
	int rc;

	/* In proportion to the tables, whose bytes are there. */
	x->token_marks = calloc(x->sequences / MARK_EVERY + 1, sizeof(*x->token_marks));
	x->document_marks = calloc(x->documents / MARK_EVERY + 1, sizeof(*x->document_marks));
	if (!scan || !x->token_marks || !x->document_marks) {
		free(scan);
		return hr__fail(ENOMEM, "%s: no memory to read it", x->src->name);
	}
	x->contiguous = x->one_each = true;
	rc = scan_documents(x, scan);
	if (rc == 0)
		rc = check_end(x, scan, bin);
	x->tokens = scan->bytes / x->element;
	x->one_each &= x->documents == x->sequences;
	if (x->one_each) {
		free(x->document_marks);
		x->document_marks = NULL;
	}
	free(scan);
	return rc;
}

int hr__megatron_index_open(struct hr__megatron_index *x, const struct hr_source *idx,
			    const struct hr_source *bin)
{
	int rc;

	x->src = idx;
	x->bin_bytes = bin->size;
	rc = parse_head(x);
	return rc < 0 ? rc : scan_tables(x, bin);
}

void hr__megatron_index_close(struct hr__megatron_index *x)
{
	free(x->token_marks);
	free(x->document_marks);
	x->token_marks = x->document_marks = NULL;
}

/* -- questions: any thread, the file's tables and a little of the stack ----------------------- */

/* What was looked at when the index was opened does not hold any more. */
static int changed(const struct hr__megatron_index *x, uint64_t s)
{
	return hr__fail(HR_E_FILE_CHANGED,
			"%s: sequence %" PRIu64
			" is not where it was when the index was opened; is "
			"it being written again?",
			x->src->name, s);
}

int hr__megatron_sequence(const struct hr__megatron_index *x, uint64_t s, struct hr_range *out)
{
	uint8_t bytes[16];
	uint64_t end = x->bin_bytes;
	int rc;

	if (s >= x->sequences)
		return changed(x, s);
	if (x->contiguous) { /* it ends where the next one begins: one read */
		bool last = s + 1 == x->sequences;

		rc = x->src->read(x->src, x->pointers_at + 8 * s, bytes, last ? 8 : 16);
		if (rc == 0 && !last)
			end = hr__le64(bytes + 8);
	} else {
		rc = x->src->read(x->src, x->lengths_at + 4 * s, bytes + 8, 4);
		if (rc == 0)
			rc = x->src->read(x->src, x->pointers_at + 8 * s, bytes, 8);
		if (rc == 0)
			end = hr__le64(bytes) + (uint64_t)hr__le32(bytes + 8) * x->element;
	}
	if (rc < 0)
		return rc;
	out->offset = hr__le64(bytes);
	out->len = end - out->offset;
	if (end > x->bin_bytes || out->offset > end || out->len % x->element)
		return changed(x, s);
	return 0;
}

int hr__megatron_document(const struct hr__megatron_index *x, uint64_t d, uint64_t *first,
			  uint64_t *end)
{
	uint8_t bytes[16];
	int rc;

	*first = d;
	*end = d + 1;
	if (x->one_each)
		return 0;
	rc = x->src->read(x->src, x->documents_at + 8 * d, bytes, sizeof(bytes));
	if (rc < 0)
		return rc;
	*first = hr__le64(bytes);
	*end = hr__le64(bytes + 8);
	return *first <= *end && *end <= x->sequences ? 0 : changed(x, *first);
}

/* Lengths from a mark on. Return: how many, or -code. */
static int read_lengths(const struct hr__megatron_index *x, uint64_t mark, uint8_t *bytes)
{
	uint64_t first = mark * MARK_EVERY, n = hr__min(MARK_EVERY, x->sequences - first);
	int rc = x->src->read(x->src, x->lengths_at + 4 * first, bytes, n * 4);

	return rc < 0 ? rc : (int)n;
}

/* The last of @n marks below @value; 0 if there is none. */
static uint64_t mark_below(const uint64_t *marks, uint64_t n, uint64_t value)
{
	uint64_t low = 0, high = n;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (marks[middle] < value)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int hr__megatron_find(const struct hr__megatron_index *x, uint64_t position, uint64_t *out,
		      uint64_t *before)
{
	uint8_t bytes[4 * MARK_EVERY];
	uint64_t marks = (x->sequences - 1) / MARK_EVERY + 1;
	uint64_t mark = mark_below(x->token_marks, marks, position);
	int n = read_lengths(x, mark, bytes);

	if (n < 0)
		return n;
	*out = mark * MARK_EVERY;
	*before = x->token_marks[mark];
	for (int i = 0; i < n && *before < position; i++, ++*out)
		*before += hr__le32(bytes + 4 * i);
	return 0;
}

/* The first document that begins with sequence @s or a later one; documents if none. */
static int document_from(const struct hr__megatron_index *x, uint64_t s, uint64_t *out)
{
	uint8_t bytes[8 * MARK_EVERY];
	uint64_t marks, first, n;
	int rc;

	*out = 0;
	if (x->documents == 0)
		return 0;
	marks = (x->documents - 1) / MARK_EVERY + 1;
	first = mark_below(x->document_marks, marks, s) * MARK_EVERY;
	n = hr__min(MARK_EVERY, x->documents - first);
	rc = x->src->read(x->src, x->documents_at + 8 * first, bytes, n * 8);
	if (rc < 0)
		return rc;
	*out = first;
	for (uint64_t i = 0; i < n && hr__le64(bytes + 8 * i) < s; i++)
		++*out;
	return 0;
}

/* -- where documents begin: along the lengths and, if they are many to one, the documents --------- */

/* A few entries of a table, on the stack. */
struct peek {
	const struct hr__megatron_index *x;
	uint64_t table, entries; /* where it lies, how long it is */
	uint32_t width;
	uint64_t first, n; /* what is in bytes */
	uint8_t bytes[8 * PEEK_ENTRIES];
};

static int peek_at(struct peek *p, uint64_t i, uint64_t *out)
{
	const uint8_t *entry;

	if (i < p->first || i - p->first >= p->n) {
		int rc;

		p->first = i;
		p->n = hr__min(PEEK_ENTRIES, p->entries - i);
		rc = p->x->src->read(p->x->src, p->table + i * p->width, p->bytes, p->n * p->width);
		if (rc < 0)
			return rc;
	}
	entry = p->bytes + (i - p->first) * p->width;
	*out = p->width == 4 ? hr__le32(entry) : hr__le64(entry);
	return 0;
}

/* Does a document begin with sequence @s? @d: the first that may, moved behind those that do. */
static int begins(struct peek *documents, uint64_t s, uint64_t *d, bool *out)
{
	const struct hr__megatron_index *x = documents->x;

	*out = x->one_each;
	while (!x->one_each && *d < x->documents) {
		uint64_t first;
		int rc = peek_at(documents, *d, &first);

		if (rc < 0 || first > s)
			return rc;
		*out = true;
		++*d;
	}
	return 0;
}

int hr__megatron_starts(const struct hr__megatron_index *x, uint64_t position, uint64_t window,
			uint32_t *out, uint32_t room)
{
	struct peek lengths = {.x = x, .table = x->lengths_at, .entries = x->sequences, .width = 4};
	struct peek documents = {
		.x = x, .table = x->documents_at, .entries = x->documents, .width = 8};
	uint64_t s, at, d = 0, len = 0;
	bool waiting = false; /* for the first token of a document */
	uint32_t n = 0;
	int rc = hr__megatron_find(x, position, &s, &at);

	if (rc == 0 && !x->one_each)
		rc = document_from(x, s, &d);
	for (; rc == 0 && s < x->sequences && at - position < window && n < room; s++) {
		bool here = false;

		rc = begins(&documents, s, &d, &here);
		if (rc == 0)
			rc = peek_at(&lengths, s, &len);
		if (rc < 0)
			break;
		waiting |= here;
		if (waiting && len) {
			out[n++] = (uint32_t)(at - position);
			waiting = false;
		}
		at += len;
	}
	return rc < 0 ? rc : (int)n;
}

/* Tokens before the next run. Return: 1, 0 behind the last, -code. */
static int next_run(const struct hr__megatron_index *x, struct scan *scan, uint64_t *position)
{
	while (scan->sequence < x->sequences) {
		uint64_t before = scan->bytes;
		struct hr_range sequence = {0, 0};
		int rc = scan_sequence(x, scan, &sequence);

		if (rc < 0)
			return rc;
		if (begins_run(scan, &sequence) && before) {
			*position = before / x->element;
			return 1;
		}
	}
	return 0;
}

/*
 * Two readers of the same runs: between them lie those of one window. Runs that begin at b and later at c
 * are in one window of n tokens if c - b <= n - 2, as it begins before b; the run before is in it, too.
 */
static int count_runs(const struct hr__megatron_index *x, struct scan *front, struct scan *back,
		      uint64_t tokens, uint32_t *out)
{
	uint64_t newest = 0, oldest = 0;
	uint32_t runs = 1;
	int rc = next_run(x, back, &oldest), more = 0;

	*out = 1;
	while (rc > 0 && (more = next_run(x, front, &newest)) > 0) {
		runs++;
		for (; rc > 0 && newest - oldest > tokens - 2; runs--)
			rc = next_run(x, back, &oldest);
		*out = (uint32_t)hr__max(*out, runs);
	}
	return rc < 0 ? rc : more < 0 ? more : 0;
}

int hr__megatron_runs(const struct hr__megatron_index *x, uint64_t tokens, uint32_t *out)
{
	struct scan *front = scan_begin(x), *back = scan_begin(x);
	int rc;

	if (front && back)
		rc = count_runs(x, front, back, tokens, out);
	else
		rc = hr__fail(ENOMEM, "%s: no memory to read it", x->src->name);
	free(front);
	free(back);
	return rc;
}

int hr__megatron_add(struct hr__megatron_ranges *ranges, uint64_t offset, uint64_t len)
{
	if (len == 0)
		return 0;
	if (ranges->n) {
		struct hr_range *last = &ranges->out[ranges->n - 1];

		if (last->offset + last->len == offset) {
			last->len += len;
			return 0;
		}
	}
	if (ranges->n == ranges->max)
		return hr__fail(HR_E_FILE_CHANGED,
				"a sample lies in more than %" PRIu32 " places, which it did not "
				"when its index was opened; is that being written again?",
				ranges->max);
	ranges->out[ranges->n++] = (struct hr_range){offset, len};
	return 0;
}

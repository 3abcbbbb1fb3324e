/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_megatron - Megatron datasets built here: windows and documents against a list of where each
 * token lies, with gaps and empty sequences, and every refusal with its words. test_format_megatron_order
 * has the order of Megatron.
 */
#include "megatron_bytes.h"

#define TOKENS_MAX 20000u

/* Where each token lies, and whether a document begins with it. */
static uint64_t token_at[TOKENS_MAX];
static bool begins[TOKENS_MAX];

static uint64_t list_tokens(const struct made *m)
{
	uint64_t n = 0, d = 0;

	memset(begins, 0, sizeof(begins));
	for (uint64_t s = 0; s < m->sequences; s++) {
		for (; d < m->marks && m->documents[d] == (int64_t)s; d++) {
			if (n < TOKENS_MAX)
				begins[n] = true;
		}
		for (int32_t i = 0; i < m->lengths[s]; i++) {
			assert_true(n < TOKENS_MAX);
			token_at[n++] = (uint64_t)m->pointers[s] + (uint64_t)i * m->element;
		}
	}
	return n;
}

static void add_files(struct format_bytes *all, const struct blob *idx, const struct made *m,
		      bool bin_first)
{
	if (bin_first)
		format_bytes_add(all, "some/where/x.bin", "", 0, m->bin_bytes);
	format_bytes_add(all, bin_first ? "x.idx" : "some/where/x.idx", idx->bytes, idx->len, 0);
	if (!bin_first)
		format_bytes_add(all, "x.bin", "", 0, m->bin_bytes);
}

static struct hr__format_file *expect_open(const struct made *m, struct format_bytes *all,
					   struct blob *idx, const struct hr_dataset_options *opts)
{
	struct hr__format_file *ff = NULL;
	int rc;

	put_idx(idx, m);
	add_files(all, idx, m, true);
	rc = format_bytes_open(all, &hr__format_megatron, opts, &ff);
	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	assert_int_equal(ff->schema.data_file, 0);
	format_check_accepted(ff, m->bin_bytes);
	return ff;
}

static void expect_refusal(const struct made *m, const struct hr_dataset_options *opts, int code,
			   const char *words)
{
	static struct blob idx;

	put_idx(&idx, m);
	for (int bin_first = 0; bin_first < 2; bin_first++) {
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff = NULL;

		add_files(&all, &idx, m, bin_first);
		hr__fail_set(EIO, "");
		assert_int_equal(format_bytes_open(&all, &hr__format_megatron, opts, &ff), -code);
		assert_null(ff);
		if (!strstr(hr_error_detail(), words))
			fail_msg("\"%s\" is not in: %s", words, hr_error_detail());
	}
}

/* Ranges that are not merged with what follows would be two. */
static void check_ranges(const struct hr_range *ranges, int n, const uint64_t *tokens,
			 uint64_t count, uint32_t element)
{
	uint64_t k = 0;

	for (int i = 0; i < n; i++) {
		assert_true(ranges[i].len > 0);
		assert_true(!i || ranges[i - 1].offset + ranges[i - 1].len != ranges[i].offset);
		for (uint64_t at = 0; at < ranges[i].len; at += element, k++)
			assert_int_equal(ranges[i].offset + at, tokens[k]);
	}
	assert_int_equal(k, count);
}

static void check_starts(const struct hr__format_file *ff, uint64_t index, const bool *here,
			 uint32_t window)
{
	uint32_t *starts = malloc(window * sizeof(*starts)), k = 0, few = window / 3;

	assert_true(ff->ops->starts(ff, index, starts, window) >= 0);
	for (uint32_t i = 0; i < window; i++) {
		if (here[i])
			assert_int_equal(starts[k++], i);
	}
	assert_int_equal(ff->ops->starts(ff, index, starts, window), k);
	/* no more than there is room for, and those are the first */
	memset(starts, 0xee, window * sizeof(*starts));
	assert_int_equal(ff->ops->starts(ff, index, starts, few), k < few ? k : few);
	k = 0;
	for (uint32_t i = 0; i < window && k < few; i++) {
		if (here[i])
			assert_int_equal(starts[k++], i);
	}
	for (; k < window; k++)
		assert_int_equal(starts[k], 0xeeeeeeee);
	free(starts);
}

static void check_windows(const struct made *m, uint32_t seq_len, uint64_t stride)
{
	struct hr_dataset_options opts = {.seq_len = seq_len, .stride = stride};
	struct format_bytes all = {.n_files = 0};
	static struct blob idx;
	struct hr__format_file *ff = expect_open(m, &all, &idx, &opts);
	uint64_t tokens = list_tokens(m), step = stride ? stride : seq_len;
	uint32_t most = ff->schema.ranges_max ? ff->schema.ranges_max : 1, seen = 0;
	struct hr_range *ranges = calloc(most, sizeof(*ranges));

	assert_true(ff->schema.windows);
	assert_int_equal(ff->schema.count, (tokens - seq_len - 1) / step + 1);
	assert_int_equal(ff->schema.fields[0].face.shape[0], seq_len + 1);
	for (uint64_t i = 0; i < ff->schema.count; i++) {
		int n = ff->ops->locate(ff, i, 0, ranges);

		assert_true(n > 0 && (uint32_t)n <= most);
		check_ranges(ranges, n, token_at + i * step, seq_len + 1u, m->element);
		check_starts(ff, i, begins + i * step, seq_len + 1u);
		seen = (uint32_t)hr__max(seen, (uint64_t)n);
	}
	/* with every window looked at, the most ranges are exact */
	if (step == 1)
		assert_int_equal(seen, most);
	assert_int_equal(ff->ops->locate(ff, ff->schema.count, 0, ranges), -EINVAL);
	assert_int_equal(ff->ops->locate(ff, 0, 1, ranges), -EINVAL);
	assert_int_equal(ff->ops->starts(ff, ff->schema.count, NULL, 0), -EINVAL);
	assert_null(ff->ops->value);
	free(ranges);
	ff->ops->close(ff);
}

static void check_documents(const struct made *m)
{
	struct hr_dataset_options opts = {.seq_len = 0};
	struct format_bytes all = {.n_files = 0};
	static struct blob idx;
	struct hr__format_file *ff = expect_open(m, &all, &idx, &opts);
	const struct hr__sizes *sizes = ff->schema.fields[0].sizes;
	struct hr_range *ranges = calloc(ff->schema.ranges_max, sizeof(*ranges));
	uint64_t tokens = list_tokens(m), at = 0, longest = 0;
	uint32_t seen = 0;

	assert_false(ff->schema.windows);
	assert_int_equal(ff->schema.count, m->marks - 1);
	for (uint64_t d = 0; d + 1 < m->marks; d++) {
		uint64_t count = 0;
		int n = ff->ops->locate(ff, d, 0, ranges);

		for (int64_t s = m->documents[d]; s < m->documents[d + 1]; s++)
			count += (uint64_t)m->lengths[s];
		assert_true(n >= 0 && (uint32_t)n <= ff->schema.ranges_max);
		check_ranges(ranges, n, token_at + at, count, m->element);
		at += count;
		longest = hr__max(longest, count * m->element);
		seen = (uint32_t)hr__max(seen, (uint64_t)n);
	}
	assert_int_equal(at, tokens);
	assert_int_equal(seen, ff->schema.ranges_max);
	assert_int_equal(sizes->values, m->marks - 1);
	assert_int_equal(sizes->bytes, tokens * m->element);
	assert_int_equal(sizes->max, longest);
	assert_int_equal(ff->schema.fields[0].face.bytes, longest);
	assert_int_equal(ff->ops->locate(ff, m->marks - 1, 0, ranges), -EINVAL);
	assert_int_equal(ff->ops->starts(ff, 0, NULL, 0), -EINVAL);
	free(ranges);
	ff->ops->close(ff);
}

/* -- what is read ---------------------------------------------------------------------------- */

static void plain_files(void **state)
{
	static const int32_t lengths[] = {5, 1, 0, 7, 3, 0, 0, 9, 2};
	static struct made m;

	make_plain(&m, lengths, HR_ARRAY_LEN(lengths));
	check_documents(&m);
	for (uint32_t seq_len = 1; seq_len <= 26; seq_len++) {
		check_windows(&m, seq_len, 0);
		check_windows(&m, seq_len, 1);
	}
	m.modes = true;
	check_documents(&m);
	make_plain(&m, (const int32_t[]){4}, 1);
	check_documents(&m);
	check_windows(&m, 3, 0);
}

static void documents_of_sequences(void **state)
{
	static const int32_t lengths[] = {5, 1, 2, 7, 3, 4};
	static struct made m;

	make_plain(&m, lengths, 6);
	m.marks = 4; /* two each */
	for (uint64_t d = 0; d < 4; d++)
		m.documents[d] = 2 * (int64_t)d;
	check_documents(&m);
	check_windows(&m, 4, 1);
	check_windows(&m, 21, 0);
	/* as many documents as sequences, but not one each */
	make_plain(&m, lengths, 2);
	m.documents[1] = 0;
	check_documents(&m);
	check_windows(&m, 2, 1);
}

/* A pseudo-random dataset of about @n sequences; @kind: bits for gaps, empty ones, larger documents. */
static void make_random(struct made *m, unsigned int *seed, uint64_t n, unsigned int kind)
{
	memset(m, 0, sizeof(*m));
	m->code = kind & 8 ? 4 : 8;
	m->element = kind & 8 ? 4 : 2;
	m->sequences = n;
	m->marks = 1;
	for (uint64_t s = 0; s < n; s++) {
		uint64_t gap = kind & 1 && rand_r(seed) % 4 == 0 ? (uint64_t)rand_r(seed) % 5 : 0;

		m->lengths[s] = rand_r(seed) % 11 + !(kind & 2);
		m->pointers[s] = (int64_t)(m->bin_bytes + gap);
		m->bin_bytes += gap + (uint64_t)m->lengths[s] * m->element;
		if (!(kind & 4) || rand_r(seed) % 3 == 0)
			m->documents[m->marks++] = (int64_t)s + 1;
		if (kind & 4 && rand_r(seed) % 9 == 0 && m->marks + 2 < n)
			m->documents[m->marks] = m->documents[m->marks - 1], m->marks++;
	}
	if (m->documents[m->marks - 1] != (int64_t)n)
		m->documents[m->marks++] = (int64_t)n;
}

static void random_files(void **state)
{
	static struct made m;
	unsigned int seed = 1;

	for (unsigned int kind = 0; kind < 16; kind++) {
		make_random(&m, &seed, 40, kind);
		check_documents(&m);
		check_windows(&m, 1, 0);
		check_windows(&m, 7, 1);
		check_windows(&m, 30, 1);
		make_random(&m, &seed, 1600, kind); /* more than three blocks of the tables */
		check_documents(&m);
		check_windows(&m, 64, 0);
		check_windows(&m, 9, 1);
	}
}

static void every_type(void **state)
{
	static const struct {
		enum hr_dtype dtype;
		uint8_t code;
	} types[] = {
		{HR_DTYPE_U8, 1},  {HR_DTYPE_I8, 2},  {HR_DTYPE_I16, 3}, {HR_DTYPE_I32, 4},
		{HR_DTYPE_I64, 5}, {HR_DTYPE_F64, 6}, {HR_DTYPE_F32, 7}, {HR_DTYPE_U16, 8},
	};
	static struct made m;
	static struct blob idx;

	for (size_t t = 0; t < HR_ARRAY_LEN(types); t++) {
		struct hr_dataset_options opts = {.dtype = types[t].dtype};
		struct hr_dataset_options other = {.dtype = HR_DTYPE_BF16};
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff;

		make_plain(&m, (const int32_t[]){3, 2}, 2);
		m.code = types[t].code;
		m.element = hr_dtype_size(types[t].dtype);
		m.pointers[1] = 3 * m.element;
		m.bin_bytes = 5ull * m.element;
		ff = expect_open(&m, &all, &idx, &opts);
		assert_int_equal(ff->schema.fields[0].face.dtype, types[t].dtype);
		ff->ops->close(ff);
		check_windows(&m, 4, 0);
		expect_refusal(&m, &other, HR_E_BAD_DTYPE, "bf16 was asked for");
	}
	m.code = 0;
	expect_refusal(&m, &(struct hr_dataset_options){0}, HR_E_BAD_DTYPE, "element type 0");
	m.code = 9;
	expect_refusal(&m, &(struct hr_dataset_options){0}, HR_E_BAD_DTYPE, "byte 17");
}

/* 2^31 - 1 tokens a sequence: offsets beyond 32 bits. */
static void large_files(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 1u << 24}, documents = {.seq_len = 0};
	struct format_bytes all = {.n_files = 0}, again = {.n_files = 0};
	static struct blob idx;
	static struct made m;
	struct hr__format_file *ff;
	struct hr_range range;

	make_plain(&m, (const int32_t[]){INT32_MAX, INT32_MAX, INT32_MAX}, 3);
	ff = expect_open(&m, &all, &idx, &opts);
	assert_int_equal(ff->ops->locate(ff, ff->schema.count - 1, 0, &range), 1);
	assert_int_equal(range.offset, (ff->schema.count - 1) << 25);
	assert_true(m.bin_bytes - range.offset - range.len < 2u << 24);
	ff->ops->close(ff);
	ff = expect_open(&m, &again, &idx, &documents);
	assert_int_equal(ff->ops->locate(ff, 2, 0, &range), 1);
	assert_int_equal(range.offset, 4ull * INT32_MAX);
	assert_int_equal(range.len, 2ull * INT32_MAX);
	ff->ops->close(ff);
}

/* -- what is refused --------------------------------------------------------------------------- */

static void options_refused(void **state)
{
	static const char *const fields[] = {"text"};
	struct hr_dataset_options far = {.seq_len = (1u << 24) + 1}, stride = {.stride = 2};
	struct hr_dataset_options order = {.order = "x"}, named = {.fields = fields, .n_fields = 1};
	struct hr_dataset_options both = {.seq_len = 1, .stride = 1, .order = "x"};
	struct hr_dataset_options longer = {.seq_len = 10};
	static struct made m;

	make_plain(&m, (const int32_t[]){3, 7}, 2);
	expect_refusal(&m, &far, EINVAL, "16777217");
	expect_refusal(&m, &stride, EINVAL, "stride");
	expect_refusal(&m, &both, EINVAL, "stride");
	expect_refusal(&m, &order, EINVAL, "needs the seq_len");
	expect_refusal(&m, &named, EINVAL, "\"text\"");
	expect_refusal(&m, &longer, HR_E_TOO_SHORT, "holds 10 tokens");
	make_plain(&m, (const int32_t[]){0, 0}, 2);
	expect_refusal(&m, &(struct hr_dataset_options){0}, HR_E_TOO_SHORT, "without tokens");
}

static void tables_refused(void **state)
{
	static const int32_t lengths[] = {3, 4, 5};
	struct hr_dataset_options opts = {.seq_len = 2};
	static struct made good, m;

	make_plain(&good, lengths, 3);
#define WITH(change, code, words)                                                                  \
	do {                                                                                       \
		m = good;                                                                          \
		change;                                                                            \
		expect_refusal(&m, &opts, code, words);                                            \
	} while (0)
	WITH(m.lengths[1] = -1, HR_E_BAD_FORMAT, "byte 38: sequence 1 has -1 tokens");
	WITH(m.lengths[1] = 5, HR_E_BAD_FORMAT, "byte 62: sequence 2 begins at byte 14");
	WITH(m.lengths[2] = 6, HR_E_BAD_FORMAT, "ends behind the .bin of 24");
	WITH(m.lengths[2] = 4, HR_E_BAD_FORMAT, "has 24 bytes, its index");
	WITH(m.pointers[0] = -2, HR_E_BAD_FORMAT, "begins at byte -2");
	WITH(m.pointers[1] = 5, HR_E_BAD_FORMAT, "before the one before it ends, at 6");
	WITH(m.pointers[2] = INT64_MAX, HR_E_BAD_FORMAT, "ends behind");
	WITH(m.documents[0] = 1, HR_E_BAD_FORMAT, "byte 70: document mark 0");
	WITH(m.documents[1] = 3, HR_E_BAD_FORMAT, "document mark 2 is sequence 2");
	WITH(m.documents[2] = -1, HR_E_BAD_FORMAT, "document mark 2 is sequence -1");
	WITH(m.documents[3] = 2, HR_E_BAD_FORMAT, "document mark 3 is sequence 2");
	WITH(m.documents[3] = 4, HR_E_BAD_FORMAT, "document mark 3 is sequence 4");
	WITH(m.bin_bytes = 25, HR_E_BAD_FORMAT, "x.bin: has 25 bytes");
	WITH(m.bin_bytes = 22, HR_E_BAD_FORMAT, "another .bin");
	WITH(m.marks = 0, HR_E_BAD_FORMAT, "byte 26: no marks");
	WITH(m.marks = 1, HR_E_BAD_FORMAT, "document mark 0");
	WITH((m.sequences = 0, m.marks = 1), HR_E_TOO_SHORT, "no sequences");
#undef WITH
}

static void refuse_bytes(const char *name, const void *bytes, size_t len, int code,
			 const char *words)
{
	struct hr_dataset_options opts = {.seq_len = 2};
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	format_bytes_add(&all, name, bytes, len, 0);
	format_bytes_add(&all, "x.bin", "", 0, 24);
	assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff), -code);
	assert_null(ff);
	if (!strstr(hr_error_detail(), words) || !strstr(hr_error_detail(), name))
		fail_msg("\"%s\" is not in: %s", words, hr_error_detail());
}

static void heads_refused(void **state)
{
	static struct made m;
	static struct blob b;

	make_plain(&m, (const int32_t[]){3, 4, 5}, 3);
	put_idx(&b, &m);
	refuse_bytes("x.idx", b.bytes, 0, HR_E_EMPTY_FILE, "empty");
	refuse_bytes("x.idx", b.bytes, 33, HR_E_BAD_FORMAT, "33 bytes");
	refuse_bytes("x.idx", b.bytes, b.len - 1, HR_E_BAD_FORMAT, "do not make 101 bytes");
	refuse_bytes("x.idx", b.bytes, b.len + 1, HR_E_BAD_FORMAT, "do not make 103 bytes");
	refuse_bytes("x.idy", b.bytes, b.len, HR_E_BAD_FORMAT, "PREFIX.bin and PREFIX.idx");
	refuse_bytes(".idx", b.bytes, b.len, HR_E_BAD_FORMAT, "PREFIX.bin and PREFIX.idx");
	refuse_bytes("y.idx", b.bytes, b.len, ENOENT, "y.bin is not beside it");
	b.bytes[9] = 2;
	refuse_bytes("x.idx", b.bytes, b.len, HR_E_BAD_FORMAT, "version 2");
	b.bytes[9] = 1;
	b.bytes[25] = 0x40; /* 2^62 sequences */
	refuse_bytes("x.idx", b.bytes, b.len, HR_E_BAD_FORMAT, "byte 18");
	b.bytes[25] = 0;
	b.bytes[33] = 0x20; /* and 2^61 marks */
	refuse_bytes("x.idx", b.bytes, b.len, HR_E_BAD_FORMAT, "byte 18");
	refuse_bytes("x.idx", "TNTIDX\0\0\1", 9, HR_E_BAD_FORMAT, "fairseq");
	refuse_bytes("x.idx", "version https://git-lfs", 23, HR_E_BAD_FORMAT, "git lfs pull");
	refuse_bytes("x.idx", "<!DOCTYPE html><html>", 21, HR_E_BAD_FORMAT, "web page");
	memset(b.bytes, 0, b.len);
	refuse_bytes("x.idx", b.bytes, b.len, HR_E_BAD_FORMAT, "does not begin with MMIDIDX");
}

static void pointer_instead_of_data(void **state)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0123";
	struct hr_dataset_options opts = {.seq_len = 2};
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;
	static struct made m;
	static struct blob b;

	make_plain(&m, (const int32_t[]){3, 4}, 2);
	put_idx(&b, &m);
	format_bytes_add(&all, "x.bin", lfs, sizeof(lfs), 0);
	format_bytes_add(&all, "x.idx", b.bytes, b.len, 0);
	assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff),
			 -HR_E_BAD_FORMAT);
	assert_non_null(strstr(hr_error_detail(), "git lfs pull"));
}

static void recognised(void **state)
{
	assert_ptr_equal(hr__format_find(NULL, "MMIDIDX\0\0\1", 10, 34), &hr__format_megatron);
	assert_ptr_equal(hr__format_find("auto", "TNTIDX\0\0\1", 9, 34), &hr__format_megatron);
	assert_ptr_equal(hr__format_find("megatron", "", 0, 0), &hr__format_megatron);
	assert_int_equal(hr__format_megatron.probe("MMIDIDX", 7, 7), 0);
}

static void read_errors_pass_through(void **state)
{
	static struct made m;
	static struct blob b;

	make_plain(&m, (const int32_t[]){3, 4}, 2);
	put_idx(&b, &m);
	for (uint32_t k = 0; k < 2; k++) {
		struct hr_dataset_options opts = {.seq_len = 2};
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff = NULL;
		uint32_t start;

		add_files(&all, &b, &m, k);
		all.files[k].fail_with = EIO;
		assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff), -EIO);
		assert_null(ff);
		/* and after opening */
		all.files[k].fail_with = 0;
		assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff), 0);
		all.files[k].fail_with = EIO;
		assert_int_equal(ff->ops->starts(ff, 0, &start, 1), -EIO);
		ff->ops->close(ff);
	}
}

/* A window of many documents: its beginnings come along the tables, and not one by one. */
static void starts_in_one_go(void **state)
{
	static int32_t lengths[1000];
	static uint32_t starts[4000];
	static struct made m;
	static struct blob b;

	for (uint32_t i = 0; i < 1000; i++)
		lengths[i] = 4;
	for (uint32_t each = 1; each <= 2; each++) { /* sequences of a document */
		struct hr_dataset_options opts = {.seq_len = 3999};
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff;
		uint64_t before;

		make_plain(&m, lengths, 1000);
		m.marks = 1000 / each + 1;
		for (uint32_t d = 0; d < m.marks; d++)
			m.documents[d] = d * each;
		ff = expect_open(&m, &all, &b, &opts);
		before = format_bytes_reads(&all);
		assert_int_equal(ff->ops->starts(ff, 0, starts, 4000), 1000 / each);
		assert_in_range(format_bytes_reads(&all) - before, 1, 32);
		ff->ops->close(ff);
	}
}

/* The index changes under an open dataset: an error, never a range outside of the file. */
static void check_changed(struct made *m, uint32_t seq_len)
{
	struct hr_dataset_options opts = {.seq_len = seq_len};
	struct format_bytes all = {.n_files = 0};
	static struct blob b;
	struct hr__format_file *ff = expect_open(m, &all, &b, &opts);

	for (size_t at = 34; at < b.len; at++) {
		uint8_t was = b.bytes[at];

		for (unsigned int v = 0; v < 256; v += 3) {
			b.bytes[at] = (uint8_t)v;
			for (uint64_t i = 0; i < ff->schema.count; i++) {
				format_check_sample(ff, i, m->bin_bytes);
				if (ff->schema.windows)
					format_check_starts(ff, i);
			}
		}
		b.bytes[at] = was;
	}
	ff->ops->close(ff);
}

static void changed_while_open(void **state)
{
	static const int32_t lengths[] = {3, 4, 0, 5, 2, 2};
	static struct made m;

	make_plain(&m, lengths, 6);
	m.marks = 4; /* documents of 1, 2 and 3 sequences */
	m.documents[2] = 3;
	m.documents[3] = 6;
	check_changed(&m, 0);
	check_changed(&m, 2);
	for (uint64_t s = 1; s < 6; s++)
		m.pointers[s] += 2 * (int64_t)s;
	m.bin_bytes += 10;
	check_changed(&m, 0);
	check_changed(&m, 2);
}

/* -- hostile files ---------------------------------------------------------------------------- */

static void try_bytes(const uint8_t *bytes, size_t len, uint64_t bin_bytes)
{
	for (uint32_t seq_len = 0; seq_len < 3; seq_len++) {
		struct hr_dataset_options opts = {.seq_len = seq_len};
		struct format_bytes all = {.n_files = 0};

		format_bytes_add(&all, "x.bin", "", 0, bin_bytes);
		format_bytes_add(&all, "x.idx", bytes, len, 0);
		format_bytes_try(&all, &hr__format_megatron, &opts);
	}
}

static void every_prefix_and_every_byte(void **state)
{
	static const int32_t lengths[] = {3, 0, 4, 5};
	static struct made m;
	static struct blob b;

	make_plain(&m, lengths, 4);
	m.marks--;
	m.documents[3] = 4;
	put_idx(&b, &m);
	for (size_t len = 0; len <= b.len; len++) {
		uint8_t *bytes = malloc(len + !len);

		memcpy(bytes, b.bytes, len);
		try_bytes(bytes, len, m.bin_bytes);
		free(bytes);
	}
	for (size_t at = 0; at < b.len; at++) {
		uint8_t was = b.bytes[at];

		for (unsigned int v = 0; v < 256; v++) {
			b.bytes[at] = (uint8_t)v;
			try_bytes(b.bytes, b.len, m.bin_bytes);
		}
		b.bytes[at] = was;
	}
	for (uint64_t bin = 0; bin < 64; bin++)
		try_bytes(b.bytes, b.len, bin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_files),
		cmocka_unit_test(documents_of_sequences),
		cmocka_unit_test(random_files),
		cmocka_unit_test(every_type),
		cmocka_unit_test(large_files),
		cmocka_unit_test(options_refused),
		cmocka_unit_test(tables_refused),
		cmocka_unit_test(heads_refused),
		cmocka_unit_test(pointer_instead_of_data),
		cmocka_unit_test(recognised),
		cmocka_unit_test(read_errors_pass_through),
		cmocka_unit_test(starts_in_one_go),
		cmocka_unit_test(changed_while_open),
		cmocka_unit_test(every_prefix_and_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

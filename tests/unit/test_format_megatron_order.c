/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_megatron_order - samples in the order of three arrays, as Megatron's GPTDataset reads them:
 * where the tokens of each lie, against a plain walk along the arrays; every refusal with its words; and
 * what becomes of arrays cut off at every byte, with any byte changed, or of another dataset.
 */
#include "megatron_bytes.h"

#define NUMBERS_MAX 4000u

/* The arrays of an order, in numbers. */
struct order {
	uint32_t seq_len;
	uint64_t n_documents, n_samples;
	int64_t documents[NUMBERS_MAX], samples[2 * NUMBERS_MAX], shuffle[NUMBERS_MAX];
	const char *widths[3]; /* descr of each */
};

struct order_blobs {
	struct blob idx, documents, samples, shuffle;
};

/*
 * Sequences in a shuffled order, @epochs times, cut into samples as Megatron cuts them: without what
 * remains of the last one.
 */
static void make_order(struct order *o, const struct made *m, uint32_t seq_len, uint32_t epochs)
{
	uint64_t at = 0, tokens = 0, document = 0, before = 0;

	memset(o, 0, sizeof(*o));
	o->seq_len = seq_len;
	o->widths[0] = o->widths[1] = "<i4";
	o->widths[2] = "<u4";
	for (uint32_t e = 0; e < epochs; e++) {
		for (uint64_t s = 0; s < m->sequences; s++, at++) {
			uint64_t number = (s * 7 + e) % m->sequences; /* 7 divides no length here */

			o->documents[at] = (int64_t)number;
			tokens += (uint64_t)m->lengths[number];
		}
	}
	o->n_documents = at;
	o->n_samples = (tokens - 1) / seq_len;
	/* sample k begins with token k * seq_len, in the sequence that holds it */
	for (uint64_t k = 0; k <= o->n_samples; k++) {
		while (k && k * seq_len >= before + (uint64_t)m->lengths[o->documents[document]])
			before += (uint64_t)m->lengths[o->documents[document++]];
		o->samples[2 * k] = (int64_t)document;
		o->samples[2 * k + 1] = (int64_t)(k * seq_len - before);
	}
	for (uint64_t k = 0; k < o->n_samples; k++)
		o->shuffle[k] = (int64_t)(o->n_samples - 1 - k);
}

static void put_order(struct order_blobs *b, const struct made *m, const struct order *o)
{
	char shape[64];

	put_idx(&b->idx, m);
	snprintf(shape, sizeof(shape), "(%llu,)", (unsigned long long)o->n_documents);
	put_npy(&b->documents, o->widths[0], shape, o->documents, o->n_documents);
	snprintf(shape, sizeof(shape), "(%llu, 2)", (unsigned long long)o->n_samples + 1);
	put_npy(&b->samples, o->widths[1], shape, o->samples, 2 * o->n_samples + 2);
	snprintf(shape, sizeof(shape), "(%llu,)", (unsigned long long)o->n_samples);
	put_npy(&b->shuffle, o->widths[2], shape, o->shuffle, o->n_samples);
}

static void add_files(struct format_bytes *all, const struct order_blobs *b, uint64_t bin_bytes)
{
	format_bytes_add(all, "data/x.bin", "", 0, bin_bytes);
	format_bytes_add(all, "x.idx", b->idx.bytes, b->idx.len, 0);
	format_bytes_add(all, "h-document_index.npy", b->documents.bytes, b->documents.len, 0);
	format_bytes_add(all, "h-sample_index.npy", b->samples.bytes, b->samples.len, 0);
	format_bytes_add(all, "h-shuffle_index.npy", b->shuffle.bytes, b->shuffle.len, 0);
}

static struct hr_dataset_options options_of(const struct order *o)
{
	return (struct hr_dataset_options){.seq_len = o->seq_len, .order = "cache/h-"};
}

static struct hr__format_file *expect_open(struct format_bytes *all, const struct made *m,
					   const struct order *o)
{
	static struct order_blobs b;
	struct hr_dataset_options opts = options_of(o);
	struct hr__format_file *ff = NULL;
	int rc;

	put_order(&b, m, o);
	add_files(all, &b, m->bin_bytes);
	rc = format_bytes_open(all, &hr__format_megatron, &opts, &ff);
	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	format_check_accepted(ff, m->bin_bytes);
	return ff;
}

static void expect_refusal(const struct made *m, const struct order *o, int code, const char *words)
{
	static struct order_blobs b;
	struct hr_dataset_options opts = options_of(o);
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	put_order(&b, m, o);
	add_files(&all, &b, m->bin_bytes);
	hr__fail_set(EIO, "");
	assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff), -code);
	assert_null(ff);
	if (!strstr(hr_error_detail(), words))
		fail_msg("\"%s\" is not in: %s", words, hr_error_detail());
}

/* Where the tokens of sample @k lie, one by one, and with which of them sequences begin. */
static uint64_t list_sample(const struct made *m, const struct order *o, uint64_t k, uint64_t *at,
			    bool *begins)
{
	const int64_t *from = &o->samples[2 * o->shuffle[k]], *to = from + 2;
	uint64_t n = 0;

	for (int64_t i = from[0]; i <= to[0]; i++) {
		int64_t s = o->documents[i], token = i == from[0] ? from[1] : 0;
		int64_t end = i == to[0] ? to[1] + 1 : m->lengths[s];

		for (; token < end; token++, n++) {
			at[n] = (uint64_t)(m->pointers[s] + token * m->element);
			begins[n] = token == 0;
		}
	}
	return n;
}

static void check_sample(const struct hr__format_file *ff, const struct made *m,
			 const struct order *o, uint64_t k)
{
	static uint64_t at[1000];
	static bool begins[1000];
	static uint32_t starts[1000];
	uint64_t n = list_sample(m, o, k, at, begins), token = 0;
	struct hr_range *ranges = calloc(ff->schema.ranges_max, sizeof(*ranges));
	int found = ff->ops->locate(ff, k, 0, ranges);
	int begun = 0;

	assert_int_equal(n, o->seq_len + 1);
	assert_true(found > 0 && (uint32_t)found <= ff->schema.ranges_max);
	for (int i = 0; i < found; i++) {
		assert_true(!i || ranges[i - 1].offset + ranges[i - 1].len != ranges[i].offset);
		for (uint64_t b = 0; b < ranges[i].len; b += m->element)
			assert_int_equal(ranges[i].offset + b, at[token++]);
	}
	assert_int_equal(token, n);
	found = ff->ops->starts(ff, k, starts, (uint32_t)n);
	for (uint32_t i = 0; i < n; i++) {
		if (begins[i])
			assert_int_equal(starts[begun++], i);
	}
	assert_int_equal(found, begun);
	assert_int_equal(ff->ops->starts(ff, k, starts, 1), begun ? 1 : 0);
	free(ranges);
}

static void check_order(const struct made *m, const struct order *o)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = expect_open(&all, m, o);

	assert_true(ff->schema.windows);
	assert_int_equal(ff->schema.n_bad, 0);
	assert_int_equal(ff->schema.count, o->n_samples);
	assert_true(ff->schema.ranges_max <= o->seq_len + 1);
	for (uint64_t k = 0; k < o->n_samples; k++)
		check_sample(ff, m, o, k);
	assert_int_equal(ff->ops->locate(ff, o->n_samples, 0, NULL), -EINVAL);
	assert_int_equal(ff->ops->starts(ff, o->n_samples, NULL, 0), -EINVAL);
	ff->ops->close(ff);
}

/* -- what is read ---------------------------------------------------------------------------- */

static const int32_t some_lengths[] = {5, 1, 0, 7, 3, 4, 0, 9, 2, 6, 8, 1, 1, 5, 2};
#define SOME (sizeof(some_lengths) / sizeof(some_lengths[0]))

static void by_hand(void **state)
{
	/* sequences 2, 0, 1 of 3, 4 and 5 u16: samples of 4 + 1 tokens begin at 0, 4, 8 */
	static const int32_t lengths[] = {3, 4, 5};
	struct order o = {
		.seq_len = 4,
		.n_documents = 3,
		.documents = {2, 0, 1},
		.n_samples = 2,
		.samples = {0, 0, 0, 4, 2, 0},
		.shuffle = {1, 0},
		.widths = {"<i4", "<i8", "<i8"},
	};
	static struct made m;
	struct format_bytes all = {.n_files = 0};
	struct hr_range ranges[3] = {{0, 0}};
	struct hr__format_file *ff;

	make_plain(&m, lengths, 3);
	ff = expect_open(&all, &m, &o);
	assert_int_equal(ff->schema.count, 2);
	assert_int_equal(ff->schema.ranges_max, 3);
	/* sample 0 is number 1: the last token of sequence 2, all of 0, and the first of 1 */
	assert_int_equal(ff->ops->locate(ff, 0, 0, ranges), 2);
	assert_int_equal(ranges[0].offset, 14 + 4 * 2);
	assert_int_equal(ranges[0].len, 2);
	assert_int_equal(ranges[1].offset, 0);
	assert_int_equal(ranges[1].len, 3 * 2 + 2); /* 1 follows 0 in the file, too */
	/* sample 1 is number 0: sequence 2 */
	assert_int_equal(ff->ops->locate(ff, 1, 0, ranges), 1);
	assert_int_equal(ranges[0].offset, 14);
	assert_int_equal(ranges[0].len, 10);
	ff->ops->close(ff);
}

static void plain_orders(void **state)
{
	static struct made m;
	static struct order o;

	make_plain(&m, some_lengths, SOME);
	for (uint32_t seq_len = 1; seq_len < 40; seq_len++) {
		for (uint32_t epochs = 1; epochs <= 3; epochs++) {
			make_order(&o, &m, seq_len, epochs);
			o.widths[1] = epochs == 2 ? "<i8" : "<i4";
			o.widths[2] = epochs == 3 ? "<i8" : "<u4";
			check_order(&m, &o);
		}
	}
	/* longer than all that there is, twice over */
	make_order(&o, &m, 120, 5);
	check_order(&m, &o);
}

/* Sequences with gaps between them, and so many of a sample that its document numbers are two reads. */
static void gaps_and_many(void **state)
{
	static int32_t lengths[1200];
	static struct made m;
	static struct order o;

	for (uint64_t s = 0; s < 1200; s++)
		lengths[s] = s % 3 == 0;
	make_plain(&m, lengths, 1200);
	make_order(&o, &m, 120, 3);
	check_order(&m, &o);
	make_plain(&m, some_lengths, SOME);
	for (uint64_t s = 4; s < SOME; s++)
		m.pointers[s] += 6;
	m.bin_bytes += 6;
	make_order(&o, &m, 9, 3);
	check_order(&m, &o);
}

/* A sample of many sequences is walked along once: a read for each, not for each pair of them. */
static void starts_in_one_go(void **state)
{
	static int32_t lengths[200];
	static uint32_t starts[600];
	static struct made m;
	static struct order o;
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff;
	uint64_t before;
	int n;

	for (uint32_t i = 0; i < 200; i++)
		lengths[i] = 3;
	make_plain(&m, lengths, 200);
	make_order(&o, &m, 500, 1);
	ff = expect_open(&all, &m, &o);
	before = format_bytes_reads(&all);
	n = ff->ops->starts(ff, 0, starts, 600);
	assert_in_range(n, 160, 168);
	assert_in_range(format_bytes_reads(&all) - before, n, n + 8);
	ff->ops->close(ff);
}

static void short_last_sample(void **state)
{
	static struct made m;
	static struct order o;
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff;
	struct hr_range ranges[16];

	make_plain(&m, some_lengths, SOME);
	make_order(&o, &m, 10, 1);
	/* one more, to the end: 53 tokens after 5 samples have 3 more behind the last one's end */
	assert_int_equal(o.n_samples, 5);
	o.n_samples = 6;
	o.samples[12] = (int64_t)o.n_documents - 1;
	o.samples[13] = m.lengths[o.documents[o.n_documents - 1]] - 1;
	for (int64_t k = 0; k < 6; k++)
		o.shuffle[k] = (k + 2) % 6;
	ff = expect_open(&all, &m, &o);
	assert_int_equal(ff->schema.count, 6);
	assert_int_equal(ff->schema.n_bad, 1);
	assert_int_equal(ff->schema.bad[0], 3);
	assert_non_null(strstr(ff->schema.bad_reason, "sample 3,"));
	assert_int_equal(ff->ops->locate(ff, 3, 0, ranges), -HR_E_BAD_SAMPLE);
	for (uint64_t k = 0; k < 6; k++) {
		if (k != 3)
			check_sample(ff, &m, &o, k);
	}
	ff->ops->close(ff);
}

/* -- what is refused --------------------------------------------------------------------------- */

static void numbers_refused(void **state)
{
	static struct made m, more;
	static struct order good, o;

	make_plain(&m, some_lengths, SOME);
	make_order(&good, &m, 6, 2);
#define WITH(change, code, words)                                                                  \
	do {                                                                                       \
		o = good;                                                                          \
		change;                                                                            \
		expect_refusal(&m, &o, code, words);                                               \
	} while (0)
	WITH(o.documents[4] = -1, HR_E_BAD_FORMAT, "entry 4: is the number of no sequence");
	WITH(o.documents[29] = 15, HR_E_BAD_FORMAT, "entry 29: is the number of no sequence");
	WITH(o.shuffle[3] = -1, HR_E_BAD_FORMAT, "entry 3: is the number of no sample");
	WITH(o.shuffle[3] = (int64_t)o.n_samples, HR_E_BAD_FORMAT, "entry 3: is the number");
	WITH(o.samples[4] = 1000, HR_E_BAD_FORMAT, "entry 2: does not begin in a document");
	WITH(o.samples[4] = -1, HR_E_BAD_FORMAT, "entry 2: does not begin in a document");
	WITH(o.samples[5] = -1, HR_E_BAD_FORMAT, "entry 2: does not begin in a document");
	WITH(o.samples[4] = o.samples[2] - 1, HR_E_BAD_FORMAT, "entry 2: does not go forward");
	WITH((o.samples[4] = o.samples[2], o.samples[5] = o.samples[3]), HR_E_BAD_FORMAT,
	     "entry 2: does not go forward");
	WITH(o.samples[5] = 100, HR_E_BAD_FORMAT, "add_extra_token_to_sequence");
	WITH(o.samples[3]++, HR_E_BAD_FORMAT, "tokens, seq_len + 1 is 7");
	/* the last sample as long as the last two */
	WITH((o.n_samples--, memset(o.shuffle, 0, sizeof(o.shuffle)),
	      memcpy(&o.samples[2 * o.n_samples], &good.samples[2 * good.n_samples], 16)),
	     HR_E_BAD_FORMAT, "sample 15 has 13 tokens");
	WITH(o.seq_len = 5, HR_E_BAD_FORMAT, "sample 0 has 7 tokens, seq_len + 1 is 6");
	WITH(o.seq_len = 7, HR_E_BAD_FORMAT, "sample 0 has 7 tokens, seq_len + 1 is 8");
	WITH(o.widths[0] = "<i8", HR_E_BAD_DTYPE, "document_index.npy: holds i64");
	WITH(o.widths[1] = "<u4", HR_E_BAD_DTYPE, "sample_index.npy: holds u32");
	WITH(o.widths[2] = "<i4", HR_E_BAD_DTYPE, "shuffle_index.npy: holds i32");
	/* of a smaller dataset, and of one of other lengths */
	make_plain(&more, some_lengths, SOME - 1);
	expect_refusal(&more, &good, HR_E_BAD_FORMAT, "no sequence of the index");
	more = m;
	make_plain(&m, (const int32_t[]){2, 8, 1, 1, 9, 9, 4, 4, 1, 6, 6, 0, 7, 3, 2}, SOME);
	expect_refusal(&m, &good, HR_E_BAD_FORMAT, "other data");
#undef WITH
}

static void shapes_refused(void **state)
{
	static const struct {
		uint32_t file;
		const char *descr, *shape;
		uint32_t n;
		const char *words;
	} cases[] = {
		{2, "<i4", "(15, 2)", 30, "not the shapes"},
		{2, "<i4", "(0,)", 0, "not the shapes"},
		{3, "<i4", "(9,)", 9, "not the shapes"},
		{3, "<i4", "(3, 3)", 9, "not the shapes"},
		{3, "<i4", "(1, 2)", 2, "not the shapes"},
		{3, "<i4", "(2, 2)", 4, "are they of two runs"},
		{4, "<u4", "(3, 1)", 3, "not the shapes"},
		{4, "<u4", "(3,)", 3, "are they of two runs"},
		{4, "<u4", "(3,)", 2, "truncated"},
	};
	static struct order_blobs b;
	static struct blob other;
	static struct made m;
	static struct order o;
	struct hr_dataset_options opts;

	make_plain(&m, some_lengths, SOME);
	make_order(&o, &m, 6, 1);
	put_order(&b, &m, &o);
	opts = options_of(&o);
	for (size_t i = 0; i < HR_ARRAY_LEN(cases); i++) {
		static const int64_t numbers[30] = {0, 0, 1};
		struct format_bytes all = {.n_files = 0};

		put_npy(&other, cases[i].descr, cases[i].shape, numbers, cases[i].n);
		add_files(&all, &b, m.bin_bytes);
		all.files[cases[i].file].bytes = other.bytes;
		all.files[cases[i].file].len = all.files[cases[i].file].src.size = other.len;
		assert_int_equal(format_bytes_try(&all, &hr__format_megatron, &opts),
				 -HR_E_BAD_FORMAT);
		if (!strstr(hr_error_detail(), cases[i].words))
			fail_msg("\"%s\" is not in: %s", cases[i].words, hr_error_detail());
	}
}

static void files_missing(void **state)
{
	static struct order_blobs b;
	static struct made m;
	static struct order o;
	static char longest[5000];

	make_plain(&m, some_lengths, SOME);
	make_order(&o, &m, 6, 1);
	put_order(&b, &m, &o);
	for (uint32_t k = 1; k < 5; k++) {
		struct hr_dataset_options opts = options_of(&o);
		struct format_bytes all = {.n_files = 0};

		add_files(&all, &b, m.bin_bytes);
		all.files[k].name = "moved";
		assert_int_equal(format_bytes_try(&all, &hr__format_megatron, &opts), -ENOENT);
		all.files[k].name =
			k == 1 ? "x.idx"
			       : (const char *[]){"h-document_index.npy", "h-sample_index.npy",
						  "h-shuffle_index.npy"}[k - 2];
		assert_int_equal(format_bytes_try(&all, &hr__format_megatron, &opts), 0);
		all.files[k].fail_with = EIO;
		assert_int_equal(format_bytes_try(&all, &hr__format_megatron, &opts), -EIO);
		memset(longest, 'x', sizeof(longest) - 1);
		all.files[k].fail_with = 0;
		opts.order = longest;
		assert_int_equal(format_bytes_try(&all, &hr__format_megatron, &opts), -EINVAL);
	}
}

/* -- hostile files ---------------------------------------------------------------------------- */

static void every_prefix_and_every_byte(void **state)
{
	static struct order_blobs b;
	static struct made m;
	static struct order o;
	struct hr_dataset_options opts;

	make_plain(&m, some_lengths, SOME);
	make_order(&o, &m, 6, 2);
	put_order(&b, &m, &o);
	opts = options_of(&o);
	for (uint32_t k = 2; k < 5; k++) {
		struct blob *blob = k == 2 ? &b.documents : k == 3 ? &b.samples : &b.shuffle;
		struct format_bytes all = {.n_files = 0};
		size_t len = blob->len;

		add_files(&all, &b, m.bin_bytes);
		for (size_t n = 0; n < len; n++) {
			all.files[k].len = all.files[k].src.size = n;
			assert_true(format_bytes_try(&all, &hr__format_megatron, &opts) < 0);
		}
		all.files[k].len = all.files[k].src.size = len;
		for (size_t at = 0; at < len; at++) {
			uint8_t was = blob->bytes[at];

			for (unsigned int v = 0; v < 256; v += 5) {
				blob->bytes[at] = (uint8_t)v;
				format_bytes_try(&all, &hr__format_megatron, &opts);
			}
			blob->bytes[at] = was;
		}
		/* each in the place of another */
		for (uint32_t other = 1; other < 5; other++) {
			struct format_file_bytes mine = all.files[k];

			if (other == k)
				continue;
			all.files[k].bytes = all.files[other].bytes;
			all.files[k].len = all.files[k].src.size = all.files[other].len;
			assert_true(format_bytes_try(&all, &hr__format_megatron, &opts) < 0);
			all.files[k] = mine;
		}
	}
}

/* Arrays change under an open dataset: an error, never a range outside of the file. */
static void changed_while_open(void **state)
{
	static struct order_blobs b;
	static struct made m;
	static struct order o;
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;
	struct hr_dataset_options opts;

	make_plain(&m, some_lengths, SOME);
	make_order(&o, &m, 6, 2);
	put_order(&b, &m, &o);
	opts = options_of(&o);
	add_files(&all, &b, m.bin_bytes);
	assert_int_equal(format_bytes_open(&all, &hr__format_megatron, &opts, &ff), 0);
	for (uint32_t k = 1; k < 5; k++) {
		struct blob *blob = k == 1   ? &b.idx
				    : k == 2 ? &b.documents
				    : k == 3 ? &b.samples
					     : &b.shuffle;

		for (size_t at = 34; at < blob->len; at++) {
			uint8_t was = blob->bytes[at];

			for (unsigned int v = 0; v < 256; v += 51) {
				blob->bytes[at] = (uint8_t)v;
				for (uint64_t i = 0; i < ff->schema.count; i += 3)
					format_check_sample(ff, i, m.bin_bytes);
			}
			blob->bytes[at] = was;
		}
	}
	ff->ops->close(ff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand),
		cmocka_unit_test(plain_orders),
		cmocka_unit_test(gaps_and_many),
		cmocka_unit_test(starts_in_one_go),
		cmocka_unit_test(short_last_sample),
		cmocka_unit_test(numbers_refused),
		cmocka_unit_test(shapes_refused),
		cmocka_unit_test(files_missing),
		cmocka_unit_test(every_prefix_and_every_byte),
		cmocka_unit_test(changed_while_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataset_view - selections and mixtures of token files: where each sample lies against the files
 * themselves, fingerprints, references, refusals; how often a sample may come at most, against the orders
 * themselves. And parts with damaged samples, of a format made here, against a plain list.
 */
#include "base/fail.h"
#include "order_fixture.h"

static char *dir;

static int set_up(void **state)
{
	dir = test_mkdir();
	return 0;
}

static int tear_down(void **state)
{
	test_rmdir(dir);
	return 0;
}

/* Files of @tokens tokens each, named by @name; windows of 9 tokens, 8 apart. */
static struct hr_dataset *open_tokens(const char *name, const uint64_t *tokens, uint32_t n,
				      struct hr_dataset_options opts)
{
	struct hr_dataset *ds = NULL;
	char *paths[8], file[32];
	int rc;

	opts.seq_len = opts.seq_len ? opts.seq_len : 8;
	for (uint32_t i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "%s-%u", name, i);
		paths[i] = test_file(dir, file, tokens[i] * 2);
	}
	rc = hr_dataset_open((const char *const *)paths, n, &opts, &ds);
	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	for (uint32_t i = 0; i < n; i++)
		free(paths[i]);
	return ds;
}

static const uint64_t some[] = {81, 41, 9}; /* tokens; samples: 10, 5, 1 */
static const uint64_t even[] = {100, 40};

static void expect_same_place(const struct hr_dataset *a, uint64_t i, const struct hr_dataset *b,
			      uint64_t j)
{
	struct hr_file *file_a = NULL, *file_b = NULL;
	struct hr_range at_a = {0, 0}, at_b = {1, 1};

	assert_int_equal(hr_dataset_locate(a, i, 0, &file_a, &at_a, 1), 1);
	assert_int_equal(hr_dataset_locate(b, j, 0, &file_b, &at_b, 1), 1);
	assert_ptr_equal(file_a, file_b);
	assert_int_equal(at_a.offset, at_b.offset);
	assert_int_equal(at_a.len, at_b.len);
}

static struct hr_dataset *selection(struct hr_dataset *ds, const uint64_t *ids, uint64_t n)
{
	struct hr_dataset *view = NULL;

	assert_int_equal(hr_dataset_select(ds, ids, n, &view), 0);
	return view;
}

static void selections(void **state)
{
	static const uint64_t ids[] = {15, 0, 9, 10, 14, 3}, inner[] = {5, 5, 0};
	struct hr_dataset *ds = open_tokens("sel", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *view = selection(ds, ids, 6), *deeper = selection(view, inner, 3);
	struct hr_dataset_info info;
	struct hr_file *file;
	struct hr_range range;

	assert_int_equal(hr_dataset_info(view, &info), 0);
	assert_int_equal(info.samples, 6);
	assert_int_equal(info.files, 3);
	assert_int_equal(info.elements, 9);
	assert_true(info.windows);
	assert_string_equal(info.format, "tokens");
	assert_string_equal(info.fields[0].name, ds->info.fields[0].name);
	for (uint64_t i = 0; i < 6; i++)
		expect_same_place(view, i, ds, ids[i]);
	for (uint64_t i = 0; i < 3; i++)
		expect_same_place(deeper, i, ds, ids[inner[i]]);
	assert_int_equal(hr_dataset_locate(view, 6, 0, &file, &range, 1), -EINVAL);
	/* what was taken from stays as long as what was taken */
	hr_dataset_close(ds);
	hr_dataset_close(view);
	assert_int_equal(hr_dataset_locate(deeper, 2, 0, &file, &range, 1), 1);
	assert_int_equal(range.offset, 0);
	hr_dataset_close(deeper);
}

static uint64_t print_of(struct hr_dataset *view)
{
	uint64_t print = view->info.fingerprint;

	hr_dataset_close(view);
	return print;
}

/* A few of 2^40 samples take no memory for all of them. */
static void selections_of_very_many(void **state)
{
	static const uint64_t twice[] = {5, 1ull << 39, 5}, once[] = {7, 5, 1ull << 39};
	struct hr_dataset_options opts = {.format = "tokens", .seq_len = 1, .stride = 1};
	char *path = test_file(dir, "very-many", 0);
	struct hr_dataset *ds = NULL, *view;

	if (truncate(path, 1ll << 41)) { /* a hole; not every file system has room for one */
		free(path);
		skip();
	}
	assert_int_equal(hr_dataset_open((const char *const *)&path, 1, &opts, &ds), 0);
	assert_int_equal(ds->info.samples, (1ull << 40) - 1);
	view = selection(ds, once, 3);
	assert_false(view->ids_repeat);
	expect_same_place(view, 2, ds, 1ull << 39);
	hr_dataset_close(view);
	view = selection(ds, twice, 3);
	assert_true(view->ids_repeat);
	hr_dataset_close(view);
	hr_dataset_close(ds);
	free(path);
}

static void fingerprints_of_selections(void **state)
{
	static const uint64_t a[] = {1, 2, 3}, b[] = {1, 3, 2};
	struct hr_dataset *ds = open_tokens("sel", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *other = open_tokens("other", some, 3, (struct hr_dataset_options){0});
	uint64_t base = print_of(selection(ds, a, 3));

	assert_true(base == print_of(selection(ds, a, 3)));
	assert_true(base != ds->info.fingerprint);
	assert_true(base != print_of(selection(ds, b, 3)));
	assert_true(base != print_of(selection(ds, a, 2)));
	assert_true(base != print_of(selection(other, a, 3)));
	hr_dataset_close(ds);
	hr_dataset_close(other);
}

static void expect_no_selection(struct hr_dataset *ds, const uint64_t *ids, uint64_t n,
				const char *word)
{
	struct hr_dataset *view = (void *)0x1;

	hr__fail_set(EIO, "");
	assert_int_equal(hr_dataset_select(ds, ids, n, &view), -EINVAL);
	assert_ptr_equal(view, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
}

static void refused_selections(void **state)
{
	static const uint64_t ids[] = {0, 15, 16};
	struct hr_dataset *ds = open_tokens("sel", some, 3, (struct hr_dataset_options){0});

	expect_no_selection(NULL, ids, 1, "1 to 2^40");
	expect_no_selection(ds, NULL, 1, "1 to 2^40");
	expect_no_selection(ds, ids, 0, "1 to 2^40");
	expect_no_selection(ds, ids, (1ull << 40) + 1, "1 to 2^40");
	expect_no_selection(ds, ids, 3, "number 2 of it is sample 16, the dataset has 16");
	assert_int_equal(atomic_load(&ds->refs), 1);
	hr_dataset_close(ds);
}

static struct hr_dataset *mixture(struct hr_dataset *const *kids, const double *weights, uint32_t n,
				  uint64_t samples)
{
	struct hr_dataset *ds = NULL;
	int rc = hr_dataset_mix(kids, weights, n, samples, &ds);

	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	return ds;
}

static void mixtures(void **state)
{
	static const double weights[] = {1, 2, 3};
	static const uint64_t ids[] = {15, 0};
	struct hr_dataset *a = open_tokens("a", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *b = open_tokens("b", some, 2, (struct hr_dataset_options){0});
	struct hr_dataset *kids[] = {a, selection(a, ids, 2), b},
			  *ds = mixture(kids, weights, 3, 0);
	struct hr_dataset_info info;

	assert_int_equal(hr_dataset_info(ds, &info), 0);
	assert_int_equal(info.samples, 16 + 2 + 15);
	assert_int_equal(info.files, 3 + 3 + 2);
	assert_int_equal(info.bytes, 2 * a->info.bytes + b->info.bytes);
	assert_int_equal(ds->epoch, 33);
	for (uint64_t i = 0; i < 16; i++)
		expect_same_place(ds, i, a, i);
	for (uint64_t i = 0; i < 2; i++)
		expect_same_place(ds, 16 + i, a, ids[i]);
	for (uint64_t i = 0; i < 15; i++)
		expect_same_place(ds, 18 + i, b, i);
	for (uint64_t i = 0; i < 33; i++) { /* parts have numbers of their own in a mixture */
		struct hr__place place;
		struct hr_file *file;
		struct hr_range range;

		hr__dataset_find(ds, i, &place);
		hr_dataset_locate(ds, i, 0, &file, &range, 1);
		assert_ptr_equal(ds->parts[place.part]->file, file);
		assert_true(place.part >= (i < 16 ? 0 : i < 18 ? 3 : 6));
	}
	for (int i = 0; i < 3; i++)
		hr_dataset_close(kids[i]);
	hr_dataset_close(ds);
}

static void fingerprints_of_mixtures(void **state)
{
	static const double weights[] = {1, 2}, swapped[] = {2, 1};
	struct hr_dataset *a = open_tokens("a", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *b = open_tokens("b", some, 2, (struct hr_dataset_options){0});
	struct hr_dataset *ab[] = {a, b}, *ba[] = {b, a};
	uint64_t base = print_of(mixture(ab, weights, 2, 0));

	assert_true(base == print_of(mixture(ab, weights, 2, 0)));
	assert_true(base == print_of(mixture(ab, weights, 2, 31)));
	assert_true(base != print_of(mixture(ab, weights, 2, 32)));
	assert_true(base != print_of(mixture(ab, swapped, 2, 0)));
	assert_true(base != print_of(mixture(ba, swapped, 2, 0)));
	assert_true(base != print_of(mixture(ab, weights, 1, 0)));
	hr_dataset_close(a);
	hr_dataset_close(b);
}

static void expect_no_mixture(struct hr_dataset *const *kids, double weight, uint32_t n,
			      uint64_t samples, int code, const char *word)
{
	const double weights[] = {1, weight};
	struct hr_dataset *ds = (void *)0x1;

	hr__fail_set(EIO, "");
	assert_int_equal(hr_dataset_mix(kids, weights, n, samples, &ds), -code);
	assert_ptr_equal(ds, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
}

static void refused_mixtures(void **state)
{
	struct hr_dataset_options longer = {.seq_len = 9}, wide = {.dtype = HR_DTYPE_U32};
	struct hr_dataset *a = open_tokens("a", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *l = open_tokens("l", some, 2, longer), *m;
	struct hr_dataset *w = open_tokens("w", even, 2, wide);
	struct hr_dataset *aa[] = {a, a}, *al[] = {a, l}, *aw[] = {a, w}, *an[] = {a, NULL};
	static const double one = 1;

	m = mixture(aa, &one, 1, 0);
	expect_no_mixture(NULL, 1, 1, 0, EINVAL, "1 to 1024");
	expect_no_mixture(aa, 1, 0, 0, EINVAL, "1 to 1024");
	expect_no_mixture(aa, 1, 1025, 0, EINVAL, "1 to 1024");
	expect_no_mixture(aa, 0, 2, 0, EINVAL, "weight 0 of dataset 1");
	expect_no_mixture(aa, -1, 2, 0, EINVAL, "weight -1 of dataset 1");
	expect_no_mixture(aa, NAN, 2, 0, EINVAL, "positive and finite");
	expect_no_mixture(aa, INFINITY, 2, 0, EINVAL, "positive and finite");
	expect_no_mixture(an, 1, 2, 0, EINVAL, "dataset 1");
	expect_no_mixture((struct hr_dataset *[]){a, m}, 1, 2, 0, EINVAL, "a mixture itself");
	expect_no_mixture(al, 1, 2, 0, HR_E_BAD_FORMAT, "windows of 10 tokens");
	expect_no_mixture(aw, 1, 2, 0, HR_E_BAD_DTYPE, "holds u32");
	expect_no_mixture(aa, 1, 2, (1ull << 62) + 1, EINVAL, "2^62");
	a->info.samples = (1ull << 53) + 1; /* no disk has it */
	expect_no_mixture(aa, 1, 2, 0, EINVAL, "2^53");
	a->info.samples = 16;
	l->info.windows = false;
	expect_no_mixture(al, 1, 2, 0, HR_E_BAD_FORMAT, "windows of tokens");
	hr_dataset_close(m);
	assert_int_equal(atomic_load(&a->refs), 1);
	assert_int_equal(atomic_load(&l->refs), 1);
	hr_dataset_close(a);
	hr_dataset_close(l);
	hr_dataset_close(w);
}

/* -- how often a sample may come -------------------------------------------------------------- */

/* The most of one sample in any @n positions, padding included, by the orders themselves. */
static uint64_t most_often(const struct hr_dataset *ds, uint64_t n)
{
	struct hr_loader_options opts = {.seed = 3};
	struct orderly o = orderly_open(ds, opts);
	uint64_t len = hr__order_plan_samples(o.plan), most = 0;

	for (uint64_t at = 0; at < 3 * len; at++) {
		struct hr__place places[64];

		for (uint64_t i = 0; i < n; i++) {
			uint64_t same = 0;

			hr__dataset_find(ds, orderly_at(o, at / len, (at % len + i) % len),
					 &places[i]);
			for (uint64_t k = 0; k <= i; k++)
				same += places[k].part == places[i].part &&
					places[k].index == places[i].index;
			most = hr__max(most, same);
		}
	}
	orderly_close(o);
	return most;
}

static void expect_repeats(struct hr_dataset *ds, bool once)
{
	for (uint64_t n = 1; n <= 64; n += 1 + n / 4) {
		uint64_t told = hr__dataset_repeats(ds, n);

		assert_true(told >= most_often(ds, n));
		assert_true(told <= n);
		if (once && n <= ds->info.samples)
			assert_int_equal(told, 1);
	}
	assert_int_equal(hr__dataset_repeats(ds, 0), 1);
}

static void repeats(void **state)
{
	static const double weights[] = {1, 9};
	static const uint64_t once[] = {3, 2, 7, 15}, twice[] = {3, 2, 3}, both[] = {0, 2};
	struct hr_dataset *a = open_tokens("a", some, 3, (struct hr_dataset_options){0});
	struct hr_dataset *s = selection(a, once, 4), *t = selection(a, twice, 3);
	struct hr_dataset *hidden = selection(t, both, 2);
	struct hr_dataset *as[] = {a, s}, *at[] = {a, t};
	struct hr_dataset *views[] = {mixture(as, weights, 2, 0), mixture(as, weights, 2, 7),
				      mixture(at, weights, 2, 0), mixture(as, weights, 2, 1)};

	expect_repeats(a, true);
	expect_repeats(s, true);
	expect_repeats(t, false);
	expect_repeats(hidden, false);
	for (int i = 0; i < 4; i++) {
		expect_repeats(views[i], false);
		hr_dataset_close(views[i]);
	}
	hr_dataset_close(hidden);
	hr_dataset_close(t);
	hr_dataset_close(s);
	hr_dataset_close(a);
}

/* -- damaged samples -------------------------------------------------------------------------- */

/* A format whose sample i lies at 10 i. */
static int fake_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		       struct hr_range *out)
{
	assert_true(index < ff->schema.count);
	*out = (struct hr_range){index * 10, field};
	return 1;
}

static const struct hr__format_ops fake_ops = {.name = "fake", .locate = fake_locate};

#define MOST 40u

static void expect_part(uint64_t count, const uint64_t *bad, uint64_t n_bad)
{
	struct hr__format_file ff = {.ops = &fake_ops,
				     .schema = {.count = count, .n_bad = n_bad, .bad = bad}};
	struct hr__part part = {.ff = &ff, .corrupt = HR_CORRUPT_SKIP};
	uint64_t whole[MOST], n = 0, next = 0;
	bool is_bad[MOST] = {false};

	for (uint64_t i = 0; i < n_bad; i++)
		is_bad[bad[i]] = true;
	for (uint64_t i = 0; i < count; i++) {
		if (!is_bad[i])
			whole[n++] = i;
	}
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(hr__part_index(&part, i), whole[i]);
	part.corrupt = HR_CORRUPT_SUBSTITUTE;
	for (uint64_t i = 0; i < count; i++) {
		while (next + 1 < n && whole[next] < i) /* the next whole one, or the last */
			next++;
		assert_int_equal(hr__part_index(&part, i), whole[next]);
	}
}

static void damaged_samples(void **state)
{
	uint64_t bad[MOST], x = 11;

	expect_part(5, NULL, 0);
	for (int round = 0; round < 5000; round++) {
		uint64_t count = 1 + test_random(&x) % MOST, n = 0, share = test_random(&x) % 10;

		for (uint64_t i = 0; i < count; i++) {
			if (test_random(&x) % 10 < share && n + 1 < count)
				bad[n++] = i;
		}
		expect_part(count, bad, n);
	}
	for (uint64_t i = 0; i + 1 < MOST; i++) /* all but the last; all but the first */
		bad[i] = i;
	expect_part(MOST, bad, MOST - 1);
	for (uint64_t i = 0; i + 1 < MOST; i++)
		bad[i] = i + 1;
	expect_part(MOST, bad, MOST - 1);
}

/* Several parts: numbers go on behind those that are left out. */
static void damaged_parts_of_a_dataset(void **state)
{
	static const uint64_t bad[] = {0, 2, 3}, counts[] = {3, 6, 2};
	struct hr__format_file good = {.ops = &fake_ops, .schema = {.count = 6}};
	struct hr__format_file ff = {.ops = &fake_ops,
				     .schema = {.count = 6, .n_bad = 3, .bad = bad}};
	static const uint64_t offsets[] = {10, 40, 50, 10, 10, 40, 40, 40, 50, 0, 10};
	struct hr_dataset *ds = fake_files(counts, 3);
	struct hr_field field = {.name = "x"};
	uint32_t zero = 0;

	ds->info.n_fields = 1;
	ds->fields = &field;
	for (uint32_t i = 0; i < 3; i++) {
		ds->parts[i]->ff = i < 2 ? &ff : &good;
		ds->parts[i]->corrupt = i ? HR_CORRUPT_SUBSTITUTE : HR_CORRUPT_SKIP;
		ds->parts[i]->fields = &zero;
	}
	for (uint64_t i = 0; i < HR_ARRAY_LEN(offsets); i++) {
		struct hr_file *file;
		struct hr_range range;

		assert_int_equal(hr_dataset_locate(ds, i, 0, &file, &range, 1), 1);
		assert_int_equal(range.offset, offsets[i]);
	}
	assert_int_equal(hr__dataset_repeats(ds, 9), 5); /* for three, and one that is seen late */
	fake_free(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(selections),
		cmocka_unit_test(selections_of_very_many),
		cmocka_unit_test(fingerprints_of_selections),
		cmocka_unit_test(refused_selections),
		cmocka_unit_test(mixtures),
		cmocka_unit_test(fingerprints_of_mixtures),
		cmocka_unit_test(refused_mixtures),
		cmocka_unit_test(repeats),
		cmocka_unit_test(damaged_samples),
		cmocka_unit_test(damaged_parts_of_a_dataset),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

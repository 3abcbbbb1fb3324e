/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of many ranges elsewhere hang when they exceed the staging memory, cost one read a range though
 * the ranges touch, or read many times what was asked. Counted here: requests finish whatever the
 * staging, neighbours are one read, a small read costs little more than its blocks.
 */
#include "regress/fixture.h"

#define FILE_LEN (16u << 20)

static void test_more_than_staging(void **state)
{
	enum { N = 512, PART = 32768 };
	static struct hr_io ios[N];
	struct hr_io *list[N], *done[N];
	struct fixture f;
	int n;

	fixture_open(&f, FILE_LEN, FILE_LEN + 8,
		     (struct hr_engine_options){.staging_bytes = 256 << 10, .depth = 1});
	memset(ios, 0, sizeof(ios));
	for (uint64_t i = 0; i < N; i++) {
		ios[i] = (struct hr_io){.file = f.file, .buffer = f.buf};
		ios[i].piece = (struct hr_piece){i * PART, PART, i * PART + 3}; /* never in place */
		list[i] = &ios[i];
	}
	fixture_poison(&f);
	assert_int_equal(hr_submit(f.engine, list, N), N);
	for (int got = 0; got < N; got += n) {
		n = hr_reap(f.engine, done, N, 1, LONG_NS);
		assert_true(n > 0);
	}
	fixture_fetch(&f);
	fixture_check(&f, 3, 0, (uint64_t)N * PART);
	fixture_guard(&f, 0, 3);
	fixture_close(&f);
}

/* 90 000 ranges that follow each other in the file and go to places all over the buffer. */
static void test_neighbours(void **state)
{
	enum { N = 90000, PART = 100 };
	struct hr_piece *pieces = calloc(N, sizeof(*pieces));
	struct hr_stats s;
	struct fixture f;

	fixture_open(&f, FILE_LEN, N * 128ull, (struct hr_engine_options){.direct = true});
	for (uint64_t i = 0; i < N; i++)
		pieces[i] = (struct hr_piece){i * PART, PART, (i * 7919 % N) * 128};
	fixture_poison(&f);
	assert_int_equal(hr_gather(f.engine, f.file, pieces, N, f.buf, 0, 0), N * PART);
	fixture_fetch(&f);
	for (uint64_t i = 0; i < N; i++) {
		fixture_check(&f, pieces[i].buffer_offset, i * PART, PART);
		fixture_guard(&f, pieces[i].buffer_offset + PART, pieces[i].buffer_offset + 128);
	}
	hr_engine_stats(f.engine, &s);
	assert_int_equal(s.pieces, N);
	print_message("%llu reads\n", (unsigned long long)s.segments);
	assert_true(s.segments <= 200); /* 9 MB in windows of 4096 pieces, reads of at most 1 MiB */
	assert_true(s.bytes_read <= N * PART * 11 / 10);
	fixture_close(&f);
	free(pieces);
}

/* The pieces as one gather, or each by itself. */
static void read_pieces(struct fixture *f, const struct hr_piece *pieces, uint32_t n, bool singly)
{
	struct hr_io *ios = calloc(n, sizeof(*ios)), **list = calloc(n, sizeof(struct hr_io *));
	uint64_t sum = 0;
	int got;

	for (uint32_t i = 0; i < n; i++) {
		ios[i] = (struct hr_io){.file = f->file, .buffer = f->buf, .piece = pieces[i]};
		list[i] = &ios[i];
		sum += pieces[i].len;
	}
	if (!singly) {
		assert_int_equal(hr_gather(f->engine, f->file, pieces, n, f->buf, 0, 0), sum);
	} else {
		assert_int_equal(hr_submit(f->engine, list, n), n);
		for (uint32_t k = 0; k < n; k += (uint32_t)got) {
			got = hr_reap(f->engine, list, n, 1, LONG_NS);
			assert_true(got > 0);
		}
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(ios[i].res, pieces[i].len);
	}
	free(ios);
	free(list);
}

/* Windows of 8 KiB at any offset cost 1.07 times their bytes with blocks of 512, 1.5 with 4096. */
static void check_amplification(bool singly)
{
	enum { N = 1000, PART = 8192 };
	static struct hr_piece pieces[N];
	struct hr_file_info info;
	struct hr_stats s;
	struct fixture f;
	uint64_t seed = 11;
	double factor;

	fixture_open(&f, FILE_LEN, N * PART, (struct hr_engine_options){.direct = true});
	hr_file_info(f.file, &info);
	for (uint64_t i = 0; i < N; i++)
		/* far from each other: nothing merges */
		pieces[i] =
			(struct hr_piece){i * 16000 + test_random(&seed) % 2000, PART, i * PART};
	hr_file_drop_cache(f.file);
	read_pieces(&f, pieces, N, singly);
	fixture_fetch(&f);
	for (uint64_t i = 0; i < N; i++)
		fixture_check(&f, i * PART, pieces[i].file_offset, PART);
	hr_engine_stats(f.engine, &s);
	factor = (double)s.bytes_read / (N * PART);
	print_message("alignment %u: %.3f bytes read for one\n", info.offset_align, factor);
	if (info.direct && info.offset_align <= 512)
		assert_true(factor <= 1.07);
	else if (info.direct)
		assert_true(factor <= 1.5 * info.offset_align / 4096 + 0.01);
	assert_int_equal(s.segments, N);
	/* Not a launch for each: what arrives together is moved together. */
	if (!singly && strcmp(fixture_device, "host") != 0)
		assert_true(s.copies <= 10);
	fixture_close(&f);
}

static void test_amplification(void **state)
{
	check_amplification(false);
	check_amplification(true);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_more_than_staging),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_amplification),
	};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

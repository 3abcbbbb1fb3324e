/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 90 000 ranges that touch each other in the file and go to places all over the buffer are few reads:
 * 4096 of them at a time, at most 1 MiB long.
 */
#include "regress/fixture.h"

#define FILE_LEN (16u << 20)

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

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_neighbours)};

	if (argc > 1)
		fixture_device = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

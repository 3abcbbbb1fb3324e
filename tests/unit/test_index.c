/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index - side indexes in memory: what a scan told comes back cell by cell, for columns of every kind
 * and any number of rows; bytes that are not as they were are refused, each with its sentence; and many
 * threads ask one index, with and without room in its cache.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "base/util.h"
#include "format/index_file.h"
#include "support/index_bytes.h"

#define DATA_SIZE (1ull << 50)

static const struct hr__index_data about = {"data.tar", DATA_SIZE, 77, "tar", 1};

/* A row as it was told, by a formula. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
	x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
	return x ^ x >> 33;
}

enum shape { EVEN, JITTER, WILD, SCALARS, MIXED, SPARSE, SHAPES };

static struct hr__cell cell_of(enum shape shape, uint64_t row)
{
	uint64_t r = mix(row * SHAPES + shape);

	switch (shape) {
	case EVEN:
		return (struct hr__cell){HR__CELL_RANGE, 512 + row * 1024, 300};
	case JITTER:
		return (struct hr__cell){HR__CELL_RANGE, row * 200000 + r % 50000,
					 r >> 20 & 0xffff};
	case WILD: /* anywhere, and backwards */
		return (struct hr__cell){HR__CELL_RANGE, r & (DATA_SIZE - 1),
					 hr__min(mix(r), DATA_SIZE - (r & (DATA_SIZE - 1)))};
	case SCALARS:
		return (struct hr__cell){HR__CELL_I64, r, 0};
	case MIXED:
		return r % 3 ? (struct hr__cell){HR__CELL_RANGE, row * 7, r % 11}
			     : (struct hr__cell){HR__CELL_I64, r, 0};
	default:
		return r % 5 ? (struct hr__cell){HR__CELL_ABSENT, 0, 0}
			     : (struct hr__cell){HR__CELL_RANGE, row, 1};
	}
}

static bool is_bad(uint64_t row)
{
	return row % 1000 == 17;
}

static void write_rows(struct index_bytes *x, uint64_t rows, uint32_t columns)
{
	struct hr__index_writer *w;
	struct hr__index_sink *sink;
	struct hr__cell cells[HR__INDEX_COLUMNS_MAX];

	x->out = (struct hr__index_out){index_bytes_write, index_bytes_progress};
	assert_int_equal(hr__index_writer_open(&x->out, &about, &w), 0);
	sink = hr__index_writer_sink(w);
	for (uint64_t i = 0; i < rows; i++) {
		/* Every tenth row brings a new column, until all are there. */
		uint32_t n = (uint32_t)hr__min(columns, 1 + i / 10);

		for (uint32_t k = 0; k < n; k++) {
			char name[32];
			struct hr__index_face face = {.name = name, .dtype = HR_DTYPE_U8};

			snprintf(name, sizeof(name), "column%u", k);
			assert_int_equal(sink->column(sink, &face), k);
			cells[k] = cell_of((enum shape)(k % SHAPES), i);
		}
		assert_int_equal(
			sink->sample(sink, cells, n, is_bad(i) ? "byte 5: it is so" : NULL), 0);
		assert_int_equal(sink->progress(sink, i), 0);
	}
	sink->note(sink, UINT32_MAX, "one");
	sink->note(sink, UINT32_MAX, "two");
	if (columns) {
		sink->note(sink, 0, "of the first");
		sink->note(sink, 0, "no more");
	}
	assert_int_equal(hr__index_writer_finish(w), 0);
	hr__index_writer_close(w);
	index_bytes_source(x);
}

static void check_cells(const struct hr__index *index, uint64_t rows, uint32_t columns,
			uint64_t step)
{
	for (uint64_t i = 0; i < rows; i += step) {
		for (uint32_t k = 0; k < columns; k++) {
			struct hr__cell cell, want = {HR__CELL_ABSENT, 0, 0};

			if (k < 1 + i / 10 && !is_bad(i))
				want = cell_of((enum shape)(k % SHAPES), i);
			assert_int_equal(hr__index_cell(index, i, k, &cell), 0);
			assert_int_equal(cell.kind, want.kind);
			assert_int_equal(cell.offset, want.offset);
			assert_int_equal(cell.len, want.len);
		}
	}
}

static void check_info(const struct hr__index *index, uint64_t rows, uint32_t columns)
{
	const struct hr__index_info *info = hr__index_info(index);
	uint64_t n_bad = 0;

	assert_int_equal(info->rows, rows);
	assert_int_equal(info->n_columns, hr__min(columns, rows ? 1 + (rows - 1) / 10 : 0));
	for (uint64_t i = 0; i < rows; i++) {
		if (is_bad(i))
			assert_int_equal(info->bad[n_bad++], i);
	}
	assert_int_equal(info->n_bad, n_bad);
	assert_string_equal(info->bad_reason, n_bad ? "byte 5: it is so" : "");
	assert_string_equal(info->notes, "one; two");
	for (uint32_t k = 0; k < info->n_columns; k++) {
		const struct hr__index_column *c = &info->columns[k];
		struct hr__index_column want = {.len_min = UINT64_MAX};

		for (uint64_t i = 0; i < rows; i++) {
			struct hr__cell cell = cell_of((enum shape)(k % SHAPES), i);

			if (is_bad(i))
				continue;
			if (k >= 1 + i / 10)
				cell.kind = HR__CELL_ABSENT;
			want.absent += cell.kind == HR__CELL_ABSENT;
			want.scalars += cell.kind == HR__CELL_I64;
			if (cell.kind != HR__CELL_RANGE)
				continue;
			want.ranges++;
			want.len_min = hr__min(want.len_min, cell.len);
			hr__sizes_add(&want.sizes, cell.len);
		}
		assert_int_equal(c->absent, want.absent);
		assert_int_equal(c->ranges, want.ranges);
		assert_int_equal(c->scalars, want.scalars);
		if (want.ranges)
			assert_int_equal(c->len_min, want.len_min);
		assert_memory_equal(&c->sizes, &want.sizes, sizeof(want.sizes));
		assert_string_equal(c->note, k ? "" : "of the first");
	}
}

struct absent {
	uint32_t column;
	uint64_t next;
};

static int expect_absent(void *ctx, uint64_t row)
{
	struct absent *a = ctx;

	for (; a->next < row; a->next++)
		assert_true(a->column < 1 + a->next / 10 && !is_bad(a->next) &&
			    cell_of((enum shape)(a->column % SHAPES), a->next).kind);
	assert_true(a->column >= 1 + row / 10 || is_bad(row) ||
		    !cell_of((enum shape)(a->column % SHAPES), row).kind);
	a->next = row + 1;
	return 0;
}

static void what_was_told_comes_back(void **state)
{
	static const struct {
		uint64_t rows;
		uint32_t columns;
	} cases[] = {{0, 0},    {1, 1},    {2, 1},          {11, 2},    {2047, 1},
		     {2048, 1}, {2049, 1}, {30000, SHAPES}, {5000, 40}, {3000, 256}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct index_bytes x = {.len = 0};
		struct hr__index *index = NULL;
		uint32_t columns = cases[i].columns;
		struct hr__cell cell;

		write_rows(&x, cases[i].rows, columns);
		assert_int_equal(hr__index_open(&x.src, &about, &index), 0);
		assert_ptr_equal(hr__index_source(index), &x.src);
		check_info(index, cases[i].rows, columns);
		columns = hr__index_info(index)->n_columns;
		check_cells(index, cases[i].rows, columns, columns > 50 ? 13 : 1);
		check_cells(index, cases[i].rows, columns, 97); /* from the cache */
		assert_int_equal(hr__index_check(index), 0);
		for (uint32_t k = 0; k < hr__min(columns, SHAPES); k++) {
			struct absent a = {k, 0};

			assert_int_equal(hr__index_absent(index, k, expect_absent, &a), 0);
			for (; a.next < cases[i].rows; a.next++)
				assert_true(cell_of((enum shape)(k % SHAPES), a.next).kind);
		}
		assert_int_equal(hr__index_cell(index, cases[i].rows, 0, &cell), -EINVAL);
		assert_int_equal(hr__index_cell(index, 0, columns, &cell), -EINVAL);
		hr__index_close(index);
		free(x.bytes);
	}
}

/* Samples of one size behind each other need next to nothing but two bits beside a damaged one. */
static void even_samples_take_no_room(void **state)
{
	struct index_bytes x = {.len = 0};
	struct hr__index *index;

	write_rows(&x, 200000, 1);
	assert_true(x.len < 70000);
	assert_int_equal(hr__index_open(&x.src, &about, &index), 0);
	check_cells(index, 200000, 1, 991);
	hr__index_close(index);
	free(x.bytes);
}

static void names_are_judged(void **state)
{
	static const char *const bad[] = {
		"",        "a\nb", "\x7f", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
		"caf\xc3", "a\x01"};
	static const char *const good[] = {"a b", "caf\xc3\xa9", "\xe2\x82\xac",
					   "\xf0\x9f\x98\x80"};
	struct index_bytes x = {.out = {index_bytes_write, NULL}};
	struct hr__index_writer *w;
	struct hr__index_sink *sink;
	char name[300];
	struct hr__index_face face = {.name = name, .dtype = HR_DTYPE_U8};
	struct hr__cell cell = {HR__CELL_RANGE, 0, 6};

	assert_int_equal(hr__index_writer_open(&x.out, &about, &w), 0);
	sink = hr__index_writer_sink(w);
	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	assert_int_equal(sink->column(sink, &face), -EILSEQ);
	name[255] = '\0';
	assert_int_equal(sink->column(sink, &face), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		face.name = bad[i];
		assert_int_equal(sink->column(sink, &face), -EILSEQ);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		face.name = good[i];
		assert_int_equal(sink->column(sink, &face), 1 + i);
	}
	face.dtype = HR_DTYPE_F32; /* another face */
	assert_int_equal(sink->column(sink, &face), -EEXIST);
	face.name = "f";
	assert_int_equal(sink->column(sink, &face), 5);
	face.name = name;
	for (int i = 6; i < 256; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(sink->column(sink, &face), i);
	}
	face.name = "more";
	assert_int_equal(sink->column(sink, &face), -E2BIG);
	/* ranges that no file has */
	cell.offset = DATA_SIZE - 5;
	assert_int_equal(sink->sample(sink, &cell, 1, NULL), -HR_E_BAD_FORMAT);
	hr__index_writer_close(w);
	free(x.bytes);
}

/* -- bytes that are not as they were ----------------------------------------------------------- */

static int open_copy(const struct index_bytes *x, const struct hr__index_data *data)
{
	struct hr__index *index = NULL;
	int rc;

	hr__fail_set(EIO, "");
	rc = hr__index_open(&x->src, data, &index);
	if (rc < 0) {
		assert_null(index);
		assert_true(hr_error_detail()[0]);
		return rc;
	}
	for (uint64_t i = 0; i < hr__index_info(index)->rows && rc == 0; i++) {
		struct hr__cell cell;

		for (uint32_t k = 0; k < hr__index_info(index)->n_columns && rc == 0; k++)
			rc = hr__index_cell(index, i, k, &cell);
	}
	if (rc < 0)
		assert_non_null(strstr(hr_error_detail(), "hrindex"));
	hr__index_close(index);
	return rc;
}

static void stale_and_strange(void **state)
{
	struct index_bytes x = {.len = 0};
	struct hr__index_data data = about;

	write_rows(&x, 100, 3);
	assert_int_equal(open_copy(&x, &data), 0);
	data.size++;
	assert_int_equal(open_copy(&x, &data), -HR_E_NO_INDEX);
	assert_non_null(strstr(hr_error_detail(), "stale"));
	data = about;
	data.mtime_ns--;
	assert_int_equal(open_copy(&x, &data), -HR_E_NO_INDEX);
	data = about;
	data.format = "tfrecord";
	assert_int_equal(open_copy(&x, &data), -HR_E_NO_INDEX);
	data = about;
	data.rules++;
	assert_int_equal(open_copy(&x, &data), -HR_E_NO_INDEX);
	x.src.size = 127;
	assert_int_equal(open_copy(&x, &about), -HR_E_BAD_FORMAT);
	free(x.bytes);
}

static void every_prefix_and_every_byte(void **state)
{
	struct index_bytes x = {.len = 0};
	uint64_t len;

	write_rows(&x, 60, SHAPES);
	len = x.len;
	for (uint64_t cut = 0; cut < len; cut++) {
		x.src.size = x.len = cut;
		assert_int_equal(open_copy(&x, &about), -HR_E_BAD_FORMAT);
	}
	x.src.size = x.len = len;
	for (uint64_t i = 0; i < len; i++) {
		for (int bit = 0; bit < 8; bit += 3) {
			x.bytes[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(open_copy(&x, &about), -HR_E_BAD_FORMAT);
			x.bytes[i] ^= (uint8_t)(1 << bit);
		}
	}
	assert_int_equal(open_copy(&x, &about), 0);
	free(x.bytes);
}

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 8; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* Give all checksums their due, as somebody who means harm would. */
static void sign(struct index_bytes *x)
{
	uint64_t tail = get64(x->bytes + HR__INDEX_AT_TAIL),
		 blocks = x->bytes[HR__INDEX_AT_N_BLOCKS];
	bool fits = blocks <= (x->len - HR__INDEX_HEADER_BYTES) / HR__INDEX_ENTRY_BYTES;
	uint8_t *entry = x->bytes + x->len - (fits ? blocks * HR__INDEX_ENTRY_BYTES : 0);

	for (uint64_t i = 0; fits && i < blocks; i++, entry += HR__INDEX_ENTRY_BYTES) {
		uint64_t offset = get64(entry + 8), len = get64(entry + 24) & 0xffffffff;

		if (offset <= x->len && len <= x->len - offset)
			put64(entry + 16, XXH3_64bits(x->bytes + offset, len));
	}
	if (tail <= x->len)
		put64(x->bytes + HR__INDEX_AT_TAIL + 16,
		      XXH3_64bits(x->bytes + tail, x->len - tail));
	put64(x->bytes + HR__INDEX_AT_HASH, XXH3_64bits(x->bytes, HR__INDEX_AT_HASH));
}

/* Whatever is signed may be refused or not, but nothing is read outside, and each refusal has words. */
static void signed_lies(void **state)
{
	static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
	struct index_bytes x = {.len = 0};
	int refused = 0;

	write_rows(&x, 60, SHAPES);
	for (uint64_t i = 0; i < x.len; i++) {
		uint8_t *copy = malloc(x.len);

		memcpy(copy, x.bytes, x.len);
		for (size_t v = 0; v < sizeof(values); v++) {
			x.bytes[i] = values[v];
			sign(&x);
			refused += open_copy(&x, &about) < 0;
			memcpy(x.bytes, copy, x.len);
		}
		free(copy);
	}
	assert_true(refused > 100);
	free(x.bytes);
}

/* Names are shown to people, on terminals that obey: a reader judges them as a writer does. */
static void signed_names(void **state)
{
	static const char *const wrong[] = {"\x1b[2Jumn3", "col\x7fmn3", "colu\xff\xfe\x33",
					    "col\0mn3"};
	static const uint8_t umlaut[] = {'c', 0xc3, 0xb6, 'l', 'u', 'm', 'n'};
	struct index_bytes x = {.len = 0};
	uint8_t *name;

	write_rows(&x, 60, SHAPES);
	name = memmem(x.bytes, x.len, "column3", 8);
	assert_non_null(name);
	for (size_t k = 0; k < HR_ARRAY_LEN(wrong); k++) {
		memcpy(name, wrong[k], 7);
		sign(&x);
		assert_int_equal(open_copy(&x, &about), -HR_E_BAD_FORMAT);
	}
	memcpy(name, umlaut, sizeof(umlaut));
	sign(&x);
	assert_int_equal(open_copy(&x, &about), 0);
	free(x.bytes);
}

/* -- threads ----------------------------------------------------------------------------------- */

#define THREADS 4
#define THREAD_ROWS 20000u

static void *ask(void *arg)
{
	const struct hr__index *index = arg;
	uint64_t row = (uintptr_t)&row >> 4;

	for (int i = 0; i < 20000; i++) {
		struct hr__cell cell, want;

		row = mix(row) % THREAD_ROWS;
		if (row < 60 || is_bad(row))
			continue;
		want = cell_of(JITTER, row);
		if (hr__index_cell(index, row, JITTER, &cell) != 0 || cell.offset != want.offset ||
		    cell.len != want.len)
			return arg;
	}
	return NULL;
}

static void many_threads_ask(void **state)
{
	struct index_bytes x = {.len = 0};
	struct hr__index *index;
	pthread_t threads[THREADS];

	write_rows(&x, THREAD_ROWS, SHAPES);
	assert_int_equal(hr__index_open(&x.src, &about, &index), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, index), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	hr__index_close(index);
	free(x.bytes);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_told_comes_back),
		cmocka_unit_test(even_samples_take_no_room),
		cmocka_unit_test(names_are_judged),
		cmocka_unit_test(stale_and_strange),
		cmocka_unit_test(every_prefix_and_every_byte),
		cmocka_unit_test(signed_lies),
		cmocka_unit_test(signed_names),
	};
	const struct CMUnitTest threaded[] = {
		cmocka_unit_test(many_threads_ask),
	};

	if (argc > 1) /* "threads": what the thread sanitizer has something to say about */
		return cmocka_run_group_tests(threaded, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

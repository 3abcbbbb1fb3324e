/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_index - side indexes from strangers. The first byte says whether checksums are made good before, and
 * the index is opened for the file that it claims to be about. Every cell that is given lies inside of that
 * file and is as its column says; everything else is refused with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "format/index_file.h"
#include "format/le.h"
#include "support/index_bytes.h"

#define SIGN 0x01u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void sign(uint8_t *bytes, uint64_t len)
{
	uint64_t blocks = hr__le32(bytes + HR__INDEX_AT_N_BLOCKS);
	uint64_t tail = hr__le64(bytes + HR__INDEX_AT_TAIL);

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)HR__INDEX_MAGIC[i];
	if (blocks <= (len - HR__INDEX_HEADER_BYTES) / HR__INDEX_ENTRY_BYTES) {
		uint8_t *entry = bytes + len - blocks * HR__INDEX_ENTRY_BYTES;

		for (uint64_t i = 0; i < blocks && i < 64; i++, entry += HR__INDEX_ENTRY_BYTES) {
			uint64_t offset = hr__le64(entry + 8), n = hr__le32(entry + 24);

			if (offset <= len && n <= len - offset)
				put64(entry + 16, XXH3_64bits(bytes + offset, n));
		}
	}
	if (tail <= len) {
		put64(bytes + HR__INDEX_AT_TAIL + 8, len - tail);
		put64(bytes + HR__INDEX_AT_TAIL + 16, XXH3_64bits(bytes + tail, len - tail));
	}
	put64(bytes + HR__INDEX_AT_HASH, XXH3_64bits(bytes, HR__INDEX_AT_HASH));
}

static void check_cell(const struct hr__index *index, uint64_t row, uint32_t column,
		       uint64_t data_size)
{
	const struct hr__index_column *c = &hr__index_info(index)->columns[column];
	struct hr__cell cell;

	hr__fail_set(EIO, "");
	if (hr__index_cell(index, row, column, &cell) < 0) {
		format_require(hr_error_detail()[0] != '\0', "a refusal has a sentence");
		return;
	}
	if (cell.kind != HR__CELL_RANGE)
		return;
	format_require(cell.offset <= data_size && cell.len <= data_size - cell.offset,
		       "inside of the file");
	format_require(cell.len >= c->len_min && cell.len <= c->sizes.max &&
			       cell.len % hr_dtype_size(c->face.dtype) == 0,
		       "as long as the column says");
}

/* Of ever so many rows, some: a few bytes can claim billions. */
static int count_some(void *ctx, uint64_t row)
{
	uint32_t *n = ctx;

	(void)row;
	return ++*n == 1000;
}

static void check(const struct hr__index *index, uint64_t data_size)
{
	const struct hr__index_info *info = hr__index_info(index);
	uint32_t n = 0;

	for (uint32_t k = 0; k < info->n_columns; k++) {
		for (uint64_t i = 0; i < info->rows && i < 100; i++)
			check_cell(index, i, k, data_size);
		for (uint64_t i = 1; i <= info->rows && i < 20; i++)
			check_cell(index, info->rows - i, k, data_size);
		hr__index_absent(index, k, count_some, &n);
	}
	hr__index_check(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct index_bytes x = {.len = size - 1};
	struct hr__index_data about = {.name = "data", .format = "tar"};
	struct hr__index *index = NULL;
	int rc;

	if (size < 1)
		return 0;
	x.bytes = malloc(size);
	if (!x.bytes)
		abort();
	memcpy(x.bytes, data + 1, size - 1);
	if (x.len >= HR__INDEX_HEADER_BYTES) {
		if (data[0] & SIGN)
			sign(x.bytes, x.len);
		about.size = hr__le64(x.bytes + HR__INDEX_AT_DATA_SIZE);
		about.mtime_ns = hr__le64(x.bytes + HR__INDEX_AT_DATA_MTIME);
		about.rules = hr__le32(x.bytes + HR__INDEX_AT_RULES);
	}
	index_bytes_source(&x);
	hr__fail_set(EIO, "");
	rc = hr__index_open(&x.src, &about, &index);
	format_require(rc == 0 || hr_error_detail()[0] != '\0', "a refusal has a sentence");
	if (rc == 0)
		check(index, about.size);
	hr__index_close(index);
	free(x.bytes);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/index.h - side indexes: where the samples of a file lie, for formats that do not say it
 * themselves. Bytes in, bytes out: no I/O; loader/indexer.c keeps the files.
 *
 * A row per sample, a cell per column. A column is found while the file is scanned, so rows may lack
 * columns. All of a row's bytes lie in one file.
 */
#ifndef HR_FORMAT_INDEX_H
#define HR_FORMAT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "base/sizes.h"
#include "base/source.h"

enum hr__cell_kind {
	HR__CELL_ABSENT = 0, /* this sample has no such column */
	HR__CELL_RANGE = 1,  /* bytes of the file */
	HR__CELL_I64 = 2,    /* the value itself: */
	HR__CELL_F64 = 3,    /* its bits */
};

struct hr__cell {
	enum hr__cell_kind kind;
	uint64_t offset, len; /* RANGE: bytes of the file. Else offset is the value */
};

/* What a scan tells. */
struct hr__index_sink {
	/*
	 * The number of column @name, the same for every sample of the file; a new one if it was not there.
	 * @dtype: of the elements of its ranges, HR_DTYPE_U8 for blobs. Return: 0.. or -code.
	 */
	int (*column)(struct hr__index_sink *sink, const char *name, enum hr_dtype dtype);
	/*
	 * The next sample. @cells: of columns 0..@n - 1. @bad: what is wrong with it and at which byte, or
	 * NULL; a damaged sample keeps its number. Return: 0 or -code.
	 */
	int (*sample)(struct hr__index_sink *sink, const struct hr__cell *cells, uint32_t n,
		      const char *bad);
	/* Bytes of the file read so far. Return: 0, or -code that ends the scan. */
	int (*progress)(struct hr__index_sink *sink, uint64_t bytes);
};

/* A column of an index that was read. */
struct hr__index_column {
	const char *name;
	enum hr_dtype dtype;
	uint64_t absent, ranges, scalars,
		floats;         /* samples of each kind; their sum is the index's rows */
	uint64_t len_min;       /* of ranges */
	struct hr__sizes sizes; /* of ranges */
};

struct hr__index;

/* All is known without reading rows. */
struct hr__index_info {
	uint64_t rows;
	uint32_t n_columns;
	const struct hr__index_column *columns;
	uint64_t n_bad;
	const uint64_t *bad;    /* ascending */
	const char *bad_reason; /* of the first, or "" */
};

/*
 * hr__index_open() - read an index; rows are read when they are asked for, in blocks with checksums.
 * @src: the index; must stay valid. @data_name: of the file that it is about, for sentences.
 * @data_size, @data_mtime_ns: of that file now.
 * Return: 0, -HR_E_NO_INDEX (stale: of another size or time), -HR_E_BAD_FORMAT, -ENOMEM.
 */
int hr__index_open(const struct hr_source *src, const char *data_name, uint64_t data_size,
		   uint64_t data_mtime_ns, const char *format, struct hr__index **out);
void hr__index_close(struct hr__index *index);

const struct hr__index_info *hr__index_info(const struct hr__index *index);

/* hr__index_cell() - one cell; any thread, concurrently. Return: 0 or -code with a sentence. */
int hr__index_cell(const struct hr__index *index, uint64_t row, uint32_t column,
		   struct hr__cell *out);

#endif

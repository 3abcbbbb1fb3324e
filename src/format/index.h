/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/index.h - side indexes: where the samples of a file lie, for formats that do not say it
 * themselves. Bytes in, bytes out: no I/O; loader/indexer.c keeps the files.
 *
 * A row per sample, a cell per column. A column is found while the file is scanned, so rows may lack
 * columns. All of a row's bytes lie in one file. A damaged sample keeps its row, without cells.
 *
 * Neither side needs memory in proportion to the samples: a writer holds one block of rows, a list of
 * blocks and one of damaged samples; a reader those lists, and of the blocks what fits into
 * HR__INDEX_CACHE_BYTES. Others are read for every cell that is asked for.
 */
#ifndef HR_FORMAT_INDEX_H
#define HR_FORMAT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "base/sizes.h"
#include "base/source.h"

#define HR__INDEX_COLUMNS_MAX 256u
#define HR__INDEX_NAME_MAX 255u
#define HR__INDEX_BAD_MAX (1u << 20)
#define HR__INDEX_HEAD_BYTES 4096u
#define HR__INDEX_CACHE_BYTES (256ull << 20) /* of all indexes of the process together */

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

enum {
	HR__INDEX_DERIVED =
		1u << 0, /* a second view of what another column has: no loss if left out */
	HR__INDEX_FALLBACK =
		1u << 1, /* for those who name it, and where nothing else can be read */
};

/* What a column is. */
struct hr__index_face {
	const char *name;
	enum hr_dtype dtype; /* of the elements of its ranges, HR_DTYPE_U8 for blobs */
	uint32_t ndim;       /* of a value; 0: a row of elements, as many as there are */
	uint64_t shape[HR_DIMS_MAX];
	uint32_t flags; /* HR__INDEX_* */
};

/* What a scan tells. It must not depend on the options of a dataset: one index serves all. */
struct hr__index_sink {
	/*
	 * The number of a column, the same for every sample of the file; a new one if the name was not
	 * there. Return: 0..; -EILSEQ for a name that is empty, too long, no UTF-8 or has control
	 * characters, -EEXIST when it was there with another face, -E2BIG when there are too many: these
	 * without a sentence; -code.
	 */
	int (*column)(struct hr__index_sink *sink, const struct hr__index_face *face);
	/*
	 * The next sample. @cells: of columns 0..@n - 1. @bad: what is wrong with it and at which byte, or
	 * NULL. Return: 0 or -code.
	 */
	int (*sample)(struct hr__index_sink *sink, const struct hr__cell *cells, uint32_t n,
		      const char *bad);
	/*
	 * Something that people should know: of @column, of which one note is kept, or of the file
	 * (UINT32_MAX), of which a few are.
	 */
	void (*note)(struct hr__index_sink *sink, uint32_t column, const char *text);
	/* Bytes of the file read so far. Return: 0, or -code that ends the scan. */
	int (*progress)(struct hr__index_sink *sink, uint64_t bytes);
};

/* A column of an index that was read. Damaged samples are not counted. */
struct hr__index_column {
	struct hr__index_face face;
	const char *note;                         /* or "" */
	uint64_t absent, ranges, scalars, floats; /* samples of each kind */
	uint64_t len_min;                         /* of ranges */
	struct hr__sizes sizes;                   /* of ranges */
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
	const char *notes;      /* of the file, with "; " between them */
};

/* The file that an index is about. */
struct hr__index_data {
	const char *name; /* for sentences */
	uint64_t size, mtime_ns;
	const char *format;
	uint32_t rules; /* hr__format_ops.scan_rules */
	uint64_t head;  /* XXH3 of its first HR__INDEX_HEAD_BYTES: tools copy times */
};

/*
 * hr__index_open() - read an index; rows are read when they are asked for, in blocks with checksums.
 * @src: the index; must stay valid. @data: as the file is now.
 * Return: 0, -HR_E_NO_INDEX (of another file, size, time or version), -HR_E_BAD_FORMAT, -ENOMEM.
 */
int hr__index_open(const struct hr_source *src, const struct hr__index_data *data,
		   struct hr__index **out);
void hr__index_close(struct hr__index *index);

const struct hr__index_info *hr__index_info(const struct hr__index *index);

/* The source that it was opened with. */
const struct hr_source *hr__index_source(const struct hr__index *index);

/* hr__index_cell() - one cell; any thread, concurrently. Return: 0 or -code with a sentence. */
int hr__index_cell(const struct hr__index *index, uint64_t row, uint32_t column,
		   struct hr__cell *out);

/*
 * hr__index_absent() - call @each for the rows without @column, ascending, damaged ones too.
 * Return: 0, -code, or what @each returned if that is not 0.
 */
int hr__index_absent(const struct hr__index *index, uint32_t column,
		     int (*each)(void *ctx, uint64_t row), void *ctx);

/* hr__index_check() - read every block and compare checksums. Return: 0 or -code with a sentence. */
int hr__index_check(const struct hr__index *index);

/* -- writing: index_write.c -- */

/* Is it UTF-8 without control characters, neither empty nor too long? */
bool hr__index_good_name(const char *name);

struct hr__index_out {
	/* Return: 0 or -code with a sentence. */
	int (*write)(struct hr__index_out *out, uint64_t offset, const void *bytes, size_t len);
	/* What the scan has done so far. Return: 0, or -code that ends it. */
	int (*progress)(struct hr__index_out *out, uint64_t bytes, uint64_t samples);
};

struct hr__index_writer;

/* @out must stay valid. Return: 0 or -ENOMEM. */
int hr__index_writer_open(struct hr__index_out *out, const struct hr__index_data *data,
			  struct hr__index_writer **writer);
struct hr__index_sink *hr__index_writer_sink(struct hr__index_writer *writer);
/* The scan came to its end: only now is what was written an index. Return: 0 or -code. */
int hr__index_writer_finish(struct hr__index_writer *writer);
void hr__index_writer_close(struct hr__index_writer *writer);

#endif

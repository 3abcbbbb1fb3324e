/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/index.c - reads side indexes; knows no format. Nothing in one is believed: checksums keep
 * accidents away, bounds keep everybody else.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/index.h"
#include "format/index_file.h"
#include "format/le.h"

#define REMEDY "remove it, and it is made again"

/* What all indexes of the process may still keep in memory. */
static _Atomic uint64_t memory_left = HR__INDEX_CACHE_BYTES;

/* Blocks that were read. A slot is empty, being filled, or has a block for as long as the index lives. */
struct cache {
	_Atomic uint64_t used;
	uint64_t size;
	uint8_t *memory; /* touched only where a block is: what is not read costs nothing */
	_Atomic(const uint8_t *) *slots;
};
static const uint8_t filling;

struct hr__index {
	const struct hr_source *src;
	struct hr__index_data data;
	struct hr__index_info info;
	struct hr__index_column *columns;
	uint64_t *bad;
	uint8_t *tail;
	const uint8_t *entries; /* of the blocks, in the tail */
	uint32_t n_blocks;
	struct cache *cache;
};

struct entry {
	uint64_t first_row, offset, hash;
	uint32_t bytes, rows;
};

static void get_entry(const struct hr__index *index, uint32_t block, struct entry *out)
{
	const uint8_t *e = index->entries + (size_t)block * HR__INDEX_ENTRY_BYTES;
	uint64_t next = block + 1 < index->n_blocks ? hr__le64(e + HR__INDEX_ENTRY_BYTES)
						    : index->info.rows;

	out->first_row = hr__le64(e);
	out->offset = hr__le64(e + 8);
	out->hash = hr__le64(e + 16);
	out->bytes = hr__le32(e + 24);
	out->rows = (uint32_t)(next - out->first_row);
}

/* -- blocks ----------------------------------------------------------------------------------- */

struct descriptor {
	uint8_t mode, offset_width, len_width;
	uint32_t at;
	uint64_t base, stride, len_base;
};

static void get_descriptor(const uint8_t *block, uint32_t column, struct descriptor *out)
{
	const uint8_t *d =
		block + HR__INDEX_BLOCK_HEAD + (size_t)column * HR__INDEX_DESCRIPTOR_BYTES;

	out->mode = d[0];
	out->offset_width = d[1];
	out->len_width = d[2];
	out->at = hr__le32(d + 4);
	out->base = hr__le64(d + 8);
	out->stride = hr__le64(d + 16);
	out->len_base = hr__le64(d + 24);
}

static bool descriptor_fits(const struct descriptor *d, const struct entry *e)
{
	uint64_t len = (uint64_t)e->rows * (d->offset_width + d->len_width) +
		       (d->mode == HR__INDEX_MODE_MIXED ? ((uint64_t)e->rows + 3) / 4 : 0);

	return d->mode <= HR__INDEX_MODE_MIXED && d->offset_width <= 8 && d->len_width <= 8 &&
	       d->at <= e->bytes && len <= e->bytes - d->at;
}

static bool block_fits(const struct hr__index *index, const uint8_t *block, const struct entry *e)
{
	uint32_t columns = hr__le32(block + 4);

	if (hr__le32(block) != e->rows || columns > index->info.n_columns ||
	    HR__INDEX_BLOCK_HEAD + columns * HR__INDEX_DESCRIPTOR_BYTES > e->bytes)
		return false;
	for (uint32_t k = 0; k < columns; k++) {
		struct descriptor d;

		get_descriptor(block, k, &d);
		if (!descriptor_fits(&d, e))
			return false;
	}
	return true;
}

/* Everything that follows relies on what is checked here. @to: HR__INDEX_BLOCK_BYTES at the most. */
static int read_block(const struct hr__index *index, uint32_t number, const struct entry *e,
		      uint8_t *to)
{
	int rc = index->src->read(index->src, e->offset, to, e->bytes);

	if (rc < 0)
		return rc;
	if (XXH3_64bits(to, e->bytes) != e->hash)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: block %" PRIu32 " at byte %" PRIu64
				" does not have its checksum; " REMEDY,
				index->src->name, number, e->offset);
	if (!block_fits(index, to, e))
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: block %" PRIu32 " at byte %" PRIu64
				" points outside of itself; " REMEDY,
				index->src->name, number, e->offset);
	return 0;
}

static uint64_t get_width(const uint8_t *at, uint8_t width)
{
	uint64_t v = 0;

	for (uint8_t i = width; i-- > 0;)
		v = v << 8 | at[i];
	return v;
}

static enum hr__cell_kind kind_of(const uint8_t *block, const struct descriptor *d, uint32_t row)
{
	if (d->mode != HR__INDEX_MODE_MIXED)
		return (enum hr__cell_kind)d->mode;
	return (enum hr__cell_kind)(block[d->at + row / 4] >> (row % 4 * 2) & 3);
}

static void get_cell(const uint8_t *block, const struct entry *e, uint32_t row, uint32_t column,
		     struct hr__cell *out)
{
	const uint8_t *at = block;
	struct descriptor d;

	*out = (struct hr__cell){HR__CELL_ABSENT, 0, 0};
	if (column >= hr__le32(block + 4))
		return; /* found later */
	get_descriptor(block, column, &d);
	out->kind = kind_of(block, &d, row);
	if (out->kind == HR__CELL_ABSENT)
		return;
	at += d.at + (d.mode == HR__INDEX_MODE_MIXED ? (e->rows + 3) / 4 : 0);
	out->offset = d.base + row * d.stride +
		      get_width(at + (size_t)row * d.offset_width, d.offset_width);
	at += (size_t)e->rows * d.offset_width;
	if (out->kind == HR__CELL_RANGE)
		out->len = d.len_base + get_width(at + (size_t)row * d.len_width, d.len_width);
}

/* -- the cache -------------------------------------------------------------------------------- */

/*
 * Read a block into the cache, if nobody else does and there is room. Losers of the race and those
 * without room read it for themselves: nobody waits.
 */
static const uint8_t *fill_slot(const struct hr__index *index, uint32_t number,
				const struct entry *e)
{
	struct cache *cache = index->cache;
	const uint8_t *none = NULL;
	uint64_t at;

	if (atomic_load_explicit(&cache->used, memory_order_relaxed) + e->bytes > cache->size ||
	    !atomic_compare_exchange_strong(&cache->slots[number], &none, &filling))
		return NULL;
	at = atomic_fetch_add(&cache->used, e->bytes);
	if (at + e->bytes > cache->size || read_block(index, number, e, cache->memory + at) < 0) {
		/* The caller's own read tells why. */
		atomic_store(&cache->slots[number], NULL);
		return NULL;
	}
	/* Released, so that who finds the pointer also finds the bytes. */
	atomic_store_explicit(&cache->slots[number], cache->memory + at, memory_order_release);
	return cache->memory + at;
}

static const uint8_t *cached_block(const struct hr__index *index, uint32_t number,
				   const struct entry *e)
{
	const uint8_t *block =
		atomic_load_explicit(&index->cache->slots[number], memory_order_acquire);

	if (!block)
		block = fill_slot(index, number, e);
	return block == &filling ? NULL : block;
}

static uint64_t reserve_memory(uint64_t wish)
{
	uint64_t left = atomic_load(&memory_left), take;

	do {
		take = hr__min(left, wish);
	} while (!atomic_compare_exchange_weak(&memory_left, &left, left - take));
	return take;
}

static void close_cache(struct cache *cache)
{
	if (!cache)
		return;
	atomic_fetch_add(&memory_left, cache->size);
	free(cache->memory);
	free(cache->slots);
	free(cache);
}

static int open_cache(struct hr__index *index, uint64_t bytes)
{
	struct cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	index->cache = cache;
	cache->slots = calloc(index->n_blocks + 1, sizeof(*cache->slots));
	cache->size = reserve_memory(bytes);
	cache->memory = malloc(cache->size + 1);
	return cache->slots && cache->memory ? 0 : -ENOMEM;
}

/* -- the tail --------------------------------------------------------------------------------- */

struct cursor {
	const uint8_t *at, *end;
	bool broken;
};

static const uint8_t *take(struct cursor *c, uint64_t len)
{
	const uint8_t *at = c->at;

	if ((uint64_t)(c->end - c->at) < len) {
		c->broken = true;
		return NULL;
	}
	c->at += len;
	return at;
}

static uint64_t take64(struct cursor *c)
{
	const uint8_t *p = take(c, 8);

	return p ? hr__le64(p) : 0;
}

static uint16_t take16(struct cursor *c)
{
	const uint8_t *p = take(c, 2);

	return p ? hr__le16(p) : 0;
}

static const char *take_text(struct cursor *c)
{
	uint16_t len = take16(c);
	const uint8_t *p = take(c, len);

	if (!p || !len || memchr(p, 0, len) != p + len - 1) {
		c->broken = true;
		return "";
	}
	return (const char *)p;
}

static void take_sizes(struct cursor *c, const struct hr__index_column *column,
		       struct hr__sizes *sizes)
{
	uint64_t sum = 0;
	uint16_t classes, last = 0;

	sizes->values = take64(c);
	sizes->bytes = take64(c);
	sizes->max = take64(c);
	classes = take16(c);
	for (uint16_t i = 0; i < classes && !c->broken; i++) {
		uint16_t class = take16(c);
		uint64_t count = take64(c);

		if (class >= HR__SIZE_CLASSES || (i && class <= last) ||
		    hr__add_overflows(sum, count, &sum)) {
			c->broken = true;
			return;
		}
		last = class;
		sizes->count[class] = count;
	}
	if (sum != column->ranges || sizes->values != sum || (sum && column->len_min > sizes->max))
		c->broken = true;
}

/* Bytes of one value of a fixed shape; 0 when the face is wrong. */
static uint64_t face_bytes(const struct hr__index_face *face)
{
	uint64_t bytes = hr_dtype_size(face->dtype);

	for (uint32_t d = 0; d < face->ndim; d++) {
		if (hr__mul_overflows(bytes, face->shape[d], &bytes))
			return 0;
	}
	return bytes;
}

static void take_column(struct cursor *c, const struct hr__index_info *info,
			struct hr__index_column *column)
{
	const uint8_t *kinds;
	uint64_t sum, bytes;

	column->face.name = take_text(c);
	column->note = take_text(c);
	kinds = take(c, 4);
	if (!kinds || !hr__index_good_name(column->face.name) || kinds[1] >= HR_DIMS_MAX ||
	    kinds[3]) {
		c->broken = true;
		return;
	}
	column->face.dtype = (enum hr_dtype)kinds[0];
	column->face.ndim = kinds[1];
	column->face.flags = kinds[2];
	for (uint32_t d = 0; d < column->face.ndim; d++)
		column->face.shape[d] = take64(c);
	column->absent = take64(c);
	column->ranges = take64(c);
	column->scalars = take64(c);
	column->floats = take64(c);
	column->len_min = take64(c);
	take_sizes(c, column, &column->sizes);
	bytes = face_bytes(&column->face);
	if (!bytes || hr__add_overflows(column->absent, column->ranges, &sum) ||
	    hr__add_overflows(sum, column->scalars, &sum) ||
	    hr__add_overflows(sum, column->floats, &sum) || sum != info->rows - info->n_bad)
		c->broken = true;
	if (column->face.ndim && column->ranges &&
	    (column->len_min != bytes || column->sizes.max != bytes))
		c->broken = true;
}

static void take_bad(struct cursor *c, struct hr__index *index)
{
	uint64_t n = index->info.n_bad;

	for (uint64_t i = 0; i < n && !c->broken; i++) {
		index->bad[i] = take64(c);
		if (index->bad[i] >= index->info.rows || (i && index->bad[i] <= index->bad[i - 1]))
			c->broken = true;
	}
}

/* @tail_offset: where the blocks must have ended. Return: bytes of all blocks. */
static uint64_t take_entries(struct cursor *c, struct hr__index *index, uint64_t tail_offset)
{
	uint64_t bytes = 0, last_row = 0;

	index->entries = take(c, (uint64_t)index->n_blocks * HR__INDEX_ENTRY_BYTES);
	for (uint32_t i = 0; i < index->n_blocks && !c->broken; i++) {
		uint64_t row = hr__le64(index->entries + (size_t)i * HR__INDEX_ENTRY_BYTES);
		struct entry e;

		get_entry(index, i, &e);
		if (i ? row <= last_row || row - last_row > UINT32_MAX : row != 0)
			c->broken = true;
		last_row = row;
		if (row >= index->info.rows || e.bytes < HR__INDEX_BLOCK_HEAD ||
		    e.bytes > HR__INDEX_BLOCK_BYTES || e.offset < HR__INDEX_HEADER_BYTES ||
		    e.offset > tail_offset || e.bytes > tail_offset - e.offset)
			c->broken = true;
		bytes += e.bytes;
	}
	if ((index->info.rows && !index->n_blocks) || index->info.rows - last_row > UINT32_MAX)
		c->broken = true;
	return bytes;
}

static int parse_tail(struct hr__index *index, uint64_t tail_offset, uint64_t tail_bytes)
{
	struct cursor c = {index->tail, index->tail + tail_bytes, false};
	uint64_t bytes;

	index->info.bad_reason = take_text(&c);
	index->info.notes = take_text(&c);
	for (uint32_t k = 0; k < index->info.n_columns && !c.broken; k++)
		take_column(&c, &index->info, &index->columns[k]);
	if (!c.broken)
		take_bad(&c, index);
	if (c.broken)
		return -HR_E_BAD_FORMAT;
	bytes = take_entries(&c, index, tail_offset);
	if (c.broken || c.at != c.end)
		return -HR_E_BAD_FORMAT;
	return open_cache(index, bytes);
}

/* -- open and close --------------------------------------------------------------------------- */

static int check_header(const struct hr_source *src, const struct hr__index_data *data,
			const uint8_t *h)
{
	char format[HR__INDEX_FORMAT_BYTES] = "";

	for (size_t i = 0; i + 1 < sizeof(format) && data->format[i]; i++)
		format[i] = data->format[i];
	if (memcmp(h, HR__INDEX_MAGIC, 8) != 0)
		return hr__fail(HR_E_BAD_FORMAT, "%s: is no side index; " REMEDY, src->name);
	if (XXH3_64bits(h, HR__INDEX_AT_HASH) != hr__le64(h + HR__INDEX_AT_HASH))
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its header does not have its checksum; " REMEDY, src->name);
	if (hr__le32(h + HR__INDEX_AT_VERSION) != HR__INDEX_VERSION ||
	    memcmp(h + HR__INDEX_AT_FORMAT, format, sizeof(format)) != 0 ||
	    hr__le32(h + HR__INDEX_AT_RULES) != data->rules)
		return hr__fail(HR_E_NO_INDEX,
				"%s: is of another version or format than is read now; make it "
				"again with 'headrace index'",
				src->name);
	if (hr__le64(h + HR__INDEX_AT_DATA_SIZE) != data->size ||
	    hr__le64(h + HR__INDEX_AT_DATA_MTIME) != data->mtime_ns)
		return hr__fail(HR_E_NO_INDEX,
				"%s: is stale: %s has another size or time now; make it again with "
				"'headrace index'",
				src->name, data->name);
	if (hr__le64(h + HR__INDEX_AT_DATA_HEAD) != data->head)
		return hr__fail(
			HR_E_NO_INDEX,
			"%s: is of another file than %s, which has its size and time; make it "
			"again with 'headrace index'",
			src->name, data->name);
	return 0;
}

/* Sizes that a header claims, against the bytes that are there. */
static bool header_fits(const struct hr__index_info *info, uint32_t n_blocks, uint64_t size,
			uint64_t tail_offset, uint64_t tail_bytes)
{
	return info->n_columns <= HR__INDEX_COLUMNS_MAX && info->n_bad <= info->rows &&
	       info->n_bad <= tail_bytes / 8 && n_blocks <= tail_bytes / HR__INDEX_ENTRY_BYTES &&
	       n_blocks <= info->rows && tail_offset >= HR__INDEX_HEADER_BYTES &&
	       tail_offset <= size && tail_bytes == size - tail_offset;
}

static int read_tail(struct hr__index *index, const uint8_t *h)
{
	const struct hr_source *src = index->src;
	uint64_t offset = hr__le64(h + HR__INDEX_AT_TAIL),
		 bytes = hr__le64(h + HR__INDEX_AT_TAIL + 8);
	struct hr__index_info *info = &index->info;
	int rc;

	info->rows = hr__le64(h + HR__INDEX_AT_ROWS);
	info->n_bad = hr__le64(h + HR__INDEX_AT_N_BAD);
	info->n_columns = hr__le32(h + HR__INDEX_AT_N_COLUMNS);
	index->n_blocks = hr__le32(h + HR__INDEX_AT_N_BLOCKS);
	if (!header_fits(info, index->n_blocks, src->size, offset, bytes))
		return hr__fail(HR_E_BAD_FORMAT, "%s: was cut short or appended to; " REMEDY,
				src->name);
	index->tail = malloc(bytes + 1);
	index->bad = calloc(info->n_bad + 1, sizeof(*index->bad));
	index->columns = calloc(info->n_columns + 1, sizeof(*index->columns));
	if (!index->tail || !index->bad || !index->columns)
		return hr__fail(ENOMEM, "%s: no memory to open it", src->name);
	info->bad = index->bad;
	info->columns = index->columns;
	rc = src->read(src, offset, index->tail, bytes);
	if (rc < 0)
		return rc;
	if (XXH3_64bits(index->tail, bytes) != hr__le64(h + HR__INDEX_AT_TAIL + 16))
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its tail at byte %" PRIu64
				" does not have its checksum; " REMEDY,
				src->name, offset);
	rc = parse_tail(index, offset, bytes);
	if (rc == -ENOMEM)
		return hr__fail(ENOMEM, "%s: no memory to open it", src->name);
	if (rc < 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its tail at byte %" PRIu64 " contradicts itself; " REMEDY,
				src->name, offset);
	return 0;
}

int hr__index_open(const struct hr_source *src, const struct hr__index_data *data,
		   struct hr__index **out)
{
	uint8_t header[HR__INDEX_HEADER_BYTES];
	struct hr__index *index;
	int rc;

	if (src->size < sizeof(header))
		return hr__fail(HR_E_BAD_FORMAT, "%s: is no whole side index; " REMEDY, src->name);
	rc = src->read(src, 0, header, sizeof(header));
	if (rc == 0)
		rc = check_header(src, data, header);
	if (rc < 0)
		return rc;
	index = calloc(1, sizeof(*index));
	if (!index)
		return hr__fail(ENOMEM, "%s: no memory to open it", src->name);
	index->src = src;
	index->data = *data;
	rc = read_tail(index, header);
	if (rc < 0) {
		hr__index_close(index);
		return rc;
	}
	*out = index;
	return 0;
}

void hr__index_close(struct hr__index *index)
{
	if (!index)
		return;
	close_cache(index->cache);
	free(index->columns);
	free(index->bad);
	free(index->tail);
	free(index);
}

/* -- questions -------------------------------------------------------------------------------- */

const struct hr__index_info *hr__index_info(const struct hr__index *index)
{
	return &index->info;
}

const struct hr_source *hr__index_source(const struct hr__index *index)
{
	return index->src;
}

static uint32_t block_of(const struct hr__index *index, uint64_t row)
{
	uint32_t low = 0, high = index->n_blocks; /* first row of low <= row < that of high */

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (hr__le64(index->entries + (size_t)middle * HR__INDEX_ENTRY_BYTES) <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* A cell that no honest scan has told. */
static int check_cell(const struct hr__index *index, uint64_t row,
		      const struct hr__index_column *column, const struct hr__cell *cell)
{
	bool good = true;

	if (cell->kind == HR__CELL_RANGE)
		good = cell->offset <= index->data.size &&
		       cell->len <= index->data.size - cell->offset &&
		       cell->len >= column->len_min && cell->len <= column->sizes.max &&
		       cell->len % hr_dtype_size(column->face.dtype) == 0 && column->ranges;
	else if (cell->kind == HR__CELL_I64)
		good = column->scalars > 0;
	else if (cell->kind == HR__CELL_F64)
		good = column->floats > 0;
	if (good)
		return 0;
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: row %" PRIu64
			" of column %s contradicts what the index says of it; " REMEDY,
			index->src->name, row, column->face.name);
}

/* Not inlined: most callers find their block in the cache and need no such stack. */
static __attribute__((noinline)) int read_cell(const struct hr__index *index, uint32_t number,
					       const struct entry *e, uint64_t row, uint32_t column,
					       struct hr__cell *out)
{
	uint8_t block[HR__INDEX_BLOCK_BYTES];
	int rc = read_block(index, number, e, block);

	if (rc == 0)
		get_cell(block, e, (uint32_t)(row - e->first_row), column, out);
	return rc;
}

int hr__index_cell(const struct hr__index *index, uint64_t row, uint32_t column,
		   struct hr__cell *out)
{
	const uint8_t *block;
	struct entry e;
	uint32_t number;
	int rc = 0;

	if (row >= index->info.rows || column >= index->info.n_columns)
		return -EINVAL;
	number = block_of(index, row);
	get_entry(index, number, &e);
	block = cached_block(index, number, &e);
	if (block)
		get_cell(block, &e, (uint32_t)(row - e.first_row), column, out);
	else
		rc = read_cell(index, number, &e, row, column, out);
	return rc < 0 ? rc : check_cell(index, row, &index->columns[column], out);
}

static int absent_in_block(const uint8_t *block, const struct entry *e, uint32_t column,
			   int (*each)(void *ctx, uint64_t row), void *ctx)
{
	struct descriptor d = {.mode = HR__CELL_ABSENT};
	int rc = 0;

	if (column < hr__le32(block + 4))
		get_descriptor(block, column, &d);
	if (d.mode != HR__CELL_ABSENT && d.mode != HR__INDEX_MODE_MIXED)
		return 0;
	for (uint32_t i = 0; i < e->rows && rc == 0; i++) {
		if (kind_of(block, &d, i) == HR__CELL_ABSENT)
			rc = each(ctx, e->first_row + i);
	}
	return rc;
}

int hr__index_absent(const struct hr__index *index, uint32_t column,
		     int (*each)(void *ctx, uint64_t row), void *ctx)
{
	uint8_t block[HR__INDEX_BLOCK_BYTES];
	int rc = 0;

	for (uint32_t i = 0; i < index->n_blocks && rc == 0; i++) {
		struct entry e;

		get_entry(index, i, &e);
		rc = read_block(index, i, &e, block);
		if (rc == 0)
			rc = absent_in_block(block, &e, column, each, ctx);
	}
	return rc;
}

int hr__index_check(const struct hr__index *index)
{
	uint8_t block[HR__INDEX_BLOCK_BYTES];
	int rc = 0;

	for (uint32_t i = 0; i < index->n_blocks && rc == 0; i++) {
		struct entry e;

		get_entry(index, i, &e);
		rc = read_block(index, i, &e, block);
	}
	return rc;
}

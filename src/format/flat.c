/* SPDX-License-Identifier: Apache-2.0 */
/* format/flat.c - the bounded reader of flat.h; knows no format that is written in FlatBuffers. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/flat.h"
#include "format/le.h"

int hr__flat_fail(struct hr__flat *flat, uint32_t at, const char *what)
{
	if (!flat->rc)
		flat->rc = hr__fail(HR_E_BAD_FORMAT,
				    "%s: byte %" PRIu64 ": %s; the file is damaged, get it again",
				    flat->name, flat->base + at, what);
	return flat->rc;
}

/* Are there @len bytes at @at? */
static bool inside(const struct hr__flat *flat, uint64_t at, uint64_t len)
{
	return at <= flat->len && len <= flat->len - at;
}

static struct hr__flat_table table_at(struct hr__flat *flat, uint64_t at)
{
	static const struct hr__flat_table none = {.at = 0};
	struct hr__flat_table table = {.at = (uint32_t)at};
	int64_t vtable;

	if (flat->rc)
		return none;
	if (!inside(flat, at, 4)) {
		hr__flat_fail(flat, 0, "a table of its metadata lies outside");
		return none;
	}
	vtable = (int64_t)at - (int32_t)hr__le32(flat->bytes + at);
	if (vtable < 0 || !inside(flat, (uint64_t)vtable, 4)) {
		hr__flat_fail(flat, table.at, "the description of a table lies outside");
		return none;
	}
	table.vtable = (uint32_t)vtable;
	table.vtable_len = hr__le16(flat->bytes + vtable);
	table.len = hr__le16(flat->bytes + vtable + 2);
	if (table.vtable_len < 4 || table.vtable_len % 2 || table.len < 4 ||
	    !inside(flat, table.vtable, table.vtable_len) || !inside(flat, at, table.len)) {
		hr__flat_fail(flat, table.vtable, "the description of a table is impossible");
		return none;
	}
	return table;
}

/* Where a field of @bytes is; 0 if it is left out. */
static uint32_t field_at(struct hr__flat *flat, const struct hr__flat_table *table, uint32_t field,
			 uint32_t bytes)
{
	uint32_t slot = 4 + 2 * field, place;

	if (flat->rc || !table->at || slot + 2 > table->vtable_len)
		return 0;
	place = hr__le16(flat->bytes + table->vtable + slot);
	if (!place)
		return 0;
	if (place < 4 || place + bytes > table->len) {
		hr__flat_fail(flat, table->vtable + slot, "a field lies outside of its table");
		return 0;
	}
	return table->at + place;
}

/* Where the offset in a field, or in an item of a vector, leads. */
static uint64_t follow(const struct hr__flat *flat, uint32_t at)
{
	return (uint64_t)at + hr__le32(flat->bytes + at);
}

struct hr__flat_table hr__flat_root(struct hr__flat *flat)
{
	if (!inside(flat, 0, 8))
		hr__flat_fail(flat, 0, "its metadata is too short for a table");
	return table_at(flat, flat->rc ? 0 : follow(flat, 0));
}

uint64_t hr__flat_number(struct hr__flat *flat, const struct hr__flat_table *table, uint32_t field,
			 uint32_t bytes, uint64_t absent)
{
	uint32_t at = field_at(flat, table, field, bytes);
	const uint8_t *p = flat->bytes + at;

	if (flat->rc)
		return 0;
	if (!at)
		return absent;
	switch (bytes) {
	case 1:
		return *p;
	case 2:
		return hr__le16(p);
	case 4:
		return hr__le32(p);
	default:
		return hr__le64(p);
	}
}

struct hr__flat_table hr__flat_table(struct hr__flat *flat, const struct hr__flat_table *table,
				     uint32_t field)
{
	uint32_t at = field_at(flat, table, field, 4);

	if (!at)
		return (struct hr__flat_table){.at = 0};
	return table_at(flat, follow(flat, at));
}

struct hr__flat_vector hr__flat_vector(struct hr__flat *flat, const struct hr__flat_table *table,
				       uint32_t field, uint32_t item)
{
	static const struct hr__flat_vector none = {.at = 0};
	uint32_t at = field_at(flat, table, field, 4), n;
	uint64_t begin;

	if (!at)
		return none;
	begin = follow(flat, at);
	if (!inside(flat, begin, 4)) {
		hr__flat_fail(flat, at, "a list lies outside of its metadata");
		return none;
	}
	n = hr__le32(flat->bytes + begin);
	if (!inside(flat, begin + 4, (uint64_t)n * item)) {
		hr__flat_fail(flat, (uint32_t)begin, "a list is longer than its metadata");
		return none;
	}
	return (struct hr__flat_vector){(uint32_t)begin + 4, n};
}

struct hr__flat_table hr__flat_item(struct hr__flat *flat, const struct hr__flat_vector *vector,
				    uint32_t k)
{
	return table_at(flat, flat->rc ? 0 : follow(flat, vector->at + 4 * k));
}

const char *hr__flat_text(struct hr__flat *flat, const struct hr__flat_table *table, uint32_t field)
{
	struct hr__flat_vector text = hr__flat_vector(flat, table, field, 1);
	const char *start = (const char *)flat->bytes + text.at;

	if (!text.at)
		return NULL;
	if (!inside(flat, text.at, text.n + 1ull) ||
	    memchr(start, 0, text.n + 1ull) != start + text.n) {
		hr__flat_fail(flat, text.at, "a text does not end where it says");
		return NULL;
	}
	return start;
}

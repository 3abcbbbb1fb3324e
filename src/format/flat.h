/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/flat.h - a bounded reader of FlatBuffers that came from a stranger: tables, numbers, strings and
 * vectors, by number of the field; no schema, no recursion, no allocation.
 *
 * Each access is checked when it is made. The first that leads out of the bytes stores a sentence and makes
 * the reader bad: from then on it answers 0 and nothing, so that callers may look at @rc once, at the end.
 * A position is a byte of the buffer; 0 means absent, since a buffer begins with the root's offset.
 */
#ifndef HR_FORMAT_FLAT_H
#define HR_FORMAT_FLAT_H

#include <stdint.h>

struct hr__flat {
	const char *name; /* of the file */
	uint64_t base;    /* where the buffer begins in it */
	const uint8_t *bytes;
	uint32_t len; /* at most 2^31 */
	int rc;       /* 0, or -HR_E_BAD_FORMAT */
};

/* A table and where its fields are. at == 0: there is none. */
struct hr__flat_table {
	uint32_t at, vtable;
	uint16_t vtable_len, len;
};

/* Items of one size, one behind the other. */
struct hr__flat_vector {
	uint32_t at, n;
};

/* hr__flat_fail() - make the reader bad: @what at byte @at of the buffer. Return: its rc. */
int hr__flat_fail(struct hr__flat *flat, uint32_t at, const char *what);

struct hr__flat_table hr__flat_root(struct hr__flat *flat);

/* A number of 1, 2, 4 or 8 bytes; @absent where it is left out. Not extended: cast to its signed type. */
uint64_t hr__flat_number(struct hr__flat *flat, const struct hr__flat_table *table, uint32_t field,
			 uint32_t bytes, uint64_t absent);

struct hr__flat_table hr__flat_table(struct hr__flat *flat, const struct hr__flat_table *table,
				     uint32_t field);

/* @item: bytes of one: of a struct or a number; 4 for tables. */
struct hr__flat_vector hr__flat_vector(struct hr__flat *flat, const struct hr__flat_table *table,
				       uint32_t field, uint32_t item);

/* Table @k < vector->n of a vector of tables. */
struct hr__flat_table hr__flat_item(struct hr__flat *flat, const struct hr__flat_vector *vector,
				    uint32_t k);

/* A text without NUL in it, valid as long as the buffer; NULL where it is left out. */
const char *hr__flat_text(struct hr__flat *flat, const struct hr__flat_table *table,
			  uint32_t field);

#endif

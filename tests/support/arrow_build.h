/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/arrow_build.h - Arrow IPC bytes made by hand, so that tests know where each number of the
 * metadata is and can spoil it. Written front to back: what is pointed at comes behind what points.
 */
#ifndef HR_TESTS_ARROW_BUILD_H
#define HR_TESTS_ARROW_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARROW_OUT_MAX 16384u

struct arrow_out {
	uint8_t bytes[ARROW_OUT_MAX];
	uint32_t len;
};

struct arrow_param {
	uint32_t bytes, value;
};

struct arrow_column_spec {
	const char *name;
	uint8_t type;                /* number in the union Type */
	struct arrow_param param[2]; /* of the type's table */
	const struct arrow_column_spec *kids;
	uint32_t n_kids;
	int dictionary;
};

/* What a record batch has of each: pairs of numbers. */
struct arrow_pair {
	uint64_t first, second;
};

struct arrow_batch_spec {
	uint64_t rows;
	const struct arrow_pair *nodes, *buffers;
	uint32_t n_nodes, n_buffers;
	int compressed;
	const uint64_t *variadic;
	uint32_t n_variadic;
};

static inline void arrow_put(struct arrow_out *o, uint64_t value, uint32_t bytes)
{
	if (o->len + bytes > ARROW_OUT_MAX)
		abort();
	for (uint32_t i = 0; i < bytes; i++)
		o->bytes[o->len++] = (uint8_t)(value >> (8 * i));
}

static inline void arrow_set(struct arrow_out *o, uint32_t at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		o->bytes[at + i] = (uint8_t)(value >> (8 * i));
}

/* The offset at @link leads to what is written next. */
static inline void arrow_link(struct arrow_out *o, uint32_t link)
{
	arrow_set(o, link, o->len - link, 4);
}

/* A table with fields of @sizes (0: absent); @at receives where each is. */
static inline void arrow_table(struct arrow_out *o, uint32_t link, const uint8_t *sizes, uint32_t n,
			       uint32_t *at)
{
	uint32_t vtable = o->len, place = 4;

	arrow_put(o, 4 + 2 * n, 2);
	arrow_put(o, 0, 2);
	for (uint32_t i = 0; i < n; i++) {
		arrow_put(o, sizes[i] ? place : 0, 2);
		place += sizes[i];
	}
	arrow_set(o, vtable + 2, place, 2);
	arrow_link(o, link);
	arrow_put(o, o->len - vtable, 4);
	for (uint32_t i = 0; i < n; i++) {
		at[i] = o->len;
		arrow_put(o, 0, sizes[i]);
	}
}

static inline void arrow_text(struct arrow_out *o, uint32_t link, const char *text)
{
	arrow_link(o, link);
	arrow_put(o, strlen(text), 4);
	for (; *text; text++)
		arrow_put(o, (uint8_t)*text, 1);
	arrow_put(o, 0, 1);
}

/* A vector of @n offsets, all 0; returns where the first is. */
static inline uint32_t arrow_offsets(struct arrow_out *o, uint32_t link, uint32_t n)
{
	uint32_t first;

	arrow_link(o, link);
	arrow_put(o, n, 4);
	first = o->len;
	for (uint32_t i = 0; i < n; i++)
		arrow_put(o, 0, 4);
	return first;
}

static inline void arrow_field(struct arrow_out *o, uint32_t link,
			       const struct arrow_column_spec *spec)
{
	const uint8_t sizes[] = {spec->name ? 4 : 0,  0, 1, 4, spec->dictionary ? 4 : 0,
				 spec->n_kids ? 4 : 0};
	const uint8_t params[] = {(uint8_t)spec->param[0].bytes, (uint8_t)spec->param[1].bytes};
	uint32_t at[6], param[2], kids;

	arrow_table(o, link, sizes, 6, at);
	arrow_set(o, at[2], spec->type, 1);
	if (spec->name)
		arrow_text(o, at[0], spec->name);
	arrow_table(o, at[3], params, 2, param);
	for (uint32_t i = 0; i < 2; i++)
		arrow_set(o, param[i], spec->param[i].value, spec->param[i].bytes);
	if (spec->dictionary)
		arrow_table(o, at[4], params, 0, param);
	if (!spec->n_kids)
		return;
	kids = arrow_offsets(o, at[5], spec->n_kids);
	for (uint32_t i = 0; i < spec->n_kids; i++)
		arrow_field(o, kids + 4 * i, &spec->kids[i]);
}

static inline void arrow_schema(struct arrow_out *o, uint32_t link,
				const struct arrow_column_spec *specs, uint32_t n, int big_endian)
{
	const uint8_t sizes[] = {2, 4};
	uint32_t at[2], fields;

	arrow_table(o, link, sizes, 2, at);
	arrow_set(o, at[0], big_endian, 2);
	fields = arrow_offsets(o, at[1], n);
	for (uint32_t i = 0; i < n; i++)
		arrow_field(o, fields + 4 * i, &specs[i]);
}

static inline void arrow_pairs(struct arrow_out *o, uint32_t link, const struct arrow_pair *pairs,
			       uint32_t n)
{
	arrow_link(o, link);
	arrow_put(o, n, 4);
	for (uint32_t i = 0; i < n; i++) {
		arrow_put(o, pairs[i].first, 8);
		arrow_put(o, pairs[i].second, 8);
	}
}

static inline void arrow_batch(struct arrow_out *o, uint32_t link,
			       const struct arrow_batch_spec *spec)
{
	const uint8_t sizes[] = {8, 4, 4, spec->compressed ? 4 : 0, spec->n_variadic ? 4 : 0};
	uint32_t at[5], none[1];

	arrow_table(o, link, sizes, 5, at);
	arrow_set(o, at[0], spec->rows, 8);
	arrow_pairs(o, at[1], spec->nodes, spec->n_nodes);
	arrow_pairs(o, at[2], spec->buffers, spec->n_buffers);
	if (spec->compressed)
		arrow_table(o, at[3], sizes, 0, none);
	if (!spec->n_variadic)
		return;
	arrow_link(o, at[4]);
	arrow_put(o, spec->n_variadic, 4);
	for (uint32_t i = 0; i < spec->n_variadic; i++)
		arrow_put(o, spec->variadic[i], 8);
}

/* Begin a message: returns the link of its header. @begin: receives where the message is. */
static inline uint32_t arrow_message(struct arrow_out *o, uint8_t type, uint64_t body,
				     uint32_t *begin)
{
	const uint8_t sizes[] = {2, 1, 4, 8};
	uint32_t at[4], root;

	*begin = o->len;
	arrow_put(o, 0xffffffff, 4);
	arrow_put(o, 0, 4);
	root = o->len;
	arrow_put(o, 0, 4);
	arrow_table(o, root, sizes, 4, at);
	arrow_set(o, at[0], 4, 2);
	arrow_set(o, at[1], type, 1);
	arrow_set(o, at[3], body, 8);
	return at[2];
}

/* The metadata of the message at @begin is complete; its body follows. */
static inline void arrow_message_end(struct arrow_out *o, uint32_t begin)
{
	while (o->len % 8)
		arrow_put(o, 0, 1);
	arrow_set(o, begin + 4, o->len - begin - 8, 4);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron_bytes.h - Megatron datasets built byte by byte for the tests of their format: the index, a .bin
 * that is all hole, and the three arrays of an order. Knows nothing of the parser.
 */
#ifndef HR_TESTS_UNIT_MEGATRON_BYTES_H
#define HR_TESTS_UNIT_MEGATRON_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"
#include "support/format_bytes.h"

#define SEQUENCES_MAX 3000u
#define IDX_ROOM (34u + 21u * SEQUENCES_MAX + 16u)

/* A dataset in numbers. */
struct made {
	uint8_t code; /* of the element type */
	uint32_t element;
	uint64_t sequences, marks;
	int32_t lengths[SEQUENCES_MAX];
	int64_t pointers[SEQUENCES_MAX];
	int64_t documents[SEQUENCES_MAX + 1];
	bool modes;
	uint64_t bin_bytes;
};

/* Bytes under construction. */
struct blob {
	uint8_t bytes[IDX_ROOM];
	size_t len;
};

static inline void put(struct blob *b, const void *bytes, size_t len)
{
	assert_true(len <= sizeof(b->bytes) - b->len);
	memcpy(b->bytes + b->len, bytes, len);
	b->len += len;
}

static inline void put_le(struct blob *b, uint64_t value, size_t len)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	put(b, bytes, len);
}

static inline void put_idx(struct blob *b, const struct made *m)
{
	b->len = 0;
	put(b, "MMIDIDX\0\0", 9);
	put_le(b, 1, 8);
	put_le(b, m->code, 1);
	put_le(b, m->sequences, 8);
	put_le(b, m->marks, 8);
	for (uint64_t s = 0; s < m->sequences; s++)
		put_le(b, (uint64_t)m->lengths[s], 4);
	for (uint64_t s = 0; s < m->sequences; s++)
		put_le(b, (uint64_t)m->pointers[s], 8);
	for (uint64_t d = 0; d < m->marks; d++)
		put_le(b, (uint64_t)m->documents[d], 8);
	for (uint64_t s = 0; s < m->sequences && m->modes; s++)
		put_le(b, s % 3, 1);
}

/* Pointers of sequences one behind the other, one document each, u16. */
static inline void make_plain(struct made *m, const int32_t *lengths, uint64_t n)
{
	memset(m, 0, sizeof(*m));
	m->code = 8;
	m->element = 2;
	m->sequences = n;
	m->marks = n + 1;
	for (uint64_t s = 0; s < n; s++) {
		m->lengths[s] = lengths[s];
		m->pointers[s] = (int64_t)m->bin_bytes;
		m->bin_bytes += (uint64_t)lengths[s] * 2;
		m->documents[s + 1] = (int64_t)s + 1;
	}
}

static inline void put_npy(struct blob *b, const char *descr, const char *shape,
			   const int64_t *numbers, size_t n)
{
	char dict[128];
	size_t width = (size_t)(descr[2] - '0');

	snprintf(dict, sizeof(dict), "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
		 descr, shape);
	b->len = 0;
	put(b, "\x93NUMPY\1\0", 8);
	put_le(b, strlen(dict), 2);
	put(b, dict, strlen(dict));
	for (size_t i = 0; i < n; i++)
		put_le(b, (uint64_t)numbers[i], width);
}

#endif

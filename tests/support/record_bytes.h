/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/record_bytes.h - TFRecords and protocol buffers in memory, also wrong ones; with a CRC-32C of its
 * own, bit by bit.
 */
#ifndef HR_TESTS_RECORD_BYTES_H
#define HR_TESTS_RECORD_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct record_bytes {
	uint8_t *bytes;
	uint64_t len, last; /* last: offset of the latest record */
};

static inline uint8_t *record_grow(struct record_bytes *r, uint64_t len)
{
	r->bytes = realloc(r->bytes, r->len + len + 1);
	if (!r->bytes)
		abort();
	r->len += len;
	return r->bytes + r->len - len;
}

static inline void record_add(struct record_bytes *r, const void *bytes, uint64_t len)
{
	uint8_t *to = record_grow(r, len);

	if (len)
		memcpy(to, bytes, len);
}

static inline uint32_t record_crc(const uint8_t *bytes, uint64_t len)
{
	uint32_t crc = ~0u;

	for (uint64_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static inline void record_put(uint8_t *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline void record_put_crc(uint8_t *p, const uint8_t *bytes, uint64_t len)
{
	uint32_t crc = record_crc(bytes, len);

	record_put(p, (crc >> 15 | crc << 17) + 0xa282ead8u, 4);
}

/* One record with both checksums. */
static inline void record_frame(struct record_bytes *r, const void *payload, uint64_t len)
{
	uint8_t *p = record_grow(r, 16 + len);

	r->last = (uint64_t)(p - r->bytes);
	record_put(p, len, 8);
	record_put_crc(p + 8, p, 8);
	if (len)
		memcpy(p + 12, payload, len);
	record_put_crc(p + 12 + len, p + 12, len);
}

/* -- protocol buffers: builders that end what they were given -- */

static inline void proto_varint(struct record_bytes *r, uint64_t v)
{
	for (; v > 0x7f; v >>= 7)
		*record_grow(r, 1) = (uint8_t)(v | 0x80);
	*record_grow(r, 1) = (uint8_t)v;
}

static inline void proto_bytes(struct record_bytes *r, uint32_t field, const void *bytes,
			       uint64_t len)
{
	proto_varint(r, field << 3 | 2);
	proto_varint(r, len);
	record_add(r, bytes, len);
}

/* @inner becomes field @field of @r, and is empty again. */
static inline void proto_message(struct record_bytes *r, uint32_t field, struct record_bytes *inner)
{
	proto_bytes(r, field, inner->bytes, inner->len);
	free(inner->bytes);
	*inner = (struct record_bytes){.len = 0};
}

/* @list becomes the feature @name of the Features @to; @kind: 1 bytes, 2 floats, 3 integers. */
static inline void proto_feature(struct record_bytes *to, const char *name, uint32_t kind,
				 struct record_bytes *list)
{
	struct record_bytes feature = {.len = 0}, entry = {.len = 0};

	proto_message(&feature, kind, list);
	proto_bytes(&entry, 1, name, strlen(name));
	proto_message(&entry, 2, &feature);
	proto_message(to, 1, &entry);
}

static inline void proto_feature_bytes(struct record_bytes *to, const char *name, const char *text)
{
	struct record_bytes list = {.len = 0};

	proto_bytes(&list, 1, text, strlen(text));
	proto_feature(to, name, 1, &list);
}

static inline void proto_feature_floats(struct record_bytes *to, const char *name,
					const float *values, uint32_t n)
{
	struct record_bytes list = {.len = 0};

	if (n)
		proto_bytes(&list, 1, values, 4 * (uint64_t)n);
	proto_feature(to, name, 2, &list);
}

static inline void proto_feature_int(struct record_bytes *to, const char *name, int64_t value)
{
	struct record_bytes list = {.len = 0}, packed = {.len = 0};

	proto_varint(&packed, (uint64_t)value);
	proto_message(&list, 1, &packed);
	proto_feature(to, name, 3, &list);
}

/* @features becomes an Example, and that a record. */
static inline void record_example(struct record_bytes *r, struct record_bytes *features)
{
	struct record_bytes example = {.len = 0};

	proto_message(&example, 1, features);
	record_frame(r, example.bytes, example.len);
	free(example.bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/tar_bytes.h - tar archives in memory, header by header, also wrong ones.
 */
#ifndef HR_TESTS_TAR_BYTES_H
#define HR_TESTS_TAR_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tar_bytes {
	uint8_t *bytes;
	uint64_t len, last; /* last: offset of the latest header */
};

static inline uint8_t *tar_grow(struct tar_bytes *t, uint64_t len)
{
	t->bytes = realloc(t->bytes, t->len + len + 1);
	if (!t->bytes)
		abort();
	memset(t->bytes + t->len, 0, len);
	t->len += len;
	return t->bytes + t->len - len;
}

/* Set the checksum of the latest header. */
static inline void tar_sum(struct tar_bytes *t)
{
	uint8_t *h = t->bytes + t->last;
	unsigned int sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static inline void tar_header(struct tar_bytes *t, const char *name, char type, uint64_t size)
{
	uint8_t *h = tar_grow(t, 512);

	t->last = t->len - 512;
	strncpy((char *)h, name, 100);
	memcpy(h + 100, "0000644", 8);
	snprintf((char *)h + 124, 12, "%011o", (unsigned int)size);
	h[156] = (uint8_t)type;
	memcpy(h + 257, "ustar", 6);
	h[263] = '0';
	h[264] = '0';
	tar_sum(t);
}

static inline void tar_body(struct tar_bytes *t, const void *bytes, uint64_t len)
{
	uint8_t *to = tar_grow(t, (len + 511) / 512 * 512);

	if (len)
		memcpy(to, bytes, len);
}

static inline void tar_member(struct tar_bytes *t, const char *name, char type, const void *bytes,
			      uint64_t len)
{
	tar_header(t, name, type, len);
	tar_body(t, bytes, len);
}

static inline void tar_end(struct tar_bytes *t)
{
	tar_grow(t, 1024);
}

/* -- changes of the latest header -- */

static inline void tar_prefix(struct tar_bytes *t, const char *prefix)
{
	strncpy((char *)t->bytes + t->last + 345, prefix, 155);
	tar_sum(t);
}

static inline void tar_base256(struct tar_bytes *t, uint64_t size)
{
	uint8_t *p = t->bytes + t->last + 124;

	memset(p, 0, 12);
	p[0] = 0x80;
	for (int i = 0; i < 8; i++)
		p[11 - i] = (uint8_t)(size >> (8 * i));
	tar_sum(t);
}

static inline void tar_v7(struct tar_bytes *t)
{
	memset(t->bytes + t->last + 257, 0, 255);
	tar_sum(t);
}

/* A name with a byte over 127 in the padding, and the sum as old tars take it. */
static inline void tar_signed(struct tar_bytes *t)
{
	uint8_t *h = t->bytes + t->last;
	int sum = 0;

	h[500] = 0xe9;
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (signed char)h[i];
	snprintf((char *)h + 148, 8, "%06o", (unsigned int)sum);
}

#endif

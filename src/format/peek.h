/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/peek.h - a window over a source, for scans that go through a file from the front; bounded memory,
 * few reads.
 */
#ifndef HR_FORMAT_PEEK_H
#define HR_FORMAT_PEEK_H

#include <stddef.h>
#include <stdint.h>

#include "base/source.h"

struct hr__peek {
	const struct hr_source *src;
	uint8_t *buf;
	size_t room;
	uint64_t start; /* of the file, where the buffer's bytes lie */
	size_t len;
};

/* hr__peek_open() - @room: the most bytes that can be seen at once. Return: 0 or -ENOMEM. */
int hr__peek_open(struct hr__peek *peek, const struct hr_source *src, size_t room);
void hr__peek_close(struct hr__peek *peek);

/*
 * hr__peek() - @len bytes at @offset, inside the file and not more than the room.
 * @ahead: when it has to be read, how much at least, because it will be wanted next.
 * @out: valid until the next call. Return: 0 or -code.
 */
int hr__peek(struct hr__peek *peek, uint64_t offset, size_t len, size_t ahead, const uint8_t **out);

#endif

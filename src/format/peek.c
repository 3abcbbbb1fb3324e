/* SPDX-License-Identifier: Apache-2.0 */
/* format/peek.c - a window over a source, see peek.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/peek.h"

int hr__peek_open(struct hr__peek *peek, const struct hr_source *src, size_t room)
{
	*peek = (struct hr__peek){.src = src, .room = room};
	peek->buf = malloc(room);
	return peek->buf ? 0 : hr__fail(ENOMEM, "%s: no memory to read it", src->name);
}

void hr__peek_close(struct hr__peek *peek)
{
	free(peek->buf);
	peek->buf = NULL;
}

int hr__peek(struct hr__peek *peek, uint64_t offset, size_t len, size_t ahead, const uint8_t **out)
{
	uint64_t size = peek->src->size;
	size_t want = (size_t)hr__min(hr__max(len, hr__min(ahead, peek->room)), size - offset);
	size_t have = 0;
	int rc = 0;

	if (offset >= peek->start && offset - peek->start <= peek->len &&
	    len <= peek->len - (offset - peek->start)) {
		*out = peek->buf + (offset - peek->start);
		return 0;
	}
	if (offset >= peek->start && offset - peek->start < peek->len) {
		have = peek->len - (size_t)(offset - peek->start);
		memmove(peek->buf, peek->buf + (offset - peek->start), have);
	}
	peek->len = 0; /* what a failed read leaves is nobody's */
	if (want > have)
		rc = peek->src->read(peek->src, offset + have, peek->buf + have, want - have);
	if (rc < 0)
		return rc;
	want = want > have ? want : have;
	peek->start = offset;
	peek->len = want;
	*out = peek->buf;
	return 0;
}

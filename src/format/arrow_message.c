/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/arrow_message.c - the messages that Arrow IPC is made of: a length, metadata, a body; knows no
 * schema and no columns.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/arrow.h"
#include "format/le.h"

#define FIRST_BYTES 4096u          /* of a message, in one read: mostly all of its metadata */
#define CONTINUATION 0xffffffffull /* before the length of a message, since 0.15 */

enum { MESSAGE_VERSION, MESSAGE_TYPE, MESSAGE_HEADER, MESSAGE_BODY_LENGTH };

int hr__arrow_refuse_at(const struct hr_source *src, uint64_t at, const char *what)
{
	return hr__fail(HR_E_BAD_FORMAT, "%s: byte %" PRIu64 ": %s", src->name, at, what);
}

static int parse_message(const struct hr_source *src, struct hr__arrow_message *m)
{
	struct hr__flat_table root = hr__flat_root(&m->flat);

	m->version = (uint32_t)hr__flat_number(&m->flat, &root, MESSAGE_VERSION, 2, 0);
	m->type = (uint32_t)hr__flat_number(&m->flat, &root, MESSAGE_TYPE, 1, 0);
	m->header = hr__flat_table(&m->flat, &root, MESSAGE_HEADER);
	m->body.len = hr__flat_number(&m->flat, &root, MESSAGE_BODY_LENGTH, 8, 0);
	if (m->flat.rc)
		return m->flat.rc;
	if (m->version < HR__ARROW_V4 || m->version > HR__ARROW_V5)
		return hr__arrow_refuse_at(
			src, m->flat.base,
			"its metadata is of a version that is not known (4 and 5 are); "
			"write it again with a current library");
	if (!m->header.at)
		return hr__flat_fail(&m->flat, 0, "a message without a header");
	return 0;
}

static int cut_off(const struct hr_source *src, uint64_t at)
{
	return hr__arrow_refuse_at(src, at,
				   "a message is cut off; the file was truncated, get it again");
}

/* Room for a message of @len bytes, of which the first @have are kept. */
static int grow(struct hr__arrow_reader *r, size_t have, size_t len)
{
	uint8_t *bytes;

	if (len <= r->room)
		return 0;
	bytes = malloc(len);
	if (!bytes)
		return hr__fail(ENOMEM, "%s: no memory for metadata of %zu bytes", r->src->name,
				len);
	if (have)
		memcpy(bytes, r->bytes, have);
	free(r->bytes);
	r->bytes = bytes;
	r->room = len;
	return 0;
}

int hr__arrow_read(struct hr__arrow_reader *r, uint64_t at, uint64_t end,
		   struct hr__arrow_message *m, uint64_t *next)
{
	const struct hr_source *src = r->src;
	size_t have = (size_t)hr__min(FIRST_BYTES, end - at), prefix = 4;
	uint64_t len;
	int rc;

	if (have < 4)
		return cut_off(src, at);
	rc = grow(r, 0, FIRST_BYTES);
	if (rc == 0)
		rc = src->read(src, at, r->bytes, have);
	if (rc < 0)
		return rc;
	len = hr__le32(r->bytes);
	if (len == CONTINUATION) {
		if (have < 8)
			return cut_off(src, at);
		len = hr__le32(r->bytes + 4);
		prefix = 8;
	}
	*next = at + prefix;
	if (len == 0)
		return 1;
	if (len > HR__ARROW_METADATA_MAX || len > end - at - prefix)
		return hr__arrow_refuse_at(
			src, at,
			"the metadata of a message does not fit the file; it was "
			"truncated or is no Arrow data, get it again");
	rc = grow(r, have, prefix + (size_t)len);
	if (rc == 0 && prefix + len > have)
		rc = src->read(src, at + have, r->bytes + have, prefix + (size_t)len - have);
	if (rc < 0)
		return rc;
	*m = (struct hr__arrow_message){.flat = {.name = src->name,
						 .base = at + prefix,
						 .bytes = r->bytes + prefix,
						 .len = (uint32_t)len}};
	rc = parse_message(src, m);
	if (rc < 0)
		return rc;
	m->body.offset = at + prefix + len;
	if (m->body.len > end - m->body.offset)
		return hr__arrow_refuse_at(
			src, m->body.offset,
			"the body of a message does not fit the file; it was truncated, "
			"get it again");
	*next = m->body.offset + m->body.len;
	return 0;
}

int hr__arrow_probe_stream(const void *head, size_t len, uint64_t file_size)
{
	const uint8_t *p = head;
	struct hr__flat flat = {.name = "", .bytes = p};
	struct hr__flat_table root;
	uint64_t metadata;
	uint32_t prefix = 4;

	if (len < 16)
		return 0;
	metadata = hr__le32(p);
	if (metadata == CONTINUATION) {
		metadata = hr__le32(p + 4);
		prefix = 8;
	}
	if (metadata > HR__ARROW_METADATA_MAX || metadata > file_size - prefix)
		return 0;
	flat.bytes = p + prefix;
	flat.len = (uint32_t)hr__min(metadata, len - prefix);
	root = hr__flat_root(&flat);
	if (hr__flat_number(&flat, &root, MESSAGE_TYPE, 1, 0) != HR__ARROW_SCHEMA ||
	    hr__flat_number(&flat, &root, MESSAGE_VERSION, 2, 0) > HR__ARROW_V5 || flat.rc)
		return 0;
	return prefix == 8 ? 95 : 60;
}

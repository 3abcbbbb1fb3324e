/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/example.c - the few messages of tf.train.Example (tensorflow/core/example/feature.proto), in the
 * encoding of protocol buffers (protobuf.dev, "Encoding"). Their depth is fixed, so there is no recursion.
 *
 *   Example   1: Features
 *   Features  1: repeated entry of a map: 1: name, 2: Feature
 *   Feature   one of 1: BytesList, 2: FloatList, 3: Int64List
 *   lists     1: repeated bytes; repeated float; repeated int64 (both packed, or one by one)
 */
#include <string.h>

#include "base/util.h"
#include "format/example.h"
#include "format/le.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

#define AHEAD 4096u
#define NOT_EXAMPLE 1 /* beside 0 and -code, inside of this file */

/* A message, or what is left of it. */
struct span {
	struct hr__peek *peek;
	uint64_t at, end;
};

/* One field of a message. */
struct field {
	uint64_t number, varint; /* varint: of WIRE_VARINT */
	enum wire wire;
	uint64_t offset, len; /* of its bytes */
};

static int take_varint(struct span *s, uint64_t *out)
{
	size_t room = (size_t)hr__min(10, s->end - s->at), i = 0;
	const uint8_t *p;
	uint64_t v = 0;
	int rc;

	if (!room)
		return NOT_EXAMPLE;
	rc = hr__peek(s->peek, s->at, room, AHEAD, &p);
	if (rc)
		return rc;
	for (; i < room; i++) {
		v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (!(p[i] & 0x80))
			break;
	}
	if (i == room || (i == 9 && p[9] > 1))
		return NOT_EXAMPLE;
	s->at += i + 1;
	*out = v;
	return 0;
}

static int take_field(struct span *s, struct field *f)
{
	uint64_t tag;
	int rc = take_varint(s, &tag);

	if (rc)
		return rc;
	*f = (struct field){.number = tag >> 3, .wire = (enum wire)(tag & 7)};
	switch (f->wire) {
	case WIRE_VARINT:
		f->offset = s->at;
		rc = take_varint(s, &f->varint);
		f->len = s->at - f->offset;
		return f->number ? rc : NOT_EXAMPLE;
	case WIRE_BYTES:
		rc = take_varint(s, &f->len);
		break;
	case WIRE_64:
		f->len = 8;
		break;
	case WIRE_32:
		f->len = 4;
		break;
	default:
		return NOT_EXAMPLE;
	}
	if (rc)
		return rc;
	if (!f->number || f->len > s->end - s->at)
		return NOT_EXAMPLE;
	f->offset = s->at;
	s->at += f->len;
	return 0;
}

static struct span inside(const struct span *s, const struct field *f)
{
	return (struct span){s->peek, f->offset, f->offset + f->len};
}

/* -- lists ------------------------------------------------------------------------------------ */

static int walk_bytes(struct span s, struct hr__feature *out)
{
	uint32_t n = 0;

	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc)
			return rc;
		if (f.number != 1 || f.wire != WIRE_BYTES)
			return NOT_EXAMPLE;
		out->cell = (struct hr__cell){HR__CELL_RANGE, f.offset, f.len};
		if (++n > 1) {
			out->cell.kind = HR__CELL_ABSENT;
			out->why = "several byte strings, which do not lie one behind the other";
		}
	}
	return 0;
}

static int walk_floats(struct span s, struct hr__feature *out)
{
	uint32_t n = 0;

	out->floats = true;
	out->cell = (struct hr__cell){HR__CELL_RANGE, s.end, 0};
	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc)
			return rc;
		if (f.number != 1 || (f.wire != WIRE_BYTES && f.wire != WIRE_32) || f.len % 4)
			return NOT_EXAMPLE;
		if (!f.len)
			continue;
		out->cell = (struct hr__cell){HR__CELL_RANGE, f.offset, f.len};
		if (++n > 1) {
			out->cell.kind = HR__CELL_ABSENT;
			out->why = "floats that are not packed, so that they do not lie one behind "
				   "the other";
		}
	}
	return 0;
}

static int walk_ints(struct span s, struct hr__feature *out)
{
	uint64_t n = 0, value = 0;

	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc)
			return rc;
		if (f.number != 1 || (f.wire != WIRE_BYTES && f.wire != WIRE_VARINT))
			return NOT_EXAMPLE;
		if (f.wire == WIRE_VARINT) {
			value = f.varint;
			n++;
			continue;
		}
		for (struct span packed = inside(&s, &f); packed.at < packed.end; n++) {
			rc = take_varint(&packed, &value);
			if (rc)
				return rc;
		}
	}
	if (n == 1)
		out->cell = (struct hr__cell){HR__CELL_I64, value, 0};
	else if (n > 1)
		out->why = "several integers, which are stored in as many bytes as each needs; "
			   "store such lists as bytes";
	return 0;
}

static int walk_feature(struct span s, struct hr__feature *out)
{
	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc)
			return rc;
		if (f.wire != WIRE_BYTES || f.number > 3)
			return NOT_EXAMPLE;
		/* One of three: the last one counts. */
		out->cell = (struct hr__cell){HR__CELL_ABSENT, 0, 0};
		out->floats = false;
		out->why = NULL;
		if (f.number == 1)
			rc = walk_bytes(inside(&s, &f), out);
		else if (f.number == 2)
			rc = walk_floats(inside(&s, &f), out);
		else
			rc = walk_ints(inside(&s, &f), out);
		if (rc)
			return rc;
	}
	return 0;
}

/* -- the messages around them ----------------------------------------------------------------- */

static int take_name(const struct span *s, const struct field *f, struct hr__feature *out)
{
	const uint8_t *p;
	int rc;

	if (f->len >= sizeof(out->name))
		return NOT_EXAMPLE;
	rc = hr__peek(s->peek, f->offset, (size_t)f->len, AHEAD, &p);
	if (rc)
		return rc;
	if (memchr(p, 0, (size_t)f->len))
		return NOT_EXAMPLE;
	memcpy(out->name, p, (size_t)f->len);
	out->name[f->len] = '\0';
	return 0;
}

static int walk_entry(struct span s, struct hr__feature *out)
{
	*out = (struct hr__feature){.name = ""};
	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc)
			return rc;
		if (f.wire != WIRE_BYTES || f.number > 2)
			return NOT_EXAMPLE;
		rc = f.number == 1 ? take_name(&s, &f, out) : walk_feature(inside(&s, &f), out);
		if (rc)
			return rc;
	}
	return 0;
}

static int walk_features(struct span s, int (*each)(void *ctx, const struct hr__feature *feature),
			 void *ctx)
{
	struct hr__feature feature;

	while (s.at < s.end) {
		struct field f;
		int rc = take_field(&s, &f);

		if (rc == 0 && (f.number != 1 || f.wire != WIRE_BYTES))
			rc = NOT_EXAMPLE;
		if (rc == 0)
			rc = walk_entry(inside(&s, &f), &feature);
		if (rc == 0)
			rc = each(ctx, &feature);
		if (rc)
			return rc;
	}
	return 0;
}

int hr__example_walk(struct hr__peek *peek, uint64_t offset, uint64_t len,
		     int (*each)(void *ctx, const struct hr__feature *feature), void *ctx)
{
	struct span s = {peek, offset, offset + len};
	int rc = 0;

	/* Of an empty message nobody can say what it is. */
	if (!len)
		return 0;
	while (s.at < s.end && rc == 0) {
		struct field f;

		rc = take_field(&s, &f);
		if (rc == 0 && (f.number != 1 || f.wire != WIRE_BYTES))
			rc = NOT_EXAMPLE; /* 2: of a SequenceExample */
		if (rc == 0)
			rc = walk_features(inside(&s, &f), each, ctx);
	}
	return rc < 0 ? rc : rc != NOT_EXAMPLE;
}

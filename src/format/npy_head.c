/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/npy_head.c - the head of a .npy array: magic, version, and a Python dict that is scanned as
 * text and never evaluated. Knows neither samples nor archives.
 *
 * Versions 1 to 3 as numpy.lib.format documents them: the length of the dict in 2 or 4 bytes, then
 * {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and white space up to that length.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/le.h"
#include "format/npy.h"

#define DICT_BYTES_MAX 10000u /* numpy refuses more, too, unless told to trust the file */
#define DESCR_MAX 16u

/* A cursor over the dict, and what it has said so far. */
struct scan {
	const char *name, *member;
	uint64_t base; /* where the text begins in the file */
	const char *start, *at, *end, *type_at;
	char descr[DESCR_MAX];
	bool fortran, seen_descr, seen_order, seen_shape;
	struct hr__npy *out;
};

static int refuse(const struct scan *s, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(const struct scan *s, int code, const char *format, ...)
{
	char text[320];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return hr__fail(code, "%s: %s%sbyte %" PRIu64 ": %s", s->name, s->member ? s->member : "",
			s->member ? ": " : "", s->base + (uint64_t)(s->at - s->start), text);
}

static int refuse_text(const struct scan *s, const char *expected)
{
	return refuse(s, HR_E_BAD_FORMAT,
		      "the head of a .npy array has %s here; the file is damaged or no .npy, "
		      "save it again with numpy.save()",
		      expected);
}

static void skip_space(struct scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n'))
		s->at++;
}

/* Take @c if it is next. */
static bool take(struct scan *s, char c)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

static bool take_word(struct scan *s, const char *word)
{
	size_t len = strlen(word);

	skip_space(s);
	if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
		return false;
	s->at += len;
	return true;
}

/* A string without escapes; longer ones than @size - 1 are nothing that we know. */
static int take_string(struct scan *s, char *out, size_t size)
{
	size_t len = 0;
	char quote;

	skip_space(s);
	if (s->at == s->end || (*s->at != '\'' && *s->at != '"'))
		return refuse_text(s, "a text in quotes");
	quote = *s->at++;
	while (s->at < s->end && *s->at != quote) {
		if (len == size - 1 || !isprint((unsigned char)*s->at) || *s->at == '\\')
			return refuse_text(s, "a short text in quotes");
		out[len++] = *s->at++;
	}
	if (s->at == s->end)
		return refuse_text(s, "the end of a text in quotes");
	s->at++;
	out[len] = '\0';
	return 0;
}

static int take_length(struct scan *s, uint64_t *out)
{
	const char *first;

	skip_space(s);
	first = s->at;
	*out = 0;
	for (; s->at < s->end && isdigit((unsigned char)*s->at); s->at++) {
		if (hr__mul_overflows(*out, 10, out) ||
		    hr__add_overflows(*out, (uint64_t)(*s->at - '0'), out))
			return refuse(s, HR_E_BAD_FORMAT,
				      "a length beyond 2^64; the file is damaged, copy it again");
	}
	if (s->at == first || (*first == '0' && s->at - first > 1))
		return refuse_text(s, "a length in digits");
	if (s->at < s->end && *s->at == 'L') /* a long integer of Python 2 */
		s->at++;
	return 0;
}

static int take_shape(struct scan *s)
{
	struct hr__npy *out = s->out;
	bool comma = true;

	if (!take(s, '('))
		return refuse_text(s, "a shape in round brackets");
	while (!take(s, ')')) {
		int rc;

		if (!comma)
			return refuse_text(s, "a comma or the end of the shape");
		if (out->ndim == HR_DIMS_MAX)
			return refuse(s, HR_E_BAD_FORMAT,
				      "more than %u dimensions; reshape the array before it is "
				      "saved",
				      HR_DIMS_MAX);
		rc = take_length(s, &out->shape[out->ndim++]);
		if (rc < 0)
			return rc;
		comma = take(s, ',');
	}
	/* (3) is a number in Python, (3,) a tuple. */
	if (out->ndim == 1 && !comma)
		return refuse_text(s, "a comma behind a single length");
	s->seen_shape = true;
	return 0;
}

static int take_descr(struct scan *s)
{
	skip_space(s);
	s->type_at = s->at;
	if (s->at < s->end && (*s->at == '[' || *s->at == '('))
		return refuse(s, HR_E_BAD_DTYPE,
			      "an array of structures; save each of its fields as an array of its "
			      "own, numpy.savez() keeps them together");
	s->seen_descr = true;
	return take_string(s, s->descr, sizeof(s->descr));
}

static int take_order(struct scan *s)
{
	s->fortran = take_word(s, "True");
	if (!s->fortran && !take_word(s, "False"))
		return refuse_text(s, "True or False");
	s->seen_order = true;
	return 0;
}

static int take_entry(struct scan *s)
{
	char key[DESCR_MAX];
	int rc = take_string(s, key, sizeof(key));

	if (rc < 0)
		return rc;
	if (!take(s, ':'))
		return refuse_text(s, "a colon");
	if (strcmp(key, "descr") == 0 && !s->seen_descr)
		return take_descr(s);
	if (strcmp(key, "fortran_order") == 0 && !s->seen_order)
		return take_order(s);
	if (strcmp(key, "shape") == 0 && !s->seen_shape)
		return take_shape(s);
	return refuse_text(s, "descr, fortran_order and shape, once each,");
}

static int take_dict(struct scan *s)
{
	bool comma = true;

	if (!take(s, '{'))
		return refuse_text(s, "a dict");
	while (!take(s, '}')) {
		int rc;

		if (!comma)
			return refuse_text(s, "a comma or the end of the dict");
		rc = take_entry(s);
		if (rc < 0)
			return rc;
		comma = take(s, ',');
	}
	skip_space(s);
	if (s->at < s->end)
		return refuse_text(s, "nothing but white space behind the dict");
	if (!s->seen_descr || !s->seen_order || !s->seen_shape)
		return refuse_text(s, "descr, fortran_order and shape, once each,");
	return 0;
}

/* -- element types --------------------------------------------------------------------------- */

static const struct {
	const char *text; /* without the order of bytes */
	enum hr_dtype dtype;
} types[] = {
	{"b1", HR_DTYPE_BOOL}, {"i1", HR_DTYPE_I8},  {"u1", HR_DTYPE_U8},  {"i2", HR_DTYPE_I16},
	{"u2", HR_DTYPE_U16},  {"i4", HR_DTYPE_I32}, {"u4", HR_DTYPE_U32}, {"i8", HR_DTYPE_I64},
	{"u8", HR_DTYPE_U64},  {"f2", HR_DTYPE_F16}, {"f4", HR_DTYPE_F32}, {"f8", HR_DTYPE_F64},
};

static int refuse_type(const struct scan *s)
{
	static const struct {
		char kind;
		const char *why;
	} kinds[] = {
		{'O',
		 "Python objects, which only pickle can read and which may run code then; save "
		 "them as plain arrays"},
		{'V',
		 "bytes without a meaning, as numpy.save() writes types that it does not know, "
		 "such as bfloat16; save a view of them (uint8 or uint16) or use safetensors"},
		{'c', "complex numbers; save the view as floats, with one dimension of 2 more"},
		{'U', "texts; save their numbers (tokens) instead"},
		{'S', "texts; save their numbers (tokens) instead"},
		{'M', "points in time; save their view as int64"},
		{'m', "spans of time; save their view as int64"},
	};
	char kind = s->descr[0] ? s->descr[1] : '\0';

	if (s->descr[0] == '|' && strcmp(s->descr, "|O") == 0)
		kind = 'O';
	for (size_t i = 0; i < HR_ARRAY_LEN(kinds); i++) {
		if (kinds[i].kind == kind)
			return refuse(s, HR_E_BAD_DTYPE, "elements of type \"%s\" are %s", s->descr,
				      kinds[i].why);
	}
	return refuse(
		s, HR_E_BAD_DTYPE,
		"elements of type \"%s\" are not known here; save the array with one of bool, "
		"int8 to int64, uint8 to uint64, float16, float32, float64",
		s->descr);
}

static int judge_type(const struct scan *s, enum hr_dtype *out)
{
	char order = s->descr[0];

	/* The extension type bfloat16 of ml_dtypes; numpy's own void of two bytes is "|V2". */
	if (strcmp(s->descr, "<V2") == 0) {
		*out = HR_DTYPE_BF16;
		return 0;
	}
	for (size_t i = 0; order && i < HR_ARRAY_LEN(types); i++) {
		bool single = hr_dtype_size(types[i].dtype) == 1;

		if (strcmp(s->descr + 1, types[i].text) != 0)
			continue;
		if (order == '<' || (single && (order == '|' || order == '>')))
			*out = types[i].dtype;
		else if (order == '>')
			return refuse(s, HR_E_BAD_DTYPE,
				      "elements of type \"%s\" have their highest byte first; save "
				      "a.astype(a.dtype.newbyteorder('<'))",
				      s->descr);
		else
			break;
		return 0;
	}
	return refuse_type(s);
}

static int judge(const struct scan *s, uint64_t end)
{
	struct hr__npy *out = s->out;
	struct scan type = *s; /* refusals of the type point at its text */
	int rc;

	type.at = s->type_at;
	rc = judge_type(&type, &out->dtype);
	if (rc < 0)
		return rc;
	if (s->fortran && out->ndim > 1)
		return refuse(s, HR_E_BAD_FORMAT,
			      "the array has its first index fastest (fortran_order), so that its "
			      "rows are scattered; save numpy.ascontiguousarray() of it");
	out->elements = 1;
	for (uint32_t d = 0; d < out->ndim; d++) {
		if (hr__mul_overflows(out->elements, out->shape[d], &out->elements))
			return refuse(s, HR_E_BAD_FORMAT,
				      "a shape of more than 2^64 elements; the file is damaged, "
				      "copy it again");
	}
	if (hr__mul_overflows(out->elements, hr_dtype_size(out->dtype), &out->bytes) ||
	    out->bytes > end - out->data)
		return refuse(s, HR_E_BAD_FORMAT,
			      "%" PRIu64 " elements of type %s are promised but %" PRIu64
			      " bytes follow; it was truncated, copy it again",
			      out->elements, hr_dtype_name(out->dtype), end - out->data);
	if (out->bytes < end - out->data)
		return refuse(s, HR_E_BAD_FORMAT,
			      "%" PRIu64
			      " bytes follow behind the array; was a second one saved to "
			      "the same file? Save one array a file, or all with numpy.savez()",
			      end - out->data - out->bytes);
	return 0;
}

/* Magic and version. Return: bytes before the dict, and its length in *@len; or -code. */
static int parse_version(struct scan *s, const uint8_t *head, uint64_t size, uint64_t *len)
{
	uint32_t before;

	s->start = s->at = (const char *)head;
	if (size < 10 || memcmp(head, HR__NPY_MAGIC, HR__NPY_MAGIC_BYTES) != 0)
		return refuse(
			s, HR_E_BAD_FORMAT,
			"no head of a .npy array; the file is damaged or something else, copy "
			"it again");
	s->at += HR__NPY_MAGIC_BYTES;
	if (head[6] < 1 || head[6] > 3 || head[7] != 0)
		return refuse(s, HR_E_BAD_FORMAT,
			      "version %u.%u of the .npy format, known are 1.0, 2.0 and 3.0; save "
			      "it again with numpy.save()",
			      head[6], head[7]);
	before = head[6] == 1 ? 10 : 12;
	*len = head[6] == 1 ? hr__le16(head + 8) : hr__le32(head + 8);
	s->at += 2;
	if (size < before || *len > size - before)
		return refuse(s, HR_E_BAD_FORMAT,
			      "a head of %" PRIu64 " bytes in an array of %" PRIu64
			      "; it was truncated, copy it again",
			      *len, size);
	if (*len > DICT_BYTES_MAX)
		return refuse(s, HR_E_BAD_FORMAT,
			      "a head of %" PRIu64 " bytes, at most %u are read; save plain arrays",
			      *len, DICT_BYTES_MAX);
	return (int)before;
}

int hr__npy_parse(const struct hr_source *src, uint64_t offset, uint64_t size, const char *member,
		  struct hr__npy *out)
{
	uint8_t head[12 + DICT_BYTES_MAX] = {0};
	struct scan s = {.name = src->name, .member = member, .base = offset, .out = out};
	uint64_t len = 0;
	int rc = src->read(src, offset, head, (size_t)hr__min(size, 12)), before;

	if (rc < 0)
		return rc;
	before = parse_version(&s, head, size, &len);
	if (before < 0)
		return before;
	rc = src->read(src, offset, head, (size_t)len + (size_t)before);
	if (rc < 0)
		return rc;
	*out = (struct hr__npy){.data = offset + (uint64_t)before + len};
	s.at = (const char *)head + before;
	s.end = s.at + len;
	rc = take_dict(&s);
	return rc < 0 ? rc : judge(&s, offset + size);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/json.c - the strict scanner of json.h (RFC 8259); knows no format that is written in JSON.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "base/util.h"
#include "format/json.h"

#define DEPTH_MAX 64u

void hr__json_begin(struct hr__json *j, const char *name, const void *bytes, size_t len, char *text)
{
	*j = (struct hr__json){
		.name = name,
		.remedy = "it is damaged or no such file, get it again",
		.start = bytes,
		.at = bytes,
		.end = (const uint8_t *)bytes + len,
		.text = text,
	};
}

int hr__json_fail(const struct hr__json *j, const char *format, ...)
{
	char what[320];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	return hr__fail(HR_E_BAD_FORMAT, "%s: byte %" PRIu64 ": %s; %s", j->name,
			j->base + (uint64_t)(j->at - j->start), what, j->remedy);
}

const char *hr__json_show(char out[HR__JSON_SHOWN], const char *text)
{
	size_t n = strnlen(text, HR__JSON_SHOWN - 4);
	bool cut = text[n];

	/* Not inside a character. */
	while (cut && n && ((uint8_t)text[n] & 0xc0) == 0x80)
		n--;
	memcpy(out, text, n);
	memcpy(out + n, cut ? "..." : "", cut ? 4 : 1);
	hr__utf8_clean(out);
	return out;
}

static void skip_space(struct hr__json *j)
{
	while (j->at < j->end &&
	       (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
		j->at++;
}

/* The byte at the cursor, for sentences. */
static const char *found(const struct hr__json *j, char text[16])
{
	if (j->at == j->end)
		return "the end";
	if (*j->at > 0x20 && *j->at < 0x7f)
		snprintf(text, 16, "'%c'", *j->at);
	else
		snprintf(text, 16, "byte 0x%02x", *j->at);
	return text;
}

static int expect(struct hr__json *j, char wanted, const char *what)
{
	char text[16];

	skip_space(j);
	if (j->at < j->end && *j->at == (uint8_t)wanted) {
		j->at++;
		return 0;
	}
	return hr__json_fail(j, "'%c' of %s expected, found %s", wanted, what, found(j, text));
}

int hr__json_open(struct hr__json *j, char bracket, const char *what)
{
	return expect(j, bracket, what);
}

int hr__json_more(struct hr__json *j, char close, bool *first)
{
	char text[16];

	skip_space(j);
	if (j->at < j->end && *j->at == (uint8_t)close) {
		j->at++;
		return 0;
	}
	if (*first) {
		*first = false;
		return 1;
	}
	if (j->at == j->end || *j->at != ',')
		return hr__json_fail(j, "',' or '%c' expected, found %s", close, found(j, text));
	j->at++;
	skip_space(j);
	if (j->at < j->end && *j->at == (uint8_t)close)
		return hr__json_fail(j, "a comma with nothing behind it");
	return 1;
}

/* -- strings ---------------------------------------------------------------------------------- */

static int put_utf8(char *to, uint32_t c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Four hexadecimal digits. Return: the number, or -1. */
static int32_t hex4(struct hr__json *j)
{
	int32_t value = 0;

	if (j->end - j->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		uint8_t c = j->at[i];

		if (c >= '0' && c <= '9')
			value = value << 4 | (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	j->at += 4;
	return value;
}

/* Behind "\u": one UTF-16 unit, or two that belong together. Return: bytes written to @to, -code. */
static int unicode_escape(struct hr__json *j, const char *what, char *to)
{
	int32_t c = hex4(j), low;

	if (c < 0)
		return hr__json_fail(j, "%s has a \\u without four hexadecimal digits", what);
	if (!c)
		return hr__json_fail(j, "%s has a NUL character in it", what);
	if (c >= 0xdc00 && c <= 0xdfff)
		return hr__json_fail(j, "%s has a lone surrogate \\u%04" PRIx32, what, c);
	if (c >= 0xd800 && c <= 0xdbff) {
		if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u')
			return hr__json_fail(j, "%s has a lone surrogate \\u%04" PRIx32, what, c);
		j->at += 2;
		low = hex4(j);
		if (low < 0xdc00 || low > 0xdfff)
			return hr__json_fail(j, "%s has a lone surrogate \\u%04" PRIx32, what, c);
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	return put_utf8(to, (uint32_t)c);
}

/* Behind a backslash. Return: bytes written to @to, -code. */
static int escape(struct hr__json *j, const char *what, char *to)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char *at;
	char text[16];

	if (j->at < j->end && *j->at == 'u') {
		j->at++;
		return unicode_escape(j, what, to);
	}
	at = j->at < j->end && *j->at ? strchr(from, *j->at) : NULL;
	if (!at)
		return hr__json_fail(j, "%s has an unknown escape: a backslash before %s", what,
				     found(j, text));
	j->at++;
	*to = into[at - from];
	return 1;
}

int hr__json_string(struct hr__json *j, const char *what, const char **out)
{
	char *to = j->text + j->used, text[16];

	skip_space(j);
	if (j->at == j->end || *j->at != '"')
		return hr__json_fail(j, "%s must be a string, found %s", what, found(j, text));
	j->at++;
	*out = to;
	while (j->at < j->end && *j->at != '"') {
		size_t len;

		if (*j->at == '\\') {
			int n;

			j->at++;
			n = escape(j, what, to);
			if (n < 0)
				return n;
			to += n;
			continue;
		}
		if (*j->at < 0x20)
			return hr__json_fail(j, "%s has a raw control character, %s", what,
					     found(j, text));
		len = hr__utf8_len(j->at, (size_t)(j->end - j->at));
		if (!len)
			return hr__json_fail(j, "%s is not valid UTF-8 at %s", what,
					     found(j, text));
		memcpy(to, j->at, len);
		to += len;
		j->at += len;
	}
	if (j->at == j->end)
		return hr__json_fail(j, "%s has no closing quote", what);
	j->at++;
	*to++ = '\0';
	j->used = (size_t)(to - j->text);
	return 0;
}

int hr__json_key(struct hr__json *j, const char *what, const char **out)
{
	int ret = hr__json_string(j, what, out);

	return ret ? ret : expect(j, ':', what);
}

/* -- other values ----------------------------------------------------------------------------- */

static bool is_digit(const struct hr__json *j)
{
	return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

int hr__json_u64(struct hr__json *j, const char *what, uint64_t *out)
{
	const uint8_t *start;
	uint64_t value = 0;
	char text[16];

	skip_space(j);
	start = j->at;
	if (j->at < j->end && *j->at == '-')
		return hr__json_fail(j, "%s is negative", what);
	if (!is_digit(j))
		return hr__json_fail(j, "%s must be a number, found %s", what, found(j, text));
	for (; is_digit(j); j->at++) {
		if (hr__mul_overflows(value, 10, &value) ||
		    hr__add_overflows(value, (uint64_t)(*j->at - '0'), &value))
			return hr__json_fail(j, "%s is more than 2^64 - 1", what);
	}
	if (*start == '0' && j->at - start > 1)
		return hr__json_fail(j, "%s has a leading zero", what);
	if (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E'))
		return hr__json_fail(j, "%s must be written in digits alone, found %s", what,
				     found(j, text));
	*out = value;
	return 0;
}

static bool take_word(struct hr__json *j, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0)
		return false;
	j->at += len;
	return true;
}

bool hr__json_null(struct hr__json *j)
{
	skip_space(j);
	return take_word(j, "null");
}

/* Any number of the grammar. */
static int skip_number(struct hr__json *j)
{
	const uint8_t *start;

	if (*j->at == '-')
		j->at++;
	start = j->at;
	while (is_digit(j))
		j->at++;
	if (j->at == start || (*start == '0' && j->at - start > 1))
		return hr__json_fail(j, "a number is not written as JSON wants it");
	if (j->at < j->end && *j->at == '.') {
		j->at++;
		if (!is_digit(j))
			return hr__json_fail(j, "a number ends with its point");
		while (is_digit(j))
			j->at++;
	}
	if (j->at < j->end && (*j->at | 0x20) == 'e') {
		j->at++;
		if (j->at < j->end && (*j->at == '+' || *j->at == '-'))
			j->at++;
		if (!is_digit(j))
			return hr__json_fail(j, "a number has an empty exponent");
		while (is_digit(j))
			j->at++;
	}
	return 0;
}

/* A value that holds no others. */
static int skip_simple(struct hr__json *j)
{
	size_t used = j->used;
	const char *text;
	char shown[16];
	int ret;

	if (j->at < j->end && *j->at == '"') {
		ret = hr__json_string(j, "a string", &text);
		hr__json_forget(j, used);
		return ret;
	}
	if (j->at < j->end && (*j->at == '-' || is_digit(j)))
		return skip_number(j);
	if (take_word(j, "true") || take_word(j, "false") || take_word(j, "null"))
		return 0;
	return hr__json_fail(j, "a value expected, found %s", found(j, shown));
}

int hr__json_skip(struct hr__json *j)
{
	uint64_t objects = 0; /* bit d: level d is an object, not an array */
	uint64_t firsts = 0;  /* bit d: nothing of level d was read yet */
	uint32_t depth = 0;

	do {
		size_t used = j->used;
		const char *key;
		uint64_t bit;
		bool first;
		int ret;

		if (depth) {
			bit = 1ull << (depth - 1);
			first = firsts & bit;
			ret = hr__json_more(j, objects & bit ? '}' : ']', &first);
			firsts &= ~bit;
			if (ret < 0)
				return ret;
			if (!ret) {
				depth--;
				continue;
			}
			if (objects & bit) {
				ret = hr__json_key(j, "a key", &key);
				hr__json_forget(j, used);
				if (ret)
					return ret;
			}
		}
		skip_space(j);
		if (j->at < j->end && (*j->at == '{' || *j->at == '[')) {
			if (depth == DEPTH_MAX)
				return hr__json_fail(j, "more than %u values inside each other",
						     DEPTH_MAX);
			bit = 1ull << depth++;
			objects = *j->at == '{' ? objects | bit : objects & ~bit;
			firsts |= bit;
			j->at++;
			continue;
		}
		ret = skip_simple(j);
		if (ret)
			return ret;
	} while (depth);
	return 0;
}

int hr__json_finish(struct hr__json *j)
{
	char text[16];

	skip_space(j);
	if (j->at == j->end)
		return 0;
	return hr__json_fail(j, "something follows behind the closing brace: %s", found(j, text));
}

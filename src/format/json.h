/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/json.h - a strict scanner for JSON text that came from a stranger: a cursor over bytes, no
 * tree, no recursion, no allocation. Callers ask for what they expect next.
 *
 * Strings are decoded into memory of the caller, which is as long as the input: what is decoded is
 * never longer than its encoding. All functions return 0 or a count, or -HR_E_BAD_FORMAT with a
 * sentence that says at which byte of the file what is wrong.
 */
#ifndef HR_FORMAT_JSON_H
#define HR_FORMAT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hr__json {
	const char *name;   /* of the file */
	const char *remedy; /* ends each sentence */
	uint64_t base;      /* where the text begins in the file */
	const uint8_t *start, *at, *end;
	char *text; /* decoded strings */
	size_t used;
};

/* @text: room for @len + 1 bytes. */
void hr__json_begin(struct hr__json *j, const char *name, const void *bytes, size_t len,
		    char *text);

/* hr__json_fail() - refuse what is at the cursor. Return: -HR_E_BAD_FORMAT. */
int hr__json_fail(const struct hr__json *j, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* hr__json_open() - '{' or '[' of something that sentences call @what. */
int hr__json_open(struct hr__json *j, char bracket, const char *what);

/*
 * hr__json_more() - is there another member before the bracket @close? Takes the comma or the bracket.
 * @first: true before the first call. Return: 1, 0, -code.
 */
int hr__json_more(struct hr__json *j, char close, bool *first);

/* hr__json_string() - decoded, NUL-terminated; U+0000 and invalid UTF-8 are refused. */
int hr__json_string(struct hr__json *j, const char *what, const char **out);

/* hr__json_key() - a string and the colon behind it. */
int hr__json_key(struct hr__json *j, const char *what, const char **out);

/* hr__json_u64() - a number written in digits: no sign, fraction, exponent or leading zero. */
int hr__json_u64(struct hr__json *j, const char *what, uint64_t *out);

/* hr__json_null() - take "null" if it is next. Return: true if it was. */
bool hr__json_null(struct hr__json *j);

/* hr__json_skip() - any value, at most 64 levels deep. */
int hr__json_skip(struct hr__json *j);

/* hr__json_finish() - nothing but white space may follow. */
int hr__json_finish(struct hr__json *j);

/* hr__json_forget() - give back the memory of strings decoded since @used was noted. */
static inline void hr__json_forget(struct hr__json *j, size_t used)
{
	j->used = used;
}

/*
 * hr__json_show() - a text from a file, as it may be printed: short, without control characters.
 * Return: @out.
 */
#define HR__JSON_SHOWN 128u
const char *hr__json_show(char out[HR__JSON_SHOWN], const char *text);

#endif

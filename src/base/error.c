/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.c - the error table and the sentence of the last failure of each thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/utf8.h"

static _Thread_local char last_sentence[640];

const char *hr_strerror(int code)
{
	if (code < 0)
		code = -code;
	switch (code) {
	case 0:
		return "success";
#define CASE(name, number, text)                                                                   \
	case name:                                                                                 \
		return text;
		HR_ERROR_MAP(CASE)
#undef CASE
	default: {
		const char *text = strerrordesc_np(code);

		return text ? text : "unknown error";
	}
	}
}

const char *hr_error_name(int code)
{
	if (code < 0)
		code = -code;
	switch (code) {
#define CASE(name, number, text)                                                                   \
	case name:                                                                                 \
		return #name;
		HR_ERROR_MAP(CASE)
#undef CASE
	default: {
		const char *name = strerrorname_np(code);

		return name ? name : "E?";
	}
	}
}

const char *hr_error_detail(void)
{
	return last_sentence;
}

int hr__fail(int code, const char *format, ...)
{
	char text[sizeof(last_sentence)]; /* the arguments may point into the old sentence */
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return hr__fail_set(code, text);
}

int hr__fail_set(int code, const char *sentence)
{
	size_t len = strnlen(sentence, sizeof(last_sentence) - 1);

	memmove(last_sentence, sentence, len);
	last_sentence[len] = '\0';
	hr__utf8_clean(last_sentence);
	return code < 0 ? code : -code;
}

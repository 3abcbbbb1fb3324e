/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.h - text that came from outside: is it UTF-8, and may a terminal see it. */
#ifndef HR_BASE_UTF8_H
#define HR_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * hr__utf8_len() - bytes of the character at @p, of which @left may be looked at.
 * Return: 1 to 4, or 0 if it is none: no overlong forms, no surrogates (RFC 3629, section 4).
 */
size_t hr__utf8_len(const uint8_t *p, size_t left);

/*
 * hr__utf8_clean() - make @text fit to be shown: a '?' for each byte that is no UTF-8 or belongs to a
 * control character, so that the name of a file cannot speak to a terminal.
 */
void hr__utf8_clean(char *text);

#endif

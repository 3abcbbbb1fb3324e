/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.c - see utf8.h. */
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

size_t hr__utf8_len(const uint8_t *p, size_t left)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t len;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (left < len || p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	return len;
}

/* C0 and DEL, and C1, which are 0xc2 0x80 to 0xc2 0x9f. */
static bool is_control(const uint8_t *p, size_t len)
{
	return len == 1 ? p[0] < 0x20 || p[0] == 0x7f : len == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

void hr__utf8_clean(char *text)
{
	uint8_t *p = (uint8_t *)text;
	size_t left = strlen(text);

	while (left) {
		size_t len = hr__utf8_len(p, left), step = len ? len : 1;

		if (!len || is_control(p, len))
			memset(p, '?', step);
		p += step;
		left -= step;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/convert.h - the naive conversion of element types: what a C programmer would write, for checks. */
#ifndef HR_CLI_CONVERT_H
#define HR_CLI_CONVERT_H

#include "cli/cli.h"

/* cli_convert() - @n little-endian elements. @from and @to satisfy hr_cast_ok(). */
void cli_convert(void *dst, enum hr_dtype to, const void *src, enum hr_dtype from, uint64_t n);

/* cli_same() - are two elements of @type equal? Any NaN equals any NaN. */
bool cli_same(const void *a, const void *b, enum hr_dtype type);

/* cli_show() - an element for a person, into @text of CLI_TEXT_BYTES. Return: @text. */
const char *cli_show(char *text, const void *p, enum hr_dtype type);

#endif

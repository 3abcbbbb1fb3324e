/* SPDX-License-Identifier: Apache-2.0 */
/* base/dtype.c - names and sizes of element types and paths: tables only. */
#include <errno.h>
#include <string.h>

#include <headrace/dtype.h>
#include <headrace/io.h>

#include "base/util.h"

static const struct {
	const char *name;
	uint32_t size;
} dtypes[] = {
#define ROW(symbol, number, bytes, text) [symbol] = {text, bytes},
	HR_DTYPE_MAP(ROW)
#undef ROW
};

static const char *const paths[] = {
#define ROW(symbol, number, text) [symbol] = text,
	HR_PATH_MAP(ROW)
#undef ROW
};

_Static_assert(HR_ARRAY_LEN(paths) <= HR_PATH_MAX, "raise HR_PATH_MAX");

uint32_t hr_dtype_size(enum hr_dtype type)
{
	return (uint32_t)type < HR_ARRAY_LEN(dtypes) ? dtypes[type].size : 0;
}

const char *hr_dtype_name(enum hr_dtype type)
{
	return (uint32_t)type < HR_ARRAY_LEN(dtypes) ? dtypes[type].name : "?";
}

int hr_dtype_parse(const char *text, enum hr_dtype *out)
{
	for (uint32_t i = 0; i < HR_ARRAY_LEN(dtypes); i++) {
		if (!strcmp(dtypes[i].name, text)) {
			*out = (enum hr_dtype)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool hr_cast_ok(enum hr_dtype from, enum hr_dtype to)
{
	if (from == to)
		return hr_dtype_size(from) != 0;
	if (to != HR_DTYPE_I32 && to != HR_DTYPE_I64)
		return false;
	return from == HR_DTYPE_U8 || from == HR_DTYPE_U16 || from == HR_DTYPE_U32;
}

const char *hr_path_name(enum hr_path path)
{
	return (uint32_t)path < HR_ARRAY_LEN(paths) ? paths[path] : "?";
}

int hr_path_parse(const char *text, enum hr_path *out)
{
	for (uint32_t i = 0; i < HR_ARRAY_LEN(paths); i++) {
		if (!strcmp(paths[i], text)) {
			*out = (enum hr_path)i;
			return 0;
		}
	}
	return -EINVAL;
}

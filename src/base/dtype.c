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

/* Row by row the table of headrace/dtype.h. */
static const struct {
	uint32_t targets; /* 1u << type */
	const char *names;
} casts[HR_DTYPE_COUNT_] = {
#define TO(type) (1u << HR_DTYPE_##type)
	[HR_DTYPE_U8] = {TO(I32) | TO(I64), "i32, i64"},
	[HR_DTYPE_U16] = {TO(I32) | TO(I64), "i32, i64"},
	[HR_DTYPE_U32] = {TO(I32) | TO(I64), "i32, i64"},
	[HR_DTYPE_I8] = {TO(I32) | TO(I64), "i32, i64"},
	[HR_DTYPE_I16] = {TO(I32) | TO(I64), "i32, i64"},
	[HR_DTYPE_I32] = {TO(I64), "i64"},
	[HR_DTYPE_F16] = {TO(BF16) | TO(F32), "bf16, f32"},
	[HR_DTYPE_BF16] = {TO(F16) | TO(F32), "f16, f32"},
	[HR_DTYPE_F32] = {TO(F16) | TO(BF16) | TO(F64), "f16, bf16, f64"},
	[HR_DTYPE_F64] = {TO(F32), "f32"},
#undef TO
};

bool hr_cast_ok(enum hr_dtype from, enum hr_dtype to)
{
	if ((uint32_t)from >= HR_DTYPE_COUNT_ || (uint32_t)to >= HR_DTYPE_COUNT_)
		return false;
	return from == to || casts[from].targets >> to & 1;
}

const char *hr_cast_names(enum hr_dtype from)
{
	return (uint32_t)from < HR_DTYPE_COUNT_ && casts[from].names ? casts[from].names : "";
}

_Static_assert(HR_DTYPE_COUNT_ <= 32, "targets has a bit for each");

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

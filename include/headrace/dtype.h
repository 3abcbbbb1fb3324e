/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/dtype.h - element types and the conversions that the device can do while it gathers.
 */
#ifndef HEADRACE_DTYPE_H
#define HEADRACE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, size in bytes, text). HR_DTYPE_BYTES means: bytes, no conversion. */
#define HR_DTYPE_MAP(X)                                                                            \
	X(HR_DTYPE_BYTES, 0, 1, "bytes")                                                           \
	X(HR_DTYPE_U8, 1, 1, "u8")                                                                 \
	X(HR_DTYPE_U16, 2, 2, "u16")                                                               \
	X(HR_DTYPE_U32, 3, 4, "u32")                                                               \
	X(HR_DTYPE_I32, 4, 4, "i32")                                                               \
	X(HR_DTYPE_I64, 5, 8, "i64")

#define HR__DTYPE_ENUM(name, number, size, text) name = number,
enum hr_dtype { HR_DTYPE_MAP(HR__DTYPE_ENUM) HR_DTYPE_COUNT_ };
#undef HR__DTYPE_ENUM

/* hr_dtype_size() - bytes of one element, 0 for an unknown type. */
uint32_t hr_dtype_size(enum hr_dtype type);

/* hr_dtype_name() - "u16"; "?" for an unknown type. */
const char *hr_dtype_name(enum hr_dtype type);

/* hr_dtype_parse() - the reverse. Return: 0 and *@out, or -EINVAL. */
int hr_dtype_parse(const char *text, enum hr_dtype *out);

/*
 * hr_cast_ok() - can @from become @to on the way?
 *
 * True for equal types, and for u8, u16, u32 -> i32, i64 (u32 -> i32 keeps the bits: values from
 * 2^31 turn negative, as a C cast does).
 */
bool hr_cast_ok(enum hr_dtype from, enum hr_dtype to);

#ifdef __cplusplus
}
#endif
#endif

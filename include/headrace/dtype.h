/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/dtype.h - element types and the conversions that the device can do while it gathers.
 *
 *   from      to
 *   u8        i32  i64
 *   u16       i32  i64
 *   u32       i32  i64           i32 keeps the bits: values from 2^31 on turn negative
 *   i8        i32  i64           of the same value, as those below
 *   i16       i32  i64
 *   i32       i64
 *   f16       bf16 f32
 *   bf16      f16  f32
 *   f32       f16  bf16  f64
 *   f64       f32
 *   all       itself: a copy of bytes
 *
 * Floating-point numbers go to the nearest one of the other format, of two the even one; what rounds
 * beyond the largest is Inf (f32 to f16: from 65520 on). Subnormal numbers are numbers like others,
 * never flushed to zero. A NaN keeps its sign and the leading bits of its payload and becomes quiet.
 * The same bits come out on every device, whatever rounding mode the program has set.
 */
#ifndef HEADRACE_DTYPE_H
#define HEADRACE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * X(name, number, size in bytes, text). HR_DTYPE_BYTES means: bytes, no conversion. From
 * HR_DTYPE_F8_E4M3 on, types are known by their size alone; f4x2 has two numbers in a byte.
 */
#define HR_DTYPE_MAP(X)                                                                            \
	X(HR_DTYPE_BYTES, 0, 1, "bytes")                                                           \
	X(HR_DTYPE_U8, 1, 1, "u8")                                                                 \
	X(HR_DTYPE_U16, 2, 2, "u16")                                                               \
	X(HR_DTYPE_U32, 3, 4, "u32")                                                               \
	X(HR_DTYPE_I32, 4, 4, "i32")                                                               \
	X(HR_DTYPE_I64, 5, 8, "i64")                                                               \
	X(HR_DTYPE_F16, 6, 2, "f16")                                                               \
	X(HR_DTYPE_BF16, 7, 2, "bf16")                                                             \
	X(HR_DTYPE_F32, 8, 4, "f32")                                                               \
	X(HR_DTYPE_F64, 9, 8, "f64")                                                               \
	X(HR_DTYPE_F8_E4M3, 10, 1, "f8_e4m3")                                                      \
	X(HR_DTYPE_F8_E5M2, 11, 1, "f8_e5m2")                                                      \
	X(HR_DTYPE_F8_E8M0, 12, 1, "f8_e8m0")                                                      \
	X(HR_DTYPE_F4X2, 13, 1, "f4x2")                                                            \
	X(HR_DTYPE_I8, 14, 1, "i8")                                                                \
	X(HR_DTYPE_I16, 15, 2, "i16")                                                              \
	X(HR_DTYPE_U64, 16, 8, "u64")                                                              \
	X(HR_DTYPE_BOOL, 17, 1, "bool")

#define HR__DTYPE_ENUM(name, number, size, text) name = number,
enum hr_dtype { HR_DTYPE_MAP(HR__DTYPE_ENUM) HR_DTYPE_COUNT_ };
#undef HR__DTYPE_ENUM

/* hr_dtype_size() - bytes of one element, 0 for an unknown type. */
uint32_t hr_dtype_size(enum hr_dtype type);

/* hr_dtype_name() - "u16"; "?" for an unknown type. */
const char *hr_dtype_name(enum hr_dtype type);

/* hr_dtype_parse() - the reverse. Return: 0 and *@out, or -EINVAL. */
int hr_dtype_parse(const char *text, enum hr_dtype *out);

/* hr_cast_ok() - can @from become @to on the way? The table above. True for equal types. */
bool hr_cast_ok(enum hr_dtype from, enum hr_dtype to);

/*
 * hr_cast_names() - the types that @from can become, for a person: "f16, f32"; "" if there are none.
 * Not @from itself. The text is constant.
 */
const char *hr_cast_names(enum hr_dtype from);

#ifdef __cplusplus
}
#endif
#endif

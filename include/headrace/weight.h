/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/weight.h - the element types of safetensors files. They are more than devices can convert,
 * so they are a list of their own beside enum hr_dtype; what has the same name is the same type.
 */
#ifndef HEADRACE_WEIGHT_H
#define HEADRACE_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Element types of the format: X(name, number, bits, text). A writer puts tensors of higher numbers
 * first, so the order is a promise, too. F4 and F6 shapes count elements of 4 and 6 bits.
 */
#define HR_WEIGHT_TYPE_MAP(X)                                                                      \
	X(HR_WEIGHT_BOOL, 1, 8, "BOOL")                                                            \
	X(HR_WEIGHT_F4, 2, 4, "F4")                                                                \
	X(HR_WEIGHT_F6_E2M3, 3, 6, "F6_E2M3")                                                      \
	X(HR_WEIGHT_F6_E3M2, 4, 6, "F6_E3M2")                                                      \
	X(HR_WEIGHT_U8, 5, 8, "U8")                                                                \
	X(HR_WEIGHT_I8, 6, 8, "I8")                                                                \
	X(HR_WEIGHT_F8_E5M2, 7, 8, "F8_E5M2")                                                      \
	X(HR_WEIGHT_F8_E4M3, 8, 8, "F8_E4M3")                                                      \
	X(HR_WEIGHT_F8_E8M0, 9, 8, "F8_E8M0")                                                      \
	X(HR_WEIGHT_F8_E4M3FNUZ, 10, 8, "F8_E4M3FNUZ")                                             \
	X(HR_WEIGHT_F8_E5M2FNUZ, 11, 8, "F8_E5M2FNUZ")                                             \
	X(HR_WEIGHT_I16, 12, 16, "I16")                                                            \
	X(HR_WEIGHT_U16, 13, 16, "U16")                                                            \
	X(HR_WEIGHT_F16, 14, 16, "F16")                                                            \
	X(HR_WEIGHT_BF16, 15, 16, "BF16")                                                          \
	X(HR_WEIGHT_I32, 16, 32, "I32")                                                            \
	X(HR_WEIGHT_U32, 17, 32, "U32")                                                            \
	X(HR_WEIGHT_F32, 18, 32, "F32")                                                            \
	X(HR_WEIGHT_C64, 19, 64, "C64")                                                            \
	X(HR_WEIGHT_F64, 20, 64, "F64")                                                            \
	X(HR_WEIGHT_I64, 21, 64, "I64")                                                            \
	X(HR_WEIGHT_U64, 22, 64, "U64")

#define HR__WEIGHT_TYPE_ENUM(name, number, bits, text) name = number,
enum hr_weight_type {
	HR_WEIGHT_SAME = 0, /* as a wish: the type in the file */
	HR_WEIGHT_TYPE_MAP(HR__WEIGHT_TYPE_ENUM) HR_WEIGHT_TYPE_COUNT_
};
#undef HR__WEIGHT_TYPE_ENUM

/* hr_weight_type_bits() - bits of one element, 0 for an unknown type. */
uint32_t hr_weight_type_bits(enum hr_weight_type type);

/* hr_weight_type_name() / hr_weight_type_parse() - "BF16" and back. Return: text or "?"; 0, -EINVAL */
const char *hr_weight_type_name(enum hr_weight_type type);
int hr_weight_type_parse(const char *text, enum hr_weight_type *out);

/*
 * hr_weight_cast() - can the device turn @from into @to while it loads?
 * @file, @memory: receive the element types for hr_io.from and .to, bytes for equal types; may be
 *                 NULL.
 */
bool hr_weight_cast(enum hr_weight_type from, enum hr_weight_type to, enum hr_dtype *file,
		    enum hr_dtype *memory);

#ifdef __cplusplus
}
#endif
#endif

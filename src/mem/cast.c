/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast.c - conversions on the CPU, element by element: the meaning that every device kernel and
 * every vector version must reproduce. Numbers with a point by convert.h, which the kernels share.
 */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "mem/cast.h"
#include "mem/convert.h"
#include "mem/mem.h"

/* Neither end need be aligned, so elements are only ever touched through memcpy. */
#define CAST_LOOP(name, src_type, dst_type, convert)                                               \
	static void name(unsigned char *dst, const unsigned char *src, uint64_t count)             \
	{                                                                                          \
		for (uint64_t i = 0; i < count; i++) {                                             \
			src_type in;                                                               \
			dst_type out;                                                              \
                                                                                                   \
			memcpy(&in, src + i * sizeof(in), sizeof(in));                             \
			out = (dst_type)convert(in);                                               \
			memcpy(dst + i * sizeof(out), &out, sizeof(out));                          \
		}                                                                                  \
	}

#define KEEP(v) (v)
CAST_LOOP(u8_to_i32, uint8_t, int32_t, KEEP)
CAST_LOOP(u16_to_i32, uint16_t, int32_t, KEEP)
CAST_LOOP(u32_to_i32, uint32_t, int32_t, KEEP)
CAST_LOOP(u8_to_i64, uint8_t, int64_t, KEEP)
CAST_LOOP(u16_to_i64, uint16_t, int64_t, KEEP)
CAST_LOOP(u32_to_i64, uint32_t, int64_t, KEEP)
CAST_LOOP(i8_to_i32, int8_t, int32_t, KEEP)
CAST_LOOP(i16_to_i32, int16_t, int32_t, KEEP)
CAST_LOOP(i8_to_i64, int8_t, int64_t, KEEP)
CAST_LOOP(i16_to_i64, int16_t, int64_t, KEEP)
CAST_LOOP(i32_to_i64, int32_t, int64_t, KEEP)
CAST_LOOP(f16_to_bf16, uint16_t, uint16_t, hr__f16_to_bf16)
CAST_LOOP(f16_to_f32, uint16_t, uint32_t, hr__f16_to_f32)
CAST_LOOP(bf16_to_f16, uint16_t, uint16_t, hr__bf16_to_f16)
CAST_LOOP(bf16_to_f32, uint16_t, uint32_t, hr__bf16_to_f32)
CAST_LOOP(f32_to_f16, uint32_t, uint16_t, hr__f32_to_f16)
CAST_LOOP(f32_to_bf16, uint32_t, uint16_t, hr__f32_to_bf16)
CAST_LOOP(f32_to_f64, uint32_t, uint64_t, hr__f32_to_f64)
CAST_LOOP(f64_to_f32, uint64_t, uint32_t, hr__f64_to_f32)

#define CACHE_LINE 64u

typedef void (*loop_fn)(unsigned char *dst, const unsigned char *src, uint64_t count);

/* [from][to]; NULL where hr_cast_ok() says no. */
static const loop_fn loops[HR_DTYPE_COUNT_][HR_DTYPE_COUNT_] = {
	[HR_DTYPE_U8] = {[HR_DTYPE_I32] = u8_to_i32, [HR_DTYPE_I64] = u8_to_i64},
	[HR_DTYPE_U16] = {[HR_DTYPE_I32] = u16_to_i32, [HR_DTYPE_I64] = u16_to_i64},
	[HR_DTYPE_U32] = {[HR_DTYPE_I32] = u32_to_i32, [HR_DTYPE_I64] = u32_to_i64},
	[HR_DTYPE_I8] = {[HR_DTYPE_I32] = i8_to_i32, [HR_DTYPE_I64] = i8_to_i64},
	[HR_DTYPE_I16] = {[HR_DTYPE_I32] = i16_to_i32, [HR_DTYPE_I64] = i16_to_i64},
	[HR_DTYPE_I32] = {[HR_DTYPE_I64] = i32_to_i64},
	[HR_DTYPE_F16] = {[HR_DTYPE_BF16] = f16_to_bf16, [HR_DTYPE_F32] = f16_to_f32},
	[HR_DTYPE_BF16] = {[HR_DTYPE_F16] = bf16_to_f16, [HR_DTYPE_F32] = bf16_to_f32},
	[HR_DTYPE_F32] = {[HR_DTYPE_F16] = f32_to_f16,
			  [HR_DTYPE_BF16] = f32_to_bf16,
			  [HR_DTYPE_F64] = f32_to_f64},
	[HR_DTYPE_F64] = {[HR_DTYPE_F32] = f64_to_f32},
};

void hr__cast(void *dst, const void *src, uint64_t len, enum hr_dtype from, enum hr_dtype to)
{
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);
	uint64_t count, done;
	loop_fn loop;

	if (from == to) {
		memmove(dst, src, len);
		return;
	}
	assert(hr_cast_ok(from, to) && len % from_size == 0);
	loop = loops[from][to];
	count = len / from_size;
	/* Up to a cache line of the destination: each wider store would touch two lines otherwise. */
	done = hr__min(-(uintptr_t)dst % CACHE_LINE / to_size, count);
	loop(dst, src, done);
	done += hr__cast_wide((unsigned char *)dst + done * to_size,
			      (const unsigned char *)src + done * from_size, count - done, from, to,
			      hr__cast_level());
	loop((unsigned char *)dst + done * to_size, (const unsigned char *)src + done * from_size,
	     count - done);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast.c - integer conversions on the CPU, element by element: the meaning that every device
 * kernel and every vector version must reproduce.
 */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "mem/cast.h"
#include "mem/mem.h"

/* Neither end need be aligned, so elements are only ever touched through memcpy. */
#define CAST_LOOP(name, src_type, dst_type)                                                        \
	static void name(unsigned char *dst, const unsigned char *src, uint64_t count)             \
	{                                                                                          \
		for (uint64_t i = 0; i < count; i++) {                                             \
			src_type in;                                                               \
			dst_type out;                                                              \
                                                                                                   \
			memcpy(&in, src + i * sizeof(in), sizeof(in));                             \
			out = (dst_type)in;                                                        \
			memcpy(dst + i * sizeof(out), &out, sizeof(out));                          \
		}                                                                                  \
	}

CAST_LOOP(u8_to_i32, uint8_t, int32_t)
CAST_LOOP(u16_to_i32, uint16_t, int32_t)
CAST_LOOP(u32_to_i32, uint32_t, int32_t)
CAST_LOOP(u8_to_i64, uint8_t, int64_t)
CAST_LOOP(u16_to_i64, uint16_t, int64_t)
CAST_LOOP(u32_to_i64, uint32_t, int64_t)

#define CACHE_LINE 64u

static void (*const loops[][2])(unsigned char *dst, const unsigned char *src, uint64_t count) = {
	[HR_DTYPE_U8] = {u8_to_i32, u8_to_i64},
	[HR_DTYPE_U16] = {u16_to_i32, u16_to_i64},
	[HR_DTYPE_U32] = {u32_to_i32, u32_to_i64},
};

void hr__cast(void *dst, const void *src, uint64_t len, enum hr_dtype from, enum hr_dtype to)
{
	uint32_t from_size = hr_dtype_size(from), to_size = hr_dtype_size(to);
	uint64_t count, done;

	if (from == to) {
		memmove(dst, src, len);
		return;
	}
	assert(hr_cast_ok(from, to) && len % from_size == 0);
	count = len / from_size;
	/* Up to a cache line of the destination: each wider store would touch two lines otherwise. */
	done = hr__min(-(uintptr_t)dst % CACHE_LINE / to_size, count);
	loops[from][to == HR_DTYPE_I64](dst, src, done);
	done += hr__cast_wide((unsigned char *)dst + done * to_size,
			      (const unsigned char *)src + done * from_size, count - done, from,
			      to);
	loops[from][to == HR_DTYPE_I64]((unsigned char *)dst + done * to_size,
					(const unsigned char *)src + done * from_size,
					count - done);
}

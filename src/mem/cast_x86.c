/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast_x86.c - conversions by AVX-512 or AVX2, chosen when called; knows vectors, not devices.
 *
 * One vector of results is one load, one widening move and one store, so that the loop runs at the
 * speed of the stores. The choice is a load of libgcc's feature word, not an ifunc: sanitizers and
 * old loaders run those too early.
 */
#include <immintrin.h>
#include <stddef.h>

#include "base/util.h"
#include "mem/cast.h"

typedef uint64_t (*wide_fn)(char *dst, const char *src, uint64_t count);

#define LOAD4(p) _mm_loadu_si32(p)
#define LOAD8(p) _mm_loadu_si64(p)
#define LOAD16(p) _mm_loadu_si128((const __m128i *)(p))
#define LOAD32(p) _mm256_loadu_si256((const __m256i *)(p))
#define LOAD64(p) _mm512_loadu_si512(p)
#define STORE32(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define STORE64(p, v) _mm512_storeu_si512(p, v)
#define SAME(v) (v)

/*
 * The processor's own prefetching stops at the end of each page, where a sample of two or three pages
 * that comes from memory would wait again. Far enough ahead for one trip to memory.
 */
#define PREFETCH_BYTES 1024

/* @step: elements of one vector of results; @in, @out: bytes of one element. */
#define WIDE_LOOP(name, isa, step, in, out, load, widen, store)                                    \
	__attribute__((target(isa))) static uint64_t name(char *dst, const char *src,              \
							  uint64_t count)                          \
	{                                                                                          \
		uint64_t whole = count - count % (step);                                           \
                                                                                                   \
		for (uint64_t i = 0; i < whole; i += (step)) {                                     \
			__builtin_prefetch(src + i * (in) + PREFETCH_BYTES);                       \
			store(dst + i * (out), widen(load(src + i * (in))));                       \
		}                                                                                  \
		return whole;                                                                      \
	}

WIDE_LOOP(u8_i32_avx2, "avx2", 8, 1, 4, LOAD8, _mm256_cvtepu8_epi32, STORE32)
WIDE_LOOP(u16_i32_avx2, "avx2", 8, 2, 4, LOAD16, _mm256_cvtepu16_epi32, STORE32)
WIDE_LOOP(u32_i32_avx2, "avx2", 8, 4, 4, LOAD32, SAME, STORE32)
WIDE_LOOP(u8_i64_avx2, "avx2", 4, 1, 8, LOAD4, _mm256_cvtepu8_epi64, STORE32)
WIDE_LOOP(u16_i64_avx2, "avx2", 4, 2, 8, LOAD8, _mm256_cvtepu16_epi64, STORE32)
WIDE_LOOP(u32_i64_avx2, "avx2", 4, 4, 8, LOAD16, _mm256_cvtepu32_epi64, STORE32)

WIDE_LOOP(u8_i32_avx512, "avx512f", 16, 1, 4, LOAD16, _mm512_cvtepu8_epi32, STORE64)
WIDE_LOOP(u16_i32_avx512, "avx512f", 16, 2, 4, LOAD32, _mm512_cvtepu16_epi32, STORE64)
WIDE_LOOP(u32_i32_avx512, "avx512f", 16, 4, 4, LOAD64, SAME, STORE64)
WIDE_LOOP(u8_i64_avx512, "avx512f", 8, 1, 8, LOAD8, _mm512_cvtepu8_epi64, STORE64)
WIDE_LOOP(u16_i64_avx512, "avx512f", 8, 2, 8, LOAD16, _mm512_cvtepu16_epi64, STORE64)
WIDE_LOOP(u32_i64_avx512, "avx512f", 8, 4, 8, LOAD32, _mm512_cvtepu32_epi64, STORE64)

enum { AVX2, AVX512, ISA_COUNT };

static const wide_fn wide[ISA_COUNT][HR_DTYPE_U32 + 1][2] = {
	[AVX2] =
		{
			[HR_DTYPE_U8] = {u8_i32_avx2, u8_i64_avx2},
			[HR_DTYPE_U16] = {u16_i32_avx2, u16_i64_avx2},
			[HR_DTYPE_U32] = {u32_i32_avx2, u32_i64_avx2},
		},
	[AVX512] =
		{
			[HR_DTYPE_U8] = {u8_i32_avx512, u8_i64_avx512},
			[HR_DTYPE_U16] = {u16_i32_avx512, u16_i64_avx512},
			[HR_DTYPE_U32] = {u32_i32_avx512, u32_i64_avx512},
		},
};

uint64_t hr__cast_wide(void *dst, const void *src, uint64_t count, enum hr_dtype from,
		       enum hr_dtype to)
{
	int isa;

	if (__builtin_cpu_supports("avx512f"))
		isa = AVX512;
	else if (__builtin_cpu_supports("avx2"))
		isa = AVX2;
	else
		return 0;
	return wide[isa][from][to == HR_DTYPE_I64](dst, src, count);
}

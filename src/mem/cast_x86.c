/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast_x86.c - conversions by AVX-512 or AVX2, chosen when called; knows vectors, not devices.
 *
 * One vector of results is one load, a conversion and one store, so that the loop runs at the speed
 * of the memory. The choice is a load of libgcc's feature word, not an ifunc: sanitizers and old
 * loaders run those too early.
 *
 * The processor's own bf16 instructions are not used: they flush subnormal numbers.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"
#include "mem/cast.h"

typedef uint64_t (*wide_fn)(char *dst, const char *src, uint64_t count);

#define LOAD4(p) _mm_loadu_si32(p)
#define LOAD8(p) _mm_loadu_si64(p)
#define LOAD16(p) _mm_loadu_si128((const __m128i *)(p))
#define LOAD32(p) _mm256_loadu_si256((const __m256i *)(p))
#define LOAD64(p) _mm512_loadu_si512(p)
#define LOAD16F(p) _mm_castsi128_ps(LOAD16(p))
#define LOAD32F(p) _mm256_castsi256_ps(LOAD32(p))
#define LOAD32D(p) _mm256_castsi256_pd(LOAD32(p))
#define LOAD64D(p) _mm512_castsi512_pd(LOAD64(p))
#define STORE16(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define STORE16F(p, v) STORE16(p, _mm_castps_si128(v))
#define STORE32F(p, v) STORE32(p, _mm256_castps_si256(v))
#define STORE32D(p, v) STORE32(p, _mm256_castpd_si256(v))
#define STORE64D(p, v) STORE64(p, _mm512_castpd_si512(v))
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
WIDE_LOOP(i8_i32_avx2, "avx2", 8, 1, 4, LOAD8, _mm256_cvtepi8_epi32, STORE32)
WIDE_LOOP(i16_i32_avx2, "avx2", 8, 2, 4, LOAD16, _mm256_cvtepi16_epi32, STORE32)
WIDE_LOOP(i8_i64_avx2, "avx2", 4, 1, 8, LOAD4, _mm256_cvtepi8_epi64, STORE32)
WIDE_LOOP(i16_i64_avx2, "avx2", 4, 2, 8, LOAD8, _mm256_cvtepi16_epi64, STORE32)
WIDE_LOOP(i32_i64_avx2, "avx2", 4, 4, 8, LOAD16, _mm256_cvtepi32_epi64, STORE32)

WIDE_LOOP(u8_i32_avx512, "avx512f", 16, 1, 4, LOAD16, _mm512_cvtepu8_epi32, STORE64)
WIDE_LOOP(u16_i32_avx512, "avx512f", 16, 2, 4, LOAD32, _mm512_cvtepu16_epi32, STORE64)
WIDE_LOOP(u32_i32_avx512, "avx512f", 16, 4, 4, LOAD64, SAME, STORE64)
WIDE_LOOP(u8_i64_avx512, "avx512f", 8, 1, 8, LOAD8, _mm512_cvtepu8_epi64, STORE64)
WIDE_LOOP(u16_i64_avx512, "avx512f", 8, 2, 8, LOAD16, _mm512_cvtepu16_epi64, STORE64)
WIDE_LOOP(u32_i64_avx512, "avx512f", 8, 4, 8, LOAD32, _mm512_cvtepu32_epi64, STORE64)
WIDE_LOOP(i8_i32_avx512, "avx512f", 16, 1, 4, LOAD16, _mm512_cvtepi8_epi32, STORE64)
WIDE_LOOP(i16_i32_avx512, "avx512f", 16, 2, 4, LOAD32, _mm512_cvtepi16_epi32, STORE64)
WIDE_LOOP(i8_i64_avx512, "avx512f", 8, 1, 8, LOAD8, _mm512_cvtepi8_epi64, STORE64)
WIDE_LOOP(i16_i64_avx512, "avx512f", 8, 2, 8, LOAD16, _mm512_cvtepi16_epi64, STORE64)
WIDE_LOOP(i32_i64_avx512, "avx512f", 8, 4, 8, LOAD32, _mm512_cvtepi32_epi64, STORE64)

/* The arithmetic of convert.h, on many elements at once. f32 travels as integers. */
#define AVX2 __attribute__((target("avx2,f16c"))) static inline
#define AVX512 __attribute__((target("avx512f"))) static inline

AVX2 __m256i f32_of_bf16_avx2(__m128i h)
{
	__m256i f = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
	__m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(f, _mm256_set1_epi32(0x7fffffff)),
					 _mm256_set1_epi32(0x7f800000));

	return _mm256_or_si256(f, _mm256_and_si256(nan, _mm256_set1_epi32(0x400000)));
}

AVX2 __m128i bf16_of_f32_avx2(__m256i f)
{
	__m256i top = _mm256_srli_epi32(f, 16);
	__m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(f, _mm256_set1_epi32(0x7fffffff)),
					 _mm256_set1_epi32(0x7f800000));
	__m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
	__m256i sum = _mm256_add_epi32(_mm256_add_epi32(f, _mm256_set1_epi32(0x7fff)), odd);
	__m256i out = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16),
					 _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);

	out = _mm256_packus_epi32(out, out); /* each half by itself */
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(out, 0x08));
}

AVX2 __m256i f32_of_f16_avx2(__m128i h)
{
	return _mm256_castps_si256(_mm256_cvtph_ps(h));
}

AVX2 __m128i f16_of_f32_avx2(__m256i f)
{
	return _mm256_cvtps_ph(_mm256_castsi256_ps(f), _MM_FROUND_TO_NEAREST_INT);
}

AVX2 __m128i bf16_of_f16_avx2(__m128i h)
{
	return bf16_of_f32_avx2(f32_of_f16_avx2(h));
}

AVX2 __m128i f16_of_bf16_avx2(__m128i h)
{
	return f16_of_f32_avx2(f32_of_bf16_avx2(h));
}

AVX512 __m512i f32_of_bf16_avx512(__m256i h)
{
	__m512i f = _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
	__mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(f, _mm512_set1_epi32(0x7fffffff)),
						_mm512_set1_epi32(0x7f800000));

	return _mm512_mask_or_epi32(f, nan, f, _mm512_set1_epi32(0x400000));
}

AVX512 __m256i bf16_of_f32_avx512(__m512i f)
{
	__m512i top = _mm512_srli_epi32(f, 16);
	__mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(f, _mm512_set1_epi32(0x7fffffff)),
						_mm512_set1_epi32(0x7f800000));
	__m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
	__m512i sum = _mm512_add_epi32(_mm512_add_epi32(f, _mm512_set1_epi32(0x7fff)), odd);
	__m512i out =
		_mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, top, _mm512_set1_epi32(0x40));

	return _mm512_cvtepi32_epi16(out);
}

AVX512 __m512i f32_of_f16_avx512(__m256i h)
{
	return _mm512_castps_si512(_mm512_cvtph_ps(h));
}

AVX512 __m256i f16_of_f32_avx512(__m512i f)
{
	return _mm512_cvtps_ph(_mm512_castsi512_ps(f), _MM_FROUND_TO_NEAREST_INT);
}

AVX512 __m256i bf16_of_f16_avx512(__m256i h)
{
	return bf16_of_f32_avx512(f32_of_f16_avx512(h));
}

AVX512 __m256i f16_of_bf16_avx512(__m256i h)
{
	return f16_of_f32_avx512(f32_of_bf16_avx512(h));
}

#define F16C "avx2,f16c"
WIDE_LOOP(f16_bf16_avx2, F16C, 8, 2, 2, LOAD16, bf16_of_f16_avx2, STORE16)
WIDE_LOOP(f16_f32_avx2, F16C, 8, 2, 4, LOAD16, f32_of_f16_avx2, STORE32)
WIDE_LOOP(bf16_f16_avx2, F16C, 8, 2, 2, LOAD16, f16_of_bf16_avx2, STORE16)
WIDE_LOOP(bf16_f32_avx2, F16C, 8, 2, 4, LOAD16, f32_of_bf16_avx2, STORE32)
WIDE_LOOP(f32_f16_avx2, F16C, 8, 4, 2, LOAD32, f16_of_f32_avx2, STORE16)
WIDE_LOOP(f32_bf16_avx2, F16C, 8, 4, 2, LOAD32, bf16_of_f32_avx2, STORE16)
WIDE_LOOP(f32_f64_avx2, F16C, 4, 4, 8, LOAD16F, _mm256_cvtps_pd, STORE32D)
WIDE_LOOP(f64_f32_avx2, F16C, 4, 8, 4, LOAD32D, _mm256_cvtpd_ps, STORE16F)

WIDE_LOOP(f16_bf16_avx512, "avx512f", 16, 2, 2, LOAD32, bf16_of_f16_avx512, STORE32)
WIDE_LOOP(f16_f32_avx512, "avx512f", 16, 2, 4, LOAD32, f32_of_f16_avx512, STORE64)
WIDE_LOOP(bf16_f16_avx512, "avx512f", 16, 2, 2, LOAD32, f16_of_bf16_avx512, STORE32)
WIDE_LOOP(bf16_f32_avx512, "avx512f", 16, 2, 4, LOAD32, f32_of_bf16_avx512, STORE64)
WIDE_LOOP(f32_f16_avx512, "avx512f", 16, 4, 2, LOAD64, f16_of_f32_avx512, STORE32)
WIDE_LOOP(f32_bf16_avx512, "avx512f", 16, 4, 2, LOAD64, bf16_of_f32_avx512, STORE32)
WIDE_LOOP(f32_f64_avx512, "avx512f", 8, 4, 8, LOAD32F, _mm512_cvtps_pd, STORE64D)
WIDE_LOOP(f64_f32_avx512, "avx512f", 8, 8, 4, LOAD64D, _mm512_cvtpd_ps, STORE32F)

enum { WITH_AVX2 = 1, WITH_AVX512, LEVEL_COUNT };

#define ROW(a, b, name)                                                                            \
	[HR_DTYPE_##a][HR_DTYPE_##b] = {[WITH_AVX2] = name##_avx2, [WITH_AVX512] = name##_avx512}

static const wide_fn wide[HR_DTYPE_COUNT_][HR_DTYPE_COUNT_][LEVEL_COUNT] = {
	ROW(U8, I32, u8_i32),   ROW(U8, I64, u8_i64),     ROW(U16, I32, u16_i32),
	ROW(U16, I64, u16_i64), ROW(U32, I32, u32_i32),   ROW(U32, I64, u32_i64),
	ROW(I8, I32, i8_i32),   ROW(I8, I64, i8_i64),     ROW(I16, I32, i16_i32),
	ROW(I16, I64, i16_i64), ROW(I32, I64, i32_i64),   ROW(F16, BF16, f16_bf16),
	ROW(F16, F32, f16_f32), ROW(BF16, F16, bf16_f16), ROW(BF16, F32, bf16_f32),
	ROW(F32, F16, f32_f16), ROW(F32, BF16, f32_bf16), ROW(F32, F64, f32_f64),
	ROW(F64, F32, f64_f32),
};

/* To the nearest, nothing flushed, nothing trapped: what a processor starts with. */
#define MXCSR_DEFAULT 0x1f80u

/* Else the program's own rounding and flushing would show in the results, and ours in its flags. */
static uint64_t wide_number(wide_fn fn, char *dst, const char *src, uint64_t count)
{
	unsigned int mxcsr = _mm_getcsr();
	uint64_t done;

	_mm_setcsr(MXCSR_DEFAULT);
	done = fn(dst, src, count);
	_mm_setcsr(mxcsr);
	return done;
}

/* Not every compiler has a word for it. Asked once: in a guest that is a trip to the hypervisor. */
static bool f16c_supported(void)
{
	static atomic_int answer; /* 0: not asked yet */
	int known = atomic_load_explicit(&answer, memory_order_relaxed);
	unsigned int a, b, c = 0, d;

	if (!known) {
		known = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C ? 1 : -1;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known > 0;
}

uint32_t hr__cast_level(void)
{
	if (__builtin_cpu_supports("avx512f"))
		return WITH_AVX512;
	return __builtin_cpu_supports("avx2") && f16c_supported() ? WITH_AVX2 : 0;
}

uint64_t hr__cast_wide(void *dst, const void *src, uint64_t count, enum hr_dtype from,
		       enum hr_dtype to, uint32_t level)
{
	if (!level)
		return 0;
	if (to == HR_DTYPE_I32 || to == HR_DTYPE_I64)
		return wide[from][to][level](dst, src, count);
	return wide_number(wide[from][to][level], dst, src, count);
}

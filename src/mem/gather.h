/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/gather.h - what the host writes and the gather kernels read: C and C++, no other header.
 *
 * A piece is cut into tiles of 2^tile_shift source bytes; a warp works through a run of consecutive
 * tiles. Tiles start on 128-byte lines of the source, so a piece may touch one tile more than its
 * length alone would need.
 */
#ifndef HR_MEM_GATHER_H
#define HR_MEM_GATHER_H

#include <stdint.h>

#define HR__GATHER_THREADS 512u /* of a block */
#define HR__GATHER_WARPS (HR__GATHER_THREADS / 32u)
#define HR__GATHER_ROW_BYTES 512u /* 16 bytes for each thread of a warp */
#define HR__GATHER_ROWS_MAX 4u    /* loads in flight per thread */
#define HR__GATHER_SHIFT_MIN 9u   /* 1 row */
#define HR__GATHER_SHIFT_MAX 11u  /* 4 rows */

/* Device addresses; len in source bytes. */
struct hr__gather_piece {
	uint64_t src;
	uint64_t dst;
	uint64_t len;
};

/* Where a warp begins when pieces differ in length. */
struct hr__gather_start {
	uint32_t piece;
	uint32_t tile; /* in that piece */
};

struct hr__gather_args {
	uint64_t pieces;          /* address of the array of struct hr__gather_piece */
	uint64_t starts;          /* of struct hr__gather_start, one a warp; 0: pieces are alike */
	uint32_t tiles_per_piece; /* of every piece when they are alike */
	uint32_t tiles;           /* in all */
	uint32_t tile_shift;
	uint32_t count; /* pieces */
};

/* X(symbol in the PTX, enum hr_dtype from, to). u32 -> i32 keeps the bits: it is a byte copy. */
#define HR__GATHER_KERNELS(X)                                                                      \
	X(hr_gather_bytes, HR_DTYPE_BYTES, HR_DTYPE_BYTES)                                         \
	X(hr_gather_u8_i32, HR_DTYPE_U8, HR_DTYPE_I32)                                             \
	X(hr_gather_u16_i32, HR_DTYPE_U16, HR_DTYPE_I32)                                           \
	X(hr_gather_u8_i64, HR_DTYPE_U8, HR_DTYPE_I64)                                             \
	X(hr_gather_u16_i64, HR_DTYPE_U16, HR_DTYPE_I64)                                           \
	X(hr_gather_u32_i64, HR_DTYPE_U32, HR_DTYPE_I64)                                           \
	X(hr_gather_f16_bf16, HR_DTYPE_F16, HR_DTYPE_BF16)                                         \
	X(hr_gather_f16_f32, HR_DTYPE_F16, HR_DTYPE_F32)                                           \
	X(hr_gather_bf16_f16, HR_DTYPE_BF16, HR_DTYPE_F16)                                         \
	X(hr_gather_bf16_f32, HR_DTYPE_BF16, HR_DTYPE_F32)                                         \
	X(hr_gather_f32_f16, HR_DTYPE_F32, HR_DTYPE_F16)                                           \
	X(hr_gather_f32_bf16, HR_DTYPE_F32, HR_DTYPE_BF16)                                         \
	X(hr_gather_f32_f64, HR_DTYPE_F32, HR_DTYPE_F64)                                           \
	X(hr_gather_f64_f32, HR_DTYPE_F64, HR_DTYPE_F32)                                           \
	X(hr_gather_i8_i32, HR_DTYPE_I8, HR_DTYPE_I32)                                             \
	X(hr_gather_i16_i32, HR_DTYPE_I16, HR_DTYPE_I32)                                           \
	X(hr_gather_i8_i64, HR_DTYPE_I8, HR_DTYPE_I64)                                             \
	X(hr_gather_i16_i64, HR_DTYPE_I16, HR_DTYPE_I64)                                           \
	X(hr_gather_i32_i64, HR_DTYPE_I32, HR_DTYPE_I64)

/*
 * hr__gather_head() - bytes that a piece's first 16-byte chunk lies before the piece. Copies make
 * chunks by the destination, so that stores are aligned; casts make them by the source's elements.
 */
static inline uint32_t hr__gather_head(uint64_t dst, int cast)
{
	return cast ? 0 : (uint32_t)(dst & 15);
}

/* hr__gather_lead() - chunks between the 128-byte line where the first load falls and chunk 0. */
static inline uint32_t hr__gather_lead(uint64_t src, uint32_t head)
{
	return (uint32_t)((src - head) & 127) / 16;
}

/* hr__gather_tiles() - tiles that a piece touches, at least 1. */
static inline uint64_t hr__gather_tiles(uint64_t src, uint64_t dst, uint64_t len, int cast,
					uint32_t tile_shift)
{
	uint32_t head = hr__gather_head(dst, cast);
	uint64_t chunks = (len + head + 15) / 16 + hr__gather_lead(src, head);
	uint64_t tiles = ((chunks << 4) + (1u << tile_shift) - 1) >> tile_shift;

	return tiles ? tiles : 1;
}

#endif

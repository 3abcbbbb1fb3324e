/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/index_file.h - the bytes of a side index, for those who write and who read it.
 *
 * Everything is little-endian. A header, blocks of rows, and a tail that ends the file:
 *
 *   header  128 bytes: see the offsets below. The last 8 are XXH3 of those before.
 *   blocks  u32 rows, u32 columns; per column a descriptor of 32 bytes; then the arrays that these
 *           name. Columns that were found later are absent in the block.
 *   tail    texts (u16 length with the NUL, bytes): why the first damaged sample is, notes of the file;
 *           per column: name, note (texts), u8 dtype, ndim, flags, 0, u64 shape[ndim], u64 absent,
 *           ranges, scalars, floats, len_min, sizes: u64 values, bytes, max, u16 classes and for each of
 *           them u16 class, u64 count;
 *           u64 per damaged sample;
 *           per block: u64 first row, u64 offset, u64 XXH3, u32 bytes, u32 zero.
 *
 * A descriptor is u8 mode, u8 width of offsets, u8 width of lengths, u8 zero, u32 where in the block its
 * arrays begin, u64 base, u64 stride, u64 shortest length. The modes 0 to 3 are enum hr__cell_kind for
 * all rows; 4 begins with two bits per row, the lowest first. Then come the offsets, less base + row *
 * stride modulo 2^64, and the lengths, less the shortest, each in its width of 0 to 8 bytes: samples of
 * one size that lie one behind the other take none at all.
 */
#ifndef HR_FORMAT_INDEX_FILE_H
#define HR_FORMAT_INDEX_FILE_H

#define HR__INDEX_MAGIC "HRINDEX\x1a"
#define HR__INDEX_VERSION 1u

#define HR__INDEX_HEADER_BYTES 128u
enum {
	HR__INDEX_AT_VERSION = 8,
	HR__INDEX_AT_RULES = 12,
	HR__INDEX_AT_DATA_SIZE = 16,
	HR__INDEX_AT_DATA_MTIME = 24,
	HR__INDEX_AT_FORMAT = 32, /* 16 bytes, zero-padded */
	HR__INDEX_AT_ROWS = 48,
	HR__INDEX_AT_N_BAD = 56,
	HR__INDEX_AT_N_COLUMNS = 64,
	HR__INDEX_AT_N_BLOCKS = 68,
	HR__INDEX_AT_TAIL = 72,      /* u64 offset, u64 bytes, u64 XXH3 */
	HR__INDEX_AT_DATA_HEAD = 96, /* XXH3 of its first 4096 bytes */
	HR__INDEX_AT_ZERO = 104,     /* up to the checksum */
	HR__INDEX_AT_HASH = 120,
};
#define HR__INDEX_FORMAT_BYTES 16u

#define HR__INDEX_BLOCK_BYTES 16384u /* of the largest block: a caller has it on its stack */
#define HR__INDEX_BLOCK_HEAD 8u
#define HR__INDEX_DESCRIPTOR_BYTES 32u
#define HR__INDEX_MODE_MIXED 4u
#define HR__INDEX_ENTRY_BYTES 32u /* of the list of blocks */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/kernels.cu - gather kernels: pieces at any byte to any byte, converted on the way. Compiled
 * by clang to kernels.ptx, and as C++ for the CPU by tests/fakecuda; the header named by
 * HR_KERNELS_SHIM makes the difference.
 *
 * The source is usually host memory behind PCIe, so all is made for that side: every load is 16
 * aligned bytes, a warp's row of 512 bytes starts on a 128-byte line, no byte is asked for twice
 * (the odd bytes come from the neighbour's register, not from a second load), and up to four loads
 * of a thread are in flight.
 */
#include HR_KERNELS_SHIM

/* 16 bytes from byte @shift (0..15) of the 32 bytes @low, @high. Selects, because an index that is
 * only known at run time would put the words into local memory. */
HR_DEVICE hr_v4 hr_shift(hr_v4 low, hr_v4 high, uint32_t shift)
{
	uint32_t w[7] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2]};
	uint32_t last = high[3], bits = (shift & 3) * 8;
	hr_v4 out = {0, 0, 0, 0};

	if (shift & 8) {
		HR_UNROLL
		for (int i = 0; i < 5; i++)
			w[i] = w[i + 2];
		w[5] = last;
	}
	if (shift & 4) {
		HR_UNROLL
		for (int i = 0; i < 5; i++)
			w[i] = w[i + 1];
	}
	HR_UNROLL
	for (int i = 0; i < 4; i++)
		out[i] = (uint32_t)((((uint64_t)w[i + 1] << 32) | w[i]) >> bits);
	return out;
}

/* Store 16 bytes where only @align (1, 4, 8, 16) is promised. */
HR_DEVICE void hr_store_vector(uint64_t dst, hr_v4 v, uint32_t align)
{
	if (align == 16) {
		hr_store16(dst, v);
	} else if (align == 8) {
		hr_store8(dst, v[0], v[1]);
		hr_store8(dst + 8, v[2], v[3]);
	} else if (align == 4) {
		HR_UNROLL
		for (int i = 0; i < 4; i++)
			hr_store4(dst + 4 * i, v[i]);
	} else {
		HR_UNROLL
		for (int i = 0; i < 16; i++)
			hr_store1(dst + i, v[i / 4] >> (8 * (i & 3)));
	}
}

/* Store one element of @size bytes (1, 4, 8) whose upper half, if any, is zero. */
template <int size> HR_DEVICE void hr_store_element(uint64_t dst, uint32_t v, uint32_t align)
{
	if (size == 1) {
		hr_store1(dst, v);
		return;
	}
	if (align >= 4) {
		hr_store4(dst, v);
		if (size == 8)
			hr_store4(dst + 4, 0);
		return;
	}
	HR_UNROLL
	for (int i = 0; i < size; i++)
		hr_store1(dst + i, i < 4 ? v >> (8 * (i & 3)) : 0);
}

/* Element @i of @from bytes in a chunk. @i is a constant once loops are unrolled. */
template <int from> HR_DEVICE uint32_t hr_element(hr_v4 chunk, int i)
{
	uint32_t word = chunk[i * from / 4];

	if (from == 4)
		return word;
	return (word >> (8 * (i * from & 3))) & (from == 2 ? 0xffff : 0xff);
}

/* Store a whole chunk, converted. */
template <int from, int to> HR_DEVICE void hr_put_chunk(uint64_t dst, hr_v4 chunk, uint32_t align)
{
	if (from == to) {
		hr_store16(dst, chunk);
		return;
	}
	HR_UNROLL
	for (int i = 0; i < 16 / from * to / 16; i++) {
		hr_v4 v = {0, 0, 0, 0};

		HR_UNROLL
		for (int j = 0; j < 4; j++) {
			if (to == 4)
				v[j] = hr_element<from>(chunk, 4 * i + j);
			else
				v[j] = j & 1 ? 0 : hr_element<from>(chunk, 2 * i + j / 2);
		}
		hr_store_vector(dst + 16 * i, v, align);
	}
}

/* Store source bytes [first, end) of a chunk, converted: the edges of a piece. */
template <int from, int to>
HR_DEVICE void hr_put_part(uint64_t dst, hr_v4 chunk, int first, int end, uint32_t align)
{
	HR_UNROLL
	for (int i = 0; i < 16 / from; i++) {
		if (i * from >= first && i * from < end)
			hr_store_element<to>(dst + i * to, hr_element<from>(chunk, i), align);
	}
}

HR_DEVICE uint32_t hr_align_of(uint64_t address)
{
	uint32_t low = (uint32_t)address & 15;

	return !low ? 16 : !(low & 7) ? 8 : !(low & 3) ? 4 : 1;
}

/* What stays the same for all tiles of a piece. Chunk k holds source bytes origin + 16 k ... */
struct hr_piece_view {
	uint64_t first, end; /* source bytes */
	uint64_t origin;     /* of chunk 0 in the source */
	uint64_t target;     /* of chunk 0 in the destination */
	uint64_t tiles;
	uint32_t lead;  /* chunks from the start of tile 0 to chunk 0 */
	uint32_t align; /* of every whole chunk's destination */
};

template <int from, int to>
HR_DEVICE hr_piece_view hr_view(struct hr__gather_piece piece, uint32_t shift)
{
	uint64_t src = piece.src, dst = piece.dst, len = piece.len;
	uint32_t head = hr__gather_head(dst, from != to);
	hr_piece_view v;

	v.tiles = hr__gather_tiles(src, dst, len, from != to, shift);
	v.lead = hr__gather_lead(src, head);
	v.align = hr_align_of(dst - head);
	v.first = hr_dev_ptr(src, len);
	v.end = v.first + len;
	v.origin = v.first - head;
	v.target = hr_dev_ptr(dst, len / from * to) - head;
	return v;
}

/* Convert and store the chunk that begins at source byte @src, as far as it belongs to the
 * piece. */
template <int from, int to>
HR_DEVICE void hr_put(const hr_piece_view &v, uint64_t src, uint64_t dst, hr_v4 chunk)
{
	int64_t before = (int64_t)(v.first - src), left = (int64_t)(v.end - src);

	if (before <= 0 && left >= 16)
		hr_put_chunk<from, to>(dst, chunk, v.align);
	else if (before < 16 && left > 0)
		hr_put_part<from, to>(dst, chunk, (int)before, left < 16 ? (int)left : 16, v.align);
}

/* One tile by one warp: first all loads, then, row by row, shift, convert, store. */
template <int from, int to>
HR_DEVICE void hr_tile(const hr_piece_view &v, uint64_t tile, uint32_t rows)
{
	int64_t chunk = (int64_t)(tile * rows * 32 + hr_lane()) - v.lead;
	uint32_t shift = (uint32_t)v.origin & 15;
	uint64_t block = v.origin - shift + (uint64_t)(16 * chunk);
	uint64_t dst = v.target + (uint64_t)(chunk * 16 / from * to);
	hr_v4 got[HR__GATHER_ROWS_MAX + 1];

	/* The first block of the row below the tile stands in for "thread 32" of the last row, so
	 * thread 0 alone loads it, and only if anything is shifted. An empty range loads
	 * nothing. */
	HR_UNROLL
	for (uint32_t r = 0; r <= HR__GATHER_ROWS_MAX; r++) {
		int wanted = r < rows || (r == rows && shift && !hr_lane());

		got[r] = hr_load_block(block + r * HR__GATHER_ROW_BYTES, v.first,
				       wanted ? v.end : 0);
	}
	/* Not unrolled: the code for one row is long, and moving registers costs nothing here. */
	HR_NO_UNROLL
	for (uint32_t r = 0; r < rows; r++) {
		hr_v4 data = got[0];

		if (shift)
			data = hr_shift(data,
					hr_next_block(data, got[1], block + 16, v.first, v.end),
					shift);
		hr_put<from, to>(v, block + shift, dst, data);
		HR_UNROLL
		for (uint32_t i = 0; i < HR__GATHER_ROWS_MAX; i++)
			got[i] = got[i + 1];
		block += HR__GATHER_ROW_BYTES;
		dst += HR__GATHER_ROW_BYTES / from * to;
	}
}

template <int from, int to> HR_DEVICE void hr_gather(const struct hr__gather_args &args)
{
	uint32_t warp = hr_warp(), warps = hr_warps(), piece;
	uint32_t at = (uint32_t)((uint64_t)args.tiles * warp / warps);
	uint32_t left = (uint32_t)((uint64_t)args.tiles * (warp + 1) / warps) - at;
	uint32_t rows = 1u << (args.tile_shift - HR__GATHER_SHIFT_MIN);
	uint64_t pieces = hr_dev_ptr(args.pieces, 0), tile;
	hr_list_view list;

	if (!left)
		return;
	if (args.starts) {
		uint64_t start = hr_dev_ptr(args.starts, 0) +
				 (uint64_t)warp * sizeof(struct hr__gather_start);

		piece = hr_load_u32(start);
		tile = hr_load_u32(start + 4);
	} else {
		piece = at / args.tiles_per_piece;
		tile = at % args.tiles_per_piece;
	}
	list = hr_list_load(pieces, piece, args.count);
	while (left) {
		if (piece - list.first >= 32)
			list = hr_list_load(pieces, piece, args.count);
		hr_piece_view v = hr_view<from, to>(hr_list_get(list, piece), args.tile_shift);
		uint64_t slots = args.starts ? v.tiles : args.tiles_per_piece;

		for (; left && tile < slots; left--, tile++) {
			if (tile < v.tiles) /* alike in length, one may still need a tile less */
				hr_tile<from, to>(v, tile, rows);
		}
		tile = 0;
		piece++;
	}
}

HR_KERNEL hr_gather_bytes(struct hr__gather_args args)
{
	hr_gather<1, 1>(args);
}

HR_KERNEL hr_gather_u8_i32(struct hr__gather_args args)
{
	hr_gather<1, 4>(args);
}

HR_KERNEL hr_gather_u16_i32(struct hr__gather_args args)
{
	hr_gather<2, 4>(args);
}

HR_KERNEL hr_gather_u8_i64(struct hr__gather_args args)
{
	hr_gather<1, 8>(args);
}

HR_KERNEL hr_gather_u16_i64(struct hr__gather_args args)
{
	hr_gather<2, 8>(args);
}

HR_KERNEL hr_gather_u32_i64(struct hr__gather_args args)
{
	hr_gather<4, 8>(args);
}

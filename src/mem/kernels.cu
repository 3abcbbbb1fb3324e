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

/* Store one element of @size bytes (1, 2, 4, 8). */
template <int size> HR_DEVICE void hr_store_element(uint64_t dst, uint64_t v, uint32_t align)
{
	uint32_t low = (uint32_t)v, high = (uint32_t)(v >> 32);

	if (size == 1) {
		hr_store1(dst, low);
	} else if (size == 2 && align >= 2) {
		hr_store2(dst, low);
	} else if (size >= 4 && align >= 4) {
		hr_store4(dst, low);
		if (size == 8)
			hr_store4(dst + 4, high);
	} else {
		HR_UNROLL
		for (int i = 0; i < size; i++)
			hr_store1(dst + i, (i < 4 ? low : high) >> (8 * (i & 3)));
	}
}

/* Element @i of @from bytes in a chunk. @i is a constant once loops are unrolled. */
template <int from> HR_DEVICE uint32_t hr_element(hr_v4 chunk, int i)
{
	uint32_t word = chunk[i * from / 4];

	if (from == 4)
		return word;
	return (word >> (8 * (i * from & 3))) & (from == 2 ? 0xffff : 0xff);
}

/* The same as a number with a sign. */
template <int from> HR_DEVICE int32_t hr_signed(hr_v4 chunk, int i)
{
	uint32_t shift = 32 - 8 * from;

	return (int32_t)(hr_element<from>(chunk, i) << shift) >> shift;
}

/*
 * Integers that grow, and bytes that stay: a kernel's template argument, as hr_number below.
 * put() stores a chunk converted, of its 16 source bytes those of [before, left).
 */
template <int from_size, int to_size, int has_sign = 0> struct hr_integer {
	enum { from = from_size, to = to_size, cast = from_size != to_size };

	HR_DEVICE uint64_t grown(hr_v4 chunk, int i)
	{
		return has_sign ? (uint64_t)(int64_t)hr_signed<from>(chunk, i)
				: hr_element<from>(chunk, i);
	}

	HR_DEVICE void whole(uint64_t dst, hr_v4 chunk, uint32_t align)
	{
		if (!cast) {
			hr_store16(dst, chunk);
			return;
		}
		HR_UNROLL
		for (int i = 0; i < 16 / from * to / 16; i++) {
			hr_v4 v = {0, 0, 0, 0};

			HR_UNROLL
			for (int j = 0; j < 4; j++) {
				if (to == 4)
					v[j] = (uint32_t)grown(chunk, 4 * i + j);
				else
					v[j] = (uint32_t)(grown(chunk, 2 * i + j / 2) >>
							  (j & 1 ? 32 : 0));
			}
			hr_store_vector(dst + 16 * i, v, align);
		}
	}

	HR_DEVICE void part(uint64_t dst, hr_v4 chunk, int first, int end, uint32_t align)
	{
		HR_UNROLL
		for (int i = 0; i < 16 / from; i++) {
			if (i * from >= first && i * from < end)
				hr_store_element<to>(dst + i * to, grown(chunk, i), align);
		}
	}

	HR_DEVICE void put(uint64_t dst, hr_v4 chunk, int64_t before, int64_t left, uint32_t align)
	{
		if (before <= 0 && left >= 16)
			whole(dst, chunk, align);
		else if (before < 16 && left > 0)
			part(dst, chunk, (int)before, left < 16 ? (int)left : 16, align);
	}
};

/* One floating-point format to another: the sizes, and the conversion of an element's bits. */
#define HR_NUMBER(name, from_size, to_size, in_type, converted)                                    \
	struct name {                                                                              \
		enum { from = from_size, to = to_size };                                           \
		HR_DEVICE uint64_t convert(uint64_t v)                                             \
		{                                                                                  \
			return converted((in_type)v);                                              \
		}                                                                                  \
	};
HR_NUMBER(hr_f16_bf16, 2, 2, uint32_t, hr__f16_to_bf16)
HR_NUMBER(hr_f16_f32, 2, 4, uint32_t, hr__f16_to_f32)
HR_NUMBER(hr_bf16_f16, 2, 2, uint32_t, hr__bf16_to_f16)
HR_NUMBER(hr_bf16_f32, 2, 4, uint32_t, hr__bf16_to_f32)
HR_NUMBER(hr_f32_f16, 4, 2, uint32_t, hr__f32_to_f16)
HR_NUMBER(hr_f32_bf16, 4, 2, uint32_t, hr__f32_to_bf16)
HR_NUMBER(hr_f32_f64, 4, 8, uint32_t, hr__f32_to_f64)
HR_NUMBER(hr_f64_f32, 8, 4, uint64_t, hr__f64_to_f32)

/*
 * Weights lie at addresses with many zeros, so there are two ways to store: eight or sixteen bytes,
 * and one element. All is converted first, also what lies outside the piece, to have that code once.
 */
template <class N> struct hr_number {
	enum {
		from = N::from,
		to = N::to,
		cast = 1,
		elements = 16 / from,
		words = elements * to / 4
	};

	HR_DEVICE uint64_t convert(hr_v4 chunk, int i)
	{
		if (from == 8)
			return N::convert((uint64_t)chunk[(2 * i + 1) & 3] << 32 |
					  chunk[2 * i & 3]);
		return N::convert(hr_element<from>(chunk, i));
	}

	HR_DEVICE void wide(uint64_t dst, const uint32_t *w, uint32_t align)
	{
		HR_UNROLL
		for (int i = 0; i < words; i += 4) {
			if (words >= 4 && align == 16) {
				hr_v4 v = {w[i], w[i + 1], w[(i + 2) % words], w[(i + 3) % words]};

				hr_store16(dst + 4 * i, v);
				continue;
			}
			hr_store8(dst + 4 * i, w[i], w[i + 1]);
			if (words >= 4)
				hr_store8(dst + 4 * i + 8, w[(i + 2) % words], w[(i + 3) % words]);
		}
	}

	HR_DEVICE void put(uint64_t dst, hr_v4 chunk, int64_t before, int64_t left, uint32_t align)
	{
		uint32_t w[words];

		if (before >= 16 || left <= 0)
			return;
		HR_UNROLL
		for (int i = 0; i < elements; i++) {
			uint64_t v = convert(chunk, i);

			if (to == 2 && i & 1)
				w[i / 2] |= (uint32_t)v << 16;
			else
				w[i * to / 4] = (uint32_t)v;
			if (to == 8)
				w[(2 * i + 1) % words] = (uint32_t)(v >> 32);
		}
		if (before <= 0 && left >= 16 && align >= 8) {
			wide(dst, w, align);
			return;
		}
		HR_UNROLL
		for (int i = 0; i < elements; i++) {
			uint64_t v = w[i * to / 4] >> (to == 2 ? 16 * (i & 1) : 0);

			if (to == 8)
				v |= (uint64_t)w[(2 * i + 1) % words] << 32;
			if (i * from < left) /* its first chunk begins with a piece */
				hr_store_element<to>(dst + i * to, v, align);
		}
	}
};

/* 2 matters only to elements of two bytes. */
template <int size> HR_DEVICE uint32_t hr_align_of(uint64_t address)
{
	uint32_t low = (uint32_t)address & 15;

	return !low ? 16 : !(low & 7) ? 8 : !(low & 3) ? 4 : size == 2 && !(low & 1) ? 2 : 1;
}

/* What stays the same for all tiles of a piece. Chunk k holds source bytes origin + 16 k ... */
struct hr_piece_view {
	uint64_t first, end; /* source bytes */
	uint64_t origin;     /* of chunk 0 in the source */
	uint64_t target;     /* of chunk 0 in the destination */
	uint64_t tiles;
	uint32_t lead;  /* chunks from the start of tile 0 to chunk 0 */
	uint32_t align; /* of chunk 0's destination; up to 8, of every chunk's */
};

template <class C> HR_DEVICE hr_piece_view hr_view(struct hr__gather_piece piece, uint32_t shift)
{
	uint64_t src = piece.src, dst = piece.dst, len = piece.len;
	uint32_t head = hr__gather_head(dst, C::cast);
	hr_piece_view v;

	v.tiles = hr__gather_tiles(src, dst, len, C::cast, shift);
	v.lead = hr__gather_lead(src, head);
	v.align = hr_align_of<C::to>(dst - head);
	v.first = hr_dev_ptr(src, len);
	v.end = v.first + len;
	v.origin = v.first - head;
	v.target = hr_dev_ptr(dst, len / C::from * C::to) - head;
	return v;
}

/* Convert and store the chunk that begins at source byte @src, as far as it belongs to the
 * piece. */
template <class C>
HR_DEVICE void hr_put(const hr_piece_view &v, uint64_t src, uint64_t dst, hr_v4 chunk)
{
	C::put(dst, chunk, (int64_t)(v.first - src), (int64_t)(v.end - src), v.align);
}

/* One tile by one warp: first all loads, then, row by row, shift, convert, store. */
template <class C> HR_DEVICE void hr_tile(const hr_piece_view &v, uint64_t tile, uint32_t rows)
{
	int64_t chunk = (int64_t)(tile * rows * 32 + hr_lane()) - v.lead;
	uint32_t shift = (uint32_t)v.origin & 15;
	uint64_t block = v.origin - shift + (uint64_t)(16 * chunk);
	uint64_t dst = v.target + (uint64_t)(chunk * 16 / C::from * C::to);
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
		hr_put<C>(v, block + shift, dst, data);
		HR_UNROLL
		for (uint32_t i = 0; i < HR__GATHER_ROWS_MAX; i++)
			got[i] = got[i + 1];
		block += HR__GATHER_ROW_BYTES;
		dst += HR__GATHER_ROW_BYTES / C::from * C::to;
	}
}

template <class C> HR_DEVICE void hr_gather(const struct hr__gather_args &args)
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
		hr_piece_view v = hr_view<C>(hr_list_get(list, piece), args.tile_shift);
		uint64_t slots = args.starts ? v.tiles : args.tiles_per_piece;

		for (; left && tile < slots; left--, tile++) {
			if (tile < v.tiles) /* alike in length, one may still need a tile less */
				hr_tile<C>(v, tile, rows);
		}
		tile = 0;
		piece++;
	}
}

#define HR_GATHER(name, ...)                                                                       \
	HR_KERNEL name(struct hr__gather_args args)                                                \
	{                                                                                          \
		hr_gather<__VA_ARGS__>(args);                                                      \
	}
HR_GATHER(hr_gather_bytes, hr_integer<1, 1>)
HR_GATHER(hr_gather_u8_i32, hr_integer<1, 4>)
HR_GATHER(hr_gather_u16_i32, hr_integer<2, 4>)
HR_GATHER(hr_gather_u8_i64, hr_integer<1, 8>)
HR_GATHER(hr_gather_u16_i64, hr_integer<2, 8>)
HR_GATHER(hr_gather_u32_i64, hr_integer<4, 8>)
HR_GATHER(hr_gather_f16_bf16, hr_number<hr_f16_bf16>)
HR_GATHER(hr_gather_f16_f32, hr_number<hr_f16_f32>)
HR_GATHER(hr_gather_bf16_f16, hr_number<hr_bf16_f16>)
HR_GATHER(hr_gather_bf16_f32, hr_number<hr_bf16_f32>)
HR_GATHER(hr_gather_f32_f16, hr_number<hr_f32_f16>)
HR_GATHER(hr_gather_f32_bf16, hr_number<hr_f32_bf16>)
HR_GATHER(hr_gather_f32_f64, hr_number<hr_f32_f64>)
HR_GATHER(hr_gather_f64_f32, hr_number<hr_f64_f32>)
HR_GATHER(hr_gather_i8_i32, hr_integer<1, 4, 1>)
HR_GATHER(hr_gather_i16_i32, hr_integer<2, 4, 1>)
HR_GATHER(hr_gather_i8_i64, hr_integer<1, 8, 1>)
HR_GATHER(hr_gather_i16_i64, hr_integer<2, 8, 1>)
HR_GATHER(hr_gather_i32_i64, hr_integer<4, 8, 1>)

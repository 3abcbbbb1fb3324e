/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_gather.c - from a list of moves to the list that a gather kernel reads: addresses as the
 * device sees them, tiles, and where each warp begins. No call of the driver is made here.
 */
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "mem/cuda.h"

_Static_assert(sizeof(struct hr__gather_piece) == 24, "kernels.cu reads it so");
_Static_assert(sizeof(struct hr__gather_start) == 8, "kernels.cu reads it so");
_Static_assert(sizeof(struct hr__gather_args) == 32, "kernels.cu takes it so");

/* Tiles just small enough that a short list keeps every warp busy; large ones hide latency
 * better. */
static uint32_t pick_shift(const struct hr__cuda_device *cd, uint64_t total)
{
	uint64_t share = total / ((uint64_t)cd->blocks_max * HR__GATHER_WARPS);
	uint32_t shift = HR__GATHER_SHIFT_MIN;

	while (shift < HR__GATHER_SHIFT_MAX && (1ull << shift) < share)
		shift++;
	return shift;
}

/*
 * Pieces of one length get equal shares of tiles, the largest that any of them needs, so that warps
 * find their place by a division. Otherwise each warp is told where to begin.
 */
int hr__cuda_gather_plan(const struct hr__cuda_device *cd, const struct hr__move *moves, uint32_t n,
			 bool cast, struct hr__cuda_gather *out)
{
	uint64_t total = 0, most = 0, sum = 0;
	bool alike = true;

	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < n; i++) {
		total += moves[i].len;
		alike = alike && moves[i].len == moves[0].len;
	}
	out->args.tile_shift = pick_shift(cd, total);
	out->args.count = n;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t tiles = hr__gather_tiles((uintptr_t)moves[i].src, (uintptr_t)moves[i].dst,
						  moves[i].len, cast, out->args.tile_shift);

		sum += tiles;
		most = hr__max(most, tiles);
	}
	if (alike)
		sum = most * n;
	if (sum > UINT32_MAX)
		return hr__fail(HR_E_BAD_RANGE, "%s: a move of %llu bytes; split it",
				cd->dev.info.name, (unsigned long long)total);
	if (alike)
		out->args.tiles_per_piece = (uint32_t)most;
	out->args.tiles = (uint32_t)sum;
	out->blocks =
		(uint32_t)hr__min(cd->blocks_max, (sum + HR__GATHER_WARPS - 1) / HR__GATHER_WARPS);
	out->list_bytes = n * sizeof(struct hr__gather_piece);
	if (!alike)
		out->list_bytes +=
			(uint64_t)out->blocks * HR__GATHER_WARPS * sizeof(struct hr__gather_start);
	return 0;
}

/*
 * *hint: where the last address was found; neighbours in a list mostly share their ring. A piece may
 * go on from one pin into the next, as windows of a mapped file do, if the device sees them so too.
 */
static bool pin_translate(const struct hr__cuda_device *cd, const void *ptr, uint64_t len,
			  uint32_t *hint, uint64_t *out)
{
	uint64_t at = (uintptr_t)ptr, end, shift;
	uint32_t k = *hint;

	if (k >= cd->pins_count || at - cd->pins[k].host >= cd->pins[k].len)
		k = hr__cuda_pin_at(cd, at);
	if (k == cd->pins_count)
		return false;
	*hint = k;
	shift = cd->pins[k].device - cd->pins[k].host;
	*out = at + shift;
	end = cd->pins[k].host + cd->pins[k].len;
	while (len > end - at) {
		if (++k == cd->pins_count || cd->pins[k].host != end ||
		    cd->pins[k].device - cd->pins[k].host != shift)
			return false;
		end += cd->pins[k].len;
	}
	return true;
}

static bool fill_pieces(const struct hr__cuda_device *cd, enum hr__where where,
			const struct hr__move *moves, uint32_t n, uint32_t from_size,
			uint32_t to_size, struct hr__gather_piece *pieces)
{
	uint32_t hint = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct hr__gather_piece piece = {(uintptr_t)moves[i].src, (uintptr_t)moves[i].dst,
						 moves[i].len};

		if (where == HR__HOST_TO_DEVICE && piece.len &&
		    !pin_translate(cd, moves[i].src, piece.len, &hint, &piece.src))
			return false;
		if (where == HR__DEVICE_TO_HOST && piece.len &&
		    !pin_translate(cd, moves[i].dst, piece.len / from_size * to_size, &hint,
				   &piece.dst))
			return false;
		pieces[i] = piece;
	}
	return true;
}

/* Warp w works on tiles [tiles * w / warps, tiles * (w + 1) / warps), as in kernels.cu. */
static void fill_starts(const struct hr__cuda_gather *g, const struct hr__gather_piece *pieces,
			uint32_t n, bool cast, struct hr__gather_start *starts)
{
	uint32_t warps = g->blocks * HR__GATHER_WARPS, warp = 0;
	uint64_t first = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t tiles = hr__gather_tiles(pieces[i].src, pieces[i].dst, pieces[i].len, cast,
						  g->args.tile_shift);

		for (; warp < warps; warp++) {
			uint64_t at = (uint64_t)g->args.tiles * warp / warps;

			if (at >= first + tiles)
				break;
			starts[warp] = (struct hr__gather_start){i, (uint32_t)(at - first)};
		}
		first += tiles;
	}
}

int hr__cuda_gather_fill(struct hr__cuda_device *cd, enum hr__where where,
			 const struct hr__move *moves, uint32_t n, enum hr_dtype from,
			 enum hr_dtype to, void *list, uint64_t device, struct hr__cuda_gather *g)
{
	struct hr__gather_piece *pieces = list;
	bool cast = hr__cuda_kernel(from, to) != HR__KERNEL_hr_gather_bytes, found;

	pthread_rwlock_rdlock(&cd->pins_lock);
	found = fill_pieces(cd, where, moves, n, hr_dtype_size(from), hr_dtype_size(to), pieces);
	pthread_rwlock_unlock(&cd->pins_lock);
	if (!found)
		return hr__fail(HR_E_BAD_POINTER,
				"%s: host memory in a move is not pinned; pin the ring first",
				cd->dev.info.name);
	g->args.pieces = device;
	if (!g->args.tiles_per_piece) {
		g->args.starts = device + n * sizeof(*pieces);
		fill_starts(g, pieces, n, cast, (struct hr__gather_start *)(pieces + n));
	}
	return 0;
}

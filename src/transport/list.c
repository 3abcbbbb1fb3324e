/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/list.c - which pieces of a request lie in ready windows; holds each window once for all
 * pieces of a list, because other threads count themselves on the same words.
 */
#include <string.h>

#include "transport/list.h"

#define SET_WINDOWS 4096u /* windows behind these are held once a piece */

/* The windows that a list holds; built again to let go of them, in the same order. */
struct set {
	uint64_t words[SET_WINDOWS / 64];
};

/* Return: true when window @k was not there. */
static bool set_add(struct set *set, uint64_t k)
{
	uint64_t bit = 1ull << (k % 64), *word = &set->words[k / 64];
	bool fresh = !(*word & bit);

	*word |= bit;
	return fresh;
}

static bool set_has(const struct set *set, uint64_t k)
{
	return k < SET_WINDOWS && set->words[k / 64] >> (k % 64) & 1;
}

static void set_init(struct set *set, const struct hr__mapping *m)
{
	memset(set->words, 0, (hr__min(m->n_windows, SET_WINDOWS) + 63) / 64 * 8);
}

/* No piece is longer than a window, so it lies in two at most. */
static bool hold_piece(struct hr__mapping *m, struct set *set, const struct hr_piece *p,
		       int64_t mtime_ns)
{
	uint64_t end = p->file_offset + p->len, k = p->file_offset / HR__MAPPING_WINDOW;
	uint64_t border = (k + 1) * HR__MAPPING_WINDOW;

	if (end > border) {
		struct hr_piece head = {p->file_offset, border - p->file_offset, 0};
		struct hr_piece tail = {border, end - border, 0};
		bool had = set_has(set, k);

		if (!hold_piece(m, set, &head, mtime_ns))
			return false;
		if (hold_piece(m, set, &tail, mtime_ns))
			return true;
		if (k >= SET_WINDOWS || !had)
			hr__mapping_release(m, head.file_offset, head.len);
		if (k < SET_WINDOWS && !had)
			set->words[k / 64] &= ~(1ull << (k % 64));
		return false;
	}
	if (set_has(set, k))
		return end - k * HR__MAPPING_WINDOW <= m->windows[k].len; /* held: it stays */
	if (!hr__mapping_hold(m, p->file_offset, p->len, mtime_ns))
		return false;
	if (k < SET_WINDOWS)
		set_add(set, k);
	return true;
}

uint32_t hr__list_hold(struct hr__mapping *m, struct hr__seg *seg, struct hr_io *io, uint64_t first,
		       uint64_t size, int64_t mtime_ns)
{
	uint64_t left = hr__io_pieces(io) - first, bytes = 0, last = 0;
	uint32_t n = 0, most = (uint32_t)hr__min(left, HR__LIST_PIECES_MAX);
	struct set set;

	_Static_assert(HR__LIST_PIECE_MAX <= HR__MAPPING_WINDOW, "two windows at most");
	set_init(&set, m);
	for (; n < most; n++) {
		struct hr_piece p = hr__io_piece(io, first + n);
		uint64_t end = p.file_offset + p.len;

		if (p.len > HR__LIST_PIECE_MAX || bytes + p.len > HR__LIST_BYTES_MAX ||
		    end > size || end > m->len)
			break;
		if (p.len && !hold_piece(m, &set, &p, mtime_ns))
			break;
		bytes += p.len;
		last = hr__max(last, end);
	}
	if (!bytes) /* empty pieces hold nothing */
		return 0;
	seg->list_io = io;
	seg->list_first = first;
	seg->list_n = n;
	seg->list_end = last;
	seg->plan = (struct hr__plan_segment){
		.len = (uint32_t)bytes,
		.need = (uint32_t)bytes,
		.n_dests = n,
		.first.owner = io,
	};
	return n;
}

static void release_window(struct hr__mapping *m, struct set *set, uint64_t k)
{
	if (k >= SET_WINDOWS || set_add(set, k))
		hr__mapping_release(m, k * HR__MAPPING_WINDOW, 1);
}

void hr__list_release(struct hr__seg *seg)
{
	struct hr__mapping *m = seg->mapping;
	struct set set;

	set_init(&set, m);
	for (uint32_t i = 0; i < seg->list_n; i++) {
		struct hr_piece p = hr__io_piece(seg->list_io, seg->list_first + i);
		uint64_t k = p.file_offset / HR__MAPPING_WINDOW;

		if (!p.len)
			continue;
		release_window(m, &set, k);
		if ((p.file_offset + p.len - 1) / HR__MAPPING_WINDOW != k)
			release_window(m, &set, k + 1);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner against chance: random windows, limits and pools, each carried out on paper (and some
 * on real bytes between guards). Whatever the numbers, every wanted byte arrives exactly once, and
 * no request breaks a limit. A failure prints its seed; run with that seed as the only argument.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "file/plan.h"

#define WINDOWS 120000u
#define N_MAX 2000u
#define MEMORY (1u << 18)
#define GUARD 0xa5

static uint64_t seed, prng;

struct piece {
	uint64_t off, len, dst; /* len: planned, after the end of the file is cut off */
	uint64_t done;          /* bytes that arrived, always a prefix */
	uint64_t in_place;
	uint32_t start; /* real bytes: where in memory */
};

static struct piece pieces[N_MAX];
static struct hr__want wants[N_MAX];
static struct hr__dest dests[N_MAX];
static unsigned char memory[MEMORY];

struct window {
	struct hr__limits l;
	struct hr__plan plan;
	struct hr__dest_pool pool;
	uint32_t n, pool_size;
	bool ample; /* the pool never runs dry */
	bool real;  /* also move bytes */
	bool disordered;
	uint64_t segments, bytes_asked;
	uint64_t last_off, staged_end;
	uint32_t n_runs;
};

/* What is wanted without a gap worth a request, ascending. */
static struct {
	uint64_t off, end;
} runs[N_MAX];

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "seed %llu: line %d: %s\n", (unsigned long long)seed,      \
				__LINE__, #cond);                                                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static uint64_t rnd(uint64_t below)
{
	prng ^= prng << 13;
	prng ^= prng >> 7;
	prng ^= prng << 17;
	return below ? (prng * 0x2545f4914f6cdd1dull >> 11) % below : 0;
}

static unsigned char file_byte(uint64_t off)
{
	return (unsigned char)((off * 0x9e3779b97f4a7c15ull) >> 56);
}

static void random_limits(struct window *w)
{
	static const uint32_t aligns[] = {1, 512, 4096};
	static const uint32_t gaps[] = {0, 1, 511, 4096, 65536};
	struct hr__limits *l = &w->l;

	memset(w, 0, sizeof(*w));
	l->offset_align = aligns[rnd(3)];
	l->memory_align = aligns[rnd(3)];
	l->segment_max = l->offset_align * (uint32_t)(2 + rnd(rnd(4) ? 8 : 300));
	if (l->offset_align == 1)
		l->segment_max = 2 + (uint32_t)rnd(rnd(4) ? 30000 : 30);
	l->gap = gaps[rnd(5)];
	l->in_place_min = (uint32_t)rnd(5) * 4096;
	l->in_place = rnd(2);
	l->staged = l->offset_align > 1 || !l->in_place || rnd(2);
	l->write = rnd(4) == 0;
}

static void random_pieces(struct window *w)
{
	static const uint64_t bases[] = {
		0, 1, 1ull << 32, (1ull << 40) + 77, 1ull << 62, INT64_MAX - (1u << 20)};
	uint64_t base = bases[rnd(6)], range = 1ull << (6 + rnd(13)), long_max = 1ull << rnd(17);
	uint32_t memory_used = 0;
	uint32_t n = 1 + (uint32_t)rnd(rnd(3) ? 6 : 40);

	if (rnd(500) == 0)
		n = 1 + (uint32_t)rnd(N_MAX);
	w->l.file_size = base + rnd(2 * range);
	w->real = rnd(20) == 0;
	hr__plan_init(&w->plan, wants, N_MAX);
	hr__plan_begin(&w->plan, &w->l);
	for (uint32_t i = 0; i < n; i++) {
		struct piece *p = &pieces[w->n];
		uint64_t coarse = rnd(2) ? 1 : 512;
		int64_t planned;

		memset(p, 0, sizeof(*p));
		p->off = base + hr__align_down(rnd(range), coarse);
		p->len = 1 + rnd(long_max);
		if (coarse > 1)
			p->len = hr__align_up(p->len, 512);
		p->dst = rnd(3) ? (rnd(1ull << 50) << 12) + (p->off & 4095) : rnd(1ull << 62);
		if (w->real && memory_used + p->len + 1 > MEMORY)
			break;
		p->start = memory_used;
		planned = hr__plan_add(&w->plan, p->off, p->len, p->dst, p);
		if (w->l.write || p->off + p->len <= w->l.file_size)
			CHECK((uint64_t)planned == p->len);
		else
			CHECK((uint64_t)planned ==
			      (p->off < w->l.file_size ? w->l.file_size - p->off : 0));
		p->len = (uint64_t)planned;
		memory_used += (uint32_t)p->len + 1; /* and one guard byte */
		w->n++;
	}
	w->ample = rnd(2);
	w->pool_size = w->ample ? n : (uint32_t)rnd(rnd(2) ? 3 : n + 1);
	for (uint32_t i = 0; i < w->pool_size; i++) {
		dests[i].next = w->pool.free;
		w->pool.free = &dests[i];
	}
	if (w->real)
		memset(memory, GUARD, sizeof(memory));
}

/* How much of a piece has to go in place, from the description alone. */
static uint64_t expected_in_place(const struct hr__limits *l, const struct piece *p)
{
	uint64_t a = l->offset_align, start = (p->off + a - 1) / a * a;
	uint64_t stop = (p->off + p->len) / a * a;

	if (!l->in_place || !p->len)
		return 0;
	if (a == 1)
		return p->len;
	if (stop <= start || (p->dst + (start - p->off)) % l->memory_align)
		return 0;
	if ((start > p->off || stop < p->off + p->len) && stop - start < l->in_place_min)
		return 0;
	if (l->segment_max < l->memory_align && stop - start > l->segment_max)
		return 0;
	return stop - start;
}

static void check_dest(struct window *w, const struct hr__plan_segment *seg,
		       const struct hr__dest *d)
{
	struct piece *p = d->owner;
	uint64_t into = d->dst - p->dst;

	CHECK(d->len > 0);
	CHECK(into == p->done); /* exactly once, and in order */
	CHECK(into + d->len <= p->len);
	CHECK(seg->off + d->seg_off == p->off + into); /* the right byte at the right place */
	CHECK((uint64_t)d->seg_off + d->len <= seg->need);
	p->done += d->len;
	if (seg->in_place && !seg->unaligned)
		p->in_place += d->len;
	for (uint32_t i = 0; w->real && i < d->len; i++) {
		unsigned char *to = memory + p->start + into + i;

		*to = file_byte(seg->off + d->seg_off + i);
	}
}

static void check_segment_alone(const struct window *w, const struct hr__plan_segment *seg)
{
	const struct hr__limits *l = &w->l;

	CHECK(seg->len > 0 && seg->len <= l->segment_max && seg->need <= seg->len && seg->need);
	CHECK(seg->n_dests >= 1);
	if (seg->unaligned) {
		CHECK(l->write && l->offset_align > 1 && seg->len < l->offset_align);
		CHECK(seg->off / l->offset_align == (seg->off + seg->len - 1) / l->offset_align);
		CHECK(seg->in_place == !l->staged);
	} else {
		CHECK(seg->off % l->offset_align == 0 && seg->len % l->offset_align == 0);
		CHECK(seg->in_place ? l->in_place : l->staged);
	}
	if (seg->in_place || l->write) {
		CHECK(seg->n_dests == 1 && seg->first.len == seg->len && seg->need == seg->len);
		CHECK(seg->first.seg_off == 0);
	}
	if (seg->in_place && !seg->unaligned && l->offset_align > 1)
		CHECK(seg->first.dst % l->memory_align == 0);
	if (!l->write)
		CHECK(seg->off + seg->need <= l->file_size);
}

static void check_segment(struct window *w, struct hr__plan_segment *seg)
{
	const struct hr__dest *d = &seg->first;
	uint64_t reached = 0;
	uint32_t at = 0;

	check_segment_alone(w, seg);
	w->disordered |= seg->off < w->last_off;
	w->last_off = seg->off;
	if (!seg->in_place && !w->l.write && w->ample) {
		CHECK(seg->off >= w->staged_end); /* no block twice */
		w->staged_end = seg->off + seg->len;
	}
	for (uint32_t i = 0; i < seg->n_dests; i++) {
		CHECK(d && d->seg_off >= at);
		at = d->seg_off;
		reached = hr__max(reached, (uint64_t)d->seg_off + d->len);
		check_dest(w, seg, d);
		CHECK(i + 1 < seg->n_dests || d == seg->last);
		d = d->next;
	}
	CHECK(!d);
	CHECK(reached == seg->need);
	CHECK(seg->len - seg->need < w->l.offset_align);
	CHECK(!w->l.write || seg->len == seg->need);
	w->segments++;
	w->bytes_asked += seg->len;
}

static int by_offset(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int by_run(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Of the pieces as they were given. */
static void find_runs(struct window *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		if (pieces[i].len) {
			runs[n].off = pieces[i].off;
			runs[n++].end = pieces[i].off + pieces[i].len;
		}
	}
	qsort(runs, n, sizeof(runs[0]), by_run);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t last = w->n_runs ? w->n_runs - 1 : 0;

		if (w->n_runs && runs[i].off <= runs[last].end + w->l.gap)
			runs[last].end = hr__max(runs[last].end, runs[i].end);
		else
			runs[w->n_runs++] = runs[i];
	}
}

/* No byte of a run that nobody wants; all of it where order takes nothing away. */
static void check_run(struct window *w, const struct hr__plan_segment *seg)
{
	uint64_t first = seg->off + seg->first.seg_off, last = seg->off + seg->need, off, end;
	uint32_t i = 0;

	hr__plan_run(&w->plan, seg, &off, &end);
	CHECK(off <= first && end >= last);
	if (w->l.offset_align > 1)
		return; /* what lies in one block is read together, however far apart */
	while (runs[i].end < last)
		i++;
	CHECK(off >= runs[i].off);
	CHECK(end == UINT64_MAX ? runs[i].end == w->l.file_size : end <= runs[i].end);
	if (w->plan.whole)
		return;
	CHECK(off == runs[i].off);
	CHECK(end == (runs[i].end < w->l.file_size ? runs[i].end : UINT64_MAX));
}

/* All staged, no gap, enough destinations: the fewest requests are known. */
static void check_minimal(const struct window *w)
{
	const struct hr__limits *l = &w->l;
	uint64_t segments = 0, bytes = 0, start = 0, end = 0;

	if (l->write || l->in_place || l->gap > 1 || !w->ample)
		return;
	if (l->gap && l->offset_align == 1)
		return;
	qsort(pieces, w->n, sizeof(pieces[0]), by_offset);
	for (uint32_t i = 0; i <= w->n; i++) {
		const struct piece *p = &pieces[i];
		uint64_t from, to;

		if (i < w->n && !p->len)
			continue;
		from = i < w->n ? hr__align_down(p->off, l->offset_align) : UINT64_MAX;
		if (from > end) {
			segments += (end - start + l->segment_max - 1) / l->segment_max;
			bytes += end - start;
			start = from;
			end = from;
		}
		if (i == w->n)
			break;
		to = hr__align_up(p->off + p->len, l->offset_align);
		end = hr__max(end, to);
	}
	CHECK(w->segments == segments);
	CHECK(w->bytes_asked == bytes);
}

/* Ascending order is given up only where each piece is one request, in place: nothing can merge. */
static void check_each_whole(const struct window *w)
{
	uint64_t filled = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		CHECK(pieces[i].in_place == pieces[i].len);
		filled += pieces[i].len > 0;
	}
	CHECK(!w->l.write && w->segments == filled);
}

/* Short pieces that lie near each other may be staged together where any byte could go in place. */
static bool may_have_company(const struct window *w, const struct piece *p)
{
	const struct hr__limits *l = &w->l;

	if (l->write || l->offset_align != 1 || !l->staged || p->len >= l->in_place_min)
		return false;
	for (uint32_t i = 0; i < w->n; i++) {
		const struct piece *q = &pieces[i];

		if (q != p && q->len && q->len < l->in_place_min &&
		    q->off <= p->off + p->len + l->gap && p->off <= q->off + q->len + l->gap)
			return true;
	}
	return false;
}

static void check_finished(struct window *w)
{
	uint32_t free_dests = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		const struct piece *p = &pieces[i];

		CHECK(p->done == p->len);
		if (!w->l.write || w->l.offset_align > 1)
			CHECK(p->in_place == expected_in_place(&w->l, p) ||
			      (!p->in_place && may_have_company(w, p)));
		if (!w->real)
			continue;
		for (uint64_t k = 0; k < p->len; k++)
			CHECK(memory[p->start + k] == file_byte(p->off + k));
		CHECK(memory[p->start + p->len] == GUARD);
	}
	for (const struct hr__dest *d = w->pool.free; d; d = d->next)
		free_dests++;
	CHECK(free_dests == w->pool_size);
	check_minimal(w);
	if (w->disordered)
		check_each_whole(w);
}

static void run_window(uint64_t number)
{
	static struct window w;
	struct hr__plan_segment seg;

	seed = number;
	prng = number * 0x9e3779b97f4a7c15ull + 1;
	rnd(2);
	random_limits(&w);
	random_pieces(&w);
	find_runs(&w);
	while (hr__plan_next(&w.plan, &w.pool, &seg)) {
		CHECK(w.segments < 100000000); /* it ends */
		check_segment(&w, &seg);
		if (!w.l.write)
			check_run(&w, &seg);
		hr__dests_free(&w.pool, &seg);
	}
	CHECK(hr__plan_done(&w.plan));
	check_finished(&w);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		run_window(strtoull(argv[1], NULL, 0));
		return 0;
	}
	for (uint64_t i = 1; i <= WINDOWS; i++)
		run_window(i);
	return 0;
}

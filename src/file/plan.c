/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/plan.c - the arithmetic of plan.h: knows numbers only, no files, no memory, no devices.
 *
 * The window is an array of pieces sorted by where their rest begins. A segment takes the front of
 * one piece (in place, writes) or of several (staged reads); a piece that is not finished moves to
 * where its rest belongs in the order. No other state is kept, which is why a piece of any length
 * and any number of overlapping pieces need no memory.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "file/plan.h"

/* Up to here sorting by insertion beats a heap. */
#define INSERTION_MAX 16u

/* Which pieces a staged segment takes, before any of them is touched. */
struct reach {
	uint64_t end;  /* no byte at or after it is delivered */
	uint32_t stop; /* index of the first piece that was not looked at */
};

void hr__plan_init(struct hr__plan *plan, struct hr__want *wants, uint32_t cap)
{
	memset(plan, 0, sizeof(*plan));
	plan->wants = wants;
	plan->cap = cap;
	plan->sorted = true;
}

/* The longest in-place request after which the next address is still aligned. */
static uint64_t in_place_max(const struct hr__limits *l)
{
	if (l->offset_align == 1 || l->segment_max < l->memory_align)
		return l->segment_max;
	return hr__align_down(l->segment_max, hr__max(l->offset_align, l->memory_align));
}

void hr__plan_begin(struct hr__plan *plan, const struct hr__limits *limits)
{
	assert(hr__is_pow2(limits->offset_align) && hr__is_pow2(limits->memory_align));
	assert(limits->segment_max / 2 >= limits->offset_align);
	assert(limits->segment_max % limits->offset_align == 0);
	/* Only staging memory can take the blocks around an edge. */
	assert(limits->staged || (limits->in_place && limits->offset_align == 1));
	plan->limits = *limits;
	/* off_t ends there, and rounding up to a block must not wrap. */
	plan->limits.file_size = hr__min(limits->file_size, INT64_MAX);
	plan->n = 0;
	plan->first = 0;
	plan->sorted = true;
	plan->whole = limits->in_place && !limits->write;
	plan->whole_max = in_place_max(limits);
	/* Where any byte can go in place, short ones may do better in company. */
	plan->whole_min = limits->offset_align > 1 || !limits->staged ? 0 : limits->in_place_min;
	plan->block_mask = limits->offset_align - 1;
	/* A buffered request takes any address. */
	plan->address_mask = limits->offset_align > 1 ? limits->memory_align - 1 : 0;
	plan->ready = false;
	plan->run_off = plan->run_end = 0;
}

/* -- sorting ---------------------------------------------------------------------------------- */

/* Put wants[i] where it belongs in the sorted wants[i + 1 .. n). */
static void insert_right(struct hr__want *wants, uint32_t i, uint32_t n)
{
	struct hr__want moving = wants[i];
	uint32_t low = i + 1, high = n;

	if (low >= n || wants[low].file_off >= moving.file_off)
		return;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (wants[middle].file_off < moving.file_off)
			low = middle + 1;
		else
			high = middle;
	}
	memmove(wants + i, wants + i + 1, (low - 1 - i) * sizeof(*wants));
	wants[low - 1] = moving;
}

/* Let @moving sink from the hole at @root of the heap wants[0 .. n). */
static void sift_down(struct hr__want *wants, uint32_t root, uint32_t n, struct hr__want moving)
{
	uint64_t child;

	while ((child = 2ull * root + 1) < n) {
		if (child + 1 < n && wants[child + 1].file_off > wants[child].file_off)
			child++;
		if (wants[child].file_off <= moving.file_off)
			break;
		wants[root] = wants[child];
		root = (uint32_t)child;
	}
	wants[root] = moving;
}

/* Heapsort: in place, without recursion, and no input makes it slow. */
static void sort_wants(struct hr__want *wants, uint32_t n)
{
	if (n <= INSERTION_MAX) {
		for (uint32_t i = n; i-- > 0;)
			insert_right(wants, i, n);
		return;
	}
	for (uint32_t i = n / 2; i-- > 0;)
		sift_down(wants, i, n, wants[i]);
	while (n > 1) {
		struct hr__want last = wants[--n];

		wants[n] = wants[0];
		sift_down(wants, 0, n, last);
	}
}

/*
 * The pieces wants[first .. stop) were shortened: drop the finished ones and put the others where
 * their rest belongs.
 */
static void settle(struct hr__plan *plan, uint32_t stop)
{
	struct hr__want *wants = plan->wants;
	uint32_t kept = stop;

	for (uint32_t i = stop; i-- > plan->first;) {
		if (!wants[i].len)
			continue;
		if (--kept != i)
			wants[kept] = wants[i];
	}
	plan->first = kept;
	if (stop - kept > INSERTION_MAX) {
		for (uint32_t i = kept; i + 1 < plan->n; i++) {
			if (wants[i].file_off > wants[i + 1].file_off) {
				sort_wants(wants + kept, plan->n - kept);
				break;
			}
			if (i >= stop)
				break;
		}
		return;
	}
	for (uint32_t i = stop; i-- > kept;)
		insert_right(wants, i, plan->n);
}

/* -- pieces ----------------------------------------------------------------------------------- */

/* Where the part of a new piece ends that goes straight to its destination; 0 if none does. */
static uint64_t find_body_end(const struct hr__limits *l, const struct hr__want *w)
{
	uint64_t end = w->file_off + w->len, start, stop;

	if (!l->in_place)
		return 0;
	if (l->offset_align == 1)
		return end; /* a buffered request takes any byte and any address */
	start = hr__align_up(w->file_off, l->offset_align);
	/* The last block of a file is an edge too: a direct read would write past the piece. */
	stop = hr__align_down(end, l->offset_align);
	if (stop <= start || ((w->dst + (start - w->file_off)) & (l->memory_align - 1)))
		return 0;
	if ((start != w->file_off || stop != end) && stop - start < l->in_place_min)
		return 0;
	/* A body that must be cut where the next address would be unaligned cannot go on. */
	if (stop - start > l->segment_max && l->segment_max < l->memory_align)
		return 0;
	return stop;
}

/*
 * Random reads of whole blocks are the common case that has to be cheap: one request each, straight
 * to its destination. No neighbour can change that, so a window of them needs no order.
 */
static bool is_whole(const struct hr__plan *plan, const struct hr__want *w)
{
	return w->len <= plan->whole_max && w->len >= plan->whole_min &&
	       !((w->file_off | w->len) & plan->block_mask) && !(w->dst & plan->address_mask);
}

int64_t hr__plan_add(struct hr__plan *plan, uint64_t file_off, uint64_t len, uint64_t dst,
		     void *owner)
{
	const struct hr__limits *l = &plan->limits;
	struct hr__want *w;
	uint64_t end, dst_end;

	if (hr__add_overflows(file_off, len, &end) || hr__add_overflows(dst, len, &dst_end))
		return -EOVERFLOW;
	if (l->write) {
		if (end > INT64_MAX)
			return -EOVERFLOW;
	} else {
		end = hr__min(end, l->file_size);
	}
	if (end <= file_off)
		return 0;
	if (plan->n == plan->cap)
		return -ENOSPC;
	w = &plan->wants[plan->n];
	w->file_off = file_off;
	w->len = end - file_off;
	w->dst = dst;
	w->owner = owner;
	if (plan->whole && is_whole(plan, w)) {
		w->body_end = end;
	} else {
		w->body_end = find_body_end(l, w);
		plan->whole = false;
	}
	if (plan->n && w[-1].file_off > file_off)
		plan->sorted = false;
	plan->n++;
	return (int64_t)w->len;
}

static bool in_body(const struct hr__want *w)
{
	return w->body_end > w->file_off;
}

/* How many bytes at the front of a read piece need staging: 0 where its body begins. */
static uint64_t staged_len(const struct hr__limits *l, const struct hr__want *w)
{
	if (!in_body(w))
		return w->len;
	return hr__align_up(w->file_off, l->offset_align) - w->file_off;
}

/* Move @len bytes from the front of @w into the destination @d of @seg. */
static void take(struct hr__dest *d, struct hr__want *w, uint64_t len, uint64_t seg_start)
{
	d->next = NULL;
	d->owner = w->owner;
	d->dst = w->dst;
	d->seg_off = (uint32_t)(w->file_off - seg_start);
	d->len = (uint32_t)len;
	w->file_off += len;
	w->dst += len;
	w->len -= len;
}

/* A segment for the first @len bytes of the first piece alone, read from @start on. */
static void single(struct hr__plan *plan, struct hr__plan_segment *seg, uint64_t start,
		   uint64_t len)
{
	struct hr__want *w = &plan->wants[plan->first];

	seg->off = start;
	seg->need = (uint32_t)(w->file_off - start + len);
	seg->len = seg->need;
	seg->n_dests = 1;
	seg->last = &seg->first;
	take(&seg->first, w, len, start);
	if (!w->len)
		plan->first++;
	else
		insert_right(plan->wants, plan->first, plan->n);
}

/* -- segments --------------------------------------------------------------------------------- */

static void next_in_place(struct hr__plan *plan, struct hr__plan_segment *seg)
{
	const struct hr__want *w = &plan->wants[plan->first];

	seg->in_place = true;
	seg->unaligned = false;
	single(plan, seg, w->file_off,
	       hr__min(w->body_end - w->file_off, in_place_max(&plan->limits)));
}

/* As next_in_place(), where the request is the piece. */
static void next_whole(struct hr__plan *plan, struct hr__plan_segment *seg)
{
	const struct hr__want *w = &plan->wants[plan->first++];

	seg->off = w->file_off;
	seg->len = seg->need = (uint32_t)w->len;
	seg->in_place = true;
	seg->unaligned = false;
	seg->n_dests = 1;
	seg->first = (struct hr__dest){
		.owner = w->owner,
		.dst = w->dst,
		.len = (uint32_t)w->len,
	};
	seg->last = &seg->first;
}

static void next_write(struct hr__plan *plan, struct hr__plan_segment *seg)
{
	const struct hr__limits *l = &plan->limits;
	const struct hr__want *w = &plan->wants[plan->first];
	uint64_t into_block = w->file_off & (l->offset_align - 1);

	if (into_block || w->len < l->offset_align) {
		/* The buffered descriptor takes any address; device memory must be staged first. */
		seg->in_place = !l->staged;
		seg->unaligned = true;
		single(plan, seg, w->file_off, hr__min(w->len, l->offset_align - into_block));
		return;
	}
	if (in_body(w)) {
		next_in_place(plan, seg);
		return;
	}
	seg->in_place = false;
	seg->unaligned = false;
	single(plan, seg, w->file_off,
	       hr__min(hr__align_down(w->len, l->offset_align), l->segment_max));
}

/*
 * Can @w, whose front of @len bytes needs staging, share a segment that delivers up to @end so far
 * and may not go past @limit?
 */
static bool joins(const struct hr__limits *l, const struct hr__want *w, uint64_t len, uint64_t end,
		  uint64_t limit)
{
	uint64_t block_end = hr__align_up(end, l->offset_align);

	if (w->file_off >= limit)
		return false;
	/* The same or the next block: two requests would cost more, or read a block twice. */
	if (hr__align_down(w->file_off, l->offset_align) <= block_end)
		return true;
	/* Across a gap only a piece that fits: cutting it would read the gap for nothing. */
	return w->file_off - end <= l->gap && w->file_off + len <= limit;
}

/* Find out how far the staged segment goes that begins with the first piece. */
static struct reach find_reach(const struct hr__plan *plan, const struct hr__dest_pool *pool,
			       uint64_t limit)
{
	const struct hr__limits *l = &plan->limits;
	const struct hr__dest *spare = pool->free;
	uint64_t start = plan->wants[plan->first].file_off, end = start;
	uint32_t i;

	for (i = plan->first; i < plan->n; i++) {
		const struct hr__want *w = &plan->wants[i];
		uint64_t len = staged_len(l, w);

		if (!joins(l, w, len, end, limit))
			break;
		/*
		 * The tail of a piece with a body will be staged later, when its body is done. What
		 * shares its block waits for it, or the block would be read twice.
		 */
		if (in_body(w) && w->file_off + w->len > w->body_end) {
			limit = hr__min(limit, w->body_end);
			end = hr__min(end, limit);
		}
		if (!len)
			continue; /* its turn comes by itself, in place */
		if (i > plan->first) {
			if (!spare) {
				/* What begins here, and the rest of what goes on here, waits for
				 * destinations. Twins of the first piece just wait. */
				if (w->file_off > start)
					end = hr__min(end, w->file_off);
				break;
			}
			spare = spare->next;
		}
		end = hr__max(end, hr__min(w->file_off + len, limit));
	}
	return (struct reach){.end = end, .stop = i};
}

/* The front of @w that ends at or before @end: whole elements, unless it is all of the piece. */
static uint64_t whole_units(const struct hr__limits *l, const struct hr__want *w, uint64_t end)
{
	uint64_t len = staged_len(l, w), fits = end - w->file_off;

	if (len <= fits)
		return len;
	return l->unit > 1 ? fits - fits % l->unit : fits;
}

static struct hr__dest *next_dest(struct hr__plan_segment *seg, struct hr__dest_pool *pool)
{
	struct hr__dest *d;

	if (!seg->n_dests++)
		return &seg->first;
	d = pool->free;
	pool->free = d->next;
	pool->n_free--;
	seg->last->next = d;
	return d;
}

/* The general case: take from every piece within reach. */
static void gather(struct hr__plan *plan, struct hr__dest_pool *pool, struct hr__plan_segment *seg,
		   uint64_t limit)
{
	struct reach reach = find_reach(plan, pool, limit);
	uint64_t need = 0;

	/* Cut in the middle of the first element for want of destinations: go on without the others. */
	if (!whole_units(&plan->limits, &plan->wants[plan->first], reach.end))
		reach = (struct reach){.end = limit, .stop = plan->first + 1};
	seg->n_dests = 0;
	for (uint32_t i = plan->first; i < reach.stop; i++) {
		struct hr__want *w = &plan->wants[i];
		uint64_t len;

		if (w->file_off >= reach.end)
			continue;
		len = whole_units(&plan->limits, w, reach.end);
		if (!len)
			continue;
		seg->last = next_dest(seg, pool);
		take(seg->last, w, len, seg->off);
		need = hr__max(need, (uint64_t)seg->last->seg_off + seg->last->len);
	}
	seg->need = (uint32_t)need;
	settle(plan, reach.stop);
}

static void next_staged(struct hr__plan *plan, struct hr__dest_pool *pool,
			struct hr__plan_segment *seg, uint64_t len)
{
	const struct hr__limits *l = &plan->limits;
	const struct hr__want *w = &plan->wants[plan->first];
	uint64_t start = hr__align_down(w->file_off, l->offset_align);
	uint64_t limit = start + l->segment_max;
	uint64_t end = hr__min(w->file_off + len, limit);

	seg->in_place = false;
	seg->unaligned = false;
	seg->off = start;
	/* Scattered small reads are the common case: no neighbour, nothing to collect. */
	if (plan->first + 1 == plan->n || !joins(l, w + 1, staged_len(l, w + 1), end, limit))
		single(plan, seg, start, whole_units(l, w, end));
	else
		gather(plan, pool, seg, limit);
	seg->len = (uint32_t)hr__align_up(seg->need, l->offset_align);
}

static bool are_near(const struct hr__limits *l, const struct hr__want *a, const struct hr__want *b)
{
	return a->len < l->in_place_min && b->len < l->in_place_min &&
	       b->file_off <= a->file_off + a->len + l->gap;
}

/*
 * Where any byte may go in place, each piece would be a request of its own. Short ones beside each
 * other are staged together instead: copying them costs less than asking for each.
 */
static void find_company(struct hr__plan *plan)
{
	const struct hr__limits *l = &plan->limits;
	struct hr__want *w = plan->wants;
	bool near = false;

	if (l->write || l->offset_align != 1 || !l->in_place || !l->staged || !l->in_place_min)
		return;
	for (uint32_t i = 0; i < plan->n; i++) {
		bool next = i + 1 < plan->n && are_near(l, &w[i], &w[i + 1]);

		if (near || next)
			w[i].body_end = 0;
		near = next;
	}
}

int hr__plan_next(struct hr__plan *plan, struct hr__dest_pool *pool, struct hr__plan_segment *seg)
{
	uint64_t len;

	if (hr__plan_done(plan))
		return 0;
	if (plan->whole) {
		next_whole(plan, seg);
		return 1;
	}
	if (!plan->ready) {
		if (!plan->sorted)
			sort_wants(plan->wants, plan->n);
		find_company(plan);
		plan->sorted = plan->ready = true;
	}
	if (plan->limits.write) {
		next_write(plan, seg);
		return 1;
	}
	len = staged_len(&plan->limits, &plan->wants[plan->first]);
	if (len)
		next_staged(plan, pool, seg, len);
	else
		next_in_place(plan, seg);
	return 1;
}

/* Found once for each run: pieces that were taken from stand where their rest begins. */
void hr__plan_run(struct hr__plan *plan, const struct hr__plan_segment *seg, uint64_t *off,
		  uint64_t *end)
{
	uint64_t first = seg->off + seg->first.seg_off, last = seg->off + seg->need;

	if (first < plan->run_off || last > plan->run_end) {
		plan->run_off = first;
		plan->run_end = last;
		for (uint32_t i = plan->first; i < plan->n; i++) {
			const struct hr__want *w = &plan->wants[i];

			if (w->file_off < first || w->file_off > plan->run_end + plan->limits.gap)
				break;
			plan->run_end = hr__max(plan->run_end, w->file_off + w->len);
		}
	}
	*off = plan->run_off;
	*end = plan->run_end < plan->limits.file_size ? plan->run_end : UINT64_MAX;
}

void hr__dests_free_chain(struct hr__dest_pool *pool, struct hr__plan_segment *seg)
{
	seg->last->next = pool->free;
	pool->free = seg->first.next;
	pool->n_free += seg->n_dests - 1;
	seg->first.next = NULL;
	seg->last = &seg->first;
	seg->n_dests = 1;
}

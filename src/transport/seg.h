/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/seg.h - what transports share: lists of segments, destinations, page-cache reads.
 */
#ifndef HR_TRANSPORT_SEG_H
#define HR_TRANSPORT_SEG_H

#include "base/util.h"
#include "transport/transport.h"

/* A list of segments; a segment is in one list at a time. */
struct hr__seg_list {
	struct hr__seg *head, *tail;
};

static inline void hr__seg_list_add(struct hr__seg_list *list, struct hr__seg *seg)
{
	seg->next = NULL;
	if (list->tail)
		list->tail->next = seg;
	else
		list->head = seg;
	list->tail = seg;
}

/* Behind all whose addresses are not higher, if these are in order. */
static inline void hr__seg_list_insert(struct hr__seg_list *list, struct hr__seg *seg)
{
	struct hr__seg **at = &list->head;

	while (*at && (uintptr_t)(*at)->addr <= (uintptr_t)seg->addr)
		at = &(*at)->next;
	seg->next = *at;
	*at = seg;
	if (!seg->next)
		list->tail = seg;
}

static inline struct hr__seg *hr__seg_list_take(struct hr__seg_list *list)
{
	struct hr__seg *seg = list->head;

	if (seg) {
		list->head = seg->next;
		if (!list->head)
			list->tail = NULL;
	}
	return seg;
}

/* All of @more at the end of @list; @more is empty then. */
static inline void hr__seg_list_join(struct hr__seg_list *list, struct hr__seg_list *more)
{
	if (!more->head)
		return;
	if (list->tail)
		list->tail->next = more->head;
	else
		list->head = more->head;
	list->tail = more->tail;
	*more = (struct hr__seg_list){0};
}

/* Up to @max segments off the list into @out. Return: count. */
static inline uint32_t hr__seg_list_drain(struct hr__seg_list *list, struct hr__seg **out,
					  uint32_t max)
{
	uint32_t n = 0;

	while (n < max && list->head)
		out[n++] = hr__seg_list_take(list);
	return n;
}

/* Bytes of a destination that really arrived: whole elements, nothing behind the end of the file. */
static inline uint32_t hr__dest_valid(const struct hr__seg *seg, const struct hr__dest *dest)
{
	uint32_t valid;

	if (seg->done <= dest->seg_off)
		return 0;
	valid = (uint32_t)hr__min(dest->len, seg->done - dest->seg_off);
	return seg->from == seg->to ? valid : valid - valid % hr_dtype_size(seg->from);
}

/*
 * Device address of a destination. A plain copy carries the address itself; with a conversion the
 * plan counts the destination in source bytes from the start of the buffer (see engine/window.c).
 */
static inline void *hr__dest_address(const struct hr__seg *seg, const struct hr__dest *dest)
{
	const struct hr_io *io = dest->owner;

	if (seg->from == seg->to)
		return (void *)(uintptr_t)dest->dst;
	return (uint8_t *)io->buffer->ptr +
	       dest->dst / hr_dtype_size(seg->from) * hr_dtype_size(seg->to);
}

/*
 * hr__seg_arrive() - less to wait for before the segment's bytes are where the device finds them; the last
 * of a request ends the collecting: *gathered counts those.
 */
static inline void hr__seg_arrive(const struct hr__seg *seg, uint64_t *gathered)
{
	if (seg->list_io) {
		seg->list_io->arriving_ -= seg->plan.len;
		*gathered += !seg->list_io->arriving_;
		return;
	}
	for (const struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		struct hr_io *io = d->owner;

		io->arriving_ -= d->len;
		*gathered += !io->arriving_;
	}
}

/* What an engine believes about the residency of one file. All zero at first. */
struct hr__heat {
	uint32_t hot_run;  /* reads in a row that the page cache served */
	uint32_t cold_run; /* answers "cold" in a row */
	uint32_t skip;     /* segments to go without asking */
};

/*
 * hr__looks_hot() - is what the segment wants in the page cache? Asks the kernel unless a run of
 * equal answers makes that needless. @mapped: a wrong yes would not be noticed, so that even a long
 * run is questioned now and then.
 */
bool hr__ask_hot(struct hr__seg *seg, struct hr_stats *stats, bool mapped);
static inline bool hr__looks_hot(struct hr__seg *seg, struct hr_stats *stats, bool mapped)
{
	struct hr__heat *heat = seg->heat;

	if (seg->cold)
		return false;
	/* In a cold file most of them end here. A run of hot ones leaves nothing to skip. */
	if (heat->skip && !seg->file->memory_backed) {
		heat->skip--;
		seg->cold = true;
		return false;
	}
	return hr__ask_hot(seg, stats, mapped);
}

/* Offsets and addresses at which a segment of a direct file may begin, and go on after a short result. */
static inline uint32_t hr__seg_align(const struct hr__seg *seg)
{
	return (uint32_t)hr__max(seg->file->offset_align, hr__max(seg->file->memory_align, 1));
}

static inline uint32_t hr__seg_right(const struct hr__seg *seg)
{
	return seg->op == HR_READ ? HR_FILE_READ : HR_FILE_WRITE;
}

/* hr__seg_aim() - choose the descriptor: direct where the segment allows it. */
void hr__seg_aim(struct hr__seg *seg, const struct hr_engine_options *opts);

/*
 * hr__seg_read() - begin a read whose seg->addr is set: what is hot is copied at once, or by a thread
 * of the queue if it has some; the rest goes to the drive.
 * Return: true when all of it is there already (seg->done, seg->cached), false when it was queued.
 */
bool hr__seg_read(struct hr__seg *seg, const struct hr__transport_env *env);

/*
 * hr__cached_copy() - copy a read out of the page cache without waiting; any thread may do that.
 * Return: true when all of it was there (seg->done, seg->cached).
 */
bool hr__cached_copy(struct hr__seg *seg);

/* hr__cached_settle() - the engine's thread learns from what hr__cached_copy() has found. */
void hr__cached_settle(struct hr__seg *seg);

#define HR__CREW_MIN (64u << 10) /* waking a thread costs as much as copying a tenth of this */

/* hr__crew_suits() - is it a read that several threads of @ioq serve sooner than this one alone? */
bool hr__crew_suits(const struct hr__seg *seg, const struct hr__ioq *ioq);

#endif

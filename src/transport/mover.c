/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/mover.c - collects pieces, gives them to a lane, waits for tickets; knows neither where
 * host memory comes from nor what becomes of it afterwards.
 */
#include <errno.h>

#include "transport/ioq.h"
#include "transport/mover.h"

#define LARGE_SEGMENT (128u << 10) /* worth a copy of its own */
#define LISTS_ENOUGH 2u            /* one that moves and one that follows without a gap */
#define SMALL_LIST (64u << 10)     /* moves in less time than it takes to call for it */
#define COMPANY_COMES 16u          /* with so many on their way the next is here in no time */
#define LIST_BYTES (8u << 20)      /* as much is worth a list of its own in any case */

int hr__mover_open(struct hr__mover *m, const struct hr__transport_env *env, uint64_t waiting_max)
{
	m->stats = env->stats;
	m->gathered = env->gathered;
	m->ioq = env->ioq;
	m->at_once = env->dev->caps & HR__MEM_CAP_HOST_VISIBLE;
	m->waiting_max = waiting_max;
	return env->dev->ops->lane_open(env->dev, NULL, &m->lane);
}

void hr__mover_close(struct hr__mover *m)
{
	m->lane->ops->close(m->lane);
}

static void fail_list(struct hr__mover *m, struct hr__seg_list *list, int code)
{
	struct hr__seg *seg;

	while ((seg = hr__seg_list_take(list))) {
		seg->error = code;
		hr__seg_list_add(&m->moved, seg);
	}
}

/* Straight out of the mapping; seg->addr is its start. */
static void add_list(struct hr__mover *m, const struct hr__seg *seg)
{
	const struct hr_io *io = seg->list_io;
	uint8_t *device = io->buffer->ptr;

	for (uint32_t i = 0; i < seg->list_n; i++) {
		struct hr_piece p = hr__io_piece(io, seg->list_first + i);

		if (p.len)
			m->moves[m->n_moves++] =
				(struct hr__move){(uint8_t *)seg->addr + p.file_offset,
						  device + p.buffer_offset, p.len};
	}
}

/* The pieces of one segment, appended to the list for the lane. */
static void add_moves(struct hr__mover *m, struct hr__seg *seg)
{
	if (seg->list_io) {
		add_list(m, seg);
		return;
	}
	for (struct hr__dest *d = &seg->plan.first; d; d = d->next) {
		uint8_t *host = (uint8_t *)seg->addr + d->seg_off;
		void *device = hr__dest_address(seg, d);
		uint32_t len = seg->op == HR_READ ? hr__dest_valid(seg, d) : d->len;

		if (!len)
			continue;
		m->moves[m->n_moves++] = seg->op == HR_READ ? (struct hr__move){host, device, len}
							    : (struct hr__move){device, host, len};
	}
}

/* Hand the collected pieces to the lane, all of one kind. Return: 0 or -code. */
static int issue(struct hr__mover *m, const struct hr__seg *kind, uint64_t *ticket)
{
	enum hr__where where = kind->op == HR_READ ? HR__HOST_TO_DEVICE : HR__DEVICE_TO_HOST;
	uint64_t bytes = 0;
	int ret;

	if (!m->n_moves)
		return 0;
	for (uint32_t i = 0; i < m->n_moves; i++)
		bytes += m->moves[i].len;
	ret = m->lane->ops->move(m->lane, where, m->moves, m->n_moves, kind->from, kind->to,
				 ticket);
	m->n_moves = 0;
	if (ret < 0)
		return ret;
	m->stats->copies += (uint32_t)ret;
	m->stats->bytes_moved += bytes;
	return 0;
}

static bool same_kind(const struct hr__seg *a, const struct hr__seg *b)
{
	return a->op == b->op && a->from == b->from && a->to == b->to;
}

/*
 * Move a list of segments: the longest runs of one kind that fit one call. A segment's own pieces
 * always fit: a plan gives a segment at most HR__LANE_MOVES_MAX of them (the pool's size).
 */
static void move_list(struct hr__mover *m, struct hr__seg_list *list)
{
	while (list->head) {
		struct hr__seg_list run = {0};
		struct hr__seg *kind = list->head, *seg;
		uint64_t ticket = 0;
		int ret;

		while (list->head && same_kind(list->head, kind) &&
		       m->n_moves + list->head->plan.n_dests <= HR__LANE_MOVES_MAX) {
			seg = hr__seg_list_take(list);
			add_moves(m, seg);
			hr__seg_list_add(&run, seg);
		}
		ret = issue(m, kind, &ticket);
		if (ret < 0) {
			fail_list(m, &run, ret);
			continue;
		}
		m->n_lists += ticket != 0;
		while ((seg = hr__seg_list_take(&run))) {
			seg->ticket = ticket;
			hr__seg_list_add(&m->moving, seg);
		}
	}
}

/* A lane on the CPU: move now, while the bytes are in its cache. */
static void move_at_once(struct hr__mover *m, struct hr__seg *seg)
{
	uint64_t ticket;
	int ret;

	add_moves(m, seg);
	ret = issue(m, seg, &ticket);
	if (ret < 0)
		seg->error = ret;
}

void hr__mover_in(struct hr__mover *m, struct hr__seg *seg)
{
	hr__seg_arrive(seg, m->gathered);
	if (seg->error || m->at_once) {
		if (!seg->error)
			move_at_once(m, seg);
		hr__seg_list_add(&m->moved, seg);
		return;
	}
	if (seg->plan.len >= LARGE_SEGMENT && !seg->list_io)
		hr__seg_list_insert(&m->waiting, seg);
	else
		hr__seg_list_add(&m->waiting, seg);
	m->waiting_bytes += seg->plan.len;
	if (seg->plan.len >= LARGE_SEGMENT || m->waiting_bytes >= m->waiting_max)
		m->flush = true;
}

void hr__mover_out(struct hr__mover *m, struct hr__seg *seg)
{
	if (!m->at_once) {
		hr__seg_list_add(&m->leaving, seg);
		return;
	}
	move_at_once(m, seg);
	hr__seg_list_add(&m->moved, seg);
}

static void harvest(struct hr__mover *m)
{
	uint64_t passed = 0;
	int ret;

	if (!m->moving.head)
		return;
	ret = m->lane->ops->poll(m->lane, &passed);
	if (ret < 0) {
		fail_list(m, &m->moving, ret);
		m->n_lists = 0;
		return;
	}
	while (m->moving.head && m->moving.head->ticket <= passed) {
		struct hr__seg *seg = hr__seg_list_take(&m->moving);

		if (seg->ticket && (!m->moving.head || m->moving.head->ticket != seg->ticket))
			m->n_lists--;
		hr__seg_list_add(&m->moved, seg);
	}
}

void hr__mover_start(struct hr__mover *m)
{
	move_list(m, &m->waiting);
	m->waiting_bytes = 0;
	m->flush = false;
	m->gathered_seen = *m->gathered;
}

static bool is_worth_a_list(const struct hr__mover *m)
{
	bool small = m->waiting_bytes < SMALL_LIST && m->ioq->in_flight >= COMPANY_COMES;
	uint32_t enough = small ? 1 : LISTS_ENOUGH;

	return m->n_lists < enough || m->waiting_bytes >= LIST_BYTES ||
	       m->waiting_bytes >= m->waiting_max;
}

void hr__mover_turn(struct hr__mover *m, bool idle)
{
	if (m->leaving.head)
		move_list(m, &m->leaving);
	harvest(m);
	m->flush = m->flush || *m->gathered != m->gathered_seen;
	m->gathered_seen = *m->gathered;
	if (m->waiting.head && (idle || (m->flush && is_worth_a_list(m))))
		hr__mover_start(m);
}

int hr__mover_wait(struct hr__mover *m, uint64_t timeout_ns)
{
	if (!m->moving.head)
		return 0;
	/* A failed lane is found by the next poll(), which fails the segments with its code. */
	m->lane->ops->wait(m->lane, m->moving.head->ticket, timeout_ns);
	return 1;
}

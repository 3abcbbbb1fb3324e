/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/staging.h - the bounded ring of host memory between the kernel and the device.
 *
 * Space is taken in order and given back in any order; it becomes free again in the order it was
 * taken. It turns back to its beginning as soon as there is room for twice what is in use, so that no
 * more memory is touched than the traffic needs, and stays in the CPU's cache: copies into memory that
 * was not used for long cost half as much again. One thread uses a ring.
 */
#ifndef HR_TRANSPORT_STAGING_H
#define HR_TRANSPORT_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"

#define HR__STAGING_ALIGN                                                                          \
	4096u                 /* the strictest that direct I/O asks of memory; of the ring itself */
#define HR__STAGING_GRAIN 64u /* pieces share no line of the CPU's cache */

struct hr__staging_slot {
	uint64_t end; /* ring position after it; positions only grow */
	bool free;
};

struct hr__staging {
	struct hr_device *dev;
	uint8_t *base;
	uint64_t len;                    /* bytes */
	uint64_t head, tail;             /* positions: next to take, oldest in use */
	struct hr__staging_slot *slots;  /* ring of slots_max entries, a power of two */
	uint32_t slots_max, first, next; /* counters that only grow */
};

/*
 * hr__staging_open() - map and pin @len bytes for @dev. @threads: may be used meanwhile, see
 * hr__populate(). Return: 0 or -code; *s unchanged then.
 */
int hr__staging_open(struct hr_device *dev, uint64_t len, uint32_t slots_max, uint32_t threads,
		     struct hr__staging *s);

/* hr__staging_close() - unpin and unmap; accepts a zeroed ring. */
void hr__staging_close(struct hr__staging *s);

/* hr__staging_room() - would hr__staging_take() succeed, whatever the alignment? */
bool hr__staging_room(const struct hr__staging *s, uint32_t len);

/*
 * hr__staging_take() - contiguous memory for @len bytes; room was checked.
 * @align: of its address, a power of two up to HR__STAGING_ALIGN: most drives are content with 512, and
 *         small reads at odd offsets then lie close together. @slot: to give it back.
 */
void *hr__staging_take(struct hr__staging *s, uint32_t len, uint32_t align, uint32_t *slot);

void hr__staging_give(struct hr__staging *s, uint32_t slot);

#endif

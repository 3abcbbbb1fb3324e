/* SPDX-License-Identifier: Apache-2.0 */
/* transport/staging.c - the staging ring's arithmetic and its memory; knows no I/O. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/numa.h"
#include "base/populate.h"
#include "base/sys.h"
#include "base/util.h"
#include "transport/staging.h"

int hr__staging_open(struct hr_device *dev, uint64_t len, uint32_t slots_max, uint32_t threads,
		     struct hr__staging *s)
{
	void *device_ptr;
	struct hr__staging ring = {.dev = dev, .len = len, .slots_max = slots_max};
	int ret;

	assert(hr__is_pow2(slots_max) && len % HR__STAGING_ALIGN == 0);
	ring.slots = calloc(slots_max, sizeof(*ring.slots));
	if (!ring.slots)
		return -ENOMEM;
	ring.base = hr__sys->mmap(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ring.base) {
		ret = -ENOMEM;
		goto err_slots;
	}
	/* Advice only: without huge pages pinning costs more, without DONTFORK a child copies pages. */
	hr__numa_prefer(ring.base, len, dev->info.numa_node);
	madvise(ring.base, len, MADV_HUGEPAGE);
	madvise(ring.base, len, MADV_DONTFORK);
	hr__populate(ring.base, len, threads, dev->info.numa_node);
	ret = dev->ops->pin(dev, ring.base, len, 0, &device_ptr);
	if (ret)
		goto err_unmap;
	*s = ring;
	return 0;

err_unmap:
	hr__sys->munmap(ring.base, len);
err_slots:
	free(ring.slots);
	return ret;
}

void hr__staging_close(struct hr__staging *s)
{
	if (!s->base)
		return;
	s->dev->ops->unpin(s->dev, s->base, s->len);
	hr__sys->munmap(s->base, s->len);
	free(s->slots);
	memset(s, 0, sizeof(*s));
}

/* Is there as much room at the beginning as is in use, and for @len more? Then it goes on there. */
static bool turns_early(const struct hr__staging *s, uint64_t len)
{
	uint64_t lap = s->head - s->head % s->len;

	return s->tail >= lap && s->tail - lap >= s->head - s->tail + len;
}

/* The position behind a piece of @len: after what alignment and the end of the ring make it skip. */
static uint64_t end_of(const struct hr__staging *s, uint64_t len, uint32_t align)
{
	uint64_t at = s->head % s->len, start = hr__align_up(at, align);

	if (start + len > s->len || turns_early(s, len))
		start = s->len;
	return s->head + start - at + len;
}

bool hr__staging_room(const struct hr__staging *s, uint32_t len)
{
	uint64_t bytes = hr__align_up(len, HR__STAGING_GRAIN);

	if (s->next - s->first == s->slots_max)
		return false;
	if (s->first == s->next) /* empty: take() starts again at the beginning */
		return bytes <= s->len;
	return end_of(s, bytes, HR__STAGING_ALIGN) - s->tail <= s->len;
}

void *hr__staging_take(struct hr__staging *s, uint32_t len, uint32_t align, uint32_t *slot)
{
	uint64_t bytes = hr__align_up(len, HR__STAGING_GRAIN);
	struct hr__staging_slot *taken = &s->slots[s->next & (s->slots_max - 1)];

	assert(hr__is_pow2(align) && align <= HR__STAGING_ALIGN);
	if (s->first == s->next)
		s->head = s->tail = 0;
	s->head = end_of(s, bytes, (uint32_t)hr__max(align, HR__STAGING_GRAIN));
	taken->end = s->head;
	taken->free = false;
	*slot = s->next++;
	return s->base + (s->head - bytes) % s->len;
}

void hr__staging_give(struct hr__staging *s, uint32_t slot)
{
	s->slots[slot & (s->slots_max - 1)].free = true;
	while (s->first != s->next && s->slots[s->first & (s->slots_max - 1)].free) {
		s->tail = s->slots[s->first & (s->slots_max - 1)].end;
		s->first++;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/side.h - brings the side of a batch, and padding, into slots that the CPU cannot write: through
 * pinned memory of its own, one piece per slot, on a lane of the filler's.
 */
#ifndef HR_LOADER_SIDE_H
#define HR_LOADER_SIDE_H

#include <stdint.h>

#include "loader/assemble.h"
#include "loader/layout.h"
#include "mem/mem.h"

/* For all slots of a ring. */
struct hr__side {
	struct hr_device *dev;
	char *base; /* NULL: nothing to bring, or the CPU writes slots itself */
	uint64_t len, stride;
	char *pad; /* device memory: a row of padding per padded column, or NULL */
	struct hr_buffer *pad_buffer;
};

/* @n: slots. Return: 0 or -code with a sentence; hr__side_close() cleans up in both cases. */
int hr__side_open(struct hr__side *side, struct hr_device *dev, const struct hr__layout *layout,
		  uint32_t n, int64_t padding);
void hr__side_close(struct hr__side *side);

/* Memory of slot @i for hr__assemble(), or NULL: write it in place. */
static inline char *hr__side_of(const struct hr__side *side, uint32_t i)
{
	return side->base ? side->base + i * side->stride : NULL;
}

/* Is there anything to send()? */
static inline bool hr__side_needed(const struct hr__side *side)
{
	return side->base != NULL;
}

/*
 * hr__side_send() - queue what @from (memory of a slot) has, and the padding it implies, into the slot at
 * @slot. @moves: scratch for HR__LANE_MOVES_MAX moves. Sets *ticket. Return: 0 or -code.
 */
int hr__side_send(const struct hr__side *side, const struct hr__layout *layout,
		  struct hr_lane *lane, const char *from, char *slot, struct hr__move *moves,
		  uint64_t *ticket);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cpu_lane.h - a lane whose work the calling thread does itself: a move is over when move() returns,
 * so that every ticket has passed. Providers say how one piece is moved.
 */
#ifndef HR_MEM_CPU_LANE_H
#define HR_MEM_CPU_LANE_H

#include <stdatomic.h>

#include "mem/lane.h"

struct hr__cpu_lane;

/* Move one piece; the conversion is one that hr_cast_ok() knows. Return: 0 or -code. */
typedef int hr__cpu_move(struct hr__cpu_lane *lane, enum hr__where where,
			 const struct hr__move *move, enum hr_dtype from, enum hr_dtype to);

/* First member of a provider's lane. */
struct hr__cpu_lane {
	struct hr_lane lane;
	hr__cpu_move *move;
	atomic_uint_fast64_t last; /* newest ticket */
};

/*
 * hr__cpu_lane_open() - a zeroed lane of @size bytes on @dev, freed by its close().
 * Return: 0, or -ENOMEM with a sentence.
 */
int hr__cpu_lane_open(struct hr_device *dev, size_t size, hr__cpu_move *move, struct hr_lane **out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/lane.h - a lane: one ordered queue of a device. All movement to, from and inside device memory
 * goes through its move(): a list of pieces with an optional conversion covers a copy, a gather and
 * a cast in one call.
 */
#ifndef HR_MEM_LANE_H
#define HR_MEM_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/dtype.h>
#include <headrace/stream.h>

struct hr_device;

/* Where the two ends of a move are; decides the direction. */
enum hr__where {
	HR__HOST_TO_DEVICE = 0, /* src: staging memory that was pinned by the device's pin() */
	HR__DEVICE_TO_HOST = 1,
	HR__DEVICE_TO_DEVICE = 2,
	HR__PLAIN_TO_DEVICE = 3, /* src: any host memory; slow, waits; not for the data path */
	HR__DEVICE_TO_PLAIN = 4,
};

/* One piece: @len source bytes from @src to @dst. @len is a multiple of the source element size. */
struct hr__move {
	const void *src;
	void *dst;
	uint64_t len;
};

struct hr__lane_ops {
	const char *name;
	/*
	 * Queue @n pieces, all in one direction and with one conversion (from == to: bytes). The list
	 * itself may be reused as soon as move() returns; the memory it names not before the ticket
	 * has passed. @n: 1..hr__lane_move_max(). Sets *ticket (they grow by any step).
	 * Return: copies and launches that were issued (>= 0), or -code.
	 */
	int (*move)(struct hr_lane *lane, enum hr__where where, const struct hr__move *moves,
		    uint32_t n, enum hr_dtype from, enum hr_dtype to, uint64_t *ticket);
	/* *passed = the highest ticket that has finished, with all before it. Return: 0 or -code. */
	int (*poll)(struct hr_lane *lane, uint64_t *passed);
	/* Wait until @ticket has passed, or -ETIMEDOUT after @timeout_ns. */
	int (*wait)(struct hr_lane *lane, uint64_t ticket, uint64_t timeout_ns);
	/* *ticket passes once all that is on the lane now (also the caller's own work) has finished. */
	int (*mark)(struct hr_lane *lane, uint64_t *ticket);
	/* Call @fn(arg) on a thread of the device once the lane gets here; it must not call the device. */
	int (*call)(struct hr_lane *lane, void (*fn)(void *arg), void *arg);
	/*
	 * What a drive has written to the device's memory, and its completion was seen, is there for
	 * all work of the device that begins from now on, on any lane. Return: 0 or -code.
	 */
	int (*flush)(struct hr_lane *lane);
	void (*close)(struct hr_lane *lane);
};

/* First member of every provider's lane. */
struct hr_lane {
	const struct hr__lane_ops *ops;
	struct hr_device *dev;
};

/* Most pieces that one move() takes. */
#define HR__LANE_MOVES_MAX 8192u

#endif

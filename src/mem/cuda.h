/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda.h - what the device (cuda.c), its kernels (cuda_kernels.c), its lanes (cuda_lane.c) and the
 * builder of kernel lists (cuda_gather.c) share.
 */
#ifndef HR_MEM_CUDA_H
#define HR_MEM_CUDA_H

#include <pthread.h>

#include "mem/cuda_api.h"
#include "mem/cuda_kernels.h"
#include "mem/gather.h"
#include "mem/mem.h"

/* Host memory that kernels may read and write, and the address by which they do. */
struct hr__cuda_pin {
	uint64_t host, len, device;
};

/*
 * Most blocks of a gather kernel's grid that HEADRACE_GATHER_BLOCKS may ask for. PCIe is the limit of
 * a gather, and a few SMs saturate that: 16 blocks of 512 threads with four 16-byte loads each ask
 * for half a megabyte at once, five times what the link holds in flight (on an H200: 12 blocks reach
 * the rate of 33, 8 do not). That is the usual grid; on small devices a quarter of the SMs, so that
 * a training step beside it keeps the rest.
 */
#define HR__CUDA_BLOCKS_MAX 128u

/* How the device's work gets to see what a drive has written to its memory. */
enum hr__cuda_order {
	HR__CUDA_UNORDERED = 0, /* not at all: nothing may be exported */
	HR__CUDA_BY_FLUSH = 1,
	HR__CUDA_ORDERED = 2, /* always */
};

struct hr__cuda_device {
	struct hr_device dev;
	const struct hr__cuda_api *cu;
	int ordinal, device;
	struct hr__cu_ctx *ctx; /* primary: the one that frameworks use too */
	int priority_least;
	enum hr__cuda_order order;
	uint32_t blocks_max; /* of a gather kernel's grid */
	struct hr__cuda_kernels kernels;
	pthread_rwlock_t pins_lock; /* no call of the driver is made under it */
	struct hr__cuda_pin *pins;  /* by ascending host address */
	uint32_t pins_count, pins_cap;
};

/* hr__cuda_pin_at() - the pin that holds @at, or pins_count. Under pins_lock. */
uint32_t hr__cuda_pin_at(const struct hr__cuda_device *cd, uint64_t at);

/*
 * Make the device's context current, in the mode that leaves captures of streams alone, and put the
 * caller's back. Not nested. Return: 0, -HR_E_DEVICE_LOST, -HR_E_FORKED.
 */
int hr__cuda_enter(const struct hr__cuda_device *cd);
void hr__cuda_leave(const struct hr__cuda_device *cd);

/* The mode alone; only for the two above. */
void hr__cuda_relax(const struct hr__cuda_device *cd);
void hr__cuda_unrelax(const struct hr__cuda_device *cd);

/* hr__cuda_capturing() - is @stream being captured into a graph? Asking it anything else spoils that. */
bool hr__cuda_capturing(const struct hr__cuda_device *cd, struct hr__cu_stream *stream);

/* hr__cuda_refuse_capture() - 0, or -HR_E_CAPTURING with a sentence if it is. */
int hr__cuda_refuse_capture(const struct hr__cuda_device *cd, struct hr__cu_stream *stream);

/* hr__cuda_fail() - sentence and code for a failed driver call. @what: what it was for. */
int hr__cuda_fail(const struct hr__cuda_device *cd, int result, const char *what);

/* cuda_export.c: can the driver export memory, and do it; what drives have written is seen. */
bool hr__cuda_exports(const struct hr__cuda_device *cd);
enum hr__cuda_order hr__cuda_find_order(const struct hr__cuda_device *cd);
int hr__cuda_flush(struct hr_lane *lane);
int hr__cuda_export(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out);

int hr__cuda_lane_open(struct hr_device *dev, void *native, struct hr_lane **out);

/* A launch as prepared by hr__cuda_gather_plan(). */
struct hr__cuda_gather {
	struct hr__gather_args args;
	uint32_t blocks;
	uint64_t list_bytes; /* of pieces and starts together */
};

/* Most bytes that the list of one launch may need. */
#define HR__CUDA_LIST_MAX                                                                          \
	(HR__LANE_MOVES_MAX * sizeof(struct hr__gather_piece) +                                    \
	 HR__CUDA_BLOCKS_MAX * HR__GATHER_WARPS * sizeof(struct hr__gather_start))

/*
 * hr__cuda_gather_plan() - tiles, grid and list size for @n pieces.
 * hr__cuda_gather_fill() - write the list to @list, which kernels see at @device, and complete the
 * arguments. Return: 0, -HR_E_BAD_RANGE (more than a launch can count), -HR_E_BAD_POINTER (host memory
 * that is not pinned).
 */
int hr__cuda_gather_plan(const struct hr__cuda_device *cd, const struct hr__move *moves, uint32_t n,
			 bool cast, struct hr__cuda_gather *out);
int hr__cuda_gather_fill(struct hr__cuda_device *cd, enum hr__where where,
			 const struct hr__move *moves, uint32_t n, enum hr_dtype from,
			 enum hr_dtype to, void *list, uint64_t device, struct hr__cuda_gather *g);

#endif

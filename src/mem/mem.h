/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/mem.h - the plug point "where bytes live": one const table per kind of device.
 */
#ifndef HR_MEM_MEM_H
#define HR_MEM_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/buffer.h>
#include <headrace/device.h>

#include "mem/lane.h"

/* Bits of hr_device.caps: one per optional operation. */
#define HR__MEM_CAP_EXPORT (1u << 0) /* export() works: peer DMA mappings */
/* Addresses are plain pointers: the CPU and the drive may use them. */
#define HR__MEM_CAP_HOST_VISIBLE (1u << 1)
#define HR__MEM_CAP_CAST (1u << 2) /* lanes convert element types */

/* Flags of pin(). */
#define HR__PIN_READ_ONLY (1u << 0) /* the pages are mapped without PROT_WRITE */

/*
 * Memory that was exported for peer DMA: the whole allocation around the range asked for, because two
 * exports of one page cannot both be imported.
 */
struct hr__export {
	int fd; /* a dma-buf, the caller's */
	const void *base;
	uint64_t len;
	uint64_t id; /* of the allocation, never reused by the device */
};

struct hr__mem_ops {
	const char *name;
	/* Is [ptr, ptr + len) memory of this device? Return: 0 or -HR_E_BAD_POINTER. */
	int (*claim)(struct hr_device *dev, const void *ptr, uint64_t len);
	int (*alloc)(struct hr_device *dev, uint64_t len, void **out);
	void (*free)(struct hr_device *dev, void *ptr, uint64_t len);
	/*
	 * Make host pages reachable by the device's lanes (staging rings, mapped files).
	 * @ptr: page-aligned. @flags: HR__PIN_*. @device_ptr: the address by which kernels see them.
	 * Return: 0 or -code.
	 */
	int (*pin)(struct hr_device *dev, void *ptr, uint64_t len, uint32_t flags,
		   void **device_ptr);
	void (*unpin)(struct hr_device *dev, void *ptr, uint64_t len);
	/* For a direct path; optional: hr__mem_no_export answers -ENOTSUP. Return: 0 or -code. */
	int (*export)(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out);
	/* @native: the caller's stream or NULL. */
	int (*lane_open)(struct hr_device *dev, void *native, struct hr_lane **out);
	/* Frees provider state; the device struct itself too. */
	void (*close)(struct hr_device *dev);
};

/* First member of every provider's device. Immutable after open but for the counters. */
struct hr_device {
	const struct hr__mem_ops *ops;
	uint32_t caps;
	atomic_uint refs;
	struct hr_device_info info;
};

/* First member of whatever a transport keeps with a buffer. */
struct hr__peer {
	void (*drop)(struct hr__peer *peer); /* the buffer is freed */
};

struct hr_buffer {
	struct hr_device *dev;
	void *ptr;
	uint64_t len;       /* as asked for */
	uint64_t alloc_len; /* 0: memory of the caller */
	atomic_uint busy;   /* requests in flight on it */
	uint64_t id;        /* never reused, so that caches cannot mistake one buffer for another */
	struct hr__peer *_Atomic peer; /* what a transport keeps with it, or NULL; set once */
	atomic_bool no_peer;           /* it cannot have one: nobody need try again */
};

/* One per provider; the list is in mem/device.c. @name matched by prefix, such as "cuda:". */
struct hr__mem_provider {
	const char *prefix;
	bool exact;
	int (*open)(const char *name,
		    struct hr_device **out); /* refs set to 1 by hr_device_open() */
};
extern const struct hr__mem_provider hr__mem_host, hr__mem_cuda, hr__mem_vgpu;

/* Shared answer of providers without peer mappings: -ENOTSUP. */
int hr__mem_no_export(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out);

void hr__device_get(struct hr_device *dev);
void hr__device_put(struct hr_device *dev);

static inline struct hr__peer *hr__buffer_peer(const struct hr_buffer *buf)
{
	return atomic_load_explicit(&((struct hr_buffer *)buf)->peer, memory_order_acquire);
}

/* hr__buffer_in_use() - counts of I/O in flight, paired. */
void hr__buffer_busy(struct hr_buffer *buf);
void hr__buffer_idle(struct hr_buffer *buf);

/*
 * Convert @len source bytes on the CPU: the reference for every device kernel, and the host lane's
 * own engine. Handles any alignment of both ends. @from != @to must satisfy hr_cast_ok().
 */
void hr__cast(void *dst, const void *src, uint64_t len, enum hr_dtype from, enum hr_dtype to);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/device.h - where bytes live: a device and what it can do.
 *
 * A device is opened by name, never guessed. Names: "host" (the machine's own memory, a full device
 * with the same API, for machines without a GPU and for tests) and "cuda:N" (the N-th GPU that the
 * CUDA driver shows); "vgpu:N" is a pretended GPU, for tests in virtual machines. libcuda is loaded at
 * run time; a machine without it can use "host".
 *
 * Devices are reference counted: buffers, engines and loaders hold one reference each, so closing a
 * device that is in use is safe. All functions here may be called from any thread.
 */
#ifndef HEADRACE_DEVICE_H
#define HEADRACE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_device;

enum hr_device_kind {
	HR_DEVICE_HOST = 1,
	HR_DEVICE_CUDA = 2,
	HR_DEVICE_VGPU = 3,
};

struct hr_device_info {
	char name[32];   /* the name it was opened by, "cuda:0" */
	char model[96];  /* "NVIDIA H200", or the processor's model for "host" */
	char pci[16];    /* "0000:3b:00.0", "" for "host" */
	char driver[32]; /* driver version, such as "13.0"; "" for "host" */
	enum hr_device_kind kind;
	uint64_t memory_bytes; /* total device memory */
	int numa_node;         /* of the machine, beside the device; -1 unknown or only one */
	bool kernels;          /* the gather kernel is loaded; false: see kernels_reason */
	bool registers_read_only_host; /* read-only host pages can be registered */
	char kernels_reason[128];      /* why not, "" if kernels is true */
};

/*
 * hr_device_open() - open a device by name.
 * @name: "host" or "cuda:N", N in decimal.
 * @out: receives the device; unchanged on failure.
 *
 * Return: 0, -EINVAL (name not understood), -HR_E_NO_DEVICE, -HR_E_NO_DRIVER,
 * -HR_E_DRIVER_TOO_OLD, -HR_E_FORKED (the CUDA driver was started before fork() and does not work in the
 * child), -ENOMEM; hr_error_detail() says what to do.
 */
int hr_device_open(const char *name, struct hr_device **out);

/* hr_device_close() - drop the caller's reference. @dev: may be NULL. */
void hr_device_close(struct hr_device *dev);

/*
 * hr_device_count() - how many devices of a kind hr_device_open() can be asked for: one "host", and as
 * many GPUs as the driver shows, none without a driver. Makes no context. Return: the number.
 */
uint32_t hr_device_count(enum hr_device_kind kind);

/*
 * hr_device_of_pointer() - whose memory is this? For programs that are handed pointers of any kind.
 * @name: receives @size bytes at most, "cuda:N" for memory of a GPU and managed memory, "host" for
 *        everything else: the machine's own memory, pinned or not. 32 bytes suffice.
 *
 * A process that does not use the CUDA driver is not made to: its pointers are "host", as all are in a child
 * of fork() whose parent has started it.
 * Return: 0, -HR_E_BAD_POINTER (NULL), -ENOSPC, -HR_E_DEVICE_LOST.
 */
int hr_device_of_pointer(const void *ptr, char *name, uint32_t size);

/* hr_device_info() - what the device is. @info: filled, owned by the caller. Return: 0. */
int hr_device_info(const struct hr_device *dev, struct hr_device_info *info);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/buffer.h - memory of a device that I/O can target.
 *
 * A buffer is either allocated here or wraps memory that the caller owns. It must outlive every I/O
 * on it: hr_buffer_free() refuses with -EBUSY while a drive may still write to it, also after a
 * request that timed out. All functions may be called from any thread.
 */
#ifndef HEADRACE_BUFFER_H
#define HEADRACE_BUFFER_H

#include <stdint.h>

#include <headrace/device.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_buffer;

/*
 * hr_buffer_alloc() - allocate device memory.
 * @len_bytes: 1 .. memory of the device; rounded up to whole pages inside.
 * @out: receives the buffer; unchanged on failure. Its contents are undefined.
 *
 * The address is aligned to 4096 bytes at least.
 * Return: 0, -EINVAL (zero), -ENOMEM, -HR_E_DEVICE_LOST.
 */
int hr_buffer_alloc(struct hr_device *dev, uint64_t len_bytes, struct hr_buffer **out);

/*
 * hr_buffer_register() - make a buffer of memory that the caller owns.
 * @address: a pointer that the device understands (for "cuda:N" a device pointer, for "host" any
 *           mapped memory).
 * @len_bytes: 1 .. ; the whole range must be memory of @dev.
 *
 * The memory must stay valid until hr_buffer_free() has returned 0.
 * Return: 0, -EINVAL, -HR_E_BAD_POINTER, -ENOMEM.
 */
int hr_buffer_register(struct hr_device *dev, void *address, uint64_t len_bytes,
		       struct hr_buffer **out);

/*
 * hr_buffer_free() - give a buffer back. @buf: may be NULL.
 * Return: 0, or -EBUSY while I/O on it is in flight (nothing is freed then).
 */
int hr_buffer_free(struct hr_buffer *buf);

/* hr_buffer_address() - the device address of the first byte. */
void *hr_buffer_address(const struct hr_buffer *buf);

/* hr_buffer_len() - length in bytes as asked for. */
uint64_t hr_buffer_len(const struct hr_buffer *buf);

/*
 * hr_buffer_copy_out() - copy from the device to plain memory and wait. Not for the data path.
 * @offset: byte offset in the buffer. Return: 0, -HR_E_BAD_RANGE, -HR_E_DEVICE_LOST.
 */
int hr_buffer_copy_out(struct hr_buffer *buf, uint64_t offset, void *dst, uint64_t len_bytes);

/* hr_buffer_copy_in() - the other direction; same contract. */
int hr_buffer_copy_in(struct hr_buffer *buf, uint64_t offset, const void *src, uint64_t len_bytes);

#ifdef __cplusplus
}
#endif
#endif

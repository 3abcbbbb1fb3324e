/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/userfs.c - transfers by the callbacks of a file system in user space, through plain memory.
 */
#include <errno.h>
#include <stdlib.h>

#include "cufile/inside.h"

#define CHUNK_BYTES (1u << 20)

/* Return: bytes, -errno or -code. */
static ssize_t chunk_read(struct cf_handle *handle, struct cf_target *target, char *chunk,
			  uint64_t at, size_t len, uint64_t offset)
{
	ssize_t n = handle->ops.read(handle->user, chunk, len, (off_t)offset, NULL);
	int ret;

	if (n <= 0)
		return n;
	if ((size_t)n > len)
		return -EIO;
	ret = hr_buffer_copy_in(target->buffer, target->offset + at, chunk, (size_t)n);
	return ret ? cf_code(ret) : n;
}

static ssize_t chunk_write(struct cf_handle *handle, struct cf_target *target, char *chunk,
			   uint64_t at, size_t len, uint64_t offset)
{
	int ret = hr_buffer_copy_out(target->buffer, target->offset + at, chunk, len);
	ssize_t n;

	if (ret)
		return cf_code(ret);
	n = handle->ops.write(handle->user, chunk, len, (off_t)offset, NULL);
	return n > (ssize_t)len ? -EIO : n;
}

/* Callbacks fail with -1 and errno, or with -errno. */
static ssize_t reason(ssize_t n)
{
	if (n != -1)
		return n;
	return errno > 0 ? -errno : -EIO;
}

ssize_t cf_userfs_move(struct cf_handle *handle, enum hr_op op, struct cf_target *target,
		       uint64_t file_offset, uint64_t len)
{
	uint64_t done = 0;
	char *chunk;

	/* What the original says, which is no error to its callers, and what they may rely on. */
	if (op == HR_READ ? !handle->ops.read : !handle->ops.write)
		return CU_FILE_DRIVER_CLOSING;
	chunk = malloc(len < CHUNK_BYTES ? len : CHUNK_BYTES);
	if (!chunk)
		return -ENOMEM;
	while (done < len) {
		size_t n = len - done < CHUNK_BYTES ? (size_t)(len - done) : CHUNK_BYTES;
		ssize_t res;

		errno = 0;
		res = (op == HR_READ ? chunk_read : chunk_write)(handle, target, chunk, done, n,
								 file_offset + done);
		if (res < 0 && !done)
			done = (uint64_t)reason(res);
		if (res > 0)
			done += (uint64_t)res;
		if (res < (ssize_t)n)
			break;
	}
	free(chunk);
	return (ssize_t)done;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/buffer.c - buffers on any device: their life, their use by I/O in flight, and slow copies for
 * programs that want to look inside. Knows no device's ways.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/util.h"
#include "mem/mem.h"

#define PAGE_BYTES 4096u

/* A device that does not finish a plain copy in this time is taken for dead. */
#define COPY_TIMEOUT_NS 60000000000ull

static atomic_uint_fast64_t last_id;

static int buffer_new(struct hr_device *dev, struct hr_buffer **out)
{
	struct hr_buffer *buf = calloc(1, sizeof(*buf));

	if (!buf)
		return hr__fail(ENOMEM, "%s: no host memory for a buffer", dev->info.name);
	buf->dev = dev;
	atomic_init(&buf->busy, 0);
	buf->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
	*out = buf;
	return 0;
}

void hr__buffer_busy(struct hr_buffer *buf)
{
	atomic_fetch_add_explicit(&buf->busy, 1, memory_order_relaxed);
}

void hr__buffer_idle(struct hr_buffer *buf)
{
	/* Pairs with the load in hr_buffer_free(): the I/O is over before the memory goes. */
	unsigned int before = atomic_fetch_sub_explicit(&buf->busy, 1, memory_order_release);

	assert(before > 0);
	(void)before;
}

int hr_buffer_alloc(struct hr_device *dev, uint64_t len_bytes, struct hr_buffer **out)
{
	struct hr_buffer *buf;
	int ret;

	if (!len_bytes)
		return hr__fail(EINVAL, "%s: a buffer of 0 bytes; ask for at least 1",
				dev->info.name);
	if (len_bytes > dev->info.memory_bytes)
		return hr__fail(ENOMEM,
				"%s: %" PRIu64 " bytes asked for, the device has %" PRIu64
				"; ask for less",
				dev->info.name, len_bytes, dev->info.memory_bytes);
	ret = buffer_new(dev, &buf);
	if (ret)
		return ret;
	buf->len = len_bytes;
	buf->alloc_len = hr__align_up(len_bytes, PAGE_BYTES);
	ret = dev->ops->alloc(dev, buf->alloc_len, &buf->ptr);
	if (ret) {
		free(buf);
		return ret;
	}
	hr__device_get(dev);
	*out = buf;
	return 0;
}

int hr_buffer_register(struct hr_device *dev, void *address, uint64_t len_bytes,
		       struct hr_buffer **out)
{
	struct hr_buffer *buf;
	uint64_t end;
	int ret;

	if (!len_bytes)
		return hr__fail(EINVAL, "%s: a buffer of 0 bytes; register at least 1",
				dev->info.name);
	if (!address || hr__add_overflows((uintptr_t)address, len_bytes, &end))
		return hr__fail(HR_E_BAD_POINTER, "%s: %p + %" PRIu64 " bytes is no memory range",
				dev->info.name, address, len_bytes);
	ret = dev->ops->claim(dev, address, len_bytes);
	if (ret)
		return ret;
	ret = buffer_new(dev, &buf);
	if (ret)
		return ret;
	buf->ptr = address;
	buf->len = len_bytes;
	hr__device_get(dev);
	*out = buf;
	return 0;
}

int hr_buffer_free(struct hr_buffer *buf)
{
	struct hr_device *dev;
	struct hr__peer *peer;
	unsigned int busy;

	if (!buf)
		return 0;
	busy = atomic_load_explicit(&buf->busy, memory_order_acquire);
	dev = buf->dev;
	if (busy)
		return hr__fail(EBUSY,
				"%s: buffer of %" PRIu64
				" bytes has %u requests in flight; reap them "
				"first",
				dev->info.name, buf->len, busy);
	peer = hr__buffer_peer(buf);
	if (peer)
		peer->drop(peer);
	if (buf->alloc_len)
		dev->ops->free(dev, buf->ptr, buf->alloc_len);
	free(buf);
	hr__device_put(dev);
	return 0;
}

void *hr_buffer_address(const struct hr_buffer *buf)
{
	return buf->ptr;
}

uint64_t hr_buffer_len(const struct hr_buffer *buf)
{
	return buf->len;
}

static int buffer_copy(struct hr_buffer *buf, uint64_t offset, uint64_t len, enum hr__where where,
		       struct hr__move *move)
{
	struct hr_lane *lane;
	uint64_t end, ticket;
	int ret;

	if (hr__add_overflows(offset, len, &end) || end > buf->len)
		return hr__fail(HR_E_BAD_RANGE,
				"%s: bytes %" PRIu64 " + %" PRIu64
				" lie outside a buffer of %" PRIu64,
				buf->dev->info.name, offset, len, buf->len);
	if (!len)
		return 0;
	ret = hr_lane_open(buf->dev, NULL, &lane);
	if (ret)
		return ret;
	move->len = len;
	ret = lane->ops->move(lane, where, move, 1, HR_DTYPE_BYTES, HR_DTYPE_BYTES, &ticket);
	if (ret >= 0)
		ret = lane->ops->wait(lane, ticket, COPY_TIMEOUT_NS);
	if (ret == -ETIMEDOUT)
		ret = hr__fail(HR_E_DEVICE_LOST,
			       "%s: a copy did not finish in 60 s; reset the device",
			       buf->dev->info.name);
	hr_lane_close(lane);
	return ret;
}

int hr_buffer_copy_out(struct hr_buffer *buf, uint64_t offset, void *dst, uint64_t len_bytes)
{
	struct hr__move move = {.src = (const char *)buf->ptr + offset, .dst = dst};

	return buffer_copy(buf, offset, len_bytes, HR__DEVICE_TO_PLAIN, &move);
}

int hr_buffer_copy_in(struct hr_buffer *buf, uint64_t offset, const void *src, uint64_t len_bytes)
{
	struct hr__move move = {.src = src, .dst = (char *)buf->ptr + offset};

	return buffer_copy(buf, offset, len_bytes, HR__PLAIN_TO_DEVICE, &move);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_export.c - a CUDA allocation as a dma-buf, for drives that write into it, and the order
 * between their writes and the device's work. Whole allocations are exported: a framework's allocator
 * hands out parts of one, and their pages could not be told apart.
 */
#include <errno.h>
#include <inttypes.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/util.h"
#include "mem/cuda.h"

#define PAGE_BYTES 4096u

bool hr__cuda_exports(const struct hr__cuda_device *cd)
{
	int supported = 0;

	return cd->cu->handle_for_range &&
	       !cd->cu->device_get_attribute(&supported, HR__CU_ATTR_DMA_BUF, cd->device) &&
	       supported == 1;
}

/* A driver that does not know the question promises nothing. */
enum hr__cuda_order hr__cuda_find_order(const struct hr__cuda_device *cd)
{
	int order = 0, flush = 0;

	if (cd->cu->device_get_attribute(&order, HR__CU_ATTR_PEER_ORDER, cd->device))
		order = 0;
	if (order >= HR__CU_ORDER_OWNER)
		return HR__CUDA_ORDERED;
	if (cd->cu->device_get_attribute(&flush, HR__CU_ATTR_PEER_FLUSH, cd->device))
		flush = 0;
	return flush & HR__CU_FLUSH_BY_HOST && cd->cu->flush_writes ? HR__CUDA_BY_FLUSH
								    : HR__CUDA_UNORDERED;
}

int hr__cuda_flush(struct hr_lane *lane)
{
	const struct hr__cuda_device *cd = (const struct hr__cuda_device *)lane->dev;
	int result, ret;

	if (cd->order == HR__CUDA_ORDERED)
		return 0;
	if (cd->order == HR__CUDA_UNORDERED)
		return -ENOTSUP;
	ret = hr__cuda_enter(cd);
	if (ret)
		return ret;
	result = cd->cu->flush_writes(HR__CU_FLUSH_CURRENT, HR__CU_FLUSH_OWNER);
	hr__cuda_leave(cd);
	return result ? hr__cuda_fail(cd, result, "writes of a drive cannot be flushed") : 0;
}

static int refuse(const struct hr__cuda_device *cd, uint64_t base, size_t size)
{
	return hr__fail(HR_E_NO_PATH,
			"%s: the allocation of %zu bytes at 0x%" PRIx64
			" is not whole pages; allocate 2 MiB or more at a time",
			cd->dev.info.name, size, base);
}

/* The context is current. */
static int export_range(const struct hr__cuda_device *cd, uint64_t ptr, uint64_t len,
			struct hr__export *out)
{
	int attribute = HR__CU_POINTER_BUFFER_ID, result;
	void *data = &out->id;
	uint64_t base = 0;
	size_t size = 0;

	result = cd->cu->mem_address_range(&base, &size, ptr);
	if (!result)
		result = cd->cu->pointer_attributes(1, &attribute, &data, ptr);
	if (result)
		return hr__cuda_fail(cd, result, "the allocation around a buffer is not known");
	/* Small allocations share a page with others, which are not the caller's to give away. */
	size = hr__align_down(size, PAGE_BYTES);
	if (base % PAGE_BYTES || ptr < base || len > size || ptr - base > size - len)
		return refuse(cd, base, size);
	result = cd->cu->handle_for_range(&out->fd, base, size, HR__CU_RANGE_DMA_BUF, 0);
	if (result)
		return hr__cuda_fail(cd, result,
				     "its memory cannot be exported as a dma-buf; use the open "
				     "kernel driver, 570 or newer");
	out->base = (const void *)(uintptr_t)base;
	out->len = size;
	return 0;
}

int hr__cuda_export(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out)
{
	const struct hr__cuda_device *cd = (const struct hr__cuda_device *)dev;
	int ret;

	if (!(dev->caps & HR__MEM_CAP_EXPORT))
		return -ENOTSUP;
	if (cd->order == HR__CUDA_UNORDERED)
		return hr__fail(HR_E_NO_PATH,
				"%s: its driver neither orders nor flushes what a drive writes to "
				"it; update the driver",
				dev->info.name);
	ret = hr__cuda_enter(cd);
	if (ret)
		return ret;
	ret = export_range(cd, (uintptr_t)ptr, len, out);
	hr__cuda_leave(cd);
	return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_export.c - a CUDA allocation as a dma-buf, for drives that write into it. Whole allocations
 * are exported: a framework's allocator hands out parts of one, and their pages could not be told
 * apart.
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
	ret = hr__cuda_enter(cd);
	if (ret)
		return ret;
	ret = export_range(cd, (uintptr_t)ptr, len, out);
	hr__cuda_leave(cd);
	return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/kernels_cpu.h - the twin of src/mem/kernels_gpu.h: the words of CUDA that kernels.cu
 * needs, for a CPU that runs one thread of a grid after the other.
 */
#ifndef FAKECUDA_KERNELS_CPU_H
#define FAKECUDA_KERNELS_CPU_H

#include <string.h>

#include "internal.h"
#include "mem/convert.h"
#include "mem/gather.h"

#define HR_DEVICE static inline
#define HR_KERNEL extern "C" void
#define HR_UNROLL
#define HR_NO_UNROLL

typedef uint32_t hr_v4 __attribute__((vector_size(16)));

struct hr_cpu_thread {
	unsigned int lane, warp, warps;
	bool bad; /* touched what it must not: does nothing more */
};

static thread_local struct hr_cpu_thread hr_cpu;

HR_DEVICE unsigned int hr_lane(void)
{
	return hr_cpu.lane;
}

HR_DEVICE unsigned int hr_warp(void)
{
	return hr_cpu.warp;
}

HR_DEVICE unsigned int hr_warps(void)
{
	return hr_cpu.warps;
}

/* Of an empty range nothing is ever touched, and a list is checked where it is read. */
HR_DEVICE uint64_t hr_dev_ptr(uint64_t address, uint64_t len)
{
	void *p = len ? fake_translate(address, len, "piece of a gather") : NULL;

	if (len && !p)
		hr_cpu.bad = true;
	return len && p ? (uint64_t)(uintptr_t)p : address;
}

HR_DEVICE uint64_t hr_load_u64(uint64_t address)
{
	void *p = fake_translate(address, 8, "list of a gather");
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	else
		hr_cpu.bad = true;
	return v;
}

HR_DEVICE uint32_t hr_load_u32(uint64_t address)
{
	void *p = fake_translate(address, 4, "list of a gather");
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	else
		hr_cpu.bad = true;
	return v;
}

struct hr_list_view {
	uint64_t list;
	uint32_t first, count;
};

HR_DEVICE hr_list_view hr_list_load(uint64_t list, uint32_t first, uint32_t count)
{
	return {list, first, count};
}

/* The GPU holds 32 entries from the first on, and nothing behind the list's end. */
HR_DEVICE struct hr__gather_piece hr_list_get(const hr_list_view &view, uint32_t index)
{
	uint64_t at = view.list + (uint64_t)index * sizeof(struct hr__gather_piece);

	if (index < view.first || index - view.first >= 32 || index >= view.count) {
		fake_misuse("entry %u of a list that holds %u from %u on", index, view.count,
			    view.first);
		hr_cpu.bad = true;
		return {0, 0, 0};
	}
	return {hr_load_u64(at), hr_load_u64(at + 8), hr_load_u64(at + 16)};
}

/* Only bytes of the piece: its neighbours may belong to other threads, which a GPU does not mind. */
HR_DEVICE hr_v4 hr_load_block(uint64_t block, uint64_t first, uint64_t end)
{
	uint64_t from = block > first ? block : first, to = block + 16 < end ? block + 16 : end;
	hr_v4 v = {0, 0, 0, 0};

	if (!hr_cpu.bad && from < to)
		memcpy((char *)&v + (from - block), (const void *)(uintptr_t)from, to - from);
	return v;
}

HR_DEVICE hr_v4 hr_next_block(hr_v4 mine, hr_v4 wrap, uint64_t block, uint64_t first, uint64_t end)
{
	(void)mine, (void)wrap;
	return hr_load_block(block, first, end);
}

HR_DEVICE void hr_cpu_store(uint64_t address, const void *v, size_t len)
{
	if (address % len)
		fake_misuse("a store of %zu bytes to an address that is not aligned", len);
	if (!hr_cpu.bad)
		memcpy((void *)(uintptr_t)address, v, len);
}

HR_DEVICE void hr_store16(uint64_t address, hr_v4 v)
{
	hr_cpu_store(address, &v, 16);
}

HR_DEVICE void hr_store8(uint64_t address, uint32_t low, uint32_t high)
{
	uint32_t v[2] = {low, high};

	hr_cpu_store(address, v, 8);
}

HR_DEVICE void hr_store4(uint64_t address, uint32_t v)
{
	hr_cpu_store(address, &v, 4);
}

HR_DEVICE void hr_store2(uint64_t address, uint32_t v)
{
	uint16_t half = (uint16_t)v;

	hr_cpu_store(address, &half, 2);
}

HR_DEVICE void hr_store1(uint64_t address, uint32_t v)
{
	uint8_t byte = (uint8_t)v;

	hr_cpu_store(address, &byte, 1);
}

#endif

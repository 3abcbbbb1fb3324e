/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/kernels_gpu.h - the few words of CUDA that kernels.cu needs, for clang without a CUDA toolkit.
 * tests/fakecuda has their twin for the CPU.
 */
#ifndef HR_MEM_KERNELS_GPU_H
#define HR_MEM_KERNELS_GPU_H

#pragma clang force_cuda_host_device begin
#include "convert.h"
#include "gather.h"
#pragma clang force_cuda_host_device end

#define HR_DEVICE __attribute__((device)) __attribute__((always_inline)) static inline
#define HR_KERNEL                                                                                  \
	extern "C" __attribute__((global))                                                         \
	__attribute__((launch_bounds(HR__GATHER_THREADS, 1))) void
#define HR_UNROLL _Pragma("unroll")
#define HR_NO_UNROLL _Pragma("clang loop unroll(disable)")

typedef unsigned int hr_v4 __attribute__((ext_vector_type(4)));
typedef unsigned int hr_v2 __attribute__((ext_vector_type(2)));

HR_DEVICE unsigned int hr_lane(void)
{
	return __nvvm_read_ptx_sreg_tid_x() & 31;
}

/* Number of this warp in the grid, and of all warps. */
HR_DEVICE unsigned int hr_warp(void)
{
	return (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() +
		__nvvm_read_ptx_sreg_tid_x()) /
	       32;
}

HR_DEVICE unsigned int hr_warps(void)
{
	return __nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x() / 32;
}

/* An address as the kernel may use it: the CPU's twin translates and checks here. */
HR_DEVICE uint64_t hr_dev_ptr(uint64_t address, uint64_t len)
{
	(void)len;
	return address;
}

/* Non-coherent loads: nobody writes a source or a list while a kernel reads it. */
HR_DEVICE uint64_t hr_load_u64(uint64_t address)
{
	return __nvvm_ldg_ull((const unsigned long long *)address);
}

HR_DEVICE uint32_t hr_load_u32(uint64_t address)
{
	return __nvvm_ldg_ui((const unsigned int *)address);
}

/*
 * 32 consecutive entries of a list, one in each thread of a warp: a warp that fetched its entries one
 * by one would stand still for a trip over PCIe before each piece.
 */
struct hr_list_view {
	uint64_t src, dst, len;
	uint32_t first;
};

HR_DEVICE hr_list_view hr_list_load(uint64_t list, uint32_t first, uint32_t count)
{
	hr_list_view view = {0, 0, 0, first};
	uint32_t i = first + hr_lane();

	if (i < count) {
		uint64_t at = list + (uint64_t)i * sizeof(struct hr__gather_piece);

		view.src = hr_load_u64(at);
		view.dst = hr_load_u64(at + 8);
		view.len = hr_load_u64(at + 16);
	}
	return view;
}

HR_DEVICE uint64_t hr_shfl_u64(uint64_t v, uint32_t lane)
{
	uint32_t low =
		(uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)(uint32_t)v, (int)lane, 31);
	uint32_t high =
		(uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)(v >> 32), (int)lane, 31);

	return ((uint64_t)high << 32) | low;
}

/* Entry @index, first <= index < first + 32. All threads of the warp must come here together. */
HR_DEVICE struct hr__gather_piece hr_list_get(const hr_list_view &view, uint32_t index)
{
	uint32_t lane = index - view.first;

	return {hr_shfl_u64(view.src, lane), hr_shfl_u64(view.dst, lane),
		hr_shfl_u64(view.len, lane)};
}

/*
 * The aligned 16 bytes at @block when they overlap [first, end), else zeros. Such a load never
 * crosses a page, so it may read beyond the piece, but never beyond memory.
 */
HR_DEVICE hr_v4 hr_load_block(uint64_t block, uint64_t first, uint64_t end)
{
	hr_v4 zero = {0, 0, 0, 0};

	if (block + 16 > first && block < end)
		return __nvvm_ldg_ui4((const hr_v4 *)block);
	return zero;
}

/*
 * The block after @mine: the one that the next thread of the warp holds. @wrap is what thread 0
 * has for the last thread. All threads of the warp must come here together.
 */
HR_DEVICE hr_v4 hr_next_block(hr_v4 mine, hr_v4 wrap, uint64_t block, uint64_t first, uint64_t end)
{
	unsigned int lane = hr_lane();
	hr_v4 give = lane ? mine : wrap;
	hr_v4 got;

	(void)block, (void)first, (void)end;
	for (int i = 0; i < 4; i++)
		got[i] = (unsigned int)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)give[i],
								(int)((lane + 1) & 31), 31);
	return got;
}

#define HR__GLOBAL(type, address) (*(__attribute__((address_space(1))) type *)(address))

HR_DEVICE void hr_store16(uint64_t address, hr_v4 v)
{
	HR__GLOBAL(hr_v4, address) = v;
}

HR_DEVICE void hr_store8(uint64_t address, uint32_t low, uint32_t high)
{
	hr_v2 v = {low, high};

	HR__GLOBAL(hr_v2, address) = v;
}

HR_DEVICE void hr_store4(uint64_t address, uint32_t v)
{
	HR__GLOBAL(uint32_t, address) = v;
}

HR_DEVICE void hr_store2(uint64_t address, uint32_t v)
{
	HR__GLOBAL(uint16_t, address) = (uint16_t)v;
}

HR_DEVICE void hr_store1(uint64_t address, uint32_t v)
{
	HR__GLOBAL(uint8_t, address) = (uint8_t)v;
}

#endif

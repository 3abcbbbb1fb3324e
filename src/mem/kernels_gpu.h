/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/kernels_gpu.h - the few words of CUDA that kernels.cu needs, for clang without a CUDA toolkit.
 * tests/fakecuda has their twin for the CPU.
 */
#ifndef HR_MEM_KERNELS_GPU_H
#define HR_MEM_KERNELS_GPU_H

#pragma clang force_cuda_host_device begin
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

HR_DEVICE void hr_store1(uint64_t address, uint32_t v)
{
	HR__GLOBAL(uint8_t, address) = (uint8_t)v;
}

#endif

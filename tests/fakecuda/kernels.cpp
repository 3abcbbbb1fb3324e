/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/kernels.cpp - the real gather kernels, compiled for the CPU, and the grid that runs
 * them.
 */
#define HR_KERNELS_SHIM "kernels_cpu.h"
#include "mem/kernels.cu"

static const struct {
	const char *name;
	void (*run)(struct hr__gather_args args);
} kernels[] = {
#define ROW(symbol, from, to) {#symbol, symbol},
	HR__GATHER_KERNELS(ROW)
#undef ROW
};

int fake_kernel_find(const char *name)
{
	for (unsigned int i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (!strcmp(kernels[i].name, name))
			return (int)i;
	}
	return -1;
}

bool fake_kernel_run(int kernel, const void *args, unsigned int blocks, unsigned int threads)
{
	struct hr__gather_args copy;

	memcpy(&copy, args, sizeof(copy));
	hr_cpu.warps = blocks * threads / 32;
	hr_cpu.bad = false;
	for (hr_cpu.warp = 0; hr_cpu.warp < hr_cpu.warps; hr_cpu.warp++) {
		for (hr_cpu.lane = 0; hr_cpu.lane < 32 && !hr_cpu.bad; hr_cpu.lane++)
			kernels[kernel].run(copy);
	}
	return !hr_cpu.bad;
}

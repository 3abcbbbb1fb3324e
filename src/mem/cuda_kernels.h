/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_kernels.h - the gather kernels of a CUDA device: one by one, when they are first needed. The
 * driver translates a kernel for its GPU when it gets it, 80 ms each where it has never seen it before,
 * and most programs use one or two of them.
 */
#ifndef HR_MEM_CUDA_KERNELS_H
#define HR_MEM_CUDA_KERNELS_H

#include <pthread.h>

#include "mem/cuda_api.h"
#include "mem/gather.h"
#include "mem/mem.h"

struct hr__cuda_device;

enum {
#define HR__KERNEL_ENUM(symbol, from, to) HR__KERNEL_##symbol,
	HR__GATHER_KERNELS(HR__KERNEL_ENUM)
#undef HR__KERNEL_ENUM
		HR__KERNEL_COUNT,
};

/* The text of a kernel, to be put behind hr__ptx_head; made from kernels.ptx by the build. */
struct hr__ptx {
	const char *name, *text;
};
extern const char hr__ptx_head[];
extern const struct hr__ptx hr__ptx_kernels[]; /* up to a name that is NULL */

struct hr__cuda_kernels {
	pthread_mutex_t lock; /* of a kernel that is being loaded; taken with the context entered */
	struct hr__cu_module *modules[HR__KERNEL_COUNT];
	struct hr__cu_function *functions[HR__KERNEL_COUNT]; /* NULL: not loaded yet */
};

/* hr__cuda_kernel() - number of the kernel for a conversion, -1: there is none. */
int hr__cuda_kernel(enum hr_dtype from, enum hr_dtype to);

/*
 * hr__cuda_kernels_open() - load the one that converts nothing: a device that takes it takes all. With the
 * context entered, as the others. Sets info.kernels and the ability to cast, or info.kernels_reason: a
 * device without kernels still copies, only conversions and short pieces suffer.
 */
void hr__cuda_kernels_open(struct hr__cuda_device *cd);
void hr__cuda_kernels_close(struct hr__cuda_device *cd);

/*
 * hr__cuda_function() - a kernel as the driver launches it, loaded if it was not yet. Any thread.
 * Return: 0 or -code.
 */
int hr__cuda_function(struct hr__cuda_device *cd, int kernel, struct hr__cu_function **out);

#endif

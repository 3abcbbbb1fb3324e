/* SPDX-License-Identifier: Apache-2.0 */
/* mem/cuda_kernels.c - see cuda_kernels.h; knows nothing of lists and streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "mem/cuda.h"

int hr__cuda_kernel(enum hr_dtype from, enum hr_dtype to)
{
	static const struct {
		enum hr_dtype from, to;
	} casts[] = {
#define ROW(symbol, a, b) {a, b},
		HR__GATHER_KERNELS(ROW)
#undef ROW
	};

	for (int i = 0; i < HR__KERNEL_COUNT; i++) {
		if (casts[i].from == from && casts[i].to == to)
			return i;
	}
	/* Equal types, and u32 -> i32, where only the meaning of the bits differs. */
	return hr_cast_ok(from, to) ? HR__KERNEL_hr_gather_bytes : -1;
}

static const char *name_of(int kernel)
{
	static const char *const names[] = {
#define ROW(symbol, from, to) #symbol,
		HR__GATHER_KERNELS(ROW)
#undef ROW
	};

	return names[kernel];
}

/* Return: PTX of this kernel alone, or NULL without memory; to be freed. */
static char *text_of(const char *name)
{
	const struct hr__ptx *k = hr__ptx_kernels;
	char *text;

	while (k->name && strcmp(k->name, name))
		k++;
	return k->name && asprintf(&text, "%s%s", hr__ptx_head, k->text) >= 0 ? text : NULL;
}

/* Return: 0 or the driver's result. */
static int load(struct hr__cuda_device *cd, int kernel)
{
	struct hr__cu_function *function = NULL;
	struct hr__cu_module *module = NULL;
	char *text = text_of(name_of(kernel));
	int result;

	if (!text)
		return HR__CU_OUT_OF_MEMORY;
	result = cd->cu->module_load(&module, text);
	free(text);
	if (result)
		return result;
	result = cd->cu->module_function(&function, module, name_of(kernel));
	if (result) {
		cd->cu->module_unload(module);
		return result;
	}
	cd->kernels.modules[kernel] = module;
	__atomic_store_n(&cd->kernels.functions[kernel], function, __ATOMIC_RELEASE);
	return 0;
}

int hr__cuda_function(struct hr__cuda_device *cd, int kernel, struct hr__cu_function **out)
{
	struct hr__cu_function **at = &cd->kernels.functions[kernel];
	int result = 0;

	*out = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	if (*out)
		return 0;
	pthread_mutex_lock(&cd->kernels.lock);
	if (!*at)
		result = load(cd, kernel);
	*out = *at;
	pthread_mutex_unlock(&cd->kernels.lock);
	return result ? hr__cuda_fail(cd, result, "a gather kernel could not be loaded") : 0;
}

void hr__cuda_kernels_open(struct hr__cuda_device *cd)
{
	struct hr_device_info *info = &cd->dev.info;
	int result = load(cd, HR__KERNEL_hr_gather_bytes);

	if (!result) {
		info->kernels = true;
		cd->dev.caps |= HR__MEM_CAP_CAST;
		return;
	}
	snprintf(info->kernels_reason, sizeof(info->kernels_reason),
		 "the driver refused them: %s (%d); they need compute capability 7.0",
		 hr__cuda_name(cd->cu, result), result);
}

void hr__cuda_kernels_close(struct hr__cuda_device *cd)
{
	for (int i = 0; i < HR__KERNEL_COUNT; i++) {
		if (cd->kernels.modules[i])
			cd->cu->module_unload(cd->kernels.modules[i]);
	}
}

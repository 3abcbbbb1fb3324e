/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_driver.c - finds the CUDA driver at run time and translates its results; knows no
 * device.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/util.h"
#include "mem/cuda_api.h"

static const struct {
	const char *symbol;
	size_t offset;
	bool optional;
} table[] = {
#define ROW(member, name, args) {name, offsetof(struct hr__cuda_api, member), false},
	HR__CUDA_FUNCTIONS(ROW)
#undef ROW
#define ROW(member, name, args) {name, offsetof(struct hr__cuda_api, member), true},
		HR__CUDA_OPTIONAL(ROW)
#undef ROW
};

/*
 * The driver is one per process and cannot be unloaded safely (it has threads of its own), so it is
 * kept once it is there.
 */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static struct hr__cuda_api api;
static atomic_uint started; /* generation of fork() that started it, plus one; or 0 */

HR__FORK_HOOK(.lock = &load_lock);

bool hr__cuda_forked(void)
{
	unsigned int by = atomic_load_explicit(&started, memory_order_relaxed);

	return by && by != hr__fork_generation() + 1;
}

int hr__cuda_refuse_fork(const char *device)
{
	if (!hr__cuda_forked())
		return 0;
	return hr__fail(HR_E_FORKED,
			"%s: the CUDA driver was started before fork() and does not work in the "
			"child; use a device there alone, or start children by spawn",
			device);
}

void hr__cuda_started(void)
{
	unsigned int mine = hr__fork_generation() + 1;

	if (atomic_load_explicit(&started, memory_order_relaxed) != mine)
		atomic_store_explicit(&started, mine, memory_order_relaxed);
}

int hr__cuda_init(const struct hr__cuda_api *cu)
{
	unsigned int before = atomic_load_explicit(&started, memory_order_relaxed);
	int result;

	/* Before it: a child that is made meanwhile has half a driver. */
	hr__cuda_started();
	result = cu->init(0);
	if (result)
		atomic_store_explicit(&started, before, memory_order_relaxed);
	return result;
}

static int load_locked(const char *device)
{
	struct hr__cuda_api found;
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return hr__fail(HR_E_NO_DRIVER,
				"%s: %s; install the NVIDIA driver, or use device \"host\"", device,
				dlerror());
	for (size_t i = 0; i < HR_ARRAY_LEN(table); i++) {
		void *symbol = dlsym(handle, table[i].symbol);

		if (!symbol && !table[i].optional) {
			dlclose(handle);
			return hr__fail(
				HR_E_NO_DRIVER,
				"%s: libcuda.so.1 has no %s; install a driver for CUDA 11.4 "
				"or newer",
				device, table[i].symbol);
		}
		memcpy((char *)&found + table[i].offset, &symbol, sizeof(symbol));
	}
	api = found;
	library = handle;
	return 0;
}

int hr__cuda_load(const char *device, const struct hr__cuda_api **out)
{
	int ret = hr__cuda_refuse_fork(device);

	if (ret)
		return ret;
	pthread_mutex_lock(&load_lock);
	if (!library)
		ret = load_locked(device);
	pthread_mutex_unlock(&load_lock);
	if (!ret)
		*out = &api;
	return ret;
}

int hr__cuda_code(int result)
{
	if (result >= HR__CU_CAPTURE_UNSUPPORTED && result <= HR__CU_CAPTURE_WRONG_THREAD)
		return HR_E_CAPTURING;
	switch (result) {
	case HR__CU_INVALID_VALUE:
	case HR__CU_INVALID_HANDLE:
		return EINVAL;
	case HR__CU_OUT_OF_MEMORY:
		return ENOMEM;
	case HR__CU_NO_DEVICE:
	case HR__CU_INVALID_DEVICE:
		return HR_E_NO_DEVICE;
	case HR__CU_STUB_LIBRARY:
	case HR__CU_SYSTEM_DRIVER_MISMATCH:
		return HR_E_NO_DRIVER;
	case HR__CU_ALREADY_REGISTERED:
		return EBUSY;
	case HR__CU_NOT_SUPPORTED:
		return ENOTSUP;
	case HR__CU_NOT_PERMITTED:
		return EPERM;
	default:
		/* What is left (launch failures, ECC, lost or exclusive devices) spoils the context
		 * for good. */
		return HR_E_DEVICE_LOST;
	}
}

const char *hr__cuda_name(const struct hr__cuda_api *cu, int result)
{
	const char *name = NULL;

	if (!cu->error_name || cu->error_name(result, &name) || !name)
		return "CUDA error";
	return name;
}

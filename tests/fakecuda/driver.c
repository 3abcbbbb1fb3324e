/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/driver.c - start, devices, contexts and modules of the pretended driver.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "mem/cuda_api.h"

#define DEVICES_MAX 8
#define STACK_MAX 16
#define MEMORY_BYTES (4ull << 30)
#define FUNCTIONS_MAX 32

struct fake_ctx {
	long refs; /* the device is its place in the array */
};

struct fake_module {
	char *ptx;
	int functions[FUNCTIONS_MAX]; /* handles point here */
	int count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_ctx contexts[DEVICES_MAX];
static bool started;
static _Thread_local struct fake_ctx *stack[STACK_MAX];
static _Thread_local int depth;

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int len, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetPCIBusId(char *id, int len, int device);
int cuDevicePrimaryCtxRetain(struct fake_ctx **ctx, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(struct fake_ctx *ctx);
int cuCtxPopCurrent_v2(struct fake_ctx **ctx);
int cuCtxGetStreamPriorityRange(int *least, int *greatest);
int cuCtxGetCurrent(struct fake_ctx **ctx);
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active);
int cuModuleLoadData(struct fake_module **out, const void *image);
int cuModuleUnload(struct fake_module *module);
int cuModuleGetFunction(int **function, struct fake_module *module, const char *name);
int cuGetErrorName(int result, const char **name);

int cuInit(unsigned int flags)
{
	int result = fake_enter(__func__);

	if (result)
		return result;
	if (!fake_setting(FAKE_DEVICES))
		return HR__CU_NO_DEVICE;
	pthread_mutex_lock(&lock);
	started = true;
	pthread_mutex_unlock(&lock);
	return flags ? HR__CU_INVALID_VALUE : 0;
}

bool fake_started(void)
{
	return started;
}

void fake_driver_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}

int cuDriverGetVersion(int *version)
{
	int result = fake_enter(__func__);

	*version = (int)fake_setting(FAKE_VERSION);
	return result;
}

int cuDeviceGetCount(int *count)
{
	int result = fake_enter(__func__);

	*count = (int)fake_setting(FAKE_DEVICES);
	pthread_mutex_lock(&lock);
	if (!result && !started)
		result = HR__CU_NOT_INITIALIZED;
	pthread_mutex_unlock(&lock);
	return result;
}

/* Every call on a device: the driver must be started and show it. */
static int enter_device(const char *function, int device)
{
	int result = fake_enter(function);
	bool ok;

	pthread_mutex_lock(&lock);
	ok = started && device >= 0 && device < fake_setting(FAKE_DEVICES) && device < DEVICES_MAX;
	pthread_mutex_unlock(&lock);
	if (!result && !ok)
		result = HR__CU_INVALID_DEVICE;
	return result;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return enter_device(__func__, ordinal);
}

int cuDeviceGetName(char *name, int len, int device)
{
	snprintf(name, (size_t)len, "Pretended GPU %d", device);
	return enter_device(__func__, device);
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	int result = enter_device(__func__, device);

	if (result)
		return result;
	switch (attribute) {
	case HR__CU_ATTR_MULTIPROCESSORS:
		*value = 24;
		return 0;
	case HR__CU_ATTR_READ_ONLY_HOST_REGISTER:
		*value = fake_setting(FAKE_NO_READ_ONLY) != 1;
		return 0;
	case HR__CU_ATTR_PEER_ORDER:
		*value = (int)fake_setting(FAKE_PEER_ORDER);
		return *value < 0 ? HR__CU_INVALID_VALUE : 0;
	case HR__CU_ATTR_PEER_FLUSH:
		*value = (int)fake_setting(FAKE_PEER_FLUSH);
		return 0;
	case HR__CU_ATTR_DMA_BUF:
		*value = fake_setting(FAKE_EXPORT) != 0;
		return 0;
	default:
		return HR__CU_INVALID_VALUE;
	}
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	uint32_t pci;

	*bytes = fake_setting(FAKE_BAR) ? fake_bar_size(&pci) : MEMORY_BYTES;
	return enter_device(__func__, device);
}

int cuDeviceGetPCIBusId(char *id, int len, int device)
{
	uint32_t pci = (0xa0u + (unsigned int)device) << 8;

	if (fake_setting(FAKE_BAR))
		fake_bar_size(&pci);
	snprintf(id, (size_t)len, "%04X:%02X:%02X.%X", pci >> 16, pci >> 8 & 0xff, pci >> 3 & 0x1f,
		 pci & 7);
	return enter_device(__func__, device);
}

int cuDevicePrimaryCtxRetain(struct fake_ctx **ctx, int device)
{
	int result = enter_device(__func__, device);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	contexts[device].refs++;
	pthread_mutex_unlock(&lock);
	fake_count(FAKE_CONTEXTS, 1);
	*ctx = &contexts[device];
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	int result = enter_device(__func__, device);
	bool ok;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	ok = contexts[device].refs > 0;
	if (ok)
		contexts[device].refs--;
	pthread_mutex_unlock(&lock);
	if (!ok) {
		fake_misuse("a primary context was released more often than retained");
		return HR__CU_INVALID_CONTEXT;
	}
	fake_count(FAKE_CONTEXTS, -1);
	return 0;
}

int cuCtxPushCurrent_v2(struct fake_ctx *ctx)
{
	int result = fake_enter(__func__);
	bool alive;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	alive = ctx && ctx->refs > 0;
	pthread_mutex_unlock(&lock);
	if (!alive || depth == STACK_MAX) {
		fake_misuse("a context was pushed that is not alive, or too many");
		return HR__CU_INVALID_CONTEXT;
	}
	stack[depth++] = ctx;
	fake_count(FAKE_PUSHED, 1);
	return 0;
}

int cuCtxPopCurrent_v2(struct fake_ctx **ctx)
{
	int result = fake_enter(__func__);

	if (result)
		return result;
	if (!depth) {
		fake_misuse("a context was popped that nobody pushed");
		return HR__CU_INVALID_CONTEXT;
	}
	*ctx = stack[--depth];
	fake_count(FAKE_PUSHED, -1);
	return 0;
}

int cuCtxGetCurrent(struct fake_ctx **ctx)
{
	int result = fake_enter(__func__);

	*ctx = depth ? stack[depth - 1] : NULL;
	return result;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	int result = enter_device(__func__, device);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	*flags = 0;
	*active = contexts[device].refs > 0;
	pthread_mutex_unlock(&lock);
	return 0;
}

int fake_context_current(void)
{
	return depth ? (int)(stack[depth - 1] - contexts) : -1;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return fake_enter_context(__func__);
}

int cuModuleLoadData(struct fake_module **out, const void *image)
{
	int result = fake_enter_context(__func__);
	struct fake_module *module;

	if (result)
		return result;
	if (!strstr(image, ".version 6.0") || !strstr(image, ".target sm_70"))
		return HR__CU_INVALID_PTX;
	module = calloc(1, sizeof(*module));
	if (!module)
		abort();
	module->ptx = strdup(image);
	fake_count(FAKE_MODULES, 1);
	*out = module;
	return 0;
}

int cuModuleUnload(struct fake_module *module)
{
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	free(module->ptx);
	free(module);
	fake_count(FAKE_MODULES, -1);
	return 0;
}

/* A kernel must be an entry of the PTX, and the CPU must have been given it too. */
int cuModuleGetFunction(int **function, struct fake_module *module, const char *name)
{
	int result = fake_enter_context(__func__), kernel;
	char entry[80];

	if (result)
		return result;
	snprintf(entry, sizeof(entry), ".visible .entry %s(", name);
	kernel = fake_kernel_find(name);
	if (!strstr(module->ptx, entry) || kernel < 0 || module->count == FUNCTIONS_MAX)
		return HR__CU_NOT_FOUND;
	*function = &module->functions[module->count++];
	**function = kernel;
	return 0;
}

int cuGetErrorName(int result, const char **name)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "CUDA_ERROR_%d", result);
	*name = text;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda.c - the device "cuda:N": its memory, pinned host memory and kernels. Works in the
 * device's primary context, which frameworks use too, and never leaves it current on the caller's
 * thread.
 *
 * The oldest driver supported is that of CUDA 11.4: the oldest branch (R470) that NVIDIA still kept
 * alive in 2024. What we call needs CUDA 11.1 (read-only registration) and PTX 6.0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/util.h"
#include "mem/cuda.h"

#define VERSION_MIN 11040
#define PREFIX "cuda:"

#define BUFFER_ALIGN 4096u       /* promised by hr_buffer_alloc() */
#define BLOCK_BYTES (2ull << 20) /* the driver's unit of device memory */

#define BLOCKS_MIN 4u    /* of a gather kernel's grid */
#define BLOCKS_USUAL 16u /* at most, unless somebody wants otherwise */

static struct hr__cuda_device *to_cuda(struct hr_device *dev)
{
	return (struct hr__cuda_device *)dev;
}

int hr__cuda_fail(const struct hr__cuda_device *cd, int result, const char *what)
{
	int code = hr__cuda_code(result);
	const char *hint = "";

	if (code == HR_E_DEVICE_LOST)
		hint = "; the context is lost, restart the program (see dmesg for Xid messages)";
	else if (code == HR_E_CAPTURING)
		hint = "; end the capture of the stream first";
	else if (code == ENOMEM)
		hint = "; ask for less, or stop other programs on the device";
	return hr__fail(code, "%s: %s: %s (%d)%s", cd->dev.info.name, what,
			hr__cuda_name(cd->cu, result), result, hint);
}

int hr__cuda_enter(const struct hr__cuda_device *cd)
{
	int result, ret = hr__cuda_refuse_fork(cd->dev.info.name);

	if (ret)
		return ret;
	result = cd->cu->ctx_push(cd->ctx);
	if (result)
		return hr__cuda_fail(cd, result, "the context cannot be used");
	hr__cuda_relax(cd);
	return 0;
}

void hr__cuda_leave(const struct hr__cuda_device *cd)
{
	struct hr__cu_ctx *ctx;
	int result;

	hr__cuda_unrelax(cd);
	result = cd->cu->ctx_pop(&ctx);
	if (result)
		hr__log(HR_LOG_ERROR, "%s: the context could not be popped: %s", cd->dev.info.name,
			hr__cuda_name(cd->cu, result));
}

/* Is the allocation around @at memory of this device? *end: where that allocation ends. */
static int claim_one(const struct hr__cuda_device *cd, uint64_t at, uint64_t *end)
{
	unsigned int type = 0, managed = 0;
	int ordinal = -1;
	int attributes[] = {HR__CU_POINTER_MEMORY_TYPE, HR__CU_POINTER_IS_MANAGED,
			    HR__CU_POINTER_DEVICE_ORDINAL};
	void *data[] = {&type, &managed, &ordinal};
	uint64_t base;
	size_t len;

	if (cd->cu->pointer_attributes(HR_ARRAY_LEN(attributes), attributes, data, at))
		return -HR_E_BAD_POINTER;
	if (!managed && (type != HR__CU_MEMORY_DEVICE || ordinal != cd->device))
		return -HR_E_BAD_POINTER;
	if (cd->cu->mem_address_range(&base, &len, at) || at - base >= len)
		return -HR_E_BAD_POINTER;
	*end = base + len;
	return *end > at ? 0 : -HR_E_BAD_POINTER; /* or the walk over them would not end */
}

/* A tensor of an allocator that maps pieces side by side may span several allocations. */
static int cuda_claim(struct hr_device *dev, const void *ptr, uint64_t len)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	uint64_t at = (uintptr_t)ptr, end = at + len;
	int ret = hr__cuda_enter(cd);

	if (ret)
		return ret;
	while (!ret && at < end)
		ret = claim_one(cd, at, &at);
	hr__cuda_leave(cd);
	if (ret)
		return hr__fail(
			HR_E_BAD_POINTER,
			"%s: %p + %" PRIu64 " is not memory of this device (first bad byte: "
			"0x%" PRIx64 "); pass a device pointer of cuMemAlloc or a framework",
			dev->info.name, ptr, len, at);
	return 0;
}

/*
 * Short allocations come out of shared blocks at any multiple of 512 bytes; from BLOCK_BYTES on
 * they begin a block of their own, so a second try keeps the promise of whole pages.
 */
static int alloc_aligned(const struct hr__cuda_device *cd, uint64_t len, uint64_t *ptr)
{
	int result = cd->cu->mem_alloc(ptr, len);

	if (result || *ptr % BUFFER_ALIGN == 0)
		return result;
	cd->cu->mem_free(*ptr);
	result = cd->cu->mem_alloc(ptr, hr__max(len, BLOCK_BYTES));
	if (result || *ptr % BUFFER_ALIGN == 0)
		return result;
	cd->cu->mem_free(*ptr);
	return HR__CU_NOT_SUPPORTED;
}

static int cuda_alloc(struct hr_device *dev, uint64_t len, void **out)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	uint64_t ptr = 0;
	int result, ret = hr__cuda_enter(cd);

	if (ret)
		return ret;
	result = alloc_aligned(cd, len, &ptr);
	hr__cuda_leave(cd);
	if (result)
		return hr__cuda_fail(cd, result, "device memory could not be allocated");
	*out = (void *)(uintptr_t)ptr;
	return 0;
}

static void cuda_free(struct hr_device *dev, void *ptr, uint64_t len)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	int result;

	if (hr__cuda_enter(cd))
		return;
	result = cd->cu->mem_free((uintptr_t)ptr);
	hr__cuda_leave(cd);
	if (result)
		hr__log(HR_LOG_WARN, "%s: device memory could not be freed: %s", dev->info.name,
			hr__cuda_name(cd->cu, result));
}

uint32_t hr__cuda_pin_at(const struct hr__cuda_device *cd, uint64_t at)
{
	uint32_t low = 0, high = cd->pins_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct hr__cuda_pin *pin = &cd->pins[mid];

		if (at < pin->host)
			high = mid;
		else if (at - pin->host < pin->len)
			return mid;
		else
			low = mid + 1;
	}
	return cd->pins_count;
}

/* Keep the list in order; a file has a pin for each of its windows, so it may be long. */
static void pins_insert(struct hr__cuda_device *cd, const struct hr__cuda_pin *pin)
{
	uint32_t i = cd->pins_count++;

	for (; i > 0 && cd->pins[i - 1].host > pin->host; i--)
		cd->pins[i] = cd->pins[i - 1];
	cd->pins[i] = *pin;
}

static int pins_add(struct hr__cuda_device *cd, void *ptr, uint64_t len, uint64_t device)
{
	const struct hr__cuda_pin pin = {(uintptr_t)ptr, len, device};
	int ret = 0;

	pthread_rwlock_wrlock(&cd->pins_lock);
	if (cd->pins_count == cd->pins_cap) {
		uint32_t cap = cd->pins_cap ? 2 * cd->pins_cap : 8;
		struct hr__cuda_pin *pins = realloc(cd->pins, cap * sizeof(*pins));

		if (pins) {
			cd->pins = pins;
			cd->pins_cap = cap;
		} else {
			ret = -ENOMEM;
		}
	}
	if (!ret)
		pins_insert(cd, &pin);
	pthread_rwlock_unlock(&cd->pins_lock);
	return ret;
}

static void pins_drop(struct hr__cuda_device *cd, const void *ptr)
{
	uint32_t i;

	pthread_rwlock_wrlock(&cd->pins_lock);
	i = hr__cuda_pin_at(cd, (uintptr_t)ptr);
	if (i < cd->pins_count) {
		cd->pins_count--;
		memmove(&cd->pins[i], &cd->pins[i + 1], (cd->pins_count - i) * sizeof(cd->pins[0]));
	}
	pthread_rwlock_unlock(&cd->pins_lock);
}

/* With the context entered. */
static int pin_entered(struct hr__cuda_device *cd, void *ptr, uint64_t len, uint32_t flags,
		       uint64_t *device)
{
	unsigned int how = HR__CU_REGISTER_PORTABLE | HR__CU_REGISTER_DEVICEMAP;
	int result, ret;

	if (flags & HR__PIN_READ_ONLY)
		how |= HR__CU_REGISTER_READ_ONLY;
	result = cd->cu->host_register(ptr, len, how);

	if (result)
		return hr__cuda_fail(cd, result, "host memory could not be pinned");
	result = cd->cu->host_device_pointer(device, ptr, 0);
	if (result)
		ret = hr__cuda_fail(cd, result, "pinned host memory has no device address");
	else if (pins_add(cd, ptr, len, *device))
		ret = hr__fail(ENOMEM, "%s: no host memory for a pinned range", cd->dev.info.name);
	else
		return 0;
	cd->cu->host_unregister(ptr);
	return ret;
}

static int cuda_pin(struct hr_device *dev, void *ptr, uint64_t len, uint32_t flags,
		    void **device_ptr)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	uint64_t device = 0;
	int ret = hr__cuda_enter(cd);

	if (ret)
		return ret;
	ret = pin_entered(cd, ptr, len, flags, &device);
	hr__cuda_leave(cd);
	if (!ret)
		*device_ptr = (void *)(uintptr_t)device;
	return ret;
}

static void cuda_unpin(struct hr_device *dev, void *ptr, uint64_t len)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	int result;

	if (hr__cuda_forked()) /* registrations are the parent's, and so is the lock of the list */
		return;
	pins_drop(cd, ptr);
	if (hr__cuda_enter(cd))
		return;
	result = cd->cu->host_unregister(ptr);
	hr__cuda_leave(cd);
	if (result)
		hr__log(HR_LOG_WARN, "%s: host memory could not be unpinned: %s", dev->info.name,
			hr__cuda_name(cd->cu, result));
}

/* Also takes apart what a failed open has built so far. */
static void cuda_close(struct hr_device *dev)
{
	struct hr__cuda_device *cd = to_cuda(dev);
	int result = 0;

	if (cd->ctx && !hr__cuda_enter(cd)) {
		hr__cuda_kernels_close(cd);
		hr__cuda_leave(cd);
	}
	if (cd->ctx && !hr__cuda_forked())
		result = cd->cu->primary_ctx_release(cd->device);
	if (result)
		hr__log(HR_LOG_WARN, "%s: the device did not close cleanly: %s", dev->info.name,
			hr__cuda_name(cd->cu, result));
	pthread_rwlock_destroy(&cd->pins_lock);
	pthread_mutex_destroy(&cd->kernels.lock);
	free(cd->pins);
	free(cd);
}

static const struct hr__mem_ops cuda_ops = {
	.name = "cuda",
	.claim = cuda_claim,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.export = hr__cuda_export,
	.lane_open = hr__cuda_lane_open,
	.close = cuda_close,
};

static int read_info(struct hr__cuda_device *cd, int version)
{
	struct hr_device_info *info = &cd->dev.info;
	const struct hr__cuda_api *cu = cd->cu;
	int sms = 0, read_only = 0, result;
	size_t bytes = 0;

	result = cu->device_get_name(info->model, sizeof(info->model), cd->device);
	if (!result)
		result = cu->device_total_mem(&bytes, cd->device);
	if (!result)
		result = cu->device_get_attribute(&sms, HR__CU_ATTR_MULTIPROCESSORS, cd->device);
	if (result)
		return hr__cuda_fail(cd, result, "the device cannot be asked what it is");
	/* Old drivers do not know this attribute, some hypervisors no PCI address: no failures. */
	if (cu->device_get_attribute(&read_only, HR__CU_ATTR_READ_ONLY_HOST_REGISTER, cd->device))
		read_only = 0;
	if (cu->device_get_pci_bus_id(info->pci, sizeof(info->pci), cd->device))
		info->pci[0] = '\0';
	/* A name that fills its place need not be terminated. */
	info->pci[sizeof(info->pci) - 1] = '\0';
	info->model[sizeof(info->model) - 1] = '\0';
	for (char *p = info->pci; *p; p++) /* as sysfs writes it */
		*p = *p >= 'A' && *p <= 'F' ? (char)(*p - 'A' + 'a') : *p;
	info->numa_node = hr__numa_node_of_pci(info->pci);
	info->kind = HR_DEVICE_CUDA;
	info->memory_bytes = bytes;
	info->registers_read_only_host = read_only != 0;
	if (hr__cuda_exports(cd))
		cd->dev.caps |= HR__MEM_CAP_EXPORT;
	cd->order = hr__cuda_find_order(cd);
	snprintf(info->driver, sizeof(info->driver), "%d.%d", version / 1000, version % 1000 / 10);
	cd->blocks_max = hr_config_get()->gather_blocks;
	if (!cd->blocks_max)
		cd->blocks_max =
			(uint32_t)hr__max(BLOCKS_MIN, hr__min(BLOCKS_USUAL, (uint64_t)sms / 4));
	return 0;
}

static int start_driver(struct hr__cuda_device *cd, int *version)
{
	const struct hr__cuda_api *cu = cd->cu;
	const char *name = cd->dev.info.name;
	int count = 0, result;

	result = hr__cuda_init(cu);
	if (result == HR__CU_NO_DEVICE)
		return hr__fail(HR_E_NO_DEVICE,
				"%s: the driver shows no GPU; check nvidia-smi and "
				"CUDA_VISIBLE_DEVICES, or use device \"host\"",
				name);
	if (result)
		return hr__fail(HR_E_NO_DRIVER,
				"%s: the CUDA driver does not start: %s (%d); check nvidia-smi",
				name, hr__cuda_name(cu, result), result);
	result = cu->driver_get_version(version);
	if (result)
		return hr__cuda_fail(cd, result, "the driver does not tell its version");
	if (*version < VERSION_MIN)
		return hr__fail(
			HR_E_DRIVER_TOO_OLD,
			"%s: the driver is for CUDA %d.%d; install one for CUDA 11.4 or newer",
			name, *version / 1000, *version % 1000 / 10);
	result = cu->device_get_count(&count);
	if (result)
		return hr__cuda_fail(cd, result, "devices cannot be counted");
	if (cd->ordinal >= count)
		return hr__fail(HR_E_NO_DEVICE, "%s: the driver shows %d GPUs, numbered from 0",
				name, count);
	result = cu->device_get(&cd->device, cd->ordinal);
	return result ? hr__cuda_fail(cd, result, "the device cannot be opened") : 0;
}

static int open_context(struct hr__cuda_device *cd)
{
	int greatest, result, ret;

	result = cd->cu->primary_ctx_retain(&cd->ctx, cd->device);
	if (result) {
		cd->ctx = NULL;
		return hr__cuda_fail(cd, result, "no context on the device");
	}
	ret = hr__cuda_enter(cd);
	if (ret)
		return ret;
	if (cd->cu->ctx_priority_range(&cd->priority_least, &greatest))
		cd->priority_least = 0;
	hr__cuda_kernels_open(cd);
	hr__cuda_leave(cd);
	return 0;
}

/* N of "cuda:N": plain decimal, nothing after it. */
static int parse_ordinal(const char *name, int *out)
{
	const char *digits = name + strlen(PREFIX);
	size_t len = strspn(digits, "0123456789");

	if (!len || len > 4 || digits[len])
		return hr__fail(EINVAL, "device \"%s\": expected \"cuda:N\" with a number N", name);
	*out = (int)strtol(digits, NULL, 10);
	return 0;
}

static int cuda_open(const char *name, struct hr_device **out)
{
	struct hr__cuda_device *cd;
	const struct hr__cuda_api *cu;
	int ordinal = 0, version = 0, ret;

	ret = parse_ordinal(name, &ordinal);
	if (!ret)
		ret = hr__cuda_load(name, &cu);
	if (ret)
		return ret;
	cd = calloc(1, sizeof(*cd));
	if (!cd)
		return hr__fail(ENOMEM, "%s: no host memory for a device", name);
	cd->dev.ops = &cuda_ops;
	cd->cu = cu;
	cd->ordinal = ordinal;
	/* hr_device_open() has measured the name; sentences need it now. */
	snprintf(cd->dev.info.name, sizeof(cd->dev.info.name), "%s", name);
	pthread_rwlock_init(&cd->pins_lock, NULL);
	pthread_mutex_init(&cd->kernels.lock, NULL);
	ret = start_driver(cd, &version);
	if (!ret)
		ret = read_info(cd, version);
	if (!ret)
		ret = open_context(cd);
	if (ret) {
		cuda_close(&cd->dev);
		return ret;
	}
	*out = &cd->dev;
	return 0;
}

const struct hr__mem_provider hr__mem_cuda = {
	.prefix = PREFIX,
	.exact = false,
	.open = cuda_open,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/device.c - opens devices by name over the list of providers and counts references; knows no
 * device's ways.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "mem/mem.h"

static const struct hr__mem_provider *const providers[] = {
	&hr__mem_host,
	&hr__mem_cuda,
	&hr__mem_vgpu,
};

static bool name_matches(const struct hr__mem_provider *provider, const char *name)
{
	if (provider->exact)
		return !strcmp(provider->prefix, name);
	return !strncmp(provider->prefix, name, strlen(provider->prefix));
}

static void assert_ops(const struct hr_device *dev)
{
	const struct hr__mem_ops *ops = dev->ops;

	assert(ops && ops->name && ops->claim && ops->alloc && ops->free && ops->pin &&
	       ops->unpin && ops->export && ops->lane_open && ops->close);
	assert(!(dev->caps & HR__MEM_CAP_EXPORT) || ops->export != hr__mem_no_export);
}

int hr__mem_no_export(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out)
{
	return -ENOTSUP;
}

void hr__device_get(struct hr_device *dev)
{
	atomic_fetch_add_explicit(&dev->refs, 1, memory_order_relaxed);
}

void hr__device_put(struct hr_device *dev)
{
	/* Release our own use of the device, acquire everybody else's before it is torn down. */
	if (atomic_fetch_sub_explicit(&dev->refs, 1, memory_order_acq_rel) == 1)
		dev->ops->close(dev);
}

int hr_device_open(const char *name, struct hr_device **out)
{
	struct hr_device *dev;
	int ret;

	if (!name || strlen(name) >= sizeof(dev->info.name))
		return hr__fail(EINVAL,
				"device name: missing or too long; use \"host\" or \"cuda:N\"");
	for (size_t i = 0; i < HR_ARRAY_LEN(providers); i++) {
		if (!name_matches(providers[i], name))
			continue;
		ret = providers[i]->open(name, &dev);
		if (ret)
			return ret;
		atomic_init(&dev->refs, 1);
		snprintf(dev->info.name, sizeof(dev->info.name), "%s", name);
		assert_ops(dev);
		*out = dev;
		return 0;
	}
	return hr__fail(EINVAL, "device \"%s\": no such name; use \"host\" or \"cuda:N\"", name);
}

void hr_device_close(struct hr_device *dev)
{
	if (dev)
		hr__device_put(dev);
}

int hr_device_info(const struct hr_device *dev, struct hr_device_info *info)
{
	*info = dev->info;
	return 0;
}

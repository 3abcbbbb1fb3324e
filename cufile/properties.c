/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/properties.c - what the driver says about itself, and the setters that are older than
 * parameters. There is no nvidia-fs, so its version is 0.0; of the ways that the status flags name
 * there is at most one, peer DMA between NVMe and GPU.
 */
#include <stdio.h>
#include <string.h>

#include "cufile/inside.h"

#define KB_MAX (1ull << 40) /* of a setter: nobody has that */
#define BARS 6              /* lines of the file resource; below them are the ROM and bridges */

_Static_assert(sizeof(CUfileDrvProps_t) == 56, "what callers have room for");
_Static_assert(offsetof(CUfileDrvProps_t, max_batch_io_size) == 48, "old ones end here");

static unsigned int low(size_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
}

static void fill(CUfileDrvProps_t *p, const struct cf_settings *s)
{
	memset(p, 0, sizeof(*p));
	p->nvfs.poll_thresh_size = s->num[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB];
	p->nvfs.max_direct_io_size = s->num[CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB];
	p->nvfs.dcontrolflags = 1u << CU_FILE_ALLOW_COMPAT_MODE;
	if (s->flag[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE])
		p->nvfs.dcontrolflags |= 1u << CU_FILE_USE_POLL_MODE;
	p->fflags = 1u << CU_FILE_DYN_ROUTING_SUPPORTED | 1u << CU_FILE_BATCH_IO_SUPPORTED;
	if (s->flag[CUFILE_PARAM_EXECUTION_PARALLEL_IO] &&
	    s->num[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS])
		p->fflags |= 1u << CU_FILE_STREAMS_SUPPORTED | 1u << CU_FILE_PARALLEL_IO_SUPPORTED;
	if (cf_direct_possible()) {
		p->nvfs.dstatusflags = 1u << CU_FILE_NVME_P2P_SUPPORTED;
		p->fflags |= 1u << CU_FILE_P2P_SUPPORTED;
	}
	p->max_device_cache_size = low(s->num[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB]);
	p->max_device_pinned_mem_size =
		low(s->num[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB]);
	p->max_batch_io_size = low(s->num[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE]);
	p->max_batch_io_timeout_msecs = low(s->num[CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS]);
}

CF_EXPORT CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props)
{
	int ret;

	if (!props)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open();
	if (!ret)
		fill(props, cf_settings());
	return cf_error(ret);
}

/* What all setters ask first. */
static int settable(bool ok)
{
	if (!cf_is_open())
		return CU_FILE_DRIVER_NOT_INITIALIZED;
	return ok ? 0 : CU_FILE_DRIVER_UNSUPPORTED_LIMIT;
}

static CUfileError_t set(int index, size_t value, bool ok)
{
	int err = settable(ok);

	if (!err)
		cf_settings_change(index, value);
	return cf_result(err);
}

CF_EXPORT CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
{
	int err = settable(poll_threshold_size <= KB_MAX);

	if (!err) {
		cf_settings_change_flag(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, poll);
		cf_settings_change(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, poll_threshold_size);
	}
	return cf_result(err);
}

CF_EXPORT CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size)
{
	int index = CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB;

	return set(index, max_direct_io_size,
		   max_direct_io_size && max_direct_io_size <= cf_ranges[index].max);
}

CF_EXPORT CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size)
{
	return set(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, max_cache_size,
		   max_cache_size && max_cache_size <= KB_MAX);
}

CF_EXPORT CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
{
	return set(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, max_pinned_size,
		   max_pinned_size && max_pinned_size <= KB_MAX);
}

/* -- peer to peer ------------------------------------------------------------------------------- */

static _Atomic(unsigned int) p2p_flags[CU_FILE_MAX_TARGET_TYPES];

CF_EXPORT CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t fs,
						CUfileP2PFlags_t *flags)
{
	if (!flags || (unsigned int)fs >= CU_FILE_MAX_TARGET_TYPES)
		return cf_result(CU_FILE_INVALID_VALUE);
	cf_settings_freeze();
	*flags = (CUfileP2PFlags_t)atomic_load(&p2p_flags[fs]);
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t fs,
						CUfileP2PFlags_t flags)
{
#if defined(__aarch64__)
	unsigned int mine = CU_FILE_P2P_FLAG_C2C;
#else
	unsigned int mine = CU_FILE_P2P_FLAG_PCI_P2PDMA;
#endif

	if ((unsigned int)fs >= CU_FILE_MAX_TARGET_TYPES || (unsigned int)flags & ~mine)
		return cf_result(CU_FILE_INVALID_VALUE);
	cf_settings_freeze();
	atomic_store(&p2p_flags[fs], flags);
	return cf_result(CU_FILE_SUCCESS);
}

/* -- BAR ---------------------------------------------------------------------------------------- */

/* Size of the BAR by which others see the GPU's memory; 0 unknown. */
static size_t bar_kb(const char *pci)
{
	unsigned long long first, last;
	char path[96], line[128];
	size_t kb = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", pci);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The memory is the largest: BAR 1 of older GPUs, BAR 2 where BAR 0 has 64 bits. */
	for (int i = 0; i < BARS && fgets(line, sizeof(line), file); i++) {
		if (sscanf(line, "%llx %llx", &first, &last) == 2 && last > first &&
		    ((last - first + 1) >> 10) > kb)
			kb = (size_t)((last - first + 1) >> 10);
	}
	fclose(file);
	return kb;
}

CF_EXPORT CUfileError_t cuFileGetBARSizeInKB(int gpuIndex, size_t *barSize)
{
	struct hr_device_info info;
	struct cf_device *device;
	char name[32];
	int ret;

	if (!barSize || gpuIndex < 0 || (unsigned int)gpuIndex >= hr_device_count(HR_DEVICE_CUDA))
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open_enter();
	if (ret)
		return cf_error(ret);
	snprintf(name, sizeof(name), "cuda:%d", gpuIndex);
	ret = cf_device_find(name, &device);
	if (!ret) {
		hr_device_info(atomic_load(&device->dev), &info);
		*barSize = bar_kb(info.pci);
	}
	cf_leave();
	return cf_error(ret);
}

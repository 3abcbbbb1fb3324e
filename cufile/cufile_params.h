/* SPDX-License-Identifier: Apache-2.0 */
/* cufile_params.h - a part of cufile.h: settings that programs may read and, while closed, set. */
#ifndef CUFILE_PARAMS_H
#define CUFILE_PARAMS_H

#include "cufile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CUFileSizeTConfigParameter_t {
	CUFILE_PARAM_PROFILE_STATS = 0,
	CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH = 1,
	CUFILE_PARAM_EXECUTION_MAX_IO_THREADS = 2,
	CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB = 3,
	CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM = 4,
	CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB = 5,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB = 6,
	CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB = 7,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB = 8,
	CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE = 9,
	CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB = 10,
	CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS = 11
} CUFileSizeTConfigParameter_t;

typedef enum CUFileBoolConfigParameter_t {
	CUFILE_PARAM_PROPERTIES_USE_POLL_MODE = 0,
	CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE = 1,
	CUFILE_PARAM_FORCE_COMPAT_MODE = 2,
	CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE = 3,
	CUFILE_PARAM_EXECUTION_PARALLEL_IO = 4,
	CUFILE_PARAM_PROFILE_NVTX = 5,
	CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY = 6,
	CUFILE_PARAM_USE_PCIP2PDMA = 7,
	CUFILE_PARAM_PREFER_IO_URING = 8,
	CUFILE_PARAM_FORCE_ODIRECT_MODE = 9,
	CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION = 10,
	CUFILE_PARAM_STREAM_MEMOPS_BYPASS = 11,
	CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE = 12,
	CUFILE_PARAM_GDS_FALLBACK_IO = 13
} CUFileBoolConfigParameter_t;

typedef enum CUFileStringConfigParameter_t {
	CUFILE_PARAM_LOGGING_LEVEL = 0,
	CUFILE_PARAM_ENV_LOGFILE_PATH = 1,
	CUFILE_PARAM_LOG_DIR = 2,
	CUFILE_PARAM_RDMA_TRANSPORT = 3
} CUFileStringConfigParameter_t;

typedef enum CUFileArrayConfigParameter_t {
	CUFILE_PARAM_POSIX_POOL_SLAB_SIZE_KB = 0,
	CUFILE_PARAM_POSIX_POOL_SLAB_COUNT = 1,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_SIZE_KB = 2,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_COUNT = 3
} CUFileArrayConfigParameter_t;

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value);
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value);
CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value,
					    size_t *max_value);
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value);
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value);
CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *desc_str,
				       int len);
CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *desc_str);
CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values,
						   int len);
CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values,
						   const size_t *count_values, int len);
CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values, size_t *count_values,
							 int len);
CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values,
							 const size_t *count_values, int len);

#ifdef __cplusplus
}
#endif
#endif

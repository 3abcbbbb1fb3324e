/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile.h - the interface of cuFile, levels 1.0 to 1.19, in our own words: names, types, sizes and
 * values are those that programs were compiled against. docs/cufile.md says what differs.
 *
 * Calls return CUfileError_t by value: err is 0 or a code from 5001 on, cu_err the CUDA driver's
 * result when err is CU_FILE_CUDA_DRIVER_ERROR. cuFileRead() and its kin return bytes, or -1 with
 * errno set to an errno value or to such a code. All calls may come from any thread.
 *
 * <cuda.h> is used where it is installed; with CUFILE_NO_CUDA_H two stand-ins of the same size are.
 */
#ifndef CUFILE_H
#define CUFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#if !defined(CUFILE_NO_CUDA_H) && defined(__has_include)
#if __has_include(<cuda.h>)
#define CUFILE_HAS_CUDA_H 1
#endif
#endif
#ifdef CUFILE_HAS_CUDA_H
#include <cuda.h>
#else
typedef int CUresult;
typedef struct CUstream_st *CUstream;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* -- results ------------------------------------------------------------------------------------ */

#define CUFILEOP_BASE_ERR 5000

/* X(name, value, text) */
#define CUFILE_ERROR_MAP(X)                                                                        \
	X(CU_FILE_SUCCESS, 0, "cuFile success")                                                    \
	X(CU_FILE_DRIVER_NOT_INITIALIZED, 5001, "the driver is not open")                          \
	X(CU_FILE_DRIVER_INVALID_PROPS, 5002, "invalid driver properties")                         \
	X(CU_FILE_DRIVER_UNSUPPORTED_LIMIT, 5003, "driver property out of range")                  \
	X(CU_FILE_DRIVER_VERSION_MISMATCH, 5004, "driver version does not match")                  \
	X(CU_FILE_DRIVER_VERSION_READ_ERROR, 5005, "driver version cannot be read")                \
	X(CU_FILE_DRIVER_CLOSING, 5006, "the driver is closing or closed")                         \
	X(CU_FILE_PLATFORM_NOT_SUPPORTED, 5007, "not supported on this platform")                  \
	X(CU_FILE_IO_NOT_SUPPORTED, 5008, "not supported on this file")                            \
	X(CU_FILE_DEVICE_NOT_SUPPORTED, 5009, "not supported on this GPU")                         \
	X(CU_FILE_NVFS_DRIVER_ERROR, 5010, "error of the kernel module")                           \
	X(CU_FILE_CUDA_DRIVER_ERROR, 5011, "error of the CUDA driver")                             \
	X(CU_FILE_CUDA_POINTER_INVALID, 5012, "invalid device pointer")                            \
	X(CU_FILE_CUDA_MEMORY_TYPE_INVALID, 5013, "invalid type of memory")                        \
	X(CU_FILE_CUDA_POINTER_RANGE_ERROR, 5014, "range exceeds its allocation")                  \
	X(CU_FILE_CUDA_CONTEXT_MISMATCH, 5015, "pointer belongs to another context")               \
	X(CU_FILE_INVALID_MAPPING_SIZE, 5016, "access beyond the largest pinned size")             \
	X(CU_FILE_INVALID_MAPPING_RANGE, 5017, "access beyond the registered range")               \
	X(CU_FILE_INVALID_FILE_TYPE, 5018, "unsupported type of file")                             \
	X(CU_FILE_INVALID_FILE_OPEN_FLAG, 5019, "unsupported open flags")                          \
	X(CU_FILE_DIO_NOT_SET, 5020, "the descriptor has no O_DIRECT")                             \
	X(CU_FILE_INVALID_VALUE, 5022, "invalid argument")                                         \
	X(CU_FILE_MEMORY_ALREADY_REGISTERED, 5023, "memory is registered already")                 \
	X(CU_FILE_MEMORY_NOT_REGISTERED, 5024, "memory is not registered")                         \
	X(CU_FILE_PERMISSION_DENIED, 5025, "permission denied")                                    \
	X(CU_FILE_DRIVER_ALREADY_OPEN, 5026, "the driver is open already")                         \
	X(CU_FILE_HANDLE_NOT_REGISTERED, 5027, "the handle is not registered")                     \
	X(CU_FILE_HANDLE_ALREADY_REGISTERED, 5028, "the handle is registered already")             \
	X(CU_FILE_DEVICE_NOT_FOUND, 5029, "device not found")                                      \
	X(CU_FILE_INTERNAL_ERROR, 5030, "internal error")                                          \
	X(CU_FILE_GETNEWFD_FAILED, 5031, "no new descriptor")                                      \
	X(CU_FILE_NVFS_SETUP_ERROR, 5033, "the kernel module cannot be set up")                    \
	X(CU_FILE_IO_DISABLED, 5034, "I/O is disabled on this file")                               \
	X(CU_FILE_BATCH_SUBMIT_FAILED, 5035, "a batch cannot be submitted")                        \
	X(CU_FILE_GPU_MEMORY_PINNING_FAILED, 5036, "device memory cannot be pinned")               \
	X(CU_FILE_BATCH_FULL, 5037, "the batch is full")                                           \
	X(CU_FILE_ASYNC_NOT_SUPPORTED, 5038, "streams are not supported")                          \
	X(CU_FILE_INTERNAL_BATCH_SETUP_ERROR, 5039, "a batch cannot be set up")                    \
	X(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, 5040, "error in submitting a batch")                \
	X(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR, 5041, "error in asking for a batch")             \
	X(CU_FILE_INTERNAL_BATCH_CANCEL_ERROR, 5042, "error in cancelling a batch")                \
	X(CU_FILE_NOMEM_ERROR, 5043, "out of memory")                                              \
	X(CU_FILE_IO_ERROR, 5044, "I/O error")                                                     \
	X(CU_FILE_INTERNAL_BUF_REGISTER_ERROR, 5045, "memory cannot be registered")                \
	X(CU_FILE_HASH_OPR_ERROR, 5046, "error in a table")                                        \
	X(CU_FILE_INVALID_CONTEXT_ERROR, 5047, "invalid CUDA context")                             \
	X(CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, 5048, "internal error of the kernel module")         \
	X(CU_FILE_BATCH_NOCOMPAT_ERROR, 5049, "a batch that needs the kernel module")              \
	X(CU_FILE_IO_MAX_ERROR, 5050, "largest code")

#define CUFILE__ENUM(name, value, text) name = value,
typedef enum CUfileOpError { CUFILE_ERROR_MAP(CUFILE__ENUM) } CUfileOpError;
#undef CUFILE__ENUM

/* cufileop_status_error() - the text of a code; never NULL. */
static inline const char *cufileop_status_error(CUfileOpError status)
{
#define CUFILE__CASE(name, value, text)                                                            \
	case name:                                                                                 \
		return text;
	switch (status) {
		CUFILE_ERROR_MAP(CUFILE__CASE)
	default:
		return "unknown cuFile error";
	}
#undef CUFILE__CASE
}

typedef struct CUfileError {
	CUfileOpError err;
	CUresult cu_err;
} CUfileError_t;

#define IS_CUFILE_ERR(err) ((err) > CUFILEOP_BASE_ERR || (err) < -CUFILEOP_BASE_ERR)
#define CUFILE_ERRSTR(err)                                                                         \
	cufileop_status_error((CUfileOpError)((err) < 0 ? -(int)(err) : (int)(err)))
#define IS_CUDA_ERR(status) ((status).err == CU_FILE_CUDA_DRIVER_ERROR)
#define CU_FILE_CUDA_ERR(status) ((status).cu_err)

/* -- the driver --------------------------------------------------------------------------------- */

/* Bit positions in dstatusflags, dcontrolflags and fflags. */
typedef enum CUfileDriverStatusFlags {
	CU_FILE_LUSTRE_SUPPORTED = 0,
	CU_FILE_WEKAFS_SUPPORTED = 1,
	CU_FILE_NFS_SUPPORTED = 2,
	CU_FILE_GPFS_SUPPORTED = 3,
	CU_FILE_NVME_SUPPORTED = 4,
	CU_FILE_NVMEOF_SUPPORTED = 5,
	CU_FILE_SCSI_SUPPORTED = 6,
	CU_FILE_SCALEFLUX_CSD_SUPPORTED = 7,
	CU_FILE_NVMESH_SUPPORTED = 8,
	CU_FILE_BEEGFS_SUPPORTED = 9,
	CU_FILE_NVME_P2P_SUPPORTED = 11,
	CU_FILE_SCATEFS_SUPPORTED = 12,
	CU_FILE_VIRTIOFS_SUPPORTED = 13,
	CU_FILE_MAX_TARGET_TYPES = 14
} CUfileDriverStatusFlags_t;

typedef enum CUfileDriverControlFlags {
	CU_FILE_USE_POLL_MODE = 0,
	CU_FILE_ALLOW_COMPAT_MODE = 1,
	CU_FILE_POSIX_IO_MODE = 2,
	CU_FILE_FALLBACK_IO_MODE = 4
} CUfileDriverControlFlags_t;

typedef enum CUfileFeatureFlags {
	CU_FILE_DYN_ROUTING_SUPPORTED = 0,
	CU_FILE_BATCH_IO_SUPPORTED = 1,
	CU_FILE_STREAMS_SUPPORTED = 2,
	CU_FILE_PARALLEL_IO_SUPPORTED = 3,
	CU_FILE_P2P_SUPPORTED = 4
} CUfileFeatureFlags_t;

typedef enum CUfileP2PFlags {
	CUFILE_P2PDMA = 0,
	CUFILE_NVFS = 1,
	CUFILE_DMABUF = 2,
	CUFILE_C2C = 3,
	CUFILE_NVIDIA_PEERMEM = 4
} CUfileP2PFlags_t;

#define CU_FILE_P2P_FLAG_PCI_P2PDMA (1u << CUFILE_P2PDMA)
#define CU_FILE_P2P_FLAG_NVFS (1u << CUFILE_NVFS)
#define CU_FILE_P2P_FLAG_DMABUF (1u << CUFILE_DMABUF)
#define CU_FILE_P2P_FLAG_C2C (1u << CUFILE_C2C)

typedef struct CUfileDrvProps {
	struct {
		unsigned int major_version;
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int max_device_cache_size;
	unsigned int per_buffer_cache_size;
	unsigned int max_device_pinned_mem_size;
	/* since 1.2; a caller of 1.0 or 1.1 ends here */
	unsigned int max_batch_io_size;
	unsigned int max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose(void);
CUfileError_t cuFileDriverClose_v2(void);
#ifndef CUFILE_NO_RENAME
#define cuFileDriverClose cuFileDriverClose_v2
#endif
long cuFileUseCount(void);
CUfileError_t cuFileGetVersion(int *version);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props);
CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size);
CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size);
CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size);
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size);
CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t fs, CUfileP2PFlags_t *flags);
CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t fs, CUfileP2PFlags_t flags);
CUfileError_t cuFileGetBARSizeInKB(int gpuIndex, size_t *barSize);
CUfileError_t cuFileExportPCIeTopology(const char *filename);

#ifdef __cplusplus
}
#endif

#include "cufile_io.h"
#include "cufile_params.h"
#include "cufile_stats.h"

#endif

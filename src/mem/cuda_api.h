/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cuda_api.h - the part of the CUDA driver API that Headrace calls, in its own words: handles,
 * the constants it uses, and one table of functions. Written from the public documentation of the
 * driver API; nothing of the CUDA toolkit is needed to build.
 */
#ifndef HR_MEM_CUDA_API_H
#define HR_MEM_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Results. The driver has many more; hr__cuda_code() sorts them. */
enum {
	HR__CU_SUCCESS = 0,
	HR__CU_INVALID_VALUE = 1,
	HR__CU_OUT_OF_MEMORY = 2,
	HR__CU_NOT_INITIALIZED = 3,
	HR__CU_DEINITIALIZED = 4,
	HR__CU_STUB_LIBRARY = 34,
	HR__CU_DEVICE_UNAVAILABLE = 46,
	HR__CU_NO_DEVICE = 100,
	HR__CU_INVALID_DEVICE = 101,
	HR__CU_INVALID_CONTEXT = 201,
	HR__CU_NO_BINARY_FOR_GPU = 209,
	HR__CU_INVALID_PTX = 218,
	HR__CU_INVALID_HANDLE = 400,
	HR__CU_NOT_FOUND = 500,
	HR__CU_NOT_READY = 600,
	HR__CU_ILLEGAL_ADDRESS = 700,
	HR__CU_ALREADY_REGISTERED = 712,
	HR__CU_NOT_REGISTERED = 713,
	HR__CU_NOT_PERMITTED = 800,
	HR__CU_NOT_SUPPORTED = 801,
	HR__CU_SYSTEM_DRIVER_MISMATCH = 803,
	HR__CU_CAPTURE_UNSUPPORTED = 900, /* the first and the last of what captures forbid */
	HR__CU_CAPTURE_IMPLICIT = 906,
	HR__CU_CAPTURE_WRONG_THREAD = 908,
	HR__CU_UNKNOWN = 999,
};

/* Device attributes. */
enum {
	HR__CU_ATTR_MULTIPROCESSORS = 16,
	HR__CU_ATTR_READ_ONLY_HOST_REGISTER = 113,
	HR__CU_ATTR_PEER_FLUSH = 117,
	HR__CU_ATTR_PEER_ORDER = 118,
	HR__CU_ATTR_DMA_BUF = 124,
};

/* Pointer attributes. */
enum {
	HR__CU_POINTER_MEMORY_TYPE = 2,
	HR__CU_POINTER_BUFFER_ID = 7,
	HR__CU_POINTER_IS_MANAGED = 8,
	HR__CU_POINTER_DEVICE_ORDINAL = 9,
};

enum {
	HR__CU_MEMORY_HOST = 1,
	HR__CU_MEMORY_DEVICE = 2,
};

/* Whether a stream is being captured, and a thread's mode beside captures. */
enum {
	HR__CU_CAPTURE_NONE = 0,
	HR__CU_CAPTURE_RELAXED = 2,
};
/* Writes of peers (PEER_ORDER): from OWNER on the device's own work sees them without a flush. */
enum {
	HR__CU_ORDER_OWNER = 100,
	HR__CU_FLUSH_CURRENT = 0, /* of the current context's device... */
	HR__CU_FLUSH_OWNER = 100, /* ...for its own work */
	HR__CU_FLUSH_BY_HOST = 1, /* a bit of PEER_FLUSH: flush_writes() works */
};

enum { HR__CU_RANGE_DMA_BUF = 1 }; /* what handle_for_range() makes: an int, a descriptor */

/* Flags. */
#define HR__CU_STREAM_NON_BLOCKING 1u
#define HR__CU_EVENT_DISABLE_TIMING 2u
#define HR__CU_REGISTER_PORTABLE 1u
#define HR__CU_REGISTER_DEVICEMAP 2u
#define HR__CU_REGISTER_READ_ONLY 8u
#define HR__CU_ALLOC_PORTABLE 1u
#define HR__CU_ALLOC_DEVICEMAP 2u

typedef void (*hr__cuda_host_fn)(void *arg);

struct hr__cu_ctx;
struct hr__cu_stream;
struct hr__cu_event;
struct hr__cu_module;
struct hr__cu_function;

/*
 * X(member, symbol, arguments): every function that must be there. The _v2 and _v3 symbols are the
 * ones that cuda.h hides behind the plain names. All return a result as above.
 */
#define HR__CUDA_FUNCTIONS(X)                                                                      \
	X(init, "cuInit", (unsigned int flags))                                                    \
	X(driver_get_version, "cuDriverGetVersion", (int *version))                                \
	X(device_get_count, "cuDeviceGetCount", (int *count))                                      \
	X(device_get, "cuDeviceGet", (int *device, int ordinal))                                   \
	X(device_get_name, "cuDeviceGetName", (char *name, int len, int device))                   \
	X(device_get_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))   \
	X(device_total_mem, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                   \
	X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char *id, int len, int device))           \
	X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (struct hr__cu_ctx * *ctx, int device))  \
	X(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device))                       \
	X(ctx_push, "cuCtxPushCurrent_v2", (struct hr__cu_ctx * ctx))                              \
	X(ctx_pop, "cuCtxPopCurrent_v2", (struct hr__cu_ctx * *ctx))                               \
	X(ctx_priority_range, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))          \
	X(mem_alloc, "cuMemAlloc_v2", (uint64_t * ptr, size_t len))                                \
	X(mem_free, "cuMemFree_v2", (uint64_t ptr))                                                \
	X(mem_address_range, "cuMemGetAddressRange_v2",                                            \
	  (uint64_t * base, size_t * len, uint64_t ptr))                                           \
	X(pointer_attributes, "cuPointerGetAttributes",                                            \
	  (unsigned int n, int *attributes, void **data, uint64_t ptr))                            \
	X(host_alloc, "cuMemHostAlloc", (void **ptr, size_t len, unsigned int flags))              \
	X(host_free, "cuMemFreeHost", (void *ptr))                                                 \
	X(host_register, "cuMemHostRegister_v2", (void *ptr, size_t len, unsigned int flags))      \
	X(host_unregister, "cuMemHostUnregister", (void *ptr))                                     \
	X(host_device_pointer, "cuMemHostGetDevicePointer_v2",                                     \
	  (uint64_t * out, void *ptr, unsigned int flags))                                         \
	X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                  \
	  (uint64_t dst, const void *src, size_t len, struct hr__cu_stream *stream))               \
	X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                    \
	  (void *dst, uint64_t src, size_t len, struct hr__cu_stream *stream))                     \
	X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                                  \
	  (uint64_t dst, uint64_t src, size_t len, struct hr__cu_stream * stream))                 \
	X(stream_create, "cuStreamCreateWithPriority",                                             \
	  (struct hr__cu_stream * *stream, unsigned int flags, int priority))                      \
	X(stream_destroy, "cuStreamDestroy_v2", (struct hr__cu_stream * stream))                   \
	X(stream_query, "cuStreamQuery", (struct hr__cu_stream * stream))                          \
	X(stream_capturing, "cuStreamIsCapturing", (struct hr__cu_stream * stream, int *status))   \
	X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                 \
	X(event_create, "cuEventCreate", (struct hr__cu_event * *event, unsigned int flags))       \
	X(event_destroy, "cuEventDestroy_v2", (struct hr__cu_event * event))                       \
	X(event_record, "cuEventRecord",                                                           \
	  (struct hr__cu_event * event, struct hr__cu_stream * stream))                            \
	X(event_query, "cuEventQuery", (struct hr__cu_event * event))                              \
	X(launch_host_fn, "cuLaunchHostFunc",                                                      \
	  (struct hr__cu_stream * stream, hr__cuda_host_fn fn, void *arg))                         \
	X(module_load, "cuModuleLoadData", (struct hr__cu_module * *module, const void *image))    \
	X(module_unload, "cuModuleUnload", (struct hr__cu_module * module))                        \
	X(module_function, "cuModuleGetFunction",                                                  \
	  (struct hr__cu_function * *function, struct hr__cu_module * module, const char *name))   \
	X(launch_kernel, "cuLaunchKernel",                                                         \
	  (struct hr__cu_function * function, unsigned int grid_x, unsigned int grid_y,            \
	   unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,  \
	   unsigned int shared, struct hr__cu_stream *stream, void **params, void **extra))

/* Functions that may be missing: the member is NULL then. */
#define HR__CUDA_OPTIONAL(X)                                                                       \
	X(error_name, "cuGetErrorName", (int result, const char **name))                           \
	X(ctx_current, "cuCtxGetCurrent", (struct hr__cu_ctx * *ctx))                              \
	X(stream_is_capturing, "cuStreamIsCapturing",                                              \
	  (struct hr__cu_stream * stream, int *capturing))                                         \
	X(primary_ctx_state, "cuDevicePrimaryCtxGetState",                                         \
	  (int device, unsigned int *flags, int *active))                                          \
	X(handle_for_range, "cuMemGetHandleForAddressRange",                                       \
	  (void *handle, uint64_t ptr, size_t len, int type, unsigned long long flags))            \
	X(flush_writes, "cuFlushGPUDirectRDMAWrites", (int target, int scope))                     \
	X(stream_write64, "cuStreamWriteValue64_v2",                                               \
	  (struct hr__cu_stream * stream, uint64_t address, uint64_t value, unsigned int flags))

struct hr__cuda_api {
#define HR__MEMBER(member, symbol, args) int(*member) args;
	HR__CUDA_FUNCTIONS(HR__MEMBER)
	HR__CUDA_OPTIONAL(HR__MEMBER)
#undef HR__MEMBER
};

/*
 * hr__cuda_load() - load libcuda.so.1 and look up all functions, once per process.
 * @device: name for sentences. Return: 0, -HR_E_NO_DRIVER, -HR_E_FORKED.
 */
int hr__cuda_load(const char *device, const struct hr__cuda_api **out);

/*
 * A driver does not work in a child of the process that started it, and a thread of the parent may have held
 * its locks: it is not called there at all. hr__cuda_forked() - is this such a child?
 * hr__cuda_refuse_fork() - 0, or -HR_E_FORKED with a sentence if it is.
 * hr__cuda_init() - start it. hr__cuda_started() - it was found to be. Return: 0 or the driver's result.
 */
bool hr__cuda_forked(void);
int hr__cuda_refuse_fork(const char *device);
int hr__cuda_init(const struct hr__cuda_api *cu);
void hr__cuda_started(void);

/* hr__cuda_code() - the code that stands for a driver's result, positive. */
int hr__cuda_code(int result);

/* hr__cuda_name() - "CUDA_ERROR_INVALID_VALUE", or "CUDA error" when the driver cannot tell. */
const char *hr__cuda_name(const struct hr__cuda_api *cu, int result);

#endif

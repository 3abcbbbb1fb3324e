/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/foreign.c - what the CUDA driver knows about things that the caller made without us: whose
 * memory a pointer is, and calls in the order of a stream. Knows no device of ours, and makes no
 * program use the driver that does not use it already.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/single_threaded.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/util.h"
#include "mem/cuda_api.h"
#include "mem/mem.h"

#define DEVICES_MAX 64

/*
 * Around a lock of the loader that a child of fork() does not get back (glibc 2.36): no thread of ours is to
 * have it at that moment, or whatever the child loads would wait for ever.
 */
static pthread_mutex_t loads_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loads_unknown; /* in a child: other threads of its parent may have had it */

static void before_fork(void)
{
	pthread_mutex_lock(&loads_lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&loads_lock);
}

static void in_child(void)
{
	loads_unknown = loads_unknown || !__libc_single_threaded;
}

HR__FORK_HOOK(.lock = &loads_lock, .before = before_fork, .parent = in_parent, .child = in_child);

static int read_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
	*(unsigned long long *)loads = info->dlpi_adds;
	return 1;
}

/* How many libraries this process has ever loaded; 0: cannot be asked. */
static unsigned long long count_loads(void)
{
	unsigned long long loads = 0;

	if (loads_unknown)
		return 0;
	pthread_mutex_lock(&loads_lock);
	dl_iterate_phdr(read_loads, &loads);
	pthread_mutex_unlock(&loads_lock);
	return loads;
}

/*
 * The driver, if the program has it loaded; NULL otherwise. The loader looks through its folders to say
 * no, so it is asked again only when something was loaded since.
 */
static const struct hr__cuda_api *driver_in_use(void)
{
	static _Atomic(const struct hr__cuda_api *) seen;
	static atomic_ullong asked_at;
	const struct hr__cuda_api *cu = atomic_load_explicit(&seen, memory_order_acquire);
	unsigned long long loads;
	void *library;

	if (hr__cuda_forked())
		return NULL;
	if (cu)
		return cu;
	loads = count_loads();
	if (loads && loads == atomic_load_explicit(&asked_at, memory_order_relaxed))
		return NULL;
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!library) {
		atomic_store_explicit(&asked_at, loads, memory_order_relaxed);
		return NULL;
	}
	if (hr__cuda_load("cuda", &cu) == 0)
		atomic_store_explicit(&seen, cu, memory_order_release);
	dlclose(library);
	return cu;
}

/* A primary context that somebody uses; any of them knows the pointers of all. */
static bool retain_active(const struct hr__cuda_api *cu, int *device, struct hr__cu_ctx **ctx)
{
	int count = 0;

	if (cu->device_get_count(&count))
		return false;
	hr__cuda_started(); /* by the program, or the driver would not have said it */
	for (int i = 0; i < count && i < DEVICES_MAX; i++) {
		unsigned int flags;
		int active = 0;

		if (cu->device_get(device, i))
			continue;
		if (cu->primary_ctx_state &&
		    (cu->primary_ctx_state(*device, &flags, &active) || !active))
			continue;
		return cu->primary_ctx_retain(ctx, *device) == 0;
	}
	return false;
}

/* Call @fn with some context current. Return: its result, or -1: no context is in use anywhere. */
static int in_context(const struct hr__cuda_api *cu,
		      int (*fn)(const struct hr__cuda_api *cu, void *arg), void *arg)
{
	struct hr__cu_ctx *ctx = NULL;
	int device, result = -1;

	if (cu->ctx_current && cu->ctx_current(&ctx) == 0 && ctx) {
		hr__cuda_started();
		return fn(cu, arg);
	}
	if (!retain_active(cu, &device, &ctx))
		return -1;
	if (cu->ctx_push(ctx) == 0) {
		result = fn(cu, arg);
		cu->ctx_pop(&ctx);
	}
	cu->primary_ctx_release(device);
	return result;
}

struct pointer_question {
	uint64_t ptr;
	unsigned int type, managed;
	int ordinal;
};

static int ask_pointer(const struct hr__cuda_api *cu, void *arg)
{
	struct pointer_question *q = arg;
	int attributes[] = {HR__CU_POINTER_MEMORY_TYPE, HR__CU_POINTER_IS_MANAGED,
			    HR__CU_POINTER_DEVICE_ORDINAL};
	void *data[] = {&q->type, &q->managed, &q->ordinal};

	return cu->pointer_attributes(HR_ARRAY_LEN(attributes), attributes, data, q->ptr);
}

int hr_device_of_pointer(const void *ptr, char *name, uint32_t size)
{
	const struct hr__cuda_api *cu = driver_in_use();
	struct pointer_question q = {.ptr = (uintptr_t)ptr, .ordinal = -1};
	int n, result = -1;

	if (!ptr)
		return hr__fail(HR_E_BAD_POINTER, "NULL is memory of no device");
	if (cu)
		result = in_context(cu, ask_pointer, &q);
	if (result > 0 && hr__cuda_code(result) == HR_E_DEVICE_LOST &&
	    result != HR__CU_INVALID_CONTEXT && result != HR__CU_NOT_INITIALIZED)
		return hr__fail(HR_E_DEVICE_LOST, "%p cannot be looked up: %s (%d)", ptr,
				hr__cuda_name(cu, result), result);
	/* A driver that does not know a pointer says so by an error or by no type at all. */
	if (result == 0 && (q.type == HR__CU_MEMORY_DEVICE || q.managed))
		n = snprintf(name, size, "cuda:%d", q.ordinal >= 0 ? q.ordinal : 0);
	else
		n = snprintf(name, size, "host");
	return n >= 0 && (uint32_t)n < size ? 0 : -ENOSPC;
}

uint32_t hr_device_count(enum hr_device_kind kind)
{
	const struct hr__cuda_api *cu;
	int count = 0;

	if (kind == HR_DEVICE_HOST)
		return 1;
	if (kind != HR_DEVICE_CUDA || hr__cuda_load("cuda", &cu) || hr__cuda_init(cu) ||
	    cu->device_get_count(&count))
		return 0;
	return count > 0 ? (uint32_t)count : 0;
}

struct stream_question {
	void *native;
	void (*fn)(void *arg);
	void *arg;
};

static int ask_stream(const struct hr__cuda_api *cu, void *arg)
{
	struct stream_question *q = arg;
	int capturing = 0;

	/* In a graph the call would be made as often as that is launched, or never. */
	if (cu->stream_is_capturing && cu->stream_is_capturing(q->native, &capturing) == 0 &&
	    capturing)
		return HR__CU_NOT_SUPPORTED;
	return cu->launch_host_fn(q->native, q->fn, q->arg);
}

int hr_stream_call(void *native, void (*fn)(void *arg), void *arg)
{
	const struct hr__cuda_api *cu = driver_in_use();
	struct stream_question q = {native, fn, arg};
	int result = cu ? in_context(cu, ask_stream, &q) : -1;

	if (result > 0)
		return hr__fail(hr__cuda_code(result),
				"a call could not be queued on a stream: %s (%d)",
				hr__cuda_name(cu, result), result);
	if (result < 0) /* no context: nothing of the caller's can be on its way */
		fn(arg);
	return 0;
}

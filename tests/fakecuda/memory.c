/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/memory.c - device memory that the CPU cannot touch, and host memory that the device can.
 *
 * Each allocation is a memfd, or a part of a BAR, that is mapped twice: PROT_NONE at the address that
 * the program gets, and writable at an alias that only streams know. Addresses are never used twice, so
 * that a freed pointer is recognised.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"
#include "mem/cuda_api.h"

#define PAGE 4096u
#define SMALL_BYTES (1u << 20) /* shorter allocations share blocks on a GPU: 512-byte alignment */
#define SMALL_SHIFT 512u

/* Registered memory appears elsewhere to the device, as on machines where it must be asked for. */
#define REGISTER_SHIFT (1ull << 47)

struct alloc {
	struct alloc *next;
	char *map, *alias; /* alias NULL: freed */
	size_t map_len;
	uint64_t base, len;
	int device, fd;
	bool in_bar;
};

struct pinned {
	struct pinned *next;
	char *host;
	uint64_t len, device;
	bool registered; /* else allocated here */
	bool read_only;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alloc *allocs;
static struct pinned *pins;

int cuMemAlloc_v2(uint64_t *ptr, size_t len);
int cuMemFree_v2(uint64_t ptr);
int cuMemGetAddressRange_v2(uint64_t *base, size_t *len, uint64_t ptr);
int cuPointerGetAttributes(unsigned int n, int *attributes, void **data, uint64_t ptr);
int cuMemGetHandleForAddressRange(void *handle, uint64_t ptr, size_t len, int type,
				  unsigned long long flags);
int cuMemHostAlloc(void **ptr, size_t len, unsigned int flags);
int cuMemFreeHost(void *ptr);
int cuMemHostRegister_v2(void *ptr, size_t len, unsigned int flags);
int cuMemHostUnregister(void *ptr);
int cuMemHostGetDevicePointer_v2(uint64_t *out, void *ptr, unsigned int flags);

static bool inside(uint64_t at, uint64_t len, uint64_t base, uint64_t size)
{
	return at >= base && at - base <= size && len <= size - (at - base);
}

void fake_memory_forked(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}

/* The allocation that holds [at, at + len), freed ones too. */
static struct alloc *find_alloc(uint64_t at, uint64_t len)
{
	struct alloc *a;

	for (a = allocs; a; a = a->next) {
		if (inside(at, len, a->base, a->len))
			break;
	}
	return a;
}

/* Memory and its two mappings. Return: false where there is none. */
static bool back(struct alloc *a)
{
	int fd;

	if (fake_setting(FAKE_BAR)) {
		a->in_bar = true;
		a->alias = fake_bar_alloc(a->map_len, &a->map);
		return a->alias && a->map != MAP_FAILED;
	}
	fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	if (ftruncate(fd, (off_t)a->map_len)) {
		close(fd);
		return false;
	}
	a->map = mmap(NULL, a->map_len, PROT_NONE, MAP_SHARED, fd, 0);
	a->alias = mmap(NULL, a->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fake_setting(FAKE_EXPORT))
		a->fd = fd;
	else
		close(fd);
	if (a->map == MAP_FAILED || a->alias == MAP_FAILED)
		abort();
	return true;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t len)
{
	int result = fake_enter_context(__func__);
	struct alloc *a;

	if (result)
		return result;
	if (!len)
		return HR__CU_INVALID_VALUE;
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	a->fd = -1;
	a->map_len = (len + SMALL_SHIFT + PAGE - 1) / PAGE * PAGE;
	if (!back(a)) {
		free(a);
		return HR__CU_OUT_OF_MEMORY;
	}
	memset(a->alias, 0xa5, a->map_len < SMALL_BYTES ? a->map_len : SMALL_BYTES);
	a->base = (uintptr_t)a->map + (len < SMALL_BYTES ? SMALL_SHIFT : 0);
	a->len = len;
	a->device = fake_context_current();
	pthread_mutex_lock(&lock);
	a->next = allocs;
	allocs = a;
	pthread_mutex_unlock(&lock);
	fake_count(FAKE_ALLOCS, 1);
	fake_count(FAKE_BYTES, (long)len);
	*ptr = a->base;
	return 0;
}

int cuMemFree_v2(uint64_t ptr)
{
	int result = fake_enter(__func__);
	char *alias = NULL;
	struct alloc *a;
	size_t len = 0;

	if (result)
		return result;
	if (fake_setting(FAKE_FREE_WAITS))
		fake_streams_idle();
	pthread_mutex_lock(&lock);
	a = find_alloc(ptr, 0);
	if (a && a->base == ptr && a->alias) {
		alias = a->alias;
		a->alias = NULL;
		if (a->fd >= 0)
			close(a->fd);
		len = a->map_len;
	}
	pthread_mutex_unlock(&lock);
	if (!alias) {
		fake_misuse("cuMemFree_v2 of 0x%llx, which is not allocated",
			    (unsigned long long)ptr);
		return HR__CU_INVALID_VALUE;
	}
	if (a->in_bar)
		fake_bar_free(alias);
	else
		munmap(alias, len);
	fake_count(FAKE_ALLOCS, -1);
	fake_count(FAKE_BYTES, -(long)a->len);
	return 0;
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *len, uint64_t ptr)
{
	int result = fake_enter_context(__func__);
	struct alloc *a;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	a = find_alloc(ptr, 1);
	result = a && a->alias ? 0 : HR__CU_NOT_FOUND;
	if (!result) {
		*base = a->base;
		*len = a->len;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* What stands for a dma-buf is the memory's own file. */
int cuMemGetHandleForAddressRange(void *handle, uint64_t ptr, size_t len, int type,
				  unsigned long long flags)
{
	int result = fake_enter_context(__func__), fd = -1;
	struct alloc *a;

	if (result)
		return result;
	if (ptr % PAGE || len % PAGE || !len || type != HR__CU_RANGE_DMA_BUF || flags)
		return HR__CU_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	a = find_alloc(ptr, len);
	if (a && a->alias && a->base == ptr && a->in_bar)
		fd = fake_bar_export(a->alias + (a->base - (uintptr_t)a->map), len);
	else if (a && a->alias && a->base == ptr && a->fd >= 0)
		fd = dup(a->fd);
	pthread_mutex_unlock(&lock);
	if (fd < 0)
		return HR__CU_INVALID_VALUE;
	*(int *)handle = fd;
	return 0;
}

static struct pinned *find_pinned(uint64_t at, uint64_t len, bool as_device)
{
	struct pinned *p;

	for (p = pins; p; p = p->next) {
		if (inside(at, len, as_device ? p->device : (uintptr_t)p->host, p->len))
			break;
	}
	return p;
}

int cuPointerGetAttributes(unsigned int n, int *attributes, void **data, uint64_t ptr)
{
	int result = fake_enter_context(__func__);
	struct alloc *a;
	unsigned int type;
	int ordinal;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	a = find_alloc(ptr, 1);
	if (a && !a->alias)
		a = NULL;
	type = a ? HR__CU_MEMORY_DEVICE : find_pinned(ptr, 1, false) ? HR__CU_MEMORY_HOST : 0;
	ordinal = a ? a->device : -2;
	pthread_mutex_unlock(&lock);
	for (unsigned int i = 0; i < n; i++) {
		if (attributes[i] == HR__CU_POINTER_MEMORY_TYPE)
			*(unsigned int *)data[i] = type;
		else if (attributes[i] == HR__CU_POINTER_IS_MANAGED)
			*(unsigned int *)data[i] = 0;
		else if (attributes[i] == HR__CU_POINTER_DEVICE_ORDINAL)
			*(int *)data[i] = ordinal;
		else if (attributes[i] == HR__CU_POINTER_BUFFER_ID)
			*(uint64_t *)data[i] = a ? (uint64_t)(uintptr_t)a : 0;
		else
			return HR__CU_INVALID_VALUE;
	}
	return 0;
}

static int pinned_add(char *host, uint64_t len, bool registered, bool read_only)
{
	struct pinned *p = calloc(1, sizeof(*p)), *other;

	if (!p)
		abort();
	p->host = host;
	p->len = len;
	p->registered = registered;
	p->read_only = read_only;
	p->device = (uintptr_t)host + (registered ? REGISTER_SHIFT : 0);
	pthread_mutex_lock(&lock);
	for (other = pins; other; other = other->next) {
		if (host < other->host + other->len && other->host < host + len)
			break;
	}
	if (!other) {
		p->next = pins;
		pins = p;
	}
	pthread_mutex_unlock(&lock);
	if (!other)
		return 0;
	free(p);
	return HR__CU_ALREADY_REGISTERED;
}

static struct pinned *pinned_take(const void *host, bool registered)
{
	struct pinned **at, *p = NULL;

	pthread_mutex_lock(&lock);
	for (at = &pins; *at; at = &(*at)->next) {
		if ((*at)->host == host && (*at)->registered == registered) {
			p = *at;
			*at = p->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return p;
}

int cuMemHostAlloc(void **ptr, size_t len, unsigned int flags)
{
	int result = fake_enter_context(__func__);
	char *host;

	if (result)
		return result;
	host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED)
		return HR__CU_OUT_OF_MEMORY;
	if (pinned_add(host, len, false, false))
		abort();
	fake_count(FAKE_HOST_ALLOCS, 1);
	*ptr = host;
	return 0;
}

int cuMemFreeHost(void *ptr)
{
	int result = fake_enter(__func__);
	struct pinned *p;

	if (result)
		return result;
	p = pinned_take(ptr, false);
	if (!p) {
		fake_misuse("cuMemFreeHost of %p, which is not allocated", ptr);
		return HR__CU_INVALID_VALUE;
	}
	munmap(p->host, p->len);
	free(p);
	fake_count(FAKE_HOST_ALLOCS, -1);
	return 0;
}

int cuMemHostRegister_v2(void *ptr, size_t len, unsigned int flags)
{
	bool read_only = flags & HR__CU_REGISTER_READ_ONLY;
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	if (fake_setting(FAKE_NO_REGISTER) || (read_only && fake_setting(FAKE_NO_READ_ONLY)))
		return HR__CU_NOT_SUPPORTED;
	if (!len || !(flags & HR__CU_REGISTER_DEVICEMAP) || (uintptr_t)ptr % PAGE)
		return HR__CU_INVALID_VALUE;
	if (!read_only && !fake_mapped_writable(ptr))
		return HR__CU_INVALID_VALUE;
	result = pinned_add(ptr, len, true, read_only);
	if (!result)
		fake_count(FAKE_REGISTERED, 1);
	return result;
}

int cuMemHostUnregister(void *ptr)
{
	int result = fake_enter_context(__func__);
	struct pinned *p;

	if (result)
		return result;
	p = pinned_take(ptr, true);
	if (!p) {
		fake_misuse("cuMemHostUnregister of %p, which is not registered", ptr);
		return HR__CU_NOT_REGISTERED;
	}
	if (!fake_mapped_there(p->host, p->len))
		fake_misuse("cuMemHostUnregister of %p after its memory was unmapped", ptr);
	free(p);
	fake_count(FAKE_REGISTERED, -1);
	return 0;
}

int cuMemHostGetDevicePointer_v2(uint64_t *out, void *ptr, unsigned int flags)
{
	int result = fake_enter_context(__func__);
	struct pinned *p;

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	p = find_pinned((uintptr_t)ptr, 1, false);
	if (p && !flags)
		*out = p->device + ((uintptr_t)ptr - (uintptr_t)p->host);
	pthread_mutex_unlock(&lock);
	return p && !flags ? 0 : HR__CU_INVALID_VALUE;
}

/*
 * As find_pinned(), also for ranges that go on from one registration into the next. Where they must
 * not, @one.
 */
static struct pinned *find_span(uint64_t at, uint64_t len, bool as_device, bool one)
{
	struct pinned *p = find_pinned(at, len ? 1 : 0, as_device), *next;
	uint64_t end;

	if (!p)
		return NULL;
	end = (as_device ? p->device : (uintptr_t)p->host) + p->len;
	while (len > end - at) {
		next = one ? NULL : find_pinned(end, 1, as_device);
		if (!next || next->read_only != p->read_only)
			return NULL;
		end = (as_device ? next->device : (uintptr_t)next->host) + next->len;
	}
	return p;
}

bool fake_is_pinned(const void *host, uint64_t len)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = find_span((uintptr_t)host, len, false, true) != NULL;
	pthread_mutex_unlock(&lock);
	return is;
}

void *fake_host_source(uint64_t host, uint64_t len)
{
	void *out = (void *)(uintptr_t)host;
	bool read_only, broken;
	struct pinned *p;

	pthread_mutex_lock(&lock);
	p = find_pinned(host, 1, false);
	read_only = p && p->read_only;
	broken = p && !find_span(host, len, false, true);
	pthread_mutex_unlock(&lock);
	if (broken)
		fake_misuse("a copy from 0x%llx + %llu crosses the border of a registration",
			    (unsigned long long)host, (unsigned long long)len);
	return read_only ? fake_mapped_read(out, len) : out;
}

void *fake_translate(uint64_t address, uint64_t len, const char *what)
{
	bool read_only = false;
	struct pinned *p;
	struct alloc *a;
	void *out = NULL;

	pthread_mutex_lock(&lock);
	a = find_alloc(address, len);
	p = a ? NULL : find_span(address, len, true, false);
	if (a && a->alias) {
		out = a->alias + (address - (uintptr_t)a->map);
	} else if (p) {
		out = p->host + (address - p->device);
		read_only = p->read_only;
	}
	pthread_mutex_unlock(&lock);
	if (!out)
		fake_misuse("%s: 0x%llx + %llu is %s", what, (unsigned long long)address,
			    (unsigned long long)len,
			    a ? "freed device memory" : "no memory of the device");
	return read_only ? fake_mapped_read(out, len) : out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/buffer.c - memory of any kind as the target of a transfer: registered by the program, or found
 * out about when it is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cufile/inside.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define POPULATE_BYTES (16u << 10)
#define LOOK_BYTES (64ull << 20) /* of memory, at once */

struct buffer {
	struct cf_object object;
	uintptr_t base;
	size_t len;
	struct hr_buffer *buffer;
	struct cf_device *device;
	struct buffer *next_late;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct buffer **sorted; /* by base */
static uint32_t n_sorted, cap_sorted;

/* Buffers that a drive may still write to, though everybody has let go of them. */
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *late;

static void free_late(void)
{
	struct buffer **at = &late;

	pthread_mutex_lock(&late_lock);
	while (*at) {
		struct buffer *b = *at;

		if (hr_buffer_free(b->buffer)) {
			at = &b->next_late;
		} else {
			*at = b->next_late;
			free(b);
		}
	}
	pthread_mutex_unlock(&late_lock);
}

static void destroy(struct cf_object *object)
{
	struct buffer *b = (struct buffer *)object;

	if (hr_buffer_free(b->buffer) == 0) {
		free(b);
		return;
	}
	pthread_mutex_lock(&late_lock);
	b->next_late = late;
	late = b;
	pthread_mutex_unlock(&late_lock);
}

/* -- the list ----------------------------------------------------------------------------------- */

/* The first whose base is not below @base. With the lock. */
static uint32_t lower_bound(uintptr_t base)
{
	uint32_t low = 0, high = n_sorted;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (sorted[mid]->base < base)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int insert(struct buffer *b)
{
	uint32_t i = lower_bound(b->base);

	if (i < n_sorted && sorted[i]->base == b->base)
		return -CU_FILE_MEMORY_ALREADY_REGISTERED;
	if (n_sorted == cap_sorted) {
		uint32_t cap = cap_sorted ? 2 * cap_sorted : 64;
		struct buffer **more = realloc(sorted, cap * sizeof(*more));

		if (!more)
			return -CU_FILE_NOMEM_ERROR;
		sorted = more;
		cap_sorted = cap;
	}
	memmove(&sorted[i + 1], &sorted[i], (n_sorted - i) * sizeof(*sorted));
	sorted[i] = b;
	n_sorted++;
	return 0;
}

static struct buffer *take(uintptr_t base)
{
	uint32_t i = lower_bound(base);
	struct buffer *b;

	if (i == n_sorted || sorted[i]->base != base)
		return NULL;
	b = sorted[i];
	n_sorted--;
	memmove(&sorted[i], &sorted[i + 1], (n_sorted - i) * sizeof(*sorted));
	return b;
}

void cf_buffers_clear(void)
{
	for (;;) {
		struct buffer *b;

		pthread_rwlock_wrlock(&lock);
		b = n_sorted ? sorted[--n_sorted] : NULL;
		pthread_rwlock_unlock(&lock);
		if (!b)
			break;
		cf_object_put(&b->object);
	}
	free_late();
}

void cf_buffers_lock(void)
{
	pthread_rwlock_wrlock(&lock);
}

void cf_buffers_unlock(void)
{
	pthread_rwlock_unlock(&lock);
}

void cf_buffers_forked(void)
{
	static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
	static const pthread_mutex_t fresh_late = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
	late_lock = fresh_late;
	late = NULL; /* the parent's, and perhaps half freed */
}

/* -- memory of the machine ---------------------------------------------------------------------- */

/* Is all of it mapped? Pages that nobody has touched yet are, and stay untouched. */
static bool mapped(uintptr_t from, uint64_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = from & ~(page - 1);
	uint64_t left;
	unsigned char state[LOOK_BYTES / 4096];

	if (from + len < from)
		return false;
	for (left = from + len - at; left;) {
		uint64_t n = left < LOOK_BYTES ? left : LOOK_BYTES;

		if (mincore((void *)at, n, state) && errno == ENOMEM)
			return false;
		at += n;
		left -= n;
	}
	return true;
}

/* Through a pipe and back: the kernel says EFAULT where the CPU would get a signal. */
static bool takes_byte(enum hr_op op, uintptr_t at)
{
	bool ok = false;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return false;
	if (write(fds[1], (void *)at, 1) == 1)
		ok = op == HR_WRITE || read(fds[0], (void *)at, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return ok;
}

/* Of memory that the kernel cannot populate (a driver's mappings) only the ends are tried. */
static bool usable(enum hr_op op, uintptr_t from, uint64_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = from & ~(page - 1);
	int advice = op == HR_READ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if (madvise((void *)start, from + len - start, advice) == 0)
		return true;
	return errno != ENOMEM && errno != EFAULT && mapped(from, len) && takes_byte(op, from) &&
	       takes_byte(op, from + len - 1);
}

/*
 * May the CPU use it? The library copies edges of blocks by hand, and a signal is no answer to a bad
 * pointer. Populating long ranges costs as much as reading them, so of those only the ends are, and
 * what lies between must be mapped.
 */
static int check_host(enum hr_op op, uintptr_t from, uint64_t len)
{
	bool ok;

	if (from + len < from)
		return -EIO;
	if (len <= POPULATE_BYTES)
		ok = usable(op, from, len);
	else
		ok = mapped(from, len) && usable(op, from, 1) && usable(op, from + len - 1, 1);
	return ok ? 0 : -EIO;
}

/* -- registered ones ---------------------------------------------------------------------------- */

static int claim(const void *base, uint64_t len, struct cf_device **device,
		 struct hr_buffer **buffer)
{
	char name[32];
	int ret = hr_device_of_pointer(base, name, sizeof(name));

	if (!ret)
		ret = cf_device_find(name, device);
	else
		ret = cf_code(ret);
	if (ret)
		return ret;
	if ((*device)->gpu < 0 && !cf_settings()->flag[CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY])
		return -CU_FILE_CUDA_MEMORY_TYPE_INVALID;
	ret = hr_buffer_register(atomic_load(&(*device)->dev), (void *)(uintptr_t)base, len,
				 buffer);
	return ret == -HR_E_BAD_POINTER ? -CU_FILE_CUDA_POINTER_RANGE_ERROR : cf_code(ret);
}

static int register_entered(const void *base, size_t len)
{
	struct buffer *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return -CU_FILE_NOMEM_ERROR;
	cf_object_init(&b->object, destroy);
	b->base = (uintptr_t)base;
	b->len = len;
	free_late();
	ret = claim(base, len, &b->device, &b->buffer);
	if (!ret && b->device->gpu < 0 && !mapped(b->base, len))
		ret = -CU_FILE_CUDA_POINTER_RANGE_ERROR;
	if (!ret) {
		pthread_rwlock_wrlock(&lock);
		ret = insert(b);
		pthread_rwlock_unlock(&lock);
	}
	if (ret)
		cf_object_put(&b->object);
	else
		cf_stats_registered(b->device->gpu, (int64_t)len);
	return ret;
}

CF_EXPORT CUfileError_t cuFileBufRegister(const void *bufPtr_base, size_t length, int flags)
{
	int ret;

	if (!bufPtr_base || !length)
		return cf_result(CU_FILE_INVALID_VALUE);
	ret = cf_open_enter();
	if (ret)
		return cf_error(ret);
	ret = register_entered(bufPtr_base, length);
	cf_leave();
	cf_count(CF_COUNT_BUFFER_REGISTER, !ret);
	return cf_error(ret);
}

CF_EXPORT CUfileError_t cuFileBufDeregister(const void *bufPtr_base)
{
	struct buffer *b;

	if (!bufPtr_base)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (cf_was_closed() || cf_enter())
		return cf_result(CU_FILE_DRIVER_CLOSING);
	pthread_rwlock_wrlock(&lock);
	b = take((uintptr_t)bufPtr_base);
	pthread_rwlock_unlock(&lock);
	if (b) {
		cf_stats_registered(b->device->gpu, -(int64_t)b->len);
		cf_object_put(&b->object);
	}
	cf_leave();
	cf_count(CF_COUNT_BUFFER_DEREGISTER, b != NULL);
	return cf_result(b ? CU_FILE_SUCCESS : CU_FILE_MEMORY_NOT_REGISTERED);
}

/* -- targets ------------------------------------------------------------------------------------ */

/* The buffer that begins at @base; else the last one below it that holds all of the range. */
static int find_registered(uintptr_t base, uint64_t offset, uint64_t len, struct cf_target *out)
{
	struct buffer *found = NULL;
	uint64_t end;
	uint32_t i;
	int ret = 0;

	if (__builtin_add_overflow(offset, len, &end) || __builtin_add_overflow(base, end, &end))
		return -CU_FILE_INVALID_MAPPING_RANGE;
	pthread_rwlock_rdlock(&lock);
	i = lower_bound(base);
	if (i < n_sorted && sorted[i]->base == base) {
		found = sorted[i];
		if (offset > found->len || len > found->len - offset)
			ret = -CU_FILE_INVALID_MAPPING_RANGE;
	} else if (i > 0 && end - sorted[i - 1]->base <= sorted[i - 1]->len) {
		found = sorted[i - 1];
	}
	if (found && !ret) {
		cf_object_get(&found->object);
		out->registered = &found->object;
		out->buffer = found->buffer;
		out->device = found->device;
		out->offset = base - found->base + offset;
	}
	pthread_rwlock_unlock(&lock);
	return ret;
}

int cf_target_get(enum hr_op op, const void *base, uint64_t offset, uint64_t len,
		  struct cf_target *out)
{
	uintptr_t from = (uintptr_t)base + offset;
	int ret;

	memset(out, 0, sizeof(*out));
	ret = find_registered((uintptr_t)base, offset, len, out);
	if (ret || out->buffer)
		return ret;
	ret = claim((const void *)from, len, &out->device, &out->buffer);
	if (ret == -CU_FILE_CUDA_POINTER_RANGE_ERROR)
		return -EIO;
	if (!ret && out->device->gpu < 0) {
		ret = check_host(op, from, len);
		if (ret) {
			hr_buffer_free(out->buffer);
			out->buffer = NULL;
		}
	}
	return ret;
}

void cf_target_put(struct cf_target *target)
{
	struct buffer *b;

	if (target->registered) {
		cf_object_put(target->registered);
		return;
	}
	if (!target->buffer || hr_buffer_free(target->buffer) == 0)
		return;
	/* A late answer of a drive may still come. */
	b = calloc(1, sizeof(*b));
	if (!b)
		return;
	b->buffer = target->buffer;
	pthread_mutex_lock(&late_lock);
	b->next_late = late;
	late = b;
	pthread_mutex_unlock(&late_lock);
}

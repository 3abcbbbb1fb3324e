/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/vgpu.c - the device "vgpu:N": a pretended GPU for tests in virtual machines (kernel/vgpu.c). Its
 * memory is a PCI BAR that the CPU reaches through the driver's copies only; addresses of it are
 * numbers in a range of this process that nothing is mapped to. Its lanes work at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <headrace_vgpu.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/numa.h"
#include "base/sys.h"
#include "base/util.h"
#include "mem/cpu_lane.h"
#include "mem/mem.h"

#define CHUNK 65536u

struct vgpu_alloc {
	struct vgpu_alloc *next;
	uint64_t offset, len, id;
};

struct vgpu {
	struct hr_device dev;
	int fd;
	uint8_t *base; /* of the reserved addresses */
	uint64_t size;
	struct vgpu_alloc *allocs; /* under the lock */
	uint64_t last_id;
};

/* One for all: the device works in a child of fork(), and only a lock of the file can be made new there. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

HR__FORK_HOOK(.lock = &lock);

struct vgpu_lane {
	struct hr__cpu_lane cpu;
	uint8_t chunk[CHUNK], cast[CHUNK * 8];
};

static struct vgpu *vgpu_of(struct hr_device *dev)
{
	return (struct vgpu *)dev;
}

static uint64_t offset_of(const struct vgpu *g, const void *ptr)
{
	return (uint64_t)((const uint8_t *)ptr - g->base);
}

/* -- memory ----------------------------------------------------------------------------------- */

/* The allocation that has all of the range, or NULL; the lock is held. */
static struct vgpu_alloc *find_alloc(struct vgpu *g, const void *ptr, uint64_t len)
{
	uint64_t at = offset_of(g, ptr);

	for (struct vgpu_alloc *a = g->allocs; a; a = a->next) {
		if (at >= a->offset && len <= a->len && at - a->offset <= a->len - len)
			return a;
	}
	return NULL;
}

static int vgpu_claim(struct hr_device *dev, const void *ptr, uint64_t len)
{
	struct vgpu *g = vgpu_of(dev);
	bool found;

	pthread_mutex_lock(&lock);
	found = find_alloc(g, ptr, len);
	pthread_mutex_unlock(&lock);
	return found ? 0
		     : hr__fail(HR_E_BAD_POINTER, "%s: %p + %" PRIu64 " is none of its memory",
				dev->info.name, ptr, len);
}

static int vgpu_alloc(struct hr_device *dev, uint64_t len, void **out)
{
	struct vgpu *g = vgpu_of(dev);
	struct headrace_vgpu_range range = {.len = len};
	struct vgpu_alloc *a = calloc(1, sizeof(*a));
	int ret = a ? hr__sys->ioctl(g->fd, HEADRACE_VGPU_ALLOC, &range) : -ENOMEM;

	if (ret < 0) {
		free(a);
		return hr__fail(-ret, "%s: no memory for %" PRIu64 " bytes: %s; ask for less",
				dev->info.name, len, hr_strerror(ret));
	}
	a->offset = range.offset;
	a->len = len;
	pthread_mutex_lock(&lock);
	a->id = ++g->last_id;
	a->next = g->allocs;
	g->allocs = a;
	pthread_mutex_unlock(&lock);
	*out = g->base + a->offset;
	return 0;
}

static void vgpu_free(struct hr_device *dev, void *ptr, uint64_t len)
{
	struct vgpu *g = vgpu_of(dev);
	struct headrace_vgpu_range range = {.offset = offset_of(g, ptr)};
	struct vgpu_alloc **at = &g->allocs, *gone;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->offset != range.offset)
		at = &(*at)->next;
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&lock);
	hr__sys->ioctl(g->fd, HEADRACE_VGPU_FREE, &range);
	free(gone);
}

static int vgpu_export(struct hr_device *dev, const void *ptr, uint64_t len, struct hr__export *out)
{
	struct vgpu *g = vgpu_of(dev);
	struct headrace_vgpu_range range = {0};
	struct vgpu_alloc *a;
	int ret;

	pthread_mutex_lock(&lock);
	a = find_alloc(g, ptr, len);
	if (a) {
		range.offset = a->offset;
		range.len = hr__align_up(a->len, 4096);
		out->id = a->id;
	}
	pthread_mutex_unlock(&lock);
	if (!a)
		return hr__fail(HR_E_BAD_POINTER, "%s: %p is none of its memory", dev->info.name,
				ptr);
	ret = hr__sys->ioctl(g->fd, HEADRACE_VGPU_EXPORT, &range);
	if (ret < 0)
		return hr__fail(-ret, "%s: the memory at %p cannot be exported: %s", dev->info.name,
				ptr, hr_strerror(ret));
	out->fd = range.fd;
	out->base = g->base + range.offset;
	out->len = range.len;
	return 0;
}

/* Copies take any memory of the process. */
static int vgpu_pin(struct hr_device *dev, void *ptr, uint64_t len, uint32_t flags,
		    void **device_ptr)
{
	*device_ptr = ptr;
	return 0;
}

static void vgpu_unpin(struct hr_device *dev, void *ptr, uint64_t len)
{
}

/* -- lanes ------------------------------------------------------------------------------------ */

static int whole(const struct vgpu *g, ssize_t got, uint64_t want)
{
	if (got == (ssize_t)want)
		return 0;
	return hr__fail(HR_E_DEVICE_LOST, "%s: a copy failed: %s", g->dev.info.name,
			got < 0 ? hr_strerror((int)got) : "short");
}

static int copy_in(const struct vgpu *g, void *dst, const void *src, uint64_t len)
{
	return whole(g, hr__sys->pwrite(g->fd, src, len, offset_of(g, dst)), len);
}

static int copy_out(const struct vgpu *g, void *dst, const void *src, uint64_t len)
{
	return whole(g, hr__sys->pread(g->fd, dst, len, offset_of(g, src)), len);
}

static int copy_inside(const struct vgpu *g, void *dst, const void *src, uint64_t len)
{
	struct headrace_vgpu_copy copy = {offset_of(g, dst), offset_of(g, src), len};

	return whole(g, hr__sys->ioctl(g->fd, HEADRACE_VGPU_COPY, &copy), 0);
}

/* A conversion goes by way of the lane's own memory. */
static int copy_cast(struct vgpu_lane *vl, enum hr__where where, const struct hr__move *m,
		     enum hr_dtype from, enum hr_dtype to)
{
	const struct vgpu *g = (const struct vgpu *)vl->cpu.lane.dev;
	uint32_t size = hr_dtype_size(from), becomes = hr_dtype_size(to);
	int ret = 0;

	for (uint64_t at = 0; at < m->len && !ret; at += CHUNK) {
		uint64_t len = hr__min(CHUNK, m->len - at);
		const uint8_t *src = (const uint8_t *)m->src + at;

		if (where == HR__DEVICE_TO_DEVICE) {
			ret = copy_out(g, vl->chunk, src, len);
			src = vl->chunk;
		}
		if (ret)
			break;
		hr__cast(vl->cast, src, len, from, to);
		ret = copy_in(g, (uint8_t *)m->dst + at / size * becomes, vl->cast,
			      len / size * becomes);
	}
	return ret;
}

static int move_one(struct hr__cpu_lane *lane, enum hr__where where, const struct hr__move *m,
		    enum hr_dtype from, enum hr_dtype to)
{
	struct vgpu_lane *vl = (struct vgpu_lane *)lane;
	const struct vgpu *g = (const struct vgpu *)vl->cpu.lane.dev;
	bool out = where == HR__DEVICE_TO_HOST || where == HR__DEVICE_TO_PLAIN;

	if (from != to)
		return out ? -HR_E_BAD_CAST : copy_cast(vl, where, m, from, to);
	if (where == HR__DEVICE_TO_DEVICE)
		return copy_inside(g, m->dst, m->src, m->len);
	return out ? copy_out(g, m->dst, m->src, m->len) : copy_in(g, m->dst, m->src, m->len);
}

static int vgpu_lane_open(struct hr_device *dev, void *native, struct hr_lane **out)
{
	return hr__cpu_lane_open(dev, sizeof(struct vgpu_lane), move_one, out);
}

/* -- the device ------------------------------------------------------------------------------- */

static void vgpu_close(struct hr_device *dev)
{
	struct vgpu *g = vgpu_of(dev);

	while (g->allocs) {
		struct vgpu_alloc *a = g->allocs;

		g->allocs = a->next;
		free(a);
	}
	if (g->base)
		hr__sys->munmap(g->base, g->size);
	if (g->fd >= 0)
		hr__sys->close(g->fd);
	free(g);
}

static const struct hr__mem_ops vgpu_ops = {
	.name = "vgpu",
	.claim = vgpu_claim,
	.alloc = vgpu_alloc,
	.free = vgpu_free,
	.pin = vgpu_pin,
	.unpin = vgpu_unpin,
	.export = vgpu_export,
	.lane_open = vgpu_lane_open,
	.close = vgpu_close,
};

static void fill_info(struct vgpu *g, uint32_t pci)
{
	struct hr_device_info *info = &g->dev.info;

	info->kind = HR_DEVICE_VGPU;
	info->memory_bytes = g->size;
	info->kernels = true;
	snprintf(info->model, sizeof(info->model), "pretended GPU of the tests");
	snprintf(info->pci, sizeof(info->pci), "%04x:%02x:%02x.%x", pci >> 16, pci >> 8 & 0xff,
		 pci >> 3 & 0x1f, pci & 7);
	info->numa_node = hr__numa_node_of_pci(info->pci);
}

static int open_device(struct vgpu *g, const char *number)
{
	struct headrace_vgpu_info info;
	char path[64];
	int ret;

	if (strspn(number, "0123456789") != strlen(number) || !*number || strlen(number) > 4)
		return hr__fail(EINVAL, "device vgpu:%s: use a number, as in vgpu:0", number);
	snprintf(path, sizeof(path), "/dev/headrace_vgpu%s", number);
	g->fd = hr__sys->open(path, O_RDWR | O_CLOEXEC, 0);
	if (g->fd < 0)
		return hr__fail(HR_E_NO_DEVICE,
				"%s: %s; this device exists in virtual machines for tests only",
				path, hr_strerror(g->fd));
	ret = hr__sys->ioctl(g->fd, HEADRACE_VGPU_INFO, &info);
	if (ret < 0)
		return hr__fail(HR_E_NO_DEVICE, "%s: no answer: %s", path, hr_strerror(ret));
	g->size = info.size;
	g->base = hr__sys->mmap(g->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				0);
	if (!g->base)
		return hr__fail(ENOMEM, "%s: no address space of %" PRIu64 " bytes", path, g->size);
	fill_info(g, info.pci);
	return 0;
}

static int vgpu_open(const char *name, struct hr_device **out)
{
	struct vgpu *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return hr__fail(ENOMEM, "%s: no memory for a device", name);
	g->dev.ops = &vgpu_ops;
	g->dev.caps = HR__MEM_CAP_EXPORT | HR__MEM_CAP_CAST;
	g->fd = -1;
	ret = open_device(g, name + strlen("vgpu:"));
	if (ret) {
		vgpu_close(&g->dev);
		return ret;
	}
	*out = &g->dev;
	return 0;
}

const struct hr__mem_provider hr__mem_vgpu = {
	.prefix = "vgpu:",
	.open = vgpu_open,
};

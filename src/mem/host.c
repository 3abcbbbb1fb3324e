/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/host.c - the device "host": the machine's own memory. Its lanes work at once on the calling
 * thread, so every ticket has passed when move() returns.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/sys.h"
#include "base/util.h"
#include "mem/cpu_lane.h"
#include "mem/mem.h"

#define HUGE_BYTES (2u << 20)

static int host_claim(struct hr_device *dev, const void *ptr, uint64_t len)
{
	if (!ptr)
		return hr__fail(HR_E_BAD_POINTER, "host: NULL is no memory");
	return 0;
}

/* Whole huge pages halve the time of a gather that jumps about, so big buffers start on one. */
static void *map_huge(uint64_t len)
{
	uint64_t front;
	char *p;

	p = hr__sys->mmap(len + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	if (!p)
		return NULL;
	front = hr__align_up((uintptr_t)p, HUGE_BYTES) - (uintptr_t)p;
	if (front)
		hr__sys->munmap(p, front);
	if (front < HUGE_BYTES)
		hr__sys->munmap(p + front + len, HUGE_BYTES - front);
	madvise(p + front, len, MADV_HUGEPAGE); /* a wish: small pages serve as well */
	return p + front;
}

static int host_alloc(struct hr_device *dev, uint64_t len, void **out)
{
	void *p;

	if (len >= HUGE_BYTES)
		p = map_huge(len);
	else
		p = hr__sys->mmap(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!p)
		return hr__fail(ENOMEM,
				"host: no memory for a buffer of %" PRIu64 " bytes; ask for less",
				len);
	*out = p;
	return 0;
}

static void host_free(struct hr_device *dev, void *ptr, uint64_t len)
{
	hr__sys->munmap(ptr, len);
}

static int host_pin(struct hr_device *dev, void *ptr, uint64_t len, uint32_t flags,
		    void **device_ptr)
{
	*device_ptr = ptr;
	return 0;
}

static void host_unpin(struct hr_device *dev, void *ptr, uint64_t len)
{
}

static int move_one(struct hr__cpu_lane *lane, enum hr__where where, const struct hr__move *m,
		    enum hr_dtype from, enum hr_dtype to)
{
	hr__cast(m->dst, m->src, m->len, from, to);
	return 0;
}

static int host_lane_open(struct hr_device *dev, void *native, struct hr_lane **out)
{
	return hr__cpu_lane_open(dev, sizeof(struct hr__cpu_lane), move_one, out);
}

static void host_close(struct hr_device *dev)
{
	free(dev);
}

static const struct hr__mem_ops host_ops = {
	.name = "host",
	.claim = host_claim,
	.alloc = host_alloc,
	.free = host_free,
	.pin = host_pin,
	.unpin = host_unpin,
	.export = hr__mem_no_export,
	.lane_open = host_lane_open,
	.close = host_close,
};

/* "model name : X" of the first processor; other architectures have no such line. */
static void read_model(char *model, size_t size)
{
	static const char key[] = "model name";
	char text[4096], *line, *end;
	int n = hr__read_text("/proc/cpuinfo", text, sizeof(text));

	snprintf(model, size, "processor");
	if (n <= 0)
		return;
	line = strstr(text, key);
	line = line ? strchr(line, ':') : NULL;
	if (!line)
		return;
	line += 1 + strspn(line + 1, " \t");
	end = strchrnul(line, '\n');
	if (end == line)
		return;
	n = (int)hr__min((uint64_t)(end - line), size - 1);
	memcpy(model, line, (size_t)n);
	model[n] = '\0';
}

static int host_open(const char *name, struct hr_device **out)
{
	struct hr_device *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return hr__fail(ENOMEM, "host: no memory for a device");
	dev->ops = &host_ops;
	dev->caps = HR__MEM_CAP_HOST_VISIBLE | HR__MEM_CAP_CAST;
	dev->info.kind = HR_DEVICE_HOST;
	dev->info.numa_node = -1;
	dev->info.memory_bytes =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	dev->info.kernels = true;
	dev->info.registers_read_only_host = true;
	read_model(dev->info.model, sizeof(dev->info.model));
	*out = dev;
	return 0;
}

const struct hr__mem_provider hr__mem_host = {
	.prefix = "host",
	.exact = true,
	.open = host_open,
};

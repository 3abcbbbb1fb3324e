/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/bar.c - device memory that a drive can write to: the BAR of /dev/headrace_vgpu0 in a virtual
 * machine, exported by that module as a dma-buf. The file of sysfs is mapped for streams, which are the
 * device itself here; it needs root and, once pages were made of the BAR, a kernel with iomem=relaxed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <headrace_vgpu.h>

#include "internal.h"

#define DEVICE "/dev/headrace_vgpu0"

static struct {
	int fd, resource;
	char *map;
	struct headrace_vgpu_info info;
} bar = {.fd = -1};

static void find(void)
{
	char path[96];

	bar.fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (bar.fd < 0 || ioctl(bar.fd, HEADRACE_VGPU_INFO, &bar.info)) {
		perror("fakecuda: " DEVICE);
		abort();
	}
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/resource2",
		 bar.info.pci >> 16, bar.info.pci >> 8 & 0xff, bar.info.pci >> 3 & 0x1f,
		 bar.info.pci & 7);
	bar.resource = open(path, O_RDWR | O_CLOEXEC);
	bar.map = mmap(NULL, bar.info.size, PROT_READ | PROT_WRITE, MAP_SHARED, bar.resource, 0);
	if (bar.map == MAP_FAILED) {
		perror("fakecuda: resource2 of the BAR; boot with iomem=relaxed");
		abort();
	}
}

static void need(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
}

char *fake_bar_alloc(uint64_t len, char **map)
{
	struct headrace_vgpu_range range = {.len = len};

	need();
	if (ioctl(bar.fd, HEADRACE_VGPU_ALLOC, &range))
		return NULL;
	/* For the program: addresses of which /proc/self/maps tells where in the BAR they are. */
	*map = mmap(NULL, len, PROT_NONE, MAP_SHARED, bar.resource, (off_t)range.offset);
	return bar.map + range.offset;
}

void fake_bar_free(const char *alias)
{
	struct headrace_vgpu_range range = {.offset = (uint64_t)(alias - bar.map)};

	ioctl(bar.fd, HEADRACE_VGPU_FREE, &range);
}

int fake_bar_export(const char *alias, uint64_t len)
{
	struct headrace_vgpu_range range = {.offset = (uint64_t)(alias - bar.map), .len = len};

	return ioctl(bar.fd, HEADRACE_VGPU_EXPORT, &range) ? -1 : range.fd;
}

uint64_t fake_bar_size(uint32_t *pci)
{
	need();
	*pci = bar.info.pci;
	return bar.info.size;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/p2p_window.c - exported device memory, imported by the kernel module headrace_peer and
 * mapped. One window for each allocation, because two imports cannot share a page; it lasts as long
 * as one of the allocation's buffers. Knows no file.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <headrace_peer.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "transport/p2p.h"

#define PEER_DEVICE "/dev/headrace_peer"

/* The first attempts may meet a driver that is just being bound. */
#define IMPORT_TRIES 5

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hr__p2p_window *windows;

/* Their mappings are not in the child, so nobody is to find them. */
static void in_child(void)
{
	windows = NULL;
}

HR__FORK_HOOK(.lock = &lock, .child = in_child);

static const char *const refusals[] = {
	[HEADRACE_PEER_TOPOLOGY] =
		"no PCIe way between the drive and the device is known to work; put both below one "
		"switch, or use a processor whose root ports forward peer traffic",
	[HEADRACE_PEER_IOMMU] = "an IOMMU translates the drive's addresses; boot with iommu=pt "
				"(amd_iommu=pt, intel_iommu=on iommu=pt)",
	[HEADRACE_PEER_UNMAPPABLE] =
		"the kernel cannot make pages of the device's BAR, as its driver maps it "
		"write-combined or it is too small; NVIDIA: RmForceDisableIomapWC=1, and a BAR "
		"as large as the memory (Resizable BAR)",
	[HEADRACE_PEER_OWNED] = "the device's driver owns the pages of its BAR; NVIDIA: do not set "
				"RMForceStaticBar1",
	[HEADRACE_PEER_NOT_PEER] =
		"what the device exports is no memory of a PCI BAR that peers may "
		"use; update its driver",
	[HEADRACE_PEER_TAKEN] = "another process or another handle has imported this memory; close "
				"it there",
	[HEADRACE_PEER_LIMIT] =
		"a limit of the module headrace_peer is reached; raise imports_max, "
		"import_bytes_max or page_bytes_max",
	[HEADRACE_PEER_ALIGNMENT] = "the exported memory is not whole pages; register whole "
				    "allocations",
	[HEADRACE_PEER_CLIENT] = "the drive is no PCI device; use a local NVMe drive",
};

static int refused(const struct hr_device *dev, uint32_t refusal)
{
	const char *why = refusal < HR_ARRAY_LEN(refusals) ? refusals[refusal] : NULL;

	return hr__fail(HR_E_NO_PATH, "%s: %s", dev->info.name,
			why ? why
			    : "headrace_peer refused for a reason that this version does not know");
}

static int import(struct hr__p2p_window *w, int dmabuf, uint32_t pci)
{
	struct headrace_peer_import arg = {.argsz = sizeof(arg),
					   .dmabuf_fd = dmabuf,
					   .client_kind = HEADRACE_PEER_CLIENT_PCI,
					   .client = pci};
	int ret = -EAGAIN;

	for (int i = 0; i < IMPORT_TRIES && (ret == -EAGAIN || ret == -EINTR); i++)
		ret = hr__sys->ioctl(w->fd, HEADRACE_PEER_IMPORT, &arg);
	if (ret == -EREMOTEIO)
		return refused(w->dev, arg.refusal);
	if (ret < 0)
		return hr__fail(-ret, "%s: headrace_peer cannot import its memory: %s",
				w->dev->info.name, hr_strerror(ret));
	if (arg.len < w->len)
		return hr__fail(HR_E_NO_PATH, "%s: headrace_peer imported too little memory",
				w->dev->info.name);
	w->map = hr__sys->mmap(w->len, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, arg.offset);
	if (!w->map)
		return hr__fail(ENOMEM, "%s: no address space for a window of %llu bytes",
				w->dev->info.name, (unsigned long long)w->len);
	return 0;
}

static int open_module(void)
{
	int fd = hr__sys->open(PEER_DEVICE, O_RDWR | O_CLOEXEC, 0);

	if (fd == -ENOENT || fd == -ENXIO || fd == -ENODEV)
		return hr__fail(HR_E_NO_PATH,
				"the kernel module headrace_peer is not loaded; build "
				"it from kernel/ and run modprobe headrace_peer");
	if (fd < 0)
		return hr__fail(HR_E_NO_PATH,
				PEER_DEVICE ": %s; become a member of the group headrace",
				hr_strerror(fd));
	return fd;
}

int hr__p2p_distance(const char *provider, const char *client, int *distance)
{
	struct headrace_peer_distance arg = {.argsz = sizeof(arg),
					     .client_kind = HEADRACE_PEER_CLIENT_PCI};
	int fd, ret;

	if (!hr__p2p_parse_pci(provider, &arg.provider) || !hr__p2p_parse_pci(client, &arg.client))
		return -EINVAL;
	fd = open_module();
	if (fd < 0)
		return fd;
	ret = hr__sys->ioctl(fd, HEADRACE_PEER_DISTANCE, &arg);
	hr__sys->close(fd);
	*distance = arg.distance;
	return ret < 0 ? ret : 0;
}

static void destroy(struct hr__p2p_window *w)
{
	if (w->map && w->fork_generation == hr__fork_generation())
		hr__sys->munmap(w->map, w->len);
	if (w->fd >= 0)
		hr__sys->close(w->fd);
	free(w);
}

static void drop(struct hr__peer *peer)
{
	hr__p2p_window_put((struct hr__p2p_window *)peer);
}

/* The lock is held. */
static int make(struct hr_device *dev, const struct hr__export *export, uint32_t pci,
		struct hr__p2p_window **out)
{
	struct hr__p2p_window *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return hr__fail(ENOMEM, "%s: no memory for a window", dev->info.name);
	w->peer.drop = drop;
	w->dev = dev;
	w->fork_generation = hr__fork_generation();
	w->id = export->id;
	w->base = export->base;
	w->len = export->len;
	w->fd = open_module();
	ret = w->fd < 0 ? w->fd : import(w, export->fd, pci);
	if (ret) {
		destroy(w);
		return ret;
	}
	w->next = windows;
	windows = w;
	*out = w;
	return 0;
}

int hr__p2p_window_get(struct hr_device *dev, const void *ptr, uint64_t len, uint32_t pci,
		       struct hr__p2p_window **out)
{
	struct hr__p2p_window *w;
	struct hr__export export;
	int ret = dev->ops->export(dev, ptr, len, &export);

	if (ret)
		return ret;
	pthread_mutex_lock(&lock);
	w = windows;
	while (w && (w->dev != dev || w->id != export.id))
		w = w->next;
	if (!w)
		ret = make(dev, &export, pci, &w);
	if (!ret && w) {
		w->users++;
		*out = w;
	}
	pthread_mutex_unlock(&lock);
	hr__sys->close(export.fd);
	return ret;
}

void hr__p2p_window_put(struct hr__p2p_window *window)
{
	struct hr__p2p_window **at = &windows;
	bool last, listed = window->fork_generation == hr__fork_generation();

	pthread_mutex_lock(&lock);
	last = --window->users == 0;
	while (last && listed && *at != window)
		at = &(*at)->next;
	if (last && listed)
		*at = window->next;
	pthread_mutex_unlock(&lock);
	if (last)
		destroy(window);
}

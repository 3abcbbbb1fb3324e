/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * headrace_vgpu.h - the interface of /dev/headrace_vgpuN, a pretended GPU for tests: memory in a PCI
 * BAR that the CPU reaches by pread(2) and pwrite(2) on the device only.
 */
#ifndef HEADRACE_VGPU_H
#define HEADRACE_VGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct headrace_vgpu_info {
	__u64 size;    /* bytes of memory */
	__u64 granule; /* allocations are whole multiples of it */
	__u32 pci;     /* domain << 16 | bus << 8 | devfn */
	__u32 reserved;
};

/* A range of memory: allocated (len in, offset out), freed, exported. */
struct headrace_vgpu_range {
	__u64 offset;
	__u64 len;
	__s32 fd; /* EXPORT: out, a dma-buf */
	__u32 flags;
};

struct headrace_vgpu_copy {
	__u64 dst;
	__u64 src;
	__u64 len;
};

/* HEADRACE_VGPU_INVALIDATE: who has imported the allocation at `offset` must let go of it. */
enum {
	HEADRACE_VGPU_MOVE = 1,   /* and may import it again */
	HEADRACE_VGPU_REVOKE = 2, /* for good */
};

#define HEADRACE_VGPU_INFO _IOR(0xBE, 0x60, struct headrace_vgpu_info)
#define HEADRACE_VGPU_ALLOC _IOWR(0xBE, 0x61, struct headrace_vgpu_range)
#define HEADRACE_VGPU_FREE _IOW(0xBE, 0x62, struct headrace_vgpu_range)
#define HEADRACE_VGPU_EXPORT _IOWR(0xBE, 0x63, struct headrace_vgpu_range)
#define HEADRACE_VGPU_COPY _IOW(0xBE, 0x64, struct headrace_vgpu_copy)
#define HEADRACE_VGPU_INVALIDATE _IOW(0xBE, 0x65, struct headrace_vgpu_range)

#endif

/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * headrace_peer.h - the interface of /dev/headrace_peer: memory of a PCI device, given as a dma-buf,
 * becomes pages that O_DIRECT file I/O accepts.
 *
 * An open file holds one import at most; closing it, and unmapping, ends the import. Each structure
 * begins with its own size (argsz) so that later versions can add fields; flags and reserved fields
 * must be zero. An import that would be wrong is refused with EREMOTEIO and a code in `refusal`.
 */
#ifndef HEADRACE_PEER_H
#define HEADRACE_PEER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define HEADRACE_PEER_ABI 1

/* Why an import was refused. Numbers are promises. */
enum headrace_peer_refusal {
	HEADRACE_PEER_OK = 0,
	HEADRACE_PEER_TOPOLOGY = 1,   /* no PCIe way between the two that is known to work */
	HEADRACE_PEER_IOMMU = 2,      /* the client sees translated addresses */
	HEADRACE_PEER_UNMAPPABLE = 3, /* the kernel cannot make pages there: write-combined BAR */
	HEADRACE_PEER_OWNED = 4,      /* somebody else has made pages there: the exporter */
	HEADRACE_PEER_NOT_PEER = 5,  /* not memory of a PCI BAR, or the exporter does no peer DMA */
	HEADRACE_PEER_TAKEN = 6,     /* another import has some of these pages */
	HEADRACE_PEER_LIMIT = 7,     /* a limit of the module's parameters */
	HEADRACE_PEER_ALIGNMENT = 8, /* not whole pages */
	HEADRACE_PEER_CLIENT = 9,    /* the client is no PCI device, or not there */
};

/* What will do the DMA. */
enum headrace_peer_client {
	HEADRACE_PEER_CLIENT_PCI = 1,   /* client: domain << 16 | bus << 8 | devfn */
	HEADRACE_PEER_CLIENT_BLOCK = 2, /* client: descriptor of an open block device */
};

struct headrace_peer_info {
	__u32 argsz;
	__u32 flags;
	__u32 abi;         /* out */
	__u32 imports;     /* out: of all users, now */
	__u32 imports_max; /* out */
	__u32 granule;     /* out: pages are made in ranges of this many bytes */
	__u64 import_bytes_max;
	__u64 page_bytes; /* out: device memory that has pages now */
	__u64 page_bytes_max;
};

struct headrace_peer_import {
	__u32 argsz;
	__u32 flags;
	__s32 dmabuf_fd;
	__u32 client_kind;
	__u32 client;
	__u32 refusal;  /* out, also when the call fails */
	__u32 provider; /* out: the PCI function whose memory it is */
	__s32 distance; /* out: PCIe distance as the kernel counts it */
	__u64 offset;   /* out: for mmap() */
	__u64 len;      /* out: bytes */
	__u32 segments; /* out */
	__u32 reserved;
};

struct headrace_peer_distance {
	__u32 argsz;
	__u32 flags;
	__u32 provider;
	__u32 client_kind;
	__u32 client;
	__s32 distance; /* out: negative if peer DMA is not possible */
	__u64 reserved;
};

#define HEADRACE_PEER_INFO _IOWR(0xBE, 0x40, struct headrace_peer_info)
#define HEADRACE_PEER_IMPORT _IOWR(0xBE, 0x41, struct headrace_peer_import)
#define HEADRACE_PEER_DISTANCE _IOWR(0xBE, 0x42, struct headrace_peer_distance)

#endif

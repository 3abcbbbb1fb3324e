/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * peer.h - what the files of headrace_peer share.
 *
 * Lock order: device lock of a provider (by the driver core) > hrp_lock; a dma-buf's reservation or
 * mmap_lock > hrp_import.lock > i_mmap lock. hrp_lock > hrp_import.lock. No reservation is taken under
 * hrp_lock, and nothing touches user memory under any of them.
 */
#ifndef HEADRACE_PEER_INTERNAL_H
#define HEADRACE_PEER_INTERNAL_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "uapi/headrace_peer.h"

/* Struct pages come in pieces of one subsection of the memory map. */
#define HRP_GRANULE (2ul << 20)

/* X(name): counters, shown in /sys/class/misc/headrace_peer/counters. */
#define HRP_COUNTERS(X)                                                                            \
	X(imports)       /* now, closed ones whose I/O has not ended included */                   \
	X(imports_total) /* since the module was loaded */                                         \
	X(import_bytes)  /* now */                                                                 \
	X(page_bytes)    /* device memory that has pages */                                        \
	X(refusals)                                                                                \
	X(revokes) /* mappings that ended because the device's memory went */                      \
	X(faults)

#define HRP_COUNTER_FIELD(name) atomic64_t name;
struct hrp_counters {
	HRP_COUNTERS(HRP_COUNTER_FIELD)
};
extern struct hrp_counters hrp_counters;

extern unsigned int hrp_imports_max;
extern unsigned long hrp_import_bytes_max, hrp_page_bytes_max;

/* Guards the list of imports and the list of ranges that have pages. */
extern struct mutex hrp_lock;

/* A run of device memory that lies together: its struct pages do, too. */
struct hrp_seg {
	struct page *first;
	unsigned long npages;
};

struct dma_buf;
struct dma_buf_attachment;
struct sg_table;

struct hrp_import {
	struct list_head node;
	struct mutex lock; /* revoked, mapping, segs against faults */
	bool revoked;
	bool pinned;
	struct address_space *mapping; /* of the open file; NULL once it is closed */
	struct dma_buf *buf;
	struct dma_buf_attachment *att;
	struct sg_table *sgt; /* under the buffer's reservation */
	struct pci_dev *client, *provider;
	unsigned long pgoff, npages; /* where mmap() finds it; never reused */
	unsigned int nsegs;
	struct hrp_seg *segs;
	struct delayed_work reap;
};

/*
 * pages.c: give [bus, bus + len) of @pdev's BAR pages and store the first. hrp_lock is held.
 * Return: 0, -errno, or a refusal (> 0).
 */
int hrp_pages_get(struct pci_dev *pdev, int bar, u64 offset, u64 len, struct page **first);
/* The device that has [bus, bus + len) in a BAR, with a reference, or NULL. */
struct pci_dev *hrp_pages_find_device(u64 bus, u64 len, int *bar, u64 *offset);
/* The device's driver leaves, and nobody uses the pages any more. hrp_lock is held. */
void hrp_pages_drop(struct pci_dev *pdev);

/* import.c: 0, -errno, or a refusal (> 0). @arg: outputs are filled. */
int hrp_import_open(struct address_space *mapping, struct pci_dev *client,
		    struct headrace_peer_import *arg, struct hrp_import **out);
/* The file is closed: the rest happens when the last I/O has ended. */
void hrp_import_close(struct hrp_import *imp);
struct page *hrp_import_page(struct hrp_import *imp, unsigned long index);
int hrp_import_init(void);
void hrp_import_exit(void);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * pages.c - struct pages for the parts of a device's BAR that somebody imported; knows no dma-buf.
 *
 * A range gets pages once, in whole granules, and keeps them until the driver of the device leaves:
 * the kernel offers no other way. So does this module, which has to give them back then. All of them
 * are taken out of the device's pool at once, so that nobody else can allocate from memory that its
 * driver gave to us only; each has one reference of ours, and a page with more is mapped or under I/O.
 */
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "compat.h"
#include "peer.h"

struct hrp_range {
	struct list_head node;
	struct pci_dev *pdev;
	int bar;
	u64 offset, len; /* in the BAR; whole granules */
	struct page *first;
};

static LIST_HEAD(ranges);

struct pci_dev *hrp_pages_find_device(u64 bus, u64 len, int *bar, u64 *offset)
{
	struct pci_dev *pdev = NULL;
	int i;

	for_each_pci_dev (pdev) {
		if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL)
			continue;
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			u64 start = pci_bus_address(pdev, i), size = pci_resource_len(pdev, i);

			if (!(pci_resource_flags(pdev, i) & IORESOURCE_MEM) || bus < start ||
			    len > size || bus - start > size - len)
				continue;
			*bar = i;
			*offset = bus - start;
			return pdev;
		}
	}
	return NULL;
}

static struct hrp_range *find_range(struct pci_dev *pdev, int bar, u64 offset)
{
	struct hrp_range *range;

	list_for_each_entry (range, &ranges, node)
		if (range->pdev == pdev && range->bar == bar && offset >= range->offset &&
		    offset - range->offset < range->len)
			return range;
	return NULL;
}

/* Take the fresh range out of the pool, or it could be handed to others. */
static struct page *reserve(struct pci_dev *pdev, int bar, u64 offset, u64 len)
{
	void *addr = pci_alloc_p2pmem(pdev, len);
	struct page *first;
	unsigned long i;

	if (!addr)
		return NULL;
	if (pci_p2pmem_virt_to_bus(pdev, addr) != pci_bus_address(pdev, bar) + offset) {
		pci_free_p2pmem(pdev, addr, len);
		return NULL;
	}
	first = virt_to_page(addr);
	for (i = 0; i < len >> PAGE_SHIFT; i++)
		hrp_page_claim(first + i);
	/* The allocation's own reference: each page has brought one. */
	percpu_ref_put(&hrp_page_pgmap(first)->ref);
	return first;
}

static int make_range(struct pci_dev *pdev, int bar, u64 offset, u64 len)
{
	struct hrp_range *range;
	int ret;

	if (len > hrp_page_bytes_max ||
	    atomic64_read(&hrp_counters.page_bytes) > hrp_page_bytes_max - len)
		return HEADRACE_PEER_LIMIT;
	range = kzalloc(sizeof(*range), GFP_KERNEL);
	if (!range)
		return -ENOMEM;
	ret = pci_p2pdma_add_resource(pdev, bar, len, offset);
	if (ret) {
		kfree(range);
		return ret == -ENOMEM ? ret : HEADRACE_PEER_UNMAPPABLE;
	}
	range->first = reserve(pdev, bar, offset, len);
	if (!range->first) {
		kfree(range);
		return HEADRACE_PEER_OWNED;
	}
	range->pdev = pci_dev_get(pdev);
	range->bar = bar;
	range->offset = offset;
	range->len = len;
	list_add(&range->node, &ranges);
	__module_get(THIS_MODULE);
	atomic64_add(len, &hrp_counters.page_bytes);
	return 0;
}

/* Every granule of [start, end) that has no pages yet gets them, runs of them together. */
static int fill_gaps(struct pci_dev *pdev, int bar, u64 start, u64 end)
{
	unsigned long pfn = pci_resource_start(pdev, bar) >> PAGE_SHIFT;
	u64 at, run;
	int ret;

	for (at = start; at < end; at = run) {
		for (run = at; run < end && !find_range(pdev, bar, run); run += HRP_GRANULE)
			if (pfn_valid(pfn + (run >> PAGE_SHIFT)))
				return HEADRACE_PEER_OWNED;
		if (run == at) {
			run += HRP_GRANULE;
			continue;
		}
		ret = make_range(pdev, bar, at, run - at);
		if (ret)
			return ret;
	}
	return 0;
}

int hrp_pages_get(struct pci_dev *pdev, int bar, u64 offset, u64 len, struct page **first)
{
	u64 start = round_down(offset, HRP_GRANULE), end = round_up(offset + len, HRP_GRANULE);
	struct hrp_range *range;
	int ret;

	lockdep_assert_held(&hrp_lock);
	if (!IS_ALIGNED(pci_resource_start(pdev, bar), HRP_GRANULE) ||
	    end > pci_resource_len(pdev, bar))
		return HEADRACE_PEER_UNMAPPABLE;
	/* Held by the driver core around hrp_pages_drop(), which wants hrp_lock: so only try. */
	if (!device_trylock(&pdev->dev))
		return -EAGAIN;
	ret = pdev->dev.driver ? fill_gaps(pdev, bar, start, end) : HEADRACE_PEER_NOT_PEER;
	device_unlock(&pdev->dev);
	if (ret)
		return ret;
	range = find_range(pdev, bar, offset);
	/* The memory map is one array, so pages of neighbouring ranges lie together as well. */
	*first = range->first + ((offset - range->offset) >> PAGE_SHIFT);
	return 0;
}

static void forget(struct hrp_range *range)
{
	atomic64_sub(range->len, &hrp_counters.page_bytes);
	list_del(&range->node);
	module_put(THIS_MODULE);
	pci_dev_put(range->pdev);
	kfree(range);
}

void hrp_pages_drop(struct pci_dev *pdev)
{
	struct hrp_range *range, *next;
	unsigned long i;

	lockdep_assert_held(&hrp_lock);
	list_for_each_entry_safe (range, next, &ranges, node) {
		if (range->pdev != pdev)
			continue;
		for (i = 0; i < range->len >> PAGE_SHIFT; i++)
			put_page(range->first + i);
		forget(range);
	}
}

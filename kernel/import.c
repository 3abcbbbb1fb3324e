// SPDX-License-Identifier: GPL-2.0-only
/*
 * import.c - one dma-buf as a run of pages: attached for the device that will do the DMA, checked,
 * revoked when its memory goes, and let go of when the last I/O has ended.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "compat.h"
#include "peer.h"

#define REAP_MS 5
#define FENCE_TIMEOUT (10 * HZ)

static LIST_HEAD(imports);
static struct workqueue_struct *reapers;
/* In pages; 2^52 of them are enough for ever. */
static unsigned long next_pgoff = 1;

static bool page_idle(const struct page *page)
{
	return page_ref_count(page) == 1;
}

static bool idle(const struct hrp_import *imp)
{
	unsigned int s;
	unsigned long i;

	for (s = 0; s < imp->nsegs; s++)
		for (i = 0; i < imp->segs[s].npages; i++)
			if (!page_idle(imp->segs[s].first + i))
				return false;
	return true;
}

/* Whatever the drive still writes must have arrived: bounded by the time-outs of block I/O. */
static void wait_idle(const struct hrp_import *imp)
{
	unsigned int s;
	unsigned long i;

	for (s = 0; s < imp->nsegs; s++)
		for (i = 0; i < imp->segs[s].npages; i++)
			while (!page_idle(imp->segs[s].first + i))
				schedule_timeout_uninterruptible(1);
}

/* No new fault and no new I/O after this. */
static void zap(struct hrp_import *imp)
{
	mutex_lock(&imp->lock);
	if (!imp->revoked)
		atomic64_inc(&hrp_counters.revokes);
	imp->revoked = true;
	if (imp->mapping)
		unmap_mapping_range(imp->mapping, (loff_t)imp->pgoff << PAGE_SHIFT,
				    (loff_t)imp->npages << PAGE_SHIFT, 1);
	mutex_unlock(&imp->lock);
}

/* The buffer's reservation is held. */
static void unmap_buffer(struct hrp_import *imp)
{
	if (imp->sgt)
		dma_buf_unmap_attachment(imp->att, imp->sgt, DMA_BIDIRECTIONAL);
	imp->sgt = NULL;
	if (imp->pinned)
		dma_buf_unpin(imp->att);
	imp->pinned = false;
}

/* The exporter takes its memory back, with the reservation held. */
static void invalidated(struct dma_buf_attachment *att)
{
	struct hrp_import *imp = att->importer_priv;

	zap(imp);
	wait_idle(imp);
	if (imp->sgt)
		dma_buf_unmap_attachment(imp->att, imp->sgt, DMA_BIDIRECTIONAL);
	imp->sgt = NULL;
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.hrp_invalidate = invalidated,
};

/* Everything that open did; zeroed parts were not done. No page is used any more. */
static void destroy(struct hrp_import *imp)
{
	if (!IS_ERR_OR_NULL(imp->att)) {
		dma_resv_lock(imp->buf->resv, NULL);
		unmap_buffer(imp);
		dma_resv_unlock(imp->buf->resv);
		dma_buf_detach(imp->buf, imp->att);
	}
	if (!IS_ERR_OR_NULL(imp->buf))
		dma_buf_put(imp->buf);
	pci_dev_put(imp->provider);
	pci_dev_put(imp->client);
	kvfree(imp->segs);
	mutex_destroy(&imp->lock);
	kfree(imp);
}

/* Let go of a closed import, unless a drive still writes to it: then once more, later. */
static void try_end(struct hrp_import *imp)
{
	mutex_lock(&hrp_lock);
	if (!idle(imp)) {
		mutex_unlock(&hrp_lock);
		queue_delayed_work(reapers, &imp->reap, msecs_to_jiffies(REAP_MS));
		return;
	}
	list_del(&imp->node);
	mutex_unlock(&hrp_lock);
	atomic64_dec(&hrp_counters.imports);
	atomic64_sub((s64)imp->npages << PAGE_SHIFT, &hrp_counters.import_bytes);
	destroy(imp);
}

static void reap(struct work_struct *work)
{
	try_end(container_of(work, struct hrp_import, reap.work));
}

void hrp_import_close(struct hrp_import *imp)
{
	mutex_lock(&imp->lock);
	imp->mapping = NULL; /* no mapping is left, or the file would be open */
	mutex_unlock(&imp->lock);
	try_end(imp); /* at once as a rule, so that the memory can be imported again */
}

struct page *hrp_import_page(struct hrp_import *imp, unsigned long index)
{
	unsigned int s;

	lockdep_assert_held(&imp->lock);
	if (imp->revoked)
		return NULL;
	for (s = 0; s < imp->nsegs; s++) {
		if (index < imp->segs[s].npages)
			return imp->segs[s].first + index;
		index -= imp->segs[s].npages;
	}
	return NULL;
}

static int attach(struct hrp_import *imp)
{
	long left;

	imp->att = dma_buf_dynamic_attach(imp->buf, &imp->client->dev, &attach_ops, imp);
	if (IS_ERR(imp->att))
		return HEADRACE_PEER_NOT_PEER;
	if (!imp->att->peer2peer)
		return HEADRACE_PEER_NOT_PEER;
	dma_resv_lock(imp->buf->resv, NULL);
	/* Some exporters cannot pin; those that move things about call invalidated(). */
	imp->pinned = dma_buf_pin(imp->att) == 0;
	imp->sgt = dma_buf_map_attachment(imp->att, DMA_BIDIRECTIONAL);
	if (IS_ERR(imp->sgt)) {
		int ret = PTR_ERR(imp->sgt);

		imp->sgt = NULL;
		dma_resv_unlock(imp->buf->resv);
		return ret == -EINTR || ret == -ENOMEM ? ret : HEADRACE_PEER_NOT_PEER;
	}
	left = dma_resv_wait_timeout(imp->buf->resv, DMA_RESV_USAGE_KERNEL, false, FENCE_TIMEOUT);
	dma_resv_unlock(imp->buf->resv);
	return left > 0 ? 0 : -ETIMEDOUT;
}

static bool overlaps(const struct hrp_import *imp, const struct page *first, unsigned long n)
{
	unsigned int s;

	for (s = 0; s < imp->nsegs; s++)
		if (first < imp->segs[s].first + imp->segs[s].npages &&
		    imp->segs[s].first < first + n)
			return true;
	return false;
}

/* Of two imports of one page neither could tell when its own I/O has ended. */
static bool taken(const struct page *first, unsigned long n)
{
	struct hrp_import *imp;

	list_for_each_entry (imp, &imports, node)
		if (overlaps(imp, first, n))
			return true;
	return false;
}

/* One entry of the exporter's list: where is it, and may the client reach it? */
static int add_segment(struct hrp_import *imp, u64 bus, u64 len, s32 *distance)
{
	struct pci_dev *pdev;
	struct page *first;
	u64 offset;
	int bar, ret;

	pdev = hrp_pages_find_device(bus, len, &bar, &offset);
	if (!pdev) /* with an IOMMU in between, these are its addresses and no BAR's */
		return device_iommu_mapped(&imp->client->dev) ? HEADRACE_PEER_IOMMU
							      : HEADRACE_PEER_NOT_PEER;
	if (imp->provider && imp->provider != pdev)
		ret = HEADRACE_PEER_NOT_PEER;
	else if (!PAGE_ALIGNED(offset) || !PAGE_ALIGNED(len))
		ret = HEADRACE_PEER_ALIGNMENT;
	else
		ret = 0;
	if (ret || imp->provider)
		pci_dev_put(pdev);
	else
		imp->provider = pdev;
	if (ret)
		return ret;
	*distance = pci_p2pdma_distance(imp->provider, &imp->client->dev, false);
	if (*distance < 0)
		return HEADRACE_PEER_TOPOLOGY;
	ret = hrp_pages_get(imp->provider, bar, offset, len, &first);
	if (ret)
		return ret;
	if (taken(first, len >> PAGE_SHIFT) || overlaps(imp, first, len >> PAGE_SHIFT))
		return HEADRACE_PEER_TAKEN;
	imp->segs[imp->nsegs].first = first;
	imp->segs[imp->nsegs++].npages = len >> PAGE_SHIFT;
	return 0;
}

/* hrp_lock is held. The list cannot go meanwhile: whoever revokes it waits for imp->lock. */
static int find_pages(struct hrp_import *imp, struct headrace_peer_import *arg)
{
	struct scatterlist *sg;
	u64 len = 0;
	int i, ret;

	if (imp->revoked)
		return -EAGAIN;
	imp->segs = kvcalloc(imp->sgt->nents, sizeof(*imp->segs), GFP_KERNEL);
	if (!imp->segs)
		return -ENOMEM;
	for_each_sgtable_dma_sg (imp->sgt, sg, i) {
		ret = add_segment(imp, sg_dma_address(sg), sg_dma_len(sg), &arg->distance);
		if (ret)
			return ret;
		len += sg_dma_len(sg);
	}
	if (len < imp->buf->size)
		return HEADRACE_PEER_NOT_PEER;
	imp->npages = len >> PAGE_SHIFT;
	imp->pgoff = next_pgoff;
	next_pgoff += imp->npages + 1; /* one between them, so that none runs into the next */
	return 0;
}

static int within_limits(u64 len)
{
	u64 bytes = atomic64_read(&hrp_counters.import_bytes);

	if (atomic64_read(&hrp_counters.imports) >= hrp_imports_max || len > hrp_import_bytes_max ||
	    bytes > hrp_import_bytes_max - len)
		return HEADRACE_PEER_LIMIT;
	return 0;
}

static int enlist(struct hrp_import *imp, struct headrace_peer_import *arg)
{
	int ret = within_limits(imp->buf->size);

	lockdep_assert_held(&hrp_lock);
	if (ret)
		return ret;
	mutex_lock(&imp->lock);
	ret = find_pages(imp, arg);
	if (ret)
		imp->nsegs = 0; /* pages of others, perhaps: not ours to wait for */
	mutex_unlock(&imp->lock);
	if (ret)
		return ret;
	list_add(&imp->node, &imports);
	atomic64_inc(&hrp_counters.imports);
	atomic64_inc(&hrp_counters.imports_total);
	atomic64_add((s64)imp->npages << PAGE_SHIFT, &hrp_counters.import_bytes);
	arg->offset = (u64)imp->pgoff << PAGE_SHIFT;
	arg->len = (u64)imp->npages << PAGE_SHIFT;
	arg->segments = imp->nsegs;
	arg->provider = (u32)pci_domain_nr(imp->provider->bus) << 16 | pci_dev_id(imp->provider);
	return 0;
}

int hrp_import_open(struct address_space *mapping, struct pci_dev *client,
		    struct headrace_peer_import *arg, struct hrp_import **out)
{
	struct hrp_import *imp = kzalloc(sizeof(*imp), GFP_KERNEL);
	int ret;

	if (!imp)
		return -ENOMEM;
	mutex_init(&imp->lock);
	INIT_DELAYED_WORK(&imp->reap, reap);
	imp->mapping = mapping;
	imp->client = pci_dev_get(client);
	imp->buf = dma_buf_get(arg->dmabuf_fd);
	if (IS_ERR(imp->buf)) {
		ret = PTR_ERR(imp->buf);
		goto err;
	}
	ret = attach(imp);
	if (ret)
		goto err;
	mutex_lock(&hrp_lock);
	ret = enlist(imp, arg);
	mutex_unlock(&hrp_lock);
	if (ret)
		goto err;
	*out = imp;
	return 0;

err:
	destroy(imp);
	return ret;
}

/* A driver leaves its device: the one whose memory it is, or the one that does the DMA. */
static int unbinding(struct notifier_block *block, unsigned long event, void *data)
{
	struct hrp_import *imp;

	if (event != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	mutex_lock(&hrp_lock);
	list_for_each_entry (imp, &imports, node)
		if (&imp->provider->dev == data || &imp->client->dev == data)
			zap(imp);
	/* Only now can those that share the device become idle. */
	list_for_each_entry (imp, &imports, node) {
		if (&imp->provider->dev != data)
			continue;
		wait_idle(imp);
		mutex_lock(&imp->lock);
		imp->nsegs = 0; /* the pages go */
		mutex_unlock(&imp->lock);
	}
	hrp_pages_drop(to_pci_dev(data));
	mutex_unlock(&hrp_lock);
	return NOTIFY_OK;
}

static struct notifier_block unbind_block = {.notifier_call = unbinding};

int hrp_import_init(void)
{
	int ret;

	reapers = alloc_workqueue("headrace_peer", WQ_UNBOUND, 0);
	if (!reapers)
		return -ENOMEM;
	ret = bus_register_notifier(&pci_bus_type, &unbind_block);
	if (ret)
		destroy_workqueue(reapers);
	return ret;
}

void hrp_import_exit(void)
{
	/* Closed imports whose I/O is under way; a work that queues itself again is waited for. */
	while (!list_empty_careful(&imports))
		msleep(REAP_MS);
	destroy_workqueue(reapers);
	bus_unregister_notifier(&pci_bus_type, &unbind_block);
}

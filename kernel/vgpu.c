// SPDX-License-Identifier: GPL-2.0-only
/*
 * vgpu.c - for tests: QEMU's ivshmem as a GPU. Its BAR is memory that can be allocated, copied by
 * this driver only, and exported as a dma-buf that can be moved and revoked. It knows nothing of
 * headrace_peer, as a real GPU's driver does not.
 */
#include <linux/bitmap.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "uapi/headrace_vgpu.h"

#define BAR 2
#define GRANULE 65536ul
#define CHUNK 4096u
/* Mappings are told in pieces of this size, as a fragmented GPU's are. */
#define PIECE (4ul << 20)

static bool write_combined;
module_param(write_combined, bool, 0444);
MODULE_PARM_DESC(write_combined, "map the BAR write-combined, as some GPU drivers do");
static bool owned;
module_param(owned, bool, 0444);
MODULE_PARM_DESC(owned, "make P2P pages of the whole BAR, as some GPU drivers do");

static bool bus_addresses;
module_param(bus_addresses, bool, 0444);
MODULE_PARM_DESC(bus_addresses, "give importers bus addresses, whatever an IOMMU does");

struct vgpu {
	struct kref ref;
	struct mutex lock; /* all below */
	struct pci_dev *pdev;
	void __iomem *mem; /* NULL once the driver has left */
	u64 phys, size;
	unsigned long *used, n_granules, next;
	struct list_head exports;
	struct miscdevice misc;
	char name[32];
	int number;
};

/* An allocation: of an open file, and of the dma-bufs that were made of it. */
struct vgpu_mem {
	struct kref ref;
	struct vgpu *vgpu;
	struct list_head node; /* in the file's list */
	u64 offset, len;
};

struct vgpu_export {
	struct list_head node; /* in vgpu.exports */
	struct vgpu_mem *mem;
	struct dma_buf *buf;
	u64 offset, len;
	bool revoked; /* under the reservation */
};

struct vgpu_file {
	struct vgpu *vgpu;
	struct list_head mems;
};

static DEFINE_IDA(numbers);

static void vgpu_free(struct kref *ref)
{
	struct vgpu *vgpu = container_of(ref, struct vgpu, ref);

	ida_free(&numbers, vgpu->number);
	bitmap_free(vgpu->used);
	mutex_destroy(&vgpu->lock);
	kfree(vgpu);
}

static void mem_free(struct kref *ref)
{
	struct vgpu_mem *mem = container_of(ref, struct vgpu_mem, ref);
	struct vgpu *vgpu = mem->vgpu;

	mutex_lock(&vgpu->lock);
	bitmap_clear(vgpu->used, mem->offset / GRANULE, DIV_ROUND_UP(mem->len, GRANULE));
	mutex_unlock(&vgpu->lock);
	kref_put(&vgpu->ref, vgpu_free);
	kfree(mem);
}

/* -- the dma-buf ------------------------------------------------------------------------------ */

static int vgpu_attach(struct dma_buf *buf, struct dma_buf_attachment *att)
{
	return att->peer2peer ? 0 : -EOPNOTSUPP;
}

static void unmap_pieces(struct device *dev, struct sg_table *sgt, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg (sgt, sg, i)
		if (sg_dma_len(sg) && !bus_addresses)
			dma_unmap_resource(dev, sg_dma_address(sg), sg_dma_len(sg), dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

static dma_addr_t map_piece(struct device *dev, u64 phys, u64 len, enum dma_data_direction dir)
{
	return bus_addresses ? phys : dma_map_resource(dev, phys, len, dir, 0);
}

static struct sg_table *vgpu_map(struct dma_buf_attachment *att, enum dma_data_direction dir)
{
	struct vgpu_export *export = att->dmabuf->priv;
	struct scatterlist *sg;
	struct sg_table *sgt;
	u64 done = 0;
	int i;

	if (export->revoked)
		return ERR_PTR(-ENODEV);
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt || sg_alloc_table(sgt, DIV_ROUND_UP(export->len, PIECE), GFP_KERNEL)) {
		kfree(sgt);
		return ERR_PTR(-ENOMEM);
	}
	for_each_sgtable_dma_sg (sgt, sg, i) {
		u64 len = min_t(u64, PIECE, export->len - done);
		u64 phys = export->mem->vgpu->phys + export->offset + done;
		dma_addr_t at = map_piece(att->dev, phys, len, dir);

		if (!bus_addresses && dma_mapping_error(att->dev, at)) {
			unmap_pieces(att->dev, sgt, dir);
			return ERR_PTR(-EIO);
		}
		sg_dma_address(sg) = at;
		sg_dma_len(sg) = len;
		done += len;
	}
	return sgt;
}

static void vgpu_unmap(struct dma_buf_attachment *att, struct sg_table *sgt,
		       enum dma_data_direction dir)
{
	unmap_pieces(att->dev, sgt, dir);
}

static void vgpu_release_buf(struct dma_buf *buf)
{
	struct vgpu_export *export = buf->priv;
	struct vgpu *vgpu = export->mem->vgpu;

	mutex_lock(&vgpu->lock);
	list_del(&export->node);
	mutex_unlock(&vgpu->lock);
	kref_put(&export->mem->ref, mem_free);
	kfree(export);
}

static const struct dma_buf_ops buf_ops = {
	.attach = vgpu_attach,
	.map_dma_buf = vgpu_map,
	.unmap_dma_buf = vgpu_unmap,
	.release = vgpu_release_buf,
};

static void invalidate(struct vgpu_export *export, bool for_good)
{
	dma_resv_lock(export->buf->resv, NULL);
	export->revoked |= for_good;
	hrp_dma_buf_invalidate(export->buf);
	dma_resv_unlock(export->buf->resv);
}

/* Those that lie in [offset, offset + len). Importers may call back, so not under the lock. */
static void invalidate_range(struct vgpu *vgpu, u64 offset, u64 len, bool for_good)
{
	struct vgpu_export *export;
	struct dma_buf *buf;
	unsigned int skip = 0, i;

	do {
		buf = NULL;
		i = 0;
		mutex_lock(&vgpu->lock);
		list_for_each_entry (export, &vgpu->exports, node) {
			if (export->offset < offset || export->offset - offset >= len || i++ < skip)
				continue;
			if (get_file_active(&export->buf->file)) {
				buf = export->buf;
				break;
			}
		}
		mutex_unlock(&vgpu->lock);
		if (buf) {
			invalidate(buf->priv, for_good);
			dma_buf_put(buf);
		}
		skip++;
	} while (buf);
}

/* -- allocations ------------------------------------------------------------------------------ */

/* Next fit, so that what was freed keeps its bytes for a while: tests look at them from outside. */
static long find_space(struct vgpu *vgpu, unsigned long n)
{
	unsigned long at =
		bitmap_find_next_zero_area(vgpu->used, vgpu->n_granules, vgpu->next, n, 0);

	if (at >= vgpu->n_granules)
		at = bitmap_find_next_zero_area(vgpu->used, vgpu->n_granules, 0, n, 0);
	if (at >= vgpu->n_granules)
		return -ENOMEM;
	bitmap_set(vgpu->used, at, n);
	vgpu->next = at + n;
	return at;
}

static int vgpu_alloc(struct vgpu_file *vf, struct headrace_vgpu_range *range)
{
	struct vgpu_mem *mem;
	long at;

	if (!range->len || range->len > vf->vgpu->size || range->flags)
		return -EINVAL;
	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem)
		return -ENOMEM;
	kref_init(&mem->ref);
	mem->vgpu = vf->vgpu;
	mem->len = range->len;
	mutex_lock(&vf->vgpu->lock);
	at = find_space(vf->vgpu, DIV_ROUND_UP(range->len, GRANULE));
	if (at >= 0) {
		kref_get(&vf->vgpu->ref);
		mem->offset = range->offset = at * GRANULE;
		list_add(&mem->node, &vf->mems);
	}
	mutex_unlock(&vf->vgpu->lock);
	if (at < 0)
		kfree(mem);
	return at < 0 ? at : 0;
}

/* The file's allocation that has all of [offset, offset + len); the lock is held. */
static struct vgpu_mem *find_mem(struct vgpu_file *vf, u64 offset, u64 len)
{
	struct vgpu_mem *mem;

	list_for_each_entry (mem, &vf->mems, node) {
		u64 room = ALIGN(mem->len, GRANULE);

		if (offset >= mem->offset && len <= room && offset - mem->offset <= room - len)
			return mem;
	}
	return NULL;
}

static int vgpu_free_range(struct vgpu_file *vf, u64 offset)
{
	struct vgpu_mem *mem;

	mutex_lock(&vf->vgpu->lock);
	mem = find_mem(vf, offset, 1);
	if (mem)
		list_del(&mem->node);
	mutex_unlock(&vf->vgpu->lock);
	if (!mem)
		return -ENOENT;
	kref_put(&mem->ref, mem_free);
	return 0;
}

static int vgpu_export(struct vgpu_file *vf, struct headrace_vgpu_range *range)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct vgpu_export *export;
	struct vgpu_mem *mem;

	if (!range->len || !PAGE_ALIGNED(range->offset) || !PAGE_ALIGNED(range->len) ||
	    range->flags)
		return -EINVAL;
	export = kzalloc(sizeof(*export), GFP_KERNEL);
	if (!export)
		return -ENOMEM;
	mutex_lock(&vf->vgpu->lock);
	mem = find_mem(vf, range->offset, range->len);
	if (mem)
		kref_get(&mem->ref);
	mutex_unlock(&vf->vgpu->lock);
	if (!mem) {
		kfree(export);
		return -ENOENT;
	}
	export->mem = mem;
	export->offset = range->offset;
	export->len = range->len;
	info.ops = &buf_ops;
	info.size = range->len;
	info.flags = O_RDWR;
	info.priv = export;
	export->buf = dma_buf_export(&info);
	if (IS_ERR(export->buf)) {
		int ret = PTR_ERR(export->buf);

		kref_put(&mem->ref, mem_free);
		kfree(export);
		return ret;
	}
	mutex_lock(&vf->vgpu->lock);
	export->revoked = !vf->vgpu->mem;
	list_add(&export->node, &vf->vgpu->exports);
	mutex_unlock(&vf->vgpu->lock);
	range->fd = dma_buf_fd(export->buf, O_CLOEXEC);
	if (range->fd < 0)
		dma_buf_put(export->buf);
	return range->fd < 0 ? range->fd : 0;
}

/* -- copies ----------------------------------------------------------------------------------- */

/* One piece of at most CHUNK bytes between the BAR and a kernel buffer, within one allocation. */
static int touch(struct vgpu_file *vf, u64 offset, void *buf, size_t len, bool write)
{
	int ret = 0;

	mutex_lock(&vf->vgpu->lock);
	if (!vf->vgpu->mem)
		ret = -ENODEV;
	else if (!find_mem(vf, offset, len))
		ret = -EFAULT;
	else if (write)
		memcpy_toio(vf->vgpu->mem + offset, buf, len);
	else
		memcpy_fromio(buf, vf->vgpu->mem + offset, len);
	mutex_unlock(&vf->vgpu->lock);
	return ret;
}

static ssize_t transfer(struct vgpu_file *vf, char __user *user, size_t len, loff_t *pos,
			bool write)
{
	void *chunk = kmalloc(CHUNK, GFP_KERNEL);
	size_t done = 0;
	int ret = 0;

	if (!chunk)
		return -ENOMEM;
	while (done < len && !ret && !fatal_signal_pending(current)) {
		size_t n = min_t(size_t, CHUNK, len - done);

		if (write && copy_from_user(chunk, user + done, n))
			ret = -EFAULT;
		if (!ret)
			ret = touch(vf, *pos + done, chunk, n, write);
		if (!ret && !write && copy_to_user(user + done, chunk, n))
			ret = -EFAULT;
		done += ret ? 0 : n;
	}
	kfree(chunk);
	*pos += done;
	return done ? done : ret;
}

static ssize_t vgpu_read(struct file *file, char __user *user, size_t len, loff_t *pos)
{
	return transfer(file->private_data, user, len, pos, false);
}

static ssize_t vgpu_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	return transfer(file->private_data, (char __user *)user, len, pos, true);
}

/* Inside the device, as a GPU's copy engine does it. */
static int vgpu_copy(struct vgpu_file *vf, const struct headrace_vgpu_copy *copy)
{
	void *chunk = kmalloc(CHUNK, GFP_KERNEL);
	u64 done = 0;
	int ret = chunk ? 0 : -ENOMEM;

	while (done < copy->len && !ret && !fatal_signal_pending(current)) {
		size_t n = min_t(u64, CHUNK, copy->len - done);

		ret = touch(vf, copy->src + done, chunk, n, false);
		if (!ret)
			ret = touch(vf, copy->dst + done, chunk, n, true);
		done += n;
	}
	kfree(chunk);
	return ret;
}

/* -- the device ------------------------------------------------------------------------------- */

static long vgpu_info(struct vgpu *vgpu, void __user *user)
{
	struct headrace_vgpu_info info = {.size = vgpu->size, .granule = GRANULE};

	mutex_lock(&vgpu->lock);
	if (vgpu->pdev)
		info.pci = (u32)pci_domain_nr(vgpu->pdev->bus) << 16 | pci_dev_id(vgpu->pdev);
	mutex_unlock(&vgpu->lock);
	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

static long range_ioctl(struct vgpu_file *vf, unsigned int cmd, void __user *user)
{
	struct headrace_vgpu_range range;
	int ret;

	if (copy_from_user(&range, user, sizeof(range)))
		return -EFAULT;
	switch (cmd) {
	case HEADRACE_VGPU_ALLOC:
		ret = vgpu_alloc(vf, &range);
		break;
	case HEADRACE_VGPU_FREE:
		return vgpu_free_range(vf, range.offset);
	case HEADRACE_VGPU_EXPORT:
		ret = vgpu_export(vf, &range);
		break;
	default:
		if (range.flags != HEADRACE_VGPU_MOVE && range.flags != HEADRACE_VGPU_REVOKE)
			return -EINVAL;
		invalidate_range(vf->vgpu, range.offset, range.len,
				 range.flags == HEADRACE_VGPU_REVOKE);
		return 0;
	}
	return ret ? ret : copy_to_user(user, &range, sizeof(range)) ? -EFAULT : 0;
}

static long vgpu_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct vgpu_file *vf = file->private_data;
	struct headrace_vgpu_copy copy;

	switch (cmd) {
	case HEADRACE_VGPU_INFO:
		return vgpu_info(vf->vgpu, (void __user *)user);
	case HEADRACE_VGPU_COPY:
		if (copy_from_user(&copy, (void __user *)user, sizeof(copy)))
			return -EFAULT;
		return vgpu_copy(vf, &copy);
	case HEADRACE_VGPU_ALLOC:
	case HEADRACE_VGPU_FREE:
	case HEADRACE_VGPU_EXPORT:
	case HEADRACE_VGPU_INVALIDATE:
		return range_ioctl(vf, cmd, (void __user *)user);
	}
	return -ENOTTY;
}

static int vgpu_open(struct inode *inode, struct file *file)
{
	/* misc_open() has put the miscdevice there, and keeps it registered meanwhile. */
	struct vgpu *vgpu = container_of(file->private_data, struct vgpu, misc);
	struct vgpu_file *vf = kzalloc(sizeof(*vf), GFP_KERNEL);

	if (!vf)
		return -ENOMEM;
	kref_get(&vgpu->ref);
	vf->vgpu = vgpu;
	INIT_LIST_HEAD(&vf->mems);
	file->private_data = vf;
	return 0;
}

static int vgpu_release(struct inode *inode, struct file *file)
{
	struct vgpu_file *vf = file->private_data;
	struct vgpu_mem *mem, *next;

	list_for_each_entry_safe (mem, next, &vf->mems, node)
		kref_put(&mem->ref, mem_free);
	kref_put(&vf->vgpu->ref, vgpu_free);
	kfree(vf);
	return 0;
}

static const struct file_operations vgpu_fops = {
	.owner = THIS_MODULE,
	.open = vgpu_open,
	.release = vgpu_release,
	.read = vgpu_read,
	.write = vgpu_write,
	.llseek = default_llseek,
	.unlocked_ioctl = vgpu_ioctl,
};

static struct vgpu *vgpu_new(struct pci_dev *pdev)
{
	struct vgpu *vgpu = kzalloc(sizeof(*vgpu), GFP_KERNEL);

	if (!vgpu)
		return NULL;
	kref_init(&vgpu->ref);
	mutex_init(&vgpu->lock);
	INIT_LIST_HEAD(&vgpu->exports);
	vgpu->pdev = pdev;
	vgpu->phys = pci_resource_start(pdev, BAR);
	vgpu->size = pci_resource_len(pdev, BAR);
	vgpu->n_granules = vgpu->size / GRANULE;
	vgpu->number = ida_alloc(&numbers, GFP_KERNEL);
	vgpu->used = bitmap_zalloc(vgpu->n_granules, GFP_KERNEL);
	if (!vgpu->used || vgpu->number < 0) {
		kref_put(&vgpu->ref, vgpu_free);
		return NULL;
	}
	return vgpu;
}

static int vgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vgpu *vgpu;
	int ret = pcim_enable_device(pdev);

	if (!ret && owned)
		ret = pci_p2pdma_add_resource(pdev, BAR, 0, 0);
	if (ret)
		return ret;
	vgpu = vgpu_new(pdev);
	if (!vgpu)
		return -ENOMEM;
	vgpu->mem = write_combined ? ioremap_wc(vgpu->phys, vgpu->size)
				   : ioremap(vgpu->phys, vgpu->size);
	ret = vgpu->mem ? 0 : -ENOMEM;
	if (!ret) {
		snprintf(vgpu->name, sizeof(vgpu->name), "headrace_vgpu%d", vgpu->number);
		vgpu->misc.minor = MISC_DYNAMIC_MINOR;
		vgpu->misc.name = vgpu->name;
		vgpu->misc.fops = &vgpu_fops;
		vgpu->misc.mode = 0660;
		ret = misc_register(&vgpu->misc);
	}
	if (ret) {
		if (vgpu->mem)
			iounmap(vgpu->mem);
		kref_put(&vgpu->ref, vgpu_free);
		return ret;
	}
	pci_set_drvdata(pdev, vgpu);
	return 0;
}

static void vgpu_remove(struct pci_dev *pdev)
{
	struct vgpu *vgpu = pci_get_drvdata(pdev);
	void __iomem *mem = vgpu->mem;

	misc_deregister(&vgpu->misc);
	mutex_lock(&vgpu->lock);
	vgpu->mem = NULL;
	vgpu->pdev = NULL;
	mutex_unlock(&vgpu->lock);
	invalidate_range(vgpu, 0, vgpu->size, true);
	iounmap(mem);
	kref_put(&vgpu->ref, vgpu_free);
}

static const struct pci_device_id vgpu_ids[] = {{PCI_DEVICE(0x1af4, 0x1110)}, {}};
MODULE_DEVICE_TABLE(pci, vgpu_ids);

static struct pci_driver vgpu_driver = {
	.name = "headrace_vgpu",
	.id_table = vgpu_ids,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
};
module_pci_driver(vgpu_driver);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("ivshmem as a GPU, for tests");
HRP_IMPORT_NS(DMA_BUF);

// SPDX-License-Identifier: GPL-2.0-only
/*
 * main.c - /dev/headrace_peer: checks what users ask for, maps pages, shows counters. Knows neither
 * how pages are made nor what a dma-buf is.
 *
 * Who may open the device decides who may use it: mode 0660, root's unless udev says otherwise. What
 * can be mapped is only memory that the caller has as a dma-buf already.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "peer.h"

/* Pages that one fault brings in. */
#define FAULT_PAGES (HRP_GRANULE >> PAGE_SHIFT)

struct hrp_counters hrp_counters;
DEFINE_MUTEX(hrp_lock);

unsigned int hrp_imports_max = 1024;
module_param_named(imports_max, hrp_imports_max, uint, 0644);
MODULE_PARM_DESC(imports_max, "imports of all users at a time");
unsigned long hrp_import_bytes_max = 1ul << 40;
module_param_named(import_bytes_max, hrp_import_bytes_max, ulong, 0644);
MODULE_PARM_DESC(import_bytes_max, "bytes that are imported at a time");
unsigned long hrp_page_bytes_max = 1ul << 40;
module_param_named(page_bytes_max, hrp_page_bytes_max, ulong, 0644);
MODULE_PARM_DESC(page_bytes_max, "device memory that gets struct pages (64 bytes for each 4 KiB)");

/* An open file. */
struct hrp_file {
	struct mutex lock;
	struct hrp_import *imp; /* set once */
};

/* -- mapping ---------------------------------------------------------------------------------- */

static vm_fault_t peer_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct hrp_import *imp = vma->vm_private_data;
	unsigned long first = max(ALIGN_DOWN(vmf->address, HRP_GRANULE), vma->vm_start);
	unsigned long end = min(first + FAULT_PAGES * PAGE_SIZE, vma->vm_end), at;
	vm_fault_t ret = VM_FAULT_NOPAGE;

	atomic64_inc(&hrp_counters.faults);
	/* zap() waits for this lock and takes away whatever was inserted under it. */
	mutex_lock(&imp->lock);
	for (at = first; at < end; at += PAGE_SIZE) {
		unsigned long index =
			vma->vm_pgoff - imp->pgoff + ((at - vma->vm_start) >> PAGE_SHIFT);
		struct page *page = hrp_import_page(imp, index);
		int err = page ? vm_insert_page(vma, at, page) : -EFAULT;

		/* EBUSY: it is there already. Others matter only for the page that was asked for. */
		if (err && err != -EBUSY && at == (vmf->address & PAGE_MASK))
			ret = err == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
	}
	mutex_unlock(&imp->lock);
	return ret;
}

static const struct vm_operations_struct peer_vm_ops = {.fault = peer_fault};

static int peer_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct hrp_file *hf = file->private_data;
	struct hrp_import *imp = smp_load_acquire(&hf->imp);
	unsigned long n = vma_pages(vma);

	if (!imp)
		return -ENODEV;
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_pgoff < imp->pgoff ||
	    vma->vm_pgoff - imp->pgoff > imp->npages ||
	    n > imp->npages - (vma->vm_pgoff - imp->pgoff))
		return -EINVAL;
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	/* MIXEDMAP, because faults insert pages without holding mmap_lock for writing. */
	hrp_vm_flags_set(vma, VM_MIXEDMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = imp;
	vma->vm_ops = &peer_vm_ops;
	return 0;
}

/* -- ioctls ----------------------------------------------------------------------------------- */

static struct pci_dev *client_of_pci(u32 address)
{
	return pci_get_domain_bus_and_slot(address >> 16, address >> 8 & 0xff, address & 0xff);
}

/* The PCI function above an open block device: its disk's parent, or one further up. */
static struct pci_dev *client_of_block(int fd)
{
	struct file *file = fget(fd);
	struct pci_dev *found = NULL;
	struct device *dev;

	if (!file)
		return NULL;
	if (S_ISBLK(file_inode(file)->i_mode)) {
		dev = disk_to_dev(I_BDEV(file->f_mapping->host)->bd_disk)->parent;
		while (dev && !dev_is_pci(dev))
			dev = dev->parent;
		found = dev ? pci_dev_get(to_pci_dev(dev)) : NULL;
	}
	fput(file);
	return found;
}

static struct pci_dev *find_client(u32 kind, u32 client)
{
	return kind == HEADRACE_PEER_CLIENT_PCI ? client_of_pci(client) : client_of_block(client);
}

static bool known_client(u32 kind)
{
	return kind == HEADRACE_PEER_CLIENT_PCI || kind == HEADRACE_PEER_CLIENT_BLOCK;
}

static long peer_info(void __user *user, struct headrace_peer_info *info)
{
	if (info->flags)
		return -EINVAL;
	info->abi = HEADRACE_PEER_ABI;
	info->imports = atomic64_read(&hrp_counters.imports);
	info->imports_max = hrp_imports_max;
	info->granule = HRP_GRANULE;
	info->import_bytes_max = hrp_import_bytes_max;
	info->page_bytes = atomic64_read(&hrp_counters.page_bytes);
	info->page_bytes_max = hrp_page_bytes_max;
	return copy_to_user(user, info, sizeof(*info)) ? -EFAULT : 0;
}

static int import(struct file *file, struct headrace_peer_import *arg)
{
	struct hrp_file *hf = file->private_data;
	struct pci_dev *client = find_client(arg->client_kind, arg->client);
	struct hrp_import *imp;
	int ret;

	if (!client)
		return HEADRACE_PEER_CLIENT;
	mutex_lock(&hf->lock);
	ret = hf->imp ? -EBUSY : hrp_import_open(file->f_mapping, client, arg, &imp);
	if (!ret)
		smp_store_release(&hf->imp, imp); /* whole before mmap() sees it */
	mutex_unlock(&hf->lock);
	pci_dev_put(client);
	return ret;
}

static long peer_import(struct file *file, void __user *user, struct headrace_peer_import *arg)
{
	int ret;

	if (arg->flags || arg->reserved || !known_client(arg->client_kind))
		return -EINVAL;
	arg->refusal = arg->provider = arg->segments = 0;
	arg->distance = -1;
	arg->offset = arg->len = 0;
	ret = import(file, arg);
	if (ret > 0) {
		atomic64_inc(&hrp_counters.refusals);
		arg->refusal = ret;
		ret = -EREMOTEIO;
	}
	/* The import stays if this fails: it ends with the file. */
	return copy_to_user(user, arg, sizeof(*arg)) ? -EFAULT : ret;
}

static long peer_distance(void __user *user, struct headrace_peer_distance *arg)
{
	struct pci_dev *provider, *client;

	if (arg->flags || arg->reserved || !known_client(arg->client_kind))
		return -EINVAL;
	provider = client_of_pci(arg->provider);
	client = find_client(arg->client_kind, arg->client);
	arg->distance =
		provider && client ? pci_p2pdma_distance(provider, &client->dev, false) : -ENODEV;
	pci_dev_put(provider);
	pci_dev_put(client);
	return copy_to_user(user, arg, sizeof(*arg)) ? -EFAULT : 0;
}

static long peer_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	union {
		u32 argsz;
		struct headrace_peer_info info;
		struct headrace_peer_import import;
		struct headrace_peer_distance distance;
	} arg;

	if (cmd != HEADRACE_PEER_INFO && cmd != HEADRACE_PEER_IMPORT &&
	    cmd != HEADRACE_PEER_DISTANCE)
		return -ENOTTY;
	if (copy_from_user(&arg, (void __user *)user, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (arg.argsz < _IOC_SIZE(cmd))
		return -EINVAL;
	switch (cmd) {
	case HEADRACE_PEER_INFO:
		return peer_info((void __user *)user, &arg.info);
	case HEADRACE_PEER_IMPORT:
		return peer_import(file, (void __user *)user, &arg.import);
	default:
		return peer_distance((void __user *)user, &arg.distance);
	}
}

static int peer_open(struct inode *inode, struct file *file)
{
	struct hrp_file *hf = kzalloc(sizeof(*hf), GFP_KERNEL_ACCOUNT);

	if (!hf)
		return -ENOMEM;
	mutex_init(&hf->lock);
	file->private_data = hf;
	return 0;
}

static int peer_release(struct inode *inode, struct file *file)
{
	struct hrp_file *hf = file->private_data;

	if (hf->imp)
		hrp_import_close(hf->imp);
	mutex_destroy(&hf->lock);
	kfree(hf);
	return 0;
}

static const struct file_operations peer_fops = {
	.owner = THIS_MODULE,
	.open = peer_open,
	.release = peer_release,
	.unlocked_ioctl = peer_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = peer_mmap,
};

/* -- counters --------------------------------------------------------------------------------- */

#define HRP_COUNTER_ATTRIBUTE(name)                                                                \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf)   \
	{                                                                                          \
		return sysfs_emit(buf, "%lld\n", (long long)atomic64_read(&hrp_counters.name));    \
	}                                                                                          \
	static DEVICE_ATTR_RO(name);
HRP_COUNTERS(HRP_COUNTER_ATTRIBUTE)

#define HRP_COUNTER_LISTED(name) &dev_attr_##name.attr,
static struct attribute *counter_attrs[] = {HRP_COUNTERS(HRP_COUNTER_LISTED) NULL};
static const struct attribute_group counter_group = {.name = "counters", .attrs = counter_attrs};
static const struct attribute_group *peer_groups[] = {&counter_group, NULL};

static struct miscdevice peer_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "headrace_peer",
	.fops = &peer_fops,
	.groups = peer_groups,
	.mode = 0660,
};

static int __init peer_init(void)
{
	int ret = hrp_import_init();

	if (ret)
		return ret;
	ret = misc_register(&peer_misc);
	if (ret)
		hrp_import_exit();
	return ret;
}

static void __exit peer_exit(void)
{
	misc_deregister(&peer_misc);
	hrp_import_exit();
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("P2P pages for the dma-buf of a PCI device, for direct file I/O");
HRP_IMPORT_NS(DMA_BUF);

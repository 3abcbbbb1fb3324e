/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat.h - every difference between the kernels 6.2 to 7.3 that these modules meet. Where a name was
 * changed, Kbuild looks into the headers, because distributions carry changes back.
 */
#ifndef HEADRACE_COMPAT_H
#define HEADRACE_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define HRP_IMPORT_NS(name) MODULE_IMPORT_NS(name)
#else
#define HRP_IMPORT_NS(name) MODULE_IMPORT_NS(#name)
#endif

#ifdef HRP_HAVE_INVALIDATE_MAPPINGS
#define hrp_invalidate invalidate_mappings
#define hrp_dma_buf_invalidate dma_buf_invalidate_mappings
#else
#define hrp_invalidate move_notify
#define hrp_dma_buf_invalidate dma_buf_move_notify
#endif

#ifdef HRP_HAVE_PAGE_PGMAP
#define hrp_page_pgmap(page) page_pgmap(page)
#else
#define hrp_page_pgmap(page) ((page)->pgmap)
#endif

/* Free pages of a pool have a count of 0, older kernels leave 1. */
static inline void hrp_page_claim(struct page *page)
{
	set_page_count(page, 1);
	percpu_ref_get(&hrp_page_pgmap(page)->ref);
}

static inline void hrp_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
	vma->vm_flags |= flags;
#else
	vm_flags_set(vma, flags);
#endif
}

#endif

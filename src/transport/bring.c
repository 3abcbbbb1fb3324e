/* SPDX-License-Identifier: Apache-2.0 */
/* transport/bring.c - see bring.h; chooses the pages, the queues do the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/util.h"
#include "transport/bring.h"
#include "transport/seg.h"

#define LARGE_PAGE (2u << 20)
#define LARGE_PAGE_MAX (4u << 20) /* 32 and 512 MiB, of other page sizes, are no unit to read by */
#define EDGE_MAX (128u << 10)     /* bytes of a large page that nobody asked for */
#define FAULT_AROUND (64u << 10)  /* a page that is touched gets its neighbours mapped as well */
#define AHEAD_UNKNOWN (8u << 20)
#define AHEADS_MIN 16u /* see hr__bring_aim() */

/* Bytes of a large page, as Documentation/admin-guide/mm/transhuge.rst says; without /sys the usual. */
static uint64_t large_page(void)
{
	char text[32];

	if (hr__read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text,
			  sizeof(text)) <= 0)
		return LARGE_PAGE;
	return strtoull(text, NULL, 10);
}

/* How far the kernel reads ahead on the file's device, in bytes. */
static uint64_t read_ahead(const struct hr_file *file)
{
	static const char *const places[] = {
		"/sys/class/bdi/%u:%u/read_ahead_kb", "/sys/dev/block/%u:%u/queue/read_ahead_kb",
		"/sys/dev/block/%u:%u/../queue/read_ahead_kb", /* of a partition */
	};
	char path[96], text[32];

	for (uint32_t i = 0; i < HR_ARRAY_LEN(places); i++) {
		snprintf(path, sizeof(path), places[i], major(file->dev), minor(file->dev));
		if (hr__read_text(path, text, sizeof(text)) > 0)
			return hr__min(strtoull(text, NULL, 10), UINT32_MAX) << 10;
	}
	return AHEAD_UNKNOWN;
}

bool hr__bring_open(struct hr__mapping *m)
{
	uint64_t unit;

	if (atomic_load(&m->large_page))
		return true;
	unit = large_page();
	if (!hr__is_pow2(unit) || unit > LARGE_PAGE_MAX || unit < (uint64_t)sysconf(_SC_PAGESIZE)) {
		hr__fail(ENOTSUP, "large pages of %llu bytes", (unsigned long long)unit);
		return false;
	}
	/* Random: not the next one as well, which perhaps nobody wants. */
	if (madvise(m->base, m->len, MADV_HUGEPAGE) || madvise(m->base, m->len, MADV_RANDOM)) {
		hr__fail(errno, "the kernel has no transparent huge pages");
		return false;
	}
	atomic_store(&m->read_ahead, read_ahead(m->file));
	atomic_store(&m->large_page, (uint32_t)unit);
	return true;
}

/* What nobody wants of the large page at @at. */
static uint64_t unwanted(uint64_t at, uint64_t unit, uint64_t run_off, uint64_t run_end)
{
	uint64_t before = run_off > at ? run_off - at : 0;
	uint64_t behind = run_end < at + unit ? at + unit - run_end : 0;

	return before + behind;
}

/*
 * The kernel leaves a mark in a large page that was brought in, and when it is read goes on to read ahead
 * from the next hole: at the end of a run that is for nobody. So a run must be much longer than that, or
 * end with the file.
 */
static bool is_long(const struct hr__mapping *m, uint64_t run_off, uint64_t run_end)
{
	uint64_t ahead = atomic_load_explicit(&m->read_ahead, memory_order_relaxed);

	return run_end == UINT64_MAX || run_end - run_off >= AHEADS_MIN * ahead;
}

void hr__bring_aim(struct hr__seg *seg, struct hr__mapping *m, uint64_t run_off, uint64_t run_end)
{
	uint64_t unit = atomic_load_explicit(&m->large_page, memory_order_relaxed), page;
	uint64_t first = seg->plan.off + seg->plan.first.seg_off;
	uint64_t end = seg->plan.off + seg->plan.need, from = end, to = end;

	if (end - first < HR__CREW_MIN || end > m->len || !is_long(m, run_off, run_end))
		return;
	for (uint64_t at = hr__align_down(first, unit); at < end; at += unit) {
		bool wanted = unwanted(at, unit, run_off, run_end) <= EDGE_MAX;

		if (wanted && from == end)
			from = hr__max(at, first);
		if (!wanted && from < end) {
			to = at;
			break;
		}
	}
	if (from == end)
		return;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	from = hr__align_down(from, page);
	seg->keeper = m;
	seg->bring = m->base + from;
	seg->bring_len = (uint32_t)(hr__align_up(to, page) - from);
	seg->bringing = true;
}

void hr__bring(struct hr__seg *seg)
{
	if (!seg->bringing)
		return;
	seg->brought = !madvise(seg->bring, seg->bring_len, MADV_POPULATE_READ);
	seg->bringing = false;
}

void hr__bring_unmap(const struct hr__seg *seg)
{
	const struct hr__mapping *m = seg->keeper;
	uint64_t from = (uint64_t)((uint8_t *)seg->bring - m->base);
	uint64_t to = hr__min(from + seg->bring_len + FAULT_AROUND, m->len);

	from -= hr__min(from, FAULT_AROUND);
	madvise(m->base + from, to - from, MADV_DONTNEED);
}

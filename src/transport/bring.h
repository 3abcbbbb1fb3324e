/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/bring.h - cold bytes that shall stay in the page cache come in by large pages.
 *
 * Reads of a MiB each at many places at once leave pages of 4 KiB behind, since the kernel sees no
 * sequence in them: on G the next start copied 25 GB/s out of those and 52 out of pages of 2 MiB. A
 * mapping with MADV_HUGEPAGE makes the kernel (5.18, file systems with large folios) read the whole
 * large page around each one that is touched; MADV_POPULATE_READ touches without a fault and answers
 * with an error where that would be a SIGBUS. Elsewhere pages come as small as ever, and nothing is lost.
 */
#ifndef HR_TRANSPORT_BRING_H
#define HR_TRANSPORT_BRING_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/mapping.h"
#include "transport/transport.h"

/* hr__bring_open() - prepare a plain mapping for it, once. Return: false with a sentence: impossible. */
bool hr__bring_open(struct hr__mapping *m);

/*
 * hr__bring_aim() - set seg->bring to the pages of @seg that lie in large pages which somebody wants as
 * good as whole, in a run so long that what is read at its end for nobody does not count.
 * [run_off, run_end): wanted around @seg, see hr__plan_run().
 */
void hr__bring_aim(struct hr__seg *seg, struct hr__mapping *m, uint64_t run_off, uint64_t run_end);

/* hr__bring() - do it on this thread, which waits for the drive. A read says what went wrong. */
void hr__bring(struct hr__seg *seg);

/* hr__bring_done() - map them no longer: pages that are mapped cannot be dropped from the page cache. */
void hr__bring_unmap(const struct hr__seg *seg);
static inline void hr__bring_done(const struct hr__seg *seg)
{
	if (seg->bring_len && !seg->bringing)
		hr__bring_unmap(seg);
}

#endif

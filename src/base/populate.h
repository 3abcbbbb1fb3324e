/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/populate.h - pages for fresh memory, by several threads at once: the kernel clears a page before
 * it gives it out, which is most of the time that pinning memory takes.
 */
#ifndef HR_BASE_POPULATE_H
#define HR_BASE_POPULATE_H

#include <stddef.h>
#include <stdint.h>

/*
 * hr__populate() - have the kernel give [@ptr, +@len), page-aligned private memory, its pages now.
 * @threads: to be started for it at most, beside the caller's; they have ended when it returns. No more
 *           than pay, none for little memory.
 * @node:    of the device that the memory is for, -1: none; where the threads run.
 * Best effort: what gets no page here gets it when it is first touched (before Linux 5.14 all of it).
 */
void hr__populate(void *ptr, size_t len, uint32_t threads, int node);

#endif

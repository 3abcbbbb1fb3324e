/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/numa.h - keep memory and threads beside a device. Everything here is a wish: on a machine with
 * one node, or that tells nothing, nothing happens.
 */
#ifndef HR_BASE_NUMA_H
#define HR_BASE_NUMA_H

#include <stddef.h>

/* Node of a PCI function "0000:3b:00.0", or -1 when the machine has one node or does not say. */
int hr__numa_node_of_pci(const char *pci);

/* Prefer pages of @node for [@ptr, +@len), page-aligned and not touched yet. @node < 0: nothing. */
void hr__numa_prefer(void *ptr, size_t len, int node);

/*
 * Let the calling thread run on the processors of @node only, of those that it may use already. Where
 * these have none in common, or @node < 0, it stays as it is.
 * Return: 1 if it was restricted, 0 if not.
 */
int hr__numa_run_on(int node);

#endif

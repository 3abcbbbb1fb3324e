/* SPDX-License-Identifier: Apache-2.0 */
/* base/numa.c - reads the machine's nodes from sysfs; knows no device but its PCI address. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numa.h"
#include "base/sys.h"
#include "base/util.h"

#define NODES_MAX 1024

int hr__numa_node_of_pci(const char *pci)
{
	char path[96], text[16], *end;
	long node;

	if (!*pci || strchr(pci, '/'))
		return -1;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.20s/numa_node", pci);
	if (hr__read_text(path, text, sizeof(text)) <= 0)
		return -1;
	node = strtol(text, &end, 10);
	return *end || node < 0 || node >= NODES_MAX ? -1 : (int)node;
}

void hr__numa_prefer(void *ptr, size_t len, int node)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};

	if (node < 0 || node >= NODES_MAX)
		return;
	mask[(size_t)node / (8 * sizeof(*mask))] = 1ul << ((size_t)node % (8 * sizeof(*mask)));
	hr__sys->mbind(ptr, len, MPOL_PREFERRED, mask, NODES_MAX);
}

/* "0-3,8,10-11" as the kernel writes it. Return: 0 or -EINVAL. */
static int parse_cpulist(const char *text, cpu_set_t *out)
{
	CPU_ZERO(out);
	while (*text) {
		char *end;
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (end == text)
			return -EINVAL;
		if (*end == '-') {
			text = end + 1;
			last = strtoul(text, &end, 10);
			if (end == text)
				return -EINVAL;
		}
		if (last < first || last >= CPU_SETSIZE)
			return -EINVAL;
		for (; first <= last; first++)
			CPU_SET(first, out);
		if (*end && *end != ',')
			return -EINVAL;
		text = *end ? end + 1 : end;
	}
	return 0;
}

int hr__numa_run_on(int node)
{
	char path[64], text[1024];
	cpu_set_t wanted, mine;

	if (node < 0)
		return 0;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	if (hr__read_text(path, text, sizeof(text)) <= 0 || parse_cpulist(text, &wanted))
		return 0;
	if (sched_getaffinity(0, sizeof(mine), &mine))
		return 0;
	CPU_AND(&wanted, &wanted, &mine);
	if (!CPU_COUNT(&wanted) || CPU_EQUAL(&wanted, &mine))
		return 0;
	return sched_setaffinity(0, sizeof(wanted), &wanted) == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/peer.c - what the direct path to a GPU stands on: the kernel module, how much of the GPU's
 * memory its BAR shows, and the PCIe way from each NVMe drive.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/report.h"
#include "transport/p2p.h"

#define GROUP "gpu"
#define RESOURCES_MAX 6

void hr__check_peer_module(struct hr__report *r)
{
	if (hr__report_exists(r, "sys/module/headrace_peer"))
		hr__report_add(r, GROUP, "headrace_peer", HR_CHECK_OK, "", "loaded");
	else
		hr__report_add(r, GROUP, "headrace_peer", HR_CHECK_LIMITED,
			       "build it from kernel/ (make, or DKMS) and modprobe headrace_peer",
			       "not loaded: bytes go through the staging ring in host memory");
}

/* The largest memory BAR, of the lines "start end flags". */
static unsigned long long bar_bytes(const struct hr__report *r, const char *pci)
{
	unsigned long long start, end, flags, largest = 0;
	char text[2048], *line = text;

	if (hr__report_text(r, text, sizeof(text), "sys/bus/pci/devices/%s/resource", pci) <= 0)
		return 0;
	for (int i = 0; i < RESOURCES_MAX && line; i++) {
		if (sscanf(line, "%llx %llx %llx", &start, &end, &flags) == 3 && end > start &&
		    end - start + 1 > largest)
			largest = end - start + 1;
		line = strchr(line, '\n');
		line += line != NULL;
	}
	return largest;
}

static void check_bar(struct hr__report *r, const struct hr_device_info *info)
{
	unsigned long long bar = bar_bytes(r, info->pci);
	char name[64];

	snprintf(name, sizeof(name), "BAR of %.32s", info->name);
	if (!bar)
		return;
	if (bar >= info->memory_bytes)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "", "%llu MiB: all of its memory",
			       bar >> 20);
	else
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED,
			       "switch Resizable BAR on in the firmware's settings",
			       "%llu MiB of %llu MiB: drives reach no more", bar >> 20,
			       (unsigned long long)(info->memory_bytes >> 20));
}

static void check_pair(struct hr__report *r, const struct hr_device_info *info, const char *drive,
		       const char *pci)
{
	int distance, err = hr__p2p_distance(info->pci, pci, &distance);
	char name[64];

	if (err)
		return; /* the module is not there: said above */
	snprintf(name, sizeof(name), "%.24s -> %.24s", drive, info->name);
	if (distance < 0)
		hr__report_add(
			r, GROUP, name, HR_CHECK_NO,
			"put both below one PCIe switch, or use a processor whose root ports "
			"forward peer traffic",
			"the kernel knows no PCIe way between the two that works");
	else
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "",
			       "PCIe distance %d; a trial read proves it at first use", distance);
}

static void check_drives(struct hr__report *r, const struct hr_device_info *info)
{
	char path[PATH_MAX], pci[32];
	struct dirent **entries;
	int n;

	snprintf(path, sizeof(path), "%s/sys/class/nvme", r->root);
	n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *drive = entries[i]->d_name;

		if (drive[0] != '.' &&
		    hr__report_text(r, pci, sizeof(pci), "sys/class/nvme/%s/address", drive) > 0)
			check_pair(r, info, drive, pci);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

void hr__check_peer(struct hr__report *r, const struct hr_device_info *info)
{
	if (!info->pci[0])
		return;
	check_bar(r, info);
	check_drives(r, info);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/topology.c - GPUs, drives and network cards with their places on PCIe, as a text file.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cufile/inside.h"

#define DEVICES "/sys/bus/pci/devices"
#define NAME_MAX_BYTES 64

/* Base class and subclass of PCI. */
static const struct {
	unsigned int class;
	const char *name;
} kinds[] = {
	{0x0300, "gpu"}, {0x0302, "gpu"}, {0x0108, "nvme"},   {0x0100, "disk"},
	{0x0200, "nic"}, {0x0207, "nic"}, {0x0604, "bridge"},
};

/* A number in a file of sysfs, -1 if it cannot be read. */
static long read_number(const char *device, const char *file)
{
	char path[256], text[32];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), DEVICES "/%.*s/%s", NAME_MAX_BYTES, device, file);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fgets(text, sizeof(text), f))
		value = strtol(text, NULL, 0);
	fclose(f);
	return value;
}

static const char *kind_of(const char *device)
{
	long class = read_number(device, "class");

	for (size_t i = 0; class >= 0 && i < CF_ARRAY_LEN(kinds); i++) {
		if (kinds[i].class == (unsigned long)class >> 8)
			return kinds[i].name;
	}
	return NULL;
}

/* The way from the root to the device: "pci0000:00/0000:00:01.0/0000:01:00.0". */
static void print_device(FILE *out, const char *device, const char *kind)
{
	char path[256], link[512], *way;
	ssize_t n;

	snprintf(path, sizeof(path), DEVICES "/%.*s", NAME_MAX_BYTES, device);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return;
	link[n] = '\0';
	way = strstr(link, "pci");
	fprintf(out, "%-6s %s numa=%ld lanes=%ld path=%s\n", kind, device,
		read_number(device, "numa_node"), read_number(device, "current_link_width"),
		way ? way : device);
}

static void print_all(FILE *out)
{
	struct dirent **names;
	int n = scandir(DEVICES, &names, NULL, alphasort);

	fprintf(out, "# cuFile PCIe topology file\n");
	for (int i = 0; i < n; i++) {
		const char *kind = names[i]->d_name[0] == '.' ? NULL : kind_of(names[i]->d_name);

		if (kind)
			print_device(out, names[i]->d_name, kind);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

CF_EXPORT CUfileError_t cuFileExportPCIeTopology(const char *filename)
{
	FILE *out;
	bool bad;

	if (!filename || !*filename)
		return cf_result(CU_FILE_INVALID_VALUE);
	out = fopen(filename, "we");
	if (!out)
		return cf_result(CU_FILE_INVALID_VALUE);
	print_all(out);
	bad = ferror(out) != 0;
	bad |= fclose(out) != 0;
	return cf_result(bad ? CU_FILE_IO_ERROR : CU_FILE_SUCCESS);
}

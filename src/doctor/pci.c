/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/pci.c - PCI functions as sysfs has them: where in the tree, how wide the link, which IOMMU. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

#define DEVICES "sys/bus/pci/devices"
#define RESOURCES_MAX 6
/* 128 of 130 bits, and 24 bytes of head for each 256 of payload. */
#define PAYLOAD (128.0 / 130 * 256 / 280)

static bool is_address(const char *text)
{
	unsigned int domain, bus, slot, function;
	int end = 0;

	return sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 &&
	       (!text[end] || text[end] == '/');
}

bool hr__pci_of_path(const char *path, char *address, size_t size)
{
	bool found = false;

	for (const char *part = strchr(path, '/'); part; part = strchr(part + 1, '/')) {
		if (!is_address(part + 1))
			continue;
		snprintf(address, size, "%.*s", (int)strcspn(part + 1, "/"), part + 1);
		found = true;
	}
	return found;
}

/* The folders of a resolved path that are root complex, ports and the function itself. */
static void read_chain(const char *path, struct hr__pci *out)
{
	for (const char *part = strchr(path, '/'); part; part = strchr(part + 1, '/')) {
		int len = (int)strcspn(part + 1, "/");

		if (!strncmp(part + 1, "pci", 3) && strchr(part + 1, ':') && !out->depth)
			snprintf(out->host, sizeof(out->host), "%.*s", len, part + 1);
		else if (is_address(part + 1) && out->depth < HR__CHAIN_MAX)
			snprintf(out->chain[out->depth++], sizeof(out->chain[0]), "%.*s", len,
				 part + 1);
	}
}

static void read_link(const struct hr__report *r, struct hr__pci *out)
{
	char speed[32], text[16];
	double rate, code;
	long width;

	/* An idle link may run slower than it will: what it can do is what is asked for. */
	if (hr__report_text(r, speed, sizeof(speed), DEVICES "/%s/max_link_speed", out->address) <=
		    0 ||
	    hr__report_text(r, text, sizeof(text), DEVICES "/%s/current_link_width",
			    out->address) <= 0)
		return;
	rate = strtod(speed, NULL);
	width = strtol(text, NULL, 10);
	if (!(rate > 0 && rate <= 256) || width <= 0 || width > 32)
		return;
	code = rate < 8 ? 0.8 * 256 / 280 : PAYLOAD;
	out->link = rate * 1e9 * (double)width / 8 * code;
	snprintf(out->link_text, sizeof(out->link_text), "%.1f GT/s x%ld", rate, width);
}

static void read_iommu(const struct hr__report *r, struct hr__pci *out)
{
	hr__report_text(r, out->iommu, sizeof(out->iommu), DEVICES "/%s/iommu_group/type",
			out->address);
}

void hr__pci_read(const struct hr__report *r, const char *address, struct hr__pci *out)
{
	char link[PATH_MAX], path[PATH_MAX], text[16];

	memset(out, 0, sizeof(*out));
	out->numa = -1;
	if (!is_address(address))
		return;
	snprintf(out->address, sizeof(out->address), "%.15s", address);
	for (char *c = out->address; *c; c++)
		*c = (char)(*c >= 'A' && *c <= 'F' ? *c | 0x20 : *c);
	snprintf(link, sizeof(link), "%s/" DEVICES "/%s", r->root, out->address);
	if (!realpath(link, path))
		return;
	read_chain(path + strlen(r->root), out);
	if (hr__report_text(r, text, sizeof(text), DEVICES "/%s/numa_node", out->address) > 0)
		out->numa = (int)strtol(text, NULL, 10);
	read_link(r, out);
	read_iommu(r, out);
}

enum hr__near hr__pci_near(const struct hr__pci *a, const struct hr__pci *b)
{
	if (!a->depth || !b->depth)
		return HR__NEAR_UNKNOWN;
	if (strcmp(a->host, b->host) != 0)
		return a->numa >= 0 && a->numa == b->numa ? HR__NEAR_SOCKET : HR__NEAR_SOCKETS;
	/* A common port is a bridge only if both are below it, which a function is not of itself. */
	if (a->depth > 1 && b->depth > 1 && !strcmp(a->chain[0], b->chain[0]))
		return HR__NEAR_SWITCH;
	return HR__NEAR_BRIDGE;
}

const char *hr__pci_near_name(enum hr__near near)
{
	static const char *const names[] = {"unknown", "switch", "bridge", "socket", "sockets"};

	return names[near];
}

/* Of the lines "start end flags". */
uint64_t hr__pci_bar(const struct hr__report *r, const char *address)
{
	unsigned long long start, end, flags, largest = 0;
	char text[2048], *line = text;

	if (hr__report_text(r, text, sizeof(text), DEVICES "/%s/resource", address) <= 0)
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

uint32_t hr__pci_id(const struct hr__report *r, const char *address, const char *file)
{
	char text[32];

	if (hr__report_text(r, text, sizeof(text), DEVICES "/%s/%s", address, file) <= 0)
		return 0;
	return (uint32_t)strtoul(text, NULL, 16);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/machine.c - kernel, host and GPUs of a machine; with drive.c all facts. Judges nothing. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "doctor/machine.h"

#define VENDOR_NVIDIA 0x10deu
#define VENDOR_AMD 0x1002u
#define CLASS_DISPLAY 0x03u
#define CLASS_ACCELERATOR 0x12u
#define AMD_ZEN_FAMILY 23

/* -- the kernel ------------------------------------------------------------------------------- */

/* One line of a kernel configuration: 1 set, 0 not set, -1 no such file. */
static int config_has(const struct hr__report *r, const char *path, const char *line)
{
	char full[PATH_MAX], text[256];
	size_t len = strlen(line);
	int found = 0;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", r->root, path);
	f = fopen(full, "re");
	if (!f)
		return -1;
	while (!found && fgets(text, sizeof(text), f))
		found = !strncmp(text, line, len) && (text[len] == '\n' || !text[len]);
	fclose(f);
	return found;
}

/* Symbols of the running kernel and its modules tell what was built in; hidden lists tell nothing. */
static void read_symbols(const struct hr__report *r, struct hr__machine *m)
{
	const struct {
		const char *name;
		int *found;
	} wanted[] = {
		{"pci_p2pdma_add_resource", &m->p2pdma},
		{"nvme_v1_register_nvfs_dma_ops", &m->nvfs_hooks[1]},
		{"nvme_v2_register_nvfs_dma_ops", &m->nvfs_hooks[2]},
		{"blk_rq_dma_map_iter_start", &m->dma_iter},
	};
	char path[PATH_MAX], text[512];
	bool any = false;
	FILE *f;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		*wanted[i].found = -1;
	snprintf(path, sizeof(path), "%s/proc/kallsyms", r->root);
	f = fopen(path, "re");
	while (f && fgets(text, sizeof(text), f)) {
		char *name = strchr(text, ' ');

		name = name ? strchr(name + 1, ' ') : NULL;
		if (!name)
			continue;
		name++;
		name[strcspn(name, "\t \n")] = '\0';
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
			if (!any)
				*wanted[i].found = 0;
			if (!strcmp(name, wanted[i].name))
				*wanted[i].found = 1;
		}
		any = true;
	}
	if (f)
		fclose(f);
}

static void read_kernel(const struct hr__report *r, struct hr__machine *m)
{
	char path[256];
	int has;

	hr__report_text(r, m->release, sizeof(m->release), "proc/sys/kernel/osrelease");
	if (sscanf(m->release, "%u.%u", &m->major, &m->minor) != 2)
		m->major = m->minor = 0;
	read_symbols(r, m);
	/* The configuration of this very kernel wins over its symbols. */
	snprintf(path, sizeof(path), "boot/config-%.120s", m->release);
	has = config_has(r, path, "CONFIG_PCI_P2PDMA=y");
	if (has < 0) {
		snprintf(path, sizeof(path), "lib/modules/%.120s/config", m->release);
		has = config_has(r, path, "CONFIG_PCI_P2PDMA=y");
	}
	if (has >= 0)
		m->p2pdma = has;
}

/* -- what it runs on -------------------------------------------------------------------------- */

static void read_processor(const struct hr__report *r, struct hr__machine *m)
{
	char text[4096];
	const char *line;
	bool amd;

	if (hr__report_text(r, text, sizeof(text), "proc/cpuinfo") <= 0)
		return;
	amd = strstr(text, "AuthenticAMD") || strstr(text, "HygonGenuine");
	line = strstr(text, "cpu family");
	line = line ? strchr(line, ':') : NULL;
	m->zen = amd && line && strtol(line + 1, NULL, 10) >= AMD_ZEN_FAMILY;
	if (strstr(text, " hypervisor"))
		m->kind = HR__HOST_VM;
}

static void read_host(const struct hr__report *r, struct hr__machine *m)
{
	char cgroup[4096], name[64];
	struct hr__place top;

	read_processor(r, m);
	if (hr__report_text(r, name, sizeof(name), "sys/class/dmi/id/sys_vendor") > 0)
		snprintf(m->vendor, sizeof(m->vendor), "%.47s", name);
	if (strcasestr(m->release, "microsoft"))
		m->kind = HR__HOST_WSL;
	if (hr__report_exists(r, ".dockerenv"))
		snprintf(m->container, sizeof(m->container), "Docker (/.dockerenv)");
	else if (hr__report_exists(r, "run/.containerenv"))
		snprintf(m->container, sizeof(m->container), "Podman (/run/.containerenv)");
	else if (hr__report_text(r, cgroup, sizeof(cgroup), "proc/self/cgroup") > 0 &&
		 strstr(cgroup, "kubepods"))
		snprintf(m->container, sizeof(m->container), "Kubernetes (kubepods)");
	else if (!hr__place_find(r, "/", &top) && !strcmp(top.fs, "overlay"))
		snprintf(m->container, sizeof(m->container), "by its overlayfs root");
}

static void read_iommu(const struct hr__report *r, struct hr__machine *m)
{
	char path[PATH_MAX], type[32];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/kernel/iommu_groups", r->root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		m->iommu = true;
		if (hr__report_text(r, type, sizeof(type), "sys/kernel/iommu_groups/%.16s/type",
				    entry->d_name) > 0 &&
		    !strncmp(type, "DMA", 3))
			m->iommu_translates = true;
	}
	if (dir)
		closedir(dir);
}

/* -- GPUs ------------------------------------------------------------------------------------- */

/* The driver that holds a function: the last part of a link. */
static void read_driver(const struct hr__report *r, struct hr__gpu *g)
{
	char link[PATH_MAX], path[PATH_MAX];

	snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s/driver", r->root, g->pci.address);
	if (realpath(link, path))
		snprintf(g->driver, sizeof(g->driver), "%.23s", strrchr(path, '/') + 1);
}

/* NVIDIA's driver names its GPUs: "Model: \t\t NVIDIA H200". */
static void read_model(const struct hr__report *r, struct hr__gpu *g)
{
	char text[1024];
	const char *at;

	if (hr__report_text(r, text, sizeof(text), "proc/driver/nvidia/gpus/%s/information",
			    g->pci.address) <= 0)
		return;
	at = strstr(text, "Model:");
	if (!at)
		return;
	at += 6;
	at += strspn(at, " \t");
	snprintf(g->model, sizeof(g->model), "%.*s", (int)strcspn(at, "\n"), at);
}

static struct hr__gpu *add_gpu(const struct hr__report *r, struct hr__machine *m,
			       const char *address)
{
	struct hr__gpu *g;

	for (uint32_t i = 0; i < m->n_gpus; i++) {
		if (address[0] && !strcasecmp(m->gpus[i].pci.address, address))
			return &m->gpus[i];
	}
	if (m->n_gpus == HR__GPUS_MAX)
		return NULL;
	g = &m->gpus[m->n_gpus++];
	memset(g, 0, sizeof(*g));
	hr__pci_read(r, address, &g->pci);
	memcpy(g->name, g->pci.address, sizeof(g->pci.address));
	g->bar_bytes = hr__pci_bar(r, g->pci.address);
	g->amd = hr__pci_id(r, g->pci.address, "vendor") == VENDOR_AMD;
	read_driver(r, g);
	read_model(r, g);
	return g;
}

/* Display controllers of a processor are no GPUs in this sense: AMD's show a screen and no memory. */
static bool is_gpu(const struct hr__report *r, const char *address)
{
	uint32_t vendor = hr__pci_id(r, address, "vendor");
	uint32_t class = hr__pci_id(r, address, "class");

	if (vendor == VENDOR_NVIDIA)
		return class >> 16 == CLASS_DISPLAY;
	return vendor == VENDOR_AMD &&
	       (class >> 16 == CLASS_ACCELERATOR || class >> 8 == 0x0302 || class >> 8 == 0x0380);
}

static void read_gpus(const struct hr__report *r, struct hr__machine *m)
{
	char path[PATH_MAX];
	struct dirent **entries;
	int n;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", r->root);
	n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char address[16];

		snprintf(address, sizeof(address), "%.15s", entries[i]->d_name);
		if (address[0] != '.' && is_gpu(r, address))
			add_gpu(r, m, address);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

/* A device that opens has a name, and knows its memory. Return: false when there is none. */
static bool name_gpu(const struct hr__report *r, struct hr__machine *m, const char *name)
{
	struct hr_device_info info;
	struct hr_device *dev;
	struct hr__gpu *g;

	if (hr_device_open(name, &dev))
		return false;
	hr_device_info(dev, &info);
	hr_device_close(dev);
	if (info.kind == HR_DEVICE_HOST)
		return false;
	g = add_gpu(r, m, info.pci);
	if (!g)
		return false;
	snprintf(g->name, sizeof(g->name), "%s", info.name);
	snprintf(g->model, sizeof(g->model), "%.63s", info.model);
	g->memory_bytes = info.memory_bytes;
	return true;
}

/* --device leaves one of them, "host" none. */
static void keep_one(struct hr__machine *m, const char *name)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < m->n_gpus; i++) {
		if (!strcmp(m->gpus[i].name, name))
			m->gpus[kept++] = m->gpus[i];
	}
	m->n_gpus = kept;
}

void hr__machine_read(const struct hr__report *r, const struct hr_check_options *opts,
		      struct hr__machine *m)
{
	char name[32];

	memset(m, 0, sizeof(*m));
	read_kernel(r, m);
	read_host(r, m);
	read_iommu(r, m);
	read_gpus(r, m);
	hr__drives_read(r, m);
	if (hr__report_live(r) && opts->device) {
		name_gpu(r, m, opts->device);
	} else if (hr__report_live(r)) {
		for (uint32_t n = 0; n < HR__GPUS_MAX; n++) {
			snprintf(name, sizeof(name), "cuda:%u", n);
			if (!name_gpu(r, m, name))
				break;
		}
	}
	if (opts->device)
		keep_one(m, opts->device);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/drive.c - block devices as sysfs has them: kind, place on PCIe, members of what is composed. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

#define BLOCK "sys/class/block"

void hr__drive_whole(const struct hr__report *r, const char *name, char *out, size_t size)
{
	char link[PATH_MAX], path[PATH_MAX], *slash;

	snprintf(out, size, "%.31s", name);
	snprintf(link, sizeof(link), "%s/" BLOCK "/%.64s/partition", r->root, name);
	if (!realpath(link, path))
		return;
	/* .../block/nvme0n1/nvme0n1p2/partition */
	for (int up = 0; up < 2; up++) {
		slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
	slash = strrchr(path, '/');
	if (slash)
		snprintf(out, size, "%.31s", slash + 1);
}

/* The word in brackets of queue/scheduler: "[none] mq-deadline". */
static void read_scheduler(const struct hr__report *r, struct hr__drive *d)
{
	char text[256];
	const char *open;

	snprintf(d->scheduler, sizeof(d->scheduler), "unknown");
	if (hr__report_text(r, text, sizeof(text), BLOCK "/%s/queue/scheduler", d->name) <= 0)
		return;
	open = strchr(text, '[');
	if (open)
		snprintf(d->scheduler, sizeof(d->scheduler), "%.*s", (int)strcspn(open + 1, "]"),
			 open + 1);
}

static void add_member(const struct hr__report *r, struct hr__drive *d, const char *name)
{
	if (name[0] == '.' || d->n_members == HR__MEMBERS_MAX)
		return;
	hr__drive_whole(r, name, d->members[d->n_members], sizeof(d->members[0]));
	d->n_members++;
}

/* Devices below one that is composed: md and dm name them in a folder. */
static void read_slaves(const struct hr__report *r, struct hr__drive *d)
{
	char path[PATH_MAX];
	struct dirent **entries;
	int n;

	snprintf(path, sizeof(path), "%s/" BLOCK "/%s/slaves", r->root, d->name);
	n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		add_member(r, d, entries[i]->d_name);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

/* A dm device says in its uuid who made it: "CRYPT-LUKS2-...", "LVM-...", "mpath-...". */
static void read_dm(const struct hr__report *r, struct hr__drive *d)
{
	char uuid[160];

	d->kind = HR__DRIVE_DM;
	hr__report_text(r, uuid, sizeof(uuid), BLOCK "/%s/dm/uuid", d->name);
	snprintf(d->detail, sizeof(d->detail), "%.*s", (int)strcspn(uuid, "-"), uuid);
	read_slaves(r, d);
}

static void read_md(const struct hr__report *r, struct hr__drive *d)
{
	d->kind = HR__DRIVE_MD;
	hr__report_text(r, d->detail, sizeof(d->detail), BLOCK "/%s/md/level", d->name);
	read_slaves(r, d);
}

static void read_nvme(const struct hr__report *r, const char *path, struct hr__drive *d)
{
	char transport[32], address[16];

	d->kind = HR__DRIVE_NVME;
	hr__report_text(r, transport, sizeof(transport), BLOCK "/%s/device/transport", d->name);
	/* Below its controller it is a drive; below its subsystem it stands for several of them. */
	if (hr__pci_of_path(path, address, sizeof(address))) {
		hr__pci_read(r, address, &d->pci);
	} else if (transport[0] && strcmp(transport, "pcie") != 0) {
		d->kind = HR__DRIVE_FABRIC;
		snprintf(d->detail, sizeof(d->detail), "%.31s", transport);
	} else if (strstr(path, "/nvme-subsys")) {
		d->kind = HR__DRIVE_MULTIPATH;
	} else if (strstr(path, "/nvme-fabrics/")) {
		d->kind = HR__DRIVE_FABRIC;
		snprintf(d->detail, sizeof(d->detail), "fabrics");
	}
}

static void read_kind(const struct hr__report *r, const char *path, struct hr__drive *d)
{
	char address[16];

	if (!strncmp(d->name, "nvme", 4)) {
		read_nvme(r, path, d);
		return;
	}
	if (!strncmp(d->name, "md", 2))
		read_md(r, d);
	else if (!strncmp(d->name, "dm-", 3))
		read_dm(r, d);
	else if (!strncmp(d->name, "vd", 2) || strstr(path, "/virtio"))
		d->kind = HR__DRIVE_VIRTIO;
	else if (!strncmp(d->name, "sd", 2))
		d->kind = HR__DRIVE_SCSI;
	else if (!strncmp(d->name, "loop", 4))
		d->kind = HR__DRIVE_LOOP;
	if (d->kind == HR__DRIVE_VIRTIO || d->kind == HR__DRIVE_SCSI)
		if (hr__pci_of_path(path, address, sizeof(address)))
			hr__pci_read(r, address, &d->pci);
}

/* A head of NVMe paths may lead to controllers of this machine or to a fabric: its paths tell. */
static void read_head(const struct hr__report *r, struct hr__drive *d)
{
	char ctrl[32], transport[32], dir[PATH_MAX];
	unsigned int subsystem = 0, space = 0;
	struct dirent **entries;
	int n;

	if (d->kind != HR__DRIVE_MULTIPATH || sscanf(d->name, "nvme%un%u", &subsystem, &space) != 2)
		return;
	snprintf(dir, sizeof(dir), "%s/sys/class/nvme-subsystem/nvme-subsys%u", r->root, subsystem);
	n = scandir(dir, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		snprintf(ctrl, sizeof(ctrl), "%.31s", entries[i]->d_name);
		free(entries[i]);
		if (strncmp(ctrl, "nvme", 4) != 0 || strchr(ctrl + 4, 'n') || strchr(ctrl, '-'))
			continue;
		hr__report_text(r, transport, sizeof(transport), "sys/class/nvme/%s/transport",
				ctrl);
		if (transport[0] && strcmp(transport, "pcie") != 0) {
			d->kind = HR__DRIVE_FABRIC;
			snprintf(d->detail, sizeof(d->detail), "%.31s", transport);
		}
	}
	if (n >= 0)
		free(entries);
}

static bool is_wanted(const struct hr__report *r, const char *name)
{
	char text[16];

	if (name[0] == '.' || !strncmp(name, "ram", 3) || !strncmp(name, "zram", 4) ||
	    !strncmp(name, "sr", 2) || !strncmp(name, "fd", 2))
		return false;
	/* The single paths of a multipath head, "nvme0c1n1", are hidden: nothing is mounted from them. */
	if (!strncmp(name, "nvme", 4) && strchr(name + 4, 'c'))
		return false;
	if (hr__report_text(r, text, sizeof(text), BLOCK "/%s/partition", name) > 0)
		return false;
	/* Unused loop devices are many and say nothing. */
	return strncmp(name, "loop", 4) != 0 ||
	       hr__report_text(r, text, sizeof(text), BLOCK "/%s/loop/backing_file", name) > 0;
}

static void read_drive(const struct hr__report *r, const char *name, struct hr__drive *d)
{
	char link[PATH_MAX], path[PATH_MAX], text[32];

	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%.31s", name);
	d->pci.numa = -1;
	snprintf(link, sizeof(link), "%s/" BLOCK "/%s", r->root, d->name);
	if (!realpath(link, path))
		snprintf(path, sizeof(path), "%s", link);
	read_kind(r, path + strlen(r->root), d);
	read_head(r, d);
	read_scheduler(r, d);
	hr__report_text(r, d->model, sizeof(d->model), BLOCK "/%s/device/model", d->name);
	for (size_t n = strlen(d->model); n && d->model[n - 1] == ' '; n--)
		d->model[n - 1] = '\0';
	if (hr__report_text(r, text, sizeof(text), BLOCK "/%s/queue/logical_block_size", d->name) >
	    0)
		d->block_bytes = (uint32_t)strtoul(text, NULL, 10);
}

/* A whole drive in an array has no partition of its own that a file could lie on. */
static void mark_members(const struct hr__report *r, struct hr__machine *m)
{
	char path[PATH_MAX];

	for (uint32_t i = 0; i < m->n_drives; i++) {
		for (uint32_t k = 0; k < m->n_drives && m->drives[i].kind == HR__DRIVE_MD; k++) {
			snprintf(path, sizeof(path), BLOCK "/%s/slaves/%s", m->drives[i].name,
				 m->drives[k].name);
			m->drives[k].in_array |= hr__report_exists(r, path);
		}
	}
}

void hr__drives_read(const struct hr__report *r, struct hr__machine *m)
{
	char path[PATH_MAX];
	struct dirent **entries;
	int n;

	snprintf(path, sizeof(path), "%s/" BLOCK, r->root);
	n = scandir(path, &entries, NULL, versionsort);
	for (int i = 0; i < n; i++) {
		if (m->n_drives < HR__DRIVES_MAX && is_wanted(r, entries[i]->d_name))
			read_drive(r, entries[i]->d_name, &m->drives[m->n_drives++]);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	mark_members(r, m);
}

const struct hr__drive *hr__drive_find(const struct hr__machine *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_drives; i++) {
		if (!strcmp(m->drives[i].name, name))
			return &m->drives[i];
	}
	return NULL;
}

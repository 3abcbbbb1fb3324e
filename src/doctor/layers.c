/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/layers.c - the way down from a file: file system, partition, array or mapping, drives; and on
 * which drive the bytes of an extent are.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "doctor/explain.h"
#include "doctor/machine.h"

#define BLOCK "sys/class/block"
#define SECTOR 512u

static struct hr_layer *add(struct hr_explanation *e, const char *name, const char *what, ...)
	__attribute__((format(printf, 3, 4)));

static struct hr_layer *add(struct hr_explanation *e, const char *name, const char *what, ...)
{
	/* Too many layers: the last line is the last one told. */
	struct hr_layer *l =
		&e->layers[e->n_layers < HR_ARRAY_LEN(e->layers) ? e->n_layers++
								 : HR_ARRAY_LEN(e->layers) - 1];
	va_list args;

	snprintf(l->name, sizeof(l->name), "%.31s", name);
	va_start(args, what);
	vsnprintf(l->what, sizeof(l->what), what, args);
	va_end(args);
	return l;
}

static uint64_t number_of(const struct hr__report *r, const char *device, const char *file)
{
	char text[32];

	if (hr__report_text(r, text, sizeof(text), BLOCK "/%s/%s", device, file) <= 0)
		return 0;
	return strtoull(text, NULL, 10);
}

static void add_drive(struct hr_explanation *e, const struct hr__drive *d)
{
	static const char *const kinds[] = {
		[HR__DRIVE_OTHER] = "block device",
		[HR__DRIVE_NVME] = "NVMe drive",
		[HR__DRIVE_FABRIC] = "NVMe over fabrics",
		[HR__DRIVE_MULTIPATH] = "NVMe multipath head",
		[HR__DRIVE_VIRTIO] = "virtio drive",
		[HR__DRIVE_SCSI] = "SATA or SAS drive",
		[HR__DRIVE_MD] = "md",
		[HR__DRIVE_DM] = "device mapper",
		[HR__DRIVE_LOOP] = "loop device",
	};
	const char *more = d->pci.address[0] ? d->pci.address : d->detail;

	add(e, d->name, "%s%s%s", kinds[d->kind], more[0] ? " " : "", more);
}

/* Members of what is composed, whose own members would be below them. */
static void add_members(struct hr_explanation *e, const struct hr__machine *m,
			const struct hr__drive *d)
{
	for (uint32_t i = 0; i < d->n_members; i++) {
		const struct hr__drive *member = hr__drive_find(m, d->members[i]);

		if (member)
			add_drive(e, member);
	}
}

/* How the bytes of the file system's device are spread over drives. */
struct spread {
	char drive[32];                /* of one drive; "" with several, or where nobody can tell */
	uint64_t start;                /* of the partition on it, bytes */
	const struct hr__drive *array; /* or raid0 */
	uint64_t chunk;
	uint64_t starts[HR__MEMBERS_MAX]; /* of the data on each member */
};

/* Members of one size only: of unequal ones the tail has another layout, and nobody is told. */
static void read_array(const struct hr__report *r, const struct hr__drive *d, struct spread *s)
{
	char path[64];
	uint64_t size = 0;

	if (d->kind != HR__DRIVE_MD || strcmp(d->detail, "raid0") != 0 || !d->n_members)
		return;
	for (uint32_t i = 0; i < d->n_members; i++) {
		uint64_t mine = number_of(r, d->members[i], "size");

		if (i && mine != size)
			return;
		size = mine;
		snprintf(path, sizeof(path), "md/rd%u/offset", i);
		s->starts[i] = number_of(r, d->name, path) * SECTOR;
	}
	s->chunk = number_of(r, d->name, "md/chunk_size");
	if (s->chunk)
		s->array = d;
}

/* The member whose place in the array is @slot: "md/rd3" leads to it. */
static void member_at(const struct hr__report *r, const struct hr__drive *d, uint64_t slot,
		      char *out, size_t size)
{
	char link[PATH_MAX], path[PATH_MAX], *name;

	out[0] = '\0';
	snprintf(link, sizeof(link), "%s/" BLOCK "/%s/md/rd%u/block", r->root, d->name,
		 (unsigned int)slot);
	if (!realpath(link, path))
		return;
	name = strrchr(path, '/') + 1;
	hr__drive_whole(r, name, out, size);
}

static void place(const struct hr__report *r, const struct spread *s, const struct hr_extent *x,
		  struct hr_block_place *out)
{
	uint64_t chunk, slot;

	if (x->flags & (HR_EXTENT_HOLE | HR_EXTENT_INLINE | HR_EXTENT_UNKNOWN))
		return;
	if (s->drive[0]) {
		snprintf(out->drive, sizeof(out->drive), "%s", s->drive);
		out->lba = (x->device_offset + s->start) / SECTOR;
	} else if (s->array) {
		chunk = x->device_offset / s->chunk;
		slot = chunk % s->array->n_members;
		member_at(r, s->array, slot, out->drive, sizeof(out->drive));
		out->lba = (chunk / s->array->n_members * s->chunk + x->device_offset % s->chunk +
			    s->starts[slot]) /
			   SECTOR;
	}
}

static void follow(const struct hr__report *r, const struct hr__machine *m,
		   struct hr_explanation *e)
{
	struct spread spread = {.chunk = 0};
	char whole[32];
	const struct hr__drive *d;
	const char *device = e->file.block_device;

	if (!device[0])
		return;
	hr__drive_whole(r, device, whole, sizeof(whole));
	if (strcmp(whole, device) != 0) {
		spread.start = number_of(r, device, "start") * SECTOR;
		add(e, device, "partition")->from_bytes = spread.start;
	}
	d = hr__drive_find(m, whole);
	if (!d)
		return;
	add_drive(e, d);
	add_members(e, m, d);
	if (d->kind == HR__DRIVE_MD)
		read_array(r, d, &spread);
	else if (d->kind != HR__DRIVE_DM && d->kind != HR__DRIVE_LOOP)
		snprintf(spread.drive, sizeof(spread.drive), "%s", whole);
	for (uint32_t i = 0; i < e->n_extents; i++)
		place(r, &spread, &e->extents[i], &e->places[i]);
}

void hr__explain_layers(struct hr_file *file, struct hr_explanation *out)
{
	struct hr__report r = {.root = ""};
	struct hr__machine *m = calloc(1, sizeof(*m));
	char full[PATH_MAX];
	struct hr__place on;

	if (!m)
		return; /* the way down stays untold */
	if (!out->file.is_block_device && realpath(hr_file_path(file), full) &&
	    !hr__place_find(&r, full, &on))
		add(out, out->file.fs_name, "file system, mounted at %.40s", on.point);
	else
		add(out, out->file.fs_name, "file system");
	hr__drives_read(&r, m);
	follow(&r, m, out);
	free(m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/storage.c - the drives of the machine, and each of them with each GPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

#define GROUP "storage"

static void check_nvme(struct hr__report *r, const struct hr__drive *d)
{
	bool none = !strcmp(d->scheduler, "none") || !strcmp(d->scheduler, "unknown");

	hr__report_add(r, GROUP, d->name, none ? HR_CHECK_OK : HR_CHECK_LIMITED,
		       none ? "" : "set queue/scheduler to none",
		       "NVMe %.48s%s%s, blocks of %u bytes, scheduler %s", d->model,
		       d->pci.link_text[0] ? ", " : "", d->pci.link_text, d->block_bytes,
		       d->scheduler);
}

static void check_composed(struct hr__report *r, const struct hr__drive *d)
{
	char members[128] = "";

	for (uint32_t i = 0; i < d->n_members && strlen(members) < 100; i++)
		snprintf(members + strlen(members), sizeof(members) - strlen(members), "%s%.24s",
			 i ? ", " : "", d->members[i]);
	if (d->kind == HR__DRIVE_MD && !strcmp(d->detail, "raid0"))
		hr__report_add(r, GROUP, d->name, HR_CHECK_OK, "", "md raid0 of %s", members);
	else if (d->kind == HR__DRIVE_MD)
		hr__report_add(r, GROUP, d->name, HR_CHECK_LIMITED,
			       "for the direct path use md raid0 or a single drive", "md %s of %s",
			       d->detail, members);
	else
		hr__report_add(r, GROUP, d->name, HR_CHECK_LIMITED,
			       "for the direct path put data on a partition or md raid0",
			       "device mapper (%s) on %s", d->detail[0] ? d->detail : "?", members);
}

static void check_drive(struct hr__report *r, const struct hr__drive *d)
{
	static const char *const only_nvme =
		"peer transfers to a GPU need an NVMe drive of this machine";

	if (d->kind == HR__DRIVE_NVME)
		check_nvme(r, d);
	else if (d->kind == HR__DRIVE_MD || d->kind == HR__DRIVE_DM)
		check_composed(r, d);
	else if (d->kind == HR__DRIVE_MULTIPATH)
		hr__report_add(r, GROUP, d->name, HR_CHECK_LIMITED,
			       "for the direct path boot with nvme_core.multipath=N",
			       "NVMe %.48s, head of a multipath: no PCI function of its own",
			       d->model);
	else if (d->kind == HR__DRIVE_FABRIC)
		hr__report_add(r, GROUP, d->name, HR_CHECK_LIMITED, only_nvme,
			       "NVMe over %s: a drive of another machine", d->detail);
	else
		hr__report_add(r, GROUP, d->name, HR_CHECK_LIMITED, only_nvme,
			       "%s, blocks of %u bytes, scheduler %s",
			       d->kind == HR__DRIVE_VIRTIO ? "virtio: a drive of the host"
			       : d->kind == HR__DRIVE_LOOP ? "loop device on a file"
							   : "not NVMe",
			       d->block_bytes, d->scheduler);
}

void hr__check_storage(struct hr__report *r, const struct hr__machine *m)
{
	char text[16];

	for (uint32_t i = 0; i < m->n_drives; i++)
		check_drive(r, &m->drives[i]);
	if (!m->n_drives)
		hr__report_add(r, GROUP, "drives", HR_CHECK_LIMITED, "mount /sys",
			       "none is visible (sys/class/block)");
	if (hr__report_text(r, text, sizeof(text), "sys/module/nvme_core/parameters/multipath") >
		    0 &&
	    (text[0] == 'Y' || text[0] == '1'))
		hr__report_add(
			r, GROUP, "NVMe multipath", HR_CHECK_LIMITED,
			"nvme_core.multipath=N, if a drive has a head or cuFile's P2PDMA mode is "
			"wanted",
			"on: drives with several ports get a head, which takes no peer memory");
}

/* Drives that data lies on. */
static bool is_pairable(const struct hr__drive *d)
{
	return d->kind != HR__DRIVE_LOOP && d->kind != HR__DRIVE_OTHER && !d->in_array;
}

void hr__check_pairs(struct hr__report *r, const struct hr__machine *m)
{
	uint32_t columns = m->n_gpus ? m->n_gpus : 1;

	r->pairs = calloc((size_t)m->n_drives * columns + 1, sizeof(*r->pairs));
	if (!r->pairs) {
		r->error = -ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < m->n_drives; i++) {
		const struct hr__drive *d = &m->drives[i];

		for (uint32_t k = 0; k < columns && is_pairable(d); k++) {
			const struct hr__gpu *gpu = m->n_gpus ? &m->gpus[k] : NULL;

			hr__pair_judge(r, m, d, gpu, &r->pairs[r->n_pairs]);
			hr__rate_expect(m, d, gpu, &r->pairs[r->n_pairs++]);
		}
	}
}

struct hr_check_pair *hr__report_pair(const struct hr__report *r, const char *drive,
				      const char *gpu)
{
	for (uint32_t i = 0; i < r->n_pairs; i++) {
		if (!strcmp(r->pairs[i].drive, drive) && !strcmp(r->pairs[i].gpu, gpu))
			return &r->pairs[i];
	}
	return NULL;
}

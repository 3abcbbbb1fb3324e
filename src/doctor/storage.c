/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/storage.c - the drives of the machine and, for each path asked about, what it stands on and
 * whether its bytes go to the device without a stop in host memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headrace/error.h>

#include "base/sys.h"
#include "doctor/report.h"

#define GROUP "storage"

/* The word in brackets of queue/scheduler: "[none] mq-deadline". */
static void scheduler_of(const struct hr__report *r, const char *disk, char *out, size_t size)
{
	char text[256];
	const char *open;

	snprintf(out, size, "unknown");
	if (hr__report_text(r, text, sizeof(text), "sys/block/%s/queue/scheduler", disk) <= 0)
		return;
	open = strchr(text, '[');
	if (open)
		snprintf(out, size, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
}

static void check_disk(struct hr__report *r, const char *disk)
{
	bool nvme = !strncmp(disk, "nvme", 4), virtio = !strncmp(disk, "vd", 2);
	char scheduler[32], model[96], lbs[32];

	if (!nvme && !virtio && strncmp(disk, "sd", 2) != 0 && strncmp(disk, "md", 2) != 0)
		return;
	scheduler_of(r, disk, scheduler, sizeof(scheduler));
	hr__report_text(r, model, sizeof(model), "sys/block/%s/device/model", disk);
	hr__report_text(r, lbs, sizeof(lbs), "sys/block/%s/queue/logical_block_size", disk);
	if (nvme)
		hr__report_add(
			r, GROUP, disk, strcmp(scheduler, "none") ? HR_CHECK_LIMITED : HR_CHECK_OK,
			strcmp(scheduler, "none") ? "set queue/scheduler to none" : "",
			"NVMe %.60s, blocks of %s bytes, scheduler %s", model, lbs, scheduler);
	else
		hr__report_add(r, GROUP, disk, HR_CHECK_LIMITED,
			       "peer transfers to a GPU need an NVMe drive of this machine",
			       "%s, blocks of %s bytes, scheduler %s",
			       virtio ? "virtio: a drive of the host" : "not NVMe", lbs, scheduler);
}

static void check_disks(struct hr__report *r)
{
	char path[PATH_MAX];
	struct dirent **entries;
	int n;

	snprintf(path, sizeof(path), "%s/sys/block", r->root);
	n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		check_disk(r, entries[i]->d_name);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

/*
 * A directory is judged by a nameless file in it, which leaves no trace. Return: a file or -code with
 * a sentence; the file is empty, so only its geometry means something.
 */
static int open_path(const char *path, struct hr_file **out)
{
	struct stat st;
	int fd, err;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return hr_file_open(path, HR_FILE_READ, out);
	fd = hr__sys->open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	err = hr_file_import(fd, path, out);
	hr__sys->close(fd);
	return err;
}

static void check_file(struct hr__report *r, const char *path, const struct hr_file_info *info)
{
	char name[64], where[160];

	snprintf(name, sizeof(name), "%.60s", path);
	snprintf(where, sizeof(where), "%s%s%s%s%s", info->fs_name,
		 info->block_device[0] ? " on " : "", info->block_device,
		 info->block_pci[0] ? " at " : "", info->block_pci);
	if (info->direct)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "",
			       "%.100s; direct I/O in steps of %u bytes, memory %u", where,
			       info->offset_align, info->memory_align);
	else
		hr__report_add(r, GROUP, name, HR_CHECK_LIMITED,
			       "put the data on ext4 or xfs on a local drive",
			       "%.80s; no direct I/O: %.80s", where, info->direct_reason);
}

/* The verdict on p2p for this file, trial read included. */
static void check_peer(struct hr__report *r, const char *name, struct hr_file *file,
		       const char *device)
{
	struct hr_explanation *e = calloc(1, sizeof(*e));
	struct hr_device *dev = NULL;
	int err = e ? hr_device_open(device, &dev) : -ENOMEM;

	if (!err)
		err = hr_explain(file, dev, 0, 0, e);
	if (err)
		hr__report_add(r, GROUP, name, HR_CHECK_NO, "", "%.180s", hr_strerror(err));
	for (uint32_t i = 0; !err && i < e->n_verdicts; i++) {
		const struct hr_path_verdict *v = &e->verdicts[i];

		if (v->path == HR_PATH_P2P)
			hr__report_add(r, GROUP, name, v->taken ? HR_CHECK_OK : HR_CHECK_NO, v->fix,
				       "%.180s", v->reason);
	}
	hr_device_close(dev);
	free(e);
}

/* "direct PATH -> DEVICE": what `check --require direct` asks. */
static void check_direct(struct hr__report *r, const char *path, const char *device,
			 struct hr_file *file, const struct hr_file_info *info)
{
	char name[64];

	snprintf(name, sizeof(name), "direct %.40s -> %.12s", path, device);
	if (strcmp(device, "host") != 0)
		check_peer(r, name, file, device);
	else if (info->direct)
		hr__report_add(r, GROUP, name, HR_CHECK_OK, "",
			       "the drive writes into the destination itself");
	else
		hr__report_add(r, GROUP, name, HR_CHECK_NO,
			       "put the data on ext4 or xfs on a local drive", "%.180s",
			       info->direct_reason);
}

static void check_path(struct hr__report *r, const char *path, const char *device)
{
	struct hr_file_info info;
	struct hr_file *file;
	int err = open_path(path, &file);
	char name[64];

	if (!err) {
		err = hr_file_info(file, &info);
		if (err)
			hr_file_close(file);
	}
	if (err) {
		snprintf(name, sizeof(name), "direct %.56s", path);
		hr__report_add(r, GROUP, name, HR_CHECK_NO,
			       "name a readable file, or a directory on its "
			       "file system that can be written",
			       "%.60s: %s", path, hr_strerror(err));
		return;
	}
	check_file(r, path, &info);
	check_direct(r, path, device, file, &info);
	hr_file_close(file);
}

void hr__check_storage(struct hr__report *r, const struct hr_check_options *opts)
{
	const char *device = opts->device ? opts->device : "host";
	struct hr_device *gpu;

	check_disks(r);
	if (!hr__report_live(r))
		return;
	if (!opts->device && !hr_device_open("cuda:0", &gpu)) {
		hr_device_close(gpu);
		device = "cuda:0";
	}
	for (uint32_t i = 0; i < opts->n_paths; i++)
		check_path(r, opts->paths[i], device);
}

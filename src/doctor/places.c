/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/places.c - the group "file system": what each path asked about stands on, whether direct I/O
 * works there, and whether its bytes go to the device without a stop in host memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headrace/error.h>

#include "base/sys.h"
#include "doctor/machine.h"

#define GROUP "file system"
#define TRIAL_BYTES (64u << 20)
#define TRIAL_CHUNK (4u << 20)

/* One path under examination. */
struct place {
	struct hr__report *r;
	const struct hr__machine *m;
	const char *path, *device;
	struct hr__place on;
	bool known; /* .on is filled */
};

static void describe(const struct place *p, char *out, size_t size)
{
	const struct hr__drive *d = p->on.drive[0] ? hr__drive_find(p->m, p->on.drive) : NULL;

	snprintf(out, size, "%s%s%.60s%s%s%s%s", p->on.fs, p->on.layer[0] ? " above " : "",
		 p->on.layer, p->on.device[0] ? " on " : "", p->on.device,
		 d && d->pci.address[0] ? " at " : "", d ? d->pci.address : "");
}

/* By what mountinfo says alone. */
static void judge_told(const struct place *p)
{
	char where[192];
	const char *fix, *cause = hr__place_advice(&p->on, &fix);

	describe(p, where, sizeof(where));
	hr__report_add(p->r, GROUP, p->path, cause ? HR_CHECK_LIMITED : HR_CHECK_OK,
		       cause ? fix : "", "%.80s%s%.100s", where,
		       cause ? ": " : ": direct I/O works", cause ? cause : "");
}

static void add_direct(const struct place *p, const char *gpu, enum hr_check_state state,
		       const char *fix, const char *cause)
{
	char name[64];

	snprintf(name, sizeof(name), "direct %.39s -> %.12s", p->path, gpu);
	hr__report_add(p->r, GROUP, name, state, fix, "%.190s", cause);
}

static void direct_told(const struct place *p, const char *gpu)
{
	const char *fix, *cause = hr__place_advice(&p->on, &fix);
	const struct hr_check_pair *pair = hr__report_pair(p->r, p->on.drive, gpu);

	if (cause)
		add_direct(p, gpu, HR_CHECK_NO, fix, cause);
	else if (pair)
		add_direct(p, gpu, pair->state, pair->fix, pair->cause);
	else
		add_direct(p, gpu, HR_CHECK_NO, "put the data on a local NVMe drive",
			   "the drive below it is not visible");
}

/* -- on this machine -------------------------------------------------------------------------- */

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

static void judge_file(const struct place *p, const struct hr_file_info *info)
{
	const char *fix = "put the data on ext4 or xfs on a local drive";
	char where[160];

	snprintf(where, sizeof(where), "%s%s%s%s%s", info->fs_name,
		 info->block_device[0] ? " on " : "", info->block_device,
		 info->block_pci[0] ? " at " : "", info->block_pci);
	if (info->direct) {
		hr__report_add(p->r, GROUP, p->path, HR_CHECK_OK, "",
			       "%.100s; direct I/O in steps of %u bytes, memory %u", where,
			       info->offset_align, info->memory_align);
		return;
	}
	if (p->known && hr__place_advice(&p->on, &fix) == NULL)
		fix = "put the data on ext4 or xfs on a local drive";
	hr__report_add(p->r, GROUP, p->path, HR_CHECK_LIMITED, fix, "%.80s; no direct I/O: %.80s",
		       where, info->direct_reason);
}

/* What the library itself finds, trial read included; its remedy, or what the pair knows better. */
static void direct_tried(const struct place *p, struct hr_file *file)
{
	struct hr_explanation *e = calloc(1, sizeof(*e));
	const struct hr_check_pair *pair = hr__report_pair(p->r, p->on.drive, p->device);
	struct hr_device *dev = NULL;
	int err = e ? hr_device_open(p->device, &dev) : -ENOMEM;

	if (!err)
		err = hr_explain(file, dev, 0, 0, e);
	if (err)
		add_direct(p, p->device, HR_CHECK_NO, "", hr_strerror(err));
	for (uint32_t i = 0; !err && i < e->n_verdicts; i++) {
		const struct hr_path_verdict *v = &e->verdicts[i];

		if (v->path != HR_PATH_P2P)
			continue;
		if (v->taken)
			add_direct(p, p->device, HR_CHECK_OK, "", v->reason);
		else if (pair && pair->state == HR_CHECK_NO)
			add_direct(p, p->device, HR_CHECK_NO, pair->fix, pair->cause);
		else
			add_direct(p, p->device, HR_CHECK_NO, v->fix, v->reason);
	}
	hr_device_close(dev);
	free(e);
}

/* Fill a nameless file: what was never written is not read from the drive. */
static int fill(struct hr_file *file)
{
	struct hr_buffer *buffer = NULL;
	struct hr_engine *engine = NULL;
	struct hr_device *host = NULL;
	int err = hr_device_open("host", &host);

	if (!err)
		err = hr_buffer_alloc(host, TRIAL_CHUNK, &buffer);
	if (!err)
		err = hr_engine_open(host, NULL, &engine);
	if (!err)
		memset(hr_buffer_address(buffer), 0x5a, TRIAL_CHUNK);
	for (uint64_t at = 0; !err && at < TRIAL_BYTES; at += TRIAL_CHUNK) {
		int64_t n = hr_write(engine, file, at, TRIAL_CHUNK, buffer, 0);

		err = n < 0 ? (int)n : n < TRIAL_CHUNK ? -ENOSPC : 0;
	}
	if (!err)
		err = hr_file_sync(file);
	hr_engine_close(engine);
	hr_buffer_free(buffer);
	hr_device_close(host);
	return err;
}

static void measure(const struct place *p, struct hr_file *file, const struct hr_file_info *info)
{
	struct hr_check_pair *pair = hr__report_pair(p->r, p->on.drive, p->device);
	struct hr_device *dev = NULL;
	uint64_t low = 0, high = 0;
	int err = 0;

	if (!info->size_bytes && info->writable)
		err = fill(file);
	if (!err)
		err = hr_device_open(p->device, &dev);
	if (!err)
		err = hr__rate_measure(file, dev, &low, &high);
	hr_device_close(dev);
	if (err) {
		hr__report_add(p->r, GROUP, "measured", HR_CHECK_LIMITED,
			       "name a file of at least 1 MiB, or a directory with 64 MiB of room",
			       "%.60s: nothing was measured: %s", p->path,
			       err == -EINVAL ? "the file is too short" : hr_strerror(err));
		return;
	}
	hr__report_add(p->r, GROUP, "measured", HR_CHECK_OK, "",
		       "%.60s -> %.16s: expect %.2f to %.2f GB/s past the page cache", p->path,
		       p->device, (double)low / 1e9, (double)high / 1e9);
	if (!pair)
		return;
	pair->expected_low = low;
	pair->expected_high = high;
	pair->basis = "measured";
}

static void check_live(struct place *p, bool measured)
{
	struct hr_file_info info;
	struct hr_file *file;
	char name[64], full[PATH_MAX];
	int err = open_path(p->path, &file);

	p->known = realpath(p->path, full) && !hr__place_find(p->r, full, &p->on);
	if (!err) {
		err = hr_file_info(file, &info);
		if (err)
			hr_file_close(file);
	}
	if (err) {
		snprintf(name, sizeof(name), "direct %.56s", p->path);
		hr__report_add(p->r, GROUP, name, HR_CHECK_NO,
			       "name a readable file, or a directory on its "
			       "file system that can be written",
			       "%.60s: %s", p->path, hr_strerror(err));
		return;
	}
	judge_file(p, &info);
	if (strcmp(p->device, "host") != 0)
		direct_tried(p, file);
	else if (info.direct)
		add_direct(p, "host", HR_CHECK_OK, "",
			   "the drive writes into the destination itself");
	else
		add_direct(p, "host", HR_CHECK_NO, "put the data on ext4 or xfs on a local drive",
			   info.direct_reason);
	if (measured)
		measure(p, file, &info);
	hr_file_close(file);
}

static void check_told(struct place *p)
{
	char name[64];

	if (hr__place_find(p->r, p->path, &p->on)) {
		snprintf(name, sizeof(name), "direct %.56s", p->path);
		hr__report_add(p->r, GROUP, name, HR_CHECK_NO, "name a path of that machine",
			       "%.60s: on no mount of proc/self/mountinfo", p->path);
		return;
	}
	judge_told(p);
	for (uint32_t i = 0; i < p->m->n_gpus; i++)
		direct_told(p, p->m->gpus[i].name);
	if (!p->m->n_gpus)
		direct_told(p, "host");
}

void hr__check_places(struct hr__report *r, const struct hr_check_options *opts,
		      const struct hr__machine *m)
{
	/* Of several GPUs the first one that opens; --device names another. */
	const char *device = opts->device ? opts->device : "host";

	for (uint32_t i = m->n_gpus; i-- && !opts->device;) {
		if (!strchr(m->gpus[i].name, '.'))
			device = m->gpus[i].name;
	}
	for (uint32_t i = 0; i < opts->n_paths; i++) {
		struct place p = {.r = r, .m = m, .path = opts->paths[i], .device = device};

		if (hr__report_live(r))
			check_live(&p, opts->measure);
		else
			check_told(&p);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/place.c - what a path stands on: the mount, the layer below an overlay, the block device. By
 * the text of proc/self/mountinfo alone, so that it works for machines that are not this one.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

#define LAYERS_MAX 4 /* an overlay on an overlay ... */
#define LINE_BYTES 8192

/* One line of mountinfo. */
struct mount {
	char point[256], fs[24], source[128], options[512];
	unsigned int major, minor;
};

/* "\040" is how the kernel writes a blank. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		unsigned int code;

		if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1 && code < 256) {
			*to++ = (char)code;
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* id parent major:minor root point options [tags] - type source super_options */
static bool parse(const char *line, struct mount *out)
{
	const char *rest = strstr(line, " - ");

	memset(out, 0, sizeof(*out));
	if (!rest ||
	    sscanf(line, "%*u %*u %u:%u %*s %255s", &out->major, &out->minor, out->point) != 3)
		return false;
	if (sscanf(rest + 3, "%23s %127s %511s", out->fs, out->source, out->options) < 2)
		return false;
	unescape(out->point);
	return true;
}

static bool is_below(const char *path, const char *point)
{
	size_t n = strlen(point);

	if (n == 1)
		return path[0] == '/';
	return !strncmp(path, point, n) && (!path[n] || path[n] == '/');
}

/* The mount that @path is on: the longest point, and of two at one point the later. */
static bool find_mount(const struct hr__report *r, const char *path, struct mount *out)
{
	char name[PATH_MAX], line[LINE_BYTES];
	bool found = false;
	struct mount m;
	FILE *f;

	snprintf(name, sizeof(name), "%s/proc/self/mountinfo", r->root);
	f = fopen(name, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (!parse(line, &m) || !is_below(path, m.point))
			continue;
		if (!found || strlen(m.point) >= strlen(out->point))
			*out = m;
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* The value of "key=" among options. */
static bool option(const char *options, const char *key, char *out, size_t size)
{
	size_t n = strlen(key);

	for (const char *at = options; *at; at += strcspn(at, ","), at += *at == ',') {
		if (strncmp(at, key, n) != 0 || at[n] != '=')
			continue;
		snprintf(out, size, "%.*s", (int)strcspn(at + n + 1, ",:"), at + n + 1);
		return out[0] != '\0';
	}
	return false;
}

static bool has_option(const char *options, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = options; *at; at += strcspn(at, ","), at += *at == ',') {
		if (!strncmp(at, word, n) && (!at[n] || at[n] == ','))
			return true;
	}
	return false;
}

/* "/dev/mapper/data" is a name that the device mapper keeps with its number. */
static void find_mapped(const struct hr__report *r, const char *name, char *out, size_t size)
{
	char path[PATH_MAX], text[128];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/class/block", r->root);
	dir = opendir(path);
	while (dir && !out[0] && (entry = readdir(dir))) {
		if (!strncmp(entry->d_name, "dm-", 3) &&
		    hr__report_text(r, text, sizeof(text), "sys/class/block/%.32s/dm/name",
				    entry->d_name) > 0 &&
		    !strcmp(text, name))
			snprintf(out, size, "%.31s", entry->d_name);
	}
	if (dir)
		closedir(dir);
}

/* The block device by its number, or by the source's name where the number is an anonymous one. */
static void find_device(const struct hr__report *r, const struct mount *m, char *out, size_t size)
{
	char link[PATH_MAX], path[PATH_MAX];
	const char *name = m->source;

	out[0] = '\0';
	snprintf(link, sizeof(link), "%s/sys/dev/block/%u:%u", r->root, m->major, m->minor);
	if (m->major && realpath(link, path)) {
		snprintf(out, size, "%.31s", strrchr(path, '/') + 1);
		return;
	}
	if (!strncmp(name, "/dev/mapper/", 12)) {
		find_mapped(r, name + 12, out, size);
		return;
	}
	if (strncmp(name, "/dev/", 5) != 0 || strchr(name + 5, '/'))
		return;
	snprintf(link, sizeof(link), "sys/class/block/%.64s", name + 5);
	if (hr__report_exists(r, link))
		snprintf(out, size, "%.31s", name + 5);
}

int hr__place_find(const struct hr__report *r, const char *path, struct hr__place *out)
{
	char at[256], layer[256];
	struct mount m;

	memset(out, 0, sizeof(*out));
	snprintf(at, sizeof(at), "%.255s", path);
	if (!find_mount(r, at, &m))
		return -ENOENT;
	snprintf(out->fs, sizeof(out->fs), "%s", m.fs);
	snprintf(out->point, sizeof(out->point), "%s", m.point);
	snprintf(out->source, sizeof(out->source), "%s", m.source);
	snprintf(out->options, sizeof(out->options), "%s", m.options);
	for (int i = 0; i < LAYERS_MAX && !strcmp(m.fs, "overlay"); i++) {
		/* The layers of a container's overlay are often not visible in it: then that is all. */
		if (!option(m.options, "upperdir", layer, sizeof(layer)) &&
		    !option(m.options, "lowerdir", layer, sizeof(layer)))
			break;
		snprintf(out->layer, sizeof(out->layer), "%s", layer);
		if (!find_mount(r, layer, &m))
			break;
	}
	if (strcmp(m.fs, "overlay") != 0)
		find_device(r, &m, out->device, sizeof(out->device));
	if (out->device[0])
		hr__drive_whole(r, out->device, out->drive, sizeof(out->drive));
	return 0;
}

struct advice {
	const char *fs, *cause, *fix;
};

/* Prefixes: "nfs" is nfs4 as well, "fuse" is fuse.sshfs. */
static const struct advice advices[] = {
	{"overlay",
	 "overlayfs: a layer of a container's image, above the file system with the data",
	 "keep data in a volume: docker run -v /fast/data:/data, or a hostPath or local volume"},
	{"tmpfs", "tmpfs keeps files in memory: there is no drive to read from",
	 "nothing to mend: reads come from memory already"},
	{"ramfs", "ramfs keeps files in memory: there is no drive to read from",
	 "nothing to mend: reads come from memory already"},
	{"nfs", "a network file system: the bytes come over the network into host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"cifs", "a network file system: the bytes come over the network into host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"smb3", "a network file system: the bytes come over the network into host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"ceph", "a network file system: the bytes come over the network into host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"lustre", "Lustre: its client moves the bytes through host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"gpfs", "Spectrum Scale: its client moves the bytes through host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"wekafs", "WekaFS: its client moves the bytes through host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"beegfs", "BeeGFS: its client moves the bytes through host memory",
	 "copy the data to a local NVMe drive with ext4 or xfs"},
	{"9p", "9p: a folder of the host, or of Windows below WSL, read through a server",
	 "copy the data into the machine's own file system"},
	{"virtiofs", "virtiofs: a folder of the host, read through a server there",
	 "copy the data to a drive of the machine"},
	{"fuse", "FUSE: a program serves the bytes, and only it knows whether it buffers",
	 "use the file system below it"},
	{"squashfs", "squashfs unpacks its blocks into the page cache",
	 "copy the files to ext4 or xfs"},
	{"btrfs", "btrfs checks and may unpack data in the page cache: no peer memory",
	 "put the data on ext4 or xfs"},
	{"zfs", "zfs keeps data in a cache of its own: no peer memory",
	 "put the data on ext4 or xfs"},
	{"bcachefs", "bcachefs checks data on its way: no peer memory",
	 "put the data on ext4 or xfs"},
	{"f2fs", "f2fs: nobody has seen peer memory work on it", "put the data on ext4 or xfs"},
	{"vfat", "vfat: nobody has seen peer memory work on it", "put the data on ext4 or xfs"},
	{"exfat", "exfat: nobody has seen peer memory work on it", "put the data on ext4 or xfs"},
};

const char *hr__place_advice(const struct hr__place *place, const char **fix)
{
	static const char *const journal =
		"ext4 with data=journal writes all data to its journal and allows no direct I/O";

	if (!strcmp(place->fs, "ext4") && has_option(place->options, "data=journal")) {
		*fix = "mount it with data=ordered (fstab, or tune2fs -o ^journal_data DEVICE)";
		return journal;
	}
	*fix = "";
	if (!strcmp(place->fs, "ext4") || !strcmp(place->fs, "xfs"))
		return NULL;
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		if (strncmp(place->fs, advices[i].fs, strlen(advices[i].fs)) != 0)
			continue;
		*fix = advices[i].fix;
		return advices[i].cause;
	}
	*fix = "put the data on ext4 or xfs";
	return "nobody has seen peer memory work on this file system";
}

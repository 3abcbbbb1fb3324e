/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/p2p_drive.c - from a file to the drives below it, as sysfs has them; refuses whatever takes
 * no peer memory. Knows no device.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>

#include "base/util.h"
#include "file/fsinfo.h"
#include "transport/p2p.h"

#define BLOCK_DIR "/sys/class/block"
#define LINK_MAX_BYTES 4096

/* Return: -HR_E_NO_PATH; the reason is written. */
#define refuse(reason, size, ...) (snprintf(reason, size, __VA_ARGS__), -HR_E_NO_PATH)

bool hr__p2p_parse_pci(const char *text, uint32_t *out)
{
	unsigned int domain, bus, slot, function;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return false;
	*out = domain << 16 | bus << 8 | slot << 3 | function;
	return true;
}

/*
 * The controller of an NVMe namespace: the last PCI address in the path that sysfs resolves it to.
 * A multipath head has none, because it belongs to several.
 */
static bool find_pci(const char *disk, uint32_t *out)
{
	char link[160], path[LINK_MAX_BYTES];
	bool found = false;

	snprintf(link, sizeof(link), BLOCK_DIR "/%s", disk);
	if (!realpath(link, path))
		return false;
	for (const char *part = strchr(path, '/'); part; part = strchr(part + 1, '/')) {
		found |= hr__p2p_parse_pci(part + 1, out);
	}
	return found;
}

static int add_drive(const char *disk, struct hr__p2p_drives *out, char *reason, size_t size)
{
	if (strncmp(disk, "nvme", 4) != 0)
		return refuse(reason, size,
			      "%s is no NVMe drive, and only those take peer memory; put the file "
			      "on one",
			      disk);
	if (out->n == HR__P2P_DRIVES_MAX)
		return refuse(reason, size, "%s has more than %u drives", out->name,
			      HR__P2P_DRIVES_MAX);
	if (!find_pci(disk, &out->pci[out->n]))
		return refuse(reason, size,
			      "%s has no PCI function of its own (a multipath head or a fabric); "
			      "use a local drive",
			      disk);
	out->n++;
	return 0;
}

static bool read_word(const char *disk, const char *name, char *out, size_t size)
{
	char path[192];

	snprintf(path, sizeof(path), BLOCK_DIR "/%s/%s", disk, name);
	if (hr__read_text(path, out, size) < 0)
		return false;
	out[strcspn(out, "\n")] = '\0';
	return true;
}

/* A partition's drive has its name up to the last "p". */
static void whole_drive(char *disk)
{
	char text[16], *end = strrchr(disk, 'p');

	if (end && read_word(disk, "partition", text, sizeof(text)))
		*end = '\0';
}

/* The members of an md array, all of which a file may lie on. */
static int add_members(const char *array, struct hr__p2p_drives *out, char *reason, size_t size)
{
	char path[128], level[32] = "", chunk[32] = "0";
	struct dirent *entry;
	DIR *dir;
	int ret = 0;

	read_word(array, "md/level", level, sizeof(level));
	read_word(array, "md/chunk_size", chunk, sizeof(chunk));
	/* Mirrors take peer memory as well, but choose by themselves which drive a trial would read. */
	if (strcmp(level, "raid0"))
		return refuse(
			reason, size,
			"%s is an md array of level \"%s\", whose drives cannot be tried one by "
			"one; use raid0",
			array, level);
	snprintf(path, sizeof(path), BLOCK_DIR "/%s/slaves", array);
	dir = opendir(path);
	while (dir && !ret && (entry = readdir(dir))) {
		char disk[64];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(disk, sizeof(disk), "%.60s", entry->d_name);
		whole_drive(disk);
		ret = add_drive(disk, out, reason, size);
	}
	if (dir)
		closedir(dir);
	out->stride = strtoull(chunk, NULL, 10);
	if (!ret && !out->n)
		return refuse(reason, size, "%s has no members that sysfs shows", array);
	return ret;
}

int hr__p2p_drives_find(const struct hr_file *file, struct hr__p2p_drives *out, char *reason,
			size_t size)
{
	struct hr__block_info block;

	memset(out, 0, sizeof(*out));
	if (strcmp(file->fs_name, "ext4") && strcmp(file->fs_name, "xfs") && !file->is_block_device)
		return refuse(reason, size,
			      "on %s nobody has seen it work; put the file on ext4 or xfs",
			      file->fs_name);
	hr__block_find(file, &block);
	if (!block.name[0])
		return refuse(reason, size,
			      "the block device below the file is not known; "
			      "mount /sys and /proc");
	snprintf(out->name, sizeof(out->name), "%s", block.name);
	whole_drive(out->name);
	if (!strncmp(out->name, "dm-", 3))
		return refuse(
			reason, size,
			"%s belongs to the device mapper (LVM, dm-crypt), which takes no peer "
			"memory; use a partition or md",
			out->name);
	if (!strncmp(out->name, "md", 2))
		return add_members(out->name, out, reason, size);
	return add_drive(out->name, out, reason, size);
}

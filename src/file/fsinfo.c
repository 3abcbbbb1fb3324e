/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/fsinfo.c - reads the kernel's answers about mounts and block devices; judges no file.
 *
 * The table of file systems is the first half of the decision on direct I/O; geometry.c looks at
 * the file itself. The right column of the table belongs to residency.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/fsinfo.h"

/* Newer than some headers, or in none. */
#ifndef EXFAT_SUPER_MAGIC
#define EXFAT_SUPER_MAGIC 0x2011bab0
#endif
#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xff534d42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif
#define VBOXSF_MAGIC 0x786f4256

#define PROC_MOUNTS "/proc/self/mountinfo"
#define MOUNTS_MAX (8u << 20) /* bytes of mountinfo that are read at most */
#define LINE_MAX_BYTES 8192u  /* longer lines are skipped */
#define DEVICE_CLIMB_MAX 8    /* from a disk to its PCI function */

struct fs_type {
	uint32_t magic;
	char name[16];
	enum hr__direct_rule direct;
	enum hr__residency_rule residency;
	const char *why;
};

/*
 * Overlayfs answers cachestat for its own, always empty inode, but maps the file below. FUSE keeps
 * pages in two places, or where only its server knows.
 */
static const struct fs_type types[] = {
	{EXT4_SUPER_MAGIC, "ext4", HR__DIRECT_YES, HR__RESIDENCY_CACHESTAT, ""},
	{XFS_SUPER_MAGIC, "xfs", HR__DIRECT_YES, HR__RESIDENCY_CACHESTAT, ""},
	{BTRFS_SUPER_MAGIC, "btrfs", HR__DIRECT_DOUBTFUL, HR__RESIDENCY_CACHESTAT,
	 "btrfs takes the page cache to read compressed or inline data and to write checksummed "
	 "data; "
	 "chattr +C on a new, empty file avoids that"},
	{F2FS_SUPER_MAGIC, "f2fs", HR__DIRECT_PROBE, HR__RESIDENCY_CACHESTAT, ""},
	{MSDOS_SUPER_MAGIC, "vfat", HR__DIRECT_YES, HR__RESIDENCY_CACHESTAT, ""},
	{CIFS_SUPER_MAGIC, "cifs", HR__DIRECT_PROBE, HR__RESIDENCY_CACHESTAT, ""},
	{SMB2_SUPER_MAGIC, "smb2", HR__DIRECT_PROBE, HR__RESIDENCY_CACHESTAT, ""},
	{NFS_SUPER_MAGIC, "nfs", HR__DIRECT_PROBE, HR__RESIDENCY_CACHESTAT, ""},
	{SQUASHFS_MAGIC, "squashfs", HR__DIRECT_NO, HR__RESIDENCY_CACHESTAT,
	 "squashfs unpacks its blocks into the page cache; copy the file to another file system"},
	{EROFS_SUPER_MAGIC_V1, "erofs", HR__DIRECT_PROBE, HR__RESIDENCY_CACHESTAT, ""},
	{OVERLAYFS_SUPER_MAGIC, "overlay", HR__DIRECT_PROBE, HR__RESIDENCY_MINCORE, ""},
	{TMPFS_MAGIC, "tmpfs", HR__DIRECT_NO, HR__RESIDENCY_HOT,
	 "tmpfs keeps files in memory: there is no drive to read from"},
	{RAMFS_MAGIC, "ramfs", HR__DIRECT_NO, HR__RESIDENCY_HOT,
	 "ramfs keeps files in memory: there is no drive to read from"},
	{HUGETLBFS_MAGIC, "hugetlbfs", HR__DIRECT_NO, HR__RESIDENCY_HOT,
	 "hugetlbfs keeps files in memory: there is no drive to read from"},
	{FUSE_SUPER_MAGIC, "fuse", HR__DIRECT_NO, HR__RESIDENCY_NONE,
	 "FUSE accepts O_DIRECT, but only its server knows whether it buffers; use the file system "
	 "below it"},
	{V9FS_MAGIC, "9p", HR__DIRECT_NO, HR__RESIDENCY_NONE,
	 "9p reads go to a server that buffers as it likes; use a local file system"},
};

bool hr__fs_numbers_last(uint32_t magic)
{
	static const uint32_t passing[] = {FUSE_SUPER_MAGIC, MSDOS_SUPER_MAGIC, EXFAT_SUPER_MAGIC,
					   CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,  VBOXSF_MAGIC};

	for (size_t i = 0; i < HR_ARRAY_LEN(passing); i++) {
		if (passing[i] == magic)
			return false;
	}
	return true;
}

static void copy_text(char *to, size_t size, const char *from, size_t len)
{
	len = hr__min(len, size - 1);
	memcpy(to, from, len);
	to[len] = '\0';
}

/* -- mountinfo -------------------------------------------------------------------------------- */

/* The next word of a line, its length in @len; NULL at the end. */
static const char *next_word(const char **line, size_t *len)
{
	const char *word = *line + strspn(*line, " ");

	*len = strcspn(word, " ");
	*line = word + *len;
	return *len ? word : NULL;
}

/*
 * One line: id parent major:minor root point options [tags] - type source super_options.
 * Return: true when it was the mount looked for.
 */
static bool parse_mount(const char *line, uint64_t mount_id, struct hr__fsinfo *out)
{
	const char *word, *rest;
	size_t len;

	if (strtoull(line, NULL, 10) != mount_id)
		return false;
	rest = strstr(line, " - ");
	if (!rest)
		return false;
	rest += 3;
	word = next_word(&rest, &len);
	/* "fuse.sshfs" and "fuseblk" are no kinds of their own; "virtiofs" and "ext3" are. */
	if (word && strncmp(word, "fuse", 4) != 0)
		copy_text(out->name, sizeof(out->name), word, len);
	word = next_word(&rest, &len);
	if (word)
		copy_text(out->source, sizeof(out->source), word, len);
	word = next_word(&rest, &len);
	if (word)
		copy_text(out->options, sizeof(out->options), word, len);
	return true;
}

/* Look at each whole line in buf[0 .. len). Return: bytes used up, or -1 when it was found. */
static ssize_t scan_lines(char *buf, size_t len, uint64_t mount_id, struct hr__fsinfo *out)
{
	size_t used = 0;

	while (used < len) {
		char *end = memchr(buf + used, '\n', len - used);

		if (!end)
			break;
		*end = '\0';
		if (parse_mount(buf + used, mount_id, out))
			return -1;
		used = (size_t)(end - buf) + 1;
	}
	return (ssize_t)used;
}

/* Return: false when there was nothing to read. */
static bool find_mount(uint64_t mount_id, struct hr__fsinfo *out)
{
	char buf[LINE_MAX_BYTES];
	uint64_t at = 0;
	int fd = hr__sys->open(PROC_MOUNTS, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (at < MOUNTS_MAX) {
		size_t have = 0;
		ssize_t n, used;

		/* The kernel gives whole lines, as many as it likes. */
		while (have < sizeof(buf)) {
			n = hr__sys->pread(fd, buf + have, sizeof(buf) - have, at + have);
			if (n <= 0)
				break;
			have += (size_t)n;
		}
		if (!have)
			break;
		used = scan_lines(buf, have, mount_id, out);
		if (used < 0)
			break;
		at += used ? (uint64_t)used : have;
	}
	hr__sys->close(fd);
	return true;
}

/* -- file systems ----------------------------------------------------------------------------- */

int hr__fsinfo_find(int fd, struct hr__fs_memo *memo, struct hr__fsinfo *out)
{
	struct statfs st;
	struct statx stx;
	int err = hr__sys->fstatfs(fd, &st);

	if (err < 0)
		return err;
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "0x%lx", (unsigned long)st.f_type & 0xffffffff);
	out->direct = HR__DIRECT_PROBE;
	out->residency = HR__RESIDENCY_CACHESTAT;
	out->why = "";
	out->block_bytes = (uint32_t)hr__min((uint64_t)st.f_bsize, 1u << 20);
	for (size_t i = 0; i < HR_ARRAY_LEN(types); i++) {
		if (types[i].magic != (uint32_t)st.f_type)
			continue;
		snprintf(out->name, sizeof(out->name), "%s", types[i].name);
		out->direct = types[i].direct;
		out->residency = types[i].residency;
		out->why = types[i].why;
		break;
	}
	memset(&stx, 0, sizeof(stx));
	if (hr__sys->statx_fd(fd, STATX_MNT_ID, &stx) < 0 || !(stx.stx_mask & STATX_MNT_ID))
		return 0;
	if (memo && memo->mount_id == stx.stx_mnt_id) {
		*out = memo->fs;
		return 0;
	}
	if (find_mount(stx.stx_mnt_id, out) && memo)
		*memo = (struct hr__fs_memo){stx.stx_mnt_id, *out};
	return 0;
}

bool hr__fsinfo_option(const struct hr__fsinfo *fs, const char *word)
{
	size_t len = strlen(word);
	const char *at = fs->options;

	while (*at) {
		size_t n = strcspn(at, ",");

		if (n == len && strncmp(at, word, n) == 0)
			return true;
		at += n + (at[n] == ',');
	}
	return false;
}

/* -- block devices ---------------------------------------------------------------------------- */

/* The value of @key in a uevent file. Return: true if it is there. */
static bool uevent_value(const char *path, const char *key, char *out, size_t size)
{
	char text[4096];
	size_t key_len = strlen(key);

	if (hr__read_text(path, text, sizeof(text)) < 0)
		return false;
	for (char *line = text; *line;) {
		size_t len = strcspn(line, "\n");

		if (len > key_len && strncmp(line, key, key_len) == 0 && line[key_len] == '=') {
			copy_text(out, size, line + key_len + 1, len - key_len - 1);
			return true;
		}
		line += len + (line[len] == '\n');
	}
	return false;
}

/*
 * The symbolic link "device" of a disk leads to its controller; climbing from there, the first
 * directory that names a PCI slot is it. Virtual disks (loop, md, dm) have no such link.
 */
static void find_pci(const char *disk, char *out, size_t size)
{
	char path[256];
	int len = snprintf(path, sizeof(path), "%s/device", disk);

	for (int i = 0; i < DEVICE_CLIMB_MAX; i++) {
		snprintf(path + len, sizeof(path) - (size_t)len, "/uevent");
		if (uevent_value(path, "PCI_SLOT_NAME", out, size))
			return;
		len += snprintf(path + len, sizeof(path) - (size_t)len, "/..");
	}
}

/* The device number of the drive: the file itself, or what its file system is mounted from. */
static bool find_device_number(const struct hr_file *file, uint64_t *out)
{
	struct hr__fsinfo fs;
	struct stat st;
	int fd, err;

	err = hr__sys->fstat(file->fd, &st);
	if (err < 0)
		return false;
	if (S_ISBLK(st.st_mode)) {
		*out = st.st_rdev;
		return true;
	}
	*out = st.st_dev;
	if (major(st.st_dev))
		return true;
	/* An anonymous number, as btrfs has: the mount names (one of) its devices. */
	if (hr__fsinfo_find(file->fd, NULL, &fs) < 0 || strncmp(fs.source, "/dev/", 5) != 0)
		return false;
	fd = hr__sys->open(fs.source, O_PATH | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	err = hr__sys->fstat(fd, &st);
	hr__sys->close(fd);
	*out = st.st_rdev;
	return err == 0 && S_ISBLK(st.st_mode);
}

void hr__block_find(const struct hr_file *file, struct hr__block_info *out)
{
	char disk[64], path[128], text[32];
	uint64_t number, bytes;
	int len;

	memset(out, 0, sizeof(*out));
	if (!find_device_number(file, &number))
		return;
	len = snprintf(disk, sizeof(disk), "/sys/dev/block/%u:%u", major(number), minor(number));
	snprintf(path, sizeof(path), "%s/uevent", disk);
	if (!uevent_value(path, "DEVNAME", out->name, sizeof(out->name)))
		return;
	if (uevent_value(path, "DEVTYPE", text, sizeof(text)) && strcmp(text, "partition") == 0)
		snprintf(disk + len, sizeof(disk) - (size_t)len, "/..");
	snprintf(path, sizeof(path), "%s/queue/logical_block_size", disk);
	if (hr__read_text(path, text, sizeof(text)) > 0 && hr__parse_size(text, &bytes) == 0 &&
	    bytes <= 1u << 20)
		out->logical_block_bytes = (uint32_t)bytes;
	find_pci(disk, out->pci, sizeof(out->pci));
}

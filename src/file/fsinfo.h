/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/fsinfo.h - what a file stands on: file system, mount, block device, PCI function.
 *
 * Everything here is found in the kernel's own words (fstatfs, /proc, /sys). Where /proc or /sys is
 * missing, fields stay empty and the answers get more careful, never wrong.
 */
#ifndef HR_FILE_FSINFO_H
#define HR_FILE_FSINFO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "file/file.h"

/* Is an accepted O_DIRECT really direct? */
enum hr__direct_rule {
	HR__DIRECT_YES,      /* refused where it is impossible */
	HR__DIRECT_PROBE,    /* perhaps buffered in silence: look; believed without proof */
	HR__DIRECT_DOUBTFUL, /* the same, not believed without proof */
	HR__DIRECT_NO,
};

struct hr__fsinfo {
	char name[24];
	enum hr__direct_rule direct;
	enum hr__residency_rule residency;
	const char *why;      /* static: for HR__DIRECT_NO and _DOUBTFUL */
	uint32_t block_bytes; /* of the file system */
	char source[128];     /* of the mount: "/dev/vda1"; "" if unknown */
	char options[512];    /* of the super block, comma-separated; "" if unknown */
};

/*
 * What was found last, for somebody who opens many files of one file system: reading the list of mounts costs
 * as much as the rest of an open. Whoever keeps one forgets it soon (all zero): mounts change.
 */
struct hr__fs_memo {
	uint64_t mount_id; /* 0: nothing is known */
	struct hr__fsinfo fs;
};

/*
 * hr__fsinfo_find() - the file system that @fd lives on. @memo: is asked first and told; may be NULL.
 * Return: 0 or -errno of fstatfs.
 */
int hr__fsinfo_find(int fd, struct hr__fs_memo *memo, struct hr__fsinfo *out);

/*
 * hr__fs_numbers_last() - does a file keep its number? Servers behind FUSE, and file systems without inodes
 * on the drive, number a file each time they meet it. @magic: statfs.f_type.
 */
bool hr__fs_numbers_last(uint32_t magic);

/* hr__fsinfo_option() - is this word among the mount's options? */
bool hr__fsinfo_option(const struct hr__fsinfo *fs, const char *word);

struct hr__block_info {
	char name[64];
	char pci[16];
	uint32_t logical_block_bytes;
};

/* hr__block_find() - the block device under a file; fields stay empty where nothing is known. */
void hr__block_find(const struct hr_file *file, struct hr__block_info *out);

#endif

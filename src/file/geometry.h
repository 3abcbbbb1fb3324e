/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/geometry.h - what direct I/O on an open file needs, and whether it is honest.
 */
#ifndef HR_FILE_GEOMETRY_H
#define HR_FILE_GEOMETRY_H

#include "file/file.h"
#include "file/fsinfo.h"

/*
 * hr__geometry_find() - fill in what file.h says about direct I/O, the file system and RWF_NOWAIT.
 * file->fd is open; file->fd_direct becomes the O_DIRECT descriptor, or -1 with direct_reason.
 * No direct I/O is no failure. @memo: as of hr__fsinfo_find(). Return: 0 or -errno.
 */
int hr__geometry_find(struct hr_file *file, struct hr__fs_memo *memo);

/*
 * hr__file_reopen() - another descriptor of the same file, with @extra open flags.
 * By way of /proc/self/fd, which also works for unlinked files; without /proc by path, if that
 * still leads to the same file. Return: descriptor or -errno.
 */
int hr__file_reopen(const struct hr_file *file, int fd, int extra);

#endif

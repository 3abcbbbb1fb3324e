/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/rest.h - files that rest: their descriptors may be closed while nobody needs them, and are opened
 * again when somebody does, so that a dataset may have more files than a process may have open.
 *
 * Whoever is about to use descriptors of a file takes a hold on them, hr__file_hold() in file.h, and lets
 * go with hr__file_release(). Files of other origins are always open, and a hold on them costs a branch.
 * All resting files of the process together keep within a quarter of RLIMIT_NOFILE; when there are more,
 * those without a hold that were used least recently are closed. A file that is opened again must be the one
 * that was opened first, unchanged: else hr__file_hold() fails with -HR_E_FILE_CHANGED.
 */
#ifndef HR_FILE_REST_H
#define HR_FILE_REST_H

#include "file/file.h"

/*
 * hr__rest_open() - as hr_file_open() for reading; the file rests unless it is a block device.
 * Other resting files are closed to make room for it. Return: as hr_file_open().
 */
int hr__rest_open(const char *path, struct hr_file **out);

/*
 * hr__rest_adopt() - the open descriptor @fd of the file @path becomes a resting file without direct I/O:
 * for files that are read by pread(2) alone, and checked then: when it is opened again, any file of its name
 * and size will do, since side indexes are made by every rank that finds none, and the last one stays.
 * @fd is the file's also on failure. Return: 0 or -code.
 */
int hr__rest_adopt(int fd, const char *path, struct hr_file **out);

/*
 * hr__rest_make_way() - a call failed with @err: if that is because the program has too many files open,
 * close one that nobody needs. Return: true when the call is worth another try.
 */
bool hr__rest_make_way(int err);

/* hr__rest_open_fd() - as hr__file_open_fd(), while files that nobody needs can make way. */
int hr__rest_open_fd(const char *path, int flags, mode_t mode);

/* Descriptors of resting files: how many there may be, are, and were at most; files opened again. */
struct hr__rest_counts {
	uint64_t limit, open, most, reopened;
};
void hr__rest_counts(struct hr__rest_counts *out);

/* What file.c calls when a file goes: close its descriptors, if it has any. */
void hr__rest_leave(struct hr_file *file);

#endif

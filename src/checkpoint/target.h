/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/target.h - a file that appears under its name when it is whole, and not before.
 */
#ifndef HR_CHECKPOINT_TARGET_H
#define HR_CHECKPOINT_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <headrace/file.h>

struct hr__target {
	char *path, *temp;
	struct hr_file *file;     /* to write to */
	int fd;                   /* holds the lock on the temporary file; -1: none */
	mode_t mode;              /* of the file that is replaced; 0: there is none */
	bool exists;              /* the temporary file does, and is ours */
	uint32_t fork_generation; /* of the process that it belongs to */
};

/*
 * hr__target_open() - make @path.tmp, locked, empty, with room for @len bytes where the file system
 * can promise that. Return: 0 or -code with a sentence; nothing is left behind then.
 */
int hr__target_open(struct hr__target *t, const char *path, uint64_t len);

/* hr__target_commit() - to the drive, to its name, to the drive. Return: 0 or -code. */
int hr__target_commit(struct hr__target *t);

/*
 * hr__target_close() - free; without a commit the temporary file goes, unless it is that of a parent by
 * fork(). Accepts a zeroed target.
 */
void hr__target_close(struct hr__target *t);

#endif

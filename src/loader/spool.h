/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/spool.h - side indexes that can be kept nowhere, all of the process in one unlinked file: a file
 * without a name cannot be closed and opened again, so it must not be one for each.
 */
#ifndef HR_LOADER_SPOOL_H
#define HR_LOADER_SPOOL_H

#include <stdint.h>

/* hr__spool_temp() - a new file without a name, in TMPDIR. Return: a descriptor or -errno. */
int hr__spool_temp(void);

/* Bytes that were taken, and where: in @fd from @place on. */
struct hr__spooled {
	struct hr__spool *spool;
	int fd;
	uint64_t place, len;
};

/* hr__spool_take() - copy @len bytes of @fd; they stay until hr__spool_drop(). Return: 0 or -errno. */
int hr__spool_take(int fd, uint64_t len, struct hr__spooled *out);
void hr__spool_drop(struct hr__spooled *what);

#endif

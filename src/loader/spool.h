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

/*
 * hr__spool_take() - copy @len bytes of @fd into the spool; they stay until hr__spool_drop().
 * Return: 0, and the spool's descriptor and the place in it; or -errno.
 */
int hr__spool_take(int fd, uint64_t len, int *spool_fd, uint64_t *place);
void hr__spool_drop(void);

#endif

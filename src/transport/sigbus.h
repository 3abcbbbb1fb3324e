/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/sigbus.h - survives reading a mapped file that another process truncates.
 *
 * Reading a page behind the end of a file raises SIGBUS. Between enter and leave, a fault of the
 * calling thread inside the guarded range puts a page of zeros in the place of the missing one, so
 * that the reader comes to its end, and sets *broken first: the range is not to be believed or read
 * any more, by nobody who shares it. All other faults go to the handler that was there before.
 */
#ifndef HR_TRANSPORT_SIGBUS_H
#define HR_TRANSPORT_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * hr__sigbus_install() - take over SIGBUS, once for the process, and unblock it for the calling thread:
 * a fault while it is blocked kills the process, handler or not. Return: 0 or -errno.
 */
int hr__sigbus_install(void);

/* Guards do not nest. @broken: lives as long as the range. */
void hr__sigbus_enter(const void *range, uint64_t len, atomic_bool *broken);
void hr__sigbus_leave(void);

#endif

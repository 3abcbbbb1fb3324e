/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/fork.h - lets objects notice that they woke up in a child process.
 */
#ifndef HR_BASE_FORK_H
#define HR_BASE_FORK_H

#include <stdint.h>

/* A number that changes in every child of fork(). Cheap: no system call. */
uint32_t hr__fork_generation(void);

#endif

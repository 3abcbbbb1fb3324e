/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/memlimit.h - how much memory this process may use: the machine's, or its cgroup's limit.
 */
#ifndef HR_BASE_MEMLIMIT_H
#define HR_BASE_MEMLIMIT_H

#include <stdint.h>

/*
 * hr__cgroup_limit() - the least memory limit from the process's group up to the visible root.
 * @root: "" for this machine, or a folder that stands for "/". Return: bytes, UINT64_MAX for none.
 */
uint64_t hr__cgroup_limit(const char *root);

/* hr__memory_allowed() - physical memory, or the cgroup's limit where that is less. */
uint64_t hr__memory_allowed(void);

/*
 * hr__memory_available() - what can be had now without swapping: what the kernel calls available, or
 * what the cgroup's limit leaves where that is less. Page cache counts as available in both: it can
 * be dropped for something better. Reads a few small files: not for the data path.
 * @root: as above. Return: bytes, 0 where the kernel does not tell.
 */
uint64_t hr__memory_available(const char *root);

/* hr__staging_bytes() - of an engine that may start @threads: HEADRACE_STAGING_BYTES, or its default. */
uint64_t hr__staging_bytes(uint32_t threads);

#endif

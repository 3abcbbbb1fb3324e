/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/fork.h - may a child of fork() allocate although its parent has other threads?
 *
 * libc puts its allocator in order for the child. That of the address sanitizer (GCC 12) is not: where a
 * thread was in it at that moment, its lock is held in the child for ever, and malloc() waits. Such tests
 * run without it; those whose threads stand still at a known place may go on.
 */
#ifndef HR_TESTS_FORK_H
#define HR_TESTS_FORK_H

#include <stdbool.h>

#ifdef __SANITIZE_ADDRESS__
#define TEST_FORK_BESIDE_THREADS false
#else
#define TEST_FORK_BESIDE_THREADS true
#endif
#define TEST_FORK_SKIP                                                                             \
	"SKIP: the address sanitizer's allocator may be locked by another thread at fork, for "    \
	"ever "                                                                                    \
	"in the child\n"

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* base/fork.c - counts generations of processes; getpid() would cost a system call a request. */
#include <pthread.h>
#include <stdbool.h>

#include "base/fork.h"

static uint32_t generation;
static bool watched; /* asked with every call of an engine, so cheaper than pthread_once() */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
	generation++; /* the child has one thread at this point */
}

static void watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
	__atomic_store_n(&watched, true, __ATOMIC_RELEASE);
}

uint32_t hr__fork_generation(void)
{
	if (!__atomic_load_n(&watched, __ATOMIC_ACQUIRE))
		pthread_once(&fork_once, watch);
	return generation;
}

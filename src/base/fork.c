/* SPDX-License-Identifier: Apache-2.0 */
/* base/fork.c - counts generations of processes; getpid() would cost a system call a request. */
#include <stddef.h>

#include "base/fork.h"

static uint32_t generation;
static struct hr__fork_hook *hooks;

static void before_fork(void)
{
	for (const struct hr__fork_hook *hook = hooks; hook; hook = hook->next) {
		if (hook->before)
			hook->before();
	}
}

static void in_parent(void)
{
	for (const struct hr__fork_hook *hook = hooks; hook; hook = hook->next) {
		if (hook->parent)
			hook->parent();
	}
}

/* The child has one thread at this point. */
static void in_child(void)
{
	generation++;
	for (const struct hr__fork_hook *hook = hooks; hook; hook = hook->next) {
		if (hook->lock)
			pthread_mutex_init(hook->lock, NULL);
		if (hook->child)
			hook->child();
	}
}

/* By constructors alone, one after the other. */
void hr__fork_watch(struct hr__fork_hook *hook)
{
	hook->next = hooks;
	hooks = hook;
}

__attribute__((constructor(101))) static void watch(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

uint32_t hr__fork_generation(void)
{
	return generation;
}

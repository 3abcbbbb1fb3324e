/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/fork.h - lets objects notice that they woke up in a child process, and locks forget who held them:
 * that thread is not there, and the child would wait for it for ever.
 *
 * A lock of an object needs none of this: objects of the parent are refused before their locks are taken.
 */
#ifndef HR_BASE_FORK_H
#define HR_BASE_FORK_H

#include <pthread.h>
#include <stdint.h>

/* A number that changes in every child of fork(). Cheap: no system call. */
uint32_t hr__fork_generation(void);

/*
 * What happens to the state of one file. In the child @lock is a new one, then @child puts what it guards in
 * order: another thread may have been in the middle of anything. Where that cannot be, @before takes the
 * lock and @parent gives it back. It must be a lock under which nothing else is called: fork() may happen
 * under any other, as a driver that starts runs programs of its own.
 */
struct hr__fork_hook {
	pthread_mutex_t *lock;
	void (*before)(void);
	void (*parent)(void);
	void (*child)(void);
	struct hr__fork_hook *next;
};

void hr__fork_watch(struct hr__fork_hook *hook);

/*
 * HR__FORK_HOOK(.lock = &lock, .child = in_child); - for this file, from the moment that it is loaded:
 * later would be too late for the first thread that takes the lock. It is early among constructors, so that
 * what is above the library and takes locks before a fork() does so first.
 */
#define HR__FORK_HOOK(...)                                                                         \
	static struct hr__fork_hook fork_hook;                                                     \
	__attribute__((constructor(101))) static void watch_forks(void)                            \
	{                                                                                          \
		hr__fork_watch(&fork_hook);                                                        \
	}                                                                                          \
	static struct hr__fork_hook fork_hook = {__VA_ARGS__}

#endif

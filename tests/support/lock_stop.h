/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/lock_stop.h - what a child of fork() finds when a thread of its parent had a lock at that moment.
 *
 * How: the program has pthread_mutex_lock() and its kin of its own, which all libraries that it loads use
 * too. A thread does something; at each place in the code where it takes a lock, for the first time, it stops
 * with the lock in hand. Then the program forks, the child does everything it may do, and the thread goes
 * on. So every lock on the way is met, without a list of them, and nothing depends on time. What a handler
 * of fork() waits for is let go of as soon as it does.
 */
#ifndef HR_TESTS_LOCK_STOP_H
#define HR_TESTS_LOCK_STOP_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_STOP_SITES 1024
#define LOCK_STOP_SECONDS 30 /* after which a child hangs */

static struct {
	sem_t stopped, go;
	atomic_uint stops, releases;
	atomic_bool finished;
	void (*action)(void);
	void *sites[LOCK_STOP_SITES]; /* where the thread has stopped */
	unsigned int n_sites;
} lock_stop;

static _Thread_local bool lock_stop_watched, lock_stop_forking;

static void lock_stop_release(void)
{
	atomic_fetch_add(&lock_stop.releases, 1);
	sem_post(&lock_stop.go);
}

static bool lock_stop_is_stopped(void)
{
	return atomic_load(&lock_stop.stops) != atomic_load(&lock_stop.releases);
}

static void lock_stop_wait(sem_t *sem)
{
	while (sem_wait(sem) && errno == EINTR)
		;
}

static void lock_stop_here(void *site)
{
	unsigned int i = 0;

	while (i < lock_stop.n_sites && lock_stop.sites[i] != site)
		i++;
	if (i < lock_stop.n_sites || i == LOCK_STOP_SITES)
		return;
	lock_stop.sites[lock_stop.n_sites++] = site;
	atomic_fetch_add(&lock_stop.stops, 1);
	sem_post(&lock_stop.stopped);
	lock_stop_wait(&lock_stop.go);
}

/*
 * A function of libc's by the name @lock, and what it does not wait for, @try. The thread that forks waits
 * for nothing that the stopped thread has.
 */
#define LOCK_STOP_WRAP(lock, try, type)                                                            \
	int lock(type *object)                                                                     \
	{                                                                                          \
		static int (*_Atomic real)(type *);                                                \
		int (*fn)(type *) = atomic_load_explicit(&real, memory_order_relaxed);             \
		int ret;                                                                           \
                                                                                                   \
		if (!fn) {                                                                         \
			void *found = dlsym(RTLD_NEXT, #lock);                                     \
                                                                                                   \
			*(void **)&fn = found;                                                     \
			atomic_store_explicit(&real, fn, memory_order_relaxed);                    \
		}                                                                                  \
		while (lock_stop_forking) {                                                        \
			ret = try(object);                                                         \
			if (ret != EBUSY)                                                          \
				return ret;                                                        \
			if (lock_stop_is_stopped())                                                \
				lock_stop_release();                                               \
			sched_yield();                                                             \
		}                                                                                  \
		ret = fn(object);                                                                  \
		if (lock_stop_watched && !ret)                                                     \
			lock_stop_here(__builtin_return_address(0));                               \
		return ret;                                                                        \
	}

LOCK_STOP_WRAP(pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_t)
LOCK_STOP_WRAP(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t)
LOCK_STOP_WRAP(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, pthread_rwlock_t)

static void *lock_stop_main(void *arg)
{
	lock_stop_watched = true;
	lock_stop.action();
	lock_stop_watched = false;
	atomic_store(&lock_stop.finished, true);
	sem_post(&lock_stop.stopped);
	return NULL;
}

static void lock_stop_tell(const char *what, int status)
{
	void *site = lock_stop.n_sites ? lock_stop.sites[lock_stop.n_sites - 1] : NULL;
	Dl_info info = {0};

	if (site)
		dladdr((char *)site - 1, &info);
	fprintf(stderr, "%s, stopped with a lock of %s+0x%tx (%s): the child %s %d\n", what,
		info.dli_fname ? info.dli_fname : "?",
		(char *)site - (char *)(info.dli_fbase ? info.dli_fbase : site),
		info.dli_sname ? info.dli_sname : "?",
		WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "hangs, signal"
		: WIFSIGNALED(status)                              ? "ends by signal"
								   : "fails at step",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static inline bool lock_stop_fork(const char *what, int (*child)(void))
{
	int status;
	pid_t pid;

	lock_stop_forking = true;
	pid = fork();
	lock_stop_forking = false;
	if (pid == 0) {
		alarm(LOCK_STOP_SECONDS);
		_exit(child());
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	if (status)
		lock_stop_tell(what, status);
	return status == 0;
}

/*
 * @child in a child, for every place where @action takes a lock. It returns 0, or the number of the step
 * that went wrong. Return: places, or -1 when a child failed (what is told).
 */
static inline int lock_stop_run(const char *what, void (*action)(void), int (*child)(void))
{
	bool good = true;
	pthread_t thread;

	lock_stop.n_sites = 0;
	lock_stop.action = action;
	atomic_store(&lock_stop.finished, false);
	if (sem_init(&lock_stop.stopped, 0, 0) || sem_init(&lock_stop.go, 0, 0) ||
	    pthread_create(&thread, NULL, lock_stop_main, NULL))
		abort();
	while (!atomic_load(&lock_stop.finished)) {
		lock_stop_wait(&lock_stop.stopped);
		if (!lock_stop_is_stopped()) /* it was let go of meanwhile */
			continue;
		good = lock_stop_fork(what, child) && good;
		if (lock_stop_is_stopped())
			lock_stop_release();
	}
	pthread_join(thread, NULL);
	return good ? (int)lock_stop.n_sites : -1;
}

#endif

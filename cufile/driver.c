/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/driver.c - opening and closing, by count; the gate that I/O passes, so that a close waits for
 * it; fork. Nothing is opened before somebody needs it, so an open costs next to nothing.
 */
#include <errno.h>
#include <time.h>

#include "cufile/inside.h"

#define OPEN_TRIES 100
#define CLOSE_SECONDS 10 /* longest wait for I/O of other threads */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* opening and closing */
static atomic_long uses;
static atomic_bool closed_before;
static atomic_uint epoch, forks;

static atomic_uint inside; /* threads between cf_enter() and cf_leave() */
static atomic_bool closing;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_out = PTHREAD_COND_INITIALIZER;

/* -- fork --------------------------------------------------------------------------------------- */

/*
 * Locks under which nothing is called: what they guard is whole in the child. Others may be held for long,
 * and by the thread that forks, since a driver that starts runs programs of its own.
 */
static void before_fork(void)
{
	cf_buffers_lock();
	cf_table_lock();
	cf_clock_lock();
}

static void in_parent(void)
{
	cf_clock_unlock();
	cf_table_unlock();
	cf_buffers_unlock();
}

/*
 * The other threads are not here, and what they were doing neither: all locks begin anew. One for readers
 * and writers would even remember the thread that has it, and that one is the parent's.
 */
static void in_child(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	static const pthread_cond_t fresh_cond = PTHREAD_COND_INITIALIZER;

	atomic_fetch_add(&forks, 1);
	lock = gate_lock = fresh;
	all_out = fresh_cond;
	cf_log_forked();
	cf_settings_forked();
	cf_stats_forked();
	cf_pool_forked();
	cf_async_forked();
	cf_table_forked();
	cf_buffers_forked();
	atomic_store(&inside, 0);
	atomic_store(&closing, false);
}

/* When it is loaded: at the first open another thread may have a lock already. */
__attribute__((constructor)) static void register_fork(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

unsigned int cf_forks(void)
{
	return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* -- the gate ----------------------------------------------------------------------------------- */

int cf_enter(void)
{
	atomic_fetch_add(&inside, 1);
	if (!atomic_load(&closing))
		return 0;
	cf_leave();
	return -CU_FILE_DRIVER_CLOSING;
}

void cf_leave(void)
{
	if (atomic_fetch_sub(&inside, 1) != 1 || !atomic_load(&closing))
		return;
	pthread_mutex_lock(&gate_lock);
	pthread_cond_broadcast(&all_out);
	pthread_mutex_unlock(&gate_lock);
}

bool cf_closing(void)
{
	return atomic_load_explicit(&closing, memory_order_relaxed);
}

/* Return: is everybody out? */
static bool wait_all_out(void)
{
	struct timespec end;
	int ret = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += CLOSE_SECONDS;
	pthread_mutex_lock(&gate_lock);
	while (atomic_load(&inside) && ret != ETIMEDOUT)
		ret = pthread_cond_timedwait(&all_out, &gate_lock, &end);
	pthread_mutex_unlock(&gate_lock);
	return !atomic_load(&inside);
}

/* -- open and close ----------------------------------------------------------------------------- */

static void log_line(enum hr_log_level level, const char *line, void *user)
{
	static const enum cf_level levels[] = {CF_ERROR, CF_ERROR, CF_WARN, CF_INFO, CF_DEBUG};

	cf_log(levels[level <= HR_LOG_DEBUG ? level : HR_LOG_DEBUG], "cufio_core", "%s", line);
}

/* With the lock. */
static int open_locked(void)
{
	const struct cf_settings *s = cf_settings();
	bool direct;

	if (atomic_load(&uses)) {
		atomic_fetch_add(&uses, 1);
		return 0;
	}
	hr_log_set(log_line, NULL);
	cf_settings_freeze();
	direct = cf_direct_possible();
	if (!direct && !s->flag[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE] &&
	    !s->flag[CUFILE_PARAM_FORCE_COMPAT_MODE]) {
		cf_log(CF_ERROR, "cufio-drv",
		       "compat mode is forbidden and there is no direct path; set it up (`headrace "
		       "check`), or set properties.allow_compat_mode to true");
		cf_settings_thaw();
		return -CU_FILE_DRIVER_NOT_INITIALIZED;
	}
	cf_log(CF_INFO, "cufio-drv", "headrace %s, cuFile %d.%d, %s", hr_version(),
	       CF_VERSION / 1000, CF_VERSION % 1000 / 10,
	       direct ? "p2p by headrace_peer" : "compat");
	atomic_store(&closed_before, false);
	atomic_store(&uses, 1);
	return 0;
}

int cf_open(void)
{
	int ret = 0;

	if (atomic_load_explicit(&uses, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&uses))
		ret = open_locked();
	pthread_mutex_unlock(&lock);
	return ret;
}

int cf_open_enter(void)
{
	int ret = 0;

	/* Between the two somebody may close: once more then, but not for ever. */
	for (int tries = 0; tries < OPEN_TRIES; tries++) {
		ret = cf_open();
		if (ret)
			return ret;
		ret = cf_enter();
		if (ret)
			return ret;
		if (cf_is_open())
			return 0;
		cf_leave();
	}
	return -CU_FILE_DRIVER_CLOSING;
}

bool cf_is_open(void)
{
	return atomic_load_explicit(&uses, memory_order_acquire) > 0;
}

bool cf_was_closed(void)
{
	return !cf_is_open() && atomic_load(&closed_before);
}

unsigned int cf_epoch(void)
{
	return atomic_load_explicit(&epoch, memory_order_acquire);
}

/* With the lock. First everybody leaves, then nobody uses what goes. */
static void tear_down(void)
{
	bool alone;

	atomic_store(&closing, true);
	atomic_fetch_add(&epoch, 1);
	alone = wait_all_out();
	if (!alone)
		cf_log(CF_ERROR, "cufio-drv",
		       "I/O of other threads did not end within %d s; its memory stays",
		       CLOSE_SECONDS);
	cf_async_close();
	cf_table_clear(CF_BATCH);
	cf_table_clear(CF_FILE);
	cf_buffers_clear();
	if (alone) {
		cf_engines_close();
		cf_buffers_clear(); /* those that a late answer had kept */
		cf_devices_close();
	}
	cf_settings_thaw();
	atomic_store(&closed_before, true);
	atomic_store(&closing, false);
}

static CUfileError_t close_by(long n)
{
	long left;

	pthread_mutex_lock(&lock);
	left = atomic_load(&uses);
	if (left <= 0) {
		pthread_mutex_unlock(&lock);
		return cf_result(CU_FILE_DRIVER_NOT_INITIALIZED);
	}
	left = n ? left - n : 0;
	atomic_store(&uses, left);
	if (!left)
		tear_down();
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

CF_EXPORT CUfileError_t cuFileDriverOpen(void)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = open_locked();
	pthread_mutex_unlock(&lock);
	return cf_error(ret);
}

/* As it was before there was a count: the end for everybody. */
CF_EXPORT CUfileError_t cuFileDriverClose(void)
{
	return close_by(0);
}

CF_EXPORT CUfileError_t cuFileDriverClose_v2(void)
{
	return close_by(1);
}

CF_EXPORT long cuFileUseCount(void)
{
	return atomic_load(&uses);
}

CF_EXPORT CUfileError_t cuFileGetVersion(int *version)
{
	if (!version)
		return cf_result(CU_FILE_INVALID_VALUE);
	*version = CF_VERSION;
	return cf_result(CU_FILE_SUCCESS);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* base/populate.c - see populate.h; knows memory and threads, not what either is for. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "base/numa.h"
#include "base/populate.h"
#include "base/util.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SHARES_MAX 8u /* more threads wait for each other in the kernel */
#define SHARE_MIN                                                                                  \
	((size_t)4u << 20) /* clearing as much takes ten times as long as a thread's start */
#define SHARE_ALIGN ((size_t)2u << 20) /* no two threads in one large page */

struct share {
	char *ptr;
	size_t len;
	int node;
	pthread_t thread;
	bool started;
};

static void *run(void *arg)
{
	const struct share *share = arg;

	hr__numa_run_on(share->node);
	madvise(share->ptr, share->len, MADV_POPULATE_WRITE);
	return NULL;
}

void hr__populate(void *ptr, size_t len, uint32_t threads, int node)
{
	struct share shares[SHARES_MAX];
	size_t n = hr__min(hr__min(threads, len / SHARE_MIN), SHARES_MAX);
	size_t each = n ? hr__align_up(len / n, SHARE_ALIGN) : len, at = 0;
	sigset_t all, kept;
	uint32_t k = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &kept);
	for (; n > 1 && at + each < len; k++, at += each) {
		shares[k] = (struct share){.ptr = (char *)ptr + at, .len = each, .node = node};
		shares[k].started = !pthread_create(&shares[k].thread, NULL, run, &shares[k]);
	}
	pthread_sigmask(SIG_SETMASK, &kept, NULL);
	madvise((char *)ptr + at, len - at, MADV_POPULATE_WRITE);
	for (uint32_t i = 0; i < k; i++) {
		if (shares[i].started)
			pthread_join(shares[i].thread, NULL);
		else
			madvise(shares[i].ptr, shares[i].len, MADV_POPULATE_WRITE);
	}
}

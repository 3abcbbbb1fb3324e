/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/sigbus.c - the handler of SIGBUS; knows address ranges, no files. What runs in it is
 * safe there: thread-local plain memory that the thread has touched before, atomics, one mmap().
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/sigbus.h"

struct guard {
	volatile uintptr_t from, to; /* empty: nothing is guarded */
	atomic_bool *volatile broken;
};

/* Of the library's own block, so that the handler never makes the loader allocate. */
static _Thread_local struct guard guard __attribute__((tls_model("initial-exec")));

static struct sigaction before;
static uintptr_t page_mask;
static int installed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void hand_on(int sig, siginfo_t *info, void *context)
{
	struct sigaction fallback = {.sa_handler = SIG_DFL};

	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
		return;
	}
	if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
		return;
	}
	/* The faulting instruction runs again and the kernel ends the program, as it would have. */
	sigaction(SIGBUS, &fallback, NULL);
	if (info->si_code <= 0)
		raise(sig); /* sent by a process: nothing would fault again */
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int kept = errno;
	void *page;

	if (info->si_code <= 0 || at < guard.from || at >= guard.to) {
		hand_on(sig, info, context);
		return;
	}
	atomic_store(guard.broken, true); /* before anybody can see the zeros */
	page = (void *)(at & page_mask);
	if (mmap(page, ~page_mask + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		hand_on(sig, info, context);
	errno = kept;
}

static void install(void)
{
	struct sigaction action = {.sa_sigaction = on_sigbus,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	sigemptyset(&action.sa_mask);
	/* Known before the first signal can come: the handler may run at once. */
	if (sigaction(SIGBUS, NULL, &before) < 0 || sigaction(SIGBUS, &action, NULL) < 0)
		installed = -errno;
}

int hr__sigbus_install(void)
{
	sigset_t bus;

	pthread_once(&once, install);
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
	return installed;
}

void hr__sigbus_enter(const void *range, uint64_t len, atomic_bool *broken)
{
	guard.broken = broken;
	guard.to = (uintptr_t)range + len;
	guard.from = (uintptr_t)range;
	atomic_signal_fence(memory_order_seq_cst);
}

void hr__sigbus_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	guard.to = guard.from = 0;
}

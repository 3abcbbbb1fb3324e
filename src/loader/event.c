/* SPDX-License-Identifier: Apache-2.0 */
/* loader/event.c - the event counter of event.h on a futex; knows nothing of loaders. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "loader/event.h"

#define NS_PER_S 1000000000ull
#define WAIT_MAX_NS (1ull << 62)

_Static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits wide");

static void futex_wait(atomic_uint *word, uint32_t seen, uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	/* Any return is only a reason to look again. */
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
}

int hr__event_wait(struct hr__event *event, uint32_t seen, uint64_t timeout_ns)
{
	uint64_t deadline = hr__now_ns() + hr__min(timeout_ns, WAIT_MAX_NS);
	int rc = 0;

	/*
	 * Pairs with hr__event_signal(): both sides are sequentially consistent, so either the
	 * signaller sees this sleeper or the sleeper sees the new count.
	 */
	atomic_fetch_add(&event->sleepers, 1);
	while (atomic_load(&event->count) == seen) {
		uint64_t now = hr__now_ns();

		if (now >= deadline) {
			rc = -ETIMEDOUT;
			break;
		}
		futex_wait(&event->count, seen, deadline - now);
	}
	atomic_fetch_sub(&event->sleepers, 1);
	return rc;
}

void hr__event_signal(struct hr__event *event)
{
	int kept = errno; /* may run in a signal handler */

	atomic_fetch_add(&event->count, 1);
	if (atomic_load(&event->sleepers))
		syscall(SYS_futex, &event->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = kept;
}

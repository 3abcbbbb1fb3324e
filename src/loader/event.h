/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/event.h - an event counter for one sleeper: waits with a bound, wakes from anywhere.
 *
 * The sleeper notes the count, looks whether there is work, and sleeps only if the count has not
 * moved since: no wake-up is lost. Signalling costs a system call only while somebody sleeps, and is
 * safe in a signal handler.
 */
#ifndef HR_LOADER_EVENT_H
#define HR_LOADER_EVENT_H

#include <stdatomic.h>
#include <stdint.h>

struct hr__event {
	atomic_uint count;
	atomic_uint sleepers;
};

static inline uint32_t hr__event_now(struct hr__event *event)
{
	return atomic_load(&event->count);
}

/* Sleep until the count differs from @seen. Return: 0, or -ETIMEDOUT. */
int hr__event_wait(struct hr__event *event, uint32_t seen, uint64_t timeout_ns);

/* Move the count and wake. */
void hr__event_signal(struct hr__event *event);

#endif

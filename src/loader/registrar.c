/* SPDX-License-Identifier: Apache-2.0 */
/* loader/registrar.c - walks over the windows of a dataset's files; registers through mapping.h. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include <headrace/error.h>

#include "base/util.h"
#include "file/file.h"
#include "loader/registrar.h"
#include "transport/mapping.h"

#define BUDGET_NS 60000000000ull /* from the start of the thread */
#define PAUSE_MIN_NS 50000000ull
#define PAUSE_MAX_NS 5000000000ull

static void give_reason(struct hr__registrar *r, const char *text)
{
	if (atomic_load(&r->has_reason))
		return;
	snprintf(r->reason, sizeof(r->reason), "%s", text);
	atomic_store(&r->has_reason, true);
}

/*
 * The mapping of a file that the device may have; where it may have none, one for the threads that copy
 * out of it. Return: NULL with the reason given when there is neither.
 */
static struct hr__mapping *mapping_of(struct hr__registrar *r, struct hr_file *file)
{
	struct hr__mapping *m;
	char reason[160];
	bool plain = hr__mapping_check(file, r->dev, r->map, reason, sizeof(reason)) != 0;

	if (!plain && !r->pin && !(r->dev->caps & HR__MEM_CAP_HOST_VISIBLE)) {
		plain = true;
		snprintf(reason, sizeof(reason), "so few epochs do not pay for registering");
	}
	if (plain)
		give_reason(r, reason);
	if (plain && !(r->map && hr__mapping_plain_ok(file)))
		return NULL;
	if (!hr__mapping_get(file, r->dev, plain, &m))
		return m;
	give_reason(r, hr_error_detail());
	return NULL;
}

/* Ready bytes of an open file. Return: false when nothing more can be done for it. */
static bool walk_windows(struct hr__registrar *r, const struct hr__part *part, uint64_t since,
			 uint64_t *ready, struct hr__mapping_work *work)
{
	struct hr__mapping *m = mapping_of(r, part->file);

	if (!m)
		return false;
	for (uint64_t off = 0; off < part->size && !work->full; off += HR__MAPPING_WINDOW) {
		uint64_t len = hr__min(HR__MAPPING_WINDOW, part->size - off);
		int64_t n;

		if (atomic_load(&r->stopping))
			return false;
		n = hr__mapping_prepare(m, off, len, false, since, 0, work);
		if (m->pinned || (r->dev->caps & HR__MEM_CAP_HOST_VISIBLE)) { /* else only mapped */
			atomic_store(&r->bytes, work->bytes);
			atomic_store(&r->ns, work->ns);
		}
		if (n < 0) {
			give_reason(r, hr_error_detail());
			return false;
		}
		*ready += (uint64_t)n;
	}
	return true;
}

static bool walk_file(struct hr__registrar *r, const struct hr__part *part, uint64_t since,
		      uint64_t *ready, struct hr__mapping_work *work)
{
	bool more;

	if (hr__file_hold(part->file, true) < 0) {
		give_reason(r, hr_error_detail());
		return false;
	}
	more = walk_windows(r, part, since, ready, work);
	hr__file_release(part->file);
	return more;
}

/* Return: true when another round may bring more. */
static bool walk_all(struct hr__registrar *r, uint64_t since, struct hr__mapping_work *work,
		     uint64_t *ready)
{
	bool more = false;

	*ready = 0;
	for (uint32_t i = 0; i < r->ds->n_parts && !work->full; i++) {
		work->cold = false;
		if (walk_file(r, r->ds->parts[i], since, ready, work))
			more = more || work->cold;
	}
	return more && !work->full && !atomic_load(&r->stopping);
}

static void conclude(struct hr__registrar *r, const struct hr__mapping_work *work, uint64_t ready)
{
	uint64_t all = 0;
	char text[160];

	for (uint32_t i = 0; i < r->ds->n_parts; i++)
		all += r->ds->parts[i]->size;
	if (ready >= all || atomic_load(&r->stopping))
		return;
	snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64 " MiB are ready: %s", ready >> 20,
		 all >> 20,
		 work->full ? "HEADRACE_PIN_BYTES is used up"
			    : "the rest was not in the page cache within a minute");
	give_reason(r, text);
}

static void *run(void *arg)
{
	struct hr__registrar *r = arg;
	uint64_t since = hr__mapping_tick(), end = hr__now_ns() + BUDGET_NS, ready = 0;
	struct hr__mapping_work work = {0};
	uint64_t pause = PAUSE_MIN_NS;

	for (;;) {
		uint32_t seen = hr__event_now(&r->wake);

		if (!walk_all(r, since, &work, &ready) || hr__now_ns() + pause >= end)
			break;
		if (!atomic_load(&r->stopping))
			hr__event_wait(&r->wake, seen, pause);
		pause = hr__min(2 * pause, PAUSE_MAX_NS);
	}
	conclude(r, &work, ready);
	return NULL;
}

void hr__registrar_start(struct hr__registrar *r, const struct hr_dataset *ds,
			 struct hr_device *dev, bool map, bool pin)
{
	sigset_t all, kept;
	char reason[160] = "";
	bool any = false;
	int rc;

	r->ds = ds;
	r->dev = dev;
	r->map = map;
	r->pin = pin;
	for (uint32_t i = 0; i < ds->n_parts && !any; i++)
		any = !hr__mapping_check(ds->parts[i]->file, dev, map, reason, sizeof(reason)) ||
		      (map && hr__mapping_plain_ok(ds->parts[i]->file));
	if (!any) {
		give_reason(r, reason);
		return;
	}
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &kept);
	rc = pthread_create(&r->thread, NULL, run, r);
	pthread_sigmask(SIG_SETMASK, &kept, NULL);
	if (rc) {
		give_reason(r, "the thread that registers could not be started");
		return;
	}
	r->started = true;
	pthread_setname_np(r->thread, "hr-register");
}

void hr__registrar_join(struct hr__registrar *r)
{
	if (!r->started)
		return;
	atomic_store(&r->stopping, true);
	hr__event_signal(&r->wake);
	pthread_join(r->thread, NULL);
	r->started = false;
}

const char *hr__registrar_reason(const struct hr__registrar *r)
{
	return atomic_load(&r->has_reason) ? r->reason : "";
}

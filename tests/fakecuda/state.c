/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda/state.c - settings, injected faults, counters and the report at the end.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fakecuda.h"
#include "internal.h"
#include "mem/cuda_api.h"

#define FAULTS_MAX 16
#define LAUNCH_FAILED 719

static const char *const counter_names[FAKE_COUNTER_COUNT] = {
	"allocs",   "bytes",  "host_allocs", "registered", "streams", "events",  "modules",
	"contexts", "pushed", "copies",      "launches",   "calls",   "flushes", "misuse",
};

static const char *const setting_names[FAKE_SETTING_COUNT] = {
	"devices",   "version", "delay_us",   "lost_after", "no_register", "no_read_only",
	"no_memops", "export",  "peer_order", "peer_flush", "bar",         "free_waits",
};

static const long setting_defaults[FAKE_SETTING_COUNT] = {
	[FAKE_DEVICES] = 2,
	[FAKE_VERSION] = 13000,
	[FAKE_PEER_ORDER] = HR__CU_ORDER_OWNER,
	[FAKE_PEER_FLUSH] = HR__CU_FLUSH_BY_HOST,
};

static struct {
	char function[40];
	long left;
	int result;
} faults[FAULTS_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long settings[FAKE_SETTING_COUNT];
static long counters[FAKE_COUNTER_COUNT];
static long steps;
static bool lost;
static bool unflushed; /* a peer has written since the last flush */
static char misuse_text[200];
static bool forked; /* a child of a process that had started the driver */

static int index_of(const char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++) {
		if (!strcmp(names[i], name))
			return i;
	}
	return -1;
}

int fakecuda_set(const char *name, long value)
{
	int i = index_of(setting_names, FAKE_SETTING_COUNT, name);

	if (i < 0)
		return -1;
	pthread_mutex_lock(&lock);
	settings[i] = value;
	steps = 0;
	pthread_mutex_unlock(&lock);
	return 0;
}

void fakecuda_fail(const char *function, long kth, int result)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < FAULTS_MAX; i++) {
		if (faults[i].left)
			continue;
		snprintf(faults[i].function, sizeof(faults[i].function), "%s", function);
		faults[i].left = kth;
		faults[i].result = result;
		break;
	}
	pthread_mutex_unlock(&lock);
}

void fakecuda_reset(void)
{
	pthread_mutex_lock(&lock);
	memcpy(settings, setting_defaults, sizeof(settings));
	memset(faults, 0, sizeof(faults));
	steps = 0;
	lost = unflushed = false;
	pthread_mutex_unlock(&lock);
}

long fakecuda_get(const char *name)
{
	int i = index_of(counter_names, FAKE_COUNTER_COUNT, name);
	long value;

	if (i < 0)
		return -1;
	pthread_mutex_lock(&lock);
	value = counters[i];
	pthread_mutex_unlock(&lock);
	return value;
}

const char *fakecuda_misuse(void)
{
	return misuse_text;
}

void fake_count(enum fake_counter counter, long by)
{
	pthread_mutex_lock(&lock);
	counters[counter] += by;
	pthread_mutex_unlock(&lock);
}

long fake_setting(enum fake_setting setting)
{
	long value;

	pthread_mutex_lock(&lock);
	value = settings[setting];
	pthread_mutex_unlock(&lock);
	return value;
}

void fake_misuse(const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&lock);
	va_start(args, format);
	vsnprintf(misuse_text, sizeof(misuse_text), format, args);
	va_end(args);
	counters[FAKE_MISUSE]++;
	pthread_mutex_unlock(&lock);
}

int fake_enter(const char *function)
{
	int result = 0;

	if (forked)
		return HR__CU_NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	counters[FAKE_CALLS]++;
	for (int i = 0; i < FAULTS_MAX && !result; i++) {
		if (faults[i].left && !strcmp(faults[i].function, function) && !--faults[i].left)
			result = faults[i].result;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int fake_enter_context(const char *function)
{
	int result = fake_enter(function);

	if (result)
		return result;
	if (fake_context_current() < 0) {
		fake_misuse("%s without a current context", function);
		return HR__CU_INVALID_CONTEXT;
	}
	return fake_lost() ? LAUNCH_FAILED : fake_capture_check(function);
}

bool fake_lost(void)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = lost;
	pthread_mutex_unlock(&lock);
	return is;
}

void fake_lose(void)
{
	pthread_mutex_lock(&lock);
	lost = true;
	pthread_mutex_unlock(&lock);
}

void fakecuda_peer_wrote(void)
{
	pthread_mutex_lock(&lock);
	unflushed = settings[FAKE_PEER_ORDER] < HR__CU_ORDER_OWNER;
	pthread_mutex_unlock(&lock);
}

int fakecuda_unflushed(void)
{
	int is;

	pthread_mutex_lock(&lock);
	is = unflushed;
	pthread_mutex_unlock(&lock);
	return is;
}

void fake_reads_device(const char *what)
{
	if (fakecuda_unflushed())
		fake_misuse("%s was queued after a peer's write without a flush", what);
}

int cuFlushGPUDirectRDMAWrites(int target, int scope);

int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	int result = fake_enter_context(__func__);

	if (result)
		return result;
	if (target != HR__CU_FLUSH_CURRENT || scope != HR__CU_FLUSH_OWNER)
		return HR__CU_INVALID_VALUE;
	if (!(fake_setting(FAKE_PEER_FLUSH) & HR__CU_FLUSH_BY_HOST))
		return HR__CU_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	unflushed = false;
	pthread_mutex_unlock(&lock);
	fake_count(FAKE_FLUSHES, 1);
	return 0;
}

bool fake_step(void)
{
	bool runs;

	pthread_mutex_lock(&lock);
	steps++;
	if (settings[FAKE_LOST_AFTER] && steps > settings[FAKE_LOST_AFTER])
		lost = true;
	runs = !lost;
	pthread_mutex_unlock(&lock);
	return runs;
}

static void in_child(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
	forked = fake_started();
	fake_driver_forked();
	fake_memory_forked();
	fake_stream_forked();
	fake_capture_forked();
}

/* FAKECUDA_DELAY_US=20 and the like; FAKECUDA_FAIL=cuMemAlloc_v2:1:2. */
__attribute__((constructor)) static void read_environment(void)
{
	const char *fail = getenv("FAKECUDA_FAIL");
	char function[40];
	int result;
	long kth;

	pthread_atfork(NULL, NULL, in_child);
	fakecuda_reset();
	for (int i = 0; i < FAKE_SETTING_COUNT; i++) {
		char name[40] = "FAKECUDA_";
		const char *value;

		for (size_t k = 0; setting_names[i][k]; k++) {
			char c = setting_names[i][k];

			name[9 + k] = c == '_' ? c : (char)(c - 'a' + 'A');
		}
		value = getenv(name);
		if (value)
			settings[i] = atol(value);
	}
	if (fail && sscanf(fail, "%39[^:]:%ld:%d", function, &kth, &result) == 3)
		fakecuda_fail(function, kth, result);
}

/* FAKECUDA_STRICT=1 turns what is left over into a failure of the whole program. */
__attribute__((destructor)) static void report(void)
{
	const char *strict = getenv("FAKECUDA_STRICT");
	bool bad = false;

	for (int i = 0; i < FAKE_COUNTER_COUNT; i++) {
		if (!counters[i] || (i >= FAKE_ALIVE_COUNT && i != FAKE_MISUSE))
			continue;
		fprintf(stderr, "fakecuda: %s %ld at exit\n", counter_names[i], counters[i]);
		bad = true;
	}
	if (counters[FAKE_MISUSE])
		fprintf(stderr, "fakecuda: last misuse: %s\n", misuse_text);
	if (bad && strict && *strict == '1')
		_exit(99);
}

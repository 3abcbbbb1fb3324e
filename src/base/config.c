/* SPDX-License-Identifier: Apache-2.0 */
/* base/config.c - the only place that reads the environment, once. docs/env.md is its twin. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/memlimit.h"
#include "base/util.h"

#define STAGING_MIN (256ull << 10)
#define GATHER_BLOCKS_MAX 128u
#define STAGING_MAX (16ull << 30)

static struct hr_config config = {
	.path = HR_PATH_AUTO,
	.log = HR_LOG_WARN,
};
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static void complain(const char *name, const char *value, const char *allowed)
{
	if (!config.problem[0])
		snprintf(config.problem, sizeof(config.problem), "%s=%.40s is ignored: use %s",
			 name, value, allowed);
}

static void read_path(const char *name, const char *value)
{
	if (hr_path_parse(value, &config.path))
		complain(name, value, "auto, host, bounce, pagecache or p2p");
}

static void read_require(const char *name, const char *value)
{
	if (!strcmp(value, "direct"))
		config.require_direct = true;
	else if (*value)
		complain(name, value, "direct");
}

static void read_log(const char *name, const char *value)
{
	static const char *const levels[] = {"none", "error", "warn", "info", "debug"};

	for (uint32_t i = 0; i < HR_ARRAY_LEN(levels); i++) {
		if (!strcmp(value, levels[i])) {
			config.log = (enum hr_log_level)i;
			return;
		}
	}
	complain(name, value, "none, error, warn, info or debug");
}

static void read_staging(const char *name, const char *value)
{
	uint64_t bytes;

	if (hr__parse_size(value, &bytes) || bytes < STAGING_MIN || bytes > STAGING_MAX)
		complain(name, value, "256K to 16G");
	else
		config.staging_bytes = hr__align_up(bytes, 4096);
}

static void read_pin(const char *name, const char *value)
{
	uint64_t bytes;

	if (hr__parse_size(value, &bytes))
		complain(name, value, "a number of bytes, 0 for never");
	else
		config.pin_bytes = bytes;
}

static void read_cache(const char *name, const char *value)
{
	static const char *const words[] = {"auto", "keep", "drop"};

	for (uint32_t i = 0; i < HR_ARRAY_LEN(words); i++) {
		if (!strcmp(value, words[i])) {
			config.cache = (enum hr_cache)i;
			return;
		}
	}
	complain(name, value, "auto, keep or drop");
}

static void read_blocks(const char *name, const char *value)
{
	uint64_t blocks;

	if (hr__parse_size(value, &blocks) || blocks > GATHER_BLOCKS_MAX)
		complain(name, value, "0 to 128");
	else
		config.gather_blocks = (uint32_t)blocks;
}

static void read_switch(const char *name, const char *value, bool *on)
{
	if (!strcmp(value, "1"))
		*on = true;
	else if (*value && strcmp(value, "0") != 0)
		complain(name, value, "0 or 1");
}

static void read_no_uring(const char *name, const char *value)
{
	read_switch(name, value, &config.no_uring);
}

static void read_stats(const char *name, const char *value)
{
	read_switch(name, value, &config.stats);
}

/* Not ours, so no complaint: what is unusable is as if it were unset. */
static void read_runtime_dir(const char *name, const char *value)
{
	(void)name;
	if (*value == '/' && strlen(value) < sizeof(config.runtime_dir))
		snprintf(config.runtime_dir, sizeof(config.runtime_dir), "%s", value);
}

static void read_temp_dir(const char *name, const char *value)
{
	(void)name;
	if (*value == '/' && strlen(value) < sizeof(config.temp_dir))
		snprintf(config.temp_dir, sizeof(config.temp_dir), "%s", value);
}

static void read_environment(void)
{
	static const struct {
		const char *name;
		void (*read)(const char *name, const char *value);
	} variables[] = {
		{"HEADRACE_PATH", read_path},
		{"HEADRACE_REQUIRE", read_require},
		{"HEADRACE_LOG", read_log},
		{"HEADRACE_STAGING_BYTES", read_staging},
		{"HEADRACE_NO_URING", read_no_uring},
		{"HEADRACE_PIN_BYTES", read_pin},
		{"HEADRACE_GATHER_BLOCKS", read_blocks},
		{"HEADRACE_CACHE", read_cache},
		{"HEADRACE_STATS", read_stats},
		{"XDG_RUNTIME_DIR", read_runtime_dir},
		{"TMPDIR", read_temp_dir},
	};

	/* Pinned pages cannot be reclaimed: most of the memory stays the kernel's. */
	config.pin_bytes = hr__memory_allowed() / 4;
	snprintf(config.temp_dir, sizeof(config.temp_dir), "/tmp");
	for (uint32_t i = 0; i < HR_ARRAY_LEN(variables); i++) {
		const char *value = getenv(variables[i].name);

		if (value)
			variables[i].read(variables[i].name, value);
	}
}

const struct hr_config *hr_config_get(void)
{
	pthread_once(&config_once, read_environment);
	return &config;
}

const char *hr_version(void)
{
	return HR_VERSION;
}

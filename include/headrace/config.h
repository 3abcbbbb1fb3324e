/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/config.h - every tunable that the environment can set, with unit, default and range.
 *
 * The environment is read once, at the first use of the library, in one place (src/base/config.c);
 * docs/env.md lists the variables for users. Options given in code win over it.
 */
#ifndef HEADRACE_CONFIG_H
#define HEADRACE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/io.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_log_level {
	HR_LOG_NONE = 0,
	HR_LOG_ERROR = 1,
	HR_LOG_WARN = 2,
	HR_LOG_INFO = 3,
	HR_LOG_DEBUG = 4
};

struct hr_config {
	enum hr_path path;      /* HEADRACE_PATH: auto */
	bool require_direct;    /* HEADRACE_REQUIRE=direct: false */
	enum hr_log_level log;  /* HEADRACE_LOG: warn */
	uint64_t staging_bytes; /* HEADRACE_STAGING_BYTES, 256 KiB..16 GiB; 0: 24 MiB, or
				   4 MiB for each thread of an engine, up to 64 MiB */
	bool no_uring;          /* HEADRACE_NO_URING=1: false */
	uint64_t pin_bytes;     /* HEADRACE_PIN_BYTES: a quarter of what this process may use */
	bool stats;             /* HEADRACE_STATS=1: false; publish statistics, see stats.h */
	char runtime_dir[112];  /* XDG_RUNTIME_DIR, where statistics are published, or "" */
	char temp_dir[112];     /* TMPDIR, or "/tmp": side indexes that can be kept nowhere */
	enum hr_cache cache;    /* HEADRACE_CACHE: auto */
	uint32_t gather_blocks; /* HEADRACE_GATHER_BLOCKS: 0 = chosen by the device, 1..128 */
	char problem[160]; /* the first variable that was not understood and is ignored, or "" */
};

/* hr_config_get() - the settings in force. Return: a static object, never NULL. */
const struct hr_config *hr_config_get(void);

/*
 * hr_log_set() - receive the library's messages; the library itself prints nothing.
 * @sink: called from any thread with one line without newline; NULL turns messages off.
 * Set it before other threads use the library.
 */
typedef void (*hr_log_fn)(enum hr_log_level level, const char *line, void *user);
void hr_log_set(hr_log_fn sink, void *user);

/* hr_version() - "0.1.0". */
const char *hr_version(void);

#ifdef __cplusplus
}
#endif
#endif

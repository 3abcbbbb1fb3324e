/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.c - hands one line to the listener that the program set; prints nothing itself. */
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/utf8.h"

static hr_log_fn log_sink;
static void *log_user;

void hr_log_set(hr_log_fn sink, void *user)
{
	log_user = user;
	log_sink = sink;
}

void hr__log(enum hr_log_level level, const char *format, ...)
{
	char line[512];
	va_list args;

	if (!log_sink || level > hr_config_get()->log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	hr__utf8_clean(line);
	log_sink(level, line, log_user);
}

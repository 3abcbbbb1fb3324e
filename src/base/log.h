/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/log.h - one line to whoever listens (hr_log_set()); nothing is printed here.
 */
#ifndef HR_BASE_LOG_H
#define HR_BASE_LOG_H

#include <headrace/config.h>

void hr__log(enum hr_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif

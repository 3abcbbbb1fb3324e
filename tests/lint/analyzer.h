/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lint/analyzer.h - included first by ./dev lint, so that the analyzer, which sees one file at a
 * time, knows that a failure is never 0 and that its caller stops there.
 */
#ifndef HR_LINT_ANALYZER_H
#define HR_LINT_ANALYZER_H

/* The name inside is the function: a macro does not expand itself. */
#ifdef HR_LINT_LIBRARY
#include "base/fail.h"
#define hr__fail(code, ...) (hr__fail((code), __VA_ARGS__), (code) < 0 ? (code) : -(code))
#define hr__fail_set(code, text) (hr__fail_set((code), (text)), (code) < 0 ? (code) : -(code))
#endif

#ifdef HR_LINT_COMMAND
#include "cli/cli.h"
#define cli_fail(...) (cli_fail(__VA_ARGS__), CLI_FAILED)
#define cli_fail_code(...) (cli_fail_code(__VA_ARGS__), CLI_FAILED)
#define cli_usage_error(...) (cli_usage_error(__VA_ARGS__), CLI_USAGE)
#endif

#endif

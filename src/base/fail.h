/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/fail.h - how the inside reports a failure: a code for the program, a sentence for the person.
 */
#ifndef HR_BASE_FAIL_H
#define HR_BASE_FAIL_H

#include <headrace/error.h>

/*
 * hr__fail() - store the sentence for this thread and return -code, so that a caller can write
 * `return hr__fail(ENOENT, "%s: ...", path)`. @code: positive errno or HR_E_*. Never on the data path.
 */
int hr__fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* hr__fail_set() - store a ready sentence (brought over from another thread). Return: -code. */
int hr__fail_set(int code, const char *sentence);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/fake_control.h - finds the control functions of tests/fakecuda, and asks at the end whether
 * anything is left over.
 */
#ifndef UNIT_FAKE_CONTROL_H
#define UNIT_FAKE_CONTROL_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
	int (*set)(const char *name, long value);
	void (*inject)(const char *function, long kth, int result);
	void (*reset)(void);
	long (*get)(const char *name);
	const char *(*misuse)(void);
	void (*peer_wrote)(void);
	int (*unflushed)(void);
} fake;

static inline void *fake_symbol(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	assert_non_null(symbol);
	return symbol;
}

#define FAKE_FIND(member, name)                                                                    \
	do {                                                                                       \
		void *symbol_ = fake_symbol(library, name);                                        \
		memcpy(&fake.member, &symbol_, sizeof(symbol_));                                   \
	} while (0)

/* cmocka group setup. */
static inline int fake_setup(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	(void)state;
	assert_non_null(library);
	FAKE_FIND(set, "fakecuda_set");
	FAKE_FIND(inject, "fakecuda_fail");
	FAKE_FIND(reset, "fakecuda_reset");
	FAKE_FIND(get, "fakecuda_get");
	FAKE_FIND(misuse, "fakecuda_misuse");
	FAKE_FIND(peer_wrote, "fakecuda_peer_wrote");
	FAKE_FIND(unflushed, "fakecuda_unflushed");
	return 0;
}

/* cmocka teardown of each test: faults off, nothing alive, nothing misused. */
static inline int fake_clean(void **state)
{
	static const char *const alive[] = {"allocs", "host_allocs", "registered", "streams",
					    "events", "modules",     "contexts",   "pushed"};
	int bad = 0;

	(void)state;
	fake.reset();
	for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++) {
		if (fake.get(alive[i])) {
			print_error("%ld %s left over\n", fake.get(alive[i]), alive[i]);
			bad = 1;
		}
	}
	if (fake.get("misuse")) {
		print_error("misuse: %s\n", fake.misuse());
		bad = 1;
	}
	return bad;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/signal.c - the first SIGINT or SIGTERM asks a verb to end cleanly; the second one kills. */
#include <signal.h>
#include <string.h>

#include "cli/cli.h"

/* The handler runs on whichever thread the kernel picks, and others look: so no sig_atomic_t. */
atomic_int cli_interrupted;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_POINTER_LOCK_FREE == 2, "good for a handler");

/* Read by the handler; its argument is written before. */
static void (*_Atomic interrupt_fn)(void *arg);
static void *interrupt_arg;

static void on_signal(int number)
{
	void (*fn)(void *arg) = interrupt_fn;

	(void)number;
	cli_interrupted = 1;
	if (fn)
		fn(interrupt_arg);
}

void cli_catch_interrupt(void (*fn)(void *arg), void *arg)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	interrupt_arg = arg;
	interrupt_fn = fn;
	action.sa_handler = on_signal;
	action.sa_flags = (int)SA_RESETHAND;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void cli_release_interrupt(void)
{
	interrupt_fn = NULL;
}

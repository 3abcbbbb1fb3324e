/* SPDX-License-Identifier: Apache-2.0 */
/* cli/signal.c - the first SIGINT or SIGTERM asks a verb to end cleanly; the second one kills. */
#include <signal.h>
#include <string.h>

#include "cli/cli.h"

volatile sig_atomic_t cli_interrupted;

/* Read by the handler; written before it is installed. */
static void (*interrupt_fn)(void *arg);
static void *interrupt_arg;

static void on_signal(int number)
{
	(void)number;
	cli_interrupted = 1;
	if (interrupt_fn)
		interrupt_fn(interrupt_arg);
}

void cli_catch_interrupt(void (*fn)(void *arg), void *arg)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	interrupt_fn = fn;
	interrupt_arg = arg;
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

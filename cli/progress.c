/* SPDX-License-Identifier: Apache-2.0 */
/* cli/progress.c - one line on stderr that redraws itself, on a terminal and after a second only. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define FIRST_NS 1000000000ull
#define EVERY_NS 200000000ull
#define BAR 24

void cli_progress_begin(struct cli_progress *p, const char *label, uint64_t total)
{
	memset(p, 0, sizeof(*p));
	p->label = label;
	p->total = total;
	p->start_ns = cli_now_ns();
	p->on = isatty(STDERR_FILENO);
}

bool cli_progress_due(struct cli_progress *p, uint64_t now_ns)
{
	if (!p->on || now_ns - p->start_ns < FIRST_NS || now_ns - p->last_ns < EVERY_NS)
		return false;
	p->last_ns = now_ns;
	return true;
}

void cli_progress_line(struct cli_progress *p, uint64_t done, const char *text)
{
	char bar[BAR + 1];
	uint32_t full = p->total ? (uint32_t)(cli_min(done, p->total) * BAR / p->total) : 0;

	memset(bar, '-', BAR);
	memset(bar, '#', full);
	bar[BAR] = '\0';
	fprintf(stderr, "\r%s [%s] %s\033[K", p->label, bar, text);
	fflush(stderr);
	p->drawn = true;
}

void cli_progress_bytes(struct cli_progress *p, uint64_t done)
{
	char have[CLI_TEXT_BYTES], all[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES], text[128];
	uint64_t now = cli_now_ns();
	double speed;

	if (!cli_progress_due(p, now))
		return;
	speed = cli_per((double)done, cli_seconds(now - p->start_ns));
	snprintf(text, sizeof(text), "%s of %s  %s  %.0f s left", cli_bytes(have, (double)done),
		 cli_bytes(all, (double)p->total), cli_rate(rate, speed),
		 cli_per((double)(p->total - cli_min(done, p->total)), speed));
	cli_progress_line(p, done, text);
}

void cli_progress_end(struct cli_progress *p)
{
	if (p->drawn)
		fprintf(stderr, "\r\033[K");
	p->drawn = false;
}

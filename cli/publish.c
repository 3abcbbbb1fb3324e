/* SPDX-License-Identifier: Apache-2.0 */
/* cli/publish.c - our own process shows its statistics while it works. */
#include "cli/cli.h"

void cli_publish(bool on)
{
	if (!hr_stats_publish(on))
		return;
	cli_note("warning: %s", hr_error_detail());
	cli_forget_detail();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/state.h - a loader's position in a file. */
#ifndef HR_CLI_STATE_H
#define HR_CLI_STATE_H

#include "cli/cli.h"

/* cli_state_restore() - go on from @path if it exists. Return: CLI_OK or CLI_FAILED. */
int cli_state_restore(struct hr_loader *loader, const char *path);

/* cli_state_save() - write a temporary file with mode 0600 and rename it. Return: as above. */
int cli_state_save(const struct hr_loader *loader, const char *path);

#endif

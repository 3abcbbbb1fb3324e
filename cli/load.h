/* SPDX-License-Identifier: Apache-2.0 */
/* cli/load.h - what the verb load and its check share. */
#ifndef HR_CLI_LOAD_H
#define HR_CLI_LOAD_H

#include "cli/cli.h"

/*
 * cli_load_verify() - compare what is in @buffer with plain reads of the files, slice by slice, with no
 * code of the library but the list of tensors. Parts that were converted must not be among them.
 * @sha256: NULL, or what the digest of the only file must be.
 * Return: CLI_OK, CLI_FAILED after a sentence that names tensor, byte and values.
 */
int cli_load_verify(const struct hr_checkpoint *ck, const struct hr_part *parts, uint64_t n,
		    struct hr_buffer *buffer, const char *sha256);

#endif

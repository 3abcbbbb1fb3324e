/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.h - checks batches against the files, by means that share nothing with the library's. */
#ifndef HR_CLI_VERIFY_H
#define HR_CLI_VERIFY_H

#include "cli/cli.h"

struct cli_verifier;

/*
 * @batch_bytes: device memory of one batch. @pad_value: what padded rows are filled up with.
 * Return: the verifier, or NULL without memory.
 */
struct cli_verifier *cli_verifier_open(struct hr_dataset *ds, uint64_t batch_bytes,
				       int64_t pad_value);

/*
 * cli_verify_batch() - copy @batch out and compare every element with a plain read of its file.
 * Return: CLI_OK, or CLI_FAILED after a sentence that names sample, element, file offset and values.
 */
int cli_verify_batch(struct cli_verifier *v, const struct hr_batch *batch);

void cli_verifier_close(struct cli_verifier *v);

#endif

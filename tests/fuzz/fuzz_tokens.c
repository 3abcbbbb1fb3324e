/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tokens - the tokens parser on hostile bytes. The first 16 bytes of the input are options and
 * how much longer than its bytes the file claims to be; the rest is the file. Whatever the parser
 * accepts must lie inside the file, and whatever it refuses must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <string.h>

#include "support/format_bytes.h"

#define OPTION_BYTES 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	const uint8_t *bytes = data + OPTION_BYTES;
	uint64_t len = size - OPTION_BYTES, extra = 0;

	if (size < OPTION_BYTES)
		return 0;
	memcpy(&opts.seq_len, data, 4);
	memcpy(&opts.stride, data + 4, 6);
	opts.dtype = (enum hr_dtype)(data[10] % 8);
	memcpy(&extra, data + 11, 5);
	format_bytes_add(&all, "input", bytes, len, len + extra);
	format_bytes_try(&all, &hr__format_tokens, &opts);
	hr__format_find("auto", bytes, len < HR__FORMAT_HEAD_BYTES ? len : HR__FORMAT_HEAD_BYTES,
			len + extra);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_npy - .npy arrays and .npz archives of hostile bytes. The first 8 bytes of the input are options and
 * how much longer than its bytes the file claims to be; the rest is the file. Whatever is accepted must
 * lie inside the file, and whatever is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <string.h>

#include "support/format_bytes.h"

#define OPTION_BYTES 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"x", "y"};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	const uint8_t *bytes = data + OPTION_BYTES;
	uint64_t len = size - OPTION_BYTES, extra = 0;

	if (size < OPTION_BYTES)
		return 0;
	opts.whole_files = data[0] & 1;
	opts.fields = data[0] & 2 ? names : NULL;
	opts.n_fields = data[0] & 4 ? 1 : 2;
	opts.dtype = (enum hr_dtype)(data[1] % 32);
	memcpy(&extra, data + 2, 6);
	format_bytes_add(&all, "input", bytes, len, len + extra);
	format_bytes_try(&all, &hr__format_npy, &opts);
	hr__format_find("auto", bytes, len < HR__FORMAT_HEAD_BYTES ? len : HR__FORMAT_HEAD_BYTES,
			len + extra);
	return 0;
}

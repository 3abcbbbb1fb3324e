/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors_rows - safetensors from strangers, as rows. The first byte says how much longer than its
 * bytes the file claims to be, and whether one tensor was named. Whatever is accepted must lie inside the
 * file, and whatever is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>

#include "support/format_bytes.h"

#define NAMED 0x80u
#define EXTRA 0x7fu

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const named[] = {"x"};
	struct hr_dataset_options opts = {.format = "safetensors"};
	struct format_bytes all = {.n_files = 0};
	uint64_t extra;

	if (size < 1)
		return 0;
	extra = data[0] & EXTRA;
	if (data[0] & NAMED) {
		opts.fields = named;
		opts.n_fields = 1;
	}
	data++;
	size--;
	format_bytes_add(&all, "input", data, size, size + extra);
	format_bytes_try(&all, &hr__format_safetensors, &opts);
	hr__format_safetensors.probe(
		data, size < HR__FORMAT_HEAD_BYTES ? size : HR__FORMAT_HEAD_BYTES, size + extra);
	return 0;
}

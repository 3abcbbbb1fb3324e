/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_megatron - the index of a Megatron dataset and the three arrays of its order on hostile bytes. The
 * first 20 bytes of the input are options, the size of the .bin and how the rest is divided. Whatever is
 * accepted must lie inside the .bin, and whatever is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <string.h>

#include "support/format_bytes.h"

#define OPTION_BYTES 20u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of the input, divided. */
struct rest {
	const uint8_t *bytes;
	size_t len;
};

static void add_piece(struct format_bytes *all, const char *name, struct rest *rest, size_t len)
{
	len = len < rest->len ? len : rest->len;
	format_bytes_add(all, name, rest->bytes, len, len);
	rest->bytes += len;
	rest->len -= len;
}

static size_t two_bytes(const uint8_t *p)
{
	return (size_t)p[0] | (size_t)p[1] << 8;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct rest rest = {data + OPTION_BYTES, size - OPTION_BYTES};
	struct hr__format_file *ff = NULL;
	uint64_t bin_bytes = 0;
	int rc;

	if (size < OPTION_BYTES)
		return 0;
	memcpy(&opts.seq_len, data, 4);
	memcpy(&opts.stride, data + 4, 3);
	opts.order = data[7] & 1 ? "o-" : NULL;
	memcpy(&bin_bytes, data + 8, 6);
	if (data[7] & 2)
		format_bytes_add(&all, "x.bin", "", 0, bin_bytes);
	add_piece(&all, "x.idx", &rest, two_bytes(data + 14));
	if (!(data[7] & 2))
		format_bytes_add(&all, "x.bin", "", 0, bin_bytes);
	add_piece(&all, "o-document_index.npy", &rest, two_bytes(data + 16));
	add_piece(&all, "o-sample_index.npy", &rest, two_bytes(data + 18));
	add_piece(&all, "o-shuffle_index.npy", &rest, rest.len);
	hr__fail_set(EIO, "");
	rc = format_bytes_open(&all, &hr__format_megatron, &opts, &ff);
	if (rc < 0) {
		format_require(!ff && hr_error_detail()[0] != '\0', "a refusal has a sentence");
		return 0;
	}
	format_check_accepted(ff, bin_bytes);
	if (ff->schema.windows) {
		format_check_starts(ff, 0);
		format_check_starts(ff, ff->schema.count / 2);
		format_check_starts(ff, ff->schema.count - 1);
	}
	ff->ops->close(ff);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_mds - shards and manifests of MDS from strangers. The first byte says whether the rest is a
 * manifest, whether the format was named, and how much longer than its bytes the file claims to be. What
 * is accepted must lie inside the file, and what is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>

#include "support/format_bytes.h"

#define MANIFEST 0x80u
#define NAMED 0x40u
#define EXTRA 0x3fu

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int add(void *ctx, const struct hr__shard *shard)
{
	uint32_t *n = ctx;

	format_require(shard->name && shard->samples != UINT64_MAX, "a shard has a name");
	if (++*n == 1000)
		return hr__fail(ENOENT, "%s: no such file", shard->name);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	uint32_t n = 0;
	int rc;

	if (size < 1)
		return 0;
	opts.format = data[0] & NAMED ? "mds" : NULL;
	format_bytes_add(&all, "input", data + 1, size - 1, size - 1 + (data[0] & EXTRA));
	if (data[0] & MANIFEST) {
		hr__fail_set(EIO, "");
		rc = hr__format_mds.expand(&all.files[0].src, &opts, add, &n);
		format_require(rc >= 0 || hr_error_detail()[0] != '\0', "a refusal has a sentence");
		return 0;
	}
	format_bytes_try(&all, &hr__format_mds, &opts);
	hr__format_mds.probe(data + 1,
			     size - 1 < HR__FORMAT_HEAD_BYTES ? size - 1 : HR__FORMAT_HEAD_BYTES,
			     size - 1 + (data[0] & EXTRA));
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tokens - the tokens parser on hostile bytes. The first 16 bytes of the input are options and
 * how much longer than its bytes the file claims to be; the rest is the file. Whatever the parser
 * accepts must lie inside the file, and whatever it refuses must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/format.h"

#define OPTION_BYTES 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
	const uint8_t *data;
	uint64_t len;
};

static void require(int truth)
{
	if (!truth)
		abort();
}

/* Behind the bytes at hand the file is a hole. */
static int read_bytes(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	const struct bytes *bytes = src->ctx;
	uint64_t there = offset < bytes->len ? bytes->len - offset : 0;

	require(offset <= src->size && len <= src->size - offset);
	if (there > len)
		there = len;
	memset(buf, 0, len);
	if (there)
		memcpy(buf, bytes->data + offset, there);
	return 0;
}

static void check_accepted(const struct hr__format_file *ff, uint64_t file_size)
{
	const struct hr__schema *schema = &ff->schema;
	uint64_t indices[] = {0, schema->count / 2, schema->count - 1}, offset, len;

	require(schema->count >= 1);
	require(schema->sample_bytes == (uint64_t)schema->elements * hr_dtype_size(schema->dtype));
	for (int i = 0; i < 3; i++) {
		require(hr__format_tokens.locate(ff, indices[i], &offset, &len) == 0);
		require(len == schema->sample_bytes);
		require(offset <= file_size && len <= file_size - offset);
	}
	require(hr__format_tokens.locate(ff, schema->count, &offset, &len) == -EINVAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hr_dataset_options opts = {0};
	struct hr__format_file *ff = NULL;
	struct bytes bytes;
	uint64_t extra = 0;
	int rc;

	if (size < OPTION_BYTES)
		return 0;
	memcpy(&opts.seq_len, data, 4);
	memcpy(&opts.stride, data + 4, 6);
	opts.dtype = (enum hr_dtype)(data[10] % 8);
	memcpy(&extra, data + 11, 5);
	bytes = (struct bytes){data + OPTION_BYTES, size - OPTION_BYTES};
	{
		struct hr_source src = {"input", bytes.len + extra, read_bytes, &bytes};

		hr__fail_set(EIO, "");
		rc = hr__format_tokens.open(&src, &opts, &ff);
		if (rc == 0) {
			check_accepted(ff, src.size);
			hr__format_tokens.close(ff);
		} else {
			require(rc < 0 && !ff && hr_error_detail()[0] != '\0');
		}
		hr__format_find("auto", bytes.data, bytes.len < 1024 ? bytes.len : 1024, src.size);
	}
	return 0;
}

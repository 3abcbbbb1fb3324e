/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tfrecord - TFRecords from strangers, scanned, and read by the side index that comes out of it. The
 * first byte says what is done to the rest before: checksums made good along the records, so that the
 * search gets past them; or all of it taken as the payload of one record. What is accepted lies inside the
 * file; a refusal has a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/index_bytes.h"
#include "support/record_bytes.h"

#define SIGN 0x01u
#define PAYLOAD 0x02u
#define NAMED 0x04u /* the field "label" alone */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign(struct record_bytes *r)
{
	for (uint64_t at = 0; r->len - at >= 16;) {
		uint64_t len = 0;

		for (int i = 8; i-- > 0;)
			len = len << 8 | r->bytes[at + (uint64_t)i];
		record_put_crc(r->bytes + at + 8, r->bytes + at, 8);
		if (len > r->len - at - 16)
			return;
		record_put_crc(r->bytes + at + 12 + len, r->bytes + at + 12, len);
		at += 16 + len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"label"};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct record_bytes r = {.len = 0};

	if (size < 1)
		return 0;
	if (data[0] & PAYLOAD)
		record_frame(&r, data + 1, size - 1);
	else
		record_add(&r, data + 1, size - 1);
	if (data[0] & SIGN)
		sign(&r);
	if (data[0] & NAMED)
		opts = (struct hr_dataset_options){.fields = names, .n_fields = 1};
	format_bytes_add(&all, "input", r.bytes, r.len, r.len);
	indexed_bytes_try(&all, &hr__format_tfrecord, &opts);
	hr__format_tfrecord.probe(r.bytes, r.len, r.len);
	free(r.bytes);
	return 0;
}

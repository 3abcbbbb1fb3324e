/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tar - tar archives from strangers, scanned, and read by the side index that comes out of it. The first
 * byte says what is done to the rest before: checksums of headers made good, so that the search gets past
 * them; and which fields are named. What is accepted lies inside the file; a refusal has a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/index_bytes.h"

#define SIGN 0x01u  /* every block that is not zero gets a checksum */
#define NAMED 0x02u /* the field "txt" alone */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign(uint8_t *block)
{
	unsigned int sum = 0;

	memset(block + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += block[i];
	snprintf((char *)block + 148, 8, "%06o", sum);
}

static int is_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, 511) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"txt"};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = malloc(size);
	if (!copy)
		abort();
	memcpy(copy, data + 1, size - 1);
	for (size_t i = 0; data[0] & SIGN && i + 512 <= size - 1; i += 512) {
		if (!is_zero(copy + i))
			sign(copy + i);
	}
	if (data[0] & NAMED)
		opts = (struct hr_dataset_options){.fields = names, .n_fields = 1};
	format_bytes_add(&all, "input", copy, size - 1, size - 1);
	indexed_bytes_try(&all, &hr__format_tar, &opts);
	hr__format_tar.probe(copy, size - 1, size - 1);
	free(copy);
	return 0;
}

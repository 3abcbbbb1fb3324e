/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors - headers and indexes of safetensors from strangers. The first byte says how much
 * longer than its bytes the file claims to be, whether to be lenient, and whether the rest is a file or
 * an index. What is accepted must lie inside the file without holes, have unique names, and be written
 * by the writer in a form that is accepted again; what is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

/* What was read, written again and read again. */
static void check_rewritten(const struct hr__st *st, uint64_t bytes)
{
	struct hr__st again;
	size_t len;
	char *out;

	require(hr__st_build("again", st->tensors, st->n_tensors, st->metadata, st->n_metadata,
			     &out, &len) == 0);
	require(hr__st_parse("again", out + 8, len - 8, len + bytes, false, &again) == 0);
	require(again.n_tensors == st->n_tensors && again.n_metadata == st->n_metadata);
	for (uint32_t i = 0; i < again.n_tensors; i++) {
		/* build() has sorted them as they are in the file now, up to empty ones */
		const struct hr__st_tensor *a = &again.tensors[again.by_name[i]];
		uint32_t k = 0;

		while (k < st->n_tensors && strcmp(a->name, st->tensors[k].name) != 0)
			k++;
		require(k < st->n_tensors && a->type == st->tensors[k].type &&
			a->ndim == st->tensors[k].ndim);
		require(!a->ndim ||
			memcmp(a->shape, st->tensors[k].shape, a->ndim * sizeof(*a->shape)) == 0);
	}
	hr__st_free(&again);
	free(out);
}

static void check_accepted(const struct hr__st *st, uint64_t file_size)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < st->n_tensors; i++) {
		const struct hr__st_tensor *t = &st->tensors[i];
		uint64_t bytes;

		require(t->begin == at && t->end >= at);
		require(!hr__st_bytes(t->type, t->shape, t->ndim, &bytes));
		require(bytes == t->end - t->begin);
		at = t->end;
		if (i)
			require(strcmp(st->tensors[st->by_name[i - 1]].name,
				       st->tensors[st->by_name[i]].name) < 0);
	}
	require(st->data_off <= file_size && at <= file_size - st->data_off);
	if (at <= INT64_MAX / 2 && st->n_tensors < 1000)
		check_rewritten(st, at);
}

static void try_file(const uint8_t *data, size_t size, uint64_t extra, bool lenient)
{
	uint64_t len, file_size = size + extra;
	struct hr__st st;
	int rc;

	hr__fail_set(EIO, "");
	rc = hr__st_length("input", data, size < 64 ? size : 64, file_size, &len);
	if (rc == 0 && len > size - 8)
		return; /* the reader would have failed before */
	if (rc == 0)
		rc = hr__st_parse("input", data + 8, len, file_size, lenient, &st);
	if (rc == 0) {
		check_accepted(&st, file_size);
		hr__st_free(&st);
	} else {
		require(rc < 0 && hr_error_detail()[0] != '\0');
	}
}

static void try_index(const uint8_t *data, size_t size)
{
	struct hr__st_index index;
	int rc;

	hr__fail_set(EIO, "");
	rc = hr__st_index_parse("input", data, size, &index);
	if (rc) {
		require(rc < 0 && hr_error_detail()[0] != '\0');
		return;
	}
	for (uint32_t i = 0; i < index.n_places; i++) {
		require(hr__st_index_find(&index, index.places[i].name) == index.places[i].file);
		require(!strchr(index.places[i].file, '/') && index.places[i].file[0]);
	}
	hr__st_index_free(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 0x80)
		try_index(data + 1, size - 1);
	else
		try_file(data + 1, size - 1, data[0] & 0x3f, data[0] & 0x40);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/verify.c - the independent check of stream: plain buffered reads, a naive conversion on the
 * CPU, element by element. It must not use the library's engine, planner or kernels.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/verify.h"

/* Files kept open: samples are shuffled over all files, and descriptors are few. */
#define FILES 16

struct cli_verifier {
	struct hr_dataset *ds;
	struct hr_dataset_info info;
	uint8_t *batch; /* what the device holds */
	uint64_t batch_bytes;
	uint8_t *sample; /* what the file holds */
	struct {
		struct hr_file *file;
		int fd;
	} open[FILES];
	uint32_t next;
};

struct cli_verifier *cli_verifier_open(struct hr_dataset *ds, uint64_t batch_bytes)
{
	struct cli_verifier *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->ds = ds;
	v->batch_bytes = batch_bytes;
	hr_dataset_info(ds, &v->info);
	v->batch = malloc(batch_bytes);
	v->sample = malloc(v->info.sample_bytes);
	if (!v->batch || !v->sample) {
		cli_verifier_close(v);
		return NULL;
	}
	return v;
}

void cli_verifier_close(struct cli_verifier *v)
{
	if (!v)
		return;
	for (uint32_t i = 0; i < FILES; i++) {
		if (v->open[i].file)
			close(v->open[i].fd);
	}
	free(v->batch);
	free(v->sample);
	free(v);
}

static int descriptor(struct cli_verifier *v, struct hr_file *file)
{
	uint32_t slot = v->next;
	int fd;

	for (uint32_t i = 0; i < FILES; i++) {
		if (v->open[i].file == file)
			return v->open[i].fd;
	}
	fd = open(hr_file_path(file), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (v->open[slot].file)
		close(v->open[slot].fd);
	v->open[slot].file = file;
	v->open[slot].fd = fd;
	v->next = (slot + 1) % FILES;
	return fd;
}

/* Element @i of type @type at @p, least significant byte first, any alignment. */
static uint64_t element(const uint8_t *p, uint64_t i, enum hr_dtype type)
{
	uint32_t size = hr_dtype_size(type);
	uint64_t value = 0;

	for (uint32_t k = 0; k < size; k++)
		value |= (uint64_t)p[i * size + k] << (8 * k);
	return value;
}

/* What a C cast to @to makes of an unsigned value: the low bytes. */
static uint64_t converted(uint64_t value, enum hr_dtype to)
{
	uint32_t size = hr_dtype_size(to);

	return size >= 8 ? value : value & ((1ull << (8 * size)) - 1);
}

static int verify_row(struct cli_verifier *v, const struct hr_tensor *tokens, uint64_t row,
		      uint64_t sample)
{
	const uint8_t *have = v->batch + row * tokens->stride[0] * hr_dtype_size(tokens->dtype);
	struct hr_file *file;
	uint64_t offset, len;
	int64_t got;
	int fd, err;

	err = hr_dataset_locate(v->ds, sample, &file, &offset, &len);
	if (err || len != v->info.sample_bytes)
		return cli_fail("sample %" PRIu64
				": the dataset does not know it (%s); this is a bug",
				sample, hr_strerror(err));
	fd = descriptor(v, file);
	got = fd < 0 ? -1 : cli_pread_full(fd, v->sample, len, offset);
	if (got != (int64_t)len)
		return cli_fail("%s: could not be read again at byte %" PRIu64
				" to verify it; leave the file in place and whole while it streams",
				hr_file_path(file), offset);
	for (uint64_t i = 0; i < v->info.elements; i++) {
		uint64_t file_value = element(v->sample, i, v->info.dtype);
		uint64_t want = converted(file_value, tokens->dtype);
		uint64_t found = element(have, i * tokens->stride[1], tokens->dtype);

		if (want != found)
			return cli_fail(
				"%s: sample %" PRIu64 " element %" PRIu64 " (file offset %" PRIu64
				"): wanted %" PRIu64 ", got %" PRIu64
				"; the batch is wrong: if nothing wrote to the file, report it",
				hr_file_path(file), sample, i,
				offset + i * hr_dtype_size(v->info.dtype), want, found);
	}
	return CLI_OK;
}

int cli_verify_batch(struct cli_verifier *v, const struct hr_batch *batch)
{
	const struct hr_tensor *tokens = &batch->tensors[0];
	uint64_t bytes = tokens->shape[0] * tokens->stride[0] * hr_dtype_size(tokens->dtype);
	int err;

	if (tokens->ndim != 2 || tokens->shape[1] != v->info.elements || bytes > v->batch_bytes)
		return cli_fail("the batch has another shape than the dataset; this is a bug");
	err = hr_buffer_copy_out(batch->buffer, batch->buffer_offset, v->batch, bytes);
	if (err)
		return cli_fail_code(err, "the batch");
	for (uint64_t row = 0; row < batch->samples; row++) {
		if (verify_row(v, tokens, row, batch->ids[row]) != CLI_OK)
			return CLI_FAILED;
	}
	return CLI_OK;
}

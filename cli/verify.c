/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/verify.c - the independent check of stream: plain buffered reads, a naive conversion on the
 * CPU, element by element. It must not use the library's engine, planner or kernels.
 */
#include <endian.h>
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
	uint8_t *want;   /* the same, converted */
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
	v->want = malloc((uint64_t)v->info.elements * 8);
	if (!v->batch || !v->sample || !v->want) {
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
	free(v->want);
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

/* A little-endian number of @size bytes; with a known size one instruction. */
static inline uint64_t load(const uint8_t *p, uint32_t size)
{
	uint64_t value = 0;

	memcpy(&value, p, size);
	return le64toh(value);
}

static inline void store(uint8_t *p, uint64_t value, uint32_t size)
{
	value = htole64(value);
	memcpy(p, &value, size);
}

/* A C cast of unsigned values keeps the low bytes and puts zeroes above. */
static inline void convert(uint8_t *to, uint32_t to_size, const uint8_t *from, uint32_t from_size,
			   uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		store(to + i * to_size, load(from + i * from_size, from_size), to_size);
}

/* The common pairs once more with sizes that the compiler knows: the same code, some times faster. */
static void convert_row(struct cli_verifier *v, enum hr_dtype to)
{
	uint32_t a = hr_dtype_size(v->info.dtype), b = hr_dtype_size(to);

	if (a == b)
		memcpy(v->want, v->sample, v->info.sample_bytes);
	else if (a == 2 && b == 8)
		convert(v->want, 8, v->sample, 2, v->info.elements);
	else if (a == 2 && b == 4)
		convert(v->want, 4, v->sample, 2, v->info.elements);
	else if (a == 4 && b == 8)
		convert(v->want, 8, v->sample, 4, v->info.elements);
	else
		convert(v->want, b, v->sample, a, v->info.elements);
}

static uint64_t element(const uint8_t *row, uint64_t i, enum hr_dtype type)
{
	return load(row + i * hr_dtype_size(type), hr_dtype_size(type));
}

static int blame(struct cli_verifier *v, struct hr_file *file, const struct hr_tensor *tokens,
		 const uint8_t *have, uint64_t sample, uint64_t offset)
{
	uint64_t i = 0;

	while (i + 1 < v->info.elements &&
	       element(v->want, i, tokens->dtype) == element(have, i, tokens->dtype))
		i++;
	return cli_fail("%s: sample %" PRIu64 " element %" PRIu64 " (file offset %" PRIu64
			"): wanted %" PRIu64 ", got %" PRIu64
			"; the batch is wrong: if nothing wrote to the file, report it",
			hr_file_path(file), sample, i, offset + i * hr_dtype_size(v->info.dtype),
			element(v->want, i, tokens->dtype), element(have, i, tokens->dtype));
}

static int verify_row(struct cli_verifier *v, const struct hr_tensor *tokens, uint64_t row,
		      uint64_t sample)
{
	uint32_t size = hr_dtype_size(tokens->dtype);
	const uint8_t *have = v->batch + row * tokens->stride[0] * size;
	struct hr_range range;
	struct hr_file *file;
	int64_t got;
	int fd, err;

	err = hr_dataset_locate(v->ds, sample, 0, &file, &range, 1);
	if (err != 1 || range.len != v->info.sample_bytes)
		return cli_fail("sample %" PRIu64
				": the dataset does not know it (%s); this is a bug",
				sample, hr_strerror(err));
	fd = descriptor(v, file);
	got = fd < 0 ? -1 : cli_pread_full(fd, v->sample, range.len, range.offset);
	if (got != (int64_t)range.len)
		return cli_fail("%s: could not be read again at byte %" PRIu64
				" to verify it; leave the file in place and whole while it streams",
				hr_file_path(file), range.offset);
	convert_row(v, tokens->dtype);
	if (memcmp(v->want, have, v->info.elements * (uint64_t)size) != 0)
		return blame(v, file, tokens, have, sample, range.offset);
	return CLI_OK;
}

int cli_verify_batch(struct cli_verifier *v, const struct hr_batch *batch)
{
	const struct hr_tensor *tokens = &batch->tensors[0];
	uint64_t bytes = tokens->shape[0] * tokens->stride[0] * hr_dtype_size(tokens->dtype);
	int err;

	if (tokens->ndim != 2 || tokens->shape[1] != v->info.elements || tokens->stride[1] != 1 ||
	    bytes > v->batch_bytes)
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

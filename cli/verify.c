/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/verify.c - the independent check of stream: plain buffered reads, a naive conversion on the
 * CPU, element by element. It must not use the library's engine, planner or kernels.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/convert.h"
#include "cli/verify.h"

/* Files kept open: samples are shuffled over all files, and descriptors are few. */
#define FILES 16

struct cli_verifier {
	struct hr_dataset *ds;
	struct hr_dataset_info info;
	uint8_t *batch; /* what the device holds */
	uint64_t batch_bytes;
	uint8_t *value; /* what the file holds */
	uint8_t *want;  /* the same, converted */
	uint64_t room;  /* bytes of value; want has eight times as many */
	struct hr_range *ranges;
	uint32_t ranges_max;
	int64_t pad_value;
	struct {
		struct hr_file *file;
		int fd;
	} open[FILES];
	uint32_t next;
};

struct cli_verifier *cli_verifier_open(struct hr_dataset *ds, uint64_t batch_bytes,
				       int64_t pad_value)
{
	struct cli_verifier *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->ds = ds;
	v->batch_bytes = batch_bytes;
	hr_dataset_info(ds, &v->info);
	v->pad_value = pad_value;
	v->batch = malloc(batch_bytes ? batch_bytes : 1);
	if (!v->batch) {
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
	free(v->value);
	free(v->want);
	free(v->ranges);
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

/* -- what the file holds --------------------------------------------------------------------- */

static int make_room(struct cli_verifier *v, uint64_t bytes)
{
	if (bytes <= v->room)
		return CLI_OK;
	free(v->value);
	free(v->want);
	v->room = bytes;
	v->value = malloc(bytes);
	v->want = malloc(bytes * 8); /* u8 to i64 */
	return v->value && v->want
		       ? CLI_OK
		       : cli_fail("--verify: no memory for a sample of %" PRIu64 " bytes", bytes);
}

/* Its ranges, however many there are. Return: their number, or -code. */
static int locate(struct cli_verifier *v, uint64_t sample, uint32_t field, struct hr_file **file)
{
	for (;;) {
		int n = hr_dataset_locate(v->ds, sample, field, file, v->ranges, v->ranges_max);

		if (n != -ENOSPC)
			return n;
		cli_forget_detail();
		free(v->ranges);
		v->ranges_max = v->ranges_max ? 4 * v->ranges_max : 16;
		v->ranges = malloc(v->ranges_max * sizeof(*v->ranges));
		if (!v->ranges)
			return -ENOMEM;
	}
}

/* A value, by plain reads. @len: receives its bytes. */
static int read_value(struct cli_verifier *v, uint64_t sample, uint32_t field,
		      struct hr_file **file, uint64_t *len)
{
	int n = locate(v, sample, field, file), fd;
	uint64_t at = 0;

	*len = 0;
	if (n < 0)
		return cli_fail_code(n, v->info.fields[field].name);
	for (int i = 0; i < n; i++)
		*len += v->ranges[i].len;
	if (make_room(v, *len ? *len : 1) != CLI_OK) /* memcmp() of nothing wants an address, too */
		return CLI_FAILED;
	fd = descriptor(v, *file);
	for (int i = 0; i < n; i++) {
		const struct hr_range *r = &v->ranges[i];

		if (fd < 0 ||
		    cli_pread_full(fd, v->value + at, r->len, r->offset) != (int64_t)r->len)
			return cli_fail("%s: could not be read again at byte %" PRIu64
					" to verify it; leave the file in place and whole while it "
					"streams",
					hr_file_path(*file), r->offset);
		at += r->len;
	}
	return CLI_OK;
}

/* The place in the file of byte @at of the value that was read last. */
static uint64_t file_offset(const struct cli_verifier *v, uint64_t at)
{
	const struct hr_range *r = v->ranges;

	while (at >= r->len) {
		at -= r->len;
		r++;
	}
	return r->offset + at;
}

/* -- what the batch holds -------------------------------------------------------------------- */

static const struct hr_tensor *find(const struct hr_batch *batch, const char *name,
				    const char *suffix)
{
	size_t len = strlen(name);

	for (uint32_t i = 0; i < batch->n_tensors; i++) {
		const char *have = batch->tensors[i].name;

		if (strncmp(have, name, len) == 0 && strcmp(have + len, suffix) == 0)
			return &batch->tensors[i];
	}
	return NULL;
}

/* Where a tensor's first element is in the copy. */
static const uint8_t *in_copy(const struct cli_verifier *v, const struct hr_batch *batch,
			      const struct hr_tensor *t)
{
	const char *start = (const char *)hr_buffer_address(batch->buffer) + batch->buffer_offset;

	return v->batch + ((const char *)t->data - start);
}

/* One field of a batch. */
struct column {
	uint32_t field;
	const struct hr_tensor *values;
	const uint8_t *have;
	const int64_t *offsets, *lengths; /* ragged or padded */
	uint64_t row_elements;            /* else, and of padded rows */
};

static int open_column(const struct cli_verifier *v, const struct hr_batch *batch, uint32_t field,
		       struct column *c)
{
	const struct hr_field *f = &v->info.fields[field];
	const struct hr_tensor *offsets = NULL, *lengths = NULL;

	if (f->kind == HR_FIELD_RAGGED) {
		offsets = find(batch, f->name, ".offsets");
		lengths = find(batch, f->name, ".lengths");
	}
	*c = (struct column){.field = field, .values = find(batch, f->name, ""), .row_elements = 1};
	if (!c->values || (f->kind == HR_FIELD_RAGGED && !offsets && !lengths) ||
	    (!offsets && c->values->shape[0] != batch->samples))
		return cli_fail(
			"field %s: the batch has another shape than the dataset; this is a bug",
			f->name);
	c->have = in_copy(v, batch, c->values);
	if (offsets)
		c->offsets = (const int64_t *)(const void *)in_copy(v, batch, offsets);
	if (lengths)
		c->lengths = (const int64_t *)(const void *)in_copy(v, batch, lengths);
	for (uint32_t d = 1; d < c->values->ndim; d++)
		c->row_elements *= c->values->shape[d];
	return CLI_OK;
}

static int blame(struct cli_verifier *v, const struct column *c, struct hr_file *file,
		 uint64_t sample, uint64_t i, const uint8_t *have)
{
	const struct hr_field *f = &v->info.fields[c->field];
	char want_text[CLI_TEXT_BYTES], have_text[CLI_TEXT_BYTES];
	enum hr_dtype type = c->values->dtype;
	uint32_t size = hr_dtype_size(type);

	return cli_fail(
		"%s: sample %" PRIu64 " element %" PRIu64 " of field %s (file offset %" PRIu64
		"): wanted %s, got %s; the batch is wrong: if nothing wrote to the file, "
		"report it",
		hr_file_path(file), sample, i, f->name, file_offset(v, i * hr_dtype_size(f->dtype)),
		cli_show(want_text, v->want + i * size, type),
		cli_show(have_text, have + i * size, type));
}

static int verify_padding(struct cli_verifier *v, const struct column *c, uint64_t row,
			  const uint8_t *have, uint64_t from)
{
	enum hr_dtype type = c->values->dtype;
	uint32_t size = hr_dtype_size(type);
	double number = (double)v->pad_value;
	uint8_t want[8];

	if (type == HR_DTYPE_F16 || type == HR_DTYPE_BF16 || type == HR_DTYPE_F32)
		cli_convert(want, type, &number, HR_DTYPE_F64, 1);
	else if (type == HR_DTYPE_F64)
		memcpy(want, &number, sizeof(number));
	else
		memcpy(want, &v->pad_value, sizeof(want));
	for (uint64_t i = from; i < c->row_elements; i++) {
		if (memcmp(have + i * size, want, size) != 0)
			return cli_fail("field %s: row %" PRIu64 ", element %" PRIu64
					" is no padding; the batch is wrong: report it",
					v->info.fields[c->field].name, row, i);
	}
	return CLI_OK;
}

static int verify_scalar(struct cli_verifier *v, const struct column *c, uint64_t row,
			 uint64_t sample)
{
	uint64_t want = 0;
	int err = hr_dataset_scalar(v->ds, sample, c->field, &want);

	if (err)
		return cli_fail_code(err, v->info.fields[c->field].name);
	if (memcmp(c->have + row * 8, &want, 8) != 0)
		return cli_fail("field %s of sample %" PRIu64
				": is not what the index says; the batch "
				"is wrong: report it",
				v->info.fields[c->field].name, sample);
	return CLI_OK;
}

static int verify_row(struct cli_verifier *v, const struct column *c, uint64_t row, uint64_t sample)
{
	const struct hr_field *f = &v->info.fields[c->field];
	uint32_t size = hr_dtype_size(c->values->dtype);
	uint64_t len, n, there = c->row_elements;
	const uint8_t *have = c->have + row * c->row_elements * size;
	struct hr_file *file;

	if (f->kind == HR_FIELD_SCALAR)
		return verify_scalar(v, c, row, sample);
	if (read_value(v, sample, c->field, &file, &len) != CLI_OK)
		return CLI_FAILED;
	n = len / hr_dtype_size(f->dtype);
	if (c->offsets) {
		have = c->have + (uint64_t)c->offsets[row] * size;
		there = (uint64_t)(c->offsets[row + 1] - c->offsets[row]);
	} else if (c->lengths) {
		there = (uint64_t)c->lengths[row];
		n = cli_min(n, c->row_elements);
	}
	if (there != n)
		return cli_fail("field %s of sample %" PRIu64 ": %" PRIu64
				" elements instead of %" PRIu64 "; the batch is wrong: report it",
				f->name, sample, there, n);
	cli_convert(v->want, c->values->dtype, v->value, f->dtype, n);
	for (uint64_t i = 0; memcmp(v->want, have, n * size) != 0 && i < n; i++) {
		if (!cli_same(v->want + i * size, have + i * size, c->values->dtype))
			return blame(v, c, file, sample, i, have);
	}
	return c->lengths ? verify_padding(v, c, row, have, n) : CLI_OK;
}

int cli_verify_batch(struct cli_verifier *v, const struct hr_batch *batch)
{
	int err = hr_buffer_copy_out(batch->buffer, batch->buffer_offset, v->batch, v->batch_bytes);

	if (err)
		return cli_fail_code(err, "the batch");
	for (uint32_t k = 0; k < v->info.n_fields; k++) {
		struct column c;

		if (open_column(v, batch, k, &c) != CLI_OK)
			return CLI_FAILED;
		for (uint64_t row = 0; row < batch->samples; row++) {
			if (verify_row(v, &c, row, batch->ids[row]) != CLI_OK)
				return CLI_FAILED;
		}
	}
	return CLI_OK;
}

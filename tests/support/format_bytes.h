/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/format_bytes.h - files in memory for tests of dataset formats: one to open and any number beside
 * it. A read outside of a file ends the program.
 */
#ifndef HR_TESTS_FORMAT_BYTES_H
#define HR_TESTS_FORMAT_BYTES_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/format.h"

#define FORMAT_FILES_MAX 8u

struct format_file_bytes {
	const char *name;
	const uint8_t *bytes;
	uint64_t len;     /* bytes at hand; behind them, up to size, the file is a hole */
	uint64_t size;    /* 0 = len */
	int fail_with;    /* reads fail with this code */
	uint64_t highest; /* last byte asked for, plus 1 */
	uint64_t reads;
	struct hr_source src;
};

struct format_bytes {
	struct hr__siblings siblings;
	struct format_file_bytes files[FORMAT_FILES_MAX]; /* the first is the one that is opened */
	uint32_t n_files;
};

static inline int format_bytes_read(const struct hr_source *src, uint64_t offset, void *buf,
				    size_t len)
{
	struct format_file_bytes *f = src->ctx;
	uint64_t there = offset < f->len ? f->len - offset : 0;

	f->reads++;
	if (offset > src->size || len > src->size - offset) {
		fprintf(stderr, "%s: read of %zu bytes at %llu of %llu\n", src->name, len,
			(unsigned long long)offset, (unsigned long long)src->size);
		abort();
	}
	if (f->fail_with)
		return hr__fail(f->fail_with, "%s: reading failed", src->name);
	if (there > len)
		there = len;
	if (there)
		memcpy(buf, f->bytes + offset, there);
	memset((char *)buf + there, 0, len - there);
	if (offset + len > f->highest)
		f->highest = offset + len;
	return 0;
}

/* How often all the files were read. */
static inline uint64_t format_bytes_reads(const struct format_bytes *all)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < all->n_files; i++)
		n += all->files[i].reads;
	return n;
}

static inline int format_bytes_sibling(struct hr__siblings *siblings, const char *name,
				       const struct hr_source **out)
{
	struct format_bytes *all = (struct format_bytes *)siblings;

	if (strchr(name, '/') || strcmp(name, "..") == 0)
		return hr__fail(HR_E_BAD_FORMAT, "%s: not a name in the folder", name);
	for (uint32_t i = 1; i < all->n_files; i++) {
		if (strcmp(all->files[i].name, name) == 0) {
			*out = &all->files[i].src;
			return 0;
		}
	}
	return hr__fail(ENOENT, "%s: no such file", name);
}

/* What the caller named in the options: the same files, by their names. */
static inline int format_bytes_path(struct hr__siblings *siblings, const char *path,
				    const struct hr_source **out)
{
	const char *slash = strrchr(path, '/');

	return format_bytes_sibling(siblings, slash ? slash + 1 : path, out);
}

/* Add a file; the first one is what is opened. The bytes stay the caller's. */
static inline struct format_file_bytes *format_bytes_add(struct format_bytes *all, const char *name,
							 const void *bytes, uint64_t len,
							 uint64_t size)
{
	struct format_file_bytes *f = &all->files[all->n_files++];

	*f = (struct format_file_bytes){.name = name, .bytes = bytes, .len = len};
	f->src = (struct hr_source){name, size ? size : len, format_bytes_read, f};
	all->siblings.open = format_bytes_sibling;
	all->siblings.open_path = format_bytes_path;
	return f;
}

static inline int format_bytes_open(struct format_bytes *all, const struct hr__format_ops *ops,
				    const struct hr_dataset_options *opts,
				    struct hr__format_file **out)
{
	struct hr__format_args args = {
		.src = &all->files[0].src, .siblings = &all->siblings, .opts = opts};

	return ops->open(&args, out);
}

/* -- what holds of every format, whatever the bytes: for fuzzing and for hostile files -- */

static inline void format_require(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "format: %s\n", what);
	abort();
}

/* @data_size: of the file that schema.data_file names. */
static inline void format_check_sample(const struct hr__format_file *ff, uint64_t index,
				       uint64_t data_size)
{
	const struct hr__schema *schema = &ff->schema;
	uint32_t most = schema->ranges_max ? schema->ranges_max : 1;
	struct hr_range *ranges = malloc(most * sizeof(*ranges));

	for (uint32_t k = 0; k < schema->n_fields; k++) {
		const struct hr_field *field = &schema->fields[k].face;
		uint64_t sum = 0, value;
		int n;

		if (field->kind == HR_FIELD_SCALAR) {
			n = ff->ops->value(ff, index, k, &value);
			format_require(n == 0 || (n == -HR_E_BAD_SAMPLE && schema->n_bad),
				       "a scalar, but of a damaged sample");
			continue;
		}
		n = ff->ops->locate(ff, index, k, ranges);
		if (n < 0) {
			format_require(hr_error_detail()[0] != '\0', "a refusal has a sentence");
			continue;
		}
		format_require((uint32_t)n <= most, "no more ranges than were said");
		for (int i = 0; i < n; i++) {
			format_require(ranges[i].offset <= data_size &&
					       ranges[i].len <= data_size - ranges[i].offset,
				       "a range inside the file");
			sum += ranges[i].len;
		}
		if (field->kind == HR_FIELD_FIXED)
			format_require(sum == field->bytes, "a fixed field's length");
		else
			format_require(sum <= field->bytes &&
					       sum % hr_dtype_size(field->dtype) == 0,
				       "a ragged field's length");
	}
	free(ranges);
}

/* Documents begin inside of their window, in order. */
static inline void format_check_starts(const struct hr__format_file *ff, uint64_t index)
{
	uint32_t starts[4];
	int n = ff->ops->starts(ff, index, starts, 4);

	format_require(n >= 0 || hr_error_detail()[0], "a refusal has a sentence");
	format_require(n <= 4, "no more starts than there is room for");
	for (int k = 0; k < n; k++) {
		format_require(starts[k] < ff->schema.fields[0].face.shape[0], "a start inside");
		format_require(k == 0 || starts[k] > starts[k - 1], "starts ascend");
	}
}

static inline void format_check_accepted(const struct hr__format_file *ff, uint64_t data_size)
{
	const struct hr__schema *schema = &ff->schema;

	format_require(schema->n_fields >= 1 && schema->n_fields <= HR__FIELDS_MAX, "fields");
	for (uint32_t k = 0; k < schema->n_fields; k++) {
		const struct hr_field *f = &schema->fields[k].face;
		uint64_t bytes = hr_dtype_size(f->dtype);

		format_require(f->name && f->name[0] && bytes, "a field has a name and a type");
		format_require(f->ndim < HR_DIMS_MAX, "dimensions");
		for (uint32_t d = 0; d < f->ndim && f->kind == HR_FIELD_FIXED; d++)
			format_require(!__builtin_mul_overflow(bytes, f->shape[d], &bytes),
				       "shape");
		if (f->kind == HR_FIELD_FIXED)
			format_require(f->bytes == bytes && bytes, "bytes of a fixed field");
		if (f->kind == HR_FIELD_RAGGED)
			format_require(f->ndim == 1 && schema->fields[k].sizes &&
					       schema->fields[k].sizes->max == f->bytes,
				       "a ragged field has sizes");
	}
	for (uint64_t i = 0; i < schema->n_bad; i++)
		format_require(schema->bad[i] < schema->count &&
				       (!i || schema->bad[i - 1] < schema->bad[i]),
			       "damaged samples ascend");
	if (!schema->count)
		return;
	format_check_sample(ff, 0, data_size);
	format_check_sample(ff, schema->count / 2, data_size);
	format_check_sample(ff, schema->count - 1, data_size);
}

/* Open, check what was accepted, close. Return: the code of open(). */
static inline int format_bytes_try(struct format_bytes *all, const struct hr__format_ops *ops,
				   const struct hr_dataset_options *opts)
{
	struct hr__format_file *ff = NULL;
	int rc;

	hr__fail_set(EIO, "");
	rc = format_bytes_open(all, ops, opts, &ff);
	if (rc < 0) {
		format_require(!ff && hr_error_detail()[0] != '\0', "a refusal has a sentence");
		return rc;
	}
	format_require(ff->schema.data_file < all->n_files, "the data's file was opened");
	format_check_accepted(ff, all->files[ff->schema.data_file].src.size);
	ops->close(ff);
	return 0;
}

#endif

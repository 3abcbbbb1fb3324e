/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/dataset.h - files of training samples, addressed by sample number.
 *
 * A dataset knows where sample i lies and what it looks like; it reads only headers. It is
 * immutable after opening, reference counted, and may be shared by any number of threads.
 */
#ifndef HEADRACE_DATASET_H
#define HEADRACE_DATASET_H

#include <stdint.h>

#include <headrace/dtype.h>
#include <headrace/file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_dataset;

struct hr_dataset_options {
	const char *format;  /* "tokens", or NULL / "auto": recognised by the files */
	enum hr_dtype dtype; /* tokens without a header: HR_DTYPE_U16 or HR_DTYPE_U32; 0 = u16.
				With a header it must agree or be 0 */
	uint32_t seq_len;    /* tokens: T, 1..2^24; a sample is a window of T + 1 tokens */
	uint64_t stride;     /* tokens: distance of windows in tokens, 0 = T (every target once) */
};

struct hr_dataset_info {
	const char *format;    /* static */
	uint64_t samples;      /* in all files together */
	uint32_t elements;     /* per sample: T + 1 for tokens */
	enum hr_dtype dtype;   /* of the elements in the file */
	uint64_t sample_bytes; /* in the file */
	uint32_t files;
	uint64_t bytes; /* of all files */
	uint64_t
		fingerprint; /* of format, options, names and sizes; ties saved states to the data */
};

/*
 * hr_dataset_open() - open one or more files as one dataset, in the order given.
 * @paths: @n paths, copied. Windows never cross from one file into the next.
 *
 * Return: 0, -errno, -HR_E_NOT_A_FILE, -HR_E_EMPTY_FILE, -HR_E_BAD_FORMAT, -HR_E_UNKNOWN_FORMAT,
 * -HR_E_BAD_DTYPE, -HR_E_TOO_SHORT, -EINVAL, -ENOMEM; hr_error_detail() has the sentence.
 */
int hr_dataset_open(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		    struct hr_dataset **out);

/* hr_dataset_close() - drop the caller's reference. @ds: may be NULL. */
void hr_dataset_close(struct hr_dataset *ds);

/* hr_dataset_info() - sizes and types. Return: 0. */
int hr_dataset_info(const struct hr_dataset *ds, struct hr_dataset_info *info);

/*
 * hr_dataset_locate() - where sample @index lies.
 * @file: receives a borrowed reference, valid as long as the dataset.
 * @offset, @len: bytes in that file.
 * Return: 0, or -EINVAL for an index outside [0, samples).
 */
int hr_dataset_locate(const struct hr_dataset *ds, uint64_t index, struct hr_file **file,
		      uint64_t *offset, uint64_t *len);

#ifdef __cplusplus
}
#endif
#endif

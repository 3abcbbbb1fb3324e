/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/dataset.h - files of training samples, addressed by sample number.
 *
 * A dataset knows where sample i lies and what it looks like; it reads headers and side indexes, never
 * samples. It is immutable after opening, reference counted, and may be shared by any number of threads.
 *
 * A sample has named fields. A fixed field has the same type and shape in every sample; a ragged one is
 * a row of elements of any length (an image as it was encoded, a document of tokens); a scalar is one
 * number that stands in an index and needs no reading.
 */
#ifndef HEADRACE_DATASET_H
#define HEADRACE_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/dtype.h>
#include <headrace/file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_dataset;

#define HR_DIMS_MAX 8u

enum hr_field_kind {
	HR_FIELD_FIXED = 0,
	HR_FIELD_RAGGED = 1, /* ndim is 1, shape[0] is 0 */
	HR_FIELD_SCALAR = 2, /* ndim is 0, dtype i64 or f64 */
};

struct hr_field {
	const char *name; /* valid as long as the dataset */
	enum hr_field_kind kind;
	enum hr_dtype dtype; /* of the elements in the file */
	uint32_t ndim;       /* of one sample, 0..HR_DIMS_MAX - 1 */
	uint64_t shape[HR_DIMS_MAX];
	uint64_t bytes; /* of one sample in the file; ragged: of the longest; scalar: 8 */
};

/* What becomes of samples that the index or the headers show to be damaged. */
enum hr_corrupt {
	HR_CORRUPT_ERROR = 0,      /* opening fails and says which one */
	HR_CORRUPT_SKIP = 1,       /* the dataset is shorter by them */
	HR_CORRUPT_SUBSTITUTE = 2, /* the next whole sample stands in its place */
};

struct hr_dataset_options {
	const char *format;  /* "tokens", "megatron", "npy", "tar", "tfrecord", "mds", "arrow",
				"safetensors", or NULL / "auto": recognised by the files */
	enum hr_dtype dtype; /* tokens without a header: HR_DTYPE_U16 or HR_DTYPE_U32; 0 = u16.
				With a header it must agree or be 0 */
	uint32_t seq_len;    /* tokens, megatron: T, 1..2^24; a sample is a window of T + 1 tokens.
				megatron: 0 = a sample is a document, ragged */
	uint64_t stride;     /* tokens: distance of windows in tokens, 0 = T (every target once) */
	const char *const *fields; /* the fields wanted; NULL = all that the format can give */
	uint32_t n_fields;
	enum hr_corrupt corrupt;
	bool whole_files;  /* npy: a file is one sample, not its rows */
	const char *order; /* megatron: what the paths of its three index files begin with, up to
				  "document_index.npy"; samples then have Megatron's numbers. NULL: ours */
	const char *index_dir; /* of side indexes; NULL: beside the data */
	bool index_only;       /* use a side index, never build one */
	uint32_t
		index_threads; /* that build side indexes, one file each at a time; 0 = 1: the caller's */
};

struct hr_dataset_info {
	const char *format;    /* static */
	uint64_t samples;      /* in all files together, those that are skipped not counted */
	uint32_t elements;     /* of field 0 per sample, 0 if ragged: T + 1 for windows of tokens */
	enum hr_dtype dtype;   /* of field 0 in the file */
	uint64_t sample_bytes; /* of all fields in the file; of ragged ones the mean */
	uint32_t files;        /* of samples */
	uint64_t bytes;        /* of all files */
	uint64_t
		fingerprint; /* of format, options, names and sizes; ties saved states to the data */
	bool windows;        /* of tokens: see struct hr_batch */
	uint32_t n_fields;
	const struct hr_field *fields; /* valid as long as the dataset */
	uint64_t corrupt;              /* samples that were skipped or substituted */
	char corrupt_reason[256];      /* what is wrong with the first, file and byte; "" */
};

/*
 * hr_dataset_open() - open one or more files as one dataset, in the order given.
 * @paths: @n paths, copied: files, or folders: one with an index.json is what that says, any other one
 *         the files of the format in it, by name. Samples never cross from one file into the next.
 *
 * Any number of files: those of all datasets together take a quarter of RLIMIT_NOFILE, 16 descriptors
 * at least. When there are more, the least recently used ones are closed, and opened again when they are
 * read. A file that was replaced, removed or changed meanwhile fails that read with -HR_E_FILE_CHANGED.
 *
 * Return: 0, -errno, -HR_E_NOT_A_FILE, -HR_E_EMPTY_FILE, -HR_E_BAD_FORMAT, -HR_E_UNKNOWN_FORMAT,
 * -HR_E_BAD_DTYPE, -HR_E_TOO_SHORT, -HR_E_BAD_SAMPLE, -HR_E_NO_INDEX, -EINVAL, -ENOMEM;
 * hr_error_detail() has the sentence.
 */
int hr_dataset_open(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		    struct hr_dataset **out);

/*
 * hr_dataset_select() - some samples of a dataset, in the order given, as a dataset.
 * @ids: @n sample numbers of @ds, 1..2^40 of them, repetitions allowed; copied: 8 bytes each.
 * @out: holds a reference of @ds.
 * Return: 0, -EINVAL, -ENOMEM.
 */
int hr_dataset_select(struct hr_dataset *ds, const uint64_t *ids, uint64_t n,
		      struct hr_dataset **out);

/*
 * hr_dataset_mix() - several datasets as one, drawn from by weight.
 * @kids: @n datasets, 1..1024, with the same fields; @out holds references of them.
 * @weights: positive and finite; shares are exact to one sample in 65536.
 * @samples: length of an epoch, up to 2^62; 0 = the sum of their lengths. A dataset that is used up within
 *           an epoch begins again in another order; one that is not goes on where it was in the next.
 *
 * Sample numbers are those of the datasets one behind the other.
 * Return: 0, -EINVAL, -HR_E_BAD_DTYPE or -HR_E_BAD_FORMAT (fields differ), -ENOMEM.
 */
int hr_dataset_mix(struct hr_dataset *const *kids, const double *weights, uint32_t n,
		   uint64_t samples, struct hr_dataset **out);

/* hr_dataset_close() - drop the caller's reference. @ds: may be NULL. */
void hr_dataset_close(struct hr_dataset *ds);

/* hr_dataset_info() - sizes, types and fields. Return: 0. */
int hr_dataset_info(const struct hr_dataset *ds, struct hr_dataset_info *info);

/* A run of bytes in a file. */
struct hr_range {
	uint64_t offset, len;
};

/*
 * hr_dataset_locate() - where field @field of sample @index lies.
 * @file: receives a borrowed reference, valid as long as the dataset.
 * @out: receives up to @max ranges, in the order of the value's bytes.
 * Return: how many there are, 0 for an empty value; -ENOSPC when more than @max; -EINVAL for numbers
 * outside of the dataset and for a scalar.
 */
int hr_dataset_locate(const struct hr_dataset *ds, uint64_t index, uint32_t field,
		      struct hr_file **file, struct hr_range *out, uint32_t max);

/*
 * hr_dataset_scalar() - the value of a scalar field: an int64_t, or the bits of a double.
 * Return: 0, or -EINVAL.
 */
int hr_dataset_scalar(const struct hr_dataset *ds, uint64_t index, uint32_t field, uint64_t *out);

struct hr_index_progress {
	uint64_t bytes, bytes_total; /* of the files that are read */
	uint64_t samples;            /* found so far */
	uint32_t files, files_total; /* done */
};

struct hr_index_options {
	struct hr_dataset_options dataset; /* format, index_dir, index_threads */
	bool force;                        /* also where the index is good */
	bool check; /* build nothing: read every index that is there, and count those that are no good */
	/* Called now and then, by one thread at a time. Return: 0, or what ends the work: -ECANCELED. */
	int (*progress)(void *ctx, const struct hr_index_progress *progress);
	void *ctx;
};

/*
 * hr_index_build() - make the side indexes that @paths need, where they are absent or stale.
 *
 * A side index is beside its file, or in index_dir, named as the file with ".hrindex" behind it. It is
 * bound to the file's size, time of modification and first 4 KiB, and replaced as a whole or not at all.
 * Where a folder cannot be written this fails; hr_dataset_open() goes on with an index that is not kept.
 * @out: how it went; may be NULL.
 * Return: files whose index was made, or with check is absent, stale or damaged (hr_error_detail() has the
 * first); 0 when all were good, also for formats that need none; -code.
 */
int hr_index_build(const char *const *paths, uint32_t n, const struct hr_index_options *opts,
		   struct hr_index_progress *out);

#ifdef __cplusplus
}
#endif
#endif

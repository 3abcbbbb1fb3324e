/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset.h - the inside of a dataset: parts with the numbers of their first samples, and views of
 * other datasets: some of the samples of one (a selection), or several of them by weight (a mixture).
 */
#ifndef HR_LOADER_DATASET_H
#define HR_LOADER_DATASET_H

#include <stdatomic.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "base/sizes.h"
#include "format/format.h"

/* A file that a part reads. */
struct hr__opened {
	struct hr_source src; /* its name is this struct's, its ctx the file */
	struct hr_file *file;
	struct hr__opened *next;
	char path[];
};

/* One file of samples, opened by a format. */
struct hr__part {
	struct hr__siblings siblings; /* must be first: the formats' way to what lies beside it */
	struct hr__opened *opened;    /* the latest first; the file itself is the last */
	struct hr__index *index;      /* or NULL */
	struct hr__format_file *ff;
	struct hr_file *file; /* that the samples are in: one of those opened */
	uint64_t size;        /* its bytes at open: what a truncated file is measured against */
	uint64_t first;       /* number of the first sample in the dataset that opened it */
	uint64_t count;       /* samples that it gives */
	enum hr_corrupt corrupt;
	uint32_t *fields; /* the dataset's field k is its fields[k] */
};

/* Immutable after open but for the count. */
struct hr_dataset {
	atomic_uint refs;
	struct hr_dataset_info info;
	struct hr_field *fields;
	struct hr__sizes **sizes; /* per field: of ragged ones, else NULL */
	uint32_t n_parts, room;
	struct hr__part **parts; /* also those of the kids, in their order */
	/* a selection or mixture: */
	uint32_t n_kids;
	struct hr_dataset **kids;
	uint64_t *kid_first; /* number of a kid's first sample */
	uint32_t *kid_part;  /* number of a kid's first part */
	double *weights;     /* a mixture's */
	uint64_t epoch;      /* samples of an epoch */
	uint64_t *ids;       /* a selection's */
	bool ids_repeat;
};

/* Where a sample is. */
struct hr__place {
	uint32_t part;  /* number in dataset.parts */
	uint64_t index; /* in that part's format file */
};

void hr__dataset_get(struct hr_dataset *ds);
void hr__dataset_put(struct hr_dataset *ds);

/* Find sample @id < info.samples. */
void hr__dataset_find(const struct hr_dataset *ds, uint64_t id, struct hr__place *out);

/* hr__part_ahead() - comes before hr__part_locate(), for all samples that are wanted together. */
static inline void hr__part_ahead(const struct hr__part *part, uint64_t index)
{
	if (part->ff->schema.ahead)
		part->ff->schema.ahead(part->ff, index);
}

/* hr__part_locate() - as the format's locate(), by the dataset's number of a field. */
static inline int hr__part_locate(const struct hr__part *part, uint64_t index, uint32_t field,
				  struct hr_range *out)
{
	return part->ff->ops->locate(part->ff, index, part->fields[field], out);
}

/* Most ranges that one field of one sample has. */
uint32_t hr__dataset_ranges_max(const struct hr_dataset *ds);

/*
 * How often a sample may stand in @n positions that follow each other, the epoch's first behind its last
 * where it is padded: 1, unless the dataset repeats itself or has fewer samples.
 */
uint64_t hr__dataset_repeats(const struct hr_dataset *ds, uint64_t n);

/* -- how a dataset comes to be: dataset_part.c, dataset_paths.c, dataset_view.c -- */

struct hr_dataset *hr__dataset_new(void);

/* All files are joined: the sums over them. */
void hr__dataset_finish(struct hr_dataset *ds);

/*
 * hr__dataset_join() - the samples of @path have @fields: the first ones are the dataset's, all others
 * must be like them.
 * @sizes: per field, NULL where it is not ragged. @count: samples.
 * @map: receives the number in @fields of each field of the dataset; room for HR__FIELDS_MAX.
 * Return: 0, -HR_E_BAD_DTYPE, -HR_E_BAD_FORMAT, -ENOMEM.
 */
int hr__dataset_join(struct hr_dataset *ds, const struct hr_field *fields,
		     const struct hr__sizes *const *sizes, uint32_t n, uint64_t count,
		     const char *path, uint32_t *map);

/*
 * hr__part_open() - open one file of samples. @ops: the format, found and set if it is NULL.
 * @shard: what a manifest says of it, or NULL.
 * Return: 0 or -code; *@out is freed by hr__part_close() in both cases, if it is not NULL.
 */
int hr__part_open(const char *path, const struct hr_dataset_options *opts,
		  const struct hr__shard *shard, const struct hr__format_ops **ops,
		  struct hr__part **out);
void hr__part_close(struct hr__part *part);

/* hr__part_source() - a part that is only a file to be looked at. Close it as the others. */
int hr__part_source(const char *path, struct hr__part **out, const struct hr_source **src);

/*
 * hr__part_pair() - is the file @path known by the one beside it (Megatron's .bin by its .idx)? *@ops is set
 * then, and left alone otherwise.
 */
void hr__part_pair(const char *path, const struct hr__format_ops **ops);

/* The number in the format file of the @nth < part->count sample that the part gives. */
uint64_t hr__part_index(const struct hr__part *part, uint64_t nth);

/* The format of a file: by @name, or by its head. Return: 0, -HR_E_UNKNOWN_FORMAT, -code. */
int hr__source_format(const struct hr_source *src, const char *name,
		      const struct hr__format_ops **out);

/*
 * hr__paths_expand() - files and folders as files: @each is called for each of them, in order. @ops as above.
 */
int hr__paths_expand(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		     const struct hr__format_ops **ops,
		     int (*each)(void *ctx, const char *path, const struct hr__shard *shard),
		     void *ctx);

#endif

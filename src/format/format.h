/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/format.h - the plug point "what bytes mean": one const table per dataset format.
 *
 * A format sees bytes through struct hr_source and does no I/O of its own, so that every parser can
 * be fuzzed. All numbers in a file are hostile.
 */
#ifndef HR_FORMAT_FORMAT_H
#define HR_FORMAT_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "base/source.h"

/* What a format says of one file. */
struct hr__schema {
	enum hr_dtype dtype;
	uint32_t elements; /* per sample */
	uint64_t sample_bytes;
	uint64_t count; /* samples in this file */
};

/* State of one parsed file; formats embed it as their first member if they need more. */
struct hr__format_file {
	const struct hr__format_ops *ops;
	struct hr__schema schema;
	uint64_t data_off;     /* formats whose samples are evenly spaced need no more than this: */
	uint64_t stride_bytes; /* sample i = [data_off + i * stride_bytes, + sample_bytes) */
};

struct hr__format_ops {
	const char *name;
	/* 0 = certainly not, 100 = a magic number says so. @head: the first bytes of the file. */
	int (*probe)(const void *head, size_t len, uint64_t file_size);
	/* Parse; fills *out, allocated by the format. Return: 0 or -code with a sentence. */
	int (*open)(const struct hr_source *src, const struct hr_dataset_options *opts,
		    struct hr__format_file **out);
	/* Byte range of sample @index < schema.count. */
	int (*locate)(const struct hr__format_file *ff, uint64_t index, uint64_t *offset,
		      uint64_t *len);
	void (*close)(struct hr__format_file *ff);
};

extern const struct hr__format_ops hr__format_tokens;

/* By name, or by probing when @name is NULL or "auto". NULL if there is none. */
const struct hr__format_ops *hr__format_find(const char *name, const void *head, size_t len,
					     uint64_t file_size);

/*
 * What a file that is certainly no dataset of ours is, judged by its first bytes: "a git-lfs pointer,
 * not the data; run 'git lfs pull'". Return: a static clause for a sentence, or NULL.
 */
const char *hr__format_foreign(const void *head, size_t len);

/* How many bytes of the head the functions above like to see. */
#define HR__FORMAT_HEAD_BYTES 1024u

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/format.h - the plug point "what bytes mean": one const table per dataset format.
 *
 * A format sees bytes through struct hr_source and does no I/O of its own, so that every parser can
 * be fuzzed. All numbers in a file are hostile. A sentence about a bad file names the file, the byte and
 * the rule that was broken.
 *
 * A dataset is a row of *parts*; a part is one file that a format has opened, with those beside it that
 * it needs. The samples of a part have the same *fields*: fixed ones, ragged ones (one dimension of any
 * length), and scalars whose values are known when the part is open and need no reading.
 */
#ifndef HR_FORMAT_FORMAT_H
#define HR_FORMAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/dataset.h>

#include "base/sizes.h"
#include "base/source.h"

#define HR__FIELDS_MAX 256u

struct hr__index; /* format/index.h: a side index */
struct hr__index_sink;

/* One column of a part's samples. */
struct hr__field {
	struct hr_field face; /* what the caller sees; its name belongs to the format file */
	/*
	 * Ragged: lengths in bytes of all samples of this part, so that the ring of batches can be sized;
	 * belongs to the format file. NULL else.
	 */
	const struct hr__sizes *sizes;
};

struct hr__format_file;

/* What a format says of one file. */
struct hr__schema {
	uint64_t count;    /* samples, those in @bad included */
	uint32_t n_fields; /* 1..HR__FIELDS_MAX */
	struct hr__field *fields;
	uint32_t ranges_max; /* most ranges that locate() gives for one field; 0 means 1 */
	uint32_t data_file;  /* where the samples are: 0 = the file itself, k = the k-th sibling */
	/* Samples that are known to be damaged, ascending. */
	uint64_t n_bad;
	const uint64_t *bad;
	const char *bad_reason; /* what is wrong with the first, and at which byte */
	/* Samples are windows over one stream of tokens: field 0 has T + 1 elements, of which the first T
	   and the last T are what a model sees. */
	bool windows;
	/*
	 * Where locate() reads for each sample, else NULL: sample @index is going to be asked for, among
	 * others. Begins to bring in what is read for it, so that all of that comes at once. To be called
	 * before locate().
	 */
	void (*ahead)(const struct hr__format_file *ff, uint64_t index);
};

/* State of one parsed file; formats embed it as their first member if they need more. */
struct hr__format_file {
	const struct hr__format_ops *ops;
	struct hr__schema schema;
};

/* Files beside the one that is opened. */
struct hr__siblings {
	/*
	 * @name: in the same folder; one with a '/' in it, and "..", are refused. The source stays valid as
	 * long as the format file. Return: 0, -ENOENT (not there), or -code with a sentence.
	 */
	int (*open)(struct hr__siblings *siblings, const char *name, const struct hr_source **out);
	/*
	 * @path: one that the caller gave in the options, anywhere; never one from a file. Else as open().
	 */
	int (*open_path)(struct hr__siblings *siblings, const char *path,
			 const struct hr_source **out);
};

struct hr__format_args {
	const struct hr_source *src; /* valid, and readable, as long as the format file */
	struct hr__siblings *siblings;
	const struct hr_dataset_options *opts;
	const struct hr__index
		*index; /* formats with scan(): their side index, valid as long; else NULL */
};

/* What a manifest (index.json of MDS) says about one of its shards. */
struct hr__shard {
	const char *name; /* of a file in the manifest's folder */
	uint64_t bytes;   /* it must have; UINT64_MAX: not said */
	uint64_t samples; /* it must hold; UINT64_MAX: not said */
};

struct hr__format_ops {
	const char *name;
	const char *suffixes; /* of its files in a folder, such as ".arrow .feather" */
	/*
	 * Only where files without a mark of their own have one beside them that tells, else NULL:
	 * ".bin .idx" says that X.bin is this format's when the probe knows X.idx.
	 */
	const char *pair;
	/* 0 = certainly not, 100 = a magic number says so. @head: the first bytes of the file. */
	int (*probe)(const void *head, size_t len, uint64_t file_size);
	/*
	 * Only where a dataset has a manifest, else NULL: is this one? Calls @add for each shard; texts are
	 * copied. Return: 0; 1 when @src is not a manifest but a file of samples; -code with a sentence.
	 */
	int (*expand)(const struct hr_source *src, const struct hr_dataset_options *opts,
		      int (*add)(void *ctx, const struct hr__shard *shard), void *ctx);
	/*
	 * Only where an index has to be made first, else NULL: read all of @src once and tell @sink every
	 * sample. Return: 0 or -code.
	 */
	int (*scan)(const struct hr_source *src, struct hr__index_sink *sink);
	uint32_t
		scan_rules; /* another number when scan() tells something else about the same file */
	/* Parse; fills *out, allocated by the format. Return: 0 or -code with a sentence. */
	int (*open)(const struct hr__format_args *args, struct hr__format_file **out);
	/*
	 * Where field @field of sample @index < schema.count lies: @out receives ranges in the order of the
	 * value's bytes, ranges_max at the most. For fixed and ragged fields. Any thread, concurrently.
	 * Return: their number (0: an empty ragged value), or -code with a sentence.
	 */
	int (*locate)(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      struct hr_range *out);
	/*
	 * Only where there are scalar fields, else NULL: the value of one, i64 or f64 by bits, without
	 * reading the sample. Return: 0 or -code.
	 */
	int (*value)(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		     uint64_t *out);
	/*
	 * Only where windows have documents, else NULL: where in window @index documents with elements
	 * begin, in elements, ascending; the first @room of them. In one go, because a long window has
	 * thousands. Return: their number or -code.
	 */
	int (*starts)(const struct hr__format_file *ff, uint64_t index, uint32_t *out,
		      uint32_t room);
	void (*close)(struct hr__format_file *ff);
};

extern const struct hr__format_ops hr__format_tokens;
extern const struct hr__format_ops hr__format_mds;
extern const struct hr__format_ops hr__format_arrow;
extern const struct hr__format_ops hr__format_megatron;
extern const struct hr__format_ops hr__format_npy;
extern const struct hr__format_ops hr__format_tar;
extern const struct hr__format_ops hr__format_tfrecord;
extern const struct hr__format_ops hr__format_safetensors;

/* By name, or by probing when @name is NULL or "auto". NULL if there is none. */
const struct hr__format_ops *hr__format_find(const char *name, const void *head, size_t len,
					     uint64_t file_size);

/* The k-th format's table, or NULL behind the last. */
const struct hr__format_ops *hr__format_at(size_t k);

/*
 * What a file that is certainly no dataset of ours is, judged by its first bytes: "a git-lfs pointer,
 * not the data; run 'git lfs pull'". Return: a static clause for a sentence, or NULL.
 */
const char *hr__format_foreign(const void *head, size_t len);

/* Nothing but zeros, and some of them? */
bool hr__format_zeros(const void *head, size_t len);

/*
 * hr__format_wanted() - does the caller want the field @name? Formats leave out what is not wanted, and
 * fail in open() when the caller named one that they do not have: hr__format_check_wanted().
 */
bool hr__format_wanted(const struct hr_dataset_options *opts, const char *name);
int hr__format_check_wanted(const struct hr_source *src, const struct hr_dataset_options *opts,
			    const struct hr__schema *schema);

/* hr__format_windows() - the schema of windows of @seq_len + 1 tokens: one field, in @field. */
void hr__format_windows(struct hr__schema *schema, struct hr__field *field, enum hr_dtype dtype,
			uint32_t seq_len);

/* How many bytes of the head the functions above like to see. */
#define HR__FORMAT_HEAD_BYTES 1024u

/* hr__format_some() - refuse a file without a byte. Return: 0, or -HR_E_EMPTY_FILE with a sentence. */
int hr__format_some(const struct hr_source *src);

/*
 * hr__format_head() - the first bytes of a file that has some: *@len of them, at most
 * HR__FORMAT_HEAD_BYTES, into @head. Return: 0, -HR_E_EMPTY_FILE, or -code of the read.
 */
int hr__format_head(const struct hr_source *src, void *head, size_t *len);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset_part.c - one file of samples: opens it, what lies beside it, and asks its format; knows
 * nothing of the other files of a dataset.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "file/rest.h"
#include "loader/dataset.h"
#include "loader/indexer.h"

static int read_open(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	int rc = src->onward ? hr__file_read_onward(src->ctx, offset, buf, len)
			     : hr__file_read_alone(src->ctx, offset, buf, len);

	if (rc == -HR_E_FILE_CHANGED)
		return hr__fail(HR_E_FILE_CHANGED,
				"%s: ended while its head was read; is it still being written?",
				src->name);
	if (rc < 0)
		return hr__fail(-rc, "%s: reading its head failed: %s; check the drive", src->name,
				hr_strerror(rc));
	return 0;
}

static int read_file(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	struct hr_file *file = src->ctx;
	int rc = hr__file_hold(file, true);

	if (rc < 0)
		return rc;
	rc = read_open(src, offset, buf, len);
	hr__file_release(file);
	return rc;
}

/* Advice only: who reads is told what is wrong. */
static void read_ahead(const struct hr_source *src, uint64_t offset, size_t len)
{
	if (hr__file_hold(src->ctx, true) < 0)
		return;
	hr__file_bring_in(src->ctx, offset, len);
	hr__file_release(src->ctx);
}

/* How long it is now. */
static int find_size(struct hr__opened *o)
{
	int rc = hr__file_hold(o->file, true);

	if (rc < 0)
		return rc;
	rc = hr__file_size(o->file, &o->src.size);
	hr__file_release(o->file);
	if (rc < 0)
		hr__fail(-rc, "%s: its size cannot be read: %s", o->path, hr_strerror(rc));
	return rc;
}

/* Open a file for the part. @folder: its first @folder_len bytes go before @name. */
static int open_file(struct hr__part *part, const char *folder, size_t folder_len, const char *name,
		     struct hr__opened **out)
{
	size_t name_len = strlen(name);
	struct hr__opened *o = calloc(1, sizeof(*o) + folder_len + name_len + 1);
	struct hr_file *file;
	int rc;

	if (!o)
		return hr__fail(ENOMEM, "%s: no memory to open it", name);
	memcpy(o->path, folder, folder_len);
	memcpy(o->path + folder_len, name, name_len + 1);
	rc = hr__rest_open(o->path, &file);
	if (rc < 0)
		goto err_free;
	o->file = file;
	rc = find_size(o);
	if (rc < 0)
		goto err_close;
	o->src.name = o->path;
	o->src.read = read_file;
	o->src.ahead = read_ahead;
	o->src.ctx = o->file;
	o->next = part->opened;
	part->opened = o;
	*out = o;
	return 0;

err_close:
	hr_file_close(file);
err_free:
	free(o);
	return rc;
}

/* The file itself: it was opened before its siblings. */
static const struct hr__opened *first_opened(const struct hr__part *part)
{
	const struct hr__opened *o = part->opened;

	while (o->next)
		o = o->next;
	return o;
}

static int open_sibling(struct hr__siblings *siblings, const char *name,
			const struct hr_source **out)
{
	struct hr__part *part = (struct hr__part *)siblings;
	const char *path = first_opened(part)->path;
	const char *slash = strrchr(path, '/');
	struct hr__opened *o;
	int rc;

	if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: names a file \"%s\"; files of a dataset lie in one folder",
				path, name);
	rc = open_file(part, path, slash ? (size_t)(slash - path) + 1 : 0, name, &o);
	if (rc == 0)
		*out = &o->src;
	return rc;
}

static int open_named(struct hr__siblings *siblings, const char *path, const struct hr_source **out)
{
	struct hr__opened *o;
	int rc = open_file((struct hr__part *)siblings, "", 0, path, &o);

	if (rc == 0)
		*out = &o->src;
	return rc;
}

/* Number @k in the order of opening. */
static const struct hr__opened *opened_at(const struct hr__part *part, uint32_t k)
{
	const struct hr__opened *o;
	uint32_t n = 0;

	for (o = part->opened; o; o = o->next)
		n++;
	if (k >= n)
		return NULL;
	for (o = part->opened; n - 1 > k; n--)
		o = o->next;
	return o;
}

int hr__source_format(const struct hr_source *src, const char *name,
		      const struct hr__format_ops **out)
{
	char head[HR__FORMAT_HEAD_BYTES], known[256] = "";
	size_t len = (size_t)hr__min(src->size, sizeof(head)), used = 0;
	const struct hr__format_ops *ops;
	const char *foreign;
	int rc = src->read(src, 0, head, len);

	if (rc < 0)
		return rc;
	*out = hr__format_find(name, head, len, src->size);
	if (*out)
		return 0;
	for (size_t k = 0; (ops = hr__format_at(k)) && used < sizeof(known); k++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", k ? ", " : "",
					 ops->name);
	if (name && strcmp(name, "auto") != 0)
		return hr__fail(HR_E_UNKNOWN_FORMAT, "format %s: not known; known are %s", name,
				known);
	foreign = hr__format_foreign(head, len);
	if (!foreign && hr__format_zeros(head, len))
		foreign = "it begins with zeros: an empty archive, a hole, or a copy that failed; "
			  "look at it, and name the format if it is right";
	return hr__fail(HR_E_UNKNOWN_FORMAT, "%s: %s", src->name,
			foreign ? foreign : "its format was not recognised; name the format");
}

/* Does the file @path, whose name is @len bytes and @suffix, begin as @ops wants? */
static bool other_known(const char *path, size_t len, const char *suffix,
			const struct hr__format_ops *ops)
{
	char head[HR__FORMAT_HEAD_BYTES];
	size_t suffix_len = strlen(suffix);
	char *other = malloc(len + suffix_len + 1);
	const struct hr_source *src;
	struct hr__part *part = NULL;
	bool known = false;

	if (!other)
		return false;
	memcpy(other, path, len);
	memcpy(other + len, suffix, suffix_len + 1);
	if (hr__part_source(other, &part, &src) == 0) {
		size_t n = (size_t)hr__min(src->size, sizeof(head));

		known = src->read(src, 0, head, n) == 0 && ops->probe(head, n, src->size) == 100;
	}
	hr__part_close(part);
	free(other);
	return known;
}

void hr__part_pair(const char *path, const struct hr__format_ops **ops)
{
	const struct hr__format_ops *each;

	for (size_t k = 0; (each = hr__format_at(k)); k++) {
		size_t n = each->pair ? strcspn(each->pair, " ") : 0, len = strlen(path);

		if (n && len > n && memcmp(path + len - n, each->pair, n) == 0 &&
		    other_known(path, len - n, each->pair + n + 1, each))
			*ops = each;
	}
}

/* What the format says, looked at once more: everything that follows relies on it. */
static int check_schema(const struct hr__part *part, const struct hr_source *src,
			const struct hr__shard *shard)
{
	const struct hr__schema *schema = &part->ff->schema;

	if (schema->n_fields == 0 || schema->n_fields > HR__FIELDS_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu32 " fields; a dataset has 1 to %u; name those "
				"that are wanted",
				src->name, schema->n_fields, HR__FIELDS_MAX);
	if (schema->count == 0)
		return hr__fail(HR_E_TOO_SHORT, "%s: holds no sample; leave the file out",
				src->name);
	if (schema->n_bad > schema->count)
		return hr__fail(HR_E_BAD_FORMAT, "%s: more damaged samples than samples",
				src->name);
	if (shard && shard->samples != UINT64_MAX && shard->samples != schema->count)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: holds %" PRIu64 " samples, its index.json says %" PRIu64
				"; were shards swapped? Copy the dataset again",
				src->name, schema->count, shard->samples);
	return 0;
}

static int judge_bad(struct hr__part *part, const struct hr_source *src,
		     const struct hr_dataset_options *opts)
{
	const struct hr__schema *schema = &part->ff->schema;

	part->count = schema->count;
	part->corrupt = opts->corrupt;
	if (!schema->n_bad)
		return 0;
	if (opts->corrupt == HR_CORRUPT_ERROR)
		return hr__fail(HR_E_BAD_SAMPLE,
				"%s: %" PRIu64 " of %" PRIu64
				" samples are damaged; the first: %s; "
				"copy the file again, or open it with corrupt samples skipped or "
				"substituted",
				src->name, schema->n_bad, schema->count, schema->bad_reason);
	if (schema->n_bad == schema->count)
		return hr__fail(HR_E_BAD_SAMPLE, "%s: every sample is damaged; the first: %s",
				src->name, schema->bad_reason);
	if (opts->corrupt == HR_CORRUPT_SKIP)
		part->count -= schema->n_bad;
	return 0;
}

static int open_part(struct hr__part *part, const char *path, const struct hr_dataset_options *opts,
		     const struct hr__shard *shard, const struct hr__format_ops **ops)
{
	struct hr__format_args args = {.siblings = &part->siblings, .opts = opts};
	const struct hr__opened *data;
	struct hr__opened *o;
	int rc = open_file(part, "", 0, path, &o);

	if (rc < 0)
		return rc;
	if (shard && shard->bytes != UINT64_MAX && shard->bytes != o->src.size)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu64 " bytes, its index.json says %" PRIu64
				"; copy it again",
				path, o->src.size, shard->bytes);
	if (!*ops && (!opts->format || strcmp(opts->format, "auto") == 0))
		hr__part_pair(path, ops);
	if (!*ops) {
		rc = hr__source_format(&o->src, opts->format, ops);
		if (rc < 0)
			return rc;
	}
	args.src = &o->src;
	if ((*ops)->scan) {
		rc = hr__indexer_open(o, *ops, opts, &part->index);
		if (rc < 0)
			return rc;
		args.index = part->index;
	}
	rc = (*ops)->open(&args, &part->ff);
	if (rc < 0)
		return rc;
	rc = check_schema(part, &o->src, shard);
	if (rc < 0)
		return rc;
	data = opened_at(part, part->ff->schema.data_file);
	if (!data)
		return hr__fail(HR_E_BAD_FORMAT, "%s: its samples lie in no file that was opened",
				path);
	part->file = data->file;
	part->size = data->src.size;
	return judge_bad(part, &data->src, opts);
}

int hr__part_open(const char *path, const struct hr_dataset_options *opts,
		  const struct hr__shard *shard, const struct hr__format_ops **ops,
		  struct hr__part **out)
{
	struct hr__part *part = calloc(1, sizeof(*part));

	*out = part;
	if (!part)
		return hr__fail(ENOMEM, "%s: no memory to open it", path);
	part->siblings.open = open_sibling;
	part->siblings.open_path = open_named;
	return open_part(part, path, opts, shard, ops);
}

int hr__part_source(const char *path, struct hr__part **out, const struct hr_source **src)
{
	struct hr__part *part = calloc(1, sizeof(*part));
	struct hr__opened *o;
	int rc;

	*out = part;
	if (!part)
		return hr__fail(ENOMEM, "%s: no memory to open it", path);
	rc = open_file(part, "", 0, path, &o);
	if (rc == 0)
		*src = &o->src;
	return rc;
}

void hr__part_close(struct hr__part *part)
{
	if (!part)
		return;
	if (part->ff)
		part->ff->ops->close(part->ff);
	hr__indexer_close(part->index);
	while (part->opened) {
		struct hr__opened *o = part->opened;

		part->opened = o->next;
		hr_file_close(o->file);
		free(o);
	}
	free(part->fields);
	free(part);
}

/* Damaged samples with numbers <= @index. */
static uint64_t bad_until(const struct hr__schema *schema, uint64_t index)
{
	uint64_t low = 0, high = schema->n_bad;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (schema->bad[middle] <= index)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The @nth whole sample. */
static uint64_t whole_sample(const struct hr__schema *schema, uint64_t nth)
{
	uint64_t low = 0, high = schema->n_bad;

	/* bad[k] - k whole samples come before bad[k]: find the first k with more than @nth. */
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (schema->bad[middle] - middle <= nth)
			low = middle + 1;
		else
			high = middle;
	}
	return nth + low;
}

/* The next whole sample from @index on, or else the one before it. */
static uint64_t near_sample(const struct hr__schema *schema, uint64_t index)
{
	uint64_t before = bad_until(schema, index), whole;

	if (!before || schema->bad[before - 1] != index)
		return index;
	whole = index + 1 - before; /* whole samples before it: the next one has this number */
	if (whole == schema->count - schema->n_bad)
		whole--;
	return whole_sample(schema, whole);
}

uint64_t hr__part_index(const struct hr__part *part, uint64_t nth)
{
	const struct hr__schema *schema = &part->ff->schema;

	if (!schema->n_bad)
		return nth;
	return part->corrupt == HR_CORRUPT_SKIP ? whole_sample(schema, nth)
						: near_sample(schema, nth);
}

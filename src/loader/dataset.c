/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset.c - many files as one row of samples; knows formats only by their table.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"
#include "loader/dataset.h"

#define SAMPLES_MAX (1ull << 63) /* what the sampler can permute */

static int read_file(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	const struct hr_file *file = src->ctx;
	char *at = buf;

	while (len > 0) {
		ssize_t n = hr__sys->pread(file->fd, at, len, offset);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return hr__fail((int)-n, "%s: reading its head failed: %s; check the drive",
					src->name, hr_strerror((int)n));
		if (n == 0)
			return hr__fail(
				HR_E_FILE_CHANGED,
				"%s: ended while its head was read; is it still being written?",
				src->name);
		at += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int find_format(const struct hr_source *src, const char *name,
		       const struct hr__format_ops **out)
{
	char head[HR__FORMAT_HEAD_BYTES];
	size_t len = (size_t)hr__min(src->size, sizeof(head));
	const char *foreign;
	int rc = src->read(src, 0, head, len);

	if (rc < 0)
		return rc;
	*out = hr__format_find(name, head, len, src->size);
	if (*out)
		return 0;
	if (name && strcmp(name, "auto") != 0)
		return hr__fail(HR_E_UNKNOWN_FORMAT, "format %s: not known; known is tokens", name);
	foreign = hr__format_foreign(head, len);
	return hr__fail(HR_E_UNKNOWN_FORMAT, "%s: %s", src->name,
			foreign ? foreign : "its format was not recognised; name the format");
}

static int open_part(struct hr__part *part, const char *path, const struct hr_dataset_options *opts,
		     const struct hr__format_ops **ops)
{
	struct hr_source src = {.name = path, .read = read_file};
	int rc = hr_file_open(path, HR_FILE_READ, &part->file);

	if (rc < 0)
		return rc;
	rc = hr__file_size(part->file, &part->size);
	if (rc < 0)
		return hr__fail(rc, "%s: its size cannot be read: %s", path, hr_strerror(rc));
	src.size = part->size;
	src.ctx = part->file;
	if (!*ops) {
		rc = find_format(&src, opts->format, ops);
		if (rc < 0)
			return rc;
	}
	return (*ops)->open(&src, opts, &part->ff);
}

/* Add one opened file's samples; all files must look alike. */
static int join_part(struct hr_dataset *ds, struct hr__part *part, const char *path)
{
	const struct hr__schema *schema = &part->ff->schema;
	struct hr_dataset_info *info = &ds->info;

	if (ds->n_parts == 0) {
		info->format = part->ff->ops->name;
		info->dtype = schema->dtype;
		info->elements = schema->elements;
		info->sample_bytes = schema->sample_bytes;
	} else if (schema->dtype != info->dtype) {
		return hr__fail(HR_E_BAD_DTYPE,
				"%s: holds %s but %s holds %s; files of one dataset must agree",
				path, hr_dtype_name(schema->dtype), hr_file_path(ds->parts[0].file),
				hr_dtype_name(info->dtype));
	} else if (schema->elements != info->elements ||
		   schema->sample_bytes != info->sample_bytes) {
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its samples have another size than those of %s", path,
				hr_file_path(ds->parts[0].file));
	}
	part->first = info->samples;
	if (hr__add_overflows(info->samples, schema->count, &info->samples) ||
	    info->samples > SAMPLES_MAX || hr__add_overflows(info->bytes, part->size, &info->bytes))
		return hr__fail(EOVERFLOW, "%s: more than 2^63 samples in all", path);
	return 0;
}

static void hash_u64(XXH3_state_t *hash, uint64_t value)
{
	unsigned char bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(value >> (8 * i));
	XXH3_64bits_update(hash, bytes, sizeof(bytes));
}

/* Lengths go before texts, so that no two datasets give the same bytes to the hash. */
static void hash_text(XXH3_state_t *hash, const char *text)
{
	size_t len = strlen(text);

	hash_u64(hash, len);
	XXH3_64bits_update(hash, text, len);
}

static int set_fingerprint(struct hr_dataset *ds, const struct hr_dataset_options *opts)
{
	XXH3_state_t *hash = XXH3_createState();

	if (!hash)
		return hr__fail(ENOMEM, "no memory for a checksum");
	XXH3_64bits_reset(hash);
	hash_u64(hash, 1); /* version of this list */
	hash_text(hash, ds->info.format);
	hash_u64(hash, ds->info.dtype);
	hash_u64(hash, opts->seq_len);
	hash_u64(hash, opts->stride ? opts->stride : opts->seq_len);
	hash_u64(hash, ds->n_parts);
	for (uint32_t i = 0; i < ds->n_parts; i++) {
		const char *path = hr_file_path(ds->parts[i].file);
		const char *slash = strrchr(path, '/');

		/* Base names: a dataset that was moved as a whole is still the same. */
		hash_text(hash, slash ? slash + 1 : path);
		hash_u64(hash, ds->parts[i].size);
	}
	ds->info.fingerprint = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return 0;
}

static void close_part(struct hr__part *part)
{
	if (part->ff)
		part->ff->ops->close(part->ff);
	hr_file_close(part->file);
}

static void free_dataset(struct hr_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_parts; i++)
		close_part(&ds->parts[i]);
	free(ds);
}

uint32_t hr__dataset_part(const struct hr_dataset *ds, uint64_t index)
{
	uint32_t low = 0, high = ds->n_parts; /* parts[low].first <= index < parts[high].first */

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (ds->parts[middle].first <= index)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void hr__dataset_get(struct hr_dataset *ds)
{
	atomic_fetch_add_explicit(&ds->refs, 1, memory_order_relaxed);
}

void hr__dataset_put(struct hr_dataset *ds)
{
	/* The last one must see all that the others did: acquire after their release. */
	if (atomic_fetch_sub_explicit(&ds->refs, 1, memory_order_acq_rel) == 1)
		free_dataset(ds);
}

int hr_dataset_open(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		    struct hr_dataset **out)
{
	const struct hr__format_ops *ops = NULL;
	struct hr_dataset *ds;
	int rc = 0;

	if (!paths || n == 0 || !opts)
		return hr__fail(EINVAL, "dataset: no files given; name at least one");
	ds = calloc(1, sizeof(*ds) + n * sizeof(ds->parts[0]));
	if (!ds)
		return hr__fail(ENOMEM, "dataset: no memory for %" PRIu32 " files", n);
	atomic_init(&ds->refs, 1);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct hr__part *part = &ds->parts[i];

		rc = open_part(part, paths[i], opts, &ops);
		if (rc == 0)
			rc = join_part(ds, part, paths[i]);
		ds->n_parts++; /* also a half-opened one: it is closed with the others */
	}
	for (uint32_t i = 0; i < n && rc == 0; i++) /* they are read together: fit or do not */
		rc = hr_file_hint(ds->parts[i].file, HR_CACHE_AUTO, ds->info.bytes);
	if (rc == 0) {
		ds->info.files = n;
		rc = set_fingerprint(ds, opts);
	}
	if (rc < 0) {
		free_dataset(ds);
		return rc;
	}
	*out = ds;
	return 0;
}

void hr_dataset_close(struct hr_dataset *ds)
{
	if (ds)
		hr__dataset_put(ds);
}

int hr_dataset_info(const struct hr_dataset *ds, struct hr_dataset_info *info)
{
	*info = ds->info;
	return 0;
}

int hr_dataset_locate(const struct hr_dataset *ds, uint64_t index, struct hr_file **file,
		      uint64_t *offset, uint64_t *len)
{
	const struct hr__part *part;

	if (index >= ds->info.samples)
		return hr__fail(EINVAL, "sample %" PRIu64 ": the dataset has %" PRIu64, index,
				ds->info.samples);
	part = &ds->parts[hr__dataset_part(ds, index)];
	*file = part->file;
	return part->ff->ops->locate(part->ff, index - part->first, offset, len);
}

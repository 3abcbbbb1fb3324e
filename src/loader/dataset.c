/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset.c - many files as one row of samples; knows formats only by their table.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/util.h"
#include "file/file.h"
#include "loader/dataset.h"

#define SAMPLES_MAX (1ull << 63) /* what the sampler can permute */
#define HEAD_BYTES 65536u        /* of a file beside the data, for the fingerprint */

/* -- fields: all files must look alike ------------------------------------------------------- */

static int copy_fields(struct hr_dataset *ds, const struct hr_field *fields, uint32_t n)
{
	ds->fields = calloc(n, sizeof(*ds->fields));
	ds->sizes = calloc(n, sizeof(*ds->sizes));
	if (!ds->fields || !ds->sizes)
		return -ENOMEM;
	ds->info.n_fields = n;
	ds->info.fields = ds->fields;
	for (uint32_t i = 0; i < n; i++) {
		ds->fields[i] = fields[i];
		ds->fields[i].name = strdup(fields[i].name);
		if (!ds->fields[i].name)
			return -ENOMEM;
	}
	return 0;
}

static int find_field(const struct hr_field *fields, uint32_t n, const char *name, uint32_t hint)
{
	if (hint < n && strcmp(fields[hint].name, name) == 0)
		return (int)hint;
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(fields[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

static bool same_shape(const struct hr_field *a, const struct hr_field *b)
{
	return a->kind == b->kind && a->ndim == b->ndim &&
	       memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* Lengths of a field that is fixed in these files and ragged in others. */
static int make_sizes(struct hr_dataset *ds, uint32_t k)
{
	ds->sizes[k] = calloc(1, sizeof(*ds->sizes[k]));
	if (!ds->sizes[k])
		return -ENOMEM;
	if (ds->fields[k].kind == HR_FIELD_FIXED)
		hr__sizes_add_many(ds->sizes[k], ds->fields[k].bytes, ds->info.samples);
	ds->fields[k].kind = HR_FIELD_RAGGED;
	ds->fields[k].shape[0] = 0;
	return 0;
}

static int join_field(struct hr_dataset *ds, uint32_t k, const struct hr_field *field,
		      const struct hr__sizes *sizes, uint64_t count, const char *path)
{
	struct hr_field *own = &ds->fields[k];
	bool rows = own->ndim == 1 && field->ndim == 1 && own->kind != HR_FIELD_SCALAR &&
		    field->kind != HR_FIELD_SCALAR;

	if (field->dtype != own->dtype)
		return hr__fail(
			HR_E_BAD_DTYPE,
			"%s: its field %s holds %s, that of the files before it %s; files of "
			"one dataset must agree",
			path, own->name, hr_dtype_name(field->dtype), hr_dtype_name(own->dtype));
	if (!same_shape(own, field) && !rows)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: its field %s has another shape than in the files before it; "
				"files of one dataset must agree",
				path, own->name);
	if (!same_shape(own, field) || field->kind == HR_FIELD_RAGGED) {
		if (!ds->sizes[k] && make_sizes(ds, k) < 0)
			return -ENOMEM;
		if (sizes)
			hr__sizes_join(ds->sizes[k], sizes);
		else
			hr__sizes_add_many(ds->sizes[k], field->bytes, count);
		own->bytes = ds->sizes[k]->max;
	}
	return 0;
}

int hr__dataset_join(struct hr_dataset *ds, const struct hr_field *fields,
		     const struct hr__sizes *const *sizes, uint32_t n, uint64_t count,
		     const char *path, uint32_t *map)
{
	int rc = 0;

	if (!ds->fields)
		rc = copy_fields(ds, fields, n);
	for (uint32_t k = 0; k < ds->info.n_fields && rc == 0; k++) {
		int at = find_field(fields, n, ds->fields[k].name, k);

		if (at < 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: has no field %s, which the files before it have; name "
					"the fields that all have",
					path, ds->fields[k].name);
		map[k] = (uint32_t)at;
		rc = join_field(ds, k, &fields[at], sizes[at], count, path);
	}
	if (rc == -ENOMEM)
		return hr__fail(ENOMEM, "%s: no memory for its fields", path);
	if (rc == 0 && n > ds->info.n_fields)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu32 " fields, the files before it %" PRIu32
				"; name the fields that all have",
				path, n, ds->info.n_fields);
	return rc;
}

static int join_part(struct hr_dataset *ds, struct hr__part *part)
{
	const struct hr__schema *schema = &part->ff->schema;
	struct hr_dataset_info *info = &ds->info;
	const char *path = hr_file_path(part->file);
	struct hr_field fields[HR__FIELDS_MAX];
	const struct hr__sizes *sizes[HR__FIELDS_MAX];
	uint32_t map[HR__FIELDS_MAX];
	int rc;

	for (uint32_t i = 0; i < schema->n_fields; i++) {
		fields[i] = schema->fields[i].face;
		sizes[i] = schema->fields[i].sizes;
	}
	rc = hr__dataset_join(ds, fields, sizes, schema->n_fields, part->count, path, map);
	if (rc < 0)
		return rc;
	part->fields = calloc(info->n_fields, sizeof(*part->fields));
	if (!part->fields)
		return hr__fail(ENOMEM, "%s: no memory for its fields", path);
	memcpy(part->fields, map, info->n_fields * sizeof(*map));
	if (info->samples == 0) {
		info->format = part->ff->ops->name;
		info->windows = schema->windows;
	}
	if (schema->n_bad && !info->corrupt)
		snprintf(info->corrupt_reason, sizeof(info->corrupt_reason), "%s: %s", path,
			 schema->bad_reason);
	info->corrupt += schema->n_bad;
	part->first = info->samples;
	if (hr__add_overflows(info->samples, part->count, &info->samples) ||
	    info->samples > SAMPLES_MAX || hr__add_overflows(info->bytes, part->size, &info->bytes))
		return hr__fail(EOVERFLOW, "%s: more than 2^63 samples in all", path);
	return 0;
}

/* -- fingerprint ----------------------------------------------------------------------------- */

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
	size_t len = text ? strlen(text) : 0;

	hash_u64(hash, len);
	XXH3_64bits_update(hash, text ? text : "", len);
}

/* All that tells which sample has which number, and what it looks like. */
static void hash_options(XXH3_state_t *hash, const struct hr_dataset_options *opts)
{
	const char *order = opts->order ? strrchr(opts->order, '/') : NULL;

	hash_u64(hash, opts->seq_len);
	hash_u64(hash, opts->stride ? opts->stride : opts->seq_len);
	hash_u64(hash, opts->corrupt);
	hash_u64(hash, opts->whole_files);
	hash_text(hash, order ? order + 1 : opts->order);
}

/*
 * A file beside the data that tells where samples lie or in which order they come. Two of one name and one
 * size differ at their heads: the lists in them are of lengths, or shuffled.
 */
static int hash_head(XXH3_state_t *hash, const struct hr_source *src)
{
	size_t len = (size_t)hr__min(src->size, HEAD_BYTES);
	void *head = malloc(len + 1);
	int rc;

	if (!head)
		return hr__fail(ENOMEM, "%s: no memory for a checksum", src->name);
	rc = src->read(src, 0, head, len);
	if (rc == 0)
		XXH3_64bits_update(hash, head, len);
	free(head);
	return rc;
}

static int hash_part(XXH3_state_t *hash, const struct hr__part *part)
{
	int rc = 0;

	hash_u64(hash, part->count);
	for (const struct hr__opened *o = part->opened; o && rc == 0; o = o->next) {
		const char *slash = strrchr(o->path, '/');

		/* Base names: a dataset that was moved as a whole is still the same. */
		hash_text(hash, slash ? slash + 1 : o->path);
		hash_u64(hash, o->src.size);
		hash_u64(hash, o->file == part->file);
		if (o->file != part->file)
			rc = hash_head(hash, &o->src);
	}
	hash_u64(hash, 0); /* as no name is empty, the end */
	return rc;
}

static int set_fingerprint(struct hr_dataset *ds, const struct hr_dataset_options *opts)
{
	XXH3_state_t *hash = XXH3_createState();
	int rc = 0;

	if (!hash)
		return hr__fail(ENOMEM, "no memory for a checksum");
	XXH3_64bits_reset(hash);
	hash_u64(hash, 3); /* version of this list */
	hash_text(hash, ds->info.format);
	hash_options(hash, opts);
	hash_u64(hash, ds->info.n_fields);
	for (uint32_t i = 0; i < ds->info.n_fields; i++) {
		hash_text(hash, ds->fields[i].name);
		hash_u64(hash, ds->fields[i].dtype);
	}
	hash_u64(hash, ds->n_parts);
	for (uint32_t i = 0; i < ds->n_parts && rc == 0; i++)
		rc = hash_part(hash, ds->parts[i]);
	ds->info.fingerprint = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return rc;
}

/* -- open and close -------------------------------------------------------------------------- */

struct hr_dataset *hr__dataset_new(void)
{
	struct hr_dataset *ds = calloc(1, sizeof(*ds));

	if (ds)
		atomic_init(&ds->refs, 1);
	return ds;
}

static void free_dataset(struct hr_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_parts && !ds->kids; i++)
		hr__part_close(ds->parts[i]);
	for (uint32_t i = 0; ds->kids && i < ds->n_kids; i++)
		hr__dataset_put(ds->kids[i]);
	for (uint32_t i = 0; ds->fields && i < ds->info.n_fields; i++) {
		free((char *)ds->fields[i].name);
		free(ds->sizes ? ds->sizes[i] : NULL);
	}
	free(ds->fields);
	free(ds->sizes);
	free(ds->parts);
	free(ds->kids);
	free(ds->kid_first);
	free(ds->kid_part);
	free(ds->weights);
	free(ds->ids);
	free(ds);
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

struct opening {
	struct hr_dataset *ds;
	const struct hr_dataset_options *opts;
	const struct hr__format_ops *ops;
};

static int add_file(void *ctx, const char *path, const struct hr__shard *shard)
{
	struct opening *opening = ctx;
	struct hr_dataset *ds = opening->ds;
	int rc;

	if (ds->n_parts == ds->room) {
		uint32_t room = ds->room ? 2 * ds->room : 16;
		struct hr__part **parts = realloc(ds->parts, room * sizeof(*parts));

		if (!parts)
			return hr__fail(ENOMEM, "dataset: no memory for %" PRIu32 " files", room);
		ds->parts = parts;
		ds->room = room;
	}
	rc = hr__part_open(path, opening->opts, shard, &opening->ops, &ds->parts[ds->n_parts]);
	ds->n_parts++; /* also a half-opened one: it is closed with the others */
	return rc < 0 ? rc : join_part(ds, ds->parts[ds->n_parts - 1]);
}

/* What can be said of a sample only when all files are known. */
void hr__dataset_finish(struct hr_dataset *ds)
{
	struct hr_dataset_info *info = &ds->info;

	info->files = ds->n_parts;
	info->dtype = ds->fields[0].dtype;
	info->elements = 0;
	if (ds->fields[0].kind == HR_FIELD_FIXED)
		info->elements = (uint32_t)hr__min(UINT32_MAX, ds->fields[0].bytes /
								       hr_dtype_size(info->dtype));
	info->sample_bytes = 0;
	for (uint32_t i = 0; i < info->n_fields; i++) {
		const struct hr__sizes *sizes = ds->sizes[i];

		if (sizes)
			info->sample_bytes += sizes->values ? sizes->bytes / sizes->values : 0;
		else if (ds->fields[i].kind == HR_FIELD_FIXED)
			info->sample_bytes += ds->fields[i].bytes;
	}
}

int hr_dataset_open(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		    struct hr_dataset **out)
{
	struct opening opening = {.opts = opts};
	struct hr_dataset *ds;
	int rc;

	if (!paths || n == 0 || !opts)
		return hr__fail(EINVAL, "dataset: no files given; name at least one");
	if ((unsigned int)opts->corrupt > HR_CORRUPT_SUBSTITUTE || !opts->fields != !opts->n_fields)
		return hr__fail(EINVAL,
				"dataset: corrupt %d, %" PRIu32 " fields: not a known choice",
				(int)opts->corrupt, opts->n_fields);
	if (opts->order && n > 1)
		return hr__fail(EINVAL,
				"dataset: order %s belongs to one file, and %" PRIu32
				" are given; mix datasets with one order each",
				opts->order, n);
	ds = hr__dataset_new();
	if (!ds)
		return hr__fail(ENOMEM, "dataset: no memory");
	opening.ds = ds;
	rc = hr__paths_expand(paths, n, opts, &opening.ops, add_file, &opening);
	if (rc == 0 && ds->n_parts == 0)
		rc = hr__fail(HR_E_TOO_SHORT, "%s: names no files of samples", paths[0]);
	for (uint32_t i = 0; i < ds->n_parts && rc == 0; i++) /* read together: fit or do not */
		rc = hr_file_hint(ds->parts[i]->file, HR_CACHE_AUTO, ds->info.bytes);
	if (rc == 0) {
		hr__dataset_finish(ds);
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

/* -- questions ------------------------------------------------------------------------------- */

uint32_t hr__dataset_ranges_max(const struct hr_dataset *ds)
{
	uint32_t most = 1;

	for (uint32_t i = 0; i < ds->n_parts; i++)
		most = (uint32_t)hr__max(most, ds->parts[i]->ff->schema.ranges_max);
	return most;
}

int hr_dataset_info(const struct hr_dataset *ds, struct hr_dataset_info *info)
{
	*info = ds->info;
	return 0;
}

static int check_place(const struct hr_dataset *ds, uint64_t index, uint32_t field)
{
	if (index >= ds->info.samples)
		return hr__fail(EINVAL, "sample %" PRIu64 ": the dataset has %" PRIu64, index,
				ds->info.samples);
	if (field >= ds->info.n_fields)
		return hr__fail(EINVAL, "field %" PRIu32 ": the dataset has %" PRIu32, field,
				ds->info.n_fields);
	return 0;
}

int hr_dataset_locate(const struct hr_dataset *ds, uint64_t index, uint32_t field,
		      struct hr_file **file, struct hr_range *out, uint32_t max)
{
	const struct hr__part *part;
	struct hr_range *ranges = out;
	struct hr__place place;
	uint64_t most;
	int rc = check_place(ds, index, field);

	if (rc < 0)
		return rc;
	if (ds->fields[field].kind == HR_FIELD_SCALAR)
		return hr__fail(EINVAL, "field %s: a scalar lies in no file of samples",
				ds->fields[field].name);
	hr__dataset_find(ds, index, &place);
	part = ds->parts[place.part];
	*file = part->file;
	most = hr__max(1, part->ff->schema.ranges_max);
	if (most > max) /* formats may write as many */
		ranges = malloc(most * sizeof(*ranges));
	if (!ranges)
		return hr__fail(ENOMEM, "sample %" PRIu64 ": no memory for its ranges", index);
	hr__part_ahead(part, place.index);
	rc = hr__part_locate(part, place.index, field, ranges);
	if (rc > 0 && (uint32_t)rc > max)
		rc = hr__fail(ENOSPC, "sample %" PRIu64 ": has %d ranges, room is for %" PRIu32,
			      index, rc, max);
	if (ranges != out) {
		if (rc > 0)
			memcpy(out, ranges, (size_t)rc * sizeof(*ranges));
		free(ranges);
	}
	return rc;
}

int hr_dataset_scalar(const struct hr_dataset *ds, uint64_t index, uint32_t field, uint64_t *out)
{
	const struct hr__part *part;
	struct hr__place place;
	int rc = check_place(ds, index, field);

	if (rc < 0)
		return rc;
	if (ds->fields[field].kind != HR_FIELD_SCALAR)
		return hr__fail(EINVAL, "field %s: no scalar, it has to be read",
				ds->fields[field].name);
	hr__dataset_find(ds, index, &place);
	part = ds->parts[place.part];
	return part->ff->ops->value(part->ff, place.index, part->fields[field], out);
}

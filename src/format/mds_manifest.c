/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/mds_manifest.c - index.json of a MosaicML streaming dataset: which shards it is made of; opens
 * none of them.
 *
 * The text is walked twice: first all of it is held to the rules, then the shards are named.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/json.h"
#include "format/mds.h"

#define MANIFEST_MAX (256u << 20) /* half a million shards */

struct walk {
	struct hr__json json;
	int (*add)(void *ctx, const struct hr__shard *shard); /* NULL in the first pass */
	void *ctx;
	bool is_manifest; /* "shards" was seen */
};

struct entry {
	struct hr__shard shard; /* name NULL: no raw_data */
	const char *compression;
	bool has_zip, is_mds, is_v2;
};

/* raw_data or zip_data. @shard: receives name and bytes. Return: 0, 1 when it is null, -code. */
static int read_file_info(struct hr__json *j, struct hr__shard *shard)
{
	bool first = true, has_bytes = false;
	int rc;

	if (hr__json_null(j))
		return 1;
	shard->name = NULL;
	rc = hr__json_open(j, '{', "a shard's file");
	while (rc == 0 && (rc = hr__json_more(j, '}', &first)) > 0) {
		size_t used = j->used;
		const char *key;

		rc = hr__json_key(j, "a key", &key);
		if (rc < 0)
			return rc;
		hr__json_forget(j, used);
		if (strcmp(key, "basename") == 0) {
			rc = hr__json_string(j, "basename", &shard->name);
		} else if (strcmp(key, "bytes") == 0) {
			rc = hr__json_u64(j, "bytes", &shard->bytes);
			has_bytes = true;
		} else {
			rc = hr__json_skip(j); /* hashes: of whole files, which nobody reads here */
		}
	}
	if (rc == 0 && (!shard->name || !has_bytes))
		return hr__json_fail(j, "a shard's file has no %s",
				     shard->name ? "bytes" : "basename");
	return rc;
}

static int read_format(struct hr__json *j, bool *is_mds)
{
	size_t used = j->used;
	const char *format;
	char shown[HR__JSON_SHOWN];
	int rc = hr__json_string(j, "format", &format);

	if (rc < 0)
		return rc;
	hr__json_forget(j, used);
	*is_mds = strcmp(format, "mds") == 0;
	if (!*is_mds)
		return hr__json_fail(j,
				     "a shard has the format \"%s\"; only mds is read, write the "
				     "dataset with MDSWriter",
				     hr__json_show(shown, format));
	return 0;
}

static int read_version(struct hr__json *j, bool *is_v2)
{
	uint64_t version;
	int rc = hr__json_u64(j, "version", &version);

	*is_v2 = true;
	if (rc == 0 && version != 2)
		return hr__json_fail(j, "version %" PRIu64 " of MDS is not known, 2 is", version);
	return rc;
}

static int read_member(struct hr__json *j, struct entry *entry)
{
	struct hr__shard zip;
	size_t used = j->used;
	const char *key;
	int rc = hr__json_key(j, "a key", &key);

	if (rc < 0)
		return rc;
	hr__json_forget(j, used);
	if (strcmp(key, "raw_data") == 0) {
		rc = read_file_info(j, &entry->shard);
		return rc == 1 ? 0 : rc;
	}
	if (strcmp(key, "zip_data") == 0) {
		rc = read_file_info(j, &zip);
		entry->has_zip = rc == 0;
		return rc == 1 ? 0 : rc;
	}
	if (strcmp(key, "compression") == 0)
		return hr__json_null(j) ? 0
					: hr__json_string(j, "compression", &entry->compression);
	if (strcmp(key, "samples") == 0)
		return hr__json_u64(j, "samples", &entry->shard.samples);
	if (strcmp(key, "format") == 0)
		return read_format(j, &entry->is_mds);
	if (strcmp(key, "version") == 0)
		return read_version(j, &entry->is_v2);
	return hr__json_skip(j);
}

static int add_shard(struct walk *walk, const struct entry *entry)
{
	char file[HR__JSON_SHOWN], how[HR__JSON_SHOWN];
	int rc = walk->add(walk->ctx, &entry->shard);

	if (rc != -ENOENT || !entry->has_zip)
		return rc;
	return hr__fail(
		HR_E_BAD_FORMAT,
		"%s: its shard %s is there only compressed (%s); decompress the shards, or "
		"write the dataset with compression=None",
		walk->json.name, hr__json_show(file, entry->shard.name),
		hr__json_show(how, entry->compression ? entry->compression : "how is not said"));
}

static int read_shard(struct walk *walk)
{
	struct entry entry = {.shard = {NULL, UINT64_MAX, UINT64_MAX}};
	struct hr__json *j = &walk->json;
	size_t used = j->used;
	bool first = true;
	int rc = hr__json_open(j, '{', "a shard");

	while (rc == 0 && (rc = hr__json_more(j, '}', &first)) > 0)
		rc = read_member(j, &entry);
	if (rc < 0)
		return rc;
	if (!entry.is_mds || !entry.is_v2)
		return hr__json_fail(j, "a shard has no %s", entry.is_mds ? "version" : "format");
	if (!entry.shard.name || entry.shard.samples == UINT64_MAX)
		return hr__json_fail(j, "a shard has no %s",
				     entry.shard.name ? "samples" : "raw_data");
	if (walk->add)
		rc = add_shard(walk, &entry);
	hr__json_forget(j, used);
	return rc;
}

static int read_shards(struct walk *walk)
{
	bool first = true;
	int rc;

	if (walk->is_manifest)
		return hr__json_fail(&walk->json, "\"shards\" appears twice");
	walk->is_manifest = true;
	rc = hr__json_open(&walk->json, '[', "shards");
	while (rc == 0 && (rc = hr__json_more(&walk->json, ']', &first)) > 0)
		rc = read_shard(walk);
	return rc;
}

static int walk_manifest(struct walk *walk)
{
	struct hr__json *j = &walk->json;
	bool first = true, is_v2;
	int rc = hr__json_open(j, '{', "index.json");

	while (rc == 0 && (rc = hr__json_more(j, '}', &first)) > 0) {
		size_t used = j->used;
		const char *key;

		rc = hr__json_key(j, "a key", &key);
		if (rc < 0)
			return rc;
		hr__json_forget(j, used);
		if (strcmp(key, "shards") == 0)
			rc = read_shards(walk);
		else if (strcmp(key, "version") == 0 && walk->is_manifest)
			rc = read_version(j, &is_v2);
		else
			rc = hr__json_skip(j);
	}
	return rc < 0 ? rc : hr__json_finish(j);
}

static int expand_text(const struct hr_source *src, const char *json, size_t len, char *text,
		       bool named, int (*add)(void *ctx, const struct hr__shard *shard), void *ctx)
{
	struct walk walk = {.add = NULL};
	int rc;

	hr__json_begin(&walk.json, src->name, json, len, text);
	rc = walk_manifest(&walk);
	if (!walk.is_manifest && !named)
		return 1; /* of something else */
	if (rc < 0)
		return rc;
	if (!walk.is_manifest)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: names no \"shards\"; it is no index of an MDS dataset",
				src->name);
	walk = (struct walk){.add = add, .ctx = ctx};
	hr__json_begin(&walk.json, src->name, json, len, text);
	return walk_manifest(&walk);
}

int hr__mds_expand(const struct hr_source *src, const struct hr_dataset_options *opts,
		   int (*add)(void *ctx, const struct hr__shard *shard), void *ctx)
{
	bool named = opts->format && strcmp(opts->format, "mds") == 0;
	const char *foreign;
	char *json, *text;
	int rc;

	if (src->size == 0 || src->size > MANIFEST_MAX)
		return named ? hr__fail(HR_E_BAD_FORMAT,
					"%s: has %" PRIu64
					" bytes, an index of shards 1 to %u; get it again",
					src->name, src->size, MANIFEST_MAX)
			     : 1;
	json = malloc((size_t)src->size);
	text = malloc((size_t)src->size + 1);
	rc = json && text ? src->read(src, 0, json, (size_t)src->size)
			  : hr__fail(ENOMEM, "%s: no memory for its %" PRIu64 " bytes", src->name,
				     src->size);
	if (rc == 0) {
		foreign = hr__format_foreign(json, (size_t)hr__min(src->size, 64));
		rc = foreign ? hr__fail(HR_E_BAD_FORMAT, "%s: %s", src->name, foreign)
			     : expand_text(src, json, (size_t)src->size, text, named, add, ctx);
	}
	free(json);
	free(text);
	return rc;
}

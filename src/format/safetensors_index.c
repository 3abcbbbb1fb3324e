/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/safetensors_index.c - reads the index of a sharded checkpoint: which tensor is in which file.
 * Does not know whether that is true.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/json.h"
#include "format/safetensors.h"

/* A shard lies beside its index: a name that leads elsewhere is an attack or a mistake. */
static int check_file(const struct hr__json *j, const char *file)
{
	char shown[HR__JSON_SHOWN];

	if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
		return hr__json_fail(j, "'%s' is no name of a file beside the index",
				     hr__json_show(shown, file));
	return 0;
}

static int read_map(struct hr__json *j, struct hr__st_index *index)
{
	uint64_t room = 0;
	bool first = true;
	int ret = hr__json_open(j, '{', "weight_map");

	while (!ret && (ret = hr__json_more(j, '}', &first)) > 0) {
		struct hr__st_place place;

		ret = hr__st_grow(j->name, (void **)&index->places, &room, index->n_places + 1ull,
				  sizeof(place));
		if (!ret)
			ret = hr__json_key(j, "the name of a tensor", &place.name);
		if (!ret)
			ret = hr__json_string(j, "the name of a shard", &place.file);
		if (!ret)
			ret = check_file(j, place.file);
		if (!ret)
			index->places[index->n_places++] = place;
	}
	return ret;
}

static int read_index(struct hr__json *j, struct hr__st_index *index)
{
	bool first = true, has_map = false;
	int ret = hr__json_open(j, '{', "the index");

	while (!ret && (ret = hr__json_more(j, '}', &first)) > 0) {
		size_t used = j->used;
		const char *key;
		bool is_map;

		ret = hr__json_key(j, "a key of the index", &key);
		if (ret)
			break;
		is_map = strcmp(key, "weight_map") == 0;
		hr__json_forget(j, used);
		if (is_map && has_map)
			return hr__json_fail(j, "weight_map appears twice");
		has_map |= is_map;
		ret = is_map ? read_map(j, index) : hr__json_skip(j);
	}
	if (!ret && !has_map)
		ret = hr__json_fail(j, "the index has no weight_map");
	return ret ? ret : hr__json_finish(j);
}

static int compare_places(const void *a, const void *b)
{
	return strcmp(((const struct hr__st_place *)a)->name,
		      ((const struct hr__st_place *)b)->name);
}

static int check_names(const char *name, struct hr__st_index *index)
{
	char shown[HR__JSON_SHOWN];

	if (!index->n_places)
		return 0;
	qsort(index->places, index->n_places, sizeof(*index->places), compare_places);
	for (uint32_t i = 1; i < index->n_places; i++) {
		if (compare_places(&index->places[i - 1], &index->places[i]) == 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: lists the tensor %s twice; it is damaged, get it "
					"again",
					name, hr__json_show(shown, index->places[i].name));
	}
	return 0;
}

int hr__st_index_parse(const char *name, const void *json, size_t len, struct hr__st_index *out)
{
	struct hr__json j;
	int ret;

	memset(out, 0, sizeof(*out));
	out->text = malloc(len + 1);
	if (!out->text)
		return hr__fail(ENOMEM, "%s: no memory for %zu bytes; free some", name, len);
	hr__json_begin(&j, name, json, len, out->text);
	ret = read_index(&j, out);
	if (!ret)
		ret = check_names(name, out);
	if (ret)
		hr__st_index_free(out);
	return ret;
}

const char *hr__st_index_find(const struct hr__st_index *index, const char *name)
{
	struct hr__st_place key = {.name = name}, *found;

	if (!index->n_places)
		return NULL;
	found = bsearch(&key, index->places, index->n_places, sizeof(key), compare_places);
	return found ? found->file : NULL;
}

void hr__st_index_free(struct hr__st_index *index)
{
	free(index->places);
	free(index->text);
	memset(index, 0, sizeof(*index));
}

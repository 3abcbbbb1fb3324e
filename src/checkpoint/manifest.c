/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/manifest.c - opens a checkpoint: finds its files, reads and checks their headers, makes one
 * list of tensors. Moves no data.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/memlimit.h"
#include "base/sys.h"
#include "base/util.h"
#include "checkpoint/manifest.h"
#include "format/json.h"

#define HEAD_BYTES 64u
#define INDEX_MAX HR__ST_HEADER_MAX

/* What is being opened. */
struct opening {
	struct hr_checkpoint *ck;
	bool lenient;
	uint64_t files_room, weights_room;
};

static int no_memory(const char *path)
{
	return hr__fail(ENOMEM, "%s: no memory for the list of its tensors; free some", path);
}

static int read_full(const struct hr_file *file, void *buf, size_t len, uint64_t offset)
{
	int ret = hr__file_read_alone(file, offset, buf, len);

	if (ret == -HR_E_FILE_CHANGED)
		return hr__fail(HR_E_FILE_CHANGED,
				"%s: ended while its header was read; is it still being written?",
				file->path);
	if (ret < 0)
		return hr__fail(-ret, "%s: reading its header failed: %s; check the drive",
				file->path, hr_strerror(ret));
	return 0;
}

/* -- one file --------------------------------------------------------------------------------- */

/* Read and check the header of @f, which is open. */
static int read_header(struct hr__ck_file *f, bool lenient)
{
	uint8_t head[HEAD_BYTES];
	size_t n = (size_t)hr__min(f->stamp.size, sizeof(head));
	uint64_t len;
	void *json;
	int ret = read_full(f->file, head, n, 0);

	if (!ret)
		ret = hr__st_length(f->path, head, n, f->stamp.size, &len);
	if (ret)
		return ret;
	json = malloc(len);
	if (!json)
		return no_memory(f->path);
	ret = read_full(f->file, json, len, HR__ST_LENGTH_BYTES);
	if (!ret)
		ret = hr__st_parse(f->path, json, len, f->stamp.size, lenient, &f->st);
	free(json);
	return ret;
}

static int open_file(struct hr__ck_file *f)
{
	int ret = hr_file_open(f->path, HR_FILE_READ, &f->file);

	if (ret)
		return ret;
	ret = hr__file_stamp(f->file, &f->stamp);
	if (ret >= 0)
		return 0;
	hr_file_close(f->file);
	f->file = NULL;
	return hr__fail(ret, "%s: its size cannot be read: %s; check the file system", f->path,
			hr_strerror(ret));
}

int hr__ck_use(struct hr_checkpoint *ck, uint32_t index)
{
	struct hr__ck_file *f = &ck->files[index];
	struct hr__file_stamp old = f->stamp, now;
	int ret;

	if (f->file) {
		ret = hr__file_stamp(f->file, &now);
	} else {
		ret = open_file(f);
		now = f->stamp;
		f->stamp = old;
	}
	if (ret)
		return ret;
	if (now.size != old.size || now.mtime_ns != old.mtime_ns)
		return hr__fail(HR_E_FILE_CHANGED,
				"%s: was changed after its header had been read; open the "
				"checkpoint again",
				f->path);
	/* Weights are read again by the next start, and by the other processes of a node. */
	return hr_file_hint(f->file, HR_CACHE_KEEP, ck->info.file_bytes);
}

void hr__ck_release(struct hr_checkpoint *ck, uint32_t index)
{
	if (ck->n_files <= HR__CK_OPEN_MAX)
		return;
	hr_file_close(ck->files[index].file);
	ck->files[index].file = NULL;
}

/* -- lists ------------------------------------------------------------------------------------ */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The index says where each tensor is: does it say so of this one? */
static bool is_listed(const struct hr__st_index *index, const char *path, const char *tensor)
{
	const char *file = hr__st_index_find(index, tensor);

	return file && strcmp(file, base_name(path)) == 0;
}

static int add_weights(struct opening *o, const struct hr__st_index *index)
{
	struct hr_checkpoint *ck = o->ck;
	uint32_t file = ck->n_files - 1;
	struct hr__ck_file *f = &ck->files[file];
	char shown[HR__JSON_SHOWN];
	int ret = hr__st_grow(f->path, (void **)&ck->weights, &o->weights_room,
			      ck->info.weights + f->st.n_tensors, sizeof(*ck->weights));

	if (ret)
		return ret;
	for (uint32_t i = 0; i < f->st.n_tensors; i++) {
		const struct hr__st_tensor *t = &f->st.tensors[i];

		if (index && !is_listed(index, f->path, t->name)) {
			if (!o->lenient)
				return hr__fail(
					HR_E_BAD_FORMAT,
					"%s: the index does not list its tensor %s here; be "
					"lenient to leave it out",
					f->path, hr__json_show(shown, t->name));
			ck->info.unlisted++;
			continue;
		}
		ck->weights[ck->info.weights++] = (struct hr__ck_weight){t, file};
		ck->info.bytes += t->end - t->begin;
	}
	if (ck->info.weights > UINT32_MAX)
		return hr__fail(EOVERFLOW, "%s: more than 2^32 tensors in all", f->path);
	return 0;
}

/* Takes over @path. */
static int add_file(struct opening *o, char *path, const struct hr__st_index *index)
{
	struct hr_checkpoint *ck = o->ck;
	struct hr__ck_file *f;
	int ret;

	if (!path)
		return no_memory("checkpoint");
	ret = hr__st_grow(path, (void **)&ck->files, &o->files_room, ck->n_files + 1ull,
			  sizeof(*ck->files));
	if (ret) {
		free(path);
		return ret;
	}
	f = &ck->files[ck->n_files++];
	*f = (struct hr__ck_file){.path = path};
	ret = open_file(f);
	if (ret == -ENOENT && index)
		return hr__fail(ENOENT,
				"%s: the index names this shard and it is missing; get it too",
				path);
	if (!ret)
		ret = read_header(f, o->lenient);
	if (!ret)
		ret = add_weights(o, index);
	if (ret)
		return ret;
	ck->info.file_bytes += f->stamp.size;
	if (!ck->info.metadata)
		ck->info.metadata = f->st.n_metadata;
	/* Whether so many are to stay open is known when all are. */
	if (ck->n_files > HR__CK_OPEN_MAX) {
		hr_file_close(f->file);
		f->file = NULL;
	}
	return 0;
}

/* -- the index -------------------------------------------------------------------------------- */

static char *join(const char *folder, size_t folder_len, const char *name)
{
	size_t len = strlen(name);
	char *path = malloc(folder_len + len + 1);

	if (path) {
		memcpy(path, folder, folder_len);
		memcpy(path + folder_len, name, len + 1);
	}
	return path;
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files that an index names, each once. Return: how many, or -ENOMEM. */
static int64_t list_shards(const struct hr__st_index *index, const char ***out)
{
	const char **names = malloc((index->n_places + 1ull) * sizeof(*names));
	uint32_t n = 0;

	if (!names)
		return -ENOMEM;
	for (uint32_t i = 0; i < index->n_places; i++)
		names[i] = index->places[i].file;
	qsort(names, index->n_places, sizeof(*names), compare_texts);
	for (uint32_t i = 0; i < index->n_places; i++) {
		if (!n || strcmp(names[n - 1], names[i]) != 0)
			names[n++] = names[i];
	}
	*out = names;
	return n;
}

static bool has_tensor(const struct hr__st *st, const char *name)
{
	uint32_t low = 0, high = st->n_tensors;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(st->tensors[st->by_name[middle]].name, name);

		if (!order)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* Every line of the index must be true: each tensor was added from the file that it names. */
static int check_listed(const struct hr_checkpoint *ck, uint32_t first_file, uint64_t first_weight,
			const char *path, const struct hr__st_index *index)
{
	char shown[HR__JSON_SHOWN], file[HR__JSON_SHOWN];

	if (ck->info.weights - first_weight == index->n_places)
		return 0;
	for (uint32_t i = 0; i < index->n_places; i++) {
		const struct hr__st_place *place = &index->places[i];
		uint32_t f = first_file;

		while (f < ck->n_files && strcmp(base_name(ck->files[f].path), place->file) != 0)
			f++;
		if (f == ck->n_files || !has_tensor(&ck->files[f].st, place->name))
			return hr__fail(
				HR_E_BAD_FORMAT,
				"%s: lists the tensor %s in %s, which does not have it; "
				"index and shards are of different versions, get them again",
				path, hr__json_show(shown, place->name),
				hr__json_show(file, place->file));
	}
	return 0;
}

static int add_shards(struct opening *o, const char *path, const struct hr__st_index *index)
{
	const char *slash = strrchr(path, '/'), **names;
	size_t folder_len = slash ? (size_t)(slash + 1 - path) : 0;
	uint32_t first_file = o->ck->n_files;
	uint64_t first_weight = o->ck->info.weights;
	int64_t n = list_shards(index, &names);
	int ret = 0;

	if (n < 0)
		return no_memory(path);
	for (int64_t i = 0; i < n && !ret; i++)
		ret = add_file(o, join(path, folder_len, names[i]), index);
	free(names);
	return ret ? ret : check_listed(o->ck, first_file, first_weight, path, index);
}

static int add_index(struct opening *o, const char *path, const struct hr__ck_file *f)
{
	struct hr__st_index index;
	size_t len = (size_t)f->stamp.size;
	void *json;
	int ret;

	if (f->stamp.size > INDEX_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: an index of %" PRIu64
				" bytes, %u are allowed; it is no index or damaged",
				path, f->stamp.size, INDEX_MAX);
	json = malloc(len);
	if (!json)
		return no_memory(path);
	ret = read_full(f->file, json, len, 0);
	if (!ret)
		ret = hr__st_index_parse(path, json, len, &index);
	free(json);
	if (ret)
		return ret;
	ret = add_shards(o, path, &index);
	hr__st_index_free(&index);
	return ret;
}

/* -- opening ---------------------------------------------------------------------------------- */

/*
 * Text, and not the length of a header: lengths that are allowed have zero bytes at their end.
 */
static bool is_index(const uint8_t *head, size_t len)
{
	return len && head[0] == '{' && !memchr(head, 0, (size_t)hr__min(len, HR__ST_LENGTH_BYTES));
}

static int add_path(struct opening *o, const char *path)
{
	uint8_t head[HR__ST_LENGTH_BYTES];
	struct hr__ck_file f = {.path = (char *)path};
	size_t n;
	int ret = open_file(&f);

	if (ret)
		return ret;
	n = (size_t)hr__min(f.stamp.size, sizeof(head));
	ret = read_full(f.file, head, n, 0);
	if (!ret && is_index(head, n)) {
		ret = add_index(o, path, &f);
		hr_file_close(f.file);
		return ret;
	}
	hr_file_close(f.file);
	return ret ? ret : add_file(o, strdup(path), NULL);
}

static mode_t kind_of(const char *path)
{
	struct stat st = {0};
	int fd = hr__sys->open(path, O_PATH | O_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	if (hr__sys->fstat(fd, &st) < 0)
		st.st_mode = 0;
	hr__sys->close(fd);
	return st.st_mode & S_IFMT;
}

static int add_folder(struct opening *o, const char *folder)
{
	static const char *const names[] = {"/model.safetensors.index.json", "/model.safetensors"};

	for (size_t i = 0; i < HR_ARRAY_LEN(names); i++) {
		char *path = join(folder, strlen(folder), names[i]);
		int ret;

		if (!path)
			return no_memory(folder);
		if (!kind_of(path)) {
			free(path);
			continue;
		}
		ret = add_path(o, path);
		free(path);
		return ret;
	}
	return hr__fail(ENOENT,
			"%s: this folder has neither model.safetensors.index.json nor "
			"model.safetensors; name the file",
			folder);
}

static int compare_names(const void *a, const void *b, void *weights)
{
	const struct hr__ck_weight *w = weights;

	return strcmp(w[*(const uint32_t *)a].tensor->name, w[*(const uint32_t *)b].tensor->name);
}

/* One list of names over all files; they must differ. */
static int sort_names(struct hr_checkpoint *ck)
{
	uint32_t n = (uint32_t)ck->info.weights;
	char shown[HR__JSON_SHOWN];

	if (ck->n_files == 1 && n == ck->files[0].st.n_tensors) {
		ck->by_name = ck->files[0].st.by_name;
		ck->files[0].st.by_name = NULL;
		return 0;
	}
	ck->by_name = malloc((n + 1ull) * sizeof(*ck->by_name));
	if (!ck->by_name)
		return no_memory("checkpoint");
	for (uint32_t i = 0; i < n; i++)
		ck->by_name[i] = i;
	qsort_r(ck->by_name, n, sizeof(*ck->by_name), compare_names, ck->weights);
	for (uint32_t i = 1; i < n; i++) {
		const struct hr__ck_weight *a = &ck->weights[ck->by_name[i - 1]];
		const struct hr__ck_weight *b = &ck->weights[ck->by_name[i]];

		if (strcmp(a->tensor->name, b->tensor->name) == 0)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s and %s both have the tensor %s; load one of them",
					ck->files[a->file].path, ck->files[b->file].path,
					hr__json_show(shown, a->tensor->name));
	}
	return 0;
}

int hr_checkpoint_open(const char *const *paths, uint32_t n,
		       const struct hr_checkpoint_options *opts, struct hr_checkpoint **out)
{
	struct opening o = {.lenient = opts && opts->lenient};
	int ret = 0;

	if (!paths || !n || !out)
		return hr__fail(EINVAL, "hr_checkpoint_open: no path or no place for the result; "
					"pass both");
	o.ck = calloc(1, sizeof(*o.ck));
	if (!o.ck)
		return no_memory(paths[0]);
	for (uint32_t i = 0; i < n && !ret; i++) {
		if (kind_of(paths[i]) == S_IFDIR)
			ret = add_folder(&o, paths[i]);
		else
			ret = add_path(&o, paths[i]);
	}
	if (!ret)
		ret = sort_names(o.ck);
	if (ret) {
		hr_checkpoint_close(o.ck);
		return ret;
	}
	o.ck->info.files = o.ck->n_files;
	*out = o.ck;
	return 0;
}

void hr_checkpoint_close(struct hr_checkpoint *ck)
{
	if (!ck)
		return;
	for (uint32_t i = 0; i < ck->n_files; i++) {
		hr_file_close(ck->files[i].file);
		hr__st_free(&ck->files[i].st);
		free(ck->files[i].path);
	}
	free(ck->files);
	free(ck->weights);
	free(ck->by_name);
	free(ck);
}

/* -- questions -------------------------------------------------------------------------------- */

int hr_checkpoint_info(const struct hr_checkpoint *ck, struct hr_checkpoint_info *info)
{
	*info = ck->info;
	return 0;
}

int hr_checkpoint_weight(const struct hr_checkpoint *ck, uint64_t index, struct hr_weight *out)
{
	const struct hr__ck_weight *w;

	if (index >= ck->info.weights)
		return hr__fail(EINVAL,
				"tensor %" PRIu64 " of %" PRIu64 "; count from 0 and stay below",
				index, ck->info.weights);
	w = &ck->weights[index];
	*out = (struct hr_weight){
		.name = w->tensor->name,
		.type = w->tensor->type,
		.ndim = w->tensor->ndim,
		.shape = w->tensor->shape,
		.file = w->file,
		.offset = hr__ck_offset(ck, w),
		.len = w->tensor->end - w->tensor->begin,
	};
	return 0;
}

int hr_checkpoint_find(const struct hr_checkpoint *ck, const char *name, uint64_t *index)
{
	uint32_t low = 0, high = (uint32_t)ck->info.weights;
	char shown[HR__JSON_SHOWN];

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(ck->weights[ck->by_name[middle]].tensor->name, name);

		if (!order) {
			*index = ck->by_name[middle];
			return 0;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return hr__fail(ENOENT, "%s: has no tensor %s; list the names that it has",
			ck->n_files ? ck->files[0].path : "checkpoint", hr__json_show(shown, name));
}

const char *hr_checkpoint_path(const struct hr_checkpoint *ck, uint64_t index)
{
	return index < ck->n_files ? ck->files[index].path : NULL;
}

int hr_checkpoint_metadata(const struct hr_checkpoint *ck, uint64_t index, const char **key,
			   const char **value)
{
	for (uint32_t i = 0; i < ck->n_files; i++) {
		const struct hr__st *st = &ck->files[i].st;

		if (!st->n_metadata)
			continue;
		if (index >= st->n_metadata)
			break;
		*key = st->metadata[index].key;
		*value = st->metadata[index].value;
		return 0;
	}
	return hr__fail(EINVAL, "there is no pair %" PRIu64 " of metadata", index);
}

enum hr_cache hr_checkpoint_cache(const struct hr_checkpoint *ck)
{
	enum hr_cache wish = hr_config_get()->cache;

	if (wish != HR_CACHE_AUTO)
		return wish;
	return ck->info.file_bytes <= hr__memory_allowed() / 2 ? HR_CACHE_KEEP : HR_CACHE_AUTO;
}

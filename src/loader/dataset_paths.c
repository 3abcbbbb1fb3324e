/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/dataset_paths.c - which files a dataset is made of: files as given, folders by their manifest or
 * by the names in them. Opens manifests only.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "file/rest.h"
#include "loader/dataset.h"

#define MANIFEST "index.json"
#define FOLDER_FILES_MAX (1u << 20)

struct expansion {
	const struct hr_dataset_options *opts;
	const struct hr__format_ops **ops;
	int (*each)(void *ctx, const char *path, const struct hr__shard *shard);
	void *ctx;
	const char *folder; /* of the manifest, with its slash */
	size_t folder_len;
};

static char *join(const char *folder, size_t folder_len, const char *name)
{
	size_t name_len = strlen(name);
	char *path = calloc(1, folder_len + name_len + 2);

	if (!path) {
		hr__fail(ENOMEM, "%s: no memory for its path", name);
		return NULL;
	}
	memcpy(path, folder, folder_len);
	if (folder_len && folder[folder_len - 1] != '/')
		path[folder_len++] = '/';
	memcpy(path + folder_len, name, name_len + 1);
	return path;
}

static int add_shard(void *ctx, const struct hr__shard *shard)
{
	struct expansion *x = ctx;
	char *path;
	int rc;

	if (!*shard->name || strchr(shard->name, '/') || strcmp(shard->name, "..") == 0 ||
	    strcmp(shard->name, ".") == 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%.*s" MANIFEST ": names a shard \"%.100s\"; shards lie in its own "
				"folder",
				(int)x->folder_len, x->folder, shard->name);
	path = join(x->folder, x->folder_len, shard->name);
	if (!path)
		return -ENOMEM;
	rc = x->each(x->ctx, path, shard);
	free(path);
	return rc;
}

/* Is this file a manifest of a format? Return: 1 when it is not, or as each(). */
static int expand_manifest(struct expansion *x, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	const struct hr__format_ops *ops;
	struct hr__part *part;
	int rc = 1;

	if (strcmp(name, MANIFEST) != 0)
		return 1;
	x->folder = path;
	x->folder_len = (size_t)(name - path);
	for (size_t k = 0; (ops = hr__format_at(k)) && rc == 1; k++) {
		const struct hr_source *src;

		if (!ops->expand || (*x->ops && *x->ops != ops))
			continue;
		rc = hr__part_source(path, &part, &src);
		if (rc == 0) {
			rc = ops->expand(src, x->opts, add_shard, x);
			if (rc == 0 && !*x->ops)
				*x->ops = ops;
		}
		hr__part_close(part);
	}
	return rc;
}

static bool has_suffix(const char *name, const char *suffixes)
{
	size_t len = strlen(name);

	for (const char *s = suffixes; s && *s;) {
		size_t n = strcspn(s, " ");

		if (len > n && memcmp(name + len - n, s, n) == 0)
			return true;
		s += n + (s[n] == ' ');
	}
	return false;
}

static bool is_sample_file(const struct expansion *x, const char *name)
{
	const struct hr__format_ops *ops;

	if (*x->ops)
		return has_suffix(name, (*x->ops)->suffixes);
	/* The second of a pair counts once the first has told the format: others have an .idx, too. */
	for (size_t k = 0; (ops = hr__format_at(k)); k++) {
		if (!ops->pair && has_suffix(name, ops->suffixes))
			return true;
	}
	return false;
}

static int expand_names(struct expansion *x, const char *folder, struct dirent *const *names, int n)
{
	int rc = 0, found = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		char *path;

		if (names[i]->d_name[0] == '.' || !is_sample_file(x, names[i]->d_name))
			continue;
		path = join(folder, strlen(folder), names[i]->d_name);
		if (!path)
			return -ENOMEM;
		if (!*x->ops)
			hr__part_pair(path, x->ops);
		/* Of a pair, the other file may be the one that counts. */
		if (is_sample_file(x, names[i]->d_name)) {
			rc = x->each(x->ctx, path, NULL);
			found++;
		}
		free(path);
	}
	if (rc == 0 && !found)
		return hr__fail(HR_E_UNKNOWN_FORMAT,
				"%s: a folder with neither an " MANIFEST
				" nor files of a known format; name the files",
				folder);
	return rc;
}

static bool has_manifest(struct dirent *const *names, int n)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(names[i]->d_name, MANIFEST) == 0)
			return true;
	}
	return false;
}

static int expand_folder(struct expansion *x, const char *folder, struct dirent *const *names,
			 int n)
{
	char *manifest;
	int rc = 1;

	if ((uint32_t)n > FOLDER_FILES_MAX)
		return hr__fail(EINVAL, "%s: has more than %u files; name the files", folder,
				FOLDER_FILES_MAX);
	if (has_manifest(names, n)) {
		manifest = join(folder, strlen(folder), MANIFEST);
		if (!manifest)
			return -ENOMEM;
		rc = expand_manifest(x, manifest);
		free(manifest);
	}
	return rc == 1 ? expand_names(x, folder, names, n) : rc;
}

static int expand_path(struct expansion *x, const char *path)
{
	struct dirent **names;
	int n, rc;

	do {
		n = scandir(path, &names, NULL, alphasort);
	} while (n < 0 && hr__rest_make_way(-errno));
	if (n >= 0) {
		rc = expand_folder(x, path, names, n);
		for (int i = 0; i < n; i++)
			free(names[i]);
		free(names);
		return rc;
	}
	if (errno == EMFILE || errno == ENFILE)
		return hr__fail(errno, "%s: %s; close some files or raise ulimit -n", path,
				hr_strerror(-errno));
	if (errno != ENOTDIR && errno != ENOENT)
		return hr__fail(errno, "%s: cannot be read: %s; check its permissions", path,
				hr_strerror(-errno));
	rc = expand_manifest(x, path);
	return rc == 1 ? x->each(x->ctx, path, NULL) : rc;
}

int hr__paths_expand(const char *const *paths, uint32_t n, const struct hr_dataset_options *opts,
		     const struct hr__format_ops **ops,
		     int (*each)(void *ctx, const char *path, const struct hr__shard *shard),
		     void *ctx)
{
	struct expansion x = {.opts = opts, .ops = ops, .each = each, .ctx = ctx};
	int rc = 0;

	if (!*ops && opts->format && strcmp(opts->format, "auto") != 0)
		*ops = hr__format_find(opts->format, "", 0, 0); /* else the first file tells */
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = expand_path(&x, paths[i]);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/dataset.c - opens what the options of cli/dataset.h describe. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/dataset.h"

char **cli_split(const char *list, uint32_t *n)
{
	uint32_t count = 1, at = 0;
	char **out, *text;

	for (const char *p = list; *p; p++)
		count += *p == ',';
	out = malloc((count + 1) * sizeof(*out) + strlen(list) + 1);
	if (!out)
		return NULL;
	text = (char *)(out + count + 1);
	memcpy(text, list, strlen(list) + 1);
	while (text)
		out[at++] = strsep(&text, ",");
	out[at] = NULL;
	*n = count;
	return out;
}

int cli_dataset_options(const struct cli_dataset *data, struct hr_dataset_options *out,
			char ***names)
{
	*out = (struct hr_dataset_options){
		.format = data->format,
		.seq_len = (uint32_t)data->seq_len,
		.stride = data->stride,
		.whole_files = data->whole_files,
		.order = data->order,
		.index_dir = data->index_dir,
		.index_only = data->no_index,
	};
	*names = NULL;
	if (data->dtype)
		hr_dtype_parse(data->dtype, &out->dtype);
	if (data->corrupt && strcmp(data->corrupt, "error") != 0)
		out->corrupt =
			strcmp(data->corrupt, "skip") ? HR_CORRUPT_SUBSTITUTE : HR_CORRUPT_SKIP;
	if (data->fields) {
		*names = cli_split(data->fields, &out->n_fields);
		if (!*names)
			return cli_fail("--fields: no memory");
		out->fields = (const char *const *)*names;
	}
	return CLI_OK;
}

static int open_files(const struct cli_dataset *data, const char *const *paths, uint32_t n,
		      struct hr_dataset **out)
{
	struct hr_dataset_options opts;
	char **names;
	int err, code = cli_dataset_options(data, &opts, &names);

	if (code != CLI_OK)
		return code;
	err = hr_dataset_open(paths, n, &opts, out);
	free(names);
	return err ? cli_fail_code(err, paths[0]) : CLI_OK;
}

/* @weights: receives @n numbers. */
static int parse_weights(const char *list, uint32_t n, double *weights)
{
	const char *p = list;

	for (uint32_t i = 0; i < n; i++) {
		char *end;

		weights[i] = strtod(p, &end);
		if (end == p || *end != (i + 1 < n ? ',' : '\0'))
			return cli_fail("--weights %s: must be %" PRIu32
					" numbers with commas between them, one for each DATA",
					list, n);
		p = end + 1;
	}
	return CLI_OK;
}

static int open_mixture(const struct cli_dataset *data, const char *const *paths, uint32_t n,
			struct hr_dataset **out)
{
	struct hr_dataset **kids = calloc(n, sizeof(struct hr_dataset *));
	double *weights = calloc(n, sizeof(*weights));
	int err, code = CLI_OK;

	if (!kids || !weights)
		code = cli_fail("--weights: no memory");
	if (code == CLI_OK)
		code = parse_weights(data->weights, n, weights);
	for (uint32_t i = 0; i < n && code == CLI_OK; i++)
		code = open_files(data, paths + i, 1, &kids[i]);
	if (code == CLI_OK) {
		err = hr_dataset_mix(kids, weights, n, 0, out);
		if (err)
			code = cli_fail_code(err, paths[0]);
	}
	for (uint32_t i = 0; kids && i < n; i++)
		hr_dataset_close(kids[i]);
	free(kids);
	free(weights);
	return code;
}

/* Numbers with anything but digits between them. */
static int read_numbers(const char *path, uint64_t **out, uint64_t *n)
{
	uint64_t room = 0, *ids = NULL;
	FILE *f = fopen(path, "re");
	unsigned long long id;
	bool whole;
	int got;

	if (!f)
		return cli_fail("%s: cannot be read: %s; name a file of sample numbers", path,
				strerror(errno));
	*n = 0;
	while ((got = fscanf(f, "%llu", &id)) == 1) {
		if (*n == room) {
			uint64_t *more =
				realloc(ids, (room = room ? 2 * room : 1024) * sizeof(*ids));

			if (!more)
				break;
			ids = more;
		}
		ids[(*n)++] = id;
	}
	/* A folder can be opened, and drives fail: that is no end of the numbers. */
	whole = !ferror(f);
	fclose(f);
	*out = ids;
	if (got == 1)
		return cli_fail("%s: no memory for its numbers", path);
	if (!whole)
		return cli_fail("%s: could not be read to its end; is it a file of sample numbers, "
				"on a drive that works?",
				path);
	return got == EOF ? CLI_OK
			  : cli_fail("%s: number %" PRIu64 " of it is none; it must have sample "
				     "numbers, with spaces or lines between them",
				     path, *n);
}

static int select_samples(const char *path, struct hr_dataset **ds)
{
	struct hr_dataset *view = NULL;
	uint64_t *ids = NULL, n = 0;
	int code = read_numbers(path, &ids, &n), err;

	if (code == CLI_OK) {
		err = hr_dataset_select(*ds, ids, n, &view);
		if (err)
			code = cli_fail_code(err, path);
	}
	free(ids);
	hr_dataset_close(*ds);
	*ds = view;
	return code;
}

/*
 * A quarter of the limit is for files of datasets, two descriptors each: those that stay open need not be
 * opened again. The soft limit is low for the sake of programs that use select(), which this one does not.
 */
static void allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int cli_dataset_open(const struct cli_dataset *data, const char *const *paths, uint32_t n,
		     struct hr_dataset **out)
{
	int code;

	allow_files();
	if (data->weights)
		code = open_mixture(data, paths, n, out);
	else
		code = open_files(data, paths, n, out);
	if (code == CLI_OK && data->select)
		code = select_samples(data->select, out);
	return code;
}

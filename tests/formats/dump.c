/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump - every sample of a dataset as lines of JSON, for comparison with the format's own library. Reads
 * what hr_dataset_locate() names with pread(2); knows no format.
 *
 * usage: dump [OPTION VALUE]... [--whole-files] [--head] PATH...
 * First line: {"samples", "format", "fields": [{"name", "kind", "dtype", "shape", "bytes"}], "corrupt",
 * "reason"}; then per sample {"i": n, "FIELD": "hex of its bytes" or a number}, windows also with
 * "starts": [...]. A refusal is a sentence on stderr, its code before it, and exit status 1.
 */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headrace/headrace.h>

#include "loader/dataset.h"

#define FIELDS_MAX 64u
#define FILES_MAX 1024u

/* Descriptors of files seen: hr_file_path() tells which. */
static struct {
	const struct hr_file *file;
	int fd;
} seen[FILES_MAX];

static int descriptor(const struct hr_file *file)
{
	uint32_t k = 0;

	while (k < FILES_MAX && seen[k].file && seen[k].file != file)
		k++;
	if (k == FILES_MAX)
		return -1;
	if (!seen[k].file) {
		seen[k].file = file;
		seen[k].fd = open(hr_file_path(file), O_RDONLY | O_CLOEXEC);
	}
	return seen[k].fd;
}

static int fail(int rc)
{
	fprintf(stderr, "%s: %s\n", hr_strerror(rc), hr_error_detail());
	return rc;
}

static void put_text(const char *text)
{
	putchar('"');
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			printf("\\%c", *c);
		else if (*c < 0x20)
			printf("\\u%04x", *c);
		else
			putchar(*c);
	}
	putchar('"');
}

static void put_head(const struct hr_dataset_info *info)
{
	static const char *const kinds[] = {"fixed", "ragged", "scalar"};

	printf("{\"samples\": %" PRIu64 ", \"format\": \"%s\", \"corrupt\": %" PRIu64
	       ", \"reason\": ",
	       info->samples, info->format, info->corrupt);
	put_text(info->corrupt_reason);
	printf(", \"fields\": [");
	for (uint32_t k = 0; k < info->n_fields; k++) {
		const struct hr_field *field = &info->fields[k];

		printf("%s{\"name\": ", k ? ", " : "");
		put_text(field->name);
		printf(", \"kind\": \"%s\", \"dtype\": \"%s\", \"bytes\": %" PRIu64
		       ", \"shape\": [",
		       kinds[field->kind], hr_dtype_name(field->dtype), field->bytes);
		for (uint32_t d = 0; d < field->ndim; d++)
			printf("%s%" PRIu64, d ? ", " : "", field->shape[d]);
		printf("]}");
	}
	printf("]}\n");
}

static int put_range(int fd, const struct hr_range *range)
{
	unsigned char buf[4096];
	uint64_t done = 0;

	while (done < range->len) {
		size_t want =
			range->len - done < sizeof(buf) ? (size_t)(range->len - done) : sizeof(buf);
		ssize_t n = pread(fd, buf, want, (off_t)(range->offset + done));

		if (n <= 0) {
			fprintf(stderr, "dump: a range ends behind its file\n");
			return -1;
		}
		for (ssize_t i = 0; i < n; i++)
			printf("%02x", buf[i]);
		done += (uint64_t)n;
	}
	return 0;
}

static int put_bytes(const struct hr_dataset *ds, uint64_t i, uint32_t field,
		     struct hr_range *ranges, uint32_t most)
{
	struct hr_file *file = NULL;
	int n = hr_dataset_locate(ds, i, field, &file, ranges, most), rc = 0;

	if (n < 0)
		return fail(n);
	putchar('"');
	for (int k = 0; k < n && rc == 0; k++)
		rc = put_range(descriptor(file), &ranges[k]);
	putchar('"');
	return rc;
}

static int put_scalar(const struct hr_dataset *ds, uint64_t i, uint32_t field, enum hr_dtype dtype)
{
	uint64_t bits;
	double number;
	int rc = hr_dataset_scalar(ds, i, field, &bits);

	if (rc < 0)
		return fail(rc);
	memcpy(&number, &bits, sizeof(number));
	if (dtype == HR_DTYPE_F64)
		printf("%.17g", number);
	else
		printf("%" PRId64, (int64_t)bits);
	return 0;
}

/* Where documents begin: only the inside tells so far. */
static void put_starts(const struct hr_dataset *ds, uint64_t i)
{
	const struct hr__part *part;
	struct hr__place place;
	uint32_t room = (uint32_t)ds->info.elements, *starts;
	int n;

	hr__dataset_find(ds, i, &place);
	part = ds->parts[place.part];
	if (!part->ff->ops->starts)
		return;
	starts = calloc(room, sizeof(*starts));
	n = starts ? part->ff->ops->starts(part->ff, place.index, starts, room) : 0;
	printf(", \"starts\": [");
	for (int k = 0; k < n; k++)
		printf("%s%" PRIu32, k ? ", " : "", starts[k]);
	printf("]");
	free(starts);
}

static int put_samples(const struct hr_dataset *ds, const struct hr_dataset_info *info)
{
	uint32_t most = hr__dataset_ranges_max(ds);
	struct hr_range *ranges = malloc(most * sizeof(*ranges));
	int rc = ranges ? 0 : -1;

	for (uint64_t i = 0; i < info->samples && rc == 0; i++) {
		printf("{\"i\": %" PRIu64, i);
		for (uint32_t k = 0; k < info->n_fields && rc == 0; k++) {
			printf(", ");
			put_text(info->fields[k].name);
			printf(": ");
			if (info->fields[k].kind == HR_FIELD_SCALAR)
				rc = put_scalar(ds, i, k, info->fields[k].dtype);
			else
				rc = put_bytes(ds, i, k, ranges, most);
		}
		if (info->windows)
			put_starts(ds, i);
		printf("}\n");
	}
	free(ranges);
	return rc;
}

static enum hr_corrupt parse_corrupt(const char *text)
{
	if (strcmp(text, "skip") == 0)
		return HR_CORRUPT_SKIP;
	return strcmp(text, "substitute") == 0 ? HR_CORRUPT_SUBSTITUTE : HR_CORRUPT_ERROR;
}

/* Return: 0, or 2 when the command is wrong. */
static int parse(int argc, char **argv, struct hr_dataset_options *opts, const char **fields,
		 bool *head)
{
	static const struct option options[] = {
		{"format", 1, NULL, 'f'},
		{"seq-len", 1, NULL, 't'},
		{"field", 1, NULL, 'n'},
		{"corrupt", 1, NULL, 'c'},
		{"order", 1, NULL, 'o'},
		{"stride", 1, NULL, 's'},
		{"dtype", 1, NULL, 'd'},
		{"index-dir", 1, NULL, 'i'},
		{"whole-files", 0, NULL, 'w'},
		{"head", 0, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'f')
			opts->format = optarg;
		else if (c == 't')
			opts->seq_len = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'n' && opts->n_fields < FIELDS_MAX)
			fields[opts->n_fields++] = optarg;
		else if (c == 'c')
			opts->corrupt = parse_corrupt(optarg);
		else if (c == 'o')
			opts->order = optarg;
		else if (c == 's')
			opts->stride = strtoull(optarg, NULL, 10);
		else if (c == 'd' && hr_dtype_parse(optarg, &opts->dtype) == 0)
			continue;
		else if (c == 'i')
			opts->index_dir = optarg;
		else if (c == 'w')
			opts->whole_files = true;
		else if (c == 'h')
			*head = true;
		else
			return 2;
	}
	if (opts->n_fields)
		opts->fields = fields;
	return optind < argc ? 0 : 2;
}

int main(int argc, char **argv)
{
	const char *fields[FIELDS_MAX];
	struct hr_dataset_options opts = {0};
	struct hr_dataset_info info;
	struct hr_dataset *ds = NULL;
	bool head = false;
	int rc = parse(argc, argv, &opts, fields, &head);

	if (rc) {
		fprintf(stderr, "usage: dump [OPTION VALUE]... PATH...\n");
		return rc;
	}
	rc = hr_dataset_open((const char *const *)argv + optind, (uint32_t)(argc - optind), &opts,
			     &ds);
	if (rc < 0)
		return fail(rc) < 0;
	hr_dataset_info(ds, &info);
	put_head(&info);
	if (!head)
		rc = put_samples(ds, &info);
	for (uint32_t k = 0; k < FILES_MAX && seen[k].file; k++)
		close(seen[k].fd);
	hr_dataset_close(ds);
	return rc < 0;
}

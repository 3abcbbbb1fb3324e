/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/npy.c - rows of a .npy array, or of the arrays of a stored .npz archive, as samples; sees bytes
 * only through a source. Heads are npy_head.c's, archives zip.c's.
 *
 * Axis 0 counts the samples; with whole_files an array is one sample. Rows of all members of an archive
 * belong together, so they must be equally many.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/format.h"
#include "format/npy.h"
#include "format/zip.h"

#define SUFFIX ".npy"
#define SUFFIX_BYTES 4u
#define ZIP_EMPTY "PK\x05\x06"

/* Sample i of field k = [data + i * field.bytes, + field.bytes). */
struct npy_file {
	struct hr__format_file ff;
	struct hr__zip zip;
	struct hr__field *fields;
	uint64_t *data;
};

/* Room for @n fields: there may be many files of one array. */
static int make_room(struct npy_file *f, uint32_t n, const char *name)
{
	f->fields = calloc(n, sizeof(*f->fields));
	f->data = calloc(n, sizeof(*f->data));
	f->ff.schema.fields = f->fields;
	return f->fields && f->data ? 0 : hr__fail(ENOMEM, "%s: no memory for its fields", name);
}

static bool is_member(const char *name, size_t len)
{
	return len > SUFFIX_BYTES && memcmp(name + len - SUFFIX_BYTES, SUFFIX, SUFFIX_BYTES) == 0;
}

/* An archive is one of arrays if its first member is. */
static int npy_probe(const void *head, size_t len, uint64_t file_size)
{
	const uint8_t *p = head;
	size_t name_len;

	if (len >= HR__NPY_MAGIC_BYTES && memcmp(p, HR__NPY_MAGIC, HR__NPY_MAGIC_BYTES) == 0)
		return 100;
	if (len < 30 || memcmp(p, HR__ZIP_MAGIC, HR__ZIP_MAGIC_BYTES) != 0)
		return 0;
	name_len = (size_t)p[26] | (size_t)p[27] << 8;
	return name_len <= len - 30 && is_member((const char *)p + 30, name_len) ? 100 : 0;
}

/* @what: the array in sentences, with a colon and a space, or "". */
static int set_rows(struct hr__field *field, const struct hr__npy *array, uint64_t *count,
		    const char *name, const char *what)
{
	struct hr_field *face = &field->face;

	if (array->ndim == 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: %sa single number (shape ()) has no rows; open it with whole "
				"files as samples, or leave it out",
				name, what);
	if (array->shape[0] == 0)
		return hr__fail(HR_E_TOO_SHORT, "%s: %san array of no rows; leave it out", name,
				what);
	*count = array->shape[0];
	face->ndim = array->ndim - 1;
	memcpy(face->shape, array->shape + 1, face->ndim * sizeof(face->shape[0]));
	face->bytes = array->bytes / array->shape[0];
	return 0;
}

static int set_field(struct hr__field *field, const struct hr__npy *array,
		     const struct hr_dataset_options *opts, uint64_t *count, const char *name,
		     const char *what)
{
	struct hr_field *face = &field->face;

	face->dtype = array->dtype;
	if (opts->whole_files) {
		if (array->ndim >= HR_DIMS_MAX)
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: %shas %u dimensions, a sample has at most %u; "
					"reshape it before it is saved",
					name, what, array->ndim, HR_DIMS_MAX - 1);
		*count = 1;
		face->ndim = array->ndim;
		memcpy(face->shape, array->shape, sizeof(face->shape[0]) * face->ndim);
		face->bytes = array->bytes;
	} else {
		int rc = set_rows(field, array, count, name, what);

		if (rc < 0)
			return rc;
	}
	if (face->bytes == 0)
		return hr__fail(HR_E_TOO_SHORT, "%s: %ssamples without a byte; leave it out", name,
				what);
	if (opts->dtype != HR_DTYPE_BYTES && opts->dtype != array->dtype)
		return hr__fail(HR_E_BAD_DTYPE,
				"%s: %sholds %s but dtype %s was asked for; leave dtype out or say "
				"%s",
				name, what, hr_dtype_name(array->dtype), hr_dtype_name(opts->dtype),
				hr_dtype_name(array->dtype));
	return 0;
}

/* -- .npy ------------------------------------------------------------------------------------ */

static int open_array(struct npy_file *f, const struct hr__format_args *args)
{
	struct hr__npy array = {.data = 0};
	int rc = make_room(f, 1, args->src->name);

	if (rc == 0)
		rc = hr__npy_parse(args->src, 0, args->src->size, NULL, &array);
	if (rc < 0)
		return rc;
	f->fields[0].face.name = "data";
	f->data[0] = array.data;
	f->ff.schema.n_fields = 1;
	return set_field(&f->fields[0], &array, args->opts, &f->ff.schema.count, args->src->name,
			 "");
}

/* -- .npz ------------------------------------------------------------------------------------ */

/* What is wrong with one member matters only to those who want it. */
static int or_name_fields(const struct hr__format_args *args, int rc)
{
	char text[768];

	if (rc >= 0 || args->opts->fields)
		return rc;
	snprintf(text, sizeof(text), "%s; or name the fields that are wanted", hr_error_detail());
	return hr__fail_set(-rc, text);
}

static int parse_member(struct npy_file *f, const struct hr__format_args *args,
			struct hr__zip_member *m)
{
	uint32_t k = f->ff.schema.n_fields;
	const char *name = args->src->name;
	char what[128];
	struct hr__npy array = {.data = 0};
	uint64_t offset = 0, count = 0;
	int rc = hr__zip_locate(&f->zip, m, &offset);

	if (rc == 0)
		rc = hr__npy_parse(args->src, offset, m->bytes, m->name, &array);
	if (rc < 0)
		return rc;
	snprintf(what, sizeof(what), "member \"%.100s\": ", m->name);
	rc = set_field(&f->fields[k], &array, args->opts, &count, name, what);
	if (rc < 0)
		return rc;
	/* The name of the field is that of the member without its suffix, from here on. */
	m->name_len -= SUFFIX_BYTES;
	m->name[m->name_len] = '\0';
	if (k && count != f->ff.schema.count)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: field \"%.100s\" has %" PRIu64 " rows, \"%.100s\" before it "
				"%" PRIu64 "; those of one dataset must agree",
				name, m->name, count, f->fields[0].face.name, f->ff.schema.count);
	f->ff.schema.count = count;
	f->data[k] = array.data;
	f->fields[k].face.name = m->name;
	f->ff.schema.n_fields = k + 1;
	return 0;
}

static int add_member(struct npy_file *f, const struct hr__format_args *args,
		      struct hr__zip_member *m)
{
	if (f->ff.schema.n_fields == HR__FIELDS_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has more than %u arrays; name the fields that are wanted",
				args->src->name, HR__FIELDS_MAX);
	return or_name_fields(args, parse_member(f, args, m));
}

/* Add the field @name, if the archive has it and it is not there already. */
static int add_named(struct npy_file *f, const struct hr__format_args *args, const char *name)
{
	size_t len = strlen(name);

	for (uint32_t i = 0; i < f->zip.n; i++) {
		struct hr__zip_member *m = &f->zip.members[i];

		if (m->name_len == len + SUFFIX_BYTES && is_member(m->name, m->name_len) &&
		    memcmp(m->name, name, len) == 0)
			return add_member(f, args, m);
	}
	return 0;
}

static int open_archive(struct npy_file *f, const struct hr__format_args *args)
{
	const struct hr_dataset_options *opts = args->opts;
	int rc = hr__zip_open(&f->zip, args->src);

	if (rc == 0)
		rc = make_room(f, (uint32_t)hr__min(f->zip.n + 1, HR__FIELDS_MAX), args->src->name);
	for (uint32_t i = 0; opts->fields && i < opts->n_fields && rc == 0; i++)
		rc = add_named(f, args, opts->fields[i]);
	for (uint32_t i = 0; !opts->fields && i < f->zip.n && rc == 0; i++) {
		struct hr__zip_member *m = &f->zip.members[i];

		if (is_member(m->name, m->name_len))
			rc = add_member(f, args, m);
	}
	if (rc == 0 && !opts->fields && f->ff.schema.n_fields == 0)
		rc = hr__fail(HR_E_BAD_FORMAT,
			      "%s: a zip archive without arrays (.npy); save them with "
			      "numpy.savez()",
			      args->src->name);
	return rc;
}

/* -- the format ------------------------------------------------------------------------------ */

static int refuse_other(const struct hr_source *src, const uint8_t *head, size_t len)
{
	const char *foreign = hr__format_foreign(head, len);

	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", src->name, foreign);
	return hr__fail(HR_E_BAD_FORMAT, "%s: byte 0: %s; write it again with numpy.save()",
			src->name,
			hr__format_zeros(head, len)
				? "nothing but zeros where a head should be, it was never "
				  "written to its end"
				: "neither a .npy array nor an .npz archive");
}

static int parse_file(struct npy_file *f, const struct hr__format_args *args)
{
	const struct hr_source *src = args->src;
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t len;
	int rc;

	rc = hr__format_head(src, head, &len);
	if (rc < 0)
		return rc;
	if (len >= HR__NPY_MAGIC_BYTES && memcmp(head, HR__NPY_MAGIC, HR__NPY_MAGIC_BYTES) == 0)
		rc = open_array(f, args);
	else if (len >= HR__ZIP_MAGIC_BYTES &&
		 (memcmp(head, HR__ZIP_MAGIC, HR__ZIP_MAGIC_BYTES) == 0 ||
		  memcmp(head, ZIP_EMPTY, HR__ZIP_MAGIC_BYTES) == 0))
		rc = open_archive(f, args);
	else
		return refuse_other(src, head, len);
	if (rc < 0)
		return rc;
	return hr__format_check_wanted(src, args->opts, &f->ff.schema);
}

static void npy_close(struct hr__format_file *ff)
{
	struct npy_file *f = (struct npy_file *)ff;

	hr__zip_close(&f->zip);
	free(f->fields);
	free(f->data);
	free(f);
}

static int npy_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	struct npy_file *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return hr__fail(ENOMEM, "%s: no memory to open it", args->src->name);
	f->ff.ops = &hr__format_npy;
	rc = parse_file(f, args);
	if (rc < 0) {
		npy_close(&f->ff);
		return rc;
	}
	*out = &f->ff;
	return 0;
}

static int npy_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      struct hr_range *out)
{
	const struct npy_file *f = (const struct npy_file *)ff;

	if (index >= ff->schema.count || field >= ff->schema.n_fields)
		return -EINVAL;
	/* No overflow: the last row lies inside the file. */
	out->offset = f->data[field] + index * f->fields[field].face.bytes;
	out->len = f->fields[field].face.bytes;
	return 1;
}

const struct hr__format_ops hr__format_npy = {
	.name = "npy",
	.suffixes = ".npy .npz",
	.probe = npy_probe,
	.open = npy_open,
	.locate = npy_locate,
	.close = npy_close,
};

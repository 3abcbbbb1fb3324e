/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support/index_bytes.h - side indexes in memory: what a scan tells, written, read again and used, for tests
 * of the formats that need one.
 */
#ifndef HR_TESTS_INDEX_BYTES_H
#define HR_TESTS_INDEX_BYTES_H

#include "format/index.h"
#include "support/format_bytes.h"

struct index_bytes {
	struct hr__index_out out; /* must be first */
	uint8_t *bytes;
	uint64_t len, room;
	uint64_t progress, samples; /* as told last */
	int fail_write, fail_progress;
	struct hr_source src;
};

static inline int index_bytes_write(struct hr__index_out *out, uint64_t offset, const void *bytes,
				    size_t len)
{
	struct index_bytes *x = (struct index_bytes *)out;

	if (x->fail_write)
		return hr__fail(x->fail_write, "index: writing failed");
	if (offset + len > x->room) {
		uint64_t room = 2 * (offset + len) + 4096;
		uint8_t *more = realloc(x->bytes, room);

		if (!more)
			abort();
		memset(more + x->len, 0, room - x->len);
		x->bytes = more;
		x->room = room;
	}
	if (len)
		memcpy(x->bytes + offset, bytes, len);
	if (offset + len > x->len)
		x->len = offset + len;
	return 0;
}

static inline int index_bytes_progress(struct hr__index_out *out, uint64_t bytes, uint64_t samples)
{
	struct index_bytes *x = (struct index_bytes *)out;

	format_require(bytes >= x->progress && samples >= x->samples, "progress goes forward");
	x->progress = bytes;
	x->samples = samples;
	return x->fail_progress ? hr__fail(x->fail_progress, "index: enough") : 0;
}

static inline int index_bytes_read(const struct hr_source *src, uint64_t offset, void *buf,
				   size_t len)
{
	const struct index_bytes *x = src->ctx;

	format_require(offset <= x->len && len <= x->len - offset, "reads inside of the index");
	memcpy(buf, x->bytes + offset, len);
	return 0;
}

/* The bytes stay this struct's. */
static inline void index_bytes_source(struct index_bytes *x)
{
	x->src = (struct hr_source){"data.hrindex", x->len, index_bytes_read, x};
}

static inline struct hr__index_data index_bytes_data(const struct hr_source *src,
						     const struct hr__format_ops *ops)
{
	return (struct hr__index_data){src->name, src->size, 77, ops->name, ops->scan_rules};
}

/* Scan @src into @x. Return: 0 or -code. */
static inline int index_bytes_scan(struct index_bytes *x, const struct hr_source *src,
				   const struct hr__format_ops *ops)
{
	struct hr__index_data data = index_bytes_data(src, ops);
	struct hr__index_writer *w;
	int rc;

	x->out = (struct hr__index_out){index_bytes_write, index_bytes_progress};
	rc = hr__index_writer_open(&x->out, &data, &w);
	if (rc < 0)
		return rc;
	rc = ops->scan(src, hr__index_writer_sink(w));
	if (rc == 0)
		rc = hr__index_writer_finish(w);
	hr__index_writer_close(w);
	index_bytes_source(x);
	return rc;
}

/* A file, scanned and opened by its index. */
struct indexed_bytes {
	struct format_bytes all;
	struct index_bytes bytes;
	struct hr__index *index;
	struct hr__format_file *ff;
};

static inline void indexed_bytes_close(struct indexed_bytes *x)
{
	if (x->ff)
		x->ff->ops->close(x->ff);
	hr__index_close(x->index);
	free(x->bytes.bytes);
	x->ff = NULL;
	x->index = NULL;
	x->bytes = (struct index_bytes){.len = 0};
}

/* Scan and open the first file of @x->all. Close it in any case. Return: 0 or -code. */
static inline int indexed_bytes_open(struct indexed_bytes *x, const struct hr__format_ops *ops,
				     const struct hr_dataset_options *opts)
{
	const struct hr_source *src = &x->all.files[0].src;
	struct hr__index_data data = index_bytes_data(src, ops);
	struct hr__format_args args = {.src = src, .siblings = &x->all.siblings, .opts = opts};
	int rc = index_bytes_scan(&x->bytes, src, ops);

	if (rc < 0)
		return rc;
	rc = hr__index_open(&x->bytes.src, &data, &x->index);
	format_require(rc == 0, "an index that was written can be read");
	format_require(hr__index_check(x->index) == 0, "its blocks have their checksums");
	args.index = x->index;
	return ops->open(&args, &x->ff);
}

/* The same of a file @name of @len bytes, into a fresh @x. Its sentence is the open's own. */
static inline int indexed_bytes_start(struct indexed_bytes *x, const char *name, const void *bytes,
				      uint64_t len, const struct hr__format_ops *ops,
				      const struct hr_dataset_options *opts)
{
	*x = (struct indexed_bytes){.all = {.n_files = 0}};
	format_bytes_add(&x->all, name, bytes, len, len);
	hr__fail_set(EIO, "");
	return indexed_bytes_open(x, ops, opts);
}

/* The number of a field that must be there. */
static inline uint32_t indexed_bytes_field(const struct indexed_bytes *x, const char *name)
{
	const struct hr__schema *schema = &x->ff->schema;
	uint32_t k = 0;

	while (k < schema->n_fields && strcmp(schema->fields[k].face.name, name) != 0)
		k++;
	format_require(k < schema->n_fields, name);
	return k;
}

/* As format_bytes_try(), for what is scanned first. */
static inline int indexed_bytes_try(struct format_bytes *all, const struct hr__format_ops *ops,
				    const struct hr_dataset_options *opts)
{
	struct indexed_bytes x = {.all = *all};
	int rc;

	/* The sources point at what is copied. */
	for (uint32_t i = 0; i < x.all.n_files; i++)
		x.all.files[i].src.ctx = &x.all.files[i];
	hr__fail_set(EIO, "");
	rc = indexed_bytes_open(&x, ops, opts);
	if (rc < 0)
		format_require(hr_error_detail()[0] != '\0', "a refusal has a sentence");
	else
		format_check_accepted(x.ff, x.all.files[0].src.size);
	indexed_bytes_close(&x);
	return rc;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/mds.c - a shard of a MosaicML streaming dataset; sees bytes only through a source.
 *
 * u32 n; u32 offsets[n + 1] from the file's first byte; a JSON text (mds_layout.c); the samples. With at
 * most one variable column every place follows from the offsets. With several the head of a sample
 * tells, which is read when a column behind the first variable one is asked for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/json.h"
#include "format/le.h"
#include "format/mds.h"

#define TEXT_MAX (1u << 20) /* what 256 columns can have */

struct mds {
	struct hr__format_file ff;
	const struct hr_source *src;
	struct hr_source heads; /* the same: what is read here was announced by ahead() */
	struct hr__mds_layout layout;
	uint32_t *offsets;       /* count + 1; NULL when the samples are evenly spaced: */
	uint32_t first, stride;  /* byte of sample 0, bytes of each */
	struct hr__sizes *sizes; /* of every ragged field; NULL if no column is variable */
	uint32_t *column_of;     /* of each field */
};

/* -- recognising ------------------------------------------------------------------------------ */

static int mds_probe(const void *head, size_t len, uint64_t file_size)
{
	const uint8_t *p = head;
	uint64_t table, text, before;

	if (len < 12 || file_size > UINT32_MAX)
		return 0;
	table = 4 + 4 * ((uint64_t)hr__le32(p) + 1);
	text = before = hr__le32(p + 4);
	if (table >= text || text > file_size || text - table > TEXT_MAX)
		return 0;
	for (size_t at = 8; at + 4 <= hr__min(len, table); at += 4) {
		uint32_t offset = hr__le32(p + at);

		if (offset < before || offset > file_size)
			return 0;
		before = offset;
	}
	if (table < len)
		return p[table] == '{' ? 100 : 0;
	return 90;
}

/* -- the header ------------------------------------------------------------------------------- */

/* Return: 0 and the number of samples in *@n. */
static int read_count(const struct hr_source *src, uint32_t *n)
{
	uint8_t head[HR__FORMAT_HEAD_BYTES];
	size_t len;
	const char *foreign;
	uint64_t table;
	int rc;

	rc = hr__format_head(src, head, &len);
	if (rc < 0)
		return rc;
	foreign = hr__format_foreign(head, len);
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: is no MDS shard; %s", src->name, foreign);
	if (src->size > UINT32_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %" PRIu64
				" bytes; offsets in an MDS shard are 32-bit, so beyond 4 GiB they "
				"have wrapped; write it again with a smaller size_limit",
				src->name, src->size);
	if (len < 8)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: has %zu bytes, an MDS shard at least 8; it was truncated, get "
				"it again",
				src->name, len);
	*n = hr__le32(head);
	table = 4 + 4 * ((uint64_t)*n + 1);
	if (table > src->size)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte 0 promises %" PRIu32
				" samples, whose offsets end at byte %" PRIu64
				", but the file has %" PRIu64
				"; it was truncated or is no MDS shard, get it again",
				src->name, *n, table, src->size);
	return 0;
}

static int check_offsets(const struct hr_source *src, const uint32_t *offsets, uint32_t n)
{
	uint64_t table = 4 + 4 * ((uint64_t)n + 1);

	if (offsets[0] < table)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte 4: the first sample begins at byte %" PRIu32
				", inside the table of offsets that ends at %" PRIu64
				"; it is damaged or no MDS shard, get it again",
				src->name, offsets[0], table);
	if (offsets[0] - table > TEXT_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: byte 4: its JSON text has %" PRIu64
				" bytes, at most %u can be; it is damaged or no MDS shard",
				src->name, offsets[0] - table, TEXT_MAX);
	for (uint32_t i = 0; i < n; i++) {
		if (offsets[i] > offsets[i + 1])
			return hr__fail(
				HR_E_BAD_FORMAT,
				"%s: byte %" PRIu64 ": sample %" PRIu32 " begins at byte %" PRIu32
				" and ends at byte %" PRIu32 "; the shard is damaged, get it again",
				src->name, 4 + 4 * (uint64_t)i, i, offsets[i], offsets[i + 1]);
	}
	if (offsets[n] == src->size)
		return 0;
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte %" PRIu64 ": its samples end at byte %" PRIu32
			", the file at %" PRIu64 "; %s",
			src->name, table - 4, offsets[n], src->size,
			offsets[n] > src->size ? "it was truncated, get it again"
					       : "something was appended, get it again");
}

static int read_offsets(struct mds *m, uint32_t n)
{
	uint8_t *raw;
	int rc;

	/* As many bytes as the file has there. */
	m->offsets = malloc(((size_t)n + 1) * sizeof(*m->offsets));
	if (!m->offsets)
		return hr__fail(ENOMEM, "%s: no memory for %" PRIu32 " offsets", m->src->name, n);
	raw = (uint8_t *)m->offsets;
	rc = m->src->read(m->src, 4, raw, ((size_t)n + 1) * sizeof(*m->offsets));
	if (rc < 0)
		return rc;
	for (size_t i = 0; i <= n; i++)
		m->offsets[i] = hr__le32(raw + 4 * i);
	return check_offsets(m->src, m->offsets, n);
}

static int read_layout(struct mds *m, uint32_t n)
{
	uint64_t begin = 4 + 4 * ((uint64_t)n + 1);
	size_t len = (size_t)(m->offsets[0] - begin);
	char *text = malloc(len + 1);
	int rc;

	if (!text)
		return hr__fail(ENOMEM, "%s: no memory for its text of %zu bytes", m->src->name,
				len);
	rc = m->src->read(m->src, begin, text, len);
	if (rc == 0)
		rc = hr__mds_layout_parse(m->src, begin, text, len, &m->layout);
	free(text);
	return rc;
}

/* -- samples ---------------------------------------------------------------------------------- */

static uint32_t sample_begin(const struct mds *m, uint64_t index)
{
	return m->offsets ? m->offsets[index] : m->first + (uint32_t)index * m->stride;
}

/* Every sample must have room for its columns. Notes lengths, and whether all are the same. */
static int check_samples(struct mds *m, uint32_t n)
{
	const struct hr__mds_layout *l = &m->layout;
	uint64_t least = (uint64_t)l->n_var * HR__MDS_SIZE_BYTES + l->fixed_bytes;
	bool even = true;

	m->sizes = l->n_var ? calloc(1, sizeof(*m->sizes)) : NULL;
	if (l->n_var && !m->sizes)
		return hr__fail(ENOMEM, "%s: no memory for its lengths", m->src->name);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t len = m->offsets[i + 1] - m->offsets[i];

		if (len < least || (len > least && l->n_var == 0))
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: byte %" PRIu64 ": sample %" PRIu32 " has %" PRIu32
					" bytes, its columns take %s%" PRIu64
					"; the shard is damaged, get it again",
					m->src->name, 4 + 4 * (uint64_t)i, i, len,
					l->n_var ? "at least " : "", least);
		even = even && len == m->offsets[1] - m->offsets[0];
		/* Of several variable columns each may be as long as all together. */
		if (m->sizes)
			hr__sizes_add(m->sizes, len - least);
	}
	if (even && n) {
		m->first = m->offsets[0];
		m->stride = m->offsets[1] - m->offsets[0];
		free(m->offsets);
		m->offsets = NULL;
	}
	return 0;
}

static int refuse_column(const struct mds *m, const struct hr__mds_column *column)
{
	char name[HR__JSON_SHOWN], encoding[HR__JSON_SHOWN];

	return hr__fail(EINVAL,
			"%s: column %s, encoded as %s, cannot be read: %s; leave it out or encode "
			"it otherwise",
			m->src->name, hr__json_show(name, column->face.name),
			hr__json_show(encoding, column->encoding), column->reason);
}

static void mds_ahead(const struct hr__format_file *ff, uint64_t index)
{
	const struct mds *m = (const struct mds *)ff;

	if (m->src->ahead && index < ff->schema.count)
		m->src->ahead(m->src, sample_begin(m, index),
			      (size_t)m->layout.n_var * HR__MDS_SIZE_BYTES);
}

/* With several variable columns, is a column's place told by the head of the sample alone? */
static bool told_by_head(const struct hr__mds_layout *l, const struct hr__mds_column *column)
{
	return l->n_var > 1 && column->var_before < l->n_var &&
	       (column->var_before > 0 || !column->size);
}

static int choose_fields(struct mds *m, const struct hr_dataset_options *opts)
{
	struct hr__schema *schema = &m->ff.schema;
	const struct hr__mds_layout *l = &m->layout;
	const struct hr__mds_column *left_out = NULL;

	schema->fields = calloc(l->n_columns, sizeof(*schema->fields));
	m->column_of = calloc(l->n_columns, sizeof(*m->column_of));
	if (!schema->fields || !m->column_of)
		return hr__fail(ENOMEM, "%s: no memory for its fields", m->src->name);
	for (uint32_t k = 0; k < l->n_columns; k++) {
		const struct hr__mds_column *column = &l->columns[k];
		struct hr__field *field = &schema->fields[schema->n_fields];

		if (!hr__format_wanted(opts, column->face.name))
			continue;
		if (column->reason) {
			left_out = column;
			if (opts->fields)
				break;
			continue;
		}
		field->face = column->face;
		if (column->face.kind == HR_FIELD_RAGGED && m->sizes) { /* always: check_size() */
			field->sizes = m->sizes;
			field->face.bytes = m->sizes->max;
		}
		m->column_of[schema->n_fields++] = k;
		if (told_by_head(l, column))
			schema->ahead = mds_ahead;
	}
	if (left_out && (opts->fields || schema->n_fields == 0))
		return refuse_column(m, left_out);
	return hr__format_check_wanted(m->src, opts, schema);
}

static void mds_close(struct hr__format_file *ff)
{
	struct mds *m = (struct mds *)ff;

	hr__mds_layout_free(&m->layout);
	free(m->ff.schema.fields);
	free(m->column_of);
	free(m->sizes);
	free(m->offsets);
	free(m);
}

static int mds_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	struct mds *m;
	uint32_t n = 0;
	int rc = read_count(args->src, &n);

	if (rc < 0)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return hr__fail(ENOMEM, "%s: no memory to open it", args->src->name);
	m->src = args->src;
	m->heads = *args->src;
	m->heads.onward = true;
	m->ff.ops = &hr__format_mds;
	m->ff.schema.count = n;
	rc = read_offsets(m, n);
	if (rc == 0)
		rc = read_layout(m, n);
	if (rc == 0)
		rc = check_samples(m, n);
	if (rc == 0)
		rc = choose_fields(m, args->opts);
	if (rc < 0)
		mds_close(&m->ff);
	else
		*out = &m->ff;
	return rc;
}

/*
 * Bytes of the variable columns before number @k of them, and of that one itself, out of the head of a
 * sample of @len bytes.
 */
static int read_head(const struct mds *m, uint64_t index, uint32_t len, uint32_t k,
		     uint64_t *before, uint64_t *own)
{
	uint8_t head[HR__FIELDS_MAX * HR__MDS_SIZE_BYTES];
	const struct hr__mds_layout *l = &m->layout;
	uint64_t begin = sample_begin(m, index), sum = 0;
	int rc = m->src->read(&m->heads, begin, head, (size_t)l->n_var * HR__MDS_SIZE_BYTES);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < l->n_var; i++) {
		if (i == k) {
			*before = sum;
			*own = hr__le32(head + HR__MDS_SIZE_BYTES * i);
		}
		sum += hr__le32(head + HR__MDS_SIZE_BYTES * i);
	}
	sum += (uint64_t)l->n_var * HR__MDS_SIZE_BYTES + l->fixed_bytes;
	if (sum == len)
		return 0;
	return hr__fail(HR_E_BAD_SAMPLE,
			"%s: byte %" PRIu64 ": the columns of sample %" PRIu64 " have %" PRIu64
			" bytes together, the sample %" PRIu32
			"; the shard is damaged, get it again",
			m->src->name, begin, index, sum, len);
}

static int mds_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      struct hr_range *out)
{
	const struct mds *m = (const struct mds *)ff;
	const struct hr__mds_layout *l = &m->layout;
	const struct hr__mds_column *column;
	uint64_t before = 0, own, begin;
	uint32_t len;
	int rc;

	if (index >= ff->schema.count || field >= ff->schema.n_fields)
		return -EINVAL;
	column = &l->columns[m->column_of[field]];
	begin = sample_begin(m, index);
	len = m->offsets ? m->offsets[index + 1] - m->offsets[index] : m->stride;
	own = len - l->n_var * HR__MDS_SIZE_BYTES - l->fixed_bytes; /* of all variable ones */
	if (column->var_before == l->n_var) {
		before = own;
	} else if (told_by_head(l, column)) {
		rc = read_head(m, index, len, column->var_before, &before, &own);
		if (rc < 0)
			return rc;
	}
	out->offset = begin + l->n_var * HR__MDS_SIZE_BYTES + column->fixed_before + before;
	out->len = column->size ? column->size : own;
	return out->len > 0;
}

const struct hr__format_ops hr__format_mds = {
	.name = "mds",
	.suffixes = ".mds",
	.probe = mds_probe,
	.expand = hr__mds_expand,
	.open = mds_open,
	.locate = mds_locate,
	.close = mds_close,
};

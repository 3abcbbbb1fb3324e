/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/tar.c - WebDataset: tar archives whose neighbouring members with one key are a sample. Sees bytes
 * only through a source, and of what is packed only heads and labels.
 *
 * The rules are those of the webdataset library (docs/formats/tar.md). One pass over the headers tells a
 * side index where each member lies; everything else is format/indexed.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/util.h"
#include "format/format.h"
#include "format/indexed.h"
#include "format/npy.h"
#include "format/peek.h"
#include "format/tar.h"

#define SCAN_RULES 1u
#define ROOM (1u << 20)   /* seen at once: also the most that pax records may have */
#define AHEAD (16u << 10) /* read with a header: the members after it, if they are small */
#define KEYS (1u << 18)   /* remembered, to find those that come again */
#define TEXT_MAX 256u
#define PROGRESS_EVERY 64u

/* What is skipped, by reason. */
enum skipped { SKIP_OTHER, SKIP_NAME, SKIP_COUNT };

struct sample {
	bool open;
	char key[HR__TAR_PATH_MAX];
	uint64_t at; /* of its first header */
	struct hr__cell cells[HR__INDEX_COLUMNS_MAX];
	uint32_t n_cells; /* up to the last that is there */
	char bad[TEXT_MAX];
};

/* A key that came by. Two of them in one place: the later one stays. */
struct old_key {
	uint64_t hash;
	uint64_t seen; /* columns, folded */
};

struct scan {
	const struct hr_source *src;
	struct hr__index_sink *sink;
	struct hr__peek peek;
	uint64_t at; /* of the next header */
	uint64_t header_at;
	struct hr__tar_pax global, pax; /* pax: for the next member */
	bool named;                     /* by pax or by GNU's L */
	char wrong[TEXT_MAX];           /* with what is said of the next member */
	struct sample sample;
	struct old_key *keys;
	uint64_t n_keys; /* a power of two */
	uint64_t skipped[SKIP_COUNT], again, members;
	bool ended; /* by a block of zeros */
};

static void note(struct scan *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(struct scan *s, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	s->sink->note(s->sink, UINT32_MAX, text);
}

static void set_bad(struct scan *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The first reason counts. A sample is made where there is none: the damage keeps a number. */
static void set_bad(struct scan *s, const char *format, ...)
{
	va_list args;

	if (!s->sample.open) {
		s->sample.open = true;
		s->sample.key[0] = '\0';
		s->sample.at = s->header_at;
	}
	if (s->sample.bad[0])
		return;
	va_start(args, format);
	vsnprintf(s->sample.bad, sizeof(s->sample.bad), format, args);
	va_end(args);
}

/* -- samples ---------------------------------------------------------------------------------- */

/* Did the key come before? Its members do not lie together then, or it is used twice. */
static void judge_key(struct scan *s)
{
	struct sample *sample = &s->sample;
	uint64_t hash = XXH3_64bits(sample->key, strlen(sample->key)) | 1, seen = 0;
	struct old_key *old = &s->keys[hash >> 1 & (s->n_keys - 1)];

	for (uint32_t i = 0; i < sample->n_cells; i++)
		seen |= (uint64_t)(sample->cells[i].kind != HR__CELL_ABSENT) << i % 64;
	if (old->hash == hash) {
		s->again++;
		if (!(old->seen & seen))
			set_bad(s,
				"byte %" PRIu64
				": key \"%.80s\" came before, with other members: those of a "
				"sample must lie together (tar --sort=name)",
				sample->at, sample->key);
	}
	*old = (struct old_key){hash, seen};
}

static int end_sample(struct scan *s)
{
	struct sample *sample = &s->sample;
	int rc;

	if (!sample->open)
		return 0;
	if (sample->key[0])
		judge_key(s);
	rc = s->sink->sample(s->sink, sample->cells, sample->n_cells,
			     sample->bad[0] ? sample->bad : NULL);
	sample->open = false;
	sample->bad[0] = '\0';
	memset(sample->cells, 0, sample->n_cells * sizeof(sample->cells[0]));
	sample->n_cells = 0;
	return rc;
}

static int begin_sample(struct scan *s, const char *key)
{
	int rc = end_sample(s);

	s->sample.open = true;
	s->sample.at = s->header_at;
	snprintf(s->sample.key, sizeof(s->sample.key), "%s", key);
	return rc;
}

static int fail_columns(const struct scan *s)
{
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte %" PRIu64
			": more than %u different name endings; what follows the first dot of a "
			"member's name is a field, and all samples should have the same: rename "
			"the members",
			s->src->name, s->header_at, HR__INDEX_COLUMNS_MAX);
}

static void set_cell(struct sample *sample, uint32_t column, const struct hr__cell *cell)
{
	sample->cells[column] = *cell;
	sample->n_cells = (uint32_t)hr__max(sample->n_cells, column + 1);
}

/* A second view of a member, as column "@extension.@suffix", unless a member has that name. */
static int add_derived(struct scan *s, const char *extension, const char *suffix,
		       struct hr__index_face *face, const struct hr__cell *cell)
{
	char name[HR__INDEX_NAME_MAX + 16];
	int column;

	snprintf(name, sizeof(name), "%s.%s", extension, suffix);
	face->name = name;
	column = s->sink->column(s->sink, face);
	/* EEXIST also where an array has another type or shape than those before it. */
	if (column == -EEXIST || column == -E2BIG || column == -EILSEQ)
		return 0;
	if (column >= 0)
		set_cell(&s->sample, (uint32_t)column, cell);
	return column < 0 ? column : 0;
}

/* A label as text also gives its number, so that it needs no reading. */
static int derive_int(struct scan *s, const char *extension, uint64_t offset, uint64_t len)
{
	struct hr__index_face face = {.dtype = HR_DTYPE_U8, .flags = HR__INDEX_DERIVED};
	const uint8_t *text;
	int64_t value;
	int rc;

	if (len == 0 || len > 20)
		return 0;
	rc = hr__peek(&s->peek, offset, (size_t)len, AHEAD, &text);
	if (rc < 0 || !hr__tar_int(text, (size_t)len, &value))
		return rc;
	return add_derived(s, extension, "int", &face,
			   &(struct hr__cell){HR__CELL_I64, (uint64_t)value, 0});
}

/* For the parser of .npy heads: what the scan has read already. */
static int read_peek(const struct hr_source *src, uint64_t offset, void *buf, size_t len)
{
	struct scan *s = src->ctx;
	const uint8_t *bytes;
	int rc = hr__peek(&s->peek, offset, len, AHEAD, &bytes);

	if (rc == 0)
		memcpy(buf, bytes, len);
	return rc;
}

/* The elements of an array, without the head before them. What cannot be read so stays bytes. */
static int derive_array(struct scan *s, const char *extension, uint64_t offset, uint64_t len)
{
	struct hr_source src = {s->src->name, s->src->size, read_peek, s};
	struct hr__index_face face = {.flags = HR__INDEX_DERIVED};
	struct hr__npy npy;
	int rc = hr__npy_parse(&src, offset, len, NULL, &npy);

	if (rc == -HR_E_BAD_FORMAT || rc == -HR_E_BAD_DTYPE)
		return 0;
	if (rc < 0 || npy.ndim == 0 || npy.ndim >= HR_DIMS_MAX ||
	    (npy.ndim > 1 && npy.elements == 0))
		return rc;
	face.dtype = npy.dtype;
	if (npy.ndim > 1) { /* else a row, which may have another length in each sample */
		face.ndim = npy.ndim;
		memcpy(face.shape, npy.shape, sizeof(face.shape));
	}
	return add_derived(s, extension, "array", &face,
			   &(struct hr__cell){HR__CELL_RANGE, npy.data, npy.bytes});
}

static int derive(struct scan *s, const char *extension, uint64_t offset, uint64_t len)
{
	const char *dot = strrchr(extension, '.');
	const char *last = dot ? dot + 1 : extension;

	if (strcmp(last, "cls") == 0)
		return derive_int(s, extension, offset, len);
	if (strcmp(last, "npy") == 0)
		return derive_array(s, extension, offset, len);
	return 0;
}

static int add_member(struct scan *s, const char *extension, uint64_t offset, uint64_t len)
{
	struct hr__index_face face = {.name = extension, .dtype = HR_DTYPE_U8};
	struct hr__cell cell = {HR__CELL_RANGE, offset, len};
	int column = s->sink->column(s->sink, &face);

	if (column == -E2BIG)
		return fail_columns(s);
	if (column == -EILSEQ || column == -EEXIST) {
		set_bad(s,
			"byte %" PRIu64
			": the name of a member ends with what can be no name of a field",
			s->header_at);
		return 0;
	}
	if (column < 0)
		return column;
	if (s->sample.cells[column].kind != HR__CELL_ABSENT) {
		set_bad(s, "byte %" PRIu64 ": sample \"%.80s\" has a second member .%.60s",
			s->header_at, s->sample.key, extension);
		return 0;
	}
	set_cell(&s->sample, (uint32_t)column, &cell);
	return derive(s, extension, offset, len);
}

/* -- members ---------------------------------------------------------------------------------- */

static void forget_names(struct scan *s)
{
	s->pax.has_size = s->global.has_size;
	s->pax.size = s->global.size;
	s->pax.sparse = s->global.sparse;
	s->pax.has_path = s->named = s->global.has_path;
	if (s->named)
		memcpy(s->pax.path, s->global.path, sizeof(s->pax.path));
	s->wrong[0] = '\0';
}

/* Go to the next header: @size bytes and the padding. */
static void skip_body(struct scan *s, uint64_t size)
{
	uint64_t left = s->src->size - s->at;

	s->at += size <= left - left % HR__TAR_BLOCK ? hr__align_up(size, HR__TAR_BLOCK) : left;
}

/* A member whose bytes cannot be given is damage to its sample. Return: did it say so? */
static bool judge_member(struct scan *s, const struct hr__tar_header *h, const char *path,
			 uint64_t size)
{
	uint64_t left = s->src->size - s->at;

	if (s->wrong[0])
		set_bad(s, "%s", s->wrong);
	else if (size > left)
		set_bad(s,
			"byte %" PRIu64 ": member \"%.80s\" has %" PRIu64
			" bytes, but the file ends after %" PRIu64 " of them: it was cut short",
			s->header_at, path, size, left);
	else if (s->pax.sparse || h->kind == HR__TAR_SPARSE)
		set_bad(s,
			"byte %" PRIu64
			": member \"%.80s\" is sparse, its bytes are not as they were; write the "
			"archive again without --sparse",
			s->header_at, path);
	else
		return false;
	return true;
}

static int take_file(struct scan *s, const struct hr__tar_header *h)
{
	const char *path = s->named ? s->pax.path : h->name;
	uint64_t size = s->pax.has_size ? s->pax.size : h->size;
	char key[HR__TAR_PATH_MAX], extension[256];
	int rc = 0;

	s->members++;
	if (h->old && *path && path[strlen(path) - 1] == '/') {
		s->skipped[SKIP_OTHER]++;
		forget_names(s);
		return 0;
	}
	if (hr__tar_split(path, key, extension) < 0) {
		s->skipped[SKIP_NAME]++;
		if (size > s->src->size - s->at) {
			rc = end_sample(s); /* that one is whole: what is lost comes after it */
			judge_member(s, h, path, size);
		}
	} else {
		if (!s->sample.open || strcmp(key, s->sample.key) != 0)
			rc = begin_sample(s, key);
		if (rc == 0 && !judge_member(s, h, path, size))
			rc = add_member(s, extension, s->at, size);
	}
	skip_body(s, size);
	forget_names(s);
	return rc;
}

/* Headers that only say where the holes are. */
static int skip_sparse_headers(struct scan *s)
{
	const uint8_t *block;
	bool more = true;
	int rc;

	while (more) {
		if (s->src->size - s->at < HR__TAR_BLOCK)
			return 0;
		rc = hr__peek(&s->peek, s->at, HR__TAR_BLOCK, AHEAD, &block);
		if (rc < 0)
			return rc;
		more = block[504] != 0;
		s->at += HR__TAR_BLOCK;
	}
	return 0;
}

static const char *take_name(struct scan *s, const uint8_t *body, uint64_t size)
{
	size_t len = strnlen((const char *)body, (size_t)size);

	if (len >= sizeof(s->pax.path))
		return "its long name is longer than 4095 bytes";
	memcpy(s->pax.path, body, len);
	s->pax.path[len] = '\0';
	s->named = len > 0;
	return NULL;
}

/* What a header says about the next one. */
static int take_meta(struct scan *s, const struct hr__tar_header *h)
{
	const uint8_t *body;
	const char *wrong = NULL;
	int rc;

	if (h->size > ROOM || h->size > s->src->size - s->at) {
		snprintf(s->wrong, sizeof(s->wrong),
			 "byte %" PRIu64 ": an extended header of %" PRIu64
			 " bytes; the file is damaged",
			 s->header_at, h->size);
		skip_body(s, h->size);
		return 0;
	}
	rc = hr__peek(&s->peek, s->at, (size_t)h->size, (size_t)h->size + AHEAD, &body);
	if (rc < 0)
		return rc;
	if (h->kind == HR__TAR_NAME) {
		wrong = take_name(s, body, h->size);
	} else if (h->kind == HR__TAR_GLOBAL) {
		wrong = hr__tar_pax(body, (size_t)h->size, &s->global);
		forget_names(s);
	} else if (h->kind == HR__TAR_PAX) {
		wrong = hr__tar_pax(body, (size_t)h->size, &s->pax);
		s->named |= s->pax.has_path;
	}
	if (wrong)
		snprintf(s->wrong, sizeof(s->wrong), "byte %" PRIu64 ": %s", s->header_at, wrong);
	skip_body(s, h->size);
	return 0;
}

static int take_header(struct scan *s, const struct hr__tar_header *h)
{
	int rc;

	switch (h->kind) {
	case HR__TAR_FILE:
		return take_file(s, h);
	case HR__TAR_SPARSE:
		rc = h->extended ? skip_sparse_headers(s) : 0;
		return rc < 0 ? rc : take_file(s, h);
	case HR__TAR_OTHER:
		s->skipped[SKIP_OTHER]++;
		skip_body(s, s->pax.has_size && h->size ? s->pax.size : h->size);
		forget_names(s);
		return 0;
	case HR__TAR_ZERO:
		s->ended = true;
		forget_names(s);
		return end_sample(s);
	default:
		return take_meta(s, h);
	}
}

/* -- the archive ------------------------------------------------------------------------------ */

/*
 * Look for a block that certainly is a header, or that is not zero. Both are for the time after the end:
 * other archives may follow, or anything else.
 * Return: 1 with s->at there, 0 with s->at at the end of the file, or -code.
 */
static int find_block(struct scan *s, bool header)
{
	while (s->src->size - s->at >= HR__TAR_BLOCK) {
		uint64_t left = s->src->size - s->at;
		size_t len = (size_t)hr__min(left - left % HR__TAR_BLOCK, ROOM);
		const uint8_t *bytes;
		struct hr__tar_header h;
		int rc = hr__peek(&s->peek, s->at, len, ROOM, &bytes);

		if (rc < 0)
			return rc;
		for (size_t i = 0; i < len; i += HR__TAR_BLOCK) {
			const char *wrong = hr__tar_parse(bytes + i, &h);

			if (header ? (!wrong && h.magic) : (wrong || h.kind != HR__TAR_ZERO)) {
				s->at += i;
				return 1;
			}
		}
		s->at += len;
		rc = s->sink->progress(s->sink, s->at);
		if (rc < 0)
			return rc;
	}
	s->at = s->src->size;
	return 0;
}

/* Behind the end: zeros, another archive, or what does not belong there. */
static int after_end(struct scan *s)
{
	struct hr__tar_header h;
	const uint8_t *block;
	int rc = find_block(s, false);

	if (rc <= 0)
		return rc;
	rc = hr__peek(&s->peek, s->at, HR__TAR_BLOCK, AHEAD, &block);
	if (rc < 0)
		return rc;
	if (hr__tar_parse(block, &h)) {
		note(s,
		     "%" PRIu64 " bytes behind the end of the archive, from byte %" PRIu64
		     " on, are no tar and were ignored",
		     s->src->size - s->at, s->at);
		s->at = s->src->size;
		return 0;
	}
	s->ended = false;
	return 0;
}

/* A header that is none, inside the archive: the sample is lost, and what follows up to the next one. */
static int after_damage(struct scan *s, const char *wrong)
{
	uint64_t from = s->at;
	int rc;

	set_bad(s, "byte %" PRIu64 ": no tar header (%s) where one must be", s->at, wrong);
	rc = find_block(s, true);
	if (rc < 0)
		return rc;
	note(s, "%" PRIu64 " bytes from byte %" PRIu64 " on are no tar and were skipped",
	     s->at - from, from);
	forget_names(s);
	return end_sample(s);
}

static int scan_block(struct scan *s)
{
	struct hr__tar_header h;
	const uint8_t *block;
	const char *wrong;
	int rc = hr__peek(&s->peek, s->at, HR__TAR_BLOCK, AHEAD, &block);

	if (rc < 0)
		return rc;
	wrong = hr__tar_parse(block, &h);
	s->header_at = s->at;
	if (wrong)
		return after_damage(s, wrong);
	s->at += HR__TAR_BLOCK;
	rc = take_header(s, &h);
	if (rc == 0 && s->ended)
		rc = after_end(s);
	return rc;
}

/* The first block decides whether this is a tar archive at all. */
static int check_first(struct scan *s)
{
	struct hr__tar_header h;
	const uint8_t *head;
	const char *wrong, *foreign;
	uint64_t size = s->src->size;
	int rc;

	rc = hr__format_some(s->src);
	if (rc < 0)
		return rc;
	rc = hr__peek(&s->peek, 0, (size_t)hr__min(size, HR__FORMAT_HEAD_BYTES), AHEAD, &head);
	if (rc < 0)
		return rc;
	wrong = size < HR__TAR_BLOCK ? "it is shorter than one" : hr__tar_parse(head, &h);
	if (!wrong)
		return 0;
	foreign = hr__format_foreign(head, (size_t)hr__min(size, HR__FORMAT_HEAD_BYTES));
	if (!foreign && size >= 3 && memcmp(head, "BZh", 3) == 0)
		foreign = "this is bzip2-compressed; decompress it first";
	if (!foreign && size >= 6 &&
	    memcmp(head,
		   "\xfd"
		   "7zXZ\0",
		   6) == 0)
		foreign = "this is xz-compressed; decompress it first";
	if (foreign)
		return hr__fail(HR_E_BAD_FORMAT, "%s: %s", s->src->name, foreign);
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte 0: no tar header (%s); the file is damaged or something else, "
			"copy it again",
			s->src->name, wrong);
}

static void tell_notes(struct scan *s)
{
	if (s->skipped[SKIP_OTHER])
		note(s, "%" PRIu64 " links, folders or devices were skipped",
		     s->skipped[SKIP_OTHER]);
	if (s->skipped[SKIP_NAME])
		note(s,
		     "%" PRIu64
		     " members belong to no sample (no dot in the name, hidden, or __x__) and "
		     "were skipped",
		     s->skipped[SKIP_NAME]);
	if (s->again)
		note(s, "%" PRIu64 " samples have a key that came before", s->again);
	if (!s->ended) {
		note(s, "the archive has no end mark: was it cut short?");
		hr__log(HR_LOG_WARN, "%s: the archive has no end mark: was it cut short?",
			s->src->name);
	}
}

static int scan_all(struct scan *s)
{
	int rc = check_first(s);

	while (rc == 0 && s->src->size - s->at >= HR__TAR_BLOCK) {
		rc = scan_block(s);
		if (rc == 0 && s->members % PROGRESS_EVERY == 0)
			rc = s->sink->progress(s->sink, s->at);
	}
	if (rc < 0)
		return rc;
	if (s->wrong[0])
		rc = end_sample(s);
	if (rc == 0 && s->wrong[0])
		set_bad(s, "%s", s->wrong);
	if (s->src->size > s->at && !s->ended)
		set_bad(s,
			"byte %" PRIu64 ": %" PRIu64 " bytes are no whole block: it was cut short",
			s->at, s->src->size - s->at);
	rc = end_sample(s);
	if (rc < 0)
		return rc;
	if (!s->members && s->ended && s->header_at == 0)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: begins with zeros and no member follows; the copy went wrong, "
				"copy it again",
				s->src->name);
	tell_notes(s);
	return s->sink->progress(s->sink, s->src->size);
}

static int tar_scan(const struct hr_source *src, struct hr__index_sink *sink)
{
	struct scan *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return hr__fail(ENOMEM, "%s: no memory to read it", src->name);
	s->src = src;
	s->sink = sink;
	for (s->n_keys = 1; s->n_keys < hr__min(KEYS, src->size / HR__TAR_BLOCK);)
		s->n_keys *= 2;
	s->keys = calloc(s->n_keys, sizeof(*s->keys));
	rc = s->keys ? hr__peek_open(&s->peek, src, ROOM)
		     : hr__fail(ENOMEM, "%s: no memory to read it", src->name);
	if (rc == 0)
		rc = scan_all(s);
	hr__peek_close(&s->peek);
	free(s->keys);
	free(s);
	return rc;
}

static int tar_probe(const void *head, size_t len, uint64_t file_size)
{
	struct hr__tar_header h;

	if (len < HR__TAR_BLOCK || hr__tar_parse(head, &h) || h.kind == HR__TAR_ZERO)
		return 0;
	return h.magic ? 100 : 60; /* the checksum alone is as good as 17 bits */
}

static int tar_open(const struct hr__format_args *args, struct hr__format_file **out)
{
	return hr__indexed_open(args, &hr__format_tar, out);
}

const struct hr__format_ops hr__format_tar = {
	.name = "tar",
	.suffixes = ".tar",
	.probe = tar_probe,
	.scan = tar_scan,
	.scan_rules = SCAN_RULES,
	.open = tar_open,
	.locate = hr__indexed_locate,
	.value = hr__indexed_value,
	.close = hr__indexed_close,
};

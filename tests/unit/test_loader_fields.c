/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loader_fields - batches of several fields: fixed ones in pieces, ragged ones as values and padded,
 * scalars, conversions, packed windows. How: a format of this file's own says where fields lie in files of
 * the known pattern; each element, offset, length and pad of every batch is worked out again here.
 */
#include <sched.h>
#include <stdatomic.h>

#include "base/fail.h"
#include "unit/loader_fixture.h"

#define SAMPLE_BYTES 256u /* of the file, for each sample */
#define FIELDS 5u
#define SEQ_LEN 24u

enum { BOX, BLOB, WORDS, LABEL, ONE };

/* -- the format ------------------------------------------------------------------------------ */

static bool damaged; /* samples 4, 13, 22, ... cannot be located */
/* The first thread that locates something waits, and stops its loader. */
static atomic_bool holding, held;
static _Atomic(struct hr_loader *) restored;

/* Until the consumer, who restores the loader, waits for this thread. */
static void hold(void)
{
	struct hr_loader *loader;

	atomic_store(&held, true);
	while (!(loader = atomic_load(&restored)) || atomic_load(&loader->pause) % 2 == 0)
		sched_yield();
	hr_loader_stop(loader);
	atomic_store(&holding, false);
}

static uint64_t blob_len(uint64_t i)
{
	return i % 5 == 3 ? 0 : i * 37 % 61;
}

static uint64_t words_len(uint64_t i)
{
	return i * 7 % 19; /* elements */
}

static int cells_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
			struct hr_range *out)
{
	uint64_t at = index * SAMPLE_BYTES;

	assert_true(index < ff->schema.count);
	if (atomic_load(&holding))
		hold();
	if (damaged && index % 9 == 4 && field == WORDS)
		return hr__fail(HR_E_BAD_SAMPLE, "cells: sample %llu is damaged",
				(unsigned long long)index);
	switch (field) {
	case BOX: /* 12 bytes, in two places */
		out[0] = (struct hr_range){at + 1, 4};
		out[1] = (struct hr_range){at + 50, 8};
		return 2;
	case BLOB:
		out[0] = (struct hr_range){at + 64, blob_len(index)};
		return blob_len(index) ? 1 : 0;
	case WORDS:
		out[0] = (struct hr_range){at + 131, words_len(index) * 2};
		return 1;
	case ONE:
		out[0] = (struct hr_range){at + 200, 4};
		return 1;
	default:
		fail();
		return -EINVAL;
	}
}

static int cells_value(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		       uint64_t *out)
{
	assert_int_equal(field, LABEL);
	*out = index * index - 5;
	return 0;
}

/* Windows of SEQ_LEN + 1 u16 tokens; documents of 7 tokens each, the first one begun 3 tokens before. */
static int windows_locate(const struct hr__format_file *ff, uint64_t index, uint32_t field,
			  struct hr_range *out)
{
	out[0] = (struct hr_range){index * SAMPLE_BYTES, (SEQ_LEN + 1) * 2};
	return 1;
}

static int windows_starts(const struct hr__format_file *ff, uint64_t index, uint32_t *out,
			  uint32_t room)
{
	uint32_t n = 0;

	for (uint64_t start = (7 - (index * 3) % 7) % 7; start <= SEQ_LEN && n < room; start += 7)
		out[n++] = (uint32_t)start;
	return (int)n;
}

static void cells_close(struct hr__format_file *ff)
{
}

static const struct hr__format_ops cells = {
	.name = "cells", .locate = cells_locate, .value = cells_value, .close = cells_close};
static const struct hr__format_ops windows = {.name = "windows",
					      .locate = windows_locate,
					      .starts = windows_starts,
					      .close = cells_close};

/* -- datasets of it -------------------------------------------------------------------------- */

struct set {
	char *dir, *paths[2];
	uint64_t counts[2];
	struct hr__format_file ff[2];
	struct hr__field fields[2][FIELDS];
	struct hr__sizes blob[2], words[2];
	struct hr_device *dev;
	struct hr_dataset *ds;
};

static void describe_cells(struct set *s, uint32_t k)
{
	const struct hr_field faces[FIELDS] = {
		{.name = "box", .dtype = HR_DTYPE_U16, .ndim = 2, .shape = {2, 3}, .bytes = 12},
		{.name = "blob", .kind = HR_FIELD_RAGGED, .dtype = HR_DTYPE_U8, .ndim = 1},
		{.name = "words", .kind = HR_FIELD_RAGGED, .dtype = HR_DTYPE_U16, .ndim = 1},
		{.name = "label", .kind = HR_FIELD_SCALAR, .dtype = HR_DTYPE_I64, .bytes = 8},
		{.name = "one", .dtype = HR_DTYPE_U32, .bytes = 4},
	};

	for (uint64_t i = 0; i < s->counts[k]; i++) {
		hr__sizes_add(&s->blob[k], blob_len(i));
		hr__sizes_add(&s->words[k], words_len(i) * 2);
	}
	for (uint32_t f = 0; f < FIELDS; f++)
		s->fields[k][f].face = faces[f];
	s->fields[k][BLOB].sizes = &s->blob[k];
	s->fields[k][BLOB].face.bytes = s->blob[k].max;
	s->fields[k][WORDS].sizes = &s->words[k];
	s->fields[k][WORDS].face.bytes = s->words[k].max;
	s->ff[k].schema.n_fields = FIELDS;
	s->ff[k].schema.ranges_max = 2;
}

static void add_part(struct set *s, uint32_t k, bool packed)
{
	const struct hr__sizes *sizes[FIELDS] = {NULL, &s->blob[k], &s->words[k], NULL, NULL};
	struct hr__part *part = calloc(1, sizeof(*part));
	struct hr_field faces[FIELDS];
	uint32_t map[HR__FIELDS_MAX];

	s->paths[k] = test_file(s->dir, k ? "b" : "a", s->counts[k] * SAMPLE_BYTES);
	s->ff[k].ops = packed ? &windows : &cells;
	s->ff[k].schema.count = s->counts[k];
	s->ff[k].schema.fields = s->fields[k];
	if (packed)
		hr__format_windows(&s->ff[k].schema, s->fields[k], HR_DTYPE_U16, SEQ_LEN);
	else
		describe_cells(s, k);
	for (uint32_t f = 0; f < s->ff[k].schema.n_fields; f++)
		faces[f] = s->fields[k][f].face;
	part->opened = calloc(1, sizeof(*part->opened) + 1);
	expect_ok(hr_file_open(s->paths[k], HR_FILE_READ, &part->opened->file));
	part->file = part->opened->file;
	part->ff = &s->ff[k];
	part->size = s->counts[k] * SAMPLE_BYTES;
	part->count = s->counts[k];
	part->first = s->ds->info.samples;
	expect_ok(hr__dataset_join(s->ds, faces, sizes, s->ff[k].schema.n_fields, part->count,
				   s->paths[k], map));
	part->fields = calloc(FIELDS, sizeof(*part->fields));
	memcpy(part->fields, map, s->ff[k].schema.n_fields * sizeof(*map));
	s->ds->info.samples += part->count;
	s->ds->parts[s->ds->n_parts++] = part;
}

static void set_open(struct set *s, uint64_t a, uint64_t b, bool packed)
{
	*s = (struct set){.counts = {a, b}, .dir = test_mkdir()};
	expect_ok(hr_device_open(device_name, &s->dev));
	s->ds = hr__dataset_new();
	s->ds->parts = calloc(2, sizeof(struct hr__part *));
	for (uint32_t k = 0; k < 2 && s->counts[k]; k++)
		add_part(s, k, packed);
	hr__dataset_finish(s->ds);
	s->ds->info.format = "test";
	s->ds->info.windows = packed;
}

static void set_close(struct set *s)
{
	hr_dataset_close(s->ds);
	hr_device_close(s->dev);
	free(s->paths[0]);
	free(s->paths[1]);
	test_rmdir(s->dir);
}

/* -- what a batch must hold ------------------------------------------------------------------ */

struct image {
	const struct hr_batch *batch;
	uint8_t *bytes;
};

static const struct hr_tensor *tensor(const struct image *im, const char *name)
{
	for (uint32_t i = 0; i < im->batch->n_tensors; i++) {
		if (strcmp(im->batch->tensors[i].name, name) == 0)
			return &im->batch->tensors[i];
	}
	fail_msg("no tensor %s", name);
	return NULL;
}

static const uint8_t *bytes_of(const struct image *im, const char *name)
{
	const char *start = (const char *)hr_buffer_address(im->batch->buffer);

	return im->bytes +
	       ((const char *)tensor(im, name)->data - start - im->batch->buffer_offset);
}

static int64_t number_of(const struct image *im, const char *name, uint64_t i)
{
	int64_t v, host;

	memcpy(&v, bytes_of(im, name) + i * 8, 8);
	memcpy(&host, (const char *)tensor(im, name)->host + i * 8, 8);
	assert_int_equal(v, host);
	return v;
}

/* The sample's place in its file, whose pattern is that of any other. */
static uint64_t local(const struct set *s, uint64_t id)
{
	return id < s->counts[0] ? id : id - s->counts[0];
}

static uint64_t element_at(uint64_t offset, uint32_t size)
{
	uint64_t v = 0;

	for (uint32_t b = 0; b < size; b++)
		v |= (uint64_t)test_pattern(offset + b) << (8 * b);
	return v;
}

static void check_fixed(const struct set *s, const struct image *im)
{
	const uint8_t *box = bytes_of(im, "box"), *one = bytes_of(im, "one");

	assert_int_equal(tensor(im, "box")->ndim, 3);
	assert_int_equal(tensor(im, "box")->shape[2], 3);
	assert_int_equal(tensor(im, "box")->stride[0], 6);
	assert_int_equal(tensor(im, "one")->ndim, 1);
	assert_true((tensor(im, "one")->host != NULL) == (strcmp(device_name, "host") == 0));
	for (uint32_t row = 0; row < im->batch->samples; row++) {
		uint64_t at = local(s, im->batch->ids[row]) * SAMPLE_BYTES;
		uint32_t size = hr_dtype_size(tensor(im, "box")->dtype);

		for (uint32_t i = 0; i < 6; i++)
			assert_int_equal(
				read_element(box + (row * 6 + i) * size, tensor(im, "box")->dtype),
				element_at(at + (i < 2 ? 1 + 2 * i : 50 + 2 * (i - 2)), 2));
		assert_int_equal(read_element(one + row * 4, HR_DTYPE_U32),
				 element_at(at + 200, 4));
		assert_int_equal(
			number_of(im, "label", row),
			(int64_t)(local(s, im->batch->ids[row]) * local(s, im->batch->ids[row])) -
				5);
	}
}

static void check_words(const struct image *im, uint64_t index, const uint8_t *at, uint64_t n)
{
	enum hr_dtype type = tensor(im, "words")->dtype;

	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(read_element(at + i * hr_dtype_size(type), type),
				 element_at(index * SAMPLE_BYTES + 131 + 2 * i, 2));
}

static void check_values(const struct set *s, const struct image *im)
{
	uint32_t size = hr_dtype_size(tensor(im, "words")->dtype);
	uint64_t blobs = 0, words = 0;

	for (uint32_t row = 0; row < im->batch->samples; row++) {
		uint64_t i = local(s, im->batch->ids[row]);

		assert_int_equal(number_of(im, "blob.offsets", row), blobs);
		assert_int_equal(number_of(im, "words.offsets", row), words);
		for (uint64_t b = 0; b < blob_len(i); b++)
			assert_int_equal(bytes_of(im, "blob")[blobs + b],
					 test_pattern(i * SAMPLE_BYTES + 64 + b));
		check_words(im, i, bytes_of(im, "words") + words * size, words_len(i));
		blobs += blob_len(i);
		words += words_len(i);
	}
	assert_int_equal(number_of(im, "blob.offsets", im->batch->samples), blobs);
	assert_int_equal(tensor(im, "blob")->shape[0], blobs);
	assert_int_equal(tensor(im, "words")->shape[0], words);
	assert_int_equal(tensor(im, "words.offsets")->shape[0], im->batch->samples + 1);
}

static void check_padded(const struct set *s, const struct image *im, uint64_t pad_to, int64_t pad)
{
	enum hr_dtype type = tensor(im, "words")->dtype;
	uint32_t size = hr_dtype_size(type);

	assert_int_equal(tensor(im, "words")->shape[1], pad_to);
	assert_int_equal(tensor(im, "words")->shape[0], im->batch->samples);
	for (uint32_t row = 0; row < im->batch->samples; row++) {
		uint64_t i = local(s, im->batch->ids[row]), n = words_len(i), want = 0;
		const uint8_t *at = bytes_of(im, "words") + row * pad_to * size;

		n = n < pad_to ? n : pad_to;
		assert_int_equal(number_of(im, "words.lengths", row), n);
		check_words(im, i, at, n);
		memcpy(&want, &pad, size);
		for (uint64_t k = n; k < pad_to; k++)
			assert_int_equal(read_element(at + k * size, type), want);
	}
}

static void with_image(struct hr_loader *loader, const struct hr_batch *batch, struct image *im)
{
	im->batch = batch;
	im->bytes = malloc(loader->layout.slot_bytes);
	expect_ok(hr_buffer_copy_out(batch->buffer, batch->buffer_offset, im->bytes,
				     loader->layout.slot_bytes));
}

static struct hr_loader *start(struct set *s, struct hr_loader_options o)
{
	struct hr_loader *loader = NULL;

	o.engine.staging_bytes = 1 << 20;
	o.epochs = 3;
	o.seed = 9;
	expect_ok(hr_loader_open(s->ds, s->dev, &o, &loader));
	set_guards(loader);
	return loader;
}

/* The unused end of the slot is as it was. */
static void check_guards(const struct hr_loader *loader, const struct image *im)
{
	for (uint64_t i = loader->layout.batch_bytes; i < loader->layout.slot_bytes; i++)
		assert_int_equal(im->bytes[i], TEST_GUARD);
}

/* -- tests ----------------------------------------------------------------------------------- */

static void fields_as_values(void **state)
{
	const struct hr_field_cast casts[] = {{"words", HR_DTYPE_I64}, {"box", HR_DTYPE_I32}};
	const struct hr_loader_options all[] = {
		{.batch_size = 7},
		{.batch_size = 16, .threads = 2, .casts = casts, .n_casts = 2},
		{.batch_size = 5, .last = HR_LAST_PAD, .casts = casts, .n_casts = 1},
	};
	struct set s;

	set_open(&s, 61, 30, false);
	for (uint32_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
		struct hr_loader *loader = start(&s, all[k]);
		const struct hr_batch *batch;
		uint32_t batches = 0;

		while (hr_loader_next(loader, &batch) == 0) {
			struct image im;

			with_image(loader, batch, &im);
			check_fixed(&s, &im);
			check_values(&s, &im);
			check_guards(loader, &im);
			free(im.bytes);
			expect_ok(hr_loader_release(loader, batch, NULL));
			batches++;
		}
		assert_int_equal(batches, 3 * ((91 + (k == 2 ? 4 : 0)) / all[k].batch_size));
		hr_loader_close(loader);
	}
	set_close(&s);
}

static void fields_padded(void **state)
{
	const struct hr_field_cast casts[] = {{"words", HR_DTYPE_I64}};
	static const uint64_t pad_to[] = {0, 5, 40};
	struct set s;

	set_open(&s, 40, 23, false);
	for (uint32_t k = 0; k < 6; k++) {
		struct hr_loader_options o = {.batch_size = 9,
					      .threads = k % 2,
					      .ragged = HR_RAGGED_PAD,
					      .pad_to = pad_to[k / 2],
					      .pad_value = -100,
					      .casts = casts,
					      .n_casts = k == 3 ? 0 : 1};
		struct hr_loader *loader = start(&s, o);
		const struct hr_batch *batch;

		while (hr_loader_next(loader, &batch) == 0) {
			struct image im;

			with_image(loader, batch, &im);
			check_fixed(&s, &im);
			check_padded(&s, &im, o.pad_to ? o.pad_to : 18, -100);
			check_guards(loader, &im);
			free(im.bytes);
			expect_ok(hr_loader_release(loader, batch, NULL));
		}
		hr_loader_close(loader);
	}
	set_close(&s);
}

static void check_packed(const struct set *s, const struct image *im)
{
	const struct hr_tensor *bounds = tensor(im, "cu_seqlens");
	const uint8_t *tokens = bytes_of(im, "tokens");
	uint64_t n = 0, longest = 0, start = 0;

	for (uint32_t row = 0; row < im->batch->samples; row++) {
		uint64_t index = local(s, im->batch->ids[row]);

		for (uint64_t t = 0; t <= SEQ_LEN; t++)
			assert_int_equal(
				read_element(tokens + (row * (SEQ_LEN + 1) + t) * 8, HR_DTYPE_I64),
				element_at(index * SAMPLE_BYTES + 2 * t, 2));
		for (uint64_t t = 0; t < SEQ_LEN; t++) {
			int32_t bound;

			if (t == 0 || (t + index * 3) % 7 == 0) {
				memcpy(&bound, bytes_of(im, "cu_seqlens") + 4 * n++, 4);
				assert_int_equal(bound, row * SEQ_LEN + t);
				start = t;
			}
			longest = longest > t - start + 1 ? longest : t - start + 1;
			assert_int_equal(number_of(im, "position_ids", row * SEQ_LEN + t),
					 t - start);
		}
	}
	assert_int_equal(bounds->shape[0], n + 1);
	assert_int_equal(read_element(bytes_of(im, "cu_seqlens") + 4 * n, HR_DTYPE_U32),
			 im->batch->samples * SEQ_LEN);
	assert_int_equal(im->batch->max_seqlen, longest);
}

static void packed_windows(void **state)
{
	struct hr_loader_options o = {.batch_size = 6, .out_dtype = HR_DTYPE_I64, .packed = true};
	const struct hr_batch *batch;
	struct hr_loader *loader;
	struct set s;

	set_open(&s, 33, 12, true);
	loader = start(&s, o);
	while (hr_loader_next(loader, &batch) == 0) {
		struct image im;

		with_image(loader, batch, &im);
		check_packed(&s, &im);
		check_guards(loader, &im);
		free(im.bytes);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	hr_loader_close(loader);
	set_close(&s);
}

/* A loader that is refused has let go of all that it had. */
static void refuse(struct set *s, struct hr_loader_options o, int code, const char *word)
{
	unsigned int refs = atomic_load(&s->dev->refs);
	struct hr_loader *loader = NULL;

	if (!o.batch_size)
		o.batch_size = 4;
	expect_code(hr_loader_open(s->ds, s->dev, &o, &loader), code, word);
	assert_int_equal(atomic_load(&s->dev->refs), refs);
}

static void refusals(void **state)
{
	const struct hr_field_cast unknown = {"nose", HR_DTYPE_I64}, wrong = {"box", HR_DTYPE_F32};
	const struct hr_field_cast scalar = {"label", HR_DTYPE_I32};
	struct hr_loader_options small = {.batch_size = 8, .batch_bytes_max = 64};
	const struct hr_batch *batch;
	struct hr_loader *loader;
	struct set s;
	int rc = 0;

	set_open(&s, 50, 0, false);
	refuse(&s, (struct hr_loader_options){.out_dtype = HR_DTYPE_I64}, EINVAL, "5 fields");
	refuse(&s, (struct hr_loader_options){.casts = &unknown, .n_casts = 1}, EINVAL, "nose");
	refuse(&s, (struct hr_loader_options){.casts = &wrong, .n_casts = 1}, HR_E_BAD_CAST, "box");
	refuse(&s, (struct hr_loader_options){.casts = &scalar, .n_casts = 1}, HR_E_BAD_CAST,
	       "label");
	refuse(&s, (struct hr_loader_options){.packed = true}, EINVAL, "packed");
	refuse(&s, (struct hr_loader_options){.ragged = 7}, EINVAL, "ragged 7");
	for (uint32_t threads = 0; threads <= 2; threads++)
		refuse(&s,
		       (struct hr_loader_options){.threads = threads, .engine = {.depth = 5000}},
		       EINVAL, "depth");
	loader = start(&s, small);
	while (rc == 0) {
		rc = hr_loader_next(loader, &batch);
		if (rc == 0)
			expect_ok(hr_loader_release(loader, batch, NULL));
	}
	expect_code(rc, HR_E_BATCH_FULL, "does not fit");
	hr_loader_close(loader);
	set_close(&s);
}

/* What a type cannot be is refused, not cut to its low bits. */
static void pads_that_fit(void **state)
{
	static const struct {
		enum hr_dtype type;
		int64_t least, most;
	} rows[] = {
		{HR_DTYPE_BYTES, -128, 255},           {HR_DTYPE_I8, -128, 255},
		{HR_DTYPE_F8_E4M3, -128, 255},         {HR_DTYPE_BOOL, 0, 1},
		{HR_DTYPE_U16, -32768, 65535},         {HR_DTYPE_F16, -65519, 65519},
		{HR_DTYPE_I32, INT32_MIN, UINT32_MAX}, {HR_DTYPE_I64, INT64_MIN, INT64_MAX},
		{HR_DTYPE_U64, INT64_MIN, INT64_MAX},  {HR_DTYPE_BF16, INT64_MIN, INT64_MAX},
		{HR_DTYPE_F64, INT64_MIN, INT64_MAX},
	};
	struct set s;

	set_open(&s, 50, 0, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct hr_loader_options o = {
			.batch_size = 4, .ragged = HR_RAGGED_PAD, .pad_to = 8};
		const int64_t good[] = {rows[i].least, 0, rows[i].most};

		/* one ragged field of that type; the others are not there */
		s.ds->info.n_fields = BLOB + 1;
		s.ds->fields[BLOB].dtype = rows[i].type;
		for (uint32_t k = 0; k < 3; k++) {
			o.pad_value = good[k];
			hr_loader_close(start(&s, o));
		}
		if (rows[i].most == INT64_MAX)
			continue;
		o.pad_value = rows[i].least - 1;
		refuse(&s, o, EINVAL, hr_dtype_name(rows[i].type));
		o.pad_value = rows[i].most + 1;
		refuse(&s, o, EINVAL, "field blob");
	}
	s.ds->info.n_fields = FIELDS;
	set_close(&s);
}

/* Sizes whose products do not fit into 64 bits are no small batches. */
static void sizes_beyond_all(void **state)
{
	struct hr_loader_options o = {.batch_size = 1u << 20,
				      .last = HR_LAST_PAD,
				      .ragged = HR_RAGGED_PAD,
				      .pad_to = 1ull << 44};
	struct hr_loader *loader;
	struct set s;

	set_open(&s, 50, 0, false);
	s.ds->info.n_fields = BLOB + 1;
	refuse(&s, o, HR_E_BATCH_FULL, "16 TiB");
	o.pad_to = UINT64_MAX;
	refuse(&s, o, EINVAL, "pad_to");
	s.ds->info.n_fields = FIELDS;
	loader = start(&s,
		       (struct hr_loader_options){.batch_size = 8, .batch_bytes_max = UINT64_MAX});
	next_batch(loader);
	hr_loader_close(loader);
	set_close(&s);
}

static void names_that_are_taken(void **state)
{
	static const char *const taken[] = {"blob.offsets", "blob"};
	struct set s;

	set_open(&s, 50, 0, false);
	for (uint32_t k = 0; k < 2; k++) {
		const char *own = s.ds->fields[ONE].name;
		struct hr_loader *loader;

		s.ds->fields[ONE].name = taken[k];
		refuse(&s, (struct hr_loader_options){0}, EINVAL, taken[k]);
		s.ds->fields[ONE].name = "blob.lengths";
		loader = start(&s, (struct hr_loader_options){.batch_size = 4});
		hr_loader_close(loader);
		s.ds->fields[ONE].name = own;
	}
	set_close(&s);
}

/* Threads that stop do not answer: who waits for them must notice. */
static void stopped_in_a_restore(void **state)
{
	struct hr_loader_options o = {.batch_size = 4, .threads = 1, .timeout_ns = 1000000000};
	uint8_t record[HR_LOADER_STATE_BYTES];
	struct hr_loader *loader;
	struct set s;

	set_open(&s, 50, 0, false);
	atomic_store(&restored, NULL);
	atomic_store(&held, false);
	atomic_store(&holding, true);
	loader = start(&s, o);
	while (!atomic_load(&held))
		sched_yield();
	expect_ok(hr_loader_state(loader, record, sizeof(record)));
	atomic_store(&restored, loader);
	expect_code(hr_loader_restore(loader, record, sizeof(record)), HR_E_CLOSED, "stopped");
	hr_loader_close(loader);
	set_close(&s);
}

static void damage_seen_late(void **state)
{
	static const enum hr_corrupt ways[] = {HR_CORRUPT_SKIP, HR_CORRUPT_SUBSTITUTE,
					       HR_CORRUPT_ERROR};
	struct set s;

	damaged = true;
	set_open(&s, 45, 0, false);
	for (uint32_t k = 0; k < 3; k++) {
		struct hr_loader_options o = {.batch_size = 9, .threads = k};
		struct hr_loader_stats stats;
		const struct hr_batch *batch;
		struct hr_loader *loader;
		uint64_t replaced = 0;
		int rc = 0;

		s.ds->parts[0]->corrupt = ways[k];
		loader = start(&s, o);
		while (rc == 0) {
			struct image im;

			rc = hr_loader_next(loader, &batch);
			if (rc < 0)
				break;
			with_image(loader, batch, &im);
			check_fixed(&s, &im);
			check_values(&s, &im);
			for (uint32_t i = 0; i < batch->samples; i++) {
				assert_int_not_equal(batch->ids[i] % 9, 4);
				for (uint32_t j = 0; j < i; j++)
					replaced += batch->ids[i] == batch->ids[j];
			}
			free(im.bytes);
			expect_ok(hr_loader_release(loader, batch, NULL));
		}
		hr_loader_stats(loader, &stats);
		if (ways[k] == HR_CORRUPT_ERROR) {
			expect_code(rc, HR_E_BAD_SAMPLE, "is damaged");
		} else {
			assert_int_equal(rc, -HR_E_END);
			assert_int_equal(stats.substituted, 3 * 5); /* epochs, damaged samples */
			assert_true(replaced <= 3 * 5);
			assert_non_null(strstr(stats.substituted_reason, "is damaged"));
		}
		hr_loader_close(loader);
	}
	damaged = false;
	set_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_as_values),     cmocka_unit_test(fields_padded),
		cmocka_unit_test(packed_windows),       cmocka_unit_test(refusals),
		cmocka_unit_test(damage_seen_late),     cmocka_unit_test(pads_that_fit),
		cmocka_unit_test(sizes_beyond_all),     cmocka_unit_test(names_that_are_taken),
		cmocka_unit_test(stopped_in_a_restore),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

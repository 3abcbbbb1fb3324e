/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_mds - shards and manifests of MDS over bytes in memory: where every column of every sample
 * lies, every refusal with its code and words, every prefix and every changed byte of a small shard, and
 * manifests of all kinds.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headrace/error.h>

#include "support/format_bytes.h"

/* A shard under construction; samples are given as bytes. */
struct shard {
	uint8_t bytes[8192];
	size_t len;
};

static void put_le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* @lens: of @n samples, whose byte k of sample i is i * 16 + k. */
static void begin_shard(struct shard *s, const char *config, const uint32_t *lens, uint32_t n)
{
	uint32_t at = 4 + 4 * (n + 1) + (uint32_t)strlen(config);

	put_le32(s->bytes, n);
	memcpy(s->bytes + 4 + 4 * (n + 1), config, strlen(config));
	put_le32(s->bytes + 4, at);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(at + lens[i] <= sizeof(s->bytes));
		for (uint32_t k = 0; k < lens[i]; k++)
			s->bytes[at + k] = (uint8_t)(i * 16 + k);
		at += lens[i];
		put_le32(s->bytes + 8 + 4 * i, at);
	}
	s->len = at;
}

static uint32_t sample_at(const struct shard *s, uint32_t i)
{
	const uint8_t *p = s->bytes + 4 + 4 * i;

	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

#define CONFIG(names, encodings, sizes)                                                            \
	"{\"column_encodings\": [" encodings "], \"column_names\": [" names                        \
	"], \"column_sizes\": [" sizes "], \"compression\": null, \"format\": \"mds\", "           \
	"\"hashes\": [], \"size_limit\": 67108864, \"version\": 2}"

#define FIXED CONFIG("\"a\", \"b\"", "\"int\", \"ndarray:float32:2,3\"", "8, 24")
#define ONE CONFIG("\"a\", \"img\", \"z\"", "\"uint16\", \"jpeg\", \"float64\"", "2, null, 8")
#define SEVERAL                                                                                    \
	CONFIG("\"a\", \"b\", \"c\", \"d\", \"e\"",                                                \
	       "\"int8\", \"str\", \"int16\", \"bytes\", \"int32\"", "1, null, 2, null, 4")

static struct hr__format_file *open_shard(struct format_bytes *all, const struct shard *s,
					  const struct hr_dataset_options *opts)
{
	struct hr__format_file *ff = NULL;

	format_bytes_add(all, "shard.00000.mds", s->bytes, s->len, 0);
	if (format_bytes_open(all, &hr__format_mds, opts, &ff) != 0)
		fail_msg("%s", hr_error_detail());
	format_check_accepted(ff, s->len);
	return ff;
}

static void expect_range(const struct hr__format_file *ff, uint64_t i, uint32_t field,
			 uint64_t offset, uint64_t len)
{
	struct hr_range range = {UINT64_MAX, UINT64_MAX};
	int n = ff->ops->locate(ff, i, field, &range);

	assert_int_equal(n, len > 0);
	if (n) {
		assert_int_equal(range.offset, offset);
		assert_int_equal(range.len, len);
	}
}

static void fixed_columns(void **state)
{
	static const uint32_t lens[] = {32, 32, 32};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct shard s;
	struct hr__format_file *ff;
	const struct hr_field *b;

	begin_shard(&s, FIXED, lens, 3);
	ff = open_shard(&all, &s, &opts);
	assert_int_equal(ff->schema.count, 3);
	assert_int_equal(ff->schema.n_fields, 2);
	assert_string_equal(ff->schema.fields[0].face.name, "a");
	assert_int_equal(ff->schema.fields[0].face.dtype, HR_DTYPE_I64);
	assert_int_equal(ff->schema.fields[0].face.kind, HR_FIELD_FIXED);
	assert_int_equal(ff->schema.fields[0].face.ndim, 0);
	b = &ff->schema.fields[1].face;
	assert_int_equal(b->dtype, HR_DTYPE_F32);
	assert_int_equal(b->ndim, 2);
	assert_int_equal(b->shape[0], 2);
	assert_int_equal(b->shape[1], 3);
	for (uint32_t i = 0; i < 3; i++) {
		expect_range(ff, i, 0, sample_at(&s, i), 8);
		expect_range(ff, i, 1, sample_at(&s, i) + 8, 24);
	}
	assert_int_equal(ff->ops->locate(ff, 3, 0, NULL), -EINVAL);
	assert_int_equal(ff->ops->locate(ff, 0, 2, NULL), -EINVAL);
	ff->ops->close(ff);
}

static void one_variable_column(void **state)
{
	static const uint32_t lens[] = {14 + 5, 14, 14 + 300};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct shard s;
	struct hr__format_file *ff;

	begin_shard(&s, ONE, lens, 3);
	ff = open_shard(&all, &s, &opts);
	assert_int_equal(ff->schema.n_fields, 3);
	assert_int_equal(ff->schema.fields[1].face.kind, HR_FIELD_RAGGED);
	assert_int_equal(ff->schema.fields[1].face.dtype, HR_DTYPE_U8);
	assert_int_equal(ff->schema.fields[1].face.bytes, 300);
	assert_int_equal(ff->schema.fields[1].sizes->values, 3);
	assert_int_equal(ff->schema.fields[1].sizes->bytes, 305);
	all.files[0].fail_with = EIO; /* locating reads nothing */
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t at = sample_at(&s, i);

		expect_range(ff, i, 0, at + 4, 2);
		expect_range(ff, i, 1, at + 6, lens[i] - 14);
		expect_range(ff, i, 2, at + lens[i] - 8, 8);
	}
	ff->ops->close(ff);
}

static void several_variable_columns(void **state)
{
	static const uint32_t lens[] = {15 + 3 + 4, 15, 15 + 7};
	static const uint32_t heads[][2] = {{3, 4}, {0, 0}, {0, 7}};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct hr_range range;
	struct shard s;
	struct hr__format_file *ff;

	begin_shard(&s, SEVERAL, lens, 3);
	for (uint32_t i = 0; i < 3; i++) {
		put_le32(s.bytes + sample_at(&s, i), heads[i][0]);
		put_le32(s.bytes + sample_at(&s, i) + 4, heads[i][1]);
	}
	ff = open_shard(&all, &s, &opts);
	assert_int_equal(ff->schema.fields[1].face.bytes, 7); /* a bound: both together */
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t at = sample_at(&s, i) + 8;

		expect_range(ff, i, 0, at, 1);
		expect_range(ff, i, 1, at + 1, heads[i][0]);
		expect_range(ff, i, 2, at + 1 + heads[i][0], 2);
		expect_range(ff, i, 3, at + 3 + heads[i][0], heads[i][1]);
		expect_range(ff, i, 4, at + 3 + heads[i][0] + heads[i][1], 4);
	}
	/* a head that does not add up, also beyond 32 bits, is told when it is met */
	put_le32(s.bytes + sample_at(&s, 2) + 4, 6);
	assert_int_equal(ff->ops->locate(ff, 2, 1, &range), -HR_E_BAD_SAMPLE);
	assert_non_null(
		strstr(hr_error_detail(), "sample 2 have 21 bytes together, the sample 22"));
	put_le32(s.bytes + sample_at(&s, 2), UINT32_MAX);
	put_le32(s.bytes + sample_at(&s, 2) + 4, 8);
	assert_int_equal(ff->ops->locate(ff, 2, 3, &range), -HR_E_BAD_SAMPLE);
	assert_int_equal(ff->ops->locate(ff, 2, 0, &range), 1); /* its place is constant */
	all.files[0].fail_with = EIO;
	assert_int_equal(ff->ops->locate(ff, 0, 1, &range), -EIO);
	ff->ops->close(ff);
}

static struct {
	uint64_t offset;
	size_t len;
	uint32_t calls;
} announced;

static void announce(const struct hr_source *src, uint64_t offset, size_t len)
{
	announced.offset = offset;
	announced.len = len;
	announced.calls++;
}

/* Heads of samples that locate() will read are announced, and nothing else. */
static void heads_ahead(void **state)
{
	static const uint32_t lens[] = {15 + 7, 15, 15 + 7};
	static const struct {
		const char *field;
		bool ahead;
	} cases[] = {{NULL, true}, {"a", false}, {"b", true}, {"e", false}};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		const char *fields[] = {cases[k].field};
		struct hr_dataset_options opts = {.n_fields = fields[0] != NULL,
						  .fields = fields[0] ? fields : NULL};
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff;
		struct shard s;

		memset(&announced, 0, sizeof(announced));
		begin_shard(&s, SEVERAL, lens, 3);
		format_bytes_add(&all, "shard.00000.mds", s.bytes, s.len, 0);
		all.files[0].src.ahead = announce;
		assert_int_equal(format_bytes_open(&all, &hr__format_mds, &opts, &ff), 0);
		assert_int_equal(ff->schema.ahead != NULL, cases[k].ahead);
		if (cases[k].ahead)
			ff->schema.ahead(ff, 2);
		assert_int_equal(announced.calls, cases[k].ahead);
		assert_int_equal(announced.offset, cases[k].ahead ? sample_at(&s, 2) : 0);
		assert_int_equal(announced.len, cases[k].ahead ? 8 : 0);
		if (cases[k].ahead)
			ff->schema.ahead(ff, 3); /* there is none */
		assert_int_equal(announced.calls, cases[k].ahead);
		ff->ops->close(ff);
	}
}

static void encodings(void **state)
{
	static const struct {
		const char *encoding, *size;
		enum hr_dtype dtype; /* HR_DTYPE_BYTES: a blob */
		uint32_t ndim, bytes;
	} cases[] = {
		{"int", "8", HR_DTYPE_I64, 0, 8},
		{"uint8", "1", HR_DTYPE_U8, 0, 1},
		{"uint16", "2", HR_DTYPE_U16, 0, 2},
		{"uint32", "4", HR_DTYPE_U32, 0, 4},
		{"uint64", "8", HR_DTYPE_U64, 0, 8},
		{"int8", "1", HR_DTYPE_I8, 0, 1},
		{"int16", "2", HR_DTYPE_I16, 0, 2},
		{"int32", "4", HR_DTYPE_I32, 0, 4},
		{"int64", "8", HR_DTYPE_I64, 0, 8},
		{"float16", "2", HR_DTYPE_F16, 0, 2},
		{"float32", "4", HR_DTYPE_F32, 0, 4},
		{"float64", "8", HR_DTYPE_F64, 0, 8},
		{"ndarray:int16:5", "10", HR_DTYPE_I16, 1, 10},
		{"ndarray:uint8:1,2,3,1,1,1,2", "12", HR_DTYPE_U8, 7, 12},
		{"ndarray:int16", "null", HR_DTYPE_BYTES, 1, 0},
		{"ndarray", "null", HR_DTYPE_BYTES, 1, 0},
		{"bytes", "null", HR_DTYPE_BYTES, 1, 0},
		{"list[jpeg]", "null", HR_DTYPE_BYTES, 1, 0},
	};
	struct hr_dataset_options opts = {0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t len = cases[i].bytes ? cases[i].bytes : 4;
		struct format_bytes all = {.n_files = 0};
		struct hr__format_file *ff;
		struct hr_field *face;
		char config[512];
		struct shard s;

		snprintf(config, sizeof(config), CONFIG("\"x\"", "\"%s\"", "%s"), cases[i].encoding,
			 cases[i].size);
		begin_shard(&s, config, &len, 1);
		ff = open_shard(&all, &s, &opts);
		face = &ff->schema.fields[0].face;
		assert_int_equal(face->kind, cases[i].bytes ? HR_FIELD_FIXED : HR_FIELD_RAGGED);
		assert_int_equal(face->dtype, cases[i].bytes ? cases[i].dtype : HR_DTYPE_U8);
		assert_int_equal(face->ndim, cases[i].ndim);
		assert_int_equal(face->bytes, cases[i].bytes);
		ff->ops->close(ff);
	}
}

static void expect_refusal(const struct shard *s, uint64_t size,
			   const struct hr_dataset_options *opts, int code, const char *word)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = (void *)0x1;

	hr__fail_set(EIO, "");
	format_bytes_add(&all, "shard.00000.mds", s->bytes, s->len, size);
	assert_int_equal(format_bytes_open(&all, &hr__format_mds, opts, &ff), -code);
	assert_ptr_equal(ff, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	assert_non_null(strstr(hr_error_detail(), "shard.00000.mds"));
}

static void configs_refused(void **state)
{
	static const struct {
		const char *config, *word;
	} cases[] = {
		{CONFIG("\"a\"", "\"int\"", "4"), "takes 8 bytes, but its column_sizes says 4"},
		{CONFIG("\"a\"", "\"int\"", "null"), "takes 8 bytes"},
		{CONFIG("\"a\"", "\"str\"", "4"), "takes 0 bytes"},
		{CONFIG("\"a\"", "\"uint8\"", "0"), "a column of 0 bytes"},
		{CONFIG("\"a\"", "\"uint8\"", "4294967296"), "a column of 4294967296 bytes"},
		{CONFIG("\"a\", \"a\"", "\"int\", \"int\"", "8, 8"), "the column a twice"},
		{CONFIG("\"\"", "\"int\"", "8"), "empty name"},
		{CONFIG("\"a\"", "\"int\", \"int\"", "8"), "1 column_names, 2 column_encodings"},
		{CONFIG("", "", ""), "at least one"},
		{CONFIG("\"x\", \"y\"", "\"odd\", \"odd\"", "4294967295, 1"), "4 GiB"},
		{"{\"version\": 1}", "version 1"},
		{"{\"format\": \"csv\"}", "\"csv\""},
		{"{\"format\": \"mds\"}", "no version"},
		{"{\"version\": 2}", "no format"},
		{"{\"column_names\": [\"a\"], \"column_names\": []}", "twice"},
		{"{\"column_sizes\": [], \"column_sizes\": []}", "twice"},
		{"[]", "'{' of the text of a shard expected"},
		{"{} x", "something follows"},
		{"", "expected"},
	};
	struct hr_dataset_options opts = {0};
	uint32_t len = 8;
	struct shard s;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin_shard(&s, cases[i].config, &len, 1);
		expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, cases[i].word);
	}
}

static void columns_left_out(void **state)
{
	static const uint32_t lens[] = {12 + 3, 12 + 7};
	static const char *const pickle[] = {"p"}, *const absent[] = {"a", "q"},
				 *const only[] = {"z"};
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff;
	struct shard s;

	begin_shard(&s,
		    CONFIG("\"a\", \"p\", \"z\"", "\"int32\", \"pkl\", \"int32\"", "4, null, 4"),
		    lens, 2);
	ff = open_shard(&all, &s, &opts);
	assert_int_equal(ff->schema.n_fields, 2);
	expect_range(ff, 1, 0, sample_at(&s, 1) + 4, 4);
	expect_range(ff, 1, 1, sample_at(&s, 1) + 8 + 7, 4);
	ff->ops->close(ff);
	opts = (struct hr_dataset_options){.fields = only, .n_fields = 1};
	all.n_files = 0;
	ff = open_shard(&all, &s, &opts);
	assert_int_equal(ff->schema.n_fields, 1);
	assert_string_equal(ff->schema.fields[0].face.name, "z");
	expect_range(ff, 0, 0, sample_at(&s, 0) + 8 + 3, 4);
	ff->ops->close(ff);
	opts.fields = pickle;
	expect_refusal(&s, 0, &opts, EINVAL, "pickle");
	opts = (struct hr_dataset_options){.fields = absent, .n_fields = 2};
	expect_refusal(&s, 0, &opts, EINVAL, "no field \"q\"");
	opts = (struct hr_dataset_options){0};
	begin_shard(&s, CONFIG("\"p\", \"q\"", "\"pkl\", \"pkl\"", "null, null"), lens, 2);
	expect_refusal(&s, 0, &opts, EINVAL, "pickle");
	begin_shard(&s, CONFIG("\"x\"", "\"ndarray:int8:1,1,1,1,1,1,1,15\"", "15"), lens, 1);
	expect_refusal(&s, 0, &opts, EINVAL, "7 dimensions");
	begin_shard(&s, CONFIG("\"x\"", "\"ndarray:int:15\"", "15"), lens, 1);
	expect_refusal(&s, 0, &opts, EINVAL, "not known");
	begin_shard(&s, CONFIG("\"x\"", "\"ndarray:int8:5,,3\"", "15"), lens, 1);
	expect_refusal(&s, 0, &opts, EINVAL, "shape is not known");
	begin_shard(&s, CONFIG("\"x\"", "\"ndarray:int8:99999999999999999999\"", "15"), lens, 1);
	expect_refusal(&s, 0, &opts, EINVAL, "larger than a shard");
}

static void headers_refused(void **state)
{
	static const uint32_t lens[] = {32, 32};
	struct hr_dataset_options opts = {0};
	struct shard s, good;

	begin_shard(&good, FIXED, lens, 2);
	s = good;
	s.len -= 1;
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "truncated");
	expect_refusal(&good, good.len + 1, &opts, HR_E_BAD_FORMAT, "appended");
	expect_refusal(&good, 5ull << 30, &opts, HR_E_BAD_FORMAT, "wrapped");
	s = good;
	put_le32(s.bytes, 0xffffffff);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "promises 4294967295 samples");
	s = good;
	put_le32(s.bytes + 8, 15);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "byte 4: sample 0 begins");
	s = good;
	put_le32(s.bytes + 8, sample_at(&good, 0) + 31);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "sample 0 has 31 bytes, its columns take 32");
	s = good;
	put_le32(s.bytes + 8, sample_at(&good, 0) + 33);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "sample 0 has 33 bytes, its columns take 32");
	s = good;
	put_le32(s.bytes + 4, 15);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "inside the table");
	s = good;
	put_le32(s.bytes + 4, 2u << 20);
	expect_refusal(&s, 4u << 20, &opts, HR_E_BAD_FORMAT, "JSON text");
	memset(s.bytes, 0, sizeof(s.bytes));
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "inside the table");
	s.len = 0;
	expect_refusal(&s, 0, &opts, HR_E_EMPTY_FILE, "empty");
	s.len = 5;
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "truncated");
	memcpy(s.bytes, "version https://git-lfs.github.com/spec/v1", 42);
	s.len = 42;
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "git lfs pull");
	memcpy(s.bytes, "\x28\xb5\x2f\xfd", 4);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "zstd");
	begin_shard(&s, ONE, (const uint32_t[]){13}, 1);
	expect_refusal(&s, 0, &opts, HR_E_BAD_FORMAT, "at least 14");
}

static void prefixes_and_changes(void **state)
{
	static const uint32_t lens[] = {15 + 3 + 4, 15, 15 + 7};
	struct hr_dataset_options opts = {0};
	uint32_t accepted = 0;
	struct shard good;

	begin_shard(&good, SEVERAL, lens, 3);
	put_le32(good.bytes + sample_at(&good, 0), 3);
	put_le32(good.bytes + sample_at(&good, 0) + 4, 4);
	for (size_t len = 0; len < good.len; len++) {
		struct format_bytes all = {.n_files = 0};
		uint8_t *exact = malloc(len ? len : 1);

		assert_non_null(exact);
		memcpy(exact, good.bytes, len);
		format_bytes_add(&all, "shard.00000.mds", exact, len, 0);
		assert_true(format_bytes_try(&all, &hr__format_mds, &opts) < 0);
		free(exact);
	}
	for (size_t at = 0; at < good.len; at++) {
		for (uint32_t change = 1; change < 256; change++) {
			struct format_bytes all = {.n_files = 0};

			good.bytes[at] ^= (uint8_t)change;
			format_bytes_add(&all, "shard.00000.mds", good.bytes, good.len, 0);
			accepted += format_bytes_try(&all, &hr__format_mds, &opts) == 0;
			good.bytes[at] ^= (uint8_t)change;
		}
	}
	assert_true(accepted > 0);
}

static void probing(void **state)
{
	static const uint32_t lens[300] = {32};
	struct shard s;

	begin_shard(&s, FIXED, lens, 2);
	assert_ptr_equal(hr__format_find("auto", s.bytes, s.len, s.len), &hr__format_mds);
	assert_int_equal(hr__format_mds.probe(s.bytes, s.len, s.len), 100);
	begin_shard(&s, FIXED, lens, 300); /* the text lies behind the head */
	assert_int_equal(hr__format_mds.probe(s.bytes, 1024, s.len), 90);
	put_le32(s.bytes + 400, 1);
	assert_int_equal(hr__format_mds.probe(s.bytes, 1024, s.len), 0);
	memset(s.bytes, 0, sizeof(s.bytes));
	assert_int_equal(hr__format_mds.probe(s.bytes, 1024, 4096), 0);
	assert_int_equal(hr__format_mds.probe(s.bytes, 3, 3), 0);
	assert_ptr_equal(hr__format_find("mds", "", 0, 0), &hr__format_mds);
}

/* -- manifests -------------------------------------------------------------------------------- */

struct added {
	char names[256];
	uint64_t bytes, samples;
	uint32_t n;
	int rc;
};

static int add(void *ctx, const struct hr__shard *shard)
{
	struct added *added = ctx;

	if (added->rc)
		return hr__fail(-added->rc, "%s: no such file", shard->name);
	strncat(added->names, shard->name, 100);
	strncat(added->names, ";", 2);
	added->bytes += shard->bytes;
	added->samples += shard->samples;
	added->n++;
	return 0;
}

static int expand(const char *text, size_t len, const char *format, struct added *added)
{
	struct hr_dataset_options opts = {.format = format};
	struct format_bytes all = {.n_files = 0};

	hr__fail_set(EIO, "");
	*added = (struct added){.rc = added->rc};
	format_bytes_add(&all, "index.json", text, len, 0);
	return hr__format_mds.expand(&all.files[0].src, &opts, add, added);
}

#define FILE_INFO(name, bytes)                                                                     \
	"{\"basename\": \"" name "\", \"bytes\": " bytes ", \"hashes\": {\"sha1\": \"00\"}}"
#define SHARD(name, bytes, samples, zip)                                                           \
	"{\"column_encodings\": [\"int\"], \"column_names\": [\"a\"], \"column_sizes\": [8], "     \
	"\"compression\": \"zstd\", \"format\": \"mds\", \"hashes\": [], "                         \
	"\"raw_data\": " FILE_INFO(name, bytes) ", \"samples\": " samples                          \
						", \"size_limit\": \"64mb\", \"version\": "        \
						"2, \"zip_data\": " zip "}"
#define MANIFEST(shards) "{\"shards\": [" shards "], \"version\": 2}"

static void manifests(void **state)
{
	static const char two[] = MANIFEST(
		SHARD("s0.mds", "100", "7", "null") ", " SHARD("s1.mds", "50", "3", "null"));
	struct added added = {.rc = 0};

	assert_int_equal(expand(two, strlen(two), NULL, &added), 0);
	assert_string_equal(added.names, "s0.mds;s1.mds;");
	assert_int_equal(added.bytes, 150);
	assert_int_equal(added.samples, 10);
	/* nothing is added before the whole text was found good */
	for (size_t len = 0; len < strlen(two); len++) {
		int rc = expand(two, len, "mds", &added);

		assert_true(rc < 0 && hr_error_detail()[0]);
		assert_int_equal(added.n, 0);
		rc = expand(two, len, NULL, &added);
		assert_true(len >= strlen("{\"shards\":") ? rc < 0 : rc == 1);
		assert_int_equal(added.n, 0);
	}
	assert_int_equal(expand(MANIFEST(""), strlen(MANIFEST("")), NULL, &added), 0);
	assert_int_equal(added.n, 0);
}

static void compressed_shards(void **state)
{
	static const char zip[] =
		MANIFEST(SHARD("s0.mds", "100", "7", FILE_INFO("s0.mds.zstd", "60")));
	static const char raw[] = MANIFEST(SHARD("s0.mds", "100", "7", "null"));
	struct added added = {.rc = 0};

	assert_int_equal(expand(zip, strlen(zip), NULL, &added), 0); /* unpacked beside it */
	added.rc = -ENOENT;
	assert_int_equal(expand(zip, strlen(zip), NULL, &added), -HR_E_BAD_FORMAT);
	assert_non_null(strstr(hr_error_detail(), "only compressed (zstd)"));
	assert_int_equal(expand(raw, strlen(raw), NULL, &added), -ENOENT);
	assert_non_null(strstr(hr_error_detail(), "s0.mds: no such file"));
	added.rc = -EACCES;
	assert_int_equal(expand(zip, strlen(zip), NULL, &added), -EACCES);
}

static void manifests_refused(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{"{\"shards\": [{\"format\": \"csv\"}]}", "\"csv\"; only mds"},
		{"{\"shards\": [{\"version\": 1}]}", "version 1"},
		{"{\"shards\": [], \"version\": 3}", "version 3"},
		{"{\"shards\": [], \"shards\": []}", "twice"},
		{"{\"shards\": [{}]}", "no format"},
		{"{\"shards\": [{\"format\": \"mds\"}]}", "no version"},
		{"{\"shards\": [{\"format\": \"mds\", \"version\": 2}]}", "no raw_data"},
		{"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"raw_data\": null}]}",
		 "no raw_data"},
		{"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"raw_data\": " FILE_INFO(
			 "x", "1") "}]}",
		 "no samples"},
		{"{\"shards\": [{\"raw_data\": {\"bytes\": 1}}]}", "no basename"},
		{"{\"shards\": [{\"raw_data\": {\"basename\": \"x\"}}]}", "no bytes"},
		{"{\"shards\": [{\"samples\": -1}]}", "negative"},
		{"{\"shards\": [{\"samples\": 1.5}]}", "digits"},
		{"{\"shards\": []} x", "something follows"},
	};
	struct added added = {.rc = 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(expand(cases[i].text, strlen(cases[i].text), NULL, &added),
				 -HR_E_BAD_FORMAT);
		if (!strstr(hr_error_detail(), cases[i].word))
			fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), cases[i].word);
	}
}

static void manifests_of_others(void **state)
{
	static const char *const cases[] = {
		"{\"__kind__\": \"wids-shard-index-v1\", \"wids_version\": 1, \"shardlist\": []}",
		"{\"version\": 7}",
		"{\"a\": 1}\n{\"a\": 2}\n",
		"[1, 2]",
		"not JSON",
		"\0\0\0",
	};
	struct added added = {.rc = 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = cases[i][0] ? strlen(cases[i]) : 3;

		assert_int_equal(expand(cases[i], len, NULL, &added), 1);
		assert_int_equal(expand(cases[i], len, "auto", &added), 1);
		assert_int_equal(expand(cases[i], len, "mds", &added), -HR_E_BAD_FORMAT);
	}
	assert_int_equal(expand("", 0, NULL, &added), 1);
	assert_int_equal(expand("", 0, "mds", &added), -HR_E_BAD_FORMAT);
	assert_int_equal(expand("version https://git-lfs.github.com/spec/v1", 42, NULL, &added),
			 -HR_E_BAD_FORMAT);
	assert_non_null(strstr(hr_error_detail(), "git lfs pull"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixed_columns),
		cmocka_unit_test(one_variable_column),
		cmocka_unit_test(several_variable_columns),
		cmocka_unit_test(heads_ahead),
		cmocka_unit_test(encodings),
		cmocka_unit_test(configs_refused),
		cmocka_unit_test(columns_left_out),
		cmocka_unit_test(headers_refused),
		cmocka_unit_test(prefixes_and_changes),
		cmocka_unit_test(probing),
		cmocka_unit_test(manifests),
		cmocka_unit_test(compressed_shards),
		cmocka_unit_test(manifests_refused),
		cmocka_unit_test(manifests_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

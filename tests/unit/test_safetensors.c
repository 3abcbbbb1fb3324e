/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of safetensors headers against headers written by hand: every rule of the format is
 * broken once, and the sentence must say which; what the format allows must come out right. Then the
 * writer, whose output must parse and follow the order of the reference, and the index of shards.
 */
#include <headrace/headrace.h>

#include "format/safetensors.h"
#include "support/support.h"

#define ONE "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static struct hr__st st;

/* Exactly @len bytes: a sanitizer sees the first one behind them. */
static char *copy_exact(const char *text, size_t len)
{
	char *exact = malloc(len ? len : 1);

	assert_non_null(exact);
	memcpy(exact, text, len);
	return exact;
}

/* Parse with @data bytes behind the header. */
static int parse(const char *json, uint64_t data, bool lenient)
{
	size_t len = strlen(json);
	char *exact = copy_exact(json, len);
	int ret;

	ret = hr__st_parse("m.safetensors", exact, len, 8 + len + data, lenient, &st);
	free(exact);
	return ret;
}

static void accept(const char *json, uint64_t data)
{
	if (parse(json, data, false))
		fail_msg("%s: %s", json, hr_error_detail());
}

static void refuse(const char *json, uint64_t data, int code, const char *words)
{
	int ret = parse(json, data, false);

	if (ret != -code || !strstr(hr_error_detail(), words) ||
	    strncmp(hr_error_detail(), "m.safetensors: ", 15) != 0)
		fail_msg("%s: %s, \"%s\" should have \"%s\"", json, hr_error_name(ret),
			 hr_error_detail(), words);
	assert_null(st.tensors); /* nothing is left behind */
	assert_null(st.text);
}

/* -- what the format allows --------------------------------------------------------------------- */

static void test_good(void **state)
{
	accept(ONE, 8);
	assert_int_equal(st.n_tensors, 1);
	assert_string_equal(st.tensors[0].name, "a");
	assert_int_equal(st.tensors[0].type, HR_WEIGHT_F32);
	assert_int_equal(st.tensors[0].ndim, 1);
	assert_int_equal(st.tensors[0].shape[0], 2);
	assert_int_equal(st.data_off, 8 + strlen(ONE));
	hr__st_free(&st);

	accept("{}", 0);
	assert_int_equal(st.n_tensors, 0);
	hr__st_free(&st);
	accept(ONE "      ", 8);
	hr__st_free(&st);
	accept("{ \"a\" :\n{\t\"shape\":[ 2 , 1 ],\"data_offsets\" : [0,8 ] ,\r\"dtype\":\"F32\"} "
	       "}",
	       8);
	assert_int_equal(st.tensors[0].ndim, 2);
	hr__st_free(&st);
	/* fields of a later version */
	accept("{\"a\":{\"x\":[{\"y\":[]},-1.5e+3,true,null,\"\\\"\"],\"dtype\":\"F32\",\"shape\":["
	       "2],"
	       "\"data_offsets\":[0,8],\"z\":{}}}",
	       8);
	hr__st_free(&st);
}

static void test_order_and_scalars(void **state)
{
	/* the header in any order; rank 0; empty tensors, also between others */
	accept("{\"z\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]},"
	       "\"empty\":{\"dtype\":\"F64\",\"shape\":[3,0,18446744073709551615],"
	       "\"data_offsets\":[4,4]},"
	       "\"a\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
	       5);
	assert_string_equal(st.tensors[0].name, "a");
	assert_string_equal(st.tensors[1].name, "empty");
	assert_int_equal(st.tensors[1].shape[2], UINT64_MAX);
	assert_string_equal(st.tensors[2].name, "z");
	assert_int_equal(st.tensors[2].ndim, 0);
	assert_string_equal(st.tensors[st.by_name[1]].name, "empty");
	hr__st_free(&st);
}

static void test_types(void **state)
{
#define ROW(name, number, bits, text) {name, number, bits, text},
	static const struct {
		enum hr_weight_type type;
		int number;
		uint32_t bits;
		const char *text;
	} rows[] = {HR_WEIGHT_TYPE_MAP(ROW)};
	char json[200];

	assert_int_equal(sizeof(rows) / sizeof(rows[0]), 22);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum hr_weight_type back;

		assert_int_equal(rows[i].number, i + 1);
		assert_int_equal(hr_weight_type_bits(rows[i].type), rows[i].bits);
		assert_int_equal(hr_weight_type_parse(rows[i].text, &back), 0);
		assert_int_equal(back, rows[i].type);
		snprintf(json, sizeof(json),
			 "{\"a\":{\"dtype\":\"%s\",\"shape\":[4,2],\"data_offsets\":[0,%u]}}",
			 rows[i].text, rows[i].bits);
		accept(json, rows[i].bits);
		assert_int_equal(st.tensors[0].type, rows[i].type);
		hr__st_free(&st);
	}
	assert_int_equal(hr_weight_type_parse("?", &(enum hr_weight_type){0}), -EINVAL);
	assert_int_equal(hr_weight_type_bits((enum hr_weight_type)99), 0);
	assert_string_equal(hr_weight_type_name((enum hr_weight_type)99), "?");
}

static void test_names(void **state)
{
	accept("{\"\\u00e9\\ud83d\\ude00\\\"\\\\\\/"
	       "\\b\\f\\n\\r\\t\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":"
	       "[1],\"data_offsets\":[0,1]}}",
	       1);
	assert_string_equal(st.tensors[0].name, "\xc3\xa9\xf0\x9f\x98\x80\"\\/\b\f\n\r\t\xc3\xa9");
	hr__st_free(&st);
	accept("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
	assert_string_equal(st.tensors[0].name, "");
	hr__st_free(&st);
}

static void test_metadata(void **state)
{
	accept("{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\"}}", 0);
	assert_int_equal(st.n_metadata, 2);
	assert_string_equal(st.metadata[0].key, "format");
	assert_string_equal(st.metadata[0].value, "pt");
	hr__st_free(&st);
	accept("{\"__metadata__\":null}", 0);
	assert_int_equal(st.n_metadata, 0);
	hr__st_free(&st);
	accept("{\"__metadata__\":{}}", 0);
	hr__st_free(&st);
	refuse("{\"__metadata__\":{\"a\":1}}", 0, HR_E_BAD_FORMAT, "must be a string");
	refuse("{\"__metadata__\":{\"a\":{}}}", 0, HR_E_BAD_FORMAT, "must be a string");
	refuse("{\"__metadata__\":[]}", 0, HR_E_BAD_FORMAT, "'{' of __metadata__ expected");
	refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, HR_E_BAD_FORMAT,
	       "__metadata__ appears twice");
	refuse("{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}", 0, HR_E_BAD_FORMAT,
	       "has the key a twice");
}

/* -- what it forbids ---------------------------------------------------------------------------- */

static void refuse_length(const void *head, size_t len, uint64_t file_size, const char *words)
{
	uint64_t out;
	int ret = hr__st_length("m.safetensors", head, len, file_size, &out);

	if (ret != -HR_E_BAD_FORMAT || !strstr(hr_error_detail(), words))
		fail_msg("%s: \"%s\" should have \"%s\"", hr_error_name(ret), hr_error_detail(),
			 words);
}

static void test_lengths(void **state)
{
	uint64_t out;

	refuse_length("", 0, 0, "has 0 bytes");
	refuse_length("\2\0\0\0\0\0\0", 7, 7, "has 7 bytes");
	refuse_length("\377\377\377\377\377\377\377\377", 8, 8, "18446744073709551615");
	refuse_length("\1\341\365\5\0\0\0\0", 8, 1ull << 40, "the format allows 100000000");
	refuse_length("\0\0\0\0\0\0\0\0", 8, 8, "the shortest is {}");
	refuse_length("\1\0\0\0\0\0\0\0", 8, 9, "the shortest is {}");
	refuse_length("\3\0\0\0\0\0\0\0", 8, 10, "does not fit the 10 bytes");
	refuse_length("version https://git-lfs.github.com/spec/v1", 42, 130, "git lfs pull");
	refuse_length("<!DOCTYPE html><html>", 21, 400, "web page");
	assert_int_equal(hr__st_length("m", "\0\341\365\5\0\0\0\0", 8, 100000008, &out), 0);
	assert_int_equal(out, 100000000);
	assert_int_equal(hr__st_length("m", "\2\0\0\0\0\0\0\0", 8, 10, &out), 0);
}

#define ENTRY(rest) "{\"a\":{\"dtype\":\"U8\"," rest "}}"
#define AT(offsets) ENTRY("\"shape\":[1],\"data_offsets\":" offsets)
#define SHAPED(shape) ENTRY("\"shape\":" shape ",\"data_offsets\":[0,1]")
#define BAD HR_E_BAD_FORMAT

static void test_json(void **state)
{
	refuse(" {}", 0, BAD, "byte 8: the header must begin with '{'");
	refuse("[]", 0, BAD, "must begin with '{'");
	refuse("{", 0, BAD, "found the end");
	refuse("{}x", 0, BAD, "byte 10: something follows behind the closing brace: 'x'");
	refuse("{}\1", 0, BAD, "byte 0x01");
	refuse("{} {}", 0, BAD, "something follows");
	refuse("{,}", 0, BAD, "must be a string");
	refuse("{\"a\"}", 0, BAD, "':' of the name of a tensor expected");
	refuse("{\"a\":1}", 0, BAD, "'{' of a tensor expected");
	refuse("{\"a\":[\"U8\",[1],[0,1]]}", 1, BAD, "'{' of a tensor expected");
	refuse("{\"__metadata__\":{},}", 0, BAD, "a comma with nothing behind it");
	refuse("{\"__metadata__\":{} \"a\":1}", 0, BAD, "',' or '}' expected");
	refuse("{'a':1}", 0, BAD, "must be a string");
	refuse("{\"a", 0, BAD, "no closing quote");
	refuse("{\"a\\", 0, BAD, "unknown escape");
	refuse("{\"\\x41\":1}", 0, BAD, "unknown escape: a backslash before 'x'");
	refuse("{\"\\u12g4\":1}", 0, BAD, "without four hexadecimal digits");
	refuse("{\"\\u12", 0, BAD, "without four hexadecimal digits");
	refuse("{\"\\ud800\":1}", 0, BAD, "lone surrogate \\ud800");
	refuse("{\"\\ud800\\u0041\":1}", 0, BAD, "lone surrogate \\ud800");
	refuse("{\"\\udc00\":1}", 0, BAD, "lone surrogate \\udc00");
	refuse("{\"\\u0000\":1}", 0, BAD, "NUL character");
	refuse("{\"a\nb\":1}", 0, BAD, "raw control character");
}

static void test_utf8(void **state)
{
	static const char *const bad[] = {
		"\x80",
		"\xff",
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x9f\xbf",
		"\xed\xa0\x80",
		"\xf0\x8f\xbf\xbf",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xc3(",
		"\xe2\x82",
		"\xe2\x82(",
		"\xf0\x9f\x98",
	};
	static const char *const good[] = {"\xc2\x80",        "\xdf\xbf",     "\xe0\xa0\x80",
					   "\xed\x9f\xbf",    "\xee\x80\x80", "\xf0\x90\x80\x80",
					   "\xf4\x8f\xbf\xbf"};
	char json[128];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(json, sizeof(json), "{\"%s\":{}}", bad[i]);
		refuse(json, 0, BAD, "is not valid UTF-8");
	}
	refuse("{\"\xc3", 0, BAD, "is not valid UTF-8"); /* at the very end */
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(json, sizeof(json),
			 "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
			 good[i]);
		accept(json, 1);
		assert_string_equal(st.tensors[0].name, good[i]);
		hr__st_free(&st);
	}
}

static void test_fields(void **state)
{
	refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, BAD, "tensor a has no dtype");
	refuse("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, BAD,
	       "tensor a has no shape");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, BAD, "tensor a has no data_offsets");
	refuse("{\"a\":{}}", 0, BAD, "has no dtype");
	refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	       1, BAD, "a field twice");
	refuse("{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, BAD,
	       "dtype must be a string");
	refuse("{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16,
	       HR_E_BAD_DTYPE, "tensor a has the dtype F128");
	refuse("{\"a\":{\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, HR_E_BAD_DTYPE,
	       "the dtype u8");
	refuse("{\"\\u001b[2J\":{\"dtype\":\"\\u001b\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
	       HR_E_BAD_DTYPE, "tensor ?[2J has the dtype ?,"); /* nothing that steers a terminal */
}

static void test_numbers(void **state)
{
	refuse(SHAPED("[-1]"), 1, BAD, "a dimension is negative");
	refuse(SHAPED("[1.0]"), 1, BAD, "must be written in digits alone, found '.'");
	refuse(SHAPED("[1e2]"), 1, BAD, "must be written in digits alone, found 'e'");
	refuse(SHAPED("[01]"), 1, BAD, "leading zero");
	refuse(SHAPED("[18446744073709551616]"), 1, BAD, "more than 2^64 - 1");
	refuse(SHAPED("[99999999999999999999999999]"), 1, BAD, "more than 2^64 - 1");
	refuse(SHAPED("[NaN]"), 1, BAD, "a dimension must be a number");
	refuse(SHAPED("[\"1\"]"), 1, BAD, "a dimension must be a number");
	refuse(SHAPED("[null]"), 1, BAD, "a dimension must be a number");
	refuse(SHAPED("[true]"), 1, BAD, "a dimension must be a number");
	refuse(SHAPED("[1,]"), 1, BAD, "a comma with nothing behind it");
	refuse(SHAPED("[[1]]"), 1, BAD, "a dimension must be a number");
	refuse(SHAPED("1"), 1, BAD, "'[' of a shape expected");
	refuse(AT("[0]"), 1, BAD, "has 1 numbers, two are needed");
	refuse(AT("[]"), 1, BAD, "has 0 numbers, two are needed");
	refuse(AT("[0,1,2]"), 1, BAD, "more than two numbers");
	refuse(AT("[-1,0]"), 1, BAD, "an offset is negative");
	refuse(AT("[0.0,1]"), 1, BAD, "digits alone");
	refuse(AT("[1,0]"), 1, BAD, "end before they begin");
	refuse(AT("{}"), 1, BAD, "'[' of data_offsets expected");
}

static void test_sizes(void **state)
{
	refuse(SHAPED("[2]"), 1, BAD, "make 2 bytes, its data_offsets 1");
	refuse(SHAPED("[0]"), 1, BAD, "make 0 bytes, its data_offsets 1");
	refuse(SHAPED("[9223372036854775808,2]"), 1, BAD, "more than 2^64 elements");
	refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807],\"data_offsets\":[0,8]}}",
	       8, BAD, "more than 2^64 bits");
	refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, BAD,
	       "do not fill whole bytes");
	refuse("{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, BAD,
	       "do not fill whole bytes");
	refuse(AT("[0,18446744073709551615]"), 1, BAD, "make 1 bytes");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],"
	       "\"data_offsets\":[0,18446744073709551615]}}",
	       1, BAD, "more than 2^64 bits");
}

#define TWO(a, b)                                                                                  \
	"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a                               \
	"},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" b "}}"

static void test_cover(void **state)
{
	accept(TWO("[4,8]", "[0,4]"), 8);
	hr__st_free(&st);
	refuse(TWO("[0,4]", "[5,9]"), 9, BAD, "bytes 4 to 5 before tensor b belong to no tensor");
	refuse(TWO("[1,5]", "[5,9]"), 9, BAD, "bytes 0 to 1 before tensor a");
	refuse(TWO("[0,4]", "[3,7]"), 7, BAD, "tensors a and b overlap at byte 3");
	refuse(TWO("[0,4]", "[0,4]"), 4, BAD, "overlap at byte 0");
	refuse(TWO("[0,4]", "[4,8]"), 7, BAD, "the file 1 bytes before; it was truncated");
	refuse(TWO("[0,4]", "[4,8]"), 9, BAD, "1 bytes follow behind the last tensor");
	refuse("{}", 1, BAD, "1 bytes follow");
	assert_int_equal(parse(TWO("[0,4]", "[4,8]"), 9, true), 0);
	hr__st_free(&st);
	/* lenient is about that alone */
	assert_int_equal(parse(TWO("[0,4]", "[4,8]"), 7, true), -BAD);
	assert_int_equal(parse(TWO("[0,4]", "[5,9]"), 20, true), -BAD);
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	       "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
	       2, BAD, "has the tensor a twice");
}

/* Deep nesting and long input cost neither stack nor time that grows squared. */
static void test_bulk(void **state)
{
	size_t deep = 3000000, at = 0;
	char *json = malloc(deep + 200);

	at += (size_t)sprintf(json, "{\"a\":{\"x\":");
	memset(json + at, '[', deep);
	json[at + deep] = '\0';
	refuse(json, 0, BAD, "more than 64 values inside each other");
	memset(json + 1, ' ', deep);
	json[0] = '{';
	json[deep] = '}';
	json[deep + 1] = '\0';
	accept(json, 0);
	hr__st_free(&st);
	free(json);

	json = malloc(100 * 90000);
	at = (size_t)sprintf(json, "{");
	for (unsigned i = 0; i < 90000; i++)
		at += (size_t)sprintf(
			json + at,
			"%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%u,%u]}",
			i ? "," : "", (i * 7919) % 90000, 2 * i, 2 * i + 2);
	memcpy(json + at, "}", 2);
	accept(json, 180000);
	assert_int_equal(st.n_tensors, 90000);
	assert_string_equal(st.tensors[1].name, "t7919");
	assert_string_equal(st.tensors[st.by_name[0]].name, "t0");
	hr__st_free(&st);
	free(json);
}

/* -- the writer --------------------------------------------------------------------------------- */

static char *built;
static size_t built_len;

static int build(struct hr__st_tensor *t, uint32_t n, const struct hr_save_pair *pairs,
		 uint64_t n_pairs)
{
	return hr__st_build("out", t, n, pairs, n_pairs, &built, &built_len);
}

static void test_build(void **state)
{
	static const uint64_t four[] = {2, 2}, none[] = {0};
	const struct hr_save_pair pair = {"format", "pt"};
	struct hr__st_tensor t[] = {
		{.name = "b", .type = HR_WEIGHT_U8, .shape = four, .ndim = 2, .number = 0},
		{.name = "scalar", .type = HR_WEIGHT_BOOL, .number = 1},
		{.name = "z\n\x01\x7f\"\\",
		 .type = HR_WEIGHT_F32,
		 .shape = four,
		 .ndim = 2,
		 .number = 2},
		{.name = "a", .type = HR_WEIGHT_F32, .shape = none, .ndim = 1, .number = 3},
	};
	static const char wanted[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
		"\"z\\n\\u0001\x7f\\\"\\\\\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":["
		"0,16]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[16,20]},"
		"\"scalar\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[20,21]}}";
	size_t json_len;

	assert_int_equal(build(t, 4, &pair, 1), 0);
	json_len = built_len - 8;
	assert_int_equal(json_len % 8, 0);
	assert_true(json_len - (sizeof(wanted) - 1) < 8);
	assert_int_equal((uint8_t)built[0] | (uint8_t)built[1] << 8, json_len);
	assert_memory_equal(built + 8, wanted, sizeof(wanted) - 1);
	for (size_t i = 8 + sizeof(wanted) - 1; i < built_len; i++)
		assert_int_equal(built[i], ' ');
	assert_int_equal(t[0].number, 3);
	assert_int_equal(t[2].number, 0);
	assert_int_equal(t[2].begin, 16);
	assert_int_equal(hr__st_parse("out", built + 8, json_len, built_len + 21, false, &st), 0);
	assert_int_equal(st.n_tensors, 4);
	assert_string_equal(st.tensors[1].name, "z\n\x01\x7f\"\\");
	hr__st_free(&st);
	free(built);
	assert_int_equal(build(t, 0, NULL, 0), 0);
	assert_int_equal(built_len, 16);
	assert_memory_equal(built + 8, "{}      ", 8);
	free(built);
}

static void refuse_build(struct hr__st_tensor *t, uint32_t n, const struct hr_save_pair *pairs,
			 uint64_t n_pairs, const char *words)
{
	int ret = build(t, n, pairs, n_pairs);

	if (ret != -EINVAL || !strstr(hr_error_detail(), words))
		fail_msg("%s: \"%s\" should have \"%s\"", hr_error_name(ret), hr_error_detail(),
			 words);
}

static void test_build_refusals(void **state)
{
	static const uint64_t odd[] = {3}, huge[] = {1ull << 40, 1ull << 40};
	const struct hr_save_pair bad = {"k", "\xff"}, twice[] = {{"k", ""}, {"j", ""}, {"k", ""}};
	struct hr__st_tensor t[] = {{.name = "a", .type = HR_WEIGHT_U8},
				    {.name = "a", .type = HR_WEIGHT_F32}};
	struct hr__st_tensor one = t[0];

	refuse_build(t, 2, NULL, 0, "the name a is given twice");
	refuse_build(&one, 1, twice, 3, "the name k is given twice");
	refuse_build(&one, 1, &bad, 1, "not valid UTF-8");
	one.name = "\xc3(";
	refuse_build(&one, 1, NULL, 0, "not valid UTF-8");
	one.name = "__metadata__";
	refuse_build(&one, 1, NULL, 0, "taken by the format");
	one = (struct hr__st_tensor){.name = "a", .type = HR_WEIGHT_F4, .shape = odd, .ndim = 1};
	refuse_build(&one, 1, NULL, 0, "whole bytes");
	one = (struct hr__st_tensor){.name = "a", .type = HR_WEIGHT_U8, .shape = huge, .ndim = 2};
	refuse_build(&one, 1, NULL, 0, "2^64 elements");
	one.type = (enum hr_weight_type)77;
	refuse_build(&one, 1, NULL, 0, "unknown type 77");
}

/* -- the index ---------------------------------------------------------------------------------- */

static struct hr__st_index places;

static void refuse_index(const char *json, const char *words)
{
	int ret = hr__st_index_parse("i.json", json, strlen(json), &places);

	if (ret != -BAD || !strstr(hr_error_detail(), words))
		fail_msg("%s: %s, \"%s\" should have \"%s\"", json, hr_error_name(ret),
			 hr_error_detail(), words);
	assert_null(places.places);
}

static void test_index(void **state)
{
	static const char good[] =
		"\n{\"metadata\":{\"total_size\":1.5e3,\"x\":[{}]},"
		"\"weight_map\":{\"b\":\"2.st\",\"a\":\"1.st\"},\"more\":null}\n";

	assert_int_equal(hr__st_index_parse("i", good, sizeof(good) - 1, &places), 0);
	assert_int_equal(places.n_places, 2);
	assert_string_equal(hr__st_index_find(&places, "a"), "1.st");
	assert_string_equal(hr__st_index_find(&places, "b"), "2.st");
	assert_null(hr__st_index_find(&places, "c"));
	hr__st_index_free(&places);
	assert_int_equal(hr__st_index_parse("i", "{\"weight_map\":{}}", 17, &places), 0);
	assert_null(hr__st_index_find(&places, "a"));
	hr__st_index_free(&places);
	refuse_index("", "found the end");
	refuse_index("{}", "has no weight_map");
	refuse_index("{\"weight_map\":{},\"weight_map\":{}}", "weight_map appears twice");
	refuse_index("{\"weight_map\":[]}", "'{' of weight_map expected");
	refuse_index("{\"weight_map\":{\"a\":1}}", "the name of a shard must be a string");
	refuse_index("{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "lists the tensor a twice");
	refuse_index("{\"weight_map\":{\"a\":\"../x\"}}", "no name of a file beside the index");
	refuse_index("{\"weight_map\":{\"a\":\"/x\"}}", "no name of a file beside the index");
	refuse_index("{\"weight_map\":{\"a\":\"..\"}}", "no name of a file beside the index");
	refuse_index("{\"weight_map\":{\"a\":\"\"}}", "no name of a file beside the index");
	refuse_index("{\"weight_map\":{}} x", "something follows");
	refuse_index("{\"metadata\":{\"x\":+1},\"weight_map\":{}}", "a value expected");
	refuse_index("{\"metadata\":{\"x\":1.},\"weight_map\":{}}", "ends with its point");
	refuse_index("{\"metadata\":{\"x\":1e},\"weight_map\":{}}", "empty exponent");
	refuse_index("{\"metadata\":{\"x\":-},\"weight_map\":{}}", "not written as JSON wants it");
	refuse_index("{\"metadata\":{\"x\":00},\"weight_map\":{}}", "not written as JSON wants it");
	refuse_index("{\"metadata\":{\"x\":tru},\"weight_map\":{}}", "a value expected");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),           cmocka_unit_test(test_order_and_scalars),
		cmocka_unit_test(test_types),          cmocka_unit_test(test_names),
		cmocka_unit_test(test_metadata),       cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_json),           cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_fields),         cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_sizes),          cmocka_unit_test(test_cover),
		cmocka_unit_test(test_bulk),           cmocka_unit_test(test_build),
		cmocka_unit_test(test_build_refusals), cmocka_unit_test(test_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

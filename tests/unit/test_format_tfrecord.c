/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_tfrecord - TFRecords in memory: features of Examples found where they lie, payloads of any
 * other kind as a whole, checksums that do not fit, files cut short, and files that are no TFRecords. Every
 * prefix of a file and every change of a byte is opened, as it is and with checksums made good.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "support/index_bytes.h"
#include "support/record_bytes.h"

static const struct hr_dataset_options all_fields;

static int open_records(struct indexed_bytes *x, const struct record_bytes *r,
			const struct hr_dataset_options *opts)
{
	return indexed_bytes_start(x, "data.tfrecord", r->bytes, r->len, &hr__format_tfrecord,
				   opts);
}

static void done(struct indexed_bytes *x, struct record_bytes *r)
{
	indexed_bytes_close(x);
	free(r->bytes);
	*r = (struct record_bytes){.len = 0};
}

static void expect_open(struct indexed_bytes *x, const struct record_bytes *r,
			const struct hr_dataset_options *opts, uint64_t count, uint32_t fields)
{
	int rc = open_records(x, r, opts);

	if (rc < 0)
		fail_msg("refused: %s", hr_error_detail());
	format_check_accepted(x->ff, r->len);
	assert_int_equal(x->ff->schema.count, count);
	assert_int_equal(x->ff->schema.n_fields, fields);
}

static void expect_refusal(struct record_bytes *r, const struct hr_dataset_options *opts, int code,
			   const char *word)
{
	struct indexed_bytes x;

	assert_int_equal(open_records(&x, r, opts), -code);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	done(&x, r);
}

static const struct hr_field *face(const struct indexed_bytes *x, const char *name, uint32_t *k)
{
	*k = indexed_bytes_field(x, name);
	return &x->ff->schema.fields[*k].face;
}

static void check_value(const struct indexed_bytes *x, const struct record_bytes *r, uint64_t i,
			const char *name, const void *bytes, uint64_t len)
{
	struct hr_range range = {0, 0};
	uint32_t k;

	face(x, name, &k);
	assert_int_equal(hr__format_tfrecord.locate(x->ff, i, k, &range), len > 0);
	assert_int_equal(range.len, len);
	assert_memory_equal(r->bytes + range.offset, bytes, len);
}

static void expect_int(const struct indexed_bytes *x, uint64_t i, const char *name, int64_t value)
{
	uint64_t got;
	uint32_t k;

	assert_int_equal(face(x, name, &k)->kind, HR_FIELD_SCALAR);
	assert_int_equal(hr__format_tfrecord.value(x->ff, i, k, &got), 0);
	assert_int_equal((int64_t)got, value);
}

static const char *note_of(const struct indexed_bytes *x, const char *name)
{
	const struct hr__index_info *info = hr__index_info(x->index);

	for (uint32_t k = 0; k < info->n_columns; k++) {
		if (strcmp(info->columns[k].face.name, name) == 0)
			return info->columns[k].note;
	}
	return "";
}

static void expect_bad(const struct indexed_bytes *x, uint64_t row, const char *word)
{
	const struct hr__schema *schema = &x->ff->schema;
	struct hr_range range;

	assert_int_equal(schema->n_bad, 1);
	assert_int_equal(schema->bad[0], row);
	if (!strstr(schema->bad_reason, word))
		fail_msg("\"%s\" lacks \"%s\"", schema->bad_reason, word);
	assert_int_equal(hr__format_tfrecord.locate(x->ff, row, 0, &range), -HR_E_BAD_SAMPLE);
}

/* -- checksums -------------------------------------------------------------------------------- */

/* RFC 3720, B.4, and the two ways against the slow one of the tests. */
static void crc32c(void **state)
{
	uint8_t bytes[300];

	memset(bytes, 0, 32);
	assert_int_equal(hr__crc32c(0, bytes, 32), 0x8a9136aau);
	memset(bytes, 0xff, 32);
	assert_int_equal(hr__crc32c(0, bytes, 32), 0x62a8ab43u);
	assert_int_equal(hr__crc32c(0, "123456789", 9), 0xe3069283u);
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * i + 3);
	for (size_t from = 0; from < 9; from++) {
		for (size_t len = 0; len < 280; len++) {
			uint32_t want = record_crc(bytes + from, len);
			uint32_t half = hr__crc32c(0, bytes + from, len / 2);

			assert_int_equal(hr__crc32c_plain(0, bytes + from, len), want);
			assert_int_equal(hr__crc32c(half, bytes + from + len / 2, len - len / 2),
					 want);
			half = hr__crc32c_plain(0, bytes + from, len / 2);
			assert_int_equal(
				hr__crc32c_plain(half, bytes + from + len / 2, len - len / 2),
				want);
		}
	}
}

/* -- samples ---------------------------------------------------------------------------------- */

static void add_example(struct record_bytes *r, const char *image, int64_t label, float first)
{
	struct record_bytes features = {.len = 0};
	float box[4] = {first, 2, 3, 4}, one = first;

	proto_feature_bytes(&features, "image/encoded", image);
	proto_feature_int(&features, "label", label);
	proto_feature_floats(&features, "box", box, 4);
	proto_feature_floats(&features, "weight", &one, 1);
	proto_feature_bytes(&features, "code", "FOUR");
	record_example(r, &features);
}

static void features_become_fields(void **state)
{
	struct record_bytes r = {.len = 0};
	struct indexed_bytes x;
	float box[4] = {1.5f, 2, 3, 4}, weight = -0.0f;
	uint32_t k;

	add_example(&r, "an image", 7, 1.5f);
	add_example(&r, "a longer image", -1, -0.0f);
	add_example(&r, "", INT64_MIN, 3);
	expect_open(&x, &r, &all_fields, 3, 5);
	assert_int_equal(face(&x, "image/encoded", &k)->kind, HR_FIELD_RAGGED);
	assert_int_equal(face(&x, "image/encoded", &k)->dtype, HR_DTYPE_U8);
	assert_int_equal(face(&x, "box", &k)->kind, HR_FIELD_FIXED);
	assert_int_equal(face(&x, "box", &k)->dtype, HR_DTYPE_F32);
	assert_int_equal(face(&x, "box", &k)->shape[0], 4);
	assert_int_equal(face(&x, "weight", &k)->shape[0], 1);
	assert_int_equal(face(&x, "code", &k)->kind, HR_FIELD_FIXED);
	check_value(&x, &r, 0, "image/encoded", "an image", 8);
	check_value(&x, &r, 1, "image/encoded", "a longer image", 14);
	check_value(&x, &r, 2, "image/encoded", "", 0);
	check_value(&x, &r, 0, "box", box, 16);
	check_value(&x, &r, 1, "weight", &weight, 4);
	check_value(&x, &r, 2, "code", "FOUR", 4);
	expect_int(&x, 0, "label", 7);
	expect_int(&x, 1, "label", -1);
	expect_int(&x, 2, "label", INT64_MIN);
	done(&x, &r);
}

/* The whole record is there for who names it. */
static void records_by_name(void **state)
{
	static const char *const names[] = {"record", "label"};
	struct hr_dataset_options named = {.fields = names, .n_fields = 2};
	struct record_bytes r = {.len = 0};
	struct indexed_bytes x;

	add_example(&r, "an image", 7, 1.5f);
	expect_open(&x, &r, &named, 1, 2);
	check_value(&x, &r, 0, "record", r.bytes + 12, r.len - 16);
	expect_int(&x, 0, "label", 7);
	done(&x, &r);
}

static void other_payloads_are_records(void **state)
{
	struct record_bytes r = {.len = 0}, context = {.len = 0}, sequence = {.len = 0};
	struct indexed_bytes x;

	record_frame(&r, "any bytes", 9);
	record_frame(&r, "", 0);
	/* a SequenceExample: 1 context, 2 lists */
	proto_feature_int(&context, "length", 2);
	proto_message(&sequence, 1, &context);
	proto_bytes(&sequence, 2, "", 0);
	record_frame(&r, sequence.bytes, sequence.len);
	expect_open(&x, &r, &all_fields, 3, 1);
	check_value(&x, &r, 0, "record", "any bytes", 9);
	check_value(&x, &r, 1, "record", "", 0);
	check_value(&x, &r, 2, "record", sequence.bytes, sequence.len);
	assert_int_equal(hr__index_info(x.index)->n_columns, 1);
	free(sequence.bytes);
	done(&x, &r);
	/* all of one length */
	record_frame(&r, "8 bytes.", 8);
	record_frame(&r, "and 8...", 8);
	expect_open(&x, &r, &all_fields, 2, 1);
	assert_int_equal(x.ff->schema.fields[0].face.kind, HR_FIELD_FIXED);
	done(&x, &r);
}

/* Lists that do not lie in one piece are left out; their names and reasons are known. */
static void lists_that_cannot_be_given(void **state)
{
	static const char *const names[] = {"ids"};
	struct hr_dataset_options named = {.fields = names, .n_fields = 1};
	struct record_bytes r = {.len = 0}, features = {.len = 0}, list = {.len = 0};
	struct record_bytes packed = {.len = 0};
	struct indexed_bytes x;
	float value = 1;

	proto_feature_int(&features, "label", 3);
	proto_varint(&packed, 1);
	proto_varint(&packed, 300);
	proto_message(&list, 1, &packed);
	proto_feature(&features, "ids", 3, &list);
	proto_bytes(&list, 1, "a", 1);
	proto_bytes(&list, 1, "b", 1);
	proto_feature(&features, "names", 1, &list);
	for (int i = 0; i < 2; i++) { /* one by one: tag 0x0d */
		*record_grow(&list, 1) = 0x0d;
		record_add(&list, &value, 4);
	}
	proto_feature(&features, "scattered", 2, &list);
	*record_grow(&list, 1) = 0x0d;
	record_add(&list, &value, 4);
	proto_feature(&features, "single", 2, &list);
	*record_grow(&list, 1) = 0x08;
	proto_varint(&list, 99);
	proto_feature(&features, "unpacked", 3, &list);
	proto_feature(&features, "nothing", 3, &list);
	proto_feature_floats(&features, "no floats", &value, 0);
	record_example(&r, &features);
	expect_open(&x, &r, &all_fields, 1, 4);
	expect_int(&x, 0, "label", 3);
	expect_int(&x, 0, "unpacked", 99);
	check_value(&x, &r, 0, "single", &value, 4);
	check_value(&x, &r, 0, "no floats", "", 0);
	assert_non_null(strstr(note_of(&x, "ids"), "several integers"));
	assert_non_null(strstr(note_of(&x, "names"), "several byte strings"));
	assert_non_null(strstr(note_of(&x, "scattered"), "not packed"));
	indexed_bytes_close(&x);
	expect_refusal(&r, &named, EINVAL, "\"ids\" that can be read: several integers");
}

/* A name whose values are of two kinds. */
static void kinds_that_change(void **state)
{
	struct record_bytes r = {.len = 0}, features = {.len = 0};
	struct indexed_bytes x;
	float value = 2;

	proto_feature_int(&features, "label", 1);
	proto_feature_floats(&features, "x", &value, 1);
	proto_feature_int(&features, "y", 1);
	record_example(&r, &features);
	proto_feature_int(&features, "label", 2);
	proto_feature_bytes(&features, "x", "bytes now");
	proto_feature_floats(&features, "y", &value, 1);
	record_example(&r, &features);
	record_frame(&r, "no Example", 10);
	proto_feature_int(&features, "label", 4);
	record_example(&r, &features);
	expect_open(&x, &r, &all_fields, 4, 1);
	assert_string_equal(x.ff->schema.fields[0].face.name, "record");
	assert_non_null(strstr(note_of(&x, "x"), "floats in some records and bytes in others"));
	assert_non_null(strstr(hr__index_info(x.index)->notes, "1 of 4 records are no whole"));
	done(&x, &r);
}

/* Two features of one name in a message: the last counts, as for every map. */
static void names_that_come_twice(void **state)
{
	struct record_bytes r = {.len = 0}, features = {.len = 0};
	struct indexed_bytes x;

	proto_feature_int(&features, "label", 1);
	proto_feature_int(&features, "label", 2);
	record_example(&r, &features);
	expect_open(&x, &r, &all_fields, 1, 1);
	expect_int(&x, 0, "label", 2);
	done(&x, &r);
}

/* Records larger than what is seen at once, and one that is not there. */
static void large_records(void **state)
{
	struct record_bytes r = {.len = 0}, features = {.len = 0};
	struct indexed_bytes x;
	char *text = malloc((3 << 20) + 1);
	uint64_t huge[] = {1ull << 33, UINT64_MAX, UINT64_MAX - 15};

	memset(text, 'T', 3 << 20);
	for (size_t size = 3 << 20; size > 1000; size = size / 3 * 2) {
		text[size] = '\0';
		proto_feature_bytes(&features, "image", text);
		proto_feature_int(&features, "label", (int64_t)size);
		record_example(&r, &features);
	}
	expect_open(&x, &r, &all_fields, 20, 2);
	memset(text, 'T', 3 << 20);
	check_value(&x, &r, 0, "image", text, 3 << 20);
	expect_int(&x, 1, "label", 2 << 20);
	assert_int_equal(x.bytes.progress, r.len);
	assert_int_equal(x.bytes.samples, 20);
	free(text);
	done(&x, &r);
	for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
		record_frame(&r, "one", 3);
		record_frame(&r, "two", 3);
		record_put(r.bytes + r.last, huge[i], 8);
		record_put_crc(r.bytes + r.last + 8, r.bytes + r.last, 8);
		expect_open(&x, &r, &all_fields, 2, 1);
		expect_bad(&x, 1, "byte 19: the file ends inside a record");
		done(&x, &r);
	}
}

/* A record of more than 4 GiB: a hole, so that its checksum is that of zeros. */
static void more_than_4_gib_are_reckoned(void **state)
{
	struct record_bytes r = {.len = 0};
	struct indexed_bytes x = {.all = {.n_files = 0}};
	uint64_t len = (1ull << 32) + 5;

	record_frame(&r, "", 0);
	record_put(r.bytes, len, 8);
	record_put_crc(r.bytes + 8, r.bytes, 8);
	/* As if it were there, but with an end that has no checksum: one damaged sample, read whole. */
	format_bytes_add(&x.all, "data.tfrecord", r.bytes, 12, 16 + len);
	assert_int_equal(indexed_bytes_open(&x, &hr__format_tfrecord, &all_fields),
			 -HR_E_BAD_SAMPLE);
	assert_non_null(strstr(hr_error_detail(), "4294967301 bytes of record 0"));
	indexed_bytes_close(&x);
	free(r.bytes);
}

/* -- damage ----------------------------------------------------------------------------------- */

static void checksums_that_do_not_fit(void **state)
{
	struct record_bytes r = {.len = 0};
	struct indexed_bytes x;

	add_example(&r, "an image", 7, 1.5f);
	add_example(&r, "another", 8, 1.5f);
	r.bytes[r.last + 20] ^= 0x10;
	add_example(&r, "the last", 9, 1.5f);
	expect_open(&x, &r, &all_fields, 3, 5);
	expect_bad(&x, 1, "of record 1 do not have their checksum");
	check_value(&x, &r, 2, "image/encoded", "the last", 8);
	indexed_bytes_close(&x);
	/* a length that is wrong: what follows has no beginning */
	r.bytes[r.last + 1] ^= 1;
	expect_open(&x, &r, &all_fields, 3, 5);
	assert_int_equal(x.ff->schema.n_bad, 2);
	indexed_bytes_close(&x);
	r.bytes[0] ^= 1;
	expect_refusal(&r, &all_fields, HR_E_BAD_FORMAT, "byte 0: no TFRecord");
}

static void files_that_were_cut_short(void **state)
{
	struct record_bytes r = {.len = 0};
	struct indexed_bytes x;
	uint64_t len;

	record_frame(&r, "first", 5);
	len = r.len;
	record_frame(&r, "second", 6);
	for (uint64_t cut = len + 1; cut < r.len; cut++) {
		struct record_bytes part = {r.bytes, cut, 0};

		expect_open(&x, &part, &all_fields, 2, 1);
		expect_bad(&x, 1, "byte 21: the file ends inside");
		check_value(&x, &part, 0, "record", "first", 5);
		indexed_bytes_close(&x);
	}
	r.len = 15;
	expect_refusal(&r, &all_fields, HR_E_BAD_SAMPLE, "byte 0: the file ends inside a record");
}

static void files_that_are_no_tfrecords(void **state)
{
	static const struct {
		const char *head;
		size_t len;
		const char *word;
	} cases[] = {
		{"version https://git-lfs.github.com/spec/v1\n", 43, "git-lfs pointer"},
		{"<!DOCTYPE html><html>", 21, "web page"},
		{"\x1f\x8b\x08\0\0\0\0\0\0\x03", 10, "gzip"},
		{"\x78\x9c", 2, "zlib"},
		{"\x78\x01", 2, "zlib"},
		{"\0", 1, "begins with zeros"},
		{"anything", 8, "no TFRecord"},
	};
	struct record_bytes r = {.len = 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char head[1500] = {0};

		memcpy(head, cases[i].head, cases[i].len);
		record_add(&r, head, sizeof(head));
		expect_refusal(&r, &all_fields, HR_E_BAD_FORMAT, cases[i].word);
	}
	expect_refusal(&r, &all_fields, HR_E_EMPTY_FILE, "empty");
}

static void probes(void **state)
{
	struct record_bytes r = {.len = 0};

	record_frame(&r, "0123456789", 10);
	assert_int_equal(hr__format_tfrecord.probe(r.bytes, r.len, r.len), 100);
	assert_ptr_equal(hr__format_find("auto", r.bytes, r.len, r.len), &hr__format_tfrecord);
	assert_int_equal(hr__format_tfrecord.probe(r.bytes, 11, 11), 0);
	r.bytes[3] ^= 1;
	assert_int_equal(hr__format_tfrecord.probe(r.bytes, r.len, r.len), 0);
	free(r.bytes);
}

/* -- hostile ---------------------------------------------------------------------------------- */

static int try_bytes(const uint8_t *bytes, uint64_t len)
{
	struct format_bytes all = {.n_files = 0};

	format_bytes_add(&all, "data.tfrecord", bytes, len, len);
	return indexed_bytes_try(&all, &hr__format_tfrecord, &all_fields);
}

static void every_prefix_and_every_byte(void **state)
{
	struct record_bytes r = {.len = 0};

	add_example(&r, "an image", 7, 1.5f);
	add_example(&r, "other", 1 << 20, 2);
	for (uint64_t len = 0; len <= r.len; len++) {
		uint8_t *copy = malloc(len + 1);

		memcpy(copy, r.bytes, len);
		try_bytes(copy, len);
		free(copy);
	}
	for (uint64_t i = 0; i < r.len; i++) {
		uint8_t old = r.bytes[i];

		for (int v = 0; v < 256; v += i < r.last ? 3 : 51) {
			uint64_t first = r.last - 16;

			r.bytes[i] = (uint8_t)v;
			try_bytes(r.bytes, r.len);
			if (i < 12 || i >= 12 + first)
				continue;
			record_put_crc(r.bytes + 12 + first, r.bytes + 12, first);
			assert_int_equal(try_bytes(r.bytes, r.len), 0);
		}
		r.bytes[i] = old;
	}
	free(r.bytes);
}

/* The walk alone: every prefix and every change of a payload, with its checksum. */
static void every_payload(void **state)
{
	struct record_bytes r = {.len = 0};
	uint64_t len;

	add_example(&r, "an image", 7, 1.5f);
	len = r.len - 16;
	for (uint64_t cut = 0; cut <= len; cut++) {
		struct record_bytes part = {.len = 0};

		record_frame(&part, r.bytes + 12, cut);
		assert_int_equal(try_bytes(part.bytes, part.len), 0);
		free(part.bytes);
	}
	free(r.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc32c),
		cmocka_unit_test(features_become_fields),
		cmocka_unit_test(records_by_name),
		cmocka_unit_test(other_payloads_are_records),
		cmocka_unit_test(lists_that_cannot_be_given),
		cmocka_unit_test(kinds_that_change),
		cmocka_unit_test(names_that_come_twice),
		cmocka_unit_test(large_records),
		cmocka_unit_test(more_than_4_gib_are_reckoned),
		cmocka_unit_test(checksums_that_do_not_fit),
		cmocka_unit_test(files_that_were_cut_short),
		cmocka_unit_test(files_that_are_no_tfrecords),
		cmocka_unit_test(probes),
		cmocka_unit_test(every_prefix_and_every_byte),
		cmocka_unit_test(every_payload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_safetensors_rows - rows of tensors as samples, over bytes in memory: where each row lies,
 * which tensors go together, every refusal, every prefix and every changed byte of a header.
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

struct made {
	uint8_t bytes[4096];
	uint64_t len, data;
};

/* @data: bytes behind the header. */
static void make(struct made *m, const char *json, uint64_t data)
{
	uint64_t n = strlen(json);

	memset(m, 0, sizeof(*m));
	for (int i = 0; i < 8; i++)
		m->bytes[i] = (uint8_t)(n >> (8 * i));
	memcpy(m->bytes + 8, json, n);
	m->data = 8 + n;
	m->len = m->data + data;
	assert_true(m->len <= sizeof(m->bytes));
}

#define TENSOR(name, type, shape, begin, end)                                                      \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin        \
	"," end "]}"

/* Three rows: y 8 bytes, x 2 x 2 f32, m 3 bytes. */
#define ROWS                                                                                       \
	"{" TENSOR("y", "I64", "[3]", "0", "24") "," TENSOR(                                       \
		"x", "F32", "[3,2,2]", "24", "72") "," TENSOR("m", "U8", "[3,3]", "72", "81") "}"

static const struct hr_dataset_options named = {.format = "safetensors"};

static struct hr__format_file *expect_open(const struct made *m,
					   const struct hr_dataset_options *opts)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	format_bytes_add(&all, "x.safetensors", m->bytes, m->len, 0);
	if (format_bytes_open(&all, &hr__format_safetensors, opts, &ff) != 0)
		fail_msg("%s", hr_error_detail());
	format_check_accepted(ff, m->len);
	return ff;
}

static void expect_refusal(const struct made *m, const struct hr_dataset_options *opts, int code,
			   const char *word)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = (void *)0x1;

	hr__fail_set(EIO, "");
	format_bytes_add(&all, "x.safetensors", m->bytes, m->len, 0);
	assert_int_equal(format_bytes_open(&all, &hr__format_safetensors, opts, &ff), -code);
	assert_ptr_equal(ff, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	assert_non_null(strstr(hr_error_detail(), "x.safetensors"));
}

static void rows_of_tensors(void **state)
{
	struct hr__format_file *ff;
	struct hr_range range;
	struct made m;

	make(&m, ROWS, 81);
	ff = expect_open(&m, &named);
	assert_int_equal(ff->schema.count, 3);
	assert_int_equal(ff->schema.n_fields, 3); /* by name: m, x, y */
	assert_string_equal(ff->schema.fields[0].face.name, "m");
	assert_int_equal(ff->schema.fields[1].face.dtype, HR_DTYPE_F32);
	assert_int_equal(ff->schema.fields[1].face.ndim, 2);
	assert_int_equal(ff->schema.fields[1].face.shape[1], 2);
	assert_int_equal(ff->schema.fields[2].face.ndim, 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(ff->ops->locate(ff, i, 0, &range), 1);
		assert_int_equal(range.offset, m.data + 72 + 3 * i);
		assert_int_equal(range.len, 3);
		assert_int_equal(ff->ops->locate(ff, i, 1, &range), 1);
		assert_int_equal(range.offset, m.data + 24 + 16 * i);
		assert_int_equal(range.len, 16);
		assert_int_equal(ff->ops->locate(ff, i, 2, &range), 1);
		assert_int_equal(range.offset, m.data + 8 * i);
	}
	assert_int_equal(ff->ops->locate(ff, 3, 0, &range), -EINVAL);
	assert_int_equal(ff->ops->locate(ff, 0, 3, &range), -EINVAL);
	ff->ops->close(ff);
}

static void tensors_that_go_together(void **state)
{
	static const char *const x[] = {"x"}, *const w[] = {"w"}, *const s[] = {"s"},
				 *const none[] = {"q"};
	struct hr_dataset_options opts = named;
	struct hr__format_file *ff;
	struct made m;

	make(&m,
	     "{" TENSOR("s", "F64", "[]", "0", "8") "," TENSOR(
		     "w", "F32", "[2]", "8", "16") "," TENSOR("x", "F32", "[3]", "16",
							      "28") "," TENSOR("e", "U8", "[3,0]",
									       "28", "28") "}",
	     28);
	expect_refusal(&m, &opts, EINVAL, "tensor w has 2 rows, x has 3");
	opts.n_fields = 1;
	opts.fields = x;
	ff = expect_open(&m, &opts);
	assert_int_equal(ff->schema.count, 3);
	ff->ops->close(ff);
	opts.fields = w;
	ff = expect_open(&m, &opts);
	assert_int_equal(ff->schema.count, 2);
	ff->ops->close(ff);
	opts.fields = s;
	expect_refusal(&m, &opts, EINVAL, "s is one number");
	opts.fields = none;
	expect_refusal(&m, &opts, EINVAL, "no field \"q\"");
	opts.fields = (const char *const[]){"e"};
	expect_refusal(&m, &opts, EINVAL, "without a byte");
}

static void refusals(void **state)
{
	static const struct hr_dataset_options none, automatic = {.format = "auto"};
	struct hr__format_file *ff;
	struct made m;

	make(&m, ROWS, 81);
	expect_refusal(&m, &none, HR_E_UNKNOWN_FORMAT, "say format safetensors");
	expect_refusal(&m, &automatic, HR_E_UNKNOWN_FORMAT, "say format safetensors");
	make(&m, ROWS, 80);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "truncated");
	make(&m, ROWS, 82);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "behind the last tensor");
	make(&m, "{}", 0);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "no tensor with rows");
	make(&m, "{" TENSOR("x", "F4", "[2,2]", "0", "2") "}", 2);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "no tensor with rows");
	make(&m, "{" TENSOR("x", "U8", "[1,1,1,1,1,1,1,1,2]", "0", "2") "}", 2);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "no tensor with rows");
	make(&m, "{" TENSOR("x", "U8", "[0,4294967296,4294967296]", "0", "0") "}", 0);
	expect_refusal(&m, &named, HR_E_BAD_FORMAT, "no tensor with rows");
	m.len = 0;
	expect_refusal(&m, &named, HR_E_EMPTY_FILE, "empty");
	make(&m, "{" TENSOR("x", "U8", "[0,4]", "0", "0") "}", 0);
	ff = expect_open(&m, &named); /* of no rows: the dataset refuses it */
	assert_int_equal(ff->schema.count, 0);
	ff->ops->close(ff);
}

static void prefixes_and_changes(void **state)
{
	uint32_t accepted = 0;
	struct made m;

	make(&m, ROWS, 81);
	for (uint64_t len = 0; len < m.len; len++) {
		struct format_bytes all = {.n_files = 0};
		uint8_t *exact = malloc(len ? len : 1);

		assert_non_null(exact);
		memcpy(exact, m.bytes, len);
		format_bytes_add(&all, "x.safetensors", exact, len, 0);
		assert_true(format_bytes_try(&all, &hr__format_safetensors, &named) < 0);
		free(exact);
	}
	for (uint64_t at = 0; at < m.data; at++) {
		for (uint32_t change = 1; change < 256; change++) {
			struct format_bytes all = {.n_files = 0};

			m.bytes[at] ^= (uint8_t)change;
			format_bytes_add(&all, "x.safetensors", m.bytes, m.len, 0);
			accepted += format_bytes_try(&all, &hr__format_safetensors, &named) == 0;
			m.bytes[at] ^= (uint8_t)change;
		}
	}
	assert_true(accepted > 0); /* letters of names */
}

static void probing(void **state)
{
	struct made m;

	make(&m, ROWS, 81);
	assert_ptr_equal(hr__format_find("auto", m.bytes, m.len, m.len), &hr__format_safetensors);
	m.bytes[8] = '[';
	assert_int_equal(hr__format_safetensors.probe(m.bytes, m.len, m.len), 0);
	make(&m, ROWS, 81);
	assert_int_equal(hr__format_safetensors.probe(m.bytes, 9, m.len), 0);
	assert_int_equal(hr__format_safetensors.probe(m.bytes, m.len, 20), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_tensors), cmocka_unit_test(tensors_that_go_together),
		cmocka_unit_test(refusals),        cmocka_unit_test(prefixes_and_changes),
		cmocka_unit_test(probing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

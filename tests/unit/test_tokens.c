/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tokens - the tokens format over bytes in memory: both forms, every refusal with its code and
 * the numbers in its sentence, the windows at the ends, and the files that people pass by mistake.
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

static int open_bytes(struct format_bytes *all, unsigned char *bytes, uint64_t size,
		      const struct hr_dataset_options *opts, struct hr__format_file **out)
{
	format_bytes_add(all, "data.bin", bytes, size, size);
	return format_bytes_open(all, &hr__format_tokens, opts, out);
}

static void put_le32(unsigned char *p, uint32_t v)
{
	p[0] = (unsigned char)v;
	p[1] = (unsigned char)(v >> 8);
	p[2] = (unsigned char)(v >> 16);
	p[3] = (unsigned char)(v >> 24);
}

/* A buffer of exactly @size bytes, so that the address sanitizer sees a read beyond it. */
static unsigned char *make_bytes(size_t size)
{
	unsigned char *bytes = malloc(size ? size : 1);

	assert_non_null(bytes);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(i * 7 + 3);
	return bytes;
}

static unsigned char *make_llmc(uint32_t magic, uint32_t version, uint32_t count, size_t data)
{
	unsigned char *bytes = make_bytes(1024 + data);

	memset(bytes, 0, 1024);
	put_le32(bytes, magic);
	put_le32(bytes + 4, version);
	put_le32(bytes + 8, count);
	return bytes;
}

static void expect_refusal(unsigned char *bytes, uint64_t size,
			   const struct hr_dataset_options *opts, int code, const char *word)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = (void *)0x1;

	hr__fail_set(EIO, "");
	assert_int_equal(open_bytes(&all, bytes, size, opts, &ff), -code);
	assert_ptr_equal(ff, (void *)0x1);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	free(bytes);
}

static struct hr__format_file *expect_open(unsigned char *bytes, uint64_t size,
					   const struct hr_dataset_options *opts)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	assert_int_equal(open_bytes(&all, bytes, size, opts, &ff), 0);
	assert_non_null(ff);
	assert_true(all.files[0].highest <= 1024);
	format_check_accepted(ff, size);
	free(bytes);
	return ff;
}

static void check_windows(const struct hr__format_file *ff, uint64_t data_off, uint32_t element,
			  uint64_t ntok, uint64_t window, uint64_t stride)
{
	uint64_t count = ff->schema.count;
	struct hr_range range;

	assert_true(ff->schema.windows);
	assert_int_equal(ff->schema.fields[0].face.shape[0], window);
	assert_int_equal(ff->schema.fields[0].face.bytes, window * element);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(hr__format_tokens.locate(ff, i, 0, &range), 1);
		assert_int_equal(range.offset, data_off + i * stride * element);
		assert_int_equal(range.len, window * element);
		assert_true(range.offset + range.len <= data_off + ntok * element);
	}
	/* one more window would not fit */
	assert_true(count * stride + window > ntok);
	assert_int_equal(hr__format_tokens.locate(ff, count, 0, &range), -EINVAL);
	assert_int_equal(hr__format_tokens.locate(ff, UINT64_MAX, 0, &range), -EINVAL);
}

static void windows_of_plain_files(void **state)
{
	static const struct {
		uint64_t ntok;
		uint32_t seq_len;
		uint64_t stride, count;
	} cases[] = {
		{2, 1, 0, 1},    {3, 1, 0, 2},    {9, 8, 0, 1},          {16, 8, 0, 1},
		{17, 8, 0, 2},   {100, 8, 1, 92}, {100, 8, 9, 11},       {100, 8, 91, 2},
		{100, 8, 92, 1}, {100, 99, 0, 1}, {100, 8, 1u << 30, 1},
	};
	static const enum hr_dtype types[] = {0, HR_DTYPE_U16, HR_DTYPE_U32};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t t = 0; t < 3; t++) {
			uint32_t element = types[t] == HR_DTYPE_U32 ? 4 : 2;
			uint64_t size = cases[i].ntok * element;
			struct hr_dataset_options opts = {.dtype = types[t],
							  .seq_len = cases[i].seq_len,
							  .stride = cases[i].stride};
			struct hr__format_file *ff = expect_open(make_bytes(size), size, &opts);

			assert_int_equal(ff->schema.count, cases[i].count);
			assert_int_equal(ff->schema.fields[0].face.dtype,
					 element == 4 ? HR_DTYPE_U32 : HR_DTYPE_U16);
			check_windows(ff, 0, element, cases[i].ntok, cases[i].seq_len + 1u,
				      cases[i].stride ? cases[i].stride : cases[i].seq_len);
			hr__format_tokens.close(ff);
		}
	}
}

static void llmc_headers(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 4};
	struct hr__format_file *ff;

	ff = expect_open(make_llmc(20240520, 1, 21, 42), 1024 + 42, &opts);
	assert_int_equal(ff->schema.fields[0].face.dtype, HR_DTYPE_U16);
	assert_int_equal(ff->schema.count, 5);
	check_windows(ff, 1024, 2, 21, 5, 4);
	hr__format_tokens.close(ff);

	opts.dtype = HR_DTYPE_U32;
	ff = expect_open(make_llmc(20240801, 7, 21, 84), 1024 + 84, &opts);
	assert_int_equal(ff->schema.fields[0].face.dtype, HR_DTYPE_U32);
	check_windows(ff, 1024, 4, 21, 5, 4);
	hr__format_tokens.close(ff);
}

static void llmc_refusals(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 4};
	struct hr_dataset_options u16 = {.seq_len = 4, .dtype = HR_DTYPE_U16};

	expect_refusal(make_llmc(20240520, 2, 21, 42), 1066, &opts, HR_E_BAD_FORMAT, "version 2");
	expect_refusal(make_llmc(20240520, 1, 21, 40), 1064, &opts, HR_E_BAD_FORMAT, "21 tokens");
	expect_refusal(make_llmc(20240520, 1, 21, 44), 1068, &opts, HR_E_BAD_FORMAT, "44 bytes");
	expect_refusal(make_llmc(20240520, 1, 0xffffffff, 42), 1066, &opts, HR_E_BAD_FORMAT,
		       "4294967295");
	expect_refusal(make_llmc(20240520, 1, 0, 0), 1024, &opts, HR_E_TOO_SHORT, "0 tokens");
	expect_refusal(make_llmc(20240520, 1, 4, 8), 1032, &opts, HR_E_TOO_SHORT, "needs 5");
	expect_refusal(make_llmc(20240801, 7, 21, 84), 1108, &u16, HR_E_BAD_DTYPE, "says u32");
	expect_refusal(make_llmc(20240520, 1, 21, 42), 700, &opts, HR_E_BAD_FORMAT, "truncated");
	expect_refusal(make_llmc(20240522, 1, 21, 42), 1066, &opts, HR_E_BAD_FORMAT, "evaluation");
}

static void plain_refusals(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 4};
	struct hr_dataset_options u32 = {.seq_len = 4, .dtype = HR_DTYPE_U32};
	struct hr_dataset_options none = {.seq_len = 0};
	struct hr_dataset_options huge = {.seq_len = (1u << 24) + 1};
	struct hr_dataset_options i64 = {.seq_len = 4, .dtype = HR_DTYPE_I64};
	struct hr_dataset_options far = {.seq_len = 4, .stride = UINT64_MAX};

	expect_refusal(make_bytes(0), 0, &opts, HR_E_EMPTY_FILE, "empty");
	expect_refusal(make_bytes(1), 1, &opts, HR_E_BAD_FORMAT, "1 left over");
	expect_refusal(make_bytes(101), 101, &opts, HR_E_BAD_FORMAT, "truncated");
	expect_refusal(make_bytes(102), 102, &u32, HR_E_BAD_FORMAT, "dtype is u16");
	expect_refusal(make_bytes(103), 103, &u32, HR_E_BAD_FORMAT, "3 left over");
	expect_refusal(make_bytes(8), 8, &opts, HR_E_TOO_SHORT, "holds 4 tokens");
	expect_refusal(make_bytes(16), 16, &u32, HR_E_TOO_SHORT, "needs 5");
	expect_refusal(make_bytes(100), 100, &none, EINVAL, "seq_len 0");
	expect_refusal(make_bytes(100), 100, &huge, EINVAL, "16777217");
	expect_refusal(make_bytes(100), 100, &i64, HR_E_BAD_DTYPE, "i64");
	expect_refusal(make_bytes(100), 100, &far, EINVAL, "stride");
}

static void read_errors_pass_through(void **state)
{
	struct hr_dataset_options opts = {.seq_len = 4};
	unsigned char *bytes = make_bytes(100);
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	format_bytes_add(&all, "data.bin", bytes, 100, 100)->fail_with = EIO;
	assert_int_equal(format_bytes_open(&all, &hr__format_tokens, &opts, &ff), -EIO);
	assert_null(ff);
	free(bytes);
}

static void foreign_files(void **state)
{
#define FOREIGN(text, word)                                                                        \
	{                                                                                          \
		text, sizeof(text) - 1, word                                                       \
	}
	static const struct {
		const char *head;
		size_t len;
		const char *word;
	} cases[] = {
		FOREIGN("version https://git-lfs.github.com/spec/v1\noid sha256:", "git lfs pull"),
		FOREIGN("<!DOCTYPE html><html>", "web page"),
		FOREIGN("\xef\xbb\xbf \r\n\t<HTML lang=en>", "web page"),
		FOREIGN("\x93NUMPY\x01\x00v\x00", "tofile"),
		FOREIGN("PK\x03\x04\x14\x00", "zip"),
		FOREIGN("\x1f\x8b\x08\x00\0\0\0\0\x02\x03", "gzip"),
		FOREIGN("\x28\xb5\x2f\xfd", "zstd"),
		FOREIGN("MMIDIDX\0\0\x01", "Megatron"),
	};
	struct hr_dataset_options opts = {.seq_len = 1};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char *bytes = make_bytes(200);

		memcpy(bytes, cases[i].head, cases[i].len);
		/* never taken for tokens; some are another format's */
		assert_ptr_not_equal(hr__format_find("auto", bytes, 200, 200), &hr__format_tokens);
		assert_ptr_not_equal(hr__format_find(NULL, bytes, 200, 200), &hr__format_tokens);
		/* asked for by name it is refused all the same, also when only the mark is there */
		expect_refusal(bytes, 200, &opts, HR_E_BAD_FORMAT, cases[i].word);
		bytes = make_bytes(cases[i].len);
		memcpy(bytes, cases[i].head, cases[i].len);
		expect_refusal(bytes, cases[i].len, &opts, HR_E_BAD_FORMAT, cases[i].word);
	}
	/* two bytes of gzip's mark are also two ordinary bytes of a token */
	assert_null(hr__format_foreign("\x1f\x8b\x01\x00\0\0\0\0\x02\x03", 10));
	assert_null(hr__format_foreign("\x1f\x8b\x08", 3));
	assert_null(hr__format_foreign("", 0));
}

static void found_by_name_or_by_magic(void **state)
{
	unsigned char *llmc = make_llmc(20240520, 1, 21, 42);

	assert_ptr_equal(hr__format_find("tokens", "", 0, 0), &hr__format_tokens);
	assert_ptr_equal(hr__format_find("auto", llmc, 1024, 1066), &hr__format_tokens);
	assert_ptr_equal(hr__format_find(NULL, "\x01\x02", 2, 2), &hr__format_tokens);
	assert_null(hr__format_find("parquet", llmc, 1024, 1066));
	assert_int_equal(hr__format_tokens.probe(llmc, 1024, 1066), 100);
	assert_true(hr__format_tokens.probe("\x01\x02", 2, 2) < 50);
	free(llmc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_of_plain_files),
		cmocka_unit_test(llmc_headers),
		cmocka_unit_test(llmc_refusals),
		cmocka_unit_test(plain_refusals),
		cmocka_unit_test(read_errors_pass_through),
		cmocka_unit_test(foreign_files),
		cmocka_unit_test(found_by_name_or_by_magic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

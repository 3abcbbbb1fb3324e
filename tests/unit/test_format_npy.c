/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_npy - heads of .npy arrays and directories of stored .npz archives, built here byte by byte:
 * where each row lies, every refusal with its words, and what becomes of files cut off at every byte or
 * with any one byte changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"
#include "support/format_bytes.h"

#define ROOM 4096u

/* Bytes under construction. */
struct blob {
	uint8_t bytes[ROOM];
	size_t len;
};

static void put(struct blob *b, const void *bytes, size_t len)
{
	assert_true(len <= ROOM - b->len);
	memcpy(b->bytes + b->len, bytes, len);
	b->len += len;
}

static void put_le(struct blob *b, uint64_t value, size_t len)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	put(b, bytes, len);
}

/* Data are 1, 2, 3, ...: never what a hole is. */
static void put_data(struct blob *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		put_le(b, i % 255 + 1, 1);
}

static void put_npy(struct blob *b, int version, const char *dict, size_t data)
{
	put(b, "\x93NUMPY", 6);
	put_le(b, (uint64_t)version, 1);
	put_le(b, 0, 1);
	put_le(b, strlen(dict), version == 1 ? 2 : 4);
	put(b, dict, strlen(dict));
	put_data(b, data);
}

#define DICT(descr, shape)                                                                         \
	"{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }    \n"

static struct hr__format_file *expect_open(const struct blob *b,
					   const struct hr_dataset_options *opts)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;
	int rc;

	format_bytes_add(&all, "x.npy", b->bytes, b->len, 0);
	rc = format_bytes_open(&all, &hr__format_npy, opts, &ff);
	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	format_check_accepted(ff, b->len);
	return ff;
}

static void expect_refusal(const struct blob *b, const struct hr_dataset_options *opts, int code,
			   const char *words)
{
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;

	format_bytes_add(&all, "x.npy", b->bytes, b->len, 0);
	hr__fail_set(EIO, "");
	assert_int_equal(format_bytes_open(&all, &hr__format_npy, opts, &ff), -code);
	assert_null(ff);
	if (!strstr(hr_error_detail(), words) || !strstr(hr_error_detail(), "x.npy"))
		fail_msg("\"%s\" is not in: %s", words, hr_error_detail());
}

static void refuse_dict(const char *dict, size_t data, int code, const char *words)
{
	struct hr_dataset_options opts = {0};
	struct blob b = {.len = 0};

	put_npy(&b, 1, dict, data);
	expect_refusal(&b, &opts, code, words);
}

static void check_row(const struct hr__format_file *ff, uint64_t index, uint32_t field,
		      uint64_t offset, uint64_t len)
{
	struct hr_range range = {UINT64_MAX, UINT64_MAX};

	assert_int_equal(ff->ops->locate(ff, index, field, &range), 1);
	assert_int_equal(range.offset, offset);
	assert_int_equal(range.len, len);
}

/* -- .npy ------------------------------------------------------------------------------------ */

static void rows_of_every_type(void **state)
{
	static const struct {
		const char *descr;
		enum hr_dtype dtype;
	} types[] = {
		{"|b1", HR_DTYPE_BOOL}, {"|i1", HR_DTYPE_I8},  {"|u1", HR_DTYPE_U8},
		{"<i2", HR_DTYPE_I16},  {"<u2", HR_DTYPE_U16}, {"<i4", HR_DTYPE_I32},
		{"<u4", HR_DTYPE_U32},  {"<i8", HR_DTYPE_I64}, {"<u8", HR_DTYPE_U64},
		{"<f2", HR_DTYPE_F16},  {"<f4", HR_DTYPE_F32}, {"<f8", HR_DTYPE_F64},
		{"<V2", HR_DTYPE_BF16}, {"<u1", HR_DTYPE_U8},  {">i1", HR_DTYPE_I8},
	};

	for (size_t i = 0; i < HR_ARRAY_LEN(types); i++) {
		for (int version = 1; version <= 3; version++) {
			uint64_t element = hr_dtype_size(types[i].dtype);
			struct hr_dataset_options opts = {.dtype = types[i].dtype};
			struct blob b = {.len = 0};
			struct hr__format_file *ff;
			char dict[128];
			size_t head;

			snprintf(dict, sizeof(dict), DICT("%s", "(5, 2, 3)"), types[i].descr);
			head = strlen(dict) + (version == 1 ? 10 : 12);
			put_npy(&b, version, dict, 30 * element);
			ff = expect_open(&b, &opts);
			assert_int_equal(ff->schema.count, 5);
			assert_int_equal(ff->schema.n_fields, 1);
			assert_string_equal(ff->schema.fields[0].face.name, "data");
			assert_int_equal(ff->schema.fields[0].face.dtype, types[i].dtype);
			assert_int_equal(ff->schema.fields[0].face.ndim, 2);
			assert_int_equal(ff->schema.fields[0].face.shape[0], 2);
			assert_int_equal(ff->schema.fields[0].face.shape[1], 3);
			for (uint64_t row = 0; row < 5; row++)
				check_row(ff, row, 0, head + row * 6 * element, 6 * element);
			assert_int_equal(ff->ops->locate(ff, 5, 0, NULL), -EINVAL);
			assert_int_equal(ff->ops->locate(ff, 0, 1, NULL), -EINVAL);
			ff->ops->close(ff);
		}
	}
}

static void heads_as_others_write_them(void **state)
{
	static const char *const dicts[] = {
		"{'descr':'<f4','fortran_order':False,'shape':(4,)}",
		"{\"shape\": (4,), \"descr\": \"<f4\", \"fortran_order\": False}",
		" { 'fortran_order' : True , 'shape' : ( 4L , ) , 'descr' : '<f4' , } \n",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1), }\n",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1)}",
	};
	struct hr_dataset_options opts = {0};

	for (size_t i = 0; i < HR_ARRAY_LEN(dicts); i++) {
		struct blob b = {.len = 0};
		struct hr__format_file *ff;

		put_npy(&b, 1, dicts[i], 16);
		ff = expect_open(&b, &opts);
		assert_int_equal(ff->schema.count, 4);
		check_row(ff, 3, 0, b.len - 4, 4);
		ff->ops->close(ff);
	}
}

static void whole_files(void **state)
{
	struct hr_dataset_options opts = {.whole_files = true};
	struct blob number = {.len = 0}, table = {.len = 0}, deep = {.len = 0}, none = {.len = 0};
	struct hr__format_file *ff;

	put_npy(&number, 1, DICT("<f8", "()"), 8);
	ff = expect_open(&number, &opts);
	assert_int_equal(ff->schema.count, 1);
	assert_int_equal(ff->schema.fields[0].face.ndim, 0);
	check_row(ff, 0, 0, number.len - 8, 8);
	ff->ops->close(ff);

	put_npy(&table, 1, DICT("<i2", "(1, 1, 1, 1, 1, 2, 3)"), 12);
	ff = expect_open(&table, &opts);
	assert_int_equal(ff->schema.count, 1);
	assert_int_equal(ff->schema.fields[0].face.ndim, 7);
	assert_int_equal(ff->schema.fields[0].face.shape[5], 2);
	check_row(ff, 0, 0, table.len - 12, 12);
	assert_int_equal(ff->ops->locate(ff, 1, 0, NULL), -EINVAL);
	ff->ops->close(ff);

	put_npy(&deep, 1, DICT("<i2", "(1, 1, 1, 1, 1, 1, 2, 3)"), 12);
	expect_refusal(&deep, &opts, HR_E_BAD_FORMAT, "8 dimensions");
	put_npy(&none, 1, DICT("<i2", "(3, 0)"), 0);
	expect_refusal(&none, &opts, HR_E_TOO_SHORT, "without a byte");
}

static void types_refused(void **state)
{
	refuse_dict(DICT(">f4", "(2,)"), 8, HR_E_BAD_DTYPE, "newbyteorder");
	refuse_dict(DICT("=f4", "(2,)"), 8, HR_E_BAD_DTYPE, "\"=f4\"");
	refuse_dict(DICT("|f4", "(2,)"), 8, HR_E_BAD_DTYPE, "\"|f4\"");
	refuse_dict(DICT("|O", "(2,)"), 40, HR_E_BAD_DTYPE, "pickle");
	refuse_dict(DICT("|V2", "(2,)"), 4, HR_E_BAD_DTYPE, "bfloat16");
	refuse_dict(DICT("<V1", "(2,)"), 2, HR_E_BAD_DTYPE, "uint8");
	refuse_dict(DICT("<f1", "(2,)"), 2, HR_E_BAD_DTYPE, "not known");
	refuse_dict(DICT("<c8", "(2,)"), 16, HR_E_BAD_DTYPE, "complex");
	refuse_dict(DICT("<U4", "(2,)"), 32, HR_E_BAD_DTYPE, "texts");
	refuse_dict(DICT("|S4", "(2,)"), 8, HR_E_BAD_DTYPE, "texts");
	refuse_dict(DICT("<M8[ns]", "(2,)"), 16, HR_E_BAD_DTYPE, "int64");
	refuse_dict(DICT("<m8[s]", "(2,)"), 16, HR_E_BAD_DTYPE, "int64");
	refuse_dict(DICT("<f16", "(2,)"), 32, HR_E_BAD_DTYPE, "\"<f16\"");
	refuse_dict(DICT("<", "(2,)"), 8, HR_E_BAD_DTYPE, "\"<\"");
	refuse_dict(DICT("", "(2,)"), 8, HR_E_BAD_DTYPE, "\"\"");
	refuse_dict("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8,
		    HR_E_BAD_DTYPE, "structures");
	refuse_dict("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (2,)}", 16,
		    HR_E_BAD_DTYPE, "structures");
}

static void shapes_refused(void **state)
{
	refuse_dict(DICT("<f4", "()"), 4, HR_E_BAD_FORMAT, "single number");
	refuse_dict(DICT("<f4", "(0,)"), 0, HR_E_TOO_SHORT, "no rows");
	refuse_dict(DICT("<f4", "(0, 99999999999, 99999999999)"), 0, HR_E_TOO_SHORT, "no rows");
	refuse_dict(DICT("<f4", "(3, 0)"), 0, HR_E_TOO_SHORT, "without a byte");
	refuse_dict(DICT("<f4", "(3)"), 12, HR_E_BAD_FORMAT, "comma behind");
	refuse_dict(DICT("<f4", "(3,,)"), 12, HR_E_BAD_FORMAT, "digits");
	refuse_dict(DICT("<f4", "(,)"), 12, HR_E_BAD_FORMAT, "digits");
	refuse_dict(DICT("<f4", "(03,)"), 12, HR_E_BAD_FORMAT, "digits");
	refuse_dict(DICT("<f4", "(-3,)"), 12, HR_E_BAD_FORMAT, "digits");
	refuse_dict(DICT("<f4", "(3 4)"), 48, HR_E_BAD_FORMAT, "comma or the end");
	refuse_dict(DICT("<f4", "[3]"), 12, HR_E_BAD_FORMAT, "round brackets");
	refuse_dict(DICT("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4, HR_E_BAD_FORMAT, "8 dimensions");
	refuse_dict(DICT("<f4", "(99999999999999999999,)"), 4, HR_E_BAD_FORMAT, "2^64");
	refuse_dict(DICT("<f4", "(9999999999, 9999999999)"), 4, HR_E_BAD_FORMAT, "2^64 elements");
	refuse_dict(DICT("<f4", "(4611686018427387904,)"), 0, HR_E_BAD_FORMAT, "promised");
	refuse_dict(DICT("<f4", "(3,)"), 11, HR_E_BAD_FORMAT, "truncated");
	refuse_dict(DICT("<f4", "(3,)"), 13, HR_E_BAD_FORMAT, "1 bytes follow");
	refuse_dict("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16,
		    HR_E_BAD_FORMAT, "ascontiguousarray");
}

static void heads_refused(void **state)
{
	refuse_dict("", 4, HR_E_BAD_FORMAT, "a dict");
	refuse_dict("{}", 4, HR_E_BAD_FORMAT, "once each");
	refuse_dict("{'descr': '<f4', 'shape': (1,)}", 4, HR_E_BAD_FORMAT, "once each");
	refuse_dict("{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 4, HR_E_BAD_FORMAT,
		    "once each");
	refuse_dict("{'descr': '<f4', 'more': 1}", 4, HR_E_BAD_FORMAT, "once each");
	refuse_dict("{'descr' '<f4'}", 4, HR_E_BAD_FORMAT, "colon");
	refuse_dict("{'descr': '<f4' 'shape': (1,)}", 4, HR_E_BAD_FORMAT, "comma or the end");
	refuse_dict("{descr: '<f4'}", 4, HR_E_BAD_FORMAT, "in quotes");
	refuse_dict("{'descr': '<f4", 4, HR_E_BAD_FORMAT, "end of a text");
	refuse_dict("{'descr': '0123456789abcdef'}", 4, HR_E_BAD_FORMAT, "short text");
	refuse_dict("{'descr': '<\\x66'}", 4, HR_E_BAD_FORMAT, "short text");
	refuse_dict("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, HR_E_BAD_FORMAT,
		    "True or False");
	refuse_dict(DICT("<f4", "(1,)") "x", 4, HR_E_BAD_FORMAT, "white space");
	refuse_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4, HR_E_BAD_FORMAT,
		    "comma or the end");
}

static void versions_and_others_refused(void **state)
{
	struct hr_dataset_options opts = {0}, i64 = {.dtype = HR_DTYPE_I64};
	static const char *const fields[] = {"x"};
	struct hr_dataset_options named = {.fields = fields, .n_fields = 1};
	struct blob b = {.len = 0};

	expect_refusal(&b, &opts, HR_E_EMPTY_FILE, "empty");
	put_npy(&b, 1, DICT("<f4", "(2,)"), 8);
	expect_refusal(&b, &i64, HR_E_BAD_DTYPE, "i64 was asked for");
	expect_refusal(&b, &named, EINVAL, "no field \"x\"");
	b.bytes[6] = 4;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "version 4.0");
	b.bytes[6] = 1;
	b.bytes[7] = 1;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "version 1.1");
	b.bytes[7] = 0;
	b.bytes[9] = 0xff;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "truncated");
	memset(b.bytes, 0, b.len);
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "nothing but zeros");
	memcpy(b.bytes, "version https://git-lfs", 23);
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "git lfs pull");
	memcpy(b.bytes, "<!DOCTYPE html> <html> ", 23);
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "web page");
	memcpy(b.bytes, "something else entirely", 23);
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "neither");
}

static void long_heads(void **state)
{
	static const char head[] = "\x93NUMPY\2\0----" DICT("<f4", "(1,)");
	static uint8_t bytes[12 + 10001 + 4];
	struct hr_dataset_options opts = {0};

	/* 10000 bytes of dict are read, as by numpy; 10001 are not. */
	for (uint32_t len = 10000; len <= 10001; len++) {
		struct format_bytes all = {.n_files = 0};

		memset(bytes, ' ', sizeof(bytes));
		memcpy(bytes, head, sizeof(head) - 1);
		memcpy(bytes + 8, &len, 4);
		format_bytes_add(&all, "x.npy", bytes, 12 + len + 4, 0);
		assert_int_equal(format_bytes_try(&all, &hr__format_npy, &opts),
				 len == 10000 ? 0 : -HR_E_BAD_FORMAT);
	}
	assert_non_null(strstr(hr_error_detail(), "10001 bytes"));
}

/* -- .npz ------------------------------------------------------------------------------------ */

struct member {
	const char *name;
	struct blob body;
	uint16_t method, flags;
	bool wide;         /* lengths in Zip64 extra fields */
	bool hide;         /* lengths in the local header are 0 all the same */
	bool little;       /* Zip64 extra field in the directory has room for one length */
	uint32_t claim;    /* the length that is told everywhere; 0: the truth */
	uint32_t packed;   /* what the directory says; 0: the same */
	uint64_t header;   /* where the local header is; found by put_zip() */
	const char *local; /* the name in the local header; NULL: the same */
};

static void put_lengths(struct blob *b, const struct member *m, bool in_directory)
{
	bool later = !in_directory && (m->flags & 8 || m->hide);
	uint64_t len = later ? 0 : m->claim ? m->claim : m->body.len;

	put_le(b, 0, 4); /* the CRC is not looked at */
	put_le(b, m->wide ? UINT32_MAX : in_directory && m->packed ? m->packed : len, 4);
	put_le(b, m->wide ? UINT32_MAX : len, 4);
}

static void put_wide(struct blob *b, const struct member *m, bool in_directory)
{
	if (!m->wide)
		return;
	put_le(b, 0x7075, 2); /* another extra field first */
	put_le(b, 1, 2);
	put_le(b, 9, 1);
	put_le(b, 1, 2);
	put_le(b, m->little ? 8 : in_directory ? 24 : 16, 2);
	put_le(b, m->body.len, 8);
	put_le(b, m->body.len, 8);
	if (in_directory)
		put_le(b, m->header, 8);
}

static void put_local(struct blob *b, struct member *m)
{
	const char *name = m->local ? m->local : m->name;

	m->header = b->len;
	put(b, "PK\3\4\x14\0", 6);
	put_le(b, m->flags, 2);
	put_le(b, m->method, 2);
	put_le(b, 0, 4);
	put_lengths(b, m, false);
	put_le(b, strlen(name), 2);
	put_le(b, m->wide ? 25 : 0, 2);
	put(b, name, strlen(name));
	put_wide(b, m, false);
	put(b, m->body.bytes, m->body.len);
	if (m->flags & 8) {
		put(b, "PK\7\10", 4);
		put_le(b, 0, 4);
		put_le(b, m->body.len, 4);
		put_le(b, m->body.len, 4);
	}
}

static void put_entry(struct blob *b, const struct member *m)
{
	put(b, "PK\1\2\x14\3\x14\0", 8);
	put_le(b, m->flags, 2);
	put_le(b, m->method, 2);
	put_le(b, 0, 4);
	put_lengths(b, m, true);
	put_le(b, strlen(m->name), 2);
	put_le(b, m->wide ? 33 : 0, 2);
	put_le(b, 0, 2 + 2 + 2 + 0);
	put_le(b, 0, 4);
	put_le(b, m->wide ? UINT32_MAX : m->header, 4);
	put(b, m->name, strlen(m->name));
	put_wide(b, m, true);
}

static void put_end64(struct blob *b, uint32_t n, uint64_t directory, uint64_t len)
{
	uint64_t at = b->len;

	put(b, "PK\6\6", 4);
	put_le(b, 44, 8);
	put_le(b, 45 | 45 << 16, 4);
	put_le(b, 0, 8);
	put_le(b, n, 8);
	put_le(b, n, 8);
	put_le(b, len, 8);
	put_le(b, directory, 8);
	put(b, "PK\6\7", 4);
	put_le(b, 0, 4);
	put_le(b, at, 8);
	put_le(b, 1, 4);
}

static void put_zip(struct blob *b, struct member *members, uint32_t n, bool zip64,
		    const char *comment)
{
	uint64_t directory, len;

	for (uint32_t i = 0; i < n; i++)
		put_local(b, &members[i]);
	directory = b->len;
	for (uint32_t i = 0; i < n; i++)
		put_entry(b, &members[i]);
	len = b->len - directory;
	if (zip64)
		put_end64(b, n, directory, len);
	put(b, "PK\5\6", 4);
	put_le(b, 0, 4);
	put_le(b, zip64 ? UINT16_MAX : n, 2);
	put_le(b, zip64 ? UINT16_MAX : n, 2);
	put_le(b, zip64 ? UINT32_MAX : len, 4);
	put_le(b, zip64 ? UINT32_MAX : directory, 4);
	put_le(b, strlen(comment), 2);
	put(b, comment, strlen(comment));
}

static void make_members(struct member *two)
{
	two[0] = (struct member){.name = "x.npy"};
	two[1] = (struct member){.name = "in/y.npy"};
	put_npy(&two[0].body, 1, DICT("<f4", "(3, 2)"), 24);
	put_npy(&two[1].body, 2, DICT("<i8", "(3,)"), 24);
}

static void rows_of_archives(void **state)
{
	struct hr_dataset_options opts = {0};

	for (unsigned int kind = 0; kind < 16; kind++) {
		struct blob b = {.len = 0};
		struct member two[2];
		struct hr__format_file *ff;

		make_members(two);
		two[0].wide = kind & 1;
		two[1].wide = kind & 2;
		two[1].flags = kind & 4 ? 8 | 1 << 11 : 0;
		put_zip(&b, two, 2, kind & 8, kind & 2 ? "PK\5\6 is not the end here yet...." : "");
		ff = expect_open(&b, &opts);
		assert_int_equal(ff->schema.count, 3);
		assert_int_equal(ff->schema.n_fields, 2);
		assert_string_equal(ff->schema.fields[0].face.name, "x");
		assert_string_equal(ff->schema.fields[1].face.name, "in/y");
		for (uint64_t i = 0; i < 3; i++) {
			uint64_t ends[2];

			for (int k = 0; k < 2; k++)
				ends[k] = two[k].header + 30 + strlen(two[k].name) +
					  (two[k].wide ? 25 : 0) + two[k].body.len;
			check_row(ff, i, 0, ends[0] - 24 + i * 8, 8);
			check_row(ff, i, 1, ends[1] - 24 + i * 8, 8);
		}
		ff->ops->close(ff);
	}
}

static void fields_by_name(void **state)
{
	static const char *const names[] = {"in/y", "x"};
	struct hr_dataset_options opts = {.fields = names, .n_fields = 2};
	struct hr_dataset_options one = {.fields = names + 1, .n_fields = 1}, all = {0};
	struct hr_dataset_options whole = {.whole_files = true};
	struct blob b = {.len = 0}, odd = {.len = 0};
	struct member two[2];
	struct hr__format_file *ff;

	make_members(two);
	put_zip(&b, two, 2, false, "");
	ff = expect_open(&b, &opts);
	assert_int_equal(ff->schema.n_fields, 2);
	assert_string_equal(ff->schema.fields[0].face.name, "in/y");
	assert_string_equal(ff->schema.fields[1].face.name, "x");
	ff->ops->close(ff);

	/* what is wrong with another field does not matter to those who name theirs */
	two[1].body.len = 0;
	put_npy(&two[1].body, 1, DICT("<i8", "(4,)"), 32);
	put_zip(&odd, two, 2, false, "");
	expect_refusal(&odd, &all, HR_E_BAD_FORMAT, "\"in/y\" has 4 rows");
	expect_refusal(&odd, &all, HR_E_BAD_FORMAT, "name the fields that are wanted");
	ff = expect_open(&odd, &one);
	assert_int_equal(ff->schema.n_fields, 1);
	assert_string_equal(ff->schema.fields[0].face.name, "x");
	ff->ops->close(ff);
	ff = expect_open(&odd, &whole);
	assert_int_equal(ff->schema.count, 1);
	assert_int_equal(ff->schema.fields[0].face.ndim, 2);
	assert_int_equal(ff->schema.fields[1].face.bytes, 32);
	ff->ops->close(ff);
}

/* Two members, changed in one way each. */
static void archives_refused(void **state)
{
	struct hr_dataset_options opts = {0};
	static const char *const none[] = {"z"};
	struct hr_dataset_options named = {.fields = none, .n_fields = 1};

	for (int kind = 0; kind < 14; kind++) {
		static const char *const words[] = {
			"is compressed (method 8)",
			"is encrypted",
			"two members",
			"leads out",
			"leads out",
			"leads out",
			"other things",
			"two lengths",
			"other things",
			"pickle",
			"without arrays",
			"ends behind the members",
			"other things",
			"Zip64 that are not there",
		};
		struct blob b = {.len = 0};
		struct member two[2];
		struct member *y = &two[1];
		bool whole;

		make_members(two);
		if (kind == 0)
			y->method = 8;
		else if (kind == 1)
			y->flags = 1;
		else if (kind >= 2 && kind <= 5)
			y->name = (const char *const[]){"x.npy", "../y.npy", "/y.npy",
							"a/../y.npy"}[kind - 2];
		else if (kind == 6)
			y->local = "in/z.npy";
		else if (kind == 7)
			y->packed = 5;
		else if (kind == 8)
			y->local = "in/y.np";
		else if (kind == 9) {
			y->body.len = 0;
			put_npy(&y->body, 1, DICT("|O", "(3,)"), 24);
		} else if (kind == 10) {
			two[0].name = "x.txt";
			y->name = ".npy";
		} else if (kind == 11) {
			y->claim = 500;
		} else if (kind == 12) {
			y->hide = true;
		} else if (kind == 13) {
			y->wide = y->little = true;
		}
		put_zip(&b, two, 2, false, "");
		expect_refusal(&b, &opts, kind == 9 ? HR_E_BAD_DTYPE : HR_E_BAD_FORMAT,
			       words[kind]);
		whole = (kind >= 2 && kind <= 5) || kind == 13; /* not only a member is bad */
		expect_refusal(&b, &named, whole ? HR_E_BAD_FORMAT : EINVAL,
			       whole ? words[kind] : "no field \"z\"");
	}
}

static void endings_refused(void **state)
{
	struct hr_dataset_options opts = {0};
	struct blob b = {.len = 0}, wide = {.len = 0};
	struct member two[2];

	make_members(two);
	put_zip(&b, two, 2, false, "");
	b.bytes[b.len - 22 - 46 - 8] = 'p';
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "no entry");
	b.bytes[b.len - 22 - 46 - 8] = 'P';
	b.bytes[b.len - 22 - 46 - 8 + 28]++;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "ends behind the directory");
	b.bytes[b.len - 22 - 46 - 8 + 28]--;
	b.bytes[b.len - 22 + 8] = 3;
	b.bytes[b.len - 22 + 10] = 3;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "has room for");
	b.bytes[b.len - 22 + 8] = 1;
	b.bytes[b.len - 22 + 10] = 1;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "more entries than the directory has;");
	b.bytes[b.len - 22 + 9] = 0x20;
	b.bytes[b.len - 22 + 11] = 0x20;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "8193 members");
	b.bytes[b.len - 22 + 8] = 2;
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "several parts");
	put_le(&b, 0, 1);
	expect_refusal(&b, &opts, HR_E_BAD_FORMAT, "no record");
	put_zip(&wide, two, 2, true, "");
	wide.bytes[wide.len - 22 - 20 + 8]--;
	expect_refusal(&wide, &opts, HR_E_BAD_FORMAT, "no Zip64 record");
	wide.bytes[wide.len - 22 - 20 + 15] = 1;
	expect_refusal(&wide, &opts, HR_E_BAD_FORMAT, "not before it");
}

/* -- hostile files --------------------------------------------------------------------------- */

static void try_variants(const struct blob *b)
{
	static const char *const names[] = {"x", "in/y"};
	const struct hr_dataset_options options[] = {
		{0},
		{.whole_files = true},
		{.fields = names, .n_fields = 2},
	};
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct blob copy;

	for (size_t o = 0; o < HR_ARRAY_LEN(options); o++) {
		for (size_t len = 0; len <= b->len; len++) {
			struct format_bytes all = {.n_files = 0};
			/* a heap block of that size: sanitizers see every byte behind it */
			uint8_t *bytes = malloc(len + !len);

			memcpy(bytes, b->bytes, len);
			format_bytes_add(&all, "x.npy", bytes, len, 0);
			assert_true((format_bytes_try(&all, &hr__format_npy, &options[o]) == 0) <=
				    (len == b->len));
			free(bytes);
		}
		for (size_t at = 0; at < b->len; at++) {
			for (size_t v = 0; v < 13; v++) {
				struct format_bytes all = {.n_files = 0};

				memcpy(&copy, b, sizeof(copy));
				if (v < 5)
					copy.bytes[at] = values[v];
				else
					copy.bytes[at] ^= (uint8_t)(1u << (v - 5));
				format_bytes_add(&all, "x.npy", copy.bytes, copy.len, 0);
				format_bytes_try(&all, &hr__format_npy, &options[o]);
			}
		}
	}
}

static void every_prefix_and_every_byte(void **state)
{
	struct blob one = {.len = 0}, plain = {.len = 0}, wide = {.len = 0};
	struct member two[2];

	put_npy(&one, 1, DICT("<f4", "(3, 2)"), 24);
	try_variants(&one);
	make_members(two);
	put_zip(&plain, two, 2, false, "");
	try_variants(&plain);
	two[0].wide = two[1].wide = true;
	two[1].flags = 8;
	put_zip(&wide, two, 2, true, "c");
	try_variants(&wide);
}

static void read_errors_pass_through(void **state)
{
	struct hr_dataset_options opts = {0};
	struct format_bytes all = {.n_files = 0};
	struct hr__format_file *ff = NULL;
	struct blob b = {.len = 0};

	put_npy(&b, 1, DICT("<f4", "(3, 2)"), 24);
	format_bytes_add(&all, "x.npy", b.bytes, b.len, 0)->fail_with = EIO;
	assert_int_equal(format_bytes_open(&all, &hr__format_npy, &opts, &ff), -EIO);
	assert_null(ff);
}

static void recognised(void **state)
{
	struct blob b = {.len = 0}, zip = {.len = 0}, other = {.len = 0};
	struct member two[2];

	put_npy(&b, 1, DICT("<f4", "(3, 2)"), 24);
	assert_ptr_equal(hr__format_find(NULL, b.bytes, b.len, b.len), &hr__format_npy);
	make_members(two);
	put_zip(&zip, two, 2, false, "");
	assert_ptr_equal(hr__format_find("auto", zip.bytes, zip.len, zip.len), &hr__format_npy);
	assert_int_equal(hr__format_npy.probe(zip.bytes, 34, zip.len), 0);
	two[0].name = "archive/data.pkl";
	put_zip(&other, two, 2, false, "");
	assert_int_equal(hr__format_npy.probe(other.bytes, other.len, other.len), 0);
	assert_int_equal(hr__format_npy.probe("", 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_every_type),
		cmocka_unit_test(heads_as_others_write_them),
		cmocka_unit_test(whole_files),
		cmocka_unit_test(types_refused),
		cmocka_unit_test(shapes_refused),
		cmocka_unit_test(heads_refused),
		cmocka_unit_test(versions_and_others_refused),
		cmocka_unit_test(long_heads),
		cmocka_unit_test(rows_of_archives),
		cmocka_unit_test(fields_by_name),
		cmocka_unit_test(archives_refused),
		cmocka_unit_test(endings_refused),
		cmocka_unit_test(every_prefix_and_every_byte),
		cmocka_unit_test(read_errors_pass_through),
		cmocka_unit_test(recognised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

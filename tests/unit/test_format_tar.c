/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format_tar - WebDataset archives in memory, built block by block: where the samples lie, whichever
 * way a tar says names and sizes; what belongs to no sample; damage, which costs one sample and is told; and
 * files that are no tar. Every prefix of an archive and every change of a byte of its headers is opened.
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

#include "support/index_bytes.h"
#include "support/tar_bytes.h"

static const struct hr_dataset_options all_fields;

static void add_file(struct tar_bytes *t, const char *name, const char *text)
{
	tar_member(t, name, '0', text, strlen(text));
}

/* Open what was built. The archive is closed by the caller with done(). */
static int open_tar(struct indexed_bytes *x, const struct tar_bytes *t,
		    const struct hr_dataset_options *opts)
{
	return indexed_bytes_start(x, "data.tar", t->bytes, t->len, &hr__format_tar, opts);
}

static void done(struct indexed_bytes *x, struct tar_bytes *t)
{
	indexed_bytes_close(x);
	free(t->bytes);
	*t = (struct tar_bytes){.len = 0};
}

static void expect_open(struct indexed_bytes *x, const struct tar_bytes *t,
			const struct hr_dataset_options *opts, uint64_t count)
{
	int rc = open_tar(x, t, opts);

	if (rc < 0)
		fail_msg("refused: %s", hr_error_detail());
	format_check_accepted(x->ff, t->len);
	assert_int_equal(x->ff->schema.count, count);
}

static void expect_refusal(struct tar_bytes *t, const struct hr_dataset_options *opts, int code,
			   const char *word)
{
	struct indexed_bytes x;

	assert_int_equal(open_tar(&x, t, opts), -code);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	done(&x, t);
}

static void check_value(const struct indexed_bytes *x, const struct tar_bytes *t, uint64_t i,
			const char *name, const char *text)
{
	struct hr_range range;
	int n = hr__format_tar.locate(x->ff, i, indexed_bytes_field(x, name), &range);

	assert_int_equal(n, *text != '\0');
	if (!n)
		return;
	assert_int_equal(range.len, strlen(text));
	assert_int_equal(range.offset % 512, 0);
	assert_memory_equal(t->bytes + range.offset, text, range.len);
}

static void expect_int(const struct indexed_bytes *x, uint64_t i, const char *name, int64_t value)
{
	uint64_t got;

	assert_int_equal(hr__format_tar.value(x->ff, i, indexed_bytes_field(x, name), &got), 0);
	assert_int_equal((int64_t)got, value);
}

static void expect_notes(const struct indexed_bytes *x, const char *word)
{
	if (!strstr(hr__index_info(x->index)->notes, word))
		fail_msg("\"%s\" lacks \"%s\"", hr__index_info(x->index)->notes, word);
}

static void expect_bad(const struct indexed_bytes *x, uint64_t row, const char *word)
{
	const struct hr__schema *schema = &x->ff->schema;
	struct hr_range range;
	bool found = false;

	for (uint64_t i = 0; i < schema->n_bad; i++)
		found |= schema->bad[i] == row;
	assert_true(found);
	if (!strstr(schema->bad_reason, word))
		fail_msg("\"%s\" lacks \"%s\"", schema->bad_reason, word);
	assert_int_equal(hr__format_tar.locate(x->ff, row, 0, &range), -HR_E_BAD_SAMPLE);
}

/* -- samples ---------------------------------------------------------------------------------- */

static void members_become_samples(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;

	add_file(&t, "a/000.jpg", "first");
	add_file(&t, "a/000.cls", "7");
	add_file(&t, "a/000.seg.png", "12345678");
	add_file(&t, "a/001.JPG", "second image");
	add_file(&t, "a/001.cls", "-42\n");
	add_file(&t, "a/001.seg.png", "abcdefgh");
	add_file(&t, "b.x/000.jpg", "");
	add_file(&t, "b.x/000.cls", "123456789012345678");
	add_file(&t, "b.x/000.seg.png", "ABCDEFGH");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 3);
	assert_int_equal(x.ff->schema.n_fields, 4);
	assert_int_equal(x.ff->schema.n_bad, 0);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "jpg")].face.kind,
			 HR_FIELD_RAGGED);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "jpg")].face.bytes, 12);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "seg.png")].face.kind,
			 HR_FIELD_FIXED);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "seg.png")].face.shape[0], 8);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "cls.int")].face.kind,
			 HR_FIELD_SCALAR);
	assert_int_equal(x.ff->schema.fields[indexed_bytes_field(&x, "cls.int")].face.dtype,
			 HR_DTYPE_I64);
	check_value(&x, &t, 0, "jpg", "first");
	check_value(&x, &t, 0, "seg.png", "12345678");
	check_value(&x, &t, 1, "jpg", "second image");
	check_value(&x, &t, 1, "cls", "-42\n");
	check_value(&x, &t, 2, "jpg", "");
	check_value(&x, &t, 2, "cls", "123456789012345678");
	expect_int(&x, 0, "cls.int", 7);
	expect_int(&x, 1, "cls.int", -42);
	expect_int(&x, 2, "cls.int", 123456789012345678);
	assert_string_equal(hr__index_info(x.index)->notes, "");
	done(&x, &t);
}

/* Text that is no plain integer stays text: then no sample has the number. */
static void labels_that_are_no_numbers(void **state)
{
	static const char *const texts[] = {"1234567890123456789",
					    "",
					    "-",
					    "+1",
					    " 1",
					    "1 ",
					    "1\n\n",
					    "1.0",
					    "0x1",
					    "cat",
					    "--1",
					    "1-"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct tar_bytes t = {.len = 0};
		struct indexed_bytes x;

		add_file(&t, "0.cls", "1");
		add_file(&t, "1.cls", texts[i]);
		tar_end(&t);
		expect_open(&x, &t, &all_fields, 2);
		assert_int_equal(x.ff->schema.n_fields, 1);
		check_value(&x, &t, 1, "cls", texts[i]);
		done(&x, &t);
	}
}

static void what_belongs_to_no_sample(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;

	tar_member(&t, "dir.d/", '5', "", 0);
	tar_member(&t, "old.d/", '\0', "", 0); /* a folder of v7 */
	add_file(&t, "0.txt", "zero");
	add_file(&t, "README", "no dot");
	add_file(&t, "._0.txt", "hidden");
	add_file(&t, "0.bin", "BIN0");
	add_file(&t, "__index__", "meta");
	add_file(&t, "__x__/y.txt", "meta");
	add_file(&t, "trailing.", "dot");
	tar_member(&t, "1.lnk", '2', "", 0);
	tar_member(&t, "1.hard", '1', "", 0);
	tar_member(&t, "1.fifo", '6', "", 0);
	tar_member(&t, "1.chr", '3', "", 0);
	tar_member(&t, "volume.v", 'V', "", 0);
	tar_member(&t, "unknown.u", 'Z', "with bytes", 10);
	add_file(&t, "__1.txt", "one");
	add_file(&t, "__1.bin", "BIN1");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 2);
	assert_int_equal(x.ff->schema.n_fields, 2);
	check_value(&x, &t, 0, "txt", "zero");
	check_value(&x, &t, 0, "bin", "BIN0");
	check_value(&x, &t, 1, "txt", "one");
	check_value(&x, &t, 1, "bin", "BIN1");
	expect_notes(&x, "8 links, folders or devices");
	expect_notes(&x, "5 members belong to no sample");
	done(&x, &t);
}

static void names_and_sizes_in_every_way(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;
	char long_name[300], text[400];

	memset(long_name, 'n', sizeof(long_name));
	memcpy(long_name + 290, ".txt", 5);
	/* ustar's prefix */
	tar_member(&t, "0.txt", '0', "prefix", 6);
	tar_prefix(&t, "some/folder.d");
	/* pax */
	snprintf(text, sizeof(text), "305 path=%s\n", long_name);
	snprintf(text, sizeof(text), "%zu path=%s\n", strlen(text), long_name);
	tar_member(&t, "pax", 'x', text, strlen(text));
	add_file(&t, "short", "pax path");
	/* the size of pax, where the header says 0 */
	tar_member(&t, "pax", 'x', "10 size=7\n16 linkpath=abc\n", 26);
	tar_header(&t, "2.txt", '0', 0);
	tar_body(&t, "seven b", 7);
	/* GNU: names, names of links, base 256 */
	long_name[0] = 'm';
	tar_member(&t, "././@LongLink", 'L', long_name, strlen(long_name) + 1);
	add_file(&t, "short", "gnu name");
	tar_member(&t, "././@LongLink", 'K', long_name, strlen(long_name) + 1);
	tar_member(&t, "link.txt", '2', "", 0);
	tar_header(&t, "4.txt", '0', 0);
	tar_base256(&t, 9);
	tar_body(&t, "base 256!", 9);
	/* v7: no magic; a checksum of signed bytes; a contiguous file */
	tar_member(&t, "5.txt", '\0', "v7", 2);
	tar_v7(&t);
	tar_member(&t, "6.txt", '0', "signed", 6);
	tar_signed(&t);
	tar_member(&t, "7.txt", '7', "contiguous", 10);
	/* global records hold until they are taken back */
	tar_member(&t, "g", 'g', "20 comment=anything\n", 20);
	add_file(&t, "8.txt", "after global");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 9);
	check_value(&x, &t, 0, "txt", "prefix");
	check_value(&x, &t, 1, "txt", "pax path");
	check_value(&x, &t, 2, "txt", "seven b");
	check_value(&x, &t, 3, "txt", "gnu name");
	check_value(&x, &t, 4, "txt", "base 256!");
	check_value(&x, &t, 5, "txt", "v7");
	check_value(&x, &t, 6, "txt", "signed");
	check_value(&x, &t, 7, "txt", "contiguous");
	check_value(&x, &t, 8, "txt", "after global");
	done(&x, &t);
}

static void ends_of_archives(void **state)
{
	static const char junk[] = "this is no tar, but it is behind the end";
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;

	add_file(&t, "0.txt", "zero");
	expect_open(&x, &t, &all_fields, 1);
	expect_notes(&x, "no end mark");
	indexed_bytes_close(&x);
	/* padding may lack as well */
	t.len = 512 + 4;
	expect_open(&x, &t, &all_fields, 1);
	check_value(&x, &t, 0, "txt", "zero");
	indexed_bytes_close(&x);
	t.len = 1024;
	/* two archives one behind the other, with as many zeros as there may be */
	tar_end(&t);
	for (int i = 0; i < 40; i++)
		tar_end(&t);
	add_file(&t, "1.txt", "one");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 2);
	check_value(&x, &t, 1, "txt", "one");
	assert_string_equal(hr__index_info(x.index)->notes, "");
	indexed_bytes_close(&x);
	tar_body(&t, junk, sizeof(junk));
	expect_open(&x, &t, &all_fields, 2);
	assert_int_equal(x.ff->schema.n_bad, 0);
	expect_notes(&x, "behind the end of the archive");
	done(&x, &t);
}

/* -- fields ----------------------------------------------------------------------------------- */

static void fields_that_some_lack(void **state)
{
	static const char *const names[] = {"txt", "jpg", "txt"}, *const unknown[] = {"png"};
	struct hr_dataset_options named = {.fields = names, .n_fields = 3};
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;

	add_file(&t, "0.jpg", "j0");
	add_file(&t, "0.txt", "t0");
	add_file(&t, "1.jpg", "j1");
	add_file(&t, "2.jpg", "j2");
	add_file(&t, "2.txt", "t2");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 3);
	assert_int_equal(x.ff->schema.n_fields, 1);
	assert_int_equal(x.ff->schema.n_bad, 0);
	indexed_bytes_close(&x);
	/* who names it gets it, in his order, and the sample without it is no good to him */
	expect_open(&x, &t, &named, 3);
	assert_int_equal(x.ff->schema.n_fields, 2);
	assert_string_equal(x.ff->schema.fields[0].face.name, "txt");
	assert_int_equal(x.ff->schema.n_bad, 1);
	expect_bad(&x, 1, "sample 1 has no field \"txt\"");
	check_value(&x, &t, 2, "txt", "t2");
	indexed_bytes_close(&x);
	named = (struct hr_dataset_options){.fields = unknown, .n_fields = 1};
	assert_int_equal(open_tar(&x, &t, &named), -EINVAL);
	assert_non_null(strstr(hr_error_detail(), "\"png\""));
	assert_non_null(strstr(hr_error_detail(), "jpg, txt (some)"));
	done(&x, &t);
	/* no field that all have */
	add_file(&t, "0.jpg", "j0");
	add_file(&t, "1.txt", "t1");
	tar_end(&t);
	expect_refusal(&t, &all_fields, HR_E_BAD_FORMAT, "no field is in all of its 2 samples");
}

static void too_many_fields(void **state)
{
	struct tar_bytes t = {.len = 0};

	for (int i = 0; i < 257; i++) {
		char name[32];

		snprintf(name, sizeof(name), "image.%d", i);
		add_file(&t, name, "x");
	}
	tar_end(&t);
	expect_refusal(&t, &all_fields, HR_E_BAD_FORMAT, "more than 256 different name endings");
}

/* -- damage ----------------------------------------------------------------------------------- */

static void damaged_samples_keep_their_number(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;
	uint64_t at;

	add_file(&t, "0.txt", "zero");
	add_file(&t, "1.txt", "one");
	add_file(&t, "1.txt", "one again");
	add_file(&t, "2.txt", "two");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 3);
	assert_int_equal(x.ff->schema.n_bad, 1);
	expect_bad(&x, 1, "byte 2048: sample \"1\" has a second member .txt");
	check_value(&x, &t, 2, "txt", "two");
	done(&x, &t);
	/* sparse: GNU's own and pax */
	add_file(&t, "0.txt", "zero");
	tar_member(&t, "1.txt", 'S', "data", 4);
	t.bytes[t.last + 482] = 1; /* one more header with holes */
	tar_sum(&t);
	tar_grow(&t, 512);
	memmove(t.bytes + t.last + 1024, t.bytes + t.last + 512, 512);
	memset(t.bytes + t.last + 512, 0, 512);
	add_file(&t, "2.txt", "two");
	tar_member(&t, "pax", 'x', "22 GNU.sparse.major=1\n", 22);
	add_file(&t, "3.txt", "three");
	add_file(&t, "4.txt", "four");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 5);
	assert_int_equal(x.ff->schema.n_bad, 2);
	expect_bad(&x, 1, "sparse");
	expect_bad(&x, 3, "--sparse");
	check_value(&x, &t, 2, "txt", "two");
	check_value(&x, &t, 4, "txt", "four");
	done(&x, &t);
	/* a header that is none: what follows is found again */
	add_file(&t, "0.txt", "zero");
	at = t.len;
	add_file(&t, "0.bin", "BIN");
	add_file(&t, "1.txt", "one");
	add_file(&t, "1.bin", "BIN");
	tar_end(&t);
	t.bytes[at + 5] ^= 1;
	expect_open(&x, &t, &all_fields, 2);
	expect_bad(&x, 0, "byte 1024: no tar header (its checksum is wrong)");
	expect_notes(&x, "1024 bytes from byte 1024 on are no tar");
	check_value(&x, &t, 1, "bin", "BIN");
	done(&x, &t);
	/* pax records that lie about their length */
	add_file(&t, "0.txt", "zero");
	tar_member(&t, "pax", 'x', "99 path=x.txt\n", 14);
	add_file(&t, "1.txt", "one");
	add_file(&t, "2.txt", "two");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 3);
	expect_bad(&x, 1, "byte 1024: its pax records are not as long as they say");
	done(&x, &t);
}

static void samples_in_pieces(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;

	/* the second half of a sample, far from the first */
	add_file(&t, "0.jpg", "j0");
	add_file(&t, "1.jpg", "j1");
	add_file(&t, "1.cls", "1");
	add_file(&t, "0.cls", "0");
	tar_end(&t);
	assert_int_equal(open_tar(&x, &t, &all_fields), 0);
	expect_bad(&x, 2, "byte 3072: key \"0\" came before, with other members");
	expect_notes(&x, "1 samples have a key that came before");
	done(&x, &t);
	/* a key that is simply used twice */
	add_file(&t, "0.jpg", "j0");
	add_file(&t, "1.jpg", "j1");
	add_file(&t, "0.jpg", "J0");
	tar_end(&t);
	expect_open(&x, &t, &all_fields, 3);
	assert_int_equal(x.ff->schema.n_bad, 0);
	check_value(&x, &t, 2, "jpg", "J0");
	expect_notes(&x, "1 samples have a key that came before");
	done(&x, &t);
}

static void archives_that_were_cut_short(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x;
	char body[2000];

	memset(body, 'b', sizeof(body));
	add_file(&t, "0.txt", "zero");
	tar_member(&t, "1.txt", '0', body, sizeof(body));
	t.len -= 600;
	expect_open(&x, &t, &all_fields, 2);
	expect_bad(&x, 1,
		   "byte 1024: member \"1.txt\" has 2000 bytes, but the file ends after 1448");
	check_value(&x, &t, 0, "txt", "zero");
	indexed_bytes_close(&x);
	/* inside of a header */
	t.len = 1024 + 100;
	assert_int_equal(open_tar(&x, &t, &all_fields), -HR_E_BAD_SAMPLE);
	assert_non_null(strstr(hr_error_detail(), "byte 1024: 100 bytes are no whole block"));
	done(&x, &t);
	/* in a member that is no sample's: what is whole stays whole, and the loss has a number */
	add_file(&t, "0.txt", "zero");
	tar_member(&t, "README", '0', body, sizeof(body));
	t.len -= 600;
	expect_open(&x, &t, &all_fields, 2);
	check_value(&x, &t, 0, "txt", "zero");
	expect_bad(&x, 1, "README");
	done(&x, &t);
	/* in what is said of a member */
	add_file(&t, "0.txt", "zero");
	tar_member(&t, "././@LongLink", 'L', body, sizeof(body));
	t.len -= 600;
	expect_open(&x, &t, &all_fields, 2);
	expect_bad(&x, 1, "byte 1024: an extended header of 2000 bytes");
	done(&x, &t);
}

static void files_that_are_no_tar(void **state)
{
	static const struct {
		const char *head;
		size_t len;
		const char *word;
	} cases[] = {
		{"version https://git-lfs.github.com/spec/v1\n", 43, "git-lfs pointer"},
		{"<!DOCTYPE html><html>", 21, "web page"},
		{"\x1f\x8b\x08\0\0\0\0\0\0\x03", 10, "gzip"},
		{"\x28\xb5\x2f\xfd", 4, "zstd"},
		{"BZh9", 4, "bzip2"},
		{"\xfd"
		 "7zXZ\0",
		 6, "xz"},
		{"anything", 8, "no tar header"},
	};
	struct tar_bytes t = {.len = 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char head[1024] = {0};

		memcpy(head, cases[i].head, cases[i].len);
		tar_body(&t, head, sizeof(head));
		expect_refusal(&t, &all_fields, HR_E_BAD_FORMAT, cases[i].word);
		tar_body(&t, head, cases[i].len);
		t.len = cases[i].len;
		expect_refusal(&t, &all_fields, HR_E_BAD_FORMAT, cases[i].word);
	}
	tar_end(&t);
	expect_refusal(&t, &all_fields, HR_E_BAD_FORMAT, "begins with zeros");
	expect_refusal(&t, &all_fields, HR_E_EMPTY_FILE, "empty");
	add_file(&t, "README", "no samples");
	tar_end(&t);
	expect_refusal(&t, &all_fields, HR_E_TOO_SHORT, "holds no sample");
}

static void probes(void **state)
{
	struct tar_bytes t = {.len = 0};

	add_file(&t, "0.txt", "zero");
	assert_int_equal(hr__format_tar.probe(t.bytes, t.len, t.len), 100);
	assert_int_equal(hr__format_tar.probe(t.bytes, 511, 511), 0);
	assert_ptr_equal(hr__format_find(NULL, t.bytes, t.len, t.len), &hr__format_tar);
	t.bytes[0] ^= 1;
	assert_int_equal(hr__format_tar.probe(t.bytes, t.len, t.len), 0);
	memset(t.bytes, 0, t.len);
	assert_int_equal(hr__format_tar.probe(t.bytes, t.len, t.len), 0);
	free(t.bytes);
}

static void reads_that_fail(void **state)
{
	struct tar_bytes t = {.len = 0};
	struct indexed_bytes x = {.all = {.n_files = 0}};

	add_file(&t, "0.txt", "zero");
	format_bytes_add(&x.all, "data.tar", t.bytes, t.len, t.len)->fail_with = EIO;
	assert_int_equal(indexed_bytes_open(&x, &hr__format_tar, &all_fields), -EIO);
	indexed_bytes_close(&x);
	assert_int_equal(format_bytes_try(&x.all, &hr__format_tar, &all_fields), -HR_E_NO_INDEX);
	free(t.bytes);
}

/* -- hostile ---------------------------------------------------------------------------------- */

static void build_small(struct tar_bytes *t)
{
	add_file(t, "0.jpg", "image");
	add_file(t, "0.cls", "3");
	tar_member(t, "pax", 'x', "16 path=x/1.jpg\n", 16);
	add_file(t, "1.jpg", "other");
	tar_member(t, "././@LongLink", 'L', "x/1.cls", 8);
	add_file(t, "1.cls", "4");
	tar_end(t);
}

static int try_bytes(const uint8_t *bytes, uint64_t len)
{
	struct format_bytes all = {.n_files = 0};

	format_bytes_add(&all, "data.tar", bytes, len, len);
	return indexed_bytes_try(&all, &hr__format_tar, &all_fields);
}

static void every_prefix(void **state)
{
	struct tar_bytes t = {.len = 0};

	build_small(&t);
	for (uint64_t len = 0; len <= t.len; len++) {
		uint8_t *copy = malloc(len + 1);

		memcpy(copy, t.bytes, len);
		try_bytes(copy, len);
		free(copy);
	}
	assert_int_equal(try_bytes(t.bytes, t.len), 0);
	free(t.bytes);
}

static void every_byte(void **state)
{
	static const uint8_t values[] = {0x00, 0x01, 0x37, 0x53, 0x80, 0xff};
	struct tar_bytes t = {.len = 0};

	build_small(&t);
	for (uint64_t i = 0; i < t.len; i++) {
		uint8_t old = t.bytes[i];
		bool busy = i % 512 < 16 || (i % 512 >= 120 && i % 512 < 270) || i % 512 > 500;

		for (size_t v = busy ? 0 : 3; v < (busy ? sizeof(values) : 4); v++) {
			t.bytes[i] = values[v];
			try_bytes(t.bytes, t.len);
			/* and once with a checksum that says so */
			t.last = i - i % 512;
			if (t.last + 512 <= t.len) {
				uint8_t sum[8];

				memcpy(sum, t.bytes + t.last + 148, 8);
				tar_sum(&t);
				try_bytes(t.bytes, t.len);
				memcpy(t.bytes + t.last + 148, sum, 8);
			}
		}
		t.bytes[i] = old;
	}
	assert_int_equal(try_bytes(t.bytes, t.len), 0);
	free(t.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_become_samples),
		cmocka_unit_test(labels_that_are_no_numbers),
		cmocka_unit_test(what_belongs_to_no_sample),
		cmocka_unit_test(names_and_sizes_in_every_way),
		cmocka_unit_test(ends_of_archives),
		cmocka_unit_test(fields_that_some_lack),
		cmocka_unit_test(too_many_fields),
		cmocka_unit_test(damaged_samples_keep_their_number),
		cmocka_unit_test(samples_in_pieces),
		cmocka_unit_test(archives_that_were_cut_short),
		cmocka_unit_test(files_that_are_no_tar),
		cmocka_unit_test(probes),
		cmocka_unit_test(reads_that_fail),
		cmocka_unit_test(every_prefix),
		cmocka_unit_test(every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataset - many files as one: where each sample lies against a plain count, the fingerprint
 * against everything that must change it, and the refusals of files that are none.
 */
#include <sys/resource.h>
#include <sys/stat.h>

#include <headrace/headrace.h>

#include "base/fail.h"
#include "loader/dataset.h"
#include "support/support.h"
#include "unit/megatron_bytes.h"

static char *dir;

static int set_up(void **state)
{
	dir = test_mkdir();
	return 0;
}

static int tear_down(void **state)
{
	test_rmdir(dir);
	return 0;
}

static struct hr_dataset *open_files(char **paths, uint32_t n, struct hr_dataset_options opts)
{
	struct hr_dataset *ds = NULL;
	int rc = hr_dataset_open((const char *const *)paths, n, &opts, &ds);

	if (rc)
		fail_msg("%d: %s", rc, hr_error_detail());
	return ds;
}

static void samples_of_many_files(void **state)
{
	static const uint64_t tokens[] = {9, 100, 17, 9, 1000, 10};
	struct hr_dataset_options opts = {.seq_len = 8};
	struct hr_dataset_info info;
	struct hr_dataset *ds;
	char *paths[6], name[8];
	uint64_t index = 0, bytes = 0;

	for (uint32_t i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		paths[i] = test_file(dir, name, tokens[i] * 2);
		bytes += tokens[i] * 2;
	}
	ds = open_files(paths, 6, opts);
	for (uint32_t i = 0; i < 6; i++) {
		for (uint64_t at = 0; at + 9 <= tokens[i]; at += 8, index++) {
			struct hr_file *file = NULL;
			struct hr_range range = {0, 0};

			assert_int_equal(hr_dataset_locate(ds, index, 0, &file, &range, 1), 1);
			assert_string_equal(hr_file_path(file), paths[i]);
			assert_int_equal(range.offset, at * 2);
			assert_int_equal(range.len, 18);
		}
	}
	assert_int_equal(hr_dataset_info(ds, &info), 0);
	assert_int_equal(info.samples, index);
	assert_int_equal(info.files, 6);
	assert_int_equal(info.bytes, bytes);
	assert_int_equal(info.elements, 9);
	assert_int_equal(info.sample_bytes, 18);
	assert_int_equal(info.dtype, HR_DTYPE_U16);
	assert_string_equal(info.format, "tokens");
	{
		struct hr_file *file;
		struct hr_range range;

		assert_int_equal(hr_dataset_locate(ds, index, 0, &file, &range, 1), -EINVAL);
		assert_int_equal(hr_dataset_locate(ds, UINT64_MAX, 0, &file, &range, 1), -EINVAL);
		assert_int_equal(hr_dataset_locate(ds, 0, 1, &file, &range, 1), -EINVAL);
	}
	hr_dataset_close(ds);
	for (uint32_t i = 0; i < 6; i++)
		free(paths[i]);
}

static uint64_t fingerprint(char **paths, uint32_t n, struct hr_dataset_options opts)
{
	struct hr_dataset *ds = open_files(paths, n, opts);
	uint64_t value = ds->info.fingerprint;

	hr_dataset_close(ds);
	return value;
}

/* A file whose bytes are given. */
static char *write_file(const char *name, const void *bytes, size_t len)
{
	char *path = test_file(dir, name, 0);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
	return path;
}

static void write_blob(const char *folder, const char *name, const struct blob *b)
{
	char path[100];

	snprintf(path, sizeof(path), "%s%s", folder, name);
	free(write_file(path, b->bytes, b->len));
}

/* Files of one name and size that say another order. */
static void fingerprint_follows_the_order(void **state)
{
	static const int32_t lengths[] = {40, 40};
	static const char *const folders[] = {"order/one/", "order/two/", "order/three/"};
	static const int64_t documents[] = {0, 1};
	static struct made m;
	static struct blob b;
	uint64_t prints[3];
	char order[600], *bin;

	snprintf(order, sizeof(order), "%s/order", dir);
	assert_int_equal(mkdir(order, 0700), 0);
	bin = test_file(dir, "order/x.bin", 160);
	make_plain(&m, lengths, 2);
	put_idx(&b, &m);
	write_blob("order/", "x.idx", &b);
	for (int k = 0; k < 3; k++) {
		struct hr_dataset_options o = {.format = "megatron", .seq_len = 8, .order = order};
		int64_t samples[20], shuffle[9];

		for (int64_t i = 0; i < 10; i++) {
			samples[2 * i] = i * 8 / 40;
			samples[2 * i + 1] = i * 8 % 40;
		}
		for (int64_t i = 0; i < 9; i++)
			shuffle[i] = k == 1 ? 8 - i : i;
		snprintf(order, sizeof(order), "%s/%s", dir, folders[k]);
		assert_int_equal(mkdir(order, 0700), 0);
		put_npy(&b, "<i4", "(2,)", documents, 2);
		write_blob(folders[k], "document_index.npy", &b);
		put_npy(&b, "<i4", "(10, 2)", samples, 20);
		write_blob(folders[k], "sample_index.npy", &b);
		put_npy(&b, "<u4", "(9,)", shuffle, 9);
		write_blob(folders[k], "shuffle_index.npy", &b);
		prints[k] = fingerprint(&bin, 1, o);
	}
	assert_true(prints[0] != prints[1]);
	assert_true(prints[0] == prints[2]); /* it was moved */
	free(bin);
}

static void fingerprint_follows_the_data(void **state)
{
	char sub[550];
	char *a = test_file(dir, "fp-a", 400), *b = test_file(dir, "fp-b", 400);
	char *longer = test_file(dir, "fp-c", 404), *moved;
	char *ab[] = {a, b}, *ba[] = {b, a}, *ac[] = {a, longer};
	struct hr_dataset_options o = {.seq_len = 8}, long_seq = {.seq_len = 9};
	struct hr_dataset_options strided = {.seq_len = 8, .stride = 4};
	struct hr_dataset_options same = {
		.seq_len = 8, .stride = 8, .dtype = HR_DTYPE_U16, .format = "tokens"};
	struct hr_dataset_options wide = {.seq_len = 8, .dtype = HR_DTYPE_U32};
	uint64_t base = fingerprint(ab, 2, o);

	assert_true(base == fingerprint(ab, 2, o));
	assert_true(base == fingerprint(ab, 2, same));
	assert_true(base != fingerprint(ba, 2, o));
	assert_true(base != fingerprint(ab, 1, o));
	assert_true(base != fingerprint(ac, 2, o));
	assert_true(base != fingerprint(ab, 2, long_seq));
	assert_true(base != fingerprint(ab, 2, strided));
	assert_true(base != fingerprint(ab, 2, wide));
	/* the folder may change */
	snprintf(sub, sizeof(sub), "%s/elsewhere", dir);
	assert_int_equal(mkdir(sub, 0700), 0);
	moved = test_file(sub, "fp-a", 400);
	{
		char *mb[] = {moved, b};

		assert_true(base == fingerprint(mb, 2, o));
	}
	free(a);
	free(b);
	free(longer);
	free(moved);
}

static void expect_refusal(const char *const *paths, uint32_t n, struct hr_dataset_options opts,
			   int code, const char *word)
{
	struct hr_dataset *ds = (void *)0x1;
	int rc;

	hr__fail_set(EIO, "");
	rc = hr_dataset_open(paths, n, &opts, &ds);
	if (rc != -code || !strstr(hr_error_detail(), word))
		fail_msg("%d instead of %d: \"%s\" should have \"%s\"", rc, -code,
			 hr_error_detail(), word);
	assert_ptr_equal(ds, (void *)0x1);
}

static void refusals(void **state)
{
	struct hr_dataset_options o = {.seq_len = 8}, other = {.seq_len = 8, .format = "parquet"};
	char *good = test_file(dir, "good", 400), *odd = test_file(dir, "odd", 401);
	char *empty = test_file(dir, "empty", 0), *tiny = test_file(dir, "tiny", 4), *fifo;
	const char *missing = "/nonexistent/tokens.bin";
	const char *set[3] = {good, odd, good};

	expect_refusal(NULL, 0, o, EINVAL, "no files");
	expect_refusal(set, 0, o, EINVAL, "no files");
	expect_refusal(&missing, 1, o, ENOENT, missing);
	expect_refusal((const char *const *)&dir, 1, o, HR_E_UNKNOWN_FORMAT, dir);
	expect_refusal((const char *const *)&empty, 1, o, HR_E_EMPTY_FILE, "empty");
	expect_refusal((const char *const *)&tiny, 1, o, HR_E_TOO_SHORT, tiny);
	expect_refusal(set, 3, o, HR_E_BAD_FORMAT, odd);
	expect_refusal(set, 1, other, HR_E_UNKNOWN_FORMAT, "parquet");
	expect_refusal(set, 1, (struct hr_dataset_options){.seq_len = 8, .n_fields = 1}, EINVAL,
		       "1 fields");
	fifo = malloc(600);
	snprintf(fifo, 600, "%s/pipe", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	expect_refusal((const char *const *)&fifo, 1, o, HR_E_NOT_A_FILE, fifo);
	if (geteuid() != 0) {
		assert_int_equal(chmod(good, 0), 0);
		expect_refusal(set, 1, o, EACCES, good);
	}
	free(good);
	free(odd);
	free(empty);
	free(tiny);
	free(fifo);
}

static void files_must_agree(void **state)
{
	struct hr_dataset_options o = {.seq_len = 4};
	unsigned char wide[1024 + 40] = {0xa1, 0xd9, 0x34, 0x01, 7, 0, 0, 0, 10};
	unsigned char page[] = "<!doctype html><title>404</title>", zeros[2000] = {0};
	char *paths[4] = {test_file(dir, "narrow", 40), write_file("wide", wide, sizeof(wide)),
			  write_file("page", page, sizeof(page) - 1),
			  write_file("zeros", zeros, sizeof(zeros))};
	const char *only_page[] = {paths[2]};

	expect_refusal((const char *const *)paths, 2, o, HR_E_BAD_DTYPE, "holds u32");
	expect_refusal(only_page, 1, o, HR_E_UNKNOWN_FORMAT, "web page");
	expect_refusal((const char *const *)paths + 3, 1, o, HR_E_UNKNOWN_FORMAT,
		       "begins with zeros");
	for (int i = 0; i < 4; i++)
		free(paths[i]);
}

/* A dataset keeps its files open: who has too many of them is told so. */
static void too_many_files(void **state)
{
	struct hr_dataset_options o = {.seq_len = 8};
	char *good = test_file(dir, "many", 400);
	struct rlimit before, none;
	int lowest = dup(0);

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	expect_refusal((const char *const *)&good, 1, o, EMFILE, "ulimit -n");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	free(good);
}

static void references(void **state)
{
	struct hr_dataset_options o = {.seq_len = 8};
	char *path = test_file(dir, "refs", 400);
	struct hr_dataset *ds = open_files(&path, 1, o);

	hr__dataset_get(ds);
	hr_dataset_close(ds);
	assert_int_equal(ds->info.samples, 24);
	hr__dataset_put(ds);
	hr_dataset_close(NULL);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_of_many_files),
		cmocka_unit_test(fingerprint_follows_the_data),
		cmocka_unit_test(fingerprint_follows_the_order),
		cmocka_unit_test(refusals),
		cmocka_unit_test(too_many_files),
		cmocka_unit_test(files_must_agree),
		cmocka_unit_test(references),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

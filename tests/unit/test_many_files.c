/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_many_files - a dataset of far more files than a process may have open: every sample is the right
 * one in every order and with any number of threads, and the number of descriptors stays within its bound.
 * How: RLIMIT_NOFILE is 128 for 3000 files; what each sample must be follows from the number of its file;
 * the descriptors that lead into the test's folder are counted in /proc with every batch.
 */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "unit/loader_fixture.h"

#include "base/sys.h"
#include "support/tar_bytes.h"

#define FILES 3000u
#define ROWS 2u /* samples of a file */
#define ELEMENTS 64u
#define NOFILE 128u
#define LIMIT (NOFILE / 4)
#define BATCH 20u

static char *root;
static struct hr_device *dev;

/* -- files ------------------------------------------------------------------------------------ */

static uint64_t blob_len(uint32_t file, uint32_t row)
{
	return 40 + (file * 7 + row * 13) % 90;
}

static uint8_t blob_byte(uint32_t file, uint32_t row, uint64_t i)
{
	return test_pattern((uint64_t)file * 4099 + row * 523 + i);
}

static void write_bytes(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

static void write_tar(const char *path, uint32_t file)
{
	struct tar_bytes t = {NULL, 0, 0};
	uint8_t blob[200];
	char name[40];

	for (uint32_t row = 0; row < ROWS; row++) {
		for (uint64_t i = 0; i < blob_len(file, row); i++)
			blob[i] = blob_byte(file, row, i);
		snprintf(name, sizeof(name), "f%06u_%u.bin", file, row);
		tar_member(&t, name, '0', blob, blob_len(file, row));
	}
	tar_end(&t);
	write_bytes(path, t.bytes, t.len);
	free(t.bytes);
}

static int32_t element(uint32_t file, uint32_t row, uint32_t i)
{
	return (int32_t)(file * 100000 + row * 1000 + i);
}

static void write_npy(const char *path, uint32_t file)
{
	static const char text[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': "
				   "False, 'shape': (2, 64), }";
	char bytes[128 + ROWS * ELEMENTS * 4];
	int32_t *data = (int32_t *)(void *)(bytes + 128);

	memset(bytes, ' ', 127);
	memcpy(bytes, text, sizeof(text) - 1);
	bytes[127] = '\n';
	for (uint32_t i = 0; i < ROWS * ELEMENTS; i++)
		data[i] = element(file, i / ELEMENTS, i % ELEMENTS);
	write_bytes(path, bytes, sizeof(bytes));
}

static void file_path(char *path, size_t size, const char *kind, uint32_t file)
{
	snprintf(path, size, "%s/%s/%06u.%s", root, kind, file, kind);
}

static void write_files(const char *kind, uint32_t n)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", root, kind);
	assert_int_equal(mkdir(path, 0700), 0);
	for (uint32_t k = 0; k < n; k++) {
		file_path(path, sizeof(path), kind, k);
		if (strcmp(kind, "tar") == 0)
			write_tar(path, k);
		else
			write_npy(path, k);
	}
}

static int set_up(void **state)
{
	struct rlimit few;

	root = test_mkdir();
	write_files("tar", FILES);
	write_files("npy", FILES);
	if (getrlimit(RLIMIT_NOFILE, &few))
		return -1;
	few.rlim_cur = NOFILE;
	return setrlimit(RLIMIT_NOFILE, &few) || hr_device_open(device_name, &dev);
}

static int tear_down(void **state)
{
	hr_device_close(dev);
	test_rmdir(root);
	return 0;
}

/* Descriptors of this process that lead into the test's folder; 0 without /proc. */
static uint32_t count_files(void)
{
	DIR *all = opendir("/proc/self/fd");
	size_t len = strlen(root);
	struct dirent *each;
	uint32_t n = 0;

	while (all && (each = readdir(all))) {
		char to[600];
		ssize_t got = readlinkat(dirfd(all), each->d_name, to, sizeof(to));

		n += got > (ssize_t)len && memcmp(to, root, len) == 0;
	}
	if (all)
		closedir(all);
	return n;
}

static struct hr_dataset *open_kind(const char *kind)
{
	struct hr_dataset_options opts = {0};
	struct hr_dataset *ds = NULL;
	char folder[600];
	const char *name = folder;

	snprintf(folder, sizeof(folder), "%s/%s", root, kind);
	expect_ok(hr_dataset_open(&name, 1, &opts, &ds));
	return ds;
}

/* -- batches ---------------------------------------------------------------------------------- */

static const struct hr_tensor *tensor(const struct hr_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->n_tensors; i++) {
		if (strcmp(batch->tensors[i].name, name) == 0)
			return &batch->tensors[i];
	}
	fail_msg("no tensor %s", name);
	return NULL;
}

/* The bytes of a tensor, to be freed. */
static void *fetch(const struct hr_batch *batch, const struct hr_tensor *t, uint64_t len)
{
	uint64_t at = (uint64_t)((char *)t->data - (char *)hr_buffer_address(batch->buffer));
	void *bytes = malloc(len + 1);

	expect_ok(hr_buffer_copy_out(batch->buffer, at, bytes, len));
	return bytes;
}

static void check_tar(const struct hr_batch *batch, const uint64_t *map)
{
	const int64_t *offsets = tensor(batch, "bin.offsets")->host;
	uint8_t *bytes = fetch(batch, tensor(batch, "bin"), (uint64_t)offsets[batch->samples]);

	for (uint32_t r = 0; r < batch->samples; r++) {
		uint64_t id = map ? map[batch->ids[r]] : batch->ids[r];
		uint32_t file = (uint32_t)(id / ROWS), row = (uint32_t)(id % ROWS);

		assert_int_equal(offsets[r + 1] - offsets[r], blob_len(file, row));
		for (int64_t i = offsets[r]; i < offsets[r + 1]; i++)
			assert_int_equal(bytes[i],
					 blob_byte(file, row, (uint64_t)(i - offsets[r])));
	}
	free(bytes);
}

static void check_npy(const struct hr_batch *batch, const uint64_t *map)
{
	int32_t *values = fetch(batch, tensor(batch, "data"), batch->samples * ELEMENTS * 4ull);

	for (uint32_t r = 0; r < batch->samples; r++) {
		uint64_t id = map ? map[batch->ids[r]] : batch->ids[r];

		for (uint32_t i = 0; i < ELEMENTS; i++)
			assert_int_equal(values[r * ELEMENTS + i],
					 element((uint32_t)(id / ROWS), (uint32_t)(id % ROWS), i));
	}
	free(values);
}

/* An epoch: every sample once, unless it is a mixture, and right. Return: files that were opened again. */
static uint64_t walk(struct hr_dataset *ds, struct hr_loader_options o, const uint64_t *map)
{
	struct hr_loader_stats stats;
	struct hr_dataset_info info;
	struct hr_loader *loader;
	const struct hr_batch *batch;
	uint32_t bound = LIMIT + 2 * (o.threads + 2); /* those who hold nothing may have one each */
	uint8_t *seen;
	int rc;

	hr_dataset_info(ds, &info);
	seen = calloc(1, info.samples);
	o.batch_size = BATCH;
	o.slots = 8;
	o.epochs = 1;
	o.engine.staging_bytes = 1 << 20;
	expect_ok(hr_loader_open(ds, dev, &o, &loader));
	while ((rc = hr_loader_next(loader, &batch)) == 0) {
		assert_true(count_files() <= bound);
		for (uint32_t r = 0; r < batch->samples; r++)
			seen[batch->ids[r]]++;
		if (strcmp(info.format, "tar") == 0)
			check_tar(batch, map);
		else
			check_npy(batch, map);
		hr_loader_release(loader, batch, NULL);
	}
	expect_code(rc, HR_E_END, "");
	for (uint64_t i = 0; i < info.samples && !ds->weights; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
	hr_loader_stats(loader, &stats);
	hr_loader_close(loader);
	return stats.io.reopened;
}

static void walk_kind(const char *kind)
{
	static const enum hr_shuffle orders[] = {HR_SHUFFLE_NONE, HR_SHUFFLE_WINDOW,
						 HR_SHUFFLE_FULL};
	struct hr_dataset *ds = open_kind(kind);
	uint64_t reopened[3];

	assert_true(count_files() <= LIMIT);
	/* On a GPU files are mapped, too: that takes its time under a sanitizer. */
	for (uint32_t threads = strcmp(device_name, "host") ? 4 : 1; threads <= 4; threads += 3) {
		for (uint32_t i = 0; i < 3; i++) {
			struct hr_loader_options o = {
				.shuffle = orders[i], .threads = threads, .seed = threads + i};

			if (orders[i] == HR_SHUFFLE_WINDOW)
				o.window = 8;
			reopened[i] = walk(ds, o, NULL);
		}
		/* In order, a file is opened once for its two samples; at random, once for each of them. */
		assert_true(reopened[0] >= FILES - 2 * LIMIT);
		assert_true(reopened[2] > reopened[0] + reopened[0] / 3);
		assert_true(reopened[1] < reopened[2]);
	}
	hr_dataset_close(ds);
	assert_int_equal(count_files(), 0);
}

static void archives(void **state)
{
	struct hr_dataset *ds;

	walk_kind("tar"); /* makes the side indexes */
	ds = open_kind("tar");
	walk(ds, (struct hr_loader_options){.threads = 2}, NULL);
	hr_dataset_close(ds);
}

static void arrays(void **state)
{
	walk_kind("npy");
}

/* Without a thread of its own, the caller's does all. */
static void no_threads(void **state)
{
	struct hr_dataset *ds = open_kind("npy");

	walk(ds, (struct hr_loader_options){.threads = 0}, NULL);
	hr_dataset_close(ds);
}

static void told(void **state)
{
	struct hr_dataset *ds = open_kind("npy");
	struct hr_loader_options o = {.batch_size = 4};
	struct hr_loader_info info;
	struct hr_loader *loader;

	expect_ok(hr_loader_open(ds, dev, &o, &loader));
	hr_loader_info(loader, &info);
	assert_non_null(strstr(info.reopen_reason, "3000 files"));
	assert_non_null(strstr(info.reopen_reason, "shuffle within windows"));
	hr_loader_close(loader);
	o.shuffle = HR_SHUFFLE_WINDOW;
	o.window = 4;
	expect_ok(hr_loader_open(ds, dev, &o, &loader));
	hr_loader_info(loader, &info);
	assert_string_equal(info.reopen_reason, "");
	hr_loader_close(loader);
	hr_dataset_close(ds);
}

static void views(void **state)
{
	static uint64_t ids[FILES];
	struct hr_dataset *whole = open_kind("npy"), *some, *mix, *kids[2];
	static uint64_t map[FILES + FILES * ROWS];
	const double weights[] = {1, 2};

	for (uint32_t i = 0; i < FILES; i++)
		map[i] = ids[i] = (uint64_t)(FILES - 1 - i) * ROWS + i % ROWS;
	expect_ok(hr_dataset_select(whole, ids, FILES, &some));
	walk(some, (struct hr_loader_options){.threads = 2}, map);
	for (uint32_t i = 0; i < FILES * ROWS; i++)
		map[FILES + i] = i;
	kids[0] = some;
	kids[1] = whole;
	expect_ok(hr_dataset_mix(kids, weights, 2, 4000, &mix));
	walk(mix, (struct hr_loader_options){.threads = 2}, map);
	hr_dataset_close(mix);
	hr_dataset_close(some);
	hr_dataset_close(whole);
}

/* -- what changes meanwhile ------------------------------------------------------------------- */

static void changed_file(void **state)
{
	struct hr_dataset *ds = open_kind("npy");
	struct hr_loader_options o = {.batch_size = BATCH,
				      .shuffle = HR_SHUFFLE_NONE,
				      .threads = 1,
				      .slots = 4,
				      .epochs = 1};
	struct hr_engine_options engine_options = {.staging_bytes = 1 << 20};
	const struct hr_batch *batch;
	struct hr_loader *loader;
	struct hr_engine *engine;
	struct hr_buffer *buffer;
	struct hr_range range;
	struct hr_file *file;
	char path[600], other[600];
	int rc, batches = 0;

	file_path(path, sizeof(path), "npy", 1500);
	snprintf(other, sizeof(other), "%s/other", root);
	write_npy(other, 77);
	expect_ok(hr_loader_open(ds, dev, &o, &loader));
	assert_int_equal(rename(other, path), 0);
	while ((rc = hr_loader_next(loader, &batch)) == 0) {
		check_npy(batch, NULL);
		hr_loader_release(loader, batch, NULL);
		batches++;
	}
	assert_int_equal(batches, 1500 * ROWS / BATCH);
	expect_code(rc, HR_E_FILE_CHANGED, path);
	hr_loader_close(loader);

	/* The same for a program that reads by itself. */
	expect_ok(hr_engine_open(dev, &engine_options, &engine));
	expect_ok(hr_buffer_alloc(dev, 4096, &buffer));
	assert_int_equal(hr_dataset_locate(ds, 1500 * ROWS, 0, &file, &range, 1), 1);
	expect_code((int)hr_read(engine, file, range.offset, range.len, buffer, 0),
		    HR_E_FILE_CHANGED, path);
	assert_int_equal(hr_dataset_locate(ds, 1501 * ROWS, 0, &file, &range, 1), 1);
	assert_int_equal(hr_read(engine, file, range.offset, range.len, buffer, 0), range.len);
	assert_int_equal(hr_engine_close(engine), 0);
	hr_buffer_free(buffer);
	hr_dataset_close(ds);
	write_npy(path, 1500);
}

/* Of the first @n archives. */
static void remove_indexes(uint32_t n)
{
	char path[600];

	for (uint32_t k = 0; k < n; k++) {
		file_path(path, sizeof(path), "tar", k);
		snprintf(path + strlen(path), 16, ".hrindex");
		assert_int_equal(unlink(path), 0);
	}
}

/* As in a folder that may not be written to. */
static int open_but_new(const char *path, int flags, mode_t mode)
{
	if (flags & O_CREAT && strstr(path, ".hrindex"))
		return -EACCES;
	return hr__sys_real.open(path, flags, mode);
}

/* Side indexes that can be kept nowhere share one file; they are as good as others. */
static void indexes_without_a_name(void **state)
{
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset *ds, *same;
	char path[600];

	remove_indexes(FILES);
	file_path(path, sizeof(path), "tar", 0);
	snprintf(path + strlen(path), 16, ".hrindex");
	sys.open = open_but_new;
	hr__sys = &sys;
	ds = open_kind("tar");
	same = open_kind("tar");
	hr_dataset_close(ds);
	hr__sys = &hr__sys_real;
	assert_int_equal(access(path, F_OK), -1);
	walk(same, (struct hr_loader_options){.threads = 2}, NULL);
	hr_dataset_close(same);
}

/* Ranks that start together each make the indexes that they miss, and the last one's stay: they are alike. */
static void indexes_made_anew(void **state)
{
	struct hr_index_options again = {.force = true};
	struct hr_dataset *ds;
	char folder[600];
	const char *name = folder;

	snprintf(folder, sizeof(folder), "%s/tar", root);
	assert_int_equal(hr_index_build(&name, 1, &again, NULL), FILES);
	ds = open_kind("tar");
	assert_int_equal(hr_index_build(&name, 1, &again, NULL), FILES);
	walk(ds, (struct hr_loader_options){.threads = 2}, NULL);
	hr_dataset_close(ds);
}

/* The program has all other descriptors: files that nobody needs make way, for side indexes, too. */
static void full_process(void **state)
{
	struct hr_dataset *ds, *some = NULL;
	struct hr_dataset_options opts = {0};
	static char paths[50][600];
	const char *names[50];
	struct hr_range range;
	struct hr_file *file;
	int taken[NOFILE], n = 0;

	for (uint32_t k = 0; k < 50; k++) {
		file_path(paths[k], sizeof(paths[k]), "tar", k);
		names[k] = paths[k];
	}
	for (int with_index = 1; with_index >= 0; with_index--) {
		ds = open_kind("tar");
		if (!with_index)
			remove_indexes(50);
		while (n < (int)NOFILE && (taken[n] = dup(0)) >= 0)
			n++;
		assert_int_equal(errno, EMFILE);
		expect_ok(hr_dataset_open(names, 50, &opts, &some));
		for (uint64_t i = 0; i < 50 * ROWS; i++) {
			expect_ok(hr_dataset_locate(some, i, 0, &file, &range, 1));
			assert_int_equal(range.len, blob_len((uint32_t)(i / ROWS), i % ROWS));
		}
		hr_dataset_close(some);
		while (n)
			close(taken[--n]);
		hr_dataset_close(ds);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(archives),
		cmocka_unit_test(arrays),
		cmocka_unit_test(no_threads),
		cmocka_unit_test(told),
		cmocka_unit_test(views),
		cmocka_unit_test(changed_file),
		cmocka_unit_test(indexes_without_a_name),
		cmocka_unit_test(indexes_made_anew),
		cmocka_unit_test(full_process),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(all, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_indexer - side indexes as files: made when a dataset is opened, used again, replaced when the data
 * changed or the index is damaged, kept elsewhere or nowhere, and never half written, whatever fails; many
 * made at once by threads. And what becomes of damaged samples when a dataset is opened by an index.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <headrace/config.h>
#include <headrace/dataset.h>
#include <headrace/error.h>
#include <headrace/loader.h>

#include "base/sys.h"
#include "format/index_file.h"
#include "support/record_bytes.h"
#include "support/tar_bytes.h"

struct folder {
	char path[64], data[96], index[112], spare[120];
};

static char log_text[4096];

static void keep_log(enum hr_log_level level, const char *line, void *user)
{
	size_t len = strlen(log_text);

	snprintf(log_text + len, sizeof(log_text) - len, "%s\n", line);
}

static void write_bytes(const char *path, const void *bytes, size_t len)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void write_tar(const char *path, int samples, const char *text)
{
	struct tar_bytes t = {.len = 0};

	for (int i = 0; i < samples; i++) {
		char name[32], body[64];

		snprintf(name, sizeof(name), "%04d.txt", i);
		snprintf(body, sizeof(body), "%s %d", text, i);
		tar_member(&t, name, '0', body, strlen(body));
	}
	tar_end(&t);
	write_bytes(path, t.bytes, t.len);
	free(t.bytes);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");
	struct folder *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	snprintf(f->path, sizeof(f->path), "%.30s/headrace-index-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->path));
	snprintf(f->data, sizeof(f->data), "%s/data.tar", f->path);
	snprintf(f->index, sizeof(f->index), "%s.hrindex", f->data);
	snprintf(f->spare, sizeof(f->spare), "%s.spare", f->index);
	write_tar(f->data, 10, "sample");
	log_text[0] = '\0';
	*state = f;
	return 0;
}

static int count_files(const char *path, bool remove)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char name[400];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (remove && unlink(name) && errno == EISDIR) {
			count_files(name, true);
			rmdir(name);
		}
		n++;
	}
	closedir(dir);
	return n;
}

static int teardown(void **state)
{
	struct folder *f = *state;

	hr__sys = &hr__sys_real;
	count_files(f->path, true);
	rmdir(f->path);
	free(f);
	return 0;
}

/* Open, compare the first and the last sample with @text, close. Return: samples or -code. */
static int64_t try_open(const char *path, const struct hr_dataset_options *opts, const char *text)
{
	struct hr_dataset_info info;
	struct hr_dataset *ds = NULL;
	int rc = hr_dataset_open(&path, 1, opts, &ds);

	if (rc < 0)
		return rc;
	hr_dataset_info(ds, &info);
	for (uint64_t i = 0; i < info.samples; i += info.samples - 1) {
		struct hr_range range;
		struct hr_file *file;
		char got[64] = "", want[64];
		int fd = open(path, O_RDONLY);

		assert_int_equal(hr_dataset_locate(ds, i, 0, &file, &range, 1), 1);
		assert_true(range.len < sizeof(got));
		assert_int_equal(pread(fd, got, range.len, (off_t)range.offset), range.len);
		close(fd);
		snprintf(want, sizeof(want), "%s %llu", text, (unsigned long long)i);
		assert_string_equal(got, want);
	}
	hr_dataset_close(ds);
	return (int64_t)info.samples;
}

static ino_t inode(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

static void expect_word(const char *text, const char *word)
{
	if (!strstr(text, word))
		fail_msg("\"%s\" lacks \"%s\"", text, word);
}

/* -- one file ---------------------------------------------------------------------------------- */

static void made_once_and_used_again(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {.format = "tar"}, only = {.index_only = true};
	ino_t first;

	assert_int_equal(try_open(f->data, &only, ""), -HR_E_NO_INDEX);
	expect_word(hr_error_detail(), "data.tar.hrindex: there is no such side index");
	expect_word(hr_error_detail(), "headrace index");
	assert_int_equal(count_files(f->path, false), 1);
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	first = inode(f->index);
	assert_int_not_equal(first, 0);
	assert_int_equal(try_open(f->data, &only, "sample"), 10);
	assert_int_equal(inode(f->index), first);
	assert_int_equal(count_files(f->path, false), 2);
}

static void stale_when_size_or_time_differ(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {0}, only = {.index_only = true};
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000, .tv_nsec = 1}};

	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	write_tar(f->data, 12, "other");
	assert_int_equal(try_open(f->data, &only, ""), -HR_E_NO_INDEX);
	expect_word(hr_error_detail(), "stale");
	assert_int_equal(try_open(f->data, &opts, "other"), 12);
	assert_int_equal(try_open(f->data, &only, "other"), 12);
	assert_int_equal(utimensat(AT_FDCWD, f->data, times, 0), 0);
	assert_int_equal(try_open(f->data, &only, ""), -HR_E_NO_INDEX);
	assert_int_equal(try_open(f->data, &opts, "other"), 12);
	assert_int_equal(count_files(f->path, false), 2);
}

/* Many tools keep times or set them all to one, and shards often have one size. */
static void another_file_of_the_same_time(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {0}, only = {.index_only = true};
	struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

	assert_int_equal(utimensat(AT_FDCWD, f->data, times, 0), 0);
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	write_tar(f->data, 10, "elsewhere, and longer than it was");
	assert_int_equal(utimensat(AT_FDCWD, f->data, times, 0), 0);
	assert_int_equal(try_open(f->data, &only, ""), -HR_E_NO_INDEX);
	expect_word(hr_error_detail(), "another file");
	assert_int_equal(try_open(f->data, &opts, "elsewhere, and longer than it was"), 10);
	assert_int_equal(try_open(f->data, &only, "elsewhere, and longer than it was"), 10);
}

static void a_damaged_one_is_made_again(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {0}, only = {.index_only = true};

	write_bytes(f->index, "anything", 8);
	assert_int_equal(try_open(f->data, &only, ""), -HR_E_NO_INDEX);
	expect_word(hr_error_detail(), "no whole side index");
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	assert_int_equal(try_open(f->data, &only, "sample"), 10);
	assert_int_equal(truncate(f->index, 200), 0);
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	assert_int_equal(try_open(f->data, &only, "sample"), 10);
	/* a folder in its place cannot be replaced */
	assert_int_equal(unlink(f->index), 0);
	assert_int_equal(mkdir(f->index, 0700), 0);
	assert_true(try_open(f->data, &opts, "") < 0);
	expect_word(hr_error_detail(), "cannot take this name");
	assert_int_equal(count_files(f->path, false), 2);
	rmdir(f->index);
}

/* Samples that are damaged may be skipped; a damaged index says nothing of samples. */
static void damaged_while_it_is_used(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {.corrupt = HR_CORRUPT_SKIP};
	struct hr_loader_options o = {.batch_size = 2};
	const char *path = f->data;
	struct hr_dataset *ds = NULL;
	struct hr_loader *loader = NULL;
	struct hr_device *dev = NULL;
	const struct hr_batch *batch;
	int fd;

	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), 0);
	fd = open(f->index, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "??", 2, HR__INDEX_HEADER_BYTES), 2);
	close(fd);
	assert_int_equal(hr_device_open("host", &dev), 0);
	assert_int_equal(hr_loader_open(ds, dev, &o, &loader), 0);
	assert_int_equal(hr_loader_next(loader, &batch), -HR_E_NO_INDEX);
	expect_word(hr_error_detail(), "does not have its checksum");
	hr_loader_close(loader);
	hr_dataset_close(ds);
	hr_device_close(dev);
}

static ino_t stale;

static ssize_t stale_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	struct stat st;

	if (stale && fstat(fd, &st) == 0 && st.st_ino == stale)
		return -ESTALE;
	return hr__sys_real.pread(fd, buf, len, offset);
}

/* On NFS the file of one that another machine replaces is gone, although it is open here. */
static void replaced_on_a_server(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {.format = "tar"};
	struct hr_index_options again = {.force = true};
	struct hr__sys sys = hr__sys_real;
	const char *path = f->data;
	struct hr_dataset *ds = NULL;
	struct hr_range range;
	struct hr_file *file;

	sys.pread = stale_pread;
	hr__sys = &sys;
	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), 0);
	stale = inode(f->index);
	assert_int_equal(link(f->index, f->spare), 0); /* so that its number is not given again */
	assert_int_equal(hr_index_build(&path, 1, &again, NULL), 1);
	assert_int_not_equal(inode(f->index), stale);
	assert_int_equal(hr_dataset_locate(ds, 3, 0, &file, &range, 1), 1);
	assert_int_equal(range.len, strlen("sample 3"));
	hr_dataset_close(ds);
	/* With none in its place there is nothing to be done. */
	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), 0);
	stale = inode(f->index);
	assert_int_equal(unlink(f->index), 0);
	assert_int_equal(hr_dataset_locate(ds, 3, 0, &file, &range, 1), -ESTALE);
	expect_word(hr_error_detail(), "data.tar.hrindex");
	hr_dataset_close(ds);
	stale = 0;
}

static void kept_in_another_folder(void **state)
{
	struct folder *f = *state;
	char dir[96], index[128];
	struct hr_dataset_options opts = {.index_dir = dir};

	snprintf(dir, sizeof(dir), "%s/indexes", f->path);
	snprintf(index, sizeof(index), "%s/data.tar.hrindex", dir);
	assert_int_equal(try_open(f->data, &opts, ""), -ENOENT);
	expect_word(hr_error_detail(), "indexes/data.tar.hrindex");
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	assert_int_not_equal(inode(index), 0);
	assert_int_equal(inode(f->index), 0);
}

/* -- system calls that fail -------------------------------------------------------------------- */

static int deny_code;
static bool deny_temp; /* also unnamed ones */

static int deny_open(const char *path, int flags, mode_t mode)
{
	size_t len = strlen(path);

	if ((flags & O_CREAT) && len > 4 && strcmp(path + len - 4, ".tmp") == 0)
		return deny_code;
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return deny_temp ? -EOPNOTSUPP : hr__sys_real.open(path, flags, mode);
	return hr__sys_real.open(path, flags, mode);
}

static void folders_that_cannot_be_written(void **state)
{
	static const int codes[] = {-EACCES, -EROFS, -EPERM};
	struct folder *f = *state;
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset_options opts = {0}, elsewhere = {.index_dir = f->path};
	struct hr_index_options build = {.force = true};
	const char *path = f->data;

	sys.open = deny_open;
	hr__sys = &sys;
	for (size_t i = 0; i < 6; i++) {
		deny_code = codes[i % 3];
		deny_temp = i >= 3;
		log_text[0] = '\0';
		assert_int_equal(try_open(f->data, &opts, "sample"), 10);
		expect_word(log_text, "its folder cannot be written");
		assert_int_equal(count_files(f->path, false), 1);
		/* who named a folder, or asked for an index, wants it there */
		assert_int_equal(try_open(f->data, &elsewhere, ""), deny_code);
		expect_word(hr_error_detail(), "name another folder");
		assert_int_equal(hr_index_build(&path, 1, &build, NULL), deny_code);
	}
	deny_code = -ENOSPC;
	assert_int_equal(try_open(f->data, &opts, ""), -ENOSPC);
	assert_int_equal(count_files(f->path, false), 1);
}

static atomic_int calls_left;
static int call_code;

static ssize_t limited_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
	if (atomic_fetch_sub(&calls_left, 1) <= 0)
		return call_code;
	return hr__sys_real.pwrite(fd, buf, len > 7 ? 7 : len, offset); /* short ones, too */
}

static void writes_that_fail(void **state)
{
	struct folder *f = *state;
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset_options opts = {0};
	int64_t got = -1;

	sys.pwrite = limited_pwrite;
	hr__sys = &sys;
	call_code = -ENOSPC;
	for (int k = 0; k < 500 && got < 0; k++) {
		atomic_store(&calls_left, k);
		got = try_open(f->data, &opts, "sample");
		if (got < 0) {
			assert_int_equal(got, -ENOSPC);
			expect_word(hr_error_detail(), "data.tar.hrindex");
			assert_int_equal(count_files(f->path, false), 1);
		}
	}
	assert_int_equal(got, 10);
	assert_int_equal(count_files(f->path, false), 2);
}

static int rename_fails(const char *from, const char *to)
{
	return -EXDEV;
}

static void renames_that_fail(void **state)
{
	struct folder *f = *state;
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset_options opts = {0};

	sys.rename = rename_fails;
	hr__sys = &sys;
	assert_int_equal(try_open(f->data, &opts, ""), -EXDEV);
	assert_int_equal(count_files(f->path, false), 1);
}

static int rename_not_permitted(const char *from, const char *to)
{
	return -EPERM;
}

/* The stale index of somebody else, in a folder with the sticky bit, is in nobody's way. */
static void the_index_of_somebody_else(void **state)
{
	struct folder *f = *state;
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset_options opts = {0}, named = {.index_dir = f->path};
	struct hr_index_options build = {.dataset = {.format = "tar"}};
	const char *path = f->data;

	sys.rename = rename_not_permitted;
	hr__sys = &sys;
	assert_int_equal(try_open(f->data, &opts, "sample"), 10);
	assert_int_equal(count_files(f->path, false), 1);
	/* who wants it there is told */
	assert_int_equal(try_open(f->data, &named, ""), -EPERM);
	assert_int_equal(hr_index_build(&path, 1, &build, NULL), -EPERM);
	assert_int_equal(count_files(f->path, false), 1);
}

static void a_name_that_is_long_already(void **state)
{
	struct folder *f = *state;
	struct hr_dataset_options opts = {0};
	char name[250], path[400], before[400];

	snprintf(before, sizeof(before), "%s", f->data);
	memset(name, 'n', sizeof(name));
	for (size_t len = 200; len < sizeof(name); len += 7) {
		snprintf(path, sizeof(path), "%s/%.*s.tar", f->path, (int)len, name);
		assert_int_equal(rename(before, path), 0);
		memcpy(before, path, sizeof(before));
		assert_int_equal(try_open(path, &opts, "sample"), 10);
	}
}

/* The data grows while it is read. */
static const char *growing;

static ssize_t pread_grows(int fd, void *buf, size_t len, uint64_t offset)
{
	if (growing && len > 8192) { /* not a look at the head: the scan */
		int data = open(growing, O_WRONLY | O_APPEND);

		assert_int_equal(write(data, "more", 4), 4);
		close(data);
		growing = NULL;
	}
	return hr__sys_real.pread(fd, buf, len, offset);
}

static void data_that_changes_meanwhile(void **state)
{
	struct folder *f = *state;
	struct hr__sys sys = hr__sys_real;
	struct hr_dataset_options opts = {.format = "tar"};

	sys.pread = pread_grows;
	hr__sys = &sys;
	growing = f->data;
	assert_int_equal(try_open(f->data, &opts, ""), -HR_E_FILE_CHANGED);
	expect_word(hr_error_detail(), "changed while it was read");
	assert_int_equal(count_files(f->path, false), 1);
}

/* -- many files -------------------------------------------------------------------------------- */

#define FILES 12

struct seen {
	struct hr_index_progress last;
	int calls, stop_at;
};

static int see(void *ctx, const struct hr_index_progress *p)
{
	struct seen *seen = ctx;

	assert_true(p->bytes >= seen->last.bytes && p->bytes <= p->bytes_total);
	assert_true(p->files >= seen->last.files && p->files <= p->files_total);
	assert_true(p->samples >= seen->last.samples);
	seen->last = *p;
	return ++seen->calls == seen->stop_at ? -ECANCELED : 0;
}

static void make_files(const struct folder *f)
{
	unlink(f->data);
	for (int i = 0; i < FILES; i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%02d.tar", f->path, i);
		write_tar(path, 10 + i, "sample");
	}
}

static void many_at_once(void **state)
{
	struct folder *f = *state;
	const char *path = f->path;
	struct seen seen = {.stop_at = 0};
	struct hr_index_options opts = {
		.dataset = {.index_threads = 4}, .progress = see, .ctx = &seen};
	struct hr_index_progress out;
	uint64_t samples = 10 * FILES + FILES * (FILES - 1) / 2;
	char name[128];

	make_files(f);
	opts.check = true;
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), FILES);
	expect_word(hr_error_detail(), "there is no such side index");
	opts.check = false;
	assert_int_equal(count_files(f->path, false), FILES);
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), FILES);
	assert_int_equal(out.files, FILES);
	assert_int_equal(out.files_total, FILES);
	assert_int_equal(out.samples, samples);
	assert_int_equal(out.bytes, out.bytes_total);
	assert_true(seen.calls >= FILES);
	assert_int_equal(count_files(f->path, false), 2 * FILES);
	/* again: nothing to do, unless it is forced */
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), 0);
	assert_int_equal(out.files_total, 0);
	opts.check = true;
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), 0);
	assert_int_equal(out.samples, samples);
	opts.check = false;
	opts.force = true;
	seen = (struct seen){.calls = 0};
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), FILES);
	opts.force = false;
	/* one damaged in the middle of its blocks */
	snprintf(name, sizeof(name), "%s/05.tar.hrindex", f->path);
	{
		int fd = open(name, O_WRONLY);

		assert_int_equal(pwrite(fd, "x", 1, 140), 1);
		close(fd);
	}
	opts.check = true;
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), 1);
	expect_word(hr_error_detail(), "05.tar.hrindex: block 0 at byte 128");
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), 1); /* it is not healed by that */
}

static void stopped_and_failed(void **state)
{
	struct folder *f = *state;
	const char *path = f->path;
	struct seen seen = {.stop_at = 5};
	struct hr_index_options opts = {
		.dataset = {.index_threads = 3}, .progress = see, .ctx = &seen};
	struct hr_index_progress out;
	char name[128];

	make_files(f);
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), -ECANCELED);
	assert_true(out.files < FILES);
	assert_int_equal(count_files(f->path, false), FILES + (int)out.files);
	/* one of them is no tar: the others may be ready, but it is said */
	snprintf(name, sizeof(name), "%s/07.tar", f->path);
	write_bytes(name, "no tar at all", 13);
	opts.progress = NULL;
	assert_int_equal(hr_index_build(&path, 1, &opts, &out), -HR_E_BAD_FORMAT);
	expect_word(hr_error_detail(), "07.tar: byte 0: no tar header");
}

static void names_that_collide(void **state)
{
	struct folder *f = *state;
	char dir[96], other[128], out_dir[96];
	const char *paths[3];
	struct hr_index_options opts = {.dataset = {.index_dir = out_dir}};

	snprintf(dir, sizeof(dir), "%s/val", f->path);
	snprintf(other, sizeof(other), "%s/data.tar", dir);
	snprintf(out_dir, sizeof(out_dir), "%s/out", f->path);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(mkdir(out_dir, 0700), 0);
	write_tar(other, 3, "sample");
	paths[0] = paths[1] = f->data;
	paths[2] = other;
	assert_int_equal(hr_index_build(paths, 2, &opts, NULL), 1);
	assert_int_equal(hr_index_build(paths, 3, &opts, NULL), -EINVAL);
	expect_word(hr_error_detail(), "one name in");
	opts.dataset.index_dir = NULL;
	assert_int_equal(hr_index_build(paths, 3, &opts, NULL), 2);
}

static void formats_that_need_none(void **state)
{
	struct folder *f = *state;
	const char *path = f->data;
	struct hr_index_options opts = {.dataset = {.format = "tokens"}};

	assert_int_equal(hr_index_build(&path, 1, &opts, NULL), 0);
	assert_int_equal(count_files(f->path, false), 1);
	opts.dataset.format = "nothing";
	assert_int_equal(hr_index_build(&path, 1, &opts, NULL), -HR_E_UNKNOWN_FORMAT);
	assert_int_equal(hr_index_build(&path, 0, &opts, NULL), -EINVAL);
}

/* -- damaged samples ---------------------------------------------------------------------------- */

static void policies_for_damaged_samples(void **state)
{
	struct folder *f = *state;
	struct record_bytes r = {.len = 0};
	struct hr_dataset_options opts = {0};
	struct hr_dataset_info info;
	struct hr_dataset *ds;
	struct hr_range range;
	struct hr_file *file;
	const char *path = f->data;

	record_frame(&r, "first", 5);
	record_frame(&r, "second", 6);
	r.bytes[r.last + 13] ^= 1;
	record_frame(&r, "third one", 9);
	write_bytes(f->data, r.bytes, r.len);
	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), -HR_E_BAD_SAMPLE);
	expect_word(hr_error_detail(),
		    "byte 33: the 6 bytes of record 1 do not have their checksum");
	opts.corrupt = HR_CORRUPT_SKIP;
	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), 0);
	hr_dataset_info(ds, &info);
	assert_int_equal(info.samples, 2);
	assert_int_equal(info.corrupt, 1);
	assert_int_equal(hr_dataset_locate(ds, 1, 0, &file, &range, 1), 1);
	assert_memory_equal(r.bytes + range.offset, "third one", 9);
	hr_dataset_close(ds);
	opts.corrupt = HR_CORRUPT_SUBSTITUTE;
	assert_int_equal(hr_dataset_open(&path, 1, &opts, &ds), 0);
	hr_dataset_info(ds, &info);
	assert_int_equal(info.samples, 3);
	expect_word(info.corrupt_reason, "data.tar: byte 33");
	assert_int_equal(hr_dataset_locate(ds, 1, 0, &file, &range, 1), 1);
	assert_memory_equal(r.bytes + range.offset, "third one", 9);
	hr_dataset_close(ds);
	free(r.bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(made_once_and_used_again),
		TEST(stale_when_size_or_time_differ),
		TEST(another_file_of_the_same_time),
		TEST(a_damaged_one_is_made_again),
		TEST(damaged_while_it_is_used),
		TEST(replaced_on_a_server),
		TEST(kept_in_another_folder),
		TEST(folders_that_cannot_be_written),
		TEST(writes_that_fail),
		TEST(renames_that_fail),
		TEST(the_index_of_somebody_else),
		TEST(a_name_that_is_long_already),
		TEST(data_that_changes_meanwhile),
		TEST(many_at_once),
		TEST(stopped_and_failed),
		TEST(names_that_collide),
		TEST(formats_that_need_none),
		TEST(policies_for_damaged_samples),
	};

	setenv("HEADRACE_LOG", "info", 1);
	hr_log_set(keep_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

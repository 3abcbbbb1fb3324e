/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault/test_late_refusals.c - file systems that promise more than they keep: O_DIRECT can be set and is
 * refused by reads or writes later (overlayfs on squashfs, sshfs), a file cannot be mapped (mergerfs,
 * WekaFS after some hundred maps). Right bytes by another way that is counted, or the reason.
 *
 * Usage: test_late_refusals DEVICE QUEUE [require], QUEUE one of plain, sync; "require" with
 * HEADRACE_REQUIRE=direct in the environment. Refusals are put into the table of system calls.
 */
#include <liburing.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"
#include "transport/transport.h"

#define FILE_LEN ((1u << 20) + 777u)

static const char *device_name = "host", *queue_name = "plain";
static bool require;
static struct hr__sys sys;

static struct {
	bool reads, writes; /* refused when direct */
	int maps;           /* so many more files can be mapped */
} allow;

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *image;
} t;

static int late_result(const struct io_uring_cqe *cqe)
{
	const struct hr__seg *seg = io_uring_cqe_get_data(cqe);
	bool refused = seg->op == HR_READ ? !allow.reads : !allow.writes;

	return refused && seg->direct ? -EINVAL : cqe->res;
}

static bool is_direct(int fd)
{
	return fcntl(fd, F_GETFL) & O_DIRECT;
}

static ssize_t late_pread(int fd, void *buf, size_t len, uint64_t off)
{
	return is_direct(fd) && !allow.reads ? -EINVAL : hr__sys_real.pread(fd, buf, len, off);
}

static ssize_t late_pwrite(int fd, const void *buf, size_t len, uint64_t off)
{
	return is_direct(fd) && !allow.writes ? -EINVAL : hr__sys_real.pwrite(fd, buf, len, off);
}

static void *late_mmap(size_t len, int prot, int flags, int fd, uint64_t off)
{
	if (fd >= 0 && allow.maps-- <= 0)
		return NULL;
	return hr__sys_real.mmap(len, prot, flags, fd, off);
}

static int deny_ring(unsigned int entries, struct io_uring *ring, struct io_uring_params *p)
{
	return -ENOSYS;
}

static int set_up(void **state)
{
	sys = hr__sys_real;
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ | HR_FILE_WRITE, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN + 1, &t.buf), 0);
	t.image = malloc(FILE_LEN + 1);
	/* Opening has looked at a file system that keeps its word. */
	sys.ring_result = late_result;
	sys.pread = late_pread;
	sys.pwrite = late_pwrite;
	sys.mmap = late_mmap;
	if (!strcmp(queue_name, "sync"))
		sys.ring_init = deny_ring;
	allow.reads = allow.writes = true;
	allow.maps = 1000;
	return 0;
}

static int tear_down(void **state)
{
	hr__sys = &hr__sys_real;
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.image);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static bool goes_direct(void)
{
	struct hr_file_info info;

	hr_file_info(t.file, &info);
	return info.direct;
}

static struct hr_engine *open_engine(struct hr_engine_options o)
{
	struct hr_engine *e;

	o.request_bytes = 64 << 10;
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	return e;
}

static struct hr_stats stats_of(struct hr_engine *e)
{
	struct hr_stats s;

	hr_engine_stats(e, &s);
	return s;
}

static void check_read(struct hr_engine *e, uint64_t off, uint64_t len)
{
	memset(t.image, TEST_GUARD, FILE_LEN + 1);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, FILE_LEN + 1), 0);
	assert_int_equal(hr_read(e, t.file, off, len, t.buf, 0), len);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, FILE_LEN + 1), 0);
	for (uint64_t i = 0; i < len; i++) {
		if (t.image[i] != test_pattern(off + i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	assert_int_equal(t.image[len], TEST_GUARD);
}

static void test_reads(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){.direct = true});
	uint64_t retries;

	if (!goes_direct())
		goto out;
	allow.reads = false;
	if (require) {
		assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), -EINVAL);
		goto out;
	}
	check_read(e, 0, FILE_LEN);
	check_read(e, 4097, 300000);
	assert_true(stats_of(e).direct_refused > 0);
	retries = stats_of(e).retries;
	/* Remembered: nobody runs into it again, and another engine does not either. */
	check_read(e, 1, 500000);
	assert_int_equal(stats_of(e).retries, retries);
	assert_int_equal(hr_engine_close(e), 0);
	e = open_engine((struct hr_engine_options){.direct = true});
	check_read(e, 0, FILE_LEN);
	assert_int_equal(stats_of(e).retries, 0);
	assert_true(stats_of(e).direct_refused > 0);
out:
	assert_int_equal(hr_engine_close(e), 0);
}

static void test_writes(void **state)
{
	struct hr_engine *e = open_engine((struct hr_engine_options){0});
	uint8_t *plain = malloc(FILE_LEN);
	int fd = open(t.path, O_RDONLY | O_CLOEXEC);

	if (require || !goes_direct())
		goto out;
	allow.writes = false;
	for (uint64_t i = 0; i < FILE_LEN; i++)
		t.image[i] = test_pattern(i * 3);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, FILE_LEN), 0);
	assert_int_equal(hr_write(e, t.file, 0, FILE_LEN, t.buf, 0), FILE_LEN);
	assert_int_equal(pread(fd, plain, FILE_LEN, 0), FILE_LEN);
	assert_memory_equal(plain, t.image, FILE_LEN);
	assert_true(stats_of(e).direct_refused > 0);
	/* Reads are not refused and find what was written. */
	assert_int_equal(hr_read(e, t.file, 0, FILE_LEN, t.buf, 0), FILE_LEN);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, FILE_LEN), 0);
	assert_memory_equal(plain, t.image, FILE_LEN);
out:
	assert_int_equal(hr_engine_close(e), 0);
	close(fd);
	free(plain);
}

/* Maps serve only to go faster: none, or no more than a few, and all is read by read(2). */
static void test_maps(void **state)
{
	struct hr_residency_info info;
	struct hr_engine *e;

	if (require)
		return;
	for (int few = 0; few < 3; few++) {
		allow.maps = few;
		e = open_engine((struct hr_engine_options){.map = true});
		check_read(e, 3, 400000);
		assert_int_equal(hr_file_residency(t.file, 0, 0, &info), 0);
		assert_int_equal(hr_engine_close(e), 0);
		hr_file_close(t.file);
		assert_int_equal(hr_file_open(t.path, HR_FILE_READ | HR_FILE_WRITE, &t.file), 0);
	}
	allow.maps = 0;
	e = open_engine((struct hr_engine_options){.map = true, .path = HR_PATH_PAGECACHE});
	assert_true(hr_read(e, t.file, 0, 4096, t.buf, 0) < 0);
	assert_non_null(strstr(hr_error_detail(), t.path));
	assert_int_equal(hr_engine_close(e), 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_writes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_maps, set_up, tear_down),
	};

	if (argc > 2) {
		device_name = argv[1];
		queue_name = argv[2];
	}
	require = argc > 3;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

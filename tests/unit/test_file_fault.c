/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a file on a kernel that fails: the k-th system call, each allocation, no /proc, no /sys,
 * and file systems that say odd things about direct I/O. Nothing may leak, and whatever opens must
 * be usable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <headrace/error.h>
#include <headrace/file.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"

#define FILE_BYTES 100000

static struct {
	uint32_t calls, fail_at; /* fail the fail_at-th call with fail_code; 0: none */
	int fail_code;
	uint32_t allocations, fail_allocation;
	bool no_proc, no_sys, no_direct;
	bool odd; /* the answers below replace the kernel's */
	uint32_t magic;
	bool has_dioalign;
	uint32_t offset_align, memory_align;
	uint32_t least_read; /* O_DIRECT reads below it are refused */
	bool buffers;        /* an O_DIRECT read fills the page cache */
	uint64_t cached;
	int inode_flags;
	int direct_fd;
} k;

static struct hr__sys fake;
static char path[256];

/* -- the made-up kernel ----------------------------------------------------------------------- */

static int fails(void)
{
	return ++k.calls == k.fail_at ? -k.fail_code : 0;
}

static int fake_open(const char *name, int flags, mode_t mode)
{
	int err = fails(), fd;

	if (err)
		return err;
	if ((k.no_proc && strncmp(name, "/proc", 5) == 0) ||
	    (k.no_sys && strncmp(name, "/sys", 4) == 0))
		return -ENOENT;
	if ((flags & O_DIRECT) && k.no_direct)
		return -EINVAL;
	fd = hr__sys_real.open(name, k.odd ? flags & ~O_DIRECT : flags, mode);
	if (flags & O_DIRECT)
		k.direct_fd = fd;
	return fd;
}

static int fake_close(int fd)
{
	if (fd == k.direct_fd)
		k.direct_fd = -1;
	hr__sys_real.close(fd); /* as the kernel does, also when it reports a failure */
	return fails();
}

static ssize_t fake_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	int err = fails();

	if (err)
		return err;
	if (k.odd && fd == k.direct_fd) {
		if (len < k.least_read || (uintptr_t)buf % k.least_read)
			return -EINVAL;
		k.cached = k.buffers ? len / 4096 : 0;
	}
	return hr__sys_real.pread(fd, buf, len, offset);
}

static ssize_t fake_pread_flags(int fd, void *buf, size_t len, uint64_t offset, int flags)
{
	int err = fails();

	return err ? err : hr__sys_real.pread_flags(fd, buf, len, offset, flags);
}

static int fake_fstat(int fd, struct stat *st)
{
	int err = fails();

	return err ? err : hr__sys_real.fstat(fd, st);
}

static int fake_fstatfs(int fd, struct statfs *st)
{
	int err = fails();

	err = err ? err : hr__sys_real.fstatfs(fd, st);
	if (!err && k.odd)
		st->f_type = k.magic;
	return err;
}

static int fake_statx(int fd, unsigned int mask, struct statx *stx)
{
	int err = fails();

	err = err ? err : hr__sys_real.statx_fd(fd, mask, stx);
	if (err || !k.odd)
		return err;
	stx->stx_mask &= ~(STATX_DIOALIGN | STATX_MNT_ID);
	if (k.has_dioalign)
		stx->stx_mask |= STATX_DIOALIGN;
	stx->stx_dio_offset_align = k.offset_align;
	stx->stx_dio_mem_align = k.memory_align;
	return 0;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	int err = fails();

	if (err)
		return err;
	if (!k.odd)
		return hr__sys_real.ioctl(fd, request, arg);
	if (request != FS_IOC_GETFLAGS)
		return -ENOTTY;
	*(int *)arg = k.inode_flags;
	return 0;
}

static int fake_cachestat(int fd, uint64_t offset, uint64_t len, struct hr__cachestat *out)
{
	int err = fails();

	if (err || !k.odd)
		return err ? err : hr__sys_real.cachestat(fd, offset, len, out);
	memset(out, 0, sizeof(*out));
	out->cached = k.cached;
	return 0;
}

static void *fake_mmap(size_t len, int prot, int flags, int fd, uint64_t offset)
{
	return fails() ? NULL : hr__sys_real.mmap(len, prot, flags, fd, offset);
}

static int fake_mincore(void *addr, size_t len, unsigned char *vec)
{
	int err = fails();

	return err ? err : hr__sys_real.mincore(addr, len, vec);
}

/* -- failing allocations: the linker sends the library's calls here ---------------------------- */

void *__real_calloc(size_t n, size_t size);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_calloc(size_t n, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t align, size_t size);

static bool allocation_fails(void)
{
	return ++k.allocations == k.fail_allocation;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

char *__wrap_strdup(const char *text)
{
	return allocation_fails() ? NULL : __real_strdup(text);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return allocation_fails() ? NULL : __real_aligned_alloc(align, size);
}

/* -- helpers ---------------------------------------------------------------------------------- */

static uint32_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void check_usable(struct hr_file *file)
{
	unsigned char bytes[3] = {0};
	struct hr_file_info info;

	assert_int_equal(pread(file->fd, bytes, 3, 7), 3);
	assert_int_equal(bytes[2], 9);
	k.fail_at = 0;
	assert_int_equal(hr_file_info(file, &info), 0);
	assert_int_equal(info.size_bytes, FILE_BYTES);
	assert_int_equal(info.direct, *info.direct_reason == '\0');
	assert_true(info.direct ? hr__is_pow2(info.offset_align) : info.offset_align == 0);
}

static struct hr_file *open_odd(void)
{
	struct hr_file *file;

	k.odd = true;
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	check_usable(file);
	return file;
}

/* -- tests ------------------------------------------------------------------------------------ */

static void test_each_call_fails(void **state)
{
	static const int codes[] = {EIO, ENOENT, EINVAL, EPERM, EINTR};

	for (size_t c = 0; c < HR_ARRAY_LEN(codes); c++) {
		uint32_t fds = count_fds(), at = 0;

		do {
			struct hr_file *file = NULL;
			int err;

			k.calls = 0;
			k.fail_at = ++at;
			k.fail_code = codes[c];
			err = hr_file_open(path, HR_FILE_READ, &file);
			assert_true(at < 1000);
			if (err < 0) {
				assert_null(file);
				assert_int_equal(err, -codes[c]);
				assert_non_null(strstr(hr_error_detail(), path));
			} else {
				check_usable(file);
				hr_file_close(file);
			}
			assert_int_equal(count_fds(), fds);
		} while (k.calls >= at && k.calls);
		assert_true(at > 5);
	}
}

static void test_info_with_each_call_failing(void **state)
{
	struct hr_file_info info;
	struct hr_file *file;
	uint32_t fds, at = 0;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	fds = count_fds();
	do {
		k.calls = 0;
		k.fail_at = ++at;
		k.fail_code = EIO;
		if (hr_file_info(file, &info) == 0)
			assert_int_equal(info.size_bytes, FILE_BYTES);
		assert_int_equal(count_fds(), fds);
	} while (k.calls >= at);
	k.fail_at = 0;
	hr_file_close(file);
}

static void test_each_allocation_fails(void **state)
{
	uint32_t fds = count_fds();

	k.odd = true;
	k.magic = 0x1234; /* one that has to be tried, in memory for that */
	for (uint32_t at = 1; at <= 3; at++) {
		struct hr_file *file = NULL;

		k.allocations = 0;
		k.fail_allocation = at;
		assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), -ENOMEM);
		assert_null(file);
		assert_int_equal(count_fds(), fds);
	}
	k.fail_allocation = 0;
}

static void test_without_proc_and_sys(void **state)
{
	struct hr_file_info info;
	struct hr_file *file;

	k.no_proc = true;
	k.no_sys = true;
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	check_usable(file);
	assert_int_equal(hr_file_info(file, &info), 0);
	assert_string_equal(info.block_device, "");
	assert_string_equal(info.block_pci, "");
	assert_int_equal(info.logical_block_bytes, 0);
	assert_true(*info.fs_name != '\0');
	assert_int_equal(
		fcntl(file->fd_direct >= 0 ? file->fd_direct : file->fd, F_GETFL) & O_NONBLOCK, 0);
	hr_file_close(file);
}

static void test_path_leads_elsewhere(void **state)
{
	uint32_t fds = count_fds();
	struct hr_file *file;
	int fd = open(path, O_RDONLY);

	k.no_proc = true;
	/* An import whose path names something else: the duplicate serves, direct I/O does not. */
	assert_int_equal(hr_file_import(fd, "/etc/passwd", &file), 0);
	check_usable(file);
	assert_int_equal(file->fd_direct, -1);
	hr_file_close(file);
	close(fd);
	fd = open(path, O_RDWR | O_APPEND);
	assert_int_equal(hr_file_import(fd, NULL, &file), -ENOENT);
	assert_non_null(strstr(hr_error_detail(), "O_APPEND"));
	close(fd);
	assert_int_equal(count_fds(), fds);
}

static void test_dioalign_answers(void **state)
{
	struct hr_file *file;

	k.magic = XFS_SUPER_MAGIC;
	k.has_dioalign = true;
	file = open_odd(); /* 0, 0 */
	assert_int_equal(file->fd_direct, -1);
	assert_non_null(strstr(file->direct_reason, "inline"));
	hr_file_close(file);
	k.offset_align = 3;
	k.memory_align = 512;
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	hr_file_close(file);
	k.offset_align = 1u << 31;
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	hr_file_close(file);
	k.offset_align = 16384;
	k.memory_align = 8192; /* more than staging memory has */
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	assert_non_null(strstr(file->direct_reason, "8192"));
	hr_file_close(file);
	k.memory_align = 512;
	file = open_odd();
	assert_true(file->fd_direct >= 0);
	hr_file_close(file);
	k.offset_align = 4096;
	k.memory_align = 4;
	file = open_odd();
	assert_true(file->fd_direct >= 0);
	assert_int_equal(file->offset_align, 4096);
	assert_int_equal(file->memory_align, 4);
	assert_string_equal(file->fs_name, "xfs");
	hr_file_close(file);
}

static void test_alignment_by_reading(void **state)
{
	static const uint32_t least[] = {512, 4096, 8192};
	static const uint32_t found[] = {512, 4096, 0};

	k.magic = XFS_SUPER_MAGIC;
	for (size_t i = 0; i < HR_ARRAY_LEN(least); i++) {
		struct hr_file *file;

		k.least_read = least[i];
		file = open_odd();
		assert_int_equal(file->offset_align, found[i]);
		assert_int_equal(file->memory_align, found[i]);
		assert_int_equal(file->fd_direct >= 0, found[i] != 0);
		hr_file_close(file);
	}
}

static void test_silent_buffering(void **state)
{
	struct hr_file *file;

	k.magic = 0x1234; /* a file system that nobody knows */
	k.least_read = 1;
	file = open_odd();
	assert_true(file->fd_direct >= 0);
	assert_string_equal(file->fs_name, "0x1234");
	hr_file_close(file);
	k.buffers = true;
	k.cached = 0;
	k.has_dioalign = true;
	k.offset_align = 512;
	k.memory_align = 512;
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	assert_non_null(strstr(file->direct_reason, "page cache"));
	hr_file_close(file);
	k.cached = 1; /* hot before: looking says nothing, the table decides */
	file = open_odd();
	assert_true(file->fd_direct >= 0);
	hr_file_close(file);
	k.magic = BTRFS_SUPER_MAGIC;
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	assert_non_null(strstr(file->direct_reason, "chattr +C"));
	hr_file_close(file);
	k.inode_flags = FS_NOCOW_FL;
	file = open_odd();
	assert_true(file->fd_direct >= 0);
	hr_file_close(file);
	k.magic = EXT4_SUPER_MAGIC;
	k.inode_flags = FS_JOURNAL_DATA_FL;
	file = open_odd();
	assert_int_equal(file->fd_direct, -1);
	assert_non_null(strstr(file->direct_reason, "journal"));
	hr_file_close(file);
}

static void test_file_systems_without_direct(void **state)
{
	static const uint32_t magics[] = {TMPFS_MAGIC, RAMFS_MAGIC, FUSE_SUPER_MAGIC, V9FS_MAGIC,
					  SQUASHFS_MAGIC};
	struct hr_file *file;

	for (size_t i = 0; i < HR_ARRAY_LEN(magics); i++) {
		k.magic = magics[i];
		file = open_odd();
		assert_int_equal(file->fd_direct, -1);
		assert_int_equal(file->memory_backed, i < 2);
		hr_file_close(file);
	}
	k.no_direct = true;
	k.magic = XFS_SUPER_MAGIC;
	file = open_odd();
	assert_string_equal(file->direct_reason, "xfs does not support O_DIRECT");
	hr_file_close(file);
}

static int setup(void **state)
{
	memset(&k, 0, sizeof(k));
	k.direct_fd = -1;
	k.least_read = 1;
	fake = hr__sys_real;
	fake.open = fake_open;
	fake.close = fake_close;
	fake.pread = fake_pread;
	fake.pread_flags = fake_pread_flags;
	fake.fstat = fake_fstat;
	fake.fstatfs = fake_fstatfs;
	fake.statx_fd = fake_statx;
	fake.ioctl = fake_ioctl;
	fake.cachestat = fake_cachestat;
	fake.mmap = fake_mmap;
	fake.mincore = fake_mincore;
	hr__sys = &fake;
	return 0;
}

static int teardown(void **state)
{
	hr__sys = &hr__sys_real;
	return 0;
}

static int make_file(void **state)
{
	const char *tmp = getenv("TMPDIR");
	unsigned char bytes[FILE_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/headrace-fault.XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	if (fd < 0 || write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
		return -1;
	return close(fd);
}

static int remove_file(void **state)
{
	return unlink(path);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_call_fails),
		TEST(test_info_with_each_call_failing),
		TEST(test_each_allocation_fails),
		TEST(test_without_proc_and_sys),
		TEST(test_path_leads_elsewhere),
		TEST(test_dioalign_answers),
		TEST(test_alignment_by_reading),
		TEST(test_silent_buffering),
		TEST(test_file_systems_without_direct),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}

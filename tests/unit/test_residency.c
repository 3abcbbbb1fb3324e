/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hot, cold, mixed or unknown: a made-up page cache answers cachestat and mincore, right or wrong
 * in the ways that kernels are, and the answer must be true or "unknown".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"

static struct {
	uint64_t page, size;
	bool resident[64]; /* pages of the file */
	int cachestat_error;
	bool denied; /* mincore says that everything is there */
	int mincore_error;
	bool no_mmap;
	uint32_t cachestats, mincores, mmaps, mapped;
} kernel;

static struct hr__sys fake;
static struct hr_file file;

static uint64_t count_resident(uint64_t offset, uint64_t len)
{
	uint64_t n = 0;

	for (uint64_t i = offset / kernel.page; i <= (offset + len - 1) / kernel.page; i++)
		n += i < HR_ARRAY_LEN(kernel.resident) && kernel.resident[i];
	return n;
}

static int fake_cachestat(int fd, uint64_t offset, uint64_t len, struct hr__cachestat *out)
{
	kernel.cachestats++;
	if (kernel.cachestat_error)
		return -kernel.cachestat_error;
	memset(out, 0, sizeof(*out));
	out->cached = count_resident(offset, len);
	return 0;
}

static void *fake_mmap(size_t len, int prot, int flags, int fd, uint64_t offset)
{
	kernel.mmaps++;
	if (kernel.no_mmap)
		return NULL;
	kernel.mapped++;
	assert_true(len > kernel.size); /* one page more: see residency.c */
	return (void *)(uintptr_t)(1ull << 40);
}

static int fake_munmap(void *addr, size_t len)
{
	kernel.mapped--;
	return 0;
}

static int fake_mincore(void *addr, size_t len, unsigned char *vec)
{
	uint64_t at = (uint64_t)(uintptr_t)addr - (1ull << 40);

	kernel.mincores++;
	assert_int_equal(at % kernel.page, 0);
	if (kernel.mincore_error)
		return -kernel.mincore_error;
	/* The upper bits mean nothing and may be set. */
	for (uint64_t i = 0; i < len / kernel.page; i++)
		vec[i] = (unsigned char)(0xf0 |
					 (kernel.denied || count_resident(at + i * kernel.page, 1)
						  ? 1
						  : 0));
	return 0;
}

static int fake_fstat(int fd, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_size = (off_t)kernel.size;
	return 0;
}

static int setup(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.page = (uint64_t)sysconf(_SC_PAGESIZE);
	kernel.size = 32 * kernel.page;
	memset(&file, 0, sizeof(file));
	file.path = (char *)"made up";
	file.flags = HR_FILE_READ;
	atomic_store(&file.map_owner, 0);
	atomic_store(&file.residency, HR__RESIDENCY_CACHESTAT);
	fake = hr__sys_real;
	fake.cachestat = fake_cachestat;
	fake.mmap = fake_mmap;
	fake.munmap = fake_munmap;
	fake.mincore = fake_mincore;
	fake.fstat = fake_fstat;
	hr__sys = &fake;
	return 0;
}

static int teardown(void **state)
{
	hr__sys = &hr__sys_real;
	return 0;
}

static struct hr_residency_info ask(uint64_t offset, uint64_t len)
{
	struct hr_residency_info r;

	assert_int_equal(hr_file_residency(&file, offset, len, &r), 0);
	/* Unknown always has its reason, and nothing else does. */
	assert_int_equal(r.state == HR_RESIDENCY_UNKNOWN, *r.reason != '\0');
	assert_true(r.pages_resident <= r.pages);
	return r;
}

/* Pages 4..7 are resident. */
static void check_answers(const char *method)
{
	uint64_t page = kernel.page;
	struct hr_residency_info r;

	for (int i = 4; i < 8; i++)
		kernel.resident[i] = true;
	r = ask(4 * page, 4 * page);
	assert_int_equal(r.state, HR_RESIDENCY_HOT);
	assert_int_equal(r.pages, 4);
	assert_int_equal(r.pages_resident, 4);
	assert_string_equal(r.method, method);
	assert_int_equal(ask(0, 4 * page).state, HR_RESIDENCY_COLD);
	assert_int_equal(ask(8 * page, 0).state, HR_RESIDENCY_COLD);
	r = ask(0, 0);
	assert_int_equal(r.state, HR_RESIDENCY_MIXED);
	assert_int_equal(r.pages, 32);
	assert_int_equal(r.pages_resident, 4);
	/* One byte too many on either side brings in a cold page. */
	assert_int_equal(ask(4 * page - 1, page).state, HR_RESIDENCY_MIXED);
	assert_int_equal(ask(7 * page, page + 1).state, HR_RESIDENCY_MIXED);
	assert_int_equal(ask(5 * page + 7, 1).state, HR_RESIDENCY_HOT);
	assert_int_equal(hr__file_residency_quick(&file, 4 * page, page), HR_RESIDENCY_HOT);
	assert_int_equal(hr__file_residency_quick(&file, 3 * page, page), HR_RESIDENCY_COLD);
	assert_int_equal(hr__file_residency_quick(&file, 4 * page - 1, 2), HR_RESIDENCY_MIXED);
}

static void test_cachestat(void **state)
{
	check_answers("cachestat");
	assert_int_equal(kernel.mmaps, 0);
}

static void test_fall_back_to_mincore(void **state)
{
	kernel.cachestat_error = ENOSYS;
	check_answers("mincore");
	assert_int_equal(kernel.cachestats, 1); /* not asked again */
	assert_int_equal(kernel.mmaps, 1);      /* the mapping is kept */
}

static void test_overlay_asks_mincore(void **state)
{
	atomic_store(&file.residency, HR__RESIDENCY_MINCORE);
	check_answers("mincore");
	assert_int_equal(kernel.cachestats, 0);
}

static void test_foreign_file(void **state)
{
	kernel.cachestat_error = EPERM;
	kernel.denied = true;
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_UNKNOWN);
}

static void test_quick_after_refusal(void **state)
{
	kernel.cachestat_error = EPERM;
	/* the first question is answered, too, and cachestat is never asked again */
	kernel.resident[0] = true;
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_HOT);
	kernel.resident[0] = false;
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_COLD);
	assert_int_equal(kernel.cachestats, 1);
	/* Longer than one call of mincore takes, and nonsense. */
	assert_int_equal(hr__file_residency_quick(&file, 0, 1ull << 40), HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 0, 0), HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, UINT64_MAX, 2), HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 5, UINT64_MAX - 3), HR_RESIDENCY_UNKNOWN);
}

static void test_memory_and_servers(void **state)
{
	struct hr_residency_info r;

	atomic_store(&file.residency, HR__RESIDENCY_HOT);
	r = ask(5, 10000);
	assert_int_equal(r.state, HR_RESIDENCY_HOT);
	assert_int_equal(r.pages, r.pages_resident);
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_HOT);
	atomic_store(&file.residency, HR__RESIDENCY_NONE);
	assert_string_equal(ask(0, 0).method, "none");
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_UNKNOWN);
	assert_int_equal(kernel.cachestats + kernel.mincores, 0);
}

static void test_mapping_follows_the_file(void **state)
{
	uint64_t page = kernel.page;

	atomic_store(&file.residency, HR__RESIDENCY_MINCORE);
	assert_int_equal(ask(0, 0).pages, 32);
	assert_int_equal(kernel.mmaps, 1);
	kernel.size += 8 * page;
	kernel.resident[39] = true;
	assert_int_equal(ask(39 * page, 1).state, HR_RESIDENCY_HOT);
	assert_int_equal(kernel.mmaps, 2);
	assert_int_equal(kernel.mapped, 1); /* the old one is gone */
	kernel.size = page;
	assert_int_equal(ask(0, 0).pages, 1);
	assert_int_equal(kernel.mmaps, 2);
}

/* At that moment a thread of the parent was making the mapping, and it will never be done in the child. */
static void test_fork_while_asking(void **state)
{
	struct hr_residency_info info;
	int status;
	pid_t pid;

	atomic_store(&file.residency, HR__RESIDENCY_MINCORE);
	atomic_store(&file.map_owner, hr__fork_generation() + 1);
	file.map = &file; /* unmapped, or half written */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool known = hr_file_residency(&file, 0, 0, &info) == 0 &&
			     info.state != HR_RESIDENCY_UNKNOWN && file.map != &file;

		_exit(known && !atomic_load(&file.map_owner) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(hr_file_residency(&file, 0, 0, &info), 0);
	assert_string_equal(info.reason, "another thread is asking");
	file.map = NULL;
	atomic_store(&file.map_owner, 0);
}

static void test_what_cannot_be_asked(void **state)
{
	struct hr_residency_info r;

	atomic_store(&file.residency, HR__RESIDENCY_MINCORE);
	atomic_store(&file.map_owner, hr__fork_generation() + 1); /* another thread */
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	assert_int_equal(hr__file_residency_quick(&file, 0, 1), HR_RESIDENCY_UNKNOWN);
	atomic_store(&file.map_owner, 0);
	kernel.no_mmap = true;
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	kernel.no_mmap = false;
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_COLD); /* the lock was given back */
	kernel.mincore_error = EAGAIN;
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	kernel.mincore_error = 0;
	file.flags = HR_FILE_WRITE;
	assert_int_equal(ask(0, 0).state, HR_RESIDENCY_UNKNOWN);
	file.flags = HR_FILE_READ;
	assert_int_equal(ask(kernel.size, 10).state, HR_RESIDENCY_UNKNOWN);
	assert_int_equal(ask(kernel.size, 10).pages, 0);
	assert_int_equal(hr_file_residency(&file, 10, UINT64_MAX - 5, &r), -EINVAL);
}

/* The real kernel: what was just written and read is not cold. */
static void test_real_file(void **state)
{
	const char *tmp = getenv("TMPDIR");
	struct hr_residency_info r;
	struct hr_file *real;
	char path[256], data[8192];
	int fd;

	hr__sys = &hr__sys_real;
	snprintf(path, sizeof(path), "%s/headrace-residency.XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	memset(data, 7, sizeof(data));
	assert_int_equal(pwrite(fd, data, sizeof(data), 0), sizeof(data));
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &real), 0);
	assert_int_equal(pread(real->fd, data, sizeof(data), 0), sizeof(data));
	assert_int_equal(hr_file_residency(real, 0, 0, &r), 0);
	assert_true(r.state == HR_RESIDENCY_HOT || r.state == HR_RESIDENCY_UNKNOWN);
	/* Both ways to ask agree where both answer. */
	if (r.state == HR_RESIDENCY_HOT && !real->memory_backed) {
		atomic_store(&real->residency, HR__RESIDENCY_MINCORE);
		assert_int_equal(hr_file_residency(real, 0, 0, &r), 0);
		assert_true(r.state != HR_RESIDENCY_COLD && r.state != HR_RESIDENCY_MIXED);
	}
	hr_file_close(real);
	close(fd);
	unlink(path);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cachestat),
		TEST(test_fall_back_to_mincore),
		TEST(test_overlay_asks_mincore),
		TEST(test_foreign_file),
		TEST(test_quick_after_refusal),
		TEST(test_memory_and_servers),
		TEST(test_mapping_follows_the_file),
		TEST(test_fork_while_asking),
		TEST(test_what_cannot_be_asked),
		TEST(test_real_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

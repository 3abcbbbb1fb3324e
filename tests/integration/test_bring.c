/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_bring.c - cold reads that shall stay in the page cache leave large pages there, by
 * every queue, and bring in nothing that nobody asked for; what cannot be brought in is read all the same.
 *
 * Whether this kernel and file system make large pages at all is tried out first, by plain system calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"

#define MIB (1u << 20)
#define LARGE (2u * MIB)
#define FILE_LEN (16u * MIB + 4097)
#define GUARD_LEN 4096u
#define EDGE (256u << 10) /* of large pages that are wanted as good as whole, at both ends */

#define KPF_HEAD (1ull << 15) /* include/uapi/linux/kernel-page-flags.h */
#define KPF_TAIL (1ull << 16)

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *image;
	bool makes_large; /* this file system does, and this process can see it */
	bool never_cold;
} t;

static const char *device_name = "host";

/* -- pages ------------------------------------------------------------------------------------- */

static uint64_t word(const char *path, uint64_t index)
{
	uint64_t value = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (pread(fd, &value, sizeof(value), (off_t)(index * sizeof(value))) != sizeof(value))
		value = 0;
	close(fd);
	return value;
}

/* Pages of the large page that holds the 4 KiB at @off; 1 for a small one, 0 when it cannot be seen. */
static uint32_t pages_at(uint64_t off)
{
	long page = sysconf(_SC_PAGESIZE);
	int fd = open(t.path, O_RDONLY | O_CLOEXEC);
	volatile uint8_t *at = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd, (off_t)off);
	uint64_t frame, flags;
	uint32_t n = 1;

	assert_ptr_not_equal(at, MAP_FAILED);
	madvise((void *)(uintptr_t)at, (size_t)page, MADV_RANDOM); /* nothing else is wanted */
	(void)at[0];
	frame = word("/proc/self/pagemap", (uintptr_t)at / (uint64_t)page) & ((1ull << 55) - 1);
	flags = frame ? word("/proc/kpageflags", frame) : 0;
	if (!frame || (!flags && !word("/proc/kpageflags", frame + 1)))
		n = 0;
	while (n && (word("/proc/kpageflags", frame) & KPF_TAIL))
		frame--;
	while (n && (word("/proc/kpageflags", frame + n) & KPF_TAIL))
		n++;
	munmap((void *)(uintptr_t)at, (size_t)page);
	close(fd);
	return n;
}

static uint64_t resident(void)
{
	struct hr_residency_info info;

	assert_int_equal(hr_file_residency(t.file, 0, 0, &info), 0);
	return info.pages_resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Pages that are just being read stay: until they have come. */
static void chill(void)
{
	struct hr_residency_info info;

	for (uint32_t i = 0; i < 5000; i++) {
		assert_int_equal(hr_file_drop_cache(t.file), 0);
		assert_int_equal(hr_file_residency(t.file, 0, 0, &info), 0);
		if (info.state == HR_RESIDENCY_COLD && !info.pages_resident)
			return;
		if (info.state == HR_RESIDENCY_UNKNOWN || t.never_cold)
			break;
		poll(NULL, 0, 1);
	}
	t.never_cold = true;
	skip(); /* tmpfs is never cold, overlay and FUSE do not tell */
}

/* How far the kernel reads ahead here, in bytes; much where it does not tell. */
static uint64_t read_ahead(void)
{
	char path[96], line[32] = "";
	struct stat st;
	FILE *f;

	assert_int_equal(stat(t.path, &st), 0);
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
		 minor(st.st_dev));
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f))
		snprintf(line, sizeof(line), "8192");
	if (f)
		fclose(f);
	return strtoull(line, NULL, 10) << 10;
}

/* As bring.c does it, without the library. */
static bool try_large(void)
{
	int fd = open(t.path, O_RDONLY | O_CLOEXEC);
	uint8_t *at = mmap(NULL, FILE_LEN, PROT_READ, MAP_SHARED, fd, 0);
	bool done;

	assert_ptr_not_equal(at, MAP_FAILED);
	done = !madvise(at, FILE_LEN, MADV_HUGEPAGE) && !madvise(at, FILE_LEN, MADV_RANDOM) &&
	       !madvise(at, 4096, 22 /* MADV_POPULATE_READ */);
	munmap(at, FILE_LEN);
	close(fd);
	return done && pages_at(4096) * (uint64_t)sysconf(_SC_PAGESIZE) == LARGE;
}

/* -- the library ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN + 2 * GUARD_LEN, &t.buf), 0);
	t.image = malloc(FILE_LEN + 2 * GUARD_LEN);
	hr_file_drop_cache(t.file);
	t.makes_large = !resident() && try_large();
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

/* Read [off, off + len) to the middle of the buffer and compare, guards included. */
static struct hr_stats read_part(struct hr_engine_options o, uint64_t off, uint64_t len)
{
	struct hr_stats stats;
	struct hr_engine *e;

	memset(t.image, TEST_GUARD, FILE_LEN + 2 * GUARD_LEN);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.image, FILE_LEN + 2 * GUARD_LEN), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &e), 0);
	assert_int_equal(hr_read(e, t.file, off, len, t.buf, GUARD_LEN + 3), len);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, FILE_LEN + 2 * GUARD_LEN), 0);
	for (uint64_t i = 0; i < FILE_LEN + 2 * GUARD_LEN; i++) {
		uint64_t at = i - GUARD_LEN - 3;
		bool inside = i >= GUARD_LEN + 3 && at < len;

		if (t.image[i] != (inside ? test_pattern(off + at) : TEST_GUARD))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
	hr_engine_stats(e, &stats);
	assert_int_equal(hr_engine_close(e), 0);
	return stats;
}

static const struct hr_engine_options queues[] = {
	{.cache = HR_CACHE_KEEP},
	{.cache = HR_CACHE_KEEP, .threads = 3},
	{.cache = HR_CACHE_KEEP, .threads = 3, .no_uring = true},
	{.cache = HR_CACHE_KEEP, .no_uring = true},
	{.cache = HR_CACHE_KEEP, .depth = 1},
};
#define QUEUES (sizeof(queues) / sizeof(queues[0]))

/* Such a queue finds what was brought for the one before, and what the kernel read ahead of it. */
static bool one_by_one(size_t q)
{
	return queues[q].depth == 1;
}

static void test_whole_file(void **state)
{
	for (size_t q = 0; q < QUEUES; q++) {
		struct hr_stats stats;

		chill();
		stats = read_part(queues[q], 0, FILE_LEN);
		assert_true(stats.brought > 0);
		assert_true(resident() >= FILE_LEN);
		if (one_by_one(q))
			continue;
		for (uint64_t off = 0; off + LARGE <= FILE_LEN && t.makes_large; off += LARGE)
			assert_int_equal(pages_at(off + 4096) * sysconf(_SC_PAGESIZE), LARGE);
		stats = read_part(queues[q], 0, FILE_LEN);
		assert_int_equal(stats.brought, 0);
		assert_int_equal(stats.bytes_cached, FILE_LEN);
	}
}

static void test_odd_offsets(void **state)
{
	for (size_t q = 0; q < QUEUES; q++) {
		struct hr_stats stats;

		chill();
		stats = read_part(queues[q], 777, FILE_LEN - 777);
		assert_true(stats.brought > 0);
	}
}

/* Parts: large pages inside them, and nothing around them but what the kernel itself reads ahead. */
static void test_parts(void **state)
{
	static const struct {
		uint64_t off, len, large;
	} cases[] = {
		{3 * MIB, MIB, 0},
		{3 * MIB, 2 * MIB, 0},
		{MIB, 6 * MIB, 2},
		{2 * MIB, 4 * MIB, 2},
		{2 * MIB + 65536, 4 * MIB - 65536, 1},
		{2 * MIB + 262144, 4 * MIB - 262144, 1},
		{15 * MIB, MIB + 4097, 0}, /* to the end */
		{14 * MIB, 2 * MIB + 4097, 1},
		{13 * MIB, 3 * MIB + 4097, 1},
	};
	uint64_t ahead = read_ahead();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct hr_engine_options o = {.cache = HR_CACHE_KEEP, .depth = 1};
		bool large = cases[i].large, to_end = cases[i].off + cases[i].len == FILE_LEN;

		chill();
		if (!to_end && cases[i].len < 16 * ahead)
			large = false; /* what is read ahead would be too much of it */
		assert_int_equal(read_part(o, cases[i].off, cases[i].len).brought > 0, large);
		for (uint64_t at = 0; large && t.makes_large && at < cases[i].large; at++)
			assert_true(pages_at(((cases[i].off - 1) / LARGE + at + 1) * LARGE + 4096) >
				    16);
		if (large)
			assert_true(resident() <= cases[i].len + EDGE + 4 * ahead);
	}
}

/* Not what was asked for: many small ones in one place are read as they are. */
static void test_not_for_others(void **state)
{
	struct hr_engine_options o = {.cache = HR_CACHE_AUTO};

	chill();
	assert_int_equal(read_part(o, 0, FILE_LEN).brought, 0);
	chill();
	o.cache = HR_CACHE_KEEP;
	assert_int_equal(read_part(o, 5 * MIB, 8192).brought, 0);
}

static int refused_result(const struct io_uring_cqe *cqe)
{
	int ret = hr__sys_real.ring_result(cqe);

	return ret ? ret : -EINVAL;
}

static void test_refused(void **state)
{
	struct hr__sys sys = hr__sys_real;

	sys.ring_result = refused_result;
	for (size_t q = 0; q < 2; q++) {
		struct hr_stats stats;

		chill();
		hr__sys = &sys;
		stats = read_part(queues[q], 0, FILE_LEN);
		hr__sys = &hr__sys_real;
		assert_int_equal(stats.brought, 0);
		assert_int_equal(stats.bytes_cached, 0);
	}
}

static int cutting_result(const struct io_uring_cqe *cqe)
{
	int ret = hr__sys_real.ring_result(cqe);

	if (!ret)
		assert_int_equal(truncate(t.path, 5 * MIB), 0);
	return ret;
}

/* Cut while it is mapped and brought in: no signal, and the read ends where the file does. */
static void test_truncated(void **state)
{
	struct hr__sys sys = hr__sys_real;

	for (size_t q = 0; q < 2; q++) {
		struct hr_engine *e;
		int64_t got;

		chill();
		assert_int_equal(hr_engine_open(t.dev, &queues[q], &e), 0);
		sys.ring_result = cutting_result;
		hr__sys = &sys;
		got = hr_read(e, t.file, 0, FILE_LEN, t.buf, 0);
		hr__sys = &hr__sys_real;
		assert_true(got >= 5 * MIB && got <= FILE_LEN);
		assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.image, 5 * MIB), 0);
		for (uint64_t i = 0; i < 5 * MIB; i++)
			assert_int_equal(t.image[i], test_pattern(i));
		assert_int_equal(hr_engine_close(e), 0);
		hr_file_close(t.file);
		free(t.path);
		t.path = test_file(t.dir, "data", FILE_LEN);
		assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_odd_offsets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_parts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_for_others, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_truncated, set_up, tear_down),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_truncate.c - a mapped file is truncated under its readers: between planning and moving
 * (by a hook in fstat), and by another thread at any time. Readers must get what read(2) gives, and
 * SIGBUS must reach those whom it concerns.
 *
 * Usage: test_truncate DEVICE [PATH]. The path pagecache by default; bounce copies hot bytes out of a
 * mapping, too, on a device that cannot read it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"
#include "transport/sigbus.h"

#define FILE_LEN 300000u

static const char *device_name = "host";
static enum hr_path wish = HR_PATH_PAGECACHE;
static struct hr__sys sys;
static struct sigaction ours; /* cmocka puts its own handler in its place for each function */

static struct {
	char *dir, *path;
	int fd;
	struct hr_device *dev;
	struct hr_buffer *buf;
	struct hr_engine *engine;
} t;

/* From @from on; the file is never longer than what is written. */
static void write_pattern(uint64_t from)
{
	static _Thread_local uint8_t block[FILE_LEN];

	for (uint64_t i = from; i < FILE_LEN; i++)
		block[i - from] = test_pattern(i);
	assert_int_equal(pwrite(t.fd, block, FILE_LEN - from, (off_t)from), FILE_LEN - from);
}

static int set_up(void **state)
{
	struct hr_engine_options o = {.path = wish, .map = true, .staging_bytes = 2 << 20};

	sys = hr__sys_real;
	hr__sys = &sys;
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	t.fd = open(t.path, O_RDWR | O_CLOEXEC);
	assert_true(t.fd >= 0);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	assert_int_equal(hr_engine_open(t.dev, &o, &t.engine), 0);
	return 0;
}

static int tear_down(void **state)
{
	hr__sys = &hr__sys_real;
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_device_close(t.dev);
	close(t.fd);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

static uint64_t mapped_bytes(void)
{
	struct hr_stats stats;

	hr_engine_stats(t.engine, &stats);
	return stats.bytes_by_path[HR_PATH_PAGECACHE];
}

/*
 * Read and compare every byte that the engine says it has delivered. @racing: only what came by the
 * mapping, where that can be told. A buffered read(2) of the kernel itself, which serves the rest, can
 * see the zeros of a truncation that is under way.
 */
static int64_t read_some(struct hr_file *file, uint64_t off, uint64_t len, bool racing)
{
	static uint8_t image[FILE_LEN];
	uint64_t before = mapped_bytes();
	int64_t n = hr_read(t.engine, file, off, len, t.buf, 0);

	if (n < 0 || n > (int64_t)len)
		fail_msg("%lld: %s", (long long)n, hr_error_detail());
	if (racing && (wish != HR_PATH_PAGECACHE || mapped_bytes() == before))
		return n;
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, image, len), 0);
	for (int64_t i = 0; i < n; i++) {
		if (image[i] != test_pattern(off + (uint64_t)i))
			fail_msg("byte %lld of %lld from %llu is wrong", (long long)i, (long long)n,
				 (unsigned long long)off);
	}
	return n;
}

/* What happens right after the engine has looked at the file for the @when-th time. */
static struct {
	int when;
	uint32_t cut;
	bool regrow;
} hook;

static int truncating_fstat(int fd, struct stat *st)
{
	int ret = hr__sys_real.fstat(fd, st);

	if (--hook.when == 0) {
		assert_int_equal(ftruncate(t.fd, hook.cut), 0);
		if (hook.regrow)
			write_pattern(hook.cut);
	}
	return ret;
}

static void test_between(void **state)
{
	static const uint32_t cuts[] = {0, 1, 4095, 4096, 4097, 10000, 100000, 299999};
	struct hr_stats stats;

	sigaction(SIGBUS, &ours, NULL);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		for (int when = 1; when <= 3; when++) {
			for (int regrow = 0; regrow < 2; regrow++) {
				uint64_t end = 5 + 200000, cut = regrow ? FILE_LEN : cuts[i];
				struct hr_file *file;
				int64_t n;

				assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &file), 0);
				assert_int_equal(read_some(file, 5, 200000, false), 200000);
				hook.when = when;
				hook.cut = cuts[i];
				hook.regrow = regrow;
				sys.fstat = truncating_fstat;
				n = read_some(file, 5, 200000, false);
				sys.fstat = hr__sys_real.fstat;
				if (hook.when <= 0 && when == 1)
					assert_int_equal(n, cut >= end ? 200000
							    : cut > 5  ? cut - 5
								       : 0);
				/* and afterwards */
				n = read_some(file, 5, 200000, false);
				if (hook.when <= 0)
					assert_int_equal(n, cut >= end ? 200000
							    : cut > 5  ? cut - 5
								       : 0);
				hr_file_close(file);
				write_pattern(0);
			}
		}
	}
	hr_engine_stats(t.engine, &stats);
	assert_true(stats.reread > 0);
}

/* No read(2) where a mapping is to be used: or these tests would test nothing. */
static void test_mapped(void **state)
{
	struct hr_stats stats;
	struct hr_file *file;

	sigaction(SIGBUS, &ours, NULL);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &file), 0);
	assert_int_equal(read_some(file, 5, 200000, false), 200000);
	hr_engine_stats(t.engine, &stats);
	assert_int_equal(stats.preads, 0);
	assert_int_equal(stats.bytes_cached, 200000);
	assert_int_equal(stats.bytes_by_path[wish], 200000);
	hr_file_close(file);
}

static atomic_bool stop;

static void *truncate_often(void *arg)
{
	uint64_t seed = 11;

	while (!atomic_load(&stop)) {
		uint64_t cut = test_random(&seed) % FILE_LEN;

		if (ftruncate(t.fd, (off_t)cut))
			break;
		write_pattern(cut);
	}
	return NULL;
}

/* At any time, many times. The file is opened anew, because one fault ends a mapping. */
static void test_any_time(void **state)
{
	uint64_t seed = 5;
	pthread_t thread;

	sigaction(SIGBUS, &ours, NULL);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, truncate_often, NULL), 0);
	for (int i = 0; i < 400; i++) {
		struct hr_file *file;

		assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &file), 0);
		for (int k = 0; k < 5; k++)
			read_some(file, test_random(&seed) % FILE_LEN, 100000, true);
		hr_file_close(file);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_true(wish != HR_PATH_PAGECACHE || mapped_bytes() > 0);
}

static sigjmp_buf outside;

static void on_other(int sig, siginfo_t *info, void *context)
{
	siglongjmp(outside, 1);
}

/* The guard alone: its own range is mended, a fault elsewhere reaches the handler of before. */
static void test_guard(void **state)
{
	atomic_bool broken = false;
	volatile uint8_t *map, *other;
	uint32_t sum = 0;

	sigaction(SIGBUS, &ours, NULL);
	map = mmap(NULL, 16384, PROT_READ, MAP_SHARED, t.fd, 0);
	other = mmap(NULL, 16384, PROT_READ, MAP_SHARED, t.fd, 0);
	assert_true(map != MAP_FAILED && other != MAP_FAILED);
	assert_int_equal(ftruncate(t.fd, 4096), 0);
	hr__sigbus_enter((const void *)map, 16384, &broken);
	assert_int_equal(map[4095], test_pattern(4095));
	assert_false(atomic_load(&broken));
	for (int i = 4096; i < 16384; i++)
		sum += map[i];
	hr__sigbus_leave();
	assert_true(atomic_load(&broken));
	assert_int_equal(sum, 0);
	if (!sigsetjmp(outside, 1)) {
		hr__sigbus_enter((const void *)map, 16384, &broken);
		sum += other[5000];
		fail_msg("a fault outside was swallowed");
	}
	hr__sigbus_leave();
	if (!sigsetjmp(outside, 1)) {
		sum += other[5000]; /* without any guard */
		fail_msg("a fault without a guard was swallowed");
	}
	if (!sigsetjmp(outside, 1)) {
		raise(SIGBUS);
		fail_msg("a sent signal was swallowed");
	}
	munmap((void *)map, 16384);
	munmap((void *)other, 16384);
	write_pattern(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_guard, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_mapped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_between, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_any_time, set_up, tear_down),
	};
	struct sigaction action = {.sa_sigaction = on_other, .sa_flags = SA_SIGINFO};

	if (argc > 1)
		device_name = argv[1];
	if (argc > 2)
		assert_int_equal(hr_path_parse(argv[2], &wish), 0);
	sigaction(SIGBUS, &action, NULL);
	hr__sigbus_install();
	sigaction(SIGBUS, NULL, &ours);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

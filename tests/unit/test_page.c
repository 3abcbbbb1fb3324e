/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_page - the page of statistics: its bytes, what an engine leaves in it, what closing keeps, many
 * writers beside a reader, pages of dead and forked processes, and files that are not what they seem.
 */
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "base/page.h"
#include "base/sys.h"
#include "support/support.h"

#define WRITERS 4
#define CYCLES 25
#define ROUNDS 400

static char *dir;
static struct hr_process_stats seen; /* too large for a stack */

static const char *page_path(uint32_t pid)
{
	static char path[600];

	hr__page_path(path, sizeof(path), dir, pid);
	return path;
}

static bool exists(uint32_t pid)
{
	struct stat st;

	return lstat(page_path(pid), &st) == 0;
}

static bool listed(uint32_t pid)
{
	static uint32_t pids[4096];
	int n = hr_stats_list(pids, 4096);
	bool found = false;

	assert_in_range(n, 0, 4096);
	for (int i = 0; i < n; i++) {
		found |= pids[i] == pid;
		assert_true(i == 0 || pids[i - 1] < pids[i]);
	}
	return found;
}

/* A good page of process @pid, for tests to spoil. */
static struct hr__page *good_page(uint32_t pid)
{
	struct hr__page *page = calloc(1, sizeof(*page));

	page->head = (struct hr__page_head){
		.magic = HR__PAGE_MAGIC,
		.version = HR__PAGE_VERSION,
		.page_bytes = sizeof(*page),
		.words = HR__PAGE_WORDS,
		.buckets = HR_STATS_BUCKETS,
		.pid = pid,
		.uid = geteuid(),
		.name = "good",
	};
	assert_int_equal(hr__page_start_ticks(pid, &page->head.start_ticks), 0);
	assert_true(page->head.start_ticks > 0);
	return page;
}

static void put_file(uint32_t pid, const void *bytes, size_t len, mode_t mode)
{
	int fd = open(page_path(pid), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void refused(uint32_t pid, int code, const char *word)
{
	assert_int_equal(hr_stats_read(pid, &seen), code);
	if (!strstr(hr_error_detail(), word))
		fail_msg("'%s' does not say '%s'", hr_error_detail(), word);
}

/* -- tests ----------------------------------------------------------------------------------- */

/* Other processes, perhaps of another build, read these places. */
static void places_never_move(void **state)
{
	const struct hr__page *page = good_page((uint32_t)getpid());

	assert_memory_equal(page, "HRSTATS\n\1\0\0\0", 12);
	assert_int_equal(offsetof(struct hr__page_head, start_ticks), 32);
	assert_int_equal(offsetof(struct hr__page_head, turn), 48);
	assert_int_equal(offsetof(struct hr__page_engine, words), 96);
	assert_int_equal(offsetof(struct hr__page, engines), 2848);
	assert_int_equal(sizeof(*page), 2848 + 65 * (96 + 8 * (40 + 1024)));
	free((void *)page);
}

static void buckets_hold_what_they_say(void **state)
{
	uint64_t times[] = {1, 2, 3, 15, 16, 17, 31, 32, 1000, 1023, 1024, 1025, 123456789};

	for (uint64_t ns = 1; ns < 1ull << 60; ns = ns + ns / 7 + 1) {
		uint32_t i = (uint32_t)hr__page_bucket(ns);

		assert_in_range(i, 0, HR_STATS_BUCKETS - 1);
		assert_true(ns < hr_stats_bucket_ns(i));
		assert_true(i == 0 || ns >= hr_stats_bucket_ns(i - 1));
	}
	for (size_t k = 0; k < sizeof(times) / sizeof(*times); k++) {
		uint32_t i = (uint32_t)hr__page_bucket(times[k]);

		assert_true(times[k] < hr_stats_bucket_ns(i));
		assert_true(i == 0 || times[k] >= hr_stats_bucket_ns(i - 1));
	}
	for (uint32_t i = 64; i + 2 < HR_STATS_BUCKETS; i++) /* 1/16 of a power of two at most */
		assert_true(hr_stats_bucket_ns(i) - hr_stats_bucket_ns(i - 1) <=
			    hr_stats_bucket_ns(i - 1) / 16);
	assert_true(hr_stats_bucket_ns(HR_STATS_BUCKETS - 1) == UINT64_MAX);
	assert_true(hr_stats_bucket_ns(UINT32_MAX) == UINT64_MAX);
	assert_true(hr__page_bucket(INT64_MAX) < HR_STATS_BUCKETS);
}

static void read_some(struct hr_engine *engine, struct hr_file *file, struct hr_buffer *buffer)
{
	struct hr_io ios[8], *list[8];
	uint32_t left = 8;

	memset(ios, 0, sizeof(ios));
	for (uint32_t i = 0; i < 8; i++) {
		ios[i].file = file;
		ios[i].buffer = buffer;
		ios[i].piece = (struct hr_piece){i * 8192, 8192, i * 8192};
		list[i] = &ios[i];
	}
	assert_int_equal(hr_submit(engine, list, 8), 8);
	while (left)
		left -= (uint32_t)hr_reap(engine, list, 8, 1, 1000000000);
	assert_int_equal(hr_read(engine, file, 0, 4096, buffer, 0), 4096);
}

/* An engine before and after hr_stats_publish(): unseen, then seen number by number, then kept. */
static void engine_is_seen(void **state)
{
	char *path = test_file(dir, "data", 65536);
	uint32_t me = (uint32_t)getpid();
	struct hr_engine *before, *engine;
	struct hr_buffer *buffer;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_stats own;
	uint64_t times = 0;
	struct stat st;

	assert_int_equal(hr_device_open("host", &dev), 0);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_buffer_alloc(dev, 65536, &buffer), 0);
	assert_int_equal(hr_engine_open(dev, NULL, &before), 0);
	assert_false(exists(me));
	refused(me, -ENOENT, "HEADRACE_STATS=1");

	assert_int_equal(hr_stats_publish(true), 0);
	assert_int_equal(lstat(page_path(me), &st), 0);
	assert_true(S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600);
	assert_int_equal(st.st_size, sizeof(struct hr__page));
	assert_true(listed(me));
	assert_int_equal(hr_engine_open(dev, NULL, &engine), 0);
	read_some(engine, file, buffer);
	hr_engine_stats(engine, &own);
	assert_int_equal(own.ios, 9);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_memory_equal(&seen.io, &own, sizeof(own));
	assert_int_equal(seen.n_engines, 1);
	assert_string_equal(seen.engines[0].device, "host");
	assert_memory_equal(&seen.engines[0].io, &own, sizeof(own));
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		times += seen.latency[i];
	assert_int_equal(times, 9);
	assert_true(seen.latency_ns > 0 && seen.in_flight == 0);

	read_some(before, file, buffer); /* opened too early to be shown */
	hr_engine_close(before);
	hr_engine_close(engine);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_int_equal(seen.n_engines, 0);
	assert_int_equal(seen.engines_opened, 1);
	assert_memory_equal(&seen.io, &own, sizeof(own));
	assert_int_equal(hr_stats_publish(false), 0);
	assert_int_equal(hr_stats_publish(false), 0);
	assert_false(exists(me));
	hr_buffer_free(buffer);
	hr_file_close(file);
	hr_device_close(dev);
	free(path);
}

/* The page goes with the last user, whoever that is; places beyond the last are counted. */
static void places_are_given_back(void **state)
{
	struct hr__page_engine *places[HR_STATS_ENGINES_MAX];
	uint32_t me = (uint32_t)getpid();
	struct hr__page_loader *loader;

	assert_null(hr__page_engine_claim("host", "sync", 1));
	assert_null(hr__page_loader_claim());
	assert_int_equal(hr_stats_publish(true), 0);
	for (uint32_t i = 0; i < HR_STATS_ENGINES_MAX; i++) {
		places[i] = hr__page_engine_claim("host", "sync", i);
		assert_non_null(places[i]);
	}
	assert_null(hr__page_engine_claim("host", "sync", 1));
	loader = hr__page_loader_claim();
	loader->wait_ns = 7;
	loader->batches = 3;
	assert_int_equal(hr_stats_publish(false), 0);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_int_equal(seen.n_engines, HR_STATS_ENGINES_MAX);
	assert_int_equal(seen.engines_hidden, 1);
	assert_int_equal(seen.engines[63].depth, 63);
	for (uint32_t i = 0; i < HR_STATS_ENGINES_MAX; i++)
		hr__page_engine_release(places[i]);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_int_equal(seen.n_loaders, 1);
	assert_true(seen.wait_ns == 7 && seen.batches == 3);
	hr__page_loader_release(loader);
	assert_false(exists(me));
}

static void reasons_are_counted(void **state)
{
	char text[40];

	assert_int_equal(hr_stats_publish(true), 0);
	for (uint32_t i = 0; i < 20; i++) {
		snprintf(text, sizeof(text), "reason %u\x1b[2J", i);
		hr__page_refuse("path", text);
	}
	hr__page_refuse("path", "reason 3\x1b[2J");
	assert_int_equal(hr_stats_read((uint32_t)getpid(), &seen), 0);
	assert_int_equal(seen.n_refusals, HR_STATS_REFUSALS_MAX);
	assert_string_equal(seen.refusals[3].reason,
			    "path: reason 3?[2J"); /* nothing for a terminal */
	assert_int_equal(seen.refusals[3].count, 2);
	assert_string_equal(seen.refusals[15].reason, "other reasons");
	assert_int_equal(seen.refusals[15].count, 5);
	assert_int_equal(hr_stats_publish(false), 0);
	hr__page_refuse("path", "nobody listens");
}

static void *write_much(void *arg)
{
	struct hr_stats stats = {0};

	for (uint32_t cycle = 0; cycle < CYCLES; cycle++) {
		struct hr__page_engine *place = hr__page_engine_claim("host", "sync", 1);

		assert(place);
		memset(&stats, 0, sizeof(stats));
		for (uint32_t i = 0; i < ROUNDS; i++) {
			stats.ios++;
			stats.bytes_by_path[HR_PATH_HOST] += 10;
			hr__page_latency(place, 100 + i);
			hr__page_store(place, &stats);
		}
		hr__page_engine_release(place);
	}
	return NULL;
}

static void many_writers_one_reader(void **state)
{
	const uint64_t all = (uint64_t)WRITERS * CYCLES * ROUNDS;
	uint32_t me = (uint32_t)getpid();
	pthread_t threads[WRITERS];
	uint64_t times = 0;

	assert_int_equal(hr_stats_publish(true), 0);
	for (uint32_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_much, NULL), 0);
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(hr_stats_read(me, &seen), 0);
		assert_in_range(seen.n_engines, 0, WRITERS);
		for (uint32_t k = 0; k < seen.n_engines; k++)
			assert_true(seen.engines[k].io.ios <= ROUNDS);
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		times += seen.latency[i];
	assert_true(seen.io.ios == all && times == all);
	assert_true(seen.io.bytes_by_path[HR_PATH_HOST] == 10 * all);
	assert_int_equal(seen.engines_opened, WRITERS * CYCLES);
	assert_int_equal(hr_stats_publish(false), 0);
}

/* A child has a page of its own; one that dies leaves it, and the next list takes it away. */
static void children_and_the_dead(void **state)
{
	struct hr__page_engine *place;
	uint32_t me = (uint32_t)getpid();
	struct hr__page *page;
	int status;
	pid_t child;

	assert_int_equal(hr_stats_publish(true), 0);
	place = hr__page_engine_claim("host", "sync", 1);
	child = fork();
	if (child == 0) {
		struct hr__page_engine *own = hr__page_engine_claim("host", "sync", 2);

		own->words[0] = 5;
		_exit(exists((uint32_t)getpid()) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_true(seen.io.ios == 0 && seen.n_engines == 1);
	assert_true(exists((uint32_t)child));
	refused((uint32_t)child, -ESRCH, "gone");
	assert_false(listed((uint32_t)child));
	assert_false(exists((uint32_t)child));
	assert_true(listed(me));
	hr__page_engine_release(place);
	assert_int_equal(hr_stats_publish(false), 0);

	/* The number lives on in another process: it started at another time. */
	page = good_page((uint32_t)getppid());
	page->head.start_ticks--;
	put_file((uint32_t)getppid(), page, sizeof(*page), 0600);
	refused((uint32_t)getppid(), -ESRCH, "gone");
	assert_false(listed((uint32_t)getppid()));
	assert_false(exists((uint32_t)getppid()));
	/* A page of our own number from before is no hindrance. */
	put_file(me, "old", 3, 0600);
	assert_int_equal(hr_stats_publish(true), 0);
	assert_int_equal(hr_stats_read(me, &seen), 0);
	assert_int_equal(hr_stats_publish(false), 0);
	free(page);
}

static void files_that_are_not_pages(void **state)
{
	uint32_t pid = (uint32_t)getppid();
	struct hr__page *page = good_page(pid);
	char *other = test_file(dir, "other", sizeof(*page));

	put_file(pid, page, sizeof(*page), 0600);
	assert_int_equal(hr_stats_read(pid, &seen), 0); /* or the rest proves nothing */
	assert_true(listed(pid));
	put_file(pid, page, sizeof(*page) - 1, 0600);
	refused(pid, -HR_E_BAD_FORMAT, "bytes instead of");
	put_file(pid, page, 100, 0600);
	refused(pid, -HR_E_BAD_FORMAT, "not a page");
	put_file(pid, page, 0, 0600);
	refused(pid, -HR_E_BAD_FORMAT, "not a page");
	put_file(pid, page, sizeof(*page), 0600);
	assert_int_equal(truncate(page_path(pid), sizeof(*page) + 1), 0);
	refused(pid, -HR_E_BAD_FORMAT, "bytes instead of");
	put_file(pid, page, sizeof(*page), 0620);
	refused(pid, -EPERM, "others may write");
	unlink(page_path(pid));
	assert_int_equal(mkfifo(page_path(pid), 0600), 0);
	refused(pid, -HR_E_BAD_FORMAT, "not a regular file");
	unlink(page_path(pid));
	put_file(pid, page, sizeof(*page), 0600);
	assert_int_equal(rename(page_path(pid), other), 0);
	assert_int_equal(symlink(other, page_path(pid)), 0);
	refused(pid, -ELOOP, "symbolic link");
	assert_false(listed(pid));
	assert_true(exists(pid)); /* what is not ours to judge stays */
	unlink(page_path(pid));
	unlink(other);
	free(other);
	free(page);
}

static void heads_that_lie(void **state)
{
	uint32_t pid = (uint32_t)getppid();
	struct hr__page *page = good_page(pid);
	static const struct {
		size_t at;
		const char *word;
	} fields[] = {
		{offsetof(struct hr__page_head, magic), "not a page"},
		{offsetof(struct hr__page_head, version), "layout"},
		{offsetof(struct hr__page_head, page_bytes), "layout"},
		{offsetof(struct hr__page_head, words), "layout"},
		{offsetof(struct hr__page_head, buckets), "layout"},
		{offsetof(struct hr__page_head, pid), "copied or forged"},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		((uint8_t *)page)[fields[i].at] ^= 0x40;
		put_file(pid, page, sizeof(*page), 0600);
		refused(pid, -HR_E_BAD_FORMAT, fields[i].word);
		((uint8_t *)page)[fields[i].at] ^= 0x40;
	}
	/* A writer that died while places changed hands must not hold a reader up for ever. */
	page->head.turn = 7;
	put_file(pid, page, sizeof(*page), 0600);
	assert_int_equal(hr_stats_read(pid, &seen), 0);
	unlink(page_path(pid));
	free(page);
}

static void files_of_others(void **state)
{
	uint32_t pid = (uint32_t)getppid();
	struct hr__page *page;

	if (geteuid() != 0) {
		print_message("only root can make a file of another user\n");
		skip();
	}
	page = good_page(pid);
	put_file(pid, page, sizeof(*page), 0600);
	assert_int_equal(chown(page_path(pid), 12345, 12345), 0);
	refused(pid, -EPERM, "belongs to user 12345");
	assert_false(listed(pid));
	assert_true(exists(pid));
	unlink(page_path(pid));
	free(page);
}

static int no_room(int fd, int mode, uint64_t offset, uint64_t len)
{
	return -ENOSPC;
}

static int no_promise(int fd, int mode, uint64_t offset, uint64_t len)
{
	return -EOPNOTSUPP;
}

/* A full file system is told at once, not by a signal at the first counter. */
static void no_room_for_it(void **state)
{
	struct hr__sys sys = hr__sys_real;
	struct stat st;

	sys.fallocate = no_room;
	hr__sys = &sys;
	assert_int_equal(hr_stats_publish(true), -ENOSPC);
	assert_non_null(strstr(hr_error_detail(), "XDG_RUNTIME_DIR"));
	assert_false(exists((uint32_t)getpid()));
	assert_null(hr__page_engine_claim("host", "sync", 1));
	sys.fallocate = no_promise;
	assert_int_equal(hr_stats_publish(true), 0);
	assert_int_equal(stat(page_path((uint32_t)getpid()), &st), 0);
	assert_true(st.st_blocks * 512 >= (long)sizeof(struct hr__page));
	assert_int_equal(hr_stats_read((uint32_t)getpid(), &seen), 0);
	assert_int_equal(hr_stats_publish(false), 0);
	hr__sys = &hr__sys_real;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_never_move),
		cmocka_unit_test(buckets_hold_what_they_say),
		cmocka_unit_test(engine_is_seen),
		cmocka_unit_test(places_are_given_back),
		cmocka_unit_test(reasons_are_counted),
		cmocka_unit_test(many_writers_one_reader),
		cmocka_unit_test(children_and_the_dead),
		cmocka_unit_test(files_that_are_not_pages),
		cmocka_unit_test(heads_that_lie),
		cmocka_unit_test(files_of_others),
		cmocka_unit_test(no_room_for_it),
	};
	int ret;

	dir = test_mkdir();
	setenv("XDG_RUNTIME_DIR", dir, 1);
	unsetenv("HEADRACE_STATS");
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	test_rmdir(dir);
	return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rest - files that rest: never more descriptors than the limit, the right bytes whenever a file is
 * held, none closed under a hold, and every way in which a file may have changed meanwhile refused by name.
 * How: the table of system calls counts what is open at each moment, and fails where a test wants it to.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "file/fsinfo.h"
#include "file/rest.h"
#include "support/fork.h"
#include "support/support.h"

#define FILES 60u
#define FILE_BYTES 5000u
#define LIMIT 16 /* descriptors, for RLIMIT_NOFILE / 4 or less */
#define THREADS 4u
#define ROUNDS 3000u

static char *dir;
static char *paths[FILES];
static struct hr_file *files[FILES];
static struct rlimit before;

/* -- system calls that are counted, or fail --------------------------------------------------- */

static struct hr__sys counting;
static atomic_int open_now, open_most;
static atomic_int fail_open_in, fail_statx_in; /* this many calls from now, if > 0 */
static int fail_code;

static bool is_due(atomic_int *in)
{
	return atomic_load(in) > 0 && atomic_fetch_sub(in, 1) == 1;
}

static int counted_open(const char *path, int flags, mode_t mode)
{
	int fd, now, most;

	if (is_due(&fail_open_in))
		return fail_code;
	fd = hr__sys_real.open(path, flags, mode);
	if (fd < 0)
		return fd;
	now = atomic_fetch_add(&open_now, 1) + 1;
	most = atomic_load(&open_most);
	while (now > most && !atomic_compare_exchange_weak(&open_most, &most, now))
		;
	return fd;
}

static int counted_close(int fd)
{
	atomic_fetch_sub(&open_now, 1); /* before: another thread may open in its place at once */
	return hr__sys_real.close(fd);
}

static uint32_t device_major, device_minor; /* of all files, if one is set */

static int statx_of(int fd, unsigned int mask, struct statx *stx)
{
	int err = is_due(&fail_statx_in) ? fail_code : hr__sys_real.statx_fd(fd, mask, stx);

	if (device_major || device_minor) {
		stx->stx_dev_major = device_major;
		stx->stx_dev_minor = device_minor;
	}
	return err;
}

static uint32_t magic; /* of the file system, if it shall be another */

static int fstatfs_of(int fd, struct statfs *st)
{
	int err = hr__sys_real.fstatfs(fd, st);

	if (magic)
		st->f_type = magic;
	return err;
}

/* -- the files -------------------------------------------------------------------------------- */

/* Where byte @i of file @k comes from in the pattern: no two files are alike. */
static uint64_t seed_of(uint32_t k, uint64_t i)
{
	return (uint64_t)k * 1000003 + i;
}

static void write_pattern(const char *path, uint32_t k, uint64_t len)
{
	uint8_t *bytes = malloc(len);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = test_pattern(seed_of(k, i));
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
	free(bytes);
}

static int set_up(void **state)
{
	struct rlimit few;

	dir = test_mkdir();
	for (uint32_t k = 0; k < FILES; k++) {
		paths[k] = malloc(600);
		snprintf(paths[k], 600, "%s/%02u", dir, k);
		write_pattern(paths[k], k, FILE_BYTES);
	}
	counting = hr__sys_real;
	counting.open = counted_open;
	counting.close = counted_close;
	counting.statx_fd = statx_of;
	counting.fstatfs = fstatfs_of;
	hr__sys = &counting;
	if (getrlimit(RLIMIT_NOFILE, &before))
		return -1;
	few = before;
	few.rlim_cur = 4 * LIMIT;
	return setrlimit(RLIMIT_NOFILE, &few);
}

static int tear_down(void **state)
{
	setrlimit(RLIMIT_NOFILE, &before);
	hr__sys = &hr__sys_real;
	for (uint32_t k = 0; k < FILES; k++)
		free(paths[k]);
	test_rmdir(dir);
	return 0;
}

static void open_all(void)
{
	for (uint32_t k = 0; k < FILES; k++)
		assert_int_equal(hr__rest_open(paths[k], &files[k]), 0);
}

static void close_all(void)
{
	struct hr__rest_counts c;

	for (uint32_t k = 0; k < FILES; k++)
		hr_file_close(files[k]);
	hr__rest_counts(&c);
	assert_int_equal(c.open, 0);
	assert_int_equal(atomic_load(&open_now), 0);
}

/* The file is held: bytes by both descriptors. */
static void check_bytes(const struct hr_file *file, uint32_t k, uint64_t at)
{
	static _Thread_local _Alignas(4096) uint8_t block[4096];
	uint8_t byte = 0;

	assert_int_equal(hr__sys->pread(file->fd, &byte, 1, at), 1);
	assert_int_equal(byte, test_pattern(seed_of(k, at)));
	if (!hr__file_has_direct(file)) {
		assert_int_equal(file->fd_direct, -1);
		return;
	}
	assert_int_equal(hr__sys->pread(file->fd_direct, block, sizeof(block), 0), sizeof(block));
	assert_int_equal(block[at % sizeof(block)], test_pattern(seed_of(k, at % sizeof(block))));
}

/* Let file @k be closed, by use of the others. */
static void send_to_rest(uint32_t k)
{
	for (uint32_t i = 0; i < 2 * FILES && hr__file_is_open(files[k]); i++) {
		if (i % FILES == k)
			continue;
		assert_true(hr__file_hold(files[i % FILES], true) >= 0);
		hr__file_release(files[i % FILES]);
	}
	assert_false(hr__file_is_open(files[k]));
}

/* -- tests ------------------------------------------------------------------------------------ */

static void bounded(void **state)
{
	struct hr__rest_counts c, then;
	uint64_t random = 1;

	atomic_store(&open_most, 0);
	open_all();
	hr__rest_counts(&then);
	assert_int_equal(then.limit, LIMIT);
	assert_true(then.open <= LIMIT);
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t k = (uint32_t)(test_random(&random) % FILES);
		bool was_open = hr__file_is_open(files[k]);

		assert_int_equal(hr__file_hold(files[k], false), was_open ? 0 : 1);
		check_bytes(files[k], k, test_random(&random) % FILE_BYTES);
		hr__file_release(files[k]);
	}
	hr__rest_counts(&c);
	assert_true(c.reopened - then.reopened > 1000);
	assert_true(c.most <= LIMIT);
	/* One more while a file is opened first: the list of mounts. */
	assert_true(atomic_load(&open_most) <= LIMIT + 1);
	close_all();
}

/* The one that was used least recently goes, but for one turn of the hand. */
static void recent_ones_stay(void **state)
{
	uint32_t n;

	open_all();
	n = LIMIT / files[0]->rest->n_fds;
	for (uint32_t i = 0; i < 40; i++) { /* file 0 between all others */
		uint32_t k = 1 + i % (FILES - 1);

		assert_true(hr__file_hold(files[k], true) >= 0);
		hr__file_release(files[k]);
		assert_int_equal(hr__file_hold(files[0], true), i < n ? i == 0 : 0);
		hr__file_release(files[0]);
	}
	close_all();
}

static void held_ones_stay(void **state)
{
	struct hr__rest_counts c;
	uint32_t n, more;

	open_all();
	n = LIMIT / files[0]->rest->n_fds;
	for (uint32_t k = 0; k < n; k++)
		assert_true(hr__file_hold(files[k], false) >= 0);
	/* No room, and nothing that could make some. */
	assert_int_equal(hr__file_hold(files[n], false), -EAGAIN);
	assert_false(hr__file_is_open(files[n]));
	hr__rest_counts(&c);
	assert_int_equal(c.open, n * files[0]->rest->n_fds);
	/* Who must have it gets it; a second hold on one that is open needs no room. */
	assert_int_equal(hr__file_hold(files[n], true), 1);
	assert_int_equal(hr__file_hold(files[0], false), 0);
	hr__file_release(files[0]);
	check_bytes(files[n], n, 77);
	for (uint32_t k = 0; k <= n; k++) {
		check_bytes(files[k], k, 4097);
		hr__file_release(files[k]);
	}
	more = n + 1;
	assert_int_equal(hr__file_hold(files[more], false), 1);
	hr__file_release(files[more]);
	hr__rest_counts(&c);
	assert_true(c.open <= LIMIT);
	close_all();
}

/* -- files that changed ----------------------------------------------------------------------- */

static void replace(const char *path, uint32_t k)
{
	char other[600];

	snprintf(other, sizeof(other), "%s.new", path);
	write_pattern(other, k + 500, FILE_BYTES);
	assert_int_equal(rename(other, path), 0);
}

/* Size and time of the old one, as "cp -p" makes it. */
static void replace_alike(const char *path, uint32_t k)
{
	struct timespec times[2];
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	replace(path, k);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void truncated(const char *path, uint32_t k)
{
	assert_int_equal(truncate(path, FILE_BYTES - 1), 0);
}

static void written(const char *path, uint32_t k)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000, .tv_nsec = 17}};
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, "x", 1, 9), 1);
	close(fd);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0); /* clocks are coarse */
}

static void removed(const char *path, uint32_t k)
{
	assert_int_equal(unlink(path), 0);
}

static void folder_now(const char *path, uint32_t k)
{
	removed(path, k);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* One that nobody writes to must not make the library wait. */
static void pipe_now(const char *path, uint32_t k)
{
	removed(path, k);
	assert_int_equal(mkfifo(path, 0600), 0);
}

static void changed_ones_are_refused(void **state)
{
	static const struct {
		void (*change)(const char *path, uint32_t k);
		const char *word;
	} ways[] = {
		{replace, "another file has its name"},
		{replace_alike, "another file has its name"},
		{truncated, "its size is another"},
		{written, "it was written to"},
		{removed, "it is not there any more"},
		{folder_now, "another file has its name"},
		{pipe_now, "another file has its name"},
	};
	int was;

	for (uint32_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		uint32_t k = 10 + i;

		open_all();
		send_to_rest(k);
		was = atomic_load(&open_now);
		ways[i].change(paths[k], k);
		for (int again = 0; again < 2; again++) {
			assert_int_equal(hr__file_hold(files[k], true), -HR_E_FILE_CHANGED);
			if (!strstr(hr_error_detail(), paths[k]) ||
			    !strstr(hr_error_detail(), ways[i].word))
				fail_msg("%u: %s", i, hr_error_detail());
		}
		assert_false(hr__file_is_open(files[k]));
		assert_true(atomic_load(&open_now) <= was);
		/* The others are none the worse. */
		assert_true(hr__file_hold(files[k + 20], true) >= 0);
		check_bytes(files[k + 20], k + 20, 1);
		hr__file_release(files[k + 20]);
		close_all();
		if (rmdir(paths[k]))
			unlink(paths[k]);
		write_pattern(paths[k], k, FILE_BYTES);
	}
}

/* Some file systems number inodes as they meet them: that says nothing, the rest does. */
static void passing_numbers(uint32_t of)
{
	magic = of;
	open_all();
	magic = 0;
	send_to_rest(4);
	send_to_rest(5);
	replace_alike(paths[4], 4);
	write_pattern(paths[5], 5, FILE_BYTES + 1);
	assert_int_equal(hr__file_hold(files[4], true), 1);
	hr__file_release(files[4]);
	assert_int_equal(hr__file_hold(files[5], true), -HR_E_FILE_CHANGED);
	close_all();
	write_pattern(paths[4], 4, FILE_BYTES);
	write_pattern(paths[5], 5, FILE_BYTES);
}

static void numbers_that_pass(void **state)
{
	passing_numbers(0x65735546); /* FUSE */
	passing_numbers(0x4d44);     /* FAT */
	passing_numbers(0x2011bab0); /* exFAT */
	passing_numbers(0xff534d42); /* CIFS */
	passing_numbers(0xfe534d42); /* SMB2 */
	passing_numbers(0x786f4256); /* vboxsf */
}

/*
 * What an automounter mounts again has another number, if it has no block device of its own; a drive has
 * the one that it had.
 */
static void mounted_again(void **state)
{
	device_minor = 77;
	open_all();
	send_to_rest(6);
	device_minor = 78;
	assert_int_equal(hr__file_hold(files[6], true), 1);
	check_bytes(files[6], 6, 42);
	hr__file_release(files[6]);
	close_all();
	device_major = 259;
	open_all();
	send_to_rest(6);
	device_minor = 79;
	assert_int_equal(hr__file_hold(files[6], true), -HR_E_FILE_CHANGED);
	close_all();
	device_major = device_minor = 0;
}

/* What changes only the inode: a mode, a second name, another place and back. */
static void harmless_changes(void **state)
{
	char other[600];

	snprintf(other, sizeof(other), "%s/link", dir);
	open_all();
	send_to_rest(5);
	assert_int_equal(chmod(paths[5], 0640), 0);
	assert_int_equal(link(paths[5], other), 0);
	assert_int_equal(unlink(paths[5]), 0);
	assert_int_equal(rename(other, paths[5]), 0);
	assert_int_equal(hr__file_hold(files[5], true), 1);
	check_bytes(files[5], 5, 99);
	hr__file_release(files[5]);
	close_all();
}

/* A relative name means the folder that was there at open. */
static void other_folder(void **state)
{
	char was[600];

	assert_non_null(getcwd(was, sizeof(was)));
	assert_int_equal(chdir(dir), 0);
	open_all();
	hr_file_close(files[3]);
	assert_int_equal(hr__rest_open("03", &files[3]), 0);
	assert_string_equal(hr_file_path(files[3]), "03");
	send_to_rest(3);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(hr__file_hold(files[3], true), 1);
	check_bytes(files[3], 3, 4999);
	hr__file_release(files[3]);
	assert_int_equal(chdir(was), 0);
	close_all();
}

/* -- lack ------------------------------------------------------------------------------------- */

/* The program has taken all other descriptors: files that nobody needs make way. */
static void full_process(void **state)
{
	struct hr_file *another = NULL;
	int taken[4 * LIMIT], n = 0;

	open_all();
	send_to_rest(7);
	while (n < 4 * LIMIT && (taken[n] = dup(0)) >= 0)
		n++;
	assert_int_equal(errno, EMFILE);
	/* Room for some of ours is gone as well. */
	for (uint32_t k = 20; k < 24; k++) {
		assert_int_equal(hr__file_hold(files[k], true) >= 0, 1);
		check_bytes(files[k], k, 3);
		hr__file_release(files[k]);
	}
	assert_int_equal(hr__file_hold(files[7], false), 1);
	check_bytes(files[7], 7, 0);
	hr__file_release(files[7]);
	/* Also for a new one, which is none the worse for it. */
	assert_int_equal(hr__rest_open(paths[40], &another), 0);
	assert_int_equal(hr__file_has_direct(another), hr__file_has_direct(files[40]));
	assert_true(hr__file_hold(another, true) >= 0);
	check_bytes(another, 40, 2);
	hr__file_release(another);
	hr_file_close(another);
	while (n)
		close(taken[--n]);
	close_all();
}

static void failing_calls(void **state)
{
	struct hr__rest_counts c, then;

	open_all();
	for (int way = 0; way < 4; way++) {
		int calls = files[9]->rest->n_fds;

		fail_code = way < 2 ? -EIO : -EMFILE;
		for (int i = 1; i <= calls; i++) {
			send_to_rest(9);
			hr__rest_counts(&then);
			atomic_store(way % 2 ? &fail_statx_in : &fail_open_in, i);
			if (way == 2) { /* one file makes way, and then it is opened */
				assert_int_equal(hr__file_hold(files[9], true), 1);
				check_bytes(files[9], 9, 4000);
				hr__file_release(files[9]);
				continue;
			}
			if (way == 3) { /* no such thing as of statx(2) */
				atomic_store(&fail_statx_in, 0);
				continue;
			}
			assert_int_equal(hr__file_hold(files[9], true), fail_code);
			assert_non_null(strstr(hr_error_detail(), paths[9]));
			hr__rest_counts(&c);
			assert_int_equal(c.reopened, then.reopened);
			assert_int_equal(c.open, atomic_load(&open_now));
		}
	}
	close_all();
}

/* A signal, or a lease that the kernel takes back from somebody else, ends one call and no read. */
static void calls_that_are_ended(void **state)
{
	static const int codes[] = {-EINTR, -EAGAIN};
	struct hr_file *another;

	open_all();
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t k = 1; k <= files[9]->rest->n_fds; k++) {
			send_to_rest(9);
			fail_code = codes[i];
			atomic_store(&fail_open_in, (int)k);
			assert_int_equal(hr__file_hold(files[9], true), 1);
			check_bytes(files[9], 9, 100);
			hr__file_release(files[9]);
		}
		atomic_store(&fail_open_in, 1);
		assert_int_equal(hr_file_open(paths[40], HR_FILE_READ, &another), 0);
		check_bytes(another, 40, 5);
		hr_file_close(another);
	}
	close_all();
}

/* A list of mounts that could not be read is not remembered as one that says nothing. */
static void mounts_unread(void **state)
{
	struct hr__fs_memo memo = {0};
	struct hr__fsinfo fs, again;
	int fd = open(paths[0], O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	fail_code = -EMFILE;
	atomic_store(&fail_open_in, 1);
	assert_int_equal(hr__fsinfo_find(fd, &memo, &fs), 0);
	atomic_store(&fail_open_in, 0); /* a kernel that does not number mounts */
	assert_int_equal(hr__fsinfo_find(fd, NULL, &fs), 0);
	assert_int_equal(hr__fsinfo_find(fd, &memo, &again), 0);
	assert_string_equal(again.source, fs.source);
	assert_string_equal(again.options, fs.options);
	close(fd);
}

/* Who must have a file is not told to wait for one, whatever open(2) and statx(2) say. */
static void must_have(void **state)
{
	open_all();
	send_to_rest(9);
	fail_code = -EAGAIN;
	atomic_store(&fail_statx_in, 1);
	assert_int_equal(hr__file_hold(files[9], true), -EIO);
	assert_non_null(strstr(hr_error_detail(), paths[9]));
	close_all();
}

/* An adopted descriptor is the buffered one; it has no other. */
static void adopted(void **state)
{
	struct hr_file *file = NULL;
	int fd;

	open_all();
	fd = hr__sys->open(paths[30], O_RDWR | O_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(hr__rest_adopt(fd, paths[30], &file), 0);
	assert_int_equal(file->rest->n_fds, 1);
	hr_file_close(files[30]);
	files[30] = file;
	send_to_rest(30);
	assert_int_equal(hr__file_hold(file, true), 1);
	check_bytes(file, 30, 1234);
	hr__file_release(file);
	fail_code = -EIO;
	fd = hr__sys->open(paths[30], O_RDWR | O_CLOEXEC, 0);
	atomic_store(&fail_statx_in, 1);
	assert_int_equal(hr__rest_adopt(fd, paths[30], &file), -EIO);
	close_all(); /* that one is closed, too */
}

/* Of one that is read with checksums another copy does as well: the same index, made by somebody else. */
static void adopted_ones_are_alike(void **state)
{
	struct hr_file *file = NULL;
	int fd;

	open_all();
	fd = hr__sys->open(paths[31], O_RDONLY | O_CLOEXEC, 0);
	assert_int_equal(hr__rest_adopt(fd, paths[31], &file), 0);
	hr_file_close(files[31]);
	files[31] = file;
	send_to_rest(31);
	replace(paths[31], 31);
	assert_int_equal(hr__file_hold(file, true), 1);
	check_bytes(file, 31 + 500, 1234);
	hr__file_release(file);
	send_to_rest(31);
	truncated(paths[31], 31);
	assert_int_equal(hr__file_hold(file, true), -HR_E_FILE_CHANGED);
	removed(paths[31], 31);
	assert_int_equal(hr__file_hold(file, true), -HR_E_FILE_CHANGED);
	close_all();
	write_pattern(paths[31], 31, FILE_BYTES);
}

/* -- threads and processes -------------------------------------------------------------------- */

static void *hold_at_random(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t k = (uint32_t)(test_random(&random) % FILES);
		struct hr_residency_info info;

		assert_true(hr__file_hold(files[k], true) >= 0);
		check_bytes(files[k], k, test_random(&random) % FILE_BYTES);
		hr__file_release(files[k]);
		if (i % 16 == 0) /* a call that takes a hold by itself */
			assert_int_equal(hr_file_residency(files[k], 0, 0, &info), 0);
	}
	return NULL;
}

static void many_threads(void **state)
{
	pthread_t threads[THREADS];

	atomic_store(&open_most, 0);
	open_all();
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hold_at_random,
						(void *)(uintptr_t)(i + 1)),
				 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	/* One file beyond the limit for each thread that must have one, and the list of mounts. */
	assert_true(atomic_load(&open_most) <= LIMIT + 2 * (int)THREADS + 1);
	close_all();
}

/* A child has descriptors and files of its own, also while the parent's threads open some. */
static void in_a_child(void **state)
{
	pthread_t thread;
	int status;

	if (!TEST_FORK_BESIDE_THREADS) {
		print_message(TEST_FORK_SKIP);
		skip();
	}
	open_all();
	assert_int_equal(pthread_create(&thread, NULL, hold_at_random, (void *)9), 0);
	for (uint32_t i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			uint8_t byte = 0;
			int wrong = 0;

			alarm(60);
			for (uint32_t k = 0; k < FILES && !wrong; k++) {
				wrong = hr__file_hold(files[k], true) < 0 ||
					hr__sys->pread(files[k]->fd, &byte, 1, 8) != 1 ||
					byte != test_pattern(seed_of(k, 8));
				if (!wrong)
					hr__file_release(files[k]);
			}
			_exit(wrong);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	pthread_join(thread, NULL);
	close_all();
}

/* A file of another origin is always open, and a hold on it asks nothing. */
static void ordinary_files(void **state)
{
	struct hr_file *file = NULL;
	struct hr__rest_counts c;

	assert_int_equal(hr_file_open(paths[0], HR_FILE_READ, &file), 0);
	assert_null(file->rest);
	assert_int_equal(hr__file_hold(file, false), 0);
	check_bytes(file, 0, 5);
	hr__file_release(file);
	hr__rest_counts(&c);
	assert_int_equal(c.open, 0);
	hr_file_close(file);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(bounded),          cmocka_unit_test(recent_ones_stay),
		cmocka_unit_test(held_ones_stay),   cmocka_unit_test(changed_ones_are_refused),
		cmocka_unit_test(harmless_changes), cmocka_unit_test(numbers_that_pass),
		cmocka_unit_test(mounted_again),    cmocka_unit_test(adopted_ones_are_alike),
		cmocka_unit_test(other_folder),     cmocka_unit_test(full_process),
		cmocka_unit_test(failing_calls),    cmocka_unit_test(calls_that_are_ended),
		cmocka_unit_test(mounts_unread),    cmocka_unit_test(must_have),
		cmocka_unit_test(adopted),          cmocka_unit_test(many_threads),
		cmocka_unit_test(in_a_child),       cmocka_unit_test(ordinary_files),
	};

	return cmocka_run_group_tests(all, set_up, tear_down);
}

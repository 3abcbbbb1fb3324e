/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spool - side indexes of one process in one file without a name: each has its bytes for as long as it
 * is kept, its space comes back, and processes that fork() do not write into each other's.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/sys.h"
#include "loader/spool.h"
#include "support/support.h"

#define LEN (1u << 20)

/* A file with the bytes of number @k, taken into the spool. */
static struct hr__spooled take(uint32_t k)
{
	struct hr__spooled s;
	uint8_t *bytes = malloc(LEN);
	int fd = hr__spool_temp();

	assert_true(fd >= 0);
	for (uint32_t i = 0; i < LEN; i++)
		bytes[i] = test_pattern((uint64_t)k * LEN + i);
	assert_int_equal(pwrite(fd, bytes, LEN, 0), LEN);
	free(bytes);
	assert_int_equal(hr__spool_take(fd, LEN, &s), 0);
	close(fd);
	return s;
}

static bool is_right(const struct hr__spooled *s, uint32_t k)
{
	uint8_t *bytes = malloc(LEN);
	bool right = pread(s->fd, bytes, LEN, (off_t)s->place) == LEN;

	for (uint32_t i = 0; i < LEN && right; i++)
		right = bytes[i] == test_pattern((uint64_t)k * LEN + i);
	free(bytes);
	return right;
}

/* Not every file system can give a part of a file back. */
static bool can_punch(void)
{
	int fd = hr__spool_temp();
	bool can;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8192), 0);
	can = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
	close(fd);
	return can;
}

static void one_file(void **state)
{
	struct hr__spooled a = take(1), b = take(2), c;

	assert_int_equal(a.fd, b.fd);
	assert_true(is_right(&a, 1) && is_right(&b, 2));
	/* One that has gone leaves no bytes behind, although the file is still in use. */
	hr__spool_drop(&a);
	if (can_punch())
		assert_true(lseek(b.fd, (off_t)a.place, SEEK_DATA) >= (off_t)b.place);
	c = take(3);
	assert_int_equal(c.fd, b.fd);
	assert_true(is_right(&b, 2) && is_right(&c, 3));
	hr__spool_drop(&b);
	hr__spool_drop(&c);
	assert_int_equal(fcntl(c.fd, F_GETFD), -1);
}

static void wait_for(int fd)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), 1);
}

static void tell(int fd)
{
	assert_int_equal(write(fd, "", 1), 1);
}

/* Both go on: what one takes and drops is nothing to the other. */
static void two_processes(void **state)
{
	struct hr__spooled before = take(1), mine;
	int to[2], from[2], status;
	pid_t pid;

	assert_int_equal(pipe(to) | pipe(from), 0);
	pid = fork();
	if (!pid) {
		bool right;

		alarm(60);
		mine = take(2);
		tell(from[1]);
		wait_for(to[0]);
		right = is_right(&mine, 2) && is_right(&before, 1);
		hr__spool_drop(&before);
		hr__spool_drop(&mine);
		_exit(right ? 0 : 1);
	}
	wait_for(from[0]);
	mine = take(3);
	hr__spool_drop(&before);
	tell(to[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(is_right(&mine, 3));
	hr__spool_drop(&mine);
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
}

static atomic_bool inside, go_on;

/* The lock is held: the other thread forks now, or as soon as it may. */
static int slow_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
	atomic_store(&inside, true);
	for (uint32_t i = 0; i < 10000 && !atomic_load(&go_on); i++)
		sched_yield();
	return hr__sys_real.fallocate(fd, mode, offset, len);
}

static void *drop(void *arg)
{
	hr__spool_drop(arg);
	while (!atomic_load(&go_on)) /* sanitizers count threads */
		sched_yield();
	return NULL;
}

/* A thread that is not there in the child leaves no lock behind. */
static void amid_a_thread(void **state)
{
	struct hr__spooled a = take(1), b = take(2), c;
	struct hr__sys sys = hr__sys_real;
	pthread_t thread;
	int status;
	pid_t pid;

	sys.fallocate = slow_fallocate;
	hr__sys = &sys;
	assert_int_equal(pthread_create(&thread, NULL, drop, &a), 0);
	while (!atomic_load(&inside))
		sched_yield();
	pid = fork();
	if (!pid) {
		alarm(60);
		hr__sys = &hr__sys_real;
		c = take(3);
		_exit(is_right(&b, 2) && is_right(&c, 3) ? 0 : 1);
	}
	atomic_store(&go_on, true);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pthread_join(thread, NULL);
	hr__sys = &hr__sys_real;
	assert_true(is_right(&b, 2));
	hr__spool_drop(&b);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(one_file),
		cmocka_unit_test(two_processes),
		cmocka_unit_test(amid_a_thread),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}

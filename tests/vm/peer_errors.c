/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can go wrong around an import, one case per name; each checks that I/O fails or ends where it
 * must, and the guest's script checks the counters afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer_tool.h"

#define LEN (8u << 20)
#define PART (1u << 20)
#define READERS 3

static sigjmp_buf bus_error;

static void expect(const char *what, int64_t got, int64_t want)
{
	if (got == want)
		return;
	fprintf(stderr, "%s: %lld, not %lld\n", what, (long long)got, (long long)want);
	exit(1);
}

static int64_t read_part(int fd, char *to)
{
	ssize_t n = pread(fd, to, PART, 0);

	return n < 0 ? -errno : n;
}

static int open_direct(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		die(path);
	return fd;
}

static void on_bus_error(int number)
{
	siglongjmp(bus_error, 1);
}

/* Touching a mapping whose memory went must raise SIGBUS and nothing worse. */
static void expect_bus_error(volatile char *at)
{
	struct sigaction action = {.sa_handler = on_bus_error};

	sigaction(SIGBUS, &action, NULL);
	if (sigsetjmp(bus_error, 1) == 0) {
		*at = 1;
		expect("touching a mapping that is gone", 0, 1);
	}
}

static void invalidate(struct memory *m, uint32_t how)
{
	struct headrace_vgpu_range range = {.offset = m->offset, .len = m->len, .flags = how};

	if (ioctl(m->vgpu, HEADRACE_VGPU_INVALIDATE, &range))
		die("invalidate");
}

struct reader {
	pthread_t thread;
	int fd;
	char *to;
	volatile int *stop;
	int64_t last; /* the first result that was no byte; a read may be cut short before */
	int64_t reads;
};

static void *reading(void *arg)
{
	struct reader *r = arg;

	for (r->last = PART; r->last > 0 && !*r->stop; r->reads++)
		r->last = read_part(r->fd, r->to);
	return NULL;
}

static void start_readers(struct reader *r, struct memory *m, int fd, volatile int *stop)
{
	for (int i = 0; i < READERS; i++) {
		r[i] = (struct reader){.fd = fd, .to = m->map + i * PART, .stop = stop};
		pthread_create(&r[i].thread, NULL, reading, &r[i]);
	}
	while (r[0].reads < 2)
		sched_yield();
}

static void join_readers(struct reader *r, int64_t want)
{
	for (int i = 0; i < READERS; i++) {
		pthread_join(r[i].thread, NULL);
		expect("the last read", r[i].last, want);
	}
}

/* The exporter takes its memory back while reads are under way. */
static void case_invalidate(const char *client, const char *path, uint32_t how)
{
	int fd = open_direct(path), again;
	struct reader readers[READERS];
	volatile int stop = 0;
	struct memory m;

	memory_open(&m, LEN, client);
	start_readers(readers, &m, fd, &stop);
	invalidate(&m, how);
	join_readers(readers, -EFAULT);
	expect("a read afterwards", read_part(fd, m.map), -EFAULT);
	expect_bus_error(m.map + LEN / 2);
	/* By a new file: the same memory may be imported again, or never. */
	munmap(m.map, m.import.len);
	m.map = NULL;
	close(m.peer);
	again = memory_import(&m, client);
	if (how == HEADRACE_VGPU_REVOKE) {
		expect("an import after the end", again, HEADRACE_PEER_NOT_PEER);
	} else {
		expect("an import after a move", again, 0);
		memory_map(&m);
		expect("a read after a move", read_part(fd, m.map), PART);
	}
	memory_close(&m);
	close(fd);
}

static void case_revoke(const char *client, const char *path)
{
	case_invalidate(client, path, HEADRACE_VGPU_REVOKE);
}

static void case_move(const char *client, const char *path)
{
	case_invalidate(client, path, HEADRACE_VGPU_MOVE);
}

/* Unmapped and closed while reads are under way: they end well or with EFAULT. */
static void case_munmap(const char *client, const char *path)
{
	int fd = open_direct(path);

	for (int round = 0; round < 10; round++) {
		struct reader readers[READERS];
		volatile int stop = 0;
		struct memory m;

		memory_open(&m, LEN, client);
		start_readers(readers, &m, fd, &stop);
		memory_close(&m);
		join_readers(readers, -EFAULT);
	}
	close(fd);
}

static void case_kill(const char *client, const char *path)
{
	for (int round = 0; round < 5; round++) {
		int ready[2], status;
		pid_t child;
		char byte;

		if (pipe(ready))
			die("pipe");
		child = fork();
		if (child == 0) {
			int fd = open_direct(path);
			struct memory m;

			memory_open(&m, LEN, client);
			for (int i = 0;; i++) {
				read_part(fd, m.map);
				if (i == 2 && write(ready[1], "x", 1) != 1)
					_exit(1);
			}
		}
		close(ready[1]);
		expect("the child's sign", read(ready[0], &byte, 1), 1);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		expect("the child's end", WIFSIGNALED(status), 1);
		close(ready[0]);
	}
}

/* A child inherits no mapping, and does not disturb its parent's. */
static void case_fork(const char *client, const char *path)
{
	int fd = open_direct(path), status;
	struct memory m;
	pid_t child;

	memory_open(&m, LEN, client);
	expect("a read", read_part(fd, m.map), PART);
	child = fork();
	if (child == 0)
		_exit(read_part(fd, m.map) == -EFAULT ? 0 : 1);
	waitpid(child, &status, 0);
	expect("the child", WEXITSTATUS(status), 0);
	expect("a read of the parent", read_part(fd, m.map), PART);
	memory_close(&m);
	close(fd);
}

static int64_t map_result(struct memory *m, size_t len, int flags, uint64_t offset)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, m->peer, (off_t)offset);

	if (p == MAP_FAILED)
		return -errno;
	munmap(p, len);
	return 0;
}

/* Mappings and imports that must not work. */
static void case_refused(const char *client, const char *path)
{
	struct headrace_peer_import bad;
	struct memory m, other;
	int fd = open_direct(path);

	memory_open(&m, LEN, client);
	expect("a private mapping", map_result(&m, LEN, MAP_PRIVATE, m.import.offset), -EINVAL);
	expect("beyond the end", map_result(&m, LEN + 4096, MAP_SHARED, m.import.offset), -EINVAL);
	expect("behind the end", map_result(&m, 4096, MAP_SHARED, m.import.offset + LEN), -EINVAL);
	expect("before the start", map_result(&m, 4096, MAP_SHARED, m.import.offset - 4096),
	       -EINVAL);
	expect("a part", map_result(&m, 4096, MAP_SHARED, m.import.offset + LEN - 4096), 0);
	munmap(m.map + LEN / 2, LEN / 2);
	expect("a read beyond the mapping", read_part(fd, m.map + LEN / 2 - 4096) < PART, true);
	bad = m.import;
	expect("a second import", ioctl(m.peer, HEADRACE_PEER_IMPORT, &bad) ? -errno : 0, -EBUSY);
	/* The same memory once more, by another file. */
	other = m;
	expect("an import of the same pages", memory_import(&other, client), HEADRACE_PEER_TAKEN);
	close(other.peer);
	memory_close(&m);
	memory_export(&m, LEN);
	expect("a client that is not there", memory_import(&m, "0000:7f:1f.0"),
	       HEADRACE_PEER_CLIENT);
	memory_close(&m);
	close(fd);
}

/* Holds a mapping and reads until it fails; prints a line when it has begun. */
static void case_hold(const char *client, const char *path)
{
	int fd = open_direct(path);
	struct memory m;
	int64_t got;

	memory_open(&m, LEN, client);
	expect("the first read", read_part(fd, m.map), PART);
	printf("reading\n");
	fflush(stdout);
	do
		got = read_part(fd, m.map);
	while (got > 0);
	printf("ended: %s\n", strerror((int)-got));
	memory_close(&m);
	close(fd);
}

int run_errors(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const char *client, const char *path);
	} cases[] = {
		{"revoke", case_revoke}, {"move", case_move}, {"munmap", case_munmap},
		{"kill", case_kill},     {"fork", case_fork}, {"refused", case_refused},
		{"hold", case_hold},
	};

	for (size_t i = 0; argc == 3 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[0], cases[i].name))
			continue;
		cases[i].run(argv[1], argv[2]);
		return 0;
	}
	fprintf(stderr, "no such case\n");
	return 2;
}

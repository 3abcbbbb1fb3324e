/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls on both devices, most of them nearly valid, with descriptors, ranges and mappings that
 * come and go, on several threads. It passes if the kernel does: its log is read afterwards.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "peer_tool.h"

#define FDS 24
#define MAPS 8
#define THREADS 3
#define OFFSETS 8

struct state {
	pthread_t thread;
	uint64_t seed;
	time_t end;
	int fds[FDS];
	struct {
		char *at;
		size_t len;
	} maps[MAPS];
	uint64_t offsets[OFFSETS]; /* what the kernel gave out */
	uint64_t calls, good;
};

static uint32_t random_client; /* a drive that is there */

static uint64_t next_random(struct state *s)
{
	uint64_t z = (s->seed += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static bool one_in(struct state *s, uint32_t n)
{
	return next_random(s) % n == 0;
}

/* Sizes and offsets near those that matter. */
static uint64_t random_size(struct state *s)
{
	static const uint64_t near[] = {0,       1,       4095,    4096,      65536,
					2 << 20, 4 << 20, 1 << 30, 1ull << 63};

	return near[next_random(s) % (sizeof(near) / sizeof(near[0]))] + next_random(s) % 3 - 1 +
	       (one_in(s, 3) ? 0 : 1) - (one_in(s, 2) ? 1 : 0);
}

static uint64_t random_offset(struct state *s)
{
	return one_in(s, 4) ? random_size(s) : s->offsets[next_random(s) % OFFSETS];
}

static int *random_fd(struct state *s)
{
	return &s->fds[next_random(s) % FDS];
}

static void keep_fd(struct state *s, int fd)
{
	int *place = random_fd(s);

	if (fd < 0)
		return;
	if (*place >= 0)
		close(*place);
	*place = fd;
}

static void do_open(struct state *s)
{
	static const char *const names[] = {"/dev/headrace_peer", "/dev/headrace_vgpu0",
					    "/dev/nvme0n1", "/dev/null"};

	keep_fd(s, open(names[next_random(s) % 4], (one_in(s, 4) ? O_RDONLY : O_RDWR) | O_CLOEXEC));
}

static void do_vgpu(struct state *s)
{
	static const unsigned long requests[] = {HEADRACE_VGPU_ALLOC, HEADRACE_VGPU_FREE,
						 HEADRACE_VGPU_EXPORT, HEADRACE_VGPU_INVALIDATE};
	unsigned long request = requests[next_random(s) % 4];
	struct headrace_vgpu_range range = {.offset = random_offset(s), .len = random_size(s)};

	if (request == HEADRACE_VGPU_ALLOC || one_in(s, 2))
		range.len = 4096 << next_random(s) % 12;
	if (request == HEADRACE_VGPU_INVALIDATE)
		range.flags = (uint32_t)(next_random(s) % 3);
	if (ioctl(*random_fd(s), request, one_in(s, 50) ? NULL : &range))
		return;
	s->good++;
	if (request == HEADRACE_VGPU_ALLOC)
		s->offsets[next_random(s) % OFFSETS] = range.offset;
	if (request == HEADRACE_VGPU_EXPORT)
		keep_fd(s, range.fd);
}

static void do_import(struct state *s)
{
	struct headrace_peer_import arg = {
		.argsz = one_in(s, 20) ? (uint32_t)next_random(s) : sizeof(arg),
		.flags = one_in(s, 30),
		.dmabuf_fd = *random_fd(s),
		.client_kind = (uint32_t)(next_random(s) % (one_in(s, 10) ? 9 : 2) + 1),
		.client = random_client,
		.reserved = one_in(s, 30),
	};

	if (arg.client_kind == HEADRACE_PEER_CLIENT_BLOCK || one_in(s, 20))
		arg.client = one_in(s, 5) ? (uint32_t)next_random(s) : (uint32_t)*random_fd(s);
	if (ioctl(*random_fd(s), HEADRACE_PEER_IMPORT, one_in(s, 50) ? NULL : &arg))
		return;
	s->good++;
	s->offsets[next_random(s) % OFFSETS] = arg.offset;
}

static void do_other(struct state *s)
{
	struct headrace_peer_info info = {.argsz = sizeof(info)};
	struct headrace_peer_distance distance = {.argsz = sizeof(distance),
						  .provider = (uint32_t)next_random(s) % 1024,
						  .client_kind = HEADRACE_PEER_CLIENT_PCI,
						  .client = random_client};
	unsigned char noise[256];

	ioctl(*random_fd(s), HEADRACE_PEER_INFO, &info);
	ioctl(*random_fd(s), HEADRACE_PEER_DISTANCE, &distance);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (unsigned char)next_random(s);
	/* any number of this magic, with noise as its argument */
	ioctl(*random_fd(s), _IOC(next_random(s) % 4, 0xBE, next_random(s) % 256, 64), noise);
}

static void do_map(struct state *s)
{
	size_t i = next_random(s) % MAPS;
	size_t len = random_size(s) % (64 << 20);

	if (s->maps[i].at) {
		munmap(s->maps[i].at, s->maps[i].len);
		s->maps[i].at = NULL;
		return;
	}
	s->maps[i].at = mmap(NULL, len, one_in(s, 3) ? PROT_READ : PROT_READ | PROT_WRITE,
			     one_in(s, 8) ? MAP_PRIVATE : MAP_SHARED, *random_fd(s),
			     (off_t)(random_offset(s) & ~4095ull));
	s->maps[i].len = len;
	if (s->maps[i].at == MAP_FAILED)
		s->maps[i].at = NULL;
	else
		s->good++;
}

/* Memory that may be gone is only given to system calls: they fail where a touch would kill. */
static void do_io(struct state *s)
{
	size_t i = next_random(s) % MAPS;
	int fd = open("/dev/nvme0n1", O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd >= 0 && s->maps[i].at)
		s->good += pread(fd, s->maps[i].at, s->maps[i].len & ~4095ull, 0) > 0;
	if (fd >= 0)
		close(fd);
}

static void do_copy(struct state *s)
{
	static __thread char buf[70000];
	struct headrace_vgpu_copy copy = {random_offset(s), random_offset(s),
					  random_size(s) % 200000};

	s->good += pwrite(*random_fd(s), buf, random_size(s) % sizeof(buf),
			  (off_t)random_offset(s)) > 0;
	s->good += pread(*random_fd(s), buf, random_size(s) % sizeof(buf),
			 (off_t)random_offset(s)) > 0;
	ioctl(*random_fd(s), HEADRACE_VGPU_COPY, &copy);
}

static void do_close(struct state *s)
{
	int *fd = random_fd(s);

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void *fuzz(void *arg)
{
	static void (*const actions[])(struct state * s) = {
		do_open,   do_open, do_vgpu, do_vgpu, do_vgpu, do_import, do_import,
		do_import, do_map,  do_map,  do_io,   do_copy, do_other,  do_close,
	};
	struct state *s = arg;

	while (time(NULL) < s->end) {
		actions[next_random(s) % (sizeof(actions) / sizeof(actions[0]))](s);
		s->calls++;
	}
	for (int i = 0; i < FDS; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	for (int i = 0; i < MAPS; i++)
		if (s->maps[i].at)
			munmap(s->maps[i].at, s->maps[i].len);
	return NULL;
}

/* SECONDS SEED CLIENT */
int run_fuzz(int argc, char **argv)
{
	static struct state states[THREADS];
	uint64_t calls = 0, good = 0;

	if (argc != 3)
		return 2;
	random_client = parse_pci(argv[2]);
	for (int i = 0; i < THREADS; i++) {
		states[i].seed = strtoull(argv[1], NULL, 0) * 1000 + (uint64_t)i;
		states[i].end = time(NULL) + atoi(argv[0]);
		memset(states[i].fds, 0xff, sizeof(states[i].fds));
		pthread_create(&states[i].thread, NULL, fuzz, &states[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(states[i].thread, NULL);
		calls += states[i].calls;
		good += states[i].good;
	}
	printf("%llu calls, %llu of them succeeded\n", (unsigned long long)calls,
	       (unsigned long long)good);
	return 0;
}

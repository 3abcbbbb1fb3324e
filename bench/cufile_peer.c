/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/cufile_peer.c - a load generator on any library with the cuFile interface, found at run time,
 * for cufile_beside.py. It knows nothing of Headrace: another library is what it measures.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define CHECKED 64

/* The few types and calls of the two interfaces that are needed here. */
struct cu_file_error {
	int err, cuda;
};

struct cu_file_descr {
	int type; /* 1: a file descriptor */
	union {
		int fd;
		void *handle;
	};
	const void *ops;
};

static struct {
	struct cu_file_error (*open)(void);
	struct cu_file_error (*handle)(void **out, struct cu_file_descr *descr);
	struct cu_file_error (*buffer)(const void *base, size_t len, int flags);
	ssize_t (*read)(void *handle, void *base, size_t len, off_t offset, off_t at);
	ssize_t (*write)(void *handle, const void *base, size_t len, off_t offset, off_t at);
} cufile;

static struct {
	int (*init)(unsigned int flags);
	int (*device)(int *out, int number);
	int (*retain)(void **context, int device);
	int (*current)(void *context);
	int (*alloc)(uint64_t *out, size_t len);
	int (*out)(void *to, uint64_t from, size_t len);
	int (*sync)(void);
} cuda;

struct job {
	const char *path;
	uint64_t bs, blocks, limit;
	unsigned int threads;
	double seconds;
	bool random, write;
	int fd;
	void *handle, *context;
	pthread_barrier_t gate;
	uint64_t start_ns;
};

struct worker {
	struct job *job;
	pthread_t thread;
	uint64_t device, state, position, blocks, cpu_ns, end_ns;
	const char *failed;
	ssize_t code;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t cpu_ns(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000u;
}

static int fail(const char *what, long code)
{
	fprintf(stderr, "cufile_peer: %s: %ld, errno %d\n", what, code, errno);
	return 1;
}

/* dlsym() gives a data pointer; POSIX says that it may be stored as a function's. */
static int find(void *lib, const char *name, void *to)
{
	void *found = lib ? dlsym(lib, name) : NULL;

	memcpy(to, &found, sizeof(found));
	if (found)
		return 0;
	fprintf(stderr, "cufile_peer: %s: not found: %s\n", name, dlerror());
	return 1;
}

static int load(const char *path)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *lib = driver ? dlopen(path, RTLD_NOW | RTLD_NODELETE) : NULL;

	return find(driver, "cuInit", &cuda.init) | find(driver, "cuDeviceGet", &cuda.device) |
	       find(driver, "cuDevicePrimaryCtxRetain", &cuda.retain) |
	       find(driver, "cuCtxSetCurrent", &cuda.current) |
	       find(driver, "cuMemAlloc_v2", &cuda.alloc) |
	       find(driver, "cuMemcpyDtoH_v2", &cuda.out) |
	       find(driver, "cuCtxSynchronize", &cuda.sync) |
	       find(lib, "cuFileDriverOpen", &cufile.open) |
	       find(lib, "cuFileHandleRegister", &cufile.handle) |
	       find(lib, "cuFileBufRegister", &cufile.buffer) |
	       find(lib, "cuFileRead", &cufile.read) | find(lib, "cuFileWrite", &cufile.write);
}

static uint64_t next_block(struct worker *w)
{
	uint64_t z;

	if (!w->job->random)
		return w->position++ % w->job->blocks;
	z = (w->state += 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % w->job->blocks;
}

static ssize_t move(struct worker *w, uint64_t block)
{
	struct job *job = w->job;
	void *base = (void *)(uintptr_t)w->device;
	off_t offset = (off_t)(block * job->bs);

	return job->write ? cufile.write(job->handle, base, job->bs, offset, 0)
			  : cufile.read(job->handle, base, job->bs, offset, 0);
}

/* What was moved last, and some blocks more, against plain reads. */
static int check(struct worker *w)
{
	uint64_t bs = w->job->bs;
	char *got = malloc(2 * bs), *want = got + bs;
	int wrong = !got;

	for (unsigned int i = 0; i < (bs > 1 << 16 ? 4u : CHECKED) && !wrong; i++) {
		uint64_t block = next_block(w);

		wrong = move(w, block) != (ssize_t)bs || cuda.out(got, w->device, bs) ||
			pread(w->job->fd, want, bs, (off_t)(block * bs)) != (ssize_t)bs ||
			memcmp(got, want, bs) != 0;
	}
	free(got);
	return wrong;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct job *job = w->job;
	uint64_t deadline;

	if (cuda.current(job->context) || cuda.alloc(&w->device, job->bs))
		w->failed = "device memory";
	else if (cufile.buffer((void *)(uintptr_t)w->device, job->bs, 0).err)
		w->failed = "cuFileBufRegister";
	pthread_barrier_wait(&job->gate);
	pthread_barrier_wait(&job->gate);
	w->cpu_ns = cpu_ns(RUSAGE_THREAD);
	deadline = job->start_ns + (uint64_t)(job->seconds * 1e9);
	while (!w->failed && w->blocks < job->limit && now_ns() < deadline) {
		w->code = move(w, next_block(w));
		if (w->code != (ssize_t)job->bs)
			w->failed = "a transfer";
		else
			w->blocks++;
	}
	cuda.sync();
	w->cpu_ns = cpu_ns(RUSAGE_THREAD) - w->cpu_ns;
	w->end_ns = now_ns();
	if (!w->failed && !job->write && check(w))
		w->failed = "the check of what was read";
	return NULL;
}

static int run(struct job *job, struct worker *workers)
{
	uint64_t blocks = 0, cpu = 0, end = 0, sync_ns;
	double seconds;

	pthread_barrier_init(&job->gate, NULL, job->threads + 1);
	for (unsigned int i = 0; i < job->threads; i++) {
		workers[i].job = job;
		workers[i].state = i + 1;
		workers[i].position = job->blocks / job->threads * i;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			exit(fail("a thread", errno));
	}
	pthread_barrier_wait(&job->gate);
	job->start_ns = now_ns();
	pthread_barrier_wait(&job->gate);
	for (unsigned int i = 0; i < job->threads; i++) {
		struct worker *w = &workers[i];

		pthread_join(w->thread, NULL);
		if (w->failed)
			return fail(w->failed, (long)w->code);
		blocks += w->blocks;
		cpu += w->cpu_ns;
		end = w->end_ns > end ? w->end_ns : end;
	}
	sync_ns = now_ns();
	if (job->write && fdatasync(job->fd))
		return fail("fdatasync", errno);
	sync_ns = now_ns() - sync_ns;
	seconds = (double)(end - job->start_ns + (job->write ? sync_ns : 0)) / 1e9;
	printf("{\"program\": \"cufile\", \"requests\": %llu, \"seconds\": %f, \"iops\": %f, "
	       "\"bytes_per_second\": %f, \"cpu_us_per_request\": %f, \"verified\": %s}\n",
	       (unsigned long long)blocks, seconds, (double)blocks / seconds,
	       (double)(blocks * job->bs) / seconds, (double)cpu / 1e3 / (double)blocks,
	       job->write ? "false" : "true");
	return 0;
}

static int open_job(struct job *job, bool direct)
{
	struct cu_file_descr descr = {.type = 1};
	struct cu_file_error e;
	struct stat st;
	int device, fd, flags = job->write ? O_RDWR : O_RDONLY;

	if (cuda.init(0) || cuda.device(&device, 0) || cuda.retain(&job->context, device) ||
	    cuda.current(job->context))
		return fail("no context on the GPU", 0);
	e = cufile.open();
	if (e.err)
		return fail("cuFileDriverOpen", e.err);
	fd = open(job->path, flags | (direct ? O_DIRECT : 0) | O_CLOEXEC);
	job->fd = open(job->path, flags | O_CLOEXEC);
	if (fd < 0 || job->fd < 0 || fstat(fd, &st))
		return fail(job->path, fd);
	descr.fd = fd;
	e = cufile.handle(&job->handle, &descr);
	if (e.err)
		return fail("cuFileHandleRegister", e.err);
	job->blocks = (uint64_t)st.st_size / job->bs;
	return job->blocks ? 0 : fail("the file is smaller than a block", 0);
}

/* Without the end of the other library, which may take long and is not what is measured. */
static _Noreturn void leave(int status)
{
	fflush(stdout);
	_exit(status);
}

int main(int argc, char **argv)
{
	struct worker *workers = calloc(THREADS_MAX, sizeof(*workers));
	struct job job = {.limit = UINT64_MAX};

	if (argc < 8 || !workers) {
		fprintf(stderr, "usage: cufile_peer LIBRARY FILE read|write|randread|randwrite BS "
				"THREADS SECONDS direct|buffered [BLOCKS]\n");
		return 2;
	}
	job.path = argv[2];
	job.random = strncmp(argv[3], "rand", 4) == 0;
	job.write = strstr(argv[3], "write") != NULL;
	job.bs = strtoull(argv[4], NULL, 10);
	job.threads = (unsigned int)strtoul(argv[5], NULL, 10);
	job.seconds = strtod(argv[6], NULL);
	if (job.bs == 0 || job.threads == 0 || job.threads > THREADS_MAX)
		return fail("BS or THREADS out of range", 0);
	if (argc > 8)
		job.limit = strtoull(argv[8], NULL, 10) / job.threads;
	if (load(argv[1]) || open_job(&job, strcmp(argv[7], "direct") == 0))
		leave(1);
	leave(run(&job, workers));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/cufile_read.c - one program for any libcufile: it is compiled against whichever cufile.h there is and
 * loads the library that it is told to, so that two libraries are measured by the same machine code.
 * Reads a file in a given way, times it, compares every byte with read(2), prints one JSON object.
 *
 * usage: cufile_read MODE key=value...
 * modes: read (in order), random, async (in order, all queued on one stream), batch, disk (as batch, by
 * the kernel's own AIO into host memory: what the drive needs), open (open and close the driver), cycle
 * (the same with one read in between, since a library may put off its work until then).
 * keys: lib=PATH file=PATH device=cuda:N|host bs=BYTES count=N threads=N nr=N rounds=N seed=N
 * direct=0|1 registered=0|1
 */
#include <cufile.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 4096
#define THREADS_MAX 64

static struct {
	const char *mode, *lib, *file, *device;
	uint64_t bs, count, threads, nr, rounds, seed, direct, registered;
} opt = {
	.mode = "",
	.lib = "libcufile.so.0",
	.file = "",
	.device = "cuda:0",
	.bs = 1 << 20,
	.count = 64,
	.threads = 1,
	.nr = 64,
	.rounds = 20,
	.seed = 1,
	.direct = 1,
	.registered = 1,
};

static struct {
	__typeof__(&cuFileDriverOpen) open;
	__typeof__(&cuFileDriverClose_v2) close;
	__typeof__(&cuFileGetVersion) version;
	__typeof__(&cuFileHandleRegister) handle_register;
	__typeof__(&cuFileHandleDeregister) handle_deregister;
	__typeof__(&cuFileBufRegister) buf_register;
	__typeof__(&cuFileBufDeregister) buf_deregister;
	__typeof__(&cuFileRead) read;
	__typeof__(&cuFileBatchIOSetUp) batch_setup;
	__typeof__(&cuFileBatchIOSubmit) batch_submit;
	__typeof__(&cuFileBatchIOGetStatus) batch_status;
	__typeof__(&cuFileBatchIODestroy) batch_destroy;
	__typeof__(&cuFileReadAsync) read_async;
	__typeof__(&cuFileSetParameterSizeT) set_size;
} cf;

static struct {
	int (*init)(unsigned int flags);
	int (*retain)(void **context, int device);
	int (*push)(void *context);
	int (*alloc)(uint64_t *ptr, size_t len);
	int (*free)(uint64_t ptr);
	int (*copy_out)(void *dst, uint64_t src, size_t len, void *stream);
	int (*stream_create)(void **stream, unsigned int flags, int priority);
	int (*stream_query)(void *stream);
	void *context, *stream;
} cu;

struct load {
	int fd;
	uint64_t file_len;
	CUfileHandle_t handle;
	char *memory;
	uint64_t memory_len, requests;
	uint64_t *offsets; /* of request i, which lands at memory + i * bs */
	pthread_barrier_t barrier;
	double seconds, user_seconds, system_seconds;
	double round_seconds[ROUNDS_MAX];
};

struct thread {
	struct load *load;
	uint64_t number;
	pthread_t id;
};

static _Noreturn void fail(const char *what, long code)
{
	printf("{\"error\": \"%s\", \"code\": %ld, \"errno\": %d}\n", what, code, errno);
	fflush(stdout);
	_exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint64_t next_random(uint64_t *x)
{
	uint64_t z = (*x += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* -- loading -- */
static void find(void *lib, void *slot, const char *name)
{
	void *symbol = dlsym(lib, name);

	if (!symbol)
		fail(name, 0);
	memcpy(slot, &symbol, sizeof(symbol));
}

static void load_cufile(void)
{
	void *lib = dlopen(opt.lib, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		fail("the library cannot be loaded", 0);
	}
	find(lib, &cf.open, "cuFileDriverOpen");
	find(lib, &cf.close, "cuFileDriverClose_v2");
	find(lib, &cf.version, "cuFileGetVersion");
	find(lib, &cf.handle_register, "cuFileHandleRegister");
	find(lib, &cf.handle_deregister, "cuFileHandleDeregister");
	find(lib, &cf.buf_register, "cuFileBufRegister");
	find(lib, &cf.buf_deregister, "cuFileBufDeregister");
	find(lib, &cf.read, "cuFileRead");
	find(lib, &cf.batch_setup, "cuFileBatchIOSetUp");
	find(lib, &cf.batch_submit, "cuFileBatchIOSubmit");
	find(lib, &cf.batch_status, "cuFileBatchIOGetStatus");
	find(lib, &cf.batch_destroy, "cuFileBatchIODestroy");
	find(lib, &cf.read_async, "cuFileReadAsync");
	find(lib, &cf.set_size, "cuFileSetParameterSizeT");
}

static int on_gpu(void)
{
	return strcmp(opt.device, "host") != 0;
}

static void load_cuda(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	int ordinal = opt.device[0] && strchr(opt.device, ':')
			      ? (int)strtol(strchr(opt.device, ':') + 1, NULL, 10)
			      : 0;
	int ret;

	if (!lib)
		fail("no libcuda.so.1", 0);
	find(lib, &cu.init, "cuInit");
	find(lib, &cu.retain, "cuDevicePrimaryCtxRetain");
	find(lib, &cu.push, "cuCtxPushCurrent_v2");
	find(lib, &cu.alloc, "cuMemAlloc_v2");
	find(lib, &cu.free, "cuMemFree_v2");
	find(lib, &cu.copy_out, "cuMemcpyDtoHAsync_v2");
	find(lib, &cu.stream_create, "cuStreamCreateWithPriority");
	find(lib, &cu.stream_query, "cuStreamQuery");
	ret = cu.init(0);
	if (!ret)
		ret = cu.retain(&cu.context, ordinal);
	if (!ret)
		ret = cu.push(cu.context);
	if (!ret)
		ret = cu.stream_create(&cu.stream, 1, 0);
	if (ret)
		fail("the GPU cannot be used", ret);
}

/* -- memory -- */
static char *memory_alloc(size_t len)
{
	uint64_t ptr = 0;
	void *host = NULL;
	int ret;

	if (!on_gpu()) {
		if (posix_memalign(&host, 4096, len))
			fail("memory", 0);
		memset(host, 0xa5, len);
		return host;
	}
	ret = cu.alloc(&ptr, len);
	if (ret)
		fail("device memory", ret);
	return (char *)(uintptr_t)ptr;
}

static void memory_out(void *dst, const char *src, size_t len)
{
	int ret;

	if (!on_gpu()) {
		memcpy(dst, src, len);
		return;
	}
	ret = cu.copy_out(dst, (uintptr_t)src, len, cu.stream);
	while (!ret && cu.stream_query(cu.stream) == 600)
		sched_yield();
	if (ret)
		fail("copy from the device", ret);
}

/* -- the file -- */
static void open_file(struct load *l)
{
	struct stat st;

	l->fd = open(opt.file, O_RDONLY | O_CLOEXEC | (opt.direct ? O_DIRECT : 0));
	if (l->fd < 0 || fstat(l->fd, &st))
		fail("the file cannot be opened", 0);
	l->file_len = (uint64_t)st.st_size;
	if (l->file_len < opt.bs)
		fail("the file is shorter than one request", 0);
}

static void choose_offsets(struct load *l, int in_order)
{
	uint64_t places = l->file_len / opt.bs, x = opt.seed;

	l->offsets = calloc(l->requests, sizeof(*l->offsets));
	if (!l->offsets)
		fail("memory", 0);
	for (uint64_t i = 0; i < l->requests; i++)
		l->offsets[i] = opt.bs * (in_order ? i % places : next_random(&x) % places);
}

static void register_all(struct load *l)
{
	CUfileDescr_t descr;
	CUfileError_t e;

	memset(&descr, 0, sizeof(descr));
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = l->fd;
	e = cf.handle_register(&l->handle, &descr);
	if (e.err != CU_FILE_SUCCESS)
		fail("cuFileHandleRegister", (long)e.err);
	if (opt.registered) {
		e = cf.buf_register(l->memory, l->memory_len, 0);
		if (e.err != CU_FILE_SUCCESS)
			fail("cuFileBufRegister", (long)e.err);
	}
}

static void deregister_all(struct load *l)
{
	if (opt.registered)
		cf.buf_deregister(l->memory);
	cf.handle_deregister(l->handle);
}

/* Every byte of every request against what read(2) gives. */
static void verify(const struct load *l)
{
	const uint64_t step = 4 << 20;
	char *got = malloc(opt.bs > step ? opt.bs : step), *want = malloc(opt.bs);
	int fd = open(opt.file, O_RDONLY | O_CLOEXEC);
	uint64_t a_time = step / opt.bs ? step / opt.bs : 1;

	if (!got || !want || fd < 0)
		fail("verify", 0);
	for (uint64_t i = 0; i < l->requests; i += a_time) {
		uint64_t n = l->requests - i < a_time ? l->requests - i : a_time;

		memory_out(got, l->memory + i * opt.bs, n * opt.bs);
		for (uint64_t k = 0; k < n; k++) {
			ssize_t len = pread(fd, want, opt.bs, (off_t)l->offsets[i + k]);

			if (len != (ssize_t)opt.bs || memcmp(got + k * opt.bs, want, opt.bs) != 0)
				fail("wrong bytes in request", (long)(i + k));
		}
	}
	close(fd);
	free(got);
	free(want);
}

/* -- reads -- */
static void *read_main(void *arg)
{
	struct thread *t = arg;
	struct load *l = t->load;

	if (on_gpu())
		cu.push(cu.context);
	pthread_barrier_wait(&l->barrier);
	for (uint64_t i = t->number; i < l->requests; i += opt.threads) {
		ssize_t n;

		if (opt.registered)
			n = cf.read(l->handle, l->memory, opt.bs, (off_t)l->offsets[i],
				    (off_t)(i * opt.bs));
		else
			n = cf.read(l->handle, l->memory + i * opt.bs, opt.bs, (off_t)l->offsets[i],
				    0);
		if (n != (ssize_t)opt.bs)
			fail("cuFileRead", (long)n);
	}
	pthread_barrier_wait(&l->barrier);
	return NULL;
}

static void reads(struct load *l)
{
	static struct thread threads[THREADS_MAX];
	double began;

	pthread_barrier_init(&l->barrier, NULL, (unsigned int)opt.threads + 1);
	for (uint64_t i = 0; i < opt.threads; i++) {
		threads[i] = (struct thread){.load = l, .number = i};
		if (pthread_create(&threads[i].id, NULL, read_main, &threads[i]))
			fail("a thread", 0);
	}
	pthread_barrier_wait(&l->barrier);
	began = now();
	pthread_barrier_wait(&l->barrier);
	l->seconds = now() - began;
	for (uint64_t i = 0; i < opt.threads; i++)
		pthread_join(threads[i].id, NULL);
}

/* -- on a stream: nothing was read before, so whatever the library has to set up happens on the way -- */
struct numbers {
	size_t size;
	off_t file_offset, memory_offset;
	ssize_t bytes;
};

static void async_reads(struct load *l)
{
	struct numbers *all = calloc(l->requests, sizeof(*all));
	double began = now();

	if (!all)
		fail("memory", 0);
	for (uint64_t i = 0; i < l->requests; i++) {
		struct numbers *n = &all[i];
		CUfileError_t e;

		*n = (struct numbers){opt.bs, (off_t)l->offsets[i], (off_t)(i * opt.bs), -9999};
		e = cf.read_async(l->handle, l->memory, &n->size, &n->file_offset,
				  &n->memory_offset, &n->bytes, (CUstream)cu.stream);
		if (e.err != CU_FILE_SUCCESS)
			fail("cuFileReadAsync", (long)e.err);
	}
	while (on_gpu() && cu.stream_query(cu.stream) == 600)
		sched_yield();
	l->seconds = now() - began;
	for (uint64_t i = 0; i < l->requests; i++) {
		if (all[i].bytes != (ssize_t)opt.bs)
			fail("a read on the stream", (long)all[i].bytes);
	}
	free(all);
}

/* -- batches -- */
static void one_batch(struct load *l, CUfileBatchHandle_t batch, CUfileIOParams_t *io,
		      CUfileIOEvents_t *events, uint64_t round)
{
	unsigned int nr = (unsigned int)opt.nr, done = 0;
	double began = now();
	CUfileError_t e;

	for (unsigned int i = 0; i < nr; i++) {
		uint64_t request = round * nr + i;

		memset(&io[i], 0, sizeof(io[i]));
		io[i].mode = CUFILE_BATCH;
		io[i].fh = l->handle;
		io[i].opcode = CUFILE_READ;
		io[i].u.batch.devPtr_base = l->memory;
		io[i].u.batch.devPtr_offset = (off_t)(request * opt.bs);
		io[i].u.batch.file_offset = (off_t)l->offsets[request];
		io[i].u.batch.size = opt.bs;
	}
	e = cf.batch_submit(batch, nr, io, 0);
	if (e.err != CU_FILE_SUCCESS)
		fail("cuFileBatchIOSubmit", (long)e.err);
	while (done < nr) {
		unsigned int got = nr - done;

		e = cf.batch_status(batch, got, &got, events, NULL);
		if (e.err != CU_FILE_SUCCESS)
			fail("cuFileBatchIOGetStatus", (long)e.err);
		for (unsigned int i = 0; i < got; i++) {
			if (events[i].status != CUFILE_COMPLETE || events[i].ret != opt.bs)
				fail("an entry of a batch", (long)events[i].ret);
		}
		done += got;
	}
	l->round_seconds[round] = now() - began;
}

static void batches(struct load *l)
{
	CUfileIOEvents_t *events = calloc(opt.nr, sizeof(*events));
	CUfileIOParams_t *io = calloc(opt.nr, sizeof(*io));
	CUfileBatchHandle_t batch = NULL;
	CUfileError_t e = cf.batch_setup(&batch, (unsigned int)opt.nr);
	double began;

	if (e.err != CU_FILE_SUCCESS)
		fail("cuFileBatchIOSetUp", (long)e.err);
	if (!io || !events)
		fail("memory", 0);
	began = now();
	for (uint64_t i = 0; i < opt.rounds; i++)
		one_batch(l, batch, io, events, i);
	l->seconds = now() - began;
	cf.batch_destroy(batch);
	free(io);
	free(events);
}

/* The same requests as a batch, by the kernel alone. */
static void disk_batches(struct load *l)
{
	struct iocb *io = calloc(opt.nr, sizeof(*io)), **list = calloc(opt.nr, sizeof(*list));
	struct io_event *events = calloc(opt.nr, sizeof(*events));
	aio_context_t ring = 0;
	double all = now();

	if (!io || !list || !events || syscall(SYS_io_setup, opt.nr, &ring))
		fail("io_setup", 0);
	for (uint64_t round = 0; round < opt.rounds; round++) {
		double began = now();

		for (uint64_t i = 0; i < opt.nr; i++) {
			uint64_t request = round * opt.nr + i;

			io[i] = (struct iocb){
				.aio_lio_opcode = IOCB_CMD_PREAD,
				.aio_fildes = (uint32_t)l->fd,
				.aio_buf = (uintptr_t)l->memory + request * opt.bs,
				.aio_nbytes = opt.bs,
				.aio_offset = (int64_t)l->offsets[request],
			};
			list[i] = &io[i];
		}
		for (long done = 0, n; done < (long)opt.nr; done += n) {
			n = syscall(SYS_io_submit, ring, (long)opt.nr - done, list + done);
			if (n <= 0)
				fail("io_submit", n);
		}
		if (syscall(SYS_io_getevents, ring, opt.nr, opt.nr, events, NULL) != (long)opt.nr)
			fail("io_getevents", 0);
		for (uint64_t i = 0; i < opt.nr; i++) {
			if (events[i].res != (int64_t)opt.bs)
				fail("a read of the disk", (long)events[i].res);
		}
		l->round_seconds[round] = now() - began;
	}
	l->seconds = now() - all;
	syscall(SYS_io_destroy, ring);
	free(io);
	free(list);
	free(events);
}

/* -- the driver -- */
static void one_read(struct load *l)
{
	register_all(l);
	if (cf.read(l->handle, l->memory, opt.bs, (off_t)l->offsets[0], 0) != (ssize_t)opt.bs)
		fail("cuFileRead", 0);
	deregister_all(l);
}

static void opens(struct load *l)
{
	for (uint64_t i = 0; i < opt.rounds; i++) {
		double began = now();
		CUfileError_t e = cf.open();

		if (e.err != CU_FILE_SUCCESS)
			fail("cuFileDriverOpen", (long)e.err);
		if (l->requests)
			one_read(l);
		e = cf.close();
		if (e.err != CU_FILE_SUCCESS)
			fail("cuFileDriverClose", (long)e.err);
		l->round_seconds[i] = now() - began;
		l->seconds += l->round_seconds[i];
	}
}

/* -- output -- */
static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(struct load *l, int version, int verified)
{
	uint64_t bytes = l->requests * opt.bs;

	printf("{\"mode\": \"%s\", \"version\": %d, \"requests\": %llu, \"bytes\": %llu, "
	       "\"seconds\": %.9f, \"user_seconds\": %.6f, \"system_seconds\": %.6f, "
	       "\"verified\": %s",
	       opt.mode, version, (unsigned long long)l->requests, (unsigned long long)bytes,
	       l->seconds, l->user_seconds, l->system_seconds, verified ? "true" : "false");
	if (l->round_seconds[0] > 0) {
		qsort(l->round_seconds, opt.rounds, sizeof(double), compare);
		printf(", \"rounds\": %llu, \"round_seconds_min\": %.9f, "
		       "\"round_seconds_median\": %.9f, \"round_seconds_max\": %.9f",
		       (unsigned long long)opt.rounds, l->round_seconds[0],
		       l->round_seconds[opt.rounds / 2], l->round_seconds[opt.rounds - 1]);
	}
	printf("}\n");
}

static double spent(const struct timeval *a, const struct timeval *b)
{
	return (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_usec - a->tv_usec) * 1e-6;
}

static void timed(struct load *l, void (*work)(struct load *))
{
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	work(l);
	getrusage(RUSAGE_SELF, &after);
	l->user_seconds = spent(&before.ru_utime, &after.ru_utime);
	l->system_seconds = spent(&before.ru_stime, &after.ru_stime);
}

static int read_options(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint64_t *number;
		const char **text;
	} keys[] = {
		{"lib", NULL, &opt.lib},
		{"file", NULL, &opt.file},
		{"device", NULL, &opt.device},
		{"bs", &opt.bs, NULL},
		{"count", &opt.count, NULL},
		{"threads", &opt.threads, NULL},
		{"nr", &opt.nr, NULL},
		{"rounds", &opt.rounds, NULL},
		{"seed", &opt.seed, NULL},
		{"direct", &opt.direct, NULL},
		{"registered", &opt.registered, NULL},
	};

	for (int i = 2; i < argc; i++) {
		size_t k = 0, count = sizeof(keys) / sizeof(keys[0]);
		const char *value = strchr(argv[i], '=');

		while (value && k < count &&
		       (strlen(keys[k].name) != (size_t)(value - argv[i]) ||
			strncmp(keys[k].name, argv[i], (size_t)(value - argv[i])) != 0))
			k++;
		if (!value || k == count)
			return 0;
		if (keys[k].number)
			*keys[k].number = strtoull(value + 1, NULL, 10);
		else
			*keys[k].text = value + 1;
	}
	return opt.threads >= 1 && opt.threads <= THREADS_MAX && opt.rounds >= 1 &&
	       opt.rounds <= ROUNDS_MAX && opt.nr >= 1 && opt.bs >= 1 && opt.count >= 1;
}

static void prepare(struct load *l, uint64_t requests)
{
	open_file(l);
	l->requests = requests;
	choose_offsets(l, !strcmp(opt.mode, "read") || !strcmp(opt.mode, "async"));
	l->memory_len = l->requests * opt.bs;
	l->memory = memory_alloc(l->memory_len);
}

static void whole_load(struct load *l, int disk, int is_batch)
{
	CUfileError_t e;

	prepare(l, is_batch ? opt.nr * opt.rounds : opt.count);
	if (disk) {
		timed(l, disk_batches);
		verify(l);
		return;
	}
	if (is_batch && opt.nr > 128)
		cf.set_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, opt.nr);
	e = cf.open();
	if (e.err != CU_FILE_SUCCESS)
		fail("cuFileDriverOpen", (long)e.err);
	register_all(l);
	timed(l, is_batch ? batches : strcmp(opt.mode, "async") ? reads : async_reads);
	verify(l);
	deregister_all(l);
	cf.close();
}

static int known_mode(void)
{
	static const char *const modes[] = {"read", "random", "async", "batch",
					    "disk", "open",   "cycle"};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (!strcmp(opt.mode, modes[i]))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct load l;
	int version = 0, disk, opening, cycle;

	opt.mode = argc > 1 ? argv[1] : "";
	if (!known_mode() || !read_options(argc, argv)) {
		fprintf(stderr, "usage: cufile_read read|random|async|batch|disk|open|cycle "
				"key=value...\n");
		return 2;
	}
	disk = !strcmp(opt.mode, "disk");
	cycle = !strcmp(opt.mode, "cycle");
	opening = cycle || !strcmp(opt.mode, "open");
	if (disk)
		opt.device = "host";
	if (on_gpu())
		load_cuda();
	if (!disk) {
		load_cufile();
		cf.version(&version);
	}
	if (!*opt.file && strcmp(opt.mode, "open") != 0)
		fail("file=PATH is missing", 0);
	if (cycle)
		prepare(&l, 1);
	if (opening)
		timed(&l, opens);
	else
		whole_load(&l, disk, disk || !strcmp(opt.mode, "batch"));
	if (cycle)
		verify(&l);
	report(&l, version, 1);
	return 0;
}

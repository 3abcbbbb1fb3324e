/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm/cufile_probe.c - a program that knows cuFile and CUDA's driver and nothing else: reads windows of a
 * file into device memory, in one of the ways that cuFile has, and prints what cuFile says of itself
 * and of the transfers. In the guests the driver is the one of tests/fakecuda, whose memory is a BAR.
 *
 * Usage: cufile_probe about
 *        cufile_probe read|batch|stream FILE whole|aligned|odd COUNT LEN
 *        cufile_probe write FILE whole COUNT LEN    device memory to the file: guard, bytes i * 7, guard
 * Exit status: 0; 3 when cuFile refuses, with its code as "refused=5001".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CUFILE_NO_CUDA_H
#include <cufile.h>

#include "windows.h"

#define BATCH 64u

static struct {
	int (*init)(unsigned int flags);
	int (*retain)(void **ctx, int device);
	int (*release)(int device);
	int (*push)(void *ctx);
	int (*pop)(void **ctx);
	int (*alloc)(uint64_t *ptr, size_t len);
	int (*free)(uint64_t ptr);
	int (*to_device)(uint64_t dst, const void *src, size_t len, void *stream);
	int (*stream_create)(void **stream, unsigned int flags, int priority);
	int (*stream_destroy)(void *stream);
	int (*stream_query)(void *stream);
} cuda;

static const struct {
	const char *name;
	void *place;
} symbols[] = {
	{"cuInit", &cuda.init},
	{"cuDevicePrimaryCtxRetain", &cuda.retain},
	{"cuDevicePrimaryCtxRelease_v2", &cuda.release},
	{"cuCtxPushCurrent_v2", &cuda.push},
	{"cuCtxPopCurrent_v2", &cuda.pop},
	{"cuMemAlloc_v2", &cuda.alloc},
	{"cuMemFree_v2", &cuda.free},
	{"cuMemcpyHtoDAsync_v2", &cuda.to_device},
	{"cuStreamCreateWithPriority", &cuda.stream_create},
	{"cuStreamDestroy_v2", &cuda.stream_destroy},
	{"cuStreamQuery", &cuda.stream_query},
};

static struct {
	CUfileHandle_t handle;
	const char *how;
	uint64_t count, len, size;
	uint64_t memory, room; /* on the device: guard, windows, guard */
} t;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "cufile_probe: %s failed (errno %d)\n", what, errno);
	exit(1);
}

static void cufile(CUfileError_t e, const char *what)
{
	if (e.err == CU_FILE_SUCCESS)
		return;
	printf("refused=%d %s\n", e.err, what);
	exit(3);
}

/* What a transfer returns: all of it, or a code of cuFile. */
static void whole(ssize_t got, uint64_t want)
{
	if (got == (ssize_t)want)
		return;
	printf("refused=%d got=%zd\n", got < -1 ? (int)-got : errno, got);
	exit(3);
}

static void open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *ctx;

	must(library, "libcuda.so.1");
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		must(symbol, symbols[i].name);
		memcpy(symbols[i].place, &symbol, sizeof(symbol));
	}
	must(!cuda.init(0) && !cuda.retain(&ctx, 0) && !cuda.push(ctx), "the context");
}

/* Guards and what lies between, as the device's memory should be at first. */
static void fill(bool pattern)
{
	uint8_t *bytes = malloc(t.room);

	memset(bytes, WINDOWS_GUARD_BYTE, t.room);
	for (uint64_t i = WINDOWS_GUARD; pattern && i < t.room - WINDOWS_GUARD; i++)
		bytes[i] = (uint8_t)((i - WINDOWS_GUARD) * 7);
	must(!cuda.to_device(t.memory, bytes, t.room, NULL), "a copy to the device");
	free(bytes);
}

static off_t next_window(uint64_t i)
{
	return (off_t)windows_offset(t.how, i, t.len, t.size);
}

static off_t place(uint64_t i)
{
	return (off_t)(WINDOWS_GUARD + i * t.len);
}

static void by_calls(bool write)
{
	void *base = (void *)(uintptr_t)t.memory;

	for (uint64_t i = 0; i < t.count; i++) {
		off_t off = next_window(i);

		whole(write ? cuFileWrite(t.handle, base, t.len, off, place(i))
			    : cuFileRead(t.handle, base, t.len, off, place(i)),
		      t.len);
	}
}

static void reap(CUfileBatchHandle_t batch, unsigned int n)
{
	CUfileIOEvents_t events[BATCH];

	while (n) {
		unsigned int got = n;
		struct timespec limit = {60, 0};

		cufile(cuFileBatchIOGetStatus(batch, 1, &got, events, &limit), "GetStatus");
		must(got, "a batch within a minute");
		for (unsigned int i = 0; i < got; i++)
			whole((ssize_t)events[i].ret, t.len);
		n -= got;
	}
}

static void by_batches(void)
{
	CUfileBatchHandle_t batch;

	cufile(cuFileBatchIOSetUp(&batch, BATCH), "SetUp");
	for (uint64_t i = 0; i < t.count;) {
		CUfileIOParams_t params[BATCH];
		unsigned int n = 0;

		memset(params, 0, sizeof(params));
		for (; n < BATCH && i < t.count; n++, i++) {
			params[n].mode = CUFILE_BATCH;
			params[n].fh = t.handle;
			params[n].opcode = CUFILE_READ;
			params[n].u.batch.devPtr_base = (void *)(uintptr_t)t.memory;
			params[n].u.batch.file_offset = next_window(i);
			params[n].u.batch.devPtr_offset = place(i);
			params[n].u.batch.size = t.len;
		}
		cufile(cuFileBatchIOSubmit(batch, n, params, 0), "Submit");
		reap(batch, n);
	}
	cuFileBatchIODestroy(batch);
}

static void by_stream(void)
{
	ssize_t *got = calloc(t.count, sizeof(*got));
	off_t *at = calloc(2 * t.count, sizeof(*at));
	size_t len = t.len;
	void *stream;

	must(!cuda.stream_create(&stream, 1, 0), "a stream");
	for (uint64_t i = 0; i < t.count; i++) {
		at[2 * i] = next_window(i);
		at[2 * i + 1] = place(i);
		cufile(cuFileReadAsync(t.handle, (void *)(uintptr_t)t.memory, &len, &at[2 * i],
				       &at[2 * i + 1], &got[i], stream),
		       "ReadAsync");
	}
	while (cuda.stream_query(stream))
		usleep(1000);
	for (uint64_t i = 0; i < t.count; i++)
		whole(got[i], t.len);
	must(!cuda.stream_destroy(stream), "the stream's end");
	free(got);
	free(at);
}

static void print_about(void)
{
	CUfileDrvProps_t props;

	cufile(cuFileDriverGetProperties(&props), "GetProperties");
	printf("nvme_p2p=%u nvme=%u p2p=%u version=%u.%u compat=%u\n",
	       props.nvfs.dstatusflags >> CU_FILE_NVME_P2P_SUPPORTED & 1,
	       props.nvfs.dstatusflags >> CU_FILE_NVME_SUPPORTED & 1,
	       props.fflags >> CU_FILE_P2P_SUPPORTED & 1, props.nvfs.major_version,
	       props.nvfs.minor_version, props.nvfs.dcontrolflags >> CU_FILE_ALLOW_COMPAT_MODE & 1);
}

static void print_statistics(void)
{
	static CUfileStatsLevel3_t all;
	const CUfilePerGpuStats_t *gpu = &all.per_gpu_stats[0];
	const CUfileStatsLevel1_t *basic = &all.detailed.basic;

	cufile(cuFileGetStatsL3(&all), "GetStats");
	printf("p2p_reads=%" PRIu64 " posix_reads=%" PRIu64 " p2p_writes=%" PRIu64
	       " posix_writes=%" PRIu64 " read_bytes=%" PRIu64 " batch_p2p=%" PRIu64
	       " batch_posix=%" PRIu64 " batch_bytes=%" PRIu64 "\n",
	       gpu->n_p2p_reads, gpu->n_posix_reads, gpu->n_p2p_writes, gpu->n_posix_writes,
	       gpu->read_bytes, basic->batch_p2p_submit_ops.ok, basic->batch_posix_processed_ops.ok,
	       basic->batch_read_bytes);
}

static void open_all(const char *path, bool write)
{
	CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	struct stat st;

	descr.handle.fd =
		open(path, write ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0644);
	must(descr.handle.fd >= 0 && !fstat(descr.handle.fd, &st), path);
	t.size = (uint64_t)st.st_size;
	t.room = t.count * t.len + 2 * WINDOWS_GUARD;
	must(!cuda.alloc(&t.memory, t.room), "device memory");
	fill(write);
	cufile(cuFileHandleRegister(&t.handle, &descr), "HandleRegister");
	cufile(cuFileBufRegister((void *)(uintptr_t)t.memory, t.room, 0), "BufRegister");
	close(descr.handle.fd);
}

static void transfer(const char *way)
{
	if (!strcmp(way, "batch"))
		by_batches();
	else if (!strcmp(way, "stream"))
		by_stream();
	else
		by_calls(!strcmp(way, "write"));
}

int main(int argc, char **argv)
{
	void *ctx;

	if (argc != 2 && argc != 6)
		return 2;
	open_driver();
	cuFileSetStatsLevel(3);
	cufile(cuFileDriverOpen(), "DriverOpen");
	print_about();
	if (argc == 2)
		return 0;
	t.how = argv[3];
	t.count = strtoull(argv[4], NULL, 0);
	t.len = strtoull(argv[5], NULL, 0);
	cufile(cuFileStatsStart(), "StatsStart");
	open_all(argv[2], !strcmp(argv[1], "write"));
	transfer(argv[1]);
	print_statistics();
	printf("offset=%" PRIu64 " len=%" PRIu64 " asked=%" PRIu64 "\n",
	       windows_in_bar((void *)(uintptr_t)t.memory), t.room, t.count * t.len);
	cufile(cuFileBufDeregister((void *)(uintptr_t)t.memory), "BufDeregister");
	cuFileHandleDeregister(t.handle);
	cufile(cuFileDriverClose(), "DriverClose");
	must(!cuda.free(t.memory) && !cuda.pop(&ctx) && !cuda.release(0), "letting go of it all");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/memory.h - memory that the tests of libcufile.so.0 read into and write from: plain pages, or a
 * device's, through the few driver calls that a user's program would make. DEVICE is the first argument
 * of every program: "host" (no driver at all) or "cuda:0" (whatever libcuda.so.1 the loader finds:
 * tests/fakecuda here). It knows nothing of cuFile.
 */
#ifndef HR_TESTS_CUFILE_MEMORY_H
#define HR_TESTS_CUFILE_MEMORY_H

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "support/support.h"

#define PAGE 4096u
#define MIB (1u << 20)

static bool on_gpu;
static const char *test_program;
static pthread_t test_thread; /* that runs the tests */
static char *test_home;       /* logs are written where a program was started: not to be kept */

/* As an assert of cmocka, which can be used by any thread: another one ends the process. */
#define must(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			must_not_be(__FILE__, __LINE__, #condition);                               \
	} while (0)

static inline void must_not_be(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not %s (errno %d)\n", file, line, what, errno);
	if (!pthread_equal(pthread_self(), test_thread))
		_exit(1);
	fail();
}

/* -- the driver -- */
typedef void (*cuda_host_fn)(void *arg);

static struct {
	int (*init)(unsigned int flags);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*alloc)(uint64_t *ptr, size_t len);
	int (*free)(uint64_t ptr);
	int (*alloc_host)(void **ptr, size_t len, unsigned int flags);
	int (*free_host)(void *ptr);
	int (*copy_in)(uint64_t dst, const void *src, size_t len, void *stream);
	int (*copy_out)(void *dst, uint64_t src, size_t len, void *stream);
	int (*stream_create)(void **stream, unsigned int flags, int priority);
	int (*stream_destroy)(void *stream);
	int (*stream_query)(void *stream);
	int (*host_func)(void *stream, cuda_host_fn fn, void *arg);
	/* of the pretended driver alone; NULL on a real one */
	int (*fake_set)(const char *name, long value);
	void (*fake_fail)(const char *function, long kth, int result);
	long (*fake_get)(const char *name);
	const char *(*fake_misuse)(void);
	void *context, *stream;
} cuda;

/* Every thread that uses device memory needs the context, as in a program of a user. */
static inline void fixture_thread(void)
{
	if (on_gpu)
		must(cuda.push(cuda.context) == 0);
}

static inline void fixture_thread_end(void)
{
	void *context;

	if (on_gpu)
		must(cuda.pop(&context) == 0);
}

static inline void cuda_load(void)
{
	const struct {
		void *slot;
		const char *name;
		bool optional;
	} table[] = {
		{&cuda.init, "cuInit", false},
		{&cuda.retain, "cuDevicePrimaryCtxRetain", false},
		{&cuda.release, "cuDevicePrimaryCtxRelease_v2", false},
		{&cuda.push, "cuCtxPushCurrent_v2", false},
		{&cuda.pop, "cuCtxPopCurrent_v2", false},
		{&cuda.alloc, "cuMemAlloc_v2", false},
		{&cuda.free, "cuMemFree_v2", false},
		{&cuda.alloc_host, "cuMemHostAlloc", false},
		{&cuda.free_host, "cuMemFreeHost", false},
		{&cuda.copy_in, "cuMemcpyHtoDAsync_v2", false},
		{&cuda.copy_out, "cuMemcpyDtoHAsync_v2", false},
		{&cuda.stream_create, "cuStreamCreateWithPriority", false},
		{&cuda.stream_destroy, "cuStreamDestroy_v2", false},
		{&cuda.stream_query, "cuStreamQuery", false},
		{&cuda.host_func, "cuLaunchHostFunc", false},
		{&cuda.fake_set, "fakecuda_set", true},
		{&cuda.fake_fail, "fakecuda_fail", true},
		{&cuda.fake_get, "fakecuda_get", true},
		{&cuda.fake_misuse, "fakecuda_misuse", true},
	};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *symbol = dlsym(lib, table[i].name);

		if (!symbol && !table[i].optional) {
			fprintf(stderr, "no %s\n", table[i].name);
			exit(1);
		}
		memcpy(table[i].slot, &symbol, sizeof(symbol));
	}
}

/* fixture_init() - read DEVICE; false: not understood. To be called first in main(). */
static inline bool fixture_init(int argc, char **argv)
{
	test_program = argv[0];
	test_thread = pthread_self();
	/* What this machine configures is not what is tested; programs that run alone say it themselves. */
	if (argc == 2) {
		setenv("CUFILE_ENV_PATH_JSON", "/dev/null", 1);
		test_home = test_mkdir();
		must(chdir(test_home) == 0);
	}
	if (argc < 2 || (strcmp(argv[1], "host") && strcmp(argv[1], "cuda:0")))
		return false;
	on_gpu = strcmp(argv[1], "host") != 0;
	if (on_gpu) {
		cuda_load();
		if (cuda.init(0) || cuda.retain(&cuda.context, 0) || cuda.push(cuda.context) ||
		    cuda.stream_create(&cuda.stream, 1, 0))
			return false;
	}
	return true;
}

/* fixture_fini() - what main() returns after its tests: 1 also for misuse of the driver. */
static inline int fixture_fini(int failed)
{
	if (test_home) {
		must(chdir("/") == 0);
		test_rmdir(test_home);
	}
	if (on_gpu && cuda.fake_get && cuda.fake_get("misuse")) {
		fprintf(stderr, "misuse of the driver: %s\n", cuda.fake_misuse());
		failed = 1;
	}
	if (on_gpu) {
		cuda.stream_destroy(cuda.stream);
		cuda.pop(&cuda.context);
		cuda.release(0);
	}
	return failed ? 1 : 0;
}

/* Many threads wait at once here: those that only yield keep the others from the processor. */
static inline void stream_finish(void *stream)
{
	const struct timespec moment = {0, 50000};

	while (cuda.stream_query(stream) == 600)
		nanosleep(&moment, NULL);
}

/* -- memory: of the device, or plain pages -- */
static inline void *mem_alloc(size_t len)
{
	uint64_t ptr = 0;
	void *host = NULL;

	if (!on_gpu) {
		must(posix_memalign(&host, PAGE, len) == 0);
		return host;
	}
	must(cuda.alloc(&ptr, len) == 0);
	return (void *)(uintptr_t)ptr;
}

static inline void mem_free(void *p)
{
	if (on_gpu)
		must(cuda.free((uintptr_t)p) == 0);
	else
		free(p);
}

static inline void mem_in(void *dst, const void *src, size_t len)
{
	if (!on_gpu) {
		memcpy(dst, src, len);
		return;
	}
	must(cuda.copy_in((uintptr_t)dst, src, len, cuda.stream) == 0);
	stream_finish(cuda.stream);
}

static inline void mem_out(void *dst, const void *src, size_t len)
{
	if (!on_gpu) {
		memcpy(dst, src, len);
		return;
	}
	must(cuda.copy_out(dst, (uintptr_t)src, len, cuda.stream) == 0);
	stream_finish(cuda.stream);
}

static inline void mem_fill(void *dst, uint8_t value, size_t len)
{
	void *image = malloc(len);

	memset(image, value, len);
	mem_in(dst, image, len);
	free(image);
}

/* The pattern of the file at @off lies in memory at @p. */
static inline void mem_pattern(void *p, uint64_t off, size_t len)
{
	uint8_t *image = malloc(len);

	for (size_t i = 0; i < len; i++)
		image[i] = test_pattern(off + i);
	mem_in(p, image, len);
	free(image);
}

/* Of @total bytes at @p, [at, at + len) hold the file from @off on, and all others are guards. */
static inline void mem_check(const void *p, size_t total, size_t at, size_t len, uint64_t off)
{
	uint8_t *image = malloc(total);

	mem_out(image, p, total);
	for (size_t i = 0; i < total; i++) {
		bool in = i >= at && i - at < len;

		if (image[i] == (in ? test_pattern(off + (i - at)) : TEST_GUARD))
			continue;
		fprintf(stderr, "%zu of [%zu, %zu + %zu) from %llu\n", i, at, at, len,
			(unsigned long long)off);
		must_not_be(__FILE__, __LINE__, in ? "the byte of the file" : "a guard byte");
	}
	free(image);
}

#endif

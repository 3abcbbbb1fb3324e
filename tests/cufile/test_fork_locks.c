/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fork_locks - fork() while another thread has a lock of the drop-in, of the library inside or of the
 * driver: whatever it was doing, no call waits in the child. How: see support/lock_stop.h; once for each lock
 * on the way of what the thread does.
 */
#include "fixture.h"

#include "support/fork.h"
#include "support/lock_stop.h"

/* What the parent has when it forks. */
static struct target file;
static CUfileBatchHandle_t batch;
static CUfileIOParams_t entry;
static char *memory;
static void *stream;

static bool in_child;

/*
 * Its lock is libc's, where no child gets it back: so this is what stands for waiting there, once the library
 * has learned in the parent what it needs.
 */
struct tm *localtime_r(const time_t *at, struct tm *out)
{
	struct tm *(*real)(const time_t *, struct tm *) = NULL;

	if (in_child)
		_exit(60);
	*(void **)&real = dlsym(RTLD_NEXT, "localtime_r");
	return real(at, out);
}

/* -- the child: 0, or the number of the step that went wrong ----------------------------------- */

/* A GPU's memory is not there; plain memory works. */
static int reads(void)
{
	static char bytes[PAGE];
	ssize_t n = cuFileRead(file.handle, memory, PAGE, 0, 0);

	if (on_gpu ? n >= 0 : n != PAGE)
		return 1;
	if (cuFileWrite(file.handle, memory, 0, 0, 0) < 0)
		return 2;
	/* Nothing is opened by a read: what was closed in the parent is closed here. */
	n = cuFileRead(file.handle, bytes, PAGE, 100, 0);
	if (n != PAGE)
		return 3;
	for (uint64_t i = 0; i < PAGE; i++) {
		if ((uint8_t)bytes[i] != test_pattern(100 + i))
			return 4;
	}
	return 0;
}

static int asks(void)
{
	CUfileStatsLevel3_t stats;
	CUfileDrvProps_t props;
	char text[100];
	size_t value;
	bool flag;
	int level;

	if (cuFileUseCount() < 1 || cuFileDriverGetProperties(&props).err)
		return 10;
	if (cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value).err ||
	    cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, &flag).err ||
	    cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)).err)
		return 11;
	if (cuFileGetStatsLevel(&level).err || cuFileStatsReset().err ||
	    cuFileGetStatsL3(&stats).err)
		return 12;
	return 0;
}

/* Batches and streams are the parent's. */
static int batches(void)
{
	CUfileBatchHandle_t own;
	CUfileIOEvents_t event;
	struct timespec none = {0};
	unsigned int n = 1;

	if (cuFileBatchIOSubmit(batch, 1, &entry, 0).err == CU_FILE_SUCCESS ||
	    cuFileBatchIOGetStatus(batch, 0, &n, &event, &none).err == CU_FILE_SUCCESS)
		return 20;
	cuFileBatchIOCancel(batch);
	cuFileBatchIODestroy(batch);
	if (cuFileBatchIOSetUp(&own, 4).err)
		return 21;
	cuFileBatchIODestroy(own);
	cuFileStreamDeregister(stream);
	return 0;
}

/* It is closed, and opened again by what is registered. */
static int opens_again(void)
{
	static char bytes[PAGE];
	CUfileHandle_t handle = NULL;

	cuFileBufDeregister(memory);
	cuFileHandleDeregister(file.handle);
	while (cuFileUseCount() > 0)
		cuFileDriverClose_v2();
	if (cuFileDriverOpen().err || handle_of(file.fd, &handle).err ||
	    cuFileBufRegister(bytes, PAGE, 0).err)
		return 30;
	if (cuFileRead(handle, bytes, PAGE, 9, 0) != PAGE || (uint8_t)bytes[1] != test_pattern(10))
		return 31;
	if (cuFileBufDeregister(bytes).err)
		return 32;
	cuFileHandleDeregister(handle);
	return cuFileDriverClose_v2().err ? 33 : 0;
}

static int child(void)
{
	int step;

	in_child = true;
	step = reads();
	if (!step)
		step = asks();
	if (!step)
		step = batches();
	return step ? step : opens_again();
}

static int child_of_closed(void)
{
	static char bytes[PAGE];

	cuFileUseCount();
	cuFileRead(file.handle, bytes, PAGE, 0, 0);
	return opens_again();
}

/* -- what the other thread does ---------------------------------------------------------------- */

static void use_handle(void)
{
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	CUfileHandle_t handle;

	CHECK(fd >= 0);
	CHECK(handle_of(fd, &handle).err == CU_FILE_SUCCESS);
	cuFileHandleDeregister(handle);
	close(fd);
}

/* With some failures, which are told to the log. */
static void use_memory(void)
{
	static char bytes[PAGE];
	char *more;

	fixture_thread();
	more = mem_alloc(MIB);
	CHECK(cuFileRead(file.handle, bytes, PAGE, 0, 0) == PAGE);
	CHECK(cuFileRead(file.handle, more, MIB, 0, 0) == MIB);
	CHECK(cuFileBufRegister(more, MIB, 0).err == CU_FILE_SUCCESS);
	CHECK(cuFileRead(file.handle, more, PAGE, 777, 0) == PAGE);
	CHECK(cuFileWrite(file.handle, more, PAGE, 777, 0) == PAGE);
	CHECK(cuFileRead(file.handle, more, PAGE, -1, 0) == -1);
	CHECK(cuFileBufDeregister(more).err == CU_FILE_SUCCESS);
	CHECK(cuFileBufDeregister(more).err != CU_FILE_SUCCESS);
	mem_free(more);
	fixture_thread_end();
}

static void use_batch(void)
{
	CUfileBatchHandle_t own;
	CUfileIOEvents_t event;
	unsigned int n = 1;

	fixture_thread();
	CHECK(cuFileBatchIOSetUp(&own, 4).err == CU_FILE_SUCCESS);
	CHECK(cuFileBatchIOSubmit(own, 1, &entry, 0).err == CU_FILE_SUCCESS);
	CHECK(cuFileBatchIOGetStatus(own, 1, &n, &event, NULL).err == CU_FILE_SUCCESS);
	CHECK(event.status == CUFILE_COMPLETE);
	CHECK(cuFileBatchIOCancel(own).err == CU_FILE_SUCCESS);
	cuFileBatchIODestroy(own);
	fixture_thread_end();
}

static void use_settings(void)
{
	CUfileStatsLevel1_t stats;
	CUfileDrvProps_t props;
	size_t value;

	CHECK(cuFileSetStatsLevel(3).err == CU_FILE_SUCCESS);
	CHECK(cuFileStatsStart().err == CU_FILE_SUCCESS);
	CHECK(cuFileGetStatsL1(&stats).err == CU_FILE_SUCCESS);
	CHECK(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value).err ==
	      CU_FILE_SUCCESS);
	CHECK(cuFileDriverSetMaxDirectIOSize(1024).err == CU_FILE_SUCCESS);
	CHECK(cuFileDriverGetProperties(&props).err == CU_FILE_SUCCESS);
	use_memory();
	use_batch();
	CHECK(cuFileStatsStop().err == CU_FILE_SUCCESS);
}

static void use_stream(void)
{
	size_t size = PAGE;
	ssize_t done = -2;
	off_t zero = 0;

	fixture_thread();
	CHECK(cuFileStreamRegister(stream, 15).err == CU_FILE_SUCCESS);
	CHECK(cuFileReadAsync(file.handle, memory, &size, &zero, &zero, &done, stream).err ==
	      CU_FILE_SUCCESS);
	if (on_gpu) {
		while (cuda.stream_query(stream))
			sched_yield();
	}
	CHECK(done == PAGE);
	CHECK(cuFileStreamDeregister(stream).err == CU_FILE_SUCCESS);
	fixture_thread_end();
}

/* The last close takes everything down, the next call builds it up. */
static void use_driver(void)
{
	CUfileHandle_t handle;
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	static char bytes[PAGE];

	for (int i = 0; i < 2; i++) {
		CHECK(handle_of(fd, &handle).err == CU_FILE_SUCCESS);
		CHECK(cuFileRead(handle, bytes, PAGE, 0, 0) == PAGE);
		CHECK(cuFileDriverClose().err == CU_FILE_SUCCESS);
	}
	close(fd);
}

/* -- the programs ------------------------------------------------------------------------------ */

static void while_open(void)
{
	static const struct {
		const char *what;
		void (*action)(void);
	} actions[] = {
		{"handle", use_handle},     {"memory", use_memory}, {"batch", use_batch},
		{"settings", use_settings}, {"stream", use_stream},
	};
	bool good = true;

	memory = mem_alloc(MIB);
	stream = on_gpu ? cuda.stream : NULL;
	target_open(&file, MIB, O_RDWR);
	CHECK(cuFileBufRegister(memory, MIB, 0).err == CU_FILE_SUCCESS);
	CHECK(cuFileSetStatsLevel(3).err == CU_FILE_SUCCESS);
	CHECK(cuFileBatchIOSetUp(&batch, 4).err == CU_FILE_SUCCESS);
	entry.mode = CUFILE_BATCH;
	entry.fh = file.handle;
	entry.u.batch.devPtr_base = memory;
	entry.u.batch.size = PAGE;
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		good = lock_stop_run(actions[i].what, actions[i].action, child) > 0 && good;
	CHECK(good);
	cuFileBatchIODestroy(batch);
	CHECK(cuFileBufDeregister(memory).err == CU_FILE_SUCCESS);
	target_close(&file);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	mem_free(memory);
}

static void while_opening(void)
{
	file.dir = test_mkdir();
	file.path = test_file(file.dir, "data", MIB);
	file.fd = open(file.path, O_RDONLY | O_CLOEXEC);
	CHECK(file.fd >= 0);
	CHECK(lock_stop_run("driver", use_driver, child_of_closed) > 0);
	close(file.fd);
	free(file.path);
	test_rmdir(file.dir);
}

static const struct alone alone[] = {
	{"while-open", while_open},
	{"while-opening", while_opening},
};

int main(int argc, char **argv)
{
	if (!TEST_FORK_BESIDE_THREADS) { /* the stopped thread is let go of when a handler waits for it */
		printf(TEST_FORK_SKIP);
		return 77;
	}
	if (!fixture_init(argc, argv))
		return 2;
	return alone_suite(argc, argv, alone, sizeof(alone) / sizeof(alone[0]));
}

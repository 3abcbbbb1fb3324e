/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_process - what a program may do around the library: end without closing, fork, unload it, close its
 * descriptors. How: each case is this program again; its exit status and its first three descriptors
 * tell. The library is loaded by name, as most programs do it.
 */
#include "fixture.h"

#include <sys/resource.h>

#include "support/fork.h"

static struct target file;
static CUfileBatchHandle_t batch;

/* A read that is waited for, a registered buffer, a batch on its way: as much as there can be. */
static char *busy(void)
{
	static CUfileIOParams_t io[16];
	char *p = mem_alloc(MIB);

	target_open(&file, MIB, O_RDWR | O_DIRECT);
	CHECK(cuFileBufRegister(p, MIB, 0).err == CU_FILE_SUCCESS);
	CHECK(cuFileRead(file.handle, p, MIB, 0, 0) == MIB);
	CHECK(cuFileBatchIOSetUp(&batch, 16).err == CU_FILE_SUCCESS);
	for (int i = 0; i < 16; i++) {
		io[i].mode = CUFILE_BATCH;
		io[i].fh = file.handle;
		io[i].u.batch.devPtr_base = p;
		io[i].u.batch.devPtr_offset = i * (int)PAGE;
		io[i].u.batch.file_offset = i * 1000;
		io[i].u.batch.size = PAGE;
	}
	CHECK(cuFileBatchIOSubmit(batch, 16, io, 0).err == CU_FILE_SUCCESS);
	return p;
}

/* Its batch is over: nothing writes into the memory of busy() any more. */
static void batch_ends(void)
{
	struct timespec limit = {.tv_sec = 30};
	CUfileIOEvents_t events[16];
	unsigned int n = 16;

	CHECK(cuFileBatchIOGetStatus(batch, 16, &n, events, &limit).err == CU_FILE_SUCCESS);
	CHECK(n == 16);
	for (unsigned int i = 0; i < n; i++)
		CHECK(events[i].status == CUFILE_COMPLETE && events[i].ret == PAGE);
	cuFileBatchIODestroy(batch);
}

static void remove_files(void)
{
	unlink(file.path);
	rmdir(file.dir);
}

static void ends_without_closing(void)
{
	busy();
	remove_files();
	exit(0);
}

static void ends_at_once(void)
{
	busy();
	remove_files();
	_exit(0);
}

static void *ends_from_a_thread_main(void *arg)
{
	exit(0);
}

static void ends_from_a_thread(void)
{
	pthread_t thread;

	busy();
	remove_files();
	CHECK(pthread_create(&thread, NULL, ends_from_a_thread_main, NULL) == 0);
	pthread_join(thread, NULL);
	_exit(1);
}

static void late_close(void)
{
	cuFileDriverClose_v2();
}

/* A destructor of the program closes, after main() is over. */
static void closes_while_ending(void)
{
	atexit(late_close);
	busy();
	remove_files();
	exit(0);
}

static void closes_too_often(void)
{
	char *p = busy();

	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK(cuFileDriverClose_v2().err == CU_FILE_DRIVER_NOT_INITIALIZED);
	CHECK(cuFileRead(file.handle, p, PAGE, 0, 0) == -1);
	CHECK(cuFileWrite(file.handle, p, PAGE, 0, 0) == -1);
	cuFileHandleDeregister(file.handle);
	CHECK(cuFileBufDeregister(p).err != CU_FILE_SUCCESS);
	while (cuFileUseCount() > 0)
		cuFileDriverClose_v2();
	mem_free(p);
	remove_files();
}

/* 0, 1 and 2 are the same files after everything, and 0 is not taken when it is free. */
static void first_descriptors(void)
{
	struct stat before[3], after;
	char *p;

	for (int i = 0; i < 3; i++)
		CHECK(fstat(i, &before[i]) == 0);
	p = busy();
	target_close(&file);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	mem_free(p);
	for (int i = 0; i < 3; i++) {
		CHECK(fstat(i, &after) == 0);
		CHECK(after.st_ino == before[i].st_ino && after.st_dev == before[i].st_dev);
	}
}

/* In the child nothing is promised but an answer; the parent goes on as if nothing was. */
static void forks(void)
{
	char *p;
	int status;
	pid_t pid;

	if (!TEST_FORK_BESIDE_THREADS) { /* those of the batch */
		printf(TEST_FORK_SKIP);
		return;
	}
	p = busy();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		char bytes[PAGE];
		ssize_t n;

		alarm(30);
		n = cuFileRead(file.handle, bytes, PAGE, 0, 0);
		if (n == PAGE && (uint8_t)bytes[9] != test_pattern(9))
			_exit(1);
		cuFileUseCount();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	batch_ends();
	mem_fill(p, TEST_GUARD, MIB);
	CHECK(cuFileRead(file.handle, p, MIB / 2, 77, 0) == MIB / 2);
	mem_check(p, MIB, 0, MIB / 2, 77);
	target_close(&file);
	CHECK(cuFileBufDeregister(p).err == CU_FILE_SUCCESS);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	mem_free(p);
}

/* A child that was made before the library was used is a process like any other. */
static void forks_first(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	alarm(60);
	if (on_gpu && !pid)
		_exit(0); /* a driver that was initialised does not follow a child */
	target_open(&file, PAGE, O_RDONLY);
	char *p = mem_alloc(PAGE);

	CHECK(cuFileRead(file.handle, p, PAGE, 0, 0) == PAGE);
	target_close(&file);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	mem_free(p);
	if (!pid)
		_exit(0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Loaded, used, unloaded while open: its threads have to find their code. */
static void unloads(void)
{
	for (int i = 0; i < 3; i++) {
		void *lib = dlopen("libcufile.so.0", RTLD_LAZY | RTLD_LOCAL);
		CUfileError_t (*open_driver)(void);
		void *symbol;

		CHECK(lib);
		symbol = dlsym(lib, "cuFileDriverOpen");
		CHECK(symbol);
		memcpy(&open_driver, &symbol, sizeof(symbol));
		CHECK(open_driver().err == CU_FILE_SUCCESS);
		if (i == 1)
			busy();
		CHECK(dlclose(lib) == 0);
		CHECK(dlclose(dlopen("libcufile.so.0", RTLD_LAZY)) == 0);
		sched_yield();
	}
	remove_files();
}

/* Few descriptors: an error at the most, and it works again when there are some. */
static void few_descriptors(void)
{
	struct rlimit old, few;
	CUfileHandle_t handle = NULL;
	char *p = mem_alloc(PAGE);

	target_open(&file, PAGE, O_RDONLY);
	CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
	few = old;
	few.rlim_cur = (rlim_t)dup(0);
	close((int)few.rlim_cur);
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	cuFileHandleDeregister(file.handle);
	if (handle_of(file.fd, &handle).err == CU_FILE_SUCCESS) {
		ssize_t n = cuFileRead(handle, p, PAGE, 0, 0);

		CHECK(n == PAGE || n == -1);
		cuFileHandleDeregister(handle);
	}
	CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
	CHECK(handle_of(file.fd, &file.handle).err == CU_FILE_SUCCESS);
	CHECK(cuFileRead(file.handle, p, PAGE, 0, 0) == PAGE);
	target_close(&file);
	mem_free(p);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

/*
 * Signals of the program go to the program: the library's threads take none, not even when the main
 * thread does not want them now. (The threads of the pretended GPU would.)
 */
static atomic_int signals;
static _Thread_local bool first;

static void on_signal(int number)
{
	if (first)
		atomic_fetch_add(&signals, 1);
	else
		_exit(3);
}

static void signals_stay_away(void)
{
	sigset_t usr1, pending;
	char *p;

	first = true;
	p = busy();
	CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (int i = 0; i < 50 && !on_gpu; i++) {
		CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
		CHECK(kill(getpid(), SIGUSR1) == 0);
		CHECK(cuFileRead(file.handle, p, PAGE, 0, 0) == PAGE);
		CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
		CHECK(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) == 0);
		CHECK(atomic_load(&signals) == i + 1);
	}
	target_close(&file);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	mem_free(p);
}

static const struct alone alone[] = {
	{"ends-without-closing", ends_without_closing},
	{"ends-at-once", ends_at_once},
	{"ends-from-a-thread", ends_from_a_thread},
	{"closes-while-ending", closes_while_ending},
	{"closes-too-often", closes_too_often},
	{"first-descriptors", first_descriptors},
	{"forks", forks},
	{"forks-first", forks_first},
	{"unloads", unloads},
	{"few-descriptors", few_descriptors},
	{"signals-stay-away", signals_stay_away},
};

int main(int argc, char **argv)
{
	if (!fixture_init(argc, argv))
		return 2;
	alarm(argc == 4 ? 120 : 900);
	return alone_suite(argc, argv, alone, sizeof(alone) / sizeof(alone[0]));
}

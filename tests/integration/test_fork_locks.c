/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_fork_locks - fork() while another thread has a lock of the library: whatever it was
 * doing, no public call waits in the child. How: see support/lock_stop.h; once for each lock on the way of
 * what the thread does.
 *
 * Usage: test_fork_locks DEVICE. On a GPU the child is also told that the driver is its parent's.
 */
#include <link.h>

#include <headrace/headrace.h>

#include "support/fork.h"
#include "support/lock_stop.h"
#include "support/support.h"

#define FILE_LEN (1u << 20)
#define PART 10000u

static const char *device_name = "host";
static bool on_gpu;

/* What the parent has when it forks. */
static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine;
	struct hr_dataset *ds;
	struct hr_loader *loader;
	const struct hr_batch *batch;
} t;

static struct hr_dataset *open_dataset(void)
{
	struct hr_dataset_options opts = {
		.format = "tokens", .dtype = HR_DTYPE_U16, .seq_len = 512};
	const char *paths[] = {t.path};
	struct hr_dataset *ds = NULL;

	return hr_dataset_open(paths, 1, &opts, &ds) ? NULL : ds;
}

static struct hr_loader *open_loader(struct hr_dataset *ds, struct hr_device *dev, uint32_t threads)
{
	struct hr_loader_options opts = {.batch_size = 4, .slots = 3, .threads = threads};
	struct hr_loader *loader = NULL;

	return hr_loader_open(ds, dev, &opts, &loader) ? NULL : loader;
}

static int set_up(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, FILE_LEN, &t.buf), 0);
	assert_int_equal(hr_engine_open(t.dev, NULL, &t.engine), 0);
	t.ds = open_dataset();
	assert_non_null(t.ds);
	t.loader = open_loader(t.ds, t.dev, 0);
	assert_non_null(t.loader);
	assert_int_equal(hr_loader_next(t.loader, &t.batch), 0);
	return 0;
}

static int tear_down(void **state)
{
	hr_loader_close(t.loader);
	hr_dataset_close(t.ds);
	assert_int_equal(hr_engine_close(t.engine), 0);
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.path);
	test_rmdir(t.dir);
	return 0;
}

/* -- the child: 0, or the number of the step that went wrong ----------------------------------- */

static int parents_engine(void)
{
	struct hr_io io = {.file = t.file, .buffer = t.buf, .piece = {0, 4096, 0}}, *ios = &io;
	struct hr_stats stats;

	if (hr_submit(t.engine, &ios, 1) != -HR_E_FORKED ||
	    hr_reap(t.engine, &ios, 1, 0, 0) != -HR_E_FORKED ||
	    hr_cancel(t.engine, &io) != -HR_E_FORKED ||
	    hr_read(t.engine, t.file, 0, 10, t.buf, 0) != -HR_E_FORKED)
		return 1;
	return hr_engine_stats(t.engine, &stats) || hr_engine_close(t.engine) ? 2 : 0;
}

static int parents_loader(void)
{
	unsigned char saved[HR_LOADER_STATE_BYTES];
	struct hr_loader_stats stats;
	struct hr_loader_info info;

	if (hr_loader_state(t.loader, saved, sizeof(saved)) < 0 || hr_loader_info(t.loader, &info))
		return 10;
	if (hr_loader_stats(t.loader, &stats) != -HR_E_FORKED)
		return 11;
	if (hr_loader_release(t.loader, t.batch, NULL) != -HR_E_FORKED)
		return 12;
	if (hr_loader_next(t.loader, &t.batch) != -HR_E_FORKED)
		return 13;
	hr_loader_stop(t.loader);
	hr_loader_close(t.loader);
	return 0;
}

static int parents_device(void)
{
	struct hr_device *dev;
	char byte, name[32];
	int64_t n;

	if (hr_device_of_pointer(&byte, name, sizeof(name)) || strcmp(name, "host") != 0)
		return 20;
	n = hr_file_register(t.file, t.dev, 0, 0, 0);
	if (on_gpu && n != -HR_E_FORKED && n != -HR_E_PATH_REFUSED)
		return 21;
	n = hr_buffer_copy_out(t.buf, 0, &byte, 1);
	if (n != (on_gpu ? -HR_E_FORKED : 0))
		return 22;
	n = hr_buffer_free(t.buf);
	if (n &&
	    n != -EBUSY) /* the other thread's engine has it in flight, for ever in the child */
		return 23;
	if (on_gpu && hr_device_open(device_name, &dev) != -HR_E_FORKED)
		return 24;
	if (on_gpu && (!strstr(hr_error_detail(), "fork") || hr_device_count(HR_DEVICE_CUDA)))
		return 25;
	hr_device_close(t.dev);
	return 0;
}

/* Its own engine on the host reads the parent's file. */
static int own_engine(struct hr_device *host)
{
	struct hr_engine_options opts = {.map = true};
	struct hr_residency_info residency;
	struct hr_file_info info;
	struct hr_buffer *buf;
	struct hr_engine *e;
	const uint8_t *bytes;

	if (hr_buffer_alloc(host, FILE_LEN, &buf) || hr_engine_open(host, &opts, &e))
		return 30;
	if (hr_file_info(t.file, &info) || hr_file_residency(t.file, 0, 0, &residency))
		return 31;
	if (hr_read(e, t.file, 4097, PART, buf, 0) != PART)
		return 32;
	bytes = hr_buffer_address(buf);
	for (uint64_t i = 0; i < PART; i++) {
		if (bytes[i] != test_pattern(4097 + i))
			return 33;
	}
	return hr_engine_close(e) || hr_buffer_free(buf) ? 34 : 0;
}

static int own_loader(struct hr_device *host)
{
	struct hr_dataset *ds = open_dataset();
	const struct hr_batch *batch;
	struct hr_loader *loader;

	/* The parent's dataset, then one of its own. */
	for (int i = 0; i < 2; i++) {
		loader = open_loader(i ? ds : t.ds, host, (uint32_t)i);
		if (!loader || hr_loader_next(loader, &batch) ||
		    hr_loader_release(loader, batch, NULL))
			return 40 + i;
		hr_loader_close(loader);
	}
	hr_dataset_close(ds);
	hr_dataset_close(t.ds);
	return 0;
}

static int own_page(void)
{
	uint32_t pids[8];

	if (hr_stats_publish(false) || hr_stats_publish(true) || hr_stats_list(pids, 8) < 1)
		return 50;
	return hr_stats_publish(false) ? 51 : 0;
}

static int child(void)
{
	struct hr_device *host;
	int step = parents_engine();

	if (!step)
		step = parents_loader();
	if (!step)
		step = parents_device();
	if (step)
		return step;
	if (hr_device_open("host", &host))
		return 29;
	step = own_page();
	if (!step)
		step = own_engine(host);
	if (!step)
		step = own_loader(host);
	hr_file_close(t.file);
	hr_device_close(host);
	return step;
}

/* An assert of cmocka is for the thread that runs the tests. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not %s: %s\n", __FILE__, __LINE__, #condition,     \
				hr_error_detail());                                                \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* -- what the other thread does ---------------------------------------------------------------- */

static void use_device(void)
{
	struct hr_device *dev;

	hr_device_count(HR_DEVICE_CUDA);
	MUST(hr_device_open(device_name, &dev) == 0);
	hr_device_close(dev);
}

static void use_memory(void)
{
	char name[32], bytes[100] = "";
	struct hr_buffer *buf, *view;

	MUST(hr_buffer_alloc(t.dev, 1 << 16, &buf) == 0);
	MUST(hr_device_of_pointer(hr_buffer_address(buf), name, sizeof(name)) == 0);
	MUST(hr_buffer_register(t.dev, hr_buffer_address(buf), 100, &view) == 0);
	MUST(hr_buffer_copy_in(view, 0, bytes, sizeof(bytes)) == 0);
	MUST(hr_buffer_copy_out(view, 0, bytes, sizeof(bytes)) == 0);
	MUST(hr_buffer_free(view) == 0);
	MUST(hr_buffer_free(buf) == 0);
}

/* Small pieces far apart, which a GPU gathers with a kernel; then the same by way of a mapping. */
static void use_engine(void)
{
	struct hr_engine_options opts = {.path = HR_PATH_AUTO};
	struct hr_piece pieces[40];
	struct hr_file *file;
	struct hr_engine *e;

	for (uint64_t i = 0; i < 40; i++)
		pieces[i] = (struct hr_piece){i * 5000, 300, i * 1000};
	for (int way = 0; way < 2; way++) {
		opts.path = way ? HR_PATH_PAGECACHE : HR_PATH_AUTO;
		opts.map = way;
		MUST(hr_file_open(t.path, HR_FILE_READ, &file) == 0);
		MUST(hr_engine_open(t.dev, &opts, &e) == 0);
		/* What the path refuses in this place is no matter here. */
		hr_gather(e, file, pieces, 40, t.buf, HR_DTYPE_BYTES, HR_DTYPE_BYTES);
		MUST(hr_engine_close(e) == 0);
		hr_file_close(file);
	}
}

static void use_file(void)
{
	struct hr_residency_info residency;
	struct hr_file_info info;
	struct hr_file *file;

	MUST(hr_file_open(t.path, HR_FILE_READ, &file) == 0);
	MUST(hr_file_info(file, &info) == 0);
	MUST(hr_file_residency(file, 0, 0, &residency) == 0);
	hr_file_register(file, t.dev, 0, 0, 1000000000);
	hr_file_close(file);
}

static void use_loader(void)
{
	struct hr_dataset *ds = open_dataset();
	struct hr_loader *loader = open_loader(ds, t.dev, 0);
	struct hr_loader_stats stats;
	const struct hr_batch *batch;

	MUST(loader);
	for (int i = 0; i < 4; i++) {
		MUST(hr_loader_next(loader, &batch) == 0);
		MUST(hr_loader_release(loader, batch, NULL) == 0);
	}
	MUST(hr_loader_stats(loader, &stats) == 0);
	hr_loader_close(loader);
	hr_dataset_close(ds);
}

static void use_page(void)
{
	MUST(hr_stats_publish(true) == 0);
	use_engine();
	use_loader();
	MUST(hr_stats_publish(false) == 0);
}

static void use_pointer(void)
{
	char byte = 0, name[32];

	MUST(hr_device_of_pointer(&byte, name, sizeof(name)) == 0);
}

static sem_t inside, leave;

static int stay(struct dl_phdr_info *info, size_t size, void *arg)
{
	sem_post(&inside);
	while (sem_wait(&leave))
		;
	return 1;
}

static void *stay_main(void *arg)
{
	dl_iterate_phdr(stay, NULL);
	return NULL;
}

static int ask_pointer(void)
{
	char byte = 0, name[32];

	return hr_device_of_pointer(&byte, name, sizeof(name)) || strcmp(name, "host") != 0;
}

/* The loader has a lock that a child does not get back: whoever had it, the library does not ask for it. */
static void test_loader(void **state)
{
	pthread_t thread;

	assert_int_equal(ask_pointer(), 0);
	assert_true(lock_stop_run("pointer", use_pointer, ask_pointer) > 0);
	assert_int_equal(sem_init(&inside, 0, 0) | sem_init(&leave, 0, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, stay_main, NULL), 0);
	lock_stop_wait(&inside);
	assert_true(lock_stop_fork("the loader's lock", ask_pointer));
	sem_post(&leave);
	pthread_join(thread, NULL);
}

/* Before anything was opened: what the library does once in a process. */
static void test_first(void **state)
{
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	assert_true(lock_stop_run("first use of the device", use_device, own_page) >= 0);
	free(t.path);
	test_rmdir(t.dir);
}

static void test_all(void **state)
{
	static const struct {
		const char *what;
		void (*action)(void);
	} actions[] = {
		{"device", use_device}, {"memory", use_memory}, {"engine", use_engine},
		{"file", use_file},     {"loader", use_loader}, {"page", use_page},
	};
	int sum = 0, failed = 0;

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		int n = lock_stop_run(actions[i].what, actions[i].action, child);

		failed += n < 0;
		sum += n < 0 ? 0 : n;
	}
	assert_int_equal(failed, 0);
	print_message("%d places with a lock\n", sum);
	assert_true(sum > 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loader), /* while there is no driver yet */
		cmocka_unit_test(test_first),
		cmocka_unit_test_setup_teardown(test_all, set_up, tear_down),
	};

	if (argc > 1)
		device_name = argv[1];
	on_gpu = strcmp(device_name, "host") != 0;
	if (!TEST_FORK_BESIDE_THREADS) { /* the stopped thread is let go of when a handler waits for it */
		printf(TEST_FORK_SKIP);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

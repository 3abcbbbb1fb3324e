/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stream - reads and writes that wait their turn on a CUDA stream. How: host functions before and after
 * them on the same stream, which change the numbers that are read late and look at the bytes; a GPU
 * that takes its time. On "host" there is no stream but the default one.
 */
#include "fixture.h"

#define FILE_LEN (2u * MIB + 99)
#define ROOM (2u * MIB)

static struct target file;
static char *memory;
static void *stream;

/* The numbers of one call; they must live until it is over. */
struct numbers {
	size_t size;
	off_t file_offset, memory_offset;
	ssize_t done;
};

static int setup(void **state)
{
	alarm(300);
	target_open(&file, FILE_LEN, O_RDWR | O_DIRECT);
	memory = mem_alloc(ROOM);
	assert_ok(cuFileBufRegister(memory, ROOM, 0));
	if (on_gpu)
		assert_int_equal(cuda.stream_create(&stream, 1, 0), 0);
	return 0;
}

static int teardown(void **state)
{
	assert_ok(cuFileBufDeregister(memory));
	mem_free(memory);
	target_close(&file);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	if (on_gpu)
		assert_int_equal(cuda.stream_destroy(stream), 0);
	return 0;
}

static CUfileError_t read_async(void *mem, struct numbers *n)
{
	return cuFileReadAsync(file.handle, mem, &n->size, &n->file_offset, &n->memory_offset,
			       &n->done, stream);
}

static CUfileError_t write_async(void *mem, struct numbers *n)
{
	return cuFileWriteAsync(file.handle, mem, &n->size, &n->file_offset, &n->memory_offset,
				&n->done, stream);
}

/* Until everything on the stream is over; the default stream of "host" is over at once. */
static void finish(struct numbers *n)
{
	if (on_gpu)
		stream_finish(stream);
	while (!on_gpu && __atomic_load_n(&n->done, __ATOMIC_ACQUIRE) == -9999)
		sched_yield();
}

static void one_read(void *mem, size_t size, off_t off, off_t at)
{
	struct numbers n = {size, off, at, -9999};
	uint64_t end = (uint64_t)off + size;
	size_t want = end <= FILE_LEN ? size : off < FILE_LEN ? FILE_LEN - (size_t)off : 0;

	mem_fill(mem, TEST_GUARD, ROOM / 2);
	assert_ok(read_async(mem, &n));
	finish(&n);
	assert_int_equal(n.done, want);
	mem_check(mem, ROOM / 2, (size_t)at, want, (uint64_t)off);
}

static void reads(void **state)
{
	one_read(memory, MIB / 2, 0, 0);
	one_read(memory, 100, 333, 7);
	one_read(memory, 4 * PAGE, PAGE, PAGE);
	one_read(memory, 65537, 4095, 4097);
	one_read(memory, PAGE, FILE_LEN - 10, 0);
	one_read(memory, PAGE, FILE_LEN + 10, 0);
	one_read(memory, 0, 0, 0);
}

static void unregistered_memory(void **state)
{
	char *p = mem_alloc(ROOM);

	one_read(p, MIB / 2, 1, 3);
	one_read(p, PAGE, 0, 0);
	mem_free(p);
}

static void writes(void **state)
{
	struct numbers n = {5000, 777, 11, -9999};
	uint8_t bytes[5200];

	mem_pattern(memory + 11, 4000, 5000);
	assert_ok(write_async(memory, &n));
	finish(&n);
	assert_int_equal(n.done, 5000);
	target_bytes(&file, bytes, sizeof(bytes), 677);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bool in = i >= 100 && i < 5100;

		assert_int_equal(bytes[i], test_pattern(in ? 4000 + i - 100 : 677 + i));
	}
	mem_pattern(memory + 11, 777, 5000);
	n.done = -9999;
	assert_ok(write_async(memory, &n));
	finish(&n);
	assert_int_equal(n.done, 5000);
}

static void null_pointers(void **state)
{
	struct numbers n = {PAGE, 0, 0, -9999};

	for (int i = 0; i < 4; i++) {
		assert_err(cuFileReadAsync(file.handle, memory, i == 0 ? NULL : &n.size,
					   i == 1 ? NULL : &n.file_offset,
					   i == 2 ? NULL : &n.memory_offset,
					   i == 3 ? NULL : &n.done, stream),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileWriteAsync(file.handle, memory, i == 0 ? NULL : &n.size,
					    i == 1 ? NULL : &n.file_offset,
					    i == 2 ? NULL : &n.memory_offset,
					    i == 3 ? NULL : &n.done, stream),
			   CU_FILE_INVALID_VALUE);
	}
	assert_err(read_async(NULL, &n), CU_FILE_INVALID_VALUE);
	assert_int_equal(n.done, -9999);
}

/* What cannot work is told at once or in the count, as -1 or as a negative code: never as success. */
static void failed(CUfileError_t e, struct numbers *n)
{
	if (e.err != CU_FILE_SUCCESS)
		return;
	finish(n);
	assert_true(n->done == -1 || n->done < -5000);
}

static void refused_at_once_or_later(void **state)
{
	CUfileHandle_t read_only = NULL;
	struct numbers n = {PAGE, 0, 0, -9999};
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);

	failed(cuFileReadAsync(NULL, memory, &n.size, &n.file_offset, &n.memory_offset, &n.done,
			       stream),
	       &n);
	n = (struct numbers){PAGE, -1, 0, -9999};
	failed(read_async(memory, &n), &n);
	n = (struct numbers){PAGE, 0, -1, -9999};
	failed(read_async(memory, &n), &n);
	n = (struct numbers){2 * ROOM, 0, 0, -9999};
	failed(read_async(memory, &n), &n);
	assert_ok(handle_of(fd, &read_only));
	n = (struct numbers){PAGE, 0, 0, -9999};
	failed(cuFileWriteAsync(read_only, memory, &n.size, &n.file_offset, &n.memory_offset,
				&n.done, stream),
	       &n);
	cuFileHandleDeregister(read_only);
	close(fd);
	one_read(memory, PAGE, 5, 0);
}

static void registering_streams(void **state)
{
	assert_err(cuFileStreamRegister(stream, 0x10), CU_FILE_INVALID_VALUE);
	assert_err(cuFileStreamRegister(stream, 0xffff), CU_FILE_INVALID_VALUE);
	for (unsigned int flags = 0; flags <= 0xf; flags++) {
		assert_ok(cuFileStreamRegister(stream, flags));
		assert_err(cuFileStreamRegister(stream, flags), CU_FILE_INVALID_VALUE);
		one_read(memory, 2 * PAGE, PAGE, PAGE);
		assert_ok(cuFileStreamDeregister(stream));
	}
	one_read(memory, 2 * PAGE, 1, 1);
}

/* -- in the order of the stream -- */
struct change {
	struct numbers *n;
	struct numbers to;
	ssize_t saw;
	atomic_int gate; /* the host function waits for it */
};

static void change_numbers(void *arg)
{
	struct change *c = arg;

	while (!atomic_load(&c->gate))
		sched_yield();
	c->n->size = c->to.size;
	c->n->file_offset = c->to.file_offset;
	c->n->memory_offset = c->to.memory_offset;
}

static void look(void *arg)
{
	struct change *c = arg;

	c->saw = c->n->done;
}

/* Numbers that change after the call count, unless the stream was registered with them fixed. */
static void changed_behind(unsigned int flags, bool registered)
{
	struct numbers n = {4 * PAGE, 0, 0, -9999};
	struct change c = {.n = &n, .to = {PAGE + 1, 3000, 5}};
	size_t size = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 4 * PAGE : PAGE + 1;
	uint64_t off = flags & CU_FILE_STREAM_FIXED_FILE_OFFSET ? 0 : 3000;
	size_t at = flags & CU_FILE_STREAM_FIXED_BUF_OFFSET ? 0 : 5;

	if (registered)
		assert_ok(cuFileStreamRegister(stream, flags));
	mem_fill(memory, TEST_GUARD, 8 * PAGE);
	assert_int_equal(cuda.host_func(stream, change_numbers, &c), 0);
	assert_ok(read_async(memory, &n));
	assert_int_equal(cuda.host_func(stream, look, &c), 0);
	/* Everything was queued while the stream stood still, so the call did not wait for it. */
	assert_int_equal(n.done, -9999);
	atomic_store(&c.gate, 1);
	stream_finish(stream);
	assert_int_equal(n.done, size);
	assert_int_equal(c.saw, size);
	mem_check(memory, 8 * PAGE, at, size, off);
	if (registered)
		assert_ok(cuFileStreamDeregister(stream));
}

static void late_numbers(void **state)
{
	if (!on_gpu)
		skip();
	changed_behind(0, false);
	for (unsigned int flags = 0; flags < 8; flags++)
		changed_behind(flags, true);
}

/* Copies before and after on the same stream see and are seen, however slow they are. */
static void between_copies(void **state)
{
	uint8_t *before, *after;
	struct numbers w = {3 * PAGE, 100, 0, -9999}, r = {3 * PAGE, 100, 0, -9999};

	if (!on_gpu)
		skip();
	assert_int_equal(cuda.alloc_host((void **)&before, 3 * PAGE, 0), 0);
	assert_int_equal(cuda.alloc_host((void **)&after, 3 * PAGE, 0), 0);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < 3 * PAGE; i++)
			before[i] =
				test_pattern(100 + i) ^ (uint8_t)(round == 2 ? 0 : 0x5a + round);
		memset(after, 0, 3 * PAGE);
		if (cuda.fake_set)
			cuda.fake_set("delay_us", 3000);
		cuda.copy_in((uintptr_t)memory, before, 3 * PAGE, stream);
		assert_ok(write_async(memory, &w));
		assert_ok(read_async(memory + MIB, &r));
		cuda.copy_out(after, (uintptr_t)memory + MIB, 3 * PAGE, stream);
		stream_finish(stream);
		if (cuda.fake_set)
			cuda.fake_set("delay_us", 0);
		assert_int_equal(w.done, 3 * PAGE);
		assert_int_equal(r.done, 3 * PAGE);
		assert_memory_equal(before, after, 3 * PAGE);
	}
	cuda.free_host(before);
	cuda.free_host(after);
}

/* Many at once, on several streams. */
static void many(void **state)
{
	enum { N = 64 };
	static struct numbers n[N];
	void *streams[4] = {NULL}, *mine = stream;

	for (int i = 0; on_gpu && i < 4; i++)
		assert_int_equal(cuda.stream_create(&streams[i], 1, 0), 0);
	mem_fill(memory, TEST_GUARD, N * 4 * PAGE);
	for (int i = 0; i < N; i++) {
		n[i] = (struct numbers){2 * PAGE + 1, i * 1111, i * 4 * (int)PAGE, -9999};
		stream = streams[i % 4];
		assert_ok(read_async(memory, &n[i]));
	}
	for (int i = 0; i < N; i++) {
		stream = streams[i % 4];
		finish(&n[i]);
		assert_int_equal(n[i].done, 2 * PAGE + 1);
		mem_check(memory + i * 4 * PAGE, 4 * PAGE, 0, 2 * PAGE + 1, (uint64_t)i * 1111);
	}
	for (int i = 0; on_gpu && i < 4; i++)
		assert_int_equal(cuda.stream_destroy(streams[i]), 0);
	stream = mine;
}

/* The driver closes while something waits on a stream: it still comes to an end. */
static void closed_in_flight(void **state)
{
	struct numbers n = {4 * PAGE, 0, 0, -9999};

	if (on_gpu && cuda.fake_set)
		cuda.fake_set("delay_us", 5000);
	assert_ok(read_async(memory, &n));
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	finish(&n);
	if (on_gpu && cuda.fake_set)
		cuda.fake_set("delay_us", 0);
	assert_true(n.done == 4 * PAGE || n.done == -1 || n.done < -5000);
	assert_ok(handle_of(file.fd, &file.handle));
	assert_ok(cuFileBufRegister(memory, ROOM, 0));
}

/*
 * The first thing that a process does. While the stream stands still, nothing may be left to do that a
 * driver does only when nothing is on its way: loading code, pinning memory, making streams.
 */
static void first_of_all(void)
{
	static const char *const what[] = {"modules", "host_allocs", "registered", "streams"};
	struct numbers n = {4 * PAGE, 100, 0, -9999};
	struct change c = {.n = &n, .to = {4 * PAGE, 100, 0}};
	long before[4];

	target_open(&file, MIB, O_RDONLY);
	memory = mem_alloc(MIB);
	must(cuda.stream_create(&stream, 1, 0) == 0);
	must(cuda.host_func(stream, change_numbers, &c) == 0);
	assert_ok(read_async(memory, &n));
	for (int i = 0; i < 4; i++)
		before[i] = cuda.fake_get(what[i]);
	atomic_store(&c.gate, 1);
	stream_finish(stream);
	assert_int_equal(n.done, 4 * PAGE);
	for (int i = 0; i < 4; i++)
		assert_int_equal(cuda.fake_get(what[i]), before[i]);
	target_close(&file);
	mem_free(memory);
	assert_ok(cuFileDriverClose_v2());
	must(cuda.stream_destroy(stream) == 0);
}

static void nothing_was_read_before(void **state)
{
	if (!on_gpu || !cuda.fake_get)
		skip();
	assert_int_equal(run_alone("first-of-all", NULL), 0);
}

/* With no threads for it there is no such thing, and the properties say so. */
static void without_threads(void)
{
	struct numbers n = {PAGE, 0, 0, -9999};
	CUfileDrvProps_t p;

	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(cuFileDriverGetProperties(&p).err == CU_FILE_SUCCESS);
	CHECK(!(p.fflags & 1u << CU_FILE_STREAMS_SUPPORTED));
	target_open(&file, PAGE, O_RDONLY);
	memory = mem_alloc(PAGE);
	CHECK(read_async(memory, &n).err == CU_FILE_ASYNC_NOT_SUPPORTED);
	target_close(&file);
	mem_free(memory);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

static void parallel_io_off(void **state)
{
	char *dir = test_mkdir(), path[600], variable[700];
	char *env[] = {variable, NULL};
	FILE *json;

	snprintf(path, sizeof(path), "%s/cufile.json", dir);
	snprintf(variable, sizeof(variable), "CUFILE_ENV_PATH_JSON=%s", path);
	json = fopen(path, "we");
	assert_non_null(json);
	fputs("{\"execution\": {\"parallel_io\": false}}", json);
	fclose(json);
	assert_int_equal(run_alone("without-threads", env), 0);
	test_rmdir(dir);
}

static const struct alone alone[] = {{"without-threads", without_threads},
				     {"first-of-all", first_of_all}};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads),
		cmocka_unit_test(unregistered_memory),
		cmocka_unit_test(writes),
		cmocka_unit_test(null_pointers),
		cmocka_unit_test(refused_at_once_or_later),
		cmocka_unit_test(registering_streams),
		cmocka_unit_test(late_numbers),
		cmocka_unit_test(between_copies),
		cmocka_unit_test(many),
		cmocka_unit_test(closed_in_flight),
		cmocka_unit_test(nothing_was_read_before),
		cmocka_unit_test(parallel_io_off),
	};
	int status;

	if (!fixture_init(argc, argv))
		return 2;
	status = alone_main(argc, argv, alone, sizeof(alone) / sizeof(alone[0]));
	if (status >= 0)
		return status;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

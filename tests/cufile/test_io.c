/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_io - reads and writes: every byte, every odd offset, the ends of files, and every refusal. How: a file
 * with a known pattern, memory with guard bytes, registered and not, descriptors with O_DIRECT and
 * without; what a write did is read past the library.
 */
#include "fixture.h"

#include <sys/resource.h>

#define FILE_LEN (4u * MIB + 777)
#define ROOM (3u * MIB)

static struct target buffered, direct;
static char *memory; /* ROOM bytes, registered */
static char *plain;  /* ROOM bytes, not registered */

static int setup(void **state)
{
	target_open(&buffered, FILE_LEN, O_RDWR);
	target_open(&direct, FILE_LEN, O_RDWR | O_DIRECT);
	memory = mem_alloc(ROOM);
	plain = mem_alloc(ROOM);
	assert_ok(cuFileBufRegister(memory, ROOM, 0));
	return 0;
}

static int teardown(void **state)
{
	assert_ok(cuFileBufDeregister(memory));
	mem_free(memory);
	mem_free(plain);
	target_close(&buffered);
	target_close(&direct);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	return 0;
}

static size_t shorter(size_t len, uint64_t off)
{
	if (off >= FILE_LEN)
		return 0;
	return len < FILE_LEN - off ? len : FILE_LEN - off;
}

static void read_one(const struct target *t, char *mem, size_t len, uint64_t off, size_t at)
{
	/* Guards on both sides, close enough to see a block that is rounded out. */
	size_t from = at < 2 * PAGE ? 0 : at - 2 * PAGE;
	size_t to = at + len + 2 * PAGE < ROOM ? at + len + 2 * PAGE : ROOM;
	ssize_t got;

	mem_fill(mem + from, TEST_GUARD, to - from);
	got = cuFileRead(t->handle, mem, len, (off_t)off, (off_t)at);
	if (got != (ssize_t)shorter(len, off))
		fail_msg("read of %zu at %llu: %zd (errno %d)", len, (unsigned long long)off, got,
			 errno);
	mem_check(mem + from, to - from, at - from, (size_t)got, off);
}

static const uint64_t offsets[] = {0,    1,    3,    511,  512,   513,     4095,
				   4096, 4097, 8191, 8192, 65535, 1048575, 1048577};
static const size_t lengths[] = {1,    2,    7,    511,   512,   513,     4095,
				 4096, 4097, 8192, 65536, 65537, 1048576, 1048577};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void every_odd_read(const struct target *t, char *mem)
{
	for (size_t i = 0; i < COUNT(offsets); i++) {
		for (size_t j = 0; j < COUNT(lengths); j++) {
			/* Every pair of the first two, with another place in memory each time. */
			uint64_t at = offsets[(i * 5 + j * 3) % COUNT(offsets)];

			read_one(t, mem, lengths[j], offsets[i], at);
		}
	}
}

static void odd_reads_buffered(void **state)
{
	every_odd_read(&buffered, memory);
}

static void odd_reads_direct(void **state)
{
	every_odd_read(&direct, memory);
}

static void odd_reads_unregistered(void **state)
{
	every_odd_read(&direct, plain);
}

static void random_reads(void **state)
{
	uint64_t seed = (uint64_t)time(NULL), x = seed;

	print_message("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 300; i++) {
		size_t len = 1 + test_random(&x) % (i % 10 ? 20000 : 2 * MIB);
		size_t at = test_random(&x) % (ROOM - len);
		uint64_t off = test_random(&x) % (FILE_LEN + PAGE);

		read_one(i & 1 ? &direct : &buffered, i & 2 ? memory : plain, len, off, at);
	}
}

static void ends_of_the_file(void **state)
{
	const struct target *both[] = {&buffered, &direct};

	for (int i = 0; i < 2; i++) {
		read_one(both[i], memory, MIB, FILE_LEN - 1, PAGE);
		read_one(both[i], memory, MIB, FILE_LEN - 777, PAGE);
		read_one(both[i], memory, PAGE, FILE_LEN, PAGE);
		read_one(both[i], memory, PAGE, FILE_LEN + 1, PAGE);
		read_one(both[i], memory, PAGE, 1ull << 40, PAGE);
		read_one(both[i], memory, 0, 0, PAGE);
		read_one(both[i], memory, 0, FILE_LEN + PAGE, PAGE);
		assert_int_equal(cuFileWrite(both[i]->handle, memory, 0, 0, 0), 0);
	}
}

/* Write a piece of the file shifted by 1000 bytes, compare the whole file, put it right again. */
static void write_one(const struct target *t, char *mem, size_t len, uint64_t off, size_t at)
{
	size_t from = off < 2 * PAGE ? 0 : off - 2 * PAGE, all = len + 4 * PAGE;
	uint8_t *image = malloc(all);
	ssize_t n;

	if (from + all > FILE_LEN)
		all = FILE_LEN - from;
	mem_pattern(mem + at, off + 1000, len);
	n = cuFileWrite(t->handle, mem, len, (off_t)off, (off_t)at);
	if (n != (ssize_t)len)
		fail_msg("write of %zu at %llu: %zd (errno %d)", len, (unsigned long long)off, n,
			 errno);
	target_bytes(t, image, all, from);
	for (size_t i = 0; i < all; i++) {
		uint64_t place = from + i;
		bool in = place >= off && place < off + len;

		if (image[i] != test_pattern(in ? place + 1000 : place))
			fail_msg("byte %llu of the file after a write of %zu at %llu",
				 (unsigned long long)place, len, (unsigned long long)off);
	}
	mem_pattern(mem + at, off, len);
	assert_int_equal(cuFileWrite(t->handle, mem, len, (off_t)off, (off_t)at), (ssize_t)len);
	free(image);
}

static void odd_writes(void **state)
{
	for (size_t i = 0; i < COUNT(offsets); i++) {
		for (size_t j = 0; j < COUNT(lengths); j += 2) {
			uint64_t at = offsets[(i * 3 + j) % COUNT(offsets)];

			write_one(i & 1 ? &direct : &buffered, j & 2 ? memory : plain, lengths[j],
				  offsets[i], at);
		}
	}
}

/* A write behind the end makes the file longer by exactly that much, with zeros between. */
static void writes_that_lengthen(void **state)
{
	static const size_t starts[] = {0, 10, PAGE, 3 * PAGE + 5};
	struct stat st;
	uint8_t bytes[5 * PAGE];

	for (int i = 0; i < 8; i++) {
		size_t start = starts[i / 2];
		struct target t;

		target_open(&t, 0, i & 1 ? O_RDWR | O_DIRECT : O_RDWR);
		mem_pattern(memory + 3, start, 1234);
		assert_int_equal(cuFileWrite(t.handle, memory, 1234, (off_t)start, 3), 1234);
		assert_int_equal(stat(t.path, &st), 0);
		assert_int_equal(st.st_size, start + 1234);
		target_bytes(&t, bytes, start + 1234, 0);
		for (size_t k = 0; k < start + 1234; k++)
			assert_int_equal(bytes[k], k < start ? 0 : test_pattern(k));
		/* And what was written is read through the same handle. */
		mem_fill(memory, TEST_GUARD, PAGE);
		assert_int_equal(cuFileRead(t.handle, memory, 2000, (off_t)start, 0), 1234);
		mem_check(memory, 2000, 0, 1234, start);
		target_close(&t);
	}
}

/* Holes read as zeros. */
static void holes(void **state)
{
	uint8_t *image = malloc(MIB);
	struct target t;

	target_open(&t, PAGE, O_RDWR | O_DIRECT);
	assert_int_equal(ftruncate(t.fd, MIB), 0);
	mem_fill(memory, TEST_GUARD, MIB);
	assert_int_equal(cuFileRead(t.handle, memory, MIB, 0, 0), MIB);
	mem_out(image, memory, MIB);
	for (size_t i = 0; i < MIB; i++)
		assert_int_equal(image[i], i < PAGE ? test_pattern(i) : 0);
	target_close(&t);
	free(image);
}

static void refused_arguments(void **state)
{
	static char nowhere[256];

	errno = 0;
	assert_int_equal(cuFileRead(buffered.handle, NULL, PAGE, 0, 0), -1);
	assert_true(errno == EINVAL || errno == CU_FILE_INVALID_VALUE);
	errno = 0;
	assert_int_equal(cuFileWrite(buffered.handle, NULL, PAGE, 0, 0), -1);
	assert_true(errno == EINVAL || errno == CU_FILE_INVALID_VALUE);
	assert_io_error(cuFileRead(buffered.handle, memory, PAGE, -1, 0), CU_FILE_INVALID_VALUE);
	assert_io_error(cuFileWrite(buffered.handle, memory, PAGE, -1, 0), CU_FILE_INVALID_VALUE);
	assert_io_error(cuFileRead(buffered.handle, memory, PAGE, INT64_MIN, 0),
			CU_FILE_INVALID_VALUE);
	assert_io_error(cuFileRead(buffered.handle, memory, PAGE, 0, -1), CU_FILE_INTERNAL_ERROR);
	assert_io_error(cuFileWrite(buffered.handle, memory, PAGE, 0, -1), CU_FILE_INTERNAL_ERROR);
	for (int i = 0; i < 4; i++) {
		void *bogus[] = {NULL, nowhere, (void *)3, (void *)(uintptr_t)0x7000000000f8ull};

		errno = 0;
		assert_int_equal(cuFileRead(bogus[i], memory, PAGE, 0, 0), -1);
		assert_true(errno == EINVAL || errno == CU_FILE_HANDLE_NOT_REGISTERED);
		errno = 0;
		assert_int_equal(cuFileWrite(bogus[i], memory, PAGE, 0, 0), -1);
		assert_true(errno == EINVAL || errno == CU_FILE_HANDLE_NOT_REGISTERED);
	}
}

static void enormous_arguments(void **state)
{
	errno = 0;
	assert_int_equal(cuFileRead(buffered.handle, memory, SIZE_MAX, 0, 0), -1);
	assert_true(errno != 0);
	errno = 0;
	assert_int_equal(cuFileRead(buffered.handle, memory, SIZE_MAX, INT64_MAX, INT64_MAX), -1);
	assert_true(errno != 0);
	errno = 0;
	assert_int_equal(cuFileWrite(buffered.handle, memory, PAGE, INT64_MAX - 10, 0), -1);
	assert_true(errno != 0);
	assert_int_equal(cuFileRead(buffered.handle, memory, PAGE, INT64_MAX - PAGE, 0), 0);
}

static void wrong_direction(void **state)
{
	struct target r, w;

	target_open(&r, MIB, O_RDONLY);
	target_open(&w, MIB, O_WRONLY);
	assert_io_error(cuFileWrite(r.handle, memory, PAGE, 0, 0), EIO);
	assert_io_error(cuFileRead(w.handle, memory, PAGE, 0, 0), CU_FILE_INVALID_FILE_OPEN_FLAG);
	mem_pattern(memory, 5, 3000);
	assert_int_equal(cuFileWrite(w.handle, memory, 3000, 5, 0), 3000);
	mem_fill(memory, TEST_GUARD, PAGE);
	assert_int_equal(cuFileRead(r.handle, memory, 1000, 9, 0), 1000);
	mem_check(memory, PAGE, 0, 1000, 9);
	target_close(&r);
	target_close(&w);
}

/* A write that the system refuses says why in errno. */
static void no_space(void **state)
{
	struct rlimit old, small = {MIB, MIB};
	struct target t;

	target_open(&t, PAGE, O_RDWR);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	errno = 0;
	assert_int_equal(cuFileWrite(t.handle, memory, PAGE, 2 * MIB, 0), -1);
	assert_int_equal(errno, EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	signal(SIGXFSZ, SIG_DFL);
	target_close(&t);
}

/* A file that changes its length between calls. */
static void grows_and_shrinks(void **state)
{
	struct target t;

	target_open(&t, 8 * PAGE, O_RDWR | O_DIRECT);
	assert_int_equal(cuFileRead(t.handle, memory, MIB, 0, 0), 8 * PAGE);
	assert_int_equal(ftruncate(t.fd, PAGE + 1), 0);
	mem_fill(memory, TEST_GUARD, 8 * PAGE);
	assert_int_equal(cuFileRead(t.handle, memory, MIB, 0, 0), PAGE + 1);
	mem_check(memory, 8 * PAGE, 0, PAGE + 1, 0);
	assert_int_equal(ftruncate(t.fd, 3 * PAGE), 0);
	assert_int_equal(cuFileRead(t.handle, memory, MIB, 0, 0), 3 * PAGE);
	target_close(&t);
}

static void vectors(void **state)
{
	CUfileIOVec_t v[] = {{memory + PAGE, 1000},
			     {plain + 7, 5000},
			     {memory + 3 * PAGE, 0},
			     {memory + 4 * PAGE, PAGE}};
	CUfileIOVec_t none = {NULL, PAGE};
	struct target t;

	target_open(&t, MIB, O_RDWR);
	mem_fill(memory, TEST_GUARD, 8 * PAGE);
	mem_fill(plain, TEST_GUARD, 4 * PAGE);
	assert_int_equal(cuFileReadv(t.handle, v, 4, 123, 0), 1000 + 5000 + PAGE);
	mem_check(memory, 2 * PAGE, PAGE, 1000, 123);
	mem_check(plain, 4 * PAGE, 7, 5000, 1123);
	mem_check(memory + 2 * PAGE, 6 * PAGE, 2 * PAGE, PAGE, 6123);
	/* Ends with the file, in the middle of the second piece. */
	assert_int_equal(cuFileReadv(t.handle, v, 4, MIB - 1500, 0), 1500);
	assert_int_equal(cuFileReadv(t.handle, v, 4, MIB, 0), 0);
	assert_int_equal(cuFileReadv(t.handle, v, 0, 0, 0), 0);
	assert_int_equal(cuFileReadv(t.handle, NULL, 1, 0, 0), -1);
	assert_int_equal(cuFileReadv(t.handle, &none, 1, 0, 0), -1);
	assert_int_equal(cuFileReadv(t.handle, v, 4, -1, 0), -1);
	assert_int_equal(cuFileReadv(NULL, v, 4, 0, 0), -1);
	mem_pattern(memory + PAGE, 55, 1000);
	mem_pattern(plain + 7, 1055, 5000);
	mem_pattern(memory + 4 * PAGE, 6055, PAGE);
	assert_int_equal(cuFileWritev(t.handle, v, 4, 55, 0), 1000 + 5000 + PAGE);
	mem_fill(memory, TEST_GUARD, 4 * PAGE);
	assert_int_equal(cuFileRead(t.handle, memory, 4 * PAGE, 0, 0), 4 * PAGE);
	mem_check(memory, 4 * PAGE, 0, 4 * PAGE, 0);
	target_close(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(odd_reads_buffered),     cmocka_unit_test(odd_reads_direct),
		cmocka_unit_test(odd_reads_unregistered), cmocka_unit_test(random_reads),
		cmocka_unit_test(ends_of_the_file),       cmocka_unit_test(odd_writes),
		cmocka_unit_test(writes_that_lengthen),   cmocka_unit_test(holes),
		cmocka_unit_test(refused_arguments),      cmocka_unit_test(enormous_arguments),
		cmocka_unit_test(wrong_direction),        cmocka_unit_test(no_space),
		cmocka_unit_test(grows_and_shrinks),      cmocka_unit_test(vectors),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

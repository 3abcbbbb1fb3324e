/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/test_p2p.c - the path p2p without its kernel module: the GPU is the one of tests/fakecuda, whose
 * memory is a file that a pretended /dev/headrace_peer maps. Data at any offset with guard bytes, each
 * refusal, a buffer that cannot be imported, bytes that vanish, the order of a drive's writes and the
 * device's work, threads, and what is left over.
 *
 * The drives below the file are whatever a test says; direct I/O must work where the files lie.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <headrace/headrace.h>
#include <headrace_peer.h>
#include <liburing.h>

#include "base/sys.h"
#include "fake_control.h"
#include "support/support.h"
#include "transport/p2p.h"

#define FILE_LEN ((3u << 20) + 777u)
#define ROOM (8u << 20)
#define HANDLES_MAX 64

static struct hr__sys sys;

/* The pretended module. */
static struct {
	pthread_mutex_t lock;
	int fds[HANDLES_MAX], bufs[HANDLES_MAX]; /* an open file and what it has imported */
	int open, imports;
	int refuse_from;  /* imports from this one on are refused... */
	uint32_t refusal; /* ...with this code; 0: none */
	bool absent, loses_bytes;
} module = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	uint8_t *got;
	char drive[32]; /* verdicts are remembered by its name */
	int fail_result;
	long peer_order; /* what the next device says of writes of drives, 100 usually */
} t;

int __wrap_hr__p2p_drives_find(const struct hr_file *file, struct hr__p2p_drives *out, char *reason,
			       size_t reason_size);

int __wrap_hr__p2p_drives_find(const struct hr_file *file, struct hr__p2p_drives *out, char *reason,
			       size_t reason_size)
{
	*out = (struct hr__p2p_drives){.n = 2, .pci = {0x100, 0x200}, .stride = 65536};
	snprintf(out->name, sizeof(out->name), "%s", t.drive);
	return 0;
}

static int slot_of(int fd)
{
	for (int i = 0; i < HANDLES_MAX; i++) {
		if (module.fds[i] == fd)
			return i;
	}
	return -1;
}

static int fake_open(const char *path, int flags, mode_t mode)
{
	int fd;

	if (strcmp(path, "/dev/headrace_peer") != 0)
		return hr__sys_real.open(path, flags, mode);
	if (module.absent)
		return -ENOENT;
	fd = hr__sys_real.open("/dev/null", O_RDWR | O_CLOEXEC, 0);
	pthread_mutex_lock(&module.lock);
	module.fds[slot_of(-1)] = fd;
	module.open++;
	pthread_mutex_unlock(&module.lock);
	return fd;
}

static int fake_close(int fd)
{
	int slot;

	pthread_mutex_lock(&module.lock);
	slot = slot_of(fd);
	if (slot >= 0) {
		if (module.bufs[slot] >= 0)
			hr__sys_real.close(module.bufs[slot]);
		module.fds[slot] = module.bufs[slot] = -1;
		module.open--;
	}
	pthread_mutex_unlock(&module.lock);
	return hr__sys_real.close(fd);
}

static int import(int slot, struct headrace_peer_import *arg)
{
	struct stat st;

	assert_int_equal(arg->argsz, sizeof(*arg));
	assert_int_equal(arg->flags | arg->reserved, 0);
	if (module.refusal && module.imports++ >= module.refuse_from) {
		arg->refusal = module.refusal;
		return -EREMOTEIO;
	}
	module.bufs[slot] = dup(arg->dmabuf_fd);
	assert_int_equal(fstat(module.bufs[slot], &st), 0);
	arg->len = (uint64_t)st.st_size;
	arg->offset = 4096ull * (uint64_t)(slot + 1);
	return 0;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	int slot, ret = -ENOTTY;

	pthread_mutex_lock(&module.lock);
	slot = slot_of(fd);
	if (slot >= 0 && request == HEADRACE_PEER_IMPORT)
		ret = import(slot, arg);
	pthread_mutex_unlock(&module.lock);
	return slot < 0 ? hr__sys_real.ioctl(fd, request, arg) : ret;
}

static void *fake_mmap(size_t len, int prot, int flags, int fd, uint64_t offset)
{
	int slot = -1, buf = -1;

	if (fd >= 0) {
		pthread_mutex_lock(&module.lock);
		slot = slot_of(fd);
		buf = slot >= 0 ? module.bufs[slot] : -1;
		pthread_mutex_unlock(&module.lock);
	}
	if (slot < 0)
		return hr__sys_real.mmap(len, prot, flags, fd, offset);
	assert_int_equal(offset, 4096ull * (uint64_t)(slot + 1));
	/* A bridge that drops what it is given: it all looks well. */
	if (module.loses_bytes)
		return hr__sys_real.mmap(len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return hr__sys_real.mmap(len, prot, flags, buf, 0);
}

static int fake_result(const struct io_uring_cqe *cqe)
{
	if (t.peer_order < 100)
		fake.peer_wrote();
	return t.fail_result && cqe->res > 0 ? t.fail_result : cqe->res;
}

/* The trial read. */
static ssize_t fake_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	ssize_t n = hr__sys_real.pread(fd, buf, len, offset);

	if (t.peer_order < 100)
		fake.peer_wrote();
	return n;
}

static int set_up(void **state)
{
	static int number;

	sys = hr__sys_real;
	sys.open = fake_open;
	sys.close = fake_close;
	sys.ioctl = fake_ioctl;
	sys.mmap = fake_mmap;
	sys.pread = fake_pread;
	sys.ring_result = fake_result;
	hr__sys = &sys;
	memset(module.fds, 0xff, sizeof(module.fds));
	memset(module.bufs, 0xff, sizeof(module.bufs));
	module.refusal = 0;
	module.imports = module.refuse_from = 0;
	module.absent = module.loses_bytes = false;
	t.fail_result = 0;
	t.peer_order = 100;
	snprintf(t.drive, sizeof(t.drive), "drive%d", number++);
	t.dir = test_mkdir();
	t.path = test_file(t.dir, "data", FILE_LEN);
	t.got = malloc(ROOM);
	fake.set("export", 1);
	assert_int_equal(hr_device_open("cuda:0", &t.dev), 0);
	assert_int_equal(hr_file_open(t.path, HR_FILE_READ | HR_FILE_WRITE, &t.file), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, ROOM, &t.buf), 0);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_file_close(t.file);
	hr_device_close(t.dev);
	free(t.got);
	free(t.path);
	test_rmdir(t.dir);
	assert_int_equal(module.open, 0);
	hr__sys = &hr__sys_real;
	return fake_clean(state);
}

static struct hr_engine *open_engine(enum hr_path path)
{
	const struct hr_engine_options opts = {
		.path = path, .direct = true, .staging_bytes = 1 << 20};
	struct hr_engine *engine;

	assert_int_equal(hr_engine_open(t.dev, &opts, &engine), 0);
	return engine;
}

static uint64_t carried(const struct hr_engine *engine, enum hr_path path)
{
	struct hr_stats stats;

	assert_int_equal(hr_engine_stats(engine, &stats), 0);
	return stats.bytes_by_path[path];
}

static void poison(uint64_t room)
{
	memset(t.got, TEST_GUARD, room);
	assert_int_equal(hr_buffer_copy_in(t.buf, 0, t.got, room), 0);
}

/* What is in the buffer: the pattern from @off at [@dst, +@n), guard bytes elsewhere. */
static void check(uint64_t room, uint64_t off, uint64_t n, uint64_t dst)
{
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.got, room), 0);
	for (uint64_t i = 0; i < room; i++) {
		bool data = i >= dst && i - dst < n;
		uint8_t want = data ? test_pattern(off + i - dst) : TEST_GUARD;

		if (t.got[i] != want)
			fail_msg("read of %llu + %llu to %llu: byte %llu is %02x, not %02x",
				 (unsigned long long)off, (unsigned long long)n,
				 (unsigned long long)dst, (unsigned long long)i, t.got[i], want);
	}
}

static void test_bytes(void **state)
{
	static const uint64_t offs[] = {0, 1, 511, 512, 4095, 4096, 4097, FILE_LEN - 5000};
	static const uint64_t lens[] = {1, 511, 4096, 4097, 200000, (1 << 20) + 1};
	static const uint64_t dsts[] = {0, 1, 512, 4096};
	struct hr_engine *engine = open_engine(HR_PATH_P2P);
	uint64_t sum = 0;

	for (size_t o = 0; o < sizeof(offs) / sizeof(offs[0]); o++) {
		for (size_t k = 0; k < 24; k++) {
			uint64_t len = lens[k % 6], dst = dsts[k / 6], room = dst + len + 9000;
			uint64_t n = offs[o] + len > FILE_LEN ? FILE_LEN - offs[o] : len;

			poison(room);
			assert_int_equal(hr_read(engine, t.file, offs[o], n, t.buf, dst), n);
			check(room, offs[o], n, dst);
			sum += n;
		}
	}
	assert_int_equal(carried(engine, HR_PATH_P2P), sum);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* Windows at odd offsets, one behind the other; then the same with wider elements. */
static void test_gather(void **state)
{
	struct hr_engine *engine = open_engine(HR_PATH_P2P);
	struct hr_piece pieces[300];
	uint64_t seed = 3;

	poison(300 * 1000 + 8192);
	for (uint32_t i = 0; i < 300; i++)
		pieces[i] = (struct hr_piece){test_random(&seed) % (FILE_LEN - 1000), 1000,
					      4096 + i * 1000ull};
	assert_int_equal(hr_gather(engine, t.file, pieces, 300, t.buf, 0, 0), 300 * 1000);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.got, 300 * 1000 + 8192), 0);
	for (uint32_t i = 0; i < 300 * 1000; i++)
		assert_int_equal(t.got[4096 + i],
				 test_pattern(pieces[i / 1000].file_offset + i % 1000));
	assert_int_equal(t.got[4095], TEST_GUARD);
	assert_int_equal(t.got[4096 + 300 * 1000], TEST_GUARD);
	for (uint32_t i = 0; i < 300; i++)
		pieces[i].buffer_offset = i * 4000ull;
	assert_int_equal(hr_gather(engine, t.file, pieces, 300, t.buf, HR_DTYPE_U16, HR_DTYPE_I64),
			 300 * 1000);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.got, 300 * 4000), 0);
	for (uint32_t i = 0; i < 300 * 500; i++) {
		uint64_t at = pieces[i / 500].file_offset + i % 500 * 2, seen;

		memcpy(&seen, t.got + 8ull * i, 8);
		assert_int_equal(seen, test_pattern(at) | test_pattern(at + 1) << 8);
	}
	assert_int_equal(carried(engine, HR_PATH_P2P), 2 * 300 * 1000);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* Refused by p2p with this in the sentence; by default the bytes come another way. */
static void expect_refusal(const char *why)
{
	struct hr_engine *engine = open_engine(HR_PATH_P2P);

	assert_int_equal(hr_read(engine, t.file, 0, 4096, t.buf, 0), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), t.path));
	if (!strstr(hr_error_detail(), why))
		fail_msg("no \"%s\" in \"%s\"", why, hr_error_detail());
	assert_int_equal(hr_engine_close(engine), 0);
	engine = open_engine(HR_PATH_AUTO);
	poison(20000);
	assert_int_equal(hr_read(engine, t.file, 777, 10000, t.buf, 5000), 10000);
	check(20000, 777, 10000, 5000);
	assert_int_equal(carried(engine, HR_PATH_BOUNCE), 10000);
	assert_int_equal(hr_engine_close(engine), 0);
}

static void test_refusals(void **state)
{
	static const char *const why[] = {
		[HEADRACE_PEER_TOPOLOGY] = "PCIe way",
		[HEADRACE_PEER_IOMMU] = "iommu=pt",
		[HEADRACE_PEER_UNMAPPABLE] = "write-comb",
		[HEADRACE_PEER_OWNED] = "owns",
		[HEADRACE_PEER_NOT_PEER] = "no memory of",
		[HEADRACE_PEER_TAKEN] = "another",
		[HEADRACE_PEER_LIMIT] = "imports_max",
		[HEADRACE_PEER_ALIGNMENT] = "whole pages",
		[HEADRACE_PEER_CLIENT] = "no PCI device",
		[HEADRACE_PEER_CLIENT + 1] = "does not know",
	};

	for (uint32_t i = HEADRACE_PEER_TOPOLOGY; i <= HEADRACE_PEER_CLIENT + 1; i++) {
		module.refusal = i;
		expect_refusal(why[i]);
	}
	module.absent = true;
	expect_refusal("not loaded");
	/* None of that is remembered: the module may be loaded, a limit raised. */
	module.absent = false;
	module.refusal = 0;
	test_bytes(state);
}

static void test_lost_bytes(void **state)
{
	module.loses_bytes = true;
	expect_refusal("did not arrive");
	module.loses_bytes = false;
	expect_refusal("did not arrive"); /* a verdict stays */
}

/* The trial (two drives), the ring: then there is no room for the buffer itself. */
static void test_buffer_refused(void **state)
{
	module.refusal = HEADRACE_PEER_TAKEN;
	module.refuse_from = 3;
	expect_refusal("another");
}

/* The file must hold the pattern but for [off, +len), which has what the buffer had. */
static void check_file(uint64_t off, uint64_t len, uint64_t seed)
{
	uint8_t *all = malloc(FILE_LEN);
	int fd = open(t.path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, all, FILE_LEN, 0), FILE_LEN);
	for (uint64_t i = 0; i < FILE_LEN; i++) {
		uint8_t want =
			i >= off && i - off < len ? (uint8_t)(i - off + seed) : test_pattern(i);

		if (all[i] != want)
			fail_msg("write of %llu + %llu: byte %llu of the file is %02x, not %02x",
				 (unsigned long long)off, (unsigned long long)len,
				 (unsigned long long)i, all[i], want);
	}
	close(fd);
	free(all);
}

/* Bodies by p2p, edges through the page cache; from any place of the buffer. */
static void test_writes(void **state)
{
	static const uint64_t offs[] = {0, 1, 4095, 4096, 100000}, lens[] = {1, 4096, 8193, 300001};
	static const uint64_t srcs[] = {0, 3, 512};
	struct hr_engine *engine = open_engine(HR_PATH_P2P);

	for (uint32_t k = 0; k < 5 * 4 * 3; k++) {
		uint64_t off = offs[k % 5], len = lens[k / 5 % 4], src = srcs[k / 20];
		char *again;

		for (uint64_t i = 0; i < len; i++)
			t.got[i] = (uint8_t)(i + k);
		assert_int_equal(hr_buffer_copy_in(t.buf, src, t.got, len), 0);
		assert_int_equal(hr_write(engine, t.file, off, len, t.buf, src), len);
		check_file(off, len, k);
		again = test_file(t.dir, "data", FILE_LEN);
		free(again);
	}
	assert_true(carried(engine, HR_PATH_P2P) > 1000000);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* A drive that gets other bytes than the device has is found out before anybody's file is written. */
static void test_lost_writes(void **state)
{
	struct hr_engine *engine = open_engine(HR_PATH_P2P);

	module.loses_bytes = true;
	assert_int_equal(hr_write(engine, t.file, 0, 4096, t.buf, 0), -HR_E_PATH_REFUSED);
	assert_non_null(strstr(hr_error_detail(), "other bytes"));
	check_file(0, 0, 0);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* The mapping goes while reads are under way: they fail, and nothing hangs. */
static void test_revoked(void **state)
{
	struct hr_engine *engine = open_engine(HR_PATH_P2P);

	assert_int_equal(hr_read(engine, t.file, 0, 4096, t.buf, 0), 4096);
	t.fail_result = -EFAULT;
	assert_int_equal(hr_read(engine, t.file, 5, 1 << 20, t.buf, 0), -EFAULT);
	t.fail_result = 0;
	assert_int_equal(hr_read(engine, t.file, 5, 1 << 20, t.buf, 0), 1 << 20);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* The device again, by a driver that says something else of the order of writes. */
static void reopen(long order, long flush)
{
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_device_close(t.dev);
	t.peer_order = order;
	snprintf(t.drive, sizeof(t.drive), "drive %ld %ld", order, flush); /* tried anew */
	fake.set("peer_order", order);
	fake.set("peer_flush", flush);
	assert_int_equal(hr_device_open("cuda:0", &t.dev), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, ROOM, &t.buf), 0);
}

/*
 * A device that does not order writes of drives by itself: no work is queued, and no request comes back,
 * before a flush (the fake counts that as misuse). A device that does is never asked to.
 */
static void test_flush(void **state)
{
	struct hr_engine *engine;
	long before = fake.get("flushes");

	test_gather(state);
	assert_int_equal(fake.get("flushes"), before);
	reopen(0, 1);
	test_bytes(state);
	test_gather(state);
	assert_true(fake.get("flushes") > before);
	engine = open_engine(HR_PATH_P2P);
	for (uint32_t i = 0; i < 40; i++) { /* in place, then by way of the ring */
		uint64_t off = i % 2 ? 4096 : 777;

		before = fake.get("flushes");
		assert_int_equal(hr_read(engine, t.file, off, 1 << 20, t.buf, 0), 1 << 20);
		assert_false(fake.unflushed());
		assert_true(fake.get("flushes") > before);
	}
	assert_int_equal(hr_engine_close(engine), 0);
}

/* A flush that fails: the bytes may be old ones, so the read fails; the next one is good. */
static void test_flush_fails(void **state)
{
	struct hr_engine *engine;

	reopen(0, 1);
	engine = open_engine(HR_PATH_P2P);
	for (uint64_t off = 4096; off >= 4095; off--) {
		assert_int_equal(hr_read(engine, t.file, 0, 65536, t.buf, 0), 65536);
		fake.inject("cuFlushGPUDirectRDMAWrites", 1, 801);
		assert_int_equal(hr_read(engine, t.file, off, 65536, t.buf, 0), -ENOTSUP);
	}
	assert_int_equal(hr_read(engine, t.file, 5, 65536, t.buf, 0), 65536);
	assert_int_equal(hr_engine_close(engine), 0);
}

/* No order and no flush, or a driver that does not know the question: this path is not for it. */
static void test_unordered(void **state)
{
	static const long order[] = {0, 0, -1}, flush[] = {0, 2 /* by streams alone */, 0};

	for (int i = 0; i < 3; i++) {
		reopen(order[i], flush[i]);
		t.peer_order = 100; /* the drive writes to host memory */
		expect_refusal("neither orders nor flushes");
	}
}

static void *read_half(void *arg)
{
	uint64_t half = (uintptr_t)arg;
	struct hr_engine *engine = open_engine(HR_PATH_P2P);

	assert_int_equal(hr_read(engine, t.file, half * 1000001, 1000000, t.buf, half * 1000000),
			 1000000);
	assert_int_equal(hr_engine_close(engine), 0);
	return NULL;
}

/* Both engines find the buffer not ready. */
static void test_threads(void **state)
{
	pthread_t threads[2];

	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_half, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(hr_buffer_copy_out(t.buf, 0, t.got, 2000000), 0);
	for (uint64_t i = 0; i < 2000000; i++)
		assert_int_equal(t.got[i], test_pattern(i + i / 1000000));
}

static bool direct_works(void)
{
	struct hr_file_info info = {0};
	char *dir = test_mkdir(), *path = test_file(dir, "data", 4096);
	struct hr_file *file;

	if (!hr_file_open(path, HR_FILE_READ, &file)) {
		hr_file_info(file, &info);
		hr_file_close(file);
	}
	free(path);
	test_rmdir(dir);
	return info.direct;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_bytes),       CASE(test_gather),         CASE(test_refusals),
		CASE(test_lost_bytes),  CASE(test_buffer_refused), CASE(test_writes),
		CASE(test_lost_writes), CASE(test_revoked),        CASE(test_threads),
		CASE(test_flush),       CASE(test_flush_fails),    CASE(test_unordered),
	};

	if (!direct_works()) {
		printf("SKIP: no direct I/O in the folder for temporary files\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving of checkpoints, on the device named: what comes out must be, byte for byte, what the test's own
 * writer makes; whatever fails on the way, and wherever the process is killed, the file is the old one
 * or the new one, whole. System calls fail by a table put in the place of the library's.
 *
 * Usage: test_checkpoint_save DEVICE, or, as its own child: DEVICE kill K FOLDER.
 */
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/sys.h"
#include "checkpoint_fixture.h"
#include "support/fork.h"

#define SLAB (8u << 20) /* what the library writes at once */

static struct fixture f;
static const char *self;
static struct hr__sys sys;

/* The k-th call of one kind fails, or every call kills from the k-th one on. */
static struct {
	const char *kind;
	uint32_t at;
	int code;
	uint32_t kill_at;
	uint32_t seen, steps;
} fault;

static int step(const char *kind)
{
	if (fault.kill_at && ++fault.steps == fault.kill_at)
		kill(getpid(), SIGKILL);
	if (fault.kind && !strcmp(fault.kind, kind) && ++fault.seen == fault.at)
		return fault.code;
	return 0;
}

static int bent_open(const char *path, int flags, mode_t mode)
{
	int ret = flags & O_CREAT ? step("create") : 0;

	return ret ? ret : hr__sys_real.open(path, flags, mode);
}

static int bent_ftruncate(int fd, uint64_t len)
{
	int ret = step("ftruncate");

	return ret ? ret : hr__sys_real.ftruncate(fd, len);
}

static int bent_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
	int ret = step("fallocate");

	return ret ? ret : hr__sys_real.fallocate(fd, mode, offset, len);
}

static ssize_t bent_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
	int ret = step("write");

	return ret ? ret : hr__sys_real.pwrite(fd, buf, len, offset);
}

static int bent_ring(const struct io_uring_cqe *cqe)
{
	int ret = step("write");

	return ret ? ret : hr__sys_real.ring_result(cqe);
}

static int bent_fdatasync(int fd)
{
	int ret = step("fdatasync");

	return ret ? ret : hr__sys_real.fdatasync(fd);
}

static int bent_fsync(int fd)
{
	int ret = step("fsync");

	return ret ? ret : hr__sys_real.fsync(fd);
}

static int bent_rename(const char *from, const char *to)
{
	int ret = step("rename");

	return ret ? ret : hr__sys_real.rename(from, to);
}

static int set_up(void **state)
{
	struct hr_engine_options opts = {.request_bytes = 256 << 10};

	sys = hr__sys_real;
	sys.open = bent_open;
	sys.ftruncate = bent_ftruncate;
	sys.fallocate = bent_fallocate;
	sys.pwrite = bent_pwrite;
	sys.ring_result = bent_ring;
	sys.fdatasync = bent_fdatasync;
	sys.fsync = bent_fsync;
	sys.rename = bent_rename;
	hr__sys = &sys;
	memset(&fault, 0, sizeof(fault));
	fixture_open(&f, &opts);
	return 0;
}

static int tear_down(void **state)
{
	memset(&fault, 0, sizeof(fault));
	fixture_close(&f);
	hr__sys = &hr__sys_real;
	return 0;
}

/* -- files -------------------------------------------------------------------------------------- */

/* In the order of the format: higher types first, then names. */
static struct made in_order[] = {
	{"double", "F64", 64, 1, {3}},    {"a", "F32", 32, 2, {129, 77}},
	{"b", "F32", 32, 2, {3000, 701}}, /* on the host: more than a slab */
	{"empty", "BF16", 16, 2, {0, 7}}, {"half", "F16", 16, 1, {1025}},
	{"bytes", "U8", 8, 1, {13}},      {"nibbles", "F4", 4, 2, {2, 9}},
	{"flag", "BOOL", 8, 0, {0}},
};
#define N (sizeof(in_order) / sizeof(in_order[0]))

struct saved {
	struct hr_save_weight weights[N];
	struct hr_buffer *buf;
	uint8_t *image; /* what the file must be */
	uint64_t len;
};

static uint8_t *read_file(const char *path, uint64_t *len)
{
	FILE *in = fopen(path, "rb");
	uint8_t *bytes;

	if (!in) {
		*len = 0;
		return NULL;
	}
	fseek(in, 0, SEEK_END);
	*len = (uint64_t)ftell(in);
	rewind(in);
	bytes = malloc(*len + 1);
	assert_int_equal(fread(bytes, 1, *len, in), *len);
	fclose(in);
	return bytes;
}

/* Tensors in device memory at odd places, in another order, and the file that they must become. */
static void make_saved(struct saved *s)
{
	char *path = path_in(&f, "golden");
	uint64_t json = 0, pad, at = 5, data;
	uint64_t places[N];

	/* Once to see how long the header is, once with the blanks that make it a multiple of 8. */
	json = make_file(path, in_order, N, 0);
	pad = (8 - json % 8) % 8;
	data = make_file(path, in_order, N, (uint32_t)pad);
	assert_int_equal(data % 8, 0);
	s->image = read_file(path, &s->len);
	assert_int_equal(remove(path), 0);
	free(path);
	expect_ok(hr_buffer_alloc(f.dev, s->len + 4096, &s->buf));
	for (size_t i = 0; i < N; i++) {
		places[i] = at;
		if (made_bytes(&in_order[i]))
			expect_ok(hr_buffer_copy_in(s->buf, at, s->image + data,
						    made_bytes(&in_order[i])));
		data += made_bytes(&in_order[i]);
		at += made_bytes(&in_order[i]) + 3;
	}
	for (size_t i = 0; i < N; i++) {
		const struct made *m = &in_order[(i * 3) % N];
		struct hr_save_weight *w = &s->weights[i];

		*w = (struct hr_save_weight){
			.name = m->name,
			.ndim = m->ndim,
			.shape = m->shape,
			.buffer = s->buf,
			.buffer_offset = places[(i * 3) % N],
		};
		assert_int_equal(hr_weight_type_parse(m->dtype, &w->type), 0);
	}
}

static void free_saved(struct saved *s)
{
	assert_int_equal(hr_buffer_free(s->buf), 0);
	free(s->image);
}

static bool is_new(const struct saved *s, const char *path)
{
	uint64_t len;
	uint8_t *bytes = read_file(path, &len);
	bool same = bytes && len == s->len && !memcmp(bytes, s->image, len);

	free(bytes);
	return same;
}

static bool is_old(const char *path)
{
	uint64_t len;
	uint8_t *bytes = read_file(path, &len);
	bool same = bytes && len == 8 && !memcmp(bytes, "precious", 8);

	free(bytes);
	return same;
}

static void write_old(const char *path)
{
	FILE *out = fopen(path, "wb");

	assert_non_null(out);
	fputs("precious", out);
	fclose(out);
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* Save to the end, whatever that is. */
static int save(const char *path, const struct saved *s, const struct hr_save_options *opts)
{
	struct hr_save *save;
	int ret = hr_save_open(f.engine, path, s->weights, N, opts, &save);

	if (ret)
		return ret;
	ret = run_save(save);
	assert_int_equal(hr_save_close(save), 0);
	assert_int_equal(hr_in_flight(f.engine), 0);
	return ret;
}

/* -- tests -------------------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *temp = path_in(&f, "m.safetensors.tmp");
	struct hr_save_info info;
	struct hr_save *sv;
	struct saved s;
	struct stat st;
	mode_t mask = umask(027);
	int fds = test_count_fds();

	make_saved(&s);
	expect_ok(hr_save_open(f.engine, path, s.weights, N, NULL, &sv));
	assert_false(exists(path));
	assert_true(exists(temp));
	assert_int_equal(run_save(sv), 1);
	assert_int_equal(hr_save_step(sv, 0), 1);
	hr_save_info(sv, &info);
	assert_int_equal(info.file_bytes, s.len);
	assert_int_equal(info.written, s.len);
	assert_int_equal(hr_save_close(sv), 0);
	umask(mask);
	assert_true(is_new(&s, path));
	assert_false(exists(temp));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(test_count_fds(), fds);
	/* over an old file, whose mode stays; a .tmp of a crash is no obstacle */
	write_old(path);
	assert_int_equal(chmod(path, 0604), 0);
	write_old(temp);
	assert_int_equal(save(path, &s, NULL), 1);
	assert_true(is_new(&s, path));
	assert_false(exists(temp));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0604);
	free_saved(&s);
	free(path);
	free(temp);
}

static void test_read_back(void **state)
{
	char *path = path_in(&f, "m.safetensors");
	const struct hr_save_pair pairs[] = {{"b", "1"}, {"a", "\"\n"}};
	struct hr_save_options opts = {.metadata = pairs, .n_metadata = 2};
	const char *key, *value;
	struct hr_checkpoint *ck;
	struct hr_weight w;
	struct saved s;

	make_saved(&s);
	assert_int_equal(save(path, &s, &opts), 1);
	expect_ok(hr_checkpoint_open((const char *const *)&path, 1, NULL, &ck));
	expect_ok(hr_checkpoint_metadata(ck, 1, &key, &value));
	assert_string_equal(key, "a");
	assert_string_equal(value, "\"\n");
	expect_code(hr_checkpoint_metadata(ck, 2, &key, &value), EINVAL, "no pair 2");
	for (size_t i = 0; i < N; i++) {
		expect_ok(hr_checkpoint_weight(ck, i, &w));
		assert_string_equal(w.name, in_order[i].name);
		assert_int_equal(w.len, made_bytes(&in_order[i]));
	}
	hr_checkpoint_close(ck);
	free_saved(&s);
	free(path);
}

/* A header that is longer than what is written at once. */
static void test_long_header(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *text = malloc(SLAB + 1000001);
	struct hr_save_pair pair = {"k", text};
	struct hr_save_options opts = {.metadata = &pair, .n_metadata = 1};
	const char *key, *value;
	struct hr_checkpoint *ck;
	struct hr_weight w;
	uint64_t len, tail;
	uint8_t *bytes;
	struct saved s;

	for (size_t i = 0; i < SLAB + 1000000; i++)
		text[i] = (char)('a' + test_pattern(i) % 26);
	text[SLAB + 1000000] = '\0';
	make_saved(&s);
	assert_int_equal(save(path, &s, &opts), 1);
	expect_ok(hr_checkpoint_open((const char *const *)&path, 1, NULL, &ck));
	expect_ok(hr_checkpoint_metadata(ck, 0, &key, &value));
	assert_string_equal(value, text);
	/* the tensors lie as they do behind a short header */
	expect_ok(hr_checkpoint_weight(ck, 0, &w));
	bytes = read_file(path, &len);
	tail = len - w.offset;
	assert_memory_equal(bytes + w.offset, s.image + s.len - tail, tail);
	hr_checkpoint_close(ck);
	free_saved(&s);
	free(bytes);
	free(text);
	free(path);
}

static void test_snapshot(void **state)
{
	char *path = path_in(&f, "m.safetensors");
	struct hr_save_options opts = {.snapshot = true};
	struct hr_save_info info;
	struct hr_save *sv;
	struct saved s;
	uint8_t *noise;

	make_saved(&s);
	noise = malloc(s.len);
	memset(noise, 0xee, s.len);
	expect_ok(hr_save_open(f.engine, path, s.weights, N, &opts, &sv));
	hr_save_info(sv, &info);
	assert_true(info.device_bytes > s.len / 2);
	/* training goes on */
	expect_ok(hr_buffer_copy_in(s.buf, 0, noise, s.len));
	assert_int_equal(run_save(sv), 1);
	assert_int_equal(hr_save_close(sv), 0);
	assert_true(is_new(&s, path));
	free(noise);
	free_saved(&s);
	free(path);
}

static void test_faults(void **state)
{
	static const struct {
		const char *kind;
		int code;
		uint32_t most;
		bool is_new; /* the new file has its name already */
	} faults[] = {
		{"create", -EACCES, 1, false}, {"create", -ENOSPC, 1, false},
		{"ftruncate", -EIO, 1, false}, {"fallocate", -ENOSPC, 1, false},
		{"write", -ENOSPC, 40, false}, {"write", -EIO, 40, false},
		{"fdatasync", -EIO, 1, false}, {"rename", -EACCES, 1, false},
		{"fsync", -EIO, 1, true},
	};
	char *path = path_in(&f, "m.safetensors"), *temp = path_in(&f, "m.safetensors.tmp");
	struct saved s;
	int fds;

	make_saved(&s);
	assert_int_equal(save(path, &s, NULL), 1);
	fds = test_count_fds();
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		for (uint32_t at = 1; at <= faults[i].most; at += 3) {
			int ret;

			write_old(path);
			memset(&fault, 0, sizeof(fault));
			fault.kind = faults[i].kind;
			fault.at = at;
			fault.code = faults[i].code;
			ret = save(path, &s, NULL);
			if (ret == 1 && fault.seen < at) {
				assert_true(at > 4); /* so many writes there are */
				continue;
			}
			if (ret != faults[i].code)
				fail_msg("%s %u: %s", faults[i].kind, at, hr_error_name(ret));
			assert_non_null(strstr(hr_error_detail(), "m.safetensors"));
			assert_true(faults[i].is_new ? is_new(&s, path) : is_old(path));
			assert_false(exists(temp));
			assert_int_equal(test_count_fds(), fds);
		}
	memset(&fault, 0, sizeof(fault));
	/* a file system without preallocation, where space runs out later */
	fault.kind = "fallocate";
	fault.at = 1;
	fault.code = -EOPNOTSUPP;
	write_old(path);
	assert_int_equal(save(path, &s, NULL), 1);
	assert_true(is_new(&s, path));
	free_saved(&s);
	free(path);
	free(temp);
}

/* The child: save over the old file and be killed at the k-th step. */
static int run_child(const char *folder, uint32_t kill_at)
{
	struct saved s;
	char path[600];
	int ret;

	assert_int_equal(set_up(NULL), 0);
	make_saved(&s);
	snprintf(path, sizeof(path), "%s/m.safetensors", folder);
	fault.kill_at = kill_at;
	ret = save(path, &s, NULL);
	fault.kill_at = 0;
	free_saved(&s);
	tear_down(NULL);
	return ret == 1 ? 0 : 1;
}

/* Killed at each step: the old file whole, or the new one; the next save cleans up. */
static void test_kill(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *temp = path_in(&f, "m.safetensors.tmp");
	bool finished = false, seen_new = false, seen_temp = false;
	const char *tmp = getenv("TMPDIR");
	struct saved s;

	make_saved(&s);
	setenv("TMPDIR", f.dir, 1); /* what killed children leave goes with our folder */
	for (uint32_t k = 1; !finished; k++) {
		char number[16],
			*args[] = {(char *)self, (char *)device_name, "kill", number, f.dir, NULL};
		int status;
		pid_t pid;

		assert_true(k < 200);
		write_old(path);
		snprintf(number, sizeof(number), "%u", k);
		assert_int_equal(posix_spawn(&pid, self, NULL, NULL, args, environ), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		finished = WIFEXITED(status);
		assert_int_equal(finished ? WEXITSTATUS(status) : WTERMSIG(status),
				 finished ? 0 : SIGKILL);
		assert_true(is_old(path) || is_new(&s, path));
		seen_new |= is_new(&s, path) && !finished;
		seen_temp |= exists(temp);
		assert_false(finished && !is_new(&s, path));
	}
	if (tmp)
		setenv("TMPDIR", tmp, 1);
	else
		unsetenv("TMPDIR");
	assert_true(seen_new); /* killed between the rename and the end */
	assert_true(seen_temp);
	write_old(path);
	assert_int_equal(save(path, &s, NULL), 1);
	assert_true(is_new(&s, path));
	assert_false(exists(temp));
	free_saved(&s);
	free(path);
	free(temp);
}

/* A child of fork() closes what it got, and the parent's file is still the parent's. */
static void test_fork(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *temp = path_in(&f, "m.safetensors.tmp");
	struct hr_save *sv;
	struct saved s;
	int status;
	pid_t pid;

	if (!TEST_FORK_BESIDE_THREADS && strcmp(device_name, "host") != 0) {
		print_message(TEST_FORK_SKIP); /* a pretended GPU's streams */
		free(path);
		free(temp);
		skip();
	}
	make_saved(&s);
	expect_ok(hr_save_open(f.engine, path, s.weights, N, NULL, &sv));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		if (hr_save_step(sv, 0) != -HR_E_FORKED)
			_exit(1);
		_exit(hr_save_close(sv) ? 2 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(exists(temp));
	assert_int_equal(run_save(sv), 1);
	assert_int_equal(hr_save_close(sv), 0);
	assert_true(is_new(&s, path));
	free_saved(&s);
	free(path);
	free(temp);
}

static void test_two_at_once(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *link = path_in(&f, "link");
	struct hr_save *a, *b;
	struct saved s;
	struct stat st;

	make_saved(&s);
	write_old(path);
	expect_ok(hr_save_open(f.engine, path, s.weights, N, NULL, &a));
	expect_code(hr_save_open(f.engine, path, s.weights, N, NULL, &b), EBUSY, "another save");
	/* given up: the old file stays, no trace of the new one */
	assert_int_equal(hr_save_close(a), 0);
	assert_true(is_old(path));
	expect_ok(hr_save_open(f.engine, path, s.weights, N, NULL, &a));
	assert_int_equal(run_save(a), 1);
	assert_int_equal(hr_save_close(a), 0);
	assert_true(is_new(&s, path));
	/* a link is replaced, not followed */
	write_old(path);
	assert_int_equal(symlink("m.safetensors", link), 0);
	assert_int_equal(save(link, &s, NULL), 1);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_true(is_new(&s, link));
	assert_true(is_old(path));
	free_saved(&s);
	free(path);
	free(link);
}

static int stop(const struct hr_progress *p, void *user)
{
	return p->bytes > 0;
}

static void test_refusals(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *none = path_in(&f, "no/m.safetensors");
	char *pipe = path_in(&f, "pipe"), *temp = path_in(&f, "m.safetensors.tmp");
	struct hr_save_options stops = {.progress = stop}, odd = {.n_metadata = 1};
	struct hr_save *sv = NULL;
	struct saved s;

	make_saved(&s);
	write_old(path);
	expect_code(save(none, &s, NULL), ENOENT, "cannot be created");
	expect_code(save(f.dir, &s, NULL), EISDIR, "is a folder");
	assert_int_equal(mkfifo(pipe, 0600), 0);
	expect_code(save(pipe, &s, NULL), HR_E_NOT_A_FILE, "not a regular file");
	assert_int_equal(symlink(pipe, temp), 0);
	expect_code(save(path, &s, NULL), ELOOP, "cannot be created");
	assert_int_equal(unlink(temp), 0);
	expect_code(save(path, &s, &odd), EINVAL, "without metadata");
	expect_code(save(path, &s, &stops), ECANCELED, "stopped by its caller");
	s.weights[2].buffer_offset = hr_buffer_len(s.buf) - 1;
	expect_code(save(path, &s, NULL), HR_E_BAD_RANGE, "more than its buffer");
	s.weights[2].buffer_offset = 0;
	s.weights[2].name = s.weights[1].name;
	expect_code(save(path, &s, NULL), EINVAL, "is given twice");
	s.weights[2].name = NULL;
	expect_code(save(path, &s, NULL), EINVAL, "has no name");
	expect_code(hr_save_open(f.engine, "", s.weights, N, NULL, &sv), EINVAL, "pass all");
	assert_null(sv);
	assert_int_equal(hr_save_close(NULL), 0);
	assert_true(is_old(path));
	assert_false(exists(temp));
	free_saved(&s);
	free(path);
	free(none);
	free(pipe);
	free(temp);
}

/* Nothing at all, and files that end where a slab does. */
static void test_sizes(void **state)
{
	static const int64_t around[] = {-9, -8, -1, 0, 1, 8};
	char *path = path_in(&f, "m.safetensors"), *golden = path_in(&f, "golden");
	struct hr_save *sv;

	expect_ok(hr_save_open(f.engine, path, NULL, 0, NULL, &sv));
	assert_int_equal(run_save(sv), 1);
	assert_int_equal(hr_save_close(sv), 0);
	for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
		struct made m = {"x", "U8", 8, 1, {0}};
		struct hr_save_weight w = {.name = "x", .type = HR_WEIGHT_U8, .ndim = 1};
		struct saved s = {.len = 0};
		uint64_t data;

		/* both headers have 56 + 8 bytes, or else the comparison fails */
		m.shape[0] = (uint64_t)((int64_t)SLAB - 72 + around[i]);
		data = make_file(golden, &m, 1, 0);
		data = make_file(golden, &m, 1, (uint32_t)((8 - data % 8) % 8));
		s.image = read_file(golden, &s.len);
		w.shape = m.shape;
		expect_ok(hr_buffer_alloc(f.dev, m.shape[0], &s.buf));
		expect_ok(hr_buffer_copy_in(s.buf, 0, s.image + data, m.shape[0]));
		w.buffer = s.buf;
		expect_ok(hr_save_open(f.engine, path, &w, 1, NULL, &sv));
		assert_int_equal(run_save(sv), 1);
		assert_int_equal(hr_save_close(sv), 0);
		assert_true(is_new(&s, path));
		free_saved(&s);
	}
	free(path);
	free(golden);
}

int main(int argc, char **argv)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		TEST(test_bytes),       TEST(test_read_back), TEST(test_long_header),
		TEST(test_snapshot),    TEST(test_faults),    TEST(test_kill),
		TEST(test_two_at_once), TEST(test_refusals),  TEST(test_sizes),
		TEST(test_fork),
	};

	self = argv[0];
	if (argc > 1)
		device_name = argv[1];
	/* The pretended GPU copies byte by byte on the CPU. */
	if (strcmp(device_name, "host") != 0)
		in_order[2].shape[0] = 300;
	if (argc > 4 && !strcmp(argv[2], "kill"))
		return run_child(argv[4], (uint32_t)atoi(argv[3]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading of checkpoints, on the device named: files are made by a writer of the test's own, tensors
 * and slices are compared byte for byte with what that file holds, and between them guard bytes must
 * be untouched. Counts reads of a file with 90 000 tensors, and tries what is wrong with sets of files.
 */
#include "checkpoint_fixture.h"

static struct fixture f;

static int set_up(void **state)
{
	fixture_open(&f, NULL);
	return 0;
}

static int tear_down(void **state)
{
	fixture_close(&f);
	return 0;
}

static struct hr_checkpoint *open_one(const char *path, bool lenient)
{
	struct hr_checkpoint_options opts = {.lenient = lenient};
	struct hr_checkpoint *ck = NULL;

	expect_ok(hr_checkpoint_open(&path, 1, &opts, &ck));
	return ck;
}

static void refuse_open(const char *path, int code, const char *words)
{
	struct hr_checkpoint *ck = NULL;
	int fds = test_count_fds();

	expect_code(hr_checkpoint_open(&path, 1, NULL, &ck), code, words);
	assert_null(ck);
	assert_int_equal(test_count_fds(), fds);
}

/* Device memory full of guard bytes. */
static struct hr_buffer *guarded(uint64_t len)
{
	struct hr_buffer *buf;
	uint8_t *image = malloc(len);

	memset(image, TEST_GUARD, len);
	expect_ok(hr_buffer_alloc(f.dev, len, &buf));
	expect_ok(hr_buffer_copy_in(buf, 0, image, len));
	free(image);
	return buf;
}

static uint8_t *fetch(struct hr_buffer *buf)
{
	uint8_t *image = malloc(hr_buffer_len(buf));

	expect_ok(hr_buffer_copy_out(buf, 0, image, hr_buffer_len(buf)));
	return image;
}

static int load(struct hr_checkpoint *ck, const struct hr_part *parts, uint64_t n)
{
	struct hr_load *load;
	int ret = hr_load_open(ck, f.engine, parts, n, NULL, &load);

	if (ret)
		return ret;
	ret = run_load(load);
	assert_int_equal(hr_load_close(load), 0);
	assert_int_equal(hr_in_flight(f.engine), 0);
	return ret;
}

/* What part @p must be in memory: byte by byte, over all indices of the tensor. */
static uint64_t naive_slice(const struct hr_weight *w, const struct hr_part *p, uint8_t *out)
{
	uint64_t bits = hr_weight_type_bits(w->type), inner = 1, outer = 1, n = 0;
	uint64_t from = p->sliced ? p->start : 0, count, size;

	for (uint32_t d = p->dim + 1; d < w->ndim; d++)
		inner *= w->shape[d];
	for (uint32_t d = 0; d < p->dim && d < w->ndim; d++)
		outer *= w->shape[d];
	size = w->ndim ? w->shape[p->dim] : 1;
	count = p->sliced ? p->count : size;
	for (uint64_t o = 0; o < outer; o++)
		for (uint64_t i = from; i < from + count; i++)
			for (uint64_t b = 0; b < inner * bits; b++) {
				uint64_t bit = (o * size + i) * inner * bits + b;

				if (bit % 8 == 0)
					out[n++] = test_pattern(w->offset + bit / 8);
			}
	return n;
}

static void check_parts(const struct hr_checkpoint *ck, const struct hr_part *parts, uint64_t n,
			struct hr_buffer *buf)
{
	uint8_t *image = fetch(buf), *want = malloc(hr_buffer_len(buf) + 1);
	uint8_t *known = calloc(1, hr_buffer_len(buf));

	for (uint64_t i = 0; i < n; i++) {
		struct hr_weight w;
		uint64_t len;

		expect_ok(hr_checkpoint_weight(ck, parts[i].weight, &w));
		len = naive_slice(&w, &parts[i], want);
		assert_int_equal(len, parts[i].len);
		if (memcmp(image + parts[i].buffer_offset, want, len) != 0)
			fail_msg("tensor %s is wrong", w.name);
		memset(known + parts[i].buffer_offset, 1, len);
	}
	for (uint64_t i = 0; i < hr_buffer_len(buf); i++) {
		if (!known[i] && image[i] != TEST_GUARD)
			fail_msg("guard byte %llu was overwritten", (unsigned long long)i);
	}
	free(image);
	free(want);
	free(known);
}

static const struct made some[] = {
	{"a", "F32", 32, 2, {33, 17}},     {"empty", "BF16", 16, 3, {4, 0, 5}},
	{"b", "U8", 8, 1, {70001}},        {"scalar", "I64", 64, 0, {0}},
	{"c", "BF16", 16, 3, {3, 40, 26}}, {"nibbles", "F4", 4, 2, {6, 32}},
	{"six", "F6_E2M3", 6, 1, {64}},    {"big", "F16", 16, 2, {1500, 701}},
	{"tail", "I8", 8, 1, {3}},
};
#define SOME (sizeof(some) / sizeof(some[0]))

/* All of them, with headers of any length, in an order of parts that is not the file's. */
static void test_whole(void **state)
{
	for (uint32_t pad = 0; pad < 4100; pad += pad < 9 ? 1 : 1361) {
		char *path = path_in(&f, "m.safetensors");
		struct hr_checkpoint *ck;
		struct hr_part parts[SOME] = {0};
		struct hr_buffer *buf;
		uint64_t bytes;

		make_file(path, some, SOME, pad);
		ck = open_one(path, false);
		for (uint32_t i = 0; i < SOME; i++)
			parts[i].weight = (i * 5) % SOME;
		expect_ok(hr_checkpoint_place(ck, parts, SOME, 0, &bytes));
		buf = guarded(bytes + 300);
		for (uint32_t i = 0; i < SOME; i++) {
			assert_int_equal(parts[i].buffer_offset % 256, 0);
			parts[i].buffer = buf;
		}
		assert_int_equal(load(ck, parts, SOME), 1);
		check_parts(ck, parts, SOME, buf);
		assert_int_equal(hr_buffer_free(buf), 0);
		hr_checkpoint_close(ck);
		free(path);
	}
}

/* A buffer of its own for each, at odd addresses where nothing is converted. */
static void test_own_buffers(void **state)
{
	char *path = path_in(&f, "m.safetensors");
	struct hr_part parts[SOME] = {0};
	struct hr_checkpoint *ck;
	uint64_t bytes;

	make_file(path, some, SOME, 5);
	ck = open_one(path, false);
	for (uint32_t i = 0; i < SOME; i++)
		parts[i].weight = i;
	expect_ok(hr_checkpoint_place(ck, parts, SOME, 1, &bytes));
	for (uint32_t i = 0; i < SOME; i++) {
		parts[i].buffer_offset = 2 * i + 1;
		parts[i].buffer = guarded(parts[i].len + 64);
	}
	assert_int_equal(load(ck, parts, SOME), 1);
	for (uint32_t i = 0; i < SOME; i++) {
		check_parts(ck, &parts[i], 1, parts[i].buffer);
		assert_int_equal(hr_buffer_free(parts[i].buffer), 0);
	}
	hr_checkpoint_close(ck);
	free(path);
}

static void try_slice(struct hr_checkpoint *ck, const struct hr_part *part)
{
	struct hr_part p = *part;
	uint64_t bytes;

	expect_ok(hr_checkpoint_place(ck, &p, 1, 0, &bytes));
	p.buffer = guarded(bytes + 256);
	assert_int_equal(load(ck, &p, 1), 1);
	check_parts(ck, &p, 1, p.buffer);
	assert_int_equal(hr_buffer_free(p.buffer), 0);
}

static void test_slices(void **state)
{
	static const uint32_t counts[] = {1, 2, 3, 7, 50};
	char *path = path_in(&f, "m.safetensors");
	struct hr_checkpoint *ck;
	struct hr_part part;
	uint64_t index;

	make_file(path, some, SOME, 3);
	ck = open_one(path, false);
	expect_ok(hr_checkpoint_find(ck, "c", &index));
	for (uint32_t dim = 0; dim < 3; dim++)
		for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
			for (uint32_t i = 0; i<counts[k]; i += counts[k]> 7 ? 13 : 1) {
				part = (struct hr_part){.weight = index};
				expect_ok(hr_part_slice(ck, &part, dim, i, counts[k]));
				try_slice(ck, &part);
			}
	expect_ok(hr_checkpoint_find(ck, "nibbles", &index));
	part = (struct hr_part){.weight = index, .sliced = true, .dim = 1, .start = 2, .count = 6};
	try_slice(ck, &part);
	part.start = 3;
	expect_code(hr_checkpoint_place(ck, &part, 1, 0, &index), HR_E_BAD_RANGE,
		    "begins or ends inside of a byte");
	part = (struct hr_part){
		.weight = part.weight, .sliced = true, .dim = 0, .start = 1, .count = 3};
	try_slice(ck, &part);
	hr_checkpoint_close(ck);
	free(path);
}

/* As torch.chunk() does it. */
static void test_chunks(void **state)
{
	static const struct made m[] = {{"t", "U8", 8, 1, {10}}};
	static const uint64_t wanted[][6] = {{0, 10}, {0, 5, 5, 5}, {0, 4, 4, 4, 8, 2}};
	char *path = path_in(&f, "m.safetensors");
	struct hr_checkpoint *ck;
	struct hr_part part = {0};

	make_file(path, m, 1, 0);
	ck = open_one(path, false);
	for (uint64_t n = 1; n <= 3; n++)
		for (uint64_t i = 0; i < n; i++) {
			expect_ok(hr_part_slice(ck, &part, 0, i, n));
			assert_int_equal(part.start, wanted[n - 1][2 * i]);
			assert_int_equal(part.count, wanted[n - 1][2 * i + 1]);
		}
	/* more slices than elements: each one, then nothing */
	expect_ok(hr_part_slice(ck, &part, 0, 9, 16));
	assert_int_equal(part.start, 9);
	assert_int_equal(part.count, 1);
	expect_ok(hr_part_slice(ck, &part, 0, UINT64_MAX - 1, UINT64_MAX));
	assert_int_equal(part.count, 0);
	try_slice(ck, &part);
	expect_code(hr_part_slice(ck, &part, 0, 3, 3), EINVAL, "slice 3 of 3");
	expect_code(hr_part_slice(ck, &part, 1, 0, 1), EINVAL, "has 1 dimensions");
	part.weight = 1;
	expect_code(hr_part_slice(ck, &part, 0, 0, 1), EINVAL, "tensor 1 of 1");
	part = (struct hr_part){.sliced = true, .start = 5, .count = UINT64_MAX};
	expect_code(hr_checkpoint_place(ck, &part, 1, 0, &(uint64_t){0}), HR_E_BAD_RANGE,
		    "it has 10");
	hr_checkpoint_close(ck);
	free(path);
}

static void test_conversion(void **state)
{
	static const struct made m[] = {
		{"x", "F32", 32, 1, {3}}, {"t", "U16", 16, 2, {31, 90}}, {"y", "BF16", 16, 1, {5}}};
	char *path = path_in(&f, "m.safetensors");
	struct hr_part parts[2] = {{.weight = 1, .to = HR_WEIGHT_I64},
				   {.weight = 1,
				    .to = HR_WEIGHT_I32,
				    .sliced = true,
				    .dim = 1,
				    .start = 7,
				    .count = 20}};
	uint64_t bytes, data = make_file(path, m, 3, 2) + 12;
	struct hr_checkpoint *ck = open_one(path, false);
	uint8_t *image;

	expect_ok(hr_checkpoint_place(ck, parts, 2, 0, &bytes));
	assert_int_equal(parts[0].len, 31 * 90 * 8);
	assert_int_equal(parts[1].len, 31 * 20 * 4);
	parts[0].buffer = parts[1].buffer = guarded(bytes);
	assert_int_equal(load(ck, parts, 2), 1);
	image = fetch(parts[0].buffer);
	for (uint64_t i = 0; i < 31 * 90; i++) {
		uint64_t at = data + 2 * i;
		int64_t wanted = test_pattern(at) | test_pattern(at + 1) << 8, wide;
		uint64_t row = i / 90, column = i % 90;
		int32_t narrow;

		memcpy(&wide, image + parts[0].buffer_offset + 8 * i, 8);
		assert_int_equal(wide, wanted);
		if (column < 7 || column >= 27)
			continue;
		memcpy(&narrow, image + parts[1].buffer_offset + 4 * (row * 20 + column - 7), 4);
		assert_int_equal(narrow, wanted);
	}
	free(image);
	parts[0].buffer_offset = 4;
	expect_code(load(ck, parts, 1), EINVAL, "multiple of its element");
	parts[0].to = HR_WEIGHT_C64;
	expect_code(hr_checkpoint_place(ck, parts, 1, 0, &bytes), HR_E_BAD_CAST, "from U16 to C64");
	assert_int_equal(hr_buffer_free(parts[1].buffer), 0);
	hr_checkpoint_close(ck);
	free(path);
}

static void write_text(const char *path, const char *text)
{
	FILE *out = fopen(path, "wb");

	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static void test_shards(void **state)
{
	char *one = path_in(&f, "1.safetensors"), *two = path_in(&f, "2.safetensors");
	char *index = path_in(&f, "model.safetensors.index.json");
	const char *both[] = {one, two};
	struct hr_checkpoint *ck;
	struct hr_checkpoint_info info;
	struct hr_part parts[SOME] = {0};
	struct hr_buffer *buf;
	uint64_t bytes, at;

	make_file(one, some, 4, 1);
	make_file(two, some + 4, SOME - 4, 0);
	write_text(index,
		   "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
		   "\"a\":\"1.safetensors\",\"empty\":\"1.safetensors\",\"b\":\"1.safetensors\","
		   "\"scalar\":\"1.safetensors\",\"c\":\"2.safetensors\",\"nibbles\":"
		   "\"2.safetensors\",\"six\":\"2.safetensors\",\"big\":\"2.safetensors\","
		   "\"tail\":\"2.safetensors\"}}");
	for (int way = 0; way < 3; way++) {
		const char *path = way ? f.dir : index;

		ck = NULL;
		if (way == 2)
			expect_ok(hr_checkpoint_open(both, 2, NULL, &ck));
		else
			ck = open_one(path, false);
		hr_checkpoint_info(ck, &info);
		assert_int_equal(info.weights, SOME);
		assert_int_equal(info.files, 2);
		for (uint32_t i = 0; i < SOME; i++) {
			expect_ok(hr_checkpoint_find(ck, some[SOME - 1 - i].name, &at));
			assert_int_equal(at, SOME - 1 - i);
			parts[i] = (struct hr_part){.weight = at};
		}
		expect_code(hr_checkpoint_find(ck, "none", &at), ENOENT, "no tensor none");
		expect_ok(hr_checkpoint_place(ck, parts, SOME, 0, &bytes));
		buf = guarded(bytes);
		for (uint32_t i = 0; i < SOME; i++)
			parts[i].buffer = buf;
		assert_int_equal(load(ck, parts, SOME), 1);
		check_parts(ck, parts, SOME, buf);
		assert_int_equal(hr_buffer_free(buf), 0);
		hr_checkpoint_close(ck);
	}
	free(one);
	free(two);
	free(index);
}

static void test_bad_sets(void **state)
{
	char *one = path_in(&f, "1.safetensors"), *index = path_in(&f, "i.json");
	const char *twice[] = {one, one};
	struct hr_checkpoint *ck = NULL;
	struct hr_checkpoint_info info;

	refuse_open(one, ENOENT, "no such file");
	refuse_open(f.dir, ENOENT, "neither model.safetensors.index.json nor");
	make_file(one, some, 2, 0);
	expect_code(hr_checkpoint_open(twice, 2, NULL, &ck), HR_E_BAD_FORMAT,
		    "both have the tensor");
	write_text(index, "{\"weight_map\":{\"a\":\"1.safetensors\",\"empty\":\"9.safetensors\"}}");
	refuse_open(index, HR_E_BAD_FORMAT, "does not list its tensor empty here");
	write_text(index, "{\"weight_map\":{\"a\":\"9.safetensors\"}}");
	refuse_open(index, ENOENT, "the index names this shard and it is missing");
	write_text(index, "{\"weight_map\":{\"a\":\"1.safetensors\",\"empty\":\"1.safetensors\","
			  "\"more\":\"1.safetensors\"}}");
	refuse_open(index, HR_E_BAD_FORMAT,
		    "lists the tensor more in 1.safetensors, which does not");
	write_text(index, "{\"weight_map\":{\"a\":\"1.safetensors\"}}");
	refuse_open(index, HR_E_BAD_FORMAT, "be lenient to leave it out");
	ck = open_one(index, true);
	hr_checkpoint_info(ck, &info);
	assert_int_equal(info.weights, 1);
	assert_int_equal(info.unlisted, 1);
	hr_checkpoint_close(ck);
	write_text(index, "{}");
	refuse_open(index, HR_E_BAD_FORMAT, "has no weight_map");
	write_text(index, "");
	refuse_open(index, HR_E_BAD_FORMAT, "has 0 bytes");
	refuse_open("/dev/null", HR_E_NOT_A_FILE, "character device");
	/* a header whose length is written with the bytes of a brace and a newline is no index */
	make_file(one, some, 2, 0x0a7b - 118);
	ck = open_one(one, false);
	hr_checkpoint_close(ck);
	free(one);
	free(index);
}

/* Descriptors do not grow with the number of shards. */
static void test_many_shards(void **state)
{
	struct made m = {NULL, "U8", 8, 1, {5000}};
	const char *paths[100];
	char name[32], tensor[32];
	struct hr_checkpoint *ck = NULL;
	struct hr_part parts[100] = {0};
	uint64_t bytes;
	int fds = test_count_fds();

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d.safetensors", i);
		snprintf(tensor, sizeof(tensor), "t%d", i);
		m.name = tensor;
		paths[i] = path_in(&f, name);
		make_file(paths[i], &m, 1, (uint32_t)i);
		parts[i].weight = (uint64_t)i;
	}
	expect_ok(hr_checkpoint_open(paths, 100, NULL, &ck));
	expect_ok(hr_checkpoint_place(ck, parts, 100, 0, &bytes));
	parts[0].buffer = guarded(bytes);
	for (int i = 1; i < 100; i++)
		parts[i].buffer = parts[0].buffer;
	assert_true(test_count_fds() <= fds + 2 * 64);
	for (int turn = 0; turn < 2; turn++)
		assert_int_equal(load(ck, parts, 100), 1);
	check_parts(ck, parts, 100, parts[0].buffer);
	assert_int_equal(hr_buffer_free(parts[0].buffer), 0);
	hr_checkpoint_close(ck);
	for (int i = 0; i < 100; i++)
		free((char *)paths[i]);
}

/*
 * 90 000 tensors in a row, most of the file a hole: at most two reads a MiB. The pretended GPU copies
 * byte by byte on the CPU: it gets fewer.
 */
static void test_many_tensors(void **state)
{
	enum { EACH = 1000 };
	const uint32_t n = strcmp(device_name, "host") ? 12000 : 90000;
	char *path = path_in(&f, "many.safetensors"), *json = malloc(100 * (size_t)n);
	struct hr_part *parts = calloc(n, sizeof(*parts));
	struct hr_stats stats;
	struct hr_checkpoint *ck;
	uint64_t len = 1, bytes, data;
	uint8_t head[8], *image;
	FILE *out = fopen(path, "wb");

	json[0] = '{';
	for (unsigned int i = 0; i < n; i++)
		len += (uint64_t)sprintf(json + len,
					 "%s\"layer.%u\":{\"dtype\":\"F16\",\"shape\":[500],\"data_"
					 "offsets\":[%u,%u]}",
					 i ? "," : "", i, i * EACH, (i + 1) * EACH);
	json[len++] = '}';
	for (int i = 0; i < 8; i++)
		head[i] = (uint8_t)(len >> (8 * i));
	assert_non_null(out);
	fwrite(head, 1, 8, out);
	fwrite(json, 1, len, out);
	data = 8 + len;
	fseek(out, (long)(data + 777 * EACH), SEEK_SET);
	fputs("found", out);
	fclose(out);
	assert_int_equal(truncate(path, (off_t)(data + (uint64_t)n * EACH)), 0);
	ck = open_one(path, false);
	for (uint64_t i = 0; i < n; i++)
		parts[i].weight = n - 1 - i;
	expect_ok(hr_checkpoint_place(ck, parts, n, 0, &bytes));
	expect_ok(hr_buffer_alloc(f.dev, bytes, &parts[0].buffer));
	for (uint64_t i = 1; i < n; i++)
		parts[i].buffer = parts[0].buffer;
	/* past the page cache and through it */
	for (int buffered = 0; buffered < 2; buffered++) {
		struct hr_engine_options opts = {.buffered = buffered};

		assert_int_equal(hr_engine_close(f.engine), 0);
		expect_ok(hr_engine_open(f.dev, &opts, &f.engine));
		assert_int_equal(load(ck, parts, n), 1);
		hr_engine_stats(f.engine, &stats);
		if (stats.segments > 2 * ((uint64_t)n * EACH >> 20))
			fail_msg("%llu reads of %u MiB", (unsigned long long)stats.segments,
				 n * EACH >> 20);
	}
	image = fetch(parts[0].buffer);
	assert_memory_equal(image + parts[n - 1 - 777].buffer_offset, "found\0", 6);
	assert_int_equal(image[parts[0].buffer_offset], 0);
	free(image);
	assert_int_equal(hr_buffer_free(parts[0].buffer), 0);
	hr_checkpoint_close(ck);
	free(parts);
	free(path);
	free(json);
}

/* What a load leaves in the page cache, with an engine that was told nothing: all of it, once. */
static void test_kept(void **state)
{
	struct made m = {"w", "U8", 8, 1, {9000001}};
	char *path = path_in(&f, "kept.safetensors");
	struct hr_part part = {0};
	uint64_t bytes, cached[2];

	make_file(path, &m, 1, 77);
	for (int round = 0; round < 2; round++) {
		struct hr_checkpoint *ck = open_one(path, false);
		struct hr_residency_info now;
		struct hr_file *file;
		struct hr_load *job;
		struct hr_load_info info;
		int ret = 0;

		expect_ok(hr_file_open(path, HR_FILE_READ, &file));
		if (!round) {
			int fd = open(path, O_RDONLY);

			assert_int_equal(fsync(fd), 0);
			close(fd);
			expect_ok(hr_file_drop_cache(file));
		}
		expect_ok(hr_checkpoint_place(ck, &part, 1, 0, &bytes));
		expect_ok(hr_buffer_alloc(f.dev, bytes, &part.buffer));
		expect_ok(hr_load_open(ck, f.engine, &part, 1, NULL, &job));
		while (!ret)
			ret = hr_load_step(job, LONG_NS);
		assert_int_equal(ret, 1);
		hr_load_info(job, &info);
		cached[round] = info.bytes_cached;
		assert_int_equal(hr_load_close(job), 0);
		expect_ok(hr_file_residency(file, 0, 0, &now));
		if (now.state != HR_RESIDENCY_UNKNOWN)
			assert_int_equal(now.state, HR_RESIDENCY_HOT);
		hr_file_close(file);
		hr_buffer_free(part.buffer);
		hr_checkpoint_close(ck);
	}
	assert_true(cached[1] == 9000001 || cached[1] == cached[0]);
	free(path);
}

/* Beyond 4 GiB: a tensor of 5 GiB, most of it a hole; a slice near its end. */
static void test_huge(void **state)
{
	static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],"
				   "\"data_offsets\":[0,5368709120]}}";
	char *path = path_in(&f, "huge.safetensors");
	uint64_t len = sizeof(json) - 1, bytes, data = 8 + len;
	struct hr_part parts[2] = {{.sliced = true, .dim = 0, .start = 4, .count = 0},
				   {.sliced = true, .dim = 1, .start = 1073741824 - 9, .count = 9}};
	struct hr_checkpoint *ck;
	uint8_t head[8] = {(uint8_t)len}, *image;
	FILE *out = fopen(path, "wb");

	assert_non_null(out);
	fwrite(head, 1, 8, out);
	fwrite(json, 1, len, out);
	fseek(out, (long)(data + 5368709120 - 9), SEEK_SET);
	fputs("last byte", out);
	fclose(out);
	ck = open_one(path, false);
	expect_ok(hr_checkpoint_place(ck, parts, 2, 0, &bytes));
	parts[0].buffer = parts[1].buffer = guarded(bytes);
	assert_int_equal(load(ck, parts, 2), 1);
	image = fetch(parts[1].buffer);
	assert_memory_equal(image + parts[1].buffer_offset + 36, "last byte", 9);
	assert_int_equal(image[parts[1].buffer_offset + 35], 0);
	free(image);
	assert_int_equal(hr_buffer_free(parts[1].buffer), 0);
	hr_checkpoint_close(ck);
	free(path);
}

/* A tensor of more than one request, and of two slices of which each is: marks around the cuts. */
static void test_long_tensor(void **state)
{
	static const struct made m[] = {{"pad", "U8", 8, 1, {3}},
					{"t", "U8", 8, 2, {2, (64u << 20) + 5001}}};
	static const uint64_t cuts[] = {0, 64u << 20, (64u << 20) + 5001, (128u << 20) + 5001,
					(128u << 20) + 10001};
	uint64_t row = (64u << 20) + 5001, bytes, data;
	struct hr_part part = {.weight = 1};
	struct hr_checkpoint *ck;
	uint8_t *image;
	char *path;

	if (strcmp(device_name, "host") != 0)
		skip(); /* the pretended GPU copies byte by byte */
	path = path_in(&f, "long.safetensors");
	data = make_file(path, m, 2, 0) + 3;
	ck = open_one(path, false);
	for (int sliced = 0; sliced < 2; sliced++) {
		uint64_t width = sliced ? row - 1 : row;

		if (sliced) {
			part.sliced = true;
			part.dim = 1;
			part.start = 1;
			part.count = width;
		}
		expect_ok(hr_checkpoint_place(ck, &part, 1, 0, &bytes));
		assert_int_equal(bytes, 2 * width);
		expect_ok(hr_buffer_alloc(f.dev, bytes, &part.buffer));
		assert_int_equal(load(ck, &part, 1), 1);
		image = fetch(part.buffer);
		for (size_t k = 0; k < sizeof(cuts) / sizeof(cuts[0]); k++)
			for (uint64_t at = cuts[k] > 5000 ? cuts[k] - 5000 : 0;
			     at < cuts[k] + 5000 && at < bytes; at++) {
				uint64_t column = at % width + (uint64_t)sliced;

				assert_int_equal(image[at],
						 test_pattern(data + at / width * row + column));
			}
		free(image);
		assert_int_equal(hr_buffer_free(part.buffer), 0);
	}
	hr_checkpoint_close(ck);
	free(path);
}

static void test_changed_files(void **state)
{
	char *path = path_in(&f, "m.safetensors"), *other = path_in(&f, "other");
	struct hr_part part = {.weight = 7};
	struct hr_checkpoint *ck;
	uint64_t bytes;

	make_file(path, some, SOME, 0);
	ck = open_one(path, false);
	expect_ok(hr_checkpoint_place(ck, &part, 1, 0, &bytes));
	part.buffer = guarded(bytes);
	assert_int_equal(truncate(path, 100000), 0);
	expect_code(load(ck, &part, 1), HR_E_FILE_CHANGED, "was changed after its header");
	hr_checkpoint_close(ck);
	/* replaced by rename: what is open stays what it was */
	make_file(path, some, SOME, 0);
	ck = open_one(path, false);
	make_file(other, some, 2, 0);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(load(ck, &part, 1), 1);
	check_parts(ck, &part, 1, part.buffer);
	hr_checkpoint_close(ck);
	assert_int_equal(hr_buffer_free(part.buffer), 0);
	free(path);
	free(other);
}

struct watch {
	uint64_t calls, last, stop_at;
};

static int watch(const struct hr_progress *p, void *user)
{
	struct watch *w = user;

	assert_true(p->bytes >= w->last && p->bytes <= p->total);
	w->last = p->bytes;
	return ++w->calls == w->stop_at;
}

static void test_progress(void **state)
{
	char *path = path_in(&f, "m.safetensors");
	struct watch w = {0};
	struct hr_load_options opts = {.progress = watch, .user = &w};
	struct hr_part parts[SOME] = {0};
	struct hr_checkpoint *ck;
	struct hr_load_info info;
	struct hr_load *l;
	uint64_t bytes;

	make_file(path, some, SOME, 0);
	ck = open_one(path, false);
	for (uint32_t i = 0; i < SOME; i++)
		parts[i].weight = i;
	expect_ok(hr_checkpoint_place(ck, parts, SOME, 0, &bytes));
	for (uint32_t i = 0; i < SOME; i++)
		parts[i].buffer = i ? parts[0].buffer : guarded(bytes);
	expect_ok(hr_load_open(ck, f.engine, parts, SOME, &opts, &l));
	assert_int_equal(run_load(l), 1);
	assert_int_equal(hr_load_step(l, 0), 1); /* and again */
	hr_load_info(l, &info);
	assert_int_equal(info.delivered, info.bytes);
	assert_int_equal(w.last, info.bytes);
	assert_true(w.calls > 0);
	assert_int_equal(hr_load_close(l), 0);
	w = (struct watch){.stop_at = 1};
	expect_ok(hr_load_open(ck, f.engine, parts, SOME, &opts, &l));
	expect_code(run_load(l), ECANCELED, "stopped by its caller");
	expect_code(hr_load_step(l, 0), ECANCELED, "stopped by its caller");
	assert_int_equal(hr_load_close(l), 0);
	/* abandoned before the first step, and in the middle */
	expect_ok(hr_load_open(ck, f.engine, parts, SOME, NULL, &l));
	assert_int_equal(hr_load_close(l), 0);
	expect_ok(hr_load_open(ck, f.engine, parts, SOME, NULL, &l));
	hr_load_step(l, 0);
	assert_int_equal(hr_load_close(l), 0);
	assert_int_equal(hr_in_flight(f.engine), 0);
	assert_int_equal(hr_buffer_free(parts[0].buffer), 0);
	hr_checkpoint_close(ck);
	free(path);
}

static void test_misuse(void **state)
{
	char *path = path_in(&f, "m.safetensors");
	struct hr_part part = {.weight = 0};
	struct hr_checkpoint *ck;
	struct hr_weight w;
	struct hr_load *l;
	uint64_t bytes;

	make_file(path, some, SOME, 0);
	ck = open_one(path, false);
	expect_code(hr_checkpoint_weight(ck, SOME, &w), EINVAL, "tensor 9 of 9");
	assert_null(hr_checkpoint_path(ck, 1));
	assert_string_equal(hr_checkpoint_path(ck, 0), path);
	expect_code(hr_checkpoint_place(ck, &part, 1, 3, &bytes), EINVAL, "power of two");
	expect_code(hr_load_open(ck, f.engine, &part, 1, NULL, &l), EINVAL, "has no buffer");
	part.buffer = guarded(100);
	expect_code(hr_load_open(ck, f.engine, &part, 1, NULL, &l), HR_E_BAD_RANGE, "do not fit");
	part.weight = SOME;
	expect_code(hr_load_open(ck, f.engine, &part, 1, NULL, &l), EINVAL, "tensor 9 of 9");
	expect_code(hr_load_open(NULL, f.engine, &part, 1, NULL, &l), EINVAL, "pass all");
	expect_code(hr_checkpoint_open(NULL, 0, NULL, &ck), EINVAL, "pass both");
	assert_int_equal(hr_load_close(NULL), 0);
	hr_checkpoint_close(NULL);
	assert_int_equal(hr_buffer_free(part.buffer), 0);
	hr_checkpoint_close(ck);
	free(path);
}

int main(int argc, char **argv)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		TEST(test_whole),    TEST(test_own_buffers), TEST(test_slices),
		TEST(test_chunks),   TEST(test_conversion),  TEST(test_shards),
		TEST(test_bad_sets), TEST(test_many_shards), TEST(test_many_tensors),
		TEST(test_huge),     TEST(test_long_tensor), TEST(test_changed_files),
		TEST(test_progress), TEST(test_misuse),      TEST(test_kept),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_heads.c - what an epoch over cold files leaves in the page cache: the heads and tables
 * that tell where samples lie, and no page more. A dataset of every format, of samples so small that many
 * lie beside its head, is read shuffled and in order; the kernel counts the pages.
 *
 * Usage: test_heads [DEVICE].
 */
#include <headrace/headrace.h>

#include "support/arrow_build.h"
#include "support/record_bytes.h"
#include "support/support.h"
#include "support/tar_bytes.h"

#define SAMPLES 2048u
#define SAMPLE_BYTES 1536u
#define BATCH 64u
#define ARROW_BATCHES 4u

static const char *device_name = "host";

/* A dataset under construction: all formats are written into the same kind of memory. */
struct made {
	struct record_bytes out;
	const char *name, *field;
	uint64_t allowed; /* bytes of heads and tables, pages of them counted one by one */
	uint64_t extra;   /* pages: those that are begun by chance, or that have heads in them */
	uint32_t samples;
};

/* The bytes of sample @id: its number, then a pattern that depends on it. */
static const uint8_t *sample(uint64_t id)
{
	static uint8_t bytes[SAMPLE_BYTES];

	for (uint32_t k = 0; k < SAMPLE_BYTES; k++)
		bytes[k] = test_pattern(id * SAMPLE_BYTES + k);
	return bytes;
}

static void put(struct made *m, uint64_t value, int n)
{
	record_put(record_grow(&m->out, (uint64_t)n), value, n);
}

/* -- formats ---------------------------------------------------------------------------------- */

static void put_shard(struct made *m, const char *text, const uint32_t *fixed, uint32_t n_fixed,
		      uint32_t len)
{
	uint64_t at = 4 + 4 * (m->samples + 1ull) + strlen(text);

	m->allowed = at;
	put(m, m->samples, 4);
	for (uint32_t i = 0; i <= m->samples; i++)
		put(m, at + (uint64_t)i * len, 4);
	record_add(&m->out, text, strlen(text));
	for (uint32_t i = 0; i < m->samples; i++) {
		uint8_t *to;

		for (uint32_t k = 0; k < n_fixed; k++)
			put(m, fixed[k], 4);
		record_add(&m->out, sample(i), SAMPLE_BYTES);
		to = record_grow(&m->out, len - 4ull * n_fixed - SAMPLE_BYTES);
		memset(to, 0, len - 4ull * n_fixed - SAMPLE_BYTES);
	}
}

#define SHARD(names, encodings, sizes)                                                             \
	"{\"column_encodings\": [" encodings "], \"column_names\": [" names                        \
	"], \"column_sizes\": [" sizes "], \"compression\": null, \"format\": \"mds\", "           \
	"\"hashes\": [], \"size_limit\": 67108864, \"version\": 2}"

static void make_mds(struct made *m)
{
	static const uint32_t sizes[] = {SAMPLE_BYTES};

	m->name = "shard.00000.mds";
	put_shard(m, SHARD("\"x\", \"y\"", "\"bytes\", \"int\"", "null, 8"), sizes, 1,
		  4 + SAMPLE_BYTES + 8);
}

/* The head of every sample is read: one page of each, or two. */
static void make_mds_heads(struct made *m)
{
	static const uint32_t sizes[] = {SAMPLE_BYTES, 10000};

	m->name = "shard.00000.mds";
	m->samples = SAMPLES / 4;
	m->extra = m->samples + m->samples / 64;
	put_shard(m, SHARD("\"x\", \"y\"", "\"bytes\", \"bytes\"", "null, null"), sizes, 2,
		  8 + SAMPLE_BYTES + 10000);
}

static void make_npy(struct made *m)
{
	char head[118];
	int n;

	m->name = "x.npy";
	m->allowed = 10 + sizeof(head);
	memset(head, ' ', sizeof(head));
	n = snprintf(head, sizeof(head),
		     "{'descr': '|u1', 'fortran_order': False, 'shape': (%u, %u), }", SAMPLES,
		     SAMPLE_BYTES);
	head[n] = ' '; /* where the text was ended */
	head[sizeof(head) - 1] = '\n';
	record_add(&m->out, "\x93NUMPY\1\0\x76\0", 10);
	record_add(&m->out, head, sizeof(head));
	for (uint32_t i = 0; i < SAMPLES; i++)
		record_add(&m->out, sample(i), SAMPLE_BYTES);
}

static void make_tar(struct made *m)
{
	struct tar_bytes t = {.len = 0};
	char name[32];

	m->name = "shard.tar";
	m->field = "x";
	m->allowed = 1;
	for (uint32_t i = 0; i < SAMPLES; i++) {
		snprintf(name, sizeof(name), "%06u.x", i);
		tar_member(&t, name, '0', sample(i), SAMPLE_BYTES);
	}
	tar_end(&t);
	record_add(&m->out, t.bytes, t.len);
	free(t.bytes);
}

static void make_tfrecord(struct made *m)
{
	m->name = "shard.tfrecord";
	m->field = "x";
	m->allowed = 1;
	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct record_bytes features = {.len = 0}, list = {.len = 0};

		proto_bytes(&list, 1, sample(i), SAMPLE_BYTES);
		proto_feature(&features, "x", 1, &list);
		record_example(&m->out, &features);
	}
}

/* A stream of record batches; in front of each is a message, which tells where its rows lie. */
static void make_arrow(struct made *m)
{
	static const struct arrow_column_spec item = {"item", 2, {{4, 8}, {1, 0}}, NULL, 0, 0};
	static const struct arrow_column_spec column = {"x",   16, {{4, SAMPLE_BYTES}, {0, 0}},
							&item, 1,  0};
	const uint64_t rows = SAMPLES / ARROW_BATCHES, body = rows * SAMPLE_BYTES;
	const struct arrow_pair nodes[] = {{rows, 0}, {rows * SAMPLE_BYTES, 0}};
	const struct arrow_pair buffers[] = {{0, 0}, {0, 0}, {0, body}};
	const struct arrow_batch_spec batch = {rows, nodes, buffers, 2, 3, 0, NULL, 0};
	struct arrow_out *o = calloc(1, sizeof(*o));
	uint32_t begin, link;

	m->name = "x.arrows";
	m->allowed = 1;
	m->extra = 2 * ARROW_BATCHES + 1; /* across the border of a page, and the end */
	link = arrow_message(o, 1, 0, &begin);
	arrow_schema(o, link, &column, 1, 0);
	arrow_message_end(o, begin);
	for (uint32_t b = 0; b < ARROW_BATCHES; b++) {
		link = arrow_message(o, 3, body, &begin);
		arrow_batch(o, link, &batch);
		arrow_message_end(o, begin);
		record_add(&m->out, o->bytes, o->len);
		o->len = 0;
		for (uint64_t i = 0; i < rows; i++)
			record_add(&m->out, sample(b * rows + i), SAMPLE_BYTES);
	}
	put(m, 0xffffffff, 8);
	free(o);
}

/* -- an epoch --------------------------------------------------------------------------------- */

static void check_batch(const struct hr_batch *batch)
{
	const char *base = hr_buffer_address(batch->buffer);
	uint64_t at = (uint64_t)((const char *)batch->tensors[0].data - base);
	uint8_t *got = malloc(BATCH * SAMPLE_BYTES);

	assert_int_equal(hr_buffer_copy_out(batch->buffer, at, got, (uint64_t)BATCH * SAMPLE_BYTES),
			 0);
	for (uint32_t row = 0; row < BATCH; row++)
		assert_memory_equal(got + row * SAMPLE_BYTES, sample(batch->ids[row]),
				    SAMPLE_BYTES);
	free(got);
}

static void read_epoch(const char *path, const struct hr_dataset_options *opts,
		       struct hr_device *dev, enum hr_shuffle shuffle, uint32_t samples)
{
	struct hr_loader_options o = {
		.batch_size = BATCH, .epochs = 1, .shuffle = shuffle, .threads = 2, .seed = 5};
	const struct hr_batch *batch;
	struct hr_loader *loader = NULL;
	struct hr_dataset *ds = NULL;
	uint32_t n = 0;

	if (hr_dataset_open(&path, 1, opts, &ds) || hr_loader_open(ds, dev, &o, &loader))
		fail_msg("%s", hr_error_detail());
	hr_dataset_close(ds); /* the loader has its own reference */
	while (hr_loader_next(loader, &batch) == 0) {
		check_batch(batch);
		assert_int_equal(hr_loader_release(loader, batch, NULL), 0);
		n++;
	}
	assert_int_equal(n, samples / BATCH);
	hr_loader_close(loader);
}

static char *write_file(const char *dir, const struct made *m)
{
	char *path = malloc(600);
	int fd;

	snprintf(path, 600, "%s/%s", dir, m->name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, m->out.bytes, m->out.len), (ssize_t)m->out.len);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	return path;
}

static uint64_t resident(const char *path, bool drop)
{
	struct hr_residency_info info;
	struct hr_file_info about;
	struct hr_file *file;

	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	assert_int_equal(hr_file_info(file, &about), 0);
	if (drop)
		assert_int_equal(hr_file_drop_cache(file), 0);
	assert_int_equal(hr_file_residency(file, 0, 0, &info), 0);
	hr_file_close(file);
	if (!about.direct || info.state == HR_RESIDENCY_UNKNOWN)
		skip(); /* all reads take the cache, or nobody tells */
	return info.pages_resident;
}

/* An epoch of samples that are cold: then of the file only what tells where they lie is there. */
static void check_format(struct made *m)
{
	static const enum hr_shuffle orders[] = {HR_SHUFFLE_FULL, HR_SHUFFLE_NONE};
	struct hr_dataset_options opts = {.n_fields = m->field != NULL,
					  .fields = m->field ? &m->field : NULL};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most;
	char *dir = test_mkdir(), *path = write_file(dir, m);
	struct hr_dataset *ds;
	struct hr_device *dev;

	most = (m->allowed + page - 1) / page + m->extra;
	assert_true(most < m->out.len / page / 2);
	assert_int_equal(hr_device_open(device_name, &dev), 0);
	if (hr_dataset_open((const char *const *)&path, 1, &opts, &ds)) /* its side index is made */
		fail_msg("%s", hr_error_detail());
	hr_dataset_close(ds);
	for (size_t i = 0; i < 2; i++) {
		uint64_t n;

		if (resident(path, true)) {
			test_rmdir(dir);
			skip(); /* tmpfs is never cold */
		}
		read_epoch(path, &opts, dev, orders[i], m->samples);
		n = resident(path, false);
		if (n > most)
			fail_msg("%s, order %zu: %llu pages are in the page cache, %llu are heads",
				 m->name, i, (unsigned long long)n, (unsigned long long)most);
	}
	hr_device_close(dev);
	free(path);
	test_rmdir(dir);
}

struct kind {
	void (*make)(struct made *m);
};

static void test_kind(void **state)
{
	const struct kind *kind = *state;
	struct made m = {.samples = SAMPLES};

	kind->make(&m);
	check_format(&m);
	free(m.out.bytes);
}

int main(int argc, char **argv)
{
	static struct kind kinds[] = {{make_mds}, {make_mds_heads}, {make_npy},
				      {make_tar}, {make_tfrecord},  {make_arrow}};
	static const struct CMUnitTest tests[] = {
		{"mds", test_kind, NULL, NULL, &kinds[0]},
		{"mds, heads of samples", test_kind, NULL, NULL, &kinds[1]},
		{"npy", test_kind, NULL, NULL, &kinds[2]},
		{"tar", test_kind, NULL, NULL, &kinds[3]},
		{"tfrecord", test_kind, NULL, NULL, &kinds[4]},
		{"arrow", test_kind, NULL, NULL, &kinds[5]},
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loader_order - loaders on files, a selection and a mixture, in each shuffle: ids and every byte of
 * every batch; stopped and gone on with other ranks and threads; states that belong
 * elsewhere; a token file of 2^41 bytes that is nowhere on the disk. Usage: test_loader_order [DEVICE].
 */
#include <sys/stat.h>

#include "loader/order.h"
#include "loader/state.h"
#include "loader_fixture.h"

#define EPOCHS 2u
#define SAMPLES 60u /* of an epoch, at the most */

static const uint64_t chosen[] = {3, 4, 30, 31, 32, 38, 5, 0};

/* What loaders are opened on; the first is the fixture's own. */
enum { FILES, SELECTION, MIXTURE, KINDS };

static void open_kinds(struct fixture *f, struct hr_dataset **kinds)
{
	static const double weights[] = {2, 1};
	struct hr_dataset *kids[2];

	*f = (struct fixture){.n_files = 4, .seq_len = 8, .dtype = HR_DTYPE_U16};
	memcpy(f->tokens, (const uint64_t[]){100, 33, 60, 130}, sizeof(f->tokens));
	fixture_open(f);
	assert_int_equal(fixture_samples(f), 12 + 4 + 7 + 16);
	kinds[FILES] = f->ds;
	expect_ok(hr_dataset_select(f->ds, chosen, 8, &kinds[SELECTION]));
	kids[0] = f->ds;
	kids[1] = kinds[SELECTION];
	expect_ok(hr_dataset_mix(kids, weights, 2, SAMPLES, &kinds[MIXTURE]));
}

static void close_kinds(struct fixture *f, struct hr_dataset **kinds)
{
	hr_dataset_close(kinds[SELECTION]);
	hr_dataset_close(kinds[MIXTURE]);
	f->ds = kinds[FILES];
	fixture_close(f);
}

static void check_rows(const struct fixture *f, const struct hr_batch *batch)
{
	uint8_t *image = malloc(batch->samples * 18);

	expect_ok(hr_buffer_copy_out(batch->buffer, batch->buffer_offset, image,
				     batch->samples * 18));
	for (uint32_t row = 0; row < batch->samples; row++) {
		struct hr_file *file;
		struct hr_range at;

		expect_ok(hr_dataset_locate(f->ds, batch->ids[row], 0, &file, &at, 1));
		for (uint32_t i = 0; i < 18; i++)
			assert_int_equal(image[row * 18 + i], test_pattern(at.offset + i));
	}
	free(image);
}

/* Take up to @steps batches of a rank; put ids where the global order has them. Return: batches. */
static uint64_t take(struct fixture *f, struct hr_loader_options o, const void *saved,
		     uint64_t steps, uint64_t *ids, void *save)
{
	struct hr_loader *loader = open_loader(f, o);
	uint64_t k;

	if (saved)
		expect_ok(hr_loader_restore(loader, saved, HR_LOADER_STATE_BYTES));
	for (k = 0; k < steps; k++) {
		const struct hr_batch *batch;
		int rc = hr_loader_next(loader, &batch);

		if (rc == -HR_E_END)
			break;
		expect_ok(rc);
		memcpy(ids + (k * o.dp_world_size + o.dp_rank) * o.batch_size, batch->ids,
		       o.batch_size * sizeof(*ids));
		check_rows(f, batch);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	if (save)
		assert_int_equal(hr_loader_state(loader, save, HR_LOADER_STATE_BYTES),
				 HR_LOADER_STATE_BYTES);
	hr_loader_close(loader);
	return k;
}

/* The order that the plan tells, which has tests of its own. Return: samples of an epoch. */
static uint64_t told_order(const struct hr_dataset *ds, struct hr_loader_options o, uint64_t *ids)
{
	struct hr__order_plan *plan = NULL;
	struct hr__order *order;
	uint64_t n;

	expect_ok(hr__order_plan_new(ds, &o, &plan));
	order = hr__order_new(plan);
	n = hr__order_plan_samples(plan);
	assert_true(n <= SAMPLES);
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		hr__order_begin(order, epoch);
		hr__order_run(order, 0, (uint32_t)n, ids + epoch * n);
	}
	hr__order_free(order);
	hr__order_plan_free(plan);
	return n;
}

/* Stop after @k steps of four, go on with steps of six; what is left of an epoch then is dropped. */
static void go_on(struct fixture *f, struct hr_loader_options o, const uint64_t *order, uint64_t n,
		  uint64_t k, const void *saved)
{
	uint64_t got[EPOCHS * SAMPLES], per_epoch = n / 4, row = 0, steps = 0;
	uint64_t epoch = k / per_epoch, position = k % per_epoch * 4;

	o.batch_size = 3;
	o.dp_world_size = 2;
	o.threads = (uint32_t)(k % 3);
	for (o.dp_rank = 0; o.dp_rank < 2; o.dp_rank++)
		steps = take(f, o, saved, UINT64_MAX, got, NULL);
	for (; epoch < EPOCHS; epoch++, position = 0) {
		for (; position + 6 <= n; position += 6, row += 6)
			assert_memory_equal(got + row, order + epoch * n + position,
					    6 * sizeof(*got));
	}
	assert_int_equal(row, steps * 6);
}

static void every_kind_and_shuffle(void **state)
{
	struct hr_dataset *kinds[KINDS];
	struct fixture f;

	open_kinds(&f, kinds);
	for (int k = 0; k < KINDS * 3; k++) {
		struct hr_loader_options o = {.batch_size = 4,
					      .dp_world_size = 1,
					      .seed = 9,
					      .shuffle = (enum hr_shuffle)(k % 3),
					      .window = k % 3 == HR_SHUFFLE_WINDOW ? 2 : 0,
					      .epochs = EPOCHS};
		uint64_t order[EPOCHS * SAMPLES], got[EPOCHS * SAMPLES], n, steps;
		unsigned char saved[HR_LOADER_STATE_BYTES];

		f.ds = kinds[k / 3];
		n = told_order(f.ds, o, order);
		steps = take(&f, o, NULL, UINT64_MAX, got, saved);
		assert_int_equal(steps, n / 4 * EPOCHS);
		for (uint64_t s = 0; s < steps; s++)
			assert_memory_equal(got + s * 4, order + s / (n / 4) * n + s % (n / 4) * 4,
					    4 * sizeof(*got));
		/* Each step with some kind; test_resume takes each with every kind. */
		for (uint64_t s = (uint64_t)k; s <= steps; s += KINDS * 3) {
			assert_int_equal(take(&f, o, NULL, s, got, saved), s);
			go_on(&f, o, order, n, s, saved);
		}
	}
	close_kinds(&f, kinds);
}

static void refuse(struct fixture *f, struct hr_loader_options o, const void *saved,
		   const char *word)
{
	struct hr_loader *loader = open_loader(f, o);

	expect_code(hr_loader_restore(loader, saved, HR_LOADER_STATE_BYTES), HR_E_BAD_STATE, word);
	hr_loader_close(loader);
}

static void states_that_belong_elsewhere(void **state)
{
	static const uint64_t others[] = {3, 4, 30, 31, 32, 38, 5, 1};
	static const double weights[] = {1, 2};
	struct hr_loader_options full = {.batch_size = 2}, windows = full;
	struct hr_dataset *kinds[KINDS], *other;
	unsigned char saved[HR_LOADER_STATE_BYTES];
	uint64_t ids[8];
	struct fixture f;

	full.dp_world_size = windows.dp_world_size = 1;
	windows.shuffle = HR_SHUFFLE_WINDOW;
	open_kinds(&f, kinds);
	take(&f, windows, NULL, 2, ids, saved);
	windows.window = 16; /* is the default */
	assert_int_equal(take(&f, windows, saved, 1, ids, NULL), 1);
	windows.window = 15;
	refuse(&f, windows, saved, "windows of 16 shards, this loader has windows of 15");
	refuse(&f, full, saved, "shuffle window, this loader has full");
	f.ds = kinds[SELECTION];
	take(&f, full, NULL, 2, ids, saved);
	expect_ok(hr_dataset_select(kinds[FILES], others, 8, &other));
	f.ds = other;
	refuse(&f, full, saved, "fingerprint");
	hr_dataset_close(other);
	f.ds = kinds[MIXTURE];
	refuse(&f, full, saved, "8 samples");
	take(&f, full, NULL, 2, ids, saved);
	expect_ok(hr_dataset_mix(kinds, weights, 2, SAMPLES, &other));
	f.ds = other;
	refuse(&f, full, saved, "fingerprint");
	hr_dataset_close(other);
	close_kinds(&f, kinds);
}

static void refused_options(void **state)
{
	struct hr_loader_options o = {.batch_size = 2, .window = 4};
	struct hr_loader *loader = NULL;
	struct hr_dataset *kinds[KINDS];
	struct fixture f;

	open_kinds(&f, kinds);
	expect_code(hr_loader_open(f.ds, f.dev, &o, &loader), EINVAL, "window 4");
	o.shuffle = (enum hr_shuffle)3;
	expect_code(hr_loader_open(f.ds, f.dev, &o, &loader), EINVAL, "shuffle 3");
	assert_null(loader);
	close_kinds(&f, kinds);
}

/* 2^40 tokens, two in a sample; only the last few stand on the disk. */
static int make_sparse(struct fixture *f)
{
	static const uint16_t last[] = {11, 12, 13, 14};
	int fd, rc;

	f->dir = test_mkdir();
	f->paths[0] = test_file(f->dir, "sparse", 0);
	fd = open(f->paths[0], O_WRONLY | O_CLOEXEC);
	rc = ftruncate(fd, (off_t)1 << 41);
	if (rc == 0)
		assert_int_equal(pwrite(fd, last, 8, ((off_t)1 << 41) - 8), 8);
	close(fd);
	return rc;
}

/* From a record near the end of an epoch, which nobody has read up to there. */
static void check_sparse(struct fixture *f, struct hr_loader_options o)
{
	struct hr_loader *loader = open_loader(f, o);
	uint64_t n = f->ds->info.samples;
	struct hr__state at = {.fingerprint = f->ds->info.fingerprint,
			       .samples = n,
			       .seed = o.seed,
			       .shuffle = o.shuffle,
			       .window = o.window,
			       .position = n - 3};
	unsigned char record[HR_LOADER_STATE_BYTES];

	hr__state_encode(&at, record);
	expect_ok(hr_loader_restore(loader, record, sizeof(record)));
	for (uint64_t k = 0; k < 8; k++) {
		const struct hr_batch *batch = next_batch(loader);
		uint64_t id = batch->ids[0], first = (1ull << 40) - 4;
		uint16_t tokens[2];

		assert_true(id < n);
		assert_int_equal(batch->epoch, k >= 3);
		if (o.shuffle == HR_SHUFFLE_NONE)
			assert_int_equal(id, k < 3 ? n - 3 + k : k - 3);
		expect_ok(hr_buffer_copy_out(batch->buffer, batch->buffer_offset, tokens, 4));
		for (uint64_t i = 0; i < 2; i++)
			assert_int_equal(tokens[i], id + i < first ? 0 : 11 + id + i - first);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	hr_loader_close(loader);
}

static void two_to_the_fortieth(void **state)
{
	struct hr_dataset_options opts = {.format = "tokens", .seq_len = 1};
	struct fixture f = {.n_files = 1};

	if (make_sparse(&f) < 0) {
		print_message("skipped: no file of 2^41 bytes here: %s\n", strerror(errno));
		free(f.paths[0]);
		test_rmdir(f.dir);
		skip();
	}
	expect_ok(hr_device_open(device_name, &f.dev));
	expect_ok(hr_dataset_open((const char *const *)f.paths, 1, &opts, &f.ds));
	assert_int_equal(f.ds->info.samples, (1ull << 40) - 1);
	for (int shuffle = HR_SHUFFLE_FULL; shuffle <= HR_SHUFFLE_WINDOW; shuffle++) {
		struct hr_loader_options o = {.batch_size = 1,
					      .seed = 4,
					      .shuffle = (enum hr_shuffle)shuffle,
					      .window = shuffle == HR_SHUFFLE_WINDOW ? 1000 : 0};

		check_sparse(&f, o);
	}
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_and_shuffle),
		cmocka_unit_test(states_that_belong_elsewhere),
		cmocka_unit_test(refused_options),
		cmocka_unit_test(two_to_the_fortieth),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

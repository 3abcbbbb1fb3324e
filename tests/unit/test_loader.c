/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loader - what comes out: every byte of every batch against the pattern of the files, on the
 * device and with 0, 1 and 3 threads; the order for many ranks and batch sizes; stop and resume at
 * every step. Usage: test_loader [DEVICE].
 */
#include "loader_fixture.h"

#define SEED 20u

static void check_tensors(const struct fixture *f, struct hr_loader *loader,
			  const struct hr_batch *batch, enum hr_dtype out)
{
	const char *base = (const char *)hr_buffer_address(loader->buffer) + batch->buffer_offset;

	assert_int_equal(batch->n_tensors, 3);
	assert_string_equal(batch->tensors[0].name, "tokens");
	assert_string_equal(batch->tensors[1].name, "input_ids");
	assert_string_equal(batch->tensors[2].name, "labels");
	for (uint32_t i = 0; i < 3; i++) {
		const struct hr_tensor *t = &batch->tensors[i];

		assert_int_equal(t->dtype, out);
		assert_int_equal(t->ndim, 2);
		assert_int_equal(t->shape[0], batch->samples);
		assert_int_equal(t->shape[1], f->seq_len + (i == 0));
		assert_int_equal(t->stride[0], f->seq_len + 1);
		assert_int_equal(t->stride[1], 1);
		assert_ptr_equal(t->data, base + (i == 2 ? hr_dtype_size(out) : 0));
	}
	assert_int_equal(batch->buffer_offset % 4096, 0);
}

static void run_all(struct fixture *f, uint32_t threads, enum hr_dtype out)
{
	struct hr_loader_options o = {.batch_size = 5,
				      .out_dtype = out,
				      .seed = SEED,
				      .epochs = 2,
				      .threads = threads,
				      .slots = threads == 3 ? 7 : 0};
	struct hr_loader *loader = open_loader(f, o);
	uint64_t n = fixture_samples(f), *ids = malloc(n * sizeof(*ids));
	const struct hr_batch *batch;

	set_guards(loader);
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		epoch_order(f, SEED, epoch, ids);
		for (uint64_t step = 0; step < n / 5; step++) {
			batch = next_batch(loader);
			assert_int_equal(batch->epoch, epoch);
			assert_int_equal(batch->step, step);
			assert_int_equal(batch->samples, 5);
			assert_int_equal(batch->valid, 5);
			assert_int_equal(batch->last, step + 1 == n / 5);
			assert_memory_equal(batch->ids, ids + step * 5, 5 * sizeof(*ids));
			check_tensors(f, loader, batch, out ? out : f->dtype);
			check_batch(f, loader, batch, true);
			expect_ok(hr_loader_release(loader, batch, NULL));
		}
	}
	expect_code(hr_loader_next(loader, &batch), HR_E_END, "2 epochs");
	expect_code(hr_loader_next(loader, &batch), HR_E_END, "2 epochs");
	hr_loader_close(loader);
	free(ids);
}

static void every_byte(void **state)
{
	static const struct {
		enum hr_dtype in, out;
	} types[] = {{HR_DTYPE_U16, 0},
		     {HR_DTYPE_U16, HR_DTYPE_U16},
		     {HR_DTYPE_U16, HR_DTYPE_I32},
		     {HR_DTYPE_U16, HR_DTYPE_I64},
		     {HR_DTYPE_U32, 0},
		     {HR_DTYPE_U32, HR_DTYPE_I32},
		     {HR_DTYPE_U32, HR_DTYPE_I64}};
	static const uint32_t threads[] = {0, 1, 3};

	for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
		for (uint32_t n_files = 1; n_files <= 4; n_files += 3) {
			struct fixture f = {.n_files = n_files,
					    .seq_len = 37,
					    .dtype = types[k].in,
					    .tokens = {4001, 38, 777, 2222}};

			fixture_open(&f);
			for (size_t i = 0; i < 3; i++)
				run_all(&f, threads[i], types[k].out);
			fixture_close(&f);
		}
	}
}

/* Rows longer than a request of the engine, at odd places. */
static void long_rows(void **state)
{
	struct fixture f = {
		.n_files = 1, .seq_len = 99999, .dtype = HR_DTYPE_U16, .tokens = {1000001}};
	struct hr_loader_options o = {.batch_size = 3,
				      .out_dtype = HR_DTYPE_I64,
				      .threads = 2,
				      .epochs = 1,
				      .engine = {.request_bytes = 64 << 10}};
	struct hr_loader *loader;

	fixture_open(&f);
	loader = open_loader(&f, o);
	set_guards(loader);
	for (int i = 0; i < 3; i++) {
		const struct hr_batch *batch = next_batch(loader);

		check_batch(&f, loader, batch, true);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	hr_loader_close(loader);
	fixture_close(&f);
}

/* Take @steps batches of one rank and write their ids where the global order has them. */
static void collect(struct fixture *f, struct hr_loader_options o, const void *saved,
		    uint64_t steps, uint64_t *ids, void *save)
{
	struct hr_loader *loader = open_loader(f, o);
	uint64_t world = o.dp_world_size, b = o.batch_size;

	if (saved)
		expect_ok(hr_loader_restore(loader, saved, HR_LOADER_STATE_BYTES));
	for (uint64_t k = 0; k < steps; k++) {
		const struct hr_batch *batch = next_batch(loader);

		memcpy(ids + (k * world + o.dp_rank) * b, batch->ids, b * sizeof(*ids));
		/* whatever the steps before a resume were: the last one says so, and no other */
		if (!save)
			assert_int_equal(batch->last, k + 1 == steps);
		check_batch(f, loader, batch, false);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	if (save)
		assert_int_equal(hr_loader_state(loader, save, HR_LOADER_STATE_BYTES),
				 HR_LOADER_STATE_BYTES);
	hr_loader_close(loader);
}

static void same_order_for_all_ranks(void **state)
{
	static const uint32_t worlds[] = {1, 2, 3, 8}, batches[] = {1, 2, 5};
	struct fixture f = {
		.n_files = 2, .seq_len = 8, .dtype = HR_DTYPE_U16, .tokens = {500, 200}};
	uint64_t n, *want, *got;

	fixture_open(&f);
	n = fixture_samples(&f);
	want = malloc(n * sizeof(*want));
	got = malloc(n * sizeof(*got));
	epoch_order(&f, SEED, 0, want);
	for (size_t w = 0; w < 4; w++) {
		for (size_t b = 0; b < 3; b++) {
			struct hr_loader_options o = {
				.batch_size = batches[b], .seed = SEED, .dp_world_size = worlds[w]};
			uint64_t steps = n / (worlds[w] * batches[b]);

			memset(got, 0xff, n * sizeof(*got));
			for (o.dp_rank = 0; o.dp_rank < worlds[w]; o.dp_rank++)
				collect(&f, o, NULL, steps, got, NULL);
			assert_memory_equal(got, want,
					    steps * worlds[w] * batches[b] * sizeof(*got));
		}
	}
	free(want);
	free(got);
	fixture_close(&f);
}

/* Stop after @k steps of one shape, go on in another: what follows is the rest of the order. */
static void resume_once(struct fixture *f, const uint64_t *want, uint64_t n, uint64_t k,
			uint32_t world, uint32_t batch, uint32_t threads)
{
	struct hr_loader_options first = {
		.batch_size = 3, .dp_world_size = 1, .seed = SEED, .threads = threads};
	struct hr_loader_options second = {
		.batch_size = batch, .dp_world_size = world, .seed = SEED, .threads = threads};
	uint64_t step = world * batch, done = k * 3, epoch = 0, steps;
	uint64_t *got = malloc(2 * n * sizeof(*got));
	unsigned char saved[HR_LOADER_STATE_BYTES];

	collect(f, first, NULL, k, got, saved);
	if (n - done < 3 || n - done < step) {
		epoch = 1;
		done = 0;
	}
	steps = (n - done) / step;
	for (second.dp_rank = 0; second.dp_rank < world; second.dp_rank++)
		collect(f, second, saved, steps, got, NULL);
	assert_memory_equal(got, want + epoch * n + done, steps * step * sizeof(*got));
	free(got);
}

static void resume_at_every_step(void **state)
{
	static const struct {
		uint32_t world, batch;
	} shapes[] = {{1, 3}, {1, 1}, {2, 2}, {3, 1}, {4, 3}};
	struct fixture f = {.n_files = 2, .seq_len = 8, .dtype = HR_DTYPE_U16, .tokens = {100, 90}};
	uint64_t n, *want;

	fixture_open(&f);
	n = fixture_samples(&f);
	assert_true(n > 20);
	want = malloc(2 * n * sizeof(*want));
	epoch_order(&f, SEED, 0, want);
	epoch_order(&f, SEED, 1, want + n);
	for (uint64_t k = 0; k <= n / 3; k++) {
		for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
			resume_once(&f, want, n, k, shapes[s].world, shapes[s].batch, 0);
		resume_once(&f, want, n, k, 2, 2, 2);
	}
	free(want);
	fixture_close(&f);
}

/* The state is about what was handed out, not about what was read ahead. */
static void state_ignores_prefetch(void **state)
{
	struct fixture f = {.n_files = 1, .seq_len = 8, .dtype = HR_DTYPE_U16, .tokens = {999}};
	struct hr_loader_options o = {.batch_size = 2, .seed = SEED, .threads = 2, .slots = 16};
	unsigned char before[HR_LOADER_STATE_BYTES], after[HR_LOADER_STATE_BYTES + 1];
	struct hr_loader *loader;
	const struct hr_batch *a, *b;

	fixture_open(&f);
	loader = open_loader(&f, o);
	hr_loader_state(loader, before, sizeof(before));
	a = next_batch(loader);
	b = next_batch(loader);
	assert_int_equal(hr_loader_state(loader, after, sizeof(after)), HR_LOADER_STATE_BYTES);
	assert_memory_not_equal(before, after, sizeof(before));
	assert_int_equal(after[48], 4); /* position: two batches of two */
	expect_ok(hr_loader_release(loader, b, NULL));
	expect_ok(hr_loader_release(loader, a, NULL));
	hr_loader_state(loader, before, sizeof(before));
	assert_memory_equal(before, after, sizeof(before));
	expect_code(hr_loader_state(loader, after, 95), ENOSPC, "96");
	hr_loader_close(loader);
	fixture_close(&f);
}

static void last_step_is_padded(void **state)
{
	struct fixture f = {.n_files = 1, .seq_len = 8, .dtype = HR_DTYPE_U16, .tokens = {81}};
	uint64_t order[10] = {0};

	fixture_open(&f);
	assert_int_equal(fixture_samples(&f), 10);
	epoch_order(&f, SEED, 0, order);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct hr_loader_options o = {.batch_size = 4,
					      .seed = SEED,
					      .epochs = 1,
					      .last = HR_LAST_PAD,
					      .dp_rank = rank,
					      .dp_world_size = 2};
		struct hr_loader *loader = open_loader(&f, o);
		const struct hr_batch *batch;

		for (uint64_t step = 0; step < 2; step++) {
			uint64_t first = step * 8 + rank * 4;

			batch = next_batch(loader);
			for (uint64_t i = 0; i < 4; i++)
				assert_int_equal(batch->ids[i], order[(first + i) % 10]);
			assert_int_equal(batch->valid, step == 0 ? 4 : rank == 0 ? 2 : 0);
			assert_int_equal(batch->last, step == 1);
			check_batch(&f, loader, batch, false);
			expect_ok(hr_loader_release(loader, batch, NULL));
		}
		expect_code(hr_loader_next(loader, &batch), HR_E_END, "ended");
		hr_loader_close(loader);
	}
	fixture_close(&f);
}

static void file_order(void **state)
{
	struct fixture f = {.n_files = 2, .seq_len = 8, .dtype = HR_DTYPE_U32, .tokens = {81, 81}};
	struct hr_loader_options o = {.batch_size = 3, .shuffle = HR_SHUFFLE_NONE, .threads = 1};
	struct hr_loader *loader;

	fixture_open(&f);
	loader = open_loader(&f, o);
	for (uint64_t k = 0; k < 30; k++) {
		const struct hr_batch *batch = next_batch(loader);

		for (uint64_t i = 0; i < 3; i++)
			assert_int_equal(batch->ids[i], k % 6 * 3 + i);
		assert_int_equal(batch->epoch, k / 6);
		check_batch(&f, loader, batch, false);
		expect_ok(hr_loader_release(loader, batch, NULL));
	}
	hr_loader_close(loader);
	fixture_close(&f);
}

static void numbers_about_it(void **state)
{
	struct fixture f = {
		.n_files = 2, .seq_len = 8, .dtype = HR_DTYPE_U16, .tokens = {500, 333}};
	struct hr_loader_info info;
	struct hr_loader_stats stats;

	fixture_open(&f);
	for (uint32_t threads = 0; threads < 3; threads++) {
		struct hr_loader_options o = {.batch_size = 4, .threads = threads, .epochs = 1};
		struct hr_loader *loader = open_loader(&f, o);
		uint64_t steps = fixture_samples(&f) / 4, bytes = 0;
		uint32_t each;

		assert_int_equal(hr_loader_info(loader, &info), 0);
		assert_int_equal(info.steps_per_epoch, steps);
		/* a device gets several small batches at once, a thread */
		each = strcmp(device_name, "host") == 0 ? 2 : 8;
		assert_int_equal(info.slots, threads ? 2 + each * threads : 4);
		assert_int_equal(info.threads, threads);
		assert_int_equal(info.batch_bytes, 4 * 9 * 2);
		assert_int_equal(info.ring_bytes, info.slots * 4096u);
		assert_non_null(info.queue.name);
		for (uint64_t k = 0; k < steps; k++)
			expect_ok(hr_loader_release(loader, next_batch(loader), NULL));
		assert_int_equal(hr_loader_stats(loader, &stats), 0);
		for (uint32_t p = 0; p < HR_PATH_MAX; p++)
			bytes += stats.io.bytes_by_path[p];
		assert_int_equal(stats.batches, steps);
		assert_int_equal(stats.ready, 0);
		assert_int_equal(bytes, steps * 4 * 18);
		hr_loader_close(loader);
	}
	fixture_close(&f);
}

/* Where one batch is enough for the drive it comes first and whole, and the threads copy for it. */
static void large_batches(void **state)
{
	struct fixture f = {.n_files = 1,
			    .seq_len = (512u << 10) - 1, /* a sample has a MiB */
			    .dtype = HR_DTYPE_U16,
			    .tokens = {33u << 19}};
	static const struct {
		uint32_t batch_size;
		enum hr_dtype out;
		uint32_t fillers; /* on the host */
	} cases[] = {{32, HR_DTYPE_U16, 1}, {31, HR_DTYPE_U16, 3}, {32, HR_DTYPE_I32, 3}};

	fixture_open(&f);
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct hr_loader_options o = {.batch_size = cases[k].batch_size,
					      .out_dtype = cases[k].out,
					      .threads = 3,
					      .slots = k ? 3 : 0,
					      .epochs = 1};
		struct hr_loader *loader = open_loader(&f, o);
		bool host = loader->dev->caps & HR__MEM_CAP_HOST_VISIBLE;
		const struct hr_batch *batch = next_batch(loader);

		assert_int_equal(loader->n_fillers, host ? cases[k].fillers : 3);
		if (k == 0) {
			assert_int_equal(loader->opts.slots, host ? 4 : 8);
			check_batch(&f, loader, batch, false);
		}
		expect_ok(hr_loader_release(loader, batch, NULL));
		hr_loader_close(loader);
	}
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(same_order_for_all_ranks),
		cmocka_unit_test(resume_at_every_step),
		cmocka_unit_test(state_ignores_prefetch),
		cmocka_unit_test(last_step_is_padded),
		cmocka_unit_test(file_order),
		cmocka_unit_test(numbers_about_it),
		cmocka_unit_test(large_batches),
	};

	if (argc > 1)
		device_name = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

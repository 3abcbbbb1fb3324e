/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_resume - runs that stop after every step and go on from the saved record on 1, 2, 3 and 8 ranks and
 * with other batch sizes: all ranks' samples together are the uninterrupted run's, position by position;
 * of each shuffle, of files, a selection and a mixture, dropping and padding. Without I/O: the order, the
 * schedule and the record, put together as a loader does it.
 */
#include "loader/schedule.h"
#include "loader/state.h"
#include "order_fixture.h"

#define EPOCHS 3u
#define ROWS_MAX 4096u

/* What all ranks together have had, step by step. */
struct run {
	uint64_t ids[ROWS_MAX];
	bool valid[ROWS_MAX];
	uint32_t n; /* rows */
};

struct shape {
	uint32_t world, batch;
};

static struct hr__state where(const struct orderly *o, const struct hr_loader_options *opts,
			      const struct hr__schedule *s, uint64_t seq)
{
	struct hr__state state = {.samples = hr__order_plan_samples(o->plan),
				  .seed = opts->seed,
				  .shuffle = opts->shuffle,
				  .window = hr__order_plan_window(o->plan)};

	hr__schedule_where(s, seq, &state.epoch, &state.position);
	return state;
}

/* One rank's part of @steps steps (fewer if the run ends before), as its fillers would read it. */
static uint32_t run_rank(struct orderly o, struct hr_loader_options opts, const void *saved,
			 uint32_t steps, struct run *run, void *save)
{
	uint64_t n = hr__order_plan_samples(o.plan);
	uint32_t rows = opts.batch_size * opts.dp_world_size, seq;
	struct hr__state state;
	struct hr__schedule s;

	hr__schedule_init(&s, n, &opts);
	if (saved) {
		struct hr__state own = where(&o, &opts, &s, 0);

		assert_int_equal(hr__state_decode(saved, HR_LOADER_STATE_BYTES, &state), 0);
		assert_int_equal(hr__state_match(&state, &own), 0);
		hr__schedule_start(&s, state.epoch, state.position);
	}
	for (seq = 0; seq < steps && seq < s.total; seq++) {
		struct hr__turn turn;

		hr__schedule_at(&s, seq, &turn);
		hr__order_begin(o.order, turn.epoch);
		for (uint32_t i = 0; i < opts.batch_size; i++) {
			uint32_t row = seq * rows + opts.dp_rank * opts.batch_size + i;

			assert_true(row < ROWS_MAX);
			hr__order_run(o.order, (turn.first + i) % n, 1, &run->ids[row]);
			run->valid[row] = i < turn.valid;
		}
	}
	state = where(&o, &opts, &s, seq);
	if (save)
		hr__state_encode(&state, save);
	return seq;
}

/* Return: steps taken. */
static uint32_t run_all(struct orderly o, struct hr_loader_options opts, struct shape shape,
			const void *saved, uint32_t steps, struct run *run, void *save)
{
	uint32_t done = 0;

	opts.batch_size = shape.batch;
	opts.dp_world_size = shape.world;
	for (opts.dp_rank = 0; opts.dp_rank < shape.world; opts.dp_rank++)
		done = run_rank(o, opts, saved, steps, run, save);
	run->n = done * shape.batch * shape.world;
	return done;
}

/*
 * What a run from (epoch, position) on must read, told from the uninterrupted order of all positions,
 * @order[epoch * n + position]: whole steps, then what is left is dropped or padded from the epoch's
 * beginning; epochs after that start at 0.
 */
static void expect_rest(const uint64_t *order, uint64_t n, uint64_t epoch, uint64_t position,
			uint32_t step, enum hr_last last, const struct run *run)
{
	uint32_t row = 0;

	for (; epoch < EPOCHS; epoch++, position = 0) {
		for (; position + step <= n || (last == HR_LAST_PAD && position < n);
		     position += step) {
			for (uint32_t i = 0; i < step; i++, row++) {
				uint64_t at = position + i;

				assert_int_equal(run->ids[row], order[epoch * n + at % n]);
				assert_int_equal(run->valid[row], at < n);
			}
		}
	}
	assert_int_equal(row, run->n);
}

static const struct shape shapes[] = {{1, 1}, {2, 1}, {3, 1}, {8, 1}, {1, 6},
				      {2, 3}, {3, 2}, {2, 2}, {1, 5}, {8, 2}};

static void stop_and_go_on(struct orderly o, struct hr_loader_options opts, const uint64_t *order,
			   uint64_t n, struct shape first)
{
	static struct run whole, head, tail;
	unsigned char saved[HR_LOADER_STATE_BYTES];
	uint32_t step = first.world * first.batch;
	uint32_t steps = run_all(o, opts, first, NULL, UINT32_MAX, &whole, NULL);

	expect_rest(order, n, 0, 0, step, opts.last, &whole);
	for (uint32_t k = 0; k <= steps; k++) {
		struct hr__state state;

		assert_int_equal(run_all(o, opts, first, NULL, k, &head, saved), k);
		assert_memory_equal(head.ids, whole.ids, head.n * sizeof(head.ids[0]));
		assert_int_equal(hr__state_decode(saved, sizeof(saved), &state), 0);
		for (size_t s = 0; s < HR_ARRAY_LEN(shapes); s++) {
			uint32_t other = shapes[s].world * shapes[s].batch;

			run_all(o, opts, shapes[s], saved, UINT32_MAX, &tail, NULL);
			expect_rest(order, n, state.epoch, state.position, other, opts.last, &tail);
			if (other != step)
				continue;
			/* steps of the same size: as if it had never stopped, padding and all */
			assert_int_equal(tail.n, whole.n - head.n);
			assert_memory_equal(tail.ids, whole.ids + head.n,
					    tail.n * sizeof(tail.ids[0]));
			assert_memory_equal(tail.valid, whole.valid + head.n, tail.n);
		}
	}
}

static void check(const struct hr_dataset *ds)
{
	static const struct shape firsts[] = {{1, 4}, {2, 3}, {3, 5}};

	for (int k = 0; k < 6; k++) {
		struct hr_loader_options opts = {.seed = 77,
						 .shuffle = (enum hr_shuffle)(k / 2),
						 .window = k / 2 == HR_SHUFFLE_WINDOW ? 2 : 0,
						 .last = (enum hr_last)(k % 2),
						 .epochs = EPOCHS};
		struct orderly o = orderly_open(ds, opts);
		uint64_t n = hr__order_plan_samples(o.plan), *order;

		order = malloc(EPOCHS * n * sizeof(*order));
		for (uint64_t i = 0; i < EPOCHS * n; i++)
			order[i] = orderly_at(o, i / n, i % n);
		for (size_t f = 0; f < HR_ARRAY_LEN(firsts); f++)
			stop_and_go_on(o, opts, order, n, firsts[f]);
		free(order);
		orderly_close(o);
	}
}

static const uint64_t counts[] = {7, 1, 12, 5, 9};

static void files(void **state)
{
	struct hr_dataset *ds = fake_files(counts, 5);

	check(ds);
	fake_free(ds);
}

static void selection(void **state)
{
	static const uint64_t ids[] = {33, 0, 5, 6, 6, 7,  12, 30, 31,
				       32, 1, 2, 3, 4, 20, 21, 22, 23};
	struct hr_dataset *ds = fake_selection(fake_files(counts, 5), ids, HR_ARRAY_LEN(ids));

	check(ds);
	fake_free(ds);
}

static void mixture(void **state)
{
	static const double weights[] = {5, 1, 2};
	static const uint64_t ids[] = {3, 2, 1};
	struct hr_dataset *kids[] = {fake_files(counts, 5), fake_file(4),
				     fake_selection(fake_file(9), ids, 3)};
	struct hr_dataset *ds = fake_mixture(kids, weights, 3, 50);

	check(ds);
	fake_free(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files),
		cmocka_unit_test(selection),
		cmocka_unit_test(mixture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

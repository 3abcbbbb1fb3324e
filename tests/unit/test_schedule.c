/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_schedule - the arithmetic of steps against a loop that walks the epochs one step at a time, also
 * from positions that are no multiple of a step; and a run that goes on with other ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"
#include "loader/schedule.h"

/* The schedule as one would write it without thinking of random access. */
struct walk {
	uint64_t epoch, position;
};

static bool walk_next(struct walk *w, const struct hr_loader_options *o, uint64_t samples,
		      struct walk *at)
{
	uint64_t step = (uint64_t)o->batch_size * o->dp_world_size;
	bool over = o->last == HR_LAST_PAD ? w->position >= samples : w->position + step > samples;

	if (over) {
		w->epoch++;
		w->position = 0;
	}
	if (o->epochs && w->epoch >= o->epochs)
		return false;
	*at = *w;
	w->position += step;
	return true;
}

static void expect_walk(const struct hr_loader_options *o, uint64_t samples, uint64_t epoch,
			uint64_t position)
{
	struct walk w = {epoch, position}, at;
	struct hr__schedule s;
	uint64_t seq = 0;

	hr__schedule_init(&s, samples, o);
	hr__schedule_start(&s, epoch, position);
	while (walk_next(&w, o, samples, &at)) {
		struct hr__turn turn;
		uint32_t valid = 0;

		assert_true(seq < s.total);
		hr__schedule_at(&s, seq++, &turn);
		assert_int_equal(turn.epoch, at.epoch);
		assert_int_equal(turn.position, at.position);
		assert_int_equal(turn.first, at.position + (uint64_t)o->dp_rank * o->batch_size);
		for (uint32_t i = 0; i < o->batch_size; i++)
			valid += turn.first + i < samples;
		assert_int_equal(turn.valid, valid);
	}
	assert_int_equal(seq, s.total);
}

static void schedule_equals_a_walk(void **state)
{
	for (uint32_t world = 1; world <= 3; world++) {
		for (uint32_t batch = 1; batch <= 4; batch++) {
			for (uint64_t samples = world * batch; samples < 40; samples++) {
				struct hr_loader_options o = {.batch_size = batch,
							      .dp_world_size = world,
							      .dp_rank = world - 1,
							      .last = samples % 2,
							      .epochs = 3};

				for (uint64_t p = 0; p <= samples; p++)
					expect_walk(&o, samples, p % 4, p);
			}
		}
	}
}

/* PAD may be asked for fewer samples than a step: the last ranks get padding only. */
static void padding_of_a_tiny_epoch(void **state)
{
	struct hr_loader_options o = {.batch_size = 4,
				      .dp_world_size = 3,
				      .dp_rank = 2,
				      .last = HR_LAST_PAD,
				      .epochs = 2};
	struct hr__schedule s;
	struct hr__turn turn;

	hr__schedule_init(&s, 3, &o);
	assert_int_equal(s.steps_per_epoch, 1);
	assert_int_equal(s.total, 2);
	hr__schedule_at(&s, 1, &turn);
	assert_int_equal(turn.epoch, 1);
	assert_int_equal(turn.valid, 0);
}

static void endless_and_enormous(void **state)
{
	struct hr_loader_options o = {.batch_size = 1, .dp_world_size = 1};
	struct hr__schedule s;
	struct hr__turn turn;

	hr__schedule_init(&s, 1ull << 62, &o);
	assert_true(s.total == UINT64_MAX);
	hr__schedule_at(&s, (1ull << 63) + 5, &turn);
	assert_int_equal(turn.epoch, 2);
	assert_int_equal(turn.step, 5);
	o.epochs = UINT64_MAX;
	hr__schedule_init(&s, 1ull << 62, &o);
	assert_true(s.total == UINT64_MAX);
}

/*
 * Stop after any number of batches, go on with other ranks and batch sizes: the epoch's positions
 * follow one another without gap or overlap.
 */
static void resume_with_other_ranks(void **state)
{
	static const struct {
		uint32_t batch, world;
	} shapes[] = {{1, 1}, {3, 1}, {2, 2}, {1, 3}, {1, 8}, {5, 2}};
	enum { SAMPLES = 61 };

	for (size_t a = 0; a < HR_ARRAY_LEN(shapes); a++) {
		struct hr_loader_options from = {.batch_size = shapes[a].batch,
						 .dp_world_size = shapes[a].world};
		struct hr__schedule s;

		hr__schedule_init(&s, SAMPLES, &from);
		for (uint64_t k = 0; k <= s.steps_per_epoch; k++) {
			uint64_t epoch, position;

			hr__schedule_where(&s, k, &epoch, &position);
			assert_int_equal(epoch, k == s.steps_per_epoch);
			assert_int_equal(position, epoch ? 0 : k * s.step_samples);
			for (size_t b = 0; b < HR_ARRAY_LEN(shapes); b++) {
				struct hr_loader_options to = {.batch_size = shapes[b].batch,
							       .dp_world_size = shapes[b].world};
				struct hr__schedule t;
				struct hr__turn turn;

				hr__schedule_init(&t, SAMPLES, &to);
				hr__schedule_start(&t, epoch, position);
				hr__schedule_at(&t, 0, &turn);
				if (position + t.step_samples > SAMPLES) {
					assert_int_equal(turn.epoch, epoch + 1);
					assert_int_equal(turn.position, 0);
				} else {
					assert_int_equal(turn.epoch, epoch);
					assert_int_equal(turn.position, position);
				}
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedule_equals_a_walk),
		cmocka_unit_test(padding_of_a_tiny_epoch),
		cmocka_unit_test(endless_and_enormous),
		cmocka_unit_test(resume_with_other_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* loader/schedule.c - the arithmetic of steps; pure, see schedule.h. */
#include "loader/schedule.h"
#include "base/util.h"

/* Steps that an epoch still has from @position on. */
static uint64_t steps_from(const struct hr__schedule *s, uint64_t position)
{
	uint64_t left = position < s->samples ? s->samples - position : 0;
	uint64_t steps = left / s->step_samples;

	if (s->last == HR_LAST_PAD && left % s->step_samples)
		steps++;
	return steps;
}

void hr__schedule_init(struct hr__schedule *s, uint64_t samples,
		       const struct hr_loader_options *opts)
{
	*s = (struct hr__schedule){
		.samples = samples,
		.step_samples = (uint64_t)opts->batch_size * opts->dp_world_size,
		.rank_first = (uint64_t)opts->batch_size * opts->dp_rank,
		.batch_size = opts->batch_size,
		.last = opts->last,
		.epochs = opts->epochs,
	};
	s->steps_per_epoch = steps_from(s, 0);
	hr__schedule_start(s, 0, 0);
}

void hr__schedule_start(struct hr__schedule *s, uint64_t epoch, uint64_t position)
{
	uint64_t later;

	s->start_epoch = epoch;
	s->start_position = position;
	s->start_steps = steps_from(s, position);
	if (s->epochs == 0) {
		s->total = UINT64_MAX;
	} else if (epoch >= s->epochs) {
		s->total = 0;
	} else if (hr__mul_overflows(s->epochs - epoch - 1, s->steps_per_epoch, &later) ||
		   hr__add_overflows(later, s->start_steps, &s->total)) {
		s->total = UINT64_MAX;
	}
}

void hr__schedule_at(const struct hr__schedule *s, uint64_t seq, struct hr__turn *turn)
{
	uint64_t left;

	turn->epoch = s->start_epoch;
	turn->position = s->start_position;
	if (seq < s->start_steps) {
		turn->position += seq * s->step_samples;
	} else {
		uint64_t later = seq - s->start_steps;

		turn->epoch += 1 + later / s->steps_per_epoch;
		turn->position = later % s->steps_per_epoch * s->step_samples;
	}
	turn->step = turn->position / s->step_samples;
	turn->first = turn->position + s->rank_first;
	left = turn->first < s->samples ? s->samples - turn->first : 0;
	turn->valid = (uint32_t)hr__min(left, s->batch_size);
}

void hr__schedule_where(const struct hr__schedule *s, uint64_t seq, uint64_t *epoch,
			uint64_t *position)
{
	struct hr__turn turn;

	/* The batch that would come next says it, also behind the last one. */
	hr__schedule_at(s, seq, &turn);
	*epoch = turn.epoch;
	*position = turn.position;
}

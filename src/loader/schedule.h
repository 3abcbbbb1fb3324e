/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/schedule.h - which positions of which epoch each batch of a rank takes; pure arithmetic.
 *
 * A run that was restored at a position goes on from there in steps of its own size, whatever the size
 * of the steps before: position follows position. What of the epoch does not fill a last step is left
 * out or padded as always, so another size of steps leaves out other positions, each fewer than a step's;
 * the next epoch begins at its position 0. A run that goes on with the same size of steps leaves out the
 * same ones as if it had never stopped.
 */
#ifndef HR_LOADER_SCHEDULE_H
#define HR_LOADER_SCHEDULE_H

#include <stdint.h>

#include <headrace/loader.h>

/* How all batches of a run follow from numbers alone. */
struct hr__schedule {
	uint64_t samples;
	uint64_t step_samples; /* B * W: positions that a step of all ranks takes */
	uint64_t rank_first;   /* of this rank within a step */
	uint32_t batch_size;
	enum hr_last last;
	uint64_t epochs;          /* 0 = endless */
	uint64_t steps_per_epoch; /* of an epoch that begins at its start */
	uint64_t start_epoch;     /* where sequence number 0 is */
	uint64_t start_position;
	uint64_t start_steps; /* that are left in the first epoch */
	uint64_t total;       /* batches in all; UINT64_MAX if endless */
};

/* One batch of this rank. */
struct hr__turn {
	uint64_t epoch;
	uint64_t step;     /* within the epoch */
	uint64_t position; /* of the step's first sample, global, within the epoch */
	uint64_t first;    /* of this rank's first sample */
	uint32_t valid;    /* rows that are not padding */
};

/* @opts: complete and checked. Sets the start to epoch 0, position 0. */
void hr__schedule_init(struct hr__schedule *s, uint64_t samples,
		       const struct hr_loader_options *opts);

/* Start elsewhere; where the epoch has no step left, number 0 is the first of the next epoch. */
void hr__schedule_start(struct hr__schedule *s, uint64_t epoch, uint64_t position);

/* The batch with number @seq < total. */
void hr__schedule_at(const struct hr__schedule *s, uint64_t seq, struct hr__turn *turn);

/* Where a run stands that has handed out @seq batches: what a saved state says. */
void hr__schedule_where(const struct hr__schedule *s, uint64_t seq, uint64_t *epoch,
			uint64_t *position);

#endif

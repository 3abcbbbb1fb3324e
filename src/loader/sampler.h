/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/sampler.h - which sample stands at which position, and which positions a batch takes.
 *
 * Pure arithmetic on numbers: knows no files, no memory, no clock. Results are promises: a saved
 * state of one version must mean the same samples in the next.
 */
#ifndef HR_LOADER_SAMPLER_H
#define HR_LOADER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/loader.h>

#define HR__ORDER_ROUNDS 8u
#define HR__ORDER_TABLE 256u

/* The order of one epoch: a bijection of [0, n) onto itself. */
struct hr__order {
	uint64_t n;
	enum hr_shuffle shuffle;
	uint32_t low_bits; /* of the network's two halves */
	uint64_t low_mask, high_mask;
	uint64_t keys[HR__ORDER_ROUNDS];
	uint8_t table[HR__ORDER_TABLE]; /* n <= HR__ORDER_TABLE: the permutation itself */
};

/* @n: 1 .. 2^63. Costs a microsecond at most; the order needs no other memory. */
void hr__order_init(struct hr__order *order, uint64_t n, enum hr_shuffle shuffle, uint64_t seed,
		    uint64_t epoch);

/* The samples at @first .. @first + @n - 1 < order->n, into @out. */
void hr__order_run(const struct hr__order *order, uint64_t first, uint32_t n, uint64_t *out);

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

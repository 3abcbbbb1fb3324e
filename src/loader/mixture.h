/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/mixture.h - which dataset of a mixture each position belongs to; knows weights, no datasets.
 *
 * Positions come in blocks of 65536, of which kid k has shares[k]. A pattern, one for all blocks, spreads
 * the kids evenly over a block. A block is 256 *stripes* of 256 positions, and each stripe has its part of
 * the pattern in an order of its own (by key). So the shares are exact in every block and nearly so in
 * every stripe; the n-th position of a kid is its rank n, so that ranks grow with positions.
 */
#ifndef HR_LOADER_MIXTURE_H
#define HR_LOADER_MIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#define HR__MIX_BLOCK 65536u
#define HR__MIX_STRIPE 256u
#define HR__MIX_KIDS 1024u /* most */

/* Immutable. */
struct hr__mixture {
	uint32_t n;
	uint32_t shares[HR__MIX_KIDS];
	uint16_t kid[HR__MIX_BLOCK];
	uint16_t rank[HR__MIX_BLOCK]; /* in the block, among the positions of the same kid */
};

/* @weights: @n <= HR__MIX_KIDS of them, positive and finite. */
void hr__mixture_init(struct hr__mixture *mix, const double *weights, uint32_t n);

/* The positions of one stripe. */
struct hr__stripe {
	uint16_t kid[HR__MIX_STRIPE];
	uint16_t rank[HR__MIX_STRIPE]; /* in the block */
};

/*
 * hr__mixture_stripe() - stripe @number of a block, put in order by @key; @in_order: left as the pattern is.
 * Costs a few microseconds.
 */
void hr__mixture_stripe(const struct hr__mixture *mix, uint32_t number, bool in_order, uint64_t key,
			struct hr__stripe *out);

#endif

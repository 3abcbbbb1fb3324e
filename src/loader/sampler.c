/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/sampler.c - the keyed permutation and the arithmetic of steps; pure, see sampler.h.
 *
 * The permutation is a Feistel network over the smallest power of two 2^b >= n. Its halves differ by
 * one bit when b is odd, and the rounds change them in turn, so the network is a bijection for every
 * b. Results that fall outside [0, n) go through the network again ("cycle walking") until they fall
 * inside; as a bijection of 2^b < 2n values it needs fewer than two passes on average. Each round
 * mixes one half and a 64-bit key with a full-avalanche hash; eight rounds keep every statistic that
 * the tests look at at the level of chance. It is no cipher and need not be one.
 *
 * Small halves have too few round functions to reach all permutations evenly, so up to 256 samples
 * are shuffled outright (Fisher-Yates): every permutation is then equally likely.
 */
#include <assert.h>

#include "base/util.h"
#include "loader/sampler.h"

#define LANES 8u
#define GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio, odd: the usual Weyl step */

/* The finaliser known as "variant 13" of David Stafford: two multiplications, full avalanche. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* The k-th key of (seed, epoch); two steps, so that (1, 0) and (0, 1) have nothing in common. */
static uint64_t order_key(uint64_t base, uint64_t k)
{
	return mix(base + (k + 1) * GOLDEN);
}

static uint64_t order_base(uint64_t seed, uint64_t epoch)
{
	return mix(mix(seed + GOLDEN) ^ (epoch * GOLDEN + 0x632be59bd9b4e019ull));
}

/* An even draw from [0, bound): the unfair rest of the 2^64 values is drawn again. */
static uint64_t draw_below(uint64_t base, uint64_t *counter, uint64_t bound)
{
	uint64_t unfair = (0 - bound) % bound; /* 2^64 mod bound */
	uint64_t x;

	do {
		x = order_key(base, (*counter)++);
	} while (x < unfair);
	return x % bound;
}

static void shuffle_table(struct hr__order *order, uint64_t base)
{
	uint64_t counter = 0;

	for (uint32_t i = 0; i < order->n; i++)
		order->table[i] = (uint8_t)i;
	for (uint32_t i = (uint32_t)order->n - 1; i > 0; i--) {
		uint32_t j = (uint32_t)draw_below(base, &counter, i + 1u);
		uint8_t kept = order->table[i];

		order->table[i] = order->table[j];
		order->table[j] = kept;
	}
}

void hr__order_init(struct hr__order *order, uint64_t n, enum hr_shuffle shuffle, uint64_t seed,
		    uint64_t epoch)
{
	uint64_t base = order_base(seed, epoch);
	uint32_t bits;

	assert(n >= 1 && n <= 1ull << 63);
	order->n = n;
	order->shuffle = shuffle;
	if (shuffle == HR_SHUFFLE_NONE)
		return;
	if (n <= HR__ORDER_TABLE) {
		shuffle_table(order, base);
		return;
	}
	bits = 64u - (uint32_t)__builtin_clzll(n - 1);
	order->low_bits = bits / 2;
	order->low_mask = (1ull << order->low_bits) - 1;
	order->high_mask = (1ull << (bits - order->low_bits)) - 1;
	for (uint32_t k = 0; k < HR__ORDER_ROUNDS; k++)
		order->keys[k] = order_key(base, k);
}

static uint64_t permute(const struct hr__order *order, uint64_t x)
{
	uint64_t low = x & order->low_mask;
	uint64_t high = x >> order->low_bits;

	for (uint32_t k = 0; k < HR__ORDER_ROUNDS; k += 2) {
		low ^= mix(high ^ order->keys[k]) & order->low_mask;
		high ^= mix(low ^ order->keys[k + 1]) & order->high_mask;
	}
	return high << order->low_bits | low;
}

static uint64_t order_at(const struct hr__order *order, uint64_t position)
{
	uint64_t x = position;

	assert(position < order->n);
	if (order->shuffle == HR_SHUFFLE_NONE)
		return position;
	if (order->n <= HR__ORDER_TABLE)
		return order->table[position];
	/* Ends: the walk follows a cycle that contains @position itself, which lies inside. */
	do {
		x = permute(order, x);
	} while (x >= order->n);
	return x;
}

/* permute() for several at once: each round is a chain of multiplications, and chains overlap. */
static void permute_lanes(const struct hr__order *order, uint64_t *x)
{
	uint64_t low[LANES], high[LANES];

	for (uint32_t i = 0; i < LANES; i++) {
		low[i] = x[i] & order->low_mask;
		high[i] = x[i] >> order->low_bits;
	}
	for (uint32_t k = 0; k < HR__ORDER_ROUNDS; k += 2) {
		for (uint32_t i = 0; i < LANES; i++)
			low[i] ^= mix(high[i] ^ order->keys[k]) & order->low_mask;
		for (uint32_t i = 0; i < LANES; i++)
			high[i] ^= mix(low[i] ^ order->keys[k + 1]) & order->high_mask;
	}
	for (uint32_t i = 0; i < LANES; i++)
		x[i] = high[i] << order->low_bits | low[i];
}

void hr__order_run(const struct hr__order *order, uint64_t first, uint32_t n, uint64_t *out)
{
	uint32_t i = 0;

	assert(n <= order->n && first <= order->n - n);
	if (order->shuffle != HR_SHUFFLE_NONE && order->n > HR__ORDER_TABLE) {
		for (; i + LANES <= n; i += LANES) {
			for (uint32_t k = 0; k < LANES; k++)
				out[i + k] = first + i + k;
			permute_lanes(order, out + i);
			for (uint32_t k = 0; k < LANES; k++) {
				while (out[i + k] >= order->n)
					out[i + k] = permute(order, out[i + k]);
			}
		}
	}
	for (; i < n; i++)
		out[i] = order_at(order, first + i);
}

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

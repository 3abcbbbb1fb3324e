/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/perm.c - the keyed permutation; pure, see perm.h.
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
#include "loader/perm.h"

#define LANES 8u
#define GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio, odd: the usual Weyl step */

/* The finaliser known as "variant 13" of David Stafford: two multiplications, full avalanche. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Two steps, so that (1, 0) and (0, 1) have nothing in common. */
uint64_t hr__perm_key(uint64_t seed, uint64_t number)
{
	return mix(mix(seed + GOLDEN) ^ (number * GOLDEN + 0x632be59bd9b4e019ull));
}

/* The k-th of the numbers that follow from a key. */
static uint64_t draw(uint64_t key, uint64_t k)
{
	return mix(key + (k + 1) * GOLDEN);
}

/* An even draw from [0, bound): the unfair rest of the 2^64 values is drawn again. */
static uint64_t draw_below(uint64_t key, uint64_t *counter, uint64_t bound)
{
	uint64_t unfair = (0 - bound) % bound; /* 2^64 mod bound */
	uint64_t x;

	do {
		x = draw(key, (*counter)++);
	} while (x < unfair);
	return x % bound;
}

static void shuffle_table(struct hr__perm *perm, uint64_t key)
{
	uint64_t counter = 0;

	for (uint32_t i = 0; i < perm->n; i++)
		perm->table[i] = (uint8_t)i;
	for (uint32_t i = (uint32_t)perm->n - 1; i > 0; i--) {
		uint32_t j = (uint32_t)draw_below(key, &counter, i + 1u);
		uint8_t kept = perm->table[i];

		perm->table[i] = perm->table[j];
		perm->table[j] = kept;
	}
}

void hr__perm_init(struct hr__perm *perm, uint64_t n, uint64_t key)
{
	uint32_t bits;

	assert(n >= 1 && n <= 1ull << 63);
	perm->n = n;
	if (n <= HR__PERM_TABLE) {
		shuffle_table(perm, key);
		return;
	}
	bits = 64u - (uint32_t)__builtin_clzll(n - 1);
	perm->low_bits = bits / 2;
	perm->low_mask = (1ull << perm->low_bits) - 1;
	perm->high_mask = (1ull << (bits - perm->low_bits)) - 1;
	for (uint32_t k = 0; k < HR__PERM_ROUNDS; k++)
		perm->keys[k] = draw(key, k);
}

static uint64_t permute(const struct hr__perm *perm, uint64_t x)
{
	uint64_t low = x & perm->low_mask;
	uint64_t high = x >> perm->low_bits;

	for (uint32_t k = 0; k < HR__PERM_ROUNDS; k += 2) {
		low ^= mix(high ^ perm->keys[k]) & perm->low_mask;
		high ^= mix(low ^ perm->keys[k + 1]) & perm->high_mask;
	}
	return high << perm->low_bits | low;
}

static uint64_t perm_at(const struct hr__perm *perm, uint64_t position)
{
	uint64_t x = position;

	assert(position < perm->n);
	if (perm->n <= HR__PERM_TABLE)
		return perm->table[position];
	/* Ends: the walk follows a cycle that contains @position itself, which lies inside. */
	do {
		x = permute(perm, x);
	} while (x >= perm->n);
	return x;
}

/* permute() for several at once: each round is a chain of multiplications, and chains overlap. */
static void permute_lanes(const struct hr__perm *perm, uint64_t *x)
{
	uint64_t low[LANES], high[LANES];

	for (uint32_t i = 0; i < LANES; i++) {
		low[i] = x[i] & perm->low_mask;
		high[i] = x[i] >> perm->low_bits;
	}
	for (uint32_t k = 0; k < HR__PERM_ROUNDS; k += 2) {
		for (uint32_t i = 0; i < LANES; i++)
			low[i] ^= mix(high[i] ^ perm->keys[k]) & perm->low_mask;
		for (uint32_t i = 0; i < LANES; i++)
			high[i] ^= mix(low[i] ^ perm->keys[k + 1]) & perm->high_mask;
	}
	for (uint32_t i = 0; i < LANES; i++)
		x[i] = high[i] << perm->low_bits | low[i];
}

void hr__perm_run(const struct hr__perm *perm, uint64_t first, uint32_t n, uint64_t *out)
{
	uint32_t i = 0;

	assert(n <= perm->n && first <= perm->n - n);
	if (perm->n > HR__PERM_TABLE) {
		for (; i + LANES <= n; i += LANES) {
			for (uint32_t k = 0; k < LANES; k++)
				out[i + k] = first + i + k;
			permute_lanes(perm, out + i);
			for (uint32_t k = 0; k < LANES; k++) {
				while (out[i + k] >= perm->n)
					out[i + k] = permute(perm, out[i + k]);
			}
		}
	}
	for (; i < n; i++)
		out[i] = perm_at(perm, first + i);
}

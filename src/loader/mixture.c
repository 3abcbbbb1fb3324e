/* SPDX-License-Identifier: Apache-2.0 */
/* loader/mixture.c - weights to shares, shares to a pattern, the pattern to stripes; see mixture.h. */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "loader/mixture.h"
#include "loader/perm.h"

/* The kid that rounding down has wronged the most and that was not rounded up yet; the first of equals. */
static uint32_t most_wronged(const double *exact, const uint32_t *shares, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++) {
		if (exact[i] - shares[i] > exact[best] - shares[best])
			best = i;
	}
	return best;
}

static uint32_t largest(const uint32_t *shares, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++) {
		if (shares[i] > shares[best])
			best = i;
	}
	return best;
}

/* The method of the largest remainders; but nobody gets nothing, which the largest pay for. */
static void set_shares(struct hr__mixture *mix, const double *weights)
{
	double exact[HR__MIX_KIDS], top = 0, sum = 0;
	uint32_t given = 0;

	for (uint32_t i = 0; i < mix->n; i++)
		top = weights[i] > top ? weights[i] : top;
	for (uint32_t i = 0; i < mix->n; i++)
		sum += weights[i] / top; /* no overflow: each is 1 at the most */
	for (uint32_t i = 0; i < mix->n; i++) {
		exact[i] = weights[i] / top / sum * HR__MIX_BLOCK;
		mix->shares[i] = exact[i] < 1 ? 1 : (uint32_t)exact[i];
		given += mix->shares[i];
	}
	for (; given < HR__MIX_BLOCK; given++)
		mix->shares[most_wronged(exact, mix->shares, mix->n)]++;
	for (; given > HR__MIX_BLOCK; given--)
		mix->shares[largest(mix->shares, mix->n)]--;
}

/* Place j of a kid's q is wanted at (j + 1/2) / q of the block. Sorted by counting; in ties by kid. */
static void set_pattern(struct hr__mixture *mix)
{
	uint16_t *count = mix->rank; /* used up before the ranks are written */
	uint16_t next[HR__MIX_KIDS] = {0};
	uint32_t at = 0;

	/* How many are wanted in each place, one of each kid at the most; then where they begin. */
	memset(count, 0, sizeof(mix->rank));
	for (uint32_t k = 0; k < mix->n; k++) {
		for (uint32_t j = 0; j < mix->shares[k]; j++)
			count[(2ull * j + 1) * HR__MIX_BLOCK / (2 * mix->shares[k])]++;
	}
	for (uint32_t i = 0; i < HR__MIX_BLOCK; i++) {
		uint32_t wanted = count[i];

		count[i] = (uint16_t)at;
		at += wanted;
	}
	for (uint32_t k = 0; k < mix->n; k++) {
		for (uint32_t j = 0; j < mix->shares[k]; j++) {
			uint64_t place = (2ull * j + 1) * HR__MIX_BLOCK / (2 * mix->shares[k]);

			mix->kid[count[place]++] = (uint16_t)k;
		}
	}
	for (uint32_t i = 0; i < HR__MIX_BLOCK; i++)
		mix->rank[i] = next[mix->kid[i]]++;
}

void hr__mixture_init(struct hr__mixture *mix, const double *weights, uint32_t n)
{
	assert(n >= 1 && n <= HR__MIX_KIDS);
	mix->n = n;
	set_shares(mix, weights);
	set_pattern(mix);
}

void hr__mixture_stripe(const struct hr__mixture *mix, uint32_t number, bool in_order, uint64_t key,
			struct hr__stripe *out)
{
	const uint16_t *kids = mix->kid + number * HR__MIX_STRIPE;
	const uint16_t *ranks = mix->rank + number * HR__MIX_STRIPE;
	uint16_t next[HR__MIX_KIDS];
	struct hr__perm perm;

	assert(number < HR__MIX_BLOCK / HR__MIX_STRIPE);
	if (in_order) {
		memcpy(out->kid, kids, sizeof(out->kid));
		memcpy(out->rank, ranks, sizeof(out->rank));
		return;
	}
	hr__perm_init(&perm, HR__MIX_STRIPE, key);
	for (uint32_t i = HR__MIX_STRIPE; i-- > 0;)
		next[kids[i]] = ranks[i]; /* what stays is the least of each */
	for (uint32_t i = 0; i < HR__MIX_STRIPE; i++) {
		out->kid[i] = kids[perm.table[i]];
		out->rank[i] = next[out->kid[i]]++;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/perm.h - keyed permutations of [0, n), read at any place; knows only numbers.
 *
 * Results are promises: a saved state of one version must mean the same samples in the next.
 */
#ifndef HR_LOADER_PERM_H
#define HR_LOADER_PERM_H

#include <stdint.h>

#define HR__PERM_ROUNDS 8u
#define HR__PERM_TABLE 256u

/* A bijection of [0, n) onto itself. */
struct hr__perm {
	uint64_t n;
	uint32_t low_bits; /* of the network's two halves */
	uint64_t low_mask, high_mask;
	uint64_t keys[HR__PERM_ROUNDS];
	uint8_t table[HR__PERM_TABLE]; /* n <= HR__PERM_TABLE: the permutation itself */
};

/* A key of two numbers, such as a seed and an epoch; itself a seed of further keys. */
uint64_t hr__perm_key(uint64_t seed, uint64_t number);

/* @n: 1 .. 2^63. Costs a microsecond at most; the permutation needs no other memory. */
void hr__perm_init(struct hr__perm *perm, uint64_t n, uint64_t key);

/* Where @first .. @first + @n - 1 < perm->n go, into @out. */
void hr__perm_run(const struct hr__perm *perm, uint64_t first, uint32_t n, uint64_t *out);

#endif

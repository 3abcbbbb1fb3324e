/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/state.h - the saved state of a loader as bytes; pure, knows no loader.
 */
#ifndef HR_LOADER_STATE_H
#define HR_LOADER_STATE_H

#include <stddef.h>
#include <stdint.h>

#include <headrace/loader.h>

struct hr__state {
	uint64_t fingerprint; /* of the dataset */
	uint64_t samples;     /* positions of an epoch */
	uint64_t seed;
	enum hr_shuffle shuffle;
	uint32_t window; /* shards of one, 0 without */
	uint64_t epoch;
	uint64_t position; /* samples of the epoch that all ranks together have had */
};

/* @buf: HR_LOADER_STATE_BYTES. */
void hr__state_encode(const struct hr__state *state, void *buf);

/* Return: 0, or -HR_E_BAD_STATE with a sentence; *out is unchanged then. */
int hr__state_decode(const void *buf, size_t size, struct hr__state *out);

/* Does @saved belong to the run described by @own? Return: 0, or -HR_E_BAD_STATE saying why not. */
int hr__state_match(const struct hr__state *saved, const struct hr__state *own);

#endif

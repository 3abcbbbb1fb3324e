/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/assemble.h - from the numbers of a batch's samples to the requests that bring them, and to the
 * values of its side, which need no reading. Does no I/O but what an index costs.
 */
#ifndef HR_LOADER_ASSEMBLE_H
#define HR_LOADER_ASSEMBLE_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/loader.h>

#include "loader/dataset.h"
#include "loader/layout.h"

/* The requests of one batch. */
struct hr__requests {
	struct hr_piece *pieces;
	uint64_t n_pieces, room;
	struct hr_io *ios; /* layout->ios_max of them */
	uint32_t n_ios;
};

int hr__requests_init(struct hr__requests *requests, const struct hr__layout *layout);
void hr__requests_fini(struct hr__requests *requests);

#define HR__REASON_BYTES 256u

/* Scratch of one who assembles; used by one thread at a time. */
struct hr__assembler {
	const struct hr__layout *layout;
	const struct hr_dataset *ds;
	int64_t padding;
	bool ahead;              /* some file's locate() reads for each sample */
	struct hr_range *ranges; /* of one value */
	/* a group has the pieces of one file and one conversion: a chain in the order of rows */
	uint32_t *group_of; /* per file and conversion: its number in this batch, or NO_GROUP */
	struct group *groups;
	uint32_t n_groups;
	struct cut *cuts;
	uint64_t n_cuts, cuts_room;
	/* damage that only shows when a sample is located: rows that were replaced, and the first of them */
	uint64_t substituted;
	char reason[HR__REASON_BYTES];
};

int hr__assembler_init(struct hr__assembler *a, const struct hr__layout *layout,
		       const struct hr_dataset *ds, int64_t padding);
void hr__assembler_fini(struct hr__assembler *a);

/* A slot, as it is filled. */
struct hr__target {
	struct hr_buffer *buffer;
	uint64_t base; /* of the slot in it, bytes */
	char *host;    /* where the CPU may write the slot, or NULL */
	char *side;    /* where the CPU writes the side: in the slot, or pinned memory */
	struct hr_tensor *tensors;
	uint32_t max_seqlen; /* out: of packed windows */
};

/*
 * hr__assemble() - the batch of samples @ids, one per row. Where the dataset lets damaged samples be skipped
 * or substituted, one that turns out to be damaged now gives its row to the next whole one, and its place
 * in @ids.
 * @out: requests, with what was there before replaced. Padding is written where target->host is set;
 * hr__assemble_pads() tells the rest.
 * Return: 0, -HR_E_BATCH_FULL, or -code of a format, with a sentence.
 */
int hr__assemble(struct hr__assembler *a, uint64_t *ids, struct hr__target *target,
		 struct hr__requests *out);

/* A run of padding in a slot: @len bytes at @offset of the slot. */
struct hr__pad {
	uint64_t offset, len;
};

/* The padding of row @row of column @k in a batch that was assembled into @side. Return: its length. */
uint64_t hr__assemble_pad(const struct hr__layout *layout, const char *side, uint32_t k,
			  uint32_t row, struct hr__pad *out);

#endif

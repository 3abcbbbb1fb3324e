/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/layout.h - what a batch looks like in memory: fixed when a loader opens, the same in every slot.
 *
 * A slot has a region per column, and behind them the *side*: small tensors that the CPU knows before
 * anything is read (offsets of ragged rows, lengths of padded ones, scalars, places in packed windows).
 */
#ifndef HR_LOADER_LAYOUT_H
#define HR_LOADER_LAYOUT_H

#include <stdint.h>

#include <headrace/loader.h>

#include "loader/dataset.h"

#define HR__LAYOUT_ALIGN 4096u /* of a slot: fits every drive's direct I/O */

enum hr__column_kind {
	HR__COLUMN_DENSE,  /* rows of one size */
	HR__COLUMN_RAGGED, /* rows one behind the other; side: B + 1 offsets in elements */
	HR__COLUMN_PADDED, /* rows of one size, filled up; side: B lengths in elements */
	HR__COLUMN_SCALAR, /* side: B values */
};

/* One field of the dataset in a batch. */
struct hr__column {
	enum hr__column_kind kind;
	enum hr_dtype in, out;
	uint32_t cast;       /* number of its conversion */
	uint64_t file_bytes; /* dense: of a row in the file; padded: of the longest that is taken */
	uint64_t row_bytes;  /* dense, padded: of a row in memory */
	uint64_t offset;     /* of its region in the slot */
	uint64_t room;       /* bytes of it */
	uint64_t side;       /* offset in the side of what it has there */
	uint32_t tensor;     /* its first tensor */
};

struct hr__cast_pair {
	enum hr_dtype from, to; /* both BYTES: none */
};

struct hr__layout {
	uint32_t batch_size;
	uint32_t n_columns;
	struct hr__column *columns; /* one per field of the dataset */
	uint32_t n_casts;
	struct hr__cast_pair *casts;
	uint32_t n_tensors;
	struct hr_tensor *tensors; /* the first slot's, at address 0 */
	char *names;               /* those that no field has */
	uint64_t side_offset;      /* in the slot */
	uint64_t side_bytes;
	uint64_t batch_bytes; /* of a slot that are used */
	uint64_t slot_bytes;  /* distance of slots */
	uint32_t ios_max; /* requests of one batch: one per file and conversion that it touches */
	uint64_t pieces;  /* of a usual batch */
	/* packed windows: */
	bool packed;
	uint32_t seq_len;
	uint64_t side_positions, side_bounds;
	uint32_t tensor_positions, tensor_bounds;
};

/*
 * hr__layout_init() - plan the batches of @ds. @opts: complete but for the number of slots.
 * Return: 0, -HR_E_BAD_CAST, -EINVAL, -HR_E_BATCH_FULL, -ENOMEM, with a sentence; hr__layout_fini() cleans
 * up in both cases.
 */
int hr__layout_init(struct hr__layout *layout, const struct hr_dataset *ds,
		    const struct hr_loader_options *opts);
void hr__layout_fini(struct hr__layout *layout);

/*
 * Describe a slot at @base to frameworks. @tensors: layout->n_tensors of them. @side: where the CPU has the
 * side, NULL: in the slot, which it can read.
 */
void hr__layout_tensors(const struct hr__layout *layout, char *base, const char *side,
			struct hr_tensor *tensors);

/* Fill @len bytes, whole elements of @column in memory, with padding of @value. */
void hr__layout_pad(const struct hr__column *column, int64_t value, void *dst, uint64_t len);

#endif

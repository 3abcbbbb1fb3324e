/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/layout.h - what a batch looks like in memory, and which bytes of which files make it up.
 *
 * Arithmetic only: no I/O, no allocation.
 */
#ifndef HR_LOADER_LAYOUT_H
#define HR_LOADER_LAYOUT_H

#include <stdint.h>

#include <headrace/loader.h>

#include "loader/dataset.h"

#define HR__LAYOUT_TENSORS 3u
#define HR__LAYOUT_ALIGN 4096u /* of a slot: fits every drive's direct I/O */

struct hr__layout {
	uint32_t batch_size;
	uint32_t elements; /* of a row, T + 1 */
	enum hr_dtype in, out;
	uint64_t row_bytes;   /* in memory */
	uint64_t batch_bytes; /* rows without the alignment of the slot */
	uint64_t slot_bytes;  /* distance of slots */
	uint32_t ios_max;     /* requests of one batch: one per file that it touches */
};

/* Return: 0, or -HR_E_BAD_CAST with a sentence. */
int hr__layout_init(struct hr__layout *layout, const struct hr_dataset_info *info,
		    uint32_t batch_size, enum hr_dtype out);

/* Describe a batch at @base to frameworks. @tensors: HR__LAYOUT_TENSORS of them. */
void hr__layout_tensors(const struct hr__layout *layout, char *base, struct hr_tensor *tensors);

/* Scratch to sort rows by file, HR__NO_ROW everywhere between calls. */
struct hr__groups {
	uint32_t *first; /* per file: its first row */
	uint32_t *next;  /* per row: the next row of the same file */
	uint64_t *index; /* per row: its number in its file */
	uint32_t *files; /* files met, up to ios_max */
};
#define HR__NO_ROW UINT32_MAX

/*
 * One request per file for the samples @ids. @pieces: batch_size of them; @ios: ios_max.
 * @buffer, @base: where row 0 goes.
 * Return: the number of requests.
 */
uint32_t hr__layout_requests(const struct hr__layout *layout, const struct hr_dataset *ds,
			     const uint64_t *ids, struct hr__groups *groups,
			     struct hr_buffer *buffer, uint64_t base, struct hr_piece *pieces,
			     struct hr_io *ios);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* loader/side.c - small tensors on their way to the device, see side.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "base/sys.h"
#include "base/util.h"
#include "loader/side.h"

#define PAGE 4096u

/* One row of each padded column's padding, one behind the other, at pad_at(). */
static uint64_t pad_at(const struct hr__layout *layout, uint32_t k)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < k; i++) {
		if (layout->columns[i].kind == HR__COLUMN_PADDED)
			at = hr__align_up(at + layout->columns[i].row_bytes, 256);
	}
	return at;
}

static int fill_pads(struct hr__side *side, const struct hr__layout *layout, int64_t padding)
{
	uint64_t len = pad_at(layout, layout->n_columns);
	char *image = malloc(len);
	int rc = 0;

	if (!image)
		return hr__fail(ENOMEM,
				"loader: no memory for rows of %" PRIu64
				" bytes of padding; pad to fewer elements",
				len);
	rc = hr_buffer_alloc(side->dev, len, &side->pad_buffer);
	for (uint32_t k = 0; rc == 0 && k < layout->n_columns; k++) {
		const struct hr__column *column = &layout->columns[k];

		if (column->kind == HR__COLUMN_PADDED)
			hr__layout_pad(column, padding, image + pad_at(layout, k),
				       column->row_bytes);
	}
	if (rc == 0)
		rc = hr_buffer_copy_in(side->pad_buffer, 0, image, len);
	if (rc == 0)
		side->pad = hr_buffer_address(side->pad_buffer);
	free(image);
	return rc;
}

int hr__side_open(struct hr__side *side, struct hr_device *dev, const struct hr__layout *layout,
		  uint32_t n, int64_t padding)
{
	void *device_ptr;
	int rc = 0;

	*side = (struct hr__side){.dev = dev};
	if (!layout->side_bytes || dev->caps & HR__MEM_CAP_HOST_VISIBLE)
		return 0;
	side->stride = hr__align_up(layout->side_bytes, 64);
	side->len = hr__align_up(side->stride * n, PAGE);
	side->base = hr__sys->mmap(side->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	if (!side->base)
		return hr__fail(ENOMEM, "loader: no memory for %" PRIu64 " bytes of small tensors",
				side->len);
	rc = dev->ops->pin(dev, side->base, side->len, 0, &device_ptr);
	if (rc < 0) {
		hr__sys->munmap(side->base, side->len);
		side->base = NULL;
		return rc;
	}
	return pad_at(layout, layout->n_columns) ? fill_pads(side, layout, padding) : 0;
}

void hr__side_close(struct hr__side *side)
{
	if (side->base) {
		side->dev->ops->unpin(side->dev, side->base, side->len);
		hr__sys->munmap(side->base, side->len);
	}
	hr_buffer_free(side->pad_buffer);
	side->base = NULL;
	side->pad_buffer = NULL;
}

/* Queue @n moves. */
static int move(struct hr_lane *lane, enum hr__where where, const struct hr__move *moves,
		uint32_t n, uint64_t *ticket)
{
	int rc = n ? lane->ops->move(lane, where, moves, n, HR_DTYPE_BYTES, HR_DTYPE_BYTES, ticket)
		   : 0;

	return rc < 0 ? rc : 0;
}

static int send_pads(const struct hr__side *side, const struct hr__layout *layout, uint32_t k,
		     struct hr_lane *lane, const char *from, char *slot, struct hr__move *moves,
		     uint64_t *ticket)
{
	const char *pad = side->pad + pad_at(layout, k);
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t row = 0; row < layout->batch_size && rc == 0; row++) {
		struct hr__pad run;

		if (!hr__assemble_pad(layout, from, k, row, &run))
			continue;
		moves[n++] = (struct hr__move){pad, slot + run.offset, run.len};
		if (n == HR__LANE_MOVES_MAX) {
			rc = move(lane, HR__DEVICE_TO_DEVICE, moves, n, ticket);
			n = 0;
		}
	}
	return rc < 0 ? rc : move(lane, HR__DEVICE_TO_DEVICE, moves, n, ticket);
}

int hr__side_send(const struct hr__side *side, const struct hr__layout *layout,
		  struct hr_lane *lane, const char *from, char *slot, struct hr__move *moves,
		  uint64_t *ticket)
{
	int rc = 0;

	for (uint32_t k = 0; k < layout->n_columns && rc == 0; k++) {
		if (layout->columns[k].kind == HR__COLUMN_PADDED)
			rc = send_pads(side, layout, k, lane, from, slot, moves, ticket);
	}
	moves[0] = (struct hr__move){from, slot + layout->side_offset, layout->side_bytes};
	return rc < 0 ? rc : move(lane, HR__HOST_TO_DEVICE, moves, 1, ticket);
}

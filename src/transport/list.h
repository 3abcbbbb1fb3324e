/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/list.h - segments that are no extent but a list: pieces of one request as they are, each
 * in windows of a mapping that are ready. A device that gathers them out of the mapping wants them
 * neither sorted nor merged nor cut, so nothing of them is planned.
 */
#ifndef HR_TRANSPORT_LIST_H
#define HR_TRANSPORT_LIST_H

#include "transport/mapping.h"
#include "transport/seg.h"

#define HR__LIST_PIECES_MAX 4096u       /* of one segment */
#define HR__LIST_BYTES_MAX (64u << 20)  /* of one segment */
#define HR__LIST_PIECE_MAX (256u << 10) /* longer ones do well as extents */

/*
 * hr__list_hold() - make @seg the list of those pieces of @io, from @first on, that @m has ready; their
 * windows stay as they are until hr__list_release().
 * @size, @mtime_ns: of the file before; pieces that reach past its end are left to the plan.
 * Return: how many pieces, from the front; with 0 the segment is unchanged.
 */
uint32_t hr__list_hold(struct hr__mapping *m, struct hr__seg *seg, struct hr_io *io, uint64_t first,
		       uint64_t size, int64_t mtime_ns);
void hr__list_release(struct hr__seg *seg);

#endif

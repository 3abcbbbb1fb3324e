/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/pagecache.h - what the path "pagecache" does beside its table: it is asked for each
 * segment, because a file may be in the page cache in parts.
 */
#ifndef HR_TRANSPORT_PAGECACHE_H
#define HR_TRANSPORT_PAGECACHE_H

#include "transport/mapping.h"
#include "transport/transport.h"

/*
 * hr__pagecache_take() - can seg->mapping serve @seg now, without waiting? If so its windows stay as
 * they are until the segment comes back; submit() must follow.
 */
bool hr__pagecache_take(struct hr__transport *t, struct hr__seg *seg);

/*
 * hr__pagecache_force() - the same for a path that was asked for: makes ready what is not, and waits
 * for it. Return: 1 as true, 0 when the file is being changed (another path serves it), or -code.
 */
int hr__pagecache_force(struct hr__transport *t, struct hr__seg *seg);

/* hr__pagecache_fail() - instead of submit(): the segment comes back with @code. */
void hr__pagecache_fail(struct hr__transport *t, struct hr__seg *seg, int code);

#endif

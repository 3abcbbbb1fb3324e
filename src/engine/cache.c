/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/cache.c - what the reads of a file leave in the page cache, where the program left that to
 * the library: decided by the file's hint, its size, and the memory that is there.
 *
 *   hint of the file    its set fits                 it does not fit, or nobody knows
 *   keep                through the cache, for the   as without a hint
 *                       next reader
 *   none                past the cache; where direct I/O is impossible:
 *                       as the kernel likes          dropped again
 *   drop                past the cache, dropped again where it has to go through
 *
 * "Fits" is half of the memory that is available: the other half is for what the program does with
 * the data. A set that would fill more of it would push out what others need, its own head first.
 */
#include "base/log.h"
#include "base/memlimit.h"
#include "base/util.h"
#include "engine/engine.h"

#define SMALL_SET (32ull << 20) /* not worth the question: it costs a few small files */

static bool fits(struct hr_file *file)
{
	uint64_t size = atomic_load_explicit(&file->set_bytes, memory_order_relaxed), own = 0;

	if (hr__file_size(file, &own))
		return false;
	size = hr__max(size, own);
	return size <= SMALL_SET || size <= hr__memory_available("") / 2;
}

enum hr_cache hr__cache_choose(const struct hr_engine *e, struct hr_file *file)
{
	enum hr_cache hint = atomic_load_explicit(&file->hint, memory_order_relaxed);
	bool must_pass = !hr__file_has_direct(file), fit;

	if (e->opts.cache != HR_CACHE_AUTO)
		return e->opts.cache;
	if (hint == HR_CACHE_DROP)
		return HR_CACHE_DROP;
	/* Options that say where data goes, and files that are memory, leave nothing to decide. */
	if (e->opts.direct || e->opts.buffered || e->opts.path == HR_PATH_P2P ||
	    file->memory_backed)
		return HR_CACHE_AUTO;
	if (hint == HR_CACHE_AUTO && !must_pass)
		return HR_CACHE_AUTO;
	fit = fits(file);
	hr__log(HR_LOG_DEBUG, "%s: %s half of the available memory", file->path,
		fit ? "fits into" : "is more than");
	if (hint == HR_CACHE_KEEP && fit)
		return HR_CACHE_KEEP;
	return fit || !must_pass ? HR_CACHE_AUTO : HR_CACHE_DROP;
}

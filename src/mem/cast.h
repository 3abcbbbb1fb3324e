/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast.h - what a processor family adds to hr__cast(); one file per family, chosen by the build.
 */
#ifndef HR_MEM_CAST_H
#define HR_MEM_CAST_H

#include <stdint.h>

#include <headrace/dtype.h>

/*
 * hr__cast_level() - the best set of vectors that this processor has: 0 for none; each family counts
 * its own.
 */
uint32_t hr__cast_level(void);

/*
 * hr__cast_wide() - convert as many of @count elements as whole vectors cover, from the front.
 * Any alignment of @dst and @src; @from != @to satisfy hr_cast_ok(); @level: up to hr__cast_level().
 * Return: elements converted, 0 at level 0.
 */
uint64_t hr__cast_wide(void *dst, const void *src, uint64_t count, enum hr_dtype from,
		       enum hr_dtype to, uint32_t level);

#endif

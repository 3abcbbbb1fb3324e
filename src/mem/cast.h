/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast.h - what a processor family adds to hr__cast(); one file per family, chosen by the build.
 */
#ifndef HR_MEM_CAST_H
#define HR_MEM_CAST_H

#include <stdint.h>

#include <headrace/dtype.h>

/*
 * hr__cast_wide() - convert as many of @count elements as whole vectors cover, from the front.
 * Any alignment of @dst and @src; @from, @to: a widening or equal-width integer conversion.
 * Return: elements converted, 0 where the processor has no such vectors.
 */
uint64_t hr__cast_wide(void *dst, const void *src, uint64_t count, enum hr_dtype from,
		       enum hr_dtype to);

#endif

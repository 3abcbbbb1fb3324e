/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem/cast_plain.c - processors for which nobody wrote vectors: hr__cast() loops over elements.
 */
#include "mem/cast.h"

uint32_t hr__cast_level(void)
{
	return 0;
}

uint64_t hr__cast_wide(void *dst, const void *src, uint64_t count, enum hr_dtype from,
		       enum hr_dtype to, uint32_t level)
{
	return 0;
}

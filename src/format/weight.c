/* SPDX-License-Identifier: Apache-2.0 */
/* format/weight.c - the element types of safetensors: sizes, names, what a device can convert. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include <headrace/weight.h>

#include "base/util.h"

struct type {
	uint32_t bits;
	const char *text;
};

static const struct type types[] = {[HR_WEIGHT_SAME] = {0, "?"},
#define ENTRY(name, number, bits, text) [name] = {bits, text},
				    HR_WEIGHT_TYPE_MAP(ENTRY)
#undef ENTRY
};

uint32_t hr_weight_type_bits(enum hr_weight_type type)
{
	return (uint32_t)type < HR_ARRAY_LEN(types) ? types[type].bits : 0;
}

const char *hr_weight_type_name(enum hr_weight_type type)
{
	return (uint32_t)type < HR_ARRAY_LEN(types) ? types[type].text : "?";
}

int hr_weight_type_parse(const char *text, enum hr_weight_type *out)
{
	for (uint32_t i = 1; i < HR_ARRAY_LEN(types); i++) {
		if (strcmp(types[i].text, text) == 0) {
			*out = (enum hr_weight_type)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* The element type of the same name, if devices know it. */
static bool find_dtype(enum hr_weight_type type, enum hr_dtype *out)
{
	const char *name = hr_weight_type_name(type);
	char lower[16];
	size_t i = 0;

	for (; i < sizeof(lower) - 1 && name[i]; i++)
		lower[i] = (char)tolower((unsigned char)name[i]);
	lower[i] = '\0';
	return hr_dtype_parse(lower, out) == 0;
}

bool hr_weight_cast(enum hr_weight_type from, enum hr_weight_type to, enum hr_dtype *file,
		    enum hr_dtype *memory)
{
	enum hr_dtype a = HR_DTYPE_BYTES, b = HR_DTYPE_BYTES;

	if (!hr_weight_type_bits(from) || !hr_weight_type_bits(to))
		return false;
	if (from != to && (!find_dtype(from, &a) || !find_dtype(to, &b) || !hr_cast_ok(a, b)))
		return false;
	if (file)
		*file = a;
	if (memory)
		*memory = b;
	return true;
}

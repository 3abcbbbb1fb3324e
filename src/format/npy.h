/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/npy.h - arrays as numpy.save() writes them: the head of one, wherever in a file it begins.
 */
#ifndef HR_FORMAT_NPY_H
#define HR_FORMAT_NPY_H

#include <stdint.h>

#include <headrace/dataset.h>

#include "base/source.h"

#define HR__NPY_MAGIC "\x93NUMPY"
#define HR__NPY_MAGIC_BYTES 6u

/* An array whose elements lie one behind the other, the last index first. */
struct hr__npy {
	enum hr_dtype dtype;
	uint32_t ndim;
	uint64_t shape[HR_DIMS_MAX];
	uint64_t data; /* offset in the file */
	uint64_t elements, bytes;
};

/*
 * hr__npy_parse() - the array that begins at @offset of @src and has to end at @offset + @size, which
 * lie in the file. @member: its name in an archive, or NULL: for sentences.
 * Return: 0 or -HR_E_BAD_FORMAT, -HR_E_BAD_DTYPE, -code of the source, with a sentence.
 */
int hr__npy_parse(const struct hr_source *src, uint64_t offset, uint64_t size, const char *member,
		  struct hr__npy *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/extent.h - where on its block device a file lies.
 */
#ifndef HR_FILE_EXTENT_H
#define HR_FILE_EXTENT_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/doctor.h>

#include "file/file.h"

#define HR__EXTENTS_MAX 4096u /* counted at most */

struct hr__extents {
	struct hr_extent *list; /* the caller's array: receives the first ones of the range */
	uint32_t cap, n;
	uint64_t total;  /* in the range, holes included, up to HR__EXTENTS_MAX */
	bool more;       /* the count ended at the limit; the range goes on */
	uint64_t resume; /* file offset up to which extents were counted */
};

/*
 * hr__file_extents() - extents and holes of [offset, offset + len), cut at the end of the file.
 * @len: 0 = to the end. @out: .list and .cap are set; the rest is filled in. To go on after .more,
 * call again from .resume.
 * Return: 0, -EINVAL, -EOPNOTSUPP and other -errno of FIEMAP (no sentence: the caller has one).
 */
int hr__file_extents(struct hr_file *file, uint64_t offset, uint64_t len, struct hr__extents *out);

#endif

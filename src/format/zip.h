/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/zip.h - the members of a zip archive, as its central directory lists them. Reads only names and
 * places: what is compressed stays closed.
 */
#ifndef HR_FORMAT_ZIP_H
#define HR_FORMAT_ZIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/source.h"

#define HR__ZIP_MAGIC "PK\x03\x04"
#define HR__ZIP_MAGIC_BYTES 4u

struct hr__zip_member {
	char *name; /* no '\0' in it; unique in the archive */
	uint32_t name_len;
	uint16_t flags, method;
	uint64_t packed, bytes; /* in the archive, and unpacked */
	uint64_t header;        /* offset of its local header */
};

struct hr__zip {
	const struct hr_source *src;
	uint64_t directory; /* offset of the central directory: members end before it */
	uint32_t n;
	struct hr__zip_member *members;
	uint8_t *bytes; /* the directory; names point into it */
};

/* hr__zip_open() - read the list. Return: 0 or -code with a sentence, and nothing to close then. */
int hr__zip_open(struct hr__zip *zip, const struct hr_source *src);

/*
 * hr__zip_locate() - where a stored member's bytes begin; its local header must say what the central
 * directory says.
 * Return: 0, or -HR_E_BAD_FORMAT (also for what is compressed or encrypted), with a sentence.
 */
int hr__zip_locate(const struct hr__zip *zip, const struct hr__zip_member *member,
		   uint64_t *offset);

void hr__zip_close(struct hr__zip *zip);

#endif

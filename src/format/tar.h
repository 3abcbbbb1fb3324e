/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/tar.h - what the blocks of a tar archive say: ustar and pax (POSIX.1), GNU tar, v7. Knows neither
 * samples nor sources.
 */
#ifndef HR_FORMAT_TAR_H
#define HR_FORMAT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HR__TAR_BLOCK 512u
#define HR__TAR_PATH_MAX 4096u /* with the NUL */

enum hr__tar_kind {
	HR__TAR_FILE,
	HR__TAR_OTHER,  /* with @size bytes behind it: links, folders, devices, labels */
	HR__TAR_PAX,    /* records for the next member */
	HR__TAR_GLOBAL, /* records for all that follow */
	HR__TAR_NAME,   /* the name of the next member */
	HR__TAR_LINK,   /* what the next member links to */
	HR__TAR_SPARSE, /* GNU's, with holes */
	HR__TAR_ZERO,   /* a block of zeros: part of the end */
};

struct hr__tar_header {
	enum hr__tar_kind kind;
	uint64_t size;  /* bytes behind the header, before the padding */
	bool magic;     /* ustar or GNU: certainly a header */
	bool old;       /* a file of v7, or a folder if its whole name ends with a slash */
	bool extended;  /* SPARSE: more headers follow */
	char name[257]; /* prefix, slash, name */
};

/* hr__tar_parse() - one block. Return: 0, or a static clause that says why it is no header. */
const char *hr__tar_parse(const uint8_t *block, struct hr__tar_header *out);

/* What pax records say about a member. */
struct hr__tar_pax {
	bool has_path, has_size, sparse;
	uint64_t size;
	char path[HR__TAR_PATH_MAX];
};

/* hr__tar_pax() - add what @records say. Return: 0, or a static clause that says what is wrong. */
const char *hr__tar_pax(const uint8_t *records, size_t len, struct hr__tar_pax *pax);

/*
 * hr__tar_split() - the key of a member (the path up to the first dot of its last component) and what
 * comes behind that dot, in lower case. @key: room for HR__TAR_PATH_MAX. @extension: for 256.
 * Return: 0, or -1 when the member belongs to no sample: no dot, nothing on one side of it, "__x__".
 */
int hr__tar_split(const char *path, char *key, char *extension);

/* hr__tar_int() - text that is an integer of at most 18 digits and nothing else but a newline. */
bool hr__tar_int(const uint8_t *text, size_t len, int64_t *out);

#endif

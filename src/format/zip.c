/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/zip.c - the central directory of a zip archive, with Zip64, by PKWARE's APPNOTE.TXT (6.3.10);
 * unpacks nothing and knows nothing of what the members are.
 *
 * Strict where readers disagree: the directory ends where the record of its end begins, names are
 * unique, and a member's local header repeats what the directory says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "format/le.h"
#include "format/zip.h"

#define LOCAL_SIGN 0x04034b50u
#define LOCAL_BYTES 30u
#define ENTRY_SIGN 0x02014b50u
#define ENTRY_BYTES 46u
#define END_SIGN 0x06054b50u
#define END_BYTES 22u
#define END64_SIGN 0x06064b50u
#define END64_BYTES 56u
#define LOCATOR_SIGN 0x07064b50u
#define LOCATOR_BYTES 20u
#define COMMENT_MAX 65535u
#define MEMBERS_MAX 4096u
#define DIRECTORY_MAX (16u << 20)
#define EXTRA64 1u

enum { FLAG_ENCRYPTED = 1u << 0, FLAG_DESCRIPTOR = 1u << 3 };

/* Where the directory is, by the records behind it. */
struct ending {
	uint64_t record; /* the first of them: the directory ends here */
	uint64_t n, bytes, offset;
};

static int broken(const struct hr_source *src, uint64_t at, const char *rule)
{
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: byte %" PRIu64 ": %s; the archive is damaged or was cut off, copy it "
			"again",
			src->name, at, rule);
}

static int read_ending64(const struct hr_source *src, uint64_t end, struct ending *out)
{
	uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
	uint64_t at = end - LOCATOR_BYTES;
	int rc;

	if (end < LOCATOR_BYTES)
		return 0;
	rc = src->read(src, at, locator, sizeof(locator));
	if (rc < 0 || hr__le32(locator) != LOCATOR_SIGN)
		return rc;
	out->record = hr__le64(locator + 8);
	if (at < END64_BYTES || out->record > at - END64_BYTES)
		return broken(src, at, "points to a record that is not before it");
	rc = src->read(src, out->record, record, sizeof(record));
	if (rc < 0)
		return rc;
	if (hr__le32(record) != END64_SIGN || hr__le64(record + 4) != at - out->record - 12)
		return broken(src, out->record, "no Zip64 record of the directory's end");
	if (hr__le32(record + 16) || hr__le32(record + 20) ||
	    hr__le64(record + 24) != hr__le64(record + 32))
		return broken(src, out->record, "an archive in several parts");
	out->n = hr__le64(record + 32);
	out->bytes = hr__le64(record + 40);
	out->offset = hr__le64(record + 48);
	return 0;
}

static int parse_ending(const struct hr_source *src, const uint8_t *record, uint64_t at,
			struct ending *out)
{
	int rc;

	out->record = at;
	if (hr__le16(record + 4) || hr__le16(record + 6) ||
	    hr__le16(record + 8) != hr__le16(record + 10))
		return broken(src, at, "an archive in several parts");
	out->n = hr__le16(record + 10);
	out->bytes = hr__le32(record + 12);
	out->offset = hr__le32(record + 16);
	rc = read_ending64(src, at, out);
	if (rc < 0)
		return rc;
	if (out->offset > out->record || out->bytes != out->record - out->offset)
		return broken(src, at,
			      "the directory does not end where the record of its end begins");
	if (out->n > MEMBERS_MAX || out->bytes > DIRECTORY_MAX)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: an archive of %" PRIu64 " members, at most %u are read; make "
				"several of it",
				src->name, out->n, MEMBERS_MAX);
	return 0;
}

/* The record at the very end, behind which only its comment stands. */
static int find_ending(const struct hr_source *src, struct ending *out)
{
	uint64_t len = hr__min(src->size, END_BYTES + COMMENT_MAX), from = src->size - len;
	uint8_t *tail = malloc(len + 1);
	int rc;

	if (!tail)
		return hr__fail(ENOMEM, "%s: no memory for the end of the archive", src->name);
	rc = src->read(src, from, tail, len);
	for (uint64_t at = len; rc == 0 && at-- > 0;) {
		if (len - at < END_BYTES || hr__le32(tail + at) != END_SIGN ||
		    hr__le16(tail + at + 20) != len - at - END_BYTES)
			continue;
		rc = parse_ending(src, tail + at, from + at, out);
		free(tail);
		return rc;
	}
	free(tail);
	return rc < 0 ? rc : broken(src, src->size, "no record of a directory's end");
}

/* Numbers that did not fit into 32 bits stand in an extra field, in this order. */
static bool take_extra64(const uint8_t *extra, uint32_t len, uint64_t *const *numbers, uint32_t n)
{
	uint32_t wanted = 0;

	for (uint32_t i = 0; i < n; i++)
		wanted += *numbers[i] == UINT32_MAX;
	while (wanted && len >= 4) {
		uint32_t id = hr__le16(extra), bytes = hr__le16(extra + 2);

		if (bytes > len - 4)
			return false;
		if (id == EXTRA64) {
			uint32_t at = 0;

			if (bytes / 8 < wanted)
				return false;
			for (uint32_t i = 0; i < n; i++) {
				if (*numbers[i] == UINT32_MAX)
					*numbers[i] = hr__le64(extra + 4 + 8 * at++);
			}
			return true;
		}
		extra += 4 + bytes;
		len -= 4 + bytes;
	}
	return wanted == 0;
}

static int parse_entry(struct hr__zip *zip, uint64_t at, uint64_t end, struct hr__zip_member *m)
{
	uint8_t *p = zip->bytes + at;
	uint64_t *const wide[] = {&m->bytes, &m->packed, &m->header};
	uint64_t place = zip->directory + at;
	uint32_t extra, len;

	if (end - at < ENTRY_BYTES || hr__le32(p) != ENTRY_SIGN)
		return broken(zip->src, place, "no entry of the directory");
	m->flags = hr__le16(p + 8);
	m->method = hr__le16(p + 10);
	m->packed = hr__le32(p + 20);
	m->bytes = hr__le32(p + 24);
	m->header = hr__le32(p + 42);
	m->name_len = hr__le16(p + 28);
	extra = hr__le16(p + 30);
	len = ENTRY_BYTES + m->name_len + extra + hr__le16(p + 32);
	if (end - at < len)
		return broken(zip->src, place, "an entry that ends behind the directory");
	m->name = (char *)p + ENTRY_BYTES;
	if (m->name_len == 0 || memchr(m->name, 0, m->name_len))
		return broken(zip->src, place, "a name that is none");
	if (!take_extra64(p + ENTRY_BYTES + m->name_len, extra, wide, 3))
		return broken(zip->src, place, "lengths of Zip64 that are not there");
	if (hr__le16(p + 34))
		return broken(zip->src, place, "an archive in several parts");
	return (int)len;
}

static bool climbs(const struct hr__zip_member *m)
{
	const char *name = m->name;

	if (*name == '/' || strchr(name, '\\'))
		return true;
	for (; name; name = strchr(name, '/')) {
		name += *name == '/';
		if (strncmp(name, "..", 2) == 0 && (name[2] == '/' || name[2] == '\0'))
			return true;
	}
	return false;
}

/* Names end with a '\0' only now: it takes the place of what stood behind them. */
static int finish_names(struct hr__zip *zip)
{
	for (uint32_t i = 0; i < zip->n; i++) {
		struct hr__zip_member *m = &zip->members[i];

		m->name[m->name_len] = '\0';
	}
	for (uint32_t i = 0; i < zip->n; i++) {
		const struct hr__zip_member *m = &zip->members[i];

		if (climbs(m))
			return hr__fail(HR_E_BAD_FORMAT,
					"%s: member \"%.100s\" has a name that leads out of the "
					"archive; do not trust the file, make it again with "
					"numpy.savez()",
					zip->src->name, m->name);
		for (uint32_t k = 0; k < i; k++) {
			if (zip->members[k].name_len == m->name_len &&
			    strcmp(zip->members[k].name, m->name) == 0)
				return hr__fail(
					HR_E_BAD_FORMAT,
					"%s: has two members \"%.100s\"; make it again with "
					"numpy.savez()",
					zip->src->name, m->name);
		}
	}
	return 0;
}

static int parse_directory(struct hr__zip *zip, const struct ending *ending)
{
	uint64_t at = 0;
	int rc = zip->src->read(zip->src, ending->offset, zip->bytes, ending->bytes);

	if (rc < 0)
		return rc;
	for (zip->n = 0; zip->n < ending->n; zip->n++) {
		int len = parse_entry(zip, at, ending->bytes, &zip->members[zip->n]);

		if (len < 0)
			return len;
		at += (uint64_t)len;
	}
	if (at != ending->bytes)
		return broken(zip->src, ending->offset + at, "more entries than the directory has");
	return finish_names(zip);
}

int hr__zip_open(struct hr__zip *zip, const struct hr_source *src)
{
	struct ending ending = {0};
	int rc = find_ending(src, &ending);

	if (rc < 0)
		return rc;
	*zip = (struct hr__zip){.src = src, .directory = ending.offset};
	/* An entry has 46 bytes at least, so that this is in proportion to what the file has. */
	if (ending.n > ending.bytes / ENTRY_BYTES)
		return broken(src, ending.record, "more entries than the directory has room for");
	zip->members = calloc(ending.n + 1, sizeof(*zip->members));
	zip->bytes = malloc(ending.bytes + 1);
	if (!zip->members || !zip->bytes)
		rc = hr__fail(ENOMEM, "%s: no memory for the archive's directory", src->name);
	else
		rc = parse_directory(zip, &ending);
	if (rc < 0)
		hr__zip_close(zip);
	return rc;
}

static int refuse_packed(const struct hr__zip *zip, const struct hr__zip_member *m)
{
	if (m->flags & FLAG_ENCRYPTED)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: member \"%.100s\" is encrypted; make the archive again with "
				"numpy.savez()",
				zip->src->name, m->name);
	return hr__fail(HR_E_BAD_FORMAT,
			"%s: member \"%.100s\" is compressed (method %u), it cannot be read in "
			"place; save with numpy.savez() instead of numpy.savez_compressed()",
			zip->src->name, m->name, m->method);
}

/* The local header's lengths: those of the directory, or 0 where a descriptor follows the bytes. */
static bool same_lengths(const struct hr__zip_member *m, const uint8_t *header,
			 const uint8_t *extra, uint32_t extra_len)
{
	uint64_t packed = hr__le32(header + 18), bytes = hr__le32(header + 22);
	uint64_t *const wide[] = {&bytes, &packed};

	if (!take_extra64(extra, extra_len, wide, 2))
		return false;
	if ((m->flags & FLAG_DESCRIPTOR) && packed == 0 && bytes == 0)
		return true;
	return packed == m->packed && bytes == m->bytes;
}

static int check_header(const struct hr__zip *zip, const struct hr__zip_member *m,
			const uint8_t *header, uint64_t len)
{
	uint32_t name_len = hr__le16(header + 26), extra_len = hr__le16(header + 28);
	const uint8_t *name = header + LOCAL_BYTES;

	if (hr__le32(header) != LOCAL_SIGN)
		return broken(zip->src, m->header, "no local header of a member");
	if (name_len == m->name_len && len < (uint64_t)LOCAL_BYTES + name_len + extra_len)
		return broken(zip->src, m->header, "a member that ends behind the members");
	if (hr__le16(header + 6) != m->flags || hr__le16(header + 8) != m->method ||
	    name_len != m->name_len || memcmp(name, m->name, name_len) != 0 ||
	    !same_lengths(m, header, name + name_len, extra_len))
		return broken(zip->src, m->header,
			      "a local header that says other things than the directory");
	return 0;
}

int hr__zip_locate(const struct hr__zip *zip, const struct hr__zip_member *m, uint64_t *offset)
{
	uint8_t *header;
	uint64_t len, room;
	int rc;

	if (m->method != 0 || (m->flags & FLAG_ENCRYPTED))
		return refuse_packed(zip, m);
	if (m->packed != m->bytes)
		return broken(zip->src, m->header, "a stored member of two lengths");
	if (m->header > zip->directory || zip->directory - m->header < LOCAL_BYTES)
		return broken(zip->src, m->header, "a local header behind the members");
	room = zip->directory - m->header;
	/* A header with a longer name is refused anyhow. */
	len = hr__min(room, LOCAL_BYTES + m->name_len + 65535u);
	header = malloc(len);
	if (!header)
		return hr__fail(ENOMEM, "%s: no memory for a header", zip->src->name);
	rc = zip->src->read(zip->src, m->header, header, len);
	if (rc == 0)
		rc = check_header(zip, m, header, len);
	if (rc == 0) {
		uint64_t before =
			(uint64_t)LOCAL_BYTES + hr__le16(header + 26) + hr__le16(header + 28);

		*offset = m->header + before;
		if (m->bytes > room - before)
			rc = broken(zip->src, m->header, "a member that ends behind the members");
	}
	free(header);
	return rc;
}

void hr__zip_close(struct hr__zip *zip)
{
	free(zip->members);
	free(zip->bytes);
	*zip = (struct hr__zip){.src = NULL};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/tar_header.c - single blocks of a tar archive and the names in them; reads nothing.
 *
 * Offsets and letters: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar
 * manual, "Basic Tar Format" and "Storing Sparse Files".
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "format/format.h"
#include "format/tar.h"

enum {
	AT_SIZE = 124,
	AT_CHECKSUM = 148,
	AT_TYPE = 156,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	AT_GNU_EXTENDED = 482,
};
#define NAME_BYTES 100
#define PREFIX_BYTES 155

/* Octal digits after blanks, up to a blank or NUL; or base 256, which GNU marks with the first bit. */
static bool get_number(const uint8_t *p, size_t len, uint64_t *out)
{
	uint64_t v = 0;
	size_t i = 0;

	if (*p & 0x80) {
		v = *p & 0x7f;
		if (*p == 0xff) /* negative */
			return false;
		for (i = 1; i < len; i++) {
			if (v >> 56)
				return false;
			v = v << 8 | p[i];
		}
		*out = v;
		return true;
	}
	while (i < len && p[i] == ' ')
		i++;
	for (; i < len && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0');
	*out = v;
	return i == len || p[i] == '\0' || p[i] == ' ';
}

static bool good_checksum(const uint8_t *block)
{
	uint32_t sum = 0;
	int32_t signed_sum = 0; /* of old tars, whose bytes had a sign */
	uint64_t told;

	for (uint32_t i = 0; i < HR__TAR_BLOCK; i++) {
		uint8_t b = i >= AT_CHECKSUM && i < AT_CHECKSUM + 8 ? ' ' : block[i];

		sum += b;
		signed_sum += (int8_t)b;
	}
	return get_number(block + AT_CHECKSUM, 8, &told) &&
	       (told == sum || (signed_sum >= 0 && told == (uint64_t)signed_sum));
}

static void get_name(const uint8_t *block, bool posix, char *out)
{
	int prefix = posix ? (int)strnlen((const char *)block + AT_PREFIX, PREFIX_BYTES) : 0;
	int name = (int)strnlen((const char *)block, NAME_BYTES);

	snprintf(out, NAME_BYTES + PREFIX_BYTES + 2, "%.*s%s%.*s", prefix,
		 (const char *)block + AT_PREFIX, prefix ? "/" : "", name, (const char *)block);
}

static enum hr__tar_kind kind_of(char type)
{
	switch (type) {
	case '0':
	case '\0':
	case '7': /* contiguous: the same */
		return HR__TAR_FILE;
	case 'x':
	case 'X': /* as Solaris has it */
		return HR__TAR_PAX;
	case 'g':
		return HR__TAR_GLOBAL;
	case 'L':
		return HR__TAR_NAME;
	case 'K':
		return HR__TAR_LINK;
	case 'S':
		return HR__TAR_SPARSE;
	default:
		return HR__TAR_OTHER;
	}
}

const char *hr__tar_parse(const uint8_t *block, struct hr__tar_header *out)
{
	bool posix = memcmp(block + AT_MAGIC, "ustar\0", 6) == 0;
	bool gnu = memcmp(block + AT_MAGIC, "ustar  ", 8) == 0;
	char type = (char)block[AT_TYPE];

	*out = (struct hr__tar_header){.kind = HR__TAR_ZERO};
	if (hr__format_zeros(block, HR__TAR_BLOCK))
		return NULL;
	if (!good_checksum(block))
		return "its checksum is wrong";
	if (!get_number(block + AT_SIZE, 12, &out->size))
		return "its size is no number";
	out->magic = posix || gnu;
	get_name(block, posix, out->name);
	out->kind = kind_of(type);
	out->old = type == '\0';
	/* Links, devices, folders and pipes have no bytes, whatever their size says. */
	if (type >= '1' && type <= '6')
		out->size = 0;
	out->extended = out->kind == HR__TAR_SPARSE && block[AT_GNU_EXTENDED];
	return NULL;
}

/* -- pax -------------------------------------------------------------------------------------- */

/* Decimal digits and nothing else. */
static bool get_decimal(const uint8_t *p, size_t len, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < len; i++) {
		if (!isdigit(p[i]) || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v))
			return false;
	}
	*out = v;
	return len > 0;
}

static bool key_is(const uint8_t *key, size_t len, const char *name)
{
	return len == strlen(name) && memcmp(key, name, len) == 0;
}

static const char *take_record(const uint8_t *key, size_t key_len, const uint8_t *value,
			       size_t value_len, struct hr__tar_pax *pax)
{
	if (key_is(key, key_len, "path")) {
		if (value_len >= sizeof(pax->path) || memchr(value, 0, value_len))
			return "its pax path is too long or has a NUL in it";
		memcpy(pax->path, value, value_len);
		pax->path[value_len] = '\0';
		pax->has_path = value_len > 0; /* an empty value takes a global one back */
	} else if (key_is(key, key_len, "size")) {
		pax->has_size = value_len > 0;
		if (value_len && !get_decimal(value, value_len, &pax->size))
			return "its pax size is no number";
	} else if (key_len > 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
		pax->sparse = true;
	}
	return NULL;
}

const char *hr__tar_pax(const uint8_t *records, size_t len, struct hr__tar_pax *pax)
{
	/* "LENGTH KEY=VALUE\n", where the length counts itself. Zeros may fill up the end. */
	for (size_t at = 0; at < len && records[at];) {
		const uint8_t *record = records + at, *equals;
		size_t digits = 0, rest = len - at;
		const char *wrong;
		uint64_t record_len;

		while (digits < rest && isdigit(record[digits]))
			digits++;
		if (!get_decimal(record, digits, &record_len) || record_len > rest ||
		    record_len < digits + 3 || record[digits] != ' ' ||
		    record[record_len - 1] != '\n')
			return "its pax records are not as long as they say";
		digits++;
		equals = memchr(record + digits, '=', record_len - digits - 1);
		if (!equals)
			return "one of its pax records has no '='";
		wrong = take_record(record + digits, (size_t)(equals - record) - digits, equals + 1,
				    (size_t)(record + record_len - 1 - equals - 1), pax);
		if (wrong)
			return wrong;
		at += record_len;
	}
	return NULL;
}

/* -- names and small contents ----------------------------------------------------------------- */

/* "__x__" or "__x__/...": what WebDataset keeps for itself. */
static bool is_meta(const char *path)
{
	size_t first = strcspn(path, "/");

	return first >= 4 && path[0] == '_' && path[1] == '_' && path[first - 1] == '_' &&
	       path[first - 2] == '_';
}

int hr__tar_split(const char *path, char *key, char *extension)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	const char *dot = strchr(base, '.');
	size_t len;

	if (!dot || dot == base || !dot[1] || is_meta(path))
		return -1;
	len = strlen(dot + 1);
	if (len > 255)
		return -1;
	memcpy(key, path, (size_t)(dot - path));
	key[dot - path] = '\0';
	for (size_t i = 0; i <= len; i++)
		extension[i] = (char)(dot[1 + i] >= 'A' && dot[1 + i] <= 'Z' ? dot[1 + i] + 32
									     : dot[1 + i]);
	return 0;
}

bool hr__tar_int(const uint8_t *text, size_t len, int64_t *out)
{
	bool minus = len > 0 && *text == '-';
	uint64_t v;

	text += minus;
	len -= minus;
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len > 18 || !get_decimal(text, len, &v))
		return false;
	*out = minus ? -(int64_t)v : (int64_t)v;
	return true;
}

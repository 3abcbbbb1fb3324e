/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/crc32c.c - CRC-32C by ISA-L, which has a routine for each generation of processors, or by tables
 * where it is not installed. Loaded at run time: what is built here goes into containers and onto
 * machines that have a libc and nothing else, and ISA-L has no archive to link.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

#include "base/crc32c.h"
#include "base/util.h"

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41, lowest bit first */
#define LIBRARY "libisal.so.2"

/* As isa-l/crc.h declares it: neither the first nor the last inversion is its own. */
typedef unsigned int (*isal_fn)(unsigned char *buffer, int len, unsigned int init);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static isal_fn isal;
static uint32_t tables[8][256]; /* tables[k][b]: of byte b with k zeros behind it */

static void prepare(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;

		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		tables[0][b] = crc;
	}
	for (uint32_t b = 0; b < 256; b++) {
		for (int k = 1; k < 8; k++)
			tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
	}
	if (library)
		*(void **)&isal = dlsym(library, "crc32_iscsi"); /* as POSIX has it */
	if (library && !isal)
		dlclose(library);
}

static uint32_t load(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Eight bytes a step, each by a table of its own. */
static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t a = crc ^ load(p), b = load(p + 4);

		crc = tables[7][a & 255] ^ tables[6][a >> 8 & 255] ^ tables[5][a >> 16 & 255] ^
		      tables[4][a >> 24] ^ tables[3][b & 255] ^ tables[2][b >> 8 & 255] ^
		      tables[1][b >> 16 & 255] ^ tables[0][b >> 24];
	}
	for (; len > 0; len--)
		crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 255];
	return crc;
}

uint32_t hr__crc32c_plain(uint32_t crc, const void *bytes, size_t len)
{
	pthread_once(&once, prepare);
	return ~by_tables(~crc, bytes, len);
}

uint32_t hr__crc32c(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	pthread_once(&once, prepare);
	if (!isal)
		return ~by_tables(~crc, p, len);
	crc = ~crc;
	while (len > 0) {
		int n = (int)hr__min(len, INT_MAX);

		crc = isal((unsigned char *)p, n, crc);
		p += n;
		len -= (size_t)n;
	}
	return ~crc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/crc32c.h - CRC-32C (Castagnoli: RFC 3720, appendix B.4), the checksum of records that others write.
 */
#ifndef HR_BASE_CRC32C_H
#define HR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* hr__crc32c() - of @len bytes. @crc: 0, or what the bytes before them gave. Any thread. */
uint32_t hr__crc32c(uint32_t crc, const void *bytes, size_t len);

/* hr__crc32c_plain() - the same, never by the library. */
uint32_t hr__crc32c_plain(uint32_t crc, const void *bytes, size_t len);

#endif

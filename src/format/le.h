/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/le.h - little-endian numbers at any address; knows no format.
 */
#ifndef HR_FORMAT_LE_H
#define HR_FORMAT_LE_H

#include <stdint.h>

static inline uint16_t hr__le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t hr__le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t hr__le64(const uint8_t *p)
{
	return hr__le32(p) | (uint64_t)hr__le32(p + 4) << 32;
}

#endif

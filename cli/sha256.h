/* SPDX-License-Identifier: Apache-2.0 */
/* cli/sha256.h - the digest by which model hubs name their files (FIPS 180-4). */
#ifndef HR_CLI_SHA256_H
#define HR_CLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct cli_sha256 {
	uint32_t state[8];
	uint64_t len; /* bytes so far */
	uint8_t block[64];
};

void cli_sha256_init(struct cli_sha256 *s);
void cli_sha256_add(struct cli_sha256 *s, const void *bytes, size_t len);

/* cli_sha256_hex() - 64 digits and a NUL; @s is used up. */
void cli_sha256_hex(struct cli_sha256 *s, char hex[65]);

#endif

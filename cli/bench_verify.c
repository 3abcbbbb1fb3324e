/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench_verify.c - the pattern that bench writes, and the untimed checks after the load. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"

#define CHECK_BLOCKS 256
#define CHECK_BYTES (256ull << 20) /* of large blocks fewer, but 16 at least */

static uint64_t word(uint64_t index, uint64_t seed)
{
	uint64_t z = index + seed * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull;

	z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
	z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
	return z ^ (z >> 32);
}

void bench_fill(void *buf, uint64_t len, uint64_t offset, uint64_t seed)
{
	for (uint64_t i = 0; i < len / 8; i++) {
		uint64_t w = word(offset / 8 + i, seed);

		memcpy((char *)buf + 8 * i, &w, 8);
	}
}

/* Three blocks of memory and a plain descriptor. */
struct check {
	struct bench *b;
	uint64_t bs, out_bytes;
	uint8_t *device, *plain, *pattern;
	int fd;
	/* With a conversion: the processor makes the same of the same block. */
	struct hr_device *host;
	struct hr_engine *host_engine;
	struct hr_buffer *host_buffer;
};

static int open_check(struct check *c, struct bench *b)
{
	c->b = b;
	c->bs = b->set->bs;
	c->out_bytes = b->out_bytes;
	c->device = malloc(c->out_bytes + 2 * c->bs);
	c->fd = open(b->file_path, O_RDONLY | O_CLOEXEC);
	if (c->fd < 0) {
		cli_fail("%s: cannot be opened again to verify: %s; leave it in place",
			 b->file_path, strerror(errno));
		return CLI_FAILED;
	}
	if (!c->device) {
		cli_fail("--verify: no memory for blocks of %" PRIu64 "; use a smaller --bs",
			 c->bs);
		return CLI_FAILED;
	}
	c->plain = c->device + c->out_bytes;
	c->pattern = c->plain + c->bs;
	return CLI_OK;
}

static int open_host(struct check *c)
{
	struct hr_engine_options opts = {.buffered = true};
	int err = hr_device_open("host", &c->host);

	if (!err)
		err = hr_engine_open(c->host, &opts, &c->host_engine);
	return err ? err : hr_buffer_alloc(c->host, c->out_bytes, &c->host_buffer);
}

static void close_check(struct check *c)
{
	if (!hr_engine_close(c->host_engine))
		hr_buffer_free(c->host_buffer);
	hr_device_close(c->host);
	free(c->device);
	if (c->fd >= 0)
		close(c->fd);
}

static int read_plain(struct check *c, uint64_t block)
{
	if (cli_pread_full(c->fd, c->plain, c->bs, block * c->bs) == (int64_t)c->bs)
		return CLI_OK;
	return cli_fail("%s: could not be read again at byte %" PRIu64
			" to verify; leave it in place and whole",
			c->b->file_path, block * c->bs);
}

static int differs(const struct check *c, const uint8_t *got, const uint8_t *want, uint64_t block)
{
	uint64_t i = 0;

	while (i < c->bs && got[i] == want[i])
		i++;
	if (i == c->bs)
		return CLI_OK;
	return cli_fail("%s: file offset %" PRIu64 ": wanted byte 0x%02x, got 0x%02x; "
			"if nothing else wrote to the file, report it",
			c->b->file_path, block * c->bs + i, want[i], got[i]);
}

static int read_block(const struct check *c, struct hr_engine *engine, struct hr_buffer *buffer,
		      uint64_t block)
{
	struct hr_piece piece = {.file_offset = block * c->bs, .len = c->bs};
	int64_t n = hr_gather(engine, c->b->file, &piece, 1, buffer, c->b->from, c->b->to);

	return n < 0 ? (int)n : n != (int64_t)c->bs ? -HR_E_FILE_CHANGED : 0;
}

/* The block as the device made it is in c->device. */
static int check_converted(struct check *c, uint64_t block)
{
	uint32_t size = hr_dtype_size(c->b->to);
	const uint8_t *want = hr_buffer_address(c->host_buffer);
	uint64_t i = 0;
	int err = read_block(c, c->host_engine, c->host_buffer, block);

	if (err)
		return cli_fail_code(err, c->b->file_path);
	while (i < c->out_bytes && c->device[i] == want[i])
		i++;
	if (i == c->out_bytes)
		return CLI_OK;
	return cli_fail("%s: file offset %" PRIu64 ": %s to %s differs from what the processor "
			"makes of it; if nothing else wrote to the file, report it",
			c->b->file_path, block * c->bs + i / size * hr_dtype_size(c->b->from),
			hr_dtype_name(c->b->from), hr_dtype_name(c->b->to));
}

static int check_read(struct check *c, struct hr_engine *engine, struct hr_buffer *buffer,
		      uint64_t block, bool *pattern)
{
	int err = read_block(c, engine, buffer, block);

	if (!err)
		err = hr_buffer_copy_out(buffer, 0, c->device, c->out_bytes);
	if (err)
		return cli_fail_code(err, c->b->file_path);
	if (c->b->from != c->b->to) {
		*pattern = false;
		return check_converted(c, block);
	}
	if (read_plain(c, block) != CLI_OK || differs(c, c->device, c->plain, block) != CLI_OK)
		return CLI_FAILED;
	bench_fill(c->pattern, c->bs, block * c->bs, c->b->set->seed);
	if (c->bs % 8 || memcmp(c->pattern, c->device, c->bs) != 0)
		*pattern = false;
	return CLI_OK;
}

static uint64_t check_count(const struct check *c)
{
	uint64_t n = CHECK_BYTES / c->bs;

	n = n < 16 ? 16 : n;
	return cli_min(n, CHECK_BLOCKS);
}

int bench_verify_reads(struct bench *b, uint64_t *checked, bool *pattern)
{
	struct bench_worker walk = {.bench = b, .random_state = ~b->set->seed};
	struct hr_buffer *buffer = NULL;
	struct hr_engine *engine = NULL;
	struct check c = {.fd = -1};
	int err, code = open_check(&c, b);

	*pattern = true;
	if (code == CLI_OK) {
		err = bench_open_engine(b, &engine);
		if (!err)
			err = hr_buffer_alloc(b->device.dev, c.out_bytes, &buffer);
		if (!err && b->from != b->to)
			err = open_host(&c);
		code = err ? cli_fail_code(err, b->device.info.name) : CLI_OK;
	}
	for (uint64_t i = 0; code == CLI_OK && !cli_interrupted && i < check_count(&c); i++) {
		code = check_read(&c, engine, buffer, bench_next_block(&walk), pattern);
		*checked += code == CLI_OK;
	}
	if (!hr_engine_close(engine))
		hr_buffer_free(buffer);
	close_check(&c);
	return code;
}

int bench_verify_writes(struct bench *b, uint64_t *checked)
{
	struct check c = {.fd = -1};
	int code = open_check(&c, b);
	uint64_t step = b->blocks / 65536 + 1; /* a large range is sampled */

	hr_file_drop_cache(b->file);
	for (uint64_t block = 0; code == CLI_OK && !cli_interrupted && block < b->blocks;
	     block += step) {
		if (!(atomic_load(&b->written[block / 8]) & (1u << (block % 8))))
			continue;
		code = read_plain(&c, block);
		bench_fill(c.pattern, c.bs, block * c.bs, b->set->seed);
		if (code == CLI_OK)
			code = differs(&c, c.plain, c.pattern, block);
		*checked += code == CLI_OK;
	}
	close_check(&c);
	return code;
}

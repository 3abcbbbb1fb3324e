/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/load_verify.c - the independent check of load: plain buffered reads and an arithmetic of its own.
 * It must not use the library's engine, planner or slices.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/load.h"
#include "cli/sha256.h"

#define CHUNK (1u << 20)

struct check {
	const struct hr_checkpoint *ck;
	struct hr_buffer *buffer;
	uint8_t *file, *device;
	uint64_t open_file; /* which one fd is, UINT64_MAX: none */
	int fd;
};

/* One run of bytes that is contiguous in both. */
static int check_run(struct check *c, const struct hr_weight *w, uint64_t file_at,
		     uint64_t buffer_at, uint64_t len)
{
	for (uint64_t done = 0; done < len && !cli_interrupted;) {
		uint64_t n = cli_min(len - done, CHUNK);
		int err;

		if (cli_pread_full(c->fd, c->file, n, file_at + done) != (int64_t)n)
			return cli_fail("%s: could not be read again at byte %" PRIu64
					" to verify tensor %s; leave it in place and whole",
					hr_checkpoint_path(c->ck, w->file), file_at + done,
					w->name);
		err = hr_buffer_copy_out(c->buffer, buffer_at + done, c->device, n);
		if (err)
			return cli_fail_code(err, w->name);
		for (uint64_t i = 0; i < n; i++) {
			if (c->file[i] != c->device[i])
				return cli_fail("%s: tensor %s: byte %" PRIu64
						" of the file is 0x%02x, in device memory 0x%02x; "
						"report this with the output of headrace check",
						hr_checkpoint_path(c->ck, w->file), w->name,
						file_at + done + i, c->file[i], c->device[i]);
		}
		done += n;
	}
	return CLI_OK;
}

static int turn_to_file(struct check *c, uint64_t file)
{
	const char *path = hr_checkpoint_path(c->ck, file);

	if (c->open_file == file)
		return CLI_OK;
	if (c->fd >= 0)
		close(c->fd);
	c->open_file = file;
	c->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (c->fd < 0)
		return cli_fail("%s: cannot be opened again to verify: %s; leave it in place", path,
				strerror(errno));
	return CLI_OK;
}

static int check_part(struct check *c, const struct hr_part *part)
{
	uint64_t rows = 1, row_bytes, size, start = 0, count, bits;
	struct hr_weight w;
	int code;

	hr_checkpoint_weight(c->ck, part->weight, &w);
	code = turn_to_file(c, w.file);
	if (code != CLI_OK || !part->len)
		return code;
	if (!part->sliced)
		return check_run(c, &w, w.offset, part->buffer_offset, w.len);
	bits = hr_weight_type_bits(w.type);
	for (uint32_t i = part->dim + 1; i < w.ndim; i++)
		bits *= w.shape[i];
	for (uint32_t i = 0; i < part->dim; i++)
		rows *= w.shape[i];
	size = w.shape[part->dim];
	start = part->start * bits / 8;
	count = part->count * bits / 8;
	row_bytes = size * bits / 8;
	for (uint64_t i = 0; i < rows && code == CLI_OK && !cli_interrupted; i++)
		code = check_run(c, &w, w.offset + i * row_bytes + start,
				 part->buffer_offset + i * count, count);
	return code;
}

static int check_digest(struct check *c, const char *wanted)
{
	const char *path = hr_checkpoint_path(c->ck, 0);
	struct cli_sha256 sha;
	char hex[65];
	int64_t n;

	if (turn_to_file(c, 0) != CLI_OK)
		return CLI_FAILED;
	cli_sha256_init(&sha);
	for (uint64_t at = 0; !cli_interrupted; at += (uint64_t)n) {
		n = cli_pread_full(c->fd, c->file, CHUNK, at);
		if (n < 0)
			return cli_fail("%s: could not be read again at byte %" PRIu64
					" for its digest: %s; check the drive",
					path, at, strerror((int)-n));
		if (!n)
			break;
		cli_sha256_add(&sha, c->file, (size_t)n);
	}
	cli_sha256_hex(&sha, hex);
	if (strcasecmp(hex, wanted) != 0 && !cli_interrupted)
		return cli_fail(
			"%s: its SHA-256 is %s, not %s; it is another file or damaged, get it "
			"again",
			path, hex, wanted);
	return CLI_OK;
}

int cli_load_verify(const struct hr_checkpoint *ck, const struct hr_part *parts, uint64_t n,
		    struct hr_buffer *buffer, const char *sha256)
{
	struct check c = {.ck = ck, .buffer = buffer, .open_file = UINT64_MAX, .fd = -1};
	struct cli_progress progress;
	uint64_t done = 0, total = 0;
	int code = CLI_OK;

	c.file = malloc(2 * (size_t)CHUNK);
	if (!c.file)
		return cli_fail("--verify: no memory for %u bytes; close something", 2 * CHUNK);
	c.device = c.file + CHUNK;
	for (uint64_t i = 0; i < n; i++)
		total += parts[i].len;
	cli_progress_begin(&progress, "verify", total);
	for (uint64_t i = 0; i < n && code == CLI_OK && !cli_interrupted; i++) {
		code = check_part(&c, &parts[i]);
		done += parts[i].len;
		cli_progress_bytes(&progress, done);
	}
	cli_progress_end(&progress);
	if (code == CLI_OK && sha256)
		code = check_digest(&c, sha256);
	if (c.fd >= 0)
		close(c.fd);
	free(c.file);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One gather of many random pieces of a file, and what it cost by the library's own counters. Uses
 * the public interface alone; enters.py runs it, also under strace.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/headrace.h>

struct job {
	const char *path;
	const char *device;
	uint64_t count, piece_bytes;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buffer;
	struct hr_engine *engine;
	struct hr_piece *pieces;
};

static uint64_t next_random(uint64_t *state)
{
	/* xorshift64: good enough to scatter reads, and the same pieces in every run */
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int fail(const char *what, int code)
{
	const char *detail = hr_error_detail();

	if (detail[0]) /* names the file itself */
		fprintf(stderr, "gather_once: %s\n", detail);
	else
		fprintf(stderr, "gather_once: %s: %s\n", what, hr_strerror(code));
	return 1;
}

/* Random places that are multiples of the piece, as a page-aligned dataset has them. */
static int scatter(struct job *job)
{
	struct hr_file_info info;
	uint64_t state = 88172645463325252u;
	int rc = hr_file_info(job->file, &info);

	if (rc < 0)
		return rc;
	if (info.size_bytes < job->piece_bytes)
		return -EINVAL;
	job->pieces = calloc(job->count, sizeof(*job->pieces));
	if (!job->pieces)
		return -ENOMEM;
	for (uint64_t i = 0; i < job->count; i++) {
		uint64_t place = next_random(&state) % (info.size_bytes / job->piece_bytes);

		job->pieces[i].file_offset = place * job->piece_bytes;
		job->pieces[i].len = job->piece_bytes;
		job->pieces[i].buffer_offset = i * job->piece_bytes;
	}
	return 0;
}

static int open_all(struct job *job)
{
	struct hr_engine_options opts = {.depth = 128, .direct = true};
	int rc = hr_device_open(job->device, &job->dev);

	if (rc == 0)
		rc = hr_file_open(job->path, HR_FILE_READ, &job->file);
	if (rc == 0)
		rc = hr_buffer_alloc(job->dev, job->count * job->piece_bytes, &job->buffer);
	if (rc == 0)
		rc = hr_engine_open(job->dev, &opts, &job->engine);
	return rc < 0 ? rc : scatter(job);
}

static int gather(struct job *job)
{
	struct hr_queue_info queue;
	struct hr_stats stats;
	int64_t got = hr_gather(job->engine, job->file, job->pieces, job->count, job->buffer,
				HR_DTYPE_BYTES, HR_DTYPE_BYTES);

	if (got < 0)
		return fail("gather", (int)got);
	hr_engine_queue(job->engine, &queue);
	hr_engine_stats(job->engine, &stats);
	printf("{\"bytes\": %lld, \"pieces\": %llu, \"segments\": %llu, \"enters\": %llu, "
	       "\"preads\": %llu, \"probes\": %llu, \"copies\": %llu, \"bytes_read\": %llu, "
	       "\"bytes_moved\": %llu, \"queue\": \"%s\"}\n",
	       (long long)got, (unsigned long long)stats.pieces, (unsigned long long)stats.segments,
	       (unsigned long long)stats.enters, (unsigned long long)stats.preads,
	       (unsigned long long)stats.probes, (unsigned long long)stats.copies,
	       (unsigned long long)stats.bytes_read, (unsigned long long)stats.bytes_moved,
	       queue.name);
	return 0;
}

int main(int argc, char **argv)
{
	struct job job = {.device = "host", .count = 4096, .piece_bytes = 8192};
	int rc, status;

	if (argc < 2) {
		fprintf(stderr, "usage: gather_once FILE [DEVICE [COUNT [BYTES]]]\n");
		return 2;
	}
	job.path = argv[1];
	if (argc > 2)
		job.device = argv[2];
	if (argc > 3)
		job.count = strtoull(argv[3], NULL, 10);
	if (argc > 4)
		job.piece_bytes = strtoull(argv[4], NULL, 10);
	if (job.count == 0 || job.count > 1u << 20 || job.piece_bytes == 0 ||
	    job.piece_bytes > 1u << 20) {
		fprintf(stderr, "gather_once: COUNT and BYTES must be 1..1048576\n");
		return 2;
	}
	rc = open_all(&job);
	status = rc < 0 ? fail(job.path, rc) : gather(&job);
	hr_engine_close(job.engine);
	hr_buffer_free(job.buffer);
	hr_file_close(job.file);
	hr_device_close(job.dev);
	free(job.pieces);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/requests.c - many random single reads with a fixed number in flight, and nothing else: what
 * the library costs without the load generator around it. instructions.py counts it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/headrace.h>

#define BYTES 8192u
#define DEPTH_MAX 1024
#define REAP_NS 1000000000ull

struct job {
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buffer;
	struct hr_engine *engine;
	uint64_t blocks, left, state;
	struct hr_io ios[DEPTH_MAX], *ready[DEPTH_MAX];
	uint32_t depth;
};

static void aim(struct job *job, struct hr_io *io)
{
	/* xorshift64: good enough to scatter reads, and the same places in every run */
	job->state ^= job->state << 13;
	job->state ^= job->state >> 7;
	job->state ^= job->state << 17;
	io->piece.file_offset = job->state % job->blocks * BYTES;
}

static int run(struct job *job)
{
	uint32_t n = 0;
	int ret = 0;

	for (; n < job->depth && job->left; job->left--, n++) {
		struct hr_io *io = &job->ios[n];

		io->op = HR_READ;
		io->file = job->file;
		io->buffer = job->buffer;
		io->piece = (struct hr_piece){0, BYTES, (uint64_t)n * BYTES};
		aim(job, io);
		job->ready[n] = io;
	}
	while (ret >= 0 && (n || hr_in_flight(job->engine))) {
		uint32_t again = 0;

		ret = n ? hr_submit(job->engine, job->ready, n) : 0;
		if (ret >= 0)
			ret = hr_reap(job->engine, job->ready, job->depth, 1, REAP_NS);
		for (int i = 0; i < ret; i++) {
			struct hr_io *io = job->ready[i];

			if (io->res != BYTES)
				return io->res < 0 ? (int)io->res : -HR_E_FILE_CHANGED;
			if (!job->left)
				continue;
			job->left--;
			aim(job, io);
			job->ready[again++] = io;
		}
		n = again;
	}
	return ret < 0 ? ret : 0;
}

static int open_all(struct job *job, const char *path, const char *device)
{
	struct hr_engine_options opts = {.depth = job->depth, .direct = true};
	struct hr_file_info info;
	int ret = hr_device_open(device, &job->dev);

	if (ret == 0)
		ret = hr_file_open(path, HR_FILE_READ, &job->file);
	if (ret == 0)
		ret = hr_file_info(job->file, &info);
	if (ret == 0)
		ret = hr_buffer_alloc(job->dev, (uint64_t)job->depth * BYTES, &job->buffer);
	if (ret == 0)
		ret = hr_engine_open(job->dev, &opts, &job->engine);
	job->blocks = ret == 0 ? info.size_bytes / BYTES : 0;
	return ret;
}

int main(int argc, char **argv)
{
	static struct job job = {.state = 88172645463325252u};
	uint64_t count;
	int ret;

	if (argc < 5) {
		fprintf(stderr, "usage: requests FILE DEVICE COUNT DEPTH\n");
		return 2;
	}
	count = job.left = strtoull(argv[3], NULL, 10);
	job.depth = (uint32_t)strtoul(argv[4], NULL, 10);
	if (job.depth == 0 || job.depth > DEPTH_MAX) {
		fprintf(stderr, "requests: DEPTH must be 1..%d\n", DEPTH_MAX);
		return 2;
	}
	ret = open_all(&job, argv[1], argv[2]);
	if (ret == 0)
		ret = job.blocks ? run(&job) : -HR_E_TOO_SHORT;
	if (ret)
		fprintf(stderr, "requests: %s\n",
			hr_error_detail()[0] ? hr_error_detail() : hr_strerror(ret));
	else
		printf("{\"requests\": %llu}\n", (unsigned long long)count);
	hr_engine_close(job.engine);
	hr_buffer_free(job.buffer);
	hr_file_close(job.file);
	hr_device_close(job.dev);
	return ret != 0;
}

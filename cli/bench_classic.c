/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/bench_classic.c - the way without this library, for comparison: a blocking read into plain
 * memory, then a blocking copy to the device (for writes the reverse), one request at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"

struct classic {
	struct bench_worker *w;
	struct hr_buffer *buffer;
	uint8_t *memory;
	int fd;
};

static int open_classic(struct classic *c, struct bench_worker *w)
{
	const struct bench *b = w->bench;
	int err;

	c->w = w;
	c->fd = open(b->file_path, (b->write ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	c->memory = malloc(b->set->bs);
	if (!c->memory)
		return -ENOMEM;
	err = hr_buffer_alloc(b->device.dev, b->set->bs, &c->buffer);
	if (err)
		return err;
	bench_fill(c->memory, b->set->bs, 0, b->set->seed);
	w->queue.name = "classic";
	w->queue.depth = 1;
	return hr_buffer_copy_in(c->buffer, 0, c->memory, b->set->bs);
}

static int write_block(struct classic *c, uint64_t block)
{
	struct bench *b = c->w->bench;
	uint64_t bs = b->set->bs, done = 0;
	int err;

	if (b->written) {
		bench_fill(c->memory, bs, block * bs, b->set->seed);
		atomic_fetch_or(&b->written[block / 8], (unsigned char)(1u << (block % 8)));
		err = hr_buffer_copy_in(c->buffer, 0, c->memory, bs);
		if (err)
			return err;
	}
	err = hr_buffer_copy_out(c->buffer, 0, c->memory, bs);
	while (!err && done < bs) {
		ssize_t n = pwrite(c->fd, c->memory + done, bs - done, (off_t)(block * bs + done));

		c->w->stats.preads++;
		if (n > 0)
			done += (uint64_t)n;
		else if (n == 0 || errno != EINTR)
			err = n ? -errno : -ENOSPC;
	}
	return err;
}

static int read_block(struct classic *c, uint64_t block)
{
	uint64_t bs = c->w->bench->set->bs;
	int64_t n = cli_pread_full(c->fd, c->memory, bs, block * bs);

	c->w->stats.preads++;
	if (n != (int64_t)bs)
		return n < 0 ? (int)n : -HR_E_FILE_CHANGED;
	return hr_buffer_copy_in(c->buffer, 0, c->memory, bs);
}

static int run_classic(struct classic *c)
{
	struct bench_worker *w = c->w;
	uint64_t left = bench_blocks_limit(w), before = cli_now_ns();

	for (; left && before < w->bench->deadline_ns && !atomic_load(&w->bench->stop); left--) {
		uint64_t block = bench_next_block(w), now;
		int err = w->bench->write ? write_block(c, block) : read_block(c, block);

		if (err)
			return err;
		now = cli_now_ns();
		cli_histogram_add(&w->latency, now - before);
		before = now;
		w->stats.copies++;
		w->blocks++;
		atomic_store_explicit(&w->live_blocks, w->blocks, memory_order_relaxed);
	}
	return 0;
}

void *bench_classic_worker(void *worker)
{
	struct bench_worker *w = worker;
	struct classic c = {.fd = -1};
	int err = open_classic(&c, w);

	if (err)
		bench_worker_fail(w, err, w->bench->file_path);
	if (bench_let_go(w)) {
		w->start_ns = cli_now_ns();
		w->cpu_ns = bench_cpu_ns();
		err = run_classic(&c);
		w->cpu_ns = bench_cpu_ns() - w->cpu_ns;
		w->end_ns = cli_now_ns();
		if (err)
			bench_worker_fail(w, err, w->bench->file_path);
	}
	atomic_fetch_sub(&w->bench->running, 1);
	hr_buffer_free(c.buffer);
	free(c.memory);
	if (c.fd >= 0)
		close(c.fd);
	return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/rate.c - what reads past the page cache should give: a range, because a drive of a kind and a
 * link may be a slow or a fast one, and small random reads are slower than long ones. Or measured.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "doctor/machine.h"

/* Of the drive's link: what the slowest and the fastest NVMe drives for it reach. */
#define NVME_LOW 0.12
#define NVME_HIGH 1.0
/* Peer writes over the link between two sockets. */
#define SOCKETS_LOW 0.1

#define SLICES 4
#define SLICE_NS 120000000ull
#define WAIT_NS 5000000000ull
#define BLOCKS_MAX 64u
/* Others use the same drive: the range is wider than what was seen in a second. */
#define MARGIN_LOW 0.5
#define MARGIN_HIGH 1.6

struct range {
	double low, high;
	const char *basis;
};

static void add(struct range *to, const struct range *more, double share)
{
	to->low += more->low * share;
	to->high += more->high;
	if (more->basis && (!to->basis || strcmp(more->basis, "kind") == 0))
		to->basis = more->basis;
}

static struct range of_single(const struct hr__drive *d)
{
	switch (d->kind) {
	case HR__DRIVE_NVME:
		if (d->pci.link > 0)
			return (struct range){NVME_LOW * d->pci.link, NVME_HIGH * d->pci.link,
					      "link"};
		return (struct range){0.3e9, 14e9, "kind"};
	case HR__DRIVE_MULTIPATH:
		return (struct range){0.3e9, 14e9, "kind"};
	case HR__DRIVE_FABRIC:
		return (struct range){0.1e9, 25e9, "kind"};
	case HR__DRIVE_VIRTIO: /* the host's drive, or its page cache */
		return (struct range){0.1e9, 8e9, "kind"};
	case HR__DRIVE_SCSI:
		return (struct range){0.001e9, 2.4e9, "kind"};
	default:
		return (struct range){0, 0, "none"};
	}
}

/* What is composed reads from all members at once, a chain of mappings from one. */
static struct range of_drive(const struct hr__machine *m, const struct hr__drive *d, int depth)
{
	struct range sum = {0, 0, NULL};

	if (d->kind != HR__DRIVE_MD && d->kind != HR__DRIVE_DM)
		return of_single(d);
	for (uint32_t i = 0; i < d->n_members && depth; i++) {
		const struct hr__drive *member = hr__drive_find(m, d->members[i]);
		struct range one =
			member ? of_drive(m, member, depth - 1) : (struct range){0, 0, "none"};

		/* Small random reads may all meet one member. */
		add(&sum, &one, d->kind == HR__DRIVE_MD ? 1.0 / d->n_members : 0.3);
	}
	if (!sum.basis)
		sum.basis = "none";
	return sum;
}

void hr__rate_expect(const struct hr__machine *m, const struct hr__drive *drive,
		     const struct hr__gpu *gpu, struct hr_check_pair *out)
{
	struct range r = of_drive(m, drive, 3);

	if (gpu && gpu->pci.link > 0 && r.high > gpu->pci.link)
		r.high = gpu->pci.link;
	if (out->path == HR_PATH_P2P && !strcmp(out->near, "sockets"))
		r.low *= SOCKETS_LOW;
	r.low = r.low < r.high ? r.low : r.high;
	out->expected_low = (uint64_t)r.low;
	out->expected_high = (uint64_t)r.high;
	out->basis = r.high > 0 ? r.basis : "none";
}

/* -- measured --------------------------------------------------------------------------------- */

/* One kind of load on one file. */
struct load {
	struct hr_file *file;
	struct hr_buffer *buffer;
	struct hr_engine *engine;
	struct hr_io ios[BLOCKS_MAX];
	uint64_t size, block, seed;
	uint32_t depth;
};

static uint64_t draw(struct load *l)
{
	l->seed = l->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (l->seed >> 20) % (l->size / l->block) * l->block;
}

static int send(struct load *l, struct hr_io *io)
{
	int ret;

	memset(io, 0, sizeof(*io));
	io->op = HR_READ;
	io->file = l->file;
	io->buffer = l->buffer;
	io->piece = (struct hr_piece){
		.file_offset = draw(l),
		.len = l->block,
		.buffer_offset = (uint64_t)(io - l->ios) * l->block,
	};
	ret = hr_submit(l->engine, (struct hr_io *const[]){io}, 1);
	return ret < 0 ? ret : 0;
}

/* Reads for one slice of time. Return: bytes, or -code. */
static int64_t slice(struct load *l, uint64_t end)
{
	struct hr_io *done[BLOCKS_MAX];
	int64_t bytes = 0;

	while (hr__now_ns() < end) {
		int n = hr_reap(l->engine, done, l->depth, 1, WAIT_NS);

		if (n <= 0)
			return n ? n : -ETIMEDOUT;
		for (int i = 0; i < n; i++) {
			int err = done[i]->res < 0 ? (int)done[i]->res : send(l, done[i]);

			if (err)
				return err;
			bytes += (int64_t)l->block;
		}
	}
	return bytes;
}

static int run(struct load *l, uint64_t *low, uint64_t *high)
{
	for (uint32_t i = 0; i < l->depth; i++) {
		int err = send(l, &l->ios[i]);

		if (err)
			return err;
	}
	for (int i = 0; i < SLICES; i++) {
		uint64_t start = hr__now_ns(), took;
		int64_t bytes = slice(l, start + SLICE_NS);
		uint64_t rate;

		if (bytes < 0)
			return (int)bytes;
		took = hr__now_ns() - start;
		rate = (uint64_t)((double)bytes * 1e9 / (double)took);
		/* The first slice has the start in it. */
		if (i && (rate < *low || !*low))
			*low = rate;
		if (i && rate > *high)
			*high = rate;
	}
	return 0;
}

static int run_load(struct load *l, struct hr_device *dev, uint64_t *low, uint64_t *high)
{
	const struct hr_engine_options opts = {.direct = true, .depth = BLOCKS_MAX};
	int err = hr_buffer_alloc(dev, l->depth * l->block, &l->buffer);

	if (err)
		return err;
	err = hr_engine_open(dev, &opts, &l->engine);
	if (!err) {
		err = run(l, low, high);
		/* A buffer that a drive may still write stays: better a leak than a stray write. */
		if (hr_engine_close(l->engine))
			return err ? err : -EBUSY;
	}
	hr_buffer_free(l->buffer);
	return err;
}

int hr__rate_measure(struct hr_file *file, struct hr_device *dev, uint64_t *low, uint64_t *high)
{
	static const struct {
		uint64_t block;
		uint32_t depth;
	} shapes[] = {{8u << 10, BLOCKS_MAX}, {1u << 20, 16}};
	struct hr_file_info info;
	struct load *l = calloc(1, sizeof(*l));
	int err = l ? hr_file_info(file, &info) : -ENOMEM;

	*low = *high = 0;
	for (size_t i = 0; !err && i < HR_ARRAY_LEN(shapes); i++) {
		*l = (struct load){.file = file,
				   .size = info.size_bytes,
				   .block = shapes[i].block,
				   .depth = shapes[i].depth,
				   .seed = 1};
		err = l->size < l->block ? -EINVAL : run_load(l, dev, low, high);
	}
	free(l);
	if (err)
		return err;
	*low = (uint64_t)((double)*low * MARGIN_LOW);
	*high = (uint64_t)((double)*high * MARGIN_HIGH);
	return 0;
}

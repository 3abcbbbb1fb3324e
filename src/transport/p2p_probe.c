/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/p2p_probe.c - proves that what a drive says it wrote into a device is there. There are
 * machines where every status is good and the bytes are missing, so nothing else counts. A verdict
 * holds for a device and a block device with all its members, and is remembered.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/sys.h"
#include "base/util.h"
#include "transport/p2p.h"

#define BLOCK 4096u
/* Blocks that are looked at for data; each drive must have one. */
#define TRIES_PER_DRIVE 16u
#define VERDICTS_MAX 64u
#define COPY_TIMEOUT_NS 10000000000ull

struct verdict {
	char device[32], drive[64];
	enum hr_op op;
	bool proven;
	char reason[192];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verdict verdicts[VERDICTS_MAX];
static uint32_t n_verdicts;

/* The last one may be half written. */
static void in_child(void)
{
	n_verdicts = 0;
}

HR__FORK_HOOK(.lock = &lock, .child = in_child);

/* What one probe works with. */
struct probe {
	const struct hr_file *file;
	enum hr_op op;
	struct hr_device *dev;
	struct hr_lane *lane;
	struct hr__p2p_window *window;
	void *device; /* BLOCK bytes there */
	uint8_t *want, *got;
	uint32_t compared; /* drives from which a block with data has arrived */
	bool judged;       /* a read was made: what came of it will not change */
	char *reason;
	size_t reason_size;
};

static int copy(struct probe *p, enum hr__where where, void *dst, const void *src)
{
	struct hr__move move = {.src = src, .dst = dst, .len = BLOCK};
	uint64_t ticket;
	int ret = p->lane->ops->move(p->lane, where, &move, 1, HR_DTYPE_BYTES, HR_DTYPE_BYTES,
				     &ticket);

	return ret < 0 ? ret : p->lane->ops->wait(p->lane, ticket, COPY_TIMEOUT_NS);
}

static int say(struct probe *p, const char *what, int64_t code)
{
	snprintf(p->reason, p->reason_size, "a trial %s %s %s%s%s",
		 p->op == HR_READ ? "read into" : "write from", p->dev->info.name, what,
		 code ? ": " : "", code ? hr_strerror((int)code) : "");
	return -HR_E_NO_PATH;
}

/* Zeroes may come from a hole, which the processor fills: they prove nothing. */
static bool has_data(const uint8_t *block)
{
	for (uint32_t i = 0; i < BLOCK; i++) {
		if (block[i])
			return true;
	}
	return false;
}

/* One block of the file. Return: 1 it has arrived, 0 it tells nothing, or -code. */
static int try_block(struct probe *p, uint64_t off)
{
	ssize_t n = hr__sys->pread(p->file->fd_direct, p->want, BLOCK, off);
	int ret;

	if (n != BLOCK)
		return 0;
	if (!has_data(p->want))
		return 0;
	/* Every byte differs beforehand. */
	for (uint32_t i = 0; i < BLOCK; i++)
		p->got[i] = (uint8_t)~p->want[i];
	ret = copy(p, HR__PLAIN_TO_DEVICE, p->device, p->got);
	if (ret)
		return ret;
	p->judged = true;
	n = hr__sys->pread(p->file->fd_direct, hr__p2p_window_at(p->window, p->device), BLOCK, off);
	if (n == -EREMOTEIO || n == -EINVAL)
		return say(p,
			   "was refused by the kernel: no peer DMA between the two; put both below "
			   "one PCIe switch",
			   0);
	if (n != BLOCK)
		return say(p, "failed", n < 0 ? n : -EIO);
	ret = p->lane->ops->flush(p->lane);
	if (!ret)
		ret = copy(p, HR__DEVICE_TO_PLAIN, p->got, p->device);
	if (ret)
		return ret;
	if (memcmp(p->got, p->want, BLOCK))
		return say(p,
			   "reported success, but the bytes did not arrive: an IOMMU or a bridge "
			   "drops them; boot with iommu=pt, or switch ACS off",
			   0);
	p->compared++;
	return 1;
}

/* A block with data on each drive, wherever in the file it is. */
static int try_drives(struct probe *p, const struct hr__p2p_drives *drives, uint64_t size)
{
	uint64_t row = drives->stride * drives->n;
	uint64_t step = row ? row : hr__max(hr__align_down(size / TRIES_PER_DRIVE, BLOCK), BLOCK);

	for (uint32_t i = 0; i < (row ? drives->n : 1); i++) {
		uint64_t off = i * drives->stride;
		int ret = 0;

		for (uint32_t k = 0; k < TRIES_PER_DRIVE && !ret; k++, off += step) {
			if (off + BLOCK > size)
				break;
			ret = try_block(p, off);
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int try_reads(struct probe *p, const struct hr__p2p_drives *drives)
{
	struct stat st;
	int ret = hr__sys->fstat(p->file->fd, &st);
	uint64_t size = ret ? 0 : (uint64_t)st.st_size;

	if (p->file->is_block_device)
		size = TRIES_PER_DRIVE * (1ull << 20);
	return try_drives(p, drives, size);
}

/* One block out of the device, read back without it. */
static int write_block(struct probe *p, int fd, uint64_t off)
{
	ssize_t n;
	int ret;

	/* No byte is zero: what was never written reads as zeroes. */
	for (uint32_t i = 0; i < BLOCK; i++)
		p->want[i] = (uint8_t)(1 + (off / BLOCK * 31 + i * 7) % 255);
	ret = copy(p, HR__PLAIN_TO_DEVICE, p->device, p->want);
	if (ret)
		return ret;
	p->judged = true;
	n = hr__sys->pwrite(fd, hr__p2p_window_at(p->window, p->device), BLOCK, off);
	if (n != BLOCK)
		return say(p, "failed", n < 0 ? n : -EIO);
	memset(p->got, 0, BLOCK);
	n = hr__sys->pread(fd, p->got, BLOCK, off);
	if (n != BLOCK)
		return say(p, "cannot be read back", n < 0 ? n : -EIO);
	if (memcmp(p->got, p->want, BLOCK))
		return say(p,
			   "reported success, but other bytes are on the drive: an IOMMU or a "
			   "bridge drops them; boot with iommu=pt, or switch ACS off",
			   0);
	p->compared++;
	return 0;
}

/*
 * A nameless file in the folder of @file, which the kernel knows best: imported files have no name, and a
 * link may lie on another drive. Return: descriptor or -errno.
 */
static int open_beside(const struct hr_file *file)
{
	char link[40], path[PATH_MAX];
	struct stat mine, other;
	ssize_t n;
	int fd;

	if (file->is_block_device)
		return -EOPNOTSUPP;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	if (path[0] != '/')
		return -ENOENT;
	strrchr(path, '/')[1] = '\0';
	fd = hr__sys->open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	if (!hr__sys->fstat(file->fd, &mine) && !hr__sys->fstat(fd, &other) &&
	    mine.st_dev == other.st_dev)
		return fd;
	hr__sys->close(fd);
	return -EXDEV;
}

/* Into a file beside the one that is meant: nobody's data is touched. */
static int try_writes(struct probe *p, const struct hr__p2p_drives *drives)
{
	int fd = open_beside(p->file), ret = 0;

	if (fd < 0)
		return say(p, "found no place for a nameless file beside this one", fd);
	if (drives->stride)
		ret = hr__sys->fallocate(fd, 0, 0, drives->stride * drives->n);
	for (uint32_t i = 0; i < (drives->stride ? drives->n : 1) && !ret; i++)
		ret = write_block(p, fd, i * drives->stride);
	hr__sys->close(fd);
	return ret;
}

static int run(struct probe *p, const struct hr__p2p_drives *drives)
{
	int ret = 0;

	for (uint32_t i = 0; i < drives->n; i++) {
		/* Each drive has an opinion of its own on the topology. */
		ret = hr__p2p_window_get(p->dev, p->device, BLOCK, drives->pci[i], &p->window);
		if (ret) {
			snprintf(p->reason, p->reason_size, "%s", hr_error_detail());
			return ret;
		}
		if (i + 1 < drives->n)
			hr__p2p_window_put(p->window);
	}
	ret = p->op == HR_READ ? try_reads(p, drives) : try_writes(p, drives);
	hr__p2p_window_put(p->window);
	return ret;
}

static int open_probe(struct probe *p)
{
	int ret;

	p->want = aligned_alloc(BLOCK, BLOCK);
	p->got = aligned_alloc(BLOCK, BLOCK);
	if (!p->want || !p->got)
		return say(p, "found no memory", 0);
	ret = p->dev->ops->alloc(p->dev, BLOCK, &p->device);
	if (!ret)
		ret = p->dev->ops->lane_open(p->dev, NULL, &p->lane);
	if (ret)
		snprintf(p->reason, p->reason_size, "%s", hr_error_detail());
	return ret;
}

static void close_probe(struct probe *p)
{
	if (p->lane)
		p->lane->ops->close(p->lane);
	if (p->device)
		p->dev->ops->free(p->dev, p->device, BLOCK);
	free(p->want);
	free(p->got);
}

static struct verdict *find_verdict(const struct hr_device *dev, enum hr_op op, const char *drive)
{
	for (uint32_t i = 0; i < n_verdicts; i++) {
		if (verdicts[i].op == op && !strcmp(verdicts[i].device, dev->info.name) &&
		    !strcmp(verdicts[i].drive, drive))
			return &verdicts[i];
	}
	return NULL;
}

static void remember(const struct probe *p, const char *drive, bool proven)
{
	const char *device = p->dev->info.name;
	struct verdict *v = &verdicts[n_verdicts];

	hr__log(HR_LOG_INFO, "p2p: %s and %s: %s", device, drive,
		!proven            ? p->reason
		: p->op == HR_READ ? "a trial read has arrived"
				   : "a trial write has arrived");
	if (n_verdicts == VERDICTS_MAX)
		return; /* asked again each time */
	n_verdicts++;
	snprintf(v->device, sizeof(v->device), "%s", device);
	snprintf(v->drive, sizeof(v->drive), "%s", drive);
	snprintf(v->reason, sizeof(v->reason), "%s", proven ? "" : p->reason);
	v->op = p->op;
	v->proven = proven;
}

/* The lock is held: two threads need not try the same pair. */
static int prove(struct probe *p, const struct hr__p2p_drives *drives)
{
	int ret = open_probe(p);

	if (!ret)
		ret = run(p, drives);
	if (ret && !p->reason[0])
		snprintf(p->reason, p->reason_size, "%s", hr_error_detail());
	close_probe(p);
	/* Another file may tell more, the module may be loaded: that is not remembered. */
	if (!ret && p->compared < (drives->stride ? drives->n : 1)) {
		snprintf(p->reason, p->reason_size,
			 "a trial read found no block with data of this file on %s; a longer file "
			 "on the same file system makes the proof",
			 drives->n > 1 ? "each drive" : "the drive");
		return -HR_E_NO_PATH;
	}
	if (!ret || p->judged)
		remember(p, drives->name, ret == 0);
	return ret ? -HR_E_NO_PATH : 0;
}

int hr__p2p_proven(const struct hr_file *file, struct hr_device *dev, enum hr_op op,
		   const struct hr__p2p_drives *drives, char *reason, size_t reason_size)
{
	struct probe p = {
		.file = file, .op = op, .dev = dev, .reason = reason, .reason_size = reason_size};
	const struct verdict *v;
	int ret = 0;

	reason[0] = '\0';
	pthread_mutex_lock(&lock);
	v = find_verdict(dev, op, drives->name);
	if (!v) {
		ret = prove(&p, drives);
	} else if (!v->proven) {
		snprintf(reason, reason_size, "%s", v->reason);
		ret = -HR_E_NO_PATH;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

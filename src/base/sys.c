/* SPDX-License-Identifier: Apache-2.0 */
/* base/sys.c - the real system calls behind hr__sys: errno becomes -errno here and nowhere else. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

#ifndef __NR_cachestat
#define __NR_cachestat 451 /* one number on all architectures, Linux 6.5 */
#endif

/* liburing reads the timeout while it submits, so it may live on the stack. */
#define NS_PER_S 1000000000ull

static int errno_or(int ret)
{
	return ret < 0 ? -errno : ret;
}

static int sys_open(const char *path, int flags, mode_t mode)
{
	return errno_or(open(path, flags, mode));
}

static int sys_close(int fd)
{
	return errno_or(close(fd));
}

static ssize_t sys_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	ssize_t n = pread(fd, buf, len, (off_t)offset);

	return n < 0 ? -errno : n;
}

static ssize_t sys_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)offset);

	return n < 0 ? -errno : n;
}

static ssize_t sys_pread_flags(int fd, void *buf, size_t len, uint64_t offset, int flags)
{
	struct iovec iov = {buf, len};
	ssize_t n = preadv2(fd, &iov, 1, (off_t)offset, flags);

	return n < 0 ? -errno : n;
}

static int sys_fstat(int fd, struct stat *st)
{
	return errno_or(fstat(fd, st));
}

static int sys_statx_fd(int fd, unsigned int mask, struct statx *stx)
{
	return errno_or(statx(fd, "", AT_EMPTY_PATH, mask, stx));
}

static int sys_fstatfs(int fd, struct statfs *st)
{
	return errno_or(fstatfs(fd, st));
}

static int sys_ftruncate(int fd, uint64_t len)
{
	return errno_or(ftruncate(fd, (off_t)len));
}

static int sys_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
	return errno_or(fallocate(fd, mode, (off_t)offset, (off_t)len));
}

static int sys_fdatasync(int fd)
{
	return errno_or(fdatasync(fd));
}

static int sys_fsync(int fd)
{
	return errno_or(fsync(fd));
}

static int sys_rename(const char *from, const char *to)
{
	return errno_or(rename(from, to));
}

static int sys_unlink(const char *path)
{
	return errno_or(unlink(path));
}

static int sys_fadvise(int fd, uint64_t offset, uint64_t len, int advice)
{
	return -posix_fadvise(fd, (off_t)offset, (off_t)len, advice);
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
	return errno_or(ioctl(fd, request, arg));
}

static int sys_cachestat(int fd, uint64_t offset, uint64_t len, struct hr__cachestat *out)
{
	struct {
		uint64_t off, len;
	} range = {offset, len};

	return errno_or((int)syscall(__NR_cachestat, fd, &range, out, 0));
}

static void *sys_mmap(size_t len, int prot, int flags, int fd, uint64_t offset)
{
	void *p = mmap(NULL, len, prot, flags, fd, (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

static int sys_munmap(void *addr, size_t len)
{
	return errno_or(munmap(addr, len));
}

static int sys_mbind(void *addr, size_t len, int mode, const unsigned long *nodes,
		     unsigned long nodes_max)
{
	return errno_or((int)syscall(__NR_mbind, addr, len, mode, nodes, nodes_max, 0));
}

static int sys_mincore(void *addr, size_t len, unsigned char *vec)
{
	return errno_or(mincore(addr, len, vec));
}

static int sys_ring_init(unsigned int entries, struct io_uring *ring, struct io_uring_params *p)
{
	return io_uring_queue_init_params(entries, ring, p);
}

static void sys_ring_exit(struct io_uring *ring)
{
	io_uring_queue_exit(ring);
}

static int sys_ring_enable(struct io_uring *ring)
{
	/* io_uring_enable_rings() is declared but not exported by liburing 2.3. */
	return errno_or((int)syscall(__NR_io_uring_register, ring->ring_fd,
				     IORING_REGISTER_ENABLE_RINGS, NULL, 0));
}

static int sys_ring_buffers(struct io_uring *ring, const struct iovec *iov, unsigned int n)
{
	return io_uring_register_buffers(ring, iov, n);
}

static int sys_ring_submit(struct io_uring *ring, unsigned int wait, uint64_t timeout_ns)
{
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(timeout_ns / NS_PER_S),
		.tv_nsec = (long long)(timeout_ns % NS_PER_S),
	};
	struct io_uring_cqe *cqe;

	if (!wait)
		return io_uring_submit_and_get_events(ring);
	return io_uring_submit_and_wait_timeout(ring, &cqe, wait, &ts, NULL);
}

static int sys_ring_result(const struct io_uring_cqe *cqe)
{
	return cqe->res;
}

const struct hr__sys hr__sys_real = {
	.open = sys_open,
	.close = sys_close,
	.pread = sys_pread,
	.pwrite = sys_pwrite,
	.pread_flags = sys_pread_flags,
	.fstat = sys_fstat,
	.statx_fd = sys_statx_fd,
	.fstatfs = sys_fstatfs,
	.ftruncate = sys_ftruncate,
	.fallocate = sys_fallocate,
	.fdatasync = sys_fdatasync,
	.fsync = sys_fsync,
	.rename = sys_rename,
	.unlink = sys_unlink,
	.fadvise = sys_fadvise,
	.ioctl = sys_ioctl,
	.cachestat = sys_cachestat,
	.mmap = sys_mmap,
	.munmap = sys_munmap,
	.mbind = sys_mbind,
	.mincore = sys_mincore,
	.ring_init = sys_ring_init,
	.ring_exit = sys_ring_exit,
	.ring_enable = sys_ring_enable,
	.ring_buffers = sys_ring_buffers,
	.ring_submit = sys_ring_submit,
	.ring_result = sys_ring_result,
};

const struct hr__sys *hr__sys = &hr__sys_real;

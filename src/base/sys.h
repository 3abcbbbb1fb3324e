/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/sys.h - every system call that can fail in an interesting way, behind one table.
 *
 * The library calls the kernel through hr__sys only. Tests put another table in its place to make
 * the k-th call fail, come back short, or be interrupted. All functions return a count or 0, or
 * -errno; errno is never read by callers.
 */
#ifndef HR_BASE_SYS_H
#define HR_BASE_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <sys/uio.h>

struct io_uring;
struct io_uring_params;
struct io_uring_cqe;
struct statx;
struct iovec;

/* As the kernel's struct cachestat (linux/mman.h, Linux 6.5). */
struct hr__cachestat {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

struct hr__sys {
	int (*open)(const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	ssize_t (*pread)(int fd, void *buf, size_t len, uint64_t offset);
	ssize_t (*pwrite)(int fd, const void *buf, size_t len, uint64_t offset);
	/* flags: RWF_*; one iovec */
	ssize_t (*pread_flags)(int fd, void *buf, size_t len, uint64_t offset, int flags);
	int (*fstat)(int fd, struct stat *st);
	int (*statx_fd)(int fd, unsigned int mask, struct statx *stx);
	int (*fstatfs)(int fd, struct statfs *st);
	int (*ftruncate)(int fd, uint64_t len);
	int (*fallocate)(int fd, int mode, uint64_t offset, uint64_t len);
	int (*fdatasync)(int fd);
	int (*fsync)(int fd);
	int (*rename)(const char *from, const char *to);
	int (*unlink)(const char *path);
	int (*fadvise)(int fd, uint64_t offset, uint64_t len, int advice);
	int (*ioctl)(int fd, unsigned long request, void *arg);
	int (*cachestat)(int fd, uint64_t offset, uint64_t len, struct hr__cachestat *out);
	void *(*mmap)(size_t len, int prot, int flags, int fd,
		      uint64_t offset); /* NULL on failure */
	int (*munmap)(void *addr, size_t len);
	int (*mbind)(void *addr, size_t len, int mode, const unsigned long *nodes,
		     unsigned long nodes_max);
	int (*mincore)(void *addr, size_t len, unsigned char *vec);
	/* io_uring: called by transport/uring.c alone */
	int (*ring_init)(unsigned int entries, struct io_uring *ring, struct io_uring_params *p);
	void (*ring_exit)(struct io_uring *ring);
	int (*ring_enable)(struct io_uring *ring);
	int (*ring_buffers)(struct io_uring *ring, const struct iovec *iov, unsigned int n);
	/* submit what is queued and wait for @wait completions or @timeout_ns; count submitted or -errno */
	int (*ring_submit)(struct io_uring *ring, unsigned int wait, uint64_t timeout_ns);
	/* what the library shall believe of a completion: the place to inject faults */
	int (*ring_result)(const struct io_uring_cqe *cqe);
};

/* The table in force. Tests replace it before the library is used by other threads. */
extern const struct hr__sys *hr__sys;

/* The real calls, for tests that pass most of them through. */
extern const struct hr__sys hr__sys_real;

#endif

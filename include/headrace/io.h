/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/io.h - move bytes between files and device memory.
 *
 * There is one primitive, the gather: a request names a file, a buffer and any number of pieces
 * {file offset, length, buffer offset}. A plain read is a gather of one. The engine sees all
 * submitted requests together: it sorts, merges neighbours, reads nothing twice, splits at the
 * limits of the path, and lands every piece where it belongs.
 *
 * An engine is a queue: it belongs to the thread that used it first, has its own ring and staging
 * memory and takes no lock. Use one engine per thread, or hr_engine_options.migrates; files, buffers
 * and devices may be shared freely. No
 * thread is started unless hr_engine_options.threads asks for it; without one, work advances inside
 * hr_submit() and hr_reap(), and the kernel and the device go on in between.
 *
 * A request that was submitted comes back from hr_reap() exactly once, also when it failed or was
 * cancelled. Until then it, its pieces, its file and its buffer belong to the engine.
 */
#ifndef HEADRACE_IO_H
#define HEADRACE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/buffer.h>
#include <headrace/device.h>
#include <headrace/dtype.h>
#include <headrace/file.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, text): how bytes moved. Numbers index the bytes_by_path arrays. */
#define HR_PATH_MAP(X)                                                                             \
	X(HR_PATH_AUTO, 0, "auto")     /* only as a wish */                                        \
	X(HR_PATH_HOST, 1, "host")     /* the drive or page cache straight into host memory */     \
	X(HR_PATH_BOUNCE, 2, "bounce") /* through the staging ring, then moved by the device */    \
	X(HR_PATH_PAGECACHE, 3, "pagecache") /* by the device itself out of the mapped file */     \
	X(HR_PATH_P2P, 4, "p2p")             /* by peer DMA from the drive into device memory */

#define HR__PATH_ENUM(name, number, text) name = number,
enum hr_path { HR_PATH_MAP(HR__PATH_ENUM) HR_PATH_COUNT_ };
#undef HR__PATH_ENUM
#define HR_PATH_MAX 8 /* size of arrays that are indexed by path; room for later ones */

/* hr_path_name() / hr_path_parse() - "bounce" <-> HR_PATH_BOUNCE. Return: text or "?"; 0 or -EINVAL */
const char *hr_path_name(enum hr_path path);
int hr_path_parse(const char *text, enum hr_path *out);

struct hr_engine;

enum hr_op { HR_READ = 0, HR_WRITE = 1 };

/* One piece of a gather. All three are bytes; the piece may start and end at any byte. */
struct hr_piece {
	uint64_t file_offset;
	uint64_t len; /* in the file; 0 is allowed and does nothing */
	uint64_t
		buffer_offset; /* in the buffer: len * size(to) / size(from) bytes are written there */
};

struct hr_io {
	/* what to do: set by the caller */
	enum hr_op op;
	uint32_t flags; /* 0 */
	struct hr_file *file;
	struct hr_buffer *buffer;
	struct hr_piece piece;         /* used when pieces is NULL */
	const struct hr_piece *pieces; /* or an array of count; owned by the caller until reaped */
	uint64_t count;       /* pieces; with pieces NULL: repetitions of .piece, 0 means 1 */
	uint64_t file_stride; /* with pieces NULL and count > 1: bytes between repetitions */
	uint64_t buffer_stride;
	enum hr_dtype from, to; /* reads only: element types in file and buffer; 0, 0 = bytes */
	void *user;             /* not touched */

	/* what happened: valid once reaped */
	/*
	 * File bytes moved, less than asked only at the end of file, or -code. What a piece holds
	 * behind the end of file, or after a failure, is undefined; nothing outside it is touched.
	 */
	int64_t res;
	uint64_t bytes_by_path[HR_PATH_MAX]; /* which path carried how many of them */
	uint64_t bytes_cached;               /* how many of them came from the page cache */

	/* private: the engine's, zero before the first submit */
	struct hr_engine *engine_; /* that has it */
	struct hr_io *next_;
	uint64_t cursor_;   /* pieces already planned */
	uint64_t pending_;  /* bytes not delivered yet, plus one while pieces are left to plan */
	uint64_t arriving_; /* of these, not in host memory yet */
	uint64_t start_ns_; /* when it was submitted, while statistics are published */
	uint32_t segments_; /* in flight */
	uint32_t place_;    /* in the engine's list of open requests */
	uint32_t state_;
	int32_t error_;
};

struct hr_engine_options {
	uint32_t depth; /* requests to the drive in flight, 1..4096; 0 = 128 */
	/*
	 * Threads that the engine may start, 1..256; 0 = none. Together they copy what is in the page
	 * cache, also of a single request, and they read when io_uring is denied.
	 */
	uint32_t threads;
	uint64_t
		staging_bytes; /* ring of host memory, 256 KiB..16 GiB; 0 = HEADRACE_STAGING_BYTES */
	uint32_t request_bytes; /* longest single read or write, 4 KiB..16 MiB; 0 = 1 MiB */
	enum hr_path path;      /* force one path; AUTO lets the engine choose */
	uint64_t timeout_ns;    /* longest wait of the simple calls; 0 = 60 s */
	enum hr_cache cache;    /* what reads leave in the page cache, see file.h */
	bool buffered;          /* reads go through the page cache even where direct I/O works */
	bool direct;            /* reads never look into the page cache */
	bool no_uring;          /* as HEADRACE_NO_URING=1 */
	/*
	 * The engine serves one thread at a time, but not always the same one: the caller's locks see to
	 * that. Costs some of io_uring's speed.
	 */
	bool migrates;
	/*
	 * The CPU copies hot data out of a mapping of the file, without read(2): for device "host", and
	 * into the staging ring for a GPU that may not or cannot read registered pages itself. A file
	 * that is truncated meanwhile raises SIGBUS, so this installs a handler for that signal, once
	 * and for the whole process. It takes back faults of these copies alone and hands all others to
	 * the handler that was there before. A GPU reads registered pages and needs no handler.
	 */
	bool map;
};

/*
 * hr_engine_open() - make a queue for one device.
 * @opts: NULL for all defaults; out-of-range values are refused, not bent.
 * @out: receives the engine; unchanged on failure.
 *
 * Return: 0, -EINVAL, -ENOMEM, -HR_E_*. A denied io_uring is no failure: hr_engine_queue() tells.
 */
int hr_engine_open(struct hr_device *dev, const struct hr_engine_options *opts,
		   struct hr_engine **out);

/*
 * hr_engine_close() - wait for everything in flight, then free the engine. @engine: may be NULL.
 *
 * Requests that were not reaped are dropped; their memory is the caller's again on return 0.
 * Return: 0; -EBUSY when requests outlived the engine's timeout: the engine then stays open, and
 * so do the buffers that the drive may still write; -HR_E_WRONG_THREAD with requests of another
 * thread in it: then nothing has happened.
 */
int hr_engine_close(struct hr_engine *engine);

struct hr_queue_info {
	const char *name; /* "io_uring fixed", "io_uring", "threads" or "sync"; static */
	char reason[192]; /* why not the better ones; "" for the best */
	uint32_t depth;
	uint64_t staging_bytes;
};

/* hr_engine_queue() - how this engine talks to the kernel and why. Return: 0. */
int hr_engine_queue(const struct hr_engine *engine, struct hr_queue_info *out);

/*
 * hr_submit() - hand requests to the engine.
 *
 * Requests are planned and queued. The kernel gets them with the next hr_reap(), a polling one
 * (@min 0) included, so that one system call serves both; whatever is in the page cache is copied
 * at once.
 *
 * @ios: array of pointers to requests, each zeroed before its first use and then filled.
 * @n: number of them.
 *
 * Return: how many were taken, from the front; fewer than @n when the one after them is invalid and
 * others were taken before (submit the rest again to learn why). When the first is invalid: -EINVAL,
 * -HR_E_BAD_RANGE, -HR_E_BAD_CAST, -HR_E_WRONG_DEVICE, -HR_E_NO_PATH, -HR_E_PATH_REFUSED, -EBADF
 * (the file is not open for that), -HR_E_WRONG_THREAD, -HR_E_FORKED.
 */
int hr_submit(struct hr_engine *engine, struct hr_io *const *ios, uint32_t n);

/*
 * hr_reap() - collect finished requests.
 * @done: receives up to @max pointers that were given to hr_submit().
 * @min: return when this many are there, at most @max; 0 polls.
 * @timeout_ns: longest wait; from 2^62 on: for ever.
 *
 * Return: how many were stored, less than @min only after @timeout_ns or when fewer are in flight;
 * -HR_E_WRONG_THREAD, -HR_E_FORKED.
 */
int hr_reap(struct hr_engine *engine, struct hr_io **done, uint32_t max, uint32_t min,
	    uint64_t timeout_ns);

/*
 * hr_cancel() - stop a request as soon as possible. It still comes back from hr_reap(), with
 * -ECANCELED, or with its result if it had finished. Reads that a drive has begun cannot be
 * recalled: the request comes back after the last of them.
 *
 * Return: 0; -ENOENT if the request is not in flight here.
 */
int hr_cancel(struct hr_engine *engine, struct hr_io *io);

/* hr_in_flight() - requests submitted and not reaped yet. */
uint32_t hr_in_flight(const struct hr_engine *engine);

/*
 * hr_read() - read [@file_offset, +@len) into @buffer at @buffer_offset and wait.
 *
 * A deadline needs io_uring or hr_engine_options.threads: a plain read(2) cannot be left.
 *
 * Return: bytes read (less than @len only at the end of file), or a negative code; -ETIMEDOUT after
 * the engine's timeout, the buffer then stays busy until the late completion. Call it on an engine
 * with nothing else in flight, or it returns -EBUSY.
 */
int64_t hr_read(struct hr_engine *engine, struct hr_file *file, uint64_t file_offset, uint64_t len,
		struct hr_buffer *buffer, uint64_t buffer_offset);

/* hr_write() - the other direction; same contract. The data is in the file, not yet synced. */
int64_t hr_write(struct hr_engine *engine, struct hr_file *file, uint64_t file_offset, uint64_t len,
		 struct hr_buffer *buffer, uint64_t buffer_offset);

/*
 * hr_gather() - read @count pieces with an optional conversion and wait.
 * @from, @to: element types, HR_DTYPE_BYTES for plain bytes.
 *
 * Return: file bytes read in all, or a negative code, as hr_read().
 */
int64_t hr_gather(struct hr_engine *engine, struct hr_file *file, const struct hr_piece *pieces,
		  uint64_t count, struct hr_buffer *buffer, enum hr_dtype from, enum hr_dtype to);

#ifdef __cplusplus
}
#endif
#endif

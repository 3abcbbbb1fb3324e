/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/loader.h - shuffled, sharded, resumable batches that are already in device memory.
 *
 * Order is a pure function of (seed, epoch, position): a keyed permutation of the samples. A step
 * of W data-parallel ranks with batches of B samples takes the next B * W positions; rank r takes
 * the r-th run of B. So any number of ranks and any batch size walk the same global order, and the
 * whole state of a loader is a small record (hr_loader_state()).
 *
 * Batches live in a ring of slots that is allocated once at open. A batch belongs to the caller
 * from hr_loader_next() until hr_loader_release(). Slots are never handed out twice.
 *
 * Threads: with options.threads = 0 the loader works inside hr_loader_next() and the drive and the
 * device go on in between; with N threads, N engines fill whole batches in parallel. On the host one
 * engine alone fills batches of 32 MiB and more of samples of a MiB and more that are not converted, and
 * has the other threads for what is in the page cache: so the first batch is there first. One thread more
 * then makes those parts of the files that are in the page cache ready for the path pagecache, as
 * hr_file_register() would, within HEADRACE_PIN_BYTES; it gives up after a minute. A loader is
 * used by one thread at a time; hr_loader_stop() alone may be called from any thread or from a
 * signal handler.
 */
#ifndef HEADRACE_LOADER_H
#define HEADRACE_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/dataset.h>
#include <headrace/device.h>
#include <headrace/io.h>
#include <headrace/stats.h>
#include <headrace/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_loader;

enum hr_shuffle {
	HR_SHUFFLE_FULL = 0, /* every epoch its own permutation of all samples */
	HR_SHUFFLE_NONE = 1, /* file order */
	/*
	 * For network disks: files in a random order, `window` of them at a time, whose samples are
	 * shuffled together. A file of more than 65536 samples counts as several.
	 */
	HR_SHUFFLE_WINDOW = 2,
};

enum hr_last {
	HR_LAST_DROP = 0, /* positions that do not fill a step of all ranks are left out */
	HR_LAST_PAD = 1,  /* the last step is filled up from the start of the epoch's order */
};

enum hr_ragged {
	HR_RAGGED_VALUES = 0, /* rows one behind the other, and where each begins */
	HR_RAGGED_PAD = 1,    /* rows of one length, filled up, and how long each is */
};

/* What a field becomes on its way. */
struct hr_field_cast {
	const char *name;
	enum hr_dtype to;
};

struct hr_loader_options {
	uint32_t batch_size;     /* B: samples per batch of this rank, 1..2^20 */
	enum hr_dtype out_dtype; /* of a dataset with one field; 0 = as in the file */
	uint64_t seed;
	enum hr_shuffle shuffle;
	uint32_t window; /* HR_SHUFFLE_WINDOW: files of a window, 0 = 16; else 0 */
	enum hr_last last;
	uint64_t epochs;        /* 0 = endless */
	uint32_t dp_rank;       /* 0 .. dp_world_size - 1: the data-parallel rank, never guessed */
	uint32_t dp_world_size; /* 0 = 1 */
	uint32_t slots;         /* batches in the ring, 2..1024; 0 = 4, or 2 + 2 * engines, for a
				   GPU 2 + 8 * threads as long as a thread's fit 16 MiB */
	uint32_t threads;       /* 0..256, see above */
	uint64_t timeout_ns;    /* longest wait of hr_loader_next(), 0 = 60 s */
	const struct hr_field_cast *casts; /* of datasets with several fields; copied */
	uint32_t n_casts;
	enum hr_ragged ragged;
	uint64_t
		pad_to; /* PAD: elements of a row; longer samples are cut off there. 0 = the longest
			      of the dataset */
	/*
	 * PAD: the elements behind a sample's, as a number of their type; of integers with or without a
	 * sign (-1 is 65535 in u16), of f8 and f4x2 the bits. What does not fit is -EINVAL.
	 */
	int64_t pad_value;
	/*
	 * VALUES: room in a batch for one ragged field, in bytes. 0 = enough for any batch. A batch that
	 * needs more is the error -HR_E_BATCH_FULL.
	 */
	uint64_t batch_bytes_max;
	bool packed; /* windows of documents: "position_ids" and "cu_seqlens" as packed attention asks */
	struct hr_engine_options engine; /* for every engine of the loader */
};

/* A tensor in device memory. Strides are in elements; row-major where not said otherwise. */
struct hr_tensor {
	const char *name; /* valid as long as the loader */
	enum hr_dtype dtype;
	uint32_t ndim; /* 1..HR_DIMS_MAX */
	uint64_t shape[HR_DIMS_MAX];
	uint64_t stride[HR_DIMS_MAX];
	void *data; /* device address of element 0 */
	const void *
		host; /* the same bytes where the CPU can read them while the batch is held, or NULL:
			     known of offsets, lengths, scalars, positions, and of all on "host" */
};

struct hr_batch {
	/*
	 * B samples, one per row:
	 *   a fixed field    NAME [B, shape of the sample]
	 *   a scalar         NAME [B], i64 or f64
	 *   a ragged field   NAME [all elements], NAME.offsets [B + 1] i64: row r is
	 *                    offsets[r] .. offsets[r + 1]
	 *     padded         NAME [B, L], NAME.lengths [B] i64
	 *   windows          "tokens" [B, T + 1], and two views of the same memory, so that T + 1 tokens
	 *                    are read and stored once: "input_ids" [B, T] and "labels" [B, T], which
	 *                    start one element later
	 *     packed         "position_ids" [B, T] i64: place within the document; "cu_seqlens" [n + 1]
	 *                    i32: where the n documents of the batch begin in its B * T tokens, and
	 *                    B * T. A row begins a document.
	 */
	const struct hr_tensor *tensors;
	uint32_t n_tensors;
	uint32_t max_seqlen;      /* packed: of the longest document; else 0 */
	uint64_t epoch;           /* 0 .. */
	uint64_t step;            /* within the epoch, 0 .. */
	uint32_t samples;         /* rows: batch_size */
	uint32_t valid;           /* rows that are not padding, 0..samples */
	const uint64_t *ids;      /* sample numbers of the rows */
	struct hr_buffer *buffer; /* the slot's memory and */
	uint64_t buffer_offset;   /* where it starts, in bytes */
	bool last;                /* the next batch, if there is one, begins another epoch */
};

struct hr_loader_info {
	uint64_t steps_per_epoch;
	uint64_t batch_bytes; /* device memory of one batch */
	uint64_t ring_bytes;  /* of all slots */
	uint32_t slots, threads;
	struct hr_queue_info queue; /* of the first engine */
	/* Why not all of the data is ready for the path pagecache; "" while that is being seen to. */
	char register_reason[192];
	/* Why files are closed and opened again, hr_stats.reopened times; "" if all may stay open. */
	char reopen_reason[192];
};

struct hr_loader_stats {
	struct hr_stats io; /* sum over the loader's engines; relaxed, may trail by a batch */
	uint64_t batches;   /* handed out */
	uint64_t wait_ns;   /* time that hr_loader_next() made the caller wait */
	uint64_t ready;     /* batches ready in the ring now */
	/*
	 * Rows whose sample turned out to be damaged when it was located, and were given to the next whole
	 * one: hr_dataset_options.corrupt asked for that. Those that were known at open are counted in
	 * struct hr_dataset_info. What was wrong with the first; "".
	 */
	uint64_t substituted;
	char substituted_reason[256];
};

/*
 * hr_loader_open() - allocate the ring and start filling it.
 * @ds, @dev: one reference each is taken.
 *
 * Return: 0, -EINVAL, -HR_E_TOO_SHORT (fewer samples than one step of all ranks, and nothing may be
 * padded), -HR_E_BAD_CAST, -HR_E_BATCH_FULL, -ENOMEM, -HR_E_*; hr_error_detail() has the sentence.
 */
int hr_loader_open(struct hr_dataset *ds, struct hr_device *dev,
		   const struct hr_loader_options *opts, struct hr_loader **out);

/*
 * hr_loader_close() - stop, wait for I/O in flight, free everything. @loader: may be NULL. Batches
 * not released are gone with it.
 */
void hr_loader_close(struct hr_loader *loader);

/* hr_loader_info() - sizes. Return: 0. */
int hr_loader_info(const struct hr_loader *loader, struct hr_loader_info *out);

/*
 * hr_loader_next() - the next batch, complete and verified to be whole.
 * @out: a batch in device memory, valid until hr_loader_release().
 *
 * Return: 0, -HR_E_END after the last epoch, -HR_E_NO_SLOT when the caller holds every slot,
 * -HR_E_FILE_CHANGED (a file shrank), -HR_E_BATCH_FULL, -HR_E_BAD_FORMAT, -HR_E_NO_INDEX, -EIO and
 * other codes of the read, -ETIMEDOUT, -HR_E_CLOSED after hr_loader_stop(). An error is final for the
 * loader except -HR_E_NO_SLOT and -ETIMEDOUT.
 */
int hr_loader_next(struct hr_loader *loader, const struct hr_batch **out);

/*
 * hr_loader_release() - give the slot of a batch back.
 * @lane: the slot is reused once everything queued on this lane so far has finished; NULL: now. Keep
 *        the lane open until the loader is closed.
 * Return: 0, -EINVAL for a batch that is not held, -HR_E_CAPTURING (see stream.h; it is still held),
 * -HR_E_FORKED in a child of the process that opened the loader.
 */
int hr_loader_release(struct hr_loader *loader, const struct hr_batch *batch, struct hr_lane *lane);

/* hr_loader_stop() - make a waiting or later hr_loader_next() return -HR_E_CLOSED soon. */
void hr_loader_stop(struct hr_loader *loader);

/* Size of a saved state in bytes; the record is little-endian, versioned and checksummed. */
#define HR_LOADER_STATE_BYTES 96

/*
 * hr_loader_state() - where the caller is: after the batches that hr_loader_next() has returned.
 * Costs no I/O. Return: HR_LOADER_STATE_BYTES, or -ENOSPC when @size is smaller.
 */
int hr_loader_state(const struct hr_loader *loader, void *buf, size_t size);

/*
 * hr_loader_restore() - go on from a saved state, also with other ranks or another batch size.
 * Where the saved position is no multiple of the new step, the epoch goes on in the new steps, what does
 * not fill one at its end is dropped or padded as ever, and the next epoch begins at its start.
 * Call it before the first hr_loader_next().
 * Return: 0, -HR_E_BAD_STATE (another dataset, seed or shuffle, or damaged), -EBUSY (too late).
 */
int hr_loader_restore(struct hr_loader *loader, const void *buf, size_t size);

/* hr_loader_stats() - counters so far; any thread. Return: 0, -HR_E_FORKED. */
int hr_loader_stats(const struct hr_loader *loader, struct hr_loader_stats *out);

#ifdef __cplusplus
}
#endif
#endif

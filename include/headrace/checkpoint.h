/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/checkpoint.h - weights: tensors of safetensors files into device memory, and back.
 *
 * A checkpoint is one safetensors file, several, or the shards that an index names. Opening one
 * reads and checks the headers alone. A part says which tensor, or which slice of it, goes where,
 * and as what type; a load carries out a list of parts on an engine. A save is the other direction:
 * its file appears under its name when it is whole and on the drive, and not before.
 *
 * Checkpoints are immutable after opening and may be shared by threads, except that loads of one
 * checkpoint that run at the same time need a checkpoint each. Loads and saves belong to the thread
 * of their engine, and use that engine alone while they last.
 */
#ifndef HEADRACE_CHECKPOINT_H
#define HEADRACE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headrace/buffer.h>
#include <headrace/io.h>
#include <headrace/weight.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of a checkpoint. Pointers are the checkpoint's. */
struct hr_weight {
	const char *name; /* UTF-8 without control over its characters: it came from a file */
	enum hr_weight_type type;
	uint32_t ndim;         /* 0 for a scalar */
	const uint64_t *shape; /* row-major; ndim numbers, in elements */
	uint64_t file;         /* which one, 0 .. hr_checkpoint_info.files - 1 */
	uint64_t offset, len;  /* bytes in that file */
};

struct hr_checkpoint;

struct hr_checkpoint_options {
	/*
	 * Bytes behind the last tensor of a file, and tensors that an index does not list where they
	 * are, are no errors. Everything else that the format forbids is refused all the same.
	 */
	bool lenient;
};

struct hr_checkpoint_info {
	uint64_t weights;    /* tensors */
	uint64_t files;      /* that hold them */
	uint64_t bytes;      /* of all tensors */
	uint64_t file_bytes; /* of all files, headers included */
	uint64_t metadata;   /* pairs of text, of the first file that has any */
	uint64_t unlisted; /* tensors left out because the index does not list them: lenient only */
};

/*
 * hr_checkpoint_open() - read and check the headers.
 * @paths: @n of them, each a safetensors file, an index (model.safetensors.index.json), or a folder
 *         with a model.safetensors.index.json or a model.safetensors in it.
 * @opts: NULL for strict.
 *
 * Return: 0; -HR_E_BAD_FORMAT with a sentence of its own for each rule; -HR_E_BAD_DTYPE (a type that
 * this version does not know); -ENOENT (also a shard that is missing); -EINVAL, -ENOMEM, -errno.
 */
int hr_checkpoint_open(const char *const *paths, uint32_t n,
		       const struct hr_checkpoint_options *opts, struct hr_checkpoint **out);

/* hr_checkpoint_close() - @ck: may be NULL. Loads from it must be closed before. */
void hr_checkpoint_close(struct hr_checkpoint *ck);

/* hr_checkpoint_info() - sizes. Return: 0. */
int hr_checkpoint_info(const struct hr_checkpoint *ck, struct hr_checkpoint_info *info);

/* hr_checkpoint_weight() - tensor @index, in the order of the files. Return: 0 or -EINVAL. */
int hr_checkpoint_weight(const struct hr_checkpoint *ck, uint64_t index, struct hr_weight *out);

/* hr_checkpoint_find() - the index of a tensor. Return: 0, or -ENOENT with a sentence. */
int hr_checkpoint_find(const struct hr_checkpoint *ck, const char *name, uint64_t *index);

/* hr_checkpoint_path() - of file @index; NULL if there is none. */
const char *hr_checkpoint_path(const struct hr_checkpoint *ck, uint64_t index);

/* hr_checkpoint_metadata() - pair @index. Return: 0 or -EINVAL. */
int hr_checkpoint_metadata(const struct hr_checkpoint *ck, uint64_t index, const char **key,
			   const char **value);

/*
 * hr_checkpoint_cache() - what an engine should do with the page cache for this one, for
 * hr_engine_options.cache: weights are read again by the next process or start, so they are kept
 * where they take at most half of the memory that this process may use. An engine that is told
 * nothing does much the same: loads give every file the hint HR_CACHE_KEEP (hr_file_hint()), which
 * goes by the memory that is available at that moment.
 */
enum hr_cache hr_checkpoint_cache(const struct hr_checkpoint *ck);

/* One tensor, or a slice of it, and where it goes. Zeroed fields mean: whole, as stored. */
struct hr_part {
	uint64_t weight;        /* index in the checkpoint */
	enum hr_weight_type to; /* type in memory */
	bool sliced; /* only [start, start + count) of dimension dim, all of the others */
	uint32_t dim;
	uint64_t start, count; /* elements of that dimension; count 0: nothing */
	struct hr_buffer *buffer;
	uint64_t buffer_offset; /* bytes; dense, row-major */
	uint64_t len;           /* bytes in memory: set by hr_checkpoint_place() */
};

#define HR_PART_ALIGN 256u

/*
 * hr_part_slice() - the @index-th of @count equal slices of dimension @dim, as torch.chunk() cuts: of
 * ceil(size / count), the last ones shorter or empty.
 * Return: 0, -EINVAL (no such tensor or dimension, or index >= count).
 */
int hr_part_slice(const struct hr_checkpoint *ck, struct hr_part *part, uint32_t dim,
		  uint64_t index, uint64_t count);

/*
 * hr_checkpoint_place() - set len and buffer_offset of each part, one after the other.
 * @align: of each buffer_offset; a power of two, 0 = HR_PART_ALIGN.
 * @bytes: receives the length of the buffer that holds them all.
 *
 * Return: 0, -EINVAL, -HR_E_BAD_RANGE (a slice outside the tensor, or one of a sub-byte type that
 * does not begin and end at a byte), -HR_E_BAD_CAST, -EOVERFLOW; with a sentence.
 */
int hr_checkpoint_place(const struct hr_checkpoint *ck, struct hr_part *parts, uint64_t n,
			uint64_t align, uint64_t *bytes);

struct hr_progress {
	uint64_t bytes, total; /* of the files, done and to do */
	uint64_t parts;        /* in the list */
};

/* Called on the thread of the load or save. Return: 0 to go on, else to stop with -ECANCELED. */
typedef int (*hr_progress_fn)(const struct hr_progress *progress, void *user);

struct hr_load_options {
	hr_progress_fn progress; /* about every 64 MiB; NULL: none */
	void *user;
};

struct hr_load;

/*
 * hr_load_open() - prepare to load @parts, which the load copies.
 * @engine: with nothing in flight; its device has all the buffers.
 *
 * Every buffer must hold its part. The parts are read in the order of the files, each byte once,
 * neighbours together, whatever the order of the list.
 *
 * Return: 0; -EBUSY (the engine is in use); as hr_checkpoint_place(); -HR_E_BAD_RANGE (buffer too
 * short), -HR_E_WRONG_DEVICE, -ENOMEM.
 */
int hr_load_open(struct hr_checkpoint *ck, struct hr_engine *engine, const struct hr_part *parts,
		 uint64_t n, const struct hr_load_options *opts, struct hr_load **out);

/*
 * hr_load_step() - go on, for @timeout_ns at most if nothing moves.
 * Return: 1 when every byte is in place, 0 when there is more to do, -ETIMEDOUT when the drive did
 * not answer in that time (call again, or close), -HR_E_FILE_CHANGED (a file is not what it was when
 * the checkpoint was opened), -ECANCELED, -EIO and other codes of reads. Errors but the time-out are
 * final.
 */
int hr_load_step(struct hr_load *load, uint64_t timeout_ns);

struct hr_load_info {
	uint64_t parts;
	uint64_t bytes;     /* of the files, to deliver */
	uint64_t delivered; /* so far */
	uint64_t bytes_by_path[HR_PATH_MAX];
	uint64_t bytes_cached; /* of these, from the page cache */
};

/* hr_load_info() - how far it is. Return: 0. */
int hr_load_info(const struct hr_load *load, struct hr_load_info *out);

/*
 * hr_load_close() - stop and free. @load: may be NULL.
 * Return: 0; -EBUSY when reads have not come back within the time that hr_engine_options allows: the
 * buffers may still be written then, and the load is to be closed again later.
 */
int hr_load_close(struct hr_load *load);

/* A tensor to save. The pointers must stay valid until hr_save_open() has returned. */
struct hr_save_weight {
	const char *name; /* UTF-8, no NUL, not "__metadata__" */
	enum hr_weight_type type;
	uint32_t ndim;
	const uint64_t *shape;
	struct hr_buffer *buffer; /* dense, row-major from buffer_offset; stays until the close */
	uint64_t buffer_offset;
};

struct hr_save_pair {
	const char *key, *value; /* UTF-8 */
};

struct hr_save_options {
	const struct hr_save_pair *metadata; /* in the order that they shall have in the file */
	uint64_t n_metadata;
	/*
	 * Copy all tensors to memory of the device at open, so that they may change at once: that
	 * takes the bytes of all tensors until the save is closed. Without, they must not change.
	 */
	bool snapshot;
	hr_progress_fn progress;
	void *user;
};

struct hr_save;

/*
 * hr_save_open() - prepare to write @path: check everything, lay out the file, reserve its blocks
 * under the name @path.tmp beside it.
 * @engine: with nothing in flight; its device has all the buffers. What other streams write to them
 *          must be finished.
 *
 * The bytes are those that the reference implementation writes. The device lends 32 MiB for packing.
 * A file that exists keeps its mode; a symbolic link is replaced by the file, not followed.
 * A .tmp that a crash has left is used again; one that another save is writing gives -EBUSY.
 *
 * Return: 0, -EINVAL (no tensor, a name twice, ...), -HR_E_BAD_RANGE, -HR_E_WRONG_DEVICE, -ENOSPC,
 * -EBUSY, -ENOMEM, -errno; @path is as it was.
 */
int hr_save_open(struct hr_engine *engine, const char *path, const struct hr_save_weight *weights,
		 uint64_t n, const struct hr_save_options *opts, struct hr_save **out);

/*
 * hr_save_step() - go on, for @timeout_ns at most if nothing moves. With the last bytes: fdatasync,
 * rename, fsync of the folder, in this call.
 * Return: 1 when the file is whole, durable and has its name; 0 when there is more to do;
 * -ETIMEDOUT as hr_load_step(); -ENOSPC, -EIO and other codes, which are final: @path is as it was,
 * or, when only the fsync of the folder has failed, new and whole.
 */
int hr_save_step(struct hr_save *save, uint64_t timeout_ns);

struct hr_save_info {
	uint64_t file_bytes;
	uint64_t written; /* so far */
	uint64_t bytes_by_path[HR_PATH_MAX];
	uint64_t device_bytes; /* memory of the device in use */
};

/* hr_save_info() - how far it is. Return: 0. */
int hr_save_info(const struct hr_save *save, struct hr_save_info *out);

/*
 * hr_save_close() - free; a save that is not finished leaves @path as it was, and no .tmp.
 * @save: may be NULL. Return: 0, or -EBUSY as hr_load_close().
 */
int hr_save_close(struct hr_save *save);

#ifdef __cplusplus
}
#endif
#endif

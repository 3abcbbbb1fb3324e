/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/megatron.h - the inside of the format megatron: the index (.idx) that says where sequences of
 * tokens lie in the data (.bin), and the order in which Megatron's GPTDataset reads them.
 *
 * Numbers of sequences come from the file's tables when they are asked for; what stays in memory is every
 * 512th entry: 10^8 sequences have tables of 2 GB.
 */
#ifndef HR_FORMAT_MEGATRON_H
#define HR_FORMAT_MEGATRON_H

#include <stdbool.h>
#include <stdint.h>

#include "format/format.h"
#include "format/npy.h"

#define HR__MEGATRON_MAGIC "MMIDIDX\0\0"
#define HR__MEGATRON_MAGIC_BYTES 9u
/* Old fairseq's: another layout. */
#define HR__MEGATRON_OLD_MAGIC "TNTIDX\0\0"
#define HR__MEGATRON_OLD_MAGIC_BYTES 8u

struct hr__megatron_index {
	const struct hr_source *src; /* of the .idx */
	uint64_t bin_bytes;
	enum hr_dtype dtype;
	uint32_t element;              /* bytes of a token */
	uint64_t sequences, documents; /* a document is one sequence or several */
	uint64_t tokens;
	uint64_t lengths_at, pointers_at, documents_at; /* offsets of the tables */
	bool contiguous;       /* each sequence begins where the one before ends, the first at 0 */
	bool one_each;         /* document d is sequence d */
	uint32_t runs_max;     /* most runs of bytes in one document */
	uint64_t *token_marks; /* tokens before sequence 512 k */
	uint64_t *document_marks; /* first sequence of document 512 k; NULL when one_each */
	struct hr__sizes sizes;   /* of documents, bytes */
};

/* Where ranges of one sample are collected: what follows the last one makes it longer. */
struct hr__megatron_ranges {
	struct hr_range *out;
	uint32_t n, max;
};

/*
 * hr__megatron_index_open() - parse, and look at every entry of the tables once.
 * @bin: the data. Return: 0 or -code with a sentence; closed by hr__megatron_index_close() in both cases.
 */
int hr__megatron_index_open(struct hr__megatron_index *x, const struct hr_source *idx,
			    const struct hr_source *bin);
void hr__megatron_index_close(struct hr__megatron_index *x);

/* Bytes of sequence @s in the data. Return: 0 or -code. */
int hr__megatron_sequence(const struct hr__megatron_index *x, uint64_t s, struct hr_range *out);

/* Sequences of document @d: first, and the one behind its last. Return: 0 or -code. */
int hr__megatron_document(const struct hr__megatron_index *x, uint64_t d, uint64_t *first,
			  uint64_t *end);

/*
 * The first sequence with @position tokens or more before it, sequences if none; @before: how many there
 * are. Return: 0 or -code.
 */
int hr__megatron_find(const struct hr__megatron_index *x, uint64_t position, uint64_t *out,
		      uint64_t *before);

/*
 * Where in the @window tokens from @position on documents with tokens begin, ascending: the first @room.
 * Return: their number or -code.
 */
int hr__megatron_starts(const struct hr__megatron_index *x, uint64_t position, uint64_t window,
			uint32_t *out, uint32_t room);

/* Most runs of bytes in any @tokens >= 2 tokens that follow each other. Return: 0 or -code. */
int hr__megatron_runs(const struct hr__megatron_index *x, uint64_t tokens, uint32_t *out);

/* Add @len bytes at @offset. Return: 0 or -HR_E_BAD_FORMAT. */
int hr__megatron_add(struct hr__megatron_ranges *ranges, uint64_t offset, uint64_t len);

/* -- Megatron's own order: three arrays that it keeps in its cache ------------------------------ */

/* A .npy file of numbers in rows. */
struct hr__megatron_array {
	const struct hr_source *src;
	struct hr__npy npy;
};

struct hr__megatron_order {
	const struct hr__megatron_index *index;
	struct hr__megatron_array documents; /* i32: sequences, as often as they are read */
	struct hr__megatron_array samples;   /* i32 or i64, 2 a row: where samples begin */
	struct hr__megatron_array shuffle;   /* u32 or i64: numbers of samples */
	uint64_t count;
	uint32_t window;     /* tokens of a sample */
	uint32_t ranges_max; /* of a sample */
	uint64_t last;       /* the number by which the last of the samples is known */
	uint64_t last_tokens;
};

/* hr__megatron_order_open() - the arrays beside args->opts->order. Nothing to close. */
int hr__megatron_order_open(struct hr__megatron_order *o, const struct hr__format_args *args,
			    const struct hr__megatron_index *index);

/* Ranges of sample @number, in its order. Return: their number or -code. */
int hr__megatron_order_locate(const struct hr__megatron_order *o, uint64_t number,
			      struct hr_range *out);

/* Where in sample @number sequences with tokens begin: the first @room. Return: their number or -code. */
int hr__megatron_order_starts(const struct hr__megatron_order *o, uint64_t number, uint32_t *out,
			      uint32_t room);

#endif

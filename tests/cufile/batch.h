/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile/batch.h - batches of known pieces for the tests of libcufile.so.0: entry i reads or writes its own
 * slot of the memory, with a guard page behind each, and every event is counted by its cookie.
 */
#ifndef HR_TESTS_CUFILE_BATCH_H
#define HR_TESTS_CUFILE_BATCH_H

#include "fixture.h"

#define BATCH_MAX 256u
#define SLOT (4u * PAGE) /* of the memory, for one entry of at most three pages */

struct batch {
	CUfileBatchHandle_t handle;
	CUfileIOParams_t io[BATCH_MAX];
	CUfileIOEvents_t events[BATCH_MAX];
	int seen[BATCH_MAX];
	CUfileStatus_t status[BATCH_MAX];
	ssize_t ret[BATCH_MAX];
	char *memory; /* BATCH_MAX slots */
	uint64_t file_len;
};

static inline void batch_open(struct batch *b, unsigned int capacity, uint64_t file_len)
{
	memset(b, 0, sizeof(*b));
	b->file_len = file_len;
	b->memory = mem_alloc(BATCH_MAX * SLOT);
	must(cuFileBatchIOSetUp(&b->handle, capacity).err == CU_FILE_SUCCESS);
	must(b->handle);
}

static inline void batch_close(struct batch *b)
{
	cuFileBatchIODestroy(b->handle);
	mem_free(b->memory);
}

static inline uint64_t batch_offset(unsigned int i)
{
	return (uint64_t)i * 12345 % (2 * MIB) + i % 3;
}

static inline size_t batch_len(unsigned int i)
{
	return i % 4 == 3 ? 2 * PAGE + 1 : i % 4 == 2 ? 777 : 2 * PAGE;
}

/* Entry @i: an own place of file and memory, at every alignment as i grows. */
static inline void batch_entry(struct batch *b, unsigned int i, CUfileHandle_t fh,
			       CUfileOpcode_t opcode)
{
	CUfileIOParams_t *io = &b->io[i];

	memset(io, 0, sizeof(*io));
	io->mode = CUFILE_BATCH;
	io->fh = fh;
	io->opcode = opcode;
	io->cookie = &b->seen[i];
	io->u.batch.devPtr_base = b->memory + (size_t)i * SLOT;
	io->u.batch.devPtr_offset = i % 5;
	io->u.batch.file_offset = (off_t)batch_offset(i);
	io->u.batch.size = batch_len(i);
}

static inline void batch_prepare(struct batch *b, unsigned int nr, CUfileHandle_t fh)
{
	mem_fill(b->memory, TEST_GUARD, (size_t)nr * SLOT);
	memset(b->seen, 0, sizeof(b->seen));
	for (unsigned int i = 0; i < nr; i++)
		batch_entry(b, i, fh, CUFILE_READ);
}

static inline void batch_count(struct batch *b, unsigned int got)
{
	for (unsigned int i = 0; i < got; i++) {
		ptrdiff_t which = (int *)b->events[i].cookie - b->seen;

		if (which < 0 || which >= (ptrdiff_t)BATCH_MAX)
			must_not_be(__FILE__, __LINE__, "a cookie that somebody gave");
		b->seen[which]++;
		b->status[which] = b->events[i].status;
		b->ret[which] = (ssize_t)b->events[i].ret;
	}
}

/* Wait for exactly @nr events, at least @min_nr a call. */
static inline void batch_collect(struct batch *b, unsigned int nr, unsigned int min_nr)
{
	for (unsigned int done = 0; done < nr;) {
		struct timespec patience = {300, 0}; /* sanitizers are slow */
		unsigned int got = nr - done;
		unsigned int least = min_nr < got ? min_nr : got;

		must(cuFileBatchIOGetStatus(b->handle, least, &got, b->events, &patience).err ==
		     CU_FILE_SUCCESS);
		must(got >= least && got <= nr - done);
		batch_count(b, got);
		done += got;
	}
}

/* Each of the @nr reads came once, moved its bytes, and left its neighbours alone. */
static inline void batch_check(struct batch *b, unsigned int nr)
{
	uint8_t *image = malloc((size_t)nr * SLOT);

	mem_out(image, b->memory, (size_t)nr * SLOT);
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t off = batch_offset(i);

		must(b->seen[i] == 1);
		must(b->status[i] == CUFILE_COMPLETE);
		must(b->ret[i] == (ssize_t)batch_len(i));
		for (size_t k = 0; k < SLOT; k++) {
			bool in = k >= i % 5 && k - i % 5 < batch_len(i);
			uint8_t want = in ? test_pattern(off + k - i % 5) : TEST_GUARD;

			if (image[(size_t)i * SLOT + k] != want)
				must_not_be(__FILE__, __LINE__,
					    in ? "the byte of the file" : "a guard byte");
		}
	}
	free(image);
}

#endif

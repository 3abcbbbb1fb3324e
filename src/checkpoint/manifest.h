/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/manifest.h - the inside of a checkpoint: files, their headers, all tensors in one list.
 */
#ifndef HR_CHECKPOINT_MANIFEST_H
#define HR_CHECKPOINT_MANIFEST_H

#include <stdint.h>

#include <headrace/checkpoint.h>

#include "file/file.h"
#include "format/safetensors.h"

/*
 * With more files than this they are opened when they are read and closed after it: descriptors are
 * few, and every file takes two.
 */
#define HR__CK_OPEN_MAX 64u

struct hr__ck_file {
	char *path;
	struct hr__file_stamp stamp; /* when its header was read */
	struct hr__st st;
	struct hr_file *file; /* NULL while closed */
};

struct hr__ck_weight {
	const struct hr__st_tensor *tensor;
	uint32_t file;
};

struct hr_checkpoint {
	struct hr__ck_file *files;
	uint32_t n_files;
	struct hr__ck_weight *weights; /* by file, then by offset */
	uint32_t *by_name;
	struct hr_checkpoint_info info;
};

/*
 * hr__ck_use() - have file @index open, and still the one whose header was read.
 * Return: 0, -HR_E_FILE_CHANGED, -errno; with a sentence.
 */
int hr__ck_use(struct hr_checkpoint *ck, uint32_t index);

/* hr__ck_release() - it is not needed for now. */
void hr__ck_release(struct hr_checkpoint *ck, uint32_t index);

/* Absolute place of a tensor's first byte in its file. */
static inline uint64_t hr__ck_offset(const struct hr_checkpoint *ck, const struct hr__ck_weight *w)
{
	return ck->files[w->file].st.data_off + w->tensor->begin;
}

#endif

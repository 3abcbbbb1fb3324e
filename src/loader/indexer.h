/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/indexer.h - the files of side indexes: which one belongs to a data file, whether it is good, and
 * making it. Knows no format; what is in an index is format/index.h.
 *
 * The index of DIR/NAME is DIR/NAME.hrindex, or NAME.hrindex in the folder of the options. It is written
 * beside its place and renamed, so that nobody sees half of one.
 */
#ifndef HR_LOADER_INDEXER_H
#define HR_LOADER_INDEXER_H

#include "format/format.h"
#include "format/index.h"
#include "loader/dataset.h"

#define HR__INDEX_SUFFIX ".hrindex"

/* hr__indexer_path() - where the index of @path belongs. Return: to be freed, or NULL: no memory. */
char *hr__indexer_path(const char *path, const struct hr_dataset_options *opts);

/*
 * hr__indexer_find() - open the index that is there, if it is good.
 * Return: 0, -HR_E_NO_INDEX (absent, stale, damaged or not readable), -ENOMEM, each with a sentence.
 */
int hr__indexer_find(const struct hr__opened *data, const struct hr__format_ops *ops,
		     const struct hr_dataset_options *opts, struct hr__index **out);

/*
 * hr__indexer_open() - the same, and make one if there is none, unless the options forbid that. Where the
 * folder cannot be written and no other was named, it is an unlinked file in TMPDIR, and the log says so.
 * Return: 0 or -code.
 */
int hr__indexer_open(const struct hr__opened *data, const struct hr__format_ops *ops,
		     const struct hr_dataset_options *opts, struct hr__index **out);

/*
 * hr__indexer_build() - make the index, whatever is there.
 * @progress: called now and then; ends the work when it does not return 0. May be NULL.
 * Return: 0, -HR_E_FILE_CHANGED, -code.
 */
int hr__indexer_build(const struct hr__opened *data, const struct hr__format_ops *ops,
		      const struct hr_dataset_options *opts,
		      int (*progress)(void *ctx, uint64_t bytes, uint64_t samples), void *ctx,
		      struct hr__index **out);

/* May be NULL. */
void hr__indexer_close(struct hr__index *index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/dataset.h - a dataset from the words of a command line: the options that all verbs on data share. */
#ifndef HR_CLI_DATASET_H
#define HR_CLI_DATASET_H

#include "cli/cli.h"

#define CLI_FORMATS "auto|tokens|megatron|npy|tar|tfrecord|mds|arrow|safetensors"

struct cli_dataset {
	const char *format, *dtype, *fields, *corrupt, *order, *index_dir, *weights, *select;
	uint64_t seq_len, stride;
	bool whole_files, no_index;
};

/* Lines for a verb's table; @type: the settings struct, which has a member `data`. */
#define CLI_DATASET_OPTIONS(type)                                                                  \
	{"format",                                                                                 \
	 CLI_CHOICE,                                                                               \
	 offsetof(type, data.format),                                                              \
	 CLI_FORMATS,                                                                              \
	 "format of the files (default auto)",                                                     \
	 0,                                                                                        \
	 0},                                                                                       \
		{"dtype",                                                                          \
		 CLI_CHOICE,                                                                       \
		 offsetof(type, data.dtype),                                                       \
		 "u16|u32",                                                                        \
		 "tokens in files without header (default u16)",                                   \
		 0,                                                                                \
		 0},                                                                               \
		{"seq-len",                                                                        \
		 CLI_NUMBER,                                                                       \
		 offsetof(type, data.seq_len),                                                     \
		 "T",                                                                              \
		 "a sample is T + 1 tokens (default 4096); megatron: 0 = documents",               \
		 0,                                                                                \
		 1 << 24},                                                                         \
		{"stride",                                                                         \
		 CLI_NUMBER,                                                                       \
		 offsetof(type, data.stride),                                                      \
		 "N",                                                                              \
		 "tokens between the beginnings of samples (default T)",                           \
		 1,                                                                                \
		 0},                                                                               \
		{"fields",                                                                         \
		 CLI_TEXT,                                                                         \
		 offsetof(type, data.fields),                                                      \
		 "NAME,...",                                                                       \
		 "the fields wanted (default: all)",                                               \
		 0,                                                                                \
		 0},                                                                               \
		{"corrupt",                                                                        \
		 CLI_CHOICE,                                                                       \
		 offsetof(type, data.corrupt),                                                     \
		 "error|skip|substitute",                                                          \
		 "damaged samples: leave out, or take the next",                                   \
		 0,                                                                                \
		 0},                                                                               \
		{"order",                                                                          \
		 CLI_TEXT,                                                                         \
		 offsetof(type, data.order),                                                       \
		 "PREFIX",                                                                         \
		 "megatron: order of its files PREFIXdocument_index.npy, ...",                     \
		 0,                                                                                \
		 0},                                                                               \
		{"whole-files",                                                                    \
		 CLI_FLAG,                                                                         \
		 offsetof(type, data.whole_files),                                                 \
		 NULL,                                                                             \
		 "npy: a file is one sample, not its rows",                                        \
		 0,                                                                                \
		 0},                                                                               \
		{"index-dir",                                                                      \
		 CLI_TEXT,                                                                         \
		 offsetof(type, data.index_dir),                                                   \
		 "DIR",                                                                            \
		 "where side indexes are (default: beside the data)",                              \
		 0,                                                                                \
		 0},                                                                               \
		{"no-index",                                                                       \
		 CLI_FLAG,                                                                         \
		 offsetof(type, data.no_index),                                                    \
		 NULL,                                                                             \
		 "use side indexes, never make one",                                               \
		 0,                                                                                \
		 0},                                                                               \
		{"weights",                                                                        \
		 CLI_TEXT,                                                                         \
		 offsetof(type, data.weights),                                                     \
		 "W,...",                                                                          \
		 "mix: each DATA is a dataset, drawn from by its weight",                          \
		 0,                                                                                \
		 0},                                                                               \
	{                                                                                          \
		"select", CLI_TEXT, offsetof(type, data.select), "FILE",                           \
			"only the samples whose numbers stand in FILE, in that order", 0, 0        \
	}

/*
 * cli_dataset_options() - what the words ask for. @names: receives the array that @out points to, to be
 * freed. Return: CLI_OK or CLI_FAILED.
 */
int cli_dataset_options(const struct cli_dataset *data, struct hr_dataset_options *out,
			char ***names);

/* cli_dataset_open() - one dataset of @n paths, a mixture of them, or a selection. */
int cli_dataset_open(const struct cli_dataset *data, const char *const *paths, uint32_t n,
		     struct hr_dataset **out);

/* cli_split() - "a,b,c" into texts. Return: an array that ends with NULL, one allocation; or NULL. */
char **cli_split(const char *list, uint32_t *n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/index.c - the verb that makes or checks the side indexes of a dataset. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

struct settings {
	const char *format, *out;
	uint64_t threads;
	bool force, check, json;
};

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct settings, field), argument, help, __VA_ARGS__          \
	}

static const struct cli_option options[] = {
	OPT("format", CLI_TEXT, format, "NAME", "format of the files, such as tar (default auto)",
	    0, 0),
	OPT("out", CLI_TEXT, out, "DIR", "folder of the side indexes (default: beside the data)", 0,
	    0),
	OPT("threads", CLI_NUMBER, threads, "N",
	    "files read at a time (default: processors, at most 16)", 1, 1024),
	OPT("force", CLI_FLAG, force, NULL, "make them again where they are good", 0, 0),
	OPT("check", CLI_FLAG, check, NULL, "make nothing: read those that are there", 0, 0),
	OPT("json", CLI_FLAG, json, NULL, "print one JSON object instead of a table", 0, 0),
};

static const struct cli_usage usage = {
	.verb = "index",
	.operands = "DATA...",
	.summary = "Makes the side indexes of datasets that do not say where their samples lie.",
	.detail = "DATA is a file or a folder: tar (WebDataset) and TFRecord need an index, other "
		  "formats do not.\nOf TFRecord every byte is compared with its checksum on the "
		  "way. An index is good as long as the\nsize, the time and the first 4 KiB of "
		  "its file are the same.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 1,
};

struct job {
	const struct settings *set;
	struct cli_progress progress;
	struct hr_index_progress done;
	int files; /* made, or found to be no good */
	double seconds;
	bool begun;
};

static int show_progress(void *ctx, const struct hr_index_progress *p)
{
	struct job *job = ctx;

	if (!job->begun) {
		cli_progress_begin(&job->progress, "index", p->bytes_total);
		job->begun = true;
	}
	cli_progress_bytes(&job->progress, p->bytes);
	return cli_interrupted ? -ECANCELED : 0;
}

static int report_json(const struct job *job)
{
	const struct hr_index_progress *done = &job->done;
	bool check = job->set->check;

	return cli_print_json(json_pack(
		"{s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:b}", "files_made",
		(json_int_t)(check ? 0 : done->files), "files_bad",
		(json_int_t)(check ? (uint64_t)job->files : 0), "bytes", (json_int_t)done->bytes,
		"samples", (json_int_t)done->samples, "seconds", job->seconds, "bytes_per_second",
		cli_per((double)done->bytes, job->seconds), "checked", check, "interrupted",
		(int)cli_interrupted));
}

static int report(const struct job *job)
{
	const struct hr_index_progress *done = &job->done;
	char text[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES];

	if (job->set->json)
		return report_json(job);
	if (job->set->check) {
		cli_row("checked", "%s", job->files ? "not all are good" : "all are good");
		cli_row("samples", "%" PRIu64, done->samples);
		return CLI_OK;
	}
	if (!job->files) {
		cli_row("made", "none: all that are needed were good");
		return CLI_OK;
	}
	cli_row("made", "%d", job->files);
	cli_row("samples", "%" PRIu64, done->samples);
	cli_row("read", "%s in %.2f s, %s", cli_bytes(text, (double)done->bytes), job->seconds,
		cli_rate(rate, cli_per((double)done->bytes, job->seconds)));
	return CLI_OK;
}

static int finish(struct job *job, const char *path)
{
	int shown;

	if (job->files == -ECANCELED && cli_interrupted) {
		cli_note("interrupted; %" PRIu32 " of %" PRIu32
			 " indexes were made, the next run makes the others",
			 job->done.files, job->done.files_total);
		return CLI_INTERRUPTED;
	}
	if (job->files < 0)
		return cli_fail_code(job->files, path);
	shown = report(job);
	if (shown == CLI_OK && job->set->check && job->files)
		return cli_fail("%d side index%s no good, the first: %s", job->files,
				job->files > 1 ? "es are" : " is", hr_error_detail());
	return shown;
}

int cli_verb_index(int argc, char **argv)
{
	struct settings set = {.threads = cli_min(cli_cpus(), 16)};
	struct job job = {.set = &set};
	struct hr_index_options opts = {.progress = show_progress, .ctx = &job};
	int first, code = cli_parse(&usage, argc, argv, &set, &first);
	uint64_t start = cli_now_ns();

	if (code != -1)
		return code;
	if (set.force && set.check)
		return cli_usage_error("index", "--force and --check exclude each other");
	cli_catch_interrupt(NULL, NULL);
	opts.dataset.format = set.format;
	opts.dataset.index_dir = set.out;
	opts.dataset.index_threads = (uint32_t)set.threads;
	opts.force = set.force;
	opts.check = set.check;
	job.files = hr_index_build((const char *const *)argv + first, (uint32_t)(argc - first),
				   &opts, &job.done);
	job.seconds = cli_seconds(cli_now_ns() - start);
	cli_progress_end(&job.progress);
	return finish(&job, argv[first]);
}

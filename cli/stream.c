/* SPDX-License-Identifier: Apache-2.0 */
/* cli/stream.c - the verb that runs a loader as a training loop would, and says how it went. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/dataset.h"
#include "cli/state.h"
#include "cli/verify.h"

struct settings {
	struct cli_common common;
	struct cli_dataset data;
	const char *out_dtype, *casts, *ragged, *pad_value, *shuffle, *state, *ids, *path;
	uint64_t batch_size, steps, epochs, seed, dp_rank, dp_world_size;
	uint64_t step_us, threads, slots, depth, staging;
	uint64_t pad_to, batch_bytes, window;
	bool packed, pad, verify, buffered, direct;
};

/* --threads 0 is a wish of its own, as is --epochs 0: the defaults are numbers nobody asks for. */
#define THREADS_DEFAULT UINT64_MAX
#define EPOCHS_DEFAULT UINT64_MAX

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct settings, field), argument, help, __VA_ARGS__          \
	}

static const struct cli_option options[] = {
	CLI_DATASET_OPTIONS(struct settings),
	OPT("out-dtype", CLI_CHOICE, out_dtype, "i32|i64|f16|bf16|f32|f64|same",
	    "type of the batches (default: i64 of tokens, else same)", 0, 0),
	OPT("casts", CLI_TEXT, casts, "FIELD=TYPE,...", "the same for some of several fields", 0,
	    0),
	OPT("ragged", CLI_CHOICE, ragged, "values|pad",
	    "rows of any length: dense, or filled up (default values)", 0, 0),
	OPT("pad-to", CLI_NUMBER, pad_to, "N",
	    "elements of a padded row, longer ones are cut (default: the longest)", 1, 0),
	OPT("pad-value", CLI_TEXT, pad_value, "N", "what rows are filled up with (default 0)", 0,
	    0),
	OPT("batch-bytes", CLI_SIZE, batch_bytes, "SIZE",
	    "limit of a ragged field in a batch (default: enough for any)", 1, 0),
	OPT("packed", CLI_FLAG, packed, NULL, "position_ids and cu_seqlens of windows of documents",
	    0, 0),
	OPT("batch-size", CLI_NUMBER, batch_size, "B", "samples in a batch (default 32)", 1,
	    1 << 20),
	OPT("steps", CLI_NUMBER, steps, "N", "stop after N batches (default: the epochs)", 1, 0),
	OPT("epochs", CLI_NUMBER, epochs, "N",
	    "passes over the data, 0: endless (default 1; with --steps: 0)", 0, 0),
	OPT("seed", CLI_NUMBER, seed, "N", "of the order (default 0)", 0, 0),
	OPT("shuffle", CLI_CHOICE, shuffle, "full|window|none",
	    "order of the samples (default full); window: of a few files at a time", 0, 0),
	OPT("window", CLI_NUMBER, window, "N", "files of a window (default 16)", 1, 1 << 24),
	OPT("dp-rank", CLI_NUMBER, dp_rank, "N", "data-parallel rank (default 0)", 0, UINT32_MAX),
	OPT("dp-world-size", CLI_NUMBER, dp_world_size, "N", "number of such ranks (default 1)", 1,
	    UINT32_MAX),
	OPT("state", CLI_TEXT, state, "FILE", "go on from FILE if it exists; save to it at the end",
	    0, 0),
	OPT("verify", CLI_FLAG, verify, NULL,
	    "compare every element with a plain read of its file (slower)", 0, 0),
	OPT("step-us", CLI_NUMBER, step_us, "N", "pretend N us of compute a batch (default 0)", 0,
	    1000000000),
	OPT("threads", CLI_NUMBER, threads, "N",
	    "loader threads, 0 for none (default: processors, at most 8)", 0, 256),
	OPT("slots", CLI_NUMBER, slots, "N", "batches in the ring (default 2 + 2 to 8 x threads)",
	    2, 1024),
	OPT("depth", CLI_NUMBER, depth, "N", "requests in flight for each engine (default 128)", 1,
	    4096),
	OPT("staging", CLI_SIZE, staging, "SIZE", "ring of host memory for each engine", 256 << 10,
	    16ull << 30),
	OPT("path", CLI_CHOICE, path, "auto|host|bounce|pagecache|p2p",
	    "force one path (default auto)", 0, 0),
	OPT("buffered", CLI_FLAG, buffered, NULL, "read through the page cache", 0, 0),
	OPT("direct", CLI_FLAG, direct, NULL, "never look into the page cache", 0, 0),
	OPT("ids", CLI_TEXT, ids, "FILE", "write the sample numbers, one batch a line", 0, 0),
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "stream",
	.operands = "DATA...",
	.summary =
		"Feeds shuffled batches of samples into device memory, as a training loop would.",
	.detail =
		"Rates count from the first request to the last batch, with --verify and --step-us "
		"included.\nThe waiting share is the part of that time spent waiting for batches.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 1,
};

struct job {
	const struct settings *set;
	struct cli_device device;
	struct hr_dataset *ds;
	struct hr_dataset_info data;
	struct hr_loader *loader;
	struct hr_loader_info info;
	struct cli_verifier *verifier;
	FILE *ids;
	uint64_t steps, samples, wait_ns, wall_ns, substituted;
	bool mismatch;
};

static int open_dataset(struct job *job, const char *const *paths, uint32_t n)
{
	int code = cli_dataset_open(&job->set->data, paths, n, &job->ds);

	if (code == CLI_OK)
		hr_dataset_info(job->ds, &job->data);
	return code;
}

/* "a=f32,b=i64". @names: receives what the casts point to. */
static int parse_casts(const char *list, struct hr_field_cast **out, uint32_t *n, char ***names)
{
	*out = NULL;
	*names = cli_split(list, n);
	if (*names)
		*out = calloc(*n, sizeof(**out));
	if (!*out)
		return cli_fail("--casts: no memory");
	for (uint32_t i = 0; i < *n; i++) {
		char *sign = strchr((*names)[i], '=');

		if (!sign || hr_dtype_parse(sign + 1, &(*out)[i].to))
			return cli_fail(
				"--casts %s: must be FIELD=TYPE, with commas between several",
				list);
		*sign = '\0';
		(*out)[i].name = (*names)[i];
	}
	return CLI_OK;
}

static int64_t pad_value(const struct settings *set)
{
	return set->pad_value ? strtoll(set->pad_value, NULL, 10) : 0;
}

static bool is_whole_number(const char *text)
{
	char *end;

	errno = 0;
	strtoll(text, &end, 10);
	return end != text && !*end && !errno;
}

static uint32_t thread_count(const struct settings *set)
{
	if (set->threads != THREADS_DEFAULT)
		return (uint32_t)set->threads;
	return (uint32_t)cli_min(cli_cpus(), 8);
}

static uint64_t epoch_count(const struct settings *set)
{
	if (set->epochs != EPOCHS_DEFAULT)
		return set->epochs;
	return set->steps ? 0 : 1;
}

/* Without io_uring each engine reads with threads of its own: about 16 in all. */
static uint32_t pool_threads(uint32_t engines)
{
	return engines ? (15 + engines) / engines : 16;
}

static enum hr_shuffle shuffle_kind(const char *word)
{
	if (strcmp(word, "window") == 0)
		return HR_SHUFFLE_WINDOW;
	return strcmp(word, "none") == 0 ? HR_SHUFFLE_NONE : HR_SHUFFLE_FULL;
}

static void fill_options(const struct job *job, struct hr_loader_options *opts)
{
	const struct settings *set = job->set;

	*opts = (struct hr_loader_options){
		.batch_size = (uint32_t)set->batch_size,
		.seed = set->seed,
		.shuffle = shuffle_kind(set->shuffle),
		.window = (uint32_t)set->window,
		.epochs = epoch_count(set),
		.dp_rank = (uint32_t)set->dp_rank,
		.dp_world_size = (uint32_t)set->dp_world_size,
		.slots = (uint32_t)set->slots,
		.threads = thread_count(set),
		.ragged = strcmp(set->ragged, "pad") ? HR_RAGGED_VALUES : HR_RAGGED_PAD,
		.pad_to = set->pad_to,
		.pad_value = pad_value(set),
		.batch_bytes_max = set->batch_bytes,
		.packed = set->packed,
		.engine =
			{
				.depth = (uint32_t)set->depth,
				.threads = pool_threads(thread_count(set)),
				.staging_bytes = set->staging,
				.buffered = set->buffered,
				.direct = set->direct,
				.map = true,
			},
	};
	hr_path_parse(set->path, &opts->engine.path);
	if (set->out_dtype && strcmp(set->out_dtype, "same") != 0)
		hr_dtype_parse(set->out_dtype, &opts->out_dtype);
	else if (!set->out_dtype && job->data.windows)
		opts->out_dtype = HR_DTYPE_I64; /* what embeddings take */
}

static int open_loader(struct job *job, const char *path)
{
	struct hr_loader_options opts;
	struct hr_field_cast *casts = NULL;
	char **names = NULL;
	int err, code = CLI_OK;

	fill_options(job, &opts);
	if (job->set->casts)
		code = parse_casts(job->set->casts, &casts, &opts.n_casts, &names);
	opts.casts = casts;
	if (code == CLI_OK) {
		err = hr_loader_open(job->ds, job->device.dev, &opts, &job->loader);
		if (err)
			code = cli_fail_code(err, path);
		else
			hr_loader_info(job->loader, &job->info);
	}
	free(casts);
	free(names);
	return code;
}

static int open_extras(struct job *job)
{
	const struct settings *set = job->set;

	if (set->verify) {
		job->verifier = cli_verifier_open(job->ds, job->info.batch_bytes, pad_value(set));
		if (!job->verifier)
			return cli_fail("--verify: no memory for a batch of %" PRIu64
					" bytes; use a smaller --batch-size",
					job->info.batch_bytes);
	}
	if (set->ids) {
		job->ids = fopen(set->ids, "we");
		if (!job->ids)
			return cli_fail("%s: cannot be written: %s; choose another place for --ids",
					set->ids, strerror(errno));
	}
	return set->state ? cli_state_restore(job->loader, set->state) : CLI_OK;
}

static void write_ids(FILE *to, const struct hr_batch *batch)
{
	for (uint32_t i = 0; i < batch->samples; i++)
		fprintf(to, "%" PRIu64 "%c", batch->ids[i], i + 1 < batch->samples ? ' ' : '\n');
}

static void pretend_compute(uint64_t us)
{
	struct timespec ts = {.tv_sec = (time_t)(us / 1000000),
			      .tv_nsec = (long)(us % 1000000) * 1000};

	if (us)
		nanosleep(&ts, NULL);
}

/* What is done with a batch in between next() and release(). */
static int use_batch(struct job *job, const struct hr_batch *batch)
{
	job->steps++;
	job->samples += batch->valid;
	if (job->ids)
		write_ids(job->ids, batch);
	if (job->verifier && cli_verify_batch(job->verifier, batch) != CLI_OK) {
		job->mismatch = true;
		return CLI_FAILED;
	}
	pretend_compute(job->set->step_us);
	return CLI_OK;
}

static void show_live(struct job *job, struct cli_progress *progress, uint64_t now)
{
	double seconds = cli_seconds(now - progress->start_ns);
	char rate[CLI_TEXT_BYTES], paths[64], text[200];
	struct hr_loader_stats stats;

	hr_loader_stats(job->loader, &stats);
	snprintf(text, sizeof(text),
		 "step %" PRIu64 "  %.0f samples/s  %s  path %s  waiting %.0f %%", job->steps,
		 cli_per((double)job->samples, seconds),
		 cli_rate(rate,
			  cli_per((double)job->samples * (double)job->data.sample_bytes, seconds)),
		 cli_paths(paths, sizeof(paths), stats.io.bytes_by_path),
		 100 * cli_per(cli_seconds(job->wait_ns), seconds));
	cli_progress_line(progress, job->steps, text);
}

/* Return: CLI_OK at the end of the data or of --steps and after an interrupt, else CLI_FAILED. */
static int consume(struct job *job, const char *path)
{
	uint64_t steps = job->set->steps ? job->set->steps : UINT64_MAX;
	uint64_t epochs = epoch_count(job->set);
	uint64_t total = epochs ? epochs * job->info.steps_per_epoch : UINT64_MAX;
	struct cli_progress progress;
	const struct hr_batch *batch;
	int err, code = CLI_OK;

	cli_progress_begin(&progress, "stream", cli_min(total, steps));
	while (job->steps < steps && !cli_interrupted && code == CLI_OK) {
		uint64_t before = cli_now_ns(), after;

		err = hr_loader_next(job->loader, &batch);
		after = cli_now_ns();
		job->wait_ns += after - before;
		if (err == -HR_E_END || (err == -HR_E_CLOSED && cli_interrupted))
			break;
		if (err) {
			code = cli_fail_code(err, path);
			break;
		}
		code = use_batch(job, batch);
		hr_loader_release(job->loader, batch, NULL);
		if (cli_progress_due(&progress, after))
			show_live(job, &progress, after);
	}
	job->wall_ns = cli_now_ns() - progress.start_ns;
	cli_progress_end(&progress);
	return code;
}

static void add_io(json_t *out, const struct hr_stats *io)
{
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"bytes_read", io->bytes_read},
		{"bytes_moved", io->bytes_moved},
		{"bytes_cached", io->bytes_cached},
		{"enters", io->enters},
		{"preads", io->preads},
		{"segments", io->segments},
		{"pieces", io->pieces},
		{"copies", io->copies},
		{"probes", io->probes},
		{"retries", io->retries},
		{"direct_refused", io->direct_refused},
		{"brought", io->brought},
		{"reread", io->reread},
		{"reopened", io->reopened},
		{"registered_bytes", io->registered_bytes},
	};

	for (uint32_t i = 0; i < CLI_ARRAY_LEN(rows); i++)
		json_object_set_new(out, rows[i].name, json_integer((json_int_t)rows[i].value));
	json_object_set_new(out, "register_seconds", json_real(cli_seconds(io->register_ns)));
	json_object_set_new(out, "bytes_by_path", cli_json_paths(io->bytes_by_path));
}

static int report_json(struct job *job, const struct hr_stats *io)
{
	double seconds = cli_seconds(job->wall_ns);
	double bytes = (double)job->samples * (double)job->data.sample_bytes;
	json_t *out = json_pack(
		"{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
		"samples_per_second", cli_per((double)job->samples, seconds), "bytes_per_second",
		cli_per(bytes, seconds), "waiting_share",
		cli_per(cli_seconds(job->wait_ns), seconds), "copies_per_batch",
		cli_per((double)io->copies, (double)job->steps), "seconds", seconds, "steps",
		(json_int_t)job->steps, "samples", (json_int_t)job->samples, "batch_bytes",
		(json_int_t)job->info.batch_bytes, "ring_bytes", (json_int_t)job->info.ring_bytes,
		"threads", (json_int_t)job->info.threads, "slots", (json_int_t)job->info.slots,
		"format", job->data.format);

	cli_device_json(&job->device, out);
	add_io(out, io);
	json_object_set_new(out, "corrupt_samples", json_integer((json_int_t)job->data.corrupt));
	json_object_set_new(out, "substituted_samples", json_integer((json_int_t)job->substituted));
	json_object_set_new(out, "register_reason", json_string(job->info.register_reason));
	json_object_set_new(out, "reopen_reason", json_string(job->info.reopen_reason));
	json_object_set_new(out, "queue", cli_json_queue(&job->info.queue));
	json_object_set_new(out, "verified",
			    json_boolean(job->verifier && job->steps && !job->mismatch));
	json_object_set_new(out, "interrupted", json_boolean(cli_interrupted));
	return cli_print_json(out);
}

static void report_data(const struct job *job)
{
	const struct hr_dataset_info *data = &job->data;
	char text[CLI_TEXT_BYTES];

	cli_row("data", "%s, %u files, %s, %" PRIu64 " samples", data->format, data->files,
		cli_bytes(text, (double)data->bytes), data->samples);
	for (uint32_t k = 0; k < data->n_fields; k++) {
		const struct hr_field *f = &data->fields[k];
		char shape[200] = "";
		size_t used = 0;

		for (uint32_t d = 0; d < f->ndim && f->kind == HR_FIELD_FIXED; d++)
			used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64,
						 d ? " x " : "", f->shape[d]);
		if (f->kind == HR_FIELD_RAGGED)
			snprintf(shape, sizeof(shape), "up to %" PRIu64,
				 f->bytes / hr_dtype_size(f->dtype));
		cli_row(k ? "" : "fields", "%s: %s %s", f->name,
			f->kind == HR_FIELD_SCALAR || !f->ndim ? "one" : shape,
			hr_dtype_name(f->dtype));
	}
	if (data->corrupt)
		cli_row("corrupt", "%" PRIu64 " samples; the first: %s", data->corrupt,
			data->corrupt_reason);
}

static int report_human(struct job *job, const struct hr_stats *io)
{
	double seconds = cli_seconds(job->wall_ns);
	double bytes = (double)job->samples * (double)job->data.sample_bytes;
	char text[CLI_TEXT_BYTES], more[CLI_TEXT_BYTES], paths[96];

	cli_row("device", "%s  %s", job->device.info.name, job->device.info.model);
	report_data(job);
	cli_row("steps", "%" PRIu64 " batches, %" PRIu64 " samples in %.2f s", job->steps,
		job->samples, seconds);
	cli_row("rate", "%.0f samples/s, %s", cli_per((double)job->samples, seconds),
		cli_rate(text, cli_per(bytes, seconds)));
	cli_row("waiting", "%.1f %% of the time",
		100 * cli_per(cli_seconds(job->wait_ns), seconds));
	cli_row("path", "%s", cli_paths(paths, sizeof(paths), io->bytes_by_path));
	cli_row("cached", "%s of %s read", cli_bytes(text, (double)io->bytes_cached),
		cli_bytes(more, (double)io->bytes_read));
	cli_row("copies", "%.2f a batch", cli_per((double)io->copies, (double)job->steps));
	cli_row("memory", "%s a batch, %s ring, %u slots, %u threads",
		cli_bytes(text, (double)job->info.batch_bytes),
		cli_bytes(more, (double)job->info.ring_bytes), job->info.slots, job->info.threads);
	cli_row("registered", "%s in %.3f s%s%s", cli_bytes(text, (double)io->registered_bytes),
		cli_seconds(io->register_ns), job->info.register_reason[0] ? ": " : "",
		job->info.register_reason);
	if (io->reopened || job->info.reopen_reason[0])
		cli_row("reopened", "%" PRIu64 " times a file%s%s", io->reopened,
			job->info.reopen_reason[0] ? ": " : "", job->info.reopen_reason);
	cli_row("queue", "%s%s%s", job->info.queue.name, job->info.queue.reason[0] ? ": " : "",
		job->info.queue.reason);
	if (job->verifier)
		cli_row("verified", "%s%s%s", cli_colour(job->mismatch ? 1 : 2),
			job->mismatch ? "NO" : "every element", cli_colour(0));
	return fflush(stdout) ? cli_fail("stdout: cannot be written") : CLI_OK;
}

static void stop_loader(void *loader)
{
	hr_loader_stop(loader);
}

static int run(struct job *job, const char *const *paths, uint32_t n)
{
	struct hr_loader_stats stats;
	int code, shown;

	code = cli_device_open(job->set->common.device, &job->device);
	if (code == CLI_OK)
		code = open_dataset(job, paths, n);
	if (code == CLI_OK)
		code = open_loader(job, paths[0]);
	if (code == CLI_OK)
		code = open_extras(job);
	if (code != CLI_OK)
		return code;
	cli_catch_interrupt(stop_loader, job->loader);
	code = consume(job, paths[0]);
	/* From here the handler must not touch the loader: it is about to be closed. */
	cli_release_interrupt();
	hr_loader_stats(job->loader, &stats);
	hr_loader_info(job->loader, &job->info);
	job->substituted = stats.substituted;
	if (stats.substituted)
		cli_note("%" PRIu64
			 " rows got the next sample in place of a damaged one; the first: %s",
			 stats.substituted, stats.substituted_reason);
	shown = job->set->common.json ? report_json(job, &stats.io) : report_human(job, &stats.io);
	if (code == CLI_OK && job->set->state)
		code = cli_state_save(job->loader, job->set->state);
	return code != CLI_OK ? code : cli_interrupted ? CLI_INTERRUPTED : shown;
}

static int close_job(struct job *job, int code)
{
	cli_verifier_close(job->verifier);
	hr_loader_close(job->loader);
	hr_dataset_close(job->ds);
	hr_device_close(job->device.dev);
	if (job->ids && fclose(job->ids) && code == CLI_OK)
		return cli_fail("%s: could not be written; free some space", job->set->ids);
	return code;
}

int cli_verb_stream(int argc, char **argv)
{
	struct settings set = {
		.data = {.format = "auto", .seq_len = 4096},
		.ragged = "values",
		.shuffle = "full",
		.path = "auto",
		.batch_size = 32,
		.dp_world_size = 1,
		.threads = THREADS_DEFAULT,
		.epochs = EPOCHS_DEFAULT,
	};
	struct job job = {.set = &set};
	int first, code = cli_parse(&usage, argc, argv, &set, &first);

	if (code != -1)
		return code;
	if (set.dp_rank >= set.dp_world_size)
		return cli_usage_error("stream", "--dp-rank must be below --dp-world-size");
	if (set.pad_value && !is_whole_number(set.pad_value))
		return cli_usage_error("stream",
				       "--pad-value %s: must be a whole number of at most 64 bits",
				       set.pad_value);
	if (set.buffered && set.direct)
		return cli_usage_error("stream", "--buffered and --direct exclude each other");
	cli_publish(true);
	code = run(&job, (const char *const *)argv + first, (uint32_t)(argc - first));
	code = close_job(&job, code);
	cli_publish(false);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/load.c - the verb that loads weights into device memory, and says how that went. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/load.h"

#define STEP_NS 200000000ull
#define PATIENCE_NS 60000000000ull

struct settings {
	struct cli_common common;
	const char *tensors, *slice, *out_dtype, *sha256, *path, *cache, *save;
	uint64_t threads, depth, staging, request;
	bool strict, lenient, verify, list, direct;
	/* understood */
	enum hr_weight_type to;
	uint32_t dim;
	uint64_t slice_index, slice_count; /* count 0: no slices */
};

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct settings, field), argument, help, __VA_ARGS__          \
	}

static const struct cli_option options[] = {
	OPT("tensors", CLI_TEXT, tensors, "GLOB", "only tensors whose name matches", 0, 0),
	OPT("slice", CLI_TEXT, slice, "DIM:INDEX/COUNT",
	    "one of COUNT equal slices of each tensor with this dimension", 0, 0),
	OPT("out-dtype", CLI_TEXT, out_dtype, "TYPE",
	    "convert to BF16, F32, I64, ... what can be converted", 0, 0),
	OPT("strict", CLI_FLAG, strict, NULL, "refuse every deviation from the format (default)", 0,
	    0),
	OPT("lenient", CLI_FLAG, lenient, NULL,
	    "allow bytes behind the last tensor, and tensors not in the index", 0, 0),
	OPT("verify", CLI_FLAG, verify, NULL, "compare every byte with a plain read of its file", 0,
	    0),
	OPT("sha256", CLI_TEXT, sha256, "HEX",
	    "the digest that the only file must have; implies --verify", 0, 0),
	OPT("list", CLI_FLAG, list, NULL, "print the tensors and load nothing", 0, 0),
	OPT("save", CLI_TEXT, save, "FILE", "write what was loaded to a new safetensors file", 0,
	    0),
	OPT("threads", CLI_NUMBER, threads, "N", "of the engine (default: processors, at most 12)",
	    0, 256),
	OPT("depth", CLI_NUMBER, depth, "N", "requests in flight (default 128)", 1, 4096),
	OPT("staging", CLI_SIZE, staging, "SIZE", "ring of host memory", 256 << 10, 16ull << 30),
	OPT("request", CLI_SIZE, request, "SIZE", "longest single read (default 1M)", 4096,
	    16 << 20),
	OPT("path", CLI_CHOICE, path, "auto|host|bounce|pagecache|p2p",
	    "force one path (default auto)", 0, 0),
	OPT("direct", CLI_FLAG, direct, NULL, "never look into the page cache", 0, 0),
	OPT("cache", CLI_CHOICE, cache, "auto|keep|drop",
	    "what reads leave in the page cache (default auto: keep what fits)", 0, 0),
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "load",
	.operands = "MODEL...",
	.summary = "Loads safetensors files into device memory.",
	.detail =
		"MODEL is a safetensors file, the index of a sharded model (model.safetensors.index"
		".json), or a\nfolder with one of them. Time counts from opening the files to the "
		"last "
		"byte in device memory.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 1,
};

struct job {
	const struct settings *set;
	const char *name; /* of the first operand, for sentences */
	struct cli_device device;
	struct hr_checkpoint *ck;
	struct hr_checkpoint_info info;
	struct hr_part *parts;
	uint64_t n_parts;
	uint64_t memory_bytes;
	struct hr_buffer *buffer;
	struct hr_engine *engine;
	struct hr_queue_info queue;
	struct hr_load *load;
	struct hr_load_info loaded;
	struct hr_stats stats;
	struct hr_save *save;
	struct hr_save_info saved;
	struct cli_progress progress;
	double seconds, header_seconds, save_seconds;
	bool verified;
};

/* -- what is asked for ------------------------------------------------------------------------- */

static int understand_slice(struct settings *set)
{
	unsigned long long dim, index, count;
	int end = 0;

	if (!set->slice)
		return -1;
	/* sscanf() would take signs and blanks. */
	if (set->slice[strspn(set->slice, "0123456789:/")] ||
	    sscanf(set->slice, "%llu:%llu/%llu%n", &dim, &index, &count, &end) != 3 ||
	    set->slice[end])
		return cli_usage_error("load", "--slice %s: must be DIM:INDEX/COUNT, such as 0:1/4",
				       set->slice);
	if (!count || index >= count || dim > UINT32_MAX)
		return cli_usage_error("load", "--slice %s: INDEX counts from 0 to COUNT - 1",
				       set->slice);
	set->dim = (uint32_t)dim;
	set->slice_index = index;
	set->slice_count = count;
	return -1;
}

/* What the parser cannot see. Return: -1 to go on, or the exit code. */
static int understand(struct settings *set, int operands)
{
	if (set->strict && set->lenient)
		return cli_usage_error("load", "--strict and --lenient exclude each other");
	if (set->direct && set->cache && !strcmp(set->cache, "keep"))
		return cli_usage_error("load", "--direct and --cache keep exclude each other");
	if (set->out_dtype && hr_weight_type_parse(set->out_dtype, &set->to))
		return cli_usage_error("load", "--out-dtype %s: no such type; try BF16, F16 or F32",
				       set->out_dtype);
	if (set->sha256 && (strlen(set->sha256) != 64 ||
			    set->sha256[strspn(set->sha256, "0123456789abcdefABCDEF")]))
		return cli_usage_error("load", "--sha256: 64 hexadecimal digits are wanted");
	if (set->sha256 && operands != 1)
		return cli_usage_error("load", "--sha256 is for one file");
	set->verify |= set->sha256 != NULL;
	if (set->verify && set->out_dtype)
		return cli_usage_error("load",
				       "--verify compares bytes; leave --out-dtype out for it");
	return understand_slice(set);
}

static int choose_parts(struct job *job)
{
	const struct settings *set = job->set;

	job->parts = calloc(job->info.weights + 1, sizeof(*job->parts));
	if (!job->parts)
		return cli_fail("no memory for a list of %" PRIu64 " tensors; close something",
				job->info.weights);
	for (uint64_t i = 0; i < job->info.weights; i++) {
		struct hr_part *part = &job->parts[job->n_parts];
		struct hr_weight w;

		hr_checkpoint_weight(job->ck, i, &w);
		if (set->tensors && fnmatch(set->tensors, w.name, 0))
			continue;
		job->n_parts++;
		part->weight = i;
		if (set->to && hr_weight_cast(w.type, set->to, NULL, NULL))
			part->to = set->to;
		if (set->slice_count && set->dim < w.ndim)
			hr_part_slice(job->ck, part, set->dim, set->slice_index, set->slice_count);
	}
	if (!job->n_parts && set->tensors)
		return cli_fail("%s: no tensor matches '%s'; --list prints their names", job->name,
				set->tensors);
	return CLI_OK;
}

/* -- the work ---------------------------------------------------------------------------------- */

static int open_files(struct job *job, int argc, char **argv)
{
	struct hr_checkpoint_options opts = {.lenient = job->set->lenient};
	uint64_t start = cli_now_ns();
	int err = hr_checkpoint_open((const char *const *)argv, (uint32_t)argc, &opts, &job->ck);

	job->header_seconds = cli_seconds(cli_now_ns() - start);
	if (err)
		return cli_fail_code(err, argv[0]);
	hr_checkpoint_info(job->ck, &job->info);
	if (job->set->sha256 && job->info.files != 1)
		return cli_fail("--sha256 is for one file, this model has %" PRIu64
				"; check each of them",
				job->info.files);
	return choose_parts(job);
}

static int open_engine(struct job *job)
{
	const struct settings *set = job->set;
	struct hr_engine_options opts = {
		.threads = (uint32_t)set->threads,
		.depth = (uint32_t)set->depth,
		.staging_bytes = set->staging,
		.request_bytes = (uint32_t)set->request,
		.direct = set->direct,
		.timeout_ns = PATIENCE_NS,
	};
	int err;

	hr_path_parse(set->path, &opts.path);
	if (!strcmp(set->cache, "keep"))
		opts.cache = HR_CACHE_KEEP;
	else if (!strcmp(set->cache, "drop"))
		opts.cache = HR_CACHE_DROP;
	else if (!set->direct)
		opts.cache = hr_checkpoint_cache(job->ck);
	err = hr_engine_open(job->device.dev, &opts, &job->engine);
	if (err)
		return cli_fail_code(err, job->device.info.name);
	hr_engine_queue(job->engine, &job->queue);
	err = hr_checkpoint_place(job->ck, job->parts, job->n_parts, 0, &job->memory_bytes);
	if (!err)
		err = hr_buffer_alloc(job->device.dev, job->memory_bytes ? job->memory_bytes : 1,
				      &job->buffer);
	if (err)
		return cli_fail_code(err, job->name);
	for (uint64_t i = 0; i < job->n_parts; i++)
		job->parts[i].buffer = job->buffer;
	return CLI_OK;
}

static int show_progress(const struct hr_progress *progress, void *user)
{
	cli_progress_bytes(&((struct job *)user)->progress, progress->bytes);
	return cli_interrupted;
}

/* Steps until the end; short ones, so that an interrupt is noticed. */
static int step_through(struct job *job, int (*step)(void *what, uint64_t timeout_ns), void *what)
{
	uint64_t moved = cli_now_ns();
	int ret;

	for (;;) {
		ret = step(what, STEP_NS);
		if (ret && ret != -ETIMEDOUT)
			break;
		if (cli_interrupted)
			return CLI_OK;
		if (!ret)
			moved = cli_now_ns();
		else if (cli_now_ns() - moved > PATIENCE_NS)
			break;
	}
	if (ret == 1 || (ret == -ECANCELED && cli_interrupted))
		return CLI_OK;
	return cli_fail_code(ret, job->name);
}

static int step_load(void *what, uint64_t timeout_ns)
{
	return hr_load_step(what, timeout_ns);
}

static int step_save(void *what, uint64_t timeout_ns)
{
	return hr_save_step(what, timeout_ns);
}

static int load(struct job *job)
{
	struct hr_load_options opts = {.progress = show_progress, .user = job};
	int code, err;

	err = hr_load_open(job->ck, job->engine, job->parts, job->n_parts, &opts, &job->load);
	if (err)
		return cli_fail_code(err, job->name);
	hr_load_info(job->load, &job->loaded);
	cli_progress_begin(&job->progress, "load", job->loaded.bytes);
	code = step_through(job, step_load, job->load);
	cli_progress_end(&job->progress);
	hr_load_info(job->load, &job->loaded);
	hr_engine_stats(job->engine, &job->stats);
	return code;
}

/* -- saving ------------------------------------------------------------------------------------ */

/* Name, type, shape and place of each part, as the new file shall have them. */
static struct hr_save_weight *list_saved(struct job *job, uint64_t **shapes)
{
	struct hr_save_weight *list = calloc(job->n_parts + 1, sizeof(*list));
	uint64_t dims = 0, at = 0;
	struct hr_weight w;

	for (uint64_t i = 0; i < job->n_parts; i++) {
		hr_checkpoint_weight(job->ck, job->parts[i].weight, &w);
		dims += w.ndim;
	}
	*shapes = calloc(dims + 1, sizeof(**shapes));
	for (uint64_t i = 0; list && *shapes && i < job->n_parts; i++) {
		const struct hr_part *part = &job->parts[i];

		hr_checkpoint_weight(job->ck, part->weight, &w);
		if (w.ndim)
			memcpy(*shapes + at, w.shape, w.ndim * sizeof(**shapes));
		if (part->sliced)
			(*shapes)[at + part->dim] = part->count;
		list[i] = (struct hr_save_weight){
			.name = w.name,
			.type = part->to ? part->to : w.type,
			.ndim = w.ndim,
			.shape = *shapes + at,
			.buffer = job->buffer,
			.buffer_offset = part->buffer_offset,
		};
		at += w.ndim;
	}
	return list;
}

static struct hr_save_pair *list_metadata(struct job *job)
{
	struct hr_save_pair *pairs = calloc(job->info.metadata + 1, sizeof(*pairs));

	for (uint64_t i = 0; pairs && i < job->info.metadata; i++)
		hr_checkpoint_metadata(job->ck, i, &pairs[i].key, &pairs[i].value);
	return pairs;
}

static int save(struct job *job)
{
	struct hr_save_options opts = {.progress = show_progress, .user = job};
	struct hr_save_pair *pairs = list_metadata(job);
	uint64_t *shapes = NULL, start = cli_now_ns();
	struct hr_save_weight *list = list_saved(job, &shapes);
	int err = -ENOMEM, code;

	if (job->info.metadata) {
		opts.metadata = pairs;
		opts.n_metadata = job->info.metadata;
	}
	if (list && shapes && pairs)
		err = hr_save_open(job->engine, job->set->save, list, job->n_parts, &opts,
				   &job->save);
	free(list);
	free(shapes);
	free(pairs);
	if (err)
		return cli_fail_code(err, job->set->save);
	hr_save_info(job->save, &job->saved);
	cli_progress_begin(&job->progress, "save", job->saved.file_bytes);
	code = step_through(job, step_save, job->save);
	cli_progress_end(&job->progress);
	hr_save_info(job->save, &job->saved);
	job->save_seconds = cli_seconds(cli_now_ns() - start);
	if (code == CLI_OK && cli_interrupted)
		cli_note("interrupted; %s was left as it was", job->set->save);
	return code;
}

/* -- results ----------------------------------------------------------------------------------- */

static json_t *shape_json(const struct hr_weight *w)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < w->ndim; i++)
		json_array_append_new(shape, json_integer((json_int_t)w->shape[i]));
	return shape;
}

/* A name from a file must not steer the terminal. */
static void print_name(const char *name)
{
	for (; *name; name++)
		putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

static int list(struct job *job)
{
	json_t *out = job->set->common.json ? json_array() : NULL;

	for (uint64_t i = 0; i < job->n_parts; i++) {
		struct hr_weight w;

		hr_checkpoint_weight(job->ck, job->parts[i].weight, &w);
		if (out) {
			json_array_append_new(
				out,
				json_pack("{s:s, s:s, s:o, s:s, s:I, s:I}", "name", w.name, "dtype",
					  hr_weight_type_name(w.type), "shape", shape_json(&w),
					  "file", hr_checkpoint_path(job->ck, w.file), "offset",
					  (json_int_t)w.offset, "bytes", (json_int_t)w.len));
			continue;
		}
		printf("%-11s %12" PRIu64 "  ", hr_weight_type_name(w.type), w.len);
		print_name(w.name);
		printf("  [");
		for (uint32_t d = 0; d < w.ndim; d++)
			printf("%s%" PRIu64, d ? ", " : "", w.shape[d]);
		printf("]\n");
	}
	return out ? cli_print_json(json_pack("{s:o}", "weights", out)) : CLI_OK;
}

static int report_json(struct job *job)
{
	const struct hr_load_info *loaded = &job->loaded;
	json_t *out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:b, s:b}", "tensors",
				(json_int_t)job->n_parts, "files", (json_int_t)job->info.files,
				"bytes", (json_int_t)loaded->delivered, "bytes_read",
				(json_int_t)job->stats.bytes_read, "reads",
				(json_int_t)job->stats.segments, "seconds", job->seconds,
				"header_seconds", job->header_seconds, "bytes_per_second",
				cli_per((double)loaded->delivered, job->seconds), "verified",
				job->verified, "interrupted", (int)cli_interrupted);

	json_object_set_new(out, "device_bytes", json_integer((json_int_t)job->memory_bytes));
	json_object_set_new(out, "bytes_cached", json_integer((json_int_t)loaded->bytes_cached));
	json_object_set_new(out, "bytes_by_path", cli_json_paths(loaded->bytes_by_path));
	json_object_set_new(out, "queue", cli_json_queue(&job->queue));
	cli_device_json(&job->device, out);
	if (job->save) {
		json_object_set_new(out, "bytes_written",
				    json_integer((json_int_t)job->saved.written));
		json_object_set_new(out, "save_seconds", json_real(job->save_seconds));
		json_object_set_new(out, "written_by_path",
				    cli_json_paths(job->saved.bytes_by_path));
	}
	return cli_print_json(out);
}

static int report(struct job *job)
{
	const struct hr_load_info *loaded = &job->loaded;
	char text[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES], paths[96];

	if (job->set->common.json)
		return report_json(job);
	cli_row("device", "%s  %s", job->device.info.name, job->device.info.model);
	cli_row("loaded", "%" PRIu64 " tensors of %" PRIu64 " files, %s in %.2f s, %s",
		job->n_parts, job->info.files, cli_bytes(text, (double)loaded->delivered),
		job->seconds, cli_rate(rate, cli_per((double)loaded->delivered, job->seconds)));
	cli_row("path", "%s", cli_paths(paths, sizeof(paths), loaded->bytes_by_path));
	cli_row("reads", "%" PRIu64 ", %s from the page cache", job->stats.segments,
		cli_bytes(text, (double)loaded->bytes_cached));
	if (job->set->verify)
		cli_row("verified", "%s", job->verified ? "every byte" : "no");
	if (job->save)
		cli_row("saved", "%s in %.2f s, %s", cli_bytes(text, (double)job->saved.written),
			job->save_seconds,
			cli_rate(rate, cli_per((double)job->saved.written, job->save_seconds)));
	return CLI_OK;
}

static int run(struct job *job, int argc, char **argv)
{
	uint64_t start;
	int code, shown;

	if (job->set->list) {
		code = open_files(job, argc, argv);
		return code == CLI_OK ? list(job) : code;
	}
	code = cli_device_open(job->set->common.device, &job->device);
	if (code != CLI_OK)
		return code;
	start = cli_now_ns();
	code = open_files(job, argc, argv);
	if (code == CLI_OK)
		code = open_engine(job);
	if (code == CLI_OK)
		code = load(job);
	job->seconds = cli_seconds(cli_now_ns() - start);
	if (code == CLI_OK && job->set->verify && !cli_interrupted) {
		code = cli_load_verify(job->ck, job->parts, job->n_parts, job->buffer,
				       job->set->sha256);
		job->verified = code == CLI_OK && !cli_interrupted;
	}
	if (code == CLI_OK && job->set->save && !cli_interrupted)
		code = save(job);
	shown = code == CLI_OK ? report(job) : code;
	return code == CLI_OK && cli_interrupted ? CLI_INTERRUPTED : shown;
}

static int close_job(struct job *job, int code)
{
	/* Wait for what is in flight: before that neither memory nor files may go. */
	int err = hr_load_close(job->load);

	if (!err)
		err = hr_save_close(job->save);
	if (!err)
		err = hr_engine_close(job->engine);
	if (err)
		return cli_fail("%s: requests are stuck in the kernel (%s); %s", job->name,
				hr_strerror(err), cli_remedy(-ETIMEDOUT));
	hr_buffer_free(job->buffer);
	hr_checkpoint_close(job->ck);
	hr_device_close(job->device.dev);
	free(job->parts);
	return code;
}

int cli_verb_load(int argc, char **argv)
{
	uint64_t cpus = cli_cpus();
	struct settings set = {
		.path = "auto", .cache = "auto", .threads = cli_min(cpus, CLI_COPYING_THREADS)};
	struct job job = {.set = &set};
	int first, code = cli_parse(&usage, argc, argv, &set, &first);

	if (code == -1)
		code = understand(&set, argc - first);
	if (code != -1)
		return code;
	job.name = argv[first];
	cli_catch_interrupt(NULL, NULL);
	return close_job(&job, run(&job, argc - first, argv + first));
}

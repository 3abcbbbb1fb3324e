/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench.c - the load generator: settings, file and range, workers, and their sum. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench.h"

#define THREADS_MAX 256
#define NOT_SAID (-1.0)
#define SECONDS_DEFAULT 5
#define SECONDS_SWEEP 0.3
#define TYPES "bytes|i8|u8|i16|u16|i32|u32|i64|f16|bf16|f32|f64"

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct bench_settings, field), argument, help, __VA_ARGS__    \
	}

static const struct cli_option options[] = {
	OPT("rw", CLI_CHOICE, rw, "read|write|randread|randwrite", "what to do (default randread)",
	    0, 0),
	OPT("bs", CLI_SIZE, bs, "SIZE", "bytes of a block (default 8K)", 512, 1 << 30),
	OPT("depth", CLI_NUMBER, depth, "N", "requests in flight for each thread (default 64)", 1,
	    4096),
	OPT("threads", CLI_NUMBER, threads, "N", "threads with an engine each (default 1)", 1,
	    THREADS_MAX),
	OPT("helpers", CLI_NUMBER, helpers, "N",
	    "threads that each engine may start to copy hot blocks (default 0)", 0, THREADS_MAX),
	OPT("seconds", CLI_REAL, seconds, "S", "how long (default 5)", 0, 86400),
	OPT("requests", CLI_NUMBER, requests, "N", "stop after N blocks in all", 1, 0),
	OPT("size", CLI_SIZE, size, "SIZE", "use the first SIZE bytes (default: the file)", 1, 0),
	OPT("batch", CLI_NUMBER, batch, "N", "blocks in one gather request (default 1)", 1, 65536),
	OPT("from", CLI_CHOICE, from, TYPES,
	    "what the file holds, to be converted while it is read", 0, 0),
	OPT("to", CLI_CHOICE, to, TYPES,
	    "what it shall become in device memory (default: the same)", 0, 0),
	OPT("path", CLI_CHOICE, path, "auto|host|bounce|pagecache|p2p|classic",
	    "force one path; classic: blocking read and copy, without this library", 0, 0),
	OPT("buffered", CLI_FLAG, buffered, NULL, "go through the page cache", 0, 0),
	OPT("direct", CLI_FLAG, direct, NULL, "never look into the page cache", 0, 0),
	OPT("cache", CLI_CHOICE, cache, "auto|keep|drop",
	    "what reads leave in the page cache (default auto)", 0, 0),
	OPT("staging", CLI_SIZE, staging, "SIZE", "ring of host memory for each engine", 256 << 10,
	    16ull << 30),
	OPT("seed", CLI_NUMBER, seed, "N", "of the order and of the written pattern (default 0)", 0,
	    0),
	OPT("verify", CLI_FLAG, verify, NULL, "check data after the timed run; see above", 0, 0),
	OPT("sweep", CLI_FLAG, sweep, NULL,
	    "reads over block sizes and depths, --seconds each (default 0.3)", 0, 0),
	OPT("overwrite", CLI_FLAG, overwrite, NULL, "allow writes to a file that exists", 0, 0),
	CLI_COMMON_OPTIONS(struct bench_settings),
};

static const struct cli_usage usage = {
	.verb = "bench",
	.operands = "FILE",
	.summary = "Loads a file with reads or writes and reports rates, latencies and costs.",
	.detail =
		"--verify with reads: random blocks are read once more, untimed, and compared with "
		"plain reads,\nconverted ones with what the processor makes of them.\n--verify "
		"with writes: each block carries a pattern of its offset "
		"and "
		"--seed (filling it costs\ntime); written blocks are read back, untimed, and "
		"checked.\n"
		"A latency spans from the round in which a request was sent to the one that reaped "
		"it.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 1,
	.max_operands = 1,
};

static uint64_t rusage_ns(int who)
{
	struct rusage usage_now;

	getrusage(who, &usage_now);
	return (uint64_t)(usage_now.ru_utime.tv_sec + usage_now.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(usage_now.ru_utime.tv_usec + usage_now.ru_stime.tv_usec) * 1000u;
}

uint64_t bench_cpu_ns(void)
{
	return rusage_ns(RUSAGE_THREAD);
}

void bench_worker_fail(struct bench_worker *w, int code, const char *object)
{
	const char *detail = hr_error_detail();

	if (w->error)
		return;
	w->error = code;
	if (code == -HR_E_FILE_CHANGED)
		snprintf(w->sentence, sizeof(w->sentence),
			 "%s: became shorter while it was read; run bench when nobody changes it",
			 object);
	else if (detail[0])
		snprintf(w->sentence, sizeof(w->sentence), "%s", detail);
	else if (code == -ENOMEM)
		snprintf(w->sentence, sizeof(w->sentence),
			 "%s: no memory for the buffers; use a smaller --depth, --bs or --threads",
			 object);
	else
		snprintf(w->sentence, sizeof(w->sentence), "%s: %s (%s); %s", object,
			 hr_strerror(code), hr_error_name(code), cli_remedy(code));
	atomic_store(&w->bench->stop, true);
}

bool bench_let_go(struct bench_worker *w)
{
	pthread_barrier_wait(&w->bench->gate); /* all are ready or have failed */
	pthread_barrier_wait(&w->bench->gate); /* the main thread has set the deadline */
	return !atomic_load(&w->bench->stop) && !w->error;
}

uint64_t bench_blocks_limit(const struct bench_worker *w)
{
	uint64_t all = w->bench->set->requests, n = w->bench->set->threads;

	return all ? all / n + (w->index < all % n) : UINT64_MAX;
}

static int open_for_write(struct bench *b)
{
	uint32_t flags = HR_FILE_READ | HR_FILE_WRITE;
	struct stat st;
	bool create = false;
	int err;

	if (!stat(b->file_path, &st)) {
		if (!b->set->overwrite)
			return cli_fail(
				"%s: exists and would be overwritten; name a new file or say "
				"--overwrite",
				b->file_path);
	} else if (!b->set->size) {
		return cli_fail("%s: does not exist; say how large it shall be with --size",
				b->file_path);
	} else {
		flags |= HR_FILE_CREATE | HR_FILE_EXCLUSIVE;
		create = true;
	}
	err = hr_file_open(b->file_path, flags, &b->file);
	if (err)
		return cli_fail_code(err, b->file_path);
	err = create ? hr_file_preallocate(b->file, b->set->size) : 0;
	if (err == -EOPNOTSUPP)
		err = hr_file_truncate(b->file, b->set->size);
	if (!err)
		return CLI_OK;
	unlink(b->file_path);
	return cli_fail("%s: no room for %" PRIu64 " bytes: %s; free some space or use a smaller "
			"--size",
			b->file_path, b->set->size, hr_strerror(err));
}

static int open_file(struct bench *b)
{
	uint64_t range;
	int err;

	if (b->write) {
		if (open_for_write(b) != CLI_OK)
			return CLI_FAILED;
	} else {
		err = hr_file_open(b->file_path, HR_FILE_READ, &b->file);
		if (err)
			return cli_fail_code(err, b->file_path);
	}
	err = hr_file_info(b->file, &b->info);
	if (err)
		return cli_fail_code(err, b->file_path);
	range = b->info.size_bytes;
	if (b->set->size)
		range = cli_min(range, b->set->size);
	b->blocks = range / b->set->bs;
	if (!b->blocks)
		return cli_fail("%s: %" PRIu64 " bytes are less than one block of %" PRIu64
				"; use a larger file or a smaller --bs",
				b->file_path, range, b->set->bs);
	if (b->write && b->set->verify) {
		b->written = calloc(b->blocks / 8 + 1, 1);
		if (!b->written)
			return cli_fail("--verify: no memory to note %" PRIu64
					" blocks; use a smaller "
					"--size",
					b->blocks);
	}
	return CLI_OK;
}

static void show_live(struct bench *b, struct bench_worker *workers, uint32_t n,
		      struct cli_progress *progress)
{
	uint64_t now = cli_now_ns(), blocks = 0;
	char rate[CLI_TEXT_BYTES], text[128];
	double seconds;

	if (!cli_progress_due(progress, now))
		return;
	for (uint32_t i = 0; i < n; i++)
		blocks += atomic_load_explicit(&workers[i].live_blocks, memory_order_relaxed);
	seconds = cli_seconds(now - progress->start_ns);
	snprintf(text, sizeof(text), "%.0f blocks/s  %s  %.0f s left",
		 cli_per((double)blocks, seconds),
		 cli_rate(rate, cli_per((double)(blocks * b->set->bs), seconds)),
		 b->set->seconds > seconds ? b->set->seconds - seconds : 0);
	cli_progress_line(progress, now - progress->start_ns, text);
}

static void wait_for_workers(struct bench *b, struct bench_worker *workers, uint32_t n)
{
	const struct timespec tick = {.tv_nsec = 20000000};
	struct cli_progress progress;

	cli_progress_begin(&progress, "bench", (uint64_t)(b->set->seconds * 1e9));
	while (atomic_load(&b->running)) {
		nanosleep(&tick, NULL);
		show_live(b, workers, n, &progress);
	}
	cli_progress_end(&progress);
}

static int start_workers(struct bench *b, struct bench_worker *workers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct bench_worker *w = &workers[i];

		w->bench = b;
		w->index = i;
		w->position = b->blocks / n * i;
		w->random_state = b->set->seed * 1000003 + i;
		w->queue.name = "none";
		if (!pthread_create(&w->thread, NULL,
				    b->classic ? bench_classic_worker : bench_engine_worker, w))
			continue;
		/* Those that run stand at the gate and cannot be joined: end with the process. */
		cli_fail("no more than %u threads can be started; use a smaller --threads", i);
		_exit(CLI_FAILED);
	}
	return CLI_OK;
}

static void add_up(struct bench_totals *t, const struct bench_worker *workers, uint32_t n)
{
	t->start_ns = UINT64_MAX;
	for (uint32_t i = 0; i < n; i++) {
		t->blocks += workers[i].blocks;
		t->cpu_ns += workers[i].cpu_ns;
		t->start_ns = cli_min(t->start_ns, workers[i].start_ns);
		t->end_ns = workers[i].end_ns > t->end_ns ? workers[i].end_ns : t->end_ns;
		hr_stats_add(&t->stats, &workers[i].stats);
		cli_histogram_merge(&t->latency, &workers[i].latency);
	}
}

int bench_timed(struct bench *b, struct bench_worker *workers, struct bench_totals *t)
{
	uint32_t n = (uint32_t)b->set->threads;
	uint64_t process;

	pthread_barrier_init(&b->gate, NULL, n + 1);
	atomic_store(&b->running, n);
	start_workers(b, workers, n);
	pthread_barrier_wait(&b->gate);
	process = rusage_ns(RUSAGE_SELF);
	b->deadline_ns = cli_now_ns() + (uint64_t)(b->set->seconds * 1e9);
	pthread_barrier_wait(&b->gate);
	wait_for_workers(b, workers, n);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	t->process_ns = rusage_ns(RUSAGE_SELF) - process;
	pthread_barrier_destroy(&b->gate);
	for (uint32_t i = 0; i < n; i++) {
		if (workers[i].error)
			return cli_fail("%s", workers[i].sentence);
	}
	add_up(t, workers, n);
	return CLI_OK;
}

static int after_run(struct bench *b, struct bench_totals *t)
{
	int code = CLI_OK, err = 0;

	hr_file_residency(b->file, 0, b->blocks * b->set->bs, &t->after);
	if (b->write) {
		uint64_t start = cli_now_ns();

		err = hr_file_sync(b->file);
		t->sync_seconds = cli_seconds(cli_now_ns() - start);
	}
	if (err)
		return cli_fail("%s: could not be brought to the drive: %s; %s", b->file_path,
				hr_strerror(err), cli_remedy(err));
	if (b->set->verify && !cli_interrupted) {
		code = b->write ? bench_verify_writes(b, &t->checked)
				: bench_verify_reads(b, &t->checked, &t->pattern);
		t->verified = code == CLI_OK && t->checked;
	}
	return code;
}

static json_t *json_latency(const struct cli_histogram *h)
{
	return json_pack("{s:f, s:f, s:f}", "p50", cli_histogram_at(h, 0.5) / 1e3, "p99",
			 cli_histogram_at(h, 0.99) / 1e3, "p99_9",
			 cli_histogram_at(h, 0.999) / 1e3);
}

/* What the classic way moved is not in the library's statistics. */
static json_t *json_paths(const struct bench *b, const struct bench_totals *t)
{
	if (b->classic)
		return json_pack("{s:I}", "classic", (json_int_t)(t->blocks * b->set->bs));
	return cli_json_paths(t->stats.bytes_by_path);
}

static int report_json(const struct bench *b, const struct hr_queue_info *queue,
		       struct bench_totals *t)
{
	const struct bench_settings *set = b->set;
	const struct hr_stats *io = &t->stats;
	double seconds = cli_seconds(t->end_ns - t->start_ns), n = (double)t->blocks;
	json_t *out = json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f}",
		"rw", set->rw, "block_bytes", (json_int_t)set->bs, "depth", (json_int_t)set->depth,
		"threads", (json_int_t)set->threads, "helpers", (json_int_t)set->helpers, "batch",
		(json_int_t)set->batch, "iops", cli_per(n, seconds), "bytes_per_second",
		cli_per(n * (double)set->bs, seconds), "cpu_share",
		cli_per(cli_seconds(t->cpu_ns), seconds), "cpu_share_process",
		cli_per(cli_seconds(t->process_ns), seconds), "cpu_us_per_request",
		cli_per((double)t->cpu_ns / 1e3, n), "syscalls_per_request",
		cli_per((double)(io->enters + io->preads + io->probes), n), "copies_per_request",
		cli_per((double)io->copies, n), "seconds", seconds, "requests",
		(json_int_t)t->blocks, "sync_seconds", t->sync_seconds);

	json_object_set_new(out, "from", json_string(hr_dtype_name(b->from)));
	json_object_set_new(out, "to", json_string(hr_dtype_name(b->to)));

	cli_device_json(&b->device, out);
	json_object_set_new(out, "latency_us", json_latency(&t->latency));
	json_object_set_new(out, "bytes_by_path", json_paths(b, t));
	json_object_set_new(out, "bytes_cached", json_integer((json_int_t)io->bytes_cached));
	json_object_set_new(out, "segments", json_integer((json_int_t)io->segments));
	json_object_set_new(out, "queue", cli_json_queue(queue));
	json_object_set_new(out, "residency",
			    json_pack("{s:o, s:o}", "before", cli_json_residency(&t->before),
				      "after", cli_json_residency(&t->after)));
	json_object_set_new(out, "verified", json_boolean(t->verified));
	json_object_set_new(out, "blocks_verified", json_integer((json_int_t)t->checked));
	json_object_set_new(out, "pattern", json_boolean(t->verified && (b->write || t->pattern)));
	json_object_set_new(out, "interrupted", json_boolean(cli_interrupted));
	return cli_print_json(out);
}

static int report_human(const struct bench *b, const struct hr_queue_info *queue,
			struct bench_totals *t)
{
	const struct hr_stats *io = &t->stats;
	double seconds = cli_seconds(t->end_ns - t->start_ns), n = (double)t->blocks;
	char text[CLI_TEXT_BYTES], paths[96];

	cli_row("device", "%s  %s", b->device.info.name, b->device.info.model);
	cli_row("load", "%s, blocks of %s, depth %" PRIu64 ", %" PRIu64 " threads, %.2f s",
		b->set->rw, cli_bytes(text, (double)b->set->bs), b->set->depth, b->set->threads,
		seconds);
	cli_row("rate", "%.0f blocks/s, %s", cli_per(n, seconds),
		cli_rate(text, cli_per(n * (double)b->set->bs, seconds)));
	if (b->from != b->to)
		cli_row("converted", "%s to %s", hr_dtype_name(b->from), hr_dtype_name(b->to));
	cli_row("latency", "p50 %.1f us, p99 %.1f us, p99.9 %.1f us",
		cli_histogram_at(&t->latency, 0.5) / 1e3, cli_histogram_at(&t->latency, 0.99) / 1e3,
		cli_histogram_at(&t->latency, 0.999) / 1e3);
	cli_row("processor", "%.2f cores, %.2f us a block (whole process %.2f cores)",
		cli_per(cli_seconds(t->cpu_ns), seconds), cli_per((double)t->cpu_ns / 1e3, n),
		cli_per(cli_seconds(t->process_ns), seconds));
	cli_row("per block", "%.4f system calls, %.4f device copies",
		cli_per((double)(io->enters + io->preads + io->probes), n),
		cli_per((double)io->copies, n));
	cli_row("path", "%s",
		b->classic ? "classic" : cli_paths(paths, sizeof(paths), io->bytes_by_path));
	cli_row("queue", "%s%s%s", queue->name, queue->reason[0] ? ": " : "", queue->reason);
	if (t->before.pages && t->after.pages && t->before.state && t->after.state)
		cli_row("page cache", "%.1f %% resident before, %.1f %% after",
			100.0 * (double)t->before.pages_resident / (double)t->before.pages,
			100.0 * (double)t->after.pages_resident / (double)t->after.pages);
	if (b->set->verify)
		cli_row("verified", "%" PRIu64 " blocks%s", t->checked,
			t->verified && (b->write || t->pattern) ? " carry the pattern" : "");
	return fflush(stdout) ? cli_fail("stdout: cannot be written") : CLI_OK;
}

static void stop_bench(void *arg)
{
	atomic_store(&((struct bench *)arg)->stop, true);
}

static int run(struct bench *b, struct bench_worker *workers, struct bench_totals *t)
{
	int shown, code = cli_device_open(b->set->common.device, &b->device);

	if (code == CLI_OK)
		code = open_file(b);
	if (code != CLI_OK)
		return code;
	cli_catch_interrupt(stop_bench, b);
	if (b->set->sweep)
		return bench_sweep(b, workers, t);
	hr_file_residency(b->file, 0, b->blocks * b->set->bs, &t->before);
	code = bench_timed(b, workers, t);
	if (code == CLI_OK)
		code = after_run(b, t);
	if (code != CLI_OK && !t->blocks)
		return code;
	shown = b->set->common.json ? report_json(b, &workers[0].queue, t)
				    : report_human(b, &workers[0].queue, t);
	return code != CLI_OK ? code : cli_interrupted ? CLI_INTERRUPTED : shown;
}

static int check_settings(const struct bench_settings *set)
{
	bool write = strstr(set->rw, "write");

	if (set->buffered && set->direct)
		return cli_usage_error("bench", "--buffered and --direct exclude each other");
	if (set->direct && cli_cache(set->cache) == HR_CACHE_KEEP)
		return cli_usage_error("bench", "--cache keep and --direct exclude each other");
	if (set->sweep && (write || set->verify || set->batch > 1))
		return cli_usage_error("bench",
				       "--sweep reads; --verify and --batch are not for it");
	if (write && set->bs % 8)
		return cli_usage_error("bench", "--bs must be a multiple of 8 to write");
	if (!strcmp(set->path, "classic") && (set->batch > 1 || set->direct))
		return cli_usage_error("bench", "--path classic has neither --batch nor --direct");
	return -1;
}

/* --from and --to. Return: -1, or the exit code. */
static int set_types(struct bench *b)
{
	const struct bench_settings *set = b->set;

	hr_dtype_parse(set->from, &b->from);
	hr_dtype_parse(set->to ? set->to : set->from, &b->to);
	if (!hr_cast_ok(b->from, b->to))
		return cli_usage_error("bench", "%s cannot become %s; it can stay as it is%s%s",
				       set->from, set->to,
				       *hr_cast_names(b->from) ? " or become " : "",
				       hr_cast_names(b->from));
	if (b->from != b->to && (b->write || b->classic))
		return cli_usage_error("bench", "only reads by this library convert");
	if (set->bs % hr_dtype_size(b->from))
		return cli_usage_error("bench",
				       "--bs must be a multiple of an element (%" PRIu32 " bytes)",
				       hr_dtype_size(b->from));
	b->out_bytes = set->bs / hr_dtype_size(b->from) * hr_dtype_size(b->to);
	return -1;
}

int cli_verb_bench(int argc, char **argv)
{
	struct bench_settings set = {
		.rw = "randread",
		.path = "auto",
		.from = "bytes",
		.cache = "auto",
		.bs = 8192,
		.depth = 64,
		.threads = 1,
		.seconds = NOT_SAID,
		.batch = 1,
	};
	struct bench b = {.set = &set};
	struct bench_worker *workers;
	struct bench_totals *totals;
	int first, code = cli_parse(&usage, argc, argv, &set, &first);

	if (code == -1)
		code = check_settings(&set);
	if (code != -1)
		return code;
	if (set.seconds < 0)
		set.seconds = set.sweep ? SECONDS_SWEEP : SECONDS_DEFAULT;
	b.file_path = argv[first];
	b.write = strstr(set.rw, "write");
	b.random = !strncmp(set.rw, "rand", 4);
	b.classic = !strcmp(set.path, "classic");
	code = set_types(&b);
	if (code != -1)
		return code;
	workers = calloc(set.threads, sizeof(*workers));
	totals = calloc(1, sizeof(*totals));
	cli_publish(true);
	if (workers && totals)
		code = run(&b, workers, totals);
	else
		code = cli_fail("no memory for %" PRIu64 " threads; use a smaller --threads",
				set.threads);
	cli_publish(false);
	cli_release_interrupt();
	hr_file_close(b.file);
	hr_device_close(b.device.dev);
	free(b.written);
	free(workers);
	free(totals);
	return code;
}

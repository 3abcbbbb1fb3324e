/* SPDX-License-Identifier: Apache-2.0 */
/* cli/stat_show.c - figures of a process between two looks: for a terminal, a log, and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/stat.h"

/* What both looks come to. */
struct figures {
	struct hr_stats io;                 /* between the looks, or since the start without them */
	uint64_t latency[HR_STATS_BUCKETS]; /* as well */
	double per_second;                  /* 1 / seconds; 0 without two looks */
	double bytes, cached, waiting, p50, p99, p99_9;
};

/* The middle of the bucket in which the @share-th request lies, in us. */
static double latency_at(const uint64_t *counts, double share)
{
	uint64_t total = 0, seen = 0;

	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		total += counts[i];
	for (uint32_t i = 0; i < HR_STATS_BUCKETS && total; i++) {
		seen += counts[i];
		if (counts[i] && (double)seen >= share * (double)total) {
			uint64_t from = i ? hr_stats_bucket_ns(i - 1) : 0;
			uint64_t to = i + 1 < HR_STATS_BUCKETS ? hr_stats_bucket_ns(i) : from;

			return ((double)from + (double)to) / 2e3;
		}
	}
	return 0;
}

/* A copy that was made while engines closed may lag behind the one before. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static double share(double part)
{
	return part < 1 ? part : 1;
}

static void compute(const struct stat_pair *pair, struct figures *f)
{
	const uint64_t *now = (const uint64_t *)&pair->now.io;
	const uint64_t *before = (const uint64_t *)&pair->before.io;
	uint64_t *io = (uint64_t *)&f->io;
	double waited = cli_seconds(grown(pair->now.wait_ns, pair->before.wait_ns));

	memset(f, 0, sizeof(*f));
	for (uint32_t i = 0; i < sizeof(f->io) / sizeof(*io); i++)
		io[i] = grown(now[i], before[i]);
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		f->latency[i] = grown(pair->now.latency[i], pair->before.latency[i]);
	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		f->bytes += (double)f->io.bytes_by_path[i];
	f->per_second = cli_per(1, pair->seconds);
	/* Counters are stored one after the other, and a wait may have begun before the first look. */
	f->cached = share(cli_per((double)f->io.bytes_cached, f->bytes));
	f->waiting =
		share(waited * f->per_second / (pair->now.n_loaders ? pair->now.n_loaders : 1));
	f->p50 = latency_at(f->latency, 0.5);
	f->p99 = latency_at(f->latency, 0.99);
	f->p99_9 = latency_at(f->latency, 0.999);
}

static double calls(const struct hr_stats *io)
{
	return (double)(io->enters + io->preads + io->probes);
}

static uint32_t depth_sum(const struct hr_process_stats *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n_engines; i++)
		sum += p->engines[i].depth;
	return (uint32_t)cli_min(sum, UINT32_MAX);
}

/* Requests by latency, a place for each power of two from 1 us on; the last takes all above. */
#define BARS 20

static void count_bars(const uint64_t *latency, uint64_t bars[BARS])
{
	memset(bars, 0, BARS * sizeof(*bars));
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++) {
		uint64_t from_us = (i ? hr_stats_bucket_ns(i - 1) : 0) / 1000;
		uint32_t bar = from_us ? 64 - (uint32_t)__builtin_clzll(from_us) : 0;

		bars[bar < BARS ? bar : BARS - 1] += latency[i];
	}
}

/* "<1us [  .:|#:.    ] >256ms": by its own largest, in steps that a log can carry as well. */
static void draw_bars(const uint64_t *latency, char out[BARS + 1])
{
	static const char marks[] = " .:-=+*#";
	uint64_t bars[BARS], most = 0;

	count_bars(latency, bars);
	for (uint32_t i = 0; i < BARS; i++)
		most = bars[i] > most ? bars[i] : most;
	for (uint32_t i = 0; i < BARS; i++) {
		uint64_t step = most ? (bars[i] * (sizeof(marks) - 2) + most - 1) / most : 0;

		out[i] = marks[step];
	}
	out[BARS] = '\0';
}

/* Ends a line of the table: what was longer before goes away. Return: 1, the lines written. */
static uint32_t end_line(void)
{
	printf("\033[K\n");
	return 1;
}

static uint32_t path_lines(const struct stat_pair *pair, const struct figures *f)
{
	char sum[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES];
	uint32_t lines = 0;

	for (uint32_t i = 0; i < HR_PATH_MAX; i++) {
		uint64_t all = pair->now.io.bytes_by_path[i];

		if (!all)
			continue;
		printf("path %-11s %12s  %14s", hr_path_name((enum hr_path)i),
		       cli_bytes(sum, (double)all),
		       cli_rate(rate, (double)f->io.bytes_by_path[i] * f->per_second));
		lines += end_line();
	}
	return lines;
}

void stat_show_table(const struct stat_pair *pair, bool again)
{
	static uint32_t lines; /* of the table that is on the screen */
	const struct hr_process_stats *p = &pair->now;
	struct figures f;
	char bars[BARS + 1];
	double n;

	compute(pair, &f);
	n = (double)f.io.ios;
	if (again && lines)
		printf("\033[%uA", lines);
	printf("process          %" PRIu32 " %s, %u engines, %u loaders, for %.0f s", p->pid,
	       p->name, p->n_engines, p->n_loaders, cli_seconds(p->age_ns));
	lines = end_line() + path_lines(pair, &f);
	printf("requests         %.0f/s, %.4f copies and %.4f system calls each", n * f.per_second,
	       cli_per((double)f.io.copies, n), cli_per(calls(&f.io), n));
	lines += end_line();
	printf("cached           %.1f %% of the bytes", 100 * f.cached);
	lines += end_line();
	printf("queue            %u requests open, %u of %u with the kernel", p->in_flight,
	       p->queue_depth, depth_sum(p));
	lines += end_line();
	printf("latency          p50 %.1f us, p99 %.1f us, p99.9 %.1f us", f.p50, f.p99, f.p99_9);
	lines += end_line();
	draw_bars(f.latency, bars);
	printf("                 1 us [%s] 0.5 s, a place for each power of two", bars);
	lines += end_line();
	if (p->n_loaders) {
		printf("waiting          %.1f %% of the time", 100 * f.waiting);
		lines += end_line();
	}
	for (uint32_t i = 0; i < p->n_refusals; i++) {
		/* A line that wraps would make the count of lines wrong. */
		printf("refused %-8" PRIu64 " %.62s", p->refusals[i].count, p->refusals[i].reason);
		lines += end_line();
	}
	printf("\033[J");
}

void stat_show_line(const struct stat_pair *pair, bool again)
{
	struct figures f;
	char rate[CLI_TEXT_BYTES], paths[96];
	double n;

	compute(pair, &f);
	n = (double)f.io.ios;
	if (!again)
		printf("%14s %10s %7s %7s %7s %6s %10s %10s %10s %8s  %s\n", "bytes", "requests/s",
		       "cached%", "copies", "calls", "queue", "p50us", "p99us", "p99.9us",
		       "waiting%", "paths");
	printf("%14s %10.0f %7.1f %7.4f %7.4f %6u %10.1f %10.1f %10.1f %8.1f  %s\n",
	       cli_rate(rate, f.bytes * f.per_second), n * f.per_second, 100 * f.cached,
	       cli_per((double)f.io.copies, n), cli_per(calls(&f.io), n), pair->now.queue_depth,
	       f.p50, f.p99, f.p99_9, 100 * f.waiting,
	       cli_paths(paths, sizeof(paths), f.io.bytes_by_path));
}

static json_t *json_engines(const struct hr_process_stats *p)
{
	json_t *rows = json_array();

	for (uint32_t i = 0; i < p->n_engines; i++) {
		const struct hr_engine_live *e = &p->engines[i];

		json_array_append_new(rows,
				      json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "id",
						(json_int_t)e->id, "device", e->device, "queue",
						e->queue, "depth", (json_int_t)e->depth,
						"in_flight", (json_int_t)e->in_flight,
						"queue_depth", (json_int_t)e->queue_depth,
						"requests", (json_int_t)e->io.ios, "bytes_by_path",
						cli_json_paths(e->io.bytes_by_path)));
	}
	return rows;
}

static json_t *json_refusals(const struct hr_process_stats *p)
{
	json_t *rows = json_array();

	for (uint32_t i = 0; i < p->n_refusals; i++)
		json_array_append_new(rows, json_pack("{s:s, s:I}", "reason", p->refusals[i].reason,
						      "count", (json_int_t)p->refusals[i].count));
	return rows;
}

static json_t *json_sums(const struct hr_process_stats *p)
{
	const struct hr_stats *io = &p->io;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"requests", io->ios},
		{"requests_failed", io->ios_failed},
		{"bytes_cached", io->bytes_cached},
		{"bytes_read", io->bytes_read},
		{"bytes_written", io->bytes_written},
		{"bytes_moved", io->bytes_moved},
		{"pieces", io->pieces},
		{"segments", io->segments},
		{"enters", io->enters},
		{"preads", io->preads},
		{"probes", io->probes},
		{"retries", io->retries},
		{"copies", io->copies},
		{"direct_refused", io->direct_refused},
		{"brought", io->brought},
		{"batches", p->batches},
		{"wait_ns", p->wait_ns},
		{"in_flight", p->in_flight},
		{"queue_depth", p->queue_depth},
		{"loaders", p->n_loaders},
		{"engines_opened", p->engines_opened},
		{"engines_hidden", p->engines_hidden},
	};
	json_t *out = json_pack("{s:I, s:s, s:f}", "pid", (json_int_t)p->pid, "name", p->name,
				"age_seconds", cli_seconds(p->age_ns));

	for (uint32_t i = 0; i < CLI_ARRAY_LEN(rows); i++)
		json_object_set_new(out, rows[i].name, json_integer((json_int_t)rows[i].value));
	return out;
}

/* What is not empty: [{"below_us", "requests"}]; the last place has no end. */
static json_t *json_histogram(const uint64_t *latency)
{
	json_t *rows = json_array();
	uint64_t bars[BARS];

	count_bars(latency, bars);
	for (uint32_t i = 0; i < BARS; i++) {
		json_t *below = i + 1 < BARS ? json_integer(1ll << i) : json_null();

		if (bars[i])
			json_array_append_new(rows, json_pack("{s:O, s:I}", "below_us", below,
							      "requests", (json_int_t)bars[i]));
		json_decref(below);
	}
	return rows;
}

json_t *stat_json(const struct stat_pair *pair)
{
	json_t *out = json_sums(&pair->now);
	struct figures f;
	double n;

	compute(pair, &f);
	n = (double)f.io.ios;
	json_object_set_new(out, "bytes_by_path", cli_json_paths(pair->now.io.bytes_by_path));
	json_object_set_new(
		out, "latency_us",
		json_pack("{s:f, s:f, s:f}", "p50", f.p50, "p99", f.p99, "p99_9", f.p99_9));
	json_object_set_new(out, "latency_histogram", json_histogram(f.latency));
	json_object_set_new(out, "cached_share", json_real(f.cached));
	json_object_set_new(out, "copies_per_request", json_real(cli_per((double)f.io.copies, n)));
	json_object_set_new(out, "syscalls_per_request", json_real(cli_per(calls(&f.io), n)));
	if (pair->seconds > 0) {
		json_object_set_new(out, "seconds", json_real(pair->seconds));
		json_object_set_new(out, "bytes_per_second", json_real(f.bytes * f.per_second));
		json_object_set_new(out, "requests_per_second", json_real(n * f.per_second));
		json_object_set_new(out, "waiting_share", json_real(f.waiting));
	}
	json_object_set_new(out, "refusals", json_refusals(&pair->now));
	json_object_set_new(out, "engines", json_engines(&pair->now));
	return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/stat_prometheus.c - sums of processes as Prometheus exposition text: every family once, with
 * HELP and TYPE, in base units (bytes, seconds).
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/stat.h"

/* The histogram has one bucket for each power of two of ns, from 1 us to 17 s. */
#define LE_FIRST 10u
#define LE_LAST 34u

struct family {
	const char *name, *type, *help;
	const char *label; /* more labels, with a comma in front, or "" */
	double (*value)(const struct hr_process_stats *p);
};

#define VALUE(name, expression)                                                                    \
	static double name(const struct hr_process_stats *p)                                       \
	{                                                                                          \
		return (double)(expression);                                                       \
	}

VALUE(requests, p->io.ios)
VALUE(requests_failed, p->io.ios_failed)
VALUE(cached, p->io.bytes_cached)
VALUE(asked, p->io.bytes_read)
VALUE(written, p->io.bytes_written)
VALUE(moved, p->io.bytes_moved)
VALUE(pieces, p->io.pieces)
VALUE(segments, p->io.segments)
VALUE(enters, p->io.enters)
VALUE(preads, p->io.preads)
VALUE(probes, p->io.probes)
VALUE(retries, p->io.retries)
VALUE(copies, p->io.copies)
VALUE(direct_refused, p->io.direct_refused)
VALUE(brought, p->io.brought)
VALUE(in_flight, p->in_flight)
VALUE(queue_depth, p->queue_depth)
VALUE(engines, p->n_engines)
VALUE(loaders, p->n_loaders)
VALUE(batches, p->batches)
VALUE(waited, cli_seconds(p->wait_ns))

/* Rows of one name stand together: the format wants a family in one piece. */
static const struct family families[] = {
	{"headrace_requests_total", "counter", "Requests finished.", "", requests},
	{"headrace_requests_failed_total", "counter", "Requests that failed.", "", requests_failed},
	{"headrace_cached_bytes_total", "counter", "Bytes delivered from the page cache.", "",
	 cached},
	{"headrace_read_bytes_total", "counter", "Bytes asked of the kernel.", "", asked},
	{"headrace_written_bytes_total", "counter", "Bytes written to files.", "", written},
	{"headrace_moved_bytes_total", "counter", "Bytes moved by the device.", "", moved},
	{"headrace_pieces_total", "counter", "Pieces of requests planned.", "", pieces},
	{"headrace_segments_total", "counter", "Reads and writes asked of the kernel.", "",
	 segments},
	{"headrace_system_calls_total", "counter", "System calls of the data path.",
	 ",call=\"io_uring_enter\"", enters},
	{"headrace_system_calls_total", NULL, NULL, ",call=\"pread\"", preads},
	{"headrace_system_calls_total", NULL, NULL, ",call=\"residency\"", probes},
	{"headrace_retries_total", "counter", "Short or interrupted reads and writes sent again.",
	 "", retries},
	{"headrace_device_copies_total", "counter", "Copies or kernels given to the device.", "",
	 copies},
	{"headrace_direct_refused_total", "counter",
	 "Reads and writes that were buffered because direct I/O was impossible.", "",
	 direct_refused},
	{"headrace_brought_total", "counter",
	 "Reads whose pages came into the page cache by large pages first.", "", brought},
	{"headrace_requests_in_flight", "gauge", "Requests submitted and not finished.", "",
	 in_flight},
	{"headrace_queue_depth", "gauge", "Reads and writes with the kernel.", "", queue_depth},
	{"headrace_engines", "gauge", "Engines open.", "", engines},
	{"headrace_loaders", "gauge", "Loaders open.", "", loaders},
	{"headrace_loader_batches_total", "counter", "Batches handed out.", "", batches},
	{"headrace_loader_wait_seconds_total", "counter", "Time that callers waited for batches.",
	 "", waited},
};

static void begin(const char *name, const char *type, const char *help)
{
	printf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Names and reasons are printable ASCII; a backslash or quote would end the label. */
static void print_label(const char *text)
{
	for (; *text; text++)
		printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void print_process(const struct hr_process_stats *p)
{
	printf("{pid=\"%" PRIu32 "\",program=\"", p->pid);
	print_label(p->name);
	printf("\"");
}

static void print_paths(const struct hr_process_stats *p)
{
	for (uint32_t i = 1; i < HR_PATH_COUNT_; i++) {
		printf("headrace_bytes_total");
		print_process(p);
		printf(",path=\"%s\"} %" PRIu64 "\n", hr_path_name((enum hr_path)i),
		       p->io.bytes_by_path[i]);
	}
}

static void print_refusals(const struct hr_process_stats *p)
{
	for (uint32_t i = 0; i < p->n_refusals; i++) {
		printf("headrace_refusals_total");
		print_process(p);
		printf(",reason=\"");
		print_label(p->refusals[i].reason);
		printf("\"} %" PRIu64 "\n", p->refusals[i].count);
	}
}

static void print_bucket(const struct hr_process_stats *p, const char *le, uint64_t count)
{
	printf("headrace_request_duration_seconds_bucket");
	print_process(p);
	printf(",le=\"%s\"} %" PRIu64 "\n", le, count);
}

static void print_latency(const struct hr_process_stats *p)
{
	uint64_t sum = 0;
	uint32_t bucket = 0;
	char le[40];

	/* Our buckets end exactly at powers of two. */
	for (uint32_t power = LE_FIRST; power <= LE_LAST; power++) {
		while (bucket + 1 < HR_STATS_BUCKETS && hr_stats_bucket_ns(bucket) <= 1ull << power)
			sum += p->latency[bucket++];
		snprintf(le, sizeof(le), "%.10g", (double)(1ull << power) / 1e9);
		print_bucket(p, le, sum);
	}
	while (bucket < HR_STATS_BUCKETS)
		sum += p->latency[bucket++];
	print_bucket(p, "+Inf", sum);
	printf("headrace_request_duration_seconds_sum");
	print_process(p);
	printf("} %.9f\n", cli_seconds(p->latency_ns));
	printf("headrace_request_duration_seconds_count");
	print_process(p);
	printf("} %" PRIu64 "\n", sum);
}

void stat_prometheus(const struct hr_process_stats *all, uint32_t n)
{
	for (uint32_t k = 0; k < CLI_ARRAY_LEN(families); k++) {
		const struct family *f = &families[k];

		if (f->type)
			begin(f->name, f->type, f->help);
		for (uint32_t i = 0; i < n; i++) {
			printf("%s", f->name);
			print_process(&all[i]);
			printf("%s} %.17g\n", f->label, f->value(&all[i]));
		}
	}
	begin("headrace_bytes_total", "counter", "Bytes delivered, by the path that they took.");
	for (uint32_t i = 0; i < n; i++)
		print_paths(&all[i]);
	begin("headrace_refusals_total", "counter", "Times that a better way was refused.");
	for (uint32_t i = 0; i < n; i++)
		print_refusals(&all[i]);
	begin("headrace_request_duration_seconds", "histogram",
	      "Requests by time from submit to reap.");
	for (uint32_t i = 0; i < n; i++)
		print_latency(&all[i]);
}

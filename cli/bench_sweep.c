/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli/bench_sweep.c - the load generator over block sizes and depths: every point is a run of its own.
 * What a run is, bench.c knows; bench/report.py draws the JSON.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"

static const uint64_t sizes[] = {4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20};
static const uint64_t depths[] = {1, 4, 16, 64, 256};

#define N_DEPTHS CLI_ARRAY_LEN(depths)

static json_t *json_point(const struct bench_settings *set, const struct bench_totals *t)
{
	double seconds = cli_seconds(t->end_ns - t->start_ns), n = (double)t->blocks;
	const struct hr_stats *io = &t->stats;

	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bytes_per_second",
			 cli_per(n * (double)set->bs, seconds), "iops", cli_per(n, seconds),
			 "p50_us", cli_histogram_at(&t->latency, 0.5) / 1e3, "p99_us",
			 cli_histogram_at(&t->latency, 0.99) / 1e3, "cpu_us",
			 cli_per((double)t->cpu_ns / 1e3, n), "copies",
			 cli_per((double)io->copies, n), "syscalls",
			 cli_per((double)(io->enters + io->preads + io->probes), n));
}

/* Bytes of the file that are used. */
static uint64_t range_of(const struct bench *b)
{
	return b->set->size ? cli_min(b->info.size_bytes, b->set->size) : b->info.size_bytes;
}

/* One point. Return: CLI_OK or CLI_FAILED. */
static int point(struct bench *b, struct bench_worker *workers, struct bench_totals *t)
{
	b->blocks = range_of(b) / b->set->bs;
	b->out_bytes = b->set->bs / hr_dtype_size(b->from) * hr_dtype_size(b->to);
	memset(workers, 0, b->set->threads * sizeof(*workers));
	memset(t, 0, sizeof(*t));
	return bench_timed(b, workers, t);
}

static int row(struct bench *b, struct bench_settings *set, struct bench_worker *workers,
	       struct bench_totals *t, json_t *points)
{
	for (uint32_t i = 0; i < N_DEPTHS && !cli_interrupted; i++) {
		char text[CLI_TEXT_BYTES];
		int code;

		set->depth = depths[i];
		code = point(b, workers, t);
		if (code != CLI_OK)
			return code;
		json_array_append_new(points, json_point(set, t));
		if (!set->common.json)
			printf("%14s",
			       cli_rate(text, cli_per((double)(t->blocks * set->bs),
						      cli_seconds(t->end_ns - t->start_ns))));
		fflush(stdout);
	}
	return CLI_OK;
}

static json_t *json_numbers(const uint64_t *numbers, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)numbers[i]));
	return list;
}

static void head(const struct bench *b)
{
	printf("%s of %s to %s\n%8s", b->set->rw, b->file_path, b->device.info.name, "block");
	for (uint32_t i = 0; i < N_DEPTHS; i++)
		printf("%7s %6" PRIu64, "depth", depths[i]);
	printf("\n");
}

int bench_sweep(struct bench *b, struct bench_worker *workers, struct bench_totals *t)
{
	const struct bench_settings *given = b->set;
	struct bench_settings set = *given;
	json_t *grid = json_array(), *out;
	int code = CLI_OK;
	uint32_t n = 0;

	/* cppcheck-suppress autoVariables ; it is put back at the end */
	b->set = &set;
	if (!set.common.json)
		head(b);
	for (; n < CLI_ARRAY_LEN(sizes) && code == CLI_OK && !cli_interrupted; n++) {
		json_t *points = json_array();
		char text[CLI_TEXT_BYTES];

		set.bs = sizes[n];
		if (set.bs > range_of(b)) {
			json_decref(points);
			break; /* the file is not longer */
		}
		if (!set.common.json)
			printf("%8s", cli_bytes(text, (double)set.bs));
		code = row(b, &set, workers, t, points);
		json_array_append_new(grid, points);
		if (!set.common.json)
			printf("\n");
	}
	out = json_pack("{s:s, s:s, s:o, s:o, s:{s:o}}", "rw", set.rw, "device",
			b->device.info.name, "sizes", json_numbers(sizes, n), "depths",
			json_numbers(depths, N_DEPTHS), "programs", "headrace", grid);
	if (code == CLI_OK && set.common.json)
		code = cli_print_json(json_pack("{s:s, s:f, s:o, s:b}", "file", b->file_path,
						"seconds", set.seconds, "sweep", out, "interrupted",
						(int)cli_interrupted));
	else
		json_decref(out);
	b->set = given;
	return code != CLI_OK ? code : cli_interrupted ? CLI_INTERRUPTED : CLI_OK;
}

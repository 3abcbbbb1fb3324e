/* SPDX-License-Identifier: Apache-2.0 */
/* cli/stat.c - the verb that shows what other processes publish: one look, or one look an interval. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/stat.h"

#define PROCESSES_MAX 4096
#define SLICE_NS 200000000ull /* how soon the end of the process is noticed */

struct settings {
	bool json, prometheus;
	double interval;
	uint64_t count;
};

#define COUNT_DEFAULT UINT64_MAX

#define OPT(name, type, field, argument, help, ...)                                                \
	{                                                                                          \
		name, type, offsetof(struct settings, field), argument, help, __VA_ARGS__          \
	}

static const struct cli_option options[] = {
	OPT("interval", CLI_REAL, interval, "SECONDS", "time between two looks (default 1)", 0,
	    86400),
	OPT("count", CLI_NUMBER, count, "N",
	    "looks, 0: until the process ends (default 0; with --json: 1)", 0, 0),
	OPT("json", CLI_FLAG, json, NULL, "print JSON, one object a line if --count is not 1", 0,
	    0),
	OPT("prometheus", CLI_FLAG, prometheus, NULL, "print sums once, as exposition text", 0, 0),
};

static const struct cli_usage usage = {
	.verb = "stat",
	.operands = "[PID]",
	.summary = "Shows what running programs do with this library.",
	.detail = "Programs publish when HEADRACE_STATS=1 or hr_stats_publish() says so; stream "
		  "and bench always\ndo. Without PID: those that publish, renewed on a terminal. "
		  "Only "
		  "programs of the same\nuser are seen.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.max_operands = 1,
};

/* All that publish, as far as they can be read. Return: count, or -1 after a sentence. */
static int64_t read_all(struct hr_process_stats **out)
{
	uint32_t *pids = calloc(PROCESSES_MAX, sizeof(*pids));
	int found = pids ? hr_stats_list(pids, PROCESSES_MAX) : 0;
	uint32_t n = (uint32_t)cli_min((uint64_t)(found > 0 ? found : 0), PROCESSES_MAX), kept = 0;
	struct hr_process_stats *all = calloc(n + 1, sizeof(*all));

	if (!pids || !all) {
		cli_fail("no memory for the statistics of %u processes; name one", n);
		free(pids);
		free(all);
		return -1;
	}
	for (uint32_t i = 0; i < n; i++) {
		int err = hr_stats_read(pids[i], &all[kept]);

		/* Some end between the list and the look. */
		if (err && err != -ENOENT && err != -ESRCH)
			cli_note("%s", hr_error_detail());
		kept += !err;
	}
	free(pids);
	*out = all;
	return kept;
}

static void list_row(const struct hr_process_stats *p)
{
	char bytes[CLI_TEXT_BYTES], paths[96];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < HR_PATH_MAX; i++)
		sum += p->io.bytes_by_path[i];
	printf("%10" PRIu32 "  %-15s %7u %7u %8.0f s %10s  %s\n", p->pid, p->name, p->n_engines,
	       p->n_loaders, cli_seconds(p->age_ns), cli_bytes(bytes, (double)sum),
	       cli_paths(paths, sizeof(paths), p->io.bytes_by_path));
}

static int list_json(const struct hr_process_stats *all, uint32_t n)
{
	struct stat_pair *pair = calloc(1, sizeof(*pair));
	json_t *rows = json_array();

	for (uint32_t i = 0; pair && i < n; i++) {
		pair->now = all[i];
		json_array_append_new(rows, stat_json(pair));
	}
	free(pair);
	return cli_print_json(json_pack("{s:o}", "processes", rows));
}

/* One look at all of them. */
static int list_once(const struct settings *set)
{
	struct hr_process_stats *all = NULL;
	int64_t n = read_all(&all);
	int code = CLI_OK;

	if (n < 0)
		return CLI_FAILED;
	if (set->json) {
		code = list_json(all, (uint32_t)n);
	} else if (set->prometheus) {
		stat_prometheus(all, (uint32_t)n);
	} else if (n == 0) {
		printf("no process of this user publishes statistics; start one with "
		       "HEADRACE_STATS=1\n");
	} else {
		printf("%10s  %-15s %7s %7s %10s %10s  %s\n", "pid", "program", "engines",
		       "loaders", "since", "moved", "paths");
		for (int64_t i = 0; i < n; i++)
			list_row(&all[i]);
	}
	free(all);
	if (fflush(stdout))
		return cli_fail("stdout: cannot be written; check where it goes");
	return code;
}

/* Return: false when interrupted. */
static bool wait_until(uint64_t end)
{
	uint64_t now;

	while (!cli_interrupted && (now = cli_now_ns()) < end) {
		uint64_t ns = cli_min(end - now, SLICE_NS);
		struct timespec ts = {.tv_nsec = (long)ns};

		nanosleep(&ts, NULL);
	}
	return !cli_interrupted;
}

/* On a terminal the list stays and is renewed, elsewhere one look is all. */
static int list(const struct settings *set)
{
	bool live = isatty(STDOUT_FILENO) && !set->json && !set->prometheus && set->count != 1;
	uint64_t step = (uint64_t)(set->interval * 1e9);
	int code;

	if (!live)
		return list_once(set);
	cli_catch_interrupt(NULL, NULL);
	for (uint64_t i = 0; !set->count || i < set->count; i++) {
		if (i && !wait_until(cli_now_ns() + step))
			return CLI_INTERRUPTED;
		printf("\033[H\033[J"); /* an empty screen */
		code = list_once(set);
		if (code != CLI_OK)
			return code;
	}
	return CLI_OK;
}

static int show(const struct settings *set, const struct stat_pair *pair, bool again)
{
	if (set->json) {
		json_t *object = stat_json(pair);
		int bad;

		if (set->count == 1)
			return cli_print_json(object);
		bad = object ? json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9))
			     : -1;
		json_decref(object);
		if (bad || putchar('\n') == EOF)
			return cli_fail(
				"stdout: the JSON could not be written; check where it goes");
	} else if (isatty(STDOUT_FILENO)) {
		stat_show_table(pair, again);
	} else {
		stat_show_line(pair, again);
	}
	return fflush(stdout) ? cli_fail("stdout: cannot be written; check where it goes") : CLI_OK;
}

static int watch(const struct settings *set, uint32_t pid, struct stat_pair *pair)
{
	uint64_t step = (uint64_t)(set->interval * 1e9), last = cli_now_ns(), now;
	int err = hr_stats_read(pid, &pair->before), code = CLI_OK;

	if (err)
		return cli_fail_code(err, "statistics");
	cli_catch_interrupt(NULL, NULL);
	for (uint64_t i = 0; (!set->count || i < set->count) && code == CLI_OK; i++) {
		if (!wait_until(last + step))
			return CLI_INTERRUPTED;
		err = hr_stats_read(pid, &pair->now);
		now = cli_now_ns();
		if (err == -ENOENT || err == -ESRCH) {
			cli_note("process %" PRIu32 " (%s) has ended or publishes no more", pid,
				 pair->before.name);
			return CLI_OK;
		}
		if (err)
			return cli_fail_code(err, "statistics");
		/* Another page of the same process starts from nothing. */
		if (pair->now.age_ns < pair->before.age_ns)
			memset(&pair->before, 0, sizeof(pair->before));
		pair->seconds = cli_seconds(now - last);
		code = show(set, pair, i > 0);
		pair->before = pair->now;
		last = now;
	}
	return code;
}

static int one(const struct settings *set, uint32_t pid)
{
	struct stat_pair *pair = calloc(1, sizeof(*pair));
	int code, err;

	if (!pair)
		return cli_fail("no memory for the statistics of a process; free some");
	if (!set->prometheus) {
		code = watch(set, pid, pair);
	} else {
		err = hr_stats_read(pid, &pair->now);
		code = err ? cli_fail_code(err, "statistics") : CLI_OK;
		if (!err)
			stat_prometheus(&pair->now, 1);
	}
	free(pair);
	return code;
}

int cli_verb_stat(int argc, char **argv)
{
	struct settings set = {.interval = 1, .count = COUNT_DEFAULT};
	int first, code = cli_parse(&usage, argc, argv, &set, &first);
	uint64_t pid = 0;

	if (code != -1)
		return code;
	if (set.json && set.prometheus)
		return cli_usage_error("stat", "--json and --prometheus exclude each other");
	if (set.count == COUNT_DEFAULT)
		set.count = set.json;
	if (first == argc)
		return list(&set);
	if (cli_parse_size(argv[first], &pid) || !pid || pid > INT32_MAX)
		return cli_usage_error("stat", "%s is not the number of a process", argv[first]);
	return one(&set, (uint32_t)pid);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check.c - the verb that shows hr_check(): this machine, line by line, with what to do. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define GPUS_MAX 64

struct settings {
	struct cli_common common;
	const char *require;
};

static const struct cli_option options[] = {
	{"require", CLI_CHOICE, offsetof(struct settings, require), "direct",
	 "exit 3 unless every PATH (default: .) goes direct to the device", 0, 0},
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "check",
	.operands = "[PATH...]",
	.summary = "Examines this machine and the given files or directories.",
	.detail = "Each line is ok, limited or no, with its cause and what to do about it.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
};

static const char *const states[] = {"ok", "limited", "no"};
static const int colours[] = {2, 3, 1};

/* Items named "direct ..." say whether bytes of a path reach the device without a stop. */
static bool direct_met(const struct hr_check_report *report)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < report->n_items; i++) {
		if (strncmp(report->items[i].name, "direct ", 7) != 0)
			continue;
		if (report->items[i].state != HR_CHECK_OK)
			return false;
		seen++;
	}
	return seen > 0;
}

static json_t *json_groups(const struct hr_check_report *report)
{
	json_t *groups = json_array(), *items = NULL;
	const char *group = "";

	for (uint32_t i = 0; i < report->n_items; i++) {
		const struct hr_check_item *item = &report->items[i];

		if (strcmp(item->group, group) != 0) {
			group = item->group;
			items = json_array();
			json_array_append_new(
				groups, json_pack("{s:s, s:o}", "name", group, "items", items));
		}
		json_array_append_new(items, json_pack("{s:s, s:s, s:s, s:s}", "name", item->name,
						       "state", states[item->state], "cause",
						       item->cause, "fix", item->fix));
	}
	return groups;
}

/* One line for each (drive, GPU); the rate is unknown until it has been measured. */
static void add_pair(json_t *pairs, const char *path, const struct hr_device_info *gpu)
{
	struct hr_file_info info;
	struct hr_file *file;

	if (hr_file_open(path, HR_FILE_READ, &file))
		return;
	if (!hr_file_info(file, &info) && info.block_device[0])
		json_array_append_new(pairs, json_pack("{s:s, s:s, s:s, s:n}", "drive",
						       info.block_device, "gpu", gpu->name, "path",
						       hr_path_name(HR_PATH_BOUNCE),
						       "expected_bytes_per_second"));
	hr_file_close(file);
}

static json_t *json_pairs(const struct hr_check_options *opts)
{
	json_t *pairs = json_array();

	for (uint32_t n = 0; n < GPUS_MAX; n++) {
		struct hr_device_info info;
		struct hr_device *dev;
		char name[32];

		snprintf(name, sizeof(name), "cuda:%u", n);
		if (opts->device && strcmp(opts->device, name) != 0)
			continue;
		if (hr_device_open(name, &dev))
			break;
		hr_device_info(dev, &info);
		for (uint32_t i = 0; i < opts->n_paths; i++)
			add_pair(pairs, opts->paths[i], &info);
		hr_device_close(dev);
	}
	return pairs;
}

static void show_human(const struct hr_check_report *report)
{
	const char *group = "";

	for (uint32_t i = 0; i < report->n_items; i++) {
		const struct hr_check_item *item = &report->items[i];

		if (strcmp(item->group, group) != 0)
			printf("%s%s\n", *group ? "\n" : "", item->group);
		group = item->group;
		printf("  %s%-8s%s %-24s %s\n", cli_colour(colours[item->state]),
		       states[item->state], cli_colour(0), item->name, item->cause);
		if (item->fix[0])
			printf("  %-8s %-24s fix: %s\n", "", "", item->fix);
	}
}

int cli_verb_check(int argc, char **argv)
{
	static const char *const here[] = {"."};
	struct settings set = {0};
	struct hr_check_options opts = {0};
	struct hr_check_report report = {0};
	int first, err, code = cli_parse(&usage, argc, argv, &set, &first);
	bool met;

	if (code != -1)
		return code;
	opts.device =
		set.common.device && strcmp(set.common.device, "auto") ? set.common.device : NULL;
	opts.n_paths = (uint32_t)(argc - first);
	opts.paths = opts.n_paths ? (const char *const *)argv + first : here;
	opts.n_paths = opts.n_paths ? opts.n_paths : 1;
	err = hr_check(&opts, &report);
	if (err)
		return cli_fail_code(err, "check");
	met = !set.require || direct_met(&report);
	code = CLI_OK;
	if (set.common.json)
		code = cli_print_json(json_pack("{s:o, s:o, s:b}", "groups", json_groups(&report),
						"pairs", json_pairs(&opts), "requirement_met",
						met));
	else
		show_human(&report);
	hr_check_free(&report);
	if (!met)
		cli_note("--require direct is not met; see the lines 'direct' above");
	return code == CLI_OK && !met ? CLI_NOT_MET : code;
}

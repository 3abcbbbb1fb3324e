/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check.c - the verb that shows hr_check(): a machine, line by line, with what to do. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define NAME_MAX_COLUMNS 36

struct settings {
	struct cli_common common;
	const char *require, *root;
	bool measure;
};

static const struct cli_option options[] = {
	{"require", CLI_CHOICE, offsetof(struct settings, require), "direct",
	 "exit 3 unless every PATH (default: .) goes direct to the device", 0, 0},
	{"measure", CLI_FLAG, offsetof(struct settings, measure), NULL,
	 "read from each PATH for a second, for the rates to expect", 0, 0},
	{"root", CLI_TEXT, offsetof(struct settings, root), "DIR",
	 "judge the machine whose /proc and /sys were copied to DIR", 0, 0},
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "check",
	.operands = "[PATH...]",
	.summary = "Examines this machine and the given files or directories.",
	.detail = "Each line is ok, limited or no, with its cause and what to do about it; then "
		  "the PCIe "
		  "tree,\nand for each drive and GPU the path that its bytes take and the rate to "
		  "expect.",
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

/* "a, b" as an array. */
static json_t *json_names(const char *names)
{
	json_t *list = json_array();

	while (*names) {
		size_t n = strcspn(names, ",");

		json_array_append_new(list, json_stringn(names, n));
		names += n;
		names += strspn(names, ", ");
	}
	return list;
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

static json_t *json_pairs(const struct hr_check_report *report)
{
	json_t *pairs = json_array();

	for (uint32_t i = 0; i < report->n_pairs; i++) {
		const struct hr_check_pair *p = &report->pairs[i];
		json_t *rate = p->expected_high
				       ? json_pack("{s:I, s:I}", "low", (json_int_t)p->expected_low,
						   "high", (json_int_t)p->expected_high)
				       : json_null();

		json_array_append_new(
			pairs,
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s}",
				  "drive", p->drive, "gpu", p->gpu, "drive_pci", p->drive_pci,
				  "gpu_pci", p->gpu_pci, "near", p->near, "path",
				  hr_path_name(p->path), "direct", states[p->state], "cause",
				  p->cause, "fix", p->fix, "blockers", json_names(p->blockers),
				  "expected_bytes_per_second", rate, "basis", p->basis));
	}
	return pairs;
}

static json_t *json_tree(const struct hr_check_report *report)
{
	json_t *nodes = json_array();

	for (uint32_t i = 0; i < report->n_nodes; i++) {
		const struct hr_check_node *n = &report->nodes[i];

		json_array_append_new(nodes,
				      json_pack("{s:I, s:s, s:s}", "depth", (json_int_t)n->depth,
						"name", n->name, "what", n->what));
	}
	return nodes;
}

/* Is there a line of this depth before the branch ends? Then a stroke goes down to it. */
static bool goes_on(const struct hr_check_report *report, uint32_t from, uint32_t depth)
{
	for (uint32_t i = from + 1; i < report->n_nodes && report->nodes[i].depth >= depth; i++) {
		if (report->nodes[i].depth == depth)
			return true;
	}
	return false;
}

/* A port of a switch with one thing below it is told on the line of that thing. */
static bool is_only_port(const struct hr_check_report *report, uint32_t i)
{
	const struct hr_check_node *n = &report->nodes[i];

	if (!n->depth || i + 1 >= report->n_nodes || n[1].depth != n->depth + 1)
		return false;
	if (i + 2 < report->n_nodes && n[2].depth > n->depth)
		return false;
	return true;
}

static void show_tree(const struct hr_check_report *report)
{
	if (report->n_nodes)
		printf("\nPCIe tree\n");
	for (uint32_t i = 0; i < report->n_nodes; i++) {
		const struct hr_check_node *n = &report->nodes[i];

		printf("  ");
		for (uint32_t d = 1; d < n->depth; d++)
			printf("%s", goes_on(report, i, d) ? "|  " : "   ");
		printf("%s%s", n->depth ? "+- " : "", n->name);
		while (is_only_port(report, i))
			printf(" > %s", report->nodes[++i].name);
		printf("  %s\n", report->nodes[i].what);
	}
}

static void show_pair(const struct hr_check_pair *p, uint32_t like)
{
	const char *state = p->state == HR_CHECK_NO ? "no" : states[p->state];
	char rate[2 * CLI_TEXT_BYTES + 8] = "unknown", low[CLI_TEXT_BYTES], high[CLI_TEXT_BYTES];
	char more[48] = "";

	if (p->expected_high)
		snprintf(rate, sizeof(rate), "%s to %s%s", cli_rate(low, (double)p->expected_low),
			 cli_rate(high, (double)p->expected_high),
			 strcmp(p->basis, "measured") ? "" : ", measured");
	if (like)
		snprintf(more, sizeof(more), "  (+%u more pairs alike)", like);
	printf("  %s%-8s%s %s -> %s: %s, expect %s%s\n", cli_colour(colours[p->state]), state,
	       cli_colour(0), p->drive, p->gpu, hr_path_name(p->path), rate, more);
	printf("  %-8s   %s\n", "", p->cause);
	if (p->fix[0])
		printf("  %-8s   fix: %s\n", "", p->fix);
	if (strchr(p->blockers, ','))
		printf("  %-8s   all obstacles: %s\n", "", p->blockers);
}

/* Pairs that differ in nothing but their numbers are told once, so that eight GPUs fit on a screen. */
static bool same_verdict(const struct hr_check_pair *a, const struct hr_check_pair *b)
{
	return a->state == b->state && a->path == b->path && a->near == b->near &&
	       !strcmp(a->blockers, b->blockers) && !strcmp(a->fix, b->fix) &&
	       a->expected_low == b->expected_low && a->expected_high == b->expected_high;
}

static void show_pairs(const struct hr_check_report *report)
{
	if (report->n_pairs)
		printf("\ndirect from drive to GPU? with the path of cold data, and the rate\n");
	for (uint32_t i = 0; i < report->n_pairs; i++) {
		const struct hr_check_pair *p = &report->pairs[i];
		uint32_t like = 0, before = 0;

		for (uint32_t k = 0; k < report->n_pairs; k++) {
			bool same = k != i && same_verdict(p, &report->pairs[k]);

			before += same && k < i;
			like += same && k > i;
		}
		if (before)
			continue;
		show_pair(p, like);
	}
}

/* Eight drives of one kind are one line. Return: lines like @item behind it, or -1 if one was before. */
static int64_t alike(const struct hr_check_report *report, uint32_t item)
{
	const struct hr_check_item *one = &report->items[item];
	int64_t n = 0;

	for (uint32_t i = 0; i < report->n_items; i++) {
		const struct hr_check_item *other = &report->items[i];

		if (i == item || other->state != one->state || strcmp(other->group, one->group) ||
		    strcmp(other->cause, one->cause) || strcmp(other->fix, one->fix))
			continue;
		if (i < item)
			return -1;
		n++;
	}
	return n;
}

/* Of the column of names: as wide as they need, up to a point. */
static int name_width(const struct hr_check_report *report)
{
	size_t width = 20;

	for (uint32_t i = 0; i < report->n_items; i++) {
		size_t n = strlen(report->items[i].name) + (alike(report, i) > 0 ? 9 : 0);

		if (n > width && n <= NAME_MAX_COLUMNS)
			width = n;
	}
	return (int)width;
}

static void show_items(const struct hr_check_report *report)
{
	const char *group = "";
	int width = name_width(report);

	for (uint32_t i = 0; i < report->n_items; i++) {
		const struct hr_check_item *item = &report->items[i];
		int64_t more = alike(report, i);
		char name[96];

		if (more < 0)
			continue;
		if (strcmp(item->group, group) != 0)
			printf("%s%s\n", *group ? "\n" : "", item->group);
		group = item->group;
		if (more)
			snprintf(name, sizeof(name), "%s (+%d more)", item->name, (int)more);
		else
			snprintf(name, sizeof(name), "%s", item->name);
		printf("  %s%-8s%s %-*s  %s\n", cli_colour(colours[item->state]),
		       states[item->state], cli_colour(0), width, name, item->cause);
		if (item->fix[0])
			printf("  %-8s %-*s  fix: %s\n", "", width, "", item->fix);
	}
}

static void show_report(const struct hr_check_report *report)
{
	show_items(report);
	show_tree(report);
	show_pairs(report);
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
	opts.root = set.root;
	opts.measure = set.measure;
	if (set.root && set.measure)
		return cli_usage_error("check",
				       "--measure needs the machine itself, --root is not");
	/* Of another machine no path is at hand. */
	if (set.root && first == argc)
		opts.n_paths = 0;
	err = hr_check(&opts, &report);
	if (err)
		return cli_fail_code(err, "check");
	met = !set.require || direct_met(&report);
	code = CLI_OK;
	if (set.common.json)
		code = cli_print_json(json_pack(
			"{s:o, s:o, s:o, s:b}", "groups", json_groups(&report), "pairs",
			json_pairs(&report), "tree", json_tree(&report), "requirement_met", met));
	else
		show_report(&report);
	hr_check_free(&report);
	if (!met)
		cli_note("--require direct is not met; see the lines 'direct' above");
	return code == CLI_OK && !met ? CLI_NOT_MET : code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cli/explain.c - the verb that shows hr_explain(): which way a file takes to a device, and why. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

struct settings {
	struct cli_common common;
	uint64_t offset, length;
};

static const struct cli_option options[] = {
	{"offset", CLI_SIZE, offsetof(struct settings, offset), "SIZE",
	 "start of the range (default 0)", 0, 0},
	{"length", CLI_SIZE, offsetof(struct settings, length), "SIZE",
	 "length of the range (default: to the end)", 0, 0},
	CLI_COMMON_OPTIONS(struct settings),
};

static const struct cli_usage usage = {
	.verb = "explain",
	.operands = "FILE",
	.summary = "Shows which path a file takes to a device and why each other path was refused.",
	.detail = "Also shows what the file stands on, alignment, what of it is in the page cache, "
		  "extents, "
		  "and\nwhat a read of the range will do. Reads no data.",
	.options = options,
	.n_options = CLI_ARRAY_LEN(options),
	.min_operands = 1,
	.max_operands = 1,
};

static const struct {
	uint32_t flag;
	const char *name;
} extent_flags[] = {
	{HR_EXTENT_HOLE, "hole"},     {HR_EXTENT_UNWRITTEN, "unwritten"},
	{HR_EXTENT_INLINE, "inline"}, {HR_EXTENT_UNKNOWN, "unknown"},
	{HR_EXTENT_SHARED, "shared"},
};

static json_t *json_extents(const struct hr_explanation *e)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < e->n_extents; i++) {
		const struct hr_extent *x = &e->extents[i];
		json_t *flags = json_array();

		for (uint32_t k = 0; k < CLI_ARRAY_LEN(extent_flags); k++) {
			if (x->flags & extent_flags[k].flag)
				json_array_append_new(flags, json_string(extent_flags[k].name));
		}
		json_array_append_new(
			list, json_pack("{s:I, s:I, s:I, s:s, s:I, s:o}", "file_offset",
					(json_int_t)x->file_offset, "bytes", (json_int_t)x->len,
					"device_offset", (json_int_t)x->device_offset, "drive",
					e->places[i].drive, "lba", (json_int_t)e->places[i].lba,
					"flags", flags));
	}
	return list;
}

static json_t *json_refused(const struct hr_explanation *e)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < e->n_verdicts; i++) {
		const struct hr_path_verdict *v = &e->verdicts[i];

		if (!v->taken)
			json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "path", v->name,
							      "reason", v->reason, "fix", v->fix));
	}
	return list;
}

static json_t *json_layers(const struct hr_explanation *e)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < e->n_layers; i++) {
		const struct hr_layer *l = &e->layers[i];

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:I}", "name", l->name, "what", l->what,
						"from_bytes", (json_int_t)l->from_bytes));
	}
	return list;
}

static json_t *json_foresight(const struct hr_foresight *f)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "reads", (json_int_t)f->reads, "bytes",
			 (json_int_t)f->read_bytes, "in_place", (json_int_t)f->in_place, "staged",
			 (json_int_t)f->staged, "moves", (json_int_t)f->moves, "system_calls_min",
			 (json_int_t)f->calls_min);
}

static const char *taken_reason(const struct hr_explanation *e)
{
	for (uint32_t i = 0; i < e->n_verdicts; i++) {
		if (e->verdicts[i].taken)
			return e->verdicts[i].reason;
	}
	return "";
}

static int show_json(const char *path, const struct cli_device *device,
		     const struct hr_explanation *e)
{
	json_t *out = json_pack(
		"{s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:b, s:s}", "file", path, "path",
		e->path == HR_PATH_AUTO ? "none" : hr_path_name(e->path), "reason", taken_reason(e),
		"size_bytes", (json_int_t)e->file.size_bytes, "file_system", e->file.fs_name,
		"block_device", e->file.block_device, "block_pci", e->file.block_pci,
		"logical_block_bytes", (json_int_t)e->file.logical_block_bytes, "direct",
		e->file.direct, "direct_reason", e->file.direct_reason);

	cli_device_json(device, out);
	json_object_set_new(out, "device_model", json_string(e->device.model));
	json_object_set_new(out, "refused", json_refused(e));
	json_object_set_new(out, "alignment",
			    json_pack("{s:I, s:I}", "offset_bytes",
				      (json_int_t)e->file.offset_align, "memory_bytes",
				      (json_int_t)e->file.memory_align));
	json_object_set_new(out, "residency", cli_json_residency(&e->residency));
	json_object_set_new(out, "residency_map", json_string(e->map));
	json_object_set_new(out, "layers", json_layers(e));
	json_object_set_new(out, "read", json_foresight(&e->foresight));
	json_object_set_new(out, "queue", cli_json_queue(&e->queue));
	json_object_set_new(out, "extents", json_extents(e));
	json_object_set_new(out, "extents_total", json_integer((json_int_t)e->extents_total));
	json_object_set_new(out, "extents_reason", json_string(e->extents_reason));
	return cli_print_json(out);
}

static void show_extents(const struct hr_explanation *e)
{
	if (e->extents_reason[0]) {
		cli_row("extents", "unknown: %s", e->extents_reason);
		return;
	}
	cli_row("extents", "%" PRIu64, e->extents_total);
	for (uint32_t i = 0; i < e->n_extents; i++) {
		const struct hr_extent *x = &e->extents[i];

		printf("  %14" PRIu64 " +%-12" PRIu64, x->file_offset, x->len);
		if (!(x->flags & (HR_EXTENT_HOLE | HR_EXTENT_UNKNOWN | HR_EXTENT_INLINE)))
			printf(" at %" PRIu64, x->device_offset);
		if (e->places[i].drive[0])
			printf(", %s block %" PRIu64, e->places[i].drive, e->places[i].lba);
		for (uint32_t k = 0; k < CLI_ARRAY_LEN(extent_flags); k++) {
			if (x->flags & extent_flags[k].flag)
				printf(" %s", extent_flags[k].name);
		}
		printf("\n");
	}
	if (e->extents_total > e->n_extents)
		printf("  and %" PRIu64 " more\n", e->extents_total - e->n_extents);
}

static void show_residency(const struct hr_residency_info *r)
{
	if (r->state == HR_RESIDENCY_UNKNOWN || !r->pages)
		cli_row("page cache", "unknown: %s", r->reason ? r->reason : "");
	else
		cli_row("page cache", "%.1f %% resident (%" PRIu64 " of %" PRIu64 " pages, %s)",
			100.0 * (double)r->pages_resident / (double)r->pages, r->pages_resident,
			r->pages, r->method);
}

/* The way down, "ext4 / > nvme0n1p2 > nvme0n1", then what was not said in that line. */
static void show_layers(const struct hr_explanation *e)
{
	for (uint32_t i = 0; i < e->n_layers; i++) {
		const struct hr_layer *l = &e->layers[i];
		char text[CLI_TEXT_BYTES];

		if (l->from_bytes)
			cli_row(i ? "" : "stands on", "%-12s %s, from %s on", l->name, l->what,
				cli_bytes(text, (double)l->from_bytes));
		else
			cli_row(i ? "" : "stands on", "%-12s %s", l->name, l->what);
	}
}

static void show_foresight(const struct hr_explanation *e)
{
	const struct hr_foresight *f = &e->foresight;
	char text[CLI_TEXT_BYTES];

	if (!f->reads)
		return;
	cli_row("a read",
		"of this range, cold: %" PRIu64 " reads (%s), %" PRIu64 " in place, %" PRIu64
		" staged with %" PRIu64 " moves, at least %" PRIu64 " system calls",
		f->reads, cli_bytes(text, (double)f->read_bytes), f->in_place, f->staged, f->moves,
		f->calls_min);
}

static void show_human(const char *path, const struct hr_explanation *e)
{
	char text[CLI_TEXT_BYTES];

	cli_row("file", "%s, %s", path, cli_bytes(text, (double)e->file.size_bytes));
	show_layers(e);
	cli_row("device", "%s  %s", e->device.name, e->device.model);
	if (e->path == HR_PATH_AUTO)
		cli_row("path", "%snone%s", cli_colour(1), cli_colour(0));
	else
		cli_row("path", "%s%s%s  %s", cli_colour(2), hr_path_name(e->path), cli_colour(0),
			taken_reason(e));
	for (uint32_t i = 0; i < e->n_verdicts; i++) {
		const struct hr_path_verdict *v = &e->verdicts[i];

		if (v->taken)
			continue;
		cli_row("not", "%s%s%s  %s", cli_colour(3), v->name, cli_colour(0), v->reason);
		if (v->fix[0])
			cli_row("", "  fix: %s", v->fix);
	}
	if (e->file.offset_align)
		cli_row("direct I/O", "%s: offsets and lengths of %u bytes, memory of %u%s%s",
			e->file.direct ? "yes" : "no", e->file.offset_align, e->file.memory_align,
			e->file.direct ? "" : "; ", e->file.direct_reason);
	else
		cli_row("direct I/O", "no: %s", e->file.direct_reason);
	cli_row("queue", "%s%s%s", e->queue.name, e->queue.reason[0] ? ": " : "", e->queue.reason);
	show_residency(&e->residency);
	if (e->map[0])
		cli_row("", "[%s]", e->map);
	show_foresight(e);
	show_extents(e);
}

static int explain(const struct settings *set, const char *path, struct cli_device *device,
		   struct hr_explanation *e)
{
	struct hr_file *file = NULL;
	int err;

	if (cli_device_open(set->common.device, device) != CLI_OK)
		return CLI_FAILED;
	err = hr_file_open(path, HR_FILE_READ, &file);
	if (!err)
		err = hr_explain(file, device->dev, set->offset, set->length, e);
	hr_file_close(file);
	if (err)
		return cli_fail_code(err, path);
	if (set->common.json)
		return show_json(path, device, e);
	show_human(path, e);
	return CLI_OK;
}

int cli_verb_explain(int argc, char **argv)
{
	struct hr_explanation *e;
	struct settings set = {0};
	struct cli_device device = {0};
	int first, code = cli_parse(&usage, argc, argv, &set, &first);

	if (code != -1)
		return code;
	e = calloc(1, sizeof(*e));
	if (!e)
		return cli_fail("no memory; close something");
	code = explain(&set, argv[first], &device, e);
	hr_device_close(device.dev);
	free(e);
	return code;
}

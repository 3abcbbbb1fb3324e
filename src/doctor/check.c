/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/check.c - hr_check(): the groups in their order; each group judges for itself. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "doctor/machine.h"

/* Length of the character at @s in UTF-8, 0 if it is none. */
static uint32_t character(const unsigned char *s)
{
	uint32_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if ((s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
		return 0;
	for (uint32_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	/* Long forms of short ones, and halves of pairs. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/*
 * Names come from files and folders that anybody may have written, and a text that was cut may end within
 * a character: what is left can be printed and be JSON.
 */
static void clean(char *text)
{
	while (*text) {
		uint32_t n = character((const unsigned char *)text);

		if (!n)
			*text = '?';
		else if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
		text += n ? n : 1;
	}
}

static void clean_all(struct hr__report *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		clean(r->items[i].name);
		clean(r->items[i].cause);
		clean(r->items[i].fix);
	}
	for (uint32_t i = 0; i < r->n_pairs; i++) {
		clean(r->pairs[i].drive);
		clean(r->pairs[i].gpu);
		clean(r->pairs[i].drive_pci);
		clean(r->pairs[i].gpu_pci);
		clean(r->pairs[i].cause);
		clean(r->pairs[i].fix);
	}
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		clean(r->nodes[i].name);
		clean(r->nodes[i].what);
	}
}

static void fill(struct hr__report *r, const struct hr_check_options *opts, struct hr__machine *m)
{
	hr__machine_read(r, opts, m);
	hr__check_pairs(r, m);
	hr__tree_draw(r, m);
	hr__check_kernel(r, m);
	hr__check_gpu(r, opts, m);
	hr__check_storage(r, m);
	hr__check_places(r, opts, m);
	hr__check_limits(r, m);
	hr__check_libraries(r, m);
	clean_all(r);
}

int hr_check(const struct hr_check_options *opts, struct hr_check_report *out)
{
	static const struct hr_check_options defaults;
	struct hr__report r = {.root = ""};
	struct hr__machine *m = calloc(1, sizeof(*m));

	memset(out, 0, sizeof(*out));
	opts = opts ? opts : &defaults;
	if (opts->root)
		r.root = opts->root;
	if (m)
		fill(&r, opts, m);
	free(m);
	*out = (struct hr_check_report){r.items, r.n, r.pairs, r.n_pairs, r.nodes, r.n_nodes};
	if (m && !r.error)
		return 0;
	hr_check_free(out);
	return hr__fail(ENOMEM, "check: no memory for the report; close something");
}

void hr_check_free(struct hr_check_report *report)
{
	free(report->items);
	free(report->pairs);
	free(report->nodes);
	memset(report, 0, sizeof(*report));
}

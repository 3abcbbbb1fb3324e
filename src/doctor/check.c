/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/check.c - hr_check(): the groups in their order; each group judges for itself. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "doctor/machine.h"

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

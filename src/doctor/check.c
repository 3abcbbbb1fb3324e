/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/check.c - hr_check(): the groups in their order; each group judges for itself. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "doctor/report.h"

int hr_check(const struct hr_check_options *opts, struct hr_check_report *out)
{
	static const struct hr_check_options defaults;
	struct hr__report r = {.root = ""};

	memset(out, 0, sizeof(*out));
	opts = opts ? opts : &defaults;
	if (opts->root)
		r.root = opts->root;
	hr__check_kernel(&r);
	hr__check_gpu(&r, opts);
	hr__check_storage(&r, opts);
	hr__check_limits(&r);
	hr__check_libraries(&r);
	if (r.error) {
		free(r.items);
		return hr__fail(-r.error, "check: no memory for the report; close something");
	}
	out->items = r.items;
	out->n_items = r.n;
	return 0;
}

void hr_check_free(struct hr_check_report *report)
{
	free(report->items);
	memset(report, 0, sizeof(*report));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/report.c - collects items and reads facts below the root; judges nothing. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "doctor/report.h"

static struct hr_check_item *grow(struct hr__report *r)
{
	struct hr_check_item *items;
	uint32_t cap = r->cap ? 2 * r->cap : 32;

	if (r->n < r->cap)
		return &r->items[r->n];
	items = realloc(r->items, cap * sizeof(*items));
	if (!items) {
		r->error = -ENOMEM;
		return NULL;
	}
	r->items = items;
	r->cap = cap;
	return &items[r->n];
}

void hr__report_add(struct hr__report *r, const char *group, const char *name,
		    enum hr_check_state state, const char *fix, const char *cause, ...)
{
	struct hr_check_item *item = grow(r);
	va_list args;

	if (!item)
		return;
	memset(item, 0, sizeof(*item));
	item->group = group;
	item->state = state;
	snprintf(item->name, sizeof(item->name), "%s", name);
	snprintf(item->fix, sizeof(item->fix), "%s", fix);
	va_start(args, cause);
	vsnprintf(item->cause, sizeof(item->cause), cause, args);
	va_end(args);
	r->n++;
}

int hr__report_text(const struct hr__report *r, char *buf, size_t size, const char *path, ...)
{
	char below[PATH_MAX / 2], full[PATH_MAX];
	va_list args;
	int n;

	buf[0] = '\0';
	va_start(args, path);
	n = vsnprintf(below, sizeof(below), path, args);
	va_end(args);
	if (n >= (int)sizeof(below) ||
	    snprintf(full, sizeof(full), "%s/%s", r->root, below) >= (int)sizeof(full))
		return -ENAMETOOLONG;
	return hr__read_text(full, buf, size);
}

bool hr__report_exists(const struct hr__report *r, const char *path)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", r->root, path);
	return !access(full, F_OK);
}

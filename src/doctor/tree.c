/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/tree.c - the PCIe tree between drives and GPUs, as lines in the order of drawing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

/* A function that is drawn, with what it is. */
struct leaf {
	const struct hr__pci *pci;
	char what[96];
};

static int by_place(const void *a, const void *b)
{
	const struct hr__pci *x = ((const struct leaf *)a)->pci, *y = ((const struct leaf *)b)->pci;
	int order = strcmp(x->host, y->host);

	for (uint32_t i = 0; !order && i < x->depth && i < y->depth; i++)
		order = strcmp(x->chain[i], y->chain[i]);
	return order ? order : (int)x->depth - (int)y->depth;
}

static void describe_link(const struct hr__pci *pci, char *out, size_t size)
{
	snprintf(out, size, "%s%s", pci->link_text[0] ? ", " : "", pci->link_text);
}

static uint32_t collect(const struct hr__machine *m, struct leaf *leaves)
{
	char link[48];
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_gpus; i++) {
		const struct hr__gpu *g = &m->gpus[i];

		if (!g->pci.depth)
			continue;
		describe_link(&g->pci, link, sizeof(link));
		leaves[n].pci = &g->pci;
		snprintf(leaves[n++].what, sizeof(leaves[0].what), "GPU%s%.12s %.40s%.36s",
			 strchr(g->name, '.') ? "" : " ", strchr(g->name, '.') ? "" : g->name,
			 g->model, link);
	}
	for (uint32_t i = 0; i < m->n_drives; i++) {
		const struct hr__drive *d = &m->drives[i];

		if (!d->pci.depth)
			continue;
		describe_link(&d->pci, link, sizeof(link));
		leaves[n].pci = &d->pci;
		snprintf(leaves[n++].what, sizeof(leaves[0].what), "drive %.16s %.36s%.36s",
			 d->name, d->kind == HR__DRIVE_VIRTIO ? "virtio" : d->model, link);
	}
	return n;
}

static void add(struct hr__report *r, uint32_t depth, const char *name, const char *what)
{
	struct hr_check_node *grown = realloc(r->nodes, (r->n_nodes + 1) * sizeof(*r->nodes));

	if (!grown) {
		r->error = -ENOMEM;
		return;
	}
	r->nodes = grown;
	grown += r->n_nodes++;
	memset(grown, 0, sizeof(*grown));
	grown->depth = depth;
	snprintf(grown->name, sizeof(grown->name), "%s", name);
	snprintf(grown->what, sizeof(grown->what), "%s", what);
}

static const char *where(const struct hr__pci *pci, char *text, size_t size)
{
	if (pci->numa < 0)
		return "root complex";
	snprintf(text, size, "root complex, NUMA node %d", pci->numa);
	return text;
}

void hr__tree_draw(struct hr__report *r, const struct hr__machine *m)
{
	struct leaf *leaves = calloc(HR__GPUS_MAX + HR__DRIVES_MAX, sizeof(*leaves));
	uint32_t n = leaves ? collect(m, leaves) : 0;
	const struct hr__pci *last = NULL;
	char text[48];

	if (!leaves)
		r->error = -ENOMEM;
	else
		qsort(leaves, n, sizeof(*leaves), by_place);
	for (uint32_t i = 0; i < n; i++) {
		const struct hr__pci *pci = leaves[i].pci;
		uint32_t same = 0;

		if (!last || strcmp(last->host, pci->host) != 0) {
			add(r, 0, pci->host, where(pci, text, sizeof(text)));
		} else {
			while (same + 1 < pci->depth && same + 1 < last->depth &&
			       !strcmp(last->chain[same], pci->chain[same]))
				same++;
		}
		for (; same + 1 < pci->depth; same++)
			add(r, same + 1, pci->chain[same],
			    same ? "bridge of a switch" : "root port");
		add(r, pci->depth, pci->address, leaves[i].what);
		last = pci;
	}
	free(leaves);
}

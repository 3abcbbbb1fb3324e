/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/report.h - a report under construction, and the facts of the machine it is made of.
 *
 * Facts come from proc/, sys/ and a few other places below a root, so that tests can feed whole
 * machines. With a root nothing of the running machine is asked.
 */
#ifndef HR_DOCTOR_REPORT_H
#define HR_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include <headrace/doctor.h>

struct hr__report {
	struct hr_check_item *items;
	uint32_t n, cap;
	struct hr_check_pair *pairs;
	uint32_t n_pairs;
	struct hr_check_node *nodes;
	uint32_t n_nodes;
	int error;        /* 0 or -ENOMEM: then items are missing */
	const char *root; /* "" for this machine */
};

/* hr__report_add() - one more item. @group, @name, @fix: copied but for @group, which is static. */
void hr__report_add(struct hr__report *r, const char *group, const char *name,
		    enum hr_check_state state, const char *fix, const char *cause, ...)
	__attribute__((format(printf, 6, 7)));

/* hr__report_text() - contents of a small file below the root. Return: length or -errno. */
int hr__report_text(const struct hr__report *r, char *buf, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));

/* hr__report_exists() - is there such a file or folder below the root? */
bool hr__report_exists(const struct hr__report *r, const char *path);

/* hr__report_live() - the running machine may be asked. */
static inline bool hr__report_live(const struct hr__report *r)
{
	return !r->root[0];
}

struct hr__machine;

/* The groups, one function each; order of the report. */
void hr__check_kernel(struct hr__report *r, const struct hr__machine *m);
void hr__check_gpu(struct hr__report *r, const struct hr_check_options *opts,
		   const struct hr__machine *m);
void hr__check_storage(struct hr__report *r, const struct hr__machine *m);
void hr__check_places(struct hr__report *r, const struct hr_check_options *opts,
		      const struct hr__machine *m);
void hr__check_limits(struct hr__report *r, const struct hr__machine *m);
void hr__check_libraries(struct hr__report *r, const struct hr__machine *m);

/* hr__check_pairs() - every drive with every GPU. Before hr__check_places(), which looks into them. */
void hr__check_pairs(struct hr__report *r, const struct hr__machine *m);

/* hr__report_pair() - the pair of that name, or NULL. */
struct hr_check_pair *hr__report_pair(const struct hr__report *r, const char *drive,
				      const char *gpu);

/* hr__tree_draw() - fill in the nodes. */
void hr__tree_draw(struct hr__report *r, const struct hr__machine *m);

#endif

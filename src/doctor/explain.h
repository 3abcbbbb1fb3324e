/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/explain.h - the parts of an explanation that have a file of their own. */
#ifndef HR_DOCTOR_EXPLAIN_H
#define HR_DOCTOR_EXPLAIN_H

#include <headrace/doctor.h>

#include "file/plan.h"

/* layers.c: from the file down to its drives; and for each extent the place on one of them. */
void hr__explain_layers(struct hr_file *file, struct hr_explanation *out);

/* foresee.c: plan one read of the range as the engine would, and count. */
void hr__foresee(const struct hr__limits *limits, uint64_t offset, uint64_t len,
		 struct hr_explanation *out);

#endif

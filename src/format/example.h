/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format/example.h - a tf.train.Example, walked where it lies: no message is built, nothing is copied but
 * names. Knows neither records nor sources but by the function that shows bytes.
 */
#ifndef HR_FORMAT_EXAMPLE_H
#define HR_FORMAT_EXAMPLE_H

#include <stdint.h>

#include "format/index.h"
#include "format/peek.h"

#define HR__EXAMPLE_NAME_MAX 256u /* with the NUL */

struct hr__feature {
	char name[HR__EXAMPLE_NAME_MAX];
	struct hr__cell cell; /* ABSENT: nothing that can be read where it lies */
	bool floats;          /* the range's elements are f32, else bytes */
	const char *why;      /* if ABSENT: a static clause, NULL for a feature without values */
};

/*
 * hr__example_walk() - call @each for the features of the message in [@offset, + @len).
 * Return: 1; 0 when it is no Example, after any number of calls; -code of reading or of @each.
 */
int hr__example_walk(struct hr__peek *peek, uint64_t offset, uint64_t len,
		     int (*each)(void *ctx, const struct hr__feature *feature), void *ctx);

#endif

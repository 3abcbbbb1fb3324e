/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/registrar.h - the thread that makes the hot parts of a dataset ready for the path pagecache,
 * ahead of need and off the data path; where that path cannot be, for those who copy out of mappings.
 *
 * It goes over all files again and again, with growing pauses, until everything is ready, the limit
 * HEADRACE_PIN_BYTES is reached, or a minute has passed: what is cold until then stays with the other
 * paths. What ended it short is kept as a sentence.
 */
#ifndef HR_LOADER_REGISTRAR_H
#define HR_LOADER_REGISTRAR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "loader/dataset.h"
#include "loader/event.h"

struct hr__registrar {
	const struct hr_dataset *ds; /* both outlive the thread */
	struct hr_device *dev;
	bool map; /* the program allows the handler of SIGBUS */
	bool pin; /* it reads the data often enough */
	pthread_t thread;
	bool started;
	atomic_bool stopping;
	struct hr__event wake;
	atomic_uint_fast64_t bytes, ns;
	atomic_bool has_reason;
	char reason[192]; /* written once, before has_reason */
};

/*
 * hr__registrar_start() - start the thread, unless no file may be mapped: then the reason says why.
 * @map: hr_engine_options.map. @pin: false where a GPU would not read its registered pages often enough
 * to make up for registering them. A thread that cannot be started is a reason, too, and no failure.
 */
void hr__registrar_start(struct hr__registrar *r, const struct hr_dataset *ds,
			 struct hr_device *dev, bool map, bool pin);

/* hr__registrar_join() - stop it; at most one window is still finished. Accepts one not started. */
void hr__registrar_join(struct hr__registrar *r);

/* hr__registrar_reason() - why not everything is ready; "" while it is working or if all is. */
const char *hr__registrar_reason(const struct hr__registrar *r);

#endif

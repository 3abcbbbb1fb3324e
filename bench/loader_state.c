/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to save where a loader is: rounds of many saves, one time of each round in ns a line. Uses
 * the public interface alone; loader_state.py runs it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headrace/headrace.h>

#define SAVES 10000u

static int fail(const char *what)
{
	fprintf(stderr, "loader_state: %s: %s\n", what, hr_error_detail());
	return 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The record must say what it said: a save that is fast and wrong is none. */
static int measure(struct hr_loader *loader, int rounds)
{
	unsigned char first[HR_LOADER_STATE_BYTES], record[HR_LOADER_STATE_BYTES];

	hr_loader_state(loader, first, sizeof(first));
	for (int r = 0; r < rounds; r++) {
		uint64_t begin = now_ns();

		for (uint32_t i = 0; i < SAVES; i++) {
			if (hr_loader_state(loader, record, sizeof(record)) < 0)
				return fail("save");
		}
		printf("%" PRIu64 "\n", (now_ns() - begin) / SAVES);
		if (memcmp(first, record, sizeof(record)) != 0)
			return fail("another record");
	}
	return 0;
}

static int run(struct hr_dataset *ds, struct hr_device *dev, int rounds)
{
	struct hr_loader_options opts = {.batch_size = 4, .threads = 1};
	const struct hr_batch *batch;
	struct hr_loader *loader;
	int rc;

	if (hr_loader_open(ds, dev, &opts, &loader) < 0)
		return fail("loader");
	rc = hr_loader_next(loader, &batch);
	rc = rc < 0 ? fail("batch") : measure(loader, rounds);
	hr_loader_close(loader);
	return rc;
}

int main(int argc, char **argv)
{
	struct hr_dataset_options opts = {.format = "tokens", .seq_len = 512};
	const char *const paths[] = {argc > 2 ? argv[1] : ""};
	struct hr_dataset *ds;
	struct hr_device *dev;
	int rc;

	if (argc != 3) {
		fprintf(stderr, "usage: loader_state FILE ROUNDS\n");
		return 2;
	}
	if (hr_device_open("host", &dev) < 0)
		return fail("device");
	rc = hr_dataset_open(paths, 1, &opts, &ds);
	if (rc < 0) {
		hr_device_close(dev);
		return fail("dataset");
	}
	rc = run(ds, dev, (int)strtoul(argv[2], NULL, 10));
	hr_dataset_close(ds);
	hr_device_close(dev);
	return rc;
}

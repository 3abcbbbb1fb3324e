/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regress/fixture.h - a file with the pattern, a device, a buffer and an engine, for tests of one symptom
 * each. DEVICE is the first argument of every program, "host" by default.
 */
#ifndef HR_TESTS_REGRESS_FIXTURE_H
#define HR_TESTS_REGRESS_FIXTURE_H

#include <headrace/headrace.h>

#include "support/support.h"

#define LONG_NS 60000000000ull

struct fixture {
	char *dir, *path;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_buffer *buf;
	struct hr_engine *engine;
	uint8_t *image; /* of the buffer */
	uint64_t room;
};

static const char *fixture_device = "host";

static inline void fixture_open(struct fixture *f, uint64_t file_len, uint64_t room,
				struct hr_engine_options o)
{
	f->dir = test_mkdir();
	f->path = test_file(f->dir, "data", file_len);
	f->room = room;
	f->image = malloc(room);
	assert_int_equal(hr_device_open(fixture_device, &f->dev), 0);
	assert_int_equal(hr_file_open(f->path, HR_FILE_READ | HR_FILE_WRITE, &f->file), 0);
	assert_int_equal(hr_buffer_alloc(f->dev, room, &f->buf), 0);
	assert_int_equal(hr_engine_open(f->dev, &o, &f->engine), 0);
}

static inline void fixture_close(struct fixture *f)
{
	assert_int_equal(hr_engine_close(f->engine), 0);
	assert_int_equal(hr_buffer_free(f->buf), 0);
	hr_file_close(f->file);
	hr_device_close(f->dev);
	free(f->image);
	free(f->path);
	test_rmdir(f->dir);
}

static inline void fixture_poison(struct fixture *f)
{
	memset(f->image, TEST_GUARD, f->room);
	assert_int_equal(hr_buffer_copy_in(f->buf, 0, f->image, f->room), 0);
}

static inline void fixture_fetch(struct fixture *f)
{
	assert_int_equal(hr_buffer_copy_out(f->buf, 0, f->image, f->room), 0);
}

/* The image holds [off, off + len) of the file at @at. */
static inline void fixture_check(const struct fixture *f, uint64_t at, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++) {
		if (f->image[at + i] != test_pattern(off + i))
			fail_msg("byte %llu of the file is wrong at %llu of the buffer",
				 (unsigned long long)(off + i), (unsigned long long)(at + i));
	}
}

static inline void fixture_guard(const struct fixture *f, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		if (f->image[i] != TEST_GUARD)
			fail_msg("guard byte %llu was overwritten", (unsigned long long)i);
	}
}

#endif

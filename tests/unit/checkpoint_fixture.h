/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/checkpoint_fixture.h - what the tests of checkpoints share: a writer of safetensors files that
 * has nothing in common with the library's, and a device with an engine.
 */
#ifndef HR_TESTS_CHECKPOINT_FIXTURE_H
#define HR_TESTS_CHECKPOINT_FIXTURE_H

#include <inttypes.h>

#include <headrace/headrace.h>

#include "support/support.h"

#define WEIGHTS_MAX 16u
#define DIMS_MAX 4u
#define LONG_NS 60000000000ull

static const char *device_name = "host";

/* A tensor of a file to be made. */
struct made {
	const char *name, *dtype;
	uint32_t bits, ndim;
	uint64_t shape[DIMS_MAX];
};

struct fixture {
	char *dir;
	struct hr_device *dev;
	struct hr_engine *engine;
};

static inline void expect_ok(int64_t rc)
{
	if (rc < 0)
		fail_msg("%s: %s", hr_error_name((int)rc), hr_error_detail());
}

static inline void expect_code(int64_t rc, int code, const char *word)
{
	if (rc != -code || !strstr(hr_error_detail(), word))
		fail_msg("%s instead of %s: \"%s\" should have \"%s\"", hr_error_name((int)rc),
			 hr_error_name(code), hr_error_detail(), word);
}

static inline void fixture_open(struct fixture *f, const struct hr_engine_options *opts)
{
	f->dir = test_mkdir();
	expect_ok(hr_device_open(device_name, &f->dev));
	expect_ok(hr_engine_open(f->dev, opts, &f->engine));
}

static inline void fixture_close(struct fixture *f)
{
	assert_int_equal(hr_engine_close(f->engine), 0);
	hr_device_close(f->dev);
	test_rmdir(f->dir);
}

static inline char *path_in(const struct fixture *f, const char *name)
{
	char *path = malloc(600);

	snprintf(path, 600, "%s/%s", f->dir, name);
	return path;
}

static inline uint64_t made_bytes(const struct made *m)
{
	uint64_t n = m->bits;

	for (uint32_t i = 0; i < m->ndim; i++)
		n *= m->shape[i];
	return n / 8;
}

/*
 * Write tensors in the order given, one after the other, with @pad blanks behind the header, so that
 * the data begins wherever a test wants it. The byte at each offset of the file is test_pattern().
 * Return: offset of the first tensor.
 */
static inline uint64_t make_file(const char *path, const struct made *m, uint32_t n, uint32_t pad)
{
	char *json = malloc(4096 + 256 * (size_t)n + pad);
	uint64_t at = 0, data, len;
	uint8_t head[8], *block = malloc(1 << 16);
	FILE *out = fopen(path, "wb");

	assert_non_null(json);
	json[0] = '{';
	len = 1;
	for (uint32_t i = 0; i < n; i++) {
		len += (uint64_t)sprintf(json + len, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
					 i ? "," : "", m[i].name, m[i].dtype);
		for (uint32_t d = 0; d < m[i].ndim; d++)
			len += (uint64_t)sprintf(json + len, "%s%" PRIu64, d ? "," : "",
						 m[i].shape[d]);
		len += (uint64_t)sprintf(json + len,
					 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
					 at + made_bytes(&m[i]));
		at += made_bytes(&m[i]);
	}
	len += (uint64_t)sprintf(json + len, "}");
	memset(json + len, ' ', pad);
	len += pad;
	for (int i = 0; i < 8; i++)
		head[i] = (uint8_t)(len >> (8 * i));
	data = 8 + len;
	assert_non_null(out);
	assert_int_equal(fwrite(head, 1, 8, out), 8);
	assert_int_equal(fwrite(json, 1, len, out), len);
	for (uint64_t done = 0; done < at;) {
		size_t part = at - done < (1 << 16) ? (size_t)(at - done) : 1 << 16;

		for (size_t i = 0; i < part; i++)
			block[i] = test_pattern(data + done + i);
		assert_int_equal(fwrite(block, 1, part, out), part);
		done += part;
	}
	assert_int_equal(fclose(out), 0);
	free(block);
	free(json);
	return data;
}

/* Steps to the end. Return: 1, or the code that ended it. */
static inline int run_load(struct hr_load *load)
{
	int ret;

	do
		ret = hr_load_step(load, LONG_NS);
	while (!ret);
	return ret;
}

static inline int run_save(struct hr_save *save)
{
	int ret;

	do
		ret = hr_save_step(save, LONG_NS);
	while (!ret);
	return ret;
}

#endif

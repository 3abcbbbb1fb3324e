/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit/loader_fixture.h - what the loader tests share: token files, loaders on the device named on
 * the command line, and an independent account of what every batch must hold.
 */
#ifndef HR_TESTS_LOADER_FIXTURE_H
#define HR_TESTS_LOADER_FIXTURE_H

#include <headrace/headrace.h>

#include "loader/loader.h"
#include "loader/perm.h"
#include "support/support.h"

#define FILES_MAX 4u

static const char *device_name = "host";

struct fixture {
	char *dir;
	char *paths[FILES_MAX];
	uint64_t tokens[FILES_MAX];
	uint32_t n_files;
	uint32_t seq_len;
	enum hr_dtype dtype;
	struct hr_device *dev;
	struct hr_dataset *ds;
};

static inline void expect_ok(int rc)
{
	if (rc < 0)
		fail_msg("%s: %s", hr_error_name(rc), hr_error_detail());
}

static inline void expect_code(int rc, int code, const char *word)
{
	if (rc != -code || !strstr(hr_error_detail(), word))
		fail_msg("%s instead of %s: \"%s\" should have \"%s\"", hr_error_name(rc),
			 hr_error_name(code), hr_error_detail(), word);
}

static inline void fixture_open(struct fixture *f)
{
	struct hr_dataset_options opts = {.seq_len = f->seq_len, .dtype = f->dtype};
	char name[16];

	f->dir = test_mkdir();
	for (uint32_t i = 0; i < f->n_files; i++) {
		snprintf(name, sizeof(name), "part%u", i);
		f->paths[i] = test_file(f->dir, name, f->tokens[i] * hr_dtype_size(f->dtype));
	}
	expect_ok(hr_device_open(device_name, &f->dev));
	expect_ok(hr_dataset_open((const char *const *)f->paths, f->n_files, &opts, &f->ds));
}

static inline void fixture_close(struct fixture *f)
{
	hr_dataset_close(f->ds);
	hr_device_close(f->dev);
	for (uint32_t i = 0; i < f->n_files; i++)
		free(f->paths[i]);
	test_rmdir(f->dir);
}

static inline struct hr_loader *open_loader(struct fixture *f, struct hr_loader_options o)
{
	struct hr_loader *loader = NULL;

	if (!o.engine.staging_bytes)
		o.engine.staging_bytes = 1 << 20;
	expect_ok(hr_loader_open(f->ds, f->dev, &o, &loader));
	return loader;
}

static inline const struct hr_batch *next_batch(struct hr_loader *loader)
{
	const struct hr_batch *batch = NULL;

	expect_ok(hr_loader_next(loader, &batch));
	return batch;
}

static inline uint64_t samples_in(const struct fixture *f, uint32_t file)
{
	return (f->tokens[file] - (f->seq_len + 1)) / f->seq_len + 1;
}

static inline uint64_t fixture_samples(const struct fixture *f)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < f->n_files; i++)
		sum += samples_in(f, i);
	return sum;
}

/* Token @t of sample @id as the file has it: the pattern's bytes, little-endian. */
static inline uint32_t token_of(const struct fixture *f, uint64_t id, uint64_t t)
{
	uint32_t file = 0, value = 0, size = hr_dtype_size(f->dtype);

	while (id >= samples_in(f, file))
		id -= samples_in(f, file++);
	for (uint32_t b = 0; b < size; b++)
		value |= (uint32_t)test_pattern((id * f->seq_len + t) * size + b) << (8 * b);
	return value;
}

static inline uint64_t read_element(const uint8_t *p, enum hr_dtype type)
{
	uint64_t value = 0;

	memcpy(&value, p, hr_dtype_size(type)); /* the tests' machines are little-endian */
	return value;
}

/* Every byte of the batch, and the guard bytes between it and the next slot. */
static inline void check_batch(struct fixture *f, struct hr_loader *loader,
			       const struct hr_batch *batch, bool guards)
{
	uint64_t slot = loader->layout.slot_bytes, used = loader->layout.batch_bytes;
	enum hr_dtype out = batch->tensors[0].dtype;
	uint8_t *image = malloc(slot);
	const uint8_t *at = image;

	expect_ok(hr_buffer_copy_out(batch->buffer, batch->buffer_offset, image, slot));
	for (uint32_t row = 0; row < batch->samples; row++) {
		for (uint64_t t = 0; t <= f->seq_len; t++, at += hr_dtype_size(out)) {
			if (read_element(at, out) != token_of(f, batch->ids[row], t))
				fail_msg("row %u (sample %llu), token %llu", row,
					 (unsigned long long)batch->ids[row],
					 (unsigned long long)t);
		}
	}
	assert_int_equal(at - image, used);
	for (uint64_t i = used; guards && i < slot; i++)
		assert_int_equal(image[i], TEST_GUARD);
	free(image);
}

/* The unused ends of all slots, which nobody may write. */
static inline void set_guards(struct hr_loader *loader)
{
	uint64_t slot = loader->layout.slot_bytes, used = loader->layout.batch_bytes;
	uint8_t *guard = malloc(slot - used);

	assert_true(slot > used);
	memset(guard, TEST_GUARD, slot - used);
	for (uint32_t i = 0; i < loader->opts.slots; i++)
		expect_ok(hr_buffer_copy_in(loader->buffer, i * slot + used, guard, slot - used));
	free(guard);
}

/* The order as the permutation has it, which has tests of its own. */
static inline void epoch_order(const struct fixture *f, uint64_t seed, uint64_t epoch,
			       uint64_t *ids)
{
	uint64_t n = fixture_samples(f);
	struct hr__perm perm;

	hr__perm_init(&perm, n, hr__perm_key(seed, epoch));
	for (uint64_t i = 0; i < n; i++)
		hr__perm_run(&perm, i, 1, &ids[i]);
}

#endif

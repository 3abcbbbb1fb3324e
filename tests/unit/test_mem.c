/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mem - devices and buffers: the same body on "host" and on "cuda:0" (tests/fakecuda), then
 * the refusals: names, ranges, pointers, buffers in use.
 */
#include "fake_control.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <headrace/error.h>

#include "mem/mem.h"

static const char *const names[] = {"host", "cuda:0"};

static struct hr_device *open_device(const char *name)
{
	struct hr_device *dev = NULL;

	assert_int_equal(hr_device_open(name, &dev), 0);
	assert_non_null(dev);
	return dev;
}

static void test_info(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct hr_device *dev = open_device(names[i]);
		struct hr_device_info info;

		assert_int_equal(hr_device_info(dev, &info), 0);
		assert_string_equal(info.name, names[i]);
		assert_true(info.model[0] && info.memory_bytes > 1 << 20);
		assert_true(info.kernels && info.registers_read_only_host);
		assert_string_equal(info.kernels_reason, "");
		assert_int_equal(info.kind, i ? HR_DEVICE_CUDA : HR_DEVICE_HOST);
		assert_string_equal(info.pci, i ? "0000:a0:00.0" : "");
		assert_string_equal(info.driver, i ? "13.0" : "");
		hr_device_close(dev);
	}
	hr_device_close(NULL);
}

static void test_bad_names(void **state)
{
	static const struct {
		const char *name;
		int code;
	} rows[] = {
		{NULL, -EINVAL},
		{"", -EINVAL},
		{"hostile", -EINVAL},
		{"cuda", -EINVAL},
		{"cuda:", -EINVAL},
		{"cuda:0x", -EINVAL},
		{"cuda:-1", -EINVAL},
		{"cuda:99999", -EINVAL},
		{"cuda:7", -HR_E_NO_DEVICE},
		{"host: a name much longer than any device name", -EINVAL},
	};
	struct hr_device *dev = (struct hr_device *)1;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(hr_device_open(rows[i].name, &dev), rows[i].code);
		assert_ptr_equal(dev, (void *)1);
		assert_true(*hr_error_detail());
	}
}

static void fill(uint8_t *p, uint64_t len, uint32_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

static void check_buffer(struct hr_device *dev, uint64_t len)
{
	struct hr_buffer *buf = NULL;
	uint8_t *in = malloc(len), *out = malloc(len);

	assert_int_equal(hr_buffer_alloc(dev, len, &buf), 0);
	assert_int_equal(hr_buffer_len(buf), len);
	assert_int_equal((uintptr_t)hr_buffer_address(buf) % 4096, 0);
	fill(in, len, 7);
	assert_int_equal(hr_buffer_copy_in(buf, 0, in, len), 0);
	fill(in + len / 3, len / 3, 9);
	assert_int_equal(hr_buffer_copy_in(buf, len / 3, in + len / 3, len / 3), 0);
	memset(out, 0, len);
	assert_int_equal(hr_buffer_copy_out(buf, 0, out, len), 0);
	assert_memory_equal(in, out, len);

	assert_int_equal(hr_buffer_copy_out(buf, len, out, 0), 0);
	assert_int_equal(hr_buffer_copy_out(buf, len, out, 1), -HR_E_BAD_RANGE);
	assert_int_equal(hr_buffer_copy_in(buf, UINT64_MAX, in, 2), -HR_E_BAD_RANGE);
	assert_int_equal(hr_buffer_copy_in(buf, 1, in, len), -HR_E_BAD_RANGE);
	assert_int_equal(hr_buffer_free(buf), 0);
	free(in);
	free(out);
}

static void test_buffers(void **state)
{
	static const uint64_t lens[] = {1, 100, 4096, 8191, 3 << 20};

	for (int i = 0; i < 2; i++) {
		struct hr_device *dev = open_device(names[i]);

		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
			check_buffer(dev, lens[k]);
		hr_device_close(dev);
	}
}

static void test_buffer_refusals(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct hr_device *dev = open_device(names[i]);
		struct hr_buffer *buf = (struct hr_buffer *)1;
		char local;

		assert_int_equal(hr_buffer_alloc(dev, 0, &buf), -EINVAL);
		assert_int_equal(hr_buffer_alloc(dev, UINT64_MAX, &buf), -ENOMEM);
		assert_int_equal(hr_buffer_register(dev, NULL, 1, &buf), -HR_E_BAD_POINTER);
		assert_int_equal(hr_buffer_register(dev, &local, 0, &buf), -EINVAL);
		assert_int_equal(hr_buffer_register(dev, &local, UINT64_MAX, &buf),
				 -HR_E_BAD_POINTER);
		assert_ptr_equal(buf, (void *)1);
		assert_int_equal(hr_buffer_free(NULL), 0);
		hr_device_close(dev);
	}
}

/* A closed device lives on in its buffers; a buffer in use cannot be freed; ids are unique. */
static void test_lifetime(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct hr_device *dev = open_device(names[i]);
		struct hr_buffer *a, *b;
		uint8_t byte = 42;

		assert_int_equal(hr_buffer_alloc(dev, 10, &a), 0);
		assert_int_equal(hr_buffer_register(dev, hr_buffer_address(a), 10, &b), 0);
		assert_ptr_equal(hr_buffer_address(b), hr_buffer_address(a));
		assert_true(a->id != b->id);
		hr_device_close(dev);

		hr__buffer_busy(a);
		hr__buffer_busy(a);
		assert_int_equal(hr_buffer_free(a), -EBUSY);
		hr__buffer_idle(a);
		assert_int_equal(hr_buffer_free(a), -EBUSY);
		assert_int_equal(hr_buffer_copy_in(b, 9, &byte, 1), 0);
		byte = 0;
		assert_int_equal(hr_buffer_copy_out(a, 9, &byte, 1), 0);
		assert_int_equal(byte, 42);
		hr__buffer_idle(a);
		assert_int_equal(hr_buffer_free(b), 0);
		assert_int_equal(hr_buffer_free(a), 0);
	}
}

/* What "cuda:N" must not take for its own: host memory, another GPU's, too long, freed. */
static void test_cuda_claims(void **state)
{
	struct hr_device *dev = open_device("cuda:0"), *other = open_device("cuda:1");
	struct hr_buffer *buf, *wrap = NULL;
	char local[16], *address;

	assert_int_equal(hr_buffer_alloc(dev, 3 << 20, &buf), 0);
	address = hr_buffer_address(buf);
	assert_int_equal(hr_buffer_register(dev, local, 16, &wrap), -HR_E_BAD_POINTER);
	assert_int_equal(hr_buffer_register(other, address, 16, &wrap), -HR_E_BAD_POINTER);
	assert_int_equal(hr_buffer_register(dev, address + 1, 3 << 20, &wrap), -HR_E_BAD_POINTER);
	assert_null(wrap);
	assert_int_equal(hr_buffer_register(dev, address + 1, (3 << 20) - 1, &wrap), 0);
	assert_int_equal(hr_buffer_free(wrap), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
	assert_int_equal(hr_buffer_register(dev, address, 16, &wrap), -HR_E_BAD_POINTER);
	hr_device_close(other);
	hr_device_close(dev);
}

static void test_pin(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct hr_device *dev = open_device(names[i]);
		void *seen = NULL, *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct hr__export export;

		assert_int_equal(dev->ops->pin(dev, p, 8192, 0, &seen), 0);
		assert_non_null(seen);
		if (i)
			assert_int_equal(dev->ops->pin(dev, p, 4096, 0, &seen), -EBUSY);
		dev->ops->unpin(dev, p, 8192);
		assert_true(dev->ops->export(dev, p, 8192, &export) < 0);
		munmap(p, 8192);
		hr_device_close(dev);
	}
}

/* Any part of an allocation exports all of it, and the bytes behind the descriptor are its own. */
static void test_export(void **state)
{
	struct hr__export whole, part;
	struct hr_device *dev;
	struct hr_buffer *buf;
	const char *base;
	char *seen;

	fake.set("export", 1);
	dev = open_device("cuda:0");
	assert_true(dev->caps & HR__MEM_CAP_EXPORT);
	assert_int_equal(hr_buffer_alloc(dev, 3 << 20, &buf), 0);
	base = hr_buffer_address(buf);
	assert_int_equal(dev->ops->export(dev, base, 3 << 20, &whole), 0);
	assert_int_equal(dev->ops->export(dev, base + 5000, 77, &part), 0);
	assert_ptr_equal(whole.base, base);
	assert_ptr_equal(part.base, base);
	assert_int_equal(part.len, 3 << 20);
	assert_true(whole.id && whole.id == part.id);
	assert_int_equal(hr_buffer_copy_in(buf, 5000, "some bytes", 10), 0);
	seen = mmap(NULL, 8192, PROT_READ, MAP_SHARED, part.fd, 0);
	assert_true(seen != MAP_FAILED);
	assert_memory_equal(seen + 5000, "some bytes", 10);
	munmap(seen, 8192);
	close(whole.fd);
	close(part.fd);
	/* more than there is */
	assert_true(dev->ops->export(dev, base + 4096, 3 << 20, &part) < 0);
	assert_int_equal(hr_buffer_free(buf), 0);
	hr_device_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_info, fake_clean),
		cmocka_unit_test_teardown(test_bad_names, fake_clean),
		cmocka_unit_test_teardown(test_buffers, fake_clean),
		cmocka_unit_test_teardown(test_buffer_refusals, fake_clean),
		cmocka_unit_test_teardown(test_lifetime, fake_clean),
		cmocka_unit_test_teardown(test_cuda_claims, fake_clean),
		cmocka_unit_test_teardown(test_pin, fake_clean),
		cmocka_unit_test_teardown(test_export, fake_clean),
	};

	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

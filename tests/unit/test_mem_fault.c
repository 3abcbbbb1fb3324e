/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mem_fault - the CUDA provider when the driver refuses: every call of a whole little program
 * fails once, in turn; the program must get an error with a sentence, and nothing may be left over.
 */
#include "fake_control.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <headrace/error.h>

#include "base/util.h"
#include "mem/mem.h"

#define OUT_OF_MEMORY 2
#define UNKNOWN 999
#define SECOND 1000000000ull

static int use_lane(struct hr_device *dev, struct hr_lane *lane, uint8_t *ring)
{
	struct hr__move moves[3];
	struct hr_buffer *buf;
	uint64_t ticket;
	uint8_t byte = 1;
	int ret = hr_buffer_alloc(dev, 4 << 20, &buf);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < 3; i++)
		moves[i] = (struct hr__move){ring + 100 * i, (char *)buf->ptr + 1000 * i, 64};
	ret = hr_buffer_copy_in(buf, 5, &byte, 1);
	if (!ret)
		ret = lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 3, HR_DTYPE_U16,
				      HR_DTYPE_I64, &ticket);
	for (uint32_t i = 0; i < 3; i++)
		moves[i] = (struct hr__move){(char *)buf->ptr + (i << 20), ring + (i << 20) + 1,
					     512 << 10};
	if (ret >= 0)
		ret = lane->ops->move(lane, HR__DEVICE_TO_HOST, moves, 3, 0, 0, &ticket);
	if (ret >= 0)
		ret = lane->ops->wait(lane, ticket, 30 * SECOND);
	if (!ret)
		ret = hr_buffer_copy_out(buf, 0, ring, 64);
	/* Memory goes only when nothing is on its way to it. */
	if (ret && !lane->ops->mark(lane, &ticket))
		lane->ops->wait(lane, ticket, SECOND);
	assert_int_equal(hr_buffer_free(buf), 0);
	return ret;
}

static int little_program(uint8_t *ring, uint64_t ring_len)
{
	struct hr_device *dev;
	struct hr_buffer *wrap, *buf;
	struct hr_lane *lane;
	void *seen;
	int ret = hr_device_open("cuda:0", &dev);

	if (ret)
		return ret;
	ret = dev->ops->pin(dev, ring, ring_len, 0, &seen);
	if (ret)
		goto out_close;
	ret = hr_lane_open(dev, NULL, &lane);
	if (ret)
		goto out_unpin;
	ret = hr_buffer_alloc(dev, 100, &buf);
	if (ret)
		goto out_lane;
	ret = hr_buffer_register(dev, hr_buffer_address(buf), 50, &wrap);
	if (!ret) {
		ret = use_lane(dev, lane, ring);
		assert_int_equal(hr_buffer_free(wrap), 0);
	}
	assert_int_equal(hr_buffer_free(buf), 0);
out_lane:
	hr_lane_close(lane);
out_unpin:
	dev->ops->unpin(dev, ring, ring_len);
out_close:
	hr_device_close(dev);
	return ret;
}

static uint8_t *ring_open(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/*
 * Calls whose failure is an error of the program; teardown calls are only logged. The first call of
 * some only tries out the mailbox of a lane, which can do without: then a later one must fail. Events
 * are used where streams cannot write values.
 */
static const struct {
	const char *name;
	bool first, no_memops;
} functions[] = {
	{"cuInit", true, false},
	{"cuDriverGetVersion", true, false},
	{"cuDeviceGetCount", true, false},
	{"cuDeviceGet", true, false},
	{"cuDeviceGetName", true, false},
	{"cuDeviceTotalMem_v2", true, false},
	{"cuDevicePrimaryCtxRetain", true, false},
	{"cuMemAlloc_v2", true, false},
	{"cuMemGetAddressRange_v2", true, false},
	{"cuPointerGetAttributes", true, false},
	{"cuMemHostAlloc", false, false},
	{"cuMemHostRegister_v2", true, false},
	{"cuMemHostGetDevicePointer_v2", false, false},
	{"cuMemcpyHtoDAsync_v2", true, false},
	{"cuMemcpyDtoHAsync_v2", true, false},
	{"cuStreamCreateWithPriority", true, false},
	{"cuStreamWriteValue64_v2", false, false},
	{"cuEventCreate", true, true},
	{"cuEventRecord", true, true},
	{"cuEventQuery", true, true},
	{"cuLaunchKernel", true, false},
	{"cuModuleLoadData", true, false},
	{"cuModuleGetFunction", true, false},
};

static void test_each_call(void **state)
{
	static const int results[] = {OUT_OF_MEMORY, UNKNOWN};
	uint64_t len = 4 << 20;
	uint8_t *ring = ring_open(len);

	assert_int_equal(little_program(ring, len), 0);
	for (size_t i = 0; i < HR_ARRAY_LEN(functions); i++) {
		uint32_t failed = 0;

		for (long kth = 1; kth <= 4; kth++) {
			long calls = fake.get("calls");
			int ret;

			fake.set("no_memops", functions[i].no_memops);
			fake.inject(functions[i].name, kth, results[kth % 2]);
			ret = little_program(ring, len);
			if (kth == 1 && functions[i].first)
				assert_true(ret < 0);
			if (ret < 0)
				assert_true(*hr_error_detail());
			failed += ret < 0;
			assert_true(fake.get("calls") > calls);
			if (fake_clean(NULL))
				fail_msg("after failure %ld of %s", kth, functions[i].name);
		}
		if (!failed)
			fail_msg("no failure of %s was noticed", functions[i].name);
	}
	munmap(ring, len);
}

static void test_no_driver(void **state)
{
	struct hr_device *dev = NULL;

	fake.set("devices", 0);
	assert_int_equal(hr_device_open("cuda:0", &dev), -HR_E_NO_DEVICE);
	fake.reset();
	fake.set("version", 11030);
	assert_int_equal(hr_device_open("cuda:0", &dev), -HR_E_DRIVER_TOO_OLD);
	assert_non_null(strstr(hr_error_detail(), "11.4"));
	fake.set("version", 11040);
	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	hr_device_close(dev);
}

/* What converts u16 to i64 on a lane of its own. */
static struct converter {
	pthread_t thread;
	struct hr_device *dev;
	struct hr_buffer *buf;
	uint8_t *ring;
	int ret;
} converters[4];

static void *convert(void *arg)
{
	struct converter *c = arg;
	struct hr__move move = {c->ring, c->buf->ptr, 64};
	struct hr_lane *lane;
	uint64_t ticket;

	c->ret = hr_lane_open(c->dev, NULL, &lane);
	if (c->ret)
		return NULL;
	c->ret = lane->ops->move(lane, HR__HOST_TO_DEVICE, &move, 1, HR_DTYPE_U16, HR_DTYPE_I64,
				 &ticket);
	if (c->ret > 0)
		c->ret = lane->ops->wait(lane, ticket, 30 * SECOND);
	hr_lane_close(lane);
	return NULL;
}

/* Each kernel is loaded once, when it is needed first, however many threads need it. */
static void test_kernels_one_by_one(void **state)
{
	uint8_t *ring = ring_open(4096);
	struct converter *c = converters;
	struct hr_device *dev;
	void *seen;

	fake.reset();
	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	assert_int_equal(dev->ops->pin(dev, ring, 4096, 0, &seen), 0);
	assert_int_equal(fake.get("modules"), 1);
	for (uint32_t i = 0; i < HR_ARRAY_LEN(converters); i++) {
		converters[i] = (struct converter){.dev = dev, .ring = ring};
		assert_int_equal(hr_buffer_alloc(dev, 256, &converters[i].buf), 0);
	}
	fake.inject("cuModuleLoadData", 1, OUT_OF_MEMORY);
	convert(c);
	assert_int_equal(c->ret, -ENOMEM);
	assert_non_null(strstr(hr_error_detail(), "kernel"));
	assert_int_equal(fake.get("modules"), 1);
	for (uint32_t i = 0; i < HR_ARRAY_LEN(converters); i++)
		assert_int_equal(
			pthread_create(&converters[i].thread, NULL, convert, &converters[i]), 0);
	for (uint32_t i = 0; i < HR_ARRAY_LEN(converters); i++) {
		assert_int_equal(pthread_join(converters[i].thread, NULL), 0);
		assert_int_equal(converters[i].ret, 0);
		assert_int_equal(hr_buffer_free(converters[i].buf), 0);
	}
	assert_int_equal(fake.get("modules"), 2);
	dev->ops->unpin(dev, ring, 4096);
	hr_device_close(dev);
	assert_int_equal(fake.get("modules"), 0);
	munmap(ring, 4096);
}

/* Without kernels a device still copies, however small the pieces, but converts nothing. */
static void test_no_kernels(void **state)
{
	struct hr_device_info info;
	struct hr_device *dev;
	struct hr_buffer *buf;
	struct hr_lane *lane;
	struct hr__move moves[2];
	uint8_t got[300], *ring = ring_open(4096);
	uint64_t ticket;
	void *seen;

	fake.inject("cuModuleLoadData", 1, 209);
	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	hr_device_info(dev, &info);
	assert_false(info.kernels);
	assert_non_null(strstr(info.kernels_reason, "209"));
	assert_int_equal(dev->caps & HR__MEM_CAP_CAST, 0);
	assert_int_equal(dev->ops->pin(dev, ring, 4096, 0, &seen), 0);
	assert_int_equal(hr_buffer_alloc(dev, 300, &buf), 0);
	assert_int_equal(hr_lane_open(dev, NULL, &lane), 0);
	memset(ring, 7, 4096);
	moves[0] = (struct hr__move){ring, buf->ptr, 100};
	moves[1] = (struct hr__move){ring + 500, (char *)buf->ptr + 200, 100};
	assert_int_equal(lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 2, 0, 0, &ticket), 2);
	assert_int_equal(lane->ops->wait(lane, ticket, 30 * SECOND), 0);
	assert_int_equal(hr_buffer_copy_out(buf, 0, got, 300), 0);
	assert_int_equal(got[99], 7);
	assert_int_equal(got[100], 0xa5);
	assert_int_equal(got[200], 7);
	assert_int_equal(lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 2, HR_DTYPE_U8,
					 HR_DTYPE_I32, &ticket),
			 -ENOTSUP);
	hr_lane_close(lane);
	assert_int_equal(hr_buffer_free(buf), 0);
	dev->ops->unpin(dev, ring, 4096);
	hr_device_close(dev);
	munmap(ring, 4096);
}

/*
 * Pieces that continue each other go as one copy, unless the driver refuses: they may lie in two
 * allocations side by side, which no copy may cross.
 */
static void test_neighbours(void **state)
{
	struct hr_device *dev;
	struct hr_buffer *buf;
	struct hr_lane *lane;
	struct hr__move moves[3];
	uint8_t got[300], *ring = ring_open(4096);
	uint64_t ticket;
	void *seen;

	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	assert_int_equal(dev->ops->pin(dev, ring, 4096, 0, &seen), 0);
	assert_int_equal(hr_buffer_alloc(dev, 300, &buf), 0);
	assert_int_equal(hr_lane_open(dev, NULL, &lane), 0);
	for (uint32_t i = 0; i < 3; i++) {
		memset(ring + 100 * i, 7 + (int)i, 100);
		moves[i] = (struct hr__move){ring + 100 * i, (char *)buf->ptr + 100 * i, 100};
	}
	assert_int_equal(lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 3, 0, 0, &ticket), 1);
	fake.inject("cuMemcpyHtoDAsync_v2", 1, 1);
	assert_int_equal(lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 3, 0, 0, &ticket), 3);
	assert_int_equal(lane->ops->wait(lane, ticket, 30 * SECOND), 0);
	assert_int_equal(hr_buffer_copy_out(buf, 0, got, 300), 0);
	assert_memory_equal(got, ring, 300);
	/* What is refused piece by piece, too, is a failure. */
	fake.inject("cuMemcpyHtoDAsync_v2", 1, 1);
	fake.inject("cuMemcpyHtoDAsync_v2", 3, 1);
	assert_int_equal(lane->ops->move(lane, HR__HOST_TO_DEVICE, moves, 3, 0, 0, &ticket),
			 -EINVAL);
	hr_lane_close(lane);
	assert_int_equal(hr_buffer_free(buf), 0);
	dev->ops->unpin(dev, ring, 4096);
	hr_device_close(dev);
	munmap(ring, 4096);
}

static void test_no_register(void **state)
{
	struct hr_device *dev;
	uint8_t *ring = ring_open(4096);
	void *seen = NULL;

	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	fake.set("no_register", 1);
	assert_int_equal(dev->ops->pin(dev, ring, 4096, 0, &seen), -ENOTSUP);
	assert_null(seen);
	hr_device_close(dev);
	munmap(ring, 4096);
}

/* The device goes away in the middle: an error within the bound, no hang. */
static void test_lost(void **state)
{
	struct hr__move m;
	struct hr_device *dev;
	struct hr_buffer *buf;
	struct hr_lane *lane;
	uint64_t ticket, passed;
	uint8_t *ring = ring_open(4096);
	void *seen;
	int ret = 0;

	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	assert_int_equal(dev->ops->pin(dev, ring, 4096, 0, &seen), 0);
	assert_int_equal(hr_buffer_alloc(dev, 32768, &buf), 0);
	assert_int_equal(hr_lane_open(dev, NULL, &lane), 0);
	m = (struct hr__move){ring, buf->ptr, 4096};
	fake.set("lost_after", 7);
	for (int i = 0; i < 50 && ret >= 0; i++) {
		ret = lane->ops->move(lane, HR__HOST_TO_DEVICE, &m, 1, HR_DTYPE_U16, HR_DTYPE_I64,
				      &ticket);
		if (ret >= 0)
			ret = lane->ops->wait(lane, ticket, 30 * SECOND);
	}
	assert_int_equal(ret, -HR_E_DEVICE_LOST);
	assert_int_equal(lane->ops->poll(lane, &passed), -HR_E_DEVICE_LOST);
	assert_true(*hr_error_detail());
	hr_lane_close(lane);
	/* The real driver would refuse these too; the pretended one is well again to count. */
	fake.reset();
	assert_int_equal(hr_buffer_free(buf), 0);
	dev->ops->unpin(dev, ring, 4096);
	hr_device_close(dev);
	munmap(ring, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_each_call, fake_clean),
		cmocka_unit_test_teardown(test_no_driver, fake_clean),
		cmocka_unit_test_teardown(test_kernels_one_by_one, fake_clean),
		cmocka_unit_test_teardown(test_no_kernels, fake_clean),
		cmocka_unit_test_teardown(test_neighbours, fake_clean),
		cmocka_unit_test_teardown(test_no_register, fake_clean),
		cmocka_unit_test_teardown(test_lost, fake_clean),
	};

	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

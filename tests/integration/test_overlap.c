/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_overlap.c - the drive goes on while the device copies: elsewhere a piece is read, copied,
 * waited for, and only then the next one is read. The pretended GPU stands still until the drive has
 * delivered more; who waits for its copies runs into the engine's time-out.
 */
#include <liburing.h>

#include <headrace/headrace.h>

#include "base/sys.h"
#include "support/support.h"
#include "unit/fake_control.h"

#define FILE_LEN (3u << 20)
#define ENOUGH 8 /* pieces that must arrive while the first copies are under way */

static struct hr__sys sys;
static int arrived_during; /* since something was given to the device */

static int watched_result(const struct io_uring_cqe *cqe)
{
	if (cqe->res > 0 && fake.get("copies") + fake.get("launches") > 0 &&
	    ++arrived_during == ENOUGH)
		fake.set("delay_us", 0);
	return cqe->res;
}

static void test_overlap(void **state)
{
	struct hr_engine_options o = {
		.depth = 4,
		.staging_bytes = 4 << 20,
		.request_bytes = 128 << 10,
		.timeout_ns = 20000000000ull,
		.direct = true,
	};
	char *dir = test_mkdir(), *path = test_file(dir, "data", FILE_LEN);
	uint8_t *image = malloc(FILE_LEN);
	struct hr_queue_info queue;
	struct hr_file_info info;
	struct hr_device *dev;
	struct hr_engine *e;
	struct hr_buffer *buf;
	struct hr_file *file;

	sys = hr__sys_real;
	sys.ring_result = watched_result;
	hr__sys = &sys;
	assert_int_equal(hr_device_open("cuda:0", &dev), 0);
	assert_int_equal(hr_engine_open(dev, &o, &e), 0);
	assert_int_equal(hr_buffer_alloc(dev, FILE_LEN, &buf), 0);
	assert_int_equal(hr_file_open(path, HR_FILE_READ, &file), 0);
	hr_engine_queue(e, &queue);
	hr_file_info(file, &info);
	if (strncmp(queue.name, "io_uring", 8) || !info.direct) {
		print_message("needs io_uring and a file with direct I/O\n");
		goto out;
	}
	assert_int_equal(fake.get("copies") + fake.get("launches"), 0);
	fake.set("delay_us", 60000000);
	assert_int_equal(hr_read(e, file, 0, FILE_LEN, buf, 0), FILE_LEN);
	assert_true(arrived_during >= ENOUGH);
	assert_int_equal(hr_buffer_copy_out(buf, 0, image, FILE_LEN), 0);
	for (uint64_t i = 0; i < FILE_LEN; i++)
		assert_int_equal(image[i], test_pattern(i));
out:
	hr_file_close(file);
	assert_int_equal(hr_engine_close(e), 0);
	assert_int_equal(hr_buffer_free(buf), 0);
	hr_device_close(dev);
	free(image);
	free(path);
	test_rmdir(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_overlap, fake_clean),
	};

	return cmocka_run_group_tests(tests, fake_setup, NULL);
}

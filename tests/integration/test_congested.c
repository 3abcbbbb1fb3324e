/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integration/test_congested.c - FUSE lets 12 asynchronous reads wait; who sends one more sleeps in the
 * kernel. The deadline of a read must hold all the same.
 *
 * Usage: test_congested PATH-OF-slowfs DEVICE QUEUE, QUEUE one of uring, threads. Exit 77: no FUSE.
 */
#include <sys/mount.h>

#include "slowfs_fixture.h"

#define SHORT_NS 50000000ull

static int set_up(void **state)
{
	touch("reset");
	assert_int_equal(hr_device_open(device_name, &t.dev), 0);
	assert_int_equal(hr_buffer_alloc(t.dev, BUFFER_LEN, &t.buf), 0);
	t.image = malloc(BUFFER_LEN);
	poison();
	return 0;
}

static int tear_down(void **state)
{
	touch("release");
	assert_int_equal(hr_buffer_free(t.buf), 0);
	hr_device_close(t.dev);
	free(t.image);
	return 0;
}

/* Memory of the caller: after free has returned 0, nobody writes to it any more. */
static void test_registered(void **state)
{
	struct hr_engine *e;
	struct hr_file *gate;
	struct hr_buffer *buf;
	uint8_t *mem;

	if (strcmp(device_name, "host") != 0)
		skip();
	mem = malloc(1 << 20);
	e = open_engine(SHORT_NS);
	gate = open_file("gate");
	assert_int_equal(hr_buffer_register(t.dev, mem, 1 << 20, &buf), 0);
	assert_int_equal(hr_read(e, gate, 0, 1 << 20, buf, 0), -ETIMEDOUT);
	assert_int_equal(hr_buffer_free(buf), -EBUSY);
	touch("release");
	for (int i = 0; hr_buffer_free(buf) == -EBUSY; i++) {
		struct hr_io *none;

		assert_true(i < 1000);
		assert_int_equal(hr_reap(e, &none, 1, 1, SHORT_NS), 0);
	}
	memset(mem, TEST_GUARD, 1 << 20);
	assert_int_equal(hr_engine_close(e), 0);
	for (int i = 0; i < 1 << 20; i++)
		assert_int_equal(mem[i], TEST_GUARD);
	free(mem);
	hr_file_close(gate);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_registered, set_up, tear_down),
	};
	int failed;

	if (argc != 4)
		return 2;
	slowfs = argv[1];
	device_name = argv[2];
	queue_name = argv[3];
	t.dir = test_mkdir();
	if (!mount_slow("5", "4", "12")) {
		printf("SKIP: FUSE cannot be mounted here\n");
		test_rmdir(t.dir);
		return 77;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	umount2(t.dir, MNT_DETACH);
	test_rmdir(t.dir);
	return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_driver - opening and closing the driver, and what it says about itself. How: counts of users after
 * each call, structures with guard bytes behind them for callers of every age, the old setters, and
 * what is left of handles, buffers and the GPU's own objects after the last close.
 */
#include "fixture.h"

/* The name that the header hides behind a macro, as old binaries call it. */
#undef cuFileDriverClose
CUfileError_t cuFileDriverClose(void);

static int closed(void **state)
{
	assert_int_equal(cuFileUseCount(), 0);
	return 0;
}

static void counts_uses(void **state)
{
	assert_err(cuFileDriverClose_v2(), CU_FILE_DRIVER_NOT_INITIALIZED);
	assert_err(cuFileDriverClose(), CU_FILE_DRIVER_NOT_INITIALIZED);
	assert_int_equal(cuFileUseCount(), 0);
	for (int i = 1; i <= 3; i++) {
		assert_ok(cuFileDriverOpen());
		assert_int_equal(cuFileUseCount(), i);
	}
	for (int i = 2; i >= 0; i--) {
		assert_ok(cuFileDriverClose_v2());
		assert_int_equal(cuFileUseCount(), i);
	}
	assert_err(cuFileDriverClose_v2(), CU_FILE_DRIVER_NOT_INITIALIZED);
}

static void opens_again(void **state)
{
	for (int i = 0; i < 20; i++) {
		assert_ok(cuFileDriverOpen());
		assert_ok(cuFileDriverClose_v2());
	}
}

/* Before 1.4 there was no count: one close was the end for everybody. */
static void old_close_ends_all(void **state)
{
	for (int i = 0; i < 3; i++)
		assert_ok(cuFileDriverOpen());
	assert_ok(cuFileDriverClose());
	assert_int_equal(cuFileUseCount(), 0);
	assert_err(cuFileDriverClose(), CU_FILE_DRIVER_NOT_INITIALIZED);
}

static void a_handle_opens(void **state)
{
	struct target t;

	target_open(&t, PAGE, O_RDONLY);
	assert_int_equal(cuFileUseCount(), 1);
	assert_ok(cuFileDriverOpen());
	assert_int_equal(cuFileUseCount(), 2);
	target_close(&t);
	assert_int_equal(cuFileUseCount(), 2);
	assert_ok(cuFileDriverClose_v2());
	assert_ok(cuFileDriverClose_v2());
}

/* Several programs register their memory before they open the driver. */
static void a_buffer_opens(void **state)
{
	void *p = mem_alloc(PAGE);

	assert_ok(cuFileBufRegister(p, PAGE, 0));
	assert_int_equal(cuFileUseCount(), 1);
	assert_ok(cuFileDriverOpen());
	assert_int_equal(cuFileUseCount(), 2);
	assert_ok(cuFileBufDeregister(p));
	assert_ok(cuFileDriverClose_v2());
	assert_ok(cuFileDriverClose_v2());
	mem_free(p);
}

static void last_close_forgets(void **state)
{
	void *p = mem_alloc(PAGE);
	struct target t;

	target_open(&t, PAGE, O_RDONLY);
	assert_ok(cuFileBufRegister(p, PAGE, 0));
	assert_ok(cuFileDriverClose_v2());
	assert_int_equal(cuFileUseCount(), 0);
	assert_err(cuFileBufDeregister(p), CU_FILE_DRIVER_CLOSING);
	assert_int_equal(cuFileRead(t.handle, p, PAGE, 0, 0), -1);
	assert_true(errno == EINVAL || errno == CU_FILE_HANDLE_NOT_REGISTERED ||
		    errno == CU_FILE_DRIVER_CLOSING || errno == CU_FILE_DRIVER_NOT_INITIALIZED);
	cuFileHandleDeregister(t.handle);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	/* The same descriptor and the same memory are new again. */
	assert_ok(handle_of(t.fd, &t.handle));
	assert_ok(cuFileBufRegister(p, PAGE, 0));
	mem_fill(p, TEST_GUARD, PAGE);
	assert_int_equal(cuFileRead(t.handle, p, PAGE, 0, 0), PAGE);
	mem_check(p, PAGE, 0, PAGE, 0);
	assert_ok(cuFileBufDeregister(p));
	target_close(&t);
	assert_ok(cuFileDriverClose_v2());
	mem_free(p);
}

static void version(void **state)
{
	int v = -1;

	assert_err(cuFileGetVersion(NULL), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileGetVersion(&v));
	/* Not more than 1.18: from 1.19 on callers would expect longer statistics. */
	assert_in_range(v, 1150, 1180);
	assert_int_equal(v % 10, 0);
}

/* What a library without a kernel path of its own answers, with nothing configured. */
static void properties(void **state)
{
	struct {
		CUfileDrvProps_t p;
		uint8_t guard[256];
	} got;

	assert_ok(cuFileDriverOpen());
	memset(&got, TEST_GUARD, sizeof(got));
	assert_ok(cuFileDriverGetProperties(&got.p));
	for (size_t i = 0; i < sizeof(got.guard); i++)
		assert_int_equal(got.guard[i], TEST_GUARD);
	/* Users read "version not 0" as "direct". */
	assert_int_equal(got.p.nvfs.major_version, 0);
	assert_int_equal(got.p.nvfs.minor_version, 0);
	assert_int_equal(got.p.nvfs.poll_thresh_size, 4);
	assert_int_equal(got.p.nvfs.max_direct_io_size, 1024);
	assert_int_equal(got.p.nvfs.dstatusflags, 0);
	assert_int_equal(got.p.nvfs.dcontrolflags, 1u << CU_FILE_ALLOW_COMPAT_MODE);
	assert_int_equal(got.p.fflags, 0xf);
	assert_int_equal(got.p.max_device_cache_size, 131072);
	assert_int_equal(got.p.per_buffer_cache_size, 0);
	assert_int_equal(got.p.max_device_pinned_mem_size, 33554432);
	assert_int_equal(got.p.max_batch_io_size, 128);
	assert_int_equal(got.p.max_batch_io_timeout_msecs, 5);
	assert_err(cuFileDriverGetProperties(NULL), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileDriverClose_v2());
}

static void properties_of_a_closed_driver(void **state)
{
	CUfileDrvProps_t p;

	memset(&p, TEST_GUARD, sizeof(p));
	/* Either it opens, as reads do, or it says that nothing is open; never rubbish. */
	if (cuFileDriverGetProperties(&p).err == CU_FILE_SUCCESS)
		assert_int_equal(p.max_batch_io_size, 128);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
}

static void old_setters(void **state)
{
	CUfileDrvProps_t p;
	CUfileOpError e;

	assert_ok(cuFileDriverOpen());
	e = cuFileDriverSetMaxDirectIOSize(0).err;
	assert_true(e == CU_FILE_DRIVER_UNSUPPORTED_LIMIT || e == CU_FILE_INVALID_VALUE);
	assert_err(cuFileDriverSetMaxDirectIOSize(SIZE_MAX / 2), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	assert_ok(cuFileDriverSetMaxDirectIOSize(4096));
	assert_ok(cuFileDriverGetProperties(&p));
	assert_int_equal(p.nvfs.max_direct_io_size, 4096);
	assert_ok(cuFileDriverSetPollMode(true, 64));
	assert_ok(cuFileDriverGetProperties(&p));
	assert_int_equal(p.nvfs.poll_thresh_size, 64);
	assert_true(p.nvfs.dcontrolflags & 1u << CU_FILE_USE_POLL_MODE);
	assert_ok(cuFileDriverSetPollMode(false, 4));
	assert_ok(cuFileDriverGetProperties(&p));
	assert_false(p.nvfs.dcontrolflags & 1u << CU_FILE_USE_POLL_MODE);
	/* Programs call these two and some stop at an error: 1.17 takes them. */
	assert_ok(cuFileDriverSetMaxCacheSize(65536));
	assert_ok(cuFileDriverSetMaxPinnedMemSize(65536));
	assert_ok(cuFileDriverClose_v2());
}

/* They change the running driver, so there must be one. */
static void old_setters_of_a_closed_driver(void **state)
{
	cuFileDriverSetMaxDirectIOSize(1024);
	cuFileDriverSetMaxCacheSize(1024);
	cuFileDriverSetMaxPinnedMemSize(1024);
	cuFileDriverSetPollMode(true, 4);
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
}

static void bar_size(void **state)
{
	size_t kb = 1;

	assert_ok(cuFileDriverOpen());
	assert_err(cuFileGetBARSizeInKB(0, NULL), CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetBARSizeInKB(-1, &kb), CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetBARSizeInKB(4096, &kb), CU_FILE_INVALID_VALUE);
	if (on_gpu)
		assert_ok(cuFileGetBARSizeInKB(0, &kb));
	else
		assert_err(cuFileGetBARSizeInKB(0, &kb), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileDriverClose_v2());
}

/* The driver's objects that the library made are gone after the last close. */
static void leaves_nothing_on_the_gpu(void **state)
{
	static const char *const alive[] = {"allocs",  "bytes",  "host_allocs", "registered",
					    "streams", "events", "modules",     "pushed"};
	long before[8];
	struct target t;
	void *p;

	if (!on_gpu || !cuda.fake_get)
		skip();
	for (int i = 0; i < 8; i++)
		before[i] = cuda.fake_get(alive[i]);
	p = mem_alloc(MIB);
	target_open(&t, MIB, O_RDONLY);
	assert_ok(cuFileBufRegister(p, MIB, 0));
	assert_int_equal(cuFileRead(t.handle, p, MIB, 0, 0), MIB);
	target_close(&t);
	assert_ok(cuFileBufDeregister(p));
	mem_free(p);
	assert_ok(cuFileDriverClose_v2());
	for (int i = 0; i < 8; i++) {
		if (cuda.fake_get(alive[i]) != before[i])
			fail_msg("%s: %ld before, %ld after", alive[i], before[i],
				 cuda.fake_get(alive[i]));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(counts_uses, closed),
		cmocka_unit_test_setup(opens_again, closed),
		cmocka_unit_test_setup(old_close_ends_all, closed),
		cmocka_unit_test_setup(a_handle_opens, closed),
		cmocka_unit_test_setup(a_buffer_opens, closed),
		cmocka_unit_test_setup(last_close_forgets, closed),
		cmocka_unit_test_setup(version, closed),
		cmocka_unit_test_setup(properties, closed),
		cmocka_unit_test_setup(properties_of_a_closed_driver, closed),
		cmocka_unit_test_setup(old_setters, closed),
		cmocka_unit_test_setup(old_setters_of_a_closed_driver, closed),
		cmocka_unit_test_setup(bar_size, closed),
		cmocka_unit_test_setup(leaves_nothing_on_the_gpu, closed),
	};

	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, NULL, NULL));
}

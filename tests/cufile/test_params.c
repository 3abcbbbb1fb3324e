/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_params - parameters by name: what they are at first, what they may be, when they may be set, and that
 * they are what the running driver goes by. How: tables of the published numbers. Those that need a
 * fresh process or a configuration file are in test_config.
 */
#include "fixture.h"

#define COUNT 12

/* A running driver with nothing configured. */
static const size_t defaults[COUNT] = {0, 128, 4, 8192, 4, 1024, 131072, 1024, 33554432, 128, 4, 5};
static const size_t least[COUNT] = {0, 1, 0, 4, 0, 64, 0, 64, 64, 1, 4, 1};
/* 0: not known before the driver runs. */
static const size_t most[COUNT] = {0,     256, 32,  4294967295,        8,   16384, 0,
				   16384, 0,   256, 18014398509481980, 1000};

static int closed(void **state)
{
	while (cuFileUseCount() > 0)
		assert_ok(cuFileDriverClose_v2());
	return 0;
}

static size_t get(int which)
{
	size_t value = 12345;

	assert_ok(cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)which, &value));
	return value;
}

static bool get_bool(int which)
{
	bool value = false;

	assert_ok(cuFileGetParameterBool((CUFileBoolConfigParameter_t)which, &value));
	return value;
}

/* First of all tests: nothing was set yet. */
static void built_in(void **state)
{
	char text[32];

	for (int open = 0; open < 2; open++) {
		for (int i = 0; i < COUNT; i++) {
			if (get(i) != defaults[i])
				fail_msg("parameter %d is %zu, not %zu", i, get(i), defaults[i]);
		}
		for (int i = 0; i < COUNT; i++) {
			bool want = i == CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE ||
				    i == CUFILE_PARAM_EXECUTION_PARALLEL_IO ||
				    i == CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY;

			if (get_bool(i) != want)
				fail_msg("boolean %d is not %d", i, want);
		}
		assert_ok(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)));
		assert_string_equal(text, "ERROR");
		if (!open)
			assert_ok(cuFileDriverOpen());
	}
}

static void limits(void **state)
{
	size_t low = 7, high = 7;

	for (int i = 1; i < COUNT; i++) {
		assert_ok(cuFileGetParameterMinMaxValue((CUFileSizeTConfigParameter_t)i, &low,
							&high));
		if (low != least[i] || (most[i] && high != most[i]))
			fail_msg("parameter %d: %zu to %zu", i, low, high);
	}
	assert_err(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROFILE_STATS, &low, &high),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetParameterMinMaxValue((CUFileSizeTConfigParameter_t)COUNT, &low, &high),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, NULL, &high),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &low, NULL),
		   CU_FILE_INVALID_VALUE);
}

/* The limits of these two are known when the driver runs. */
static void limits_of_a_running_driver(void **state)
{
	size_t low = 7, high = 0;

	assert_ok(cuFileDriverOpen());
	assert_ok(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB,
						&low, &high));
	assert_true(high >= low && high > 0);
	assert_ok(cuFileGetParameterMinMaxValue(
		CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, &low, &high));
	assert_true(high >= low && high > 0);
}

static void no_such_parameter(void **state)
{
	size_t value = 1;
	bool flag = true;
	char text[64];

	for (int i = 0; i < 4; i++) {
		static const int wrong[] = {14, 99, -1, INT32_MAX};

		assert_err(cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)wrong[i], &value),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileSetParameterSizeT((CUFileSizeTConfigParameter_t)wrong[i], 1),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetParameterBool((CUFileBoolConfigParameter_t)wrong[i], &flag),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileSetParameterBool((CUFileBoolConfigParameter_t)wrong[i], true),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetParameterString((CUFileStringConfigParameter_t)wrong[i], text,
						    sizeof(text)),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileSetParameterString((CUFileStringConfigParameter_t)wrong[i], "x"),
			   CU_FILE_INVALID_VALUE);
	}
	assert_err(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, NULL),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, NULL),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, NULL, 10),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, NULL),
		   CU_FILE_INVALID_VALUE);
}

/* While closed, values are taken as they are and read back; open, they cannot be set. */
static void staged(void **state)
{
	/* Those of NVIDIA's own test, the last but two beyond what the driver admits. */
	static const struct {
		CUFileSizeTConfigParameter_t which;
		size_t value;
	} sizes[] = {
		{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, 512},
		{CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB, 128},
		{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, 2048},
		{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 16},
		{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 32},
		{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 8},
		{CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB, 4},
		{CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, 4},
		{CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, 64},
		{CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, 4096},
		{CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 5000},
	};
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	CUfileDrvProps_t p;
	CUfileBatchHandle_t b = NULL;

	for (size_t i = 0; i < count; i++)
		assert_ok(cuFileSetParameterSizeT(sizes[i].which, sizes[i].value));
	for (size_t i = 0; i < count; i++)
		assert_int_equal(get((int)sizes[i].which), sizes[i].value);
	assert_int_equal(cuFileUseCount(), 0);
	assert_ok(cuFileDriverOpen());
	for (size_t i = 0; i + 1 < count; i++)
		assert_int_equal(get((int)sizes[i].which), sizes[i].value);
	/* Out of range: replaced without a word. */
	assert_in_range(get(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS), 1, 1000);
	assert_ok(cuFileDriverGetProperties(&p));
	assert_int_equal(p.max_device_cache_size, 512);
	assert_int_equal(p.max_device_pinned_mem_size, 2048);
	assert_int_equal(p.max_batch_io_size, 16);
	assert_int_equal(p.nvfs.max_direct_io_size, 4096);
	assert_int_equal(p.nvfs.poll_thresh_size, 64);
	assert_err(cuFileBatchIOSetUp(&b, 17), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileBatchIOSetUp(&b, 16));
	cuFileBatchIODestroy(b);
	for (size_t i = 0; i < count; i++)
		assert_err(cuFileSetParameterSizeT(sizes[i].which, sizes[i].value),
			   CU_FILE_DRIVER_ALREADY_OPEN);
	assert_err(cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, true),
		   CU_FILE_DRIVER_ALREADY_OPEN);
	assert_err(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "INFO"),
		   CU_FILE_DRIVER_ALREADY_OPEN);
	assert_ok(cuFileDriverClose_v2());
	for (int i = 1; i < COUNT; i++)
		assert_ok(cuFileSetParameterSizeT((CUFileSizeTConfigParameter_t)i, defaults[i]));
}

static void booleans(void **state)
{
	for (int i = 0; i < COUNT; i++) {
		CUFileBoolConfigParameter_t which = (CUFileBoolConfigParameter_t)i;
		bool before = get_bool(i);

		assert_ok(cuFileSetParameterBool(which, !before));
		assert_int_equal(get_bool(i), !before);
		assert_ok(cuFileSetParameterBool(which, before));
		assert_int_equal(get_bool(i), before);
	}
}

/* Everything changed in the ways that leave the driver usable: it opens, and bytes are right. */
static void works_with_all_switches(void **state)
{
	static const CUFileBoolConfigParameter_t switches[] = {
		CUFILE_PARAM_PROPERTIES_USE_POLL_MODE,
		CUFILE_PARAM_FORCE_COMPAT_MODE,
		CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE,
		CUFILE_PARAM_PROFILE_NVTX,
		CUFILE_PARAM_USE_PCIP2PDMA,
		CUFILE_PARAM_PREFER_IO_URING,
		CUFILE_PARAM_FORCE_ODIRECT_MODE,
		CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION,
		CUFILE_PARAM_STREAM_MEMOPS_BYPASS,
	};
	void *p = mem_alloc(MIB);

	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
		struct target t;

		assert_ok(cuFileSetParameterBool(switches[i], true));
		target_open(&t, MIB, O_RDONLY);
		mem_fill(p, TEST_GUARD, MIB);
		assert_int_equal(cuFileRead(t.handle, p, MIB / 2, 1, 3), MIB / 2);
		mem_check(p, MIB, 3, MIB / 2, 1);
		target_close(&t);
		assert_ok(cuFileDriverClose_v2());
		assert_ok(cuFileSetParameterBool(switches[i], false));
	}
	mem_free(p);
}

/* With neither compat mode nor a direct path there is nothing to open. */
static void compat_mode_forbidden(void **state)
{
	CUfileHandle_t handle = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_ok(cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, false));
	assert_err(cuFileDriverOpen(), CU_FILE_DRIVER_NOT_INITIALIZED);
	assert_int_equal(cuFileUseCount(), 0);
	assert_true(handle_of(fd, &handle).err != CU_FILE_SUCCESS);
	assert_null(handle);
	assert_ok(cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, true));
	assert_ok(cuFileDriverOpen());
	close(fd);
}

static void no_system_memory(void **state)
{
	char bytes[PAGE];
	struct target t;

	assert_ok(cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, false));
	target_open(&t, PAGE, O_RDONLY);
	if (on_gpu)
		assert_int_equal(cuFileRead(t.handle, bytes, PAGE, 0, 0), -1);
	target_close(&t);
	assert_ok(cuFileDriverClose_v2());
	assert_ok(cuFileSetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, true));
}

static void strings(void **state)
{
	static const char *const levels[] = {"NOTICE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};
	struct {
		char text[16];
		char guard[16];
	} got;

	for (int i = 0; i < 6; i++) {
		int len = (int)strlen(levels[i]);

		assert_ok(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, levels[i]));
		memset(&got, TEST_GUARD, sizeof(got));
		assert_ok(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, got.text, len + 1));
		assert_string_equal(got.text, levels[i]);
		for (int k = len + 1; k < 32; k++)
			assert_int_equal(((uint8_t *)&got)[k], TEST_GUARD);
		/* No room for the end. */
		assert_err(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, got.text, len),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, got.text, 0),
			   CU_FILE_INVALID_VALUE);
		assert_err(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, got.text, -1),
			   CU_FILE_INVALID_VALUE);
	}
	assert_ok(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "ERROR"));
	assert_ok(cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, "."));
	assert_ok(cuFileGetParameterString(CUFILE_PARAM_LOG_DIR, got.text, sizeof(got.text)));
	assert_string_equal(got.text, ".");
	/* The variable is not set here. */
	assert_err(
		cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, got.text, sizeof(got.text)),
		CU_FILE_INVALID_VALUE);
	assert_true(cuFileSetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, "").err !=
		    CU_FILE_SUCCESS);
}

/* A text of any length is refused or kept whole. */
static void long_strings(void **state)
{
	char *text = malloc(100000), *got = malloc(100000);

	memset(text, 'a', 99999);
	text[99999] = 0;
	if (cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, text).err == CU_FILE_SUCCESS) {
		assert_ok(cuFileGetParameterString(CUFILE_PARAM_LOG_DIR, got, 100000));
		assert_string_equal(got, text);
	}
	assert_ok(cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, "."));
	free(text);
	free(got);
}

typedef CUfileError_t (*set_slabs_fn)(const size_t *, const size_t *, int);
typedef CUfileError_t (*get_slabs_fn)(size_t *, size_t *, int);

static void slabs(set_slabs_fn set, get_slabs_fn get_slabs)
{
	static const size_t kb[] = {4, 1024, 16384}, counts[] = {64, 32, 16};
	size_t a[4], b[4];

	assert_err(set(NULL, counts, 3), CU_FILE_INVALID_VALUE);
	assert_err(set(kb, NULL, 3), CU_FILE_INVALID_VALUE);
	assert_err(set(kb, counts, 0), CU_FILE_INVALID_VALUE);
	assert_err(set(kb, counts, -1), CU_FILE_INVALID_VALUE);
	assert_ok(set(kb, counts, 3));
	a[3] = b[3] = 77;
	assert_ok(get_slabs(a, b, 3));
	assert_memory_equal(a, kb, sizeof(kb));
	assert_memory_equal(b, counts, sizeof(counts));
	assert_int_equal(a[3] + b[3], 154);
	/* The length of the setting is part of it. */
	assert_err(get_slabs(a, b, 2), CU_FILE_INVALID_VALUE);
	assert_err(get_slabs(a, b, 4), CU_FILE_INVALID_VALUE);
	assert_err(get_slabs(NULL, b, 3), CU_FILE_INVALID_VALUE);
	assert_err(get_slabs(a, NULL, 3), CU_FILE_INVALID_VALUE);
	assert_ok(cuFileDriverOpen());
	assert_err(set(kb, counts, 3), CU_FILE_DRIVER_ALREADY_OPEN);
	assert_ok(get_slabs(a, b, 3));
	assert_memory_equal(a, kb, sizeof(kb));
}

static void posix_slabs(void **state)
{
	slabs(cuFileSetParameterPosixPoolSlabArray, cuFileGetParameterPosixPoolSlabArray);
}

static void gpu_slabs(void **state)
{
	slabs(cuFileSetParameterGpuBounceBufferSlabArray,
	      cuFileGetParameterGpuBounceBufferSlabArray);
}

/* On x86 there is one kind of peer traffic to choose. */
static void peer_flags(void **state)
{
	CUfileP2PFlags_t flags = (CUfileP2PFlags_t)0;
	CUfileDriverStatusFlags_t nvme = CU_FILE_NVME_SUPPORTED;

	assert_err(cuFileDriverGetP2PFlags(nvme, NULL), CU_FILE_INVALID_VALUE);
	assert_err(cuFileDriverGetP2PFlags((CUfileDriverStatusFlags_t)CU_FILE_MAX_TARGET_TYPES,
					   &flags),
		   CU_FILE_INVALID_VALUE);
	assert_err(cuFileDriverSetP2PFlags((CUfileDriverStatusFlags_t)CU_FILE_MAX_TARGET_TYPES,
					   (CUfileP2PFlags_t)CU_FILE_P2P_FLAG_PCI_P2PDMA),
		   CU_FILE_INVALID_VALUE);
	for (int i = 1; i < 8; i++)
		assert_err(cuFileDriverSetP2PFlags(nvme, (CUfileP2PFlags_t)(1 << i)),
			   CU_FILE_INVALID_VALUE);
#ifdef __x86_64__
	assert_ok(cuFileDriverSetP2PFlags(nvme, (CUfileP2PFlags_t)CU_FILE_P2P_FLAG_PCI_P2PDMA));
	assert_ok(cuFileDriverGetP2PFlags(nvme, &flags));
	assert_int_equal(flags, CU_FILE_P2P_FLAG_PCI_P2PDMA);
#endif
}

static void topology(void **state)
{
	char *dir = test_mkdir(), path[600], line[256] = "";
	FILE *file;

	assert_err(cuFileExportPCIeTopology(NULL), CU_FILE_INVALID_VALUE);
	assert_err(cuFileExportPCIeTopology(""), CU_FILE_INVALID_VALUE);
	assert_err(cuFileExportPCIeTopology("/"), CU_FILE_INVALID_VALUE);
	snprintf(path, sizeof(path), "%s/none/topology", dir);
	assert_err(cuFileExportPCIeTopology(path), CU_FILE_INVALID_VALUE);
	snprintf(path, sizeof(path), "%s/topology", dir);
	assert_ok(cuFileExportPCIeTopology(path));
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_int_equal(line[0], '#');
	assert_non_null(strstr(line, "cuFile"));
	fclose(file);
	test_rmdir(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(built_in, closed),
		cmocka_unit_test_teardown(limits, closed),
		cmocka_unit_test_teardown(limits_of_a_running_driver, closed),
		cmocka_unit_test_teardown(no_such_parameter, closed),
		cmocka_unit_test_teardown(staged, closed),
		cmocka_unit_test_teardown(booleans, closed),
		cmocka_unit_test_teardown(works_with_all_switches, closed),
		cmocka_unit_test_teardown(compat_mode_forbidden, closed),
		cmocka_unit_test_teardown(no_system_memory, closed),
		cmocka_unit_test_teardown(strings, closed),
		cmocka_unit_test_teardown(long_strings, closed),
		cmocka_unit_test_teardown(posix_slabs, closed),
		cmocka_unit_test_teardown(gpu_slabs, closed),
		cmocka_unit_test_teardown(peer_flags, closed),
		cmocka_unit_test_teardown(topology, closed),
	};

	/* What this machine has in /etc is not this test's affair. */
	unsetenv("CUFILE_LOGFILE_PATH");
	if (!fixture_init(argc, argv))
		return 2;
	return fixture_fini(cmocka_run_group_tests(tests, NULL, NULL));
}

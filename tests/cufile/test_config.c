/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_config - cufile.json and the environment: what is read, what wins, what a broken or hostile file
 * costs, and the lines of the log. How: each case is this program again, with an environment of its
 * own and a file written for it.
 */
#include "fixture.h"

#include <dirent.h>
#include <regex.h>

static char *dir;

static int setup(void **state)
{
	dir = test_mkdir();
	return 0;
}

static int teardown(void **state)
{
	test_rmdir(dir);
	return 0;
}

static size_t get(int which)
{
	size_t value = 0;

	CHECK(cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)which, &value).err == 0);
	return value;
}

static bool get_bool(int which)
{
	bool value = false;

	CHECK(cuFileGetParameterBool((CUFileBoolConfigParameter_t)which, &value).err == 0);
	return value;
}

/* -- programs that run alone -- */

/* Every key that a parameter can show, as everything.json sets it. */
static void shows_the_file(void)
{
	char text[32];

	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(get(CUFILE_PARAM_PROFILE_STATS) == 2);
	CHECK(get(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH) == 64);
	CHECK(get(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS) == 6);
	CHECK(get(CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB) == 4096);
	CHECK(get(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM) == 2);
	CHECK(get(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB) == 2048);
	CHECK(get(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB) == 65536);
	CHECK(get(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB) == 512);
	CHECK(get(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB) == 1048576);
	CHECK(get(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE) == 200);
	CHECK(get(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB) == 8);
	CHECK(get(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS) == 50);
	CHECK(get_bool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE));
	CHECK(get_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE));
	CHECK(get_bool(CUFILE_PARAM_FORCE_COMPAT_MODE));
	CHECK(get_bool(CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE));
	CHECK(get_bool(CUFILE_PARAM_PREFER_IO_URING));
	CHECK(get_bool(CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION));
	CHECK(get_bool(CUFILE_PARAM_STREAM_MEMOPS_BYPASS));
	CHECK(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 32).err == 0);
	CHECK(!strcmp(text, "WARN"));
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

/* Whatever the file says, bytes are right, and numbers are inside of their limits. */
static void survives(void)
{
	char *p = mem_alloc(MIB);
	struct target t;

	target_open(&t, MIB, O_RDONLY);
	for (int i = 1; i < 12; i++) {
		size_t low, high, value = get(i);

		CHECK(cuFileGetParameterMinMaxValue((CUFileSizeTConfigParameter_t)i, &low, &high)
			      .err == CU_FILE_SUCCESS);
		CHECK(value >= low && (!high || value <= high));
	}
	mem_fill(p, TEST_GUARD, MIB);
	CHECK(cuFileRead(t.handle, p, MIB / 2, 3, 5) == MIB / 2);
	mem_check(p, MIB, 5, MIB / 2, 3);
	target_close(&t);
	mem_free(p);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

/* The defaults; also when the file cannot be read. */
static void shows_defaults(void)
{
	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(get(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE) == 128);
	CHECK(get(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS) == 4);
	CHECK(get_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE));
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

static void shows_compat_forced(void)
{
	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(get_bool(CUFILE_PARAM_FORCE_COMPAT_MODE));
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

/* The file says true, the environment "false": the environment wins, and a setting over both. */
static void shows_precedence(void)
{
	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(!get_bool(CUFILE_PARAM_FORCE_COMPAT_MODE));
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
	CHECK(cuFileSetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, true).err == 0);
	CHECK(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 99).err == 0);
	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(get_bool(CUFILE_PARAM_FORCE_COMPAT_MODE));
	CHECK(get(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE) == 99);
	CHECK(get(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS) == 6);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

static void finds_no_compat(void)
{
	CHECK(cuFileDriverOpen().err == CU_FILE_DRIVER_NOT_INITIALIZED);
	CHECK(cuFileUseCount() == 0);
}

/* Provokes lines of the log: an error, and whatever else the level lets through. */
static void writes_log(void)
{
	CUfileHandle_t handle = NULL;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	char text[600];

	CHECK(cuFileGetParameterString(CUFILE_PARAM_ENV_LOGFILE_PATH, text, 600).err == 0 ||
	      !getenv("CUFILE_LOGFILE_PATH"));
	CHECK(cuFileDriverOpen().err == CU_FILE_SUCCESS);
	CHECK(handle_of(fd, &handle).err == CU_FILE_INVALID_FILE_TYPE);
	CHECK(handle_of(-1, &handle).err == CU_FILE_INVALID_VALUE);
	CHECK(cuFileDriverClose_v2().err == CU_FILE_SUCCESS);
}

static const struct alone alone[] = {
	{"defaults", shows_defaults},
	{"file", shows_the_file},
	{"survives", survives},
	{"compat-forced", shows_compat_forced},
	{"precedence", shows_precedence},
	{"no-compat", finds_no_compat},
	{"log", writes_log},
};

/* -- the tests -- */

static int with_json(const char *program, const char *text, size_t len, char *more)
{
	char path[600], variable[700];
	char *env[] = {variable, more, NULL};
	FILE *file;

	snprintf(path, sizeof(path), "%s/cufile.json", dir);
	snprintf(variable, sizeof(variable), "CUFILE_ENV_PATH_JSON=%s", path);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
	return run_alone(program, env);
}

static const char everything[] =
	"// A line of comment before everything\n"
	"{ /* and one\n"
	"   over two lines, with a \" and a // in it */\n"
	"  \"logging\": { \"level\": \"WARN\", // behind a value\n"
	"    \"dir\": \"/tmp//not-a-comment/*nor-this*/\" },\n"
	"  \"profile\": { \"nvtx\": false, \"cufile_stats\": 2 },\n"
	"  \"execution\": { \"max_io_queue_depth\": 64, \"max_io_threads\": 6, \"parallel_io\": "
	"true,\n"
	"    \"min_io_threshold_size_kb\": 4096, \"max_request_parallelism\": 2 },\n"
	"  \"properties\": { \"max_direct_io_size_kb\": 2048, \"max_device_cache_size_kb\": "
	"65536,\n"
	"    \"per_buffer_cache_size_kb\": 512, \"max_device_pinned_mem_size_kb\": 1048576,\n"
	"    \"use_poll_mode\": true, \"poll_mode_max_size_kb\": 8, \"allow_compat_mode\": true,\n"
	"    \"force_compat_mode\": true, \"prefer_iouring\": true, \"io_batchsize\": 200,\n"
	"    \"max_batch_io_timeout_msecs\": 50, \"rdma_dev_addr_list\": [], \"io_priority\": "
	"\"low\",\n"
	"    \"posix_pool_slab_size_kb\": [4, 1024], \"posix_pool_slab_count\": [16, 8] },\n"
	"  \"fs\": { \"generic\": { \"posix_unaligned_writes\": false }, \"lustre\": { "
	"\"posix_gds_min_kb\": 4 } },\n"
	"  \"block\": { \"nvme\": { \"use_pci_p2pdma\": true } },\n"
	"  \"denylist\": { \"drivers\": [], \"devices\": [], \"mounts\": [], \"filesystems\": [] "
	"},\n"
	"  \"miscellaneous\": { \"api_check_aggressive\": true, \"skip_topology_detection\": "
	"true,\n"
	"    \"stream_memops_bypass\": true },\n"
	"  \"a key that nobody knows\": { \"deep\": [1, {\"x\": null}] }\n"
	"}\n// and one at the end without a line's end";

static void every_key(void **state)
{
	assert_int_equal(with_json("file", everything, sizeof(everything) - 1, NULL), 0);
	assert_int_equal(with_json("survives", everything, sizeof(everything) - 1, NULL), 0);
}

static void older_names(void **state)
{
	static const char text[] = "{\"properties\": {\"use_compat_mode\": false}}";

	assert_int_equal(with_json("no-compat", text, sizeof(text) - 1, NULL), 0);
}

static void no_compat(void **state)
{
	static const char text[] = "{\"properties\": {\"allow_compat_mode\": false}}";
	char *env[] = {"CUFILE_ALLOW_COMPAT_MODE=false", NULL};

	assert_int_equal(with_json("no-compat", text, sizeof(text) - 1, NULL), 0);
	assert_int_equal(
		with_json("defaults", text, sizeof(text) - 1, "CUFILE_ALLOW_COMPAT_MODE=true"), 0);
	assert_int_equal(run_alone("no-compat", env), 0);
}

static void environment_wins(void **state)
{
	static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "On"};
	char variable[64];
	char *env[] = {variable, NULL};

	assert_int_equal(with_json("precedence", everything, sizeof(everything) - 1,
				   "CUFILE_FORCE_COMPAT_MODE=false"),
			 0);
	for (int i = 0; i < 6; i++) {
		snprintf(variable, sizeof(variable), "CUFILE_FORCE_COMPAT_MODE=%s", yes[i]);
		assert_int_equal(run_alone("compat-forced", env), 0);
	}
}

/* The path is taken as it is: one program passes a literal "$PWD/...". */
static void files_that_are_not_there(void **state)
{
	static char *const values[] = {
		"CUFILE_ENV_PATH_JSON=$PWD/local_cufile.json",
		"CUFILE_ENV_PATH_JSON=/",
		"CUFILE_ENV_PATH_JSON=/none/cufile.json",
		"CUFILE_ENV_PATH_JSON=",
		"CUFILE_ENV_PATH_JSON=/dev/null",
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char *env[] = {values[i], NULL};

		assert_int_equal(run_alone("defaults", env), 0);
	}
}

static void broken_files(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"}",
		"[]",
		"null",
		"\"x\"",
		"{}",
		"{}}",
		"{\"properties\": 5}",
		"/*",
		"//",
		"/* no end",
		"{\"properties\": {\"io_batchsize\": }}",
		"{\"logging\": [\"level\"]}",
		"{\"properties\" {}}",
		"{\"a\": \"no end",
		"{\"a\": \"\\u00\"}",
		"\xff\xfe{}",
		"{'properties': {}}",
		"{\"properties\": {\"io_batchsize\": 64,}}",
		"/",
		"{\"a\":1}/*",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (with_json("survives", texts[i], strlen(texts[i]), NULL))
			fail_msg("after %s", texts[i]);
	}
}

/* Numbers and types that no key expects. */
static void hostile_values(void **state)
{
	static const char *const values[] = {
		"-1",
		"0",
		"1e308",
		"18446744073709551615",
		"99999999999999999999999",
		"4.5",
		"true",
		"null",
		"[]",
		"[1,2]",
		"{}",
		"\"128\"",
		"\"\"",
		"-9223372036854775808",
	};
	static const char *const keys[] = {
		"max_direct_io_size_kb",
		"max_device_cache_size_kb",
		"per_buffer_cache_size_kb",
		"io_batchsize",
		"poll_mode_max_size_kb",
		"max_batch_io_timeout_msecs",
		"posix_pool_slab_size_kb",
		"posix_pool_slab_count",
		"use_poll_mode",
	};
	char text[2048];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		size_t n = (size_t)snprintf(text, sizeof(text), "{\"properties\": {\"x\": 1");

		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, ", \"%s\": %s", keys[k],
					      values[i]);
		n += (size_t)snprintf(
			text + n, sizeof(text) - n,
			"}, \"execution\": {\"max_io_threads\": %s, "
			"\"max_io_queue_depth\": %s, \"max_request_parallelism\": %s}, "
			"\"logging\": {\"level\": %s, \"dir\": %s}, \"fs\": %s}",
			values[i], values[i], values[i], values[i], values[i], values[i]);
		if (with_json("survives", text, n, NULL))
			fail_msg("after values of %s", values[i]);
	}
}

/* Deep, long, and with zero bytes. */
static void hostile_shapes(void **state)
{
	size_t len = 1 << 20;
	char *text = malloc(len);

	memset(text, '[', len);
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	memset(text, '{', len);
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	memset(text, 0, len);
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	memset(text, '/', len);
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	for (size_t i = 0; i < len; i++)
		text[i] = i % 2 ? '*' : '/';
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	memset(text, 'a', len);
	text[snprintf(text, len, "{\"logging\": {\"dir\": \"")] = 'a';
	text[len - 3] = '"';
	text[len - 2] = text[len - 1] = '}';
	assert_int_equal(with_json("survives", text, len, NULL), 0);
	free(text);
}

/* A pipe that nobody writes to, a file that may not be read: no waiting, no end of the process. */
static void strange_files(void **state)
{
	char path[600], variable[700];
	char *env[] = {variable, NULL};

	snprintf(path, sizeof(path), "%s/pipe", dir);
	snprintf(variable, sizeof(variable), "CUFILE_ENV_PATH_JSON=%s", path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(run_alone("defaults", env), 0);
	snprintf(variable, sizeof(variable), "CUFILE_ENV_PATH_JSON=/dev/zero");
	assert_int_equal(run_alone("defaults", env), 0);
}

static int log_lines(const char *path)
{
	static const char form[] =
		"^ [0-9]{2}-[0-9]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}:[0-9]{3} "
		"\\[pid=[0-9]+ tid=[0-9]+\\] "
		"(NOTICE|ERROR|WARN|INFO|DEBUG|TRACE) +[a-z_-]+:[0-9]+ .+";
	char line[1024];
	int lines = 0;
	regex_t regex;
	FILE *file = fopen(path, "re");

	if (!file)
		return 0;
	assert_int_equal(regcomp(&regex, form, REG_EXTENDED | REG_NOSUB), 0);
	while (fgets(line, sizeof(line), file)) {
		if (regexec(&regex, line, 0, NULL, 0))
			fail_msg("not a line of the log: %s", line);
		lines++;
	}
	regfree(&regex);
	fclose(file);
	return lines;
}

static void log_file_of_the_environment(void **state)
{
	char path[600], variable[700];
	char *env[] = {variable, "CUFILE_LOGGING_LEVEL=TRACE", NULL};
	int errors, all;

	snprintf(path, sizeof(path), "%s/trace.log", dir);
	snprintf(variable, sizeof(variable), "CUFILE_LOGFILE_PATH=%s", path);
	assert_int_equal(run_alone("log", env), 0);
	all = log_lines(path);
	assert_true(all > 0);
	snprintf(path, sizeof(path), "%s/error.log", dir);
	snprintf(variable, sizeof(variable), "CUFILE_LOGFILE_PATH=%s", path);
	env[1] = NULL;
	assert_int_equal(run_alone("log", env), 0);
	errors = log_lines(path);
	assert_in_range(errors, 1, all);
}

/* A log that cannot be written is no reason to fail. */
static void log_that_cannot_be(void **state)
{
	static char *const values[] = {"CUFILE_LOGFILE_PATH=/none/x/log",
				       "CUFILE_LOGFILE_PATH=", "CUFILE_LOGFILE_PATH=/",
				       "CUFILE_LOGFILE_PATH=/dev/full"};

	for (int i = 0; i < 4; i++) {
		char *env[] = {values[i], "CUFILE_LOGGING_LEVEL=TRACE", NULL};

		assert_int_equal(run_alone("log", env), 0);
	}
}

/* In the place of the C library's: no two looks at the clock fall into one second. */
time_t time(time_t *out)
{
	static atomic_int looks;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += atomic_fetch_add(&looks, 1);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

/* logging.dir: the file's name has the process and the date in it, of one second for all that it writes. */
static void log_in_a_folder(void **state)
{
	char text[900], path[1200];
	struct dirent *entry;
	int found = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/logs", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(text, sizeof(text), "{\"logging\": {\"dir\": \"%s/logs\", \"level\": \"TRACE\"}}",
		 dir);
	assert_int_equal(with_json("log", text, strlen(text), NULL), 0);
	folder = opendir(path);
	while ((entry = readdir(folder))) {
		if (strncmp(entry->d_name, "cufile", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/logs/%s", dir, entry->d_name);
		assert_true(log_lines(path) > 0);
		found++;
	}
	closedir(folder);
	assert_int_equal(found, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key),
		cmocka_unit_test(older_names),
		cmocka_unit_test(no_compat),
		cmocka_unit_test(environment_wins),
		cmocka_unit_test(files_that_are_not_there),
		cmocka_unit_test(broken_files),
		cmocka_unit_test(hostile_values),
		cmocka_unit_test(hostile_shapes),
		cmocka_unit_test(strange_files),
		cmocka_unit_test(log_file_of_the_environment),
		cmocka_unit_test(log_that_cannot_be),
		cmocka_unit_test(log_in_a_folder),
	};
	int status;

	if (!fixture_init(argc, argv))
		return 2;
	alarm(600);
	status = alone_main(argc, argv, alone, sizeof(alone) / sizeof(alone[0]));
	if (status >= 0)
		return status;
	return fixture_fini(cmocka_run_group_tests(tests, setup, teardown));
}

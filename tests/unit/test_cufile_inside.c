/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs cannot reach of the drop-in: its parser of JSON with comments and its table of handles.
 * How: one document with comments in every place that has one, in strings that only look like it, cut
 * off at every byte, and with bytes changed at random; ids that are old, invented or of another kind.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cufile/inside.h"

static const char document[] =
	"/* first */ { // a line\n"
	"\t\"logging\": { \"dir\": \"/tmp/a//b/*c*/\", \"level\" /* between */ : \"\\\"ERROR\" },\n"
	"\t\"execution\": { \"max_io_threads\": /**/ 7, \"parallel_io\": false }, // \"x\": 1\n"
	"\t/* \"properties\": { \"io_batchsize\": 3 }, */\n"
	"\t\"properties\": { \"io_batchsize\": 64, \"use_poll_mode\": true,\n"
	"\t\t\"posix_pool_slab_size_kb\": [8, 64], \"posix_pool_slab_count\": [2, 1],\n"
	"\t\t\"gpu_bounce_buffer_slab_config\": { \"slab_size_kb\": [512], \"slab_count\": [9] }\n"
	"\t}\n} // the end";

/* In memory of exactly its size, so that a sanitizer sees a step too far. */
static int parse(const char *text, size_t len, struct cf_settings *s)
{
	char *copy = malloc(len ? len : 1);
	int ret;

	memcpy(copy, text, len);
	cf_settings_builtin(s);
	ret = cf_config_parse(copy, len, s);
	free(copy);
	return ret;
}

static void comments(void **state)
{
	static struct cf_settings s;

	assert_int_equal(parse(document, sizeof(document) - 1, &s), 0);
	assert_string_equal(s.text[CUFILE_PARAM_LOG_DIR], "/tmp/a//b/*c*/");
	/* Not a level: left out. */
	assert_string_equal(s.text[CUFILE_PARAM_LOGGING_LEVEL], "ERROR");
	assert_int_equal(s.num[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS], 7);
	assert_int_equal(s.num[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE], 64);
	assert_false(s.flag[CUFILE_PARAM_EXECUTION_PARALLEL_IO]);
	assert_true(s.flag[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE]);
	assert_int_equal(s.posix_slabs.n, 2);
	assert_int_equal(s.posix_slabs.size_kb[1], 64);
	assert_int_equal(s.gpu_slabs.n, 1);
	assert_int_equal(s.gpu_slabs.count[0], 9);
}

/* Nothing of a document that is not whole counts. */
static void cut_off(void **state)
{
	static struct cf_settings s, builtin;
	size_t end = strrchr(document, '}') - document;

	cf_settings_builtin(&builtin);
	for (size_t len = 0; len <= end; len++) {
		assert_int_equal(parse(document, len, &s), -EINVAL);
		assert_memory_equal(&s, &builtin, sizeof(s));
	}
	/* Half of what begins a comment is a slash too many. */
	for (size_t len = end + 1; len < sizeof(document); len++)
		assert_int_equal(parse(document, len, &s), len == end + 3 ? -EINVAL : 0);
}

static void random_bytes(void **state)
{
	static struct cf_settings s;
	uint32_t x = 12345;

	for (int round = 0; round < 5000; round++) {
		char text[sizeof(document)];

		memcpy(text, document, sizeof(text));
		for (int i = 0; i < 3; i++) {
			x = x * 1664525u + 1013904223u;
			text[(x >> 8) % (sizeof(text) - 1)] = "/*\"\\{}[]:,0-\n\0\xff"[x % 16];
		}
		parse(text, sizeof(text) - 1, &s);
		assert_in_range(s.posix_slabs.n, 1, CF_SLABS_MAX);
		for (int i = 0; i < CF_TEXT_COUNT; i++)
			assert_non_null(memchr(s.text[i], '\0', CF_TEXT_BYTES));
	}
}

static void hostile(void **state)
{
	static const char *const texts[] = {
		"",
		"/",
		"/*",
		"//",
		"\"",
		"\"\\",
		"[]",
		"1",
		"{\"properties\": []}",
		"{\"properties\": {\"io_batchsize\": -1}}",
		"{\"properties\": {\"io_batchsize\": \"12\"}}",
		"{\"properties\": {\"io_batchsize\": 1e99}}",
		"{\"logging\": {\"max_file_size_mb\": -2}}",
		"{\"properties\":{\"posix_pool_slab_size_kb\":[1],\"posix_pool_slab_count\":[]}}",
		"{\"properties\": {\"posix_pool_slab_size_kb\":[0],\"posix_pool_slab_count\":[1]}}",
		"{\"properties\": {\"posix_pool_slab_size_kb\": {}, \"posix_pool_slab_count\": 3}}",
	};
	static struct cf_settings s, builtin;

	cf_settings_builtin(&builtin);
	for (size_t i = 0; i < CF_ARRAY_LEN(texts); i++) {
		parse(texts[i], strlen(texts[i]), &s);
		assert_memory_equal(&s, &builtin, sizeof(s));
	}
}

static void deep(void **state)
{
	static struct cf_settings s;
	size_t len = 1u << 20;
	char *text = malloc(len);

	memset(text, '[', len);
	assert_int_equal(parse(text, len, &s), -EINVAL);
	free(text);
}

/* -- handles ------------------------------------------------------------------------------------ */

static int destroyed;

static void destroy(struct cf_object *object)
{
	destroyed++;
	free(object);
}

static void *add(enum cf_kind kind)
{
	struct cf_object *object = malloc(sizeof(*object));
	void *id = NULL;

	cf_object_init(object, destroy);
	assert_int_equal(cf_table_add(kind, object, &id), 0);
	assert_non_null(id);
	return id;
}

static void stale_ids(void **state)
{
	void *first = add(CF_FILE), *id = first;

	for (int i = 0; i < 1000; i++) {
		void *old = id;

		assert_null(cf_table_get(CF_BATCH, id));
		cf_object_put(cf_table_take(CF_FILE, id));
		assert_null(cf_table_get(CF_FILE, id));
		id = add(CF_FILE);
		assert_ptr_not_equal(id, old);
		assert_null(cf_table_take(CF_FILE, old));
		assert_null(cf_table_get(CF_FILE, first));
	}
	cf_table_clear(CF_FILE);
	assert_int_equal(destroyed, 1001);
}

static void invented_ids(void **state)
{
	void *id = add(CF_FILE);

	for (unsigned int bit = 0; bit < 64; bit++) {
		void *other = (void *)((uintptr_t)id ^ (uintptr_t)1 << bit);

		assert_null(cf_table_get(CF_FILE, other));
		assert_null(cf_table_get(CF_BATCH, other));
	}
	assert_null(cf_table_get(CF_FILE, NULL));
	assert_null(cf_table_get(CF_FILE, (void *)UINTPTR_MAX));
	cf_table_clear(CF_FILE);
}

/* A child of fork() has to know the date by itself: leap years, ends of months and of centuries. */
static void calendar(void **state)
{
	for (int64_t at = 0; at < 8000000000; at += 86399 * 3 + at % 3) {
		time_t seconds = (time_t)at;
		struct tm want, got;

		gmtime_r(&seconds, &want);
		cf_calendar(at, &got);
		assert_true(want.tm_year == got.tm_year && want.tm_mon == got.tm_mon &&
			    want.tm_mday == got.tm_mday && want.tm_hour == got.tm_hour &&
			    want.tm_min == got.tm_min && want.tm_sec == got.tm_sec);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comments),     cmocka_unit_test(cut_off),
		cmocka_unit_test(random_bytes), cmocka_unit_test(hostile),
		cmocka_unit_test(deep),         cmocka_unit_test(stale_ids),
		cmocka_unit_test(invented_ids), cmocka_unit_test(calendar),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

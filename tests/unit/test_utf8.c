/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_utf8 - which bytes are a character, against a decoder that is written the other way round; and that
 * neither sentence nor message carries what a terminal would obey.
 */
#include <headrace/headrace.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/utf8.h"
#include "support/support.h"

/* The bytes of @c, as RFC 3629 makes them. Return: how many. */
static size_t encode(uint32_t c, uint8_t out[4])
{
	if (c < 0x80) {
		out[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (uint8_t)(0xc0 | c >> 6);
		out[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (uint8_t)(0xe0 | c >> 12);
		out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | c >> 18);
	out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (c & 0x3f));
	return 4;
}

static bool is_character(uint32_t c)
{
	return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
}

static void every_character(void **state)
{
	for (uint32_t c = 0; c < 0x110000; c++) {
		uint8_t bytes[4];
		size_t len = encode(c, bytes);

		assert_int_equal(hr__utf8_len(bytes, len), is_character(c) ? len : 0);
		if (len > 1)
			assert_int_equal(hr__utf8_len(bytes, len - 1), 0);
	}
}

/* What is accepted is the one form of some character. */
static void every_start(void **state)
{
	uint64_t x = 7;

	for (int i = 0; i < 4000000; i++) {
		uint64_t r = test_random(&x);
		uint8_t bytes[4] = {(uint8_t)r, (uint8_t)(r >> 8), (uint8_t)(r >> 16),
				    (uint8_t)(r >> 24)};
		uint8_t again[4];
		size_t len = hr__utf8_len(bytes, 4);
		uint32_t c = bytes[0];

		if (!len)
			continue;
		if (len > 1)
			c &= 0x7fu >> len;
		for (size_t k = 1; k < len; k++)
			c = c << 6 | (bytes[k] & 0x3f);
		assert_true(is_character(c));
		assert_int_equal(encode(c, again), len);
		assert_memory_equal(again, bytes, len);
	}
}

static const struct {
	const char *text, *shown;
} names[] = {
	{"plain", "plain"},
	{"", ""},
	{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
	 "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
	{"a\x1b[31mred\x07", "a?[31mred?"},
	{"two\nlines\ttab\r", "two?lines?tab?"},
	{"del\x7f", "del?"},
	{"c1 \xc2\x9b"
	 "31m",
	 "c1 ??31m"},
	{"c2 \xc2\xa0", "c2 \xc2\xa0"},
	{"latin\xfc", "latin?"},
	{"cut\xe2\x82", "cut??"},
	{"long\xc0\xaf", "long??"},
	{"surrogate\xed\xa0\x80", "surrogate???"},
};

static void cleaned(void **state)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char text[64];

		snprintf(text, sizeof(text), "%s", names[i].text);
		hr__utf8_clean(text);
		assert_string_equal(text, names[i].shown);
	}
}

static void of_a_file(void **state)
{
	struct hr_file *file;

	assert_int_equal(hr_file_open("/nowhere/\x1b]0;owned\x07/x", HR_FILE_READ, &file), -ENOENT);
	assert_non_null(strstr(hr_error_detail(), "/nowhere/?]0;owned?/x"));
}

static void keep(enum hr_log_level level, const char *message, void *user)
{
	snprintf(user, 64, "%s", message);
}

static void of_a_message(void **state)
{
	char seen[64] = "";

	hr_log_set(keep, seen);
	hr__log(HR_LOG_ERROR, "file %s", "\x1b[2J");
	hr_log_set(NULL, NULL);
	assert_string_equal(seen, "file ?[2J");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character), cmocka_unit_test(every_start),
		cmocka_unit_test(cleaned),         cmocka_unit_test(of_a_file),
		cmocka_unit_test(of_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

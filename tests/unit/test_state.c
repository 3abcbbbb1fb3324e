/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_state - the saved state as bytes: fixed example, round trip, every flipped bit refused, and
 * sentences that name what differs.
 */
#include <xxhash.h>

#include <headrace/error.h>

#include "loader/state.h"
#include "support/support.h"

static const struct hr__state example = {
	.fingerprint = 0x1122334455667788,
	.samples = 1000,
	.seed = 42,
	.shuffle = HR_SHUFFLE_WINDOW,
	.window = 0x203,
	.epoch = 3,
	.position = 640,
};

/* The record is a promise to files on disk. */
static void bytes_never_change(void **state)
{
	static const unsigned char head[60] = {
		'H', 'R',  'S',  'T',  'A',  'T',  'E',  '\n', 2,    0,    0, 0, 2, 0, 0,
		0,   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xe8, 3, 0, 0, 0, 0,
		0,   0,    42,   0,    0,    0,    0,    0,    0,    0,    3, 0, 0, 0, 0,
		0,   0,    0,    0x80, 2,    0,    0,    0,    0,    0,    0, 3, 2, 0, 0};
	unsigned char record[HR_LOADER_STATE_BYTES + 8];
	uint64_t sum = 0;

	memset(record, TEST_GUARD, sizeof(record));
	hr__state_encode(&example, record);
	assert_memory_equal(record, head, sizeof(head));
	for (int i = 60; i < 88; i++)
		assert_int_equal(record[i], 0);
	for (int i = 0; i < 8; i++)
		sum |= (uint64_t)record[88 + i] << (8 * i);
	assert_true(sum == XXH64(record, 88, 0));
	for (int i = 0; i < 8; i++)
		assert_int_equal(record[HR_LOADER_STATE_BYTES + i], TEST_GUARD);
}

static void round_trip(void **state)
{
	unsigned char record[HR_LOADER_STATE_BYTES];
	struct hr__state back;

	hr__state_encode(&example, record);
	memset(&back, 0xff, sizeof(back));
	assert_int_equal(hr__state_decode(record, sizeof(record), &back), 0);
	assert_true(back.fingerprint == example.fingerprint && back.samples == example.samples);
	assert_true(back.seed == example.seed && back.shuffle == example.shuffle);
	assert_int_equal(back.window, example.window);
	assert_true(back.epoch == example.epoch && back.position == example.position);
	assert_int_equal(hr__state_match(&back, &example), 0);
}

static void every_flipped_bit_is_refused(void **state)
{
	unsigned char record[HR_LOADER_STATE_BYTES];
	struct hr__state back = {.epoch = 77};

	hr__state_encode(&example, record);
	for (int bit = 0; bit < 8 * HR_LOADER_STATE_BYTES; bit++) {
		record[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_int_equal(hr__state_decode(record, sizeof(record), &back), -HR_E_BAD_STATE);
		assert_int_equal(back.epoch, 77);
		record[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	assert_int_equal(hr__state_decode(record, 95, &back), -HR_E_BAD_STATE);
	assert_int_equal(hr__state_decode(record, 97, &back), -HR_E_BAD_STATE);
	assert_int_equal(hr__state_decode(record, 0, &back), -HR_E_BAD_STATE);
}

static void reseal(unsigned char *record)
{
	uint64_t sum = XXH64(record, 88, 0);

	for (int i = 0; i < 8; i++)
		record[88 + i] = (unsigned char)(sum >> (8 * i));
}

static void expect_refused(unsigned char *record, const char *word)
{
	struct hr__state back;

	reseal(record);
	assert_int_equal(hr__state_decode(record, HR_LOADER_STATE_BYTES, &back), -HR_E_BAD_STATE);
	if (!strstr(hr_error_detail(), word))
		fail_msg("\"%s\" lacks \"%s\"", hr_error_detail(), word);
	hr__state_encode(&example, record);
}

/* Records whose checksum is right and whose contents are not. */
static void nonsense_is_refused(void **state)
{
	unsigned char record[HR_LOADER_STATE_BYTES];

	hr__state_encode(&example, record);
	record[8] = 3;
	expect_refused(record, "version 3");
	record[8] = 0;
	expect_refused(record, "version 0");
	record[12] = 3;
	expect_refused(record, "shuffle 3");
	record[12] = 1; /* no windows, and their size */
	expect_refused(record, "window 515");
	record[56] = record[57] = 0; /* windows of none */
	expect_refused(record, "no sense");
	record[8] = 1; /* of a release that knew no windows */
	expect_refused(record, "reserved");
	record[49] = 0x04; /* position 1024 of 1000 */
	expect_refused(record, "no sense");
	record[47] = 0x80; /* epoch 2^63 */
	expect_refused(record, "no sense");
	record[60] = 1;
	expect_refused(record, "reserved");
	record[0] = 'X';
	expect_refused(record, "another file");
}

/* Records of the first version: all the same, and no window. */
static void version_1_is_read(void **state)
{
	for (int shuffle = 0; shuffle < 3; shuffle++) {
		struct hr__state saved = example, back = example;
		unsigned char record[HR_LOADER_STATE_BYTES];
		int rc;

		saved.shuffle = (enum hr_shuffle)shuffle;
		saved.window = 0;
		hr__state_encode(&saved, record);
		record[8] = 1;
		reseal(record);
		rc = hr__state_decode(record, sizeof(record), &back);
		assert_int_equal(rc, shuffle == HR_SHUFFLE_WINDOW ? -HR_E_BAD_STATE : 0);
		if (rc)
			continue;
		assert_int_equal(back.window, 0);
		assert_int_equal(back.position, example.position);
		assert_int_equal(hr__state_match(&back, &saved), 0);
	}
}

static void expect_mismatch(struct hr__state saved, const char *word, const char *other)
{
	assert_int_equal(hr__state_match(&saved, &example), -HR_E_BAD_STATE);
	if (!strstr(hr_error_detail(), word) || !strstr(hr_error_detail(), other))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", hr_error_detail(), word, other);
}

static void sentences_say_what_differs(void **state)
{
	struct hr__state saved = example;

	saved.seed = 43;
	expect_mismatch(saved, "seed 43", "seed 42");
	saved = example;
	saved.shuffle = HR_SHUFFLE_FULL;
	expect_mismatch(saved, "shuffle full", "has window");
	saved = example;
	saved.window = 4;
	expect_mismatch(saved, "windows of 4", "windows of 515");
	saved = example;
	saved.samples = 999;
	expect_mismatch(saved, "999", "1000");
	saved = example;
	saved.fingerprint++;
	expect_mismatch(saved, "1122334455667789", "1122334455667788");
	/* where the run stands is nobody's business here */
	saved = example;
	saved.epoch = 9;
	saved.position = 1;
	assert_int_equal(hr__state_match(&saved, &example), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_never_change),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(every_flipped_bit_is_refused),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(version_1_is_read),
		cmocka_unit_test(sentences_say_what_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_page - the parser of statistics pages on hostile bytes. The input is laid over the start of a
 * page, its first two bytes say how much of the page is there. Sizes of 0 in its head become those of
 * this build, so that a corpus stays good. What is accepted must be within its bounds and printable;
 * what is refused must come with a sentence.
 *
 * Linked with libFuzzer it searches; linked with replay.c it runs a corpus as a test.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

static void check_text(const char *text, size_t size)
{
	require(memchr(text, '\0', size) != NULL);
	for (; *text; text++)
		require(*text >= ' ' && *text <= '~');
}

static void check_accepted(const struct hr_process_stats *out)
{
	require(out->n_engines <= HR_STATS_ENGINES_MAX);
	require(out->n_loaders <= HR__PAGE_LOADERS);
	require(out->n_refusals <= HR_STATS_REFUSALS_MAX);
	check_text(out->name, sizeof(out->name));
	for (uint32_t i = 0; i < out->n_engines; i++) {
		require(out->engines[i].id != 0);
		check_text(out->engines[i].device, sizeof(out->engines[i].device));
		check_text(out->engines[i].queue, sizeof(out->engines[i].queue));
	}
	for (uint32_t i = 0; i < out->n_refusals; i++) {
		require(out->refusals[i].count != 0);
		check_text(out->refusals[i].reason, sizeof(out->refusals[i].reason));
	}
}

static void adopt(void *page, size_t len)
{
	struct hr__page_head *head = page;

	if (len < sizeof(*head))
		return;
	if (!head->words)
		head->words = HR__PAGE_WORDS;
	if (!head->buckets)
		head->buckets = HR_STATS_BUCKETS;
	if (!head->page_bytes)
		head->page_bytes = sizeof(struct hr__page);
}

/* Of the exact length, so that the address sanitizer sees the first byte behind it. */
static void parse(const uint8_t *data, size_t size, size_t len)
{
	static struct hr_process_stats out;
	uint8_t *page = calloc(1, len ? len : 1);
	int rc;

	if (!page)
		abort();
	memcpy(page, data, size < len ? size : len);
	adopt(page, len);
	hr__fail_set(EIO, "");
	rc = hr__page_parse("input", page, len, 42, 1000, &out);
	if (rc == 0)
		check_accepted(&out);
	else
		require(rc < 0 && hr_error_detail()[0] != '\0');
	free(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t less;

	if (size < sizeof(less))
		return 0;
	memcpy(&less, data, sizeof(less));
	parse(data + sizeof(less), size - sizeof(less), sizeof(struct hr__page) - less);
	parse(data + sizeof(less), size - sizeof(less), less);
	return 0;
}

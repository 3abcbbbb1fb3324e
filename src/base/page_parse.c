/* SPDX-License-Identifier: Apache-2.0 */
/* base/page_parse.c - from the bytes of a page of statistics to figures; believes nothing, opens nothing. */
#include <string.h>

#include <headrace/error.h>

#include "base/fail.h"
#include "base/page.h"
#include "base/util.h"

uint64_t hr_stats_bucket_ns(uint32_t i)
{
	const uint64_t sub = 1u << HR__PAGE_SUB;
	uint64_t octave, steps;

	if (i >= HR_STATS_BUCKETS - 1)
		return UINT64_MAX;
	octave = (i + 1) >> HR__PAGE_SUB;
	steps = sub + (i + 1) % sub;
	/* Rounded up: a bucket that ends between two whole numbers holds the lower one. */
	return octave < HR__PAGE_SUB ? ((steps << octave) + sub - 1) >> HR__PAGE_SUB
				     : steps << (octave - HR__PAGE_SUB);
}

/* Text that may go to a terminal, a log or JSON: cut at the first zero, nothing but printable ASCII. */
static void take_text(char *to, const char *from, size_t size)
{
	size_t n = strnlen(from, size - 1);

	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[n] = '\0';
}

static int check_head(const char *name, const struct hr__page_head *head, size_t len, uint32_t pid)
{
	if (len < sizeof(*head) || head->magic != HR__PAGE_MAGIC)
		return hr__fail(
			HR_E_BAD_FORMAT,
			"%s: not a page of statistics, or not finished yet; remove it if no "
			"program of yours uses it",
			name);
	if (head->version != HR__PAGE_VERSION || head->words != HR__PAGE_WORDS ||
	    head->buckets != HR_STATS_BUCKETS || head->page_bytes != sizeof(struct hr__page))
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: statistics of layout %u with %u counters, this library reads "
				"layout %u with %u; use the headrace that the program uses",
				name, head->version, head->words, HR__PAGE_VERSION,
				(unsigned int)HR__PAGE_WORDS);
	if (len != sizeof(struct hr__page))
		return hr__fail(
			HR_E_BAD_FORMAT,
			"%s: %zu bytes instead of %zu; it was cut or is no page of statistics",
			name, len, sizeof(struct hr__page));
	if (head->pid != pid)
		return hr__fail(HR_E_BAD_FORMAT,
				"%s: says that it belongs to process %u; it was copied or forged",
				name, head->pid);
	return 0;
}

/* The sums wrap like any unsigned number: only a forged page gets there. */
static void take_engine(const struct hr__page_engine *from, struct hr_process_stats *out)
{
	struct hr_stats io;

	memcpy(&io, from->words, sizeof(io));
	for (uint32_t i = 0; i < HR__PAGE_WORDS; i++)
		((uint64_t *)&out->io)[i] += from->words[i];
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		out->latency[i] += from->latency[i];
	out->latency_ns += from->latency_ns;
	if (from->id && out->n_engines < HR_STATS_ENGINES_MAX) {
		struct hr_engine_live *live = &out->engines[out->n_engines++];

		live->id = from->id;
		take_text(live->device, from->device, sizeof(live->device));
		take_text(live->queue, from->queue, sizeof(live->queue));
		live->depth = from->depth;
		live->in_flight = from->in_flight;
		live->queue_depth = from->queue_depth;
		live->io = io;
		out->in_flight += from->in_flight;
		out->queue_depth += from->queue_depth;
	}
}

int hr__page_parse(const char *name, const void *bytes, size_t len, uint32_t pid, uint64_t now_ns,
		   struct hr_process_stats *out)
{
	const struct hr__page *page = bytes;
	int ret = check_head(name, &page->head, len, pid);

	if (ret)
		return ret;
	memset(out, 0, sizeof(*out));
	out->pid = pid;
	take_text(out->name, page->head.name, sizeof(out->name));
	out->age_ns = now_ns - hr__min(page->head.created_ns, now_ns);
	out->engines_opened = page->head.engines_opened;
	out->engines_hidden = page->head.engines_hidden;
	for (uint32_t i = 0; i <= HR_STATS_ENGINES_MAX; i++)
		take_engine(&page->engines[i], out);
	for (uint32_t i = 0; i <= HR__PAGE_LOADERS; i++) {
		out->n_loaders += i < HR__PAGE_LOADERS && page->loaders[i].used;
		out->batches += page->loaders[i].batches;
		out->wait_ns += page->loaders[i].wait_ns;
	}
	for (uint32_t i = 0; i < HR_STATS_REFUSALS_MAX; i++) {
		struct hr_refusal *row = &out->refusals[out->n_refusals];

		if (!page->refusals[i].count)
			continue;
		row->count = page->refusals[i].count;
		take_text(row->reason, page->refusals[i].reason, sizeof(row->reason));
		out->n_refusals++;
	}
	return 0;
}

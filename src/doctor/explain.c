/* SPDX-License-Identifier: Apache-2.0 */
/* doctor/explain.c - hr_explain(): the verdict on every path of one file to one device. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <headrace/config.h>
#include <headrace/doctor.h>

#include "base/fail.h"
#include "base/util.h"
#include "doctor/explain.h"
#include "file/extent.h"
#include "mem/mem.h"
#include "transport/transport.h"

#define PAGE 4096u

static void describe_taken(struct hr_path_verdict *v, const struct hr_explanation *e)
{
	if (v->path == HR_PATH_P2P)
		snprintf(v->reason, sizeof(v->reason),
			 "the drive writes into device memory itself, as a trial read has proved; "
			 "edges are moved on the device");
	else if (v->path == HR_PATH_PAGECACHE)
		snprintf(v->reason, sizeof(v->reason),
			 "the device reads the mapped file itself; what is not resident or not "
			 "registered is made so first");
	else if (v->path == HR_PATH_BOUNCE)
		snprintf(v->reason, sizeof(v->reason),
			 "through a staging ring of %llu KiB in host memory, then moved by the "
			 "device; "
			 "%s",
			 (unsigned long long)(e->queue.staging_bytes >> 10),
			 e->file.direct ? "direct I/O where pages are not cached"
					: "buffered reads");
	else if (e->file.direct)
		snprintf(v->reason, sizeof(v->reason),
			 "the drive writes into the destination itself (whole blocks of %u bytes; "
			 "edges "
			 "are staged)",
			 e->file.offset_align);
	else
		snprintf(v->reason, sizeof(v->reason),
			 "buffered reads straight into the destination: one copy out of the page "
			 "cache");
}

/* The reasons of p2p end with what to do about them. */
static void split_remedy(struct hr_path_verdict *v)
{
	char *at = strstr(v->reason, "; ");

	if (!at)
		return;
	snprintf(v->fix, sizeof(v->fix), "%s", at + 2);
	*at = '\0';
}

static void describe_refused(struct hr_path_verdict *v, const struct hr__verdict *from,
			     const char *taken)
{
	if (from->score > 0 && v->path == HR_PATH_PAGECACHE) {
		snprintf(v->reason, sizeof(v->reason),
			 "takes what is in the page cache and registered, %s the rest: a loader "
			 "with threads or hr_file_register() sees to it",
			 taken);
		snprintf(v->fix, sizeof(v->fix), "force it with --path %s or HEADRACE_PATH=%s",
			 v->name, v->name);
		return;
	}
	if (from->score > 0) {
		snprintf(v->reason, sizeof(v->reason), "possible, but %s needs no extra copy",
			 taken);
		snprintf(v->fix, sizeof(v->fix), "force it with --path %s or HEADRACE_PATH=%s",
			 v->name, v->name);
		return;
	}
	snprintf(v->reason, sizeof(v->reason), "%s", from->reason);
	if (v->path == HR_PATH_P2P)
		split_remedy(v);
	if (from->score == -HR_E_REQUIRE_DIRECT)
		snprintf(v->fix, sizeof(v->fix),
			 "unset HEADRACE_REQUIRE, or make a direct path "
			 "possible: headrace check");
}

static void add_verdicts(struct hr_explanation *out, const struct hr__verdict *verdicts, int best)
{
	const char *taken = best >= 0 ? verdicts[best].ops->name : "";

	for (uint32_t i = 0; i < hr__transports_count; i++) {
		struct hr_path_verdict *v = &out->verdicts[out->n_verdicts++];

		v->path = verdicts[i].ops->path;
		v->name = verdicts[i].ops->name;
		v->taken = (int)i == best;
		if (v->taken)
			describe_taken(v, out);
		else
			describe_refused(v, &verdicts[i], taken);
	}
}

static void add_extents(struct hr_explanation *out, struct hr_file *file, uint64_t offset,
			uint64_t len)
{
	struct hr__extents extents = {.list = out->extents, .cap = HR_ARRAY_LEN(out->extents)};
	int err = hr__file_extents(file, offset, len, &extents);

	if (err) {
		snprintf(out->extents_reason, sizeof(out->extents_reason), "%s does not tell: %s",
			 out->file.fs_name, hr_strerror(err));
		return;
	}
	out->n_extents = extents.n;
	out->extents_total = extents.total;
}

static int ask_queue(struct hr_device *dev, struct hr_queue_info *out)
{
	struct hr_engine *engine;
	int err = hr_engine_open(dev, NULL, &engine);

	if (err)
		return err;
	hr_engine_queue(engine, out);
	return hr_engine_close(engine);
}

/* Fewer cells than pages: a cell that is half a page would be told twice. */
static void draw_map(struct hr_explanation *out, struct hr_file *file, uint64_t offset,
		     uint64_t len)
{
	static const char marks[] = {[HR_RESIDENCY_UNKNOWN] = '?',
				     [HR_RESIDENCY_HOT] = '#',
				     [HR_RESIDENCY_COLD] = '.',
				     [HR_RESIDENCY_MIXED] = '+'};
	uint64_t end = out->file.size_bytes, step;
	struct hr_residency_info info;

	if (len && len < end - offset)
		end = offset + len;
	step = hr__align_up((end - offset + HR_MAP_CELLS - 1) / HR_MAP_CELLS, PAGE);
	for (uint32_t i = 0; i < HR_MAP_CELLS && offset < end; i++, offset += step) {
		uint64_t n = hr__min(step, end - offset);

		if (hr_file_residency(file, offset, n, &info))
			info.state = HR_RESIDENCY_UNKNOWN;
		out->map[i] = marks[info.state];
	}
}

/* The file is open. */
static int explain(struct hr_file *file, struct hr_device *dev, uint64_t offset, uint64_t len_bytes,
		   struct hr_explanation *out)
{
	const struct hr__shape shape = {.op = HR_READ};
	struct hr__verdict verdicts[HR_PATH_MAX];
	int best, err;

	if (hr__transports_count > HR_PATH_MAX)
		return -EOVERFLOW;
	memset(out, 0, sizeof(*out));
	hr_device_info(dev, &out->device);
	err = hr_file_info(file, &out->file);
	if (err)
		return err;
	if (offset > out->file.size_bytes)
		return hr__fail(EINVAL,
				"%s: offset %llu lies behind its end (%llu bytes); use a smaller "
				"one",
				file->path, (unsigned long long)offset,
				(unsigned long long)out->file.size_bytes);
	err = hr_file_residency(file, offset, len_bytes, &out->residency);
	if (!err)
		err = ask_queue(dev, &out->queue);
	if (err)
		return err;
	best = hr__select(file, dev, &shape, hr_config_get()->path, verdicts);
	out->path = best >= 0 ? verdicts[best].ops->path : HR_PATH_AUTO;
	add_verdicts(out, verdicts, best);
	add_extents(out, file, offset, len_bytes);
	hr__explain_layers("", hr_file_path(file), out);
	if (best >= 0)
		hr__foresee(&verdicts[best].limits, offset, len_bytes, out);
	draw_map(out, file, offset, len_bytes);
	return 0;
}

int hr_explain(struct hr_file *file, struct hr_device *dev, uint64_t offset, uint64_t len_bytes,
	       struct hr_explanation *out)
{
	int err = hr__file_hold(file, true);

	if (err < 0)
		return err;
	err = explain(file, dev, offset, len_bytes, out);
	hr__file_release(file);
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader/index_build.c - side indexes for many files at once: which of them need one, and threads that make
 * them, a file each at a time. Knows no format.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/util.h"
#include "loader/indexer.h"

#define THREADS_MAX 1024u

/* A data file. */
struct entry {
	char *path, *index_path;
	uint64_t bytes;
	bool wanted; /* its index has to be made */
};

struct build {
	const struct hr_index_options *opts;
	const struct hr__format_ops *ops;
	struct entry *entries;
	uint32_t n, room;
	atomic_uint next;    /* entry to look at */
	atomic_bool stopped; /* something failed, or the caller has had enough */
	pthread_mutex_t lock;
	/* under the lock: */
	struct hr_index_progress progress;
	int rc; /* the first failure, and its sentence */
	char sentence[640];
};

/* What one thread has told of the file that it reads. */
struct task {
	struct build *build;
	uint64_t bytes, samples;
};

/* -- which files ------------------------------------------------------------------------------- */

static int add_file(void *ctx, const char *path, const struct hr__shard *shard)
{
	struct build *b = ctx;
	struct entry *e;

	(void)shard;
	if (b->n == b->room) {
		uint32_t room = b->room ? 2 * b->room : 64;
		struct entry *entries = realloc(b->entries, room * sizeof(*entries));

		if (!entries)
			return hr__fail(ENOMEM, "index: no memory for %" PRIu32 " files", room);
		b->entries = entries;
		b->room = room;
	}
	e = &b->entries[b->n];
	*e = (struct entry){.path = strdup(path)};
	e->index_path = hr__indexer_path(path, &b->opts->dataset);
	if (!e->path || !e->index_path) {
		free(e->path);
		free(e->index_path);
		return hr__fail(ENOMEM, "%s: no memory for its path", path);
	}
	b->n++;
	return 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = strcmp(x->index_path, y->index_path);

	return order ? order : strcmp(x->path, y->path);
}

/* Two files may not share an index; one that is named twice is one. */
static int check_entries(struct build *b)
{
	uint32_t kept = 0;

	if (b->n)
		qsort(b->entries, b->n, sizeof(*b->entries), compare_entries);
	for (uint32_t i = 0; i < b->n; i++) {
		struct entry *e = &b->entries[i], *last = kept ? &b->entries[kept - 1] : NULL;

		if (last && strcmp(last->index_path, e->index_path) == 0) {
			if (strcmp(last->path, e->path) != 0)
				return hr__fail(
					EINVAL,
					"%s and %s: their side indexes would have one name in "
					"%s; use one folder of indexes for each folder of data",
					last->path, e->path, b->opts->dataset.index_dir);
			free(e->path);
			free(e->index_path);
			e->path = e->index_path = NULL;
			continue;
		}
		if (e != &b->entries[kept]) {
			b->entries[kept] = *e;
			e->path = e->index_path = NULL;
		}
		kept++;
	}
	b->n = kept;
	return 0;
}

/* Open @e to look at it or to read it. The format is found by the first file. */
static int open_entry(struct build *b, struct entry *e, struct hr__part **part)
{
	const struct hr_source *src;
	int rc = hr__part_source(e->path, part, &src);

	if (rc == 0 && !b->ops)
		rc = hr__source_format(src, b->opts->dataset.format, &b->ops);
	if (rc == 0)
		e->bytes = src->size;
	return rc;
}

static void keep_sentence(struct build *b)
{
	if (!b->sentence[0])
		snprintf(b->sentence, sizeof(b->sentence), "%s", hr_error_detail());
}

/* Is its index good? Return: 0, or -code. */
static int judge_entry(struct build *b, struct entry *e)
{
	struct hr__index *index = NULL;
	struct hr__part *part = NULL;
	int rc = open_entry(b, e, &part);

	if (rc < 0 || !b->ops->scan) {
		hr__part_close(part);
		return rc;
	}
	rc = hr__indexer_find(part->opened, b->ops, &b->opts->dataset, &index);
	if (rc == 0 && b->opts->check)
		rc = hr__index_check(index);
	if (rc == 0 && b->opts->check)
		b->progress.samples += hr__index_info(index)->rows;
	e->wanted = rc < 0 || b->opts->force;
	hr__indexer_close(index);
	hr__part_close(part);
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0)
		keep_sentence(b);
	if (e->wanted) {
		b->progress.files_total++;
		b->progress.bytes_total += e->bytes;
	}
	return 0;
}

/* -- making them -------------------------------------------------------------------------------- */

static void stop(struct build *b, int rc)
{
	pthread_mutex_lock(&b->lock);
	if (!b->rc) {
		b->rc = rc;
		b->sentence[0] = '\0';
		keep_sentence(b);
	}
	pthread_mutex_unlock(&b->lock);
	atomic_store(&b->stopped, true);
}

/* Add what is new of a thread's file to the sums, and tell the caller. */
static int tell(void *ctx, uint64_t bytes, uint64_t samples)
{
	struct task *task = ctx;
	struct build *b = task->build;
	int rc = 0;

	if (atomic_load(&b->stopped))
		return -ECANCELED;
	pthread_mutex_lock(&b->lock);
	b->progress.bytes += bytes - task->bytes;
	b->progress.samples += samples - task->samples;
	task->bytes = bytes;
	task->samples = samples;
	if (b->opts->progress)
		rc = b->opts->progress(b->opts->ctx, &b->progress);
	pthread_mutex_unlock(&b->lock);
	if (rc == 0)
		return 0;
	return hr__fail(rc < 0 ? -rc : ECANCELED, "index: stopped by the caller");
}

static int build_entry(struct build *b, struct entry *e)
{
	struct task task = {.build = b};
	struct hr__index *index = NULL;
	struct hr__part *part = NULL;
	int rc = open_entry(b, e, &part);

	if (rc == 0)
		rc = hr__indexer_build(part->opened, b->ops, &b->opts->dataset, tell, &task,
				       &index);
	if (rc == 0) { /* it is there, also when the work is stopped now */
		pthread_mutex_lock(&b->lock);
		b->progress.files++;
		pthread_mutex_unlock(&b->lock);
		rc = tell(&task, e->bytes, hr__index_info(index)->rows);
	}
	hr__indexer_close(index);
	hr__part_close(part);
	return rc;
}

static void *work(void *arg)
{
	struct build *b = arg;

	while (!atomic_load(&b->stopped)) {
		uint32_t i = atomic_fetch_add(&b->next, 1);
		int rc;

		if (i >= b->n)
			break;
		if (!b->entries[i].wanted)
			continue;
		rc = build_entry(b, &b->entries[i]);
		if (rc < 0)
			stop(b, rc);
	}
	return NULL;
}

/* The caller's thread is one of them; where no more can be started, those that were do the work. */
static void work_in_threads(struct build *b)
{
	uint64_t wish = hr__min(b->opts->dataset.index_threads, THREADS_MAX);
	pthread_t threads[THREADS_MAX];
	uint32_t n = 0;

	wish = hr__min(wish, b->progress.files_total);
	while (n + 1 < wish && pthread_create(&threads[n], NULL, work, b) == 0)
		n++;
	work(b);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static int run(struct build *b, const char *const *paths, uint32_t n)
{
	int rc = hr__paths_expand(paths, n, &b->opts->dataset, &b->ops, add_file, b);

	if (rc == 0)
		rc = check_entries(b);
	for (uint32_t i = 0; i < b->n && rc == 0; i++)
		rc = judge_entry(b, &b->entries[i]);
	if (rc < 0)
		return rc;
	if (b->opts->check) {
		if (b->progress.files_total)
			hr__fail_set(HR_E_NO_INDEX, b->sentence);
		return (int)b->progress.files_total;
	}
	if (b->progress.files_total)
		work_in_threads(b);
	if (b->rc < 0)
		return hr__fail_set(-b->rc, b->sentence);
	return (int)b->progress.files;
}

int hr_index_build(const char *const *paths, uint32_t n, const struct hr_index_options *opts,
		   struct hr_index_progress *out)
{
	struct build b = {.opts = opts, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc;

	if (!paths || n == 0 || !opts)
		return hr__fail(EINVAL, "index: no files given; name at least one");
	rc = run(&b, paths, n);
	if (out)
		*out = b.progress;
	for (uint32_t i = 0; i < b.n; i++) {
		free(b.entries[i].path);
		free(b.entries[i].index_path);
	}
	free(b.entries);
	return rc;
}

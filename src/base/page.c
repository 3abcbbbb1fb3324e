/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/page.c - the writing side of the page of statistics: makes it, hands out its places, removes
 * it. What the counters mean is not its business; nothing here runs on the data path.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/page.h"
#include "base/sys.h"
#include "base/util.h"

/* The page of this process. The lock orders places and users, never counters. */
static struct {
	pthread_mutex_t lock;
	struct hr__page *page; /* NULL: none */
	uint32_t users;        /* hr_stats_publish(true), engines and loaders in it */
	bool wanted;           /* hr_stats_publish(true) is in force */
	bool failed;           /* no place for it: do not try, and complain, at every engine */
	uint64_t engines;      /* the last number given */
	char path[176];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The page was left out of the child's memory and is the parent's. */
static void in_child(void)
{
	board.page = NULL;
	board.users = 0;
	board.path[0] = '\0';
}

HR__FORK_HOOK(.lock = &board.lock, .child = in_child);

/* -- the file -------------------------------------------------------------------------------- */

/* A file of our name and user is left over from a process that had our number before. */
static int create_file(const char *path)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = hr__sys->open(path, flags, 0600);
	struct stat st;

	if (fd != -EEXIST)
		return fd;
	if (lstat(path, &st) || st.st_uid != geteuid() || unlink(path))
		return -EEXIST;
	return hr__sys->open(path, flags, 0600);
}

/*
 * Room for all of it at once: a store to a page of a full tmpfs would end the process with a signal.
 * Where the file system cannot promise that, zeroes are written.
 */
static int reserve(int fd)
{
	static const char zeroes[4096];
	int ret = hr__sys->fallocate(fd, 0, 0, sizeof(struct hr__page));

	for (uint64_t at = 0; ret == -EOPNOTSUPP && at < sizeof(struct hr__page);) {
		uint64_t len = hr__min(sizeof(zeroes), sizeof(struct hr__page) - at);
		ssize_t n = hr__sys->pwrite(fd, zeroes, len, at);

		if (n <= 0)
			return n < 0 ? (int)n : -ENOSPC;
		at += (uint64_t)n;
		if (at == sizeof(struct hr__page))
			return 0;
	}
	return ret;
}

static int map_file(const char *path, struct hr__page **out)
{
	int fd = create_file(path), ret;

	if (fd < 0)
		return fd;
	ret = reserve(fd);
	if (!ret) {
		*out = hr__sys->mmap(sizeof(**out), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ret = *out ? 0 : -ENOMEM;
	}
	if (ret)
		unlink(path);
	hr__sys->close(fd);
	return ret;
}

static void fill_head(struct hr__page *page)
{
	struct hr__page_head *head = &page->head;

	head->version = HR__PAGE_VERSION;
	head->page_bytes = sizeof(*page);
	head->words = HR__PAGE_WORDS;
	head->buckets = HR_STATS_BUCKETS;
	head->pid = (uint32_t)getpid();
	head->uid = geteuid();
	head->created_ns = hr__now_ns();
	hr__page_start_ticks(head->pid, &head->start_ticks); /* 0 without /proc */
	hr__read_text("/proc/self/comm", head->name, sizeof(head->name));
	/* A reader takes no page without the mark, so it goes last. */
	__atomic_store_n(&head->magic, HR__PAGE_MAGIC, __ATOMIC_RELEASE);
}

static int make_page(void)
{
	char folders[HR__PAGE_FOLDERS][128];
	uint32_t n = hr__page_folders(folders);
	int first = 0, ret = -ENOENT;

	for (uint32_t i = 0; i < n && ret; i++) {
		hr__page_path(board.path, sizeof(board.path), folders[i], (uint32_t)getpid());
		ret = map_file(board.path, &board.page);
		if (!i)
			first = ret;
	}
	if (ret)
		return hr__fail(
			first,
			"%s: the page of statistics cannot be made: %s; set XDG_RUNTIME_DIR "
			"to a folder that can be written",
			folders[0], hr_strerror(first));
	madvise(board.page, sizeof(*board.page), MADV_DONTFORK);
	fill_head(board.page);
	return 0;
}

static void put_page(void)
{
	if (--board.users)
		return;
	unlink(board.path);
	hr__sys->munmap(board.page, sizeof(*board.page));
	board.page = NULL;
}

/* Is there a page for one more user? Makes it where the environment asks for it. */
static bool get_page(void)
{
	if (!board.page) {
		if ((!hr_config_get()->stats && !board.wanted) || board.failed)
			return false;
		if (make_page()) {
			board.failed = true;
			hr__log(HR_LOG_WARN, "%s", hr_error_detail());
			return false;
		}
		/* In a child the wish of the parent holds, and keeps the page as there. */
		board.users = board.wanted;
	}
	board.users++;
	return true;
}

/* A program that ends without closing its engines leaves no file behind. */
__attribute__((destructor)) static void remove_at_exit(void)
{
	if (board.page)
		unlink(board.path);
}

/* -- places ---------------------------------------------------------------------------------- */

/* Readers take what they copied between two equal even turns. */
static void turn_begin(void)
{
	/* Nothing that follows may be seen before it: an exchange, as TSan knows no fences. */
	__atomic_exchange_n(&board.page->head.turn, board.page->head.turn + 1, __ATOMIC_SEQ_CST);
}

static void turn_end(void)
{
	__atomic_store_n(&board.page->head.turn, board.page->head.turn + 1, __ATOMIC_RELEASE);
}

struct hr__page_engine *hr__page_engine_claim(const char *device, const char *queue, uint32_t depth)
{
	struct hr__page_engine *place = NULL;

	pthread_mutex_lock(&board.lock);
	if (!get_page())
		goto out;
	turn_begin();
	for (uint32_t i = 0; i < HR_STATS_ENGINES_MAX && !place; i++) {
		if (!board.page->engines[i].id)
			place = &board.page->engines[i];
	}
	board.page->head.engines_opened++;
	if (place) {
		place->id = ++board.engines;
		place->depth = depth;
		snprintf(place->device, sizeof(place->device), "%s", device);
		snprintf(place->queue, sizeof(place->queue), "%s", queue);
	} else {
		board.page->head.engines_hidden++;
	}
	turn_end();
	if (!place)
		put_page();
out:
	pthread_mutex_unlock(&board.lock);
	return place;
}

void hr__page_engine_release(struct hr__page_engine *place)
{
	struct hr__page_engine *closed;

	if (!place)
		return;
	pthread_mutex_lock(&board.lock);
	turn_begin();
	closed = &board.page->engines[HR_STATS_ENGINES_MAX];
	for (uint32_t i = 0; i < HR__PAGE_WORDS; i++)
		hr__page_add(&closed->words[i], place->words[i]);
	for (uint32_t i = 0; i < HR_STATS_BUCKETS; i++)
		hr__page_add(&closed->latency[i], place->latency[i]);
	hr__page_add(&closed->latency_ns, place->latency_ns);
	memset(place, 0, sizeof(*place));
	turn_end();
	put_page();
	pthread_mutex_unlock(&board.lock);
}

struct hr__page_loader *hr__page_loader_claim(void)
{
	struct hr__page_loader *place = NULL;

	pthread_mutex_lock(&board.lock);
	if (!get_page())
		goto out;
	for (uint32_t i = 0; i < HR__PAGE_LOADERS && !place; i++) {
		if (!board.page->loaders[i].used)
			place = &board.page->loaders[i];
	}
	if (place)
		__atomic_store_n(&place->used, 1, __ATOMIC_RELAXED);
	else
		put_page();
out:
	pthread_mutex_unlock(&board.lock);
	return place;
}

void hr__page_loader_release(struct hr__page_loader *place)
{
	struct hr__page_loader *closed;

	if (!place)
		return;
	pthread_mutex_lock(&board.lock);
	turn_begin();
	closed = &board.page->loaders[HR__PAGE_LOADERS];
	hr__page_add(&closed->batches, place->batches);
	hr__page_add(&closed->wait_ns, place->wait_ns);
	memset(place, 0, sizeof(*place));
	turn_end();
	put_page();
	pthread_mutex_unlock(&board.lock);
}

void hr__page_refuse(const char *what, const char *reason)
{
	struct hr__page_refusal *row = NULL;
	char text[sizeof(row->reason)];

	snprintf(text, sizeof(text), "%s: %s", what, reason);
	pthread_mutex_lock(&board.lock);
	for (uint32_t i = 0; board.page && i < HR_STATS_REFUSALS_MAX; i++) {
		row = &board.page->refusals[i];
		if (!row->count && i + 1 == HR_STATS_REFUSALS_MAX)
			snprintf(text, sizeof(text), "other reasons");
		if (!row->count)
			memcpy(row->reason, text, sizeof(text));
		if (!strcmp(row->reason, text) || i + 1 == HR_STATS_REFUSALS_MAX)
			break;
	}
	if (row)
		__atomic_store_n(&row->count, row->count + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&board.lock);
}

int hr_stats_publish(bool on)
{
	int ret = 0;

	pthread_mutex_lock(&board.lock);
	if (on && !board.wanted) {
		if (!board.page)
			ret = make_page();
		board.failed = ret;
		board.wanted = !ret;
		board.users += board.wanted;
	} else if (!on && board.wanted) {
		board.wanted = false;
		if (board.page) /* not in a child that has made none of its own */
			put_page();
	}
	pthread_mutex_unlock(&board.lock);
	return ret;
}

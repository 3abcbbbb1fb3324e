/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/page_read.c - finds and reads the pages of statistics of other processes, and removes those
 * that nobody can be writing any more. Opens only regular files of this user.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headrace/config.h>

#include "base/fail.h"
#include "base/page.h"
#include "base/sys.h"
#include "base/util.h"

#define ROUNDS_MAX 16u   /* copies that are thrown away because places changed hands meanwhile */
#define FILES_MAX 65536u /* looked at in one folder */

uint32_t hr__page_folders(char folders[HR__PAGE_FOLDERS][128])
{
	uint32_t n = 0;

	if (hr_config_get()->runtime_dir[0])
		snprintf(folders[n++], 128, "%s", hr_config_get()->runtime_dir);
	snprintf(folders[n++], 128, "/dev/shm");
	snprintf(folders[n++], 128, "/tmp");
	/* A writer is content with these; a reader may lack the variable that the writer had. */
	snprintf(folders[n++], 128, "/run/user/%u", (unsigned int)geteuid());
	return n;
}

void hr__page_path(char *path, size_t size, const char *folder, uint32_t pid)
{
	snprintf(path, size, "%s/headrace-%u-%" PRIu32 ".stats", folder, (unsigned int)geteuid(),
		 pid);
}

int hr__page_start_ticks(uint32_t pid, uint64_t *out)
{
	char path[40], text[1024], *at;
	int ret;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	ret = hr__read_text(path, text, sizeof(text));
	if (ret < 0)
		return ret == -ENOENT ? -ESRCH : ret;
	/* The name is in brackets and may hold anything; the start is the 20th field behind it. */
	at = strrchr(text, ')');
	for (uint32_t field = 0; at && field < 20; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EINVAL;
	*out = strtoull(at + 1, NULL, 10);
	return 0;
}

/* Does the process that wrote this page still run? A pid may have been given to another one since. */
static bool is_alive(uint32_t pid, uint64_t start_ticks)
{
	uint64_t ticks;

	if (kill((pid_t)pid, 0) && errno == ESRCH)
		return false;
	return !start_ticks || hr__page_start_ticks(pid, &ticks) || ticks == start_ticks;
}

/* Open a page if it is a plain file of this user. Return: descriptor or -code with a sentence. */
static int open_page(const char *path, struct stat *st)
{
	/* O_NONBLOCK: a pipe of that name must not hold us up. */
	int fd = hr__sys->open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0), ret;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return -ENOENT;
	if (fd < 0)
		return hr__fail(-fd, "%s: cannot be read: %s; remove it if it is not yours", path,
				fd == -ELOOP ? "it is a symbolic link" : hr_strerror(fd));
	ret = hr__sys->fstat(fd, st);
	if (!ret && st->st_uid != geteuid())
		ret = hr__fail(EPERM, "%s: belongs to user %u and is not read; ask as that user",
			       path, (unsigned int)st->st_uid);
	else if (!ret && !S_ISREG(st->st_mode))
		ret = hr__fail(HR_E_BAD_FORMAT, "%s: not a regular file; remove it", path);
	else if (!ret && (st->st_mode & 022))
		ret = hr__fail(EPERM, "%s: others may write to it, so it is not read; remove it",
			       path);
	if (ret) {
		hr__sys->close(fd);
		return ret;
	}
	return fd;
}

static int64_t read_bytes(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = hr__sys->pread(fd, (char *)buf + done, len - done, done);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)done;
}

/* A copy between two equal even turns; after some attempts any copy: its writer may have died. */
static int64_t copy_page(int fd, struct hr__page *page)
{
	struct hr__page_head after;
	int64_t len = 0;

	for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
		len = read_bytes(fd, page, sizeof(*page));
		if (len < (int64_t)sizeof(after))
			break;
		if (read_bytes(fd, &after, sizeof(after)) == sizeof(after) &&
		    after.turn == page->head.turn && !(after.turn & 1))
			break;
		sched_yield(); /* to the writer, where it waits for this processor */
	}
	return len;
}

/* A longer file is refused by its size before anything of it is read. */
static int read_page(const char *path, uint32_t pid, struct hr__page *page,
		     struct hr_process_stats *out)
{
	struct stat st;
	int fd = open_page(path, &st), ret;
	int64_t len;

	if (fd < 0)
		return fd;
	memset(page, 0, sizeof(*page));
	len = copy_page(fd, page);
	hr__sys->close(fd);
	if (len < 0)
		return hr__fail((int)-len, "%s: cannot be read: %s; try again", path,
				hr_strerror((int)len));
	if ((uint64_t)st.st_size > sizeof(*page))
		len = st.st_size;
	ret = hr__page_parse(path, page, (size_t)len, pid, hr__now_ns(), out);
	if (!ret && !is_alive(pid, page->head.start_ticks))
		return hr__fail(ESRCH,
				"%s: process %" PRIu32 " is gone and has left its statistics; "
				"`headrace stat` without a number removes them",
				path, pid);
	return ret;
}

int hr_stats_read(uint32_t pid, struct hr_process_stats *out)
{
	char folders[HR__PAGE_FOLDERS][128], path[176];
	uint32_t n = hr__page_folders(folders);
	struct hr__page *page = malloc(sizeof(*page));
	int ret = -ENOENT;

	if (!page)
		return hr__fail(ENOMEM, "no memory to read statistics");
	/* The first good page wins; of the others, the first one's fault is told. */
	for (uint32_t i = 0; i < n && ret; i++) {
		int got;

		hr__page_path(path, sizeof(path), folders[i], pid);
		got = read_page(path, pid, page, out);
		if (!got || ret == -ENOENT)
			ret = got;
	}
	free(page);
	if (ret == -ENOENT)
		return hr__fail(ENOENT,
				"process %" PRIu32
				" publishes no statistics for this user; start it "
				"with HEADRACE_STATS=1, or see `headrace stat` for those that do",
				pid);
	return ret;
}

/* -- the list -------------------------------------------------------------------------------- */

/* "headrace-UID-PID.stats" of this user, written in the one way that we write it. */
static bool parse_name(const char *name, uint32_t *pid)
{
	char prefix[40], again[64];
	unsigned long value;

	snprintf(prefix, sizeof(prefix), "headrace-%u-", (unsigned int)geteuid());
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	value = strtoul(name + strlen(prefix), NULL, 10);
	*pid = (uint32_t)value;
	snprintf(again, sizeof(again), "%s%lu.stats", prefix, value);
	return value > 0 && value <= INT32_MAX && !strcmp(name, again);
}

/*
 * Whose writer is gone is removed, whatever it holds. Between look and removal a new process could
 * get the same number and make its page: it would then be unseen, and nothing else would happen.
 */
static bool judge(const char *path, uint32_t pid)
{
	struct hr__page_head head = {0};
	struct stat st;
	int fd = open_page(path, &st);
	bool alive;

	if (fd < 0)
		return false;
	if (read_bytes(fd, &head, sizeof(head)) != sizeof(head) || head.magic != HR__PAGE_MAGIC)
		head.start_ticks = 0;
	hr__sys->close(fd);
	alive = is_alive(pid, head.start_ticks);
	if (!alive)
		unlink(path);
	return alive && head.magic == HR__PAGE_MAGIC;
}

/* Insert in order, without doubles. Return: the new count; what lies behind @max is only counted. */
static uint32_t insert(uint32_t *pids, uint32_t n, uint32_t max, uint32_t pid)
{
	uint32_t have = n < max ? n : max, at = 0;

	while (at < have && pids[at] < pid)
		at++;
	if (at < have && pids[at] == pid)
		return n;
	if (at < max) {
		uint32_t tail = (have < max ? have : max - 1) - at;

		memmove(&pids[at + 1], &pids[at], tail * sizeof(*pids));
		pids[at] = pid;
	}
	return n + 1;
}

int hr_stats_list(uint32_t *pids, uint32_t max)
{
	char folders[HR__PAGE_FOLDERS][128], path[176];
	uint32_t n_folders = hr__page_folders(folders), n = 0, pid;

	for (uint32_t i = 0; i < n_folders; i++) {
		DIR *dir = opendir(folders[i]);
		const struct dirent *entry;

		for (uint32_t k = 0; dir && k < FILES_MAX && (entry = readdir(dir)); k++) {
			if (!parse_name(entry->d_name, &pid))
				continue;
			hr__page_path(path, sizeof(path), folders[i], pid);
			if (judge(path, pid))
				n = insert(pids, n, max, pid);
		}
		if (dir)
			closedir(dir);
	}
	return (int)n;
}

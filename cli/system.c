/* SPDX-License-Identifier: Apache-2.0 */
/* cli/system.c - plain calls to the system that several verbs need; nothing of the library. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

uint32_t cli_cpus(void)
{
	cpu_set_t set;
	int n = 0;

	if (!sched_getaffinity(0, sizeof(set), &set))
		n = CPU_COUNT(&set);
	return n > 0 ? (uint32_t)n : 1;
}

int64_t cli_pread_full(int fd, void *buf, uint64_t len, uint64_t offset)
{
	uint64_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

int cli_sync_dir(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int fd, err = 0;

	if (!slash)
		snprintf(dir, sizeof(dir), ".");
	else
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash == path ? 1 : slash - path), path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* some file systems (FUSE, some overlays) have no fsync for directories */
	if (fsync(fd) && errno != EINVAL && errno != ENOSYS)
		err = -errno;
	close(fd);
	return err;
}

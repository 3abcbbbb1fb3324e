/* SPDX-License-Identifier: Apache-2.0 */
/* cli/state.c - a loader's position in a small file that is replaced whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/state.h"

int cli_state_restore(struct hr_loader *loader, const char *path)
{
	uint8_t record[HR_LOADER_STATE_BYTES + 1]; /* one more, to see that a file is too long */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int64_t n;
	int err;

	if (fd < 0 && errno == ENOENT)
		return CLI_OK;
	if (fd < 0)
		return cli_fail("%s: the state cannot be read: %s; check its permissions", path,
				strerror(errno));
	n = cli_pread_full(fd, record, sizeof(record), 0);
	close(fd);
	if (n != HR_LOADER_STATE_BYTES)
		return cli_fail("%s: not a saved state of %d bytes; name another --state FILE, or "
				"remove this one to start from the beginning",
				path, HR_LOADER_STATE_BYTES);
	err = hr_loader_restore(loader, record, HR_LOADER_STATE_BYTES);
	if (err)
		return cli_fail("%s: %s; use the same files, --seed and --shuffle, or remove it to "
				"start from the beginning",
				path, hr_error_detail()[0] ? hr_error_detail() : hr_strerror(err));
	return CLI_OK;
}

static int write_record(int fd, const uint8_t *record)
{
	ssize_t n = write(fd, record, HR_LOADER_STATE_BYTES);

	if (n < 0)
		return -errno;
	if (n != HR_LOADER_STATE_BYTES)
		return -ENOSPC;
	return fsync(fd) ? -errno : 0;
}

int cli_state_save(const struct hr_loader *loader, const char *path)
{
	uint8_t record[HR_LOADER_STATE_BYTES];
	char temp[PATH_MAX];
	int fd, err;

	if (hr_loader_state(loader, record, sizeof(record)) != HR_LOADER_STATE_BYTES)
		return cli_fail("%s: the loader gave no state; this is a bug", path);
	if (snprintf(temp, sizeof(temp), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(temp))
		return cli_fail("%s: the name is too long; choose a shorter one", path);
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_fail("%s: the state cannot be saved: %s; check the directory", temp,
				strerror(errno));
	err = write_record(fd, record);
	close(fd);
	if (!err && rename(temp, path))
		err = -errno;
	if (err) {
		unlink(temp);
		return cli_fail("%s: the state cannot be saved: %s; free some space or choose "
				"another place",
				path, strerror(-err));
	}
	cli_sync_dir(path);
	return CLI_OK;
}

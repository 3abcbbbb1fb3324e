/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/head.c - reads heads and tables of a file whose data goes past the page cache; knows nothing of
 * what is in them.
 *
 * They come through the cache, for the next process that opens the file, but alone. A plain read would
 * start read-ahead, which leaves a mark on a page behind what was asked for. Whoever later takes a hot
 * sample from that page makes the kernel read on, up to read_ahead_kb at once and with a new mark: so
 * one sample after the other pulls a cold file into memory. What the kernel is asked to bring in
 * by posix_fadvise() is brought in without a mark.
 */
#include <errno.h>
#include <fcntl.h>

#include <headrace/error.h>

#include "base/sys.h"
#include "base/util.h"
#include "file/file.h"

#define ADVICE_BYTES                                                                               \
	(128u << 10)           /* of one longer than its read-ahead the kernel forgets the rest */
#define ROUND_BYTES (4u << 20) /* on their way at once */

void hr__file_bring_in(const struct hr_file *file, uint64_t offset, size_t len)
{
	if (file->memory_backed)
		return;
	/* Where this is refused the read itself brings them in. */
	for (size_t done = 0; done < len; done += ADVICE_BYTES)
		hr__sys->fadvise(file->fd, offset + done, hr__min(len - done, ADVICE_BYTES),
				 POSIX_FADV_WILLNEED);
}

static int read_round(const struct hr_file *file, uint64_t offset, char *to, size_t len)
{
	while (len > 0) {
		ssize_t n = hr__sys->pread(file->fd, to, len, offset);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? (int)n : -HR_E_FILE_CHANGED;
		to += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int hr__file_read_alone(const struct hr_file *file, uint64_t offset, void *buf, size_t len)
{
	int rc = 0;

	for (size_t done = 0; done < len && rc == 0; done += ROUND_BYTES) {
		size_t n = (size_t)hr__min(len - done, ROUND_BYTES);

		hr__file_bring_in(file, offset + done, n);
		rc = read_round(file, offset + done, (char *)buf + done, n);
	}
	return rc;
}

int hr__file_read_onward(const struct hr_file *file, uint64_t offset, void *buf, size_t len)
{
	return read_round(file, offset, buf, len);
}

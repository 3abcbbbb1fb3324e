/* SPDX-License-Identifier: Apache-2.0 */
/* base/util.c - clock, sizes in text, small files of the kernel. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/sys.h"
#include "base/util.h"

uint64_t hr__now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int hr__parse_size(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	uint64_t value = 0;
	const char *unit;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++) {
		if (hr__mul_overflows(value, 10, &value) ||
		    hr__add_overflows(value, (uint64_t)(*text - '0'), &value))
			return -EINVAL;
	}
	if (*text) {
		unit = strchr(units, toupper((unsigned char)*text));
		if (!unit || hr__mul_overflows(value, 1ull << (10 * (unit - units + 1)), &value))
			return -EINVAL;
		text++;
		if (*text == 'i')
			text++;
		if (*text == 'B')
			text++;
	}
	if (*text)
		return -EINVAL;
	*out = value;
	return 0;
}

int hr__read_text(const char *path, char *buf, size_t size)
{
	int fd = hr__sys->open(path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = hr__sys->pread(fd, buf, size - 1, 0);
	hr__sys->close(fd);
	if (n < 0)
		return (int)n;
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\0'))
		n--;
	buf[n] = '\0';
	return (int)n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/source.h - bytes that a parser may look at, wherever they come from.
 */
#ifndef HR_BASE_SOURCE_H
#define HR_BASE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hr_source {
	const char *name; /* for sentences: the file's path */
	uint64_t size;    /* bytes */
	/* Fill @buf completely from @offset or fail. Return: 0 or -code. */
	int (*read)(const struct hr_source *src, uint64_t offset, void *buf, size_t len);
	void *ctx;
	/* Begin to bring in what will be read, and do not wait. May be NULL. */
	void (*ahead)(const struct hr_source *src, uint64_t offset, size_t len);
	bool onward; /* what is read was announced, or is read from front to back: see head.c */
};

#endif

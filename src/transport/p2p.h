/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport/p2p.h - the inside of the path "p2p": drives below a file, windows onto device memory that
 * drives write to, and the proof that a pair of the two really works.
 */
#ifndef HR_TRANSPORT_P2P_H
#define HR_TRANSPORT_P2P_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file/file.h"
#include "mem/mem.h"
#include "transport/transport.h"

#define HR__P2P_DRIVES_MAX 32u

/* The drives that a file lies on. */
struct hr__p2p_drives {
	char name[64]; /* of the block device on top, "md0" */
	uint32_t n;
	uint32_t pci[HR__P2P_DRIVES_MAX]; /* domain << 16 | bus << 8 | devfn */
	uint64_t stride; /* bytes after which the next drive's turn comes; 0 with one drive */
};

/* "0000:03:00.0" as a number. Return: true if it is one. */
bool hr__p2p_parse_pci(const char *text, uint32_t *out);

/* Which drives? Return: 0, or -HR_E_NO_PATH with the reason and the remedy written. */
int hr__p2p_drives_find(const struct hr_file *file, struct hr__p2p_drives *out, char *reason,
			size_t reason_size);

/* An allocation of a device, as addresses that direct I/O accepts. Shared by its buffers. */
struct hr__p2p_window {
	struct hr__peer peer; /* of buffers */
	struct hr__p2p_window *next;
	struct hr_device *dev; /* identity only: those who use the window hold it */
	uint64_t id;           /* of the allocation */
	uint32_t users;
	uint32_t fork_generation; /* a child has no mapping, and another may be in its place */
	int fd;
	const uint8_t *base; /* device address */
	uint8_t *map;
	uint64_t len;
};

/*
 * hr__p2p_window_get() - the window around [@ptr, +@len), made for the drive @pci if there is none.
 * Return: 0, or -code with a sentence that names the reason.
 */
int hr__p2p_window_get(struct hr_device *dev, const void *ptr, uint64_t len, uint32_t pci,
		       struct hr__p2p_window **out);
void hr__p2p_window_put(struct hr__p2p_window *window);

/*
 * hr__p2p_distance() - the kernel's PCIe distance between two functions, "0000:03:00.0"; negative when
 * no way between them is known to work. Return: 0 or -code with a sentence (no module).
 */
int hr__p2p_distance(const char *provider, const char *client, int *distance);

/* Where the drive finds what the device has at @ptr. */
static inline void *hr__p2p_window_at(const struct hr__p2p_window *w, const void *ptr)
{
	return w->map + ((const uint8_t *)ptr - w->base);
}

/*
 * hr__p2p_proven() - has a read (a write) of this pair been seen to arrive? The first time it reads a few
 * blocks of the file into the device (writes some to a nameless file beside it, and reads them back),
 * and remembers.
 * Return: 0, or -HR_E_NO_PATH with the reason written.
 */
int hr__p2p_proven(const struct hr_file *file, struct hr_device *dev, enum hr_op op,
		   const struct hr__p2p_drives *drives, char *reason, size_t reason_size);

/*
 * hr__p2p_attach() - get @buf ready for reads of @file; once for each buffer.
 * Return: 0, also if it was ready, or -code with a sentence.
 */
int hr__p2p_attach(struct hr__transport *t, struct hr_buffer *buf, const struct hr_file *file);
/* hr__p2p_ready() - has hr__p2p_attach() succeeded for it? @t: may be NULL. */
bool hr__p2p_ready(const struct hr__transport *t, const struct hr_buffer *buf);

#endif

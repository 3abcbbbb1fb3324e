/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_tool.h - what the parts of peer_tool share: memory of the pretended GPU, imported for a drive.
 */
#ifndef HR_VM_PEER_TOOL_H
#define HR_VM_PEER_TOOL_H

#include <stddef.h>
#include <stdint.h>

#include <headrace_peer.h>
#include <headrace_vgpu.h>

struct memory {
	int vgpu, dmabuf, peer; /* descriptors, -1: none */
	uint64_t offset, len;   /* in the GPU's memory */
	struct headrace_peer_import import;
	char *map; /* NULL: not mapped */
};

/* Says what failed, with errno, and ends the program. */
_Noreturn void die(const char *what);

/* "0000:03:00.0" as the interface wants it. */
uint32_t parse_pci(const char *text);

/* Allocate and export. */
void memory_export(struct memory *m, uint64_t len);
/* Import for the drive. Return: 0 or the refusal; any other failure ends the program. */
int memory_import(struct memory *m, const char *client);
void memory_map(struct memory *m);
/* All three, or the end of the program. */
void memory_open(struct memory *m, uint64_t len, const char *client);
void memory_close(struct memory *m);

int run_errors(int argc, char **argv);
int run_fuzz(int argc, char **argv);

#endif

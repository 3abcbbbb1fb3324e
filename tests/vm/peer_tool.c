/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talks to the kernel modules directly, in a guest: what the library never does, or hides.
 *
 * Usage: peer_tool import CLIENT BYTES        the refusal's number, distance and segments
 *        peer_tool read CLIENT FILE BYTES     O_DIRECT into the GPU; prints its offset there
 *        peer_tool ram FILE BYTES             the same into host memory
 *        peer_tool error NAME CLIENT FILE     see peer_errors.c
 *        peer_tool fuzz SECONDS SEED CLIENT   see peer_fuzz.c
 *        peer_tool live                       counts in traces of /sys/kernel/debug/slab
 * CLIENT is the PCI address of a drive, or the path of a block device.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer_tool.h"

#define STEP (1u << 20)

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

uint32_t parse_pci(const char *text)
{
	unsigned int domain, bus, slot, function;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		die(text);
	return domain << 16 | bus << 8 | slot << 3 | function;
}

void memory_export(struct memory *m, uint64_t len)
{
	struct headrace_vgpu_range range = {.len = len};

	*m = (struct memory){.vgpu = -1, .dmabuf = -1, .peer = -1, .len = len};
	m->vgpu = open("/dev/headrace_vgpu0", O_RDWR | O_CLOEXEC);
	if (m->vgpu < 0)
		die("/dev/headrace_vgpu0");
	if (ioctl(m->vgpu, HEADRACE_VGPU_ALLOC, &range))
		die("alloc");
	m->offset = range.offset;
	if (ioctl(m->vgpu, HEADRACE_VGPU_EXPORT, &range))
		die("export");
	m->dmabuf = range.fd;
}

int memory_import(struct memory *m, const char *client)
{
	int block = -1, ret;

	m->peer = open("/dev/headrace_peer", O_RDWR | O_CLOEXEC);
	if (m->peer < 0)
		die("/dev/headrace_peer");
	m->import = (struct headrace_peer_import){.argsz = sizeof(m->import),
						  .dmabuf_fd = m->dmabuf,
						  .client_kind = HEADRACE_PEER_CLIENT_PCI};
	if (client[0] == '/') {
		block = open(client, O_RDONLY | O_CLOEXEC);
		m->import.client_kind = HEADRACE_PEER_CLIENT_BLOCK;
		m->import.client = (uint32_t)block;
	} else {
		m->import.client = parse_pci(client);
	}
	ret = ioctl(m->peer, HEADRACE_PEER_IMPORT, &m->import);
	if (block >= 0)
		close(block);
	if (ret && errno != EREMOTEIO)
		die("import");
	return (int)m->import.refusal;
}

void memory_map(struct memory *m)
{
	m->map = mmap(NULL, m->import.len, PROT_READ | PROT_WRITE, MAP_SHARED, m->peer,
		      (off_t)m->import.offset);
	if (m->map == MAP_FAILED)
		die("mmap");
}

void memory_open(struct memory *m, uint64_t len, const char *client)
{
	memory_export(m, len);
	if (memory_import(m, client)) {
		fprintf(stderr, "the import was refused: %u\n", m->import.refusal);
		exit(1);
	}
	memory_map(m);
}

void memory_close(struct memory *m)
{
	if (m->map)
		munmap(m->map, m->import.len);
	close(m->peer);
	close(m->dmabuf);
	close(m->vgpu);
}

static void read_all(const char *path, char *to, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		die(path);
	for (uint64_t at = 0; at < len; at += STEP) {
		size_t n = len - at < STEP ? len - at : STEP;

		if (pread(fd, to + at, n, (off_t)at) != (ssize_t)n)
			die("pread");
	}
	close(fd);
}

static int cmd_import(const char *client, uint64_t len)
{
	struct memory m;
	int refusal;

	memory_export(&m, len);
	refusal = memory_import(&m, client);
	printf("refusal=%d distance=%d segments=%u len=%" PRIu64 "\n", refusal, m.import.distance,
	       m.import.segments, (uint64_t)m.import.len);
	memory_close(&m);
	return 0;
}

static int cmd_read(const char *client, const char *path, uint64_t len)
{
	struct memory m;

	memory_open(&m, len, client);
	read_all(path, m.map, len);
	printf("%" PRIu64 "\n", m.offset);
	memory_close(&m);
	return 0;
}

static int cmd_ram(const char *path, uint64_t len)
{
	char *ram = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ram == MAP_FAILED)
		die("mmap");
	read_all(path, ram, len);
	return 0;
}

/* Blocks of "  COUNT where, how old" and lines of callers; a block ends with an empty line. */
static int cmd_live(void)
{
	unsigned long long sum = 0, count = 0;
	char line[512];

	while (fgets(line, sizeof(line), stdin)) {
		if (line[0] == '\n')
			count = 0;
		else if (strstr(line, " age=") || strstr(line, " pid="))
			count = strtoull(line, NULL, 10);
		if (!strstr(line, "[headrace_"))
			continue;
		sum += count;
		count = 0; /* a block counts once */
	}
	printf("%llu\n", sum);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "import"))
		return cmd_import(argv[2], strtoull(argv[3], NULL, 0));
	if (argc == 5 && !strcmp(argv[1], "read"))
		return cmd_read(argv[2], argv[3], strtoull(argv[4], NULL, 0));
	if (argc == 4 && !strcmp(argv[1], "ram"))
		return cmd_ram(argv[2], strtoull(argv[3], NULL, 0));
	if (argc == 2 && !strcmp(argv[1], "live"))
		return cmd_live();
	if (argc >= 2 && !strcmp(argv[1], "error"))
		return run_errors(argc - 2, argv + 2);
	if (argc >= 2 && !strcmp(argv[1], "fuzz"))
		return run_fuzz(argc - 2, argv + 2);
	fprintf(stderr, "usage: see peer_tool.c\n");
	return 2;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file into the pretended GPU through the library, by the path p2p alone. The host compares
 * the BAR with what the same arguments print otherwise: guard bytes, data, guard bytes.
 *
 * Usage: gather_probe expect FILE whole|aligned|odd COUNT LEN    to standard output, by plain reads
 *        gather_probe DEVICE FILE whole|aligned|odd COUNT LEN
 * whole reads COUNT * LEN bytes from the start; the others read COUNT windows of LEN bytes at random
 * places. Prints where in the BAR the buffer lies, its length, and the bytes that drives were asked for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/headrace.h>

#include "windows.h"

#define GUARD WINDOWS_GUARD
#define GUARD_BYTE WINDOWS_GUARD_BYTE

static void must(int64_t ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, hr_error_name((int)ret), hr_error_detail());
	exit(1);
}

static void plan(struct hr_piece *pieces, uint64_t count, uint64_t len, uint64_t size,
		 const char *how)
{
	for (uint64_t i = 0; i < count; i++)
		pieces[i] =
			(struct hr_piece){windows_offset(how, i, len, size), len, GUARD + i * len};
}

static void read_direct(struct hr_device *dev, struct hr_file *file, const struct hr_piece *pieces,
			uint64_t count, uint64_t len)
{
	const struct hr_engine_options opts = {.path = HR_PATH_P2P};
	uint64_t bytes = count * len, room = bytes + 2 * GUARD;
	static uint8_t guard[GUARD];
	struct hr_engine *engine;
	struct hr_buffer *buf;
	struct hr_stats stats;

	memset(guard, GUARD_BYTE, sizeof(guard));
	must(hr_buffer_alloc(dev, room, &buf), "buffer");
	must(hr_buffer_copy_in(buf, 0, guard, GUARD), "guard");
	must(hr_buffer_copy_in(buf, GUARD + bytes, guard, GUARD), "guard");
	must(hr_engine_open(dev, &opts, &engine), "engine");
	if ((uint64_t)hr_gather(engine, file, pieces, count, buf, HR_DTYPE_BYTES, HR_DTYPE_BYTES) !=
	    bytes)
		must(-5, "hr_gather");
	must(hr_engine_stats(engine, &stats), "stats");
	if (stats.bytes_by_path[HR_PATH_P2P] != bytes)
		must(-5, "not all bytes went by p2p");
	printf("offset=%" PRIu64 " len=%" PRIu64 " asked=%" PRIu64 " requests=%" PRIu64 "\n",
	       windows_in_bar(hr_buffer_address(buf)), room, stats.bytes_read, stats.segments);
	must(hr_engine_close(engine), "close");
	must(hr_buffer_free(buf), "free");
}

int main(int argc, char **argv)
{
	struct hr_piece *pieces;
	struct hr_device *dev;
	struct hr_file *file;
	struct hr_file_info info;
	uint64_t count, len;

	if (argc != 6)
		return 2;
	count = strtoull(argv[4], NULL, 0);
	len = strtoull(argv[5], NULL, 0);
	if (!strcmp(argv[1], "expect"))
		return windows_print(argv[2], argv[3], count, len) ? 1 : 0;
	pieces = calloc(count, sizeof(*pieces));
	must(hr_file_open(argv[2], HR_FILE_READ, &file), "file");
	must(hr_file_info(file, &info), "info");
	plan(pieces, count, len, info.size_bytes, argv[3]);
	must(hr_device_open(argv[1], &dev), "device");
	read_direct(dev, file, pieces, count, len);
	hr_device_close(dev);
	hr_file_close(file);
	free(pieces);
	return 0;
}

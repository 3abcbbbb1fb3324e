/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what the library finds out about one file, as key=value lines for fsmatrix. The page cache
 * is asked three times: after dropping it, after a direct read (if there is one), and after reading
 * the file through the cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headrace/error.h>
#include <headrace/file.h>

#include "base/sys.h"
#include "file/extent.h"
#include "file/file.h"

#define BUF_BYTES (1u << 16)

static const char *const states[] = {"unknown", "hot", "cold", "mixed"};

static void print_residency(struct hr_file *file, const char *when)
{
	struct hr_residency_info r;

	if (hr_file_residency(file, 0, 0, &r) < 0) {
		printf("%s=error\n", when);
		return;
	}
	printf("%s=%s\n%s_method=%s\n%s_reason=%s\n", when, states[r.state], when, r.method, when,
	       r.reason);
	printf("%s_quick=%s\n", when, states[hr__file_residency_quick(file, 0, 4096)]);
}

static void print_extents(struct hr_file *file)
{
	struct hr_extent list[4];
	struct hr__extents e = {.list = list, .cap = 4};
	int err = hr__file_extents(file, 0, 0, &e);

	if (err < 0) {
		printf("extents=%s\n", hr_error_name(err));
		return;
	}
	printf("extents=%llu\n", (unsigned long long)e.total);
	printf("extent_flags=0x%x\n", e.n ? list[0].flags : 0);
}

static void read_all(struct hr_file *file, uint64_t size, void *buf)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t n = hr__sys->pread(file->fd, buf, BUF_BYTES, at);

		if (n <= 0)
			break;
		at += (uint64_t)n;
	}
}

int main(int argc, char **argv)
{
	struct hr_file_info info;
	struct hr_file *file;
	void *buf = aligned_alloc(BUF_BYTES, BUF_BYTES);

	if (argc != 2 || !buf)
		return 2;
	memset(buf, 0,
	       BUF_BYTES); /* btrfs takes the page cache for memory that is not faulted in */
	if (hr_file_open(argv[1], HR_FILE_READ, &file) < 0 || hr_file_info(file, &info) < 0) {
		fprintf(stderr, "%s\n", hr_error_detail());
		return 1;
	}
	printf("fs=%s\ndirect=%d\noffset_align=%u\nmemory_align=%u\ndirect_reason=%s\n",
	       info.fs_name, info.direct, info.offset_align, info.memory_align, info.direct_reason);
	printf("nowait=%d\nmemory_backed=%d\nblock=%s\npci=%s\nlogical=%u\n", file->nowait,
	       file->memory_backed, info.block_device, info.block_pci, info.logical_block_bytes);
	hr_file_drop_cache(file);
	print_residency(file, "dropped");
	if (file->fd_direct >= 0) {
		printf("direct_read=%zd\n", hr__sys->pread(file->fd_direct, buf, BUF_BYTES, 0));
		print_residency(file, "after_direct");
	}
	read_all(file, info.size_bytes, buf);
	print_residency(file, "read");
	print_extents(file);
	hr_file_close(file);
	free(buf);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headrace/doctor.h - what this machine can do, which path a file takes, and why not a better one.
 */
#ifndef HEADRACE_DOCTOR_H
#define HEADRACE_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <headrace/device.h>
#include <headrace/file.h>
#include <headrace/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One path that was weighed. */
struct hr_path_verdict {
	enum hr_path path;
	const char *name; /* static */
	int taken;        /* 1 for the path that reads of this file take */
	char reason[192]; /* why not; for the path taken: how it works here */
	char fix[192];    /* what would change a "no"; "" if nothing */
};

struct hr_extent {
	uint64_t file_offset, len; /* bytes */
	uint64_t device_offset;    /* on the block device, bytes */
	uint32_t flags;            /* HR_EXTENT_* */
};

enum {
	HR_EXTENT_HOLE = 1u << 0,      /* reads as zeroes, nothing stored */
	HR_EXTENT_UNWRITTEN = 1u << 1, /* allocated, reads as zeroes */
	HR_EXTENT_INLINE = 1u << 2,    /* in the inode: no direct I/O */
	HR_EXTENT_UNKNOWN = 1u << 3,   /* no place on a block device */
	HR_EXTENT_SHARED = 1u << 4,    /* reflinked */
};

/* What the file stands on, from the file system down to the drives. */
struct hr_layer {
	char name[32]; /* "ext4", "nvme0n1p2", "md0", "nvme0n1" */
	char what[64]; /* "file system, mounted at /data", "partition", "md raid0", "NVMe drive" */
	uint64_t from_bytes; /* partitions: where it begins on the device below */
};

/* Where the first byte of an extent is: blocks of 512 bytes from the start of the whole drive. */
struct hr_block_place {
	char drive[32]; /* "" where it cannot be told: the device mapper, networks, memory */
	uint64_t lba;
};

/* What one read of the range will do when none of it is in the page cache; nothing is read for it. */
struct hr_foresight {
	uint64_t reads;      /* asked of the kernel */
	uint64_t read_bytes; /* by them: whole blocks, so more than the range at its edges */
	uint64_t in_place;   /* of the reads: straight into the destination */
	uint64_t staged;     /* of the reads: through the staging ring, and moved on from there */
	uint64_t moves;      /* pieces moved on: by the device, or by the CPU to "host" */
	uint64_t calls_min;  /* system calls, at least: more if asked while reads come back */
};

#define HR_MAP_CELLS 64

struct hr_explanation {
	struct hr_device_info device;
	struct hr_file_info file;
	struct hr_residency_info residency;
	struct hr_queue_info queue;
	enum hr_path path; /* taken; HR_PATH_AUTO if none can be */
	struct hr_path_verdict verdicts[HR_PATH_MAX];
	uint32_t n_verdicts;
	struct hr_extent extents[16]; /* the first ones of the range */
	uint32_t n_extents;           /* stored */
	uint64_t extents_total;       /* in the range; 0 with extents_reason set if unknown */
	char extents_reason[128];
	struct hr_block_place places[16]; /* of these extents */
	struct hr_layer layers[8];
	uint32_t n_layers;
	struct hr_foresight foresight; /* zero where no path can be taken */
	/* Page cache, in equal parts of the range: '#' resident, '+' in part, '.' not, '?' unknown. */
	char map[HR_MAP_CELLS + 1];
};

/*
 * hr_explain() - which way [offset, offset + len) of @file goes to @dev, and why.
 * @len_bytes: 0 = to the end of the file. Opens an engine for a moment; reads no data.
 * Return: 0 or a negative code.
 */
int hr_explain(struct hr_file *file, struct hr_device *dev, uint64_t offset, uint64_t len_bytes,
	       struct hr_explanation *out);

enum hr_check_state { HR_CHECK_OK = 0, HR_CHECK_LIMITED = 1, HR_CHECK_NO = 2 };

struct hr_check_item {
	const char *group; /* "kernel", "gpu", "storage", "file system", "limits", "libraries";
			      static */
	char name[64];
	enum hr_check_state state;
	char cause[192];
	char fix[192];
};

/*
 * A drive and a GPU (or "host", where there is no GPU). The state is that of the direct way: ok, it
 * should work, and a trial read proves it at first use; limited, it works with a restriction, or
 * nothing is known against it; no, bytes do not go that way today.
 */
struct hr_check_pair {
	char drive[32]; /* "nvme0n1" */
	char gpu[32];   /* "cuda:0"; one that no driver opens: its PCI address */
	char drive_pci[16], gpu_pci[16];
	const char *near;  /* "switch", "bridge", "socket", "sockets", "unknown"; static */
	enum hr_path path; /* that reads of cold data take today */
	enum hr_check_state state;
	char cause[192]; /* the first obstacle, or what makes it work */
	char fix[192];
	char blockers[128]; /* names of all obstacles, separated by ", "; "" for none */
	/* What reads past the page cache should give, bytes a second; 0, 0: nothing is known. */
	uint64_t expected_low, expected_high;
	const char *basis; /* of that: "measured", "link", "kind", "none"; static */
};

/* A line of the PCIe tree between drives and GPUs, in the order in which it is drawn. */
struct hr_check_node {
	uint32_t depth; /* 0: a root complex */
	char name[32];  /* "pci0000:3a", a PCI address */
	char what[96];  /* "GPU cuda:0 NVIDIA H200", "drive nvme0n1", "port", ... */
};

struct hr_check_report {
	struct hr_check_item *items;
	uint32_t n_items;
	struct hr_check_pair *pairs;
	uint32_t n_pairs;
	struct hr_check_node *nodes;
	uint32_t n_nodes;
};

struct hr_check_options {
	const char *root;   /* "" or NULL: this machine; else a tree with proc/ and sys/ (tests) */
	const char *device; /* name for hr_device_open(), NULL = every GPU */
	const char *const *paths; /* files or directories to judge; below a root: absolute */
	uint32_t n_paths;
	bool measure; /* read from each of the paths for about a second; not below a root */
};

/*
 * hr_check() - examine the machine.
 * @out: what it points to is the caller's; free it with hr_check_free().
 * Return: 0 or -ENOMEM; what cannot be found out is an item, not an error.
 */
int hr_check(const struct hr_check_options *opts, struct hr_check_report *out);

/* hr_check_free() - free what hr_check() stored; accepts a zeroed report. */
void hr_check_free(struct hr_check_report *report);

#ifdef __cplusplus
}
#endif
#endif

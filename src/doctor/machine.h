/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/machine.h - what a machine is made of, as proc/ and sys/ below a root have it: kernel, GPUs,
 * drives, and what a path stands on. Facts only; pair.c and the groups judge.
 */
#ifndef HR_DOCTOR_MACHINE_H
#define HR_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "doctor/report.h"

#define HR__GPUS_MAX 32u
#define HR__DRIVES_MAX 96u
#define HR__MEMBERS_MAX 32u
#define HR__CHAIN_MAX 10u

/* A PCI function and the bridges above it. */
struct hr__pci {
	char address[16];              /* "" if it is none, or not visible */
	char host[16];                 /* root complex: "pci0000:3a" */
	char chain[HR__CHAIN_MAX][16]; /* from the root port down to the function itself */
	uint32_t depth;                /* of the chain; 0: its place is not known */
	int numa;                      /* -1 unknown */
	double link;                   /* bytes/s of payload in one direction; 0 unknown */
	char link_text[40];            /* "16.0 GT/s x4" */
	char iommu[16];                /* type of its group, "" without */
};

enum hr__near {
	HR__NEAR_UNKNOWN,
	HR__NEAR_SWITCH,  /* below one switch: peer traffic turns there */
	HR__NEAR_BRIDGE,  /* below root ports of one root complex */
	HR__NEAR_SOCKET,  /* root complexes of one processor */
	HR__NEAR_SOCKETS, /* of two: over the link between them */
};

struct hr__gpu {
	char name[32]; /* "cuda:0", or its PCI address */
	char model[64], driver[24];
	struct hr__pci pci;
	uint64_t bar_bytes, memory_bytes; /* 0 unknown */
	bool amd;
};

enum hr__drive_kind {
	HR__DRIVE_OTHER,
	HR__DRIVE_NVME,
	HR__DRIVE_FABRIC,    /* NVMe over tcp, rdma, fc, loop */
	HR__DRIVE_MULTIPATH, /* the head of several NVMe paths */
	HR__DRIVE_VIRTIO,
	HR__DRIVE_SCSI,
	HR__DRIVE_MD,
	HR__DRIVE_DM,
	HR__DRIVE_LOOP,
};

struct hr__drive {
	char name[32];
	enum hr__drive_kind kind;
	struct hr__pci pci;
	char model[48], scheduler[32];
	char detail[32]; /* fabric: transport; md: level; dm: "LVM", "CRYPT", "mpath" */
	uint32_t block_bytes;
	char members[HR__MEMBERS_MAX][32]; /* of md, dm and a head: names of whole drives */
	uint32_t n_members;
	bool in_array; /* all of it is a member of an md array: no data lies on it alone */
};

/* What a path stands on. */
struct hr__place {
	char fs[24], source[128], options[512], point[256];
	char layer[256]; /* of overlay: the folder below that the path was followed to */
	char drive[32];  /* whole drive or array; "" if there is none */
	char device[32]; /* with the partition: "nvme0n1p2" */
};

enum hr__host_kind { HR__HOST_METAL, HR__HOST_VM, HR__HOST_WSL };

struct hr__machine {
	char release[128];
	unsigned int major, minor;
	enum hr__host_kind kind;
	char vendor[48];    /* of the virtual machine; "" unknown */
	char container[32]; /* "Docker", ...; "" for none */
	bool zen;           /* AMD since Zen: its root ports forward peer traffic */
	int p2pdma;         /* CONFIG_PCI_P2PDMA: 1, 0, -1 unknown */
	int dma_iter;       /* blk_rq_dma_map_iter_start() exists: the same */
	int nvfs_hooks[3];  /* [1], [2]: nvme_vN_register_nvfs_dma_ops() exists: the same */
	bool iommu;         /* there are groups */
	bool iommu_translates;
	struct hr__gpu gpus[HR__GPUS_MAX];
	uint32_t n_gpus;
	struct hr__drive drives[HR__DRIVES_MAX];
	uint32_t n_drives;
};

/* hr__machine_read() - all facts. Devices that can be opened are asked too where @opts allows it. */
void hr__machine_read(const struct hr__report *r, const struct hr_check_options *opts,
		      struct hr__machine *m);

/* -- pci.c ------------------------------------------------------------------------------------ */

/* hr__pci_read() - the function at an address such as "0000:3b:00.0"; every field is filled. */
void hr__pci_read(const struct hr__report *r, const char *address, struct hr__pci *out);

/* hr__pci_of_path() - the last PCI function of a path that sysfs resolved to. Return: found. */
bool hr__pci_of_path(const char *path, char *address, size_t size);

enum hr__near hr__pci_near(const struct hr__pci *a, const struct hr__pci *b);
const char *hr__pci_near_name(enum hr__near near);

/* hr__pci_bar() - bytes of the largest memory BAR; 0 unknown. */
uint64_t hr__pci_bar(const struct hr__report *r, const char *address);

/* hr__pci_id() - the number in a file such as "vendor" or "class"; 0 if it cannot be read. */
uint32_t hr__pci_id(const struct hr__report *r, const char *address, const char *file);

/* -- drive.c ---------------------------------------------------------------------------------- */

void hr__drives_read(const struct hr__report *r, struct hr__machine *m);
const struct hr__drive *hr__drive_find(const struct hr__machine *m, const char *name);

/* hr__drive_whole() - "nvme0n1p2" becomes "nvme0n1"; other names stay. */
void hr__drive_whole(const struct hr__report *r, const char *name, char *out, size_t size);

/* -- place.c ---------------------------------------------------------------------------------- */

/* hr__place_find() - follow @path through mounts, and through overlays. Return: 0 or -ENOENT. */
int hr__place_find(const struct hr__report *r, const char *path, struct hr__place *out);

/* hr__place_advice() - why no peer memory goes to such a place, and what to do. Return: NULL if it does. */
const char *hr__place_advice(const struct hr__place *place, const char **fix);

/* -- pair.c ----------------------------------------------------------------------------------- */

/* hr__pair_judge() - everything about a pair but the rate. @gpu: NULL for "host". */
void hr__pair_judge(const struct hr__report *r, const struct hr__machine *m,
		    const struct hr__drive *drive, const struct hr__gpu *gpu,
		    struct hr_check_pair *out);

/* -- rate.c ----------------------------------------------------------------------------------- */

/* hr__rate_expect() - the range, by links and kinds. */
void hr__rate_expect(const struct hr__machine *m, const struct hr__drive *drive,
		     const struct hr__gpu *gpu, struct hr_check_pair *out);

/* hr__rate_measure() - about a second of reads from @file to @dev. Return: 0 or -code. */
int hr__rate_measure(struct hr_file *file, struct hr_device *dev, uint64_t *low, uint64_t *high);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor/pair.c - may this drive write into that GPU? Every obstacle is collected; the first one, in
 * the order from what cannot be changed to what one command changes, gives cause and remedy.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/machine.h"
#include "transport/p2p.h"

#define BAR_SMALL (1ull << 30)

/* A verdict under way. */
struct verdict {
	const struct hr__report *r;
	const struct hr__machine *m;
	const struct hr__drive *drive;
	const struct hr__gpu *gpu;
	struct hr_check_pair *out;
	enum hr__near near;
	uint32_t ways; /* judged so far: one for each drive of an array */
};

/* Later obstacles are named; they take the first one's place only if they weigh more. */
static void __attribute__((format(printf, 5, 6)))
block(struct verdict *v, const char *name, enum hr_check_state state, const char *fix,
      const char *cause, ...)
{
	struct hr_check_pair *p = v->out;
	size_t have = strlen(p->blockers);
	va_list args;

	if (!strstr(p->blockers, name))
		snprintf(p->blockers + have, sizeof(p->blockers) - have, "%s%s", have ? ", " : "",
			 name);
	if (state <= p->state)
		return;
	p->state = state;
	snprintf(p->fix, sizeof(p->fix), "%s", fix);
	va_start(args, cause);
	vsnprintf(p->cause, sizeof(p->cause), cause, args);
	va_end(args);
}

/* -- the drive -------------------------------------------------------------------------------- */

static void judge_mapper(struct verdict *v, const struct hr__drive *d)
{
	if (!strcmp(d->detail, "CRYPT"))
		block(v, "drive", HR_CHECK_NO,
		      "put the data on a partition without dm-crypt, or on a drive that encrypts "
		      "itself",
		      "%s is dm-crypt: the processor decrypts every block in host memory", d->name);
	else if (!strcmp(d->detail, "LVM"))
		block(v, "drive", HR_CHECK_NO,
		      "put the data on a partition, or on md raid0, without LVM",
		      "%s is an LVM volume: the device mapper takes no peer memory", d->name);
	else
		block(v, "drive", HR_CHECK_NO, "put the data on a partition, or on md raid0",
		      "%s belongs to the device mapper (%s), which takes no peer memory", d->name,
		      d->detail[0] ? d->detail : "unknown target");
}

static void judge_array(struct verdict *v, const struct hr__drive *d)
{
	if (strcmp(d->detail, "raid0") != 0) {
		block(v, "drive", HR_CHECK_NO, "use md raid0, or a single drive",
		      "%s is an md array of level \"%s\", whose drives cannot be tried one by one",
		      d->name, d->detail);
		return;
	}
	if (!d->n_members)
		block(v, "drive", HR_CHECK_NO, "mount /sys", "%s has no members that sysfs shows",
		      d->name);
	for (uint32_t i = 0; i < d->n_members; i++) {
		const struct hr__drive *member = hr__drive_find(v->m, d->members[i]);

		if (!member || member->kind != HR__DRIVE_NVME)
			block(v, "drive", HR_CHECK_NO, "make the array of local NVMe drives alone",
			      "%s has a member that is no local NVMe drive: %s", d->name,
			      d->members[i]);
	}
}

static void judge_drive(struct verdict *v)
{
	const struct hr__drive *d = v->drive;

	switch (d->kind) {
	case HR__DRIVE_NVME:
		if (!d->pci.depth)
			block(v, "drive", HR_CHECK_NO, "mount /sys",
			      "%s has no PCI function that sysfs shows", d->name);
		break;
	case HR__DRIVE_MD:
		judge_array(v, d);
		break;
	case HR__DRIVE_DM:
		judge_mapper(v, d);
		break;
	case HR__DRIVE_MULTIPATH:
		block(v, "multipath", HR_CHECK_NO,
		      "boot with nvme_core.multipath=N (or options nvme_core multipath=N in "
		      "modprobe.d)",
		      "%s is a multipath head: it belongs to no single PCI function", d->name);
		break;
	case HR__DRIVE_FABRIC:
		block(v, "drive", HR_CHECK_NO, "copy the data to a local NVMe drive",
		      "%s is NVMe over %s: its bytes come through a network card into host memory",
		      d->name, d->detail);
		break;
	case HR__DRIVE_VIRTIO:
		block(v, "drive", HR_CHECK_NO,
		      "pass an NVMe drive through to the machine (VFIO), or use an instance with "
		      "local NVMe",
		      "%s is virtio: the host copies its bytes into this machine's memory, and no "
		      "drive is seen from here",
		      d->name);
		break;
	default:
		block(v, "drive", HR_CHECK_NO, "put the data on an NVMe drive",
		      "%s is %s, and only NVMe drives take peer memory", d->name,
		      d->kind == HR__DRIVE_SCSI   ? "a SATA or SAS drive"
		      : d->kind == HR__DRIVE_LOOP ? "a loop device"
						  : "no NVMe drive");
	}
}

/* -- the GPU ---------------------------------------------------------------------------------- */

/* NVIDIA's own options of its module, "RegistryDwords: \"RMForceStaticBar1=1;...\"". */
static bool has_registry(const struct hr__report *r, const char *word)
{
	char text[4096];

	return hr__report_text(r, text, sizeof(text), "proc/driver/nvidia/params") > 0 &&
	       strcasestr(text, word);
}

static void judge_driver(struct verdict *v)
{
	const struct hr__gpu *g = v->gpu;
	char text[512];

	if (!strncmp(g->name, "vgpu", 4)) /* the pretended one of virtual machines */
		return;
	if (g->amd) {
		block(v, "GPU driver", HR_CHECK_NO, "use an NVIDIA GPU with this version",
		      "%s is an AMD GPU, for which this library has no provider yet", g->name);
		return;
	}
	if (g->driver[0] && strcmp(g->driver, "nvidia") != 0) {
		block(v, "GPU driver", HR_CHECK_NO, "bind it to NVIDIA's open kernel driver",
		      "the driver %s holds %s", g->driver, g->name);
		return;
	}
	if (hr__report_text(v->r, text, sizeof(text), "proc/driver/nvidia/version") <= 0) {
		block(v, "GPU driver", HR_CHECK_NO, "install and load NVIDIA's open kernel driver",
		      "no NVIDIA kernel driver is loaded");
		return;
	}
	if (!strstr(text, "Open Kernel Module"))
		block(v, "GPU driver", HR_CHECK_NO,
		      "install the open flavour of the driver (nvidia-open, "
		      "nvidia-driver-NNN-open)",
		      "NVIDIA's closed kernel driver shares no GPU memory as a dma-buf for drives");
	if (has_registry(v->r, "RMForceStaticBar1=1"))
		block(v, "static BAR1", HR_CHECK_NO,
		      "take RMForceStaticBar1=1 out of NVreg_RegistryDwords (cuFile's own P2PDMA "
		      "mode wants it)",
		      "RMForceStaticBar1=1: the driver owns the pages of the BAR, and "
		      "headrace_peer "
		      "cannot make them");
}

static void judge_bar(struct verdict *v)
{
	const struct hr__gpu *g = v->gpu;

	if (!g->bar_bytes)
		return;
	if (g->memory_bytes ? g->bar_bytes >= g->memory_bytes : g->bar_bytes >= BAR_SMALL)
		return;
	block(v, "BAR", HR_CHECK_LIMITED,
	      "switch Resizable BAR (Above 4G Decoding) on in the firmware's settings",
	      "drives reach %llu MiB of the GPU's memory: its BAR shows no more",
	      (unsigned long long)g->bar_bytes >> 20);
}

/* -- between the two -------------------------------------------------------------------------- */

/* Host bridges of Intel that are known to forward between their root ports, as the kernel has them. */
static bool forwards(const struct hr__report *r, const struct hr__pci *pci, bool across)
{
	static const uint16_t same[] = {0x3c00, 0x3c01, 0x2f00, 0x2f01};
	static const uint16_t any[] = {0x2020, 0x2030, 0x2031, 0x2032, 0x2033, 0x09a2, 0x29c0};
	char address[16];
	uint32_t id;

	snprintf(address, sizeof(address), "%.7s:00.0", pci->host[0] ? pci->host + 3 : "");
	if (hr__pci_id(r, address, "vendor") != 0x8086) {
		/* Skylake's root complexes begin with a root port. */
		if (!pci->depth || hr__pci_id(r, pci->chain[0], "vendor") != 0x8086)
			return false;
		snprintf(address, sizeof(address), "%s", pci->chain[0]);
	}
	id = hr__pci_id(r, address, "device");
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++) {
		if (id == any[i])
			return true;
	}
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]) && !across; i++) {
		if (id == same[i])
			return true;
	}
	return false;
}

static const char *const put_below_one =
	"put both below one PCIe switch, or use a processor whose root ports forward peer traffic";

static void judge_way(struct verdict *v, const struct hr__pci *drive, const char *name)
{
	enum hr__near near = hr__pci_near(drive, &v->gpu->pci);
	bool across = near >= HR__NEAR_SOCKET;
	int distance;

	/* Of an array the worst member counts; UNKNOWN is the first of the enum, and stays. */
	if (!v->ways++ || (v->near != HR__NEAR_UNKNOWN && near > v->near) ||
	    near == HR__NEAR_UNKNOWN)
		v->near = near;
	v->out->near = hr__pci_near_name(v->near);
	if (!strncmp(drive->iommu, "DMA", 3) || !strncmp(v->gpu->pci.iommu, "DMA", 3))
		block(v, "IOMMU", HR_CHECK_NO,
		      "boot with iommu=pt (intel_iommu=on iommu=pt, or amd_iommu=on iommu=pt)",
		      "the IOMMU translates addresses, so a drive cannot name the GPU's");
	if (near == HR__NEAR_UNKNOWN) {
		block(v, "PCIe way", HR_CHECK_NO,
		      "mount /sys; below WSL and some hypervisors there is none",
		      "the place of %s on PCIe is not visible",
		      v->gpu->pci.depth ? name : v->gpu->name);
		return;
	}
	/* The kernel's own opinion, where the module can be asked for it. */
	if (hr__report_live(v->r) &&
	    !hr__p2p_distance(v->gpu->pci.address, drive->address, &distance)) {
		if (distance < 0)
			block(v, "PCIe way", HR_CHECK_NO, put_below_one,
			      "the kernel knows no PCIe way between %s and %s that works", name,
			      v->gpu->name);
	} else if (near != HR__NEAR_SWITCH && !v->m->zen &&
		   !(forwards(v->r, drive, across) && forwards(v->r, &v->gpu->pci, across))) {
		block(v, "PCIe way", HR_CHECK_NO, put_below_one,
		      "%s and %s are below different root ports, and these are not on the kernel's "
		      "list of those that forward peer traffic",
		      name, v->gpu->name);
	}
	if (near == HR__NEAR_SOCKETS)
		block(v, "socket", HR_CHECK_LIMITED,
		      "use a GPU beside the drive, see the other pairs",
		      "%s is on another socket than the GPU: peer writes cross the link between "
		      "them, slowly",
		      name);
}

static void judge_ways(struct verdict *v)
{
	const struct hr__drive *d = v->drive;

	if (d->kind == HR__DRIVE_NVME)
		judge_way(v, &d->pci, d->name);
	for (uint32_t i = 0; d->kind == HR__DRIVE_MD && i < d->n_members; i++) {
		const struct hr__drive *member = hr__drive_find(v->m, d->members[i]);

		if (member && member->kind == HR__DRIVE_NVME)
			judge_way(v, &member->pci, member->name);
	}
}

static void judge_kernel(struct verdict *v)
{
	const struct hr__machine *m = v->m;

	if (m->major < 6 || (m->major == 6 && m->minor < 2))
		block(v, "kernel", HR_CHECK_NO, "use Linux 6.2 or later",
		      "Linux %.40s: O_DIRECT takes peer memory from 6.2 on", m->release);
	if (m->p2pdma == 0)
		block(v, "PCI_P2PDMA", HR_CHECK_NO,
		      "use a kernel with CONFIG_PCI_P2PDMA=y (Ubuntu 24.04, RHEL 9.4, Debian "
		      "backports)",
		      "this kernel was built without PCI_P2PDMA");
}

static void judge_module(struct verdict *v)
{
	bool loaded = hr__report_exists(v->r, "sys/module/headrace_peer");

	if (!loaded)
		block(v, "headrace_peer", HR_CHECK_NO,
		      v->m->container[0]
			      ? "load it on the host: make -C kernel install; modprobe "
				"headrace_peer"
			      : "make -C kernel && make -C kernel install; modprobe headrace_peer",
		      "the kernel module headrace_peer is not loaded");
	else if (!hr__report_exists(v->r, "dev/headrace_peer"))
		block(v, "headrace_peer", HR_CHECK_NO,
		      v->m->container[0]
			      ? "start the container with --device /dev/headrace_peer"
			      : "udevadm trigger, or mknod by /sys/class/misc/headrace_peer/dev",
		      "headrace_peer is loaded, but /dev/headrace_peer is not here");
}

static void judge_host(struct verdict *v)
{
	if (v->m->kind == HR__HOST_WSL)
		block(v, "WSL", HR_CHECK_NO, "run Linux itself on this machine",
		      "WSL: Windows holds drives and GPUs, and its Linux sees neither on PCIe");
}

static void judge_gpu_pair(struct verdict *v)
{
	judge_host(v);
	judge_drive(v);
	judge_driver(v);
	judge_kernel(v);
	judge_ways(v);
	judge_module(v);
	judge_bar(v);
	v->out->path = v->out->state == HR_CHECK_NO ? HR_PATH_BOUNCE : HR_PATH_P2P;
	if (v->out->state != HR_CHECK_OK)
		return;
	if (v->m->kind == HR__HOST_VM)
		block(v, "virtual machine", HR_CHECK_LIMITED,
		      "read once: headrace explain FILE --device cuda:0",
		      "both are passed through to a virtual machine: whether peer writes arrive is "
		      "up "
		      "to its host; a trial read tells");
	else
		snprintf(v->out->cause, sizeof(v->out->cause),
			 "nothing in the way; a trial read proves it at first use");
}

/* Without a GPU: bytes go to host memory, and what would keep them from a GPU is said all the same. */
static void judge_no_gpu(struct verdict *v)
{
	struct hr_check_pair *p = v->out;
	char why[192];

	judge_host(v);
	judge_drive(v);
	judge_kernel(v);
	memcpy(why, p->cause, sizeof(why));
	if (p->state == HR_CHECK_NO)
		snprintf(p->cause, sizeof(p->cause),
			 "direct into host memory; to a GPU it would not be: %.120s", why);
	else
		snprintf(p->cause, sizeof(p->cause),
			 "direct into host memory; no GPU is here, and nothing else is in the way");
	p->state = HR_CHECK_OK;
	p->path = HR_PATH_HOST;
}

void hr__pair_judge(const struct hr__report *r, const struct hr__machine *m,
		    const struct hr__drive *drive, const struct hr__gpu *gpu,
		    struct hr_check_pair *out)
{
	struct verdict v = {.r = r, .m = m, .drive = drive, .gpu = gpu, .out = out};

	memset(out, 0, sizeof(*out));
	out->near = hr__pci_near_name(HR__NEAR_UNKNOWN);
	out->basis = "none";
	snprintf(out->drive, sizeof(out->drive), "%s", drive->name);
	snprintf(out->drive_pci, sizeof(out->drive_pci), "%s", drive->pci.address);
	snprintf(out->gpu, sizeof(out->gpu), "%s", gpu ? gpu->name : "host");
	if (gpu) {
		snprintf(out->gpu_pci, sizeof(out->gpu_pci), "%s", gpu->pci.address);
		judge_gpu_pair(&v);
		return;
	}
	judge_no_gpu(&v);
}

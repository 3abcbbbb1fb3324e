# SPDX-License-Identifier: Apache-2.0
"""Machines made of files: the parts of /proc, /sys and /dev that the doctor reads, as real kernels lay
them out (links and all), for `headrace check --root`. Knows nothing of verdicts."""
import os

OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
CLOSED_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n"
GIB = 1 << 30
LIMITS = ("Limit                     Soft Limit           Hard Limit           Units\n"
          "Max locked memory         unlimited            unlimited            bytes\n"
          "Max open files            1048576              1048576              files\n")
STATUS = "Name:\theadrace\nCapEff:\t0000000000000000\nSeccomp:\t{}\n"
CPUS = {"zen": "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nflags\t\t: fpu vme{}\n",
        "xeon": "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu vme{}\n"}
NVME_CLASS, GPU_CLASS, BRIDGE_CLASS, VIRTIO_CLASS = 0x010802, 0x030200, 0x060400, 0x010000


class Machine:
    """Files and links below a root; write() makes them."""

    def __init__(self):
        self.files, self.links, self.mounts, self.symbols = {}, {}, [], ["pci_enable_device"]
        self.numbers = 0
        self.put("proc/self/limits", LIMITS)
        self.put("proc/self/status", STATUS.format(0))
        self.put("proc/self/cgroup", "0::/\n")

    # -- the tree ------------------------------------------------------------------------------
    def put(self, path, text=""):
        self.files[path] = text

    def drop(self, prefix):
        for store in (self.files, self.links):
            for path in [p for p in store if p == prefix or p.startswith(prefix + "/")]:
                del store[path]

    def link(self, path, to):
        """@to is a path below the root; the link is relative, as sysfs has them."""
        self.links[path] = to

    def write(self, root):
        self.put("proc/self/mountinfo", "".join(self.mounts))
        self.put("proc/kallsyms", "".join(f"0000000000000000 T {s}\n" for s in self.symbols))
        for path, text in self.files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="ascii") as f:
                f.write(text)
        for path, to in self.links.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            os.makedirs(os.path.join(root, to), exist_ok=True)
            os.symlink(os.path.relpath(os.path.join(root, to), os.path.dirname(full)), full)

    # -- kernel and host -----------------------------------------------------------------------
    def kernel(self, release="6.8.0-45-generic", p2pdma=True, cpu="zen", vm=False):
        self.put("proc/sys/kernel/osrelease", release + "\n")
        self.put("proc/sys/kernel/io_uring_disabled", "0\n")
        self.put(f"boot/config-{release}", "CONFIG_PCI=y\n" + (
            "CONFIG_PCI_P2PDMA=y\n" if p2pdma else "# CONFIG_PCI_P2PDMA is not set\n"))
        self.put("proc/cpuinfo", CPUS[cpu].format(" hypervisor" if vm else ""))

    def nvidia(self, version=OPEN_DRIVER, params='RegistryDwords: ""\n'):
        self.put("sys/module/nvidia/version", "580.95.05\n")
        self.put("proc/driver/nvidia/version", version)
        self.put("proc/driver/nvidia/params", params)

    def peer(self):
        self.put("sys/module/headrace_peer/version", "0.1.0\n")
        self.put("dev/headrace_peer")

    def udev(self):
        self.put("run/udev/data/b259:0", "S:disk/by-id/x\n")

    def iommu(self, kind, *addresses):
        for number, address in enumerate(addresses):
            group = f"sys/kernel/iommu_groups/{number}"
            self.put(f"{group}/type", kind + "\n")
            self.link(self.where[address] + "/iommu_group", group)

    # -- PCI -----------------------------------------------------------------------------------
    where = None

    def pci(self, *chain, host, cls, vendor=0x8086, device=0, numa=0, speed="16.0 GT/s PCIe", width=16):
        """The last of @chain, below the others; bridges are made as they come."""
        self.where = self.where or {}
        at = f"sys/devices/{host}"
        for n, address in enumerate(chain):
            at = f"{at}/{address}"
            last = n == len(chain) - 1
            if address in self.where:
                continue
            self.where[address] = at
            self.put(f"{at}/vendor", f"0x{vendor if last else 0x8086:04x}\n")
            self.put(f"{at}/device", f"0x{device:04x}\n")
            self.put(f"{at}/class", f"0x{cls if last else BRIDGE_CLASS:06x}\n")
            self.put(f"{at}/numa_node", f"{numa}\n")
            self.put(f"{at}/max_link_speed", speed + "\n")
            self.put(f"{at}/current_link_width", f"{width}\n")
            self.link(f"sys/bus/pci/devices/{address}", at)
        return at

    def bridge(self, host, device):
        """The host bridge of a root complex, by which Intel's are known."""
        self.pci(f"{host[3:]}:00.0", host=host, cls=0x060000, device=device)

    def gpu(self, *chain, host, bar=256 * GIB, model="NVIDIA H200", driver="nvidia", vendor=0x10de, **more):
        at = self.pci(*chain, host=host, cls=GPU_CLASS, vendor=vendor, speed="32.0 GT/s PCIe", **more)
        self.put(f"{at}/resource", "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
                 f"0x{1 << 40:016x} 0x{(1 << 40) + bar - 1:016x} 0x000000000014220c\n")
        if driver:
            self.link(f"{at}/driver", f"sys/bus/pci/drivers/{driver}")
            if driver == "nvidia":
                self.put(f"proc/driver/nvidia/gpus/{chain[-1]}/information",
                         f"Model: \t\t {model}\nIRQ:   \t\t 34\n")

    # -- block devices -------------------------------------------------------------------------
    def block(self, name, at, major=259, scheduler="[none] mq-deadline", bs=512):
        self.numbers += 1
        self.put(f"{at}/queue/scheduler", scheduler + "\n")
        self.put(f"{at}/queue/logical_block_size", f"{bs}\n")
        self.link(f"sys/class/block/{name}", at)
        self.link(f"sys/block/{name}", at)
        self.link(f"sys/dev/block/{major}:{self.numbers}", at)
        return f"{major}:{self.numbers}"

    def partition(self, disk, name, major=259):
        at = f"{self.links[f'sys/class/block/{disk}']}/{name}"
        self.numbers += 1
        self.put(f"{at}/partition", "1\n")
        self.link(f"sys/class/block/{name}", at)
        self.link(f"sys/dev/block/{major}:{self.numbers}", at)
        return f"{major}:{self.numbers}"

    def nvme(self, number, *chain, host, **more):
        """A controller with one namespace."""
        at = self.pci(*chain, host=host, cls=NVME_CLASS, vendor=0x144d, width=4, **more)
        ctrl = f"{at}/nvme/nvme{number}"
        self.put(f"{ctrl}/transport", "pcie\n")
        self.put(f"{ctrl}/address", chain[-1] + "\n")
        self.put(f"{ctrl}/model", "SAMSUNG MZWLO3T8HCLS\n")
        self.link(f"sys/class/nvme/nvme{number}", ctrl)
        disk = f"{ctrl}/nvme{number}n1"
        self.link(f"{disk}/device", ctrl)
        return self.block(f"nvme{number}n1", disk)

    def head(self, number, transport="pcie"):
        """A namespace that is the head of several paths."""
        subsystem = f"sys/devices/virtual/nvme-subsystem/nvme-subsys{number}"
        self.put(f"{subsystem}/model", "Dual Port Drive\n")
        self.link(f"sys/class/nvme-subsystem/nvme-subsys{number}", subsystem)
        ctrl = f"sys/devices/virtual/nvme-fabrics/ctl/nvme{number}"
        self.put(f"{ctrl}/transport", transport + "\n")
        self.link(f"sys/class/nvme/nvme{number}", ctrl)
        self.link(f"{subsystem}/nvme{number}", ctrl)
        disk = f"{subsystem}/nvme{number}n1"
        self.link(f"{disk}/device", subsystem)
        return self.block(f"nvme{number}n1", disk)

    def virtio(self, letter, *chain, host):
        at = self.pci(*chain, host=host, cls=VIRTIO_CLASS, vendor=0x1af4, numa=-1)
        return self.block(f"vd{letter}", f"{at}/virtio1/block/vd{letter}", major=254)

    def md(self, name, level, *members):
        at = f"sys/devices/virtual/block/{name}"
        self.put(f"{at}/md/level", level + "\n")
        for member in members:
            self.link(f"{at}/slaves/{member}", self.links[f"sys/class/block/{member}"])
        return self.block(name, at, major=9)

    def dm(self, number, name, uuid, *members):
        at = f"sys/devices/virtual/block/dm-{number}"
        self.put(f"{at}/dm/uuid", uuid + "\n")
        self.put(f"{at}/dm/name", name + "\n")
        for member in members:
            self.link(f"{at}/slaves/{member}", self.links[f"sys/class/block/{member}"])
        return self.block(f"dm-{number}", at, major=253)

    # -- mounts --------------------------------------------------------------------------------
    def mount(self, point, fs, number="0:42", source="none", options="rw"):
        count = 20 + len(self.mounts)
        self.mounts.append(f"{count} 1 {number} / {point} rw,relatime shared:1 - {fs} {source} {options}\n")


SWITCH = ("0000:3a:01.0", "0000:3b:00.0")  # a root port and the switch below it
HOST = "pci0000:3a"


def best():
    """One NVMe drive and one GPU below a switch, everything right."""
    m = Machine()
    m.kernel()
    m.nvidia()
    m.peer()
    m.udev()
    m.nvme(0, *SWITCH, "0000:3c:00.0", "0000:3d:00.0", host=HOST)
    m.gpu(*SWITCH, "0000:3c:01.0", "0000:3e:00.0", host=HOST)
    m.mount("/", "ext4", m.partition("nvme0n1", "nvme0n1p1"), "/dev/nvme0n1p1")
    m.mount("/data", "ext4", m.partition("nvme0n1", "nvme0n1p2"), "/dev/nvme0n1p2")
    m.put("sys/module/nvme_core/parameters/multipath", "N\n")
    return m

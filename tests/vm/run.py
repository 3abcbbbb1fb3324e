#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The suite of the virtual machines: boots each guest and sums up. Usage: run.py [quick|MACHINE...]
Expects build/vm as tests/vm/fetch.sh leaves it, and the programs in build/obj.
"""
import hashlib
import os
import re
import sys
import time

sys.dont_write_bytecode = True
import image  # noqa: E402
import machine  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = f"{ROOT}/build/vm"
# Programs with sanitizers run as well: HEADRACE_VM_OBJ=build/asan
OBJ = os.path.join(ROOT, os.environ.get("HEADRACE_VM_OBJ", "build/obj"))
PROGRAMS = [f"{OBJ}/cli/headrace"] + [f"{OBJ}/tests/integration/{name}" for name in (
    "fsbytes_probe", "fsmatrix_probe")] + [f"{OBJ}/tests/vm/{name}" for name in (
    "peer_tool", "gather_probe", "cufile_probe")]
# A driver of CUDA whose memory is the pretended GPU's BAR, for those who ask for it.
FAKECUDA = f"{OBJ}/tests/fakecuda/libcuda.so.1"
MODULES = [f"{FOLDER}/modules/headrace_{name}.ko" for name in ("peer", "vgpu")]
BAR_MIB = 256
# What an ordinary kernel has for finding bugs of memory: poison, red zones and callers for each object,
# and guard pages for some.
CHECKS = "slab_debug=FZPU,kmalloc-* kfence.sample_interval=50"
# For each kind of user; HEADRACE_VM_FUZZ=600 is for once in a while.
FUZZ_SECONDS = int(os.environ.get("HEADRACE_VM_FUZZ", "30"))
TCG = ["-accel", "tcg,thread=multi"]
KVM = ["-accel", "kvm"]


def drive(number, mib=512):
    """An empty NVMe namespace's memory. Return: QEMU's arguments."""
    path = f"{FOLDER}/drive{number}.img"
    with open(path, "wb") as out:
        out.truncate(mib << 20)
    return ["-drive", f"if=none,id=d{number},file={path},format=raw,cache=unsafe"]


def filesystems(accelerator):
    args = [*drive(0), *drive(1), "-device", "nvme,id=n0,serial=n0",
            "-device", "nvme-ns,drive=d0,bus=n0,nsid=1", "-device", "nvme-ns,drive=d1,bus=n0,nsid=2"]
    return machine.Machine("filesystems", FOLDER, accelerator, ["filesystems"], args)


def peer_args():
    """The pretended GPU's memory is a file, so that this side can see what landed in it."""
    path = f"{FOLDER}/bar"
    with open(path, "wb") as out:
        out.truncate(BAR_MIB << 20)
    return ["-object", f"memory-backend-file,id=bar,share=on,mem-path={path},size={BAR_MIB}M"]


def bar_sha256(words):
    offset, length = int(words[0]), int(words[1])
    with open(f"{FOLDER}/bar", "rb") as bar:
        bar.seek(offset)
        return hashlib.sha256(bar.read(length)).hexdigest()


def bar_clear(_):
    with open(f"{FOLDER}/bar", "r+b") as bar:
        bar.truncate(0)
        bar.truncate(BAR_MIB << 20)
    return "ok"


class Trace:
    """What QEMU says of each address that its NVMe moved data to or from."""
    LINE = re.compile(r"pci_nvme_map_addr addr 0x([0-9a-f]+) len (\d+)")

    def __init__(self, name):
        self.path, self.start = f"{FOLDER}/{name}.trace", 0
        self.args = ["-trace", "enable=pci_nvme_map_addr", "-D", self.path]
        open(self.path, "wb").close()

    def mark(self, _):
        """Count from here on."""
        self.start = os.path.getsize(self.path)
        return "ok"

    def count(self, words):
        """FIRST LAST: entries and bytes in that range of addresses, and outside of it."""
        first, last = int(words[0], 0), int(words[1], 0)
        inside, outside, seen = [0, 0], [0, 0], set()
        with open(self.path, encoding="ascii", errors="replace") as lines:
            lines.seek(self.start)
            for match in self.LINE.finditer(lines.read()):
                address, length = int(match.group(1), 16), int(match.group(2))
                sums = inside if first <= address <= last else outside
                sums[0] += 1
                sums[1] += length
                if sums is inside:
                    seen.add(address)
        return (f"in={inside[0]} distinct={len(seen)} in_bytes={inside[1]} "
                f"out={outside[0]} out_bytes={outside[1]}")


def below_switch(*devices):
    """Each device on a port of its own of one PCIe switch."""
    args = list(machine.SWITCH)
    for number, device in enumerate(devices):
        port, bus = machine.switch_port(number)
        args += [*port, "-device", f"{device},bus={bus}"]
    return args


def peer_machine(name, accel, tests, args, **options):
    vm = machine.Machine(name, FOLDER, accel, tests, peer_args() + args, **options)
    vm.questions.update({"bar-sha256": bar_sha256, "bar-clear": bar_clear})
    trace = Trace(name)
    vm.args += trace.args
    vm.questions.update({"trace-mark": trace.mark, "trace-count": trace.count})
    return vm


def kernel(accel):
    """The modules alone, with everything below one switch."""
    return peer_machine("kernel", accel, ["kernel"], [
        *drive(0), *drive(1), *below_switch("nvme,serial=n0,drive=d0", "nvme,serial=n1,drive=d1",
                                            "ivshmem-plain,memdev=bar")], append=CHECKS)


def direct(accel):
    """The library's direct path where everything is as it should be."""
    return peer_machine("direct", accel, ["direct"], [
        *drive(0), *drive(1), *drive(2), *drive(3),
        *below_switch("nvme,serial=n0,drive=d0", "nvme,serial=n1,drive=d1",
                      "nvme,serial=n2,drive=d2", "nvme,serial=n3,drive=d3",
                      "ivshmem-plain,memdev=bar")], timeout=1500)


def cuda(accel):
    """Programs that know CUDA and cuFile alone; their driver maps the BAR itself."""
    return peer_machine("cuda", accel, ["cuda"], [
        *drive(0), *below_switch("nvme,serial=n0,drive=d0", "ivshmem-plain,memdev=bar")],
        append="iomem=relaxed")


def refusals(accel):
    """Everything below one switch, and still a no: by file, by driver, by user."""
    return peer_machine("refusals", accel, ["refusals", "fuzz", "bytes"], [
        *drive(0), *drive(1), *below_switch("nvme,serial=n0,drive=d0", "nvme,serial=n1,drive=d1",
                                            "ivshmem-plain,memdev=bar")],
        timeout=900 + 3 * FUZZ_SECONDS, append=f"headrace.fuzz={FUZZ_SECONDS} {CHECKS}")


def on_root_ports(name, cpu):
    """Drive and device on two root ports: the kernel knows whether the processor joins them."""
    def build(accel):
        ports = []
        for number in (0, 1):
            ports += ["-device",
                      f"pcie-root-port,id=rp{number},chassis={number + 1},slot={number + 1}"]
        return peer_machine(name, accel, [name], [
            *drive(0), *ports, "-device", "nvme,serial=n0,drive=d0,bus=rp0",
            "-device", "ivshmem-plain,memdev=bar,bus=rp1"], cpu=cpu)
    return build


def behind_iommu(name, append):
    def build(accel):
        return peer_machine(name, accel, [name], [
            # Without interrupt remapping: a slow host makes its timer test fail.
            "-device", "intel-iommu,intremap=off", *drive(0),
            *below_switch("nvme,serial=n0,drive=d0", "ivshmem-plain,memdev=bar")], append=append)
    return build


def numa(accel):
    """Two nodes; the PCIe root of the devices belongs to the second."""
    args = []
    for node in (0, 1):
        args += ["-object", f"memory-backend-ram,id=ram{node},size=256M",
                 "-numa", f"node,nodeid={node},cpus={node},memdev=ram{node}"]
    switch = below_switch("nvme,serial=n0,drive=d0", "ivshmem-plain,memdev=bar")
    switch[1] += ",bus=far"
    return peer_machine("numa", accel, ["numa"], [
        *args, *drive(0), "-device", "pxb-pcie,id=far,bus=pcie.0,bus_nr=32,numa_node=1", *switch],
        memory="512M")


MACHINES = {
    "filesystems": filesystems,
    "kernel": kernel,
    "direct": direct,
    "cuda": cuda,
    "refusals": refusals,
    "apart": on_root_ports("apart", "qemu64"),
    "rootports": on_root_ports("rootports", "EPYC"),
    "translating": behind_iommu("translating", "intel_iommu=on"),
    "numa": numa,
    "passthrough": behind_iommu("passthrough", "intel_iommu=on iommu=pt"),
}
# What a change is most likely to break, in a few minutes.
QUICK = ["kernel", "direct", "cuda", "apart", "translating", "numa"]


def kvm_works():
    """A guest that reaches its first process in a few seconds; some nested ones never do."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    probe = machine.Machine("kvm", FOLDER, KVM, [], [], timeout=10, cpu="host")
    probe.boot()
    return probe.ended


def accelerator():
    """Remembered, because finding out costs time."""
    path = f"{FOLDER}/accelerator"
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as out:
            out.write("kvm" if kvm_works() else "tcg")
    with open(path, encoding="ascii") as text:
        name = text.read().strip()
    print(f"accelerator: {name}")
    return KVM if name == "kvm" else TCG


def main():
    start = time.monotonic()
    names = sys.argv[1:] or list(MACHINES)
    names = QUICK if names == ["quick"] else names
    release = open(f"{FOLDER}/release", encoding="ascii").read().strip()
    image.make(FOLDER, release, PROGRAMS, MODULES, FAKECUDA)
    total = {"passed": 0, "failed": 0, "skipped": 0}
    accel = accelerator()
    print(f"kernel {release}, image after {time.monotonic() - start:.0f} s")
    for name in names:
        for kind, count in MACHINES[name](accel).run().items():
            total[kind] += count
    tail = f", {total['skipped']} skipped" if total["skipped"] else ""
    print(f"{total['passed']} passed, {total['failed']} failed{tail}")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

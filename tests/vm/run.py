#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The suite of the virtual machines: boots each guest and sums up. Usage: run.py [MACHINE...]
Expects build/vm as tests/vm/fetch.sh leaves it, and the programs in build/obj.
"""
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import image  # noqa: E402
import machine  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = f"{ROOT}/build/vm"
OBJ = f"{ROOT}/build/obj"
PROGRAMS = [f"{OBJ}/cli/headrace"] + [f"{OBJ}/tests/integration/{name}" for name in (
    "fsbytes_probe", "fsmatrix_probe")]
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


MACHINES = {"filesystems": filesystems}


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
    release = open(f"{FOLDER}/release", encoding="ascii").read().strip()
    image.make(FOLDER, release, PROGRAMS)
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

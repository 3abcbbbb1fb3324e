#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`headrace check` on machines made of files. Each case says what differs from a machine on which
everything is right: the lines whose state changes (all of them, no other), with cause and remedy, and
the verdict on pairs of drive and GPU with all obstacles. Nothing of the running machine is asked."""
import json
import os
import random
import tempfile

import common
import machines
from machines import GIB, HOST, SWITCH, best

GPU, GPU2 = "0000:3e:00.0", "0000:be:00.0"
DATA = "direct /data -> " + GPU
SCHEMA = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "check.schema.json")


def look(machine, *paths):
    """The report on @machine as JSON, as people see it, and the answer to --require direct."""
    with tempfile.TemporaryDirectory(prefix="headrace-machine-") as root:
        machine.write(root)
        done = common.run("check", "--root", root, "--json", "--require", "direct", *paths)
        assert done.code in (0, 3), str(done)
        assert done.json["requirement_met"] == (done.code == 0), str(done)
        people = common.run("check", "--root", root, *paths)
        assert people.code == 0, str(people)
        return done.json, people.out, done.code


def items(report):
    return {i["name"]: i for g in report["groups"] for i in g["items"]}


class Machines(common.CliTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.normal = items(look(best(), "/data")[0])

    def check(self, machine, changes, pair=None, paths=("/data",), gone=(), required=None):
        """@changes: {item: (state, cause, fix)} for every line that differs from the best machine.
        @pair: ((drive, gpu), direct, blockers, cause, fix). @gone: lines that are absent."""
        normal = self.normal
        report, people, code = look(machine, *paths)
        got = items(report)
        for name, (state, cause, fix) in changes.items():
            self.assertIn(name, got)
            one = got[name]
            self.assertEqual(one["state"], state, one)
            self.assertIn(cause.lower(), one["cause"].lower(), one)
            self.assertIn(fix.lower(), one["fix"].lower(), one)
            self.assertTrue(one["fix"] or state == "ok", one)
        differ = {n for n in got.keys() | normal.keys()
                  if got.get(n, {}).get("state") != normal.get(n, {}).get("state")}
        self.assertEqual(differ - set(gone), set(changes))
        self.assertFalse(set(gone) & set(got))
        if pair:
            self.pair(report, *pair)
        # What is not direct today is a no for --require direct, and people see the same words.
        direct = [i for n, i in got.items() if n.startswith("direct ")]
        met = bool(direct) and all(i["state"] == "ok" for i in direct)
        self.assertEqual(code, 0 if met else 3)
        if required is not None:
            self.assertEqual(met, required)
        for one in got.values():
            self.assertIn(one["cause"], people)
        return report

    def pair(self, report, names, direct, blockers, cause, fix):
        found = [p for p in report["pairs"] if (p["drive"], p["gpu"]) == names]
        self.assertEqual(len(found), 1, report["pairs"])
        p = found[0]
        self.assertEqual((p["direct"], p["blockers"]), (direct, blockers), p)
        self.assertEqual(p["path"], "host" if names[1] == "host" else
                         "bounce" if direct == "no" else "p2p", p)
        self.assertIn(cause.lower(), p["cause"].lower(), p)
        self.assertIn(fix.lower(), p["fix"].lower(), p)
        return p

    # -- where it works ------------------------------------------------------------------------
    def test_01_best(self):
        report = self.check(best(), {}, (("nvme0n1", GPU), "ok", [], "trial read", ""), required=True)
        self.assertEqual({i["state"] for i in items(report).values()}, {"ok"})
        rate = report["pairs"][0]["expected_bytes_per_second"]
        self.assertTrue(0.4e9 < rate["low"] < 1.5e9 and 6.5e9 < rate["high"] < 7.9e9, rate)
        self.assertEqual(report["pairs"][0]["near"], "switch")
        self.assertEqual([n["depth"] for n in report["tree"]], [0, 1, 2, 3, 4, 3, 4])

    def test_02_eight_gpus(self):
        """Like a DGX: four switches, two GPUs and two drives below each, two sockets, AMD."""
        m = best()
        m.drop("sys/devices")
        m.drop("sys/class")
        m.drop("sys/bus")
        m.drop("sys/dev")
        m.drop("sys/block")
        m.where, m.mounts = {}, []
        for s in range(4):
            host, numa = f"pci0000:{16 * s + 16:02x}", s // 2
            port = (f"0000:{16 * s + 16:02x}:01.0", f"0000:{16 * s + 17:02x}:00.0")
            for k in range(2):
                down, bus = f"0000:{16 * s + 18:02x}:{k:02x}.0", 16 * s + 19 + k
                m.gpu(*port, down, f"0000:{bus:02x}:00.0", host=host, numa=numa)
                down = f"0000:{16 * s + 18:02x}:{k + 4:02x}.0"
                m.nvme(2 * s + k, *port, down, f"0000:{bus + 4:02x}:00.0", host=host, numa=numa)
        m.md("md0", "raid0", *(f"nvme{i}n1" for i in range(1, 8)))
        m.mount("/", "ext4", "259:1", "/dev/nvme0n1")
        m.mount("/raid", "xfs", f"9:{m.numbers}", "/dev/md0")
        report, people, code = look(m, "/raid")
        self.assertEqual(code, 3)  # md0 reaches across sockets: limited, not ok
        near = {(p["drive"], p["gpu"]): (p["near"], p["direct"]) for p in report["pairs"]}
        self.assertEqual(len(near), 16)
        self.assertEqual(near["nvme0n1", "0000:13:00.0"], ("switch", "ok"))
        self.assertEqual(near["nvme0n1", "0000:23:00.0"], ("socket", "ok"))
        self.assertEqual(near["nvme0n1", "0000:43:00.0"], ("sockets", "limited"))
        self.assertEqual(near["md0", "0000:13:00.0"][1], "limited")
        self.assertLess(len(people.splitlines()), 80)
        rate = [p for p in report["pairs"] if p["drive"] == "md0"][0]["expected_bytes_per_second"]
        self.assertGreater(rate["high"], 40e9)

    def test_03_two_sockets(self):
        m = best()
        m.gpu("0000:ba:01.0", "0000:be:00.0", host="pci0000:ba", numa=1)
        name = f"direct /data -> {GPU2}"
        report = self.check(m, {GPU2: ("ok", "H200", ""), "BAR of " + GPU2: ("ok", "262144 MiB", ""),
                                "link of " + GPU2: ("ok", "32.0 GT/s x16", ""),
                                name: ("limited", "another socket", "a GPU beside the drive")},
                            (("nvme0n1", GPU2), "limited", ["socket"], "link between them", "beside"))
        low = [p["expected_bytes_per_second"]["low"] for p in report["pairs"]]
        self.assertLess(low[1], low[0] / 5)

    def test_04_md_raid0(self):
        m = best()
        for i in (1, 2):
            m.nvme(i, *SWITCH, f"0000:3c:0{i + 1}.0", f"0000:4{i}:00.0", host=HOST)
        m.mount("/raid", "xfs", m.md("md0", "raid0", "nvme1n1", "nvme2n1"), "/dev/md0")
        new = {n: ("ok", "NVMe", "") for n in ("nvme1n1", "nvme2n1")}
        self.check(m, {**new, "md0": ("ok", "raid0 of nvme1n1, nvme2n1", ""), "/raid": ("ok", "xfs on md0", ""),
                       "direct /raid -> " + GPU: ("ok", "trial read", "")},
                   (("md0", GPU), "ok", [], "trial read", ""), paths=("/raid", "/data"), required=True)

    # -- kernel and platform -------------------------------------------------------------------
    def no(self, machine, changes, blockers, cause, fix, drive="nvme0n1", **more):
        path = more.get("paths", ("/data",))[0]
        changes = {**changes, f"direct {path} -> {GPU}": ("no", cause, fix)}
        return self.check(machine, changes, ((drive, GPU), "no", blockers, cause, fix), required=False,
                          **more)

    def test_05_no_p2p_in_kernel(self):
        m = best()
        m.kernel(p2pdma=False)
        self.no(m, {"PCI_P2PDMA": ("no", "not built in", "CONFIG_PCI_P2PDMA=y")}, ["PCI_P2PDMA"],
                "without PCI_P2PDMA", "CONFIG_PCI_P2PDMA=y")

    def test_06_old_kernel(self):
        m = best()
        m.kernel("5.15.0-119-generic")
        self.no(m, {"version": ("limited", "5.15", "6.2")}, ["kernel"], "from 6.2 on", "Linux 6.2")

    def test_07_iommu_translates(self):
        m = best()
        m.iommu("DMA-FQ", "0000:3d:00.0", "0000:3e:00.0")
        self.no(m, {"IOMMU": ("limited", "translates", "iommu=pt")}, ["IOMMU"], "translates addresses",
                "iommu=pt")

    def test_08_iommu_passes_through(self):
        m = best()
        m.iommu("identity", "0000:3d:00.0", "0000:3e:00.0")
        report = self.check(m, {}, (("nvme0n1", GPU), "ok", [], "trial read", ""), required=True)
        self.assertIn("iommu=pt", items(report)["IOMMU"]["cause"])

    def test_09_wsl(self):
        m = machines.Machine()
        m.kernel("5.15.153.1-microsoft-standard-WSL2", cpu="xeon", vm=True)
        m.mount("/", "ext4", "8:1", "/dev/sdc")
        m.mount("/mnt/c", "9p", "0:60", "C:\\134", "rw,aname=drvfs")
        m.put("sys/devices/LNXSYSTM:00/block/sdc/queue/scheduler", "[none]\n")
        m.link("sys/class/block/sdc", "sys/devices/LNXSYSTM:00/block/sdc")
        m.link("sys/dev/block/8:1", "sys/devices/LNXSYSTM:00/block/sdc")
        report, _, code = look(m, "/mnt/c/data")
        got = items(report)
        self.assertEqual(got["machine"]["state"], "limited")
        self.assertIn("WSL", got["machine"]["cause"])
        self.assertIn("/mnt/c", got["machine"]["fix"])
        self.assertEqual(got["/mnt/c/data"]["state"], "limited")
        self.assertIn("own file system", got["/mnt/c/data"]["fix"])
        self.assertEqual(code, 3)
        pair = self.pair(report, ("sdc", "host"), "ok", ["WSL", "drive", "kernel"], "Windows holds", "Linux itself")
        self.assertEqual(pair["path"], "host")

    def test_10_virtual_machine(self):
        """Both are passed through: nobody but a trial read knows."""
        m = best()
        m.kernel(vm=True)
        m.put("sys/class/dmi/id/sys_vendor", "QEMU\n")
        report = self.check(m, {DATA: ("limited", "up to its host", "explain")},
                            (("nvme0n1", GPU), "limited", ["virtual machine"], "trial read", "explain"))
        self.assertIn("QEMU", items(report)["machine"]["cause"])

    # -- containers ----------------------------------------------------------------------------
    def container(self):
        m = best()
        m.put(".dockerenv")
        m.put("proc/self/status", machines.STATUS.format(2))
        m.mounts = [x for x in m.mounts if " / / " not in x]
        m.mount("/", "overlay", "0:50", "overlay", "rw,lowerdir=/var/lib/docker/l/A,upperdir=/var/lib/docker/u")
        return m, {"container": ("ok", "Docker", ""), "seccomp": ("limited", "filter", "profile")}

    def test_11_container_without_device(self):
        m, more = self.container()
        m.drop("dev/headrace_peer")
        self.no(m, {**more, "headrace_peer": ("no", "not here", "--device /dev/headrace_peer")},
                ["headrace_peer"], "/dev/headrace_peer is not here", "--device /dev/headrace_peer")

    def test_12_container_overlay(self):
        m, more = self.container()
        path = "/opt/model"
        self.check(m, {**more, path: ("limited", "overlayfs", "docker run -v"),
                       f"direct {path} -> {GPU}": ("no", "layer of a container", "docker run -v")},
                   (("nvme0n1", GPU), "ok", [], "", ""), paths=(path, "/data"), required=False)

    def test_13_container_no_udev(self):
        m, more = self.container()
        m.drop("run/udev")
        self.check(m, {**more, "udev": ("limited", "sysfs instead", "-v /run/udev:/run/udev")},
                   (("nvme0n1", GPU), "ok", [], "", ""), required=True)

    def test_14_no_udev(self):
        m = best()
        m.drop("run/udev")
        self.check(m, {"udev": ("limited", "no /run/udev", "run udev")},
                   (("nvme0n1", GPU), "ok", [], "", ""), required=True)

    def test_15_no_io_uring_and_small_limits(self):
        m, more = self.container()
        m.put("proc/sys/kernel/io_uring_disabled", "2\n")
        m.put("proc/self/limits", machines.LIMITS.replace("unlimited            unlimited ",
                                                          "65536                65536     "))
        self.check(m, {**more, "io_uring": ("no", "denied to all", "io_uring_disabled=0"),
                       "RLIMIT_MEMLOCK": ("limited", "64 KiB", "ulimit -l")}, required=True)

    # -- drives --------------------------------------------------------------------------------
    def other_drive(self, number, fs="ext4", source="/dev/x", machine=None, options="rw"):
        m = machine or best()
        m.mount("/other", fs, number, source, options)
        return m

    def drive_no(self, m, name, state, cause, fix, pair_cause, pair_fix, blockers=("drive",), more=None):
        self.check(m, {**(more or {}), name: (state, cause, fix), "/other": ("ok", "ext4", ""),
                       f"direct /other -> {GPU}": ("no", pair_cause, pair_fix)},
                   ((name, GPU), "no", list(blockers), pair_cause, pair_fix), paths=("/other", "/data"))

    def test_16_virtio(self):
        m = best()
        number = m.virtio("a", "0000:00:04.0", host="pci0000:00")
        self.drive_no(self.other_drive(number, machine=m), "vda", "limited", "virtio", "NVMe drive of this machine",
                      "no drive is seen from here", "VFIO")

    def test_17_multipath(self):
        m = best()
        m.put("sys/module/nvme_core/parameters/multipath", "Y\n")
        self.drive_no(self.other_drive(m.head(5), machine=m), "nvme5n1", "limited", "head of a multipath",
                      "multipath=N", "multipath head", "nvme_core.multipath=N", ["multipath"],
                      {"NVMe multipath": ("limited", "get a head", "multipath=N")})

    def test_18_fabric(self):
        m = best()
        self.drive_no(self.other_drive(m.head(5, "tcp"), machine=m), "nvme5n1", "limited", "over tcp",
                      "NVMe drive of this machine", "network card", "local NVMe")

    def test_19_dm_crypt(self):
        m = best()
        m.dm(0, "secret", "CRYPT-LUKS2-0123", "nvme0n1p2")
        self.drive_no(self.other_drive("0:70", source="/dev/mapper/secret", machine=m), "dm-0", "limited",
                      "CRYPT", "partition or md raid0", "decrypts every block", "encrypts itself")

    def test_20_lvm(self):
        m = best()
        self.drive_no(self.other_drive(m.dm(1, "vg-data", "LVM-abc", "nvme0n1p2"), machine=m), "dm-1",
                      "limited", "LVM", "partition or md raid0", "LVM volume", "without LVM")

    def test_21_md_raid1(self):
        m = best()
        m.nvme(1, *SWITCH, "0000:3c:02.0", "0000:41:00.0", host=HOST)
        m.nvme(2, *SWITCH, "0000:3c:03.0", "0000:42:00.0", host=HOST)
        self.drive_no(self.other_drive(m.md("md1", "raid1", "nvme1n1", "nvme2n1"), machine=m), "md1",
                      "limited", "raid1", "raid0", 'level "raid1"', "md raid0",
                      more={n: ("ok", "NVMe", "") for n in ("nvme1n1", "nvme2n1")})

    def test_22_sata(self):
        m = best()
        at = m.pci("0000:00:17.0", host="pci0000:00", cls=0x010601)
        number = m.block("sda", f"{at}/ata1/host0/target0:0:0/0:0:0:0/block/sda", major=8,
                         scheduler="none [mq-deadline]")
        self.drive_no(self.other_drive(number, machine=m), "sda", "limited", "not NVMe", "NVMe",
                      "SATA or SAS", "NVMe drive")

    def test_23_scheduler(self):
        m = best()
        m.put(m.links["sys/class/block/nvme0n1"] + "/queue/scheduler", "none [mq-deadline]\n")
        self.check(m, {"nvme0n1": ("limited", "mq-deadline", "scheduler to none")},
                   (("nvme0n1", GPU), "ok", [], "", ""), required=True)

    # -- file systems --------------------------------------------------------------------------
    def file_system(self, fs, cause, fix, source="/dev/nvme0n1p3", options="rw", device=True):
        m = best()
        number = m.partition("nvme0n1", "nvme0n1p3") if device else "0:77"
        self.other_drive(number, fs, source, m, options)
        self.check(m, {"/other": ("limited", cause, fix), f"direct /other -> {GPU}": ("no", cause, fix)},
                   (("nvme0n1", GPU), "ok", [], "", ""), paths=("/other", "/data"), required=False)

    def test_24_ext4_journal(self):
        self.file_system("ext4", "data=journal", "data=ordered", options="rw,data=journal")

    def test_25_nfs(self):
        self.file_system("nfs4", "network file system", "local NVMe", "srv:/x", "rw,vers=4.2", False)

    def test_26_tmpfs(self):
        self.file_system("tmpfs", "in memory", "from memory already", "tmpfs", "rw,size=1g", False)

    def test_27_btrfs(self):
        self.file_system("btrfs", "page cache", "ext4 or xfs", device=False)

    def test_28_fuse(self):
        self.file_system("fuse.sshfs", "a program serves", "below it", "me@x:", device=False)

    def test_29_lustre(self):
        self.file_system("lustre", "Lustre", "local NVMe", "10.0.0.1@tcp:/lus", device=False)

    # -- GPUs ----------------------------------------------------------------------------------
    def gpu_machine(self, **more):
        m = best()
        m.drop(m.where["0000:3e:00.0"])
        m.drop("sys/bus/pci/devices/0000:3e:00.0")
        del m.where["0000:3e:00.0"]
        m.gpu(*SWITCH, "0000:3c:01.0", "0000:3e:00.0", host=HOST, **more)
        return m

    def test_30_small_bar(self):
        self.check(self.gpu_machine(bar=256 << 20, model="NVIDIA GeForce RTX 4090"),
                   {"BAR of " + GPU: ("limited", "256 MiB", "Resizable BAR"),
                    DATA: ("limited", "256 MiB", "Resizable BAR")},
                   (("nvme0n1", GPU), "limited", ["BAR"], "256 MiB", "Resizable BAR"))

    def test_31_closed_driver(self):
        m = best()
        m.nvidia(machines.CLOSED_DRIVER)
        self.no(m, {"NVIDIA kernel module": ("limited", "closed", "nvidia-open")}, ["GPU driver"],
                "closed kernel driver", "open flavour")

    def test_32_no_driver(self):
        m = self.gpu_machine(driver=None)
        m.drop("sys/module/nvidia")
        m.drop("proc/driver/nvidia")
        self.no(m, {"NVIDIA kernel module": ("no", "not loaded", "install"),
                    GPU: ("no", "driver none", "modprobe nvidia")}, ["GPU driver"],
                "no NVIDIA kernel driver", "open kernel driver", gone=["cuFile P2PDMA mode"])

    def test_33_vfio(self):
        m = self.gpu_machine(driver="vfio-pci")
        self.no(m, {}, ["GPU driver"], "vfio-pci holds", "bind it")

    def test_34_static_bar(self):
        m = best()
        m.nvidia(params='RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1"\n')
        self.no(m, {}, ["static BAR1"],
                "owns the pages", "take RMForceStaticBar1=1 out")

    def test_35_amd(self):
        m = best()
        m.gpu("0000:ba:01.0", "0000:be:00.0", host="pci0000:ba", vendor=0x1002, driver="amdgpu", model="")
        report, _, _ = look(m, "/data")
        self.pair(report, ("nvme0n1", GPU2), "no", ["GPU driver"],
                  "no provider yet", "NVIDIA GPU")

    def test_36_no_module(self):
        m = best()
        m.drop("sys/module/headrace_peer")
        m.drop("dev/headrace_peer")
        self.no(m, {"headrace_peer": ("limited", "not loaded", "modprobe headrace_peer")},
                ["headrace_peer"], "not loaded", "modprobe headrace_peer")

    # -- the way between them ------------------------------------------------------------------
    def ports(self, cpu, bridge):
        """Drive and GPU below two root ports of one root complex."""
        m = best()
        m.kernel(cpu=cpu)
        m.bridge("pci0000:60", bridge)
        m.gpu("0000:60:01.0", "0000:be:00.0", host="pci0000:60")
        m.nvme(7, "0000:60:02.0", "0000:62:00.0", host="pci0000:60")
        return look(m, "/data")[0]

    def test_37_ports_that_forward(self):
        for cpu, bridge in (("zen", 0x1480), ("xeon", 0x09a2)):
            p = self.pair(self.ports(cpu, bridge), ("nvme7n1", GPU2), "ok", [], "trial read", "")
            self.assertEqual(p["near"], "bridge")

    def test_38_ports_that_do_not(self):
        self.pair(self.ports("xeon", 0x4660), ("nvme7n1", GPU2), "no", ["PCIe way"],
                  "not on the kernel's list", "below one PCIe switch")

    # -- what NVIDIA's own stack would say -----------------------------------------------------
    def hooks(self, *symbols):
        m = best()
        m.put("sys/module/nvidia_fs/version", "2.27.3\n")
        m.symbols += symbols
        return m

    def test_39_nvidia_fs_without_hook(self):
        self.check(self.hooks(), {"nvidia-fs": ("limited", "NVMe: Unsupported", "MOFED")}, required=True)

    def test_40_nvidia_fs_looks_for_another(self):
        self.check(self.hooks("nvme_v2_register_nvfs_dma_ops"),
                   {"nvidia-fs": ("limited", "looks for nvme_v1_register_nvfs_dma_ops", "one release")})
        self.check(self.hooks("blk_rq_dma_map_iter_start", "nvme_v1_register_nvfs_dma_ops"),
                   {"nvidia-fs": ("limited", "looks for nvme_v2_register_nvfs_dma_ops", "one release")})

    def test_41_nvidia_fs_works(self):
        report = self.check(self.hooks("nvme_v1_register_nvfs_dma_ops"), {})
        self.assertIn("with its hook", items(report)["nvidia-fs"]["cause"])

    # -- everything at once --------------------------------------------------------------------
    def test_42_all_obstacles_are_named(self):
        m = best()
        m.kernel("6.1.0-25-amd64", p2pdma=False, cpu="xeon")
        m.nvidia(machines.CLOSED_DRIVER)
        m.iommu("DMA", "0000:3d:00.0", "0000:3e:00.0")
        m.drop("sys/module/headrace_peer")
        report, _, _ = look(m, "/data")
        self.pair(report, ("nvme0n1", GPU), "no",
                  ["GPU driver", "kernel", "PCI_P2PDMA", "IOMMU", "headrace_peer"], "closed", "open flavour")

    def test_43_nothing(self):
        report, _, code = look(machines.Machine(), "/data")
        self.assertEqual(code, 3)
        self.assertEqual(items(report)["drives"]["state"], "limited")
        self.assertEqual(report["pairs"], [])

    def test_45_garbage(self):
        """Files of a machine with anything in them: no crash, and what comes out is still JSON."""
        for seed in range(12):
            rng, m = random.Random(seed), best()
            m.md("md0", "raid0", "nvme0n1")
            m.dm(0, "x", "LVM-x", "nvme0n1p2")
            m.mounts.append(rng.randbytes(40).decode("latin-1") + " - \n")
            for path in rng.sample(sorted(m.files), len(m.files) // 3):
                m.files[path] = rng.choice([
                    "", "\n", "9" * 400, "-1", "0x", "%s%n" * 50, "a" * 9000, rng.randbytes(200).decode("latin-1"),
                    "18446744073709551616", ":" * 80, "0000:00:00.0 " * 30])
            for path in rng.sample(sorted(m.links), len(m.links) // 5):
                m.links[path] = rng.choice(["nowhere/at/all", "sys", m.links[path] + "/x"])
            with tempfile.TemporaryDirectory(prefix="headrace-machine-") as root:
                m.write(root)
                done = common.run("check", "--root", root, "--json", "/data", "/", "")
                self.assertEqual(done.code, 0, f"seed {seed}: {done}")
                self.assertTrue(done.json["groups"])
                self.ok("check", "--root", root, "/data")

    def test_44_schema(self):
        with open(SCHEMA, encoding="ascii") as f:
            schema = json.load(f)
        for machine in (best(), machines.Machine()):
            self.fits(look(machine, "/data")[0], schema, "$")
        self.fits(self.ok("check", "--json", "--device", "host", self.dir).json, schema, "$")

    def fits(self, value, schema, at):
        """The few words of JSON Schema that the document uses."""
        kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
                 "null": type(None)}
        want = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        self.assertTrue(any(isinstance(value, kinds[k]) for k in want), f"{at}: {value!r}")
        if "enum" in schema:
            self.assertIn(value, schema["enum"], at)
        if isinstance(value, dict):
            self.assertEqual(set(value), set(schema["properties"]), at)
            for key, part in schema["properties"].items():
                self.fits(value[key], part, f"{at}.{key}")
        if isinstance(value, list):
            for number, part in enumerate(value):
                self.fits(part, schema["items"], f"{at}[{number}]")


if __name__ == "__main__":
    common.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in libcufile.so.0 beside another one (NVIDIA's), in alternating pairs on the same file.

Each run is a process of its own, cufile_read, which loads the library it is told to; it is compiled
here against the other one's header where there is one, so that the same machine code judges both.
Cold runs drop the file from the page cache before; every byte that was read is compared with
read(2). A run that does not end is stopped and told as "hangs". Without a second library ours alone
is measured. Writes cufile-pairs.json and a table; exit 1 when ours failed or gave a wrong byte, 77
without a device.
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes.util
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import files
import lib
import runners

HERE = Path(__file__).resolve().parent
NAME = "cufile-pairs"


@dataclass
class Case:
    """One thing to do, in the words of cufile_read, and what its result is judged by."""
    name: str
    argv: list[str]
    cold: bool = True
    limit_s: float = 60
    pairs: int = 99
    value: str = "rate"            # or "round": the median of its rounds; less is better
    disk: bool = False             # the drive's own time for the same is measured too
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def cases(size: int) -> list[Case]:
    def words(mode: str, **keys: int) -> list[str]:
        return [mode, *(f"{k}={v}" for k, v in keys.items())]

    part = size // 8
    return [
        Case("read 1M cold", words("read", bs=1 << 20, count=max(1, part >> 20))),
        Case("read 16M cold", words("read", bs=16 << 20, count=max(1, part >> 24))),
        Case("random 8K t1 cold", words("random", bs=8192, count=3072)),
        Case("random 8K t16 cold", words("random", bs=8192, count=24576, threads=16)),
        Case("read 1M hot", words("read", bs=1 << 20, count=max(1, part >> 20)), cold=False, pairs=5),
        Case("read 1M hot t4", words("read", bs=1 << 20, count=max(1, part >> 20), threads=4),
             cold=False, pairs=5),
        Case("random 8K hot", words("random", bs=8192, count=24576), cold=False, pairs=5),
        Case("stream 1M cold", words("async", bs=1 << 20, count=64), pairs=3, limit_s=15),
        Case("batch 64 x 8K", words("batch", bs=8192, nr=64, rounds=12), value="round", disk=True,
             pairs=7),
        Case("batch 128 x 8K", words("batch", bs=8192, nr=128, rounds=6), value="round", disk=True,
             pairs=2, limit_s=12),
        Case("batch 256 x 8K", words("batch", bs=8192, nr=256, rounds=4), value="round", disk=True,
             pairs=2, limit_s=12),
        Case("open and close", words("open", rounds=6), cold=False, value="round", pairs=3),
        Case("open, read 4K, close", words("cycle", bs=4096, rounds=6), cold=False, value="round",
             pairs=3),
    ]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda:0", help="host to try the script out (cuda:0)")
    p.add_argument("--ours", help="our libcufile.so.0 (that of the build or the bundle)")
    p.add_argument("--theirs", help="the other one; 'none' to measure ours alone (looked for)")
    p.add_argument("--reader", help="cufile_read, compiled already")
    p.add_argument("--file", type=Path, help="a file to read (a temporary one)")
    p.add_argument("--data", type=Path, default=Path("/var/tmp"),
                   help="folder on the disk to measure (/var/tmp)")
    p.add_argument("--size", type=lib.parse_size, default=2 << 30, help="of that file (2G)")
    p.add_argument("--pairs", type=int, default=15, help="at most (15)")
    p.add_argument("--budget", type=float, default=240, help="seconds for everything (240)")
    p.add_argument("--only", default="", help="cases whose name contains this")
    p.add_argument("--name", default=NAME, help=f"of the result ({NAME})")
    return p.parse_args()


# -- what there is on this machine -------------------------------------------------------------
def first_file(*places: Any) -> Path | None:
    for place in places:
        if place and Path(place).is_file():
            return Path(place).resolve()
    return None


def site_folders() -> list[str]:
    """Where pip put the packages of NVIDIA, for the python that runs this."""
    return [os.path.join(p, "nvidia") for p in sys.path if os.path.isdir(os.path.join(p, "nvidia"))]


def find_ours(given: str | None) -> Path:
    root = HERE.parent
    found = first_file(given, root / "lib/cufile/libcufile.so.0",
                       root / "build/lib/cufile/libcufile.so.0",
                       root / "build/obj/cufile/libcufile.so.0")
    if not found:
        raise SystemExit("no libcufile.so.0 of ours: build it with ./dev build or name it with --ours")
    return found


def find_theirs(given: str | None, ours: Path) -> Path | None:
    if given == "none":
        return None
    places = [given] if given else []
    for folder in site_folders():
        places += sorted(glob.glob(folder + "/*/lib/libcufile.so.0"), reverse=True)
    places += sorted(glob.glob("/usr/local/cuda*/targets/*/lib/libcufile.so.0"), reverse=True)
    places += sorted(glob.glob("/usr/local/cuda*/lib64/libcufile.so.0"), reverse=True)
    places += sorted(glob.glob("/usr/lib/*/libcufile.so.0"))
    if ctypes.util.find_library("cufile"):
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
        places += re.findall(r"libcufile\.so\.0 .*=> (\S+)", listed.stdout)
    found = first_file(*(p for p in places if Path(p).resolve() != ours))
    if given and not found:
        raise SystemExit(f"no library at {given}")
    return found


def find_header() -> tuple[Path, Path] | None:
    """Folders of another cufile.h and of the cuda.h that it needs."""
    places = [f"{folder}/{part}" for folder in site_folders() for part in ("cu13/include", "cufile/include")]
    places += sorted(glob.glob("/usr/local/cuda*/include"), reverse=True)
    cufile = first_file(*(p + "/cufile.h" for p in places))
    places += [f"{folder}/cuda_runtime/include" for folder in site_folders()]
    cuda = first_file(*(p + "/cuda.h" for p in places))
    return (cufile.parent, cuda.parent) if cufile and cuda else None


def find_reader(given: str | None, folder: Path) -> tuple[Path, str]:
    """cufile_read and whose header it was compiled against."""
    source, header, compiler = HERE / "cufile_read.c", find_header(), shutil.which("gcc")
    if not given and header and compiler and source.exists():
        target = folder / "cufile_read"
        done = subprocess.run([compiler, "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-isystem", header[0],
                               "-isystem", header[1], "-o", target, source, "-pthread", "-ldl"],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return target, f"{header[0]}/cufile.h"
        print(f"compiling against {header[0]} failed: {done.stderr.strip()[-300:]}")
    found = first_file(given, HERE.parent / "bin/cufile_read",
                       HERE.parent / "build/obj/bench/cufile_read")
    if not found:
        raise SystemExit("no cufile_read: build it with ./dev build or name it with --reader")
    return found, "our cufile.h"


@contextlib.contextmanager
def udev_record(path: Path) -> Iterator[str]:
    """The other library refuses disks that udev does not know; where none runs, tell it for the while."""
    number = os.stat(path).st_dev
    record = Path(f"/run/udev/data/b{os.major(number)}:{os.minor(number)}")
    fs = lib.disk(path)["fs"] or "ext4"
    made: list[Path] = []
    told = "there"
    if not record.exists():
        try:
            for folder in (record.parent.parent, record.parent):
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
            record.write_text(f"E:ID_FS_TYPE={fs}\nE:ID_FS_USAGE=filesystem\n")
            made.append(record)
            told = "written for the while"
        except OSError as problem:
            told = f"missing ({problem})"
    try:
        yield told
    finally:
        for what in reversed(made):
            with contextlib.suppress(OSError):
                what.rmdir() if what.is_dir() else what.unlink()


# -- running -----------------------------------------------------------------------------------
class Bench:
    def __init__(self, args: argparse.Namespace, reader: Path, libraries: dict[str, Path],
                 file: Path, folder: Path) -> None:
        self.args, self.reader, self.libraries = args, reader, libraries
        self.file, self.folder, self.began = file, folder, time.monotonic()

    def left(self) -> float:
        return self.args.budget - (time.monotonic() - self.began)

    def run(self, case: Case, who: str, seed: int) -> None:
        """One process; its result is kept in the case, as is the reason why there is none."""
        if who in case.failed:
            return
        argv = [str(self.reader), *case.argv, f"file={self.file}", f"seed={seed}"]
        if who == "disk":
            argv[1] = "disk"
        else:
            argv += [f"lib={self.libraries[who]}", f"device={self.args.device}"]
        env = {"CUFILE_LOGFILE_PATH": str(self.folder / f"{who}.log")}
        limit = max(5.0, min(case.limit_s, self.left() + 5))
        try:
            (files.drop if case.cold else files.heat)(self.file)
            done = runners.run_child(argv, limit, env)
            result = runners.json_of(done.out)
            if done.code or "error" in result:
                raise RuntimeError(f"{result.get('error')} {result.get('code')} "
                                   f"errno {result.get('errno')}")
            result["process_cpu_seconds"] = done.user_s + done.system_s
            case.runs.setdefault(who, []).append(result)
        except TimeoutError:
            case.failed[who] = f"hangs (stopped after {limit:.0f} s)"
        except (RuntimeError, OSError, ValueError) as problem:
            case.failed[who] = str(problem)

    def all(self, todo: list[Case]) -> None:
        """A pair of every case, then another of each, so that a short time still shows them all."""
        for i in range(self.args.pairs):
            for case in todo:
                if i >= case.pairs or self.left() < 8:
                    continue
                order = list(self.libraries)
                for who in order if i % 2 == 0 else reversed(order):
                    self.run(case, who, i + 1)
                if case.disk and "disk" not in case.failed:
                    self.run(case, "disk", i + 1)
            lib.progress(f"pair {i + 1}/{self.args.pairs}, {self.left():.0f} s left")
            if self.left() < 8:
                break


def value(case: Case, run: dict[str, Any]) -> float:
    if case.value == "round":
        return run["round_seconds_median"]
    return run["bytes"] / run["seconds"]


def cpu(run: dict[str, Any]) -> float:
    """Microseconds of the processors for each MiB, of all threads, while reading."""
    return (run["user_seconds"] + run["system_seconds"]) * 1e6 / max(run["bytes"] / 2**20, 1e-9)


def judged(case: Case) -> dict[str, Any]:
    """Medians, and the ratios of the pairs; better than 1 is in our favour in both kinds."""
    out: dict[str, Any] = {"command": case.argv, "cold": case.cold, "failed": case.failed,
                           "runs": case.runs, "unit": "s" if case.value == "round" else "bytes/s"}
    for who, runs in case.runs.items():
        out[who] = lib.summary([value(case, r) for r in runs])
        out[f"{who}_cpu_us_per_mib"] = lib.median([cpu(r) for r in runs])
    ours, theirs = case.runs.get("ours", []), case.runs.get("theirs", [])
    n = min(len(ours), len(theirs))
    if n:
        a, b = [value(case, r) for r in ours[:n]], [value(case, r) for r in theirs[:n]]
        out["ours/theirs"] = lib.summary(lib.ratios(b, a) if case.value == "round"
                                         else lib.ratios(a, b))
        if n > 1:
            out["theirs/theirs"] = lib.summary(lib.ratios(b[1:], b[:-1]))
        if case.argv[0] not in ("open", "cycle"):
            out["cpu ours/theirs"] = (lib.median([cpu(r) for r in ours[:n]]) /
                                      max(lib.median([cpu(r) for r in theirs[:n]]), 1e-9))
    disk = case.runs.get("disk", [])
    if ours and disk:
        n = min(len(ours), len(disk))
        out["ours/disk"] = lib.summary(lib.ratios([value(case, r) for r in ours[:n]],
                                                  [value(case, r) for r in disk[:n]]))
    return out


def shown(result: dict[str, Any], who: str) -> str:
    if who in result:
        median = result[who]["median"]
        return f"{median * 1e3:.2f} ms" if result["unit"] == "s" else f"{median / 1e9:.3f} GB/s"
    return "hangs" if "hangs" in result["failed"].get(who, "") else (
        "fails" if who in result["failed"] else "-")


def table(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, r in results.items():
        pairs, noise, disk = r.get("ours/theirs"), r.get("theirs/theirs"), r.get("ours/disk")
        rows.append([
            name, shown(r, "ours"), shown(r, "theirs"), shown(r, "disk"),
            f"{pairs['median']:.2f} [{pairs['median_low']:.2f}, {pairs['median_high']:.2f}]"
            if pairs else "-",
            f"{noise['q1']:.2f}-{noise['q3']:.2f}" if noise else "-",
            f"{r['cpu ours/theirs']:.2f}" if "cpu ours/theirs" in r else "-",
            f"{disk['median']:.2f}" if disk else "-", str(len(r["runs"].get("ours", []))),
        ])
    return lib.table(rows, ["case", "ours", "theirs", "disk", "ours/theirs (>1 better)",
                            "theirs/theirs", "CPU ours/theirs", "time ours/disk", "runs"])


def main() -> int:
    args = arguments()
    if args.device != "host" and not ctypes.util.find_library("cuda") and not lib.gpu_model():
        print("no GPU here: nothing was measured")
        return 77
    ours = find_ours(args.ours)
    # The other library does nothing without a driver.
    theirs = find_theirs(args.theirs, ours) if args.device != "host" or args.theirs else None
    libraries = {"ours": ours, **({"theirs": theirs} if theirs else {})}
    with tempfile.TemporaryDirectory(prefix="cufile-pairs-") as name, \
            tempfile.TemporaryDirectory(prefix="cufile-pairs-", dir=args.data) as data:
        file = args.file or files.make(Path(data) / "data.bin", args.size)
        reader, header = find_reader(args.reader, Path(name))
        todo = [c for c in cases(file.stat().st_size) if args.only in c.name]
        with udev_record(file) as record:
            facts = lib.machine(file)
            print(lib.describe(facts))
            print(f"ours     {ours}\ntheirs   {theirs or 'not found'}\nreader   with {header}\n"
                  f"udev     record {record}")
            bench = Bench(args, reader, libraries, file, Path(name))
            bench.all(todo)
    results = {c.name: judged(c) for c in todo}
    lib.progress("")
    print(table(results))
    for case in todo:
        for who, why in case.failed.items():
            print(f"{case.name}: {who}: {why}")
    lib.save(args.name, {"machine": facts, "libraries": {k: str(v) for k, v in libraries.items()},
                         "header": header, "udev_record": record,
                         "seconds": time.monotonic() - bench.began, "cases": results})
    bad = [c.name for c in todo if "ours" in c.failed or not c.runs.get("ours")]
    print(f"ours failed in: {', '.join(bad)}" if bad else "every byte of ours was right")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

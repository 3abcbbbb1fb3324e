#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file of weights into device memory, and random blocks of it: headrace beside what people use.

"whole": every byte once, hot and cold. headrace (load_whole: threads with an
engine each take chunks from one counter), safetensors.torch.load_file, torch.load with and without mmap, the
classic loop (read a tensor, copy it, the next), and any library with the cuFile interface, such as
NVIDIA's. "random": blocks of 8 KiB from the cold file, headrace with one thread and a deep queue,
cuFile with several threads, as it has no queue of its own for reads.

All run in processes of their own, in alternating rounds; each is checked against plain reads first,
or, where it is cheap, in every run. What is not installed is left out and said. NVIDIA's library
refuses a disk that the udev database does not know, which is empty in most containers: --udev
writes the record of the disk for the time of the benchmark, if there is none.
"""
from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Callable

import files
import lib
import runners

PEERS = Path(__file__).resolve().parent / "_loads_peer.py"
TENSORS = 32
Run = Callable[[], dict[str, Any]]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of the weights (1G)")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--what", default="hot,cold,random", help="a list (hot,cold,random)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--cold-rounds", type=int, default=3, help="of cold and random (3)")
    p.add_argument("--seconds", type=float, default=1.0, help="of a random run (1)")
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the hot rounds")
    p.add_argument("--cold-limit", type=float, default=math.inf, help="for cold, and for random")
    p.add_argument("--threads", type=int, default=8, help="of headrace and cuFile at most (8)")
    p.add_argument("--peers", default="safetensors,torch-load,torch-mmap,classic,cufile")
    p.add_argument("--cufile", help="libcufile.so.0 (looked for)")
    p.add_argument("--udev", action="store_true", help="write the disk's udev record if missing")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--name", default="loads", help="of the JSON file (loads)")
    return p.parse_args()


def header(size: int) -> bytes:
    """Of a safetensors file with equal fp16 tensors; padded so that the data is aligned to pages."""
    each = size // TENSORS
    about = {f"layers.{i}.weight": {"dtype": "F16", "shape": [each // 2048, 1024],
                                    "data_offsets": [i * each, (i + 1) * each]}
             for i in range(TENSORS)}
    text = json.dumps(about).encode()
    text += b" " * (-(8 + len(text)) % files.PAGE)
    return len(text).to_bytes(8, "little") + text


def find_cufile(given: str | None) -> str | None:
    """The library named, NVIDIA's from a wheel of Python, or one of the system's."""
    if given:
        return given
    for name in ("nvidia",):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec else []:
            for found in sorted(Path(place).glob("*/lib/libcufile.so.0")):
                return str(found)
    for found in ("/usr/local/cuda/lib64/libcufile.so.0",
                  "/usr/lib/x86_64-linux-gnu/libcufile.so.0"):
        if os.path.exists(found):
            return found
    return None


class UdevRecord:
    """What libcufile wants to know of a disk, made up where no udev runs; taken away again."""

    def __init__(self, file: Path, wanted: bool) -> None:
        disk = lib.disk(file)
        self.path = Path(f"/run/udev/data/b{disk['device']}")
        self.made: list[Path] = []
        if not wanted or self.path.exists() or os.geteuid() != 0:
            return
        for folder in (Path("/run/udev"), self.path.parent):
            if not folder.exists():
                folder.mkdir()
                self.made.append(folder)
        self.path.write_text(f"E:ID_FS_TYPE={disk['fs']}\nE:ID_FS_USAGE=filesystem\n")
        self.made.append(self.path)
        print(f"udev     {self.path} written for the time of the benchmark")

    def close(self) -> None:
        for path in reversed(self.made):
            path.unlink() if path.is_file() else path.rmdir()


class Bench:
    def __init__(self, args: argparse.Namespace, file: Path, other: Path) -> None:
        self.args, self.file, self.other = args, file, other
        self.headrace = runners.find_headrace(args.headrace)
        self.commands: dict[str, str] = {}
        self.gpu = args.device != "host"
        wanted = args.peers.split(",")
        self.cufile = find_cufile(args.cufile) if self.gpu and "cufile" in wanted else None
        self.cufile_peer = runners.find_program("cufile_peer")
        self.load_whole = runners.find_program("load_whole")
        if not self.load_whole:
            raise SystemExit("load_whole not found: build it with ./dev build or ./dev gpu")
        self.python = [w for w in wanted if w != "cufile"] if lib.can_import("torch") else []
        if not lib.can_import("safetensors"):
            self.python = [w for w in self.python if w != "safetensors"]
        left_out = [w for w in wanted if w not in self.python and not (
            w == "cufile" and self.cufile and self.cufile_peer)]
        if left_out:
            print(f"not here {', '.join(left_out)}")

    def call(self, name: str, argv: list[str], limit_s: float = 180) -> dict[str, Any]:
        self.commands[name] = lib.command_line(argv)
        got = runners.json_of(runners.checked(argv, limit_s).out)
        if not got.get("verified", True):
            raise SystemExit(f"wrong bytes: {self.commands[name]}")
        return got

    def whole(self, threads: int) -> dict[str, Any]:
        return self.call(f"headrace {threads} threads", [
            self.load_whole, str(self.file), self.args.device, str(threads)])

    def random(self) -> dict[str, Any]:
        return self.call("headrace 1 thread", [
            self.headrace, "bench", "--rw", "randread", "--bs", "8K", "--depth", "64", "--direct",
            "--device", self.args.device, "--seconds", f"{self.args.seconds:g}", "--verify",
            "--json", str(self.file)])

    def python_peer(self, way: str, *more: str) -> dict[str, Any]:
        return self.call(way, [sys.executable, str(PEERS), way, str(self.file), str(self.other),
                               "--device", self.args.device, *more])

    def cufile_run(self, name: str, rw: str, block: int, threads: int, seconds: float,
                   mode: str, blocks: int | None = None) -> dict[str, Any]:
        argv = [self.cufile_peer, self.cufile, str(self.file), rw, str(block), str(threads),
                f"{seconds:g}", mode, *([str(blocks)] if blocks else [])]
        return self.call(name, argv)

    def whole_programs(self) -> dict[str, Run]:
        threads, size = self.args.threads, self.file.stat().st_size
        out: dict[str, Run] = {
            f"headrace {count} threads": functools.partial(self.whole, count)
            for count in sorted({threads, 1}, reverse=True)}
        for way in self.python:
            out[way] = functools.partial(self.python_peer, way)
        if self.cufile and self.cufile_peer:
            for count, block in ((1, 16 << 20), (threads, 16 << 20)):
                name = f"cufile {count} threads"
                out[name] = functools.partial(self.cufile_run, name, "read", block, count, 60,
                                              "direct", size // block)
        return out

    def random_programs(self) -> dict[str, Run]:
        out: dict[str, Run] = {"headrace 1 thread": self.random}
        if self.cufile and self.cufile_peer:
            for count in (1, 16, 64):
                peer = f"cufile {count} threads"
                out[peer] = functools.partial(self.cufile_run, peer, "randread", 8192, count,
                                              self.args.seconds, "direct")
        return out

    def verify(self) -> dict[str, bool]:
        """One run of each peer with every byte compared; a peer that cannot run is left out."""
        out: dict[str, bool] = {}
        for way in list(self.python):
            try:
                out[way] = bool(self.python_peer(way, "--verify")["verified"])
            except RuntimeError as problem:
                self.python.remove(way)
                print(f"{way} left out: {str(problem).splitlines()[-1]}")
        return out


def measure(bench: Bench, programs: dict[str, Run], what: str) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    failed: dict[str, str] = {}

    def one_round(i: int) -> str:
        for name in lib.both_ways(list(programs), i):
            if name in failed:
                continue
            for file in (bench.file, bench.other):
                if file.exists() and what == "hot" and files.residency(file) < 1:
                    files.heat(file)
                elif file.exists() and what != "hot":
                    files.drop(file, limit=1.0)
            before = files.residency(bench.file)
            try:
                runs[name].append({**programs[name](), "resident_before": before})
            except (RuntimeError, TimeoutError) as problem:
                failed[name] = str(problem)  # a peer that cannot is a result as well
        return what

    args = bench.args
    if what == "hot":
        lib.rounds(args.rounds, one_round, args.limit)
    else:
        lib.rounds(args.cold_rounds, one_round, args.cold_limit)
    for name, problem in failed.items():
        print(f"{name} FAILED: {problem}")
        if name.startswith("headrace"):
            raise SystemExit(1)
    return {name: each for name, each in runs.items() if each}


def judge(runs: dict[str, list[dict[str, Any]]], field: str) -> dict[str, Any]:
    ours = next(name for name in runs if name.startswith("headrace"))
    out: dict[str, Any] = {"programs": {}, "ratios": {}}
    for name, each in runs.items():
        out["programs"][name] = {field: lib.summary([r[field] for r in each]), "resident_before":
                                 lib.median(r["resident_before"] for r in each)}
        pairs = list(zip(runs[ours], each))
        if name != ours:
            out["ratios"][name] = lib.summary([a[field] / b[field] for a, b in pairs])
    return out


def show(what: str, verdict: dict[str, Any], field: str) -> None:
    scale, unit = (1e9, "GB/s") if field == "bytes_per_second" else (1, "requests/s")
    rows = []
    for name, got in verdict["programs"].items():
        s, ratio = got[field], verdict["ratios"].get(name)
        digits = 2 if scale > 1 else 0
        rows.append([name, f"{s['median'] / scale:.{digits}f}",
                     f"{s['q1'] / scale:.{digits}f}..{s['q3'] / scale:.{digits}f}", str(s["n"]),
                     f"{ratio['median']:.1f}x" if ratio else "", f"{got['resident_before']:.0%}"])
    print(f"\n{what}\n" + lib.table(rows, ["program", unit, "quartiles", "runs", "headrace is",
                                           "cached before"]))


def run(args: argparse.Namespace, file: Path, other: Path) -> None:
    bench = Bench(args, file, other)
    facts = lib.machine(file)
    print(lib.describe(facts))
    result: dict[str, Any] = {"machine": facts, "options": vars(args), "cufile": bench.cufile,
                              "file_bytes": file.stat().st_size,
                              "bus": runners.link(args.device)}
    runners.show_link(result["bus"])
    print(f"file     {lib.format_size(file.stat().st_size)} of fp16 in {TENSORS} tensors"
          + (f"; cuFile is {bench.cufile}" if bench.cufile else ""))
    if bench.python and not other.exists():
        bench.python_peer(bench.python[0], "--prepare")
    files.preread_direct(file)
    files.heat(file)
    result["verified"] = bench.verify()
    print("checked  " + (", ".join(result["verified"]) or "the others") + "; the others in each run")
    for what in args.what.split(","):
        field = "iops" if what == "random" else "bytes_per_second"
        programs = bench.random_programs() if what == "random" else bench.whole_programs()
        runs = measure(bench, programs, what)
        result[what] = {**judge(runs, field), "runs": runs}
        show(what, result[what], field)
    print()
    for name, line in bench.commands.items():
        print(f"{name}: {line}")
    lib.save(args.name, {**result, "commands": bench.commands})


def main() -> None:
    args = arguments()
    lib.need("torch", "numpy", optional=True)
    args.size = args.size // (TENSORS * 2048) * TENSORS * 2048
    text = lib.format_size(args.size)
    file = files.make(lib.DATA / f"weights-{text}.safetensors", args.size, header(args.size))
    wanted = args.udev and args.device != "host" and "cufile" in args.peers
    record = UdevRecord(file, wanted)
    try:
        run(args, file, lib.DATA / f"weights-{text}.pt")
    finally:
        record.close()


if __name__ == "__main__":
    main()

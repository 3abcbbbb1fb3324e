#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights by headrace.torch beside safetensors and PyTorch, each run a process of its own, in turns.

  hot      every byte once out of the page cache, from one file and from shards
  tmpfs    the same from memory (/dev/shm)
  cold     out of the drive, beside fio's sequential read
  second   the start after a cold one, as that left the page cache
  memory   what a load takes of host and device besides the tensors
  saves    from the device to a file that is on the drive, beside fio's direct write

Every way is checked against plain reads first. What is not installed is left out and said.
"""
from __future__ import annotations

import argparse
import functools
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

import files
import lib
import runners

PEERS = Path(__file__).resolve().parent / "_loads_peer.py"
TENSORS = 64
GB = 1e9
Run = Callable[[], float]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of the weights (1G)")
    p.add_argument("--shards", type=int, default=4, help="files of the sharded copy, 0: none (4)")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--what", default="hot,tmpfs,cold,second,memory,saves", help="a list (all)")
    p.add_argument("--ways", default="safetensors", help="others to load by, or none (safetensors)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the rounds of each")
    p.add_argument("--fio", help="the program")
    p.add_argument("--headrace", help="not used: the package is")
    p.add_argument("--name", default="weights", help="of the JSON file (weights)")
    return p.parse_args()


def header(first: int, count: int, each: int) -> bytes:
    about = {f"layers.{first + i}.weight": {"dtype": "BF16", "shape": [each // 8192, 4096],
                                            "data_offsets": [i * each, (i + 1) * each]}
             for i in range(count)}
    text = json.dumps(about).encode()
    # As other writers leave it: the data begins at a multiple of eight, not of a page.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def make_shards(folder: Path, size: int, count: int) -> Path:
    """Safetensors files of equal bf16 tensors, and their index."""
    each, places = size // TENSORS, {}
    for i in range(count):
        first, last = TENSORS * i // count, TENSORS * (i + 1) // count
        name = f"model-{i + 1:05}-of-{count:05}.safetensors"
        files.make(folder / name, each * (last - first), header(first, last - first, each), seed=i)
        places.update({f"layers.{k}.weight": name for k in range(first, last)})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return index


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.commands = args, {}
        self.one = files.make(lib.DATA / f"bf16-{lib.format_size(args.size)}.safetensors", args.size,
                              header(0, TENSORS, args.size // TENSORS))
        # Only where somebody loads them: they take as much of the drive and of the page cache again.
        self.index = make_shards(lib.DATA / f"bf16-{lib.format_size(args.size)}", args.size,
                                 args.shards) if args.shards else None
        self.saved = lib.DATA / "saved"
        self.fio = shutil.which(args.fio or "fio")

    def files(self) -> list[Path]:
        return [self.one, *(self.index.parent.glob("*.safetensors") if self.index else [])]

    def loads(self, ways: list[str]) -> dict[str, Run]:
        """Of the one file, by ours also of the shards."""
        programs: dict[str, Run] = {"headrace": functools.partial(self.rate, "headrace", self.one)}
        if self.index:
            programs["headrace shards"] = functools.partial(self.rate, "headrace", self.index)
        programs.update({way: functools.partial(self.rate, way, self.one) for way in ways})
        return programs

    def peer(self, way: str, file: Path, *more: str) -> dict[str, Any]:
        argv = [sys.executable, str(PEERS), way, str(file), str(self.saved), "--device",
                self.args.device, *more]
        self.commands[f"{way} {file.name}"] = lib.command_line(argv)
        got = runners.json_of(runners.checked(argv, 300).out)
        if not got.get("verified", True):
            raise SystemExit(f"wrong bytes: {lib.command_line(argv)}")
        return got

    def rate(self, way: str, file: Path) -> float:
        return self.peer(way, file)["bytes_per_second"]

    def fio_rate(self, rw: str, file: Path) -> float:
        argv = [self.fio, "--name=weights", f"--rw={rw}", "--bs=1M", "--iodepth=16", "--direct=1",
                "--ioengine=io_uring", f"--filename={file}", f"--size={self.args.size}",
                "--output-format=json", "--end_fsync=1" if rw == "write" else "--readonly"]
        self.commands[f"fio {rw}"] = lib.command_line(argv)
        job = runners.json_of(runners.checked(argv, 300).out)["jobs"][0]
        return self.args.size / (job["job_runtime"] / 1000) if rw == "write" else job[rw]["bw_bytes"]

    def turns(self, what: str, programs: dict[str, Run], before: Callable[[], None]) -> dict[str, Any]:
        runs: dict[str, list[float]] = {name: [] for name in programs}

        def one_round(i: int) -> str:
            for name in lib.both_ways(list(programs), i):
                before()
                runs[name].append(programs[name]())
            return what

        lib.rounds(self.args.rounds, one_round, self.args.limit)
        ours = next(name for name in runs if name.startswith("headrace"))
        rows = [[name, *(f"{lib.summary(each)[k] / GB:.2f}" for k in ("median", "q1", "q3")), str(len(each)),
                 "" if name == ours else f"{lib.median(lib.ratios(runs[ours], each)):.2f}x"]
                for name, each in runs.items() if each]
        print(f"\n{what}\n" + lib.table(rows, ["program", "GB/s", "q1", "q3", "runs", f"{ours} is"]), flush=True)
        return {name: lib.summary(each) for name, each in runs.items() if each}


def heat(bench: Bench) -> None:
    for file in bench.files():
        if files.residency(file) < 1:
            files.heat(file)


def cool(bench: Bench) -> None:
    for file in bench.files():
        files.drop(file, limit=1.0)


def hot(bench: Bench, ways: list[str]) -> dict[str, Any]:
    return bench.turns("hot: page cache", bench.loads(ways), lambda: heat(bench))


def tmpfs(bench: Bench, ways: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headrace-", dir="/dev/shm") as folder:
        file = files.make(Path(folder) / bench.one.name, bench.args.size,
                          header(0, TENSORS, bench.args.size // TENSORS))
        programs = {way: functools.partial(bench.rate, way, file) for way in ["headrace", *ways]}
        return bench.turns("hot: tmpfs", programs, lambda: None)


def cold(bench: Bench, ways: list[str]) -> dict[str, Any]:
    programs = bench.loads(ways)
    if bench.fio:
        programs["fio read"] = functools.partial(bench.fio_rate, "read", bench.one)
    return bench.turns("cold: the drive", programs, lambda: cool(bench))


def second(bench: Bench, ways: list[str]) -> dict[str, Any]:
    """The first start is cold; what it left for the second one is the engine's business."""
    def start(way: str) -> float:
        cool(bench)
        bench.rate(way, bench.one)
        return bench.rate(way, bench.one)

    programs = {way: functools.partial(start, way) for way in ["headrace", *ways]}
    return bench.turns("second: the start after a cold one", programs, lambda: None)


def memory(bench: Bench, ways: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    heat(bench)
    for way in ["headrace", *ways]:
        got = bench.peer(way, bench.one, "--memory")
        out[way] = {k: got[k] for k in ("device_extra_bytes", "host_extra_bytes")}
        print(f"memory besides the tensors, {way}: device {got['device_extra_bytes'] >> 20} MiB, "
              f"host {got['host_extra_bytes'] >> 20} MiB", flush=True)
    return out


def saves(bench: Bench, ways: list[str]) -> dict[str, Any]:
    names = ["save-headrace", "save-torch", *(["save-safetensors"] if lib.can_import("safetensors") else [])]
    bench.peer(names[0], bench.one, "--verify")
    programs: dict[str, Run] = {f"headrace {names[0]}": functools.partial(bench.rate, names[0], bench.one)}
    programs.update({way: functools.partial(bench.rate, way, bench.one) for way in names[1:]})
    if bench.fio:
        programs["fio write"] = functools.partial(bench.fio_rate, "write", bench.saved)
    try:
        return bench.turns("saves: device to drive", programs, lambda: bench.saved.unlink(missing_ok=True))
    finally:
        bench.saved.unlink(missing_ok=True)


WHAT = {"hot": hot, "tmpfs": tmpfs, "cold": cold, "second": second, "memory": memory, "saves": saves}


def main() -> None:
    args = arguments()
    lib.need("torch", "numpy")
    if not lib.can_import("headrace"):
        print("the package headrace is not here: set PYTHONPATH to its folder")
        sys.exit(77)
    args.size = args.size // (TENSORS * 8192) * TENSORS * 8192
    bench = Bench(args)
    facts = lib.machine(bench.one)
    print(lib.describe(facts))
    ways = [w for w in args.ways.split(",") if w != "none" and lib.can_import(w)]
    print("not here ", ", ".join(set(args.ways.split(",")) - {*ways, "none"}) or "nothing")
    heat(bench)
    if args.what != "saves":  # which are checked by themselves
        for file in filter(None, (bench.one, bench.index)):
            bench.peer("headrace", file, "--verify")
        print("checked  headrace: every byte" + (", one file and shards" if bench.index else ""))
    result: dict[str, Any] = {"machine": facts, "options": vars(args), "verified": True}
    for what in args.what.split(","):
        result[what] = WHAT[what](bench, ways)
    lib.save(args.name, {**result, "commands": bench.commands})


if __name__ == "__main__":
    main()

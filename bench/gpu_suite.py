#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The measurements on a machine with a GPU, in sections that can be run apart, each within a bound.

Sections, in the order of their use:
  doctor   what headrace check says, beside what bench then measures
  check    batches and blocks on the device against plain reads, at offsets of every alignment
  stream   random hot windows by headrace stream: registered and not, small and large batches
  sweep    the same once for several numbers of threads
  seq      whole hot files, disk and tmpfs, beside what the bus carries
  disk     cold random and sequential reads and writes in pairs with fio
  peers    classic loop, safetensors, torch.load, cuFile; DataLoader and numpy
  matmul   a large matrix product beside gathers at full rate
  memory   of a stream over a large file

Only where they are asked for, all but the first with the Python package (tests/ and examples/ included):
  formats  datasets of every format, batches against plain reads, and rates
  python   the package's tests on the GPU: every byte, memory that is freed and allocated again
  loads    weights of 8 GB by headrace.torch, hot, cold and after a cold start; memory that takes
  saves    the same from the GPU to the drive
  train    a small GPT: the share of the time that it waits for data
  coop     one model to two GPUs or more: each rank all of it, or a share

Writes NAME.json and NAME.txt to $OUT; NAME is made of the sections. Exit 1 if a step failed or
found wrong bytes; 77 without a GPU.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import _formats_make as make
import files
import lib
import runners
from steps import Step, bad_steps, run_step, save_steps, tell

HERE = Path(__file__).resolve().parent
LLMC_HEADER = b"".join(n.to_bytes(4, "little") for n in (20240520, 1, 0)).ljust(1024, b"\0")


class Suite:
    """The arguments, and the files as the sections ask for them."""

    def __init__(self, args: argparse.Namespace, data: Path) -> None:
        self.args, self.data = args, data
        self.headrace = runners.find_headrace(args.headrace)
        self.cuda = args.device != "host"

    def file(self, kind: str) -> Path:
        """A file of the suite, made when it is first asked for."""
        name, size, head = {"plain": ("tokens.bin", self.args.size, b""),
                            "header": ("header.bin", self.args.size // 16, LLMC_HEADER)}[kind]
        if head:
            head = head[:8] + (size // 2).to_bytes(4, "little") + head[12:]
        path = self.data / name
        return path if self.args.list else files.make(path, size, head)

    def script(self, name: str, *more: str | int, file: bool = True) -> list[str]:
        where = ["--file", str(self.file("plain"))] if file else []
        return [sys.executable, str(HERE / f"{name}.py"), "--headrace", self.headrace, "--device",
                self.args.device, *where, *map(str, more)]


def doctor(s: Suite) -> list[Step]:
    return [Step("check-truth", 60, s.script("check_truth", "--name", "check-truth"))]


def check(s: Suite) -> list[Step]:
    """Every element of every batch against a plain read, at offsets of every alignment."""
    out = []
    for state in ("cold", "hot"):
        for seq_len, kind, dtype, to in ((4096, "plain", "u16", "i64"),
                                         (4095, "plain", "u16", "i64"),
                                         (4093, "plain", "u16", "same"),
                                         (1023, "plain", "u32", "i32"),
                                         (1021, "plain", "u32", "i64"),
                                         (4095, "header", None, "i64")):
            argv = [s.headrace, "stream", "--format", "tokens", "--device", s.args.device,
                    "--steps", "96", "--seq-len", str(seq_len), "--out-dtype", to, "--seed", "3",
                    "--verify", "--json", *(["--dtype", dtype] if dtype else []),
                    str(s.file(kind))]
            out.append(Step(f"verify-{state}-{kind}-{dtype or 'u16'}-{to}-{seq_len}", 40, argv,
                            True, (state, s.file(kind))))
    for bs in ("8191", "513", "65537"):
        argv = [s.headrace, "bench", "--rw", "randread", "--bs", bs, "--device", s.args.device,
                "--seconds", "0.5", "--verify", "--json", str(s.file("plain"))]
        out.append(Step(f"verify-bytes-{bs}", 40, argv, True, ("cold", s.file("plain"))))
    return out


def formats(s: Suite) -> list[Step]:
    """Megatron, tar, MDS and npy as plain Python writes them, checked on the device, then timed."""
    kinds = ("megatron", "tar-150k", "tar-8k", "mds-150k", "mds-8k", "npy")
    out, size = [], s.args.size // 8
    for name in kinds:
        folder, kind = s.data / f"{name}-{lib.format_size(size)}", make.KINDS[name]
        if not s.args.list:
            make.make(name, folder, size)
        for state in ("cold", "hot"):
            argv = [s.headrace, "stream", "--format", kind.format, *kind.stream, "--device",
                    s.args.device, "--batch-size", str(kind.batch), "--steps", "48", "--seed", "3",
                    "--verify", "--json", *map(str, make.paths(name, folder))]
            out.append(Step(f"verify-{state}-{name}", 60, argv, True, (state, folder)))
    out.append(Step("formats", 170, s.script(
        "formats", "--kinds", ",".join(kinds), "--size", lib.format_size(size), "--rounds", 5,
        "--seconds", 1, "--limit", 10, "--alone", "--no-verify", "--name", "formats", file=False)))
    return out


def stream(s: Suite) -> list[Step]:
    ways = "auto,off" if s.cuda else "auto"
    return [
        Step("hot-stream", 230, s.script(
            "hot_stream", "--ways", ways, "--batches", "32,1024", "--epochs", "1,3,10", "--rounds",
            5, "--limit", 170, "--name", "hot-stream")),
        Step("hot-stream-odd", 120, s.script(
            "hot_stream", "--ways", ways, "--batches", "32,1024", "--seq-lens", "4096,4093",
            "--epochs", "10", "--rounds", 5, "--limit", 90, "--no-verify", "--name",
            "hot-stream-odd"))]


def sweep(s: Suite) -> list[Step]:
    ways = "auto,off" if s.cuda else "auto"
    return [Step("hot-stream-threads", 110, s.script(
        "hot_stream", "--ways", ways, "--batches", "32,1024", "--threads",
        "0,1,2,4,8,12,16" if s.cuda else "0,1,2", "--epochs", "10", "--rounds", 1, "--no-verify",
        "--name", "hot-stream-threads"))]


def seq(s: Suite) -> list[Step]:
    threads = "4,8,12" if s.cuda else "1,2"
    sizes = ",".join(lib.format_size(n) for n in (s.args.size // 4, s.args.size * 2))
    return [Step("sequential", 300, s.script(
        "sequential", "--sizes", sizes, "--threads", threads, "--blocks", "1M,4M", "--rounds", 5,
        "--limit", 200, "--name", "sequential", file=False))]


def disk(s: Suite) -> list[Step]:
    pairs = ["--pairs", s.args.pairs, "--seconds", "1", "--no-strace", "--path",
             "bounce" if s.cuda else "host",
             *(["--fio", s.args.fio] if s.args.fio else [])]
    out = []
    for rw, bs, depth in (("randread", "8K", 64), ("read", "1M", 16), ("write", "1M", 16),
                          ("randwrite", "8K", 64)):
        where = ["--size", lib.format_size(s.args.size // 2)] if "write" in rw else []
        out.append(Step(f"fio-{rw}", 100, s.script(
            "fio_pairs", *pairs, *where, "--rw", rw, "--bs", bs, "--depth", depth, "--limit", 70,
            "--name", f"fio-{rw}", file=not where)))
    out.append(Step("fio-randread-batch", 60, s.script(
        "fio_pairs", *pairs, "--headrace-extra=--batch 4 --depth 16", "--limit", 40, "--name",
        "fio-randread-batch")))
    return out


def peers(s: Suite) -> list[Step]:
    return [
        Step("loads", 290, s.script(
            "loads", "--udev", "--size", lib.format_size(s.args.size), "--rounds", 5,
            "--cold-rounds", 3, "--limit", 120, "--cold-limit", 70, "--threads",
            12 if s.cuda else 2, "--name", "loads", file=False)),
        Step("stream-hot", 110, s.script(
            "stream_peers", "--state", "hot", "--rounds", 3, "--seconds", "1.5", "--workers", "0,8",
            "--peers", "dataloader,dataloader-batched,get-batch,numpy-window,classic", "--limit",
            70, "--name", "stream-hot")),
        Step("stream-cold", 100, s.script(
            "stream_peers", "--state", "cold", "--rounds", 3, "--cold-samples", 32768,
            "--cold-seconds", 4, "--workers", "0,16", "--peers", "dataloader,get-batch",
            "--limit", 60, "--no-verify", "--name", "stream-cold"))]


def matmul(s: Suite) -> list[Step]:
    argv = [a for a in s.script("matmul_beside", "--rounds", 5, "--name", "matmul")]
    at = argv.index("--headrace")
    return [Step("matmul", 200, argv[:at] + argv[at + 2:])]


def memory(s: Suite) -> list[Step]:
    return [Step("memory", 60, s.script("memory", "--name", "memory"))]


def python(s: Suite) -> list[Step]:
    where = next(p for p in (HERE / "../python", HERE / "../tests/python")
                 if (p / "test_cuda.py").exists())
    return [Step(f"python-{name}", 280, [sys.executable, str(where / f"test_{name}.py")])
            for name in ("cuda", "torch", "distributed", "reference")]


def weights(s: Suite, what: str, limit: int) -> list[str]:
    size = lib.format_size(s.args.size * 2)
    return s.script("weights", "--size", size, "--what", what, "--rounds", 5, "--limit", limit, "--name",
                    f"weights-{what.split(',')[0]}", *(["--fio", s.args.fio] if s.args.fio else []), file=False)


def loads(s: Suite) -> list[Step]:
    return [Step("weights-hot", 290, weights(s, "hot,tmpfs,memory", 70)),
            Step("weights-cold", 290, weights(s, "cold,second", 90))]


def saves(s: Suite) -> list[Step]:
    return [Step("weights-saves", 290, weights(s, "saves", 200))]


def train(s: Suite) -> list[Step]:
    small = [] if s.cuda else ["--steps", 14, "--shapes", "4x16x32", "--workers", "0,2"]
    large = ["--size", lib.format_size(s.args.size // 2), *(small or ["--shapes", "256x256x64"])]
    return [Step("train-cold", 290, s.script("train_waits", "--cold", "--limit", 120, "--rounds", 3, *large,
                                             "--name", "train-cold", file=False)),
            Step("train", 290, s.script("train_waits", "--limit", 80, "--rounds", 3, *small, "--name", "train",
                                        file=False))]


def coop(s: Suite) -> list[Step]:
    argv = s.script("coop", "--size", lib.format_size(s.args.size * 2), "--name", "coop", file=False)
    argv[argv.index("--device") + 1] = "cuda" if s.cuda else "host"
    return [Step("coop", 290, argv)]


SECTIONS: dict[str, tuple[float, Callable[[Suite], list[Step]]]] = {  # seconds at most, steps
    "doctor": (60, doctor), "check": (100, check), "stream": (310, stream), "sweep": (80, sweep),
    "seq": (290, seq),
    "disk": (300, disk), "peers": (440, peers), "matmul": (200, matmul), "memory": (40, memory)}
ASKED: dict[str, tuple[float, Callable[[Suite], list[Step]]]] = {  # not among "all"
    "python": (400, python), "loads": (580, loads), "saves": (290, saves), "train": (330, train),
    "coop": (290, coop), "formats": (290, formats)}
EVERY = {**SECTIONS, **ASKED}


def find_package() -> None:
    """The Python package beside this file, in a bundle or a build folder, for all steps."""
    for place in (HERE / "../lib/python", HERE / "../build/obj/python"):
        if (place / "headrace").is_dir():
            os.environ["PYTHONPATH"] = os.pathsep.join(
                [str(place.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])])
            return


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sections", nargs="*", metavar="SECTION", help="which, in this order (all)")
    p.add_argument("--device", default="cuda:0", help="host to try the suite out (cuda:0)")
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or lib.OUT),
                   help="folder for the results ($OUT, or build/bench)")
    p.add_argument("--data", type=Path, help="folder on the disk to measure, kept (a temporary one)")
    p.add_argument("--size", type=lib.parse_size, default=4 << 30,
                   help="of the token file; the others follow (4G)")
    p.add_argument("--budget", type=float, help="seconds for everything (the sections' own sum)")
    p.add_argument("--pairs", type=int, default=9, help="rounds against fio (9)")
    p.add_argument("--only", default="", help="steps whose name contains this")
    p.add_argument("--list", action="store_true", help="show the steps and stop")
    p.add_argument("--headrace", help="the command")
    p.add_argument("--fio", help="a (static) fio")
    args = p.parse_args()
    args.sections = args.sections or list(SECTIONS)
    unknown = [name for name in args.sections if name not in EVERY]
    if unknown:
        p.error(f"no section {', '.join(unknown)}; there is {', '.join(EVERY)}")
    return args


def run_section(name: str, suite: Suite, left_s: float, parts: Path, log: Any) -> list[Step]:
    limit_s, make = EVERY[name]
    end = time.monotonic() + min(limit_s, left_s)
    print(f"== {name}: at most {min(limit_s, left_s):.0f} s", flush=True)
    steps = [step for step in make(suite) if suite.args.only in step.name]
    for step in steps:
        run_step(step, end - time.monotonic(), parts, suite.data, log)
        tell(step)
    return steps


def run(args: argparse.Namespace, data: Path, parts: Path) -> int:
    began, suite = time.monotonic(), Suite(args, data)
    if args.list:
        for name in args.sections:
            for step in EVERY[name][1](suite):
                print(f"{name:<8} {step.name:<32}{lib.command_line(step.argv)}")
        return 0
    facts = lib.machine(data)
    print(lib.describe(facts))
    budget = args.budget or sum(EVERY[name][0] for name in args.sections)
    title = "gpu_" + ("suite" if len(args.sections) == len(SECTIONS) else "-".join(args.sections))
    steps: dict[str, list[Step]] = {}
    with open(args.out / f"{title}.txt", "w", encoding="utf-8") as log:
        for name in args.sections:
            left = budget - (time.monotonic() - began)
            steps[name] = run_section(name, suite, left, parts, log)
            # Written after each section, so that a run that is stopped leaves what it has.
            flat = [step for each in steps.values() for step in each]
            save_steps(args.out / f"{title}.json", facts, began, flat)
    bad = bad_steps(flat)
    print(f"{len(flat) - len(bad)} steps ok, {len(bad)} not ok ({', '.join(bad) or 'none'}); "
          f"{time.monotonic() - began:.0f} s; results in {args.out / title}.json and .txt")
    return 1 if bad else 0


def main() -> int:
    args = arguments()
    find_package()
    if args.device != "host" and not args.list and not lib.gpu_model():
        print("no GPU here: nothing was measured")
        return 77
    args.out.mkdir(parents=True, exist_ok=True)
    if args.data:
        args.data.mkdir(parents=True, exist_ok=True)
    data = args.data or Path(tempfile.mkdtemp(prefix="headrace-bench-", dir="/var/tmp"))
    parts = Path(tempfile.mkdtemp(prefix="headrace-parts-"))
    try:
        return run(args, data, parts)
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        if args.data is None:
            shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

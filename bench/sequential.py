#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole files out of the page cache into device memory, in file order, beside what the bus carries.

Programs: "ring" is headrace bench with several threads, each with an engine of its own, through
the staging ring; "pagecache" the same with the path pagecache, whose first pass registers; "whole"
is load_whole: one single pass into device memory of the file's size, with all engines open, and
"whole, opening" counts opening them and the memory as well; "stream" is headrace stream --shuffle
none; "cp" is headrace cp FILE DEVICE where the command knows that. How many threads and
which block size "ring" and "pagecache" get is decided by one short run of each beforehand, over the
largest file; the figures are from runs after that. Every program is checked against plain reads.
"""
from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable

import files
import lib
import runners

Run = Callable[[], dict[str, Any]]
KEPT = ("bytes_per_second", "bytes_per_second_opened", "seconds", "open_seconds", "cpu_share",
        "cpu_us_per_request", "bytes_by_path", "register_seconds", "registered_bytes",
        "latency_us", "verified")


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", default="256M,1G", help="of the files, a list (256M,1G)")
    p.add_argument("--places", default="disk,tmpfs", help="where they are, a list (disk,tmpfs)")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--threads", default="1,2", help="to try, a list (1,2)")
    p.add_argument("--blocks", default="1M", help="to try, a list (1M)")
    p.add_argument("--depth", type=int, default=4, help="requests in flight for each thread (4)")
    p.add_argument("--staging", default="", help="ring of each thread (the command's own)")
    p.add_argument("--seconds", type=float, default=1.0, help="of a run that is repeated (1)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the timed rounds")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--name", default="sequential", help="of the JSON file (sequential)")
    return p.parse_args()


class Tmpfs:
    """A folder in memory with room for `need` bytes: /dev/shm, or a file system of our own."""

    def __init__(self, need: int) -> None:
        self.mounted = False
        self.path: Path | None = None
        shm = Path("/dev/shm")
        if shm.is_dir() and shutil.disk_usage(shm).free > need + (64 << 20):
            self.path = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=shm))
            return
        place = Path(tempfile.mkdtemp(prefix="headrace-tmpfs-"))
        size = f"size={need + (256 << 20)}"
        self.mounted = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=False).returncode == 0
        if self.mounted:
            self.path = place
        else:
            place.rmdir()

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", self.path], check=False)
        if self.path:
            shutil.rmtree(self.path, ignore_errors=True)


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.headrace = runners.find_headrace(args.headrace)
        self.commands: dict[str, str] = {}
        self.gpu = args.device != "host"
        self.cp = self.copies_to_device()
        self.load_whole = runners.find_program("load_whole")
        if not self.load_whole:
            raise SystemExit("load_whole not found: build it with ./dev build or ./dev gpu")
        ring = "bounce" if self.gpu else "host"
        self.choice: dict[str, tuple[int, int, str]] = {
            "ring": (1, 1 << 20, ring), "pagecache": (1, 1 << 20, "pagecache")}

    def copies_to_device(self) -> bool:
        """Does cp know a device as its destination? An older one makes a file of that name."""
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "from").write_bytes(b"headrace" * 1024)
            argv = [self.headrace, "cp", "--verify", "--json", "from", self.args.device]
            code = runners.run_child(["env", "-C", folder, *argv], 30).code
            return code == 0 and not (place / self.args.device).exists()

    def bench(self, file: Path, program: str, limits: list[str]) -> dict[str, Any]:
        threads, block, path = self.choice[program]
        staging = ["--staging", self.args.staging] if self.args.staging else []
        argv = [self.headrace, "bench", "--rw", "read", "--bs", lib.format_size(block), "--depth",
                str(self.args.depth), "--threads", str(threads), "--path", path, "--device",
                self.args.device, *staging, *limits, "--verify", "--json", str(file)]
        return self.finish(program, argv, True)

    def finish(self, program: str, argv: list[str], verified: bool) -> dict[str, Any]:
        self.commands[program] = lib.command_line(argv)
        done = runners.checked(argv, 120)
        got = runners.json_of(done.out)
        if verified and not got.get("verified"):
            raise SystemExit(f"wrong bytes: {lib.command_line(argv)}")
        return {k: got[k] for k in KEPT if k in got}

    def programs(self, file: Path) -> dict[str, Run]:
        """Name -> one run over this file."""
        limits = ["--seconds", f"{self.args.seconds:g}"]
        out: dict[str, Run] = {
            "ring": lambda: self.bench(file, "ring", limits),
            "whole": lambda: self.whole(file),
            "pagecache": lambda: self.bench(file, "pagecache", limits),
            "stream": lambda: self.stream(file, []),
        }
        if self.cp:
            out["cp"] = lambda: self.finish(
                "cp", [self.headrace, "cp", "--json", "--verify", str(file), self.args.device],
                True)
        return out

    def whole(self, file: Path) -> dict[str, Any]:
        threads, block, _ = self.choice["ring"]
        got = self.finish("whole", [self.load_whole, str(file), self.args.device, str(threads),
                                    str(block), "8"], True)
        return {**got, "bytes_per_second": got["bytes_per_second_opened"],
                "opening": got["bytes_per_second"]}

    def stream(self, file: Path, more: list[str]) -> dict[str, Any]:
        """Several passes, so that registering shows in the rate as it does in a training run."""
        batch = min(512, file.stat().st_size // (1 << 16))
        argv = runners.stream_argv(self.headrace, file, self.args.device, batch=batch,
                                   seq_len=4095, more=["--shuffle", "none", *(more or
                                                                              ["--epochs", "4"])])
        argv[argv.index("--out-dtype") + 1] = "same"
        return self.finish("stream" if not more else "stream, checked", argv, bool(more))

    def choose(self, file: Path) -> dict[str, Any]:
        """One short run of every number of threads and block size; keep the fastest."""
        tried: dict[str, Any] = {}
        limits = ["--seconds", f"{min(self.args.seconds, 0.7):g}"]
        for program, (_, _, path) in list(self.choice.items()):
            best = 0.0
            for threads in map(int, self.args.threads.split(",")):
                for block in map(lib.parse_size, self.args.blocks.split(",")):
                    kept, self.choice[program] = self.choice[program], (threads, block, path)
                    rate = self.bench(file, program, limits)["bytes_per_second"]
                    tried[f"{program} {threads} x {lib.format_size(block)}"] = rate
                    if rate > best:
                        best = rate
                    else:
                        self.choice[program] = kept
        return tried


def measure(bench: Bench, made: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    all_runs = {f"{place}, {program}": run for place, file in made.items()
                for program, run in bench.programs(file).items()}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in all_runs}

    def one_round(i: int) -> str:
        for file in made.values():
            if files.residency(file) < 1:
                files.heat(file)
        for name in lib.both_ways(list(all_runs), i):
            runs[name].append(all_runs[name]())
        return f"{name} {runs[name][-1]['bytes_per_second'] / 1e9:.1f} GB/s"

    lib.rounds(bench.args.rounds, one_round, bench.args.limit)
    return runs


def show(result: dict[str, Any]) -> None:
    bus = result["bus"]
    limit = bus["to_device"]["median"] if bus else None
    rows = []
    for name, s in result["rates"].items():
        rows.append([name, f"{s['median'] / 1e9:.2f}",
                     f"{s['q1'] / 1e9:.2f}..{s['q3'] / 1e9:.2f}", str(s["n"]),
                     f"{s['median'] / limit:.0%}" if limit else ""])
    print(lib.table(rows, ["file, program", "GB/s", "quartiles", "runs", "of the bus"]))


def make_files(args: argparse.Namespace, tmpfs: Path | None) -> dict[str, Path]:
    made: dict[str, Path] = {}
    for place in args.places.split(","):
        folder = tmpfs if place == "tmpfs" else lib.DATA
        if folder is None:
            print("tmpfs: no room for the files; left out")
            continue
        for size in map(lib.parse_size, args.sizes.split(",")):
            text = lib.format_size(size)
            file = files.make(folder / f"bytes-{text}.bin", size)
            name = lib.disk(file)["fs"] or place
            made[f"{text} {name}"] = file
    return made


def run(args: argparse.Namespace, tmpfs: Path | None) -> None:
    bench = Bench(args)
    made = make_files(args, tmpfs)
    facts = lib.machine(next(iter(made.values())))
    print(lib.describe(facts))
    result: dict[str, Any] = {"machine": facts, "options": vars(args),
                              "bus": runners.link(args.device)}
    runners.show_link(result["bus"])
    result["resident_before"] = {name: files.heat(file) for name, file in made.items()}
    largest = max(made.values(), key=lambda f: f.stat().st_size)
    result["tried"] = bench.choose(largest)
    print("tried    " + ", ".join(f"{n} {r / 1e9:.1f}" for n, r in result["tried"].items()))
    for file in made.values():
        steps = str(max(2, (128 << 20) // (512 * 8192)))
        bench.stream(file, ["--steps", steps, "--verify"])
    if not bench.cp:
        print("cp       left out: this headrace cp has no device as its destination")
    runs = measure(bench, made)
    result["rates"] = {n: lib.summary([r["bytes_per_second"] for r in each])
                       for n, each in runs.items()}
    result["rates"].update({f"{n}, opening": lib.summary([r["opening"] for r in each])
                            for n, each in runs.items() if "opening" in each[0]})
    result["bus_after"] = runners.link(args.device)
    result["resident_after"] = {name: files.residency(file) for name, file in made.items()}
    print("hot      " + ", ".join(f"{n} {r:.1%}" for n, r in result["resident_after"].items())
          + " resident at the end")
    show(result)
    for name, line in bench.commands.items():
        print(f"{name}: {line}")
    lib.save(args.name, {**result, "commands": bench.commands, "runs": runs})


def main() -> None:
    args = arguments()
    need = sum(map(lib.parse_size, args.sizes.split(",")))
    tmpfs = Tmpfs(need) if "tmpfs" in args.places else None
    try:
        run(args, tmpfs.path if tmpfs else None)
    finally:
        if tmpfs:
            tmpfs.close()


if __name__ == "__main__":
    main()

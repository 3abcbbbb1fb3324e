#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace stream beside what users have: DataLoader, get_batch, numpy, the classic loop.

All make int64 batches of shuffled token windows on the same device from the same file, in turns.
"hot": the file is in the page cache, and a fresh process goes over it once, as in an epoch.
"again": the same, but it goes over the file again and again for some seconds; programs that map
the file have its pages in their page tables after the first pass. "cold": the file is dropped from
the page cache before every run, shown by mincore before and after; every run takes the same
samples. One run of each is checked byte by byte first.
"""
from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import files
import lib
import runners

PEERS = Path(__file__).resolve().parent / "_peers.py"
DTYPES = {"uint16": ("u16", 2), "uint32": ("u32", 4)}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="token file without header; default: one made")
    p.add_argument("--size", type=lib.parse_size, default=1 << 30, help="of the file made (1G)")
    p.add_argument("--dtype", default="uint16", choices=sorted(DTYPES), help="in the file")
    p.add_argument("--seq-len", type=int, default=4096, help="T; windows are T + 1 tokens (4096)")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--state", default="hot,cold", help="of hot, again, cold, a list (hot,cold)")
    p.add_argument("--workers", default="0,2", help="DataLoader workers, a list (0,2)")
    p.add_argument("--peers", default="dataloader,dataloader-batched,get-batch,numpy-fancy,"
                   "numpy-window,classic", help="which peers, a list")
    p.add_argument("--rounds", type=int, default=5, help="alternating rounds (5)")
    p.add_argument("--seconds", type=float, default=2.0, help="of a hot run at most (2)")
    p.add_argument("--cold-samples", type=int, default=16384, help="of a cold run (16384)")
    p.add_argument("--cold-seconds", type=float, default=15.0, help="at most, for peers (15)")
    p.add_argument("--limit", type=float, default=math.inf, help="seconds for the rounds of a state")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--headrace-extra", default="", help="more options of headrace stream")
    p.add_argument("--no-verify", action="store_true", help="leave out the checked runs")
    p.add_argument("--name", default="stream", help="of the JSON file (stream)")
    return p.parse_args()


class Bench:
    """The runs of one machine, one file, one state of the page cache."""

    def __init__(self, args: argparse.Namespace, file: Path) -> None:
        self.args, self.file = args, file
        self.headrace = runners.find_headrace(args.headrace)
        self.dtype, width = DTYPES[args.dtype]
        self.sample_bytes = (args.seq_len + 1) * width
        self.samples = (file.stat().st_size // width - 1) // args.seq_len
        self.commands: dict[str, str] = {}
        self.contestants: dict[str, tuple[str, int]] = {}
        wanted = args.peers.split(",")
        if not lib.can_import("torch"):
            wanted = [] if args.device != "host" else [p for p in wanted if p.startswith(
                ("numpy", "classic"))]
            print(f"no torch here: the peers are {', '.join(wanted) or 'none'}")
        for peer in wanted:
            for workers in map(int, args.workers.split(",")) if "loader" in peer else [0]:
                name = f"{peer} w{workers}" if "loader" in peer else peer
                self.contestants[name] = (peer, workers)

    def stream(self, batches: int, seed: int, more: list[str]) -> dict[str, Any]:
        argv = [self.headrace, "stream", "--format", "tokens", "--dtype", self.dtype,
                "--out-dtype", "i64", "--seq-len", str(self.args.seq_len),
                "--batch-size", str(self.args.batch_size), "--steps", str(batches),
                "--seed", str(seed), "--device", self.args.device, "--json",
                *more, *self.args.headrace_extra.split(), str(self.file)]
        self.commands["headrace"] = lib.command_line(argv)
        done = runners.checked(argv, 300)
        got = runners.json_of(done.out)
        got["cpu_us_per_sample"] = ((done.user_s + done.system_s) * 1e6
                                    / (batches * self.args.batch_size))
        return got

    def peer(self, name: str, seed: int, more: list[str]) -> dict[str, Any]:
        kind, workers = self.contestants[name]
        argv = [sys.executable, str(PEERS), kind, str(self.file), "--dtype", self.args.dtype,
                "--seq-len", str(self.args.seq_len), "--batch-size", str(self.args.batch_size),
                "--workers", str(workers), "--device", self.args.device, "--seed", str(seed), *more]
        self.commands[name] = lib.command_line(argv)
        return runners.json_of(runners.checked(argv, 300).out)

    def verify(self) -> dict[str, bool]:
        out = {"headrace": bool(self.stream(64, 7, ["--verify"]).get("verified"))}
        for name in self.contestants:
            lib.progress(f"checking {name}")
            out[name] = bool(self.peer(name, 7, ["--verify", "--max-batches", "16"])["verified"])
        lib.progress("")
        return out

    def hot(self, again: bool) -> dict[str, list[dict[str, Any]]]:
        files.heat(self.file)
        epoch = self.samples // self.args.batch_size
        trial = self.stream(min(epoch, 1000), 1, [])
        batches = int(trial["samples_per_second"] * self.args.seconds / self.args.batch_size)
        batches = max(batches, 64) if again else min(max(batches, 64), epoch)
        limits = ["--seconds", f"{self.args.seconds:g}"] + (["--repeat"] if again else [])
        return self._rounds(lambda seed: self.stream(batches, seed, []),
                            lambda name, seed: self.peer(name, seed, limits), cold=False)

    def cold(self) -> dict[str, list[dict[str, Any]]]:
        batches = min(self.args.cold_samples, self.samples) // self.args.batch_size
        limits = ["--seconds", f"{self.args.cold_seconds:g}", "--max-batches", str(batches)]
        files.drop(self.file, limit=1.0)
        files.preread_direct(self.file)
        return self._rounds(lambda seed: self.stream(batches, seed, []),
                            lambda name, seed: self.peer(name, seed, limits), cold=True)

    def _rounds(self, ours: Any, theirs: Any, cold: bool) -> dict[str, list[dict[str, Any]]]:
        order = ["headrace", *self.contestants]
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in order}

        def one_round(i: int) -> str:
            for name in order if i % 2 == 0 else reversed(order):
                before = files.drop(self.file) if cold else files.residency(self.file)
                got = ours(i + 1) if name == "headrace" else theirs(name, i + 1)
                got.update(resident_before=before, resident_after=files.residency(self.file))
                runs[name].append(got)
            return ", ".join(f"{n} {r[-1]['samples_per_second']:.0f}" for n, r in runs.items())

        lib.rounds(self.args.rounds, one_round, self.args.limit)
        return runs


def judge(runs: dict[str, list[dict[str, Any]]], sample_bytes: int) -> dict[str, Any]:
    rates = {n: [r["samples_per_second"] for r in each] for n, each in runs.items()}
    out: dict[str, Any] = {"programs": {}, "ratios": {}}
    for name, each in runs.items():
        out["programs"][name] = {
            "samples_per_second": lib.summary(rates[name]),
            "input_bytes_per_second": lib.median(rates[name]) * sample_bytes,
            "resident_before": lib.median(r["resident_before"] for r in each),
            "resident_after": lib.median(r["resident_after"] for r in each)}
        if name != "headrace":
            out["ratios"][name] = lib.summary(lib.ratios(rates["headrace"], rates[name]))
    for group, word in (("dataloader", "dataloader"), ("numpy", "numpy")):
        members = [n for n in runs if n.startswith(word)]
        if members:
            best = max(members, key=lambda n: lib.median(rates[n]))
            out[f"best_{group}"] = {"name": best, "ratio": out["ratios"][best]["median"]}
    return out


def own_figures(runs: list[dict[str, Any]], batch: int, sample_bytes: int) -> dict[str, Any]:
    """What headrace says about itself: waiting, copies, bytes over the link per sample byte."""
    last = runs[-1]
    out = {k: last.get(k) for k in ("waiting_share", "copies_per_batch", "bytes_by_path", "path",
                                    "ring_bytes", "bytes_moved", "steps", "samples")}
    steps = last.get("steps") or last.get("batches")
    samples = last.get("samples") or (steps and steps * batch)
    if last.get("bytes_moved") is not None and samples:
        out["moved_per_sample_byte"] = last["bytes_moved"] / (samples * sample_bytes)
    out["cpu_us_per_sample"] = lib.median(r["cpu_us_per_sample"] for r in runs)
    return out


def show(state: str, verdict: dict[str, Any]) -> None:
    rows = []
    for name, got in verdict["programs"].items():
        rate, ratio = got["samples_per_second"], verdict["ratios"].get(name)
        rows.append([name, f"{rate['median']:.0f}", f"{rate['q1']:.0f}..{rate['q3']:.0f}",
                     f"{got['input_bytes_per_second'] / 1e9:.2f}",
                     f"{ratio['median']:.1f}x" if ratio else "",
                     f"{ratio['median_low']:.1f}..{ratio['median_high']:.1f}" if ratio else "",
                     f"{got['resident_before']:.1%}", f"{got['resident_after']:.1%}"])
    print(f"\n{state}\n" + lib.table(rows, ["program", "samples/s", "quartiles", "GB/s in",
                                            "headrace is", "95 %", "cached before", "after"]))
    own = verdict["headrace"]
    print("headrace: " + ", ".join(f"{k} {v}" for k, v in own.items() if v is not None))
    for group in ("best_dataloader", "best_numpy"):
        if group in verdict:
            print(f"{group.replace('_', ' ')}: {verdict[group]['name']}, headrace is "
                  f"{verdict[group]['ratio']:.2f}x")


def main() -> None:
    args = arguments()
    lib.need("numpy", "torch", optional=True) or lib.need("numpy")
    file = args.file or files.make(lib.DATA / f"tokens-{lib.format_size(args.size)}.bin",
                                   args.size)
    bench = Bench(args, file)
    facts = lib.machine(file)
    print(lib.describe(facts))
    print(f"file     {lib.format_size(file.stat().st_size)} of {args.dtype}, {bench.samples} "
          f"windows of {args.seq_len} + 1, batch {args.batch_size}, int64 out, {args.device}, "
          f"{args.rounds} rounds")
    result: dict[str, Any] = {"machine": facts, "file_bytes": file.stat().st_size,
                              "options": vars(args), "samples": bench.samples}
    if not args.no_verify:
        result["verified"] = bench.verify()
        print("checked  " + ", ".join(f"{n} {'ok' if ok else 'NO'}"
                                      for n, ok in result["verified"].items()))
    for state in args.state.split(","):
        runs = bench.cold() if state == "cold" else bench.hot(again=state == "again")
        verdict = judge(runs, bench.sample_bytes)
        verdict["headrace"] = own_figures(runs["headrace"], args.batch_size, bench.sample_bytes)
        show(state, verdict)
        result[state] = {**verdict, "runs": runs}
    result["commands"] = bench.commands
    print()
    for name, line in bench.commands.items():
        print(f"{name}: {line}")
    lib.save(args.name, result)


if __name__ == "__main__":
    main()

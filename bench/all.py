#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every measurement that needs no GPU, one after the other, each within a bound of time.

Files lie in build/bench/data (HEADRACE_BENCH_DATA) and are kept for the next run; results are JSON
and pictures in build/bench. --quick takes small files and few rounds: it shows that everything runs,
its figures are too short to be compared.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import lib
from steps import Step, bad_steps, run_step, tell

HERE = Path(__file__).resolve().parent


def program(name: str, limit_s: float, script: str, *more: str) -> Step:
    return Step(name, limit_s, [sys.executable, str(HERE / f"{script}.py"), *more, "--name", name])


def pairs(quick: bool) -> list[Step]:
    """Beside fio: random and sequential, reads and writes."""
    how = ["--size", "256M" if quick else "2G", "--pairs", "2" if quick else "16", "--seconds", "1"]
    how += ["--no-strace"] if quick else []
    return [program(f"fio_{rw}_{bs}", 40 if quick else 240, "fio_pairs", *how, "--rw", rw, "--bs",
                    bs, "--depth", depth, "--limit", "20" if quick else "150")
            for rw, bs, depth in (("randread", "8K", "64"), ("read", "1M", "16"),
                                  ("randwrite", "8K", "64"), ("write", "1M", "16"))]


def of_formats(quick: bool) -> list[Step]:
    """Training formats beside their own loaders; those that cannot be installed are left out."""
    rates = (["--size", "64M", "--rounds", "1", "--seconds", "0.3", "--workers", "0", "--kinds",
              "megatron,tar-8k,tfrecord,mds-8k,npy"] if quick else ["--limit", "90"])
    stall = (["--shrink", "8", "--rounds", "1", "--workers", "1", "--kinds", "tar-150k"] if quick
             else ["--limit", "150"])
    return [program("formats", 150 if quick else 1800, "formats", *rates),
            program("stall", 100 if quick else 1200, "stall", *stall)]


def steps(quick: bool) -> list[Step]:
    size, rounds = ("256M", "2") if quick else ("1G", "5")
    big = "512M" if quick else "8G"
    few = ["--few", "1000", "--many", "4000"] if quick else []
    peers = (["--seconds", "0.5", "--cold-seconds", "3", "--cold-samples", "4096", "--workers", "0",
              "--state", "hot,cold", "--peers", "dataloader,numpy-window,classic"] if quick else
             ["--state", "hot,again,cold", "--limit", "120"])
    return [
        *pairs(quick),
        program("instructions", 200, "instructions", "--size", "256M" if quick else "2G", *few),
        program("enters", 60, "enters", "--size", "256M" if quick else "2G"),
        program("hot_stream", 240, "hot_stream", "--size", size, "--rounds", rounds, "--ways",
                "auto", "--seq-lens", "4095,4096", "--limit", "30" if quick else "150"),
        program("sequential", 300, "sequential", "--sizes", f"64M,{size}", "--rounds", rounds,
                "--seconds", "0.3" if quick else "1", "--limit", "30" if quick else "150"),
        program("stream", 600, "stream_peers", "--size", size, "--rounds", "1" if quick else "5",
                *peers),
        program("loads", 300, "loads", "--size", size, "--rounds", rounds, "--cold-rounds",
                "1" if quick else "3", "--threads", "2", "--limit", "30" if quick else "120"),
        program("memory", 120, "memory", "--size", big),
        *of_formats(quick),
        program("sweep", 150, "sweep", "--size", "256M" if quick else "1G", "--classic",
                *(["--sizes", "4K,1M", "--depths", "1,16", "--seconds", "0.1", "--no-fio"] if quick
                  else [])),
        program("check_truth", 60, "check_truth", "--size", "256M" if quick else "1G"),
        program("loader_state", 30, "loader_state", "--rounds", "10" if quick else "50"),
        Step("pictures", 30, [sys.executable, str(HERE / "plot.py")]),
        Step("report", 30, [sys.executable, str(HERE / "report.py"), "--html",
                            str(lib.OUT / "report.html")]),
    ]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="small files, few rounds, a few minutes")
    p.add_argument("--budget", type=float, default=5100, help="seconds for everything (5100)")
    p.add_argument("--only", default="", help="steps whose name contains this")
    p.add_argument("--list", action="store_true", help="show the steps and stop")
    args = p.parse_args()
    wanted = [step for step in steps(args.quick) if args.only in step.name]
    if args.list:
        print("\n".join(f"{s.name:<20}{lib.command_line(s.argv)}" for s in wanted))
        return 0
    lib.DATA.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print(lib.describe(lib.machine(lib.DATA)), flush=True)
    with tempfile.TemporaryFile("w", encoding="utf-8") as log:
        for step in wanted:
            run_step(step, args.budget - (time.monotonic() - began), lib.OUT, lib.DATA, log)
            tell(step)
    bad = bad_steps(wanted)
    skipped = sum(s.result["outcome"] == "skipped" for s in wanted)
    print(f"{time.monotonic() - began:.0f} s" + (f"; not ok: {', '.join(bad)}" if bad else ""))
    print(f"{len(wanted) - len(bad) - skipped} passed, {len(bad)} failed"
          + (f", {skipped} skipped" if skipped else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

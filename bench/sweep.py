#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads past the page cache over block sizes and depths: headrace, the classic loop, and fio beside them.

Every point is a run of its own, programs in turn, on one file that was read once before. Rates,
latencies, CPU time and copies per point go to build/bench/NAME.json; report.py --html draws them.
"""
from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import files
import lib
import runners


def point_of_headrace(got: dict[str, Any]) -> dict[str, float]:
    return {"bytes_per_second": got["bytes_per_second"], "iops": got["iops"],
            "p50_us": got["latency_us"]["p50"], "p99_us": got["latency_us"]["p99"],
            "cpu_us": got["cpu_us_per_request"], "copies": got["copies_per_request"],
            "syscalls": got["syscalls_per_request"]}


def run_headrace(headrace: str, file: Path, shape: runners.Shape, device: str,
                 path: str) -> dict[str, float]:
    # The classic loop knows neither depth nor direct I/O of its own.
    more = [] if path == "classic" else ["--direct"]
    argv = runners.headrace_argv(headrace, shape, file, device, path, more)
    return point_of_headrace(runners.json_of(runners.checked(argv, 60).out))


def run_fio(fio: str, file: Path, shape: runners.Shape) -> dict[str, float]:
    got = runners.json_of(runners.checked(runners.fio_argv(fio, shape, file), 60).out)
    side = got["jobs"][0]["read"]
    percentile = side["clat_ns"].get("percentile", {})
    runtime_us = got["jobs"][0]["job_runtime"] * 1e3
    share = (got["jobs"][0]["usr_cpu"] + got["jobs"][0]["sys_cpu"]) / 100
    return {"bytes_per_second": side["bw_bytes"], "iops": side["iops"],
            "p50_us": percentile.get("50.000000", 0) / 1e3,
            "p99_us": percentile.get("99.000000", 0) / 1e3,
            "cpu_us": share * runtime_us / max(side["total_ios"], 1)}


def programs(args: argparse.Namespace) -> list[str]:
    wanted = ["headrace"]
    if not args.no_fio and shutil.which(args.fio or "fio"):
        wanted.append("fio")
    if args.classic:
        wanted.append("classic")
    return wanted


def measure(args: argparse.Namespace, file: Path) -> dict[str, list[list[dict[str, float]]]]:
    """{program: rows by size of points by depth}; classic is asked at one depth only."""
    names = programs(args)
    grid: dict[str, list[list[dict[str, float]]]] = {name: [] for name in names}
    headrace = runners.find_headrace(args.headrace)
    for bs in args.sizes:
        for name in names:
            grid[name].append([])
        for depth in args.depths:
            shape = runners.Shape(args.rw, bs, depth, 1, args.seconds)
            for name in lib.both_ways(names, depth.bit_length()):
                if name == "fio":
                    point = run_fio(args.fio or "fio", file, shape)
                elif name == "classic":
                    if depth != args.depths[0]:
                        continue
                    point = run_headrace(headrace, file, shape, args.device, "classic")
                else:
                    point = run_headrace(headrace, file, shape, args.device, args.path)
                grid[name][-1].append(point)
            lib.progress(f"{lib.format_size(bs)} depth {depth}: "
                         f"{grid['headrace'][-1][-1]['bytes_per_second'] / 1e9:.2f} GB/s")
    lib.progress("")
    return grid


def numbers(text: str) -> list[int]:
    return [lib.parse_size(part) for part in text.split(",")]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--headrace")
    p.add_argument("--device", default="host")
    p.add_argument("--path", default="auto")
    p.add_argument("--rw", default="randread", choices=("read", "randread"))
    p.add_argument("--file", type=Path, help="made where there is none")
    p.add_argument("--size", type=lib.parse_size, default=1 << 30)
    p.add_argument("--sizes", type=numbers, default=numbers("4K,16K,64K,256K,1M,4M"))
    p.add_argument("--depths", type=numbers, default=numbers("1,4,16,64,256"))
    p.add_argument("--seconds", type=float, default=0.4, help="of a point (fio takes 1 at least)")
    p.add_argument("--fio", help="another fio")
    p.add_argument("--no-fio", action="store_true")
    p.add_argument("--classic", action="store_true", help="the blocking read and copy as well")
    p.add_argument("--name", default="sweep")
    args = p.parse_args()
    file = args.file or files.make(lib.DATA / "sweep.bin", args.size)
    files.preread_direct(file)
    files.drop(file)
    grid = measure(args, file)
    for name, rows in grid.items():
        print(f"{name}, GB/s")
        print(lib.table([[lib.format_size(bs), *(f"{pt['bytes_per_second'] / 1e9:.2f}" for pt in row)]
                         for bs, row in zip(args.sizes, rows)],
                        ["block", *(f"depth {d}" for d in args.depths[:len(rows[0])])]))
    lib.save(args.name, {"options": {k: v for k, v in vars(args).items()
                                     if k not in ("sizes", "depths")},
                         "machine": lib.machine(file), "file_bytes": file.stat().st_size,
                         "sweep": {"rw": args.rw, "device": args.device, "sizes": args.sizes,
                                   "depths": args.depths, "programs": grid}})


if __name__ == "__main__":
    main()

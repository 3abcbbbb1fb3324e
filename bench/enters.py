#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel entries of one gather: 4096 random reads of 8 KiB, by the library's counters and strace.

gather_once makes exactly one gather with the queue's default depth of 128. Where it was not
built, `headrace bench --batch` makes it, with a queue as deep as the gather. Two strace runs, one
with few and one with all pieces, are subtracted, so that entries made while a queue is set up or
torn down are not counted against the reads.
"""
from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import files
import lib
import runners

LIMIT = 1 / 32


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="any file; default: one made in build/bench/data")
    p.add_argument("--size", type=lib.parse_size, default=2 << 30, help="of the file made (2G)")
    p.add_argument("--count", type=int, default=4096, help="pieces of the gather (4096)")
    p.add_argument("--bytes", type=lib.parse_size, default=8192, help="of a piece (8K)")
    p.add_argument("--device", default="host", help="host or cuda:N (host)")
    p.add_argument("--program", help="gather_once (found in the build folders)")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--name", default="enters", help="of the JSON file (enters)")
    return p.parse_args()


def find_program(given: str | None) -> str | None:
    build = lib.ROOT / "build"
    for place in (given, build / "bin/gather_once", build / "obj/bench/gather_once"):
        if place and os.path.isfile(place) and os.access(place, os.X_OK):
            return str(place)
    if given:
        raise SystemExit(f"gather_once not found at {given}")
    return None


def gather_argv(program: str | None, headrace: str | None, file: Path, args: argparse.Namespace,
                count: int) -> list[str]:
    if program:
        return [program, str(file), args.device, str(count), str(args.bytes)]
    return [runners.find_headrace(headrace), "bench", "--bs", str(args.bytes), "--batch",
            str(count), "--depth", "1", "--requests", str(count), "--direct", "--device",
            args.device, "--json", str(file)]


def gather(argv: list[str]) -> dict[str, Any]:
    """The library's own counters of one run."""
    own = runners.json_of(runners.checked(argv, 120).out)
    if "enters" not in own:  # all of its system calls: at least as many
        own["enters"] = round(own["syscalls_per_request"] * own["requests"])
        own.update(pieces=own["requests"], preads=0, probes=0, queue=own["queue"]["name"])
    return own


def traced(argv: list[str], timeout: float) -> int | None:
    got = runners.strace_counts(argv, "io_uring_enter", timeout)
    return None if got is None else got[1].get("io_uring_enter", 0)


def main() -> None:
    args = arguments()
    program = find_program(args.program)
    file = args.file or files.make(lib.DATA / f"bytes-{lib.format_size(args.size)}.bin",
                                   args.size)
    argv = gather_argv(program, args.headrace, file, args, args.count)
    facts = lib.machine(file)
    print(lib.describe(facts))
    print(f"ours     {lib.command_line(argv)}")
    files.drop(file, limit=1.0)
    own = gather(argv)
    per_read = own["enters"] / max(own["segments"], 1)
    print(f"library: {own['enters']} io_uring_enter for {own['segments']} reads of the kernel "
          f"({own['pieces']} pieces), {per_read * 32:.2f} per 32 reads; queue {own['queue']}, "
          f"{own['preads']} preads, {own['probes']} probes")
    few = traced(gather_argv(program, args.headrace, file, args, 1), 120)
    every = traced(argv, 120)
    result = {"machine": facts, "command": lib.command_line(argv), "library": own,
              "enters_per_32_reads": per_read * 32, "strace_all": every, "strace_one_piece": few}
    if every is None or few is None:
        print("strace:  not here or not allowed")
    else:
        outside = (every - few) / max(own["segments"], 1) * 32
        result["strace_enters_per_32_reads"] = outside
        print(f"strace:  {every} io_uring_enter, {few} of them also for a single piece: "
              f"{outside:.2f} per 32 reads (timing differs under strace)")
    result["inside"] = own["preads"] == 0 and own["enters"] > 0 and per_read <= LIMIT
    print(f"at most 1 per 32 reads: {'yes' if result['inside'] else 'NO'}")
    lib.save(args.name, result)


if __name__ == "__main__":
    main()

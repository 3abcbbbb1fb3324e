#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to save where a loader is: hr_loader_state(), while a thread fills batches.

A training loop may save after every step, so it has to be nothing beside one: less than 10 us.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import files
import lib
import runners

LIMIT_NS = 10_000


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="token file; default: one made in build/bench/data")
    p.add_argument("--rounds", type=int, default=50, help="of 10000 saves (50)")
    p.add_argument("--program", help="loader_state (found in the build folders)")
    p.add_argument("--name", default="loader_state", help="of the JSON file (loader_state)")
    return p.parse_args()


def main() -> None:
    args = arguments()
    program = args.program or runners.find_program("loader_state")
    if not program:
        raise SystemExit("loader_state not found: build it with ./dev build")
    file = args.file or files.make(lib.DATA / "tokens-16M.bin", 16 << 20)
    argv = [program, str(file), str(args.rounds)]
    facts = lib.machine(file)
    print(lib.describe(facts))
    print(f"ours     {lib.command_line(argv)}")
    result = lib.summary([float(line) for line in runners.checked(argv, 120).out.split()])
    verdict = "inside" if result["max"] < LIMIT_NS else "OVER"
    print(f"a save takes {result['median']:.0f} ns ({result['min']:.0f} to {result['max']:.0f}), "
          f"limit {LIMIT_NS} ns: {verdict}")
    lib.save(args.name, {"machine": facts, "command": lib.command_line(argv), "ns": result,
                         "limit_ns": LIMIT_NS})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions per request in user space, counted by valgrind's callgrind: no clock, no neighbours.

Each program does a fixed number of requests twice, few and many; the difference of the two counts
divided by the difference of the numbers is the cost of one request, with start and end taken out.
The kernel's part is not in it: see CPU time per request in fio_pairs.py for that.

Counted are headrace bench (which always publishes its statistics), the library under a loop that
does nothing else (requests.c) with and without publishing, and fio. The first is checked: a run of
the same requests with --verify goes before.
"""
from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import files
import lib
import runners
from runners import Shape


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, help="any file; default: one made in build/bench/data")
    p.add_argument("--size", type=lib.parse_size, default=2 << 30, help="of the file made (2G)")
    p.add_argument("--bs", type=lib.parse_size, default=8192, help="request size (8K)")
    p.add_argument("--depth", type=int, default=64, help="requests in flight (64)")
    p.add_argument("--few", type=int, default=4000, help="requests of the short run (4000)")
    p.add_argument("--many", type=int, default=24000, help="requests of the long run (24000)")
    p.add_argument("--device", default="host")
    p.add_argument("--path", default="host")
    p.add_argument("--fio", help="another fio")
    p.add_argument("--headrace", help="the command (build/bin/headrace)")
    p.add_argument("--top", type=int, default=8, help="functions shown of headrace (8)")
    p.add_argument("--name", default="instructions", help="of the JSON file (instructions)")
    return p.parse_args()


def callgrind(argv: list[str], out: Path, env: dict[str, str]) -> tuple[int, str]:
    """(instructions of all processes and threads together, what the program printed)."""
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise SystemExit("valgrind not found: install valgrind")
    done = runners.checked([valgrind, "--tool=callgrind", "--trace-children=yes",
                            f"--callgrind-out-file={out}.%p", *argv], 600, env)
    total = 0
    for part in out.parent.glob(out.name + ".*"):
        sums = re.findall(r"^(?:summary|totals):\s*(\d+)", part.read_text(errors="replace"), re.M)
        total += int(sums[-1]) if sums else 0
    if total == 0:
        raise RuntimeError(f"callgrind counted nothing for {lib.command_line(argv)}: {done.err}")
    return total, done.out


def functions(out: Path, requests: int, top: int) -> list[tuple[str, float]]:
    """Where the instructions of the largest process went, per request, start included."""
    annotate = shutil.which("callgrind_annotate")
    parts = sorted(out.parent.glob(out.name + ".*"), key=lambda p: p.stat().st_size)
    if not annotate or not parts:
        return []
    text = runners.checked([annotate, "--threshold=95", str(parts[-1])], 120).out
    rows = re.findall(r"^\s*([\d,]+)\s+\([^)]*\)\s+\S*?:(\S+)", text, re.M)
    return [(name, int(count.replace(",", "")) / requests) for count, name in rows[:top]]


@dataclass
class Counted:
    """One row: how the program is called for so many requests, and how many it says it made."""
    name: str
    argv: Callable[[int], list[str]]
    requests: Callable[[str, int], int]
    env: dict[str, str] = field(default_factory=dict)


def per_request(row: Counted, few: int, many: int, folder: Path) -> dict[str, Any]:
    counted = []
    for asked in (few, many):
        lib.progress(f"{row.name}: {asked} requests under callgrind")
        out = folder / f"{row.name.replace(' ', '-')}-{asked}"
        total, text = callgrind(row.argv(asked), out, row.env)
        counted.append((row.requests(text, asked), total))
    lib.progress("")
    (n0, i0), (n1, i1) = counted
    if n1 <= n0:
        raise RuntimeError(f"{row.name}: both runs made {n1} requests; is the number not obeyed?")
    shown = " ".join(f"{k}={v}" for k, v in row.env.items())
    return {"requests": [n0, n1], "instructions": [i0, i1],
            "instructions_per_request": (i1 - i0) / (n1 - n0),
            "command": f"{shown} {lib.command_line(row.argv(many))}".strip()}


def rows(args: argparse.Namespace, file: Path) -> list[Counted]:
    headrace, fio = runners.find_headrace(args.headrace), runners.find_fio(args.fio)
    loop = runners.find_program("requests")
    shape = Shape(bs=args.bs, depth=args.depth, seconds=600)

    def ours(count: int) -> list[str]:
        return runners.headrace_argv(headrace, shape, file, args.device, args.path,
                                     ["--requests", str(count)])

    def library(count: int) -> list[str]:
        return [str(loop), str(file), args.device, str(count), str(args.depth)]

    def theirs(count: int) -> list[str]:
        plain = [a for a in runners.fio_argv(fio, shape, file)
                 if a not in ("--time_based", f"--runtime={shape.seconds}")]
        return [*plain, "--thread", f"--io_size={count * args.bs}"]

    def said(text: str, asked: int) -> int:
        return int(runners.json_of(text).get("requests", asked))

    out = [Counted("headrace", ours, said)]
    if loop and args.bs == 8192:
        out += [Counted("library, published", library, said, {"HEADRACE_STATS": "1"}),
                Counted("library alone", library, said, {"HEADRACE_STATS": "0"})]
    return [*out, Counted("fio", theirs, lambda text, asked: runners.json_of(text)["jobs"][0]
                          ["read"]["total_ios"])]


def main() -> None:
    args = arguments()
    file = args.file or files.make(lib.DATA / f"bytes-{lib.format_size(args.size)}.bin",
                                   args.size)
    facts = lib.machine(file)
    print(lib.describe(facts))
    files.drop(file, limit=1.0)
    programs = rows(args, file)
    checked = programs[0].argv(args.few)
    if not runners.json_of(runners.checked([*checked[:-1], "--verify", checked[-1]], 120).out)[
            "verified"]:
        raise SystemExit(f"wrong bytes: {lib.command_line(checked)}")
    result: dict[str, Any] = {"machine": facts, "options": vars(args), "programs": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in programs:
            got = per_request(row, args.few, args.many, folder)
            result["programs"][row.name] = got
            print(f"{row.name:<20}{got['instructions_per_request']:7.0f} instructions per request "
                  f"({got['requests'][0]} and {got['requests'][1]} requests)  {got['command']}")
        result["functions"] = functions(folder / f"headrace-{args.many}", args.many, args.top)
    for function, count in result["functions"]:
        print(f"  {count:9.1f}  {function}")
    result["ratio"] = (result["programs"]["headrace"]["instructions_per_request"]
                       / result["programs"]["fio"]["instructions_per_request"])
    print(f"headrace/fio {result['ratio']:.3f}")
    lib.save(args.name, result)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown of measurements in build/bench/, for docs/performance.md.

Each has its command, the machine and the spread: medians with quartiles in brackets. Steps inside a
JSON file of gpu_suite.py or steps that failed are told as well.
"""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Callable

import lib
import plot

Rows = list[list[str]]


def spread(s: dict[str, float], scale: float = 1, digits: int = 2) -> str:
    return (f"{s['median'] / scale:.{digits}f} "
            f"[{s['q1'] / scale:.{digits}f}..{s['q3'] / scale:.{digits}f}]")


def table(head: list[str], rows: Rows) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def of_pairs(got: dict[str, Any]) -> str:
    shape, ratios, programs = got["shape"], got["ratios"], got["programs"]
    rows = [[f"{shape['rw']} {lib.format_size(shape['bs'])}, depth {shape['depth']}",
             f"{ratios['iops']['fio/fio']['n']}",
             *(spread(programs[who]["bytes_per_second"], 1e6, 0) for who in ("headrace", "fio")),
             spread(ratios["iops"]["headrace/fio"]), spread(ratios["iops"]["fio/fio"]),
             spread(ratios["cpu_us"]["headrace/fio"]),
             "yes" if got["rate_inside_fio_spread"] else "no"]]
    return table(["load", "pairs", "MB/s", "fio MB/s", "rate / fio", "fio / fio", "CPU / fio",
                  "inside fio's spread"], rows)


def of_hot_stream(got: dict[str, Any]) -> str:
    rows = []
    for name, s in got["kinds"].items():
        pays = got["pays_after_epoch"].get(name, "-")
        rows.append([name, spread(s["whole"], 1e9, 1),
                     spread(s["later"], 1e9, 1) if "later" in s else "-",
                     f"{s['samples_per_second']['median'] / 1e3:.0f} 000",
                     f"{s['cpu_us_per_sample']:.2f}",
                     f"{s['registered_bytes'] / 2**30:.1f} GiB in {s['register_seconds']:.2f} s",
                     "not in these" if pays is None else str(pays)])
    epochs = max(got["options"]["epochs"])
    return table(["way, batch x tokens", f"GB/s, {epochs} epochs", "later epochs", "samples/s",
                  "CPU us/sample", "registered", "pays after epoch"], rows)


def of_sequential(got: dict[str, Any]) -> str:
    bus = got["bus"]
    limit = bus["to_device"]["median"] if bus else None
    return table(["file, program", "GB/s", "of the bus"], [
        [name, spread(s, 1e9), f"{s['median'] / limit:.0%}" if limit else "-"]
        for name, s in got["rates"].items()])


def of_programs(got: dict[str, Any], states: list[str]) -> str:
    parts = []
    for state in states:
        if "programs" not in got.get(state, {}):
            continue
        rows = []
        for name, s in got[state]["programs"].items():
            field = next(k for k in s if k in ("samples_per_second", "iops", "bytes_per_second"))
            scale, digits = (1e9, 2) if field == "bytes_per_second" else (1, 0)
            ratio = got[state]["ratios"].get(name)
            rows.append([name, spread(s[field], scale, digits), spread(ratio, 1, 1) if ratio
                         else "-"])
        unit = {"bytes_per_second": "GB/s", "iops": "requests/s"}.get(field, "samples/s")
        parts.append(f"{state}:\n\n" + table(["program", unit, "headrace is"], rows))
    return "\n\n".join(parts)


def of_matmul(got: dict[str, Any]) -> str:
    return table(["kind, blocks, priority", "ms alone", "ms beside", "% slower", "GB/s alone",
                  "GB/s beside"], [
        [name, spread(r["alone_ms"], 1, 3), spread(r["beside_ms"], 1, 3), spread(r["slower"], 0.01,
                                                                                 1),
         spread(r["rate_alone"], 1e9, 1), spread(r["rate_beside"], 1e9, 1)]
        for name, r in got["rows"].items()])


def of_instructions(got: dict[str, Any]) -> str:
    return table(["program", "instructions per request"], [
        [name, f"{p['instructions_per_request']:.0f}"] for name, p in got["programs"].items()])


def drawn_by(got: dict[str, Any]) -> Callable[[dict[str, Any]], str] | None:
    options = got.get("options", {})
    if "shape" in got and "ratios" in got:
        return of_pairs
    for key, draw in (("kinds", of_hot_stream), ("rates", of_sequential), ("rows", of_matmul)):
        if key in got:
            return draw
    if "what" in options or "state" in options:
        states = options["what" if "what" in options else "state"].split(",")
        return lambda result: of_programs(result, states)
    return of_instructions if "few" in options else None


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="*", type=Path, help="JSON files (all of build/bench/)")
    args = p.parse_args()
    for name, got in plot.read(args.results or sorted(lib.OUT.glob("*.json"))).items():
        steps = got.get("steps")
        for step, part in steps.items() if isinstance(steps, dict) else []:
            if part.get("outcome") != "ok":
                print(f"{name}: {step} {part.get('outcome')}\n")
        draw = drawn_by(got)
        if draw:
            bus = got.get("bus")
            print(f"### {name}\n\n`{got.get('benchmark_command', '')}`; {plot.where(got['machine'])}"
                  + (f"; bus {bus['to_device']['median'] / 1e9:.1f} GB/s" if bus else "")
                  + f"\n\n{draw(got)}\n")


if __name__ == "__main__":
    main()

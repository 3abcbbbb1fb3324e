#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures (SVG) of measurements in build/bench/ for docs/performance/, without any library.

A bar is a median; the line on it spans the quartiles. One picture for each file that was written by
stream_peers.py or fio_pairs.py, also for those inside a gpu_suite.json.
"""
from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any, Iterator

import lib

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 26, 190, 130, 54
OURS, THEIRS, INK, FAINT = "#1f6f78", "#b9bfc4", "#22272b", "#6b747b"
Bar = tuple[str, dict[str, float]]  # name, summary


def number(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {suffix}"
    return f"{value:.3g}"


def svg(title: str, below: str, unit: str, bars: list[Bar]) -> str:
    """Horizontal bars, the longest first, ours in colour."""
    bars = sorted(bars, key=lambda bar: -bar[1]["median"])
    most = max(max(s["median"], s["q3"]) for _, s in bars)
    scale = (WIDTH - LEFT - RIGHT) / most
    height = TOP + ROW * len(bars) + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13" '
           f'role="img" aria-label="{escape(title)}">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
           f'<text x="16" y="22" font-size="15" font-weight="bold" fill="{INK}">'
           f'{escape(title)}</text>',
           f'<text x="16" y="41" font-size="11" fill="{FAINT}">{escape(below)}</text>']
    for i, (name, s) in enumerate(bars):
        y = TOP + i * ROW
        ours = name.startswith("headrace")
        width = max(s["median"] * scale, 1)
        low, high = LEFT + s["q1"] * scale, LEFT + s["q3"] * scale
        middle = y + ROW / 2 - 2
        weight = ' font-weight="bold"' if ours else ""
        out += [f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="{INK}"{weight}>'
                f'{escape(name)}</text>',
                f'<rect x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{ROW - 8}" '
                f'fill="{OURS if ours else THEIRS}"/>',
                f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" '
                f'stroke="{INK}" stroke-width="1.5"/>',
                f'<text x="{max(LEFT + width, high) + 6:.1f}" y="{y + 15}" fill="{INK}">'
                f'{number(s["median"])} {escape(unit)}</text>']
    out.append("</svg>")
    return "\n".join(out) + "\n"


def where(facts: dict[str, Any]) -> str:
    disk = facts.get("disk", {})
    return ", ".join(x for x in (facts["gpu"].split(",")[0], facts["cpu"],
                                 f"{facts['cpus']} CPUs", disk.get("fs", ""),
                                 f"Linux {facts['kernel']}") if x)


def pictures(name: str, got: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(file name, SVG) for everything that can be drawn in one result."""
    for step, part in got.get("steps", {}).items():
        if "json" in part:
            yield from pictures(f"{name}-{step}", part["json"])
    for state in ("hot", "again", "cold"):
        if "programs" in got.get(state, {}):
            o = got["options"]
            bars = [(n, p["samples_per_second"]) for n, p in got[state]["programs"].items()]
            yield f"{name}-{state}", svg(
                f"Shuffled windows of {o['seq_len']} tokens to {o['device']}, file {state}",
                f"int64, batches of {o['batch_size']}, {lib.format_size(got['file_bytes'])} file; "
                f"{where(got['machine'])}", "samples/s", bars)
    if "shape" in got and "programs" in got:
        shape = got["shape"]
        for field, unit, what in (("iops", "requests/s", "rate"),
                                  ("cpu_us", "us", "CPU time per request")):
            bars = [(n.replace("_", " "), p[field]) for n, p in got["programs"].items()]
            yield f"{name}-{field}", svg(
                f"{shape['rw']} {lib.format_size(shape['bs'])}, depth {shape['depth']}, "
                f"{shape['threads']} thread: {what}",
                f"{got['programs']['fio'][field]['n']} rounds; {where(got['machine'])}", unit, bars)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="*", type=Path, help="JSON files (all of build/bench/)")
    p.add_argument("--out", type=Path, default=lib.OUT / "pictures",
                   help="folder for the pictures (build/bench/pictures)")
    p.add_argument("--prefix", default="", help="of the pictures' names, such as the machine")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.results or sorted(lib.OUT.glob("*.json")):
        for name, picture in pictures(path.stem, json.loads(path.read_text())):
            target = args.out / f"{args.prefix}{name}.svg"
            target.write_text(picture)
            print(f"written  {lib.command_line([str(target)])}")


if __name__ == "__main__":
    main()

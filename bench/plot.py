#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures (SVG) of measurements in build/bench/ for docs/performance/, without any library.

A bar is a median; the line on it spans the quartiles, and a broken line across all bars is a limit
that was measured beside them. One picture for each question in a JSON file, also for the steps inside
one that gpu_suite.py wrote; all pairs with fio share one.
"""
from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Iterator

import lib

WIDTH, ROW, HEAD, TOP, LETTER = 860, 28, 26, 62, 8.6
OURS, THEIRS, INK, FAINT, LIMIT = "#1f6f78", "#b9bfc4", "#22272b", "#5f6870", "#b3541e"


@dataclass
class Bar:
    name: str
    value: dict[str, float]  # a summary
    group: str = ""
    ours: bool = False


def number(value: float) -> str:
    """Three digits that matter, no exponent."""
    for limit, suffix in ((1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (limit if suffix == 'M' else 1e3):.3g} {suffix}"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


class Picture:
    """Horizontal bars in groups, in the order in which they are given."""

    def __init__(self, title: str, below: str, unit: str, bars: list[Bar],
                 limit: tuple[str, float] | None = None) -> None:
        self.title, self.below, self.unit, self.limit = title, below, unit, limit
        self.bars = bars
        self.left = 24 + max(len(b.name) for b in bars) * LETTER
        self.right = 24 + max(len(self.label(b)) for b in bars) * LETTER
        top = max(max(b.value["median"], b.value["q3"]) for b in bars)
        self.most = max(top, limit[1] if limit else 0) or 1
        self.out: list[str] = []

    def label(self, bar: Bar) -> str:
        return f"{number(bar.value['median'])} {self.unit}".strip()

    def x(self, value: float) -> float:
        return self.left + max(value, 0) / self.most * (WIDTH - self.left - self.right)

    def text(self, x: float, y: float, what: str, more: str) -> None:
        """With a white edge, so that it can be read on the line of the limit."""
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" paint-order="stroke" stroke="#ffffff" '
                        f'stroke-width="4" {more}>{escape(what)}</text>')

    def bar(self, bar: Bar, y: float) -> None:
        s, weight = bar.value, ' font-weight="bold"' if bar.ours else ""
        end = self.x(s["median"])
        self.text(self.left - 8, y + 18, bar.name, f'text-anchor="end" fill="{INK}"{weight}')
        self.out.append(f'<rect x="{self.left:.1f}" y="{y + 4}" width="'
                        f'{max(end - self.left, 1):.1f}" height="{ROW - 8}" rx="2" '
                        f'fill="{OURS if bar.ours else THEIRS}"/>')
        low, high, middle = self.x(s["q1"]), self.x(s["q3"]), y + ROW / 2
        if high > low:
            self.out.append(f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" '
                            f'stroke="{INK}" stroke-width="1.5"/>')
        self.text(max(end, high) + 7, y + 18, self.label(bar), f'fill="{INK}"{weight}')

    def svg(self) -> str:
        y, group = float(TOP), ""
        for bar in self.bars:
            if bar.group != group:
                group = bar.group
                self.text(16, y + 18, group, f'font-size="13" font-weight="bold" fill="{FAINT}"')
                y += HEAD
            self.bar(bar, y)
            y += ROW
        if self.limit:
            x = self.x(self.limit[1])
            self.out.insert(0, f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y}" '
                            f'stroke="{LIMIT}" stroke-width="1.5" stroke-dasharray="5 4"/>')
            self.text(x, y + 16, f"{self.limit[0]}: {number(self.limit[1])} {self.unit}".strip(),
                      f'text-anchor="{"end" if x > WIDTH * 0.6 else "start"}" font-size="12" '
                      f'fill="{LIMIT}"')
            y += 20
        height = int(y + 14)
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="14" '
                f'role="img" aria-label="{escape(self.title, quote=True)}">\n'
                f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
                f'<text x="16" y="25" font-size="17" font-weight="bold" fill="{INK}">'
                f'{escape(self.title)}</text>\n'
                f'<text x="16" y="46" font-size="12" fill="{FAINT}">{escape(self.below)}</text>\n')
        return head + "\n".join(self.out) + "\n</svg>\n"


Pictures = Iterator[tuple[str, Picture]]


def where(facts: dict[str, Any]) -> str:
    disk = facts.get("disk", {})
    return ", ".join(x for x in (facts["gpu"].split(",")[0], facts["cpu"],
                                 f"{facts['cpus']} CPUs", disk.get("fs", ""),
                                 f"Linux {facts['kernel'].split('-')[0]}") if x)


def scaled(summary: dict[str, float], factor: float) -> dict[str, float]:
    return {k: v if k == "n" else v * factor for k, v in summary.items()}


def bus_limit(got: dict[str, Any]) -> tuple[str, float] | None:
    bus = got.get("bus")
    return ("what the bus carries", bus["to_device"]["median"] / 1e9) if bus else None


def sorted_bars(bars: list[Bar]) -> list[Bar]:
    return sorted(bars, key=lambda b: -b.value["median"])


def of_stream_peers(name: str, got: dict[str, Any]) -> Pictures:
    o = got["options"]
    words = {"hot": "in the page cache", "again": "in the page cache, again and again",
             "cold": "not in the page cache"}
    for state in words:
        if "programs" in got.get(state, {}):
            bars = [Bar(n, p["samples_per_second"], ours=n == "headrace")
                    for n, p in got[state]["programs"].items()]
            yield name if name.endswith(state) else f"{name}-{state}", Picture(
                f"Shuffled windows of {o['seq_len']} tokens to {o['device']}, file {words[state]}",
                f"int64, batches of {o['batch_size']}, {lib.format_size(got['file_bytes'])} file; "
                f"{where(got['machine'])}", "samples/s", sorted_bars(bars))


def of_hot_stream(name: str, got: dict[str, Any]) -> Pictures:
    words = {"auto": "as it comes", "off": "registering switched off", "bounce": "through the ring",
             "pagecache": "pagecache", "host": "host"}
    bars = []
    for kind, s in sorted(got["kinds"].items(), key=lambda item: item[0].partition(",")[2]):
        way, shape, *threads = kind.split(", ")
        group = ", ".join([f"batches of {shape} tokens", *threads])
        bars.append(Bar(words[way], scaled(s["whole"], 1e-9), group, way == "auto"))
    yield name, Picture(
        f"headrace stream, random windows of a hot file to {got['options']['device']}",
        f"uint16 as int64, {max(got['options']['epochs'])} epochs of "
        f"{lib.format_size(got['file_bytes'])}, GB/s of the file; {where(got['machine'])}", "GB/s",
        bars, bus_limit(got))


def of_sequential(name: str, got: dict[str, Any]) -> Pictures:
    bars = []
    for key, s in got["rates"].items():
        place, _, program = key.partition(", ")
        if not program.endswith("opening"):
            bars.append(Bar(program, scaled(s, 1e-9), place, True))
    yield name, Picture(f"Hot files in their order to {got['options']['device']}",
                        f"medians of {bars[0].value['n']} runs; {where(got['machine'])}", "GB/s",
                        bars, bus_limit(got))


def of_loads(name: str, got: dict[str, Any]) -> Pictures:
    bars = []
    for state, words in (("hot", "in the page cache"), ("cold", "not in the page cache")):
        of_state = [Bar(n, scaled(p["bytes_per_second"], 1e-9), words, n.startswith("headrace"))
                    for n, p in got.get(state, {}).get("programs", {}).items()]
        bars += sorted_bars(of_state)
    size = lib.format_size(got["options"]["size"])
    if bars:
        yield name, Picture(f"A file of weights of {size} into memory of "
                            f"{got['options']['device']}", where(got["machine"]), "GB/s", bars,
                            bus_limit(got))
    random = got.get("random", {}).get("programs", {})
    if len(random) > 1:
        yield f"{name}-random", Picture(
            f"Random 8 KiB past the page cache to {got['options']['device']}",
            where(got["machine"]), "requests/s",
            sorted_bars([Bar(n, p["iops"], ours=n.startswith("headrace"))
                         for n, p in random.items()]))


def of_matmul(name: str, got: dict[str, Any]) -> Pictures:
    slower, rates = [], []
    for key, row in got["rows"].items():
        kind, blocks, stream = key.split(", ")
        group = f"{kind}, products on a stream of {stream} priority"
        label = f"{blocks} blocks"
        slower.append(Bar(label, scaled(row["slower"], 100), group, True))
        rates += [Bar(f"{label}, alone", scaled(row["rate_alone"], 1e-9), group),
                  Bar(f"{label}, beside", scaled(row["rate_beside"], 1e-9), group, True)]
    for bars in (slower, rates):
        bars.sort(key=lambda b: b.group)
    n = got["options"]["size"]
    yield f"{name}-slower", Picture(
        f"How much slower a product of {n} x {n} bf16 is beside transfers", where(got["machine"]),
        "%", slower)
    yield f"{name}-rates", Picture("What the transfers get, alone and beside the products",
                                   where(got["machine"]), "GB/s", rates, bus_limit(got))


def of_instructions(name: str, got: dict[str, Any]) -> Pictures:
    bars = []
    for n, p in got["programs"].items():
        value = p["instructions_per_request"]
        bars.append(Bar(n, {"median": value, "q1": value, "q3": value}, ours=n != "fio"))
    yield name, Picture("Instructions in user space for a random read of 8 KiB",
                        f"callgrind; {where(got['machine'])}", "", bars,
                        ("wanted at most", 1500))


def of_formats(name: str, got: dict[str, Any]) -> Pictures:
    """How many times faster, by rate: one bar for each loader and dataset."""
    words = {"hot": "in the page cache", "cold": "not in the page cache"}
    for state, word in words.items():
        bars = []
        for kind, of in got["kinds"].items():
            programs = of["states"].get(state, {}).get("programs", {})
            group = f"{kind}: {of['mean_bytes']} bytes, {of['files']} files"
            bars += [Bar(n, p["times"], group) for n, p in programs.items() if n != "headrace"]
        if bars:
            yield f"{name}-{state}", Picture(
                f"Rate of headrace beside each loader's, shuffled batches, files {word}",
                f"ratios of medians of rounds; {where(got['machine'])}", "x", bars,
                ("as fast as headrace", 1.0))


def of_stall(name: str, got: dict[str, Any]) -> Pictures:
    bars = []
    for kind, of in got["stalls"].items():
        for ms, programs in of["steps_ms"].items():
            group = f"{kind}, {of['batch']} a step, {ms} ms of pretended compute"
            bars += [Bar(n, scaled(p["waiting_share"], 100), group, n == "headrace")
                     for n, p in programs.items()]
    yield name, Picture("Share of the time that a training loop waits for its batches",
                        f"files {got['options']['state']}; {where(got['machine'])}", "%", bars)


def of_pairs(results: dict[str, dict[str, Any]]) -> Pictures:
    """Rates and CPU time of all pairs with fio, as ratios; fio against itself says what noise is."""
    for field, title in (("iops", "Rate beside fio, same file, size, depth and engine"),
                         ("cpu_us", "CPU time per request beside fio")):
        bars = []
        for got in results.values():
            shape, pairs = got["shape"], got["ratios"][field]
            device = got["commands"]["headrace"].partition("--device ")[2].split()[0]
            group = (f"{shape['rw']} {lib.format_size(shape['bs'])}, depth {shape['depth']}, "
                     f"{device}, {pairs['fio/fio']['n']} rounds")
            bars += [Bar("headrace / fio", pairs["headrace/fio"], group, True),
                     Bar("fio / fio", pairs["fio/fio"], group)]
        machine = where(next(iter(results.values()))["machine"])
        yield f"fio-{'rate' if field == 'iops' else 'cpu'}", Picture(
            title, f"ratios pair by pair; {machine}", "", bars, ("fio's", 1.0))


def of_weights(results: dict[str, dict[str, Any]]) -> Pictures:
    """Loading and saving of all runs, in one picture."""
    words = {"hot": "load, page cache", "tmpfs": "load, tmpfs", "cold": "load, cold",
             "second": "load, the start after a cold one", "saves": "save, on the drive when it ends"}
    bars = []
    for got in results.values():
        for what, title in words.items():
            group = f"{title}, {got['options']['size'] / 1e9:.1f} GB"
            bars += [Bar(n, scaled(s, 1e-9), group, n.startswith("headrace"))
                     for n, s in got.get(what, {}).items()]
    yield "weights", Picture("Weights between files and the device",
                             f"bf16, a process for each run; {where(next(iter(results.values()))['machine'])}",
                             "GB/s", bars)


KINDS = (("rates", of_sequential), ("rows", of_matmul), ("stalls", of_stall))


def pictures(results: dict[str, dict[str, Any]]) -> Pictures:
    """(name, picture) for everything in these results that can be drawn."""
    pairs = {n: got for n, got in results.items() if "shape" in got and "ratios" in got}
    if pairs:
        yield from of_pairs(pairs)
    weights = {n: got for n, got in results.items() if "shards" in got.get("options", {})}
    if weights:
        yield from of_weights(weights)
    for name, got in results.items():
        if name in weights:
            continue
        for key, draw in KINDS:
            if key in got and "options" in got:
                yield from draw(name, got)
        options = got.get("options", {})
        if "kinds" in got and "options" in got:
            yield from (of_formats if "kinds" in options else of_hot_stream)(name, got)
        if "what" in options:
            yield from of_loads(name, got)
        elif "state" in options and "peers" in options:
            yield from of_stream_peers(name, got)
        elif "few" in options and "programs" in got:
            yield from of_instructions(name, got)


def read(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Name -> result; the steps of a suite are results of their own."""
    out: dict[str, dict[str, Any]] = {}
    for path in paths:
        got = json.loads(path.read_text())
        out[path.stem] = got
        steps = got.get("steps")
        for step, part in steps.items() if isinstance(steps, dict) else []:
            if isinstance(part, dict) and "json" in part:
                out[step] = part["json"]
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="*", type=Path, help="JSON files (all of build/bench/)")
    p.add_argument("--out", type=Path, default=lib.OUT / "pictures",
                   help="folder for the pictures (build/bench/pictures)")
    p.add_argument("--prefix", default="", help="of the pictures' names, such as the machine")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures(read(args.results or sorted(lib.OUT.glob("*.json")))):
        target = args.out / f"{args.prefix}{name}.svg"
        target.write_text(picture.svg())
        print(f"written  {lib.command_line([str(target)])}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports on measurements in build/bench/: one HTML page (--html), or tables in Markdown.

The page needs no network and no other file; --png makes a picture of it where chromium is installed.
Each result has its command, the machine and the spread: medians with quartiles in brackets. Steps
inside a JSON file of gpu_suite.py are results of their own, and those that failed are told as well.
"""
from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable

import _html
import lib
import plot
from _html import Card, Section, Table

Rows = list[list[str]]


def spread(s: dict[str, float], scale: float = 1, digits: int = 2) -> str:
    return (f"{s['median'] / scale:.{digits}f} "
            f"[{s['q1'] / scale:.{digits}f}..{s['q3'] / scale:.{digits}f}]")


def markdown(t: Table) -> str:
    lines = ["| " + " | ".join(t.head) + " |", "|" + "---|" * len(t.head)]
    lines += ["| " + " | ".join(row) + " |" for row in t.rows]
    return (f"{t.title}:\n\n" if t.title else "") + "\n".join(lines)


# -- tables of each kind of result -------------------------------------------------------------
def of_pairs(got: dict[str, Any]) -> list[Table]:
    shape, ratios, programs = got["shape"], got["ratios"], got["programs"]
    rows = [[f"{shape['rw']} {lib.format_size(shape['bs'])}, depth {shape['depth']}",
             f"{ratios['iops']['fio/fio']['n']}",
             *(spread(programs[who]["bytes_per_second"], 1e6, 0) for who in ("headrace", "fio")),
             spread(ratios["iops"]["headrace/fio"]), spread(ratios["iops"]["fio/fio"]),
             spread(ratios["cpu_us"]["headrace/fio"]),
             "yes" if got["rate_inside_fio_spread"] else "no"]]
    return [Table("", ["load", "pairs", "MB/s", "fio MB/s", "rate / fio", "fio / fio", "CPU / fio",
                       "in fio's spread"], rows)]


def of_hot_stream(got: dict[str, Any]) -> list[Table]:
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
    return [Table("", ["way, batch x tokens", f"GB/s, {epochs} epochs", "later epochs", "samples/s",
                       "CPU us/sample", "registered", "pays after epoch"], rows)]


def of_sequential(got: dict[str, Any]) -> list[Table]:
    bus = got["bus"]
    limit = bus["to_device"]["median"] if bus else None
    return [Table("", ["file, program", "GB/s", "of the bus"], [
        [name, spread(s, 1e9), f"{s['median'] / limit:.0%}" if limit else "-"]
        for name, s in got["rates"].items()])]


def of_programs(got: dict[str, Any], states: list[str]) -> list[Table]:
    tables = []
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
        tables.append(Table(state, ["program", unit, "headrace is"], rows))
    return tables


def of_matmul(got: dict[str, Any]) -> list[Table]:
    return [Table("", ["kind, blocks, priority", "ms alone", "ms beside", "% slower", "GB/s alone",
                       "GB/s beside"], [
        [name, spread(r["alone_ms"], 1, 3), spread(r["beside_ms"], 1, 3), spread(r["slower"], 0.01,
                                                                                 1),
         spread(r["rate_alone"], 1e9, 1), spread(r["rate_beside"], 1e9, 1)]
        for name, r in got["rows"].items()])]


def of_instructions(got: dict[str, Any]) -> list[Table]:
    return [Table("", ["program", "instructions per request"], [
        [name, f"{p['instructions_per_request']:.0f}"] for name, p in got["programs"].items()])]


def of_sweep(got: dict[str, Any]) -> list[Table]:
    sweep, tables = got["sweep"], []
    for name, grid in sweep["programs"].items():
        rows = []
        for bs, points in zip(sweep["sizes"], grid):
            for depth, pt in zip(sweep["depths"], points):
                rows.append([lib.format_size(bs), str(depth), f"{pt['bytes_per_second'] / 1e9:.3f}",
                             f"{pt['iops']:.0f}", f"{pt['p50_us']:.0f}", f"{pt['p99_us']:.0f}",
                             f"{pt['cpu_us']:.2f}",
                             f"{pt['cpu_us'] * 1e3 / bs * 1024:.2f}",
                             f"{pt['copies']:.2f}" if "copies" in pt else "-"])
        tables.append(Table(name, ["block", "depth", "GB/s", "requests/s", "p50 us", "p99 us",
                                   "CPU us/request", "CPU ns/KiB", "copies/request"], rows))
    return tables


def of_truth(got: dict[str, Any]) -> list[Table]:
    rows = []
    for basis, pair in (("by kinds and links", got["pair"]), ("measured", got["pair_measured"])):
        expect = pair["expected_bytes_per_second"]
        for load, rate in got["truth_rates"].items():
            rows.append([f"{pair['drive']} to {pair['gpu']}", pair["direct"], load,
                         f"{rate / 1e9:.2f}", basis,
                         f"{expect['low'] / 1e9:.2f} to {expect['high'] / 1e9:.2f}" if expect
                         else "unknown"])
    return [Table(got["pair"]["cause"], ["drive, device", "direct", "load", "GB/s", "expected by",
                                         "GB/s expected"], rows)]


def of_formats(got: dict[str, Any]) -> list[Table]:
    """One table for each state: datasets, and the loaders of each."""
    tables = []
    for state in sorted({s for of in got["kinds"].values() for s in of["states"]}, reverse=True):
        rows = [[kind, name, spread(p["samples_per_second"], 1, 0), spread(p["cpu_us_per_sample"], 1, 1),
                 "-" if name == "headrace" else spread(p["times"], 1, 1)]
                for kind, of in got["kinds"].items()
                for name, p in of["states"].get(state, {}).get("programs", {}).items()]
        tables.append(Table(state, ["dataset", "program", "samples/s", "CPU us/sample", "headrace is"], rows))
    return tables


def of_stall(got: dict[str, Any]) -> list[Table]:
    return [Table("", ["dataset", "step", "program", "waits"], [
        [kind, f"{ms} ms", name, f"{p['waiting_share']['median']:.1%}"]
        for kind, of in got["stalls"].items()
        for ms, programs in of["steps_ms"].items() for name, p in programs.items()])]


def of_weights(got: dict[str, Any]) -> list[Table]:
    """What weights.py measured: rates by program, of each question that was asked."""
    return [Table(what, ["program", "GB/s", "runs"], [
        [name, spread(s, 1e9), str(s["n"])] for name, s in got[what].items()])
        for what in got["options"]["what"].split(",") if what in got and what != "memory"]


def drawn_by(got: dict[str, Any]) -> Callable[[dict[str, Any]], list[Table]] | None:
    options = got.get("options", {})
    if "shape" in got and "ratios" in got:
        return of_pairs
    for key, draw in (("pays_after_epoch", of_hot_stream), ("kinds", of_formats), ("stalls", of_stall),
                      ("rates", of_sequential), ("rows", of_matmul), ("sweep", of_sweep), ("truth_rates", of_truth)):
        if key in got:
            return draw
    if "shards" in options:
        return of_weights
    if "what" in options or "state" in options:
        states = options["what" if "what" in options else "state"].split(",")
        return lambda result: of_programs(result, states)
    return of_instructions if "few" in options else None


def where(got: dict[str, Any]) -> str:
    """The machine and the time; of `headrace bench --sweep --json`, which knows neither, the file."""
    if "machine" not in got:
        return got.get("file", "")
    return f"{plot.where(got['machine'])}; {got.get('time', '')}"


# -- the page ----------------------------------------------------------------------------------
def title_of(name: str, got: dict[str, Any]) -> str:
    if "shape" in got:
        shape = got["shape"]
        return f"{shape['rw']} {lib.format_size(shape['bs'])} beside fio"
    return {"truth_rates": "what check says", "sweep": "sizes and depths"}.get(
        next((k for k in ("truth_rates", "sweep") if k in got), ""), name.replace("_", " "))


def cards(results: dict[str, dict[str, Any]]) -> list[Card]:
    """The few figures to begin with: beside fio, and the best of a sweep."""
    out = []
    for got in results.values():
        if "shape" in got and "ratios" in got:
            ratio, noise = (got["ratios"]["iops"][k] for k in ("headrace/fio", "fio/fio"))
            out.append(Card(f"{ratio['median']:.2f}x", f"fio's rate, {title_of('', got)[:-11]}",
                            f"fio beside itself {noise['q1']:.2f} to {noise['q3']:.2f}",
                            bool(got["rate_inside_fio_spread"])))
        if "sweep" in got:
            best = max((pt["bytes_per_second"] for row in got["sweep"]["programs"]["headrace"]
                        for pt in row))
            out.append(Card(f"{best / 1e9:.2f} GB/s", f"best of the sweep to "
                            f"{got['sweep']['device']}", "past the page cache"))
        if "truth_rates" in got:
            out.append(Card("true" if not got["wrong"] else "wrong", "headrace check, held against "
                            "bench", f"direct {got['pair']['drive']} to {got['pair']['gpu']}: "
                            f"{got['pair']['direct']}", not got["wrong"]))
        for state, words in (("cold", "cold"), ("hot", "hot")):
            programs = got.get(state, {}).get("programs", {}) if isinstance(got.get(state), dict) \
                else {}
            ours = programs.get("headrace", {}).get("samples_per_second")
            if ours:
                others = [p["samples_per_second"]["median"] for n, p in programs.items()
                          if n != "headrace"]
                out.append(Card(f"{ours['median'] / max(others):.1f}x" if others else
                                plot.number(ours["median"]), f"the best other loader, {words}",
                                f"{plot.number(ours['median'])} samples/s"))
    return out[:8]


def sections(results: dict[str, dict[str, Any]]) -> list[Section]:
    pictures: dict[str, list[plot.Picture]] = {}
    shared = []
    for name, picture in plot.pictures(results):
        owner = max((n for n in results if name == n or name.startswith(n + "-")), key=len,
                    default=None)
        if owner is None:
            shared.append(picture)
        else:
            pictures.setdefault(owner, []).append(picture)
    out = []
    pairs = {name: got for name, got in results.items() if "shape" in got and "ratios" in got}
    if pairs:
        tables = [of_pairs(got)[0] for got in pairs.values()]
        out.append(Section("beside-fio", "beside fio", "\n".join(
            got.get("benchmark_command", "") for got in pairs.values()),
            plot.where(next(iter(pairs.values()))["machine"]), shared,
            [Table("", tables[0].head, [row for t in tables for row in t.rows])]))
    for name, got in results.items():
        draw = drawn_by(got)
        if not draw or name in pairs:
            continue
        tables = draw(got)
        fold = "sweep" in got
        s = Section(re.sub(r"\W+", "-", name), title_of(name, got), got.get("benchmark_command", ""),
                    where(got), pictures.get(name, []),
                    [] if fold else tables)
        if fold:
            s.extra = _html.sweep_html(got["sweep"]) + (
                "<details><summary>every point</summary>"
                + "".join(map(_html.table, tables)) + "</details>")
        out.append(s)
    return sorted(out, key=lambda s: (s.name != "beside-fio", not s.extra))


def html(results: dict[str, dict[str, Any]]) -> str:
    machines = {plot.where(got["machine"]): None for got in results.values() if "machine" in got}
    times = sorted(got["time"] for got in results.values() if "time" in got)
    about = "; ".join(machines) or "no machine"
    when = f" Measured {times[0][:10]}" + (f" to {times[-1][:10]}" if times[-1][:10] != times[0][:10]
                                           else "") + "." if times else ""
    return _html.page("Headrace: measurements", f"{about}.{when}", cards(results), sections(results))


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
                 if path), None)


def chromium_argv(browser: str, profile: str, page: Path, *more: str) -> list[str]:
    """Headless, without network: a page that asked for something would be heard of."""
    return [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--no-first-run", f"--user-data-dir={profile}", "--window-size=1200,3200",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0",
            *more, page.resolve().as_uri()]


def screenshot(page: Path, target: Path) -> None:
    browser = find_chromium()
    if not browser:
        raise SystemExit("no chromium here: install it, or leave --png away")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(chromium_argv(browser, profile, page, f"--screenshot={target.resolve()}"),
                       check=True, timeout=120, capture_output=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="*", type=Path, help="JSON files (all of build/bench/)")
    p.add_argument("--html", type=Path, metavar="FILE", help="write the page")
    p.add_argument("--png", type=Path, metavar="FILE", help="and a picture of it, by chromium")
    args = p.parse_args()
    results = plot.read(args.results or sorted(lib.OUT.glob("*.json")))
    if args.html:
        args.html.write_text(html(results), encoding="utf-8")
        print(f"written  {lib.command_line([str(args.html)])}")
        if args.png:
            screenshot(args.html, args.png)
            print(f"written  {lib.command_line([str(args.png)])}")
        return
    for name, got in results.items():
        steps = got.get("steps")
        for step, part in steps.items() if isinstance(steps, dict) else []:
            if part.get("outcome") != "ok":
                print(f"{name}: {step} {part.get('outcome')}\n")
        draw = drawn_by(got)
        if draw:
            bus = got.get("bus")
            print(f"### {name}\n\n`{got.get('benchmark_command', '')}`; {where(got)}"
                  + (f"; bus {bus['to_device']['median'] / 1e9:.1f} GB/s" if bus else "")
                  + "\n\n" + "\n\n".join(map(markdown, draw(got))) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of report.py: made of results of every kind, opened in headless Chromium, which must find
nothing to complain of, run the script, and fetch nothing. Planted errors prove that it would be seen.

Without chromium the part in the browser is skipped, with its reason.
"""
from __future__ import annotations

import html.parser
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import _html
import lib
import report

MACHINE = {"cpu": "Test <CPU> & co", "cpus": 4, "memory_bytes": 1 << 34, "kernel": "6.18.0-x",
           "system": "#1", "gpu": "", "load_before": 0.0,
           "disk": {"device": "254:0", "name": "vda", "fs": "ext4", "model": "", "scheduler": "none"}}
TIME = "2026-01-02T03:04:05Z"


def summary(*values: float) -> dict[str, Any]:
    return lib.summary(list(values))


def common(name: str) -> dict[str, Any]:
    return {"machine": MACHINE, "time": TIME, "benchmark": name,
            "benchmark_command": f"python3 bench/{name}.py --x '<&>'"}


def pairs() -> dict[str, Any]:
    rates = {who: {"bytes_per_second": summary(5e8, 6e8, 7e8)} for who in ("headrace", "fio")}
    ratios = {"headrace/fio": summary(0.98, 1.0, 1.03), "fio/fio": summary(0.95, 1.0, 1.06)}
    return {**common("fio"), "shape": {"rw": "randread", "bs": 8192, "depth": 64},
            "programs": rates, "ratios": {"iops": ratios, "cpu_us": ratios},
            "commands": {"headrace": "headrace bench --device host x"}, "rate_inside_fio_spread": True}


def stream() -> dict[str, Any]:
    programs = {"headrace": {"samples_per_second": summary(6e4, 7e4)},
                "numpy": {"samples_per_second": summary(2e4, 2.1e4)}}
    return {**common("stream"), "options": {"state": "cold", "seq_len": 4096, "device": "host",
                                            "batch_size": 32}, "file_bytes": 1 << 30,
            "cold": {"programs": programs, "ratios": {"numpy": summary(3, 3.5)}}}


def sweep() -> dict[str, Any]:
    def point(bs: int, depth: int) -> dict[str, float]:
        rate = min(3e9, bs * depth * 3e3)
        return {"bytes_per_second": rate, "iops": rate / bs, "p50_us": 80.0 * depth, "p99_us": 200.0 * depth,
                "cpu_us": 4.0, "copies": 0.0}

    sizes, depths = [4096, 65536, 1 << 20], [1, 16, 64]
    grid = [[point(bs, d) for d in depths] for bs in sizes]
    return {**common("sweep"), "options": {"device": "host"}, "sweep": {
        "rw": "randread", "device": "host", "sizes": sizes, "depths": depths,
        "programs": {"headrace": grid, "fio": grid, "classic": [row[:1] for row in grid]}}}


def truth() -> dict[str, Any]:
    pair = {"drive": "vda", "gpu": "cuda:0", "direct": "no", "cause": "vda is virtio", "fix": "VFIO",
            "expected_bytes_per_second": {"low": 10**8, "high": 8 * 10**9}}
    return {**common("check_truth"), "options": {}, "truth_rates": {"read 1M": 2.5e9}, "pair": pair,
            "pair_measured": {**pair, "expected_bytes_per_second": None}, "told": {}, "wrong": []}


def formats() -> dict[str, Any]:
    programs = {name: {"samples_per_second": summary(6e4, 7e4), "cpu_us_per_sample": summary(1.0, 2.0),
                       "times": summary(1.0, 1.0)} for name in ("headrace", "webdataset w2")}
    return {**common("formats"), "options": {"device": "host", "kinds": "tar-8k"}, "kinds": {"tar-8k": {
        "mean_bytes": 8192, "files": 2, "states": {"hot": {"programs": programs},
                                                   "cold": {"programs": programs}}}}}


def stall() -> dict[str, Any]:
    programs = {name: {"waiting_share": summary(0.01, 0.02)} for name in ("headrace", "webdataset w2")}
    return {**common("stall"), "options": {"state": "cold"}, "stalls": {"tar-150k": {
        "batch": 32, "steps_ms": {"5": programs}}}}


def weights() -> dict[str, Any]:
    return {**common("weights"), "options": {"what": "hot,memory", "ways": "none", "shards": 4, "size": 1 << 33,
                                             "device": "cuda:0"},
            "hot": {"headrace": summary(4.8e10, 4.9e10)}, "memory": {"headrace": {"host_extra_bytes": 1}}}


def verb_sweep() -> dict[str, Any]:
    """As `headrace bench --sweep --json` prints it: without machine and time, one program."""
    got = sweep()["sweep"]
    return {"file": "x.bin", "seconds": 0.3, "interrupted": False,
            "sweep": {**got, "programs": {"headrace": got["programs"]["headrace"]}}}


RESULTS = {"verb": verb_sweep(), "fio_randread": pairs(), "stream": stream(), "sweep": sweep(), "check": truth(),
           "formats": formats(), "stall": stall(), "weights": weights()}


class Balanced(html.parser.HTMLParser):
    """Every element ends, in its order; no attribute leads out of the file."""
    VOID = {"meta", "link", "br", "circle", "line", "path", "polyline", "rect"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += [v for k, v in attrs if k in ("src", "href") and v and
                         not v.startswith(("#", "data:"))]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open and self.open[-1] == tag, (tag, self.open)
            self.open.pop()


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


class Page(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="headrace-report-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.page = self.folder / "page.html"
        self.page.write_text(report.html(RESULTS), encoding="utf-8")

    def test_whole(self) -> None:
        text = self.page.read_text(encoding="utf-8")
        parser = Balanced()
        parser.feed(text)
        self.assertEqual((parser.open, parser.outside), ([], []))
        self.assertNotIn("Test <CPU>", text)
        for words in ("Test &lt;CPU&gt;", "randread", "fio&#x27;s rate", "vda is virtio", "numpy", "classic",
                      "--x &#x27;&lt;&amp;&gt;&#x27;", "default-src 'none'"):
            self.assertIn(words, text)
        ids = re.findall(r'<section id="([^"]+)"', text)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(set(re.findall(r'href="#([^"]+)"', text)), set(ids))

    def test_each_alone_and_nothing(self) -> None:
        for name, got in RESULTS.items():
            Balanced().feed(report.html({name: got}))
        Balanced().feed(report.html({}))

    def test_markdown(self) -> None:
        for got in RESULTS.values():
            for table in report.drawn_by(got)(got):
                self.assertRegex(report.markdown(table), r"(?m)^\|---\|")

    def browse(self, page: Path, *more: str) -> tuple[str, list[str]]:
        """(document after its script, complaints)."""
        browser = report.find_chromium()
        if not browser:
            self.skipTest("no chromium here")
        done = subprocess.run(report.chromium_argv(browser, str(self.folder / "profile"), page, *more),
                              capture_output=True, text=True, timeout=150, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, [line for line in done.stderr.splitlines()
                             if "CONSOLE" in line or "net::ERR" in line]

    def test_browser(self) -> None:
        document, complaints = self.browse(self.page, "--dump-dom")
        self.assertEqual(complaints, [])
        self.assertIn('data-ready="1"', document)
        picture = self.folder / "page.png"
        _, complaints = self.browse(self.page, f"--screenshot={picture}")
        self.assertEqual(complaints, [])
        self.assertEqual(png_size(picture), (1200, 3200))
        # A page of one colour would be a fraction of that.
        self.assertGreater(picture.stat().st_size, 60000)

    def test_browser_sees_errors(self) -> None:
        text = self.page.read_text(encoding="utf-8")
        for plant in ("<script>nothing_of_that_name();</script>", '<img src="https://example.org/x.png">'):
            bad = self.folder / "bad.html"
            bad.write_text(text.replace("</main>", plant + "</main>"), encoding="utf-8")
            _, complaints = self.browse(bad, "--dump-dom")
            self.assertTrue(complaints, plant)


class Pieces(unittest.TestCase):
    def test_lines_stay_inside(self) -> None:
        text = _html.line_chart("t", "b", "GB/s", [_html.Line("a", [(4096, 1.0), (8192, 2.0)]),
                                                   _html.Line("b", [(4096, 0.0), (8192, 2.0)])],
                                [4096, 8192], ["4K", "8K"])
        for at in re.findall(r'c[xy]="([\d.-]+)"', text):
            self.assertTrue(0 <= float(at) <= _html.WIDTH)
        self.assertEqual(len(set(re.findall(r'class="end[^>]*y="([\d.]+)"', text))), 2)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    if not program.result.wasSuccessful():
        sys.exit(1)
    for _, reason in program.result.skipped:
        print(f"skipped: {reason}")
    # Skipped is the browser alone; what ran has passed, but the browser is the point.
    sys.exit(77 if program.result.skipped else 0)

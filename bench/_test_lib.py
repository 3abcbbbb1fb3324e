#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Self-test of what the measurements share: statistics against known answers, mincore on a file.

No timing is asserted and no program under test is needed.
"""
from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import files
import lib
import runners


class Statistics(unittest.TestCase):
    def test_quantiles_interpolate(self) -> None:
        self.assertEqual(lib.median([3, 1, 2]), 2)
        self.assertEqual(lib.median([4, 1, 2, 3]), 2.5)
        self.assertEqual(lib.quantile([0, 10], 0.25), 2.5)
        self.assertEqual(lib.quantile([7], 0.9), 7)
        with self.assertRaises(ValueError):
            lib.median([])

    def test_interval_holds_the_true_median(self) -> None:
        rng, inside = random.Random(5), 0
        for seed in range(100):
            values = [rng.gauss(10, 2) for _ in range(25)]
            low, high = lib.bootstrap_median(values, seed=seed, resamples=300)
            self.assertLess(low, high)
            inside += low <= 10 <= high
        self.assertGreaterEqual(inside, 85)
        self.assertLessEqual(inside, 100)

    def test_interval_is_repeatable(self) -> None:
        values = [1.0, 5.0, 2.0, 8.0, 3.0]
        self.assertEqual(lib.bootstrap_median(values), lib.bootstrap_median(values))

    def test_ratios_are_paired(self) -> None:
        self.assertEqual(lib.ratios([2, 9], [1, 3]), [2, 3])
        with self.assertRaises(ValueError):
            lib.ratios([1], [1, 2])

    def test_verdict(self) -> None:
        noise = lib.summary([0.8, 0.9, 1.0, 1.1, 1.2])
        self.assertTrue(lib.inside(lib.summary([0.95, 0.97]), noise))
        self.assertFalse(lib.inside(lib.summary([0.7, 0.71]), noise))
        self.assertTrue(lib.inside(lib.summary([3.0, 3.1]), noise))


class Text(unittest.TestCase):
    def test_sizes(self) -> None:
        self.assertEqual(lib.parse_size("8K"), 8192)
        self.assertEqual(lib.parse_size("2GiB"), 2 << 30)
        self.assertEqual(lib.format_size(8192), "8K")
        self.assertEqual(lib.format_size(3 << 20), "3M")
        self.assertEqual(lib.format_size(1000), "1000")
        with self.assertRaises(ValueError):
            lib.parse_size("8X")

    def test_json_between_lines(self) -> None:
        self.assertEqual(runners.json_of('note\n{"a": {"b": 1}}\nend'), {"a": {"b": 1}})
        with self.assertRaises(RuntimeError):
            runners.json_of("none")


def runs(pid: str) -> bool:
    """Has it neither ended nor been collected? Not every first process of a container collects."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


class Children(unittest.TestCase):
    def test_cpu_is_charged_to_the_child(self) -> None:
        done = runners.run_child([sys.executable, "-c", "sum(range(10**7)); print('x')"], 60)
        self.assertEqual((done.code, done.out), (0, "x\n"))
        self.assertGreater(done.user_s + done.system_s, 0.01)

    def test_a_bound_ends_a_child(self) -> None:
        with self.assertRaises(TimeoutError):
            runners.run_child([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)

    def test_a_stopped_child_leaves_none_behind(self) -> None:
        inner = ("import runners; print('up', flush=True); "
                 "runners.run_child(['sleep', '60'], 60)")
        child = subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE,
                                 cwd=Path(__file__).parent)
        assert child.stdout
        child.stdout.readline()
        grandchildren: list[str] = []
        task = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        while not grandchildren and child.poll() is None:
            grandchildren = task.read_text().split()
        child.kill()
        child.wait()
        child.stdout.close()
        end = time.monotonic() + 10
        while any(runs(pid) for pid in grandchildren):
            self.assertLess(time.monotonic(), end, "the grandchild lives on")

    def test_failure_names_the_command(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "exit 3.*reason"):
            runners.checked([sys.executable, "-c",
                             "import sys; print('reason', file=sys.stderr); sys.exit(3)"], 60)


class Files(unittest.TestCase):
    def test_make_heat_and_contents(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = files.make(Path(folder) / "f.bin", (8 << 20) + 8192, header=b"h" * 7)
            self.assertEqual(path.stat().st_size, (8 << 20) + 8192 + 7)
            with open(path, "rb") as file:
                self.assertEqual(file.read(7), b"h" * 7)
                file.seek(7 + (8 << 20) + 4096)
                self.assertEqual(int.from_bytes(file.read(8), "little"), 1)
            self.assertEqual(files.heat(path), 1.0)
            self.assertEqual(files.pages_resident(path)[1],
                             -(-path.stat().st_size // os.sysconf("SC_PAGE_SIZE")))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Self-test of what the measurements share: statistics against known answers, mincore on a file.

No timing is asserted and no program under test is needed.
"""
from __future__ import annotations

import ast
import io
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import _formats_make as make
import files
import fio_pairs
import gpu_suite
import hot_stream
import lib
import loads
import matmul_beside
import plot
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


class Rounds(unittest.TestCase):
    def test_all_are_made_without_a_limit(self) -> None:
        made: list[int] = []
        self.assertEqual(lib.rounds(3, lambda i: made.append(i) or ""), 3)
        self.assertEqual(made, [0, 1, 2])

    def test_limit_stops_but_not_before_the_least(self) -> None:
        self.assertEqual(lib.rounds(9, lambda i: "", limit_s=-1), 1)
        self.assertEqual(lib.rounds(9, lambda i: "", limit_s=-1, least=4), 4)

    def test_every_second_round_is_reversed(self) -> None:
        self.assertEqual(lib.both_ways("abc", 2), ["a", "b", "c"])
        self.assertEqual(lib.both_ways("abc", 3), ["c", "b", "a"])


class Judgements(unittest.TestCase):
    def test_registering_pays_once_the_sums_cross(self) -> None:
        off = {1: 1.0, 4: 4.0, 16: 16.0}
        self.assertEqual(hot_stream.pays_after({1: 2.0, 4: 3.5, 16: 9.5}, off), 4)
        self.assertEqual(hot_stream.pays_after({1: 0.9, 4: 3.5, 16: 9.5}, off), 1)
        self.assertIsNone(hot_stream.pays_after({1: 2.0, 4: 5.0, 16: 17.0}, off))

    def test_later_epochs_are_a_difference(self) -> None:
        def one(epochs: int, seconds: float) -> dict[str, Any]:
            return {"seconds": seconds, "bytes_per_second": epochs * 8e9 / seconds,
                    "samples_per_second": 1.0, "cpu_us_per_sample": 1.0, "register_seconds": 0.5,
                    "registered_bytes": 8, "register_reason": "", "bytes_by_path": {},
                    "threads": 1}

        got = hot_stream.judge({1: [one(1, 1.0)], 4: [one(4, 1.6)], 16: [one(16, 4.0)]})
        self.assertAlmostEqual(got["later"]["median"], 12 * 8e9 / 2.4)
        self.assertAlmostEqual(got["whole"]["median"], 16 * 8e9 / 4.0)

    def test_slowdown_is_of_the_stream_asked_for(self) -> None:
        runs = [{"stream": s, "alone_ms": 1.0, "beside_ms": ms, "rate_alone": 4.0,
                 "rate_beside": 3.0} for s, ms in (("usual", 1.1), ("high", 1.5), ("usual", 1.1))]
        got = matmul_beside.judge(runs, "usual")
        self.assertAlmostEqual(got["slower"]["median"], 0.1)
        self.assertAlmostEqual(got["rate_kept"]["median"], 0.75)

    def test_weights_file_is_what_its_header_says(self) -> None:
        size = loads.TENSORS * 4096
        head = loads.header(size)
        self.assertEqual(len(head) % files.PAGE, 0)
        about = json.loads(head[8:8 + int.from_bytes(head[:8], "little")])
        self.assertEqual(len(about), loads.TENSORS)
        ends = sorted(t["data_offsets"] for t in about.values())
        self.assertEqual(ends[0][0], 0)
        self.assertEqual(ends[-1][1], size)
        for tensor in about.values():
            first, last = tensor["data_offsets"]
            self.assertEqual(tensor["shape"][0] * tensor["shape"][1] * 2, last - first)

    def test_every_section_has_a_bound(self) -> None:
        self.assertTrue(all(limit <= 600 for limit, _ in gpu_suite.SECTIONS.values()))


class Datasets(unittest.TestCase):
    """What _formats_make.py writes, read by other means than ours."""

    def made(self, kind: str, size: int = 1 << 20) -> tuple[list[bytes], int]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "set"
            samples = make.make(kind, folder, size)
            self.assertEqual(make.make(kind, folder, size), samples)  # it is there already
            return [path.read_bytes() for path in make.data_files(folder)], samples

    def test_tar(self) -> None:
        files_made, samples = self.made("tar-8k")
        with tarfile.open(fileobj=io.BytesIO(files_made[0])) as tar:
            members = {m.name: tar.extractfile(m).read() for m in tar}
        self.assertEqual(len(members), 2 * samples)
        for name, data in members.items():
            if name.endswith(".jpg"):
                label = int(members[name.replace(".jpg", ".cls")])
                self.assertEqual(int(name[:9]), int.from_bytes(data[:8], "little"))
                self.assertTrue(make.is_sample(make.KINDS["tar-8k"], data, label))
                other = data[:-1] + bytes([data[-1] ^ 1])
                self.assertFalse(make.is_sample(make.KINDS["tar-8k"], other, label))

    def test_mds(self) -> None:
        files_made, samples = self.made("mds-8k")
        shard = files_made[0]
        count = int.from_bytes(shard[:4], "little")
        starts = struct.unpack_from(f"<{count + 1}I", shard, 4)
        self.assertEqual((count, starts[-1]), (samples, len(shard)))
        for begin, end in zip(starts, starts[1:]):
            size = int.from_bytes(shard[begin:begin + 4], "little")
            self.assertEqual(begin + 4 + size + 8, end)
            label = int.from_bytes(shard[end - 8:end], "little")
            self.assertTrue(make.is_sample(make.KINDS["mds-8k"], shard[begin + 4:end - 8], label))

    def test_npy(self) -> None:
        files_made, samples = self.made("npy")
        head = 10 + int.from_bytes(files_made[0][8:10], "little")
        shape = ast.literal_eval(files_made[0][10:head].decode())["shape"]
        self.assertEqual((head % 64, shape), (0, (samples, 8192)))
        for i in range(samples):
            row = files_made[0][head + i * 16384:head + (i + 1) * 16384]
            self.assertEqual(row, make.payload(make.KINDS["npy"], i))

    def test_megatron(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "set"
            samples = make.make("megatron", folder, 1 << 20)
            index = (folder / "text.idx").read_bytes()
            count = struct.unpack_from("<QBQQ", index, 9)[2]
            sizes = struct.unpack_from(f"<{count}i", index, 34)
            begins = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
            self.assertEqual(begins, tuple(2 * sum(sizes[:i]) for i in range(count)))
            self.assertEqual(2 * sum(sizes), (folder / "text.bin").stat().st_size)
            self.assertEqual(sum(sizes), samples * make.T + 1)


class Commands(unittest.TestCase):
    def test_fio_writes_are_brought_to_the_drive_and_reads_cannot_write(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(1 << 20)
            for rw, wanted in (("randwrite", "--end_fsync=1"), ("read", "--readonly")):
                shape = runners.Shape(rw=rw)
                self.assertIn(wanted, runners.fio_argv("fio", shape, Path(file.name)))

    def test_cpu_per_byte_follows_cpu_per_request(self) -> None:
        rate = runners.Rate("x", 100.0, 819200.0, 100, 8.0, 9.0, 0.5, 1.0, None, {})
        got = fio_pairs.judge({"headrace": [rate], "fio": [rate], "fio_again": [rate]})
        self.assertAlmostEqual(got["programs"]["fio"]["cpu_ns_per_byte"], 8000 / 8192)


class Pictures(unittest.TestCase):
    def test_a_picture_is_xml_and_escapes_names(self) -> None:
        bars = [plot.Bar("a<b", lib.summary([1, 2, 3]), "one & two", True),
                plot.Bar("c", lib.summary([2.0]), "other")]
        text = plot.Picture('say "x"', "below", "GB/s", bars, ("limit", 4.0)).svg()
        root = ElementTree.fromstring(text)
        words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        for wanted in ("a<b", "one & two", 'say "x"', "2 GB/s", "limit: 4 GB/s"):
            self.assertIn(wanted, words)
        ends = [float(e.get("x", 0)) + float(e.get("width", 0))
                for e in root.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertLessEqual(max(ends), plot.WIDTH)

    def test_steps_of_a_suite_are_results(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "suite.json"
            path.write_text(json.dumps({"steps": {"a": {"json": {"x": 1}}, "b": {"code": 1}}}))
            self.assertEqual(plot.read([path])["a"], {"x": 1})


if __name__ == "__main__":
    unittest.main()

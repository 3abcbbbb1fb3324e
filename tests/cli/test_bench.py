#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb bench: every kind of load, its checks, its figures (their presence, never their size)."""
import os
import re
import shutil

import common

KEYS = {"iops", "bytes_per_second", "latency_us", "cpu_share", "syscalls_per_request",
        "copies_per_request", "bytes_by_path", "verified", "cpu_us_per_request", "requests",
        "seconds", "queue", "residency", "device"}
QUICK = ["--device", "host", "--json", "--verify", "--seconds", "30", "--requests", "500"]


class Bench(common.CliTest):
    def check(self, got, requests=500, bs=8192):
        self.assertLessEqual(KEYS, set(got))
        self.assertEqual(got["requests"], requests)
        self.assertIs(got["verified"], True)
        self.assertEqual(sum(got["bytes_by_path"].values()), requests * bs)
        p = got["latency_us"]
        self.assertGreater(p["p50"], 0)
        self.assertLessEqual(p["p50"], p["p99"])
        self.assertLessEqual(p["p99"], p["p99_9"])
        self.assertEqual(set(got["queue"]), {"name", "reason", "depth", "staging_bytes"})
        return got

    def data(self):
        return self.raw("data", common.random.Random(4).randbytes(2 << 20))

    def test_sweep(self):
        """A point for each size that fits and each depth; the file is not touched."""
        f = self.raw("data", b"x" * (300 << 10))
        got = self.ok("bench", "--sweep", "--seconds", "0.01", "--device", "host", "--json", f).json["sweep"]
        self.assertEqual((got["sizes"], got["depths"]), ([4096, 16384, 65536, 262144], [1, 4, 16, 64, 256]))
        rows = got["programs"]["headrace"]
        self.assertEqual([len(r) for r in rows], [5] * 4)
        for point in (p for r in rows for p in r):
            self.assertGreater(point["bytes_per_second"], 0)
            self.assertLessEqual(point["p50_us"], point["p99_us"])
        lines = self.ok("bench", "--sweep", "--seconds", "0.01", "--size", "16K", "--device", "host", f).out
        self.assertEqual(len(lines.splitlines()), 4, lines)
        self.fails(2, ["--sweep reads"], "bench", "--sweep", "--rw", "write", f)

    def test_reads(self):
        f = self.data()
        for rw in ("read", "randread"):
            for extra in (["--path", "host"], ["--path", "bounce"], ["--direct"], ["--buffered"],
                          ["--threads", "3", "--depth", "4"], ["--batch", "7", "--depth", "2"],
                          ["--path", "classic"], ["--helpers", "3"]):
                got = self.check(self.ok("bench", "--rw", rw, *QUICK, *extra, f).json)
                self.assertIs(got["pattern"], False)
                self.assertEqual(got["blocks_verified"], 256)

    def test_paths_are_what_was_asked(self):
        f = self.data()
        for path in ("host", "bounce", "pagecache", "classic"):
            got = self.ok("bench", *QUICK, "--path", path, f).json
            self.assertEqual(list(got["bytes_by_path"]), [path])

    def test_writes_carry_the_pattern(self):
        f = self.path("new")
        for rw, extra in (("write", []), ("randwrite", ["--overwrite"]),
                          ("write", ["--overwrite", "--path", "classic"])):
            got = self.ok("bench", "--rw", rw, "--size", "1M", "--bs", "4K", "--seed", 7, *QUICK, *extra,
                          f).json
            self.check(got, bs=4096)
            self.assertGreater(got["blocks_verified"], 0)
        self.assertEqual(os.path.getsize(f), 1 << 20)
        got = self.ok("bench", "--rw", "read", "--bs", "4K", "--seed", 7, *QUICK, f).json
        self.assertIs(got["pattern"], True)
        got = self.ok("bench", "--rw", "read", "--bs", "4K", "--seed", 8, *QUICK, f).json
        self.assertIs(got["pattern"], False)

    def test_conversions(self):
        f = self.data()
        for source, target in (("u16", "i64"), ("f16", "f32"), ("f32", "bf16"), ("f64", "f32")):
            for extra in ([], ["--batch", "7", "--depth", "2"]):
                got = self.check(self.ok("bench", *QUICK, "--from", source, "--to", target, *extra, f).json)
                self.assertEqual((got["from"], got["to"]), (source, target))
                self.assertEqual(got["blocks_verified"], 256)
        self.fails(2, ["bf16 cannot become i64", "f16, f32"], "bench", "--from", "bf16", "--to", "i64", f)
        self.fails(2, ["i64 cannot become f32", "can stay as it is"], "bench", "--from", "i64", "--to", "f32", f)
        self.fails(2, ["only reads"], "bench", "--rw", "write", "--from", "f16", "--to", "f32", f)
        self.fails(2, ["only reads"], "bench", "--path", "classic", "--from", "f16", "--to", "f32", f)
        self.fails(2, ["multiple", "8 bytes"], "bench", "--bs", 1001, "--from", "f64", "--to", "f32", f)

    def test_writes_refuse(self):
        f = self.data()
        before = os.stat(f)
        self.fails(1, [f, "exists", "--overwrite"], "bench", "--rw", "write", *QUICK, f)
        self.fails(1, [self.path("x"), "--size"], "bench", "--rw", "write", *QUICK, self.path("x"))
        self.assertEqual(os.stat(f).st_mtime_ns, before.st_mtime_ns)
        self.no_leftovers("data")

    def test_time_ends_it(self):
        got = self.ok("bench", "--device", "host", "--json", "--seconds", "0.2", self.data()).json
        self.assertGreater(got["requests"], 0)
        self.assertIs(got["verified"], False)

    def test_instructions(self):
        """A random read of 8 KiB costs less than 1500 in user space, whatever the clock says."""
        if common.SANITIZED or os.environ.get("OPTIMIZATION", "2") not in ("2", "3"):
            self.skipTest("needs an optimised program without sanitizers")
        if not shutil.which("valgrind"):
            self.skipTest("valgrind is not installed")
        f = self.data()
        counts = []
        for n in (1000, 5000):
            done = common.run("--tool=callgrind", f"--callgrind-out-file={self.path('counts')}",
                              common.HEADRACE, "bench", "--device", "host", "--path", "host",
                              "--direct", "--json", "--seconds", "100", "--requests", n, f,
                              program="valgrind")
            self.assertEqual(done.code, 0, str(done))
            if not done.json["queue"]["name"].startswith("io_uring"):
                self.skipTest("valgrind or this machine has no io_uring")
            with open(self.path("counts"), encoding="utf-8", errors="replace") as out:
                counts.append(sum(map(int, re.findall(r"(?m)^(?:summary|totals): *(\d+)",
                                                      out.read())[-1:])))
        each = (counts[1] - counts[0]) / 4000
        print(f"{each:.0f} instructions", end=" ", flush=True)
        self.assertGreater(each, 300)
        self.assertLess(each, 1500)

    def test_small_files(self):
        f = self.raw("tiny", b"x" * 100)
        self.fails(1, [f, "less than one block", "--bs"], "bench", *QUICK, f)
        self.fails(1, [self.path("none")], "bench", *QUICK, self.path("none"))

    def test_table_for_people(self):
        done = self.ok("bench", "--device", "host", "--seconds", "0.1", "--verify", self.data())
        for word in ("rate", "latency", "processor", "path", "queue", "verified"):
            self.assertRegex(done.out, rf"(?m)^{word} ")


if __name__ == "__main__":
    common.main()

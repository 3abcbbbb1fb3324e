#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs on a GPU that is pretended (tests/fakecuda): its memory is closed to the CPU, so what is
verified has really travelled through the driver; it also counts what is left over at the end."""
import os

import common

SMALL = ["--seq-len", "64", "--batch-size", "8", "--json", "--verify"]


class Gpu(common.CliTest):
    def env(self, **more):
        path = os.environ["FAKECUDA"] + ":" + os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": path, "FAKECUDA_STRICT": "1", **more}

    def verified(self, *args, **more):
        got = self.ok(*args, env=self.env(**more)).json
        self.assertIs(got["verified"], True)
        self.assertEqual(got["device"], "cuda:0")
        self.assertLessEqual(set(got["bytes_by_path"]), {"bounce", "pagecache"})
        return got

    def test_stream(self):
        for dtype, width in (("u16", 2), ("u32", 4)):
            f = self.tokens(dtype, 64 * 40 + 9, width)
            for out in ("i32", "i64", "same"):
                for threads in (0, 2):
                    got = self.verified("stream", *SMALL, "--dtype", dtype, "--out-dtype", out,
                                        "--threads", threads, f)
                    self.assertGreater(got["copies_per_batch"], 0)

    def test_stream_odd_offsets(self):
        a, b = self.tokens("a", 9000), self.tokens("b", 7001, seed=2)
        for extra in ([], ["--direct"], ["--buffered"], ["--path", "pagecache"]):
            self.verified("stream", "--seq-len", 37, "--batch-size", 5, "--json", "--verify", *extra,
                          "--device", "cuda:0", a, b, FAKECUDA_DELAY_US="50")

    def test_cp_and_bench(self):
        f = self.raw("f", common.random.Random(1).randbytes(1000003))
        got = self.verified("cp", "--json", "--verify", "--chunk", "64K", f, self.path("g"))
        self.assertEqual(list(got["written_by_path"]), ["bounce"])
        self.verified("cp", "--json", "--verify", "--chunk", "64K", "--threads", 3, f, "cuda:0")
        self.verified("bench", "--json", "--verify", "--requests", 200, f)
        self.verified("bench", "--json", "--verify", "--requests", 200, "--helpers", 3, f)
        got = self.ok("bench", "--json", "--verify", "--requests", 50, "--path", "classic", f,
                      env=self.env()).json
        self.assertIs(got["verified"], True)

    def test_bench_converts(self):
        f = self.raw("f", common.random.Random(2).randbytes(1000003))
        for source, target in (("f16", "bf16"), ("bf16", "f32"), ("f32", "f16"), ("f32", "f64"),
                               ("f64", "f32")):
            for path in ("bounce", "pagecache"):
                self.verified("bench", "--json", "--verify", "--requests", 100, "--bs", 1000, "--path", path,
                              "--from", source, "--to", target, f)

    def test_doctor(self):
        f = self.raw("f", b"x" * 10000)
        got = self.ok("explain", "--json", f, env=self.env()).json
        self.assertEqual(got["path"], "bounce")
        self.assertEqual([r["path"] for r in got["refused"]], ["host", "pagecache", "p2p"])
        done = common.run("check", "--json", "--require", "direct", f, env=self.env())
        self.assertEqual(done.code, 3, str(done))
        self.assertEqual({p["gpu"] for p in done.json["pairs"]} - {"cuda:0", "cuda:1"}, set())

    def test_no_such_gpu(self):
        f = self.tokens("a", 64 * 40)
        self.fails(1, ["cuda:77"], "stream", "--device", "cuda:77", f, env=self.env())

    def test_path_that_cannot_be(self):
        f = self.tokens("a", 64 * 40)
        self.fails(1, [f, "host", "cuda:0"], "stream", *SMALL, "--path", "host", f, env=self.env())
        self.fails(1, [f], "stream", *SMALL, f, env=self.env(HEADRACE_REQUIRE="direct"))

    def test_device_out_of_memory(self):
        f = self.tokens("a", 64 * 40)
        self.fails(1, ["memory"], "stream", *SMALL, f, env=self.env(FAKECUDA_FAIL="cuMemAlloc_v2:1:2"))

    def test_device_that_is_lost(self):
        """In the middle of the work: an error that names the device, never a hang or a wrong batch."""
        f = self.raw("a", common.random.Random(1).randbytes(1000002))
        # A lost context takes nothing back, so what it held is left over at the end.
        env = self.env(FAKECUDA_LOST_AFTER="40", FAKECUDA_STRICT="0",
                       ASAN_OPTIONS="detect_leaks=0")
        for threads in (0, 2):
            self.fails(1, ["device failed or was lost"], "stream", "--seq-len", "64", "--batch-size", "8", "--threads",
                       threads, f, env=env)
        self.fails(1, [], "cp", "--chunk", "16K", f, self.path("g"), env=env)
        self.fails(1, [], "bench", "--requests", 100000, f, env=env)
        self.no_leftovers("a")

    def test_old_driver(self):
        """Auto goes on without the GPU, and says so."""
        f = self.tokens("a", 64 * 40)
        done = self.ok("stream", *SMALL, f, env=self.env(FAKECUDA_FAIL="cuInit:1:100"))
        self.assertEqual(done.json["device"], "host")
        self.assertIn("(auto: no GPU can be used: cuda:0", done.err)


if __name__ == "__main__":
    common.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every --verify finds one wrong byte and names it: plain reads are made to differ by a preloaded
helper, the library's own reads (io_uring) are not."""
import os

import common


class Mismatch(common.CliTest):
    def setUp(self):
        super().setUp()
        self.data = common.random.Random(9).randbytes(64 * 1024)
        self.file = self.raw("data.bin", self.data)
        got = self.ok("bench", "--device", "host", "--json", "--requests", 10, self.file).json
        if not got["queue"]["name"].startswith("io_uring"):
            self.skipTest("without io_uring both ways of reading are plain reads")

    def env(self, name, offset):
        # The address sanitizer wants to be loaded first, but what it wraps works either way.
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": os.environ["FLIP"], "FLIP_NAME": name, "FLIP_OFFSET": str(offset),
                "ASAN_OPTIONS": asan.lstrip(":")}

    def test_stream(self):
        """Byte 5001 is the upper half of token 2500, which is element 4 of sample 39 (39 * 64 + 4)."""
        for dtype in ("i64", "i32", "same"):
            done = self.fails(1, [self.file, "sample 39 element 4 ", "file offset 5000"], "stream",
                              "--device", "host", "--seq-len", 64, "--batch-size", 8, "--direct",
                              "--out-dtype", dtype, "--verify", "--json", self.file,
                              env=self.env("data.bin", 5001))
            good = int.from_bytes(self.data[5000:5002], "little")
            self.assertIn(f"wanted {good ^ 0xff00}, got {good};", done.err)
            self.assertIs(done.json["verified"], False)

    def test_cp(self):
        dst = self.raw("dst", b"precious")
        for name, offset in (("data.bin", 0), (".tmp", 65535)):
            self.fails(1, [self.file, f"byte {offset} of the copy"], "cp", "--device", "host", "--verify",
                       self.file, dst, env=self.env(name, offset))
            with open(dst, "rb") as f:
                self.assertEqual(f.read(), b"precious")
            self.no_leftovers("data.bin", "dst")
        self.fails(1, [self.file, "byte 777 of the copy", "check host"], "cp", "--verify", self.file,
                   "host", env=self.env("data.bin", 777))

    def test_bench(self):
        for args in (["--rw", "randread"], ["--rw", "write", "--overwrite"]):
            self.fails(1, [self.file, "file offset 4097:"], "bench", "--device", "host", "--verify",
                       "--requests", 200, "--bs", 4096, "--direct", *args, self.file,
                       env=self.env("data.bin", 4097))

    def test_nothing_flipped(self):
        self.ok("stream", "--device", "host", "--seq-len", 64, "--batch-size", 8, "--verify", self.file,
                env=self.env("another", 5001))


if __name__ == "__main__":
    common.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb cp: bytes, modes, tails, and that a destination is replaced whole or left alone."""
import filecmp
import os
import stat

import common


class Copy(common.CliTest):
    def copy(self, size, *extra):
        src = self.raw("src", common.random.Random(size).randbytes(size))
        got = self.ok("cp", "--device", "host", "--json", "--verify", *extra, src,
                      self.path("dst")).json
        self.assertTrue(filecmp.cmp(src, self.path("dst"), shallow=False))
        self.assertIs(got["verified"], True)
        self.assertEqual(got["bytes"], size)
        self.assertEqual(sum(got["bytes_by_path"].values()), size)
        self.assertEqual(sum(got["written_by_path"].values()), size)
        self.no_leftovers("dst", "src")
        os.remove(self.path("dst"))
        return got

    def test_sizes(self):
        for size in (0, 1, 511, 4095, 4096, 4097, 65536 + 3, 3 * 65536, 1000003):
            self.copy(size, "--chunk", "64K", "--depth", "3")

    def test_paths(self):
        for path in ("host", "bounce"):
            got = self.copy(5 * 65536, "--chunk", "64K", "--path", path)
            self.assertEqual(got["bytes_by_path"], {path: 5 * 65536})

    def test_defaults(self):
        self.copy(9 * 1024 * 1024 + 7)

    def test_cache(self):
        src = self.raw("src", common.random.Random(7).randbytes(1 << 20))
        for word, kept in (("auto", "cold"), ("drop", "cold"), ("keep", "hot")):
            with open(src, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = self.ok("explain", "--device", "host", "--json", src).json
            if before["residency"]["state"] != "cold" or not before["direct"]:
                self.skipTest("this file system does not go past its cache")
            self.ok("cp", "--device", "host", "--cache", word, src, self.path("dst"))
            after = self.ok("explain", "--device", "host", "--json", src).json
            self.assertEqual(after["residency"]["state"], kept, word)
        self.fails(2, ["--cache", "auto|keep|drop"], "cp", "--cache", "some", src, "dst")
        self.fails(2, ["--cache", "--direct"], "bench", "--cache", "keep", "--direct", src)

    def test_threads(self):
        for threads in (0, 1, 5):
            for path in ("host", "bounce"):
                got = self.copy(7 * 1024 * 1024 + 5, "--threads", threads, "--path", path)
                self.assertEqual(got["threads"], threads)

    def test_into_device_memory(self):
        for size in (0, 1, 65536, 9 * 1024 * 1024 + 7):
            src = self.raw("src", common.random.Random(size).randbytes(size))
            for extra in ((), ("--threads", 3, "--chunk", "64K"), ("--path", "bounce")):
                got = self.ok("cp", "--json", "--verify", *extra, src, "host").json
                self.assertIs(got["verified"], True)
                self.assertEqual(got["device"], "host")
                self.assertEqual((got["bytes"], sum(got["bytes_by_path"].values())), (size, size))
                self.assertEqual(got["written_by_path"], {})
            self.no_leftovers("src")
        self.assertNotIn("write path", self.ok("cp", src, "host").out)
        self.fails(2, ["--device"], "cp", "--device", "host", src, "host")

    def test_replaces_and_keeps_the_mode(self):
        src, dst = self.raw("src", b"new" * 5000), self.raw("dst", b"old")
        os.chmod(src, 0o640)
        self.ok("cp", "--device", "host", src, dst)
        self.assertTrue(filecmp.cmp(src, dst, shallow=False))
        self.assertEqual(stat.S_IMODE(os.stat(dst).st_mode), 0o640)

    def test_follows_a_link(self):
        src, dst = self.raw("src", b"new"), self.raw("dst", b"old")
        os.symlink("dst", self.path("link"))
        self.ok("cp", "--device", "host", src, self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertTrue(filecmp.cmp(src, dst, shallow=False))

    def test_refusals(self):
        src = self.raw("src", b"abc")
        os.symlink("src", self.path("same"))
        os.mkfifo(self.path("pipe"))
        self.fails(1, [src, "same file"], "cp", src, self.path("same"))
        self.fails(1, [self.dir, "is a directory"], "cp", src, self.dir)
        self.fails(1, [self.path("pipe"), "not a regular file"], "cp", src, self.path("pipe"))
        self.fails(1, [self.path("no/where")], "cp", "--device", "host", src, self.path("no/where"))
        self.fails(1, [self.path("missing")], "cp", self.path("missing"), self.path("dst"))
        self.fails(1, [self.dir], "cp", "--device", "host", self.dir, self.path("dst"))
        self.fails(1, [self.path("pipe")], "cp", "--device", "host", self.path("pipe"),
                   self.path("dst"))
        self.no_leftovers("pipe", "same", "src")

    def test_failure_leaves_the_destination(self):
        src, dst = self.raw("src", b"x" * 100000), self.raw("dst", b"precious")
        self.fails(1, ["nogpu"], "cp", "--device", "nogpu", src, dst)
        with open(dst, "rb") as f:
            self.assertEqual(f.read(), b"precious")
        self.no_leftovers("dst", "src")


if __name__ == "__main__":
    common.main()

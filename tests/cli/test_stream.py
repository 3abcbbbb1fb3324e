#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb stream on good input: verified batches, order, ranks, states, figures in JSON."""
import io
import os
import random
import stat
import struct
import tarfile
import zipfile

import common

KEYS = {"device", "samples_per_second", "bytes_per_second", "waiting_share", "bytes_by_path",
        "copies_per_batch", "verified", "steps", "samples", "seconds", "batch_bytes", "ring_bytes",
        "bytes_read", "bytes_moved", "enters", "preads", "segments", "bytes_cached", "threads",
        "queue"}
SMALL = ["--device", "host", "--seq-len", "64", "--batch-size", "8", "--json", "--verify"]


class Stream(common.CliTest):
    def ids(self, name):
        with open(self.path(name), encoding="ascii") as f:
            return [list(map(int, line.split())) for line in f]

    def check(self, got, steps, device="host"):
        self.assertLessEqual(KEYS, set(got))
        self.assertIs(got["verified"], True)
        self.assertEqual(got["steps"], steps)
        self.assertEqual(got["device"], device)
        self.assertGreaterEqual(got["waiting_share"], 0)
        self.assertLessEqual(got["waiting_share"], 1)

    def test_one_epoch(self):
        f = self.tokens("a.bin", 64 * 100 + 1)
        got = self.ok("stream", *SMALL, "--ids", self.path("ids"), f).json
        self.check(got, 12)
        self.assertEqual(got["samples"], 96)
        self.assertEqual(sum(got["bytes_by_path"].values()), 96 * 65 * 2)
        ids = sum(self.ids("ids"), [])
        self.assertEqual(len(set(ids)), 96)
        self.assertNotEqual(ids, sorted(ids))
        self.assertLess(max(ids), 100)

    def test_many_files(self):
        """More than the soft limit of descriptors, which is for programs that use select()."""
        files = [self.tokens(f"{k:02}", 64 * 8 + 1) for k in range(60)]
        done = common.run("-c", 'ulimit -Sn 48; exec "$@"', "sh", common.HEADRACE, "stream", *SMALL, *files,
                          program="/bin/sh")
        self.assertEqual(done.code, 0, str(done))
        self.check(done.json, 60)

    def test_selections_that_are_none(self):
        f = self.tokens("a.bin", 64 * 32 + 1)
        self.fails(1, [self.dir, "to its end"], "stream", *SMALL, "--select", self.dir, f)
        words = self.raw("words", b"1 2 three")
        self.fails(1, ["words", "number 2"], "stream", *SMALL, "--select", words, f)
        for wrong in ("1-2", "--3", "", "99999999999999999999", "1.5"):
            self.fails(2, ["--pad-value"], "stream", *SMALL, "--pad-value", wrong, f)

    def test_values_without_a_byte(self):
        """Also the first that is verified."""
        path = self.path("a.tar")
        with tarfile.open(path, "w") as tar:
            for k in range(8):
                for ext, size in (("txt", 0 if k < 4 else k), ("bin", 5)):
                    member = tarfile.TarInfo(f"{k}.{ext}")
                    member.size = size
                    tar.addfile(member, io.BytesIO(bytes(size)))
        for extra in ([], ["--ragged", "pad"]):
            got = self.ok("stream", "--device", "host", "--batch-size", "4", "--json", "--verify",
                          "--shuffle", "none", *extra, path).json
            self.check(got, 2)

    def test_fields_named_as_offsets(self):
        """Fields of a file that have the names which ragged ones' offsets would have."""
        with zipfile.ZipFile(self.path("a.npz"), "w") as z:
            for name in ("a", "a.offsets", "a.lengths"):
                head = "{'descr': '<i8', 'fortran_order': False, 'shape': (16, 2), }".ljust(117) + "\n"
                data = random.Random(name).randbytes(16 * 2 * 8)
                z.writestr(f"{name}.npy", b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.encode() + data)
        got = self.ok("stream", "--device", "host", "--batch-size", "4", "--json", "--verify",
                      self.path("a.npz")).json
        self.check(got, 4)

    def test_file_order(self):
        f = self.tokens("a.bin", 64 * 32 + 1)
        self.ok("stream", *SMALL, "--shuffle", "none", "--ids", self.path("ids"), f)
        self.assertEqual(sum(self.ids("ids"), []), list(range(32)))

    def test_types(self):
        for dtype, width in (("u16", 2), ("u32", 4)):
            f = self.tokens(dtype, 64 * 40 + 9, width)
            for out in ("i32", "i64", "same"):
                for threads in (0, 2):
                    got = self.ok("stream", *SMALL, "--dtype", dtype, "--out-dtype", out, "--threads",
                                  threads, f).json
                    self.check(got, 5)
                    self.assertEqual(got["threads"], threads)

    def test_odd_offsets_and_two_files(self):
        """A sequence length that is no multiple of anything puts windows at every offset."""
        a, b = self.tokens("a", 9000), self.tokens("b", 7001, seed=2)
        for extra in ([], ["--direct"], ["--buffered"], ["--path", "bounce"],
                      ["--path", "pagecache"], ["--path", "host",
                      "--out-dtype", "same"], ["--threads", "0"]):
            got = self.ok("stream", "--device", "host", "--seq-len", "37", "--batch-size", "5",
                          "--json", "--verify", *extra, a, b).json
            self.check(got, (8999 // 37 + 7000 // 37) // 5)

    def test_header_form(self):
        """The header form is known by its magic: 256 int32, the third is the count of tokens."""
        data = common.random.Random(3).randbytes(2 * 64 * 20 + 2)
        header = struct.pack("<256i", 20240520, 1, len(data) // 2, *[0] * 253)
        f = self.raw("h.bin", header + data)
        got = self.ok("stream", *SMALL, f).json
        self.check(got, 2)

    def test_ranks_share_the_order(self):
        f = self.tokens("a.bin", 64 * 64 + 1)
        seen = []
        for rank in (0, 1):
            self.ok("stream", *SMALL, "--dp-rank", rank, "--dp-world-size", 2, "--ids",
                    self.path(f"r{rank}"), f)
            seen.append(self.ids(f"r{rank}"))
        self.ok("stream", *SMALL, "--batch-size", 16, "--ids", self.path("one"), f)
        self.assertEqual([a + b for a, b in zip(*seen)], self.ids("one"))

    def test_state(self):
        """Two runs with a saved state between them see what one run sees, also over an epoch's end."""
        f = self.tokens("a.bin", 64 * 50 + 1)
        self.ok("stream", *SMALL, "--seed", 5, "--steps", 14, "--ids", self.path("all"), f)
        state = self.path("state")
        for n, name in ((4, "first"), (10, "second")):
            self.ok("stream", *SMALL, "--seed", 5, "--steps", n, "--state", state, "--ids",
                    self.path(name), f)
        self.assertEqual(self.ids("first") + self.ids("second"), self.ids("all"))
        self.assertEqual(stat.S_IMODE(os.stat(state).st_mode), 0o600)
        self.no_leftovers("a.bin", "all", "first", "second", "state")

    def test_state_of_another(self):
        f, state = self.tokens("a.bin", 64 * 50 + 1), self.path("state")
        self.ok("stream", *SMALL, "--steps", 2, "--state", state, f)
        self.fails(1, [state, "--seed"], "stream", *SMALL, "--seed", 9, "--state", state, f)
        self.raw("bad", b"x" * 40)
        self.fails(1, [self.path("bad"), "not a saved state"], "stream", *SMALL, "--state",
                   self.path("bad"), f)
        with open(state, "r+b") as s:
            s.seek(30)
            s.write(b"\xff\xff")
        self.fails(1, [state], "stream", *SMALL, "--state", state, f)

    def test_table_for_people(self):
        f = self.tokens("a.bin", 64 * 32 + 1)
        done = self.ok("stream", "--device", "host", "--seq-len", 64, "--batch-size", 4, "--verify",
                       "--step-us", 10, f)
        for word in ("device", "rate", "waiting", "path", "verified"):
            self.assertRegex(done.out, rf"(?m)^{word} ")
        self.assertNotIn("\033", done.out + done.err)

    def test_auto_says_what_it_took(self):
        f = self.tokens("a.bin", 64 * 32 + 1)
        done = self.ok("stream", "--seq-len", 64, "--batch-size", 4, "--json", f)
        self.assertIn(f"headrace: device {done.json['device']} (auto: ", done.err)
        self.assertTrue(done.json["device_reason"])
        self.assertIs(done.json["verified"], False)


if __name__ == "__main__":
    common.main()

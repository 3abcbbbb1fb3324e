#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace index: makes what is needed, once; checks it; says what is wrong; stops when interrupted."""
import io
import os
import signal
import subprocess
import tarfile
import time

import common


class Index(common.CliTest):
    def tar(self, name, samples, size=20):
        with tarfile.open(self.path(name), "w") as archive:
            for i in range(samples):
                for extension, data in (("cls", str(i % 10).encode()), ("jpg", os.urandom(size + i))):
                    member = tarfile.TarInfo(f"{i:06d}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        return self.path(name)

    def test_made_once(self):
        a, b = self.tar("a.tar", 10), self.tar("b.tar", 20)
        done = self.ok("index", a, b, "--json").json
        self.assertEqual(done["files_made"], 2)
        self.assertEqual(done["samples"], 30)
        self.assertEqual(done["bytes"], os.path.getsize(a) + os.path.getsize(b))
        self.assertFalse(done["interrupted"])
        self.no_leftovers("a.tar", "a.tar.hrindex", "b.tar", "b.tar.hrindex")
        self.assertEqual(self.ok("index", self.dir, "--json").json["files_made"], 0)
        self.assertEqual(self.ok("index", self.dir, "--json", "--force").json["files_made"], 2)
        done = self.ok("index", self.dir, "--check", "--json").json
        self.assertEqual((done["files_bad"], done["samples"], done["checked"]), (0, 30, True))
        self.tar("a.tar", 11)
        self.assertIn("made             1", self.ok("index", self.dir, "--threads", "3").out)
        self.assertIn("were good", self.ok("index", self.dir).out)

    def test_check(self):
        a = self.tar("a.tar", 10)
        self.fails_with_report(["1 side index is no good", "no such side index", "headrace index"],
                               "index", a, "--check")
        self.ok("index", a)
        self.assertIn("all are good", self.ok("index", a, "--check").out)
        with open(a + ".hrindex", "r+b") as f:
            f.seek(140)
            f.write(b"\xff")
        self.fails_with_report(["block 0 at byte 128", "checksum"], "index", a, "--check")
        self.tar("a.tar", 12)
        done = self.fails_with_report(["stale"], "index", a, "--check", "--json")
        self.assertEqual(done.json["files_bad"], 1)

    def fails_with_report(self, words, *args):
        done = common.run(*args)
        self.assertEqual(done.code, 1, str(done))
        for word in words:
            self.assertIn(word, done.err)
        return done

    def test_another_folder(self):
        a = self.tar("a.tar", 10)
        self.fails(1, ["nowhere/a.tar.hrindex", "name another folder"], "index", a, "--out",
                   self.path("nowhere"))
        os.mkdir(self.path("out"))
        self.ok("index", a, "--out", self.path("out"))
        self.assertEqual(os.listdir(self.path("out")), ["a.tar.hrindex"])
        self.no_leftovers("a.tar", "out")

    def test_refusals(self):
        self.fails(1, ["no.tar", "No such file"], "index", self.path("no.tar"))
        bad = self.raw("bad.tar", b"x" * 2000)
        self.fails(1, ["bad.tar: byte 0: no tar header", "copy it again"], "index", bad, "--format",
                   "tar")
        self.fails(1, ["format nothing", "known are"], "index", bad, "--format", "nothing")
        self.fails(2, ["exclude each other"], "index", bad, "--force", "--check")
        self.no_leftovers("bad.tar")

    def test_formats_without(self):
        tokens = self.tokens("t.bin", 1000)
        self.assertIn("none", self.ok("index", tokens, "--format", "tokens").out)
        self.no_leftovers("t.bin")

    def test_damage_is_told(self):
        a = self.tar("a.tar", 10, size=3000)
        os.truncate(a, 20000)
        done = self.ok("index", a)
        self.assertIn("samples are damaged; the first: byte", done.err)
        self.assertIn("cut short", done.err)

    def test_interrupt(self):
        """Many headers, so that it takes a while; nothing half made stays."""
        for i in range(4):
            with open(self.path(f"{i}.tar"), "wb") as f:
                member = tarfile.TarInfo("x")
                for k in range(40000):
                    member.name = f"{k}.txt"
                    f.write(member.tobuf(tarfile.USTAR_FORMAT))
        for delay in (0, 0.01, 0.05):
            with subprocess.Popen([common.HEADRACE, "index", self.dir, "--threads", "2", "--force"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
                time.sleep(delay)
                run.send_signal(signal.SIGINT)
                err = run.communicate(timeout=common.BOUND_SECONDS)[1]
                self.assertIn(run.returncode, (0, 130, -signal.SIGINT), err)
            self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".tmp")], [])
        self.ok("index", self.dir)
        self.ok("index", self.dir, "--check")


if __name__ == "__main__":
    common.main()

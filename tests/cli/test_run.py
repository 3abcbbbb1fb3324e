#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace run: the program gets our libcufile.so.0 by name, its own options, and its exit status."""
import os
import sys
import unittest

import common
from common import run

# A sanitizer must be the first library of a process, which a preloaded one is not.
PLAIN = not common.SANITIZED

PROGRAM = """
import ctypes, sys
cufile = ctypes.CDLL("libcufile.so.0")
version = ctypes.c_int()
assert cufile.cuFileGetVersion(ctypes.byref(version)) == 0
assert ctypes.CDLL(None).cuFileUseCount() == 0
print(version.value, *sys.argv[1:])
sys.exit(7)
"""


class Run(common.CliTest):
    def test_where_the_library_is(self):
        path = self.ok("run", "--json").json["library"]
        self.assertTrue(os.path.isfile(path), path)
        self.assertIn("libcufile.so", path)

    @unittest.skipUnless(PLAIN, "sanitized")
    def test_program_finds_it(self):
        done = run("run", sys.executable, "-c", PROGRAM, "--json", "--library")
        self.assertEqual((done.code, done.out), (7, "1180 --json --library\n"), done)
        done = run("run", "--", sys.executable, "-c", PROGRAM)
        self.assertEqual((done.code, done.out), (7, "1180\n"), done)

    @unittest.skipUnless(PLAIN, "sanitized")
    def test_what_was_preloaded_stays(self):
        env = {"LD_PRELOAD": os.environ["FLIP"]}
        done = run("run", "printenv", "LD_PRELOAD", env=env)
        first, second = done.out.strip().split(":")
        self.assertIn("libcufile", first)
        self.assertEqual(second, os.environ["FLIP"])

    def test_bad_usage(self):
        self.fails(2, ["needs a command"], "run")
        self.fails(2, ["needs a command"], "run", "--")
        self.fails(2, ["--libary", "did you mean --library"], "run", "--libary", "x", "true")

    def test_failures(self):
        self.fails(1, ["/none/here.so", "--library"], "run", "--library", "/none/here.so", "true")
        if PLAIN:
            self.fails(1, ["no-such-program", "cannot be run"], "run", "no-such-program")
        with open(self.path("c d.so"), "w", encoding="ascii"):
            pass
        self.fails(1, ["space"], "run", "--library", self.path("c d.so"), "true")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help texts, version, and exit code 2 with a hint for everything that is not understood."""
import os
import re

import common
from common import run

VERBS = ["stream", "index", "load", "cp", "bench", "explain", "run", "stat", "check"]


class Usage(common.CliTest):
    def test_help(self):
        done = self.ok("--help")
        for verb in VERBS:
            self.assertIn(f"\n  {verb} ", done.out)

    def test_help_of_each_verb(self):
        for verb in VERBS:
            done = self.ok(verb, "--help")
            self.assertTrue(done.out.startswith(f"usage: headrace {verb} "), done.out)
            device = () if verb in ("index", "run", "stat") else ("--device NAME",)
            for option in (*device, "--json", "--help"):
                self.assertIn(f"  {option} ", done.out)
            self.assertEqual(done.err, "")
            self.assertLessEqual(max(map(len, done.out.splitlines())), 100)

    def test_manual_pages_name_every_option(self):
        """The pages are written by hand where they explain, but they may not forget an option."""
        folder = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man")
        for verb in VERBS:
            with open(os.path.join(folder, f"headrace-{verb}.1"), encoding="ascii") as f:
                page = f.read().replace("\\-", "-")
            options = re.findall(r"(?m)^  (--[a-z0-9-]+)", self.ok(verb, "--help").out)
            self.assertGreater(len(options), 2)
            for option in set(options) - {"--help"}:
                self.assertRegex(page, rf"(?m)^\.B {option}( |$)", f"{verb}: {option}")

    def test_version(self):
        self.assertRegex(self.ok("--version").out, r"^headrace \d+\.\d+\.\d+\n$")

    def test_nothing(self):
        self.assertEqual(run().code, 2)

    def test_unknown_verb(self):
        self.fails(2, ["no verb 'sstream'", "did you mean 'stream'"], "sstream")
        done = self.fails(2, ["no verb 'xyzzy'"], "xyzzy")
        self.assertNotIn("did you mean", done.err)

    def test_unknown_option(self):
        self.fails(2, ["--batchsize", "did you mean --batch-size"], "stream", "--batchsize", "4", "x")
        self.fails(2, ["--wat is not an option"], "cp", "--wat=1", "a", "b")
        self.fails(2, ["-q is not an option"], "cp", "-q", "a", "b")
        done = self.fails(2, ["takes no value"], "cp", "--json=1", "a", "b")
        self.assertIn("Try 'headrace cp --help'", done.err)

    def test_values(self):
        for args in (["stream", "--batch-size", "0"], ["stream", "--seq-len", "4x"],
                     ["stream", "--seq-len", "-1"], ["stream", "--seq-len", "4K"],
                     ["stream", "--batch-size", "99999999999999999999"],
                     ["bench", "--bs", "1"], ["bench", "--bs", "4Q"], ["bench", "--seconds", "nan"],
                     ["bench", "--bs", "18446744073709551615T"]):
            self.fails(2, [args[1], args[2], "use a number from"], *args, "x")
        self.fails(2, ["--rw", "use one of read|write"], "bench", "--rw", "rea", "x")
        self.fails(2, ["--depth needs a value"], "bench", "x", "--depth")

    def test_operands(self):
        self.fails(2, ["needs DATA"], "stream")
        self.fails(2, ["needs SRC DST"], "cp", "a")
        self.fails(2, ["too many operands"], "explain", "a", "b")

    def test_contradictions(self):
        self.fails(2, ["exclude each other"], "stream", "--buffered", "--direct", "x")
        self.fails(2, ["--dp-rank must be below"], "stream", "--dp-rank", "2", "--dp-world-size", "2",
                   "x")
        self.fails(2, ["multiple of 4096"], "cp", "--chunk", "5000", "a", "b")


if __name__ == "__main__":
    common.main()

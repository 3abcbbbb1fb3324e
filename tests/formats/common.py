# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with other libraries share: finding the library, reading by Headrace, a folder."""
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import types
import unittest

DUMP = os.environ["DUMP"]
PEERS = os.environ["PEERS"]
HERE = os.path.dirname(os.path.abspath(__file__))
BOUND_SECONDS = 240
EXIT_SKIP = 77


def need(group):
    """Make the modules of @group (see peers.sh) importable, or end the program as skipped."""
    done = subprocess.run([os.path.join(HERE, "peers.sh"), group, sys.executable, PEERS],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == EXIT_SKIP:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(EXIT_SKIP)
    if done.returncode:
        raise RuntimeError(done.stderr)
    folder = done.stdout.strip()
    site.addsitedir(folder)
    # What the peer brought goes before what Debian has.
    sys.path.remove(folder)
    sys.path.insert(0, folder)


def hollow(*names):
    """Let modules inside of packages be imported without what the packages themselves import (clouds,
    training): "a.b" becomes a package that has its folder and nothing else. Outer ones first."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(base, *name.split(".")) for base in sys.path
                            if os.path.isdir(os.path.join(base, *name.split(".")))]
        if not package.__path__:
            print(f"skipped: there is no package {name}")
            sys.exit(EXIT_SKIP)
        sys.modules[name] = package


class Dump:
    """A dataset as Headrace reads it. fields: name to {kind, dtype, shape, bytes}; samples: a list of
    {field: bytes or number}, windows with "starts"."""

    def __init__(self, text):
        lines = text.splitlines()
        self.head = json.loads(lines[0])
        self.format = self.head["format"]
        self.count = self.head["samples"]
        self.fields = {field["name"]: field for field in self.head["fields"]}
        self.samples = [self._sample(json.loads(line)) for line in lines[1:]]

    def _sample(self, line):
        return {name: bytes.fromhex(value) if isinstance(value, str) else value
                for name, value in line.items() if name != "i"}


class FormatTest(unittest.TestCase):
    """A fresh folder for each test."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-formats-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def run_dump(self, *paths, **options):
        """@options: of the program dump, with _ for -; True for one without a value, a list for
        one that is repeated."""
        argv = [DUMP]
        for name, value in options.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                argv.append("--" + name.replace("_", "-"))
                if one is not True:
                    argv.append(str(one))
        return subprocess.run(argv + [str(p) for p in paths], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)

    def dump(self, *paths, **options):
        done = self.run_dump(*paths, **options)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        dump = Dump(done.stdout)
        if "head" not in options:
            self.assertEqual(len(dump.samples), dump.count)
        return dump

    def refused(self, words, *paths, **options):
        """Opening fails with a sentence that has @words."""
        done = self.run_dump(*paths, **options)
        self.assertEqual(done.returncode, 1, done.stdout[:500] + done.stderr[-2000:])
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr[-2000:])
        for word in words:
            self.assertIn(word.lower(), done.stderr.lower())
        return done.stderr


def main():
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(EXIT_SKIP if result.skipped and len(result.skipped) == result.testsRun else 0)

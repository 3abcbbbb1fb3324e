# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: running it with a bound, token files, checks of sentences."""
import array
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

HEADRACE = os.environ["HEADRACE"]
CONFINE = os.environ["CONFINE"]
SANITIZED = os.environ.get("SANITIZE", "none") != "none"
BOUND_SECONDS = 120
EXIT_SKIP = 77


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run(*args, confine=(), env=None, program=HEADRACE):
    """Run to the end or fail: nothing may hang."""
    argv = [program, *map(str, args)]
    if confine:
        argv = [CONFINE, *map(str, confine), *argv]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=BOUND_SECONDS, env={**os.environ, **(env or {})}, check=False)
    if confine and done.returncode == EXIT_SKIP:
        raise unittest.SkipTest(done.stderr.strip())
    return Result(done.returncode, done.stdout, done.stderr)


class CliTest(unittest.TestCase):
    """A fresh folder for each test, which must hold nothing unexpected at the end."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-cli-")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def tokens(self, name, count, width=2, seed=1):
        """A headerless token file with seeded contents."""
        data = random.Random(seed).randbytes(count * width)
        return self.raw(name, data)

    def raw(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def ok(self, *args, **kw):
        done = run(*args, **kw)
        self.assertEqual(done.code, 0, str(done))
        return done

    def fails(self, code, words, *args, **kw):
        """Exit @code, one sentence, which holds @words; nothing on stdout."""
        done = run(*args, **kw)
        self.assertEqual(done.code, code, str(done))
        lines = [l for l in done.err.splitlines()
                 if l.startswith("headrace: ") and " (auto: " not in l
                 and not l.startswith("headrace: warning: ")]
        self.assertEqual(len(lines), 1, str(done))
        for word in words:
            self.assertIn(word.lower(), lines[0].lower(), str(done))
        self.assertNotIn("AddressSanitizer", done.err)
        if code == 1:
            # cause and remedy are two things: the sentence has two parts
            self.assertRegex(lines[0], r"[;:,] ", str(done))
        return done

    def no_leftovers(self, *expected):
        self.assertEqual(sorted(os.listdir(self.dir)), sorted(expected))


def window(data, index, seq_len, width=2):
    """Sample @index of a headerless file with the default stride."""
    code = {2: "H", 4: "I"}[width]
    at = index * seq_len * width
    return array.array(code, data[at:at + (seq_len + 1) * width])


def main():
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(EXIT_SKIP if result.skipped and len(result.skipped) == result.testsRun else 0)

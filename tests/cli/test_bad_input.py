#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input and hostile surroundings: one sentence with name and cause, the right exit code, no hang,
nothing left behind; and where work is still possible (no io_uring, little memlock), it is done."""
import errno
import os
import signal
import subprocess
import threading
import time

import common

SMALL = ["--device", "host", "--seq-len", "64", "--batch-size", "8"]
NOBODY = 65534


class BadFiles(common.CliTest):
    def stream(self, words, *args, **kw):
        return self.fails(1, words, "stream", *SMALL, *args, **kw)

    def test_missing(self):
        f = self.path("nothing.bin")
        self.stream([f, "no such file"], f)
        self.fails(1, [f, "no such file"], "explain", "--device", "host", f)

    def test_empty(self):
        f = self.raw("empty.bin", b"")
        self.stream([f, "empty"], f)

    def test_unreadable(self):
        f = self.tokens("secret.bin", 64 * 20)
        os.chmod(f, 0)
        confine = ["--uid", NOBODY] if os.geteuid() == 0 else []
        if confine and not os.access(common.HEADRACE, os.X_OK):
            self.skipTest("another user cannot run the command here")
        self.stream([f, "permission denied"], f, confine=confine)

    def test_odd_bytes(self):
        f = self.raw("odd.bin", b"x" * (64 * 2 * 20 + 1))
        self.stream([f], f)

    def test_directory_and_pipe(self):
        os.mkfifo(self.path("pipe"))
        for f in (self.dir, self.path("pipe"), "/dev/null"):
            self.stream([f], f)
            self.fails(1, [f], "bench", "--device", "host", f)
            self.fails(1, [f], "explain", "--device", "host", f)

    def test_sequence_longer_than_the_file(self):
        f = self.tokens("short.bin", 60)
        self.stream([f], f)

    def test_batch_larger_than_the_data(self):
        f = self.tokens("few.bin", 64 * 4 + 1)
        self.stream(["sample"], f)

    def test_dtype_that_does_not_fit(self):
        header = [20240520, 1, 64 * 20] + [0] * 253
        f = self.raw("h.bin", b"".join(v.to_bytes(4, "little") for v in header) + bytes(64 * 20 * 2))
        self.stream([f, "u32"], "--dtype", "u32", f)
        g = self.raw("g.bin", bytes(64 * 20 * 4 + 2))
        self.stream([g], "--dtype", "u32", g)

    def test_no_such_device(self):
        f = self.tokens("a.bin", 64 * 20)
        for name in ("cuda:99", "cuda:x", "gpu", ""):
            self.fails(1, [], "stream", "--device", name, f)

    def test_one_bad_file_among_good_ones(self):
        good, bad = self.tokens("good.bin", 64 * 20), self.raw("bad.bin", b"")
        self.stream([bad, "empty"], good, bad)

    def test_shrinking_file(self):
        """The file loses its second half while it streams."""
        f = self.tokens("a.bin", 1 << 20)
        child = subprocess.Popen([common.HEADRACE, "stream", "--device", "host", "--seq-len", "64",
                                  "--batch-size", "8", "--steps", "1000000", "--step-us", "1000",
                                  "--ids", self.path("ids"), f], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        wait_for(lambda: os.path.exists(self.path("ids")))
        os.truncate(f, 1 << 16)
        _, err = child.communicate(timeout=common.BOUND_SECONDS)
        self.assertEqual(child.returncode, 1, err)
        self.assertIn(f, err)


class Surroundings(common.CliTest):
    def setUp(self):
        super().setUp()
        self.file = self.tokens("a.bin", 64 * 50 + 1)

    def stream(self, *extra, **kw):
        return self.ok("stream", *SMALL, "--json", "--verify", *extra, self.file, **kw).json

    def test_no_io_uring(self):
        for code in (errno.EPERM, errno.ENOSYS):
            got = self.stream(confine=["--deny-uring", code])
            self.assertIs(got["verified"], True)
            self.assertIn(got["queue"]["name"], ("threads", "sync"))
            self.assertTrue(got["queue"]["reason"])
            self.assertEqual(got["enters"], 0)
            got = self.stream("--path", "bounce", confine=["--deny-uring", code])
            self.assertGreater(got["preads"], 0)
            done = self.ok("cp", "--device", "host", "--verify", "--json", self.file,
                           self.path("copy"), confine=["--deny-uring", code])
            self.assertIs(done.json["verified"], True)
            self.ok("bench", "--device", "host", "--verify", "--requests", 100, "--bs", 512,
                    self.file,
                    confine=["--deny-uring", code])

    def test_no_io_uring_by_environment(self):
        got = self.stream(env={"HEADRACE_NO_URING": "1"})
        self.assertIs(got["verified"], True)
        self.assertIn("HEADRACE_NO_URING", got["queue"]["reason"])

    def test_little_locked_memory(self):
        got = self.stream(confine=["--memlock", 65536])
        self.assertIs(got["verified"], True)
        self.assertNotEqual(got["queue"]["name"], "io_uring fixed")
        self.assertTrue(got["queue"]["reason"])

    def test_no_memory(self):
        if common.SANITIZED:
            self.skipTest("sanitizers need address space")
        big = self.path("big.bin")
        with open(big, "wb") as f:
            f.truncate(2 << 30)
        self.fails(1, ["memory"], "stream", "--device", "host", "--format", "tokens", "--seq-len", 65535, "--batch-size",
                   4096, "--threads", 1, big, confine=["--as", 1 << 30])

    def test_environment_that_is_not_understood(self):
        done = self.ok("check", env={"HEADRACE_PATH": "sideways"})
        self.assertIn("HEADRACE_PATH=sideways is ignored", done.err)

    def test_stdout_that_is_full(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([common.HEADRACE, "stream", *SMALL, "--json", self.file],
                                  stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                  timeout=common.BOUND_SECONDS)
        self.assertEqual(done.returncode, 1)
        self.assertIn("stdout", done.stderr)


def wait_for(condition):
    """Until something is seen, with a bound and no guess of how long it takes."""
    end = time.monotonic() + common.BOUND_SECONDS / 2
    tick = threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come")
        tick.wait(0.005)


class Interrupt(common.CliTest):
    def start(self, *args):
        return subprocess.Popen([common.HEADRACE, *map(str, args)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def interrupt(self, child, number=signal.SIGINT):
        child.send_signal(number)
        out, err = child.communicate(timeout=common.BOUND_SECONDS)
        self.assertEqual(child.returncode, 130, err)
        return out, err

    def test_stream(self):
        f, state = self.tokens("a.bin", 64 * 500 + 1), self.path("state")
        for threads, number in ((0, signal.SIGINT), (2, signal.SIGTERM)):
            ids = self.path(f"ids{threads}")
            child = self.start("stream", *SMALL, "--steps", 10 ** 9, "--step-us", 2000, "--threads",
                               threads, "--state", state, "--json", "--ids", ids, f)
            # The first lines show that batches flow: then it is the middle of the work.
            wait_for(lambda: os.path.exists(ids) and os.path.getsize(ids) > 0)
            out, _ = self.interrupt(child, number)
            got = common.json.loads(out)
            self.assertGreater(got["steps"], 0)
            self.assertIs(got["interrupted"], True)
            self.assertEqual(os.path.getsize(state), 96)
        self.no_leftovers("a.bin", "ids0", "ids2", "state")

    def test_bench(self):
        f = self.tokens("a.bin", 1 << 20)
        child = self.start("bench", "--device", "host", "--seconds", 600, "--json", f)
        wait_for(lambda: caught(child.pid, signal.SIGINT))
        out, _ = self.interrupt(child)
        self.assertIs(common.json.loads(out)["interrupted"], True)

    def test_cp(self):
        """Sparse and large, so that it is in the middle when the temporary file is seen."""
        src, dst = self.path("src"), self.raw("dst", b"precious")
        with open(src, "wb") as f:
            f.truncate(2 << 30)
        child = self.start("cp", "--device", "host", src, dst)
        wait_for(lambda: child.poll() is not None or len(os.listdir(self.dir)) > 2)
        out, err = self.interrupt(child)
        self.assertIn("left as it was", err)
        self.assertIn("copied", out)
        with open(dst, "rb") as f:
            self.assertEqual(f.read(), b"precious")
        self.no_leftovers("dst", "src")


def caught(pid, number):
    """Has the process installed its handler?"""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            mask = next(int(l.split()[1], 16) for l in f if l.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(mask >> (number - 1) & 1)


if __name__ == "__main__":
    common.main()

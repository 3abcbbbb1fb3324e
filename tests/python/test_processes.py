#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What only whole processes show: four that load one cold file read it from the drive once; a load in a
memory cgroup that has no room for the page cache too; an interpreter that ends with reads, saves and
batches under way; threads and descriptors that are all gone again."""
import gc
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import headrace

MIB = 1 << 20
LOAD = """
import sys, headrace, hashlib
sys.stdin.read(1)  # all at once
ck = headrace.Checkpoint(sys.argv[1])
into = bytearray(ck["w"].nbytes)
ck.load_into({"w": into})
print(hashlib.sha256(into).hexdigest(), end=" ")
print(next(int(line.split()[1]) for line in open("/proc/self/io") if line.startswith("read_bytes")))
"""


class Processes(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def model(self, size):
        path = os.path.join(self.dir, "m.safetensors")
        data = random.Random(1).randbytes(MIB) * (size // MIB)
        head = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + data)
            f.flush()
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def start(self, code, *arguments, **more):
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, code=0):
        out, err = process.communicate("x", timeout=300)
        self.assertEqual((process.returncode, err), (code, ""), out)
        return out

    def test_four_at_once(self):
        size = 96 * MIB
        path = self.model(size)
        # What one reads alone tells whether the kernel counts here at all.
        alone = int(self.finish(self.start(LOAD, path)).split()[1])
        if alone < size // 2:
            self.skipTest(f"the file system counts {alone} bytes for a file of {size}")
        path = self.model(size)
        four = [self.start(LOAD, path) for _ in range(4)]
        for process in four:
            process.stdin.write("x")
            process.stdin.flush()
        said = [self.finish(process).split() for process in four]
        self.assertEqual(len({digest for digest, _ in said}), 1)
        total = sum(int(n) for _, n in said)
        print(f"\nfour processes on one cold file of {size} bytes read {total} from the drive "
              f"({total / size:.3f} of it); one alone {alone}")
        self.assertLessEqual(total, 1.1 * size)
        # and the next start finds it in the page cache
        self.assertLess(int(self.finish(self.start(LOAD, path)).split()[1]), size // 100)

    def cgroup(self, limit):
        """A memory cgroup of this limit: how to enter it; skips where none can be made."""
        for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            folder = os.path.join(root, f"headrace-test-{os.getpid()}")
            try:
                os.mkdir(folder)
            except OSError:
                continue
            self.addCleanup(os.rmdir, folder)
            try:
                with open(os.path.join(folder, file), "w", encoding="ascii") as f:
                    f.write(str(limit))
                return os.path.join(folder, "cgroup.procs")
            except OSError:
                continue
        return self.skipTest("no memory cgroup can be made here")

    def test_memory_pressure(self):
        size = 128 * MIB
        path = self.model(size)
        procs = self.cgroup(size + 72 * MIB)  # tensor and interpreter, but not the file as well
        enter = f"open({procs!r}, 'w').write('0')\n"
        first = self.finish(self.start(enter + LOAD, path)).split()[0]
        again = self.finish(self.start(enter + LOAD, path)).split()[0]
        self.assertEqual(first, again)
        self.assertEqual(first, self.finish(self.start(LOAD, path)).split()[0])

    def test_exit_under_way(self):
        path = self.model(32 * MIB)
        tokens = os.path.join(self.dir, "tokens")
        with open(tokens, "wb") as f:
            f.write(random.Random(2).randbytes(MIB))
        out = os.path.join(self.dir, "out")
        for code in (
                # reads on other threads, of which one is not waited for
                "import threading, headrace\n"
                "ck = headrace.Checkpoint(PATH)\n"
                "def load():\n"
                "    while True:\n        headrace.Checkpoint(PATH).load_into({'w': bytearray(ck['w'].nbytes)})\n"
                "for _ in range(2): threading.Thread(target=load, daemon=True).start()\n"
                "ck.load_into({'w': bytearray(ck['w'].nbytes)})\n",
                # a save that nobody waits for: the file is there all the same
                "import headrace\n"
                "headrace.save_async({'a': ('U8', (8 << 20,), bytearray(8 << 20))}, OUT)\n",
                # batches that are being read
                "import headrace\n"
                "loaders = [headrace.Loader(headrace.TokenDataset(TOKENS, 'u16', 64), 64, threads=2, slots=4)\n"
                "           for _ in range(3)]\n"
                "held = [loader.next() for loader in loaders]\n",
                # an exception in the middle of everything
                "import headrace, sys\n"
                "f, b = headrace.open(PATH), bytearray(1 << 20)\n"
                "f.read_into(b)\n"
                "loader = headrace.Loader(headrace.TokenDataset(TOKENS, 'u16', 64), 64)\n"
                "sys.exit(0)\n"):
            names = f"PATH, TOKENS, OUT = {path!r}, {tokens!r}, {out!r}\n"
            self.finish(self.start(names + code))
        self.assertEqual(headrace.Checkpoint(out)["a"].nbytes, 8 * MIB)
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".tmp")], [])

    def test_nothing_stays(self):
        """Threads, descriptors and memory after many of everything, in this process."""
        path, out = self.model(MIB), os.path.join(self.dir, "out")
        tokens = os.path.join(self.dir, "tokens")
        with open(tokens, "wb") as f:
            f.write(random.Random(2).randbytes(MIB))

        def everything():
            loader = headrace.Loader(headrace.TokenDataset(tokens, "u16", 64), 16, threads=2)
            loader.next()
            headrace.save_async({"a": ("U8", (3,), b"abc")}, out).result()
            headrace.Checkpoint(path).load_into({"w": bytearray(MIB)})
            thread = threading.Thread(target=lambda: headrace.open(path).read_into(bytearray(100)))
            thread.start()
            thread.join()

        def count():
            gc.collect()
            with open("/proc/self/status", encoding="ascii") as f:
                status = dict(line.split(":", 1) for line in f)
            return len(os.listdir("/proc/self/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])

        for _ in range(5):
            everything()
        before = count()
        for _ in range(40):
            everything()
        for _ in range(200):  # threads that end say so a little later
            after = count()
            if after[:2] <= before[:2]:
                break
        self.assertLessEqual(after[0], before[0])
        self.assertLessEqual(after[1], before[1])
        self.assertLess(after[2] - before[2], 16 * 1024)  # KiB


if __name__ == "__main__":
    unittest.main()

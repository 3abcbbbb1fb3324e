#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package without a framework: files and checkpoints into bytes, arrays and memory by DLPack;
errors, pickles, fork, threads, and what must not leak. NumPy is used where it is there."""
import array
import ctypes
import fcntl
import gc
import json
import os
import pickle
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest

import headrace
from headrace import _arguments

try:
    import numpy
except ImportError:
    numpy = None


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def raw(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path


class Devices(Case):
    def test_names(self):
        """As frameworks call them: strings, numbers, and objects that have one of those."""
        jax_cpu = types.SimpleNamespace(platform="cpu", id=3)
        jax_gpu, cupy = types.SimpleNamespace(platform="gpu", id=2), types.SimpleNamespace(id=1)
        for name in ("host", "cpu", "cpu:0", jax_cpu):
            self.assertEqual(_arguments.device(name), "host")
            self.assertEqual(headrace.device_info(name), headrace.device_info("host"))
        jax_far = types.SimpleNamespace(platform="gpu", id=11, local_hardware_id=3)
        for name, number in ((0, 0), (7, 7), (jax_gpu, 2), (jax_far, 3), (cupy, 1), ("cuda", 0), ("cuda:5", 5)):
            self.assertEqual(_arguments.device(name), f"cuda:{number}")
        for name in ("gpu", "", "cpu:1", None, True, 1.5):
            with self.assertRaisesRegex(headrace.Error, 'no such name; use "host" or "cuda:N"'):
                headrace.device_info(name)
        with headrace.open(self.raw("f", b"x")) as f:
            self.assertEqual(f.explain("cpu"), f.explain("host"))
        self.assertEqual(headrace.check("cpu"), headrace.check("host"))


class Files(Case):
    def test_read(self):
        data = random.Random(1).randbytes(3_000_001)
        with headrace.open(self.raw("f", data)) as f:
            self.assertEqual(f.size, len(data))
            for at, n in ((0, 10), (1, 4097), (2_999_999, 2), (0, len(data))):
                into = bytearray(n)
                self.assertEqual(f.read_into(into, at), n)
                self.assertEqual(into, data[at:at + n])
            into = bytearray(b"x" * 10)
            self.assertEqual(f.read_into(into, len(data) - 3), 3)
            self.assertEqual(into[:3], data[-3:])
            self.assertEqual(f.read_into(bytearray(0)), 0)
            into = array.array("H", [0] * 8)
            self.assertEqual(f.read_into(into, 3), 16)
            self.assertEqual(into.tobytes(), data[3:19])
            into = ctypes.create_string_buffer(16)
            f.read_into(into)
            self.assertEqual(into.raw, data[:16])
        self.assertTrue(f.closed)
        with self.assertRaisesRegex(ValueError, "closed"):
            f.read_into(into)

    def test_write(self):
        path = os.path.join(self.dir, "out")
        with headrace.open(path, "w") as f:
            self.assertEqual(f.write_from(b"hello world", 5), 11)
            self.assertEqual(f.write_from(memoryview(b"abc")), 3)
            f.sync()
        with open(path, "rb") as f:
            self.assertEqual(f.read(), b"abc\0\0hello world")
        with self.assertRaises(headrace.Error) as caught:
            headrace.open(path, "x")
        self.assertEqual(caught.exception.code_name, "EEXIST")

    @unittest.skipUnless(numpy, "no NumPy")
    def test_numpy(self):
        data = random.Random(2).randbytes(8000)
        into = numpy.zeros((10, 100), dtype=numpy.float64)
        with headrace.open(self.raw("f", data)) as f:
            self.assertEqual(f.read_into(into), 8000)
            self.assertEqual(into.tobytes(), data)
            with self.assertRaises((BufferError, ValueError)):
                f.read_into(into[:, ::2])
            into.flags.writeable = False
            with self.assertRaises((BufferError, ValueError)):
                f.read_into(into)

    @unittest.skipUnless(numpy, "no NumPy")
    def test_dlpack(self):
        class Only:
            """An array that has DLPack and nothing else."""

            def __init__(self, held):
                self._held = held

            def __dlpack__(self, stream=None):
                return self._held.__dlpack__()

        data = random.Random(3).randbytes(800)
        into = numpy.zeros(100)
        with headrace.open(self.raw("f", data)) as f:
            before = sys.getrefcount(into)
            for _ in range(100):
                self.assertEqual(f.read_into(Only(into)), 800)
            self.assertEqual(into.tobytes(), data)
            self.assertEqual(sys.getrefcount(into), before)
            with self.assertRaises(BufferError):
                f.read_into(Only(numpy.zeros((10, 10))[:, ::2]))
            with self.assertRaisesRegex(TypeError, "no DLPack"):
                f.read_into(3)

    def test_errors(self):
        with self.assertRaises(FileNotFoundError) as caught:
            headrace.open(os.path.join(self.dir, "none"))
        self.assertIsInstance(caught.exception, headrace.Error)
        self.assertIn("no such file", str(caught.exception))
        self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))), str(caught.exception))
        with self.assertRaises(headrace.Error) as caught:
            headrace.open(self.dir)
        self.assertEqual(caught.exception.code_name, "HR_E_NOT_A_FILE")
        with headrace.open(self.raw("f", b"abc")) as f, self.assertRaises(headrace.Error) as caught:
            f.write_from(b"x")
        self.assertEqual(caught.exception.filename, f.path)
        with self.assertRaises(BufferError):
            headrace.open(self.raw("f", b"abc")).read_into(b"read-only")
        with self.assertRaises(headrace.Error):
            headrace.device_info("cuda:99")
        self.assertEqual(headrace.device_info()["name"], "host")

    def test_pickle_and_explain(self):
        f = headrace.open(self.raw("f", b"abc"), "r+")
        g = pickle.loads(pickle.dumps(f))
        into = bytearray(3)
        g.read_into(into)
        self.assertEqual(into, b"abc")
        self.assertIn("refused", g.explain())
        self.assertIn(g.explain()["path"], ("host", "bounce"))

    def test_check(self):
        items = headrace.check("host", [self.dir])
        self.assertGreater(len(items), 5)
        self.assertLessEqual({item.state for item in items}, {"ok", "limited", "no"})
        self.assertLessEqual({item.group for item in items}, {"kernel", "gpu", "file system", "storage",
                                                         "limits", "libraries"})
        self.assertIn("io_uring", [item.name for item in items if item.group == "kernel"])
        self.assertTrue(all(item.cause for item in items))
        self.assertGreater(len(headrace.check(paths=self.dir)), 5)
        with self.assertRaises(TypeError):
            headrace.check(paths=3)

    def test_fork(self):
        f = headrace.open(self.raw("f", b"abcdef"))
        into = bytearray(6)
        f.read_into(into)
        pid = os.fork()
        if not pid:
            mine = bytearray(6)
            try:
                os._exit(0 if f.read_into(mine) == 6 and mine == b"abcdef" else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(f.read_into(into), 6)

    def child(self, work):
        """What work() returned in a child of fork(), as its exit status."""
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            try:
                os._exit(work())
            finally:
                os._exit(100)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_fork_while_a_device_opens(self):
        """Another thread has the lock of all devices at that moment."""
        f = headrace.open(self.raw("f", b"abcdef"))

        def work():
            into = bytearray(6)
            return 0 if f.read_into(into) == 6 and into == b"abcdef" else 1

        with headrace._engines._devices_lock:
            self.assertEqual(self.child(work), 0)

    def test_fork_while_saving(self):
        """Nobody saves in the child, so nobody there waits for it; what was over is."""
        begun, may_end = threading.Event(), threading.Event()
        run = headrace.checkpoint._run

        def late(*args):
            begun.set()
            may_end.wait()
            return run(*args)

        def work():
            try:
                future.result()
            except RuntimeError as error:
                return 0 if "fork" in str(error) else 2
            return 1

        path = os.path.join(self.dir, "m.safetensors")
        headrace.checkpoint._run = late
        self.addCleanup(setattr, headrace.checkpoint, "_run", run)
        future = headrace.checkpoint.save_async({"x": ("U8", (3,), bytearray(b"abc"))}, path)
        begun.wait()
        self.assertEqual(self.child(work), 0)
        may_end.set()
        self.assertIsNone(future.result())
        for thread in threading.enumerate():
            if thread.name == "headrace save":
                thread.join()
        self.assertEqual(self.child(work), 1)

    def test_threads_and_leaks(self):
        data = random.Random(4).randbytes(100_000)
        f = headrace.open(self.raw("f", data))
        wrong = []

        def work(seed):
            rnd = random.Random(seed)
            for _ in range(200):
                at, n = rnd.randrange(len(data)), rnd.randrange(1, 5000)
                into = bytearray(n)
                got = f.read_into(into, at)
                if into[:got] != data[at:at + n] or got != len(data[at:at + n]):
                    wrong.append((at, n))

        work(0)
        gc.collect()
        before, running = descriptors(), threading.active_count()
        for _ in range(3):
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        gc.collect()
        self.assertEqual(wrong, [])
        self.assertLessEqual(descriptors(), before)
        self.assertEqual(threading.active_count(), running)

    def test_clean_exit(self):
        path = self.raw("f", b"abc" * 1000)
        code = f"import headrace; f = headrace.open({path!r}); f.read_into(bytearray(9)); keep = [f]"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Checkpoints(Case):
    def model(self):
        self.data = random.Random(5).randbytes(6 * 4 + 200)
        head = (b'{"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
                b'"b":{"dtype":"U8","shape":[200],"data_offsets":[24,224]}}')
        return self.raw("m.safetensors", struct.pack("<Q", len(head)) + head + self.data)

    def test_names(self):
        ck = headrace.Checkpoint(self.model())
        self.assertEqual(ck.keys(), ["w", "b"])
        self.assertEqual(ck["w"], ("w", "F32", (2, 3), 24, ck["w"].path))
        self.assertEqual(ck.metadata, {"k": "v"})
        self.assertTrue("b" in ck and "x" not in ck and len(ck) == 2)
        self.assertEqual(pickle.loads(pickle.dumps(ck)).keys(), ["w", "b"])
        with self.assertRaisesRegex(KeyError, "no tensor 'x'"):
            ck["x"]

    def test_load_into(self):
        ck = headrace.Checkpoint(self.model())
        w, b, part = bytearray(24), bytearray(200), bytearray(8)
        self.assertEqual(ck.load_into({"w": w, "b": b}), 224)
        self.assertEqual(w + b, self.data)
        self.assertEqual(ck.load_into({"w": (part, 1, 1, 1)}), 8)
        self.assertEqual(part, self.data[4:8] + self.data[16:20])
        with self.assertRaisesRegex(ValueError, "has 200 bytes, 24 are needed"):
            ck.load_into({"w": b})
        self.assertEqual(ck.load_into({}), 0)

    def test_malformed(self):
        with self.assertRaises(headrace.Error) as caught:
            headrace.Checkpoint(self.raw("m", struct.pack("<Q", 3) + b"{} x"))
        self.assertEqual(caught.exception.code_name, "HR_E_BAD_FORMAT")
        self.assertIn("follow", str(caught.exception))
        headrace.Checkpoint(self.raw("m", struct.pack("<Q", 2) + b"{}x"), lenient=True)

    def test_save(self):
        path = os.path.join(self.dir, "out")
        headrace.save({"b": ("U8", (3,), b"abc"), "a": ("F32", (2, 0), b""), "s": ("F64", (), bytes(8))},
                      path, {"k": "v"})
        ck = headrace.Checkpoint(path)
        self.assertEqual(ck.keys(), ["s", "a", "b"])
        into = bytearray(3)
        ck.load_into({"b": into})
        self.assertEqual(into, b"abc")
        self.assertEqual(os.listdir(self.dir), ["out"])
        for wrong in ({"b": ("U8", (4,), b"abc")}, {"b": ("U9", (3,), b"abc")}):
            with self.assertRaises((headrace.Error, ValueError)):
                headrace.save(wrong, path)
        self.assertEqual(headrace.Checkpoint(path).keys(), ["s", "a", "b"])

    def rows(self, seed, n=7):
        rng = random.Random(seed)
        return {f"t.{i}": ("U8", (1000 + i,), rng.randbytes(1000 + i)) for i in range(n)}

    def read_all(self, folder):
        ck = headrace.Checkpoint(folder)
        into = {name: bytearray(ck[name].nbytes) for name in ck}
        ck.load_into(into)
        return {name: bytes(data) for name, data in into.items()}

    def test_shards(self):
        folder = os.path.join(self.dir, "new", "folder")
        for seed, limit, shards in ((1, 3100, 3), (2, 3100, 3), (3, 1, 7), (4, 1 << 40, 1)):
            rows = self.rows(seed)
            index = headrace.save_sharded(rows, folder, {"k": "v"}, max_shard_bytes=limit)
            self.assertEqual(index, os.path.join(folder, "model.safetensors.index.json"))
            self.assertEqual(self.read_all(folder), {n: row[2] for n, row in rows.items()})
            self.assertEqual(headrace.Checkpoint(index).metadata, {"k": "v"})
            files = os.listdir(folder)
            self.assertEqual(len(files), shards + 1, files)  # nothing of the save before
            with open(index, encoding="ascii") as f:
                told = json.load(f)
            self.assertEqual(told["metadata"]["total_size"], sum(len(row[2]) for row in rows.values()))
            self.assertEqual(set(told["weight_map"].values()) | {os.path.basename(index)}, set(files))
        # files of others stay, whatever they are called
        with open(os.path.join(folder, "model-00001-of-00002.safetensors"), "wb") as f:
            f.write(b"mine")
        before = set(os.listdir(folder))
        with self.assertRaises((headrace.Error, ValueError)):
            headrace.save_sharded({**self.rows(5), "bad": ("U9", (1,), b"x")}, folder, max_shard_bytes=3000)
        self.assertEqual(set(os.listdir(folder)), before)
        headrace.save_sharded(self.rows(6, 2), folder, max_shard_bytes=1000)
        with open(os.path.join(folder, "model-00001-of-00002.safetensors"), "rb") as f:
            self.assertEqual(f.read(), b"mine")
        self.assertEqual(self.read_all(folder), {n: row[2] for n, row in self.rows(6, 2).items()})
        for wrong in ({"max_shard_bytes": 0}, {"name": "a/b"}, {"name": ""}):
            with self.assertRaises(ValueError):
                headrace.save_sharded(self.rows(1), folder, **wrong)

    def test_shards_killed(self):
        """Killed at every step of a save that takes the place of another: the old one whole, or the new
        one; the next save leaves nothing behind."""
        folder, old, new = os.path.join(self.dir, "m"), self.rows(1), self.rows(2)
        data = [{n: row[2] for n, row in rows.items()} for rows in (old, new)]
        seen, ended = set(), False
        for step in range(1, 100):
            headrace.save_sharded(old, folder, max_shard_bytes=3100)
            pid = os.fork()
            if not pid:
                left = [step]

                def watch(function):
                    def watched(*args, **more):
                        left[0] -= 1
                        if not left[0]:
                            os.kill(os.getpid(), signal.SIGKILL)
                        return function(*args, **more)
                    return watched

                for module, name in ((os, "open"), (os, "ftruncate"), (os, "pwrite"), (os, "fsync"),
                                     (os, "replace"), (os, "unlink"), (headrace._core, "save_open"),
                                     (headrace._core, "save_run")):
                    setattr(module, name, watch(getattr(module, name)))
                headrace.save_sharded(new, folder, max_shard_bytes=3100)
                os._exit(0)
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            now = self.read_all(folder)
            self.assertIn(now, data, f"step {step}")
            seen.add(data.index(now))
            headrace.save_sharded(old, folder, max_shard_bytes=3100)
            self.assertEqual(len(os.listdir(folder)), 4, (step, os.listdir(folder)))
            if ended:
                break
        self.assertTrue(ended and step > 15, step)
        self.assertEqual(seen, {0, 1})

    def test_shards_twice(self):
        folder = os.path.join(self.dir, "m")
        headrace.save_sharded(self.rows(1), folder)
        with open(os.path.join(folder, "model.safetensors.index.json.tmp"), "w", encoding="ascii") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            with self.assertRaisesRegex(OSError, "another save"):
                headrace.save_sharded(self.rows(2), folder)
        self.assertEqual(self.read_all(folder), {n: row[2] for n, row in self.rows(1).items()})

    def test_changed(self):
        path = self.model()
        ck = headrace.Checkpoint(path)
        os.truncate(path, 200)
        for _ in range(3):
            with self.assertRaises(headrace.Error) as caught:
                ck.load_into({"b": bytearray(200)})
            self.assertEqual(caught.exception.code_name, "HR_E_FILE_CHANGED")
            self.assertEqual(caught.exception.filename, path)

    def test_flat(self):
        ck = headrace.Checkpoint(self.model())
        b = bytearray(200)
        ck.load_into({"b": b})
        before = descriptors()
        for _ in range(2000):
            ck.load_into({"b": b})
        self.assertEqual(descriptors(), before)


if __name__ == "__main__":
    unittest.main()

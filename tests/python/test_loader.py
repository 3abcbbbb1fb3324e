#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches in Python: every row against the token file, order, epochs, resume, out=, who owns a slot and
for how long, and that nothing grows. NumPy looks inside; PyTorch where it is installed."""
import copy
import gc
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

try:
    import numpy
except ImportError:
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

import headrace

T, B, N = 16, 4, 50  # tokens of a sample, batch, samples


class Loading(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.tokens = numpy.frombuffer(random.Random(1).randbytes(2 * (N * T + 1)), dtype=numpy.uint16)
        self.path = os.path.join(self.dir, "tokens")
        self.tokens.tofile(self.path)
        self.data = headrace.TokenDataset(self.path, "u16", T)

    def loader(self, **options):
        return headrace.Loader(self.data, B, **{"seed": 3, **options})

    def check(self, batch):
        x, y = numpy.from_dlpack(batch["input_ids"]), numpy.from_dlpack(batch["labels"])
        self.assertEqual((x.shape, x.dtype), ((B, T), numpy.int64))
        for row, index in enumerate(batch.ids):
            window = self.tokens[index * T:index * T + T + 1].astype(numpy.int64)
            self.assertTrue((x[row] == window[:-1]).all() and (y[row] == window[1:]).all())

    def test_epochs(self):
        loader = self.loader()
        self.assertEqual((len(self.data), len(loader)), (N, N // B))
        orders = []
        for epoch in range(3):
            ids = []
            for step, batch in enumerate(loader):
                self.check(batch)
                self.assertEqual((batch.epoch, batch.step, batch.valid), (epoch, step, B))
                ids += batch.ids
            self.assertEqual(len(set(ids)), N // B * B)
            orders.append(ids)
        self.assertNotEqual(orders[0], orders[1])
        again = [i for batch in self.loader() for i in batch.ids]
        self.assertEqual(again, orders[0])
        plain = [i for batch in self.loader(shuffle=False) for i in batch.ids]
        self.assertEqual(plain, list(range(N // B * B)))
        self.assertEqual(sum(1 for _ in self.loader(last="pad")), -(-N // B))

    def test_end(self):
        loader = self.loader(epochs=2)
        self.assertEqual(sum(1 for _ in loader) + sum(1 for _ in loader), 2 * (N // B))
        self.assertEqual(sum(1 for _ in loader), 0)
        with self.assertRaises(StopIteration):
            loader.next()

    def test_ranks(self):
        ranks = [self.loader(dp_rank=r, dp_world_size=3) for r in range(3)]
        ids = [i for _ in range(len(ranks[0])) for r in ranks for i in r.next().ids]
        self.assertEqual(len(set(ids)), N // (3 * B) * 3 * B)
        with self.assertRaises(headrace.Error):
            self.loader(dp_rank=3, dp_world_size=3)

    def test_resume(self):
        loader = self.loader()
        for _ in range(5):
            loader.next()
        state = loader.state_dict()
        want = [loader.next().ids for _ in range(20)]
        for other in (self.loader(), pickle.loads(pickle.dumps(self.loader())), loader):
            other.load_state_dict(state)
            self.assertEqual([other.next().ids for _ in range(20)], want)
        loader.load_state_dict(state)
        self.assertEqual([b.ids for b in pickle.loads(pickle.dumps(loader))], want[:N // B - 5])
        with self.assertRaises(headrace.Error) as caught:
            self.loader(seed=4).load_state_dict(state)
        self.assertEqual(caught.exception.code_name, "HR_E_BAD_STATE")

    def test_resume_with_other_batches(self):
        """What is left of the epoch, and no more, whatever the steps were before."""
        for position, size, last, left in ((10, 16, "drop", 2), (10, 16, "pad", 3), (20, 16, "drop", 1),
                                           (25, 3, "drop", 8), (25, 32, "drop", 0)):
            before = headrace.Loader(self.data, position, seed=3)
            before.next()
            after = headrace.Loader(self.data, size, seed=3, last=last)
            after.load_state_dict(before.state_dict())
            if left:
                self.assertEqual([batch.epoch for batch in after], [0] * left)
            self.assertEqual([batch.epoch for batch in after], [1] * len(after))

    def test_lanes_go_last(self):
        """Closing waits for what slots have on lanes: they are needed until the loader is closed."""
        class Lane:
            def __del__(self):
                for task in os.listdir("/proc/self/task"):
                    with open(f"/proc/self/task/{task}/comm", encoding="ascii") as f:
                        seen.append(f.read().strip())

        seen = []
        loader = self.loader(threads=2)
        loader._ring._lanes[0] = Lane()
        loader.next()
        del loader
        gc.collect()
        self.assertTrue(seen)
        self.assertFalse([name for name in seen if name.startswith("hr-fill")])

    def test_refused_release(self):
        """A slot that cannot be given back now, as while a graph is captured, is given back later."""
        loader = self.loader(slots=3)
        real = headrace.loader._core.loader_release

        def refuse(*_args):
            raise ValueError("not now")

        for _ in range(10):
            loader.next()
            headrace.loader._core.loader_release = refuse
            try:
                with self.assertRaises(ValueError):
                    loader.next()
            finally:
                headrace.loader._core.loader_release = real

    def test_numbers_beyond_32_bits(self):
        for name in ("batch_size", "window", "dp_rank", "dp_world_size", "slots", "threads"):
            for value in (-1, (1 << 32) + 4):
                with self.assertRaises(ValueError):
                    headrace.Loader(self.data, **{"batch_size": B, name: value})
        with self.assertRaises(ValueError):
            headrace.TokenDataset(self.path, "u16", (1 << 32) + T)

    def test_slots(self):
        loader = self.loader(slots=3)
        held = [loader.next() for _ in range(3)]
        copies = [numpy.from_dlpack(b["tokens"]).copy() for b in held]
        with self.assertRaises(headrace.Error) as caught:
            loader.next()
        self.assertEqual(caught.exception.code_name, "HR_E_NO_SLOT")
        arrays = [numpy.from_dlpack(b["tokens"]) for b in held]
        del held  # the arrays hold the slots
        gc.collect()
        with self.assertRaises(headrace.Error):
            loader.next()
        for array, copy in zip(arrays, copies):
            self.assertTrue((array == copy).all())
        del array
        arrays.pop()
        self.check(loader.next())
        # what was handed out outlives the loader
        del loader
        gc.collect()
        self.assertTrue((arrays[0] == copies[0]).all())

    def test_ids(self):
        """Numbers of the batch that they are asked of, whatever has become of its memory meanwhile."""
        want = [batch.ids for batch in self.loader(threads=0)]
        self.assertEqual([type(ids) for ids in want], [tuple] * len(want))
        self.assertEqual(headrace.Batch.ids, headrace.Batch().ids)
        for threads in (0, 2):
            loader = self.loader(threads=threads, slots=2)
            kept = []
            for step in range(N // B):
                batch = loader.next()
                self.assertNotIn("ids", vars(batch))
                other = (copy.copy(batch), copy.copy(batch["labels"]))
                self.check(other[0])
                self.assertIs(other[0].ids, other[0].ids)
                self.assertEqual((other[1].shape, other[1].name), ((B, T), "labels"))
                kept.append(batch)
                batch.clear()  # the slot goes back and is filled again, the batch is still there
                del other
            self.assertEqual([batch.ids for batch in kept], want)
            self.assertEqual([(batch.epoch, batch.step, batch.valid) for batch in kept],
                             [(0, step, B) for step in range(N // B)])
        batch.ids = (1, 2)
        self.assertEqual(batch.ids, (1, 2))

    def test_ids_elsewhere(self):
        out = {"labels": numpy.zeros((B, T), numpy.int64)}
        want = [batch.ids for batch in self.loader()]
        loader = self.loader(slots=2)
        batches = [loader.next(out=out) for _ in want]
        back = pickle.loads(pickle.dumps(batches[1]))
        self.assertEqual((back.ids, back.epoch, back.step, back.valid), (want[1], 0, 1, B))
        self.assertTrue((back["labels"] == out["labels"]).all())
        self.assertEqual(copy.deepcopy(batches[2]).ids, want[2])
        self.assertEqual([batch.ids for batch in batches], want)
        held = loader.next()
        for copier in (copy.deepcopy, pickle.dumps):
            with self.assertRaises(TypeError):
                copier(held)
        self.assertEqual(held.ids, self.loader_at(len(want)).next().ids)

    def loader_at(self, steps):
        loader = self.loader()
        for _ in range(steps):
            loader.next()
        return loader

    def test_ids_in_a_cycle(self):
        """The collector takes a batch apart in its own order."""
        loader = self.loader(slots=2)
        gc.disable()
        try:
            for _ in range(100):
                batch = loader.next()
                batch["me"], batch.me = batch, batch
                self.assertEqual(len(batch.ids), B)
                del batch
                gc.collect()
        finally:
            gc.enable()

    def test_tensor(self):
        loader = self.loader()
        tensor = loader.next()["input_ids"]
        self.assertEqual(repr(tensor), f"headrace.Tensor('input_ids', i64, ({B}, {T}))")
        self.assertEqual((tensor.strides, tensor.__dlpack_device__()), ((T + 1, 1), (1, 0)))
        self.assertFalse(hasattr(tensor, "__cuda_array_interface__"))
        self.assertIs(weakref.ref(tensor)(), tensor)
        x, host = numpy.from_dlpack(tensor), numpy.from_dlpack(tensor.host)
        self.assertEqual(x.ctypes.data, host.ctypes.data)
        for arguments in ((None,), (-1,), ()):
            self.assertIn("dltensor", repr(tensor.__dlpack__(*arguments, max_version=(1, 0), copy=None)))
        again = headrace.Tensor(tensor._slot, "x", "i64", (B, T), (T + 1, 1), tensor._address)
        self.assertTrue((numpy.from_dlpack(again) == x).all())
        self.assertIsNone(again.host)
        for wrong in ((object(), "x", "i64", (1,), (1,), 0), (tensor._slot, "x", "i31", (1,), (1,), 0),
                      (tensor._slot, "x", "i64", [1], (1,), 0), ()):
            with self.assertRaises((TypeError, ValueError)):
                headrace.Tensor(*wrong)
        for shape, strides in (((1,), (1, 1)), ((1,) * 9, (1,) * 9), (("a",), (1,))):
            with self.assertRaises((TypeError, ValueError)):
                headrace.Tensor(tensor._slot, "x", "i64", shape, strides, 0).__dlpack__()
        self.assertEqual(loader.next()["input_ids"].shape, (B, T))

    def test_no_leak(self):
        """Nothing that a step makes stays: the same objects serve the next one."""
        loader = self.loader(slots=3)

        def step():
            batch = loader.next()
            numpy.from_dlpack(batch["labels"]).sum(), batch.ids, copy.copy(batch).ids

        for _ in range(50):
            step()
        gc.collect()
        shape = loader.next()["labels"].shape
        before, blocks = sys.getrefcount(shape), sys.getallocatedblocks()
        for _ in range(1000):
            step()
        gc.collect()
        self.assertIs(loader.next()["labels"].shape, shape)
        self.assertEqual(sys.getrefcount(shape), before)
        self.assertLess(sys.getallocatedblocks() - blocks, 100)

    def test_dropped_elsewhere(self):
        loader = self.loader(slots=4)
        for _ in range(200):
            box = [loader.next()]
            thread = threading.Thread(target=box.clear)
            thread.start()
            self.check(loader.next())
            thread.join()

    def test_out(self):
        out = {"input_ids": numpy.zeros((B, T), numpy.int64), "labels": numpy.zeros((B, T), numpy.int64)}
        loader = self.loader(slots=2)
        for _ in range(20):
            batch = loader.next(out=out)
            self.assertIs(batch["labels"], out["labels"])
            for row, index in enumerate(batch.ids):
                self.assertTrue((out["labels"][row] == self.tokens[index * T + 1:index * T + T + 1]).all())
        with self.assertRaises(TypeError):
            loader.next(out={"labels": bytearray(10)})

    @unittest.skipUnless(torch, "no PyTorch")
    def test_torch(self):
        out = {"labels": torch.zeros(B, T, dtype=torch.int64)}
        for batch in self.loader():
            x = torch.from_dlpack(batch["input_ids"])
            self.assertEqual((x.shape, x.dtype), ((B, T), torch.int64))
            self.assertEqual(x[1].tolist(), self.tokens[batch.ids[1] * T:batch.ids[1] * T + T].tolist())
        place = out["labels"].data_ptr()
        batch = self.loader().next(out=out)
        self.assertEqual(out["labels"].data_ptr(), place)
        self.assertEqual(out["labels"][0].tolist(),
                         self.tokens[batch.ids[0] * T + 1:batch.ids[0] * T + T + 1].tolist())

    @unittest.skipUnless(torch, "no PyTorch")
    def test_torch_tensors(self):
        import headrace.torch
        loader = self.loader(slots=2)
        for _ in range(20):
            batch = loader.next()
            x, y = headrace.torch.tensors(batch, "input_ids", "labels").values()
            ids, every = batch.ids, headrace.torch.tensors(batch)
            self.assertEqual(list(every), list(batch))
            self.assertEqual(every["labels"].data_ptr(), torch.from_dlpack(batch["labels"]).data_ptr())
            del batch, every
            gc.collect()
            loader.next()  # the other slot; what was made of the first one is as it was
            for row, index in enumerate(ids):
                window = self.tokens[index * T:index * T + T + 1].tolist()
                self.assertEqual((x[row].tolist(), y[row].tolist()), (window[:-1], window[1:]))
            del x, y
        with self.assertRaises(KeyError):
            headrace.torch.tensors(loader.next(), "none")
        out = {"labels": torch.zeros(B, T, dtype=torch.int64)}
        self.assertIs(headrace.torch.tensors(loader.next(out=out))["labels"], out["labels"])
        out = {"labels": numpy.zeros((B, T), numpy.int64)}
        got = headrace.torch.tensors(loader.next(out=out))["labels"]
        self.assertEqual(got.data_ptr(), out["labels"].ctypes.data)

    def test_refusals(self):
        with self.assertRaises(FileNotFoundError):
            headrace.TokenDataset(self.path + ".none")
        with self.assertRaises(ValueError):
            self.loader(last="keep")
        with self.assertRaises(ValueError):
            self.loader(dtype="i31")
        with self.assertRaises(headrace.Error):
            headrace.TokenDataset(self.path, "u16", 1 << 20)
        self.assertEqual(pickle.loads(pickle.dumps(self.data)).info(), self.data.info())

    def test_flat(self):
        loader = self.loader(threads=2)

        def run(n):
            for _ in range(n):
                batch = loader.next()
                numpy.from_dlpack(batch["input_ids"])

        run(2000)
        gc.collect()
        before = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(os.listdir("/proc/self/fd")))
        run(10000)
        after = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(os.listdir("/proc/self/fd")))
        self.assertLess(after[0] - before[0], 4096)  # KiB
        self.assertEqual(after[1], before[1])

    def test_exit(self):
        code = (f"import headrace, os\n"
                f"loader = headrace.Loader(headrace.TokenDataset({self.path!r}, 'u16', {T}), {B}, threads=2)\n"
                f"held = [loader.next(), loader.next()['labels'].__dlpack__()]\n"
                f"loader.next()\n"  # gone already: next() gives it back first
                f"pid = os.fork()\n"
                f"if not pid:\n"
                f"    try:\n        loader.next()\n"
                f"    except RuntimeError as e:\n        assert 'fork' in str(e)\n        raise SystemExit(0)\n"
                f"    raise SystemExit(1)\n"
                f"assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()

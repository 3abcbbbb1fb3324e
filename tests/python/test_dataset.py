#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Datasets of several formats in Python: fields, ragged rows as values and padded, scalars, conversions,
selections, mixtures, windows of shards, damaged samples, side indexes, pickling. Files are written here, by
NumPy and tarfile; every row is compared with what was written."""
import io
import os
import pickle
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import unittest

try:
    import numpy
except ImportError:
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

import headrace
from headrace import _arguments, _core


class Datasets(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.random = random.Random(7)

    def path(self, name):
        return os.path.join(self.dir, name)

    def make_tar(self, name, n, first=0):
        """Samples of an image of any length and a class. Returns [(image, class)]."""
        samples = [(self.random.randbytes(self.random.randrange(1, 5000)), first + i) for i in range(n)]
        with tarfile.open(self.path(name), "w") as tar:
            for i, (image, label) in enumerate(samples):
                for ext, data in (("jpg", image), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{name}/{first + i:06}.{ext}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        return samples

    def test_names_of_types(self):
        """As people write them elsewhere; what is none is refused by a sentence that lists all."""
        path = self.path("tokens.bin")
        numpy.arange(1000, dtype=numpy.uint16).tofile(path)
        sixteen = ["u16", "uint16", numpy.uint16, numpy.dtype("uint16"), *([torch.uint16] if hasattr(
            torch, "uint16") else [])]
        wide = ["i32", "int32", numpy.int32, numpy.dtype("int32"), *([torch.int32, "torch.int32"] if torch else [])]
        for source in sixteen:
            data = headrace.TokenDataset(path, source, seq_len=9)
            self.assertEqual(data.info()["fields"][0][2], "u16")
            self.assertEqual(len(pickle.loads(pickle.dumps(data))), len(data))
        for to in wide:
            for batch in headrace.Loader(data, 4, dtype=to, shuffle=False):
                self.assertEqual(batch["tokens"].dtype, "i32")
                break
            for batch in headrace.Loader(data, 4, dtype="same", dtypes={"tokens": to}, shuffle=False):
                self.assertEqual(batch["tokens"].dtype, "i32")
                break
        self.assertEqual(_arguments.dtype("u8"), "u8")  # one byte, NumPy's u8 has eight
        self.assertEqual({_arguments.dtype(name) for name in _arguments._FOREIGN} | {"bytes"}, set(_core.dtypes()))
        for wrong in ("uint12", "u128", "<u2", float, 7, "", "torch.", numpy.dtype("datetime64")):
            with self.assertRaisesRegex(ValueError, "dtype .*: must be one of bytes, u8, u16.* NumPy or PyTorch"):
                headrace.TokenDataset(path, wrong)
            with self.assertRaisesRegex(ValueError, "must be one of"):
                headrace.Loader(data, 4, dtypes={"tokens": wrong})

    def test_arguments(self):
        """What C would take for another number or crash on is refused by name."""
        path = self.path("tokens.bin")
        numpy.arange(1000, dtype=numpy.uint16).tofile(path)
        data = headrace.TokenDataset(path, "u16", seq_len=9)
        for name in ("epochs", "pad_to", "batch_bytes"):
            for wrong in (-1, 1 << 64):
                with self.assertRaisesRegex(ValueError, f"{name} {wrong}: must be 0 or more"):
                    headrace.Loader(data, 4, **{name: wrong})
        for wrong in ([1, 2], None, "tokens.bin"):
            with self.assertRaisesRegex(TypeError, f"headrace's is needed, not {type(wrong).__name__}"):
                headrace.Loader(wrong, 4)
        for misuse in (lambda: data[3], lambda: next(iter(data)), lambda: data[1:5]):
            with self.assertRaisesRegex(TypeError, r"headrace.Loader\(dataset, batch_size\).*select"):
                misuse()
        if torch and not torch.cuda.is_available():  # its own error would say less than ours
            self.assertEqual(_arguments.device("cuda"), "cuda:0")
        devices = ["cpu", *([torch.device("cpu")] if torch else [])]
        for device in devices:
            batch = next(iter(headrace.Loader(data, 4, device, shuffle=False)))
            self.assertEqual(numpy.from_dlpack(batch["tokens"]).tolist(),
                             [list(range(9 * i, 9 * i + 10)) for i in range(4)])

    def test_npy(self):
        rows = numpy.arange(60 * 6, dtype=numpy.float32).reshape(60, 2, 3) / 7
        numpy.save(self.path("a.npy"), rows)
        numpy.save(self.path("b.npy"), rows + 1000)
        data = headrace.NpyDataset([self.path("a.npy"), self.path("b.npy")])
        self.assertEqual(len(data), 120)
        self.assertEqual(data.info()["fields"], [("data", "fixed", "f32", (2, 3))])
        both = numpy.concatenate([rows, rows + 1000])
        for batch in headrace.Loader(data, 8, dtype="f64", seed=1):
            got = numpy.from_dlpack(batch["data"])
            self.assertEqual((got.dtype, got.shape), (numpy.float64, (8, 2, 3)))
            self.assertTrue((got == both[list(batch.ids)].astype(numpy.float64)).all())
        numpy.savez(self.path("c.npz"), x=rows, y=numpy.arange(60))
        archive = headrace.NpzDataset(self.path("c.npz"), fields="y")
        self.assertEqual(archive.fields, ["y"])
        for batch in headrace.Loader(archive, 10):
            self.assertEqual(tuple(numpy.from_dlpack(batch["y"]).tolist()), batch.ids)
        whole = headrace.NpyDataset([self.path("a.npy"), self.path("b.npy")], whole_files=True)
        self.assertEqual((len(whole), whole.info()["fields"][0][3]), (2, (60, 2, 3)))

    def test_many_files(self):
        """Far more files than may be open; one that is replaced meanwhile is refused by its name."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        before = len(os.listdir("/proc/self/fd"))
        paths = [self.path(f"{k:04}.npy") for k in range(2000)]
        for k, path in enumerate(paths):
            numpy.save(path, numpy.arange(2 * k, 2 * k + 2, dtype=numpy.int64))
        data = headrace.NpyDataset(paths)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 64)
        for shuffle in ("full", "window", "none"):
            loader = headrace.Loader(data, 50, shuffle=shuffle, epochs=1, threads=2)
            seen = []
            for batch in loader:
                self.assertEqual(numpy.from_dlpack(batch["data"]).tolist(), list(batch.ids))
                seen += batch.ids
            self.assertEqual(sorted(seen), list(range(4000)))
            info = loader.info()
            self.assertGreater(info["reopened"], 1000)
            self.assertEqual("ulimit -n" in info["reopen_reason"], shuffle == "full")
        replaced = paths[1800]
        numpy.save(replaced + ".new.npy", numpy.arange(2, dtype=numpy.int64))
        os.rename(replaced + ".new.npy", replaced)
        with self.assertRaisesRegex(headrace.Error, replaced) as caught:
            for _ in headrace.Loader(data, 50, shuffle="none", epochs=1):
                pass
        self.assertEqual(caught.exception.code_name, "HR_E_FILE_CHANGED")

    def test_npz(self):
        arrays = {"x": numpy.arange(60, dtype=numpy.int32).reshape(20, 3), "y": numpy.arange(20.0)}
        numpy.savez(self.path("a.npz"), **arrays)
        self.assertEqual(headrace.NpzDataset(self.path("a.npz")).fields, ["x", "y"])
        data = headrace.NpzDataset(self.path("a.npz"), fields=["y"])
        for batch in headrace.Loader(data, 4):
            self.assertEqual(numpy.from_dlpack(batch["y"]).tolist(), [float(i) for i in batch.ids])

    def test_values(self):
        samples = self.make_tar("a.tar", 30) + self.make_tar("b.tar", 17, 30)
        data = headrace.TarDataset([self.path("a.tar"), self.path("b.tar")])
        self.assertEqual(len(data), 47)
        seen = []
        for batch in headrace.Loader(data, 5, seed=3, threads=2, last="pad"):
            values = numpy.from_dlpack(batch["jpg"])
            offsets = numpy.from_dlpack(batch["jpg.offsets"])
            self.assertEqual(list(offsets), list(numpy.from_dlpack(batch["jpg.offsets"].host)))
            self.assertEqual(len(values), offsets[-1])
            labels = numpy.from_dlpack(batch["cls.int"])
            for row, index in enumerate(batch.ids):
                image, label = samples[index]
                self.assertEqual(values[offsets[row]:offsets[row + 1]].tobytes(), image)
                self.assertEqual(labels[row], label)
            seen += batch.ids[:batch.valid]
        self.assertEqual(sorted(seen), list(range(47)))

    def test_padded(self):
        samples = self.make_tar("a.tar", 20)
        data = headrace.TarDataset(self.path("a.tar"), fields=["jpg"])
        self.assertEqual(data.fields, ["jpg"])
        for width in (0, 700):
            longest = width or max(len(image) for image, _ in samples)
            for batch in headrace.Loader(data, 4, ragged="pad", pad_to=width, pad_value=9, shuffle=False):
                got = numpy.from_dlpack(batch["jpg"])
                lengths = numpy.from_dlpack(batch["jpg.lengths"])
                self.assertEqual(got.shape, (4, longest))
                for row, index in enumerate(batch.ids):
                    image = samples[index][0][:longest]
                    self.assertEqual(lengths[row], len(image))
                    self.assertEqual(got[row].tobytes(), image + bytes([9]) * (longest - len(image)))
        with self.assertRaises(headrace.Error) as caught:
            loader = headrace.Loader(data, 20, batch_bytes=64)
            loader.next()
        self.assertEqual(caught.exception.code_name, "HR_E_BATCH_FULL")

    def test_views(self):
        for k, name in enumerate("ab"):
            numpy.save(self.path(f"{name}.npy"), numpy.arange(100, dtype=numpy.int32).reshape(100, 1) + 1000 * k)
        a, b = (headrace.NpyDataset(self.path(f"{name}.npy")) for name in "ab")
        odd = a.select(range(1, 100, 2))
        self.assertEqual(len(odd), 50)
        values = [v for batch in headrace.Loader(odd, 10)
                  for v in numpy.from_dlpack(batch["data"])[:, 0].tolist()]
        self.assertEqual(sorted(values), list(range(1, 100, 2)))
        mixed = headrace.Mixture([odd, b], [3, 1], samples=4000)
        values = [v for batch in headrace.Loader(mixed, 40)
                  for v in numpy.from_dlpack(batch["data"])[:, 0].tolist()]
        self.assertEqual(len(values), 4000)
        self.assertAlmostEqual(sum(v < 1000 for v in values) / 4000, 0.75, delta=0.03)
        self.assertTrue(all(v >= 1000 or v % 2 for v in values))
        for data in (odd, mixed):
            again = pickle.loads(pickle.dumps(data))
            self.assertEqual(again.info(), data.info())
        with self.assertRaises(headrace.Error):
            a.select([100])

    def test_windows_of_shards(self):
        for k in range(8):
            numpy.save(self.path(f"{k}.npy"), numpy.full((20, 1), k, numpy.int32))
        data = headrace.NpyDataset([self.path(f"{k}.npy") for k in range(8)])
        loader = headrace.Loader(data, 20, shuffle="window", window=2, seed=5)
        batches = [set(numpy.from_dlpack(b["data"])[:, 0].tolist()) for b in loader]
        self.assertEqual(set().union(*batches), set(range(8)))
        for k in range(0, 8, 2):
            self.assertEqual(len(batches[k] | batches[k + 1]), 2)
        state = loader.state_dict()
        other = headrace.Loader(data, 20, shuffle="window", window=3, seed=5)
        with self.assertRaises(headrace.Error) as caught:
            other.load_state_dict(state)
        self.assertEqual(caught.exception.code_name, "HR_E_BAD_STATE")

    def test_index(self):
        self.make_tar("a.tar", 10)
        with self.assertRaises(headrace.Error) as caught:
            headrace.TarDataset(self.path("a.tar"), index_only=True)
        self.assertEqual(caught.exception.code_name, "HR_E_NO_INDEX")
        calls = []
        self.assertEqual(headrace.build_index(self.path("a.tar"), progress=lambda *p: calls.append(p)), 1)
        self.assertTrue(os.path.exists(self.path("a.tar.hrindex")))
        self.assertEqual(headrace.build_index(self.path("a.tar")), 0)
        self.assertEqual(len(headrace.TarDataset(self.path("a.tar"), index_only=True)), 10)
        self.assertTrue(all(done <= total for done, total, _ in calls))

    def test_what_progress_raises(self):
        """On whichever thread it is called."""
        def progress(*_numbers):
            if threading.current_thread() is not threading.main_thread():
                raise KeyError("enough")
            time.sleep(0.01)  # let the other thread have its turn

        for k in range(40):
            self.make_tar(f"{k}.tar", 3)
        paths = [self.path(f"{k}.tar") for k in range(40)]
        with self.assertRaises(KeyError):
            headrace.build_index(paths, threads=2, progress=progress)
        self.assertGreater(headrace.build_index(paths, index_dir=os.fsencode(self.dir)), 0)

    @unittest.skipUnless(torch, "no PyTorch")
    def test_torch(self):
        samples = self.make_tar("a.tar", 12)
        for batch in headrace.Loader(headrace.TarDataset(self.path("a.tar")), 4):
            values, offsets = (torch.from_dlpack(batch[n]) for n in ("jpg", "jpg.offsets"))
            for row, index in enumerate(batch.ids):
                self.assertEqual(bytes(values[offsets[row]:offsets[row + 1]].tolist()), samples[index][0])


if __name__ == "__main__":
    unittest.main()

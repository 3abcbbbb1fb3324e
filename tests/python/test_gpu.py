#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU, by __cuda_array_interface__ and DLPack, on the pretended driver of tests/fakecuda:
its memory cannot be touched by the CPU, so a copy that goes past the library would crash."""
import ctypes
import os
import random
import shutil
import struct
import sys
import tempfile
import types
import unittest
from unittest import mock

if os.environ.get("LD_LIBRARY_PATH", "") != os.environ["FAKECUDA"]:
    os.environ["LD_LIBRARY_PATH"] = os.environ["FAKECUDA"]  # the loader reads it at the start
    os.execv(sys.executable, [sys.executable, *sys.argv])

import headrace  # noqa: E402

NOT_READY = 600
cuda = ctypes.CDLL("libcuda.so.1")


def check(result):
    if result:
        raise RuntimeError(f"the driver says {result}")


class Array:
    """Device memory with the interface of CuPy and Numba."""

    borrowed = False

    def __init__(self, nbytes):
        self.address, self.nbytes = ctypes.c_uint64(), nbytes
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(nbytes)))

    @classmethod
    def at(cls, address, nbytes):
        """Memory of somebody else."""
        self = cls.__new__(cls)
        self.address, self.nbytes, self.borrowed = ctypes.c_uint64(address), nbytes, True
        return self

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address.value, False),
                "version": 3}

    def fetch(self):
        host, stream = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(self.nbytes), 0))
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0))
        check(cuda.cuMemcpyDtoHAsync_v2(host, self.address, ctypes.c_size_t(self.nbytes), stream))
        while (state := cuda.cuStreamQuery(stream)) == NOT_READY:
            pass
        check(state)
        out = ctypes.string_at(host, self.nbytes)
        check(cuda.cuMemFreeHost(host))
        check(cuda.cuStreamDestroy_v2(stream))
        return out

    def __del__(self):
        if not self.borrowed:
            cuda.cuMemFree_v2(self.address)


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = ctypes.c_void_p()
        check(cuda.cuInit(0))
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        check(cuda.cuCtxPushCurrent_v2(context))

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def raw(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def test_read_and_write(self):
        data = random.Random(1).randbytes(1_000_003)
        array = Array(1_000_000)
        with headrace.open(self.raw("f", data)) as f:
            self.assertEqual(f.read_into(array, 3), 1_000_000)
        self.assertEqual(array.fetch(), data[3:])
        with headrace.open(os.path.join(self.dir, "out"), "w") as f:
            self.assertEqual(f.write_from(array, 1), 1_000_000)
        with open(os.path.join(self.dir, "out"), "rb") as f:
            self.assertEqual(f.read(), b"\0" + data[3:])

    def test_checkpoint(self):
        data = random.Random(2).randbytes(4000)
        head = b'{"w":{"dtype":"BF16","shape":[20,100],"data_offsets":[0,4000]}}'
        ck = headrace.Checkpoint(self.raw("m", struct.pack("<Q", len(head)) + head + data))
        whole, part = Array(4000), Array(400)
        self.assertEqual(ck.load_into({"w": whole}), 4000)
        self.assertEqual(whole.fetch(), data)
        self.assertEqual(ck.load_into({"w": (part, 1, 30, 10)}), 400)
        self.assertEqual(part.fetch(), b"".join(data[r * 200 + 60:r * 200 + 80] for r in range(20)))
        path = os.path.join(self.dir, "out")
        headrace.save({"w": ("BF16", (20, 100), whole)}, path)
        back = bytearray(4000)
        headrace.Checkpoint(path).load_into({"w": back})
        self.assertEqual(back, data)

    def test_shards(self):
        arrays = {}
        for i in range(4):
            data = random.Random(i).randbytes(5000)
            with headrace.open(self.raw("f", data)) as f:
                arrays[f"t{i}"] = (Array(5000), data)
                f.read_into(arrays[f"t{i}"][0])
        headrace.save_sharded({n: ("U8", (5000,), a) for n, (a, _) in arrays.items()}, self.dir,
                              max_shard_bytes=10_000)
        ck = headrace.Checkpoint(self.dir)
        self.assertEqual(len({ck[n].path for n in ck}), 2)
        back = {n: Array(5000) for n in arrays}
        ck.load_into(back)
        for name, (_, data) in arrays.items():
            self.assertEqual(back[name].fetch(), data)

    def test_given_back(self):
        """Memory that was freed is not known any more: neither loaded into nor saved from; what is
        allocated afterwards is, whatever its address."""
        head = b'{"w":{"dtype":"U8","shape":[4000],"data_offsets":[0,4000]}}'
        data = random.Random(4).randbytes(4000)
        ck = headrace.Checkpoint(self.raw("m", struct.pack("<Q", len(head)) + head + data))
        for _ in range(20):
            array = Array(4000)
            ck.load_into({"w": array})
            self.assertEqual(array.fetch(), data)
            address = array.address.value
            del array
            with self.assertRaises(headrace.Error):
                ck.load_into({"w": Array.at(address, 4000)})
            with self.assertRaises(headrace.Error):
                headrace.save({"w": ("U8", (4000,), Array.at(address, 4000))}, os.path.join(self.dir, "out"))
        self.assertFalse(os.path.exists(os.path.join(self.dir, "out")))

    def test_loader(self):
        data = random.Random(3).randbytes(2 * (40 * 16 + 1))
        tokens = struct.unpack(f"<{len(data) // 2}H", data)
        dataset = headrace.TokenDataset(self.raw("tokens", data), "u16", 16)
        loader = headrace.Loader(dataset, 4, "cuda:0", slots=2)
        stream = ctypes.c_void_p()
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0))
        for _ in range(25):
            batch = loader.next()
            tensor = batch["tokens"]
            self.assertEqual(tensor.__dlpack_device__(), (2, 0))
            self.assertEqual((tensor.shape, tensor.dtype), ((4, 17), "i64"))
            got = struct.unpack("<68q", Array.at(tensor._address, 4 * 17 * 8).fetch())
            for row, index in enumerate(batch.ids):
                self.assertEqual(got[17 * row:17 * row + 17], tokens[16 * index:16 * index + 17])
            capsule = batch["labels"].__dlpack__(stream=stream.value)
            self.assertIn("dltensor", repr(capsule))
            with self.assertRaisesRegex(ValueError, "another stream already"):
                batch["labels"].__dlpack__(stream=77)
            del batch, tensor, capsule

    def test_torch_tensors(self):
        """All tensors of a batch are taken on PyTorch's current stream, which is asked for once."""
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        import headrace.torch
        from headrace import _torch_batch
        dataset = headrace.TokenDataset(self.raw("tokens", bytes(2 * (40 * 16 + 1))), "u16", 16)
        loader = headrace.Loader(dataset, 4, "cuda:0", slots=2)
        own, asked = ctypes.c_void_p(), []
        check(cuda.cuStreamCreateWithPriority(ctypes.byref(own), 1, 0))
        for stream, same, other in ((0, (None, 0, 1), own.value), (own.value, (own.value,), 1)) * 5:
            def current(index, stream=stream):
                asked.append(index)
                return types.SimpleNamespace(cuda_stream=stream)

            batch = loader.next()
            with mock.patch.object(torch.cuda, "current_stream", current), \
                    mock.patch.object(_torch_batch, "from_dlpack", lambda capsule: capsule):
                taken = headrace.torch.tensors(batch)
            self.assertEqual((list(taken), asked), (list(batch), [0]))
            self.assertIn("dltensor", repr(taken["labels"]))
            for again in same:
                batch["tokens"].__dlpack__(stream=again)
            batch["tokens"].__dlpack__(stream=-1)
            with self.assertRaisesRegex(ValueError, "another stream already"):
                batch["tokens"].__dlpack__(stream=other)
            asked.clear()
            del batch, taken

    def test_array_interface(self):
        dataset = headrace.TokenDataset(self.raw("tokens", bytes(2 * (40 * 16 + 1))), "u16", 16)
        batch = headrace.Loader(dataset, 4, "cuda:0", slots=2).next()
        tensor = batch["labels"]
        self.assertEqual(tensor.__cuda_array_interface__, {
            "shape": (4, 16), "typestr": "<i8", "version": 3, "strides": (136, 8),
            "data": (tensor._address, False)})
        self.assertIsNone(tensor.host)
        with self.assertRaisesRegex(ValueError, "another stream already"):
            tensor.__dlpack__(stream=77)
        with self.assertRaises(AttributeError):
            tensor.nothing
        with self.assertRaises(TypeError):
            batch["tokens"].__dlpack__(stream="x")

    def test_mixed(self):
        head = (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                b'"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}')
        ck = headrace.Checkpoint(self.raw("m", struct.pack("<Q", len(head)) + head + b"ab"))
        with self.assertRaisesRegex(ValueError, "load each device by itself"):
            ck.load_into({"a": Array(1), "b": bytearray(1)})
        with self.assertRaises(headrace.Error):
            ck.load_into({"a": type("Lie", (), {"__cuda_array_interface__": {
                "shape": (1,), "typestr": "|u1", "data": (4096, False)}})()})


if __name__ == "__main__":
    unittest.main()

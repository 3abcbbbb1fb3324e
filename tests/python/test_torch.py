#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace.torch against what it stands in for: the same tensors come out, the same bytes go in, the
same arguments are taken; bytes are compared with a writer of a few lines (test_reference.py takes the other
package itself). Skips without PyTorch."""
import json
import os
import shutil
import struct
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)

import headrace
import headrace.torch as ht

ORDER = ["BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "C64", "F64", "I64"]
TYPES = dict(zip(ORDER, [torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16,
                         torch.int32, torch.float32, torch.complex64, torch.float64, torch.int64]))


def model():
    torch.manual_seed(7)
    tensors = {f"layer.{i}.{word}": (torch.randn(5 + i, 7, 3) * 10).to(dtype)
               for i, (word, dtype) in enumerate(TYPES.items())}
    tensors["empty"] = torch.zeros(0, 4)
    tensors["scalar"] = torch.tensor(3.5)
    tensors["big"] = torch.randn(300, 1001)
    return tensors


def packed(tensors, metadata=None):
    words = {v: k for k, v in TYPES.items()}
    items = sorted(tensors.items(), key=lambda i: (-ORDER.index(words[i[1].dtype]), i[0]))
    head, data = {}, b""
    if metadata is not None:
        head["__metadata__"] = metadata
    for name, tensor in items:
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.nelement() else b""
        head[name] = {"dtype": words[tensor.dtype], "shape": list(tensor.shape),
                      "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Torch(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = os.path.join(self.dir, "model.safetensors")
        self.tensors = model()

    def same(self, got, want):
        self.assertEqual(set(got), set(want))
        for name, tensor in want.items():
            self.assertEqual(got[name].dtype, tensor.dtype, name)
            self.assertEqual(got[name].shape, tensor.shape, name)
            self.assertTrue(torch.equal(got[name], tensor), name)

    def read(self):
        with open(self.path, "rb") as f:
            return f.read()

    def test_save(self):
        ht.save_file(self.tensors, self.path, {"format": "pt"})
        self.assertEqual(self.read(), packed(self.tensors, {"format": "pt"}))
        ht.save_file(self.tensors, self.path)
        self.assertEqual(self.read(), packed(self.tensors))
        ht.save_file({}, self.path)
        self.assertEqual(self.read(), packed({}))
        self.assertEqual(os.listdir(self.dir), ["model.safetensors"])

    def test_save_async(self):
        want = packed(self.tensors, {"format": "pt"})
        other = os.path.join(self.dir, "other")
        futures = [ht.save_file_async(self.tensors, path, {"format": "pt"}) for path in (self.path, other)]
        for tensor in self.tensors.values():
            tensor.zero_()  # training goes on
        for future in futures:
            self.assertIsNone(future.result(60))
        self.assertEqual(self.read(), want)
        with self.assertRaises(headrace.Error):
            ht.save_file_async(self.tensors, os.path.join(self.dir, "no", "where"))
        self.assertEqual(sorted(os.listdir(self.dir)), ["model.safetensors", "other"])

    def test_load(self):
        ht.save_file(self.tensors, self.path, metadata={"format": "pt"})
        self.same(ht.load_file(self.path), self.tensors)
        self.same(ht.load_file(self.path, "cpu", backend="pread"), self.tensors)
        self.same(ht.load_file(self.path, torch.device("cpu")), self.tensors)
        # tensors do not share memory and can be saved again
        ht.save_file(ht.load_file(self.path), self.path)

    def test_safe_open(self):
        ht.save_file(self.tensors, self.path, metadata={"format": "pt"})
        with ht.safe_open(self.path, framework="pt", device="cpu") as f:
            self.assertEqual(f.keys(), sorted(self.tensors))
            self.assertEqual(set(f.offset_keys()), set(self.tensors))
            self.assertEqual(f.metadata(), {"format": "pt"})
            self.same({n: f.get_tensor(n) for n in f.keys()}, self.tensors)
            self.same(f.get_tensors(), self.tensors)
            with self.assertRaises(KeyError):
                f.get_tensor("none")
        with self.assertRaises(RuntimeError):
            f.keys()
        ht.save_file(self.tensors, self.path)
        with ht.safe_open(self.path, "pt") as f:
            self.assertIsNone(f.metadata())

    def test_slices(self):
        ht.save_file(self.tensors, self.path)
        name = "layer.7.F32"
        whole = self.tensors[name]
        with ht.safe_open(self.path, "pt") as f:
            part = f.get_slice(name)
            self.assertEqual((part.get_shape(), part.get_dtype()), (list(whole.shape), "F32"))
            for index in (slice(None), slice(2, 5), slice(None, None, 2), slice(1, 11, 3), 3, -1,
                          (slice(None), slice(2, 6)), (slice(None), slice(None), 1), (1, 2, 0),
                          (Ellipsis, 1), (2, Ellipsis), (Ellipsis, slice(0, 2)), (slice(3, 3),),
                          (slice(4, 9), slice(1, 3), -1), Ellipsis, (slice(-4, None), slice(-2, None)),
                          (slice(100, 200),), ()):
                self.assertTrue(torch.equal(part[index], whole[index]), index)
            for wrong in (12, -13, (0, 0, 0, 0), (Ellipsis, Ellipsis)):
                with self.assertRaises(IndexError):
                    part[wrong]
            self.assertTrue(torch.equal(f.get_slice("scalar")[()], self.tensors["scalar"]))

    def test_load_into(self):
        ht.save_file(self.tensors, self.path)
        into = {n: torch.zeros_like(t) for n, t in self.tensors.items()}
        places = {n: t.data_ptr() for n, t in into.items()}
        self.assertEqual(ht.load_into(into, self.path), ([], []))
        self.same(into, self.tensors)
        self.assertEqual({n: t.data_ptr() for n, t in into.items()}, places)
        del into["big"]
        with self.assertRaisesRegex(RuntimeError, "big"):
            ht.load_into(into, self.path)
        self.assertEqual(ht.load_into(into, self.path, strict=False), ([], ["big"]))
        into["scalar"] = torch.zeros((), dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "scalar"):
            ht.load_into(into, self.path, strict=False)

    def test_iterate(self):
        ht.save_file(self.tensors, self.path)
        self.same(dict(ht.iterate(self.path, bytes_at_once=1000)), self.tensors)
        got = dict(ht.iterate(self.path, name_filter=lambda n: n.startswith("layer")))
        self.same(got, {n: t for n, t in self.tensors.items() if n.startswith("layer")})

    def test_shards(self):
        names = sorted(self.tensors)
        places = {}
        for k in range(3):
            shard = f"model-{k}.safetensors"
            part = {n: self.tensors[n] for n in names[k::3]}
            ht.save_file(part, os.path.join(self.dir, shard))
            places.update({n: shard for n in part})
        index = os.path.join(self.dir, "model.safetensors.index.json")
        with open(index, "w", encoding="ascii") as f:
            json.dump({"metadata": {}, "weight_map": places}, f)
        self.same(ht.load_file(index), self.tensors)
        self.same(ht.load_file(self.dir), self.tensors)

    def test_refusals(self):
        big = self.tensors["big"]
        for error, tensors in ((ValueError, [big]), (ValueError, {"a": 3}), (ValueError, {"a": big.t()}),
                               (ValueError, {"a": big.to_sparse()}),
                               (RuntimeError, {"a": big, "b": big[:10]})):
            with self.assertRaises(error):
                ht.save_file(tensors, self.path)
        self.assertEqual(os.listdir(self.dir), [])
        ht.save_file({"a": big[:10], "b": big[10:]}, self.path)  # one storage, nothing shared
        with self.assertRaises(FileNotFoundError):
            ht.load_file(self.path + ".none")
        with self.assertRaises(ValueError):
            ht.safe_open(self.path, "tf")

    def test_prefetch(self):
        ht.save_file(self.tensors, self.path)
        big, name = self.tensors["big"], "layer.7.F32"
        with ht.safe_open(self.path, "pt", copy=False) as f:
            f.prefetch(["big", "scalar"])
            first = f.get_tensor("big")
            self.assertTrue(torch.equal(first, big))
            self.assertTrue(torch.equal(f.get_tensor("big"), big))  # read again
            f.prefetch({"big": [(slice(2, 9), slice(None, 5)), 7, None], name: slice(0, 3), "scalar": ()})
            os.truncate(self.path, 100)  # from here on only what was read ahead is there
            self.assertTrue(torch.equal(f.get_slice("big")[2:9, :5], big[2:9, :5]))
            self.assertTrue(torch.equal(f.get_slice("big")[7], big[7]))
            self.assertTrue(torch.equal(f.get_tensor("big"), big))
            self.assertTrue(torch.equal(f.get_slice(name)[0:3], self.tensors[name][0:3]))
            self.assertTrue(torch.equal(f.get_slice("scalar")[()], self.tensors["scalar"]))
            with self.assertRaises(headrace.Error):
                f.get_slice("big")[7]
        ht.save_file(self.tensors, self.path)
        with ht.safe_open(self.path, "pt") as f:
            f.prefetch()
            os.truncate(self.path, 100)
            self.same(f.get_tensors(), self.tensors)
            with self.assertRaises(KeyError):
                f.prefetch(["none"])
            with self.assertRaises(TypeError):
                f.prefetch({"big": (torch.tensor([1, 2]), 3)})
        with self.assertRaises(RuntimeError):
            f.prefetch()

    def test_in_memory(self):
        data = ht.save(self.tensors, {"format": "pt"})
        self.assertEqual(data, packed(self.tensors, {"format": "pt"}))
        self.same(ht.load(data), self.tensors)
        with self.assertRaises(headrace.Error):
            ht.load(data[:-1])

    def test_model(self):
        def build():
            net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
            net[1].weight = net[0].weight  # one memory, two names
            net[2].bias = torch.nn.Parameter(net[0].bias.detach()[:8])
            return net

        one, other = build(), build()
        ht.save_model(one, self.path, {"k": "v"})
        with ht.safe_open(self.path, "pt") as f:
            self.assertEqual(f.keys(), ["0.bias", "0.weight", "1.bias", "2.weight"])
            self.assertEqual(f.metadata(), {"k": "v", "1.weight": "0.weight", "2.bias": "0.bias"})
        self.assertEqual(ht.load_model(other, self.path), (set(), []))
        self.same(other.state_dict(), one.state_dict())
        ht.save_file({"0.bias": torch.zeros(8), "x": torch.zeros(8)}, self.path)
        with self.assertRaisesRegex(RuntimeError, 'Missing.*"2.weight"\n.*Unexpected.*"x"'):
            ht.load_model(other, self.path)
        self.assertEqual(ht.load_model(other, self.path, strict=False)[1], ["x"])

    def test_save_sharded(self):
        folder = os.path.join(self.dir, "model")
        for limit in (100_000, 1 << 30):
            index = ht.save_sharded(self.tensors, folder, {"format": "pt"}, max_shard_bytes=limit)
            self.same(ht.load_file(index), self.tensors)
            into = {n: torch.zeros_like(t) for n, t in self.tensors.items()}
            ht.load_into(into, folder)
            self.same(into, self.tensors)
            with ht.safe_open(folder, "pt") as f:
                self.assertEqual(f.metadata(), {"format": "pt"})

    def test_flat(self):
        ht.save_file({"w": torch.zeros(1000)}, self.path)
        ht.load_file(self.path)
        ht.save_file({"w": torch.zeros(10)}, os.path.join(self.dir, "x"))
        count = len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            ht.load_file(self.path)
            ht.save_file({"w": torch.zeros(10)}, os.path.join(self.dir, "x"))
        self.assertEqual(len(os.listdir("/proc/self/fd")), count)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headrace.torch on a real GPU: every byte in both directions, memory that was freed and is allocated
again at the same address, tensors that lie in several pieces of the driver's memory (expandable
segments), two processes on one GPU. Skips without one."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    print("no GPU here")
    sys.exit(77)

import headrace
import headrace.torch as ht

MIB = 1 << 20


def flat(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8).cpu()


class Cuda(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-", dir=os.environ.get("HEADRACE_BENCH_DATA"))
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def same(self, got, want):
        self.assertEqual(set(got), set(want))
        for name, tensor in want.items():
            self.assertEqual((got[name].dtype, got[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(flat(got[name]), flat(tensor)), name)

    def test_round_trip(self):
        from headrace._torch_types import TYPES as words
        want = {f"t{i}": torch.randint(0, 2, (i + 1, 34), dtype=torch.uint8).view(torch.bool) if dtype == torch.bool
                else torch.randint(0, 256, (i + 1, 4096), dtype=torch.uint8).view(dtype)
                for i, dtype in enumerate(words.values())}
        want["empty"], want["big"] = torch.zeros(0, 3), torch.randn(3001, 4099)
        want["scalar"] = torch.tensor(1.5)
        on_gpu = {name: tensor.cuda() for name, tensor in want.items()}
        ht.save_file(on_gpu, self.path("gpu"), {"format": "pt"})
        ht.save_file(want, self.path("cpu"), {"format": "pt"})
        with open(self.path("gpu"), "rb") as a, open(self.path("cpu"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        got = ht.load_file(self.path("gpu"), "cuda")
        self.assertTrue(all(t.is_cuda and t.data_ptr() % 256 == 0 for t in got.values() if t.nelement()))
        self.same(got, want)
        ht.save_sharded(on_gpu, self.path("shards"), max_shard_bytes=MIB)
        self.same(ht.load_file(self.path("shards"), 0), want)
        with ht.safe_open(self.path("gpu"), "pt", "cuda:0") as f:
            f.prefetch({"big": [(slice(100, 300), slice(5, 9)), None]})
            self.assertTrue(torch.equal(f.get_slice("big")[100:300, 5:9].cpu(), want["big"][100:300, 5:9]))
        future = ht.save_file_async(on_gpu, self.path("late"), {"format": "pt"})
        for tensor in on_gpu.values():
            tensor.reshape(-1).view(torch.uint8).zero_()
        future.result()
        self.same(ht.load_file(self.path("late"), "cuda"), want)

    def test_same_address_again(self):
        """Nothing is remembered of memory that was given back to the driver."""
        places = set()
        for i in range(12):
            want = {"w": torch.full((8 * MIB,), i + 1, dtype=torch.uint8)}
            ht.save_file(want, self.path(f"m{i}"))
            got = ht.load_file(self.path(f"m{i}"), "cuda")
            places.add(got["w"].data_ptr())
            self.same(got, want)
            del got
            torch.cuda.empty_cache()
        print(f"\n12 loads at {len(places)} addresses")
        self.assertLess(len(places), 12)

    def test_expandable_segments(self):
        code = ("import torch, headrace.torch as ht, sys\n"
                "small = torch.zeros(3 << 20, dtype=torch.uint8, device='cuda')\n"
                "for size in (3, 21, 150):\n"
                "    want = {'w': torch.randint(0, 256, (size << 20,), dtype=torch.uint8)}\n"
                "    ht.save_file(want, sys.argv[1])\n"
                "    got = ht.load_file(sys.argv[1], 'cuda')['w']\n"
                "    assert torch.equal(got.cpu(), want['w']), size\n"
                "    ht.save_file({'w': got}, sys.argv[1] + '.back')\n"
                "    assert torch.equal(ht.load_file(sys.argv[1] + '.back')['w'], want['w']), size\n"
                "    held = torch.zeros(size << 20, dtype=torch.uint8, device='cuda')\n")
        setting = "expandable_segments:True"
        env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}
        done = subprocess.run([sys.executable, "-c", code, self.path("m")], env=env, capture_output=True,
                              text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_two_processes(self):
        want = {"w": torch.randn(40 * MIB)}
        ht.save_file(want, self.path("m"))
        code = ("import torch, headrace.torch as ht, sys, zlib\n"
                "for _ in range(5):\n"
                "    t = ht.load_file(sys.argv[1], 'cuda')['w']\n"
                "print(zlib.crc32(t.cpu().numpy().tobytes()))\n")
        two = [subprocess.Popen([sys.executable, "-c", code, self.path("m")], stdout=subprocess.PIPE, text=True)
               for _ in range(2)]
        said = {p.communicate(timeout=200)[0] for p in two}
        import zlib
        self.assertEqual(said, {f"{zlib.crc32(want['w'].numpy().tobytes())}\n"})

    def test_loader(self):
        import array
        import random
        data = array.array("H", random.Random(1).randbytes(2 * (64 * 200 + 1)))
        with open(self.path("tokens"), "wb") as f:
            data.tofile(f)
        loader = headrace.Loader(headrace.TokenDataset(self.path("tokens"), "u16", 64), 8, "cuda:0", seed=1)
        for batch in loader:
            x, y = (torch.from_dlpack(batch[k]) for k in ("input_ids", "labels"))
            for row, i in enumerate(batch.ids):
                self.assertEqual(x[row].tolist(), list(data[64 * i:64 * i + 64]))
                self.assertEqual(y[row].tolist(), list(data[64 * i + 1:64 * i + 65]))
        del batch, x, y
        streams = (torch.cuda.current_stream(), torch.cuda.Stream())
        for step, batch in enumerate(loader):
            with torch.cuda.stream(streams[step % 2]):
                x, y = ht.tensors(batch, "input_ids", "labels").values()
                ids = batch.ids
                del batch  # the slot is used again once this stream has got here
                x, y = x + 0, y + 0
            streams[step % 2].synchronize()
            for row, i in enumerate(ids):
                self.assertEqual(x[row].tolist(), list(data[64 * i:64 * i + 64]))
                self.assertEqual(y[row].tolist(), list(data[64 * i + 1:64 * i + 65]))


if __name__ == "__main__":
    unittest.main()

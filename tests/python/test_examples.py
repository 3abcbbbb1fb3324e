#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples as they are, on the CPU: train.py learns, is stopped, goes on and ends where a run without
a stop ends; serve_load.py loads shards, alone and with two ranks. Skips without PyTorch."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)

import headrace.torch as ht

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
SMALL = ("--device", "cpu", "--batch", "4", "--length", "16", "--width", "32", "--layers", "1",
         "--vocabulary", "128", "--json")


class Examples(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def run_example(self, name, *arguments, **env):
        process = subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name), *map(str, arguments)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", **env})
        self.addCleanup(process.kill)
        return process

    def result(self, process):
        out, err = process.communicate(timeout=400)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(out.splitlines()[-1])

    def test_train(self):
        tokens = os.path.join(self.dir, "tokens.bin")
        rng = random.Random(1)
        with open(tokens, "wb") as f:
            f.write(b"".join((i % 7 if rng.random() < 0.9 else 9).to_bytes(2, "little") for i in range(20_000)))

        def train(steps, save):
            return self.result(self.run_example("train.py", tokens, *SMALL, "--steps", steps, "--save",
                                                os.path.join(self.dir, save)))

        whole = train(60, "whole")
        self.assertLess(whole["loss"], whole["first_loss"] - 0.3)
        self.assertTrue(0 <= whole["waiting_share"] <= 1)
        train(33, "parts")
        rest = train(60, "parts")
        self.assertEqual(rest["first"], 33)
        a, b = (ht.load_file(os.path.join(self.dir, name)) for name in ("whole", "parts"))
        self.assertEqual(set(a), set(b))
        for name, tensor in a.items():
            self.assertTrue(torch.allclose(tensor, b[name], atol=1e-6), name)

    def test_serve(self):
        model = {f"w{i}": torch.randn(101, 64 + i) for i in range(20)}
        model["bias"] = torch.randn(7)
        folder = os.path.join(self.dir, "model")
        ht.save_sharded(model, folder, max_shard_bytes=100_000)
        total = sum(t.nelement() * 4 for t in model.values())
        alone = self.result(self.run_example("serve_load.py", folder, "--device", "cpu", "--json", "--rounds", 2))
        self.assertEqual((alone["bytes"], alone["tensors"], len(alone["seconds"])), (total, 21, 2))
        for more in ((), ("--rows",)):
            env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                   "GLOO_SOCKET_IFNAME": "lo"}
            ranks = [self.run_example("serve_load.py", folder, "--device", "cpu", "--json", *more,
                                      **env, RANK=str(rank)) for rank in range(2)]
            sizes = [self.result(process)["bytes"] for process in ranks]
            if more:
                self.assertEqual(sum(sizes), total + 7 * 4)
            else:
                self.assertEqual(sizes, [total, total])


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    unittest.main()

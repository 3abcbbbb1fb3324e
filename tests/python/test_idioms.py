#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Loader among the data tools of PyTorch: an IterableDataset in a DataLoader, and torchdata's
StatefulDataLoader, which must go on exactly where it was. Skips without PyTorch, and the second where
torchdata does not come or does not load."""
import os
import random
import shutil
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)

import headrace

T, B, N = 16, 4, 50


class Batches(torch.utils.data.IterableDataset):
    """Batches are made already; DataLoader hands them through."""

    def __init__(self, path):
        super().__init__()
        self.loader = headrace.Loader(headrace.TokenDataset(path, "u16", T), B, seed=5)

    def __iter__(self):
        for batch in self.loader:
            yield {"x": torch.from_dlpack(batch["input_ids"]).clone(), "ids": torch.tensor(batch.ids)}

    def __len__(self):
        return len(self.loader)

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)


class Idioms(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = os.path.join(self.dir, "tokens")
        with open(self.path, "wb") as f:
            f.write(random.Random(1).randbytes(2 * (N * T + 1)))

    def test_data_loader(self):
        loader = torch.utils.data.DataLoader(Batches(self.path), batch_size=None)
        want = [batch.ids for batch in headrace.Loader(headrace.TokenDataset(self.path, "u16", T), B, seed=5)]
        for batch, ids in zip(loader, want):
            self.assertEqual(batch["x"].shape, (B, T))
            self.assertEqual(tuple(batch["ids"].tolist()), tuple(ids))
        self.assertEqual(len(list(loader)), N // B)  # the next epoch

    def test_in_a_worker(self):
        """Of a process that PyTorch forks: the batches are its own."""
        class Late(Batches):
            def __init__(self, path):
                torch.utils.data.IterableDataset.__init__(self)
                self.path = path

            def __iter__(self):
                Batches.__init__(self, self.path)
                return super().__iter__()

        loader = torch.utils.data.DataLoader(Late(self.path), batch_size=None, num_workers=1)
        ids = [i for batch in loader for i in batch["ids"].tolist()]
        self.assertEqual((len(ids), len(set(ids))), (N // B * B, N // B * B))

    def test_stateful_data_loader(self):
        try:
            import pypi
            sys.path.insert(0, pypi.packages("torchdata", "torchdata", any_python=True, alone=True))
            from torchdata.stateful_dataloader import StatefulDataLoader
        except (SystemExit, ImportError, AttributeError) as problem:
            self.skipTest(f"no torchdata for this PyTorch: {problem}")
        whole = [b["ids"].tolist() for b in StatefulDataLoader(Batches(self.path), batch_size=None)]
        first = StatefulDataLoader(Batches(self.path), batch_size=None)
        seen = []
        for batch in first:
            seen.append(batch["ids"].tolist())
            if len(seen) == 5:
                state = first.state_dict()
                break
        again = StatefulDataLoader(Batches(self.path), batch_size=None)
        again.load_state_dict(state)
        seen += [b["ids"].tolist() for b in again]
        self.assertEqual(seen, whole)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several ranks by gloo, each a process: loads in which each rank reads a share, slices of DTensors,
torch.distributed.checkpoint. What a rank has read is counted, failures of one rank must end all.
What this version of PyTorch does not have is skipped; all of it without PyTorch."""
import faulthandler
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

import headrace
import headrace.torch as ht
from headrace import _torch_distributed
from headrace.checkpoint import Checkpoint, Weight

try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.device_mesh import init_device_mesh
except ImportError:
    DTensor = None
try:
    import torch.distributed.checkpoint as dcp
    from headrace.dcp import HeadraceReader, HeadraceWriter
except ImportError:
    dcp = None

TIMEOUT_S = 240
read_bytes = 0
plain_load = Checkpoint._load


def counted(self, device, parts):
    global read_bytes
    n = plain_load(self, device, parts)
    read_bytes += n
    return n


Checkpoint._load = counted


def model():
    torch.manual_seed(11)
    tensors = {f"small.{i}": torch.randn(i % 7 + 1, 5).to(torch.bfloat16) for i in range(300)}
    tensors.update({f"wide.{i}": torch.randn(3, 400_001 + i) for i in range(3)})
    tensors.update({"tall": torch.randn(70_001, 33), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
                    "flat": torch.randint(0, 100, (1, 1, 2_000_003), dtype=torch.int8),
                    "truth": torch.rand(9999) > 0.5})
    return tensors


def same(got, want):
    assert set(got) == set(want), set(got) ^ set(want)
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert torch.equal(got[name], tensor), name


# -- what the ranks do ------------------------------------------------------------------------------

def together(rank, world, folder):
    want = model()
    path = os.path.join(folder, "model.safetensors")
    total = sum(t.nelement() * t.element_size() for t in want.values())
    got = ht.load_file(path, group=dist.group.WORLD)
    same(got, want)
    assert read_bytes <= total / world + 2 * 400_003 * 4, (read_bytes, total)
    # in place, shards of an index, and again with rounds so small that there are many
    _torch_distributed.ROUND_BYTES, _torch_distributed.SMALL_BYTES = 300_000, 10_000
    _torch_distributed.STAGE_BYTES = 40_000
    into = {n: torch.zeros_like(t) for n, t in want.items()}
    assert ht.load_into(into, os.path.join(folder, "sharded"), group=dist.group.WORLD) == ([], [])
    same(into, want)
    if world > 2:
        # a group of some ranks, whose numbers are not those of the world
        some = dist.new_group([1, 2])
        if rank in (1, 2):
            same(ht.load_file(path, group=some), want)


def together_failing(rank, world, folder):
    path = os.path.join(folder, "model.safetensors")

    def fails(how, words):
        try:
            how()
        except Exception as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"no error, but {words!r} was expected")

    missing = path + ".none" if rank == 0 else path
    fails(lambda: ht.load_file(missing, group=dist.group.WORLD), "no such file")
    other = os.path.join(folder, "other.safetensors") if rank == 0 else path
    fails(lambda: ht.load_file(other, group=dist.group.WORLD), "different tensors")

    def broken(self, device, parts):
        raise headrace.Error(5, "EIO", "the drive is broken")

    Checkpoint._load = broken if rank == world - 1 else counted
    fails(lambda: ht.load_file(path, group=dist.group.WORLD), "the drive is broken")
    Checkpoint._load = counted
    same(ht.load_file(path, group=dist.group.WORLD), model())


def slices(rank, world, folder):
    global read_bytes
    want = model()
    path = os.path.join(folder, "model.safetensors")
    meshes = [init_device_mesh("cpu", (world,))]
    layouts = [(0, [Shard(0)]), (0, [Shard(1)]), (0, [Replicate()])]
    if world == 4:
        meshes.append(init_device_mesh("cpu", (2, 2)))
        layouts += [(1, [Shard(0), Shard(1)]), (1, [Shard(0), Shard(0)]), (1, [Replicate(), Shard(1)]),
                    (1, [Shard(1), Replicate()])]
    for at, placements in layouts:
        names = ["tall", "wide.0", "small.5", "small.6", "scalar"]
        state = {}
        for name in names:
            mine = placements if want[name].dim() else [Replicate()] * len(placements)
            state[name] = distribute_tensor(torch.zeros_like(want[name]), meshes[at], mine)
        read_bytes = 0
        ht.load_into(state, path, strict=False)
        local = sum(t.to_local().nelement() * t.to_local().element_size() for t in state.values())
        if not (at == 1 and placements == [Shard(0), Shard(1)]):
            assert read_bytes == local, (read_bytes, local, placements)
        same({n: t.full_tensor() for n, t in state.items()}, {n: want[n] for n in names})
    try:
        ht.load_into({"tall": DTensor.from_local(torch.zeros(70_001, 33), meshes[0], [Partial()])}, path,
                     strict=False)
    except ValueError as error:
        assert "partial" in str(error)
    else:
        raise AssertionError("a partial tensor was filled")


def state_of(mesh, fill):
    torch.manual_seed(5)
    values = {"a": torch.randn(101, 7), "b": torch.randn(64, 32), "c": torch.randn(9).to(torch.bfloat16)}
    where = {"a": [Shard(0)], "b": [Shard(1)], "c": [Replicate()]}
    tied = torch.randn(5)
    state = {n: distribute_tensor(t if fill else torch.zeros_like(t), mesh, where[n]) for n, t in values.items()}
    state.update({"plain": tied if fill else torch.zeros(5), "twin": tied if fill else torch.zeros(5),
                  "deep": {"step": 17 if fill else 0, "list": ["x", 3] if fill else ["", 0]}})
    return state, {**values, "plain": tied}


def check_state(state, values):
    for name, tensor in values.items():
        got = state[name].full_tensor() if isinstance(state[name], DTensor) else state[name]
        assert torch.equal(got, tensor), name
    assert torch.equal(state["twin"], values["plain"])
    assert state["deep"] == {"step": 17, "list": ["x", 3]}, state["deep"]


def checkpoint_save(rank, world, folder):
    mesh = init_device_mesh("cpu", (world,))
    state, values = state_of(mesh, True)
    where = os.path.join(folder, "dcp")
    for _ in range(2):  # the second one replaces the first
        dcp.save(state, storage_writer=HeadraceWriter(where))
        dist.barrier()
        files = sorted(os.listdir(where))
        assert len(files) == world + 1 and files[0] == ".metadata", files
    fresh, _ = state_of(mesh, False)
    dcp.load(fresh, storage_reader=HeadraceReader(), checkpoint_id=where)
    check_state(fresh, values)
    if hasattr(dcp, "async_save"):
        late = os.path.join(folder, "late")
        # Whether it is copied before is PyTorch's business: it has changed between versions.
        dcp.async_save(state, storage_writer=HeadraceWriter(late)).result()
        fresh, _ = state_of(mesh, False)
        dcp.load(fresh, storage_reader=HeadraceReader(late))
        check_state(fresh, values)


def checkpoint_load(rank, world, folder):
    fresh, values = state_of(init_device_mesh("cpu", (world,)), False)
    dcp.load(fresh, storage_reader=HeadraceReader(os.path.join(folder, "dcp")))
    check_state(fresh, values)


def worker(case, rank, world, folder):
    faulthandler.dump_traceback_later(TIMEOUT_S * 3 // 4)  # where a rank hangs
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{case}-{world}", rank=rank,
                            world_size=world)
    globals()[case](rank, world, folder)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # PyTorch takes seconds to tear down


# -- the tests --------------------------------------------------------------------------------------

@unittest.skipUnless(dist.is_available(), "PyTorch without torch.distributed")
class Ranks(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def run_ranks(self, case, world):
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, __file__, "worker", case, str(rank), str(world), self.dir],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
                 for rank in range(world)]
        end = time.monotonic() + TIMEOUT_S
        # When one has failed the others wait for it: they are not to be waited for.
        while any(p.poll() is None for p in ranks) and not any(p.poll() for p in ranks):
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        ended = [p.poll() for p in ranks]
        for process in ranks:
            process.kill()
        said = [f"rank {rank}: {p.communicate()[0]}" for rank, p in enumerate(ranks)]
        self.assertEqual(ended, [0] * world, f"{case}\n" + "\n".join(said)[-6000:])

    def save_model(self):
        ht.save_file(model(), os.path.join(self.dir, "model.safetensors"))
        ht.save_sharded(model(), os.path.join(self.dir, "sharded"), max_shard_bytes=3_000_000)
        ht.save_file({"w": torch.zeros(3)}, os.path.join(self.dir, "other.safetensors"))

    def test_together(self):
        self.save_model()
        for world in (1, 2, 3):
            self.run_ranks("together", world)

    def test_together_failing(self):
        self.save_model()
        self.run_ranks("together_failing", 2)

    @unittest.skipUnless(DTensor, "PyTorch without torch.distributed.tensor")
    def test_slices(self):
        self.save_model()
        for world in (2, 4):
            self.run_ranks("slices", world)

    @unittest.skipUnless(DTensor and dcp, "PyTorch without torch.distributed.checkpoint")
    def test_checkpoint(self):
        self.run_ranks("checkpoint_save", 2)
        for world in (1, 3):
            self.run_ranks("checkpoint_load", world)


class Alone(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="headrace-python-")
        self.addCleanup(shutil.rmtree, self.dir)

    def test_plan(self):
        """Every byte of every tensor once, in shares and rounds that are small enough."""
        rng = random.Random(1)
        limit, stage = _torch_distributed.ROUND_BYTES, 1 << 20
        for _ in range(60):
            ranks = rng.randint(1, 9)
            weights = []
            for i in range(rng.randint(0, 60)):
                shape = tuple(rng.choice((0, 1, 1, 2, 3, 1000, 5000)) for _ in range(rng.randint(0, 4)))
                nbytes = 2
                for n in shape:
                    nbytes *= n
                if nbytes < 1 << 33:
                    weights.append(Weight(f"t{i}", "F16", shape, nbytes, ""))
            made = _torch_distributed.plan(weights, ranks, stage)
            self.assertEqual(len(made), ranks)
            found = {}
            for rounds in made:
                for pieces in rounds:
                    self.assertTrue(len(pieces) == 1 or sum(p.nbytes for p in pieces) <= limit)
                    small = [p for p in pieces if p.nbytes < _torch_distributed.SMALL_BYTES]
                    self.assertLessEqual(sum(-(-p.nbytes // 256) * 256 for p in small), stage)
                    for p in pieces:
                        found.setdefault(p.name, []).append((p.offset, p.nbytes))
            for w in weights:
                at = 0
                for offset, nbytes in sorted(found.pop(w.name, [])):
                    self.assertEqual(offset, at)
                    at += nbytes
                self.assertEqual(at, w.nbytes)
            self.assertEqual(found, {})
            total = sum(w.nbytes for w in weights)
            row = max((w.nbytes // next((n for n in w.shape if n > 1), 1) for w in weights if w.nbytes),
                      default=0)
            for rounds in made:
                self.assertLessEqual(sum(p.nbytes for r in rounds for p in r), total / ranks + 2 * row)

    @unittest.skipUnless(dcp, "PyTorch without torch.distributed.checkpoint")
    def test_checkpoint_alone(self):
        """Without a process group; what is refused; a save that fails leaves the old checkpoint."""
        warnings.simplefilter("ignore")
        where = os.path.join(self.dir, "new", "folder")
        net = torch.nn.Linear(5, 3)
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.ones(5)).sum().backward()
        optimizer.step()
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "none": None}
        dcp.save(state, storage_writer=HeadraceWriter(where))
        weight = net.weight.detach().clone()
        with torch.no_grad():
            net.weight.zero_()
        fresh = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "none": 3}
        dcp.load(fresh, storage_reader=HeadraceReader(where))
        self.assertTrue(torch.equal(net.weight, weight))
        self.assertIsNone(fresh["none"])
        files = sorted(os.listdir(where))
        with self.assertRaises(BaseException):
            dcp.save({"bad": torch.zeros(3, dtype=torch.complex128)}, storage_writer=HeadraceWriter(where))
        self.assertEqual(sorted(os.listdir(where)), files)
        class Evil:
            def __reduce__(self):
                return (os.mkdir, (os.path.join(where, "evil"),))
        import pickle
        with open(os.path.join(where, ".metadata"), "wb") as f:
            pickle.dump(Evil(), f)
        with self.assertRaisesRegex(BaseException, "trust=True"):
            dcp.load(fresh, storage_reader=HeadraceReader(where))
        with self.assertRaisesRegex(pickle.UnpicklingError, "trust=True"):
            HeadraceReader(where).read_metadata().state_dict_metadata  # noqa: B018
        self.assertFalse(os.path.exists(os.path.join(where, "evil")))
        with self.assertRaisesRegex(BaseException, "No such file"):
            dcp.load(fresh, storage_reader=HeadraceReader(where + ".none"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        unittest.main()

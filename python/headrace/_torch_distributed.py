# SPDX-License-Identifier: Apache-2.0
"""Several ranks: parts of sharded tensors, and loads in which each rank reads a share for all."""
import hashlib
from typing import NamedTuple

import torch
import torch.distributed as dist

from ._torch_types import PACKED, as_bytes, device_name, empty, memory_of, settle, type_of
from .checkpoint import Checkpoint

TEMPORARY_BYTES = 64 << 20  # for parts that are narrowed in several dimensions, or one tensor
ROUND_BYTES = 64 << 20  # what a rank reads while the ranks exchange the round before
STAGE_BYTES = 32 << 20  # of small pieces of all ranks, on each of them
SMALL_BYTES = 1 << 20  # pieces below go together, by way of the stage


# -- parts of tensors -------------------------------------------------------------------------------

def local_box(name, tensor):
    """(offsets, sizes, local tensor) of what this rank has of a DTensor; None for other tensors."""
    if not hasattr(tensor, "placements") or not hasattr(tensor, "device_mesh"):
        return None
    local = tensor.to_local()
    if tensor.device_mesh.get_coordinate() is None:
        return [0] * tensor.dim(), [0] * tensor.dim(), local[:0] if tensor.dim() else local
    offsets, sizes = _box_of(name, tensor)
    if tuple(local.shape) != tuple(sizes):
        raise ValueError(f"{name}: its placements {tensor.placements} make {sizes} of it on this rank, "
                         f"which has {list(local.shape)}")
    return offsets, sizes, local


def _box_of(name, tensor):
    offsets, sizes = [0] * tensor.dim(), list(tensor.shape)
    place = tensor.device_mesh.get_coordinate()
    for axis, placement in enumerate(tensor.placements):
        if placement.is_partial():
            raise ValueError(f"{name}: is a partial sum on each rank; redistribute it first")
        if type(placement).__name__ == "_StridedShard":
            from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as compute

            shape, start = compute(tensor.shape, tensor.device_mesh, tensor.placements)
            return list(start), list(shape)
        if placement.is_shard():
            dim, ranks = placement.dim % tensor.dim(), tensor.device_mesh.size(axis)
            each = -(-sizes[dim] // ranks)
            first = min(sizes[dim], each * place[axis])
            offsets[dim] += first
            sizes[dim] = min(each, sizes[dim] - first)
    return offsets, sizes


class _Late(NamedTuple):
    """A part that is read with more around it, and then narrowed."""

    target: torch.Tensor
    temporary: torch.Tensor
    narrow: list  # of (dim, start, count)


def fill_boxes(boxes):
    """Fill tensors from (checkpoint, name, offsets, sizes, tensor): parts of what the file has under
    the name, in as few passes as there are checkpoints and devices."""
    groups = {}
    for checkpoint, name, offsets, sizes, tensor in boxes:
        if not tensor.nelement():
            continue
        device, name_of = device_name(tensor.device)
        groups.setdefault((id(checkpoint), name_of), (checkpoint, device, []))[2].append(
            (name, offsets, sizes, tensor))
    for (_, name_of), (checkpoint, device, wanted) in groups.items():
        settle(device)
        parts, late, size = [], [], 0
        for name, offsets, sizes, tensor in wanted:
            part, more = _part_of(checkpoint, name, offsets, sizes, tensor, name_of)
            nbytes = more.temporary.nelement() * more.temporary.element_size() if more else 0
            if late and size + nbytes > TEMPORARY_BYTES:
                _finish(checkpoint, name_of, parts, late)
                parts, late, size = [], [], 0
            parts.append(part)
            size += nbytes
            late += [more] if more else []
        _finish(checkpoint, name_of, parts, late)


def _part_of(checkpoint, name, offsets, sizes, tensor, name_of):
    index, weight = checkpoint._find(name)
    if weight.dtype in PACKED and sizes:
        offsets, sizes = [*offsets[:-1], offsets[-1] * 2], [*sizes[:-1], sizes[-1] * 2]
    narrowed = [d for d, n in enumerate(sizes) if n != weight.shape[d]]
    if len(narrowed) <= 1 and tensor.is_contiguous() and tensor.dtype == type_of(weight):
        dim = narrowed[0] if narrowed else -1
        where = (offsets[dim], sizes[dim]) if narrowed else (0, 0)
        return (index, dim, *where, memory_of(tensor, name_of)), None
    # The dimension that leaves the least to read; the others are narrowed on the device.
    dim = min(narrowed, key=lambda d: sizes[d] / weight.shape[d], default=-1)
    shape = list(weight.shape)
    if dim >= 0:
        shape[dim] = sizes[dim]
    temporary = empty(weight, shape, tensor.device)
    where = (offsets[dim], sizes[dim]) if dim >= 0 else (0, 0)
    rest = [(d, offsets[d], sizes[d]) for d in narrowed if d != dim]
    if weight.dtype in PACKED:
        rest = [(d, n // 2, k // 2) if d == len(sizes) - 1 else (d, n, k) for d, n, k in rest]
    return (index, dim, *where, memory_of(temporary, name_of)), _Late(tensor, temporary, rest)


def _finish(checkpoint, name_of, parts, late):
    if parts:
        checkpoint._load(name_of, parts)
    for more in late:
        source = more.temporary
        for dim, start, count in more.narrow:
            source = source.narrow(dim, start, count)
        with torch.no_grad():
            more.target.copy_(source)


# -- who reads what ---------------------------------------------------------------------------------

class Piece(NamedTuple):
    """Rows of a tensor that lie together, in the file and in memory."""

    name: str
    dim: int  # -1: all of it
    start: int
    rows: int
    offset: int  # bytes, in the tensor
    nbytes: int


def _pieces(weight, at, total, ranks):
    """(rank, Piece) of one tensor whose first byte is byte @at of @total: cut where one rank's share
    ends and the next one's begins, and into what is read in one round."""
    dim = next((d for d, n in enumerate(weight.shape) if n > 1), -1)
    if dim < 0 or weight.nbytes % weight.shape[dim]:
        yield min(at * ranks // total, ranks - 1), Piece(weight.name, -1, 0, 0, 0, weight.nbytes)
        return
    row = weight.nbytes // weight.shape[dim]
    start = 0
    while start < weight.shape[dim]:
        first = at + start * row
        rank = min(first * ranks // total, ranks - 1)
        end = -(-total * (rank + 1) // ranks)
        count = max(1, min(weight.shape[dim] - start, -(-(end - first) // row), ROUND_BYTES // row))
        yield rank, Piece(weight.name, dim, start, count, start * row, count * row)
        start += count


def plan(weights, ranks, stage_bytes):
    """For each rank its rounds, each a list of Pieces: at most ROUND_BYTES, or one Piece, and of small
    ones at most stage_bytes. The same on every rank that has the same list."""
    total, at = sum(w.nbytes for w in weights), 0
    out = [[] for _ in range(ranks)]
    sizes = [(0, 0)] * ranks
    for weight in weights:
        if not weight.nbytes:
            continue
        for rank, piece in _pieces(weight, at, total, ranks):
            small = _padded(piece.nbytes) if piece.nbytes < SMALL_BYTES else 0
            size, staged = sizes[rank]
            if not out[rank] or size + piece.nbytes > ROUND_BYTES or staged + small > stage_bytes:
                out[rank].append([])
                size, staged = 0, 0
            out[rank][-1].append(piece)
            sizes[rank] = size + piece.nbytes, staged + small
        at += weight.nbytes
    return out


def _padded(nbytes):
    return -(-nbytes // 256) * 256


# -- reading together -------------------------------------------------------------------------------

def _global_rank(group, rank):
    if group is dist.group.WORLD:
        return rank
    return dist.distributed_c10d.get_global_rank(group, rank)


class _Together:
    """One cooperative load: each rank reads the Pieces of its rounds into the tensors, or, if they are
    small, into a stage; then all send what they have."""

    def __init__(self, checkpoint, tensors, group, device):
        self._checkpoint, self._tensors, self._group = checkpoint, tensors, group
        self._device, self._name = device_name(device)
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        self._stage_bytes = max(SMALL_BYTES, STAGE_BYTES // (self._ranks + 1) // 256 * 256)
        self._plan = plan([checkpoint[name] for name in checkpoint if name in tensors], self._ranks,
                          self._stage_bytes)
        # One for each rank, and one more: what is read next while this rank's own is being sent.
        self._stages = [torch.empty(self._stage_bytes, dtype=torch.uint8, device=self._device)
                        for _ in range(self._ranks + 1)]
        self._next = self._stages.pop()
        self.problem = None

    def run(self):
        settle(self._device)
        self._read(0)
        for number in range(max(len(rounds) for rounds in self._plan)):
            self._stages[self._rank], self._next = self._next, self._stages[self._rank]
            sent = [work for root in range(self._ranks) for work in self._send(root, number)]
            self._read(number + 1)
            for work in sent:
                work.wait()
            for root in range(self._ranks):
                self._unpack(root, number)
            settle(self._device)

    def _round(self, root, number):
        """Large pieces, and small ones with their place in the stage."""
        rounds, large, small, at = self._plan[root], [], [], 0
        for piece in rounds[number] if number < len(rounds) else []:
            if piece.nbytes >= SMALL_BYTES:
                large.append(piece)
            else:
                small.append((piece, at))
                at += _padded(piece.nbytes)
        return large, small, at

    def _bytes_of(self, piece):
        return as_bytes(self._tensors[piece.name])[piece.offset:piece.offset + piece.nbytes]

    def _read(self, number):
        """Read this rank's share. A failure is told at the end: the others wait for what is sent."""
        if self.problem is not None:
            return
        large, small, _ = self._round(self._rank, number)
        targets = [(piece, self._bytes_of(piece)) for piece in large]
        targets += [(piece, self._next[at:at + piece.nbytes]) for piece, at in small]
        parts = [(self._checkpoint._find(p.name)[0], p.dim, p.start, p.rows, memory_of(t, self._name))
                 for p, t in targets]
        try:
            if parts:
                self._checkpoint._load(self._name, parts)
        except Exception as problem:  # noqa: B902 - raised by whoever called, after the exchange
            self.problem = problem

    def _send(self, root, number):
        large, small, size = self._round(root, number)
        memory = [self._bytes_of(piece) for piece in large]
        memory += [self._stages[root][:size]] if small else []
        for tensor in memory:
            yield dist.broadcast(tensor, _global_rank(self._group, root), self._group, async_op=True)

    def _unpack(self, root, number):
        for piece, at in self._round(root, number)[1]:
            self._bytes_of(piece).copy_(self._stages[root][at:at + piece.nbytes])


def _agree(group, what, problem):
    """Have all ranks the same to do? Raises on all of them if not, or if one has failed."""
    said = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, (what, problem and str(problem)), group)
    if problem is not None:
        raise problem
    failed = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(said) if text]
    if failed:
        raise RuntimeError("another rank failed: " + "; ".join(failed))
    if len({digest for digest, _ in said}) > 1:
        raise ValueError("the ranks want different tensors, or their files differ; load the same ones")


def _digest(checkpoint, tensors):
    rows = [(w.name, w.dtype, w.shape) for w in map(checkpoint.__getitem__, checkpoint) if w.name in tensors]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def fill_together(checkpoint, tensors, group):
    """Fill {name: tensor}, which all ranks of the group have alike, each reading a share."""
    devices = {t.device for t in tensors.values() if t.nelement()}
    problem = None
    if len(devices) > 1:
        problem = ValueError(f"tensors are on {sorted(map(str, devices))}; load each device by itself")
    _agree(group, _digest(checkpoint, tensors), problem)
    if not devices:
        return
    together = _Together(checkpoint, tensors, group, devices.pop())
    together.run()
    _agree(group, "", together.problem)


def load_together(filename, device, group):
    """All tensors of a file on every rank of the group."""
    checkpoint, tensors, problem = None, {}, None
    try:
        checkpoint = Checkpoint(filename)
        device = device_name(device)[0]
        tensors = {w.name: empty(w, w.shape, device) for w in map(checkpoint.__getitem__, checkpoint)}
    except Exception as error:  # noqa: B902 - the other ranks are to hear of it first
        problem = error
    _agree(group, "", problem)
    fill_together(checkpoint, tensors, group)
    return tensors

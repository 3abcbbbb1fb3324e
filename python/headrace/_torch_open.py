# SPDX-License-Identifier: Apache-2.0
"""Open files that are read when they are asked: ``safe_open`` and its slices."""
import collections.abc

from ._torch_types import PACKED, fill
from .checkpoint import Checkpoint


class Slice:
    """A tensor of an open file, read when it is indexed: only the part of one dimension that is
    wanted is read, the rest is indexed in memory."""

    def __init__(self, opened, name):
        self._opened, self._name = opened, name

    def get_shape(self):
        return list(self._opened._open()[self._name].shape)

    def get_dtype(self):
        return self._opened._open()[self._name].dtype

    def __getitem__(self, index):
        found = self._opened._take(self._name, index)
        if found is not None:
            return found
        checkpoint = self._opened._open()
        part, rest = resolve(checkpoint[self._name], index)
        tensor = fill(checkpoint, {0: (self._name, *part)}, self._opened._device)[0]
        return tensor[rest] if rest else tensor


def resolve(weight, index):
    """What is to be read of a tensor for an index, as (dim or -1, start, count), and the index that is
    left for what was read."""
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("more than one Ellipsis")
    if dots:
        items[dots[0]:dots[0] + 1] = [slice(None)] * (len(weight.shape) - len(items) + 1)
    if len(items) > len(weight.shape):
        raise IndexError(f"too many indices for {weight.name} of {len(weight.shape)} dimensions")
    part = (-1, 0, 0)
    for d, item in enumerate(items):
        first, last = _range(item, weight.shape[d])
        if part[0] < 0 and last - first < weight.shape[d] and weight.dtype not in PACKED:
            part = (d, first, last - first)
            items[d] = _shift(item, first, weight.shape[d])
    return part, tuple(items)


def _range(item, size):
    """The least range of a dimension that an index needs."""
    if isinstance(item, slice):
        picked = range(*item.indices(size))
        if not picked:
            return 0, 0
        return min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1
    if isinstance(item, int) and not isinstance(item, bool):
        if not -size <= item < size:
            raise IndexError(f"index {item} is out of bounds for a dimension of {size}")
        return item % size, item % size + 1
    return 0, size  # tensors, lists, None: PyTorch's business


def _shift(item, first, size):
    """The same index within a range that begins at @first."""
    if isinstance(item, int):
        return item % size - first
    picked = range(*item.indices(size))
    if not picked:
        return slice(0, 0)
    if item.step is not None and item.step < 0:
        raise ValueError("a step must be greater than zero")
    return slice(picked[0] - first, picked[-1] - first + 1, item.step)


def _key(index):
    """An index as something that can be looked up, None if it is not made of numbers and slices."""
    out = []
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, slice):
            out.append((item.start, item.stop, item.step))
        elif item is Ellipsis or (isinstance(item, int) and not isinstance(item, bool)):
            out.append(item)
        else:
            return None
    return tuple(out)


def check_backend(backend):
    if backend not in ("mmap", "pread"):
        raise ValueError(f"backend {backend!r}: must be \"mmap\" or \"pread\", and makes no difference")


class safe_open:  # noqa: N801 - the name is the interface
    """Opens a file lazily, as ``safetensors.safe_open`` for framework "pt".

    ``backend`` and ``copy`` are accepted and not needed: nothing is mapped, and every tensor owns its
    memory.
    """

    def __init__(self, filename, framework="pt", device="cpu", *, backend="mmap", copy=True):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"framework {framework!r}: this is headrace.torch, say \"pt\"")
        check_backend(backend)
        self._checkpoint = Checkpoint(filename)
        self._device = device
        self._ready = {}

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, _exc_type, _exc_value, _traceback):
        self._checkpoint = None
        self._ready = {}

    def _open(self):
        if self._checkpoint is None:
            raise RuntimeError("the file is closed")
        return self._checkpoint

    def _take(self, name, index):
        """What prefetch() has read for this index, once."""
        key = _key(index)
        return None if key is None else self._ready.pop((name, key), None)

    def keys(self):
        """Names, sorted."""
        return sorted(self._open())

    def offset_keys(self):
        """Names, in the order of the file."""
        return self._open().keys()

    def metadata(self):
        """Pairs of text, or None."""
        return self._open().metadata or None

    def prefetch(self, plan=None):
        """Read now, in one pass over the files, what will be asked for: everything, or ``plan``. That
        is a list of names, or {name: what}, where what is None for all of the tensor, an index as for
        get_slice(), or a list of them. Each result is handed out once, by get_tensor(name) or
        get_slice(name)[index]; whoever asks again has it read again."""
        checkpoint = self._open()
        wanted, rests = {}, {}
        for name, index in _plan(checkpoint, plan):
            part, rest = ((-1, 0, 0), ()) if index is None else resolve(checkpoint._find(name)[1], index)
            key = (name, None if index is None else _key(index))
            if index is not None and key[1] is None:
                raise TypeError(f"{name}: a plan is made of numbers and slices, not {index!r}")
            wanted[key], rests[key] = (name, *part), rest
        for key, tensor in fill(checkpoint, wanted, self._device).items():
            self._ready[key] = tensor[rests[key]] if rests[key] else tensor

    def get_tensor(self, name):
        checkpoint = self._open()
        ready = self._ready.pop((name, None), None)
        return fill(checkpoint, {name: (name, -1, 0, 0)}, self._device)[name] if ready is None else ready

    def get_tensors(self):
        checkpoint = self._open()
        ready = {n: self._ready.pop((n, None)) for n in checkpoint if (n, None) in self._ready}
        ready.update(fill(checkpoint, {n: (n, -1, 0, 0) for n in checkpoint if n not in ready}, self._device))
        return {n: ready[n] for n in checkpoint}

    def get_slice(self, name):
        self._open()._find(name)
        return Slice(self, name)


def _plan(checkpoint, plan):
    """Pairs (name, index or None)."""
    if plan is None:
        plan = checkpoint.keys()
    if isinstance(plan, str):
        plan = [plan]
    if not isinstance(plan, collections.abc.Mapping):
        plan = dict.fromkeys(plan)
    for name, what in plan.items():
        for index in what if isinstance(what, list) else [what]:
            yield name, index

# SPDX-License-Identifier: Apache-2.0
"""Shuffled, sharded, resumable batches that are already in device memory.

A batch is a slot of a ring that is allocated once. Its slot is used again when the program has let go
of the batch and of everything that was made of it, and when the stream that the tensors were taken on
has got there. A program that keeps every batch gets an Error (HR_E_NO_SLOT), never a reused buffer.
"""
import collections

from . import _arguments, _core, _engines
from .dataset import Dataset

_HOST, _CUDA = 1, 2  # numbers of DLPack


_SHUFFLE = {True: 0, False: 1, "full": 0, "none": 1, "window": 2}


class Tensor(_core.Tensor):
    """A tensor of a batch: DLPack, and ``__cuda_array_interface__`` on a GPU. Strides are in elements."""

    __slots__ = ()

    @property
    def host(self):
        """The same tensor where the CPU can read it: offsets, lengths, scalars and positions of any
        device, all tensors of "host". None else."""
        return _HostTensor(self) if self._host else None

    def __copy__(self):
        return Tensor(self._slot, self.name, self.dtype, self.shape, self.strides, self._address, self._host)

    def __getattr__(self, name):
        if name == "__cuda_array_interface__" and self._slot.dlpack_device[0] == _CUDA:
            self._slot.taken_on(None)  # the interface cannot say on which: the default one waits for all
            if self.dtype == "bool" or self.dtype[1:].isdigit():
                size = 1 if self.dtype == "bool" else int(self.dtype[1:]) // 8
            else:
                raise AttributeError(f"{name}: cannot say {self.dtype}; take the tensor by DLPack")
            return {"shape": self.shape, "typestr": f"{'<' if size > 1 else '|'}{self.dtype[0]}{size}",
                    "version": 3,
                    "strides": tuple(s * size for s in self.strides), "data": (self._address, False)}
        raise AttributeError(name)

    def __repr__(self):
        return f"headrace.Tensor({self.name!r}, {self.dtype}, {self.shape})"


class _HostTensor:
    """A tensor of a batch, read by the CPU."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.name, self.dtype, self.shape = tensor.name, tensor.dtype, tensor.shape

    def __dlpack_device__(self):
        return (_HOST, 0)

    def __dlpack__(self, stream=None, **_newer):
        return self._tensor._host_dlpack()


class _Ids:
    """``Batch.ids``: a tuple that is made when somebody asks for it, since a step of training does not."""

    def __get__(self, batch, _kind=None):
        if batch is None:
            return ()
        batch._ids = batch.ids = tuple(batch._ids)  # found there from now on, before this
        return batch.ids


class Batch(dict):
    """Tensors by name; ``epoch``, ``step``, ``valid`` rows, ``ids`` of the samples; ``max_seqlen`` of
    packed windows."""

    epoch = step = valid = max_seqlen = 0
    ids = _Ids()
    _ids, _last = (), False


class _Ring:
    """An open loader of the C library. Lives as long as any of its batches."""

    def __init__(self, dataset, device, *args):
        self.device = _engines.device(device)
        kind, _, index = device.partition(":")
        self.dlpack_device = (_CUDA, int(index)) if kind == "cuda" else (_HOST, 0)
        self.free = collections.deque()  # (batch, stream or None), from whichever thread
        self.maker = _core.Maker(Tensor, Batch, self.free.append, self.dlpack_device)
        self._lanes = {}
        self.handle = _core.loader_open(dataset, self.device, *args)

    def release(self):
        """Give back what was let go."""
        while self.free:
            batch, stream = self.free.popleft()
            lane = None
            if stream is not None:
                if stream not in self._lanes:
                    # To the driver the default stream is 1, since 0 would ask for a new one.
                    self._lanes[stream] = _core.lane_open(self.device, stream or 1)
                lane = self._lanes[stream]
            try:
                _core.loader_release(self.handle, batch, lane)
            except Exception:
                self.free.append((batch, stream))  # it is still held, as while a graph is captured
                raise

    def __del__(self):
        self.handle = None  # before the lanes: closing waits for what slots still have on them


class Loader:
    """Batches of a dataset on a device: "host" or "cuda:N", or what PyTorch, JAX or CuPy call it.

    ``for batch in loader`` gives the rest of one epoch and goes on with the next one when it is used
    again; ``next()`` goes on without end. ``dp_rank`` and ``dp_world_size`` are the data-parallel
    ones. ``epochs`` 0 is endless. ``last``: "drop" or "pad" what does not fill a step of all ranks.
    ``shuffle``: "full" or True, "none" or False, or "window": within ``window`` files at a time.

    ``dtype``: what a single field becomes, "i64" for windows of tokens; ``dtypes``: {field: type} of
    several; NumPy's and PyTorch's types and their names will do as well.

    ``ragged``: "values" gives NAME and NAME.offsets, "pad" gives rows of ``pad_to`` elements
    (of the longest sample by default) filled up with ``pad_value``, and NAME.lengths. ``batch_bytes``
    limits a ragged field in a batch. ``packed``: position_ids and cu_seqlens of windows of documents.
    """

    def __init__(self, dataset, batch_size, device="host", *, dtype=None, dtypes=None, seed=0, shuffle=True,
                 window=0, last="drop", epochs=0, dp_rank=0, dp_world_size=1, slots=0, threads=1,
                 ragged="values", pad_to=0, pad_value=0, batch_bytes=0, packed=False):
        if last not in ("drop", "pad"):
            raise ValueError(f"last {last!r}: must be \"drop\" or \"pad\"")
        if shuffle not in _SHUFFLE:
            raise ValueError(f"shuffle {shuffle!r}: must be \"full\", \"none\" or \"window\"")
        if ragged not in ("values", "pad"):
            raise ValueError(f"ragged {ragged!r}: must be \"values\" or \"pad\"")
        _arguments.u32(batch_size=batch_size, window=window, dp_rank=dp_rank, dp_world_size=dp_world_size,
             slots=slots, threads=threads)
        _arguments.natural(epochs=epochs, pad_to=pad_to, batch_bytes=batch_bytes)
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset: one of headrace's is needed, not {type(dataset).__name__}")
        if dtype is None and dataset.info()["windows"]:
            dtype = "i64"  # what embeddings take
        self._dataset, self._device = dataset, _arguments.device(device)
        dtype = None if dtype == "same" else _arguments.dtype(dtype)
        casts = [(field, _arguments.dtype(to)) for field, to in (dtypes or {}).items()]
        self._args = (dtype, batch_size, seed, _SHUFFLE[shuffle], window,
                      last == "pad", epochs, dp_rank, dp_world_size, slots, threads,
                      casts, int(ragged == "pad"), pad_to, pad_value, batch_bytes,
                      packed)
        self._ring, self._started = None, False
        self._open()

    def _open(self):
        self._ring = _Ring(self._dataset._handle, self._device, *self._args)
        self._started = False

    def info(self):
        """Sizes, slots, threads, batches so far and the time that next() waited for them; how often files
        were opened again, and why."""
        return _core.loader_info(self._ring.handle)

    def __len__(self):
        """Steps of an epoch."""
        return self.info()["steps_per_epoch"]

    def next(self, out=None):
        """The next batch. ``out``: {name: tensor} of the program, filled instead and returned as the
        batch: their addresses stay, and the slot is free at once. StopIteration after the last epoch."""
        ring = self._ring
        ring.release()
        batch = _core.loader_next(ring.handle, ring.maker, ring)
        self._started = True
        if batch is None:
            raise StopIteration
        if out is not None:
            for name, target in out.items():
                _copy(target, batch[name])
            about, batch = batch.__dict__, Batch(out)
            batch.__dict__.update(about)
        return batch

    def __iter__(self):
        while True:
            try:
                batch = self.next()
            except StopIteration:
                return
            last = batch._last
            yield batch
            del batch
            if last:
                return

    def state_dict(self):
        """Where the program is: after the batches that it was given. Small, and good for any number of
        ranks and any batch size."""
        return {"headrace": _core.loader_state(self._ring.handle).hex()}

    def load_state_dict(self, state):
        """Go on from there. Batches that are held stay valid."""
        if self._started:
            self._open()
        _core.loader_restore(self._ring.handle, bytes.fromhex(state["headrace"]))

    def __reduce__(self):
        return (_reopen, (self._dataset, self._device, self._args, self.state_dict()))


def _reopen(dataset, device, args, state):
    loader = Loader.__new__(Loader)
    loader._dataset, loader._device, loader._args = dataset, device, args
    loader._open()
    loader.load_state_dict(state)
    return loader


def _copy(target, tensor):
    """In the framework that the target belongs to."""
    if hasattr(target, "copy_"):  # PyTorch
        import torch

        target.copy_(torch.from_dlpack(tensor))
    elif hasattr(target, "__array_interface__"):
        import numpy

        numpy.copyto(target, numpy.from_dlpack(tensor))
    elif hasattr(target, "__cuda_array_interface__"):
        import cupy

        cupy.copyto(target, cupy.from_dlpack(tensor))
    else:
        raise TypeError(f"out: {type(target).__name__} is no tensor of PyTorch, NumPy or CuPy")
